/* SPDX-License-Identifier: MIT */
/*
 * The sliding counter by hand.  That the script counts alike is shown by the tests in tests/script.
 */
#include "core/global.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/num.h"

#include "bed.h"

/* So many in each second. */
static struct bed counter_of(int64_t capacity, int64_t budget)
{
    struct bed bed = bed_of((uint64_t)capacity, SECOND, capacity, budget);
    bed.rule.algorithm = WEIR__SLIDING_COUNTER;
    bed.rule.period_us = SECOND;
    return bed;
}

static void test_the_period_before_ebbs_away(void **state)
{
    (void)state;
    struct bed bed = counter_of(100, 0);
    assert_true(bed_take(&bed, 500 * MS, 100));
    assert_int_equal(bed.grant.reset_after_us, 1500 * MS);
    assert_int_equal(bed_look(&bed, SECOND), 0);
    assert_int_equal(bed_look(&bed, SECOND + 10 * MS - 1), 0); /* what still counts is rounded up */
    assert_int_equal(bed_look(&bed, SECOND + 10 * MS), 1);
    assert_int_equal(bed_look(&bed, SECOND + 750 * MS), 75);
    assert_true(bed_take(&bed, SECOND + 750 * MS, 75));
    assert_int_equal(bed_look(&bed, 2 * SECOND), 25);
    assert_int_equal(bed_look(&bed, 3 * SECOND), 100);
}

static void test_two_quiet_periods_forget_all(void **state)
{
    (void)state;
    struct bed bed = counter_of(100, 0);
    assert_true(bed_take(&bed, SECOND - 1, 100));
    bed.key.expires_us = INT64_MAX;
    assert_true(bed_take(&bed, 2 * SECOND, 100));
}

/* Refused before the moment that was told, admitted at it. */
static void test_the_moment_that_is_told_is_the_first(void **state)
{
    (void)state;
    uint64_t seed = 1;
    unsigned refused = 0;
    for (int round = 0; round < 300; round++) {
        struct bed bed = counter_of(1 + (int64_t)(weir__random(&seed) % 30), 0);
        bed.rule.period_us = 1 + (int64_t)(weir__random(&seed) % 100);
        int64_t at = 0;
        for (int i = 0; i < 30; i++) {
            int64_t cost = 1 + (int64_t)(weir__random(&seed) % (uint64_t)bed.rule.capacity);
            at += (int64_t)(weir__random(&seed) % (uint64_t)bed.rule.period_us);
            if (!bed_take(&bed, at, cost)) {
                at += bed.grant.retry_after_us;
                refused++;
                assert_false(bed_take(&bed, at - 1, cost));
                assert_int_equal(bed.grant.retry_after_us, 1);
                assert_true(bed_take(&bed, at, cost));
            }
        }
    }
    assert_true(refused > 1000);
}

static void test_a_changed_limit_keeps_what_was_used(void **state)
{
    (void)state;
    struct bed bed = counter_of(100, 0);
    assert_true(bed_take(&bed, 0, 80));
    struct bed longer = counter_of(100, 0);
    longer.rule.period_us = 10 * SECOND;
    bed_update(&bed, longer);
    assert_int_equal(bed_look(&bed, SECOND + 500 * MS), 60); /* half of it, as of now */
    bed_ask(&bed, SECOND + 500 * MS, &bed_nothing);
    assert_int_equal(bed.key.level, 40);
    assert_int_equal(bed.key.extra, 0);
    assert_int_equal(bed_look(&bed, 9 * SECOND), 60);
}

static void test_learning_is_to_have_used_the_rate(void **state)
{
    (void)state;
    struct bed bed = counter_of(100, 0);
    bed.rule.learn = true;
    for (int64_t at = 0; at < SECOND; at += 90 * MS) {
        assert_int_equal(bed_look(&bed, at), 0);
    }
    bed_ask(&bed, 300 * MS, &bed_nothing);
    assert_int_equal(bed_look(&bed, 400 * MS), 10);
}

static void test_what_comes_back_goes_where_it_came_from(void **state)
{
    (void)state;
    struct bed bed = counter_of(1000, 500);
    assert_int_equal(bed_lease(&bed, 950 * MS, 200), 200);
    int64_t window = bed.grant.window;
    assert_true(bed_take(&bed, SECOND, 300));
    bed_settle(&bed, SECOND + 10 * MS, window, 100, 100);
    assert_int_equal(bed.key.level, 300);
    assert_int_equal(bed.key.extra, 100);
    assert_int_equal(bed.grant.outstanding, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_period_before_ebbs_away),
        cmocka_unit_test(test_two_quiet_periods_forget_all),
        cmocka_unit_test(test_the_moment_that_is_told_is_the_first),
        cmocka_unit_test(test_a_changed_limit_keeps_what_was_used),
        cmocka_unit_test(test_learning_is_to_have_used_the_rate),
        cmocka_unit_test(test_what_comes_back_goes_where_it_came_from),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
