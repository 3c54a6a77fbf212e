/* SPDX-License-Identifier: MIT */
/*
 * The in-process store through the public interface, on a clock that is turned by hand: what a
 * token bucket is, to the microsecond, with and without a budget.
 *
 * The budget moves tokens in time only.  So most of what follows is run with several budgets and
 * must not differ: a caller alone is allowed exactly what one bucket would allow, plus what the
 * budget lets a full bucket hold besides.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/setup.h"
#include "base/num.h"

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

/* Capacity 10, 2 a second: one taken at 1.5 s leaves 9; at 2 s there are ten again, and all ten
 * pass. */
static void half_a_second_counts(void **state)
{
    (void)state;
    const uint64_t budgets[] = {0, 2, 10};
    for (size_t i = 0; i < 3; i++) {
        at(0);
        struct weir_bucket *bucket = bucket_of(2, SECOND, 10, budgets[i]);
        struct weir_result result;
        at(1500 * MS);
        assert_int_equal(weir_try_acquire(bucket, 1, &result), WEIR_ALLOWED);
        assert_int_equal(result.remaining_tokens, 9);
        at(2 * SECOND);
        assert_int_equal(look(bucket).remaining_tokens, 10);
        assert_int_equal(takes(bucket, 10), 10);
        weir_bucket_unref(bucket);
    }
}

/* An older time neither gives the same second twice nor moves the bucket's time back. */
static void a_clock_that_steps_back_gives_nothing(void **state)
{
    (void)state;
    at(0);
    struct weir_bucket *bucket = bucket_of(5, SECOND, 5, 0);
    assert_int_equal(takes(bucket, 5), 5);
    at(SECOND);
    assert_int_equal(takes(bucket, 4), 4);
    at(0);
    assert_int_equal(takes(bucket, 1), 1);
    at(SECOND);
    assert_int_equal(takes(bucket, 5), 0);
    weir_bucket_unref(bucket);
}

/* Rows of: at this time this cost, and is it allowed? */
struct call {
    int64_t us;
    uint64_t cost;
    bool allowed;
};

#define ROWS 24

struct story {
    const char *name;
    uint64_t rate;
    int64_t period_us;
    uint64_t capacity;
    struct call calls[ROWS]; /* up to the first of cost 0 */
};

static const struct story stories[] = {
    {"a long idle time fills and does not wrap",
     1000000,
     SECOND,
     1000000,
     {{0, 1000000, true},
      {9224 * SECOND, 1, true},
      {9224 * SECOND, 999999, true},
      {9224 * SECOND, 1, false},
      {100000 * SECOND, 1000000, true},
      {365 * DAY, 1000000, true},
      {365 * DAY, 1, false}}},
    {"parts of a token are kept",
     10,
     SECOND,
     10,
     {{0, 10, true},
      {50 * MS, 1, false},
      {100 * MS, 1, true},
      {150 * MS, 1, false},
      {200 * MS, 1, true},
      {250 * MS, 1, false},
      {300 * MS, 1, true},
      {350 * MS, 1, false},
      {400 * MS, 1, true},
      {450 * MS, 1, false},
      {500 * MS, 1, true}}},
    {"the part already accrued counts",
     1,
     SECOND,
     1,
     {{0, 1, true}, {200 * MS, 1, false}, {SECOND - 1, 1, false}, {SECOND, 1, true}}},
    {"a refusal moves no time",
     1,
     SECOND,
     1,
     {{0, 1, true},
      {600 * MS, 1, false},
      {1200 * MS, 1, true},
      {1800 * MS, 1, false},
      {2400 * MS, 1, true},
      {3 * SECOND, 1, false}}},
    {"a second is not given whole at its start",
     10000,
     SECOND,
     10000,
     {{1999 * MS, 10000, true}, {2000 * MS, 10, true}, {2000 * MS, 1, false}}},
    {"faster than its expiry in seconds", 3, SECOND, 1, {{0, 1, true}, {0, 1, false}}},
    {"faster than its expiry in milliseconds", 1000, SECOND, 1, {{0, 1, true}, {0, 1, false}}},
    {"one in ten seconds",
     1,
     10 * SECOND,
     1,
     {{0, 1, true}, {2 * SECOND, 1, false}, {9900 * MS, 1, false}, {10 * SECOND, 1, true}}},
    {"six a minute is the same",
     6,
     MINUTE,
     1,
     {{0, 1, true}, {9900 * MS, 1, false}, {10 * SECOND, 1, true}}},
    {"every half millisecond",
     2000,
     SECOND,
     1,
     {{0, 1, true}, {0, 1, false}, {499, 1, false}, {500, 1, true}, {500, 1, false}}},
    {"more than one a microsecond",
     1000000000,
     SECOND,
     1000,
     {{0, 1000, true}, {0, 1, false}, {1, 1000, true}, {1, 1, false}}},
    {"a cost above what is there takes nothing",
     1,
     SECOND,
     10,
     {{0, 7, true}, {0, 4, false}, {0, 3, true}, {0, 1, false}, {4 * SECOND, 4, true}}},
    {"three a day, to the microsecond",
     3,
     DAY,
     2,
     {{0, 2, true},
      {8 * HOUR - 1, 1, false},
      {8 * HOUR, 1, true},
      {16 * HOUR - 1, 1, false},
      {16 * HOUR, 1, true}}},
};

