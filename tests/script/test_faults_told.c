/* SPDX-License-Identifier: MIT */
/*
 * Faults that other rate limiters had, as inputs to every algorithm that could have them: of limits
 * that change, of who gets what, and of what callers are told.  test_faults has the others.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/num.h"

#include "trial.h"

/* ---- Changed limits -------------------------------------------------------------------------- */

static void test_b81_a_lowered_limit_leaves_no_debt(void **state)
{
    (void)state;
    /* when the first is there again */
    static const int64_t waits[KINDS] = {
        [TOKEN] = 100 * MS, [LEAKY] = 100 * MS, [QUEUE] = 100 * MS,
        [FIXED] = SECOND,   [LOG] = SECOND,     [COUNTER] = 1991 * MS,
    };
    for (enum trial_kind kind = TOKEN; kind < KINDS; kind++) {
        trial_begin(kind, 1000, SECOND, 1000);
        assert_true(trial_take(0, 1000));
        trial_update(kind, 10, SECOND, 10);
        assert_false(trial_take(0, 1));
        assert_int_equal(trial.grant.retry_after_us, waits[kind]);
        assert_false(trial_take(waits[kind] - 1, 1));
        assert_true(trial_take(waits[kind], 1));
    }
}

static void test_b81_a_raised_limit_counts_at_once(void **state)
{
    (void)state;
    for (enum trial_kind kind = TOKEN; kind < KINDS; kind++) {
        int64_t full = kind == COUNTER ? 2 * MINUTE : MINUTE;
        trial_begin(kind, 5, MINUTE, 5);
        assert_true(trial_take(0, 5));
        trial_update(kind, 10, MINUTE, 10);
        /* a window has room for five more; a bucket has to fill */
        assert_int_equal(trial_look(0), kind < FIXED ? 0 : 5);
        assert_int_equal(trial_take(0, 5), kind >= FIXED);
        assert_true(trial_take(full, 10));
        assert_false(trial_take(full, 1));
    }
}

static void test_b81_what_is_above_a_lowered_limit_is_lost(void **state)
{
    (void)state;
    for (enum trial_kind kind = TOKEN; kind < KINDS; kind++) {
        trial_begin(kind, 100, DAY, 100);
        assert_true(trial_take(0, 20));
        trial_update(kind, 10, DAY, 10);
        /* of a bucket ten of eighty are left; who is in a queue leaves when told, in a fifth of its
         * new length; a window has admitted more than it now may */
        int64_t left = kind == QUEUE ? 8 : kind < FIXED ? 10 : 0;
        assert_int_equal(trial_look(0), left);
        assert_int_equal(trial_take(0, left + 1), false);
        assert_int_equal(trial_take(0, 8), left == 10); /* for the queue: too long a wait */
    }
}

/* A change of the algorithm grants nothing: what was there is there. */
static void test_b81_another_algorithm_grants_nothing(void **state)
{
    (void)state;
    for (enum trial_kind from = TOKEN; from < KINDS; from++) {
        for (enum trial_kind to = TOKEN; to < KINDS; to++) {
            if (from == to) {
                continue;
            }
            trial_begin(from, 10, MINUTE, 10);
            assert_true(trial_take(0, 6));
            trial_update(to, 10, MINUTE, 10);
            assert_int_equal(trial_look(0), 4);
            assert_true(trial_take(0, 4));
            assert_false(trial_take(0, 1));
            trial_update(from, 10, MINUTE, 10);
            assert_false(trial_take(0, 1));
            assert_int_equal(trial_look(2 * MINUTE), 10);

            trial_begin(from, 10, MINUTE, 10);
            assert_true(trial_take(0, 6));
            trial_update(to, 2, MINUTE, 2);
            assert_int_equal(trial_look(0), 2);
        }
    }
}

/* ---- Fairness -------------------------------------------------------------------------------- */

/* Two in four seconds, one call a second. */
static void test_b83_refusals_are_not_recorded(void **state)
{
    (void)state;
    static const char *const verdicts[KINDS] = {
        [TOKEN] = "AAADADADADAD", [LEAKY] = "AAADADADADAD", [QUEUE] = "AAADADADADAD",
        [FIXED] = "AADDAADDAADD", [LOG] = "AADDAADDAADD",   [COUNTER] = "AADDDDADADDD",
    };
    int64_t at[12];
    for (int64_t i = 0; i < 12; i++) {
        at[i] = i * SECOND;
    }
    for (enum trial_kind kind = TOKEN; kind < KINDS; kind++) {
        trial_begin(kind, 2, 4 * SECOND, 2);
        trial_verdicts(at, verdicts[kind]);
    }
}

static void test_b85_no_algorithm_hands_all_to_one(void **state)
{
    (void)state;
    for (enum trial_kind kind = TOKEN; kind < KINDS; kind++) {
        trial_begin(kind, 100, kind == QUEUE ? MS : DAY, 100);
        trial.rule.budget = 100;
        int64_t total = 0;
        for (int instance = 0; instance < 10; instance++) {
            int64_t got = trial_lease(0, 20);
            assert_in_range(got, 1, 20);
            total += got;
        }
        assert_true(total <= 100);
        for (int again = 0; again < 20; again++) {
            total += trial_lease(0, 20);
        }
        assert_int_equal(total, 100);
        assert_int_equal(trial.grant.outstanding, 100);
        assert_int_equal(trial_lease(0, 20), 0);

        /* who wants all has half of what is free, and then of what the others left */
        trial_begin(kind, 100, kind == QUEUE ? MS : DAY, 100);
        trial.rule.budget = 100;
        for (int64_t left = 100; left > 1;) {
            int64_t got = trial_lease(0, 100);
            assert_int_equal(got, left / 2);
            left -= got;
        }
    }
}

