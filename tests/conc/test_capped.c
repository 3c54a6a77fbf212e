/* SPDX-License-Identifier: MIT */
/*
 * The cap under many threads, on a clock that one more turns: what they get together stays within
 * the bound, what is refused behind it costs nothing, and no bucket escapes a cap that comes while
 * it is made.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "api/setup.h"

/* A limit that refuses nobody, but for its cap. */
static struct weir_limit_options capped(uint64_t tokens, int64_t period_us)
{
    struct weir_limit_options options = limit_options("l", 1000000, SECOND, 1000000, 1000);
    options.cap_tokens = tokens;
    options.cap_period_us = (uint64_t)period_us;
    options.cap_burst_ms = 0;
    return options;
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

#define THREADS 8

static struct weir_bucket *shared;
static bool over; /* atomic */
static int64_t admitted;

static void *hammer(void *arg)
{
    uint64_t cost = 1 + (uint64_t)(uintptr_t)arg % 3;
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
        if (weir_try_acquire(shared, cost, NULL) == WEIR_ALLOWED) {
            __atomic_add_fetch(&admitted, (int64_t)cost, __ATOMIC_RELAXED);
        }
    }
    return NULL;
}

/* Threads ask while the clock goes on for 200 ms; returns what they got. */
static int64_t hammered(struct weir_bucket *bucket)
{
    pthread_t threads[THREADS];
    shared = bucket;
    admitted = 0;
    __atomic_store_n(&over, false, __ATOMIC_RELAXED);
    for (uintptr_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, hammer, (void *)i), 0);
    }
    for (int64_t ms = 1; ms <= 200; ms++) {
        pause_us(200);
        at(ms * MS);
    }
    __atomic_store_n(&over, true, __ATOMIC_RELAXED);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    return admitted;
}

/* 7000 a second for 200 ms are 1400, and the last one's cost is 3 at most.
 * Where all may be kept, nothing is lost either: what they left is still there.
 */
static void threads_stay_within_the_bound(void **state)
{
    (void)state;
    struct weir_limit_options options = capped(7000, SECOND);
    options.cap_burst_ms = 1000;
    struct weir_bucket *bucket = get(define_with(weir, &options), "key");
    assert_int_equal(weir_try_acquire(bucket, 1, NULL), WEIR_ALLOWED);
    int64_t taken = 1 + hammered(bucket);
    assert_in_range(taken, 1, 1400 + 3);
    taken += drain(bucket);
    assert_in_range(taken, 1401, 1400 + 3);
    weir_bucket_unref(bucket);
}

static void threads_stay_within_a_warmup(void **state)
{
    (void)state;
    struct weir_limit_options options = capped(500, SECOND);
    options.cap_burst_ms = WEIR_DEFAULT;
    options.cap_warmup_ms = 100;
    struct weir_bucket *bucket = get(define_with(weir, &options), "key");
    /* warm after 100 ms and 25, then 50 in the other 100; fewer where all come late */
    assert_in_range(hammered(bucket), 1, 75 + 3);
    weir_bucket_unref(bucket);
}

/* All of them are refused by the bucket, again and again, and the cap is as if
 * nobody had come. */
static void threads_refused_by_the_bucket_cost_nothing(void **state)
{
    (void)state;
    struct weir_limit_options options = capped(7000, SECOND);
    options.cap_burst_ms = 60000;
    struct weir_limit *limit = define_with(weir, &options);
    struct weir_bucket *bucket = get(limit, "key");
    assert_int_equal(weir_try_acquire(bucket, 1, NULL), WEIR_ALLOWED);
    struct weir_limit_options poor = options;
    poor.rate_tokens = 1;
    poor.rate_period_us = HOUR;
    poor.capacity_tokens = 3;
    poor.budget_tokens = 0;
    assert_int_equal(weir_limit_update(limit, &poor, NULL), WEIR_OK);
    int64_t taken = 1 + hammered(bucket);
    assert_in_range(taken, 1, 1 + 3);
    assert_int_equal(weir_limit_update(limit, &options, NULL), WEIR_OK);
    at(1200 * MS); /* the bucket is full again */
    taken += drain(bucket);
    assert_int_equal(taken, 1200 * 7 + 1);
    weir_bucket_unref(bucket);
}

#define KEYS 1000

static struct weir_limit *growing;
static int made; /* atomic */

static void *make_keys(void *arg)
{
    (void)arg;
    for (int i = 0; i < KEYS; i++) {
        char key[16];
        snprintf(key, sizeof(key), "%d", i);
        weir_bucket_unref(get(growing, key));
        __atomic_store_n(&made, i, __ATOMIC_RELAXED);
    }
    return NULL;
}

/* No bucket escapes a cap that came while it was made. */
static void no_bucket_escapes_a_change(void **state)
{
    (void)state;
    struct weir_limit_options with = capped(1, HOUR);
    struct weir_limit_options without = limit_options("l", 1000000, SECOND, 1000000, 1000);
    growing = define_with(weir, &without);
    pthread_t maker;
    made = 0;
    assert_int_equal(pthread_create(&maker, NULL, make_keys, NULL), 0);
    bool on = false;
    while (__atomic_load_n(&made, __ATOMIC_RELAXED) < KEYS - 1) {
        on = !on;
        assert_int_equal(weir_limit_update(growing, on ? &with : &without, NULL), WEIR_OK);
    }
    assert_int_equal(pthread_join(maker, NULL), 0);
    assert_int_equal(weir_limit_update(growing, &with, NULL), WEIR_OK);
    for (int i = 0; i < KEYS; i++) {
        char key[16];
        snprintf(key, sizeof(key), "%d", i);
        struct weir_bucket *bucket = get(growing, key);
        assert_int_equal(weir_try_acquire(bucket, 1, NULL), WEIR_ALLOWED);
        struct weir_result result;
        assert_int_equal(weir_try_acquire(bucket, 1, &result), WEIR_DENIED);
        assert_int_equal(result.reason, WEIR_OVER_CAP);
        weir_bucket_unref(bucket);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_at_start, close_weir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(threads_stay_within_the_bound),
        TEST(threads_stay_within_a_warmup),
        TEST(threads_refused_by_the_bucket_cost_nothing),
        TEST(no_bucket_escapes_a_change),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
