/* SPDX-License-Identifier: MIT */
/*
 * The cap through the public interface: what it says and when, on a clock
 * turned by hand; that what the bucket refuses costs it nothing, at once or
 * after a wait; threads, changes, and forgetting.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "api/setup.h"
#include "script/server.h"

/* A limit that refuses nobody, but for its cap. */
static struct weir_limit_options capped(const char *name, uint64_t tokens, int64_t period_us)
{
    struct weir_limit_options options = limit_options(name, 1000000, SECOND, 1000000, 1000);
    options.cap_tokens = tokens;
    options.cap_period_us = (uint64_t)period_us;
    options.cap_burst_ms = 0;
    return options;
}

static void assert_allowed(struct weir_bucket *bucket, uint64_t cost)
{
    struct weir_result result;
    assert_int_equal(weir_try_acquire(bucket, cost, &result), WEIR_ALLOWED);
    assert_int_equal(result.verdict, WEIR_ALLOWED);
    assert_int_equal(result.reason, WEIR_WITHIN_LIMIT);
    assert_int_equal(result.retry_after_us, 0);
}

static void assert_result_over_cap(const struct weir_result *result, int64_t retry_us)
{
    assert_int_equal(result->verdict, WEIR_DENIED);
    assert_int_equal(result->reason, WEIR_OVER_CAP);
    assert_int_equal(result->retry_after_us, retry_us);
}

static void assert_over_cap(struct weir_bucket *bucket, uint64_t cost, int64_t retry_us)
{
    struct weir_result result;
    assert_int_equal(weir_try_acquire(bucket, cost, NULL), WEIR_DENIED);
    assert_int_equal(weir_try_acquire(bucket, cost, &result), WEIR_DENIED);
    assert_result_over_cap(&result, retry_us);
}

static void assert_over_limit(struct weir_bucket *bucket, uint64_t cost)
{
    struct weir_result result;
    assert_int_equal(weir_try_acquire(bucket, cost, &result), WEIR_DENIED);
    assert_int_equal(result.reason, WEIR_OVER_LIMIT);
}

/* Takes ones until one is refused. */
static int64_t drain(struct weir_bucket *bucket)
{
    int64_t taken = 0;
    while (weir_try_acquire(bucket, 1, NULL) == WEIR_ALLOWED) {
        taken++;
    }
    return taken;
}

/* ---- What it says
 * ----------------------------------------------------------------------------
 */

/* 3 a second: the time is exact to the microsecond, and does not drift. */
static void retry_after_is_exact(void **state)
{
    (void)state;
    struct weir_limit_options options = capped("l", 3, SECOND);
    options.cap_burst_ms = 1; /* so that the rest of a microsecond is kept */
    struct weir_bucket *bucket = get(define_with(weir, &options), "key");
    int64_t now_us = 0;
    for (int n = 1; n <= 30; n++) {
        at(now_us);
        assert_allowed(bucket, 1);
        int64_t next_us = (n * SECOND + 2) / 3;
        assert_over_cap(bucket, 1, next_us - now_us);
        at(next_us - 1);
        assert_over_cap(bucket, 1, 1);
        now_us = next_us;
    }
    weir_bucket_unref(bucket);
}

static void burst_is_kept_and_the_next_pays(void **state)
{
    (void)state;
    struct weir_limit_options options = capped("l", 10, SECOND);
    options.cap_burst_ms = 500;
    struct weir_bucket *bucket = get(define_with(weir, &options), "key");
    assert_allowed(bucket, 1); /* of a new key nothing is kept, but the first never waits */
    assert_over_cap(bucket, 1, 100 * MS);
    at(60 * SECOND);
    assert_int_equal(drain(bucket), 6);
    at(120 * SECOND);
    assert_allowed(bucket, 25); /* five are kept; twenty are paid by who comes next */
    assert_over_cap(bucket, 1, 2 * SECOND);
    weir_bucket_unref(bucket);
}

