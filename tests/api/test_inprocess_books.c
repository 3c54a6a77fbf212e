/* SPDX-License-Identifier: MIT */
/*
 * The books of the in-process store through the public interface, on a clock that is turned by
 * hand: what is given back, what is counted, what a changed limit does to buckets that are there,
 * and which buckets are kept.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/setup.h"

static unsigned limits_made;

/* A bucket of a new limit; as many as are wanted in one test. */
static struct weir_bucket *bucket_of(uint64_t rate, int64_t period_us, uint64_t capacity,
                                     uint64_t budget)
{
    char name[16] = "l";
    for (unsigned n = ++limits_made, i = 1; n > 0; n /= 26, i++) {
        name[i] = (char)('a' + n % 26);
    }
    return get(define(weir, name, rate, period_us, capacity, budget), "key");
}

static bool take(struct weir_bucket *bucket, uint64_t cost)
{
    int verdict = weir_try_acquire(bucket, cost, NULL);
    assert_true(verdict == WEIR_ALLOWED || verdict == WEIR_DENIED);
    return verdict == WEIR_ALLOWED;
}

static unsigned takes(struct weir_bucket *bucket, unsigned calls)
{
    unsigned allowed = 0;
    for (unsigned i = 0; i < calls; i++) {
        allowed += take(bucket, 1);
    }
    return allowed;
}

static struct weir_result look(struct weir_bucket *bucket)
{
    struct weir_result result;
    assert_int_equal(weir_peek(bucket, &result), WEIR_OK);
    return result;
}

/* ---- Refunds and counts ---------------------------------------------------------------------- */

static void a_refund_is_there_again(void **state)
{
    (void)state;
    const uint64_t budgets[] = {0, 4, 10};
    for (size_t i = 0; i < 3; i++) {
        struct weir_bucket *bucket = bucket_of(1, HOUR, 10, budgets[i]);
        assert_int_equal(weir_refund(bucket, 1), WEIR_EINVAL);
        assert_int_equal(weir_refund(bucket, 0), WEIR_OK);
        assert_int_equal(takes(bucket, 11), 10);
        assert_int_equal(weir_refund(bucket, 3), WEIR_OK);
        assert_int_equal(look(bucket).remaining_tokens, 3);
        assert_int_equal(takes(bucket, 11), 3);
        assert_int_equal(weir_refund(bucket, 11), WEIR_EINVAL);
        assert_int_equal(weir_refund(bucket, UINT64_MAX), WEIR_EINVAL);
        assert_int_equal(weir_refund(bucket, (uint64_t)INT64_MAX), WEIR_EINVAL);
        assert_int_equal(takes(bucket, 1), 0);
        assert_int_equal(weir_refund(bucket, 10), WEIR_OK);
        assert_int_equal(weir_refund(bucket, 1), WEIR_EINVAL);
        assert_int_equal(takes(bucket, 11), 10);
        weir_bucket_unref(bucket);
    }
}

static void counts_add_up(void **state)
{
    (void)state;
    struct weir_bucket *bucket = bucket_of(1, HOUR, 10, 8);
    struct weir_stats stats;
    assert_int_equal(takes(bucket, 100), 10);
    stats = stats_of(weir);
    assert_int_equal(stats.store_state, WEIR_STORE_LOCAL);
    assert_int_equal(stats.buckets, 1);
    assert_int_equal(stats.lease_spent + stats.exact_spent, 10);
    assert_int_equal(stats.denied, 90);
    assert_int_equal(stats.cold + stats.unavailable, 0);
    assert_conserved(&stats);

    assert_int_equal(weir_refund(bucket, 10), WEIR_OK);
    stats = stats_of(weir);
    assert_int_equal(stats.refunded, 10);
    assert_int_equal(stats.lease_spent + stats.exact_spent - stats.refunded, 0);
    assert_conserved(&stats);
    assert_int_equal(takes(bucket, 4), 4);
    stats = stats_of(weir);
    assert_int_equal(stats.lease_spent + stats.exact_spent - stats.refunded, 4);
    assert_conserved(&stats);
    weir_bucket_unref(bucket);
}

