/* SPDX-License-Identifier: MIT */
/*
 * The shipped script against its twin in C, on random sequences of each algorithm, and of all in
 * turn on one key: each reply, each stored field and the expiry, to the last unit (twins).  Every
 * other sequence tells the script the time, the rest let it ask for it.
 *
 * WEIR_SEED replays a run, WEIR_STEPS sets the number of asks for each algorithm.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/num.h"

#include "random_asks.h"
#include "twins.h"

#define ASKS 80000
#define SEQUENCE 20 /* asks of one key */
#define HOUR_US INT64_C(3600000000)

static struct twins twins;

static int set_up(void **state)
{
    (void)state;
    twins_init(&twins);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    twins_deinit(&twins);
    return 0;
}

/* What holds of the state, whatever was asked. */
static void check_state(void)
{
    const struct weir__global *bucket = &twins.bucket;
    const struct weir__rule *rule = &bucket->rule;
    if (!bucket->exists) {
        return;
    }
    int64_t out = bucket->out_cur + bucket->out_prev;
    assert_true(bucket->out_cur >= 0 && bucket->out_prev >= 0);
    assert_int_equal(bucket->has_account, rule->budget > 0 || out > 0);
    if (rule->algorithm <= WEIR__LEAKY_BUCKET) {
        int64_t full = rule->capacity * rule->units_per_token;
        assert_true(bucket->level <= full);
        assert_true(full - bucket->level <= WEIR__INT53_MAX);
    } else {
        assert_true(bucket->level >= 0 && bucket->extra >= 0);
    }
    if (rule->algorithm == WEIR__SLIDING_LOG) {
        const struct weir__log *log = &bucket->log;
        int64_t logged = 0;
        for (unsigned i = log->first; i < log->end; i++) {
            assert_true(log->entries[i].count > 0);
            assert_true(i == log->first || log->entries[i].at_us > log->entries[i - 1].at_us);
            logged += log->entries[i].count;
        }
        assert_int_equal(bucket->level, logged);
    }
}

static void run_sequence(const char *what, uint64_t seed, enum weir__algorithm_id only)
{
    struct random_asks random;
    twins_begin(&twins, what, seed);
    twins.behind_us = seed % 2 == 0 ? HOUR_US : 0;
    random_asks_begin(&random, seed, only);
    for (int step = 0; step < SEQUENCE; step++) {
        struct weir__ask ask;
        struct weir__grant grant;
        random_asks_next(&random, &ask);
        twins_ask(&twins, &random.rule, &ask, random.now_us, &grant);
        check_state();
        random_asks_heard(&random, &grant);
    }
}

static void run(const char *what, enum weir__algorithm_id only)
{
    uint64_t seed = random_asks_seed(1);
    uint64_t asks = random_asks_count(ASKS);
    print_message("%s: WEIR_SEED=%llu WEIR_STEPS=%llu\n", what, (unsigned long long)seed,
                  (unsigned long long)asks);
    for (uint64_t i = 0; i * SEQUENCE < asks; i++) {
        run_sequence(what, seed + i, only);
    }
}

static void test_token_bucket(void **state)
{
    (void)state;
    run("token bucket", WEIR__TOKEN_BUCKET);
}

static void test_leaky_bucket(void **state)
{
    (void)state;
    run("leaky bucket", WEIR__LEAKY_BUCKET);
}

static void test_fixed_window(void **state)
{
    (void)state;
    run("fixed window", WEIR__FIXED_WINDOW);
}

static void test_sliding_log(void **state)
{
    (void)state;
    run("sliding log", WEIR__SLIDING_LOG);
}

static void test_sliding_counter(void **state)
{
    (void)state;
    run("sliding counter", WEIR__SLIDING_COUNTER);
}

static void test_one_after_another(void **state)
{
    (void)state;
    run("all algorithms", RANDOM_ASKS_ANY);
}

/* A log that only grows: one token each moment that it tells apart, and a period that becomes ten
 * times as long before any of them is old. */
static void test_a_log_that_grows_has_a_bound(void **state)
{
    (void)state;
    struct weir__rule rule = {.version = 1,
                              .tick_us = 1,
                              .units_per_tick = 1,
                              .units_per_token = 1,
                              .capacity = 1000000,
                              .window_us = 1000000,
                              .initial = 1000000,
                              .period_us = 256,
                              .algorithm = WEIR__SLIDING_LOG};
    struct weir__ask ask = twins_nothing;
    struct weir__grant grant;
    int64_t now_us = INT64_C(1700000000000000);
    unsigned longest = 0;
    int64_t taken = 0;
    ask.exact = 1;
    twins_begin(&twins, "a growing log", 0);
    for (int change = 0; change < 10; change++) {
        for (int i = 0; i < 215; i++) {
            now_us += weir__div_up(rule.period_us, 256);
            twins_ask(&twins, &rule, &ask, now_us, &grant);
            check_state();
            taken += grant.exact;
            assert_int_equal(grant.remaining, rule.capacity - taken);
            const struct weir__log *log = &twins.bucket.log;
            longest = log->end - log->first > longest ? log->end - log->first : longest;
        }
        rule.version++;
        rule.period_us *= 10;
    }
    assert_int_equal(longest, 2048);
    twins_ask(&twins, &rule, &ask, now_us + 2 * rule.period_us, &grant);
    assert_int_equal(grant.remaining, rule.capacity - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_token_bucket),
        cmocka_unit_test(test_leaky_bucket),
        cmocka_unit_test(test_fixed_window),
        cmocka_unit_test(test_sliding_log),
        cmocka_unit_test(test_sliding_counter),
        cmocka_unit_test(test_one_after_another),
        cmocka_unit_test(test_a_log_that_grows_has_a_bound),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