/* ---- What is told ---------------------------------------------------------------------------- */

static void test_b90_remaining_follows_every_clock(void **state)
{
    (void)state;
    for (enum trial_kind kind = TOKEN; kind < KINDS; kind++) {
        int64_t full = kind == COUNTER ? 2 * MINUTE : MINUTE;
        trial_begin(kind, 5, MINUTE, 5);
        assert_true(trial_take(0, 5));
        assert_int_equal(trial_look(0), 0);
        assert_int_equal(trial_look(full), 5);
        assert_true(trial_take(full, 1));
        assert_int_equal(trial_look(full), 4);

        trial_begin(kind, 5, kind == QUEUE ? 500 : MINUTE, 5);
        trial.rule.budget = 5;
        while (trial_lease(0, 5) > 0) {
        }
        assert_int_equal(trial_look(0), 0);
        assert_int_equal(trial_look(full), 5);

        trial_begin(kind, 2, SECOND, 2);
        assert_true(trial_take(0, 1));
        assert_int_equal(trial.grant.remaining, 1);
    }
}

static void test_b92_hints_in_round_numbers(void **state)
{
    (void)state;
    static const int64_t waits[KINDS] = {
        [TOKEN] = 200 * MS, [LEAKY] = 200 * MS, [QUEUE] = 200 * MS,
        [FIXED] = SECOND,   [LOG] = SECOND,     [COUNTER] = 1200 * MS,
    };
    for (enum trial_kind kind = TOKEN; kind < KINDS; kind++) {
        trial_begin(kind, 5, SECOND, 5);
        assert_true(trial_take(0, 5));
        assert_false(trial_take(0, 1));
        assert_int_equal(trial.grant.retry_after_us, waits[kind]);
        trial_begin(kind, 6, MINUTE, 6);
        assert_true(trial_take(0, 6));
        assert_false(trial_take(0, 1));
        assert_int_equal(trial.grant.retry_after_us, kind <= QUEUE     ? 10 * SECOND
                                                     : kind == COUNTER ? 70 * SECOND
                                                                       : MINUTE);
    }
}

static void test_b95_remaining_counts_down_and_stops(void **state)
{
    (void)state;
    static const int64_t told[] = {4, 3, 2, 1, 0, 0, 0, 0};
    for (enum trial_kind kind = TOKEN; kind < KINDS; kind++) {
        trial_begin(kind, 5, MINUTE, 5);
        for (size_t i = 0; i < 8; i++) {
            assert_int_equal(trial_take(0, 1), i < 5);
            assert_int_equal(trial.grant.remaining, told[i]);
        }
        assert_int_equal(trial_look(HOUR), 5); /* the key may be gone by then, or be there */
    }
}

/* Ten in thirty seconds, one call a second: what flows back meanwhile is told, and the reset is a
 * time to wait, always. */
static void test_b95_remaining_grows_between_calls(void **state)
{
    (void)state;
    static const int64_t flowing[] = {9, 8, 7, 7, 6, 5, 5, 4, 3, 3, 2};
    for (enum trial_kind kind = TOKEN; kind < KINDS; kind++) {
        trial_begin(kind, 10, 30 * SECOND, 10);
        for (int64_t i = 0; i < 11; i++) {
            bool allowed = trial_take(i * SECOND, 1);
            if (kind < FIXED) {
                assert_true(allowed);
                assert_int_equal(trial.grant.remaining, flowing[i]);
                assert_int_equal(trial.grant.reset_after_us, (3 * (i + 1) - i) * SECOND);
            } else {
                assert_int_equal(allowed, i < 10);
                assert_int_equal(trial.grant.remaining, weir__max(0, 9 - i));
                assert_in_range(trial.grant.reset_after_us, 1, 60 * SECOND);
            }
        }
        assert_int_equal(trial_look(HOUR), 10);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_b81_a_lowered_limit_leaves_no_debt),
        cmocka_unit_test(test_b81_a_raised_limit_counts_at_once),
        cmocka_unit_test(test_b81_what_is_above_a_lowered_limit_is_lost),
        cmocka_unit_test(test_b81_another_algorithm_grants_nothing),
        cmocka_unit_test(test_b83_refusals_are_not_recorded),
        cmocka_unit_test(test_b85_no_algorithm_hands_all_to_one),
        cmocka_unit_test(test_b90_remaining_follows_every_clock),
        cmocka_unit_test(test_b92_hints_in_round_numbers),
        cmocka_unit_test(test_b95_remaining_counts_down_and_stops),
        cmocka_unit_test(test_b95_remaining_grows_between_calls),
    };
    return cmocka_run_group_tests(tests, trial_set_up, trial_tear_down);
}