static void stories_are_told_the_same_with_any_budget(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(stories) / sizeof(stories[0]); i++) {
        const struct story *story = &stories[i];
        const uint64_t budgets[] = {0, 1, story->capacity / 2, story->capacity};
        for (size_t b = 0; b < 4; b++) {
            at(0);
            struct weir_bucket *bucket = bucket_of(story->rate, story->period_us, story->capacity,
                                                   budgets[b]);
            for (const struct call *call = story->calls; call->cost != 0; call++) {
                at(call->us);
                if (take(bucket, call->cost) != call->allowed) {
                    fail_msg("%s: budget %d, call %d", story->name, (int)budgets[b],
                             (int)(call - story->calls));
                }
            }
            weir_bucket_unref(bucket);
        }
    }
}

static void capacity_defaults_to_a_second_and_at_least_one(void **state)
{
    (void)state;
    const struct {
        uint64_t rate;
        int64_t period_us, capacity;
    } rows[] = {{1, 2 * SECOND, 1}, {1, 10 * SECOND, 1}, {2000, SECOND, 2000}, {7, 2 * SECOND, 3}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct weir_bucket *bucket = bucket_of(rows[i].rate, rows[i].period_us, WEIR_DEFAULT,
                                               WEIR_DEFAULT);
        assert_int_equal(look(bucket).limit_tokens, rows[i].capacity);
        assert_int_equal(takes(bucket, (unsigned)rows[i].capacity + 1), rows[i].capacity);
        weir_bucket_unref(bucket);
    }
}

static void many_in_one_instant(void **state)
{
    (void)state;
    const uint64_t budgets[] = {0, 300, 6000};
    for (size_t i = 0; i < 3; i++) {
        struct weir_bucket *bucket = bucket_of(6000, SECOND, 6000, budgets[i]);
        for (int64_t left = 5999; left >= 0; left--) {
            struct weir_result result;
            assert_int_equal(weir_try_acquire(bucket, 1, &result), WEIR_ALLOWED);
            assert_int_equal(result.remaining_tokens, left);
            assert_int_equal(result.retry_after_us, 0);
        }
        assert_false(take(bucket, 1));
        weir_bucket_unref(bucket);
    }
}

/* ---- What results say ------------------------------------------------------------------------ */

