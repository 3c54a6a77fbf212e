/* SPDX-License-Identifier: MIT */
/* io/backoff: how long a connection waits until it is tried again. */
#include "io/backoff.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

#define NS_PER_S UINT64_C(1000000000)
#define SEEDS 200

static void assert_wait(struct weir__backoff *backoff, uint64_t mean_ms)
{
    uint64_t wait_ms = weir__backoff_ms(backoff);
    assert_in_range(wait_ms, mean_ms / 2, mean_ms / 2 + mean_ms);
}

static void test_the_wait_doubles_up_to_a_most(void **state)
{
    static const uint64_t means_ms[] = {50, 100, 200, 400, 500, 500, 500};
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct weir__backoff backoff = {.seed = seed};
        for (size_t i = 0; i < sizeof(means_ms) / sizeof(means_ms[0]); i++) {
            assert_wait(&backoff, means_ms[i]);
        }
    }
}

/* What is up for a moment and lost again has not shown that it works. */
static void test_a_connection_that_stood_starts_anew(void **state)
{
    (void)state;
    struct weir__backoff backoff = {.seed = 1};
    assert_wait(&backoff, 50);
    assert_wait(&backoff, 100);
    weir__backoff_stood(&backoff, NS_PER_S - 1);
    assert_wait(&backoff, 200);
    weir__backoff_stood(&backoff, NS_PER_S);
    assert_wait(&backoff, 50);
}

static void test_clients_do_not_come_together(void **state)
{
    (void)state;
    bool seen[76] = {false};
    unsigned different = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct weir__backoff backoff = {.seed = seed};
        uint64_t wait_ms = weir__backoff_ms(&backoff);
        different += !seen[wait_ms];
        seen[wait_ms] = true;
    }
    assert_true(different > 30); /* of the 51 that can be */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_wait_doubles_up_to_a_most),
        cmocka_unit_test(test_a_connection_that_stood_starts_anew),
        cmocka_unit_test(test_clients_do_not_come_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
