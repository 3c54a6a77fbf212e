/* SPDX-License-Identifier: MIT */
/*
 * The public interface on a real Redis: what is admitted, what refusals say, and that the counts
 * of both sides agree.  The server is this program's own; each test has keys of its own.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <hiredis/hiredis.h>

#include "api/setup.h"
#include "script/server.h"

#define SHORT_MS 100 /* a window after half of which a quiet bucket gives back */

static int wait_for(struct weir_bucket *bucket, uint64_t cost, struct weir_result *result)
{
    return weir_acquire_wait(bucket, cost, 0, result);
}

/* ---- Verdicts -------------------------------------------------------------------------------- */

static void the_first_try_is_cold_and_brings_the_lease(void **state)
{
    (void)state;
    struct weir_bucket *bucket = get(define(weir, "limit", 1000, SECOND, 1000, 200), "key");
    struct weir_result result;
    assert_int_equal(weir_try_acquire(bucket, 1, &result), WEIR_DENIED);
    assert_int_equal(result.reason, WEIR_COLD);
    assert_int_equal(result.limit_tokens, 1000);
    assert_int_equal(result.remaining_tokens, WEIR_UNKNOWN);
    assert_int_equal(result.retry_after_us, WEIR_UNKNOWN);
    assert_int_equal(result.reset_after_us, WEIR_UNKNOWN);
    UNTIL(weir_try_acquire(bucket, 1, &result) == WEIR_ALLOWED);
    assert_int_equal(result.reason, WEIR_WITHIN_LIMIT);
    assert_int_equal(result.retry_after_us, 0);
    assert_true(result.remaining_tokens > 0 && result.remaining_tokens < 1000);
    weir_bucket_unref(bucket);
}

static void without_a_budget_only_waiting_is_exact(void **state)
{
    (void)state;
    struct weir_bucket *bucket = get(define(weir, "limit", 3, HOUR, 3, 0), "key");
    struct weir_result result;
    for (int64_t left = 2; left >= 0; left--) {
        assert_int_equal(weir_try_acquire(bucket, 1, NULL), WEIR_DENIED);
        assert_int_equal(wait_for(bucket, 1, &result), WEIR_ALLOWED);
        assert_int_equal(result.reason, WEIR_WITHIN_LIMIT);
        assert_int_equal(result.remaining_tokens, left);
        assert_int_equal(result.retry_after_us, 0);
    }
    assert_int_equal(wait_for(bucket, 1, &result), WEIR_DENIED);
    assert_int_equal(result.reason, WEIR_OVER_LIMIT);
    assert_int_equal(result.remaining_tokens, 0);
    assert_true(result.retry_after_us > 1190 * SECOND && result.retry_after_us <= 1200 * SECOND);
    assert_true(result.reset_after_us > 3590 * SECOND && result.reset_after_us <= HOUR);
    struct weir_stats stats = stats_of(weir);
    assert_int_equal(stats.leased, 0);
    assert_int_equal(stats.exact_spent, 3);
    assert_int_equal(stats.cold, 3);
    assert_int_equal(stats.denied, 1);
    assert_int_equal(stats.store_state, WEIR_STORE_UP);
    weir_bucket_unref(bucket);
}

static void a_hint_of_the_store_is_kept(void **state)
{
    (void)state;
    struct weir_bucket *bucket = get(define(weir, "limit", 20, SECOND, 1, 0), "key");
    struct weir_result result;
    assert_int_equal(wait_for(bucket, 1, &result), WEIR_ALLOWED);
    for (int i = 0; i < 5; i++) {
        while (wait_for(bucket, 1, &result) == WEIR_ALLOWED) {
        }
        assert_int_equal(result.reason, WEIR_OVER_LIMIT);
        assert_true(result.retry_after_us > 0 && result.retry_after_us <= 50 * MS);
        pause_us((unsigned)result.retry_after_us);
        assert_int_equal(wait_for(bucket, 1, &result), WEIR_ALLOWED);
    }
    weir_bucket_unref(bucket);
}

