/* SPDX-License-Identifier: MIT */
/*
 * Low traffic, exactly: eight processes and a limit of five.  The sixth call is refused with a
 * time; at that time it is allowed, and earlier it is not.
 *
 * Times are measured from outside.  The store decided between the call that was refused and the
 * moment its answer was heard, so a token is there
 *
 *     not before   called + retry_after      and surely by      heard + retry_after
 *
 * A call whose answer is heard before the first must be refused; one that is made at the second
 * must be allowed. An early call that a loaded machine has held up beyond the first proves nothing,
 * and does not count.
 */
#include "crash/puppet.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "bench/clock.h"
#include "crash/server.h"

#define PROCESSES 8
#define CAPACITY 5
#define KEY "someone"

struct scene {
    struct server server;
    struct puppet puppets[PROCESSES];
    unsigned turn;
};

static int setup(void **state)
{
    struct scene *scene = calloc(1, sizeof *scene);
    *state = scene;
    server_open(&scene->server, SERVER_KEEPS_NOTHING);
    return 0;
}

static int teardown(void **state)
{
    struct scene *scene = *state;
    for (unsigned i = 0; i < PROCESSES; i++) {
        puppet_kill(&scene->puppets[i]);
    }
    server_close(&scene->server);
    free(scene);
    return 0;
}

/* The next process in turn takes one token, or is refused, without waiting for it. */
static struct puppet_answer next_call(struct scene *scene, const char *what)
{
    unsigned number = scene->turn++ % PROCESSES;
    struct puppet_answer answer = puppet_acquire(&scene->puppets[number], KEY, 1, 0);
    print_message("  process %u, %s: %s, %s, retry after %lld us; %.1f ms\n", number, what,
                  weir_verdict_name(answer.code), weir_reason_text((int)answer.result.reason),
                  (long long)answer.result.retry_after_us,
                  (double)(answer.heard_ns - answer.called_ns) / 1e6);
    assert_true(answer.code == WEIR_ALLOWED || answer.code == WEIR_DENIED);
    return answer;
}

static struct puppet_answer expect_refusal(struct scene *scene, int64_t token_us)
{
    struct puppet_answer refused = next_call(scene, "one too many");
    assert_int_equal(refused.code, WEIR_DENIED);
    assert_int_equal(refused.result.reason, WEIR_OVER_LIMIT);
    assert_in_range(refused.result.retry_after_us, 1, token_us);
    return refused;
}

/* Early calls, each a little before the token is there.  Returns how many of them prove something,
 * or -1 when one that came too late has taken the token. */
static int call_early(struct scene *scene, int64_t not_before_ns)
{
    static const int64_t early_ns[] = {200 * NS_PER_MS, 20 * NS_PER_MS};
    int proofs = 0;
    for (size_t i = 0; i < sizeof early_ns / sizeof *early_ns; i++) {
        clock_sleep_until(not_before_ns - early_ns[i]);
        struct puppet_answer early = next_call(scene, "too early");
        if (early.heard_ns < not_before_ns) {
            assert_int_equal(early.code, WEIR_DENIED);
            assert_int_equal(early.result.reason, WEIR_OVER_LIMIT);
            proofs++;
        } else if (early.code == WEIR_ALLOWED) {
            return -1;
        }
    }
    return proofs;
}

static void check_limit(struct scene *scene, uint64_t period_s, int rounds)
{
    int64_t token_us = (int64_t)period_s * 1000000 / CAPACITY;
    struct weir_limit_options limit;
    weir_limit_options_init(&limit, sizeof limit);
    limit.name = "exact";
    limit.rate_tokens = CAPACITY;
    limit.rate_period_us = period_s * 1000000;
    limit.capacity_tokens = CAPACITY;
    limit.budget_tokens = 0;
    limit.version = 1;
    limit.outage = WEIR_OUTAGE_CLOSED;
    for (unsigned i = 0; i < PROCESSES; i++) {
        puppet_start(&scene->puppets[i], scene->server.url, &limit);
    }
    int64_t first_ns = clock_now_ns();
    for (int i = 0; i < CAPACITY; i++) {
        assert_int_equal(next_call(scene, "within the limit").code, WEIR_ALLOWED);
    }
    /* Otherwise a sixth would be right. */
    assert_true(clock_now_ns() - first_ns < token_us * 1000);

    int proofs = 0;
    for (int round = 0; round < rounds; round++) {
        struct puppet_answer refused = expect_refusal(scene, token_us);
        int64_t retry_ns = refused.result.retry_after_us * 1000;
        int proven = call_early(scene, refused.called_ns + retry_ns);
        if (proven >= 0) {
            proofs += proven;
            clock_sleep_until(refused.heard_ns + retry_ns);
            assert_int_equal(next_call(scene, "on time").code, WEIR_ALLOWED);
        }
    }
    print_message("%d early calls were refused\n", proofs);
    assert_true(proofs > 0);
    for (unsigned i = 0; i < PROCESSES; i++) {
        puppet_end(&scene->puppets[i]);
    }
}

static void test_five_in_two_seconds(void **state) { check_limit(*state, 2, 5); }

static void test_five_a_minute(void **state) { check_limit(*state, 60, 1); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_five_in_two_seconds, setup, teardown),
        cmocka_unit_test_setup_teardown(test_five_a_minute, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