static void a_refusal_says_when(void **state)
{
    (void)state;
    at(0);
    struct weir_bucket *bucket = bucket_of(1, SECOND, 4, 2);
    struct weir_result result;
    assert_true(take(bucket, 4));
    at(200 * MS);
    assert_int_equal(weir_try_acquire(bucket, 1, &result), WEIR_DENIED);
    assert_int_equal(result.verdict, WEIR_DENIED);
    assert_int_equal(result.reason, WEIR_OVER_LIMIT);
    assert_int_equal(result.limit_tokens, 4);
    assert_int_equal(result.remaining_tokens, 0);
    assert_int_equal(result.retry_after_us, 800 * MS);
    assert_int_equal(result.reset_after_us, 3800 * MS);
    assert_int_equal(weir_try_acquire(bucket, 3, &result), WEIR_DENIED);
    assert_int_equal(result.retry_after_us, 2800 * MS);
    at(1500 * MS);
    assert_int_equal(weir_try_acquire(bucket, 3, &result), WEIR_DENIED);
    assert_int_equal(result.remaining_tokens, 1);
    assert_int_equal(result.retry_after_us, 1500 * MS);
    weir_bucket_unref(bucket);
}

static void remaining_follows_the_refill(void **state)
{
    (void)state;
    const uint64_t budgets[] = {0, 1, 5};
    for (size_t i = 0; i < 3; i++) {
        at(0);
        struct weir_bucket *bucket = bucket_of(5, MINUTE, 5, budgets[i]);
        struct weir_result result;
        assert_int_equal(takes(bucket, 5), 5);
        assert_int_equal(look(bucket).remaining_tokens, 0);
        assert_int_equal(look(bucket).verdict, WEIR_DENIED);
        at(MINUTE);
        assert_int_equal(look(bucket).remaining_tokens, 5);
        assert_int_equal(look(bucket).verdict, WEIR_ALLOWED);
        assert_int_equal(weir_try_acquire(bucket, 1, &result), WEIR_ALLOWED);
        assert_int_equal(result.remaining_tokens, 4);
        assert_int_equal(look(bucket).remaining_tokens, 4);
        at(HOUR);
        assert_int_equal(look(bucket).remaining_tokens, 5);
        assert_int_equal(look(bucket).reset_after_us, 0);
        weir_bucket_unref(bucket);
    }
}

/* Ten per thirty seconds, one call a second. */
static void remaining_counts_down_while_it_refills(void **state)
{
    (void)state;
    const int64_t left[] = {9, 8, 7, 7, 6, 5, 5, 4, 3, 3, 2};
    at(0);
    struct weir_bucket *bucket = bucket_of(10, 30 * SECOND, 10, 0);
    for (int i = 0; i < 11; i++) {
        struct weir_result result;
        at(i * SECOND);
        assert_int_equal(weir_try_acquire(bucket, 1, &result), WEIR_ALLOWED);
        assert_int_equal(result.remaining_tokens, left[i]);
        assert_int_equal(result.reset_after_us, (i + 1) * 3 * SECOND - i * SECOND);
    }
    weir_bucket_unref(bucket);
}

/* The hint of a refusal: allowed exactly then, refused a microsecond earlier. */
static void a_hint_is_true_to_the_microsecond(void **state)
{
    (void)state;
    uint64_t seed = 92;
    int64_t now_us = 0;
    for (int round = 0; round < 1000; round++) {
        uint64_t capacity = 1 + weir__random(&seed) % 50;
        uint64_t rate = 1 + weir__random(&seed) % 2000;
        int64_t period_us = (int64_t)(1000 + weir__random(&seed) % 100000000);
        uint64_t budget = weir__random(&seed) % (capacity + 1);
        at(now_us);
        struct weir_bucket *bucket = bucket_of(rate, period_us, capacity, budget);
        for (int i = 0; i < 5; i++) {
            now_us += (int64_t)(weir__random(&seed) % (uint64_t)period_us);
            at(now_us);
            (void)take(bucket, 1 + weir__random(&seed) % capacity);
        }
        struct weir_result result;
        uint64_t cost = 1 + weir__random(&seed) % capacity;
        while (weir_try_acquire(bucket, cost, &result) == WEIR_ALLOWED) {
        }
        if (result.retry_after_us < 1) {
            fail_msg("round %d: retry_after %ld", round, (long)result.retry_after_us);
        }
        now_us += result.retry_after_us - 1;
        at(now_us);
        if (take(bucket, cost)) {
            fail_msg("round %d: allowed a microsecond early", round);
        }
        at(++now_us);
        if (!take(bucket, cost)) {
            fail_msg("round %d: refused at the hint", round);
        }
        weir_bucket_unref(bucket);
    }
}