/* ---- Changed limits -------------------------------------------------------------------------- */

static void change(struct weir_limit *limit, uint64_t rate, int64_t period_us, uint64_t capacity,
                   uint64_t budget)
{
    struct weir_limit_options options = limit_options(NULL, rate, period_us, capacity, budget);
    struct weir_error error = {0};
    if (weir_limit_update(limit, &options, &error) != WEIR_OK) {
        fail_msg("weir_limit_update: %s", error.text);
    }
}

static void a_changed_limit_is_in_force(void **state)
{
    (void)state;
    const bool budgets[] = {false, true};
    for (size_t i = 0; i < 2; i++) {
        at(0);
        struct weir_limit *limit = define(weir, i == 0 ? "exact" : "leased", 1000, SECOND, 1000,
                                          budgets[i] ? 200 : 0);
        /* 1000 to 10 a second, empty: the next token is 0.1 s away. */
        struct weir_bucket *bucket = get(limit, "slower");
        assert_int_equal(takes(bucket, 1001), 1000);
        change(limit, 10, SECOND, 10, budgets[i] ? 2 : 0);
        at(100 * MS - 1);
        assert_false(take(bucket, 1));
        at(100 * MS);
        assert_true(take(bucket, 1));
        assert_false(take(bucket, 1));
        assert_int_equal(look(bucket).limit_tokens, 10);
        weir_bucket_unref(bucket);

        /* 5 to 10 a minute: ten a minute later. */
        change(limit, 5, MINUTE, 5, budgets[i] ? 1 : 0);
        bucket = get(limit, "faster");
        assert_int_equal(takes(bucket, 6), 5);
        change(limit, 10, MINUTE, 10, budgets[i] ? 2 : 0);
        assert_false(take(bucket, 1));
        at(100 * MS + MINUTE);
        assert_int_equal(takes(bucket, 11), 10);
        weir_bucket_unref(bucket);

        /* Capacity 100 to 10 with 80 there: ten. */
        change(limit, 1, HOUR, 100, budgets[i] ? 20 : 0);
        bucket = get(limit, "smaller");
        assert_int_equal(takes(bucket, 20), 20);
        change(limit, 1, HOUR, 10, 0);
        assert_int_equal(look(bucket).remaining_tokens, 10);
        assert_int_equal(takes(bucket, 100), 10);
        weir_bucket_unref(bucket);
    }
}

/* ---- Keys ------------------------------------------------------------------------------------ */

static void keys_are_bytes(void **state)
{
    (void)state;
    static char long_key[65536];
    memset(long_key, 'k', sizeof(long_key));
    const struct {
        const void *key;
        size_t len;
    } keys[] = {{NULL, 0}, {"\0", 1},       {"\0\0", 2},       {"%n%s", 4},      {"{a}", 3},
                {"a}", 2}, {"a", 1},        {"a\0", 2},        {"a\r\n", 3},     {"\xff\xfe", 2},
                {":", 1},  {"weir:l:a", 8}, {long_key, 65536}, {long_key, 65535}};
    struct weir_limit *first = define(weir, "first", 1, HOUR, 2, 0);
    struct weir_limit *second = define(weir, "second", 1, HOUR, 2, 0);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        const void *key = keys[i].key;
        size_t len = keys[i].len;
        assert_int_equal(weir_try_acquire_key(first, key, len, 1, NULL), WEIR_ALLOWED);
        assert_int_equal(weir_try_acquire_key(second, key, len, 2, NULL), WEIR_ALLOWED);
        assert_int_equal(weir_acquire_wait_key(first, key, len, 1, 0, NULL), WEIR_ALLOWED);
        assert_int_equal(weir_try_acquire_key(first, key, len, 1, NULL), WEIR_DENIED);
        assert_int_equal(weir_try_acquire_key(second, key, len, 1, NULL), WEIR_DENIED);
    }
    struct weir_bucket *bucket;
    assert_int_equal(weir_bucket_get(first, long_key, 65537, &bucket), WEIR_EINVAL);
    assert_int_equal(weir_bucket_get(first, NULL, 1, &bucket), WEIR_EINVAL);
    assert_int_equal(weir_try_acquire_key(first, long_key, 65537, 1, NULL), WEIR_EINVAL);
    assert_int_equal(stats_of(weir).buckets, 2 * sizeof(keys) / sizeof(keys[0]));
}