static void warms_up(void **state)
{
    (void)state;
    struct weir_limit_options options = capped("l", 2, SECOND);
    options.cap_burst_ms = WEIR_DEFAULT;
    options.cap_warmup_ms = 4000;
    struct weir_bucket *bucket = get(define_with(weir, &options), "key");
    static const int64_t waits_ms[] = {1375, 1125, 875, 625, 500, 500};
    int64_t now_us = 0;
    for (int round = 0; round < 2; round++) {
        for (size_t n = 0; n < sizeof(waits_ms) / sizeof(waits_ms[0]); n++) {
            at(now_us);
            assert_allowed(bucket, 1);
            assert_over_cap(bucket, 1, waits_ms[n] * MS);
            now_us += waits_ms[n] * MS;
        }
        now_us += 4 * SECOND; /* a pause, and it is cold again */
    }
    weir_bucket_unref(bucket);
}

static void each_key_has_its_own(void **state)
{
    (void)state;
    struct weir_limit_options options = capped("l", 1, HOUR);
    struct weir_limit *limit = define_with(weir, &options);
    assert_int_equal(weir_try_acquire_key(limit, "a", 1, 1, NULL), WEIR_ALLOWED);
    assert_int_equal(weir_try_acquire_key(limit, "b", 1, 1, NULL), WEIR_ALLOWED);
    assert_int_equal(weir_try_acquire_key(limit, "a", 1, 1, NULL), WEIR_DENIED);
}

static void looks_take_nothing(void **state)
{
    (void)state;
    struct weir_limit_options options = capped("l", 1, SECOND);
    struct weir_bucket *bucket = get(define_with(weir, &options), "key");
    struct weir_result result;
    for (int i = 0; i < 3; i++) {
        assert_allowed(bucket, 0);
        assert_int_equal(weir_peek(bucket, &result), WEIR_OK);
        assert_int_equal(result.verdict, WEIR_ALLOWED);
    }
    assert_allowed(bucket, 1);
    assert_over_cap(bucket, 0, SECOND);
    assert_int_equal(weir_peek(bucket, NULL), WEIR_OK);
    assert_int_equal(weir_peek(bucket, &result), WEIR_OK);
    assert_result_over_cap(&result, SECOND);
    assert_int_equal(result.remaining_tokens, 999999);
    weir_bucket_unref(bucket);
}

/* Above the capacity it is never, whatever the cap would say; and it costs the
 * cap nothing. */
static void cost_above_capacity_comes_first(void **state)
{
    (void)state;
    struct weir_limit_options options = capped("l", 1, SECOND);
    struct weir_bucket *bucket = get(define_with(weir, &options), "key");
    for (int i = 0; i < 2; i++) {
        struct weir_result result;
        const uint64_t costs[] = {1000001, UINT64_MAX};
        for (size_t c = 0; c < 2; c++) {
            assert_int_equal(weir_try_acquire(bucket, costs[c], &result), WEIR_DENIED);
            assert_int_equal(result.reason, WEIR_COST_ABOVE_CAPACITY);
            assert_int_equal(result.retry_after_us, WEIR_NEVER);
        }
        assert_int_equal(drain(bucket), 1 - i);
    }
    weir_bucket_unref(bucket);
}

static void refusals_are_counted(void **state)
{
    (void)state;
    struct weir_limit_options options = capped("l", 1, SECOND);
    struct weir_bucket *bucket = get(define_with(weir, &options), "key");
    assert_allowed(bucket, 1);
    assert_int_equal(stats_of(weir).denied, 0);
    assert_over_cap(bucket, 1, SECOND);
    assert_int_equal(stats_of(weir).denied, 2);
    static struct answer answer;
    assert_int_equal(ask(&answer, bucket, 1, SECOND, NULL), WEIR_DENIED);
    assert_int_equal(stats_of(weir).denied, 3);
    weir_bucket_unref(bucket);
}

/* ---- What comes back
 * ------------------------------------------------------------------------- */

static void refused_by_the_bucket_costs_nothing(void **state)
{
    (void)state;
    const uint64_t budgets[] = {0, 2};
    const char *names[] = {"a", "b"};
    for (int i = 0; i < 2; i++) {
        at(0);
        struct weir_limit_options options = limit_options(names[i], 2, 20 * SECOND, 2, budgets[i]);
        options.cap_tokens = 1;
        options.cap_period_us = SECOND;
        options.cap_burst_ms = 0;
        struct weir_bucket *bucket = get(define_with(weir, &options), "key");
        assert_allowed(bucket, 2);
        assert_over_cap(bucket, 1, 2 * SECOND);
        at(2 * SECOND);
        for (int n = 0; n < 5; n++) {
            assert_over_limit(bucket, 1); /* and not over the cap, which is free each time */
        }
        static struct answer answer;
        struct weir_result result;
        assert_int_equal(ask(&answer, bucket, 1, SECOND, &result), WEIR_DENIED);
        assert_int_equal(result.reason, WEIR_OVER_LIMIT);
        assert_int_equal(weir_acquire_wait(bucket, 1, SECOND, &result), WEIR_DENIED);
        assert_int_equal(result.reason, WEIR_OVER_LIMIT);
        at(10 * SECOND);
        assert_allowed(bucket, 1);
        assert_over_cap(bucket, 1, SECOND);
        weir_bucket_unref(bucket);
    }
}