static void looks_and_impossible_costs(void **state)
{
    (void)state;
    struct weir_bucket *bucket = get(define(weir, "limit", 1, HOUR, 3, 0), "key");
    struct weir_result result;
    assert_int_equal(wait_for(bucket, 4, &result), WEIR_DENIED);
    assert_int_equal(result.reason, WEIR_COST_ABOVE_CAPACITY);
    assert_int_equal(result.retry_after_us, WEIR_NEVER);
    assert_int_equal(weir_peek(bucket, &result), WEIR_OK);
    assert_int_equal(result.verdict, WEIR_DENIED);
    assert_int_equal(result.reason, WEIR_COLD);
    assert_int_equal(result.remaining_tokens, WEIR_UNKNOWN);
    assert_int_equal(weir_peek(bucket, NULL), WEIR_OK);
    assert_int_equal(store_do(server, "DBSIZE"), 0);

    for (int i = 0; i < 3; i++) {
        assert_int_equal(wait_for(bucket, 0, &result), WEIR_ALLOWED);
        assert_int_equal(result.remaining_tokens, 3);
    }
    assert_int_equal(store_do(server, "DBSIZE"), 0); /* a look makes no key */
    assert_int_equal(wait_for(bucket, 3, &result), WEIR_ALLOWED);
    assert_int_equal(wait_for(bucket, 0, &result), WEIR_DENIED);
    assert_int_equal(result.reason, WEIR_OVER_LIMIT);
    assert_int_equal(weir_peek(bucket, &result), WEIR_OK);
    assert_int_equal(result.remaining_tokens, 0);
    weir_bucket_unref(bucket);
}

/* A crowd of one process learns from one refusal; who comes later is told without a call to the
 * store. */
static void a_refused_crowd_is_told_here(void **state)
{
    (void)state;
    struct weir_bucket *bucket = get(define(weir, "limit", 10, HOUR, 1000, 500), "key");
    struct weir_result result;
    UNTIL(weir_try_acquire(bucket, 1, &result) == WEIR_DENIED && result.reason == WEIR_OVER_LIMIT);
    assert_true(result.retry_after_us > 0);
    assert_int_equal(result.remaining_tokens, 0);
    assert_int_equal(weir_peek(bucket, &result), WEIR_OK);
    assert_int_equal(result.reason, WEIR_OVER_LIMIT);
    uint64_t sent = stats_of(weir).asks_sent;
    for (int i = 0; i < 10000; i++) {
        assert_int_equal(weir_try_acquire(bucket, 1, NULL), WEIR_DENIED);
    }
    assert_true(stats_of(weir).asks_sent <= sent + 2);
    weir_bucket_unref(bucket);
}

/* ---- Several processes ----------------------------------------------------------------------- */

static void each_token_is_granted_once(void **state)
{
    (void)state;
    struct weir *weirs[4] = {weir};
    struct weir_bucket *buckets[4];
    for (int i = 0; i < 4; i++) {
        weirs[i] = i == 0 ? weir : open_store(server);
        buckets[i] = get(define(weirs[i], "limit", 1, HOUR, 50, 0), "key");
    }
    static struct answer answers[100];
    for (int i = 0; i < 100; i++) {
        assert_int_equal(ask(&answers[i], buckets[i % 4], 1, 0, NULL), WEIR_PENDING);
    }
    int allowed = 0;
    for (int i = 0; i < 100; i++) {
        UNTIL(answered(&answers[i]));
        allowed += answers[i].result.verdict == WEIR_ALLOWED;
        assert_true(answers[i].result.reason == WEIR_WITHIN_LIMIT ||
                    answers[i].result.reason == WEIR_OVER_LIMIT);
    }
    assert_int_equal(allowed, 50);
    for (int i = 0; i < 4; i++) {
        weir_bucket_unref(buckets[i]);
        assert_int_equal(i == 0 ? WEIR_OK : weir_close_wait(weirs[i]), WEIR_OK);
    }
}

/* What one leased and did not spend is there for the other, at once after closing.  What accrues
 * meanwhile can only help. */
