/* SPDX-License-Identifier: MIT */
/* core/rule: rates become exact integers, or are refused with what would fit. */
#include "core/rule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/num.h"

#define SECOND UINT64_C(1000000)
#define MINUTE (60 * SECOND)
#define DAY (24 * 60 * MINUTE)

static void test_table(void **state)
{
    (void)state;
    static const struct {
        uint64_t tokens, period_us, capacity;
        int64_t tick_us, a, b;
    } rows[] = {
        {1, SECOND, 1, 1, 1, 1000000},
        {2000, SECOND, 1, 1, 1, 500},
        {1000000000, SECOND, 1000000000, 1, 1000, 1},
        {999999, SECOND, 1000000, 1, 999999, 1000000},
        {1, DAY, 104249, 1, 1, INT64_C(86400000000)},
        {1, DAY, 104250, 1000, 1, 86400000},
        {1, DAY, 104249991, 1000, 1, 86400000},
        {1, DAY, 104249992, 1000000, 1, 86400},
        {1000003, DAY, 1000000000, 1000000, 1000003, 86400},
        {3, 1500, 7, 1, 1, 500},
        {1, 1, UINT64_C(9007199254740990), 1, 1, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct weir__rule rule = {.version = 7, .budget = 3};
        uint64_t largest;
        assert_true(weir__rule_set_rate(&rule, rows[i].tokens, rows[i].period_us, rows[i].capacity,
                                        &largest));
        assert_int_equal(rule.tick_us, rows[i].tick_us);
        assert_int_equal(rule.units_per_tick, rows[i].a);
        assert_int_equal(rule.units_per_token, rows[i].b);
        assert_int_equal(rule.capacity, rows[i].capacity);
        assert_int_equal(rule.version, 7);
        assert_int_equal(rule.budget, 3);
    }
}

static void test_refusal_says_what_fits(void **state)
{
    (void)state;
    struct weir__rule rule = {.version = 7};
    uint64_t largest;
    assert_false(weir__rule_set_rate(&rule, 1, 1, UINT64_C(9007199254740991), &largest));
    assert_int_equal(largest, UINT64_C(9007199254740990));
    assert_int_equal(rule.units_per_token, 0);
    assert_true(weir__rule_set_rate(&rule, 1, 1, largest, &largest));

    /* a prime period is reduced by no tick */
    uint64_t prime = UINT64_C(1000000007);
    assert_false(weir__rule_set_rate(&rule, 1, prime, UINT64_C(1000000000), &largest));
    assert_int_equal(largest, UINT64_C(9007199));
    assert_true(weir__rule_set_rate(&rule, 1, prime, largest, &largest));
    assert_int_equal(rule.tick_us, 1);

    assert_false(weir__rule_set_rate(&rule, UINT64_MAX, 1, 1, &largest));
    assert_int_equal(largest, 0);
    assert_false(weir__rule_set_rate(&rule, 1, UINT64_MAX, 1, &largest));
    assert_int_equal(largest, 0);
}

static void test_b75_zero_is_refused(void **state)
{
    (void)state;
    struct weir__rule rule = {0};
    uint64_t largest;
    assert_true(weir__rule_set_rate(&rule, 5, SECOND, 5, &largest));
    struct weir__rule before = rule;
    assert_false(weir__rule_set_rate(&rule, 0, SECOND, 5, &largest));
    assert_int_equal(largest, 0);
    assert_false(weir__rule_set_rate(&rule, 5, 0, 5, &largest));
    assert_int_equal(largest, 0);
    assert_false(weir__rule_set_rate(&rule, 5, SECOND, 0, &largest));
    assert_true(largest > 0);
    assert_memory_equal(&rule, &before, sizeof rule);
}

static void test_b79_one_rate_in_other_words(void **state)
{
    (void)state;
    static const uint64_t words[][2] = {{1, 10 * SECOND}, {6, MINUTE}, {360, 60 * MINUTE}};
    for (size_t i = 0; i < 3; i++) {
        struct weir__rule rule;
        uint64_t largest;
        assert_true(weir__rule_set_rate(&rule, words[i][0], words[i][1], 1, &largest));
        assert_int_equal(rule.tick_us, 1);
        assert_int_equal(rule.units_per_tick, 1);
        assert_int_equal(rule.units_per_token, 10000000);
    }
}

static void test_time_and_tokens(void **state)
{
    (void)state;
    struct weir__rule rule;
    uint64_t largest;
    assert_true(weir__rule_set_rate(&rule, 3, SECOND, 10, &largest));
    assert_int_equal(weir__rule_time_us(&rule, 0), 0);
    assert_int_equal(weir__rule_time_us(&rule, -1), 0);
    assert_int_equal(weir__rule_time_us(&rule, 1), 333334);
    assert_int_equal(weir__rule_time_us(&rule, 3), 1000000);
    assert_int_equal(weir__rule_tokens(&rule, 333333), 0);
    assert_int_equal(weir__rule_tokens(&rule, 333334), 1);
    assert_int_equal(weir__rule_tokens(&rule, -5), 0);

    assert_true(weir__rule_set_rate(&rule, 1000003, DAY, 1000000000, &largest));
    assert_int_equal(rule.tick_us, 1000000);
    assert_int_equal(weir__rule_time_us(&rule, 1), 1000000);
    assert_int_equal(weir__rule_tokens(&rule, 999999), 0);
    assert_int_equal(weir__rule_tokens(&rule, (int64_t)DAY), 1000003);

    /* both ends saturate */
    assert_true(weir__rule_set_rate(&rule, 1, DAY, 1000, &largest));
    assert_true(weir__rule_time_us(&rule, INT64_MAX) == INT64_MAX);
    assert_true(weir__rule_set_rate(&rule, 1000000000, SECOND, 1000, &largest));
    assert_true(weir__rule_tokens(&rule, INT64_MAX) == INT64_MAX);
}

static void test_time_is_the_first_moment(void **state)
{
    (void)state;
    uint64_t seed = 11;
    for (int i = 0; i < 20000; i++) {
        struct weir__rule rule;
        uint64_t largest;
        uint64_t tokens = 1 + weir__random(&seed) % 1000000;
        uint64_t period = 1 + weir__random(&seed) % DAY;
        if (!weir__rule_set_rate(&rule, tokens, period, 1000, &largest)) {
            continue;
        }
        int64_t n = 1 + (int64_t)(weir__random(&seed) % 1000);
        int64_t us = weir__rule_time_us(&rule, n);
        assert_true(weir__rule_tokens(&rule, us) >= n);
        assert_true(weir__rule_tokens(&rule, us - 1) < n);
        /* and the fraction is the one that was asked for */
        assert_true((weir__u128)rule.units_per_tick * period ==
                    (weir__u128)rule.units_per_token * tokens * (uint64_t)rule.tick_us);
    }
}

static void test_periods_need_no_fit(void **state)
{
    (void)state;
    /* the extremes, and what could not be counted in ticks with such a capacity */
    static const uint64_t rows[][2] = {{1, 1},
                                       {1000000000, 1},
                                       {1, UINT64_C(1000000000000)},
                                       {1000000000, UINT64_C(1000000000000)},
                                       {999999937, UINT64_C(999999999989)},
                                       {UINT64_C(1000000000000), UINT64_C(999999999989)}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct weir__rule rule = {.version = 7};
        weir__rule_set_periods(&rule, rows[i][0], rows[i][1]);
        assert_int_equal(rule.capacity, rows[i][0]);
        assert_int_equal(rule.period_us, rows[i][1]);
        assert_int_equal(rule.tick_us, 1);
        assert_true((weir__u128)rule.units_per_tick * rows[i][1] ==
                    (weir__u128)rule.units_per_token * rows[i][0]);
        assert_true(rule.units_per_token + rule.units_per_tick <= WEIR__INT53_MAX);
        assert_int_equal(weir__rule_tokens(&rule, (int64_t)rows[i][1]), rows[i][0]);
        assert_int_equal(rule.version, 7);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_refusal_says_what_fits),
        cmocka_unit_test(test_b75_zero_is_refused),
        cmocka_unit_test(test_b79_one_rate_in_other_words),
        cmocka_unit_test(test_time_and_tokens),
        cmocka_unit_test(test_time_is_the_first_moment),
        cmocka_unit_test(test_periods_need_no_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
