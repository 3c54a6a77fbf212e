/* SPDX-License-Identifier: MIT */
/*
 * The yardstick must be right as well: what a perfect limiter of each kind admits, in cases that
 * can be worked out by hand.
 */
#include "perfect.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "clock.h"

#define RATE 1000.0

static struct promise limit_of(enum bound bound, double phase)
{
    return (struct promise){
        .rate_per_s = 1000,
        .capacity = 1000,
        .bound = bound,
        .period_ns = NS_PER_S,
        .epoch_ns = 5 * NS_PER_S + (int64_t)(phase * (double)NS_PER_S),
    };
}

/* `phase` and `seconds` in periods, of a load of `offered` times the rate. */
static void check(enum bound bound, double phase, double seconds, double offered, double expected)
{
    const struct promise promise = limit_of(bound, phase);
    double admitted = perfect_admits(&promise, offered * RATE,
                                     (int64_t)(seconds * (double)NS_PER_S));
    if (fabs(admitted - expected) > 5) {
        fail_msg("bound %d, phase %g, %g s of %g: %g, not %g", (int)bound, phase, seconds, offered,
                 admitted, expected);
    }
}

static void test_an_interval_has_its_formula(void **state)
{
    (void)state;
    check(BOUND_INTERVAL, 0, 3, 2, 1000 + 3000);
    check(BOUND_INTERVAL, 0.5, 3, 0.5, 1000 + 3000); /* whatever the load */
}

static void test_a_load_below_the_limit_passes(void **state)
{
    (void)state;
    for (int bound = BOUND_ALIGNED; bound <= BOUND_WEIGHTED; bound++) {
        check((enum bound)bound, 0.3, 4, 0.5, 2000);
    }
}

static void test_whole_periods_are_full(void **state)
{
    (void)state;
    for (int bound = BOUND_ALIGNED; bound <= BOUND_WEIGHTED; bound++) {
        check((enum bound)bound, 0, 1, 3, 1000);
        check((enum bound)bound, 0, 5, 3, 5000);
        check((enum bound)bound, 0, 5, 20, 5000);
    }
}

/* A tenth of a period is left for 300, and the last one is full after a third. */
static void test_an_aligned_run_begins_anywhere(void **state)
{
    (void)state;
    check(BOUND_ALIGNED, 0.9, 1.1, 3, 300 + 1000);
    check(BOUND_ALIGNED, 0.9, 2.4, 3, 300 + 1000 + 1000 + 900);
}

/* Where its periods begin is all the same to a log: full in half a period, then a pause. */
static void test_a_log_has_no_edges(void **state)
{
    (void)state;
    for (double phase = 0; phase < 1; phase += 0.25) {
        check(BOUND_SLIDING, phase, 0.5, 2, 1000);
        check(BOUND_SLIDING, phase, 1, 2, 1000);
        check(BOUND_SLIDING, phase, 1.25, 2, 1500);
        check(BOUND_SLIDING, phase, 7.5, 2, 8000);
    }
}

/* 600 in the period before: at the edge 400 are there, and 600 more come evenly as those cease to
 * count. */
static void test_weights_let_in_what_has_ceased_to_count(void **state)
{
    (void)state;
    check(BOUND_WEIGHTED, 0.4, 0.6, 1, 600);
    check(BOUND_WEIGHTED, 0.8, 0.2 + 0.5, 3, 600 + 400 + 300);
    check(BOUND_WEIGHTED, 0.8, 0.2 + 1, 3, 600 + 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_interval_has_its_formula),
        cmocka_unit_test(test_a_load_below_the_limit_passes),
        cmocka_unit_test(test_whole_periods_are_full),
        cmocka_unit_test(test_an_aligned_run_begins_anywhere),
        cmocka_unit_test(test_a_log_has_no_edges),
        cmocka_unit_test(test_weights_let_in_what_has_ceased_to_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