static void closing_gives_back(void **state)
{
    (void)state;
    struct weir *first = open_store(server);
    struct weir_bucket *bucket = get(define(first, "limit", 1000, SECOND, 1000, 1000), "key");
    struct weir_bucket *ours = get(define(weir, "limit", 1000, SECOND, 1000, 0), "key");
    struct weir_result before, after;
    UNTIL(weir_try_acquire(bucket, 1, NULL) == WEIR_ALLOWED && stats_of(first).held > 10);
    assert_int_equal(wait_for(ours, 0, &before), WEIR_ALLOWED);
    int64_t held = (int64_t)stats_of(first).held;
    weir_bucket_unref(bucket);
    assert_int_equal(weir_close_wait(first), WEIR_OK);
    assert_int_equal(wait_for(ours, 0, &after), WEIR_ALLOWED);
    int64_t least = before.remaining_tokens + held;
    assert_true(after.remaining_tokens >= (least < 1000 ? least : 1000));
    weir_bucket_unref(ours);
}

/* ---- Counts ---------------------------------------------------------------------------------- */

#define LOAD_THREADS 3
#define LOAD_US (600 * MS)

struct load {
    struct weir_bucket *bucket;
    uint64_t seed, allowed, refused, strange;
    int64_t until_us;
};

static void *load(void *arg)
{
    struct load *mine = arg;
    while (real_us() < mine->until_us) {
        mine->seed = mine->seed * UINT64_C(6364136223846793005) + 1;
        uint64_t cost = 1 + (mine->seed >> 40) % 3;
        int verdict = (mine->seed >> 50) % 16 == 0
                          ? weir_acquire_wait(mine->bucket, cost, 5000, NULL)
                          : weir_try_acquire(mine->bucket, cost, NULL);
        if (verdict == WEIR_ALLOWED) {
            mine->allowed += cost;
        } else {
            mine->refused += verdict == WEIR_DENIED || verdict == WEIR_UNAVAILABLE;
            mine->strange += verdict < 0 || verdict == WEIR_PENDING;
        }
        if ((mine->seed >> 32) % 64 == 0) {
            pause_us(100);
        }
    }
    return NULL;
}

static void counts_add_up_under_load(void **state)
{
    (void)state;
    const uint64_t rate = 20000, capacity = 2000, budget = 1000;
    struct weir_bucket *bucket = get(define(weir, "limit", rate, SECOND, capacity, budget), "key");
    struct load loads[LOAD_THREADS];
    pthread_t threads[LOAD_THREADS];
    int64_t from_us = real_us();
    for (unsigned i = 0; i < LOAD_THREADS; i++) {
        loads[i] = (struct load){bucket, i + 1, 0, 0, 0, from_us + LOAD_US};
        assert_int_equal(pthread_create(&threads[i], NULL, load, &loads[i]), 0);
    }
    while (real_us() < from_us + LOAD_US) {
        struct weir_stats stats = stats_of(weir);
        assert_conserved(&stats);
        assert_true(stats.held <= budget);
        pause_us(1000);
    }
    uint64_t allowed = 0, refused = 0;
    for (unsigned i = 0; i < LOAD_THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(loads[i].strange, 0);
        allowed += loads[i].allowed;
        refused += loads[i].refused;
    }
    int64_t us = real_us() - from_us;
    struct weir_stats stats = stats_of(weir);
    assert_conserved(&stats);
    assert_int_equal(allowed, stats.lease_spent + stats.exact_spent);
    assert_int_equal(refused, stats.denied + stats.cold + stats.unavailable);
    assert_true(allowed <= capacity + budget + rate * (uint64_t)us / SECOND + 1);
    assert_true(allowed > capacity);
    assert_int_equal(stats.asks_sent,
                     stats.asks_answered + stats.asks_lost + stats.asks_refused + stats.asks);
    assert_int_equal(stats.refunded + stats.outage_spent, 0);
    assert_int_equal(stats.waiters, 0);
    weir_bucket_unref(bucket);
}

/* ---- Refunds --------------------------------------------------------------------------------- */

static void a_refund_travels_with_the_next_ask(void **state)
{
    (void)state;
    struct weir_bucket *bucket = get(define(weir, "limit", 1, HOUR, 5, 0), "key");
    struct weir_result result;
    assert_int_equal(weir_refund(bucket, 1), WEIR_EINVAL);
    assert_int_equal(wait_for(bucket, 5, NULL), WEIR_ALLOWED);
    assert_int_equal(weir_refund(bucket, 6), WEIR_EINVAL);
    assert_int_equal(weir_refund(bucket, UINT64_MAX), WEIR_EINVAL);
    assert_int_equal(weir_refund(bucket, 3), WEIR_OK);
    assert_int_equal(weir_refund(bucket, 3), WEIR_EINVAL);
    assert_int_equal(wait_for(bucket, 3, &result), WEIR_ALLOWED);
    assert_int_equal(result.remaining_tokens, 0);
    assert_int_equal(wait_for(bucket, 1, NULL), WEIR_DENIED);
    assert_int_equal(stats_of(weir).refunded, 3);
    weir_bucket_unref(bucket);
}

