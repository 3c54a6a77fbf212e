/* SPDX-License-Identifier: MIT */
/*
 * Faults that other rate limiters had, as inputs to the global token bucket.  The point of each
 * is in its title.  The Lua script is held to the same numbers by the tests in tests/script, so
 * what passes here passes there.
 */
#include "core/global.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/num.h"
#include "core/rule.h"

#include "bed.h"

/* A string of A and D for single tokens at the given times. */
static void assert_verdicts(struct bed *bed, const int64_t *at, size_t count, const char *verdicts)
{
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(bed_take(bed, at[i], 1) ? 'A' : 'D', verdicts[i]);
    }
}

static void test_b01_long_idle_fills_and_stops(void **state)
{
    (void)state;
    static const int64_t idle[] = {9224 * SECOND, DAY, 365 * DAY, 100 * 365 * DAY};
    for (size_t i = 0; i < 4; i++) {
        struct bed bed = bed_of(1000000, SECOND, 1000000, 0);
        assert_true(bed_take(&bed, 0, 1000000));
        bed.key.expires_us = INT64_MAX; /* the key is still there */
        assert_true(bed_take(&bed, idle[i], 1));
        assert_int_equal(bed.grant.remaining, 999999);
    }
}

static void test_b03_polling_keeps_parts_of_a_token(void **state)
{
    (void)state;
    struct bed bed = bed_of(10, SECOND, 10, 0);
    assert_true(bed_take(&bed, 0, 10));
    for (int64_t i = 1; i <= 20; i++) {
        assert_int_equal(bed_take(&bed, i * 50 * MS, 1), i % 2 == 0);
    }
}

static void test_b05_wait_counts_partial_token(void **state)
{
    (void)state;
    struct bed bed = bed_of(1, SECOND, 1, 0);
    assert_true(bed_take(&bed, 0, 1));
    assert_false(bed_take(&bed, 200 * MS, 1));
    assert_int_equal(bed.grant.retry_after_us, 800 * MS);
    assert_true(bed_take(&bed, SECOND, 1));
}

static void test_b09_older_clock_refills_nothing(void **state)
{
    (void)state;
    struct bed bed = bed_of(5, SECOND, 5, 0);
    static const struct {
        int64_t at;
        int tries, granted;
    } rows[] = {
        {1000 * SECOND, 5, 5}, {1001 * SECOND, 4, 4}, {1000 * SECOND, 1, 1}, {1001 * SECOND, 5, 0}};
    for (size_t i = 0; i < 4; i++) {
        int granted = 0;
        for (int k = 0; k < rows[i].tries; k++) {
            granted += bed_take(&bed, rows[i].at, 1);
        }
        assert_int_equal(granted, rows[i].granted);
    }

    /* the stamp one second ahead, and nothing there */
    struct bed ahead = bed_of(5, SECOND, 5, 0);
    assert_true(bed_take(&ahead, SECOND, 5));
    assert_false(bed_take(&ahead, 0, 1));
    assert_int_equal(ahead.key.stamp_us, START + SECOND);
    assert_int_equal(ahead.grant.retry_after_us, SECOND + 200 * MS);
    assert_false(bed_take(&ahead, SECOND + 200 * MS - 1, 1));
    assert_true(bed_take(&ahead, SECOND + 200 * MS, 1));
}

static void test_b11_no_whole_seconds(void **state)
{
    (void)state;
    struct bed slow = bed_of(1, SECOND, 1, 0);
    static const int64_t at[] = {0, 600 * MS, 1200 * MS, 1800 * MS, 2400 * MS, 3000 * MS};
    assert_verdicts(&slow, at, 6, "ADADAD");

    struct bed fast = bed_of(10000, SECOND, 10000, 0);
    assert_true(bed_take(&fast, 1999 * MS, 10000));
    int allowed = 0;
    for (int i = 0; i < 20; i++) {
        allowed += bed_take(&fast, 2000 * MS, 1);
    }
    assert_int_equal(allowed, 10);
}

static void test_b16_short_fill_is_still_stored(void **state)
{
    (void)state;
    static const uint64_t rates[] = {3, 1000, 1000000000};
    for (size_t i = 0; i < 3; i++) {
        struct bed bed = bed_of(rates[i], SECOND, 1, 0);
        assert_verdicts(&bed, (const int64_t[]){0, 0}, 2, "AD");
        assert_true(bed.key.expires_us >= START + MS);
        assert_int_equal((bed.key.expires_us - START) % MS, 0);
    }
}