static void five_a_second_waits_200_ms(void **state)
{
    (void)state;
    const struct {
        uint64_t rate;
        int64_t period_us, retry_us;
    } rows[] = {{5, SECOND, 200 * MS}, {6, MINUTE, 10 * SECOND}, {3, SECOND, 333334}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct weir_result result;
        struct weir_bucket *bucket = bucket_of(rows[i].rate, rows[i].period_us, 1, 0);
        assert_true(take(bucket, 1));
        assert_int_equal(weir_try_acquire(bucket, 1, &result), WEIR_DENIED);
        assert_int_equal(result.retry_after_us, rows[i].retry_us);
        weir_bucket_unref(bucket);
    }
}

/* ---- Costs that are not one ------------------------------------------------------------------ */

static void a_cost_of_nothing_is_a_look(void **state)
{
    (void)state;
    at(0);
    const uint64_t budgets[] = {0, 2};
    for (size_t i = 0; i < 2; i++) {
        struct weir_bucket *bucket = bucket_of(1, HOUR, 3, budgets[i]);
        struct weir_result result;
        for (int n = 0; n < 10; n++) {
            assert_int_equal(weir_try_acquire(bucket, 0, &result), WEIR_ALLOWED);
            assert_int_equal(result.remaining_tokens, 3);
        }
        assert_int_equal(takes(bucket, 4), 3);
        assert_int_equal(weir_try_acquire(bucket, 0, &result), WEIR_DENIED);
        assert_int_equal(result.reason, WEIR_OVER_LIMIT);
        assert_int_equal(result.remaining_tokens, 0);
        assert_int_equal(result.retry_after_us, 1200 * SECOND * 3);
        weir_bucket_unref(bucket);
    }
}

static void a_cost_above_capacity_is_refused_for_ever(void **state)
{
    (void)state;
    const uint64_t costs[] = {4, 1000000000, UINT64_C(1) << 62, UINT64_C(1) << 63, UINT64_MAX};
    struct weir_bucket *bucket = bucket_of(1, HOUR, 3, 3);
    for (size_t i = 0; i < sizeof(costs) / sizeof(costs[0]); i++) {
        struct weir_result result;
        struct answer answer;
        assert_int_equal(weir_try_acquire(bucket, costs[i], &result), WEIR_DENIED);
        assert_int_equal(result.reason, WEIR_COST_ABOVE_CAPACITY);
        assert_int_equal(result.retry_after_us, WEIR_NEVER);
        assert_int_equal(ask(&answer, bucket, costs[i], SECOND, &result), WEIR_DENIED);
        assert_int_equal(result.reason, WEIR_COST_ABOVE_CAPACITY);
        assert_int_equal(weir_acquire_wait(bucket, costs[i], SECOND, &result), WEIR_DENIED);
        assert_int_equal(result.reason, WEIR_COST_ABOVE_CAPACITY);
        assert_false(answered(&answer));
    }
    assert_int_equal(takes(bucket, 4), 3);
    weir_bucket_unref(bucket);
}

/* ---- The promise, and its other half --------------------------------------------------------- */