static void refund_gives_back_to_the_cap(void **state)
{
    (void)state;
    struct weir_limit_options options = capped("l", 1, SECOND);
    struct weir_bucket *bucket = get(define_with(weir, &options), "key");
    assert_allowed(bucket, 5);
    assert_over_cap(bucket, 1, 5 * SECOND);
    assert_int_equal(weir_refund(bucket, 6), WEIR_EINVAL);
    assert_over_cap(bucket, 1, 5 * SECOND);
    assert_int_equal(weir_refund(bucket, 2), WEIR_OK);
    assert_over_cap(bucket, 1, 3 * SECOND);
    assert_int_equal(weir_refund(bucket, 3), WEIR_OK);
    assert_allowed(bucket, 1);
    weir_bucket_unref(bucket);
}

/* The cap makes nobody wait: weir_acquire is refused at once.  What it gave to
 * one who then waited for the bucket in vain comes back. */
static void a_wait_in_vain_costs_nothing(void **state)
{
    (void)start_store(state);
    struct weir *other = open_store(server);
    struct weir *ours = open_store(server);
    struct weir_limit_options options = limit_options("l", 1, HOUR, 1, 0);
    struct weir_limit *uncapped = define_with(other, &options);
    assert_int_equal(weir_acquire_wait_key(uncapped, "key", 3, 1, 0, NULL), WEIR_ALLOWED);
    options.cap_tokens = 1;
    options.cap_period_us = HOUR;
    options.cap_burst_ms = 0;
    struct weir_limit *limit = define_with(ours, &options);
    struct weir_bucket *bucket = get(limit, "key");
    static struct answer answer;
    struct weir_result result;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ask(&answer, bucket, 1, SECOND, NULL), WEIR_PENDING);
        UNTIL(answered(&answer));
        assert_int_equal(answer.result.reason, WEIR_OVER_LIMIT);
        assert_int_equal(weir_acquire_wait(bucket, 1, SECOND, &result), WEIR_DENIED);
        assert_int_equal(result.reason, WEIR_OVER_LIMIT);
    }
    weir_bucket_unref(bucket);

    bucket = get(limit, "another key");
    assert_int_equal(ask(&answer, bucket, 1, SECOND, NULL), WEIR_PENDING);
    UNTIL(answered(&answer));
    assert_int_equal(answer.result.verdict, WEIR_ALLOWED);
    assert_int_equal(ask(&answer, bucket, 1, HOUR, &result), WEIR_DENIED);
    assert_int_equal(result.reason, WEIR_OVER_CAP);
    assert_in_range(result.retry_after_us, HOUR - MINUTE, HOUR);
    assert_int_equal(weir_acquire_wait(bucket, 1, HOUR, &result), WEIR_DENIED);
    assert_int_equal(result.reason, WEIR_OVER_CAP);
    weir_bucket_unref(bucket);
    assert_int_equal(weir_close_wait(ours), WEIR_OK);
    assert_int_equal(weir_close_wait(other), WEIR_OK);
    (void)stop_store(state);
}