static void test_b18_key_outlives_its_filling(void **state)
{
    (void)state;
    struct bed bed = bed_of(1, 10 * SECOND, 1, 0);
    assert_true(bed_take(&bed, 0, 1));
    assert_true(bed.key.expires_us >= START + 10 * SECOND);
    assert_verdicts(&bed, (const int64_t[]){2 * SECOND, 9900 * MS, 10 * SECOND}, 3, "DDA");
}

static void test_b20_no_fraction_leaves(void **state)
{
    (void)state;
    struct bed bed = bed_of(3, SECOND, 3, 0);
    assert_true(bed_take(&bed, 0, 3));
    assert_false(bed_take(&bed, 0, 1));
    assert_int_equal(bed.grant.retry_after_us, 333334); /* 333333.3 rounded up */
    assert_int_equal(bed_look(&bed, SECOND - 1), 2);    /* 2.999997 rounded down */
    assert_false(bed_take(&bed, 0, 4));
    assert_int_equal(bed.grant.retry_after_us, -1); /* never */
    assert_int_equal(bed.grant.exact, 0);
}

static void test_b77_fast_rates(void **state)
{
    (void)state;
    struct bed one = bed_of(2000, SECOND, 1, 0);
    assert_verdicts(&one, (const int64_t[]){0, 0}, 2, "AD");
    assert_int_equal(one.grant.retry_after_us, 500);
    assert_verdicts(&one, (const int64_t[]){499, 500}, 2, "DA");

    struct bed many = bed_of(6000, SECOND, 6000, 0);
    for (int i = 0; i < 6000; i++) {
        assert_true(bed_take(&many, 0, 1));
        assert_int_equal(many.grant.remaining, 5999 - i);
    }
    assert_false(bed_take(&many, 0, 1));
    assert_int_equal(bed_look(&many, DAY), 6000);
}

static void test_b79_slow_rates(void **state)
{
    (void)state;
    struct bed tenth = bed_of(1, 10 * SECOND, 1, 0);
    assert_verdicts(&tenth, (const int64_t[]){0, 9900 * MS, 10 * SECOND}, 3, "ADA");
    struct bed half = bed_of(1, 2 * SECOND, 1, 0);
    assert_verdicts(&half, (const int64_t[]){0, 1900 * MS, 2 * SECOND}, 3, "ADA");
}

static void test_b81_updates_take_effect(void **state)
{
    (void)state;
    struct bed lowered = bed_of(1000, SECOND, 1000, 0);
    assert_true(bed_take(&lowered, 0, 1000));
    bed_update(&lowered, bed_of(10, SECOND, 10, 0));
    assert_false(bed_take(&lowered, 0, 1));
    assert_true(lowered.grant.retry_after_us <= 100 * MS);
    assert_true(bed_take(&lowered, 100 * MS, 1));

    struct bed raised = bed_of(5, MINUTE, 5, 0);
    assert_true(bed_take(&raised, 0, 5));
    bed_update(&raised, bed_of(10, MINUTE, 10, 0));
    assert_int_equal(bed_look(&raised, 0), 0);
    assert_false(bed_take(&raised, 0, 1));
    assert_true(bed_take(&raised, MINUTE, 10));

    struct bed clamped = bed_of(1, DAY, 100, 0);
    assert_true(bed_take(&clamped, 0, 20));
    bed_update(&clamped, bed_of(1, DAY, 10, 0));
    assert_int_equal(bed_look(&clamped, 0), 10);
}

static void test_b85_nobody_gets_more_than_a_batch(void **state)
{
    (void)state;
    struct bed bed = bed_of(1, DAY, 100, 100);
    int64_t total = 0;
    for (int instance = 0; instance < 10; instance++) {
        int64_t got = bed_lease(&bed, 0, 20);
        assert_true(got >= 1 && got <= 20);
        total += got;
    }
    assert_true(total <= 100);
    for (int again = 0; again < 10; again++) {
        total += bed_lease(&bed, 0, 20);
    }
    assert_int_equal(total, 100);
    assert_int_equal(bed.grant.outstanding, 100);
}