/*
 * Random calls against two plain buckets that are charged what weir admits: one that holds C at
 * most, and one that holds C + E.  What the first could pay must not be refused; what the second
 * could not pay must not be allowed.  Levels are in 1/period tokens, so that they are exact.
 */
struct bound {
    int64_t least, most;
};

static void pass(struct bound *bound, int64_t us, int64_t rate, int64_t full_least, int64_t full)
{
    bound->least = weir__min(bound->least + us * rate, full_least);
    bound->most = weir__min(bound->most + us * rate, full);
}

static void run_random(uint64_t *seed, int64_t capacity, int64_t budget)
{
    const int64_t rate = 1 + (int64_t)(weir__random(seed) % 1000);
    const int64_t period_us = 997 * MS;
    struct weir_bucket *bucket = bucket_of((uint64_t)rate, period_us, (uint64_t)capacity,
                                           (uint64_t)budget);
    struct bound bound = {capacity * period_us, (capacity + budget) * period_us};
    int64_t now_us = 0;
    uint64_t admitted = 0;
    for (int i = 0; i < 3000; i++) {
        int64_t us = (int64_t)(weir__random(seed) % (uint64_t)(2 * period_us / rate + 1));
        int64_t cost = 1 + (int64_t)(weir__random(seed) % (uint64_t)(i % 7 == 0 ? capacity : 3));
        cost = weir__min(cost, capacity);
        now_us += us;
        at(now_us);
        pass(&bound, us, rate, capacity * period_us, (capacity + budget) * period_us);
        struct weir_result result;
        int verdict = weir_try_acquire(bucket, (uint64_t)cost, &result);
        if (verdict == WEIR_ALLOWED ? bound.most < cost * period_us
                                    : bound.least >= cost * period_us) {
            fail_msg("C %ld E %ld call %d: %s", (long)capacity, (long)budget, i,
                     weir_verdict_name(verdict));
        }
        if (verdict == WEIR_ALLOWED) {
            admitted += (uint64_t)cost;
            bound.least -= cost * period_us;
            bound.most -= cost * period_us;
        }
        assert_true(result.remaining_tokens >= 0 && result.remaining_tokens <= capacity);
        if (budget == 0) {
            assert_int_equal(result.remaining_tokens, bound.least / period_us);
        }
    }
    /* All that was admitted can be given back, and not one more. */
    assert_int_equal(weir_refund(bucket, admitted + 1), WEIR_EINVAL);
    assert_int_equal(weir_refund(bucket, admitted), WEIR_OK);
    assert_int_equal(weir_refund(bucket, 1), WEIR_EINVAL);
    weir_bucket_unref(bucket);
}

static void admits_what_it_must_and_no_more(void **state)
{
    (void)state;
    uint64_t seed = 17;
    const int64_t capacities[] = {1, 2, 10, 100, 1000};
    for (size_t i = 0; i < sizeof(capacities) / sizeof(capacities[0]); i++) {
        int64_t c = capacities[i];
        at(0);
        run_random(&seed, c, 0);
        at(0);
        run_random(&seed, c, 1);
        at(0);
        run_random(&seed, c, c / 2);
        at(0);
        run_random(&seed, c, c);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_at_start, close_weir)
    const struct CMUnitTest tests[] = {
        TEST(half_a_second_counts),
        TEST(a_clock_that_steps_back_gives_nothing),
        TEST(stories_are_told_the_same_with_any_budget),
        TEST(capacity_defaults_to_a_second_and_at_least_one),
        TEST(many_in_one_instant),
        TEST(a_refusal_says_when),
        TEST(remaining_follows_the_refill),
        TEST(remaining_counts_down_while_it_refills),
        TEST(a_hint_is_true_to_the_microsecond),
        TEST(five_a_second_waits_200_ms),
        TEST(a_cost_of_nothing_is_a_look),
        TEST(a_cost_above_capacity_is_refused_for_ever),
        TEST(admits_what_it_must_and_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