/* No store is needed for the cap, and an open door does not open it. */
static void holds_while_the_store_is_down(void **state)
{
    (void)state;
    struct weir_options options = store_options("unix:///nowhere/weir");
    struct weir *lonely = open_with(&options);
    struct weir_limit_options open = capped("open", 1, HOUR);
    open.outage = WEIR_OUTAGE_OPEN;
    struct weir_limit_options closed = capped("closed", 1, HOUR);
    closed.outage = WEIR_OUTAGE_CLOSED;
    struct weir_bucket *through = get(define_with(lonely, &open), "key");
    struct weir_bucket *shut = get(define_with(lonely, &closed), "key");
    UNTIL(stats_of(lonely).store_state == WEIR_STORE_OUTAGE);
    struct weir_result result;
    assert_int_equal(weir_try_acquire(through, 1, &result), WEIR_ALLOWED);
    assert_int_equal(result.reason, WEIR_STORE_DOWN);
    assert_int_equal(weir_try_acquire(through, 1, &result), WEIR_DENIED);
    assert_int_equal(result.reason, WEIR_OVER_CAP);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(weir_try_acquire(shut, 1, &result), WEIR_UNAVAILABLE);
        assert_int_equal(weir_acquire_wait(shut, 1, SECOND, &result), WEIR_UNAVAILABLE);
    }
    weir_bucket_unref(through);
    assert_int_equal(weir_close_wait(lonely), WEIR_OK);
    assert_int_equal(weir_try_acquire(shut, 1, NULL), WEIR_ECLOSED);
    weir_bucket_unref(shut);
}

/* ---- Changes, and forgetting
 * ----------------------------------------------------------------- */

static void a_changed_limit_changes_the_cap(void **state)
{
    (void)state;
    struct weir_limit_options without = capped("l", 1, HOUR);
    without.cap_tokens = 0;
    without.cap_period_us = 0;
    without.cap_burst_ms = WEIR_DEFAULT;
    struct weir_limit_options slow = capped("l", 1, SECOND);
    struct weir_limit_options fast = capped("l", 10, SECOND);
    fast.cap_burst_ms = 1000;
    struct weir_limit *limit = define_with(weir, &without);
    struct weir_bucket *bucket = get(limit, "key");
    assert_allowed(bucket, 1);
    assert_allowed(bucket, 1);
    assert_int_equal(weir_limit_update(limit, &slow, NULL), WEIR_OK);
    assert_allowed(bucket, 1);
    assert_over_cap(bucket, 1, SECOND);
    assert_int_equal(weir_limit_update(limit, &fast, NULL), WEIR_OK);
    assert_over_cap(bucket, 1, SECOND); /* what is owed stays owed */
    at(10 * SECOND);
    assert_int_equal(drain(bucket), 11);
    assert_int_equal(weir_limit_update(limit, &without, NULL), WEIR_OK);
    assert_allowed(bucket, 1);
    assert_allowed(bucket, 1);
    assert_int_equal(weir_limit_update(limit, &slow, NULL), WEIR_OK);
    assert_over_cap(bucket, 1, 100 * MS);
    weir_bucket_unref(bucket);
}

/* A bucket whose cap refuses is not forgotten: it would come back with a new
 * one. */
static void what_is_owed_is_not_forgotten(void **state)
{
    (void)state;
    struct weir_options options;
    weir_options_init(&options, sizeof(options));
    options.clock_ns = hand_clock_ns;
    options.clock_arg = &hand;
    options.max_keys = 2;
    struct weir *small = open_with(&options);
    struct weir_limit_options limits = capped("l", 1, MINUTE);
    struct weir_limit *limit = define_with(small, &limits);
    at(0);
    assert_int_equal(weir_try_acquire_key(limit, "a", 1, 1, NULL), WEIR_ALLOWED);
    assert_int_equal(weir_try_acquire_key(limit, "b", 1, 1, NULL), WEIR_ALLOWED);
    at(MINUTE - 1); /* both buckets are long full */
    assert_int_equal(weir_try_acquire_key(limit, "c", 1, 1, NULL), WEIR_EFULL);
    assert_int_equal(weir_try_acquire_key(limit, "a", 1, 1, NULL), WEIR_DENIED);
    at(MINUTE);
    assert_int_equal(weir_try_acquire_key(limit, "c", 1, 1, NULL), WEIR_ALLOWED);
    assert_int_equal(weir_close_wait(small), WEIR_OK);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_at_start, close_weir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(retry_after_is_exact),
        TEST(burst_is_kept_and_the_next_pays),
        TEST(warms_up),
        TEST(each_key_has_its_own),
        TEST(looks_take_nothing),
        TEST(cost_above_capacity_comes_first),
        TEST(refusals_are_counted),
        TEST(refused_by_the_bucket_costs_nothing),
        TEST(refund_gives_back_to_the_cap),
        cmocka_unit_test(a_wait_in_vain_costs_nothing),
        cmocka_unit_test(holds_while_the_store_is_down),
        TEST(a_changed_limit_changes_the_cap),
        TEST(what_is_owed_is_not_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