static void test_b90_remaining_follows_time(void **state)
{
    (void)state;
    struct bed bed = bed_of(5, MINUTE, 5, 0);
    assert_true(bed_take(&bed, 0, 5));
    assert_int_equal(bed_look(&bed, 0), 0);
    assert_int_equal(bed_look(&bed, MINUTE), 5);
    assert_true(bed_take(&bed, MINUTE, 1));
    assert_int_equal(bed_look(&bed, MINUTE), 4);

    struct bed leased = bed_of(5, MINUTE, 5, 5);
    while (bed_lease(&leased, 0, 5) > 0) {
    }
    assert_int_equal(bed_look(&leased, 0), 0);
    assert_int_equal(bed_look(&leased, MINUTE), 5);

    struct bed two = bed_of(1, SECOND, 2, 0);
    assert_true(bed_take(&two, 0, 1));
    assert_int_equal(two.grant.remaining, 1);
}

static void test_b92_hint_is_the_first_moment(void **state)
{
    (void)state;
    struct bed fifth = bed_of(5, SECOND, 1, 0);
    assert_true(bed_take(&fifth, 0, 1));
    assert_false(bed_take(&fifth, 0, 1));
    assert_int_equal(fifth.grant.retry_after_us, 200 * MS);

    static const uint64_t rates[][3] = {{5, 1000000, 10},
                                        {6, 60000000, 6},
                                        {1000003, 86400000000, 1000000000},
                                        {7, 3000001, 100},
                                        {3, 1000, 5}};
    uint64_t seed = 3;
    int denied = 0;
    int64_t at = 0;
    struct bed bed = bed_of(1, 1, 1, 0);
    for (int i = 0; denied < 1000; i++) {
        if (i % 200 == 0) {
            const uint64_t *rate = rates[i / 200 % 5];
            bed = bed_of(rate[0], (int64_t)rate[1], (int64_t)rate[2], 0);
        }
        int64_t c = bed.rule.capacity;
        int64_t cost = 1 + (int64_t)(weir__random(&seed) % (uint64_t)c);
        at += (int64_t)(weir__random(&seed) % (uint64_t)weir__rule_time_us(&bed.rule, c / 4 + 1));
        if (!bed_take(&bed, at, cost)) {
            denied++;
            int64_t hint = bed.grant.retry_after_us;
            struct bed early = bed;
            struct bed there = bed;
            assert_true(hint > 0);
            assert_false(bed_take(&early, at + hint - 1, cost));
            assert_true(bed_take(&there, at + hint, cost));
        }
    }
}

/* Capacity 10, 2 a second, one token taken at 1.5 s: at 2 s the bucket is full again. */
static void test_mistake_tenth_token_is_there(void **state)
{
    (void)state;
    struct bed bed = bed_of(2, SECOND, 10, 0);
    assert_true(bed_take(&bed, 1500 * MS, 1));
    assert_int_equal(bed.grant.remaining, 9);
    for (int i = 0; i < 10; i++) {
        assert_true(bed_take(&bed, 2 * SECOND, 1));
    }
    assert_false(bed_take(&bed, 2 * SECOND, 1));
}

/* Writing an older time, or flooring what accrued while the time moves on: twice, or never. */
static void test_mistake_time_moves_with_what_accrued(void **state)
{
    (void)state;
    struct bed bed = bed_of(3, SECOND, 3, 0);
    assert_true(bed_take(&bed, 0, 3));
    uint64_t seed = 5;
    int64_t at = 0;
    int64_t latest = 0;
    int64_t taken = 0;
    while (latest < 1000 * SECOND) {
        at = latest + (int64_t)(weir__random(&seed) % 100000) - 40000;
        latest = weir__max(latest, at);
        taken += bed_take(&bed, at, 1);
    }
    assert_in_range(taken, 3 * latest / SECOND - 1, 3 * latest / SECOND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_b01_long_idle_fills_and_stops),
        cmocka_unit_test(test_b03_polling_keeps_parts_of_a_token),
        cmocka_unit_test(test_b05_wait_counts_partial_token),
        cmocka_unit_test(test_b09_older_clock_refills_nothing),
        cmocka_unit_test(test_b11_no_whole_seconds),
        cmocka_unit_test(test_b16_short_fill_is_still_stored),
        cmocka_unit_test(test_b18_key_outlives_its_filling),
        cmocka_unit_test(test_b20_no_fraction_leaves),
        cmocka_unit_test(test_b77_fast_rates),
        cmocka_unit_test(test_b79_slow_rates),
        cmocka_unit_test(test_b81_updates_take_effect),
        cmocka_unit_test(test_b85_nobody_gets_more_than_a_batch),
        cmocka_unit_test(test_b90_remaining_follows_time),
        cmocka_unit_test(test_b92_hint_is_the_first_moment),
        cmocka_unit_test(test_mistake_tenth_token_is_there),
        cmocka_unit_test(test_mistake_time_moves_with_what_accrued),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
