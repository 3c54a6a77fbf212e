/* SPDX-License-Identifier: MIT */
/* core/policy: the formulas L1-L8, as tables; each number can be worked out by hand from its
 * line. */
#include "core/policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/num.h"
#include "core/rule.h"

#define MS INT64_C(1000)

static struct weir__rule rule_of(uint64_t per_s, int64_t capacity, int64_t budget)
{
    struct weir__rule rule = {.budget = budget, .window_us = 400 * MS};
    uint64_t largest;
    assert_true(weir__rule_set_rate(&rule, per_s, 1000000, (uint64_t)capacity, &largest));
    return rule;
}

/* Every sample the same: no deviation is left. */
static struct weir__rtt rtt_of(int64_t us)
{
    struct weir__rtt rtt = {.known = false};
    for (int i = 0; i < 200; i++) {
        weir__rtt_sample(&rtt, us);
    }
    return rtt;
}

static struct weir__sizes sizes_of(const struct weir__rule *rule, const struct weir__rtt *rtt,
                                   double demand, int64_t processes, int64_t credit)
{
    struct weir__sizes sizes;
    weir__policy_sizes(&sizes, &(struct weir__situation){.rule = rule,
                                                         .rtt = rtt,
                                                         .demand_per_s = demand,
                                                         .processes = processes,
                                                         .credit = credit});
    return sizes;
}

static void test_round_trips(void **state)
{
    (void)state;
    struct weir__rtt rtt = {.known = false};
    assert_true(weir__rtt_p50_us(&rtt) > 0 && weir__rtt_p99_us(&rtt) > weir__rtt_p50_us(&rtt));
    weir__rtt_sample(&rtt, 500);
    assert_int_equal(weir__rtt_p50_us(&rtt), 501);
    assert_int_equal(weir__rtt_p99_us(&rtt), 500 + 4 * 250 + 1);
    rtt = rtt_of(500);
    assert_in_range(weir__rtt_p99_us(&rtt), 500, 502);
    for (int i = 0; i < 50; i++) { /* jitter shows in p99, not in p50 */
        weir__rtt_sample(&rtt, i % 2 == 0 ? 300 : 700);
    }
    assert_in_range(weir__rtt_p50_us(&rtt), 400, 600);
    assert_in_range(weir__rtt_p99_us(&rtt), 1000, 1600);
}

/* L1: clamp(E / 2r, 2 rtt, 50 ms). */
static void test_horizon(void **state)
{
    (void)state;
    static const struct {
        int64_t budget, rtt_us, horizon_us;
    } rows[] = {
        {200, 500, 5000},    /* 200 / 40,000 */
        {20000, 500, 50000}, /* a budget of a second, and no more than 50 ms */
        {200, 10000, 20002}, /* no shorter than two round trips */
        {0, 500, 1002},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct weir__rule rule = rule_of(20000, 20000, rows[i].budget);
        struct weir__rtt rtt = rtt_of(rows[i].rtt_us);
        assert_int_equal(sizes_of(&rule, &rtt, 1000, 1, 0).horizon_us, rows[i].horizon_us);
    }
}

/* L2: clamp(8 h, 4 deadlines, 400 ms), and the deadlines win. */
static void test_window(void **state)
{
    (void)state;
    struct weir__rule small = rule_of(20000, 2000, 200), large = rule_of(20000, 20000, 20000);
    assert_int_equal(weir__policy_window_us(&small, 5 * MS), 40 * MS);
    assert_int_equal(weir__policy_window_us(&small, 25 * MS), 100 * MS);
    assert_int_equal(weir__policy_window_us(&large, 5 * MS), 400 * MS);
    assert_int_equal(weir__policy_window_us(&large, 1000 * MS), 4000 * MS);
}

/* L3, L5: with 2,000 a second wanted, h = 50 ms, rtt 0.5 ms, a look each 6.25 ms: d = 13.5, low =
 * 24.5, want = 100 + 24.5 - credit. */
