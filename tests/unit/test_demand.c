/* SPDX-License-Identifier: MIT */
/* core/demand: an estimate that follows what callers take, and what they miss. */
#include "core/demand.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const struct weir__demand_bounds bounds = {
    .first_per_s = 100, .most_per_s = 20000, .horizon_us = 50000};

/* `per_s` tokens a second, looked at each `every_us`, for `us`. */
static int64_t take(struct weir__demand *demand, int64_t now_us, int64_t per_s, int64_t every_us,
                    int64_t us)
{
    for (int64_t end_us = now_us + us; now_us < end_us;) {
        now_us += every_us;
        weir__demand_update(demand, per_s * every_us / 1000000, false, &bounds, now_us);
    }
    return now_us;
}

static bool near(double value, double wanted, double part)
{
    return value >= wanted * (1 - part) && value <= wanted * (1 + part);
}

static void test_follows_a_steady_taker(void **state)
{
    (void)state;
    struct weir__demand demand = {.started = false};
    int64_t now_us = 1000;
    weir__demand_update(&demand, 0, false, &bounds, now_us);
    now_us = take(&demand, now_us, 5000, 5000, 2000000);
    assert_true(near(demand.per_s, 5000, 0.02));
    now_us = take(&demand, now_us, 1000, 5000, 2000000);
    assert_true(near(demand.per_s, 1000, 0.02));
    (void)take(&demand, now_us, 0, 5000, 4000000);
    assert_true(demand.per_s < 1);
}

static void test_does_not_depend_on_how_often_it_looks(void **state)
{
    (void)state;
    static const int64_t every_us[] = {1000, 5000, 20000};
    for (size_t i = 0; i < 3; i++) {
        struct weir__demand demand = {.started = false};
        weir__demand_update(&demand, 0, false, &bounds, 0);
        (void)take(&demand, 0, 4000, every_us[i], 3000000);
        assert_true(near(demand.per_s, 4000, 0.02));
    }
}

static void test_a_first_miss_counts(void **state)
{
    (void)state;
    struct weir__demand demand = {.started = false};
    weir__demand_update(&demand, 0, true, &bounds, 0);
    assert_true(near(demand.per_s, 100, 0));
}

/* A lease of 50 that lasted 5 ms: at least twice the 10,000 a second at which it went. */
static void test_a_lease_that_did_not_last(void **state)
{
    (void)state;
    struct weir__demand demand = {.started = false};
    weir__demand_update(&demand, 0, false, &bounds, 0);
    weir__demand_granted(&demand, 0);
    weir__demand_update(&demand, 50, true, &bounds, 5000);
    assert_true(near(demand.per_s, 20000, 0));

    /* but one that lasted a horizon was large enough */
    struct weir__demand slow = {.started = false};
    weir__demand_update(&slow, 0, false, &bounds, 0);
    weir__demand_granted(&slow, 0);
    weir__demand_update(&slow, 50, true, &bounds, 60000);
    assert_true(slow.per_s < 1000);
}

/* Refused callers with nothing to take: no news, so the estimate stays. */
static void test_a_refused_crowd_changes_nothing(void **state)
{
    (void)state;
    struct weir__demand demand = {.started = false};
    weir__demand_update(&demand, 0, false, &bounds, 0);
    int64_t now_us = take(&demand, 0, 3000, 5000, 2000000);
    double before = demand.per_s;
    for (int i = 0; i < 100; i++) {
        now_us += 10000;
        weir__demand_update(&demand, 0, true, &bounds, now_us);
    }
    assert_true(near(demand.per_s, before, 0));
}

static void test_never_above_the_most(void **state)
{
    (void)state;
    struct weir__demand demand = {.started = false};
    weir__demand_update(&demand, 0, false, &bounds, 0);
    weir__demand_granted(&demand, 0);
    weir__demand_update(&demand, 1000000, true, &bounds, 0); /* all in no time */
    assert_true(near(demand.per_s, 20000, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_follows_a_steady_taker),
        cmocka_unit_test(test_does_not_depend_on_how_often_it_looks),
        cmocka_unit_test(test_a_first_miss_counts),
        cmocka_unit_test(test_a_lease_that_did_not_last),
        cmocka_unit_test(test_a_refused_crowd_changes_nothing),
        cmocka_unit_test(test_never_above_the_most),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