/* Nobody asks any more: it still arrives. */
static void a_refund_needs_no_next_caller(void **state)
{
    (void)state;
    struct weir_limit_options options = limit_options("limit", 1, HOUR, 5, 0);
    options.window_ms = SHORT_MS;
    struct weir_bucket *bucket = get(define_with(weir, &options), "key");
    assert_int_equal(wait_for(bucket, 5, NULL), WEIR_ALLOWED);
    uint64_t sent = stats_of(weir).asks_sent;
    assert_int_equal(weir_refund(bucket, 4), WEIR_OK);
    UNTIL(stats_of(weir).asks_answered > sent);
    struct weir *other = open_store(server);
    struct weir_bucket *theirs = get(define_with(other, &options), "key");
    struct weir_result result;
    assert_int_equal(wait_for(theirs, 0, &result), WEIR_ALLOWED);
    assert_int_equal(result.remaining_tokens, 4);
    weir_bucket_unref(theirs);
    weir_bucket_unref(bucket);
    assert_int_equal(weir_close_wait(other), WEIR_OK);
}

/* Time stands still, so that the loop does not settle what was spent before it is refunded. */
static void a_refund_of_a_living_lease_is_credit_again(void **state)
{
    (void)state;
    char url[128];
    url_of(server, url);
    struct weir_options options = store_options(url);
    options.clock_ns = hand_clock_ns;
    options.clock_arg = &hand;
    hand_clock_set(&hand, SECOND);
    struct weir *still = open_with(&options);
    struct weir_bucket *bucket = get(define(still, "limit", 1000, SECOND, 1000, 500), "key");
    UNTIL(weir_try_acquire(bucket, 1, NULL) == WEIR_ALLOWED);
    assert_int_equal(weir_refund(bucket, 2), WEIR_EINVAL);
    assert_int_equal(weir_refund(bucket, 1), WEIR_OK);
    struct weir_stats stats = stats_of(still);
    assert_conserved(&stats);
    assert_int_equal(stats.refunded, 1);
    assert_int_equal(stats.lease_spent, 0);
    assert_int_equal(stats.held, stats.leased);
    weir_bucket_unref(bucket);
    assert_int_equal(weir_close_wait(still), WEIR_OK);
}

/* ---- Keys ------------------------------------------------------------------------------------ */

static bool exists(const char *prefix, const void *key, size_t len)
{
    static char whole[70000];
    size_t prefix_len = strlen(prefix);
    memcpy(whole, prefix, prefix_len);
    if (len > 0) {
        memcpy(whole + prefix_len, key, len);
    }
    return store_do(server, "EXISTS %b", whole, prefix_len + len) == 1;
}

static void keys_are_bytes_in_the_store_too(void **state)
{
    (void)state;
    static char long_key[65536];
    memset(long_key, 'k', sizeof(long_key));
    const struct {
        const void *key;
        size_t len;
    } keys[] = {{NULL, 0}, {"\0", 1},  {"a\0b", 3},   {"%n%s", 4},         {"{a}b", 4},
                {"}{", 2}, {"a:b", 3}, {"\r\n$3", 4}, {"\xff\xfe\xc3", 3}, {long_key, 65536}};
    const size_t count = sizeof(keys) / sizeof(keys[0]);
    struct weir_limit *limit = define(weir, "limit", 1, HOUR, 2, 0);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(weir_acquire_wait_key(limit, keys[i].key, keys[i].len, 2, 0, NULL),
                         WEIR_ALLOWED);
        assert_int_equal(weir_acquire_wait_key(limit, keys[i].key, keys[i].len, 1, 0, NULL),
                         WEIR_DENIED);
        assert_true(exists("weir:limit:", keys[i].key, keys[i].len));
    }
    assert_int_equal(store_do(server, "DBSIZE"), count);
}