static void test_low_and_want(void **state)
{
    (void)state;
    struct weir__rule rule = rule_of(20000, 20000, 2000);
    struct weir__rtt rtt = rtt_of(500);
    struct weir__sizes sizes = sizes_of(&rule, &rtt, 2000, 10, 0);
    assert_int_equal(sizes.look_us, 6250);
    assert_int_equal(sizes.low, 24);
    assert_int_equal(sizes.want, 125);
    assert_int_equal(sizes.least, 15); /* an eighth of it */
    assert_int_equal(sizes_of(&rule, &rtt, 2000, 10, 100).want, 25);
    assert_int_equal(sizes_of(&rule, &rtt, 2000, 10, 200).want, 0);
    assert_int_equal(sizes_of(&rule, &rtt, 1e9, 10, 0).want, 2000); /* never above the budget */
    assert_int_equal(sizes_of(&rule, &rtt, 1e9, 10, 0).least, 125); /* a sixteenth of the budget */
    assert_int_equal(sizes_of(&rule, &rtt, 1e9, 10, 0).low, 2000);
}

/* L4: min(E / 4N, demand * W / 2). */
static void test_keep(void **state)
{
    (void)state;
    struct weir__rule rule = rule_of(20000, 20000, 2000);
    struct weir__rtt rtt = rtt_of(500);
    assert_int_equal(sizes_of(&rule, &rtt, 2000, 10, 0).keep, 50);
    assert_int_equal(sizes_of(&rule, &rtt, 2000, 100, 0).keep, 5);
    assert_int_equal(sizes_of(&rule, &rtt, 20, 10, 0).keep, 4);
    assert_int_equal(sizes_of(&rule, &rtt, 20, 10, 0).idle_us, 200 * MS);
}

/* L8: who cannot be carried by leases. */
static void test_exact(void **state)
{
    (void)state;
    struct weir__rtt rtt = rtt_of(500), far = rtt_of(5000);
    struct weir__rule none = rule_of(20000, 2000, 0), some = rule_of(20000, 2000, 200);
    assert_true(sizes_of(&none, &rtt, 2000, 1, 0).exact);
    assert_false(sizes_of(&some, &rtt, 2000, 1, 0).exact);
    assert_true(sizes_of(&some, &rtt, 1, 1, 0).exact);     /* a token in a horizon is too little */
    assert_true(sizes_of(&some, &far, 20000, 1, 0).exact); /* E < 3 r rtt */
    assert_true(weir__policy_feasible(&some, 3333));
    assert_false(weir__policy_feasible(&some, 3334));
    assert_false(weir__policy_feasible(&none, 1));
}

/* L6: never before the tokens are there in the mean, spread over half to one and a half. */
static void test_pace(void **state)
{
    (void)state;
    struct weir__rule rule = rule_of(20000, 20000, 2000);
    struct weir__rtt rtt = rtt_of(500);
    struct weir__situation situation = {.rule = &rule, .rtt = &rtt, .processes = 10};
    uint64_t seed = 1;
    double sum = 0, sum_crowd = 0;
    for (int i = 0; i < 1000; i++) {
        int64_t us = weir__policy_pace_scarce_us(&situation, 50 * MS, 200 * MS, &seed);
        assert_in_range(us, 100 * MS, 300 * MS);
        sum += (double)us;
        /* N m / r = 10 * 50 / 20,000 = 25 ms, whatever the rest */
        us = weir__policy_pace_scarce_us(&situation, 1, 0, &seed);
        assert_in_range(us, 12500, 37500);
        sum_crowd += (double)us;
        us = weir__policy_pace_budget_us(50 * MS, &seed);
        assert_in_range(us, 12500, 37500);
    }
    assert_in_range((int64_t)(sum / 1000), 195 * MS, 205 * MS);
    assert_in_range((int64_t)(sum_crowd / 1000), 24000, 26000);
    assert_true(weir__policy_pace_budget_us(0, &seed) >= 1); /* never again at once */
    assert_true(weir__policy_pace_scarce_us(&situation, 1, WEIR__INT53_MAX, &seed) <=
                INT64_C(5400) * 1000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trips), cmocka_unit_test(test_horizon),
        cmocka_unit_test(test_window),      cmocka_unit_test(test_low_and_want),
        cmocka_unit_test(test_keep),        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_pace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