static void a_key_is_one_bucket(void **state)
{
    (void)state;
    struct weir_limit *limit = define(weir, "limit", 1, HOUR, 2, 0);
    struct weir_bucket *one = get(limit, "key");
    struct weir_bucket *two = get(limit, "key");
    assert_ptr_equal(one, two);
    assert_ptr_equal(weir_bucket_ref(one), one);
    weir_bucket_unref(one);
    weir_bucket_unref(one);
    weir_bucket_unref(two);
    weir_bucket_unref(NULL);
    assert_int_equal(stats_of(weir).buckets, 1);
}

/* ---- Bounds ---------------------------------------------------------------------------------- */

/* Buckets that are full and unowned make room; what was spent is not forgotten, nor is it
 * counted away. */
static void max_keys_is_held(void **state)
{
    (void)state;
    struct weir_options options;
    weir_options_init(&options, sizeof(options));
    options.clock_ns = hand_clock_ns;
    options.clock_arg = &hand;
    options.max_keys = 3;
    at(0);
    struct weir *small = open_with(&options);
    struct weir_limit *limit = define(small, "limit", 1, SECOND, 10, 4);
    struct weir_bucket *kept = get(limit, "kept");
    assert_int_equal(weir_try_acquire_key(limit, "a", 1, 1, NULL), WEIR_ALLOWED);
    assert_int_equal(weir_try_acquire_key(limit, "b", 1, 2, NULL), WEIR_ALLOWED);
    struct weir_bucket *bucket;
    /* `kept` is full and owned, `a` and `b` are not full. */
    assert_int_equal(weir_bucket_get(limit, "c", 1, &bucket), WEIR_EFULL);
    assert_int_equal(weir_try_acquire_key(limit, "c", 1, 1, NULL), WEIR_EFULL);
    at(SECOND);
    assert_int_equal(weir_bucket_get(limit, "c", 1, &bucket), WEIR_OK); /* for `a` */
    weir_bucket_unref(bucket);
    assert_int_equal(stats_of(small).buckets, 3);
    struct weir_stats stats = stats_of(small);
    assert_int_equal(stats.lease_spent + stats.exact_spent, 3);
    assert_conserved(&stats);
    /* `b` has 9 yet. */
    assert_int_equal(weir_try_acquire_key(limit, "b", 1, 10, NULL), WEIR_DENIED);
    weir_bucket_unref(kept);
    for (int i = 0; i < 200; i++) {
        char key = (char)('0' + i % 50);
        at((i + 2) * MINUTE);
        assert_int_equal(weir_try_acquire_key(limit, &key, 1, 1, NULL), WEIR_ALLOWED);
    }
    stats = stats_of(small);
    assert_int_equal(stats.buckets, 3);
    assert_int_equal(stats.lease_spent + stats.exact_spent, 203);
    assert_conserved(&stats);
    assert_int_equal(weir_close_wait(small), WEIR_OK);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_at_start, close_weir)
    const struct CMUnitTest tests[] = {
        TEST(a_refund_is_there_again), TEST(counts_add_up),       TEST(a_changed_limit_is_in_force),
        TEST(keys_are_bytes),          TEST(a_key_is_one_bucket), TEST(max_keys_is_held),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
