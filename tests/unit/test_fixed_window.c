/* SPDX-License-Identifier: MIT */
/*
 * The fixed window by hand.  That the script counts alike is shown by the tests in tests/script.
 */
#include "core/global.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "bed.h"

/* So many in each period of ten seconds. */
static struct bed window_of(int64_t capacity, int64_t budget)
{
    struct bed bed = bed_of((uint64_t)capacity, 10 * SECOND, capacity, budget);
    bed.rule.algorithm = WEIR__FIXED_WINDOW;
    bed.rule.period_us = 10 * SECOND;
    return bed;
}

static void test_each_period_counts_from_nothing(void **state)
{
    (void)state;
    struct bed bed = window_of(5, 0);
    assert_true(bed_take(&bed, 4 * SECOND, 5));
    assert_int_equal(bed.grant.start_us, START);
    assert_int_equal(bed.grant.reset_after_us, 6 * SECOND);
    assert_false(bed_take(&bed, 10 * SECOND - 1, 1));
    assert_int_equal(bed.grant.retry_after_us, 1);
    assert_true(bed_take(&bed, 10 * SECOND, 5));
    assert_int_equal(bed.grant.start_us, START + 10 * SECOND);
}

/* Days of the month, and what month they are in, by a calendar. */
static void test_months_are_those_of_the_calendar(void **state)
{
    (void)state;
    static const struct {
        int64_t day, from, to; /* from the epoch */
    } months[] = {
        {0, 0, 31},            /* 1970-01-01 */
        {58, 31, 59},          /* 1970-02-28 */
        {59, 59, 90},          /* 1970-03-01 */
        {11016, 10988, 11017}, /* 2000-02-29, a leap year */
        {11017, 11017, 11048}, /* 2000-03-01 */
        {19675, 19662, 19692}, /* 2023-11-14 */
        {19722, 19692, 19723}, /* 2023-12-31 */
        {19782, 19754, 19783}, /* 2024-02-29 */
        {47540, 47513, 47541}, /* 2100-02-28, none */
        {47541, 47541, 47572}, /* 2100-03-01 */
    };
    for (size_t i = 0; i < sizeof months / sizeof months[0]; i++) {
        for (int last = 0; last < 2; last++) {
            struct bed bed = window_of(5, 0);
            bed.rule.variant = WEIR__VARIANT_MONTH;
            int64_t at = months[i].day * DAY + (last ? DAY - 1 : 0);
            assert_true(bed_take(&bed, at - START, 1));
            assert_int_equal(bed.grant.start_us, months[i].from * DAY);
            assert_int_equal(bed.grant.reset_after_us, months[i].to * DAY - at);
        }
    }
}

static void test_a_changed_limit_keeps_what_was_used(void **state)
{
    (void)state;
    struct bed bed = window_of(10, 0);
    assert_true(bed_take(&bed, 0, 8));
    bed_update(&bed, window_of(5, 0));
    assert_int_equal(bed_look(&bed, 0), 0);
    assert_false(bed_take(&bed, 0, 1));
    bed_update(&bed, window_of(20, 0));
    assert_int_equal(bed_look(&bed, 0), 12);
    assert_int_equal(bed_look(&bed, 10 * SECOND), 20);
}

static void test_learning_is_to_have_used_the_rate(void **state)
{
    (void)state;
    struct bed bed = window_of(100, 0);
    bed.rule.learn = true;
    assert_int_equal(bed_look(&bed, 0), 100);
    assert_int_equal(bed_look(&bed, 2500 * MS), 75);
    assert_int_equal(bed_look(&bed, 10 * SECOND - 1), 0);
}

/* A token of one period must not be spent in the next. */
static void test_leases_end_before_the_period(void **state)
{
    (void)state;
    struct bed bed = window_of(100, 50);
    assert_int_equal(bed_lease(&bed, 10 * SECOND - 32 * MS, 10), 10);
    assert_int_equal(bed.grant.life_us, 30 * MS);
    struct bed late = window_of(100, 50);
    assert_int_equal(bed_lease(&late, 10 * SECOND - 2999, 10), 0);
}

static void test_what_comes_back_is_of_this_period_or_lost(void **state)
{
    (void)state;
    struct bed bed = window_of(100, 50);
    assert_int_equal(bed_lease(&bed, 10 * SECOND - 50 * MS, 20), 20);
    int64_t window = bed.grant.window;
    int64_t start = bed.grant.start_us;
    bed_settle(&bed, 10 * SECOND - 1, window, 0, 5);
    assert_int_equal(bed.grant.remaining, 85);
    assert_true(bed_take(&bed, 10 * SECOND, 30));
    bed_settle(&bed, 10 * SECOND, window, 0, 15);
    assert_int_equal(bed.grant.remaining, 70);
    assert_int_equal(bed.grant.outstanding, 0);

    struct weir__ask refund = bed_nothing;
    refund.refund = 10;
    refund.since = start;
    bed_ask(&bed, 10 * SECOND, &refund);
    assert_int_equal(bed.grant.refunded, 0);
    refund.since = start + 10 * SECOND;
    bed_ask(&bed, 10 * SECOND, &refund);
    assert_int_equal(bed.grant.refunded, 10);
    assert_int_equal(bed.grant.remaining, 80);
}

static void test_a_reset_forgets_and_keeps_leases(void **state)
{
    (void)state;
    struct bed bed = window_of(100, 50);
    struct weir__ask reset = bed_nothing;
    reset.reset = true;
    assert_int_equal(bed_lease(&bed, 0, 20), 20);
    assert_true(bed_take(&bed, 0, 80));
    bed_ask(&bed, 0, &reset);
    assert_int_equal(bed.grant.remaining, 100);
    assert_int_equal(bed.grant.outstanding, 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_period_counts_from_nothing),
        cmocka_unit_test(test_months_are_those_of_the_calendar),
        cmocka_unit_test(test_a_changed_limit_keeps_what_was_used),
        cmocka_unit_test(test_learning_is_to_have_used_the_rate),
        cmocka_unit_test(test_leases_end_before_the_period),
        cmocka_unit_test(test_what_comes_back_is_of_this_period_or_lost),
        cmocka_unit_test(test_a_reset_forgets_and_keeps_leases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