/* A bucket that holds nothing makes room, though it is not full: its state is in the store. */
static void max_keys_is_held(void **state)
{
    (void)state;
    char url[128];
    url_of(server, url);
    struct weir_options options = store_options(url);
    options.max_keys = 2;
    struct weir *small = open_with(&options);
    struct weir_limit_options rule = limit_options("limit", 1, HOUR, 5, 0);
    rule.window_ms = SHORT_MS;
    struct weir_limit *limit = define_with(small, &rule);
    struct weir_bucket *a = get(limit, "a");
    struct weir_bucket *b = get(limit, "b");
    struct weir_bucket *c;
    assert_int_equal(weir_bucket_get(limit, "c", 1, &c), WEIR_EFULL);
    assert_int_equal(weir_try_acquire_key(limit, "c", 1, 1, NULL), WEIR_EFULL);
    assert_int_equal(weir_acquire_wait_key(limit, "c", 1, 1, 0, NULL), WEIR_EFULL);
    assert_int_equal(weir_acquire_wait(a, 5, 0, NULL), WEIR_ALLOWED);
    weir_bucket_unref(a);
    UNTIL(weir_bucket_get(limit, "c", 1, &c) == WEIR_OK);
    assert_int_equal(stats_of(small).buckets, 2);
    weir_bucket_unref(b);
    weir_bucket_unref(c);
    UNTIL(weir_bucket_get(limit, "a", 1, &a) == WEIR_OK);
    assert_int_equal(weir_acquire_wait(a, 1, 0, NULL), WEIR_DENIED);
    weir_bucket_unref(a);
    assert_int_equal(weir_close_wait(small), WEIR_OK);
}

/* More keys than places, all busy for a while: never more than max_keys, and each gets a place
 * in time. */
static void a_stream_of_keys_flows_through(void **state)
{
    (void)state;
    char url[128];
    url_of(server, url);
    struct weir_options options = store_options(url);
    options.max_keys = 20;
    struct weir *small = open_with(&options);
    struct weir_limit_options rule = limit_options("limit", 1000, SECOND, 1000, 100);
    rule.window_ms = SHORT_MS;
    struct weir_limit *limit = define_with(small, &rule);
    for (uint32_t i = 0; i < 200; i++) {
        int code = WEIR_EFULL;
        UNTIL((code = weir_acquire_wait_key(limit, &i, sizeof(i), 1, 0, NULL)) != WEIR_EFULL);
        assert_int_equal(code, WEIR_ALLOWED);
        assert_true(stats_of(small).buckets <= 20);
    }
    struct weir_stats stats = stats_of(small);
    assert_conserved(&stats);
    assert_int_equal(stats.lease_spent + stats.exact_spent, 200);
    assert_int_equal(weir_close_wait(small), WEIR_OK);
}

/* ---- Changed limits -------------------------------------------------------------------------- */

static void a_changed_limit_is_in_force(void **state)
{
    (void)state;
    struct weir_limit *limit = define(weir, "limit", 1000, SECOND, 1000, 0);
    struct weir_limit_options slow = limit_options(NULL, 10, SECOND, 10, 0);
    struct weir_limit_options wide = limit_options(NULL, 1, HOUR, 100, 0);
    struct weir_limit_options narrow = limit_options(NULL, 1, HOUR, 10, 0);
    struct weir_result result;

    /* 1000 to 10 a second, empty: the next token comes within a tenth of a second. */
    struct weir_bucket *bucket = get(limit, "slower");
    assert_int_equal(wait_for(bucket, 1000, NULL), WEIR_ALLOWED);
    assert_int_equal(weir_limit_update(limit, &slow, NULL), WEIR_OK);
    do { /* what accrued before the store heard of it */
        assert_true(wait_for(bucket, 1, &result) >= 0);
        assert_int_equal(result.limit_tokens, 10);
    } while (result.verdict == WEIR_ALLOWED);
    assert_int_equal(result.reason, WEIR_OVER_LIMIT);
    assert_true(result.retry_after_us > 0 && result.retry_after_us <= 100 * MS);
    pause_us((unsigned)result.retry_after_us);
    assert_int_equal(wait_for(bucket, 1, NULL), WEIR_ALLOWED);
    weir_bucket_unref(bucket);

    /* Capacity 100 to 10 with 80 there: ten, and no fresh ones. */
    assert_int_equal(weir_limit_update(limit, &wide, NULL), WEIR_OK);
    bucket = get(limit, "smaller");
    assert_int_equal(wait_for(bucket, 20, NULL), WEIR_ALLOWED);
    assert_int_equal(weir_limit_update(limit, &narrow, NULL), WEIR_OK);
    assert_int_equal(wait_for(bucket, 11, &result), WEIR_DENIED);
    assert_int_equal(result.reason, WEIR_COST_ABOVE_CAPACITY);
    assert_int_equal(wait_for(bucket, 10, &result), WEIR_ALLOWED);
    assert_int_equal(result.remaining_tokens, 0);
    assert_int_equal(weir_limit_update(limit, &wide, NULL), WEIR_OK);
    assert_int_equal(wait_for(bucket, 1, &result), WEIR_DENIED);
    assert_int_equal(result.limit_tokens, 100);
    weir_bucket_unref(bucket);
}

/* Two processes disagree: the higher version is in force for both, whoever asks first. */
static void the_highest_version_wins(void **state)
{
    (void)state;
    struct weir *other = open_store(server);
    struct weir_limit_options old = limit_options("limit", 1, HOUR, 10, 0);
    struct weir_limit_options new = limit_options("limit", 1, HOUR, 4, 0);
    old.version = 1;
    new.version = 2;
    struct weir_bucket *theirs = get(define_with(other, &old), "key");
    struct weir_bucket *ours = get(define_with(weir, &new), "key");
    struct weir_result result;
    assert_int_equal(wait_for(theirs, 1, &result), WEIR_ALLOWED);
    assert_int_equal(result.remaining_tokens, 9);
    assert_int_equal(wait_for(ours, 1, &result), WEIR_ALLOWED);
    assert_int_equal(result.remaining_tokens, 3);
    assert_int_equal(wait_for(theirs, 5, &result), WEIR_DENIED);
    assert_int_equal(result.reason, WEIR_COST_ABOVE_CAPACITY);
    assert_int_equal(wait_for(theirs, 3, &result), WEIR_ALLOWED);
    assert_int_equal(wait_for(ours, 1, &result), WEIR_DENIED);
    weir_bucket_unref(theirs);
    weir_bucket_unref(ours);
    assert_int_equal(weir_close_wait(other), WEIR_OK);
}

/* A flush of the scripts is not seen by anybody; a flush of the data is a new start. */
static void flushes(void **state)
{
    (void)state;
    struct weir_bucket *bucket = get(define(weir, "limit", 1, HOUR, 5, 0), "key");
    assert_int_equal(wait_for(bucket, 3, NULL), WEIR_ALLOWED);
    store_do(server, "SCRIPT FLUSH");
    assert_int_equal(wait_for(bucket, 2, NULL), WEIR_ALLOWED);
    assert_int_equal(wait_for(bucket, 1, NULL), WEIR_DENIED);
    assert_int_equal(stats_of(weir).scripts_loaded, 2);
    store_do(server, "FLUSHALL");
    struct weir_bucket *other = get(define(weir, "other", 1, HOUR, 5, 0), "key");
    assert_int_equal(wait_for(other, 5, NULL), WEIR_ALLOWED);
    weir_bucket_unref(bucket);
    weir_bucket_unref(other);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_on_store, close_and_clear)
    const struct CMUnitTest tests[] = {
        TEST(the_first_try_is_cold_and_brings_the_lease),
        TEST(without_a_budget_only_waiting_is_exact),
        TEST(a_hint_of_the_store_is_kept),
        TEST(looks_and_impossible_costs),
        TEST(a_refused_crowd_is_told_here),
        TEST(each_token_is_granted_once),
        TEST(closing_gives_back),
        TEST(counts_add_up_under_load),
        TEST(a_refund_travels_with_the_next_ask),
        TEST(a_refund_needs_no_next_caller),
        TEST(a_refund_of_a_living_lease_is_credit_again),
        TEST(keys_are_bytes_in_the_store_too),
        TEST(max_keys_is_held),
        TEST(a_stream_of_keys_flows_through),
        TEST(a_changed_limit_is_in_force),
        TEST(the_highest_version_wins),
        TEST(flushes),
    };
    return cmocka_run_group_tests(tests, start_store, stop_store);
}
