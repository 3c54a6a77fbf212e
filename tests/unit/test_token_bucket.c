/* SPDX-License-Identifier: MIT */
/*
 * The global token bucket by hand, rule by rule of docs/protocol.md.  The Lua script is held to
 * the same numbers by the tests in tests/script, so what passes here passes there.
 */
#include "core/global.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "bed.h"

static void test_r0_ticks_bring_nothing_early(void **state)
{
    (void)state;
    struct bed bed = bed_of(1000003, DAY, 1000000000, 0); /* ticks of a second, 11.57 tokens each */
    assert_int_equal(bed.rule.tick_us, SECOND);
    assert_true(bed_take(&bed, 0, 1000000000));
    assert_int_equal(bed_look(&bed, SECOND - 1), 0);
    assert_int_equal(bed_look(&bed, SECOND), 11);
    /* what is asked between two ticks does not move them */
    for (int64_t at = 100 * MS; at < 10 * SECOND; at += 100 * MS) {
        assert_false(bed_take(&bed, at, 1000000));
    }
    assert_int_equal(bed_look(&bed, 10 * SECOND - 1), 104);
    assert_int_equal(bed_look(&bed, 10 * SECOND), 115);
    assert_int_equal(bed_look(&bed, DAY), 1000003);
}

/* A coarse tick must not bring again what a flowing time would have spilled over the rim. */
static void test_r0_brim_within_a_tick(void **state)
{
    (void)state;
    struct bed bed = bed_of(1, 1, 5, 0);
    bed.rule.tick_us = 1000;
    bed.rule.units_per_tick = 3;
    bed.rule.units_per_token = 1; /* full after 1667 us */
    assert_true(bed_take(&bed, 0, 5));
    assert_int_equal(bed.grant.reset_after_us, 1667);
    assert_int_equal(bed_look(&bed, 1666), 3);
    assert_int_equal(bed_look(&bed, 1667), 5);
    assert_true(bed_take(&bed, 1900, 3));
    assert_false(bed_take(&bed, 2000, 3));
    assert_int_equal(bed.grant.retry_after_us, 900);
    assert_int_equal(bed_look(&bed, 2899), 2);
    assert_int_equal(bed_look(&bed, 2900), 5);
}

static void test_r1_a_look_leaves_no_trace(void **state)
{
    (void)state;
    struct bed bed = bed_of(1, SECOND, 10, 5);
    assert_int_equal(bed_look(&bed, 0), 10);
    assert_false(bed.key.exists);
    assert_int_equal(bed_lease(&bed, 0, 4), 2); /* half of the budget, rounded down */
    struct weir__global before = bed.key;
    struct weir__ask greedy = {.peek = true,
                               .want = 5,
                               .least = 1,
                               .exact = 5,
                               .refund = 3,
                               .heard = 1,
                               .settle = {{bed.key.cur, 1, 1}, {WEIR__NO_WINDOW, 0, 0}}};
    bed_update(&bed, bed_of(2, SECOND, 20, 5));
    bed_ask(&bed, 50 * MS, &greedy);
    assert_int_equal(bed.grant.lease, 0);
    assert_int_equal(bed.grant.exact, 0);
    assert_int_equal(bed.grant.refunded, 0);
    assert_int_equal(bed.grant.version, 2);
    assert_memory_equal(&bed.key, &before, sizeof before);
}

static void test_r2_a_clock_set_far_back(void **state)
{
    (void)state;
    struct bed bed = bed_of(10, SECOND, 10, 4);
    assert_int_equal(bed_lease(&bed, 0, 4), 2);
    int64_t fill = SECOND;
    struct bed near = bed;
    assert_int_equal(bed_lease(&near, -fill, 1), 1);
    assert_int_equal(near.key.seen_us, START); /* time waits for the clock */
    assert_int_equal(near.grant.reset_after_us, 300 * MS + fill);

    assert_int_equal(bed_lease(&bed, -fill - 1, 1), 1);
    assert_int_equal(bed.key.stamp_us, START - fill - 1);
    assert_int_equal(bed.key.seen_us, START - fill - 1);
    assert_int_equal(bed.key.cur_end_us, START - fill - 1 + 100 * MS);
    assert_int_equal(bed.grant.remaining, 7);   /* no refill */
    assert_int_equal(bed.grant.outstanding, 3); /* what is out is kept */
}

static void test_r3_windows(void **state)
{
    (void)state;
    struct bed bed = bed_of(1, SECOND, 100, 40);
    assert_int_equal(bed_lease(&bed, 0, 10), 10);
    int64_t first = bed.grant.window;
    assert_int_equal(bed.grant.life_us, 75 * MS); /* R6 */
    assert_int_equal(bed_lease(&bed, 99999, 1), 1);
    assert_int_equal(bed.grant.window, first);
    assert_int_equal(bed_lease(&bed, 100 * MS, 5), 5);
    int64_t second = bed.grant.window;
    assert_true(second > first);
    assert_int_equal(bed.key.out_prev, 11);
    assert_int_equal(bed.key.out_cur, 5);
    bed_settle(&bed, 150 * MS, first, 4, 3);
    assert_int_equal(bed.key.out_prev, 4);
    assert_int_equal(bed_lease(&bed, 200 * MS, 0), 0);
    assert_int_equal(bed.key.out_prev, 5);
    assert_int_equal(bed.grant.outstanding, 5);
    assert_int_equal(bed_lease(&bed, 400 * MS, 0), 0); /* both windows are over */
    assert_int_equal(bed.grant.outstanding, 0);
}

static void test_r4_key_outlives_its_windows(void **state)
{
    (void)state;
    struct bed bed = bed_of(1000, SECOND, 10, 10); /* full in 10 ms, windows of 1 s */
    bed.rule.window_us = SECOND;
    assert_int_equal(bed_lease(&bed, 0, 4), 4);
    assert_int_equal(bed.key.expires_us, START + 2 * SECOND + MS);
    assert_int_equal(bed_lease(&bed, 2 * SECOND - 1, 0), 0);
    assert_int_equal(bed.key.out_prev, 4);

    /* and while the clock is behind, by that much longer */
    struct bed behind = bed_of(1, SECOND, 10, 0);
    assert_true(bed_take(&behind, 5 * SECOND, 10));
    assert_false(bed_take(&behind, 0, 1));
    assert_int_equal(behind.key.expires_us, START + 15 * SECOND + MS);
}

static void test_r5_forged_rows(void **state)
{
    (void)state;
    struct bed bed = bed_of(1, DAY, 100, 40);
    assert_int_equal(bed_lease(&bed, 0, 10), 10);
    int64_t window = bed.grant.window;
    bed_settle(&bed, 0, window - 1, 0, 10);
    assert_int_equal(bed.grant.remaining, 90);
    bed_settle(&bed, 0, window, 0, INT64_C(1) << 52);
    assert_int_equal(bed.grant.remaining, 100);
    assert_int_equal(bed.grant.outstanding, 0);
    assert_int_equal(bed_lease(&bed, 0, 10), 10);
    bed_settle(&bed, 0, window, INT64_C(1) << 52, 3);
    assert_int_equal(bed.grant.remaining, 93);
    assert_int_equal(bed.grant.outstanding, 0);
}

static void test_r9_exact_is_outside_the_budget(void **state)
{
    (void)state;
    struct bed bed = bed_of(1, DAY, 10, 0);
    assert_int_equal(bed_lease(&bed, 0, 5), 0);
    assert_int_equal(bed.grant.retry_after_us, 0); /* only the budget refused */
    assert_true(bed_take(&bed, 0, 7));
    assert_false(bed_take(&bed, 0, 4));
    assert_int_equal(bed.grant.remaining, 3);
    assert_int_equal(bed.grant.window, WEIR__NO_WINDOW);
    assert_false(bed.key.has_account);

    /* never is said even beside a lease */
    struct bed both = bed_of(1, DAY, 10, 10);
    struct weir__ask ask = bed_nothing;
    ask.want = 2;
    ask.exact = 11;
    bed_ask(&both, 0, &ask);
    assert_int_equal(both.grant.lease, 2);
    assert_int_equal(both.grant.retry_after_us, -1);
}

static void test_r10_refund(void **state)
{
    (void)state;
    struct bed bed = bed_of(1, DAY, 10, 0);
    assert_true(bed_take(&bed, 0, 9));
    struct weir__ask ask = bed_nothing;
    ask.refund = 4;
    bed_ask(&bed, 0, &ask);
    assert_int_equal(bed.grant.refunded, 4);
    assert_int_equal(bed.grant.remaining, 5);
    ask.refund = INT64_C(1) << 52;
    bed_ask(&bed, 0, &ask);
    assert_int_equal(bed.grant.remaining, 10);
}

static void test_r11_versions(void **state)
{
    (void)state;
    struct bed bed = bed_of(10, SECOND, 10, 0);
    struct bed other = bed_of(1000, SECOND, 1000, 0); /* the same version, and a higher rate */
    assert_true(bed_take(&bed, 0, 10));
    bed.rule = other.rule;
    assert_int_equal(bed_look(&bed, 100 * MS), 1);
    bed.rule.version = 9;
    assert_false(bed_take(&bed, 100 * MS, 2)); /* that tenth of a second is at the old rate */
    assert_int_equal(bed.grant.remaining, 1);
    assert_int_equal(bed.grant.version, 9);
    assert_int_equal(bed_look(&bed, 200 * MS), 101);

    /* parts of a token are kept exactly, rounded down */
    struct bed thirds = bed_of(3, SECOND, 9, 0);
    assert_true(bed_take(&thirds, 0, 9));
    thirds.rule = bed_of(7, SECOND, 9, 0).rule;
    thirds.rule.version = 2;
    assert_false(bed_take(&thirds, 500 * MS, 9)); /* 1.5 tokens */
    assert_int_equal(thirds.key.level, 3 * thirds.rule.units_per_token / 2);
}

static void test_r11_window_changes_with_the_next(void **state)
{
    (void)state;
    struct bed bed = bed_of(1, DAY, 100, 40);
    assert_int_equal(bed_lease(&bed, 0, 5), 5);
    bed.rule.version = 2;
    bed.rule.window_us = 20 * MS;
    assert_int_equal(bed_lease(&bed, 99999, 1), 1);
    assert_int_equal(bed.grant.life_us, 75 * MS);
    assert_int_equal(bed_lease(&bed, 100 * MS, 1), 1);
    assert_int_equal(bed.grant.life_us, 15 * MS);
    assert_int_equal(bed.key.cur_end_us, START + 200 * MS); /* the longer of both */
    assert_int_equal(bed_lease(&bed, 200 * MS, 1), 1);
    assert_int_equal(bed.key.cur_end_us, START + 220 * MS);
}

static void test_r11_budget_comes_and_goes(void **state)
{
    (void)state;
    struct bed bed = bed_of(1, DAY, 100, 0);
    assert_true(bed_take(&bed, 0, 1));
    assert_false(bed.key.has_account);
    bed.rule.version = 2;
    bed.rule.budget = 40;
    assert_int_equal(bed_lease(&bed, 10 * MS, 5), 5);
    int64_t window = bed.grant.window;
    bed.rule.version = 3;
    bed.rule.budget = 0;
    assert_int_equal(bed_lease(&bed, 20 * MS, 5), 0);
    assert_int_equal(bed.grant.outstanding, 5); /* out is kept */
    bed_settle(&bed, 30 * MS, window, 3, 2);
    assert_false(bed.key.has_account);
    assert_int_equal(bed.grant.window, WEIR__NO_WINDOW);
    assert_int_equal(bed.grant.remaining, 96);
}

static void test_r12_reserve(void **state)
{
    (void)state;
    struct bed bed = bed_of(10, SECOND, 10, 5);
    bed.rule.max_wait_us = SECOND;
    assert_true(bed_take(&bed, 0, 10));
    struct weir__ask ask = bed_nothing;
    ask.exact = 6;
    ask.wait_us = 599 * MS;
    bed_ask(&bed, 0, &ask);
    assert_int_equal(bed.grant.exact, 0);
    ask.wait_us = 600 * MS;
    bed_ask(&bed, 0, &ask);
    assert_int_equal(bed.grant.exact, 6);
    assert_int_equal(bed.grant.wait_us, 600 * MS);
    assert_int_equal(bed.grant.remaining, 0);
    ask.refund = 6; /* while the level is below zero only time lifts it */
    ask.wait_us = 5 * SECOND;
    bed_ask(&bed, 0, &ask);
    assert_int_equal(bed.grant.exact, 0); /* 1.2 s is past the longest wait of the rule */
    assert_int_equal(bed.grant.refunded, 0);
    assert_int_equal(bed.grant.retry_after_us, 1200 * MS);
    assert_false(bed_take(&bed, 1199999, 6));
    assert_true(bed_take(&bed, 1200 * MS, 6));
}

/* Reservations that the new units cannot express keep the old rule, until time has
 * lifted the level. */
static void test_r12_deep_reservations_delay_a_rule(void **state)
{
    (void)state;
    struct bed bed = bed_of(1000000000, SECOND, 1000000000, 0);
    bed.rule.max_wait_us = 60 * SECOND;
    struct weir__ask ask = bed_nothing;
    ask.exact = 1000000000;
    ask.wait_us = 60 * SECOND;
    for (int i = 0; i <= 60; i++) {
        bed_ask(&bed, 0, &ask);
        assert_int_equal(bed.grant.exact, 1000000000);
    }
    struct bed fine = bed_of(999999999, SECOND, 1000000000, 0);
    assert_int_equal(fine.rule.units_per_token, 1000000);
    bed_update(&bed, fine);
    ask.exact = 0;
    bed_ask(&bed, 0, &ask);
    assert_int_equal(bed.grant.version, 1);
    assert_int_equal(bed.grant.remaining, 0);
    bed_ask(&bed, 51 * SECOND, &ask);
    assert_int_equal(bed.grant.version, 1);
    bed_ask(&bed, 52 * SECOND, &ask);
    assert_int_equal(bed.grant.version, 2);
    assert_int_equal(bed.key.level, INT64_C(-8000000000) * 1000000);
}

static void test_r13_who_is_here(void **state)
{
    (void)state;
    struct bed bed = bed_of(1, SECOND, 100, 40);
    struct weir__ask ask = bed_nothing;
    for (int i = 1; i <= 3; i++) {
        bed_ask(&bed, 0, &ask);
        assert_int_equal(bed.grant.processes, i);
    }
    ask.heard = bed.grant.window;
    bed_ask(&bed, 50 * MS, &ask);
    assert_int_equal(bed.grant.processes, 3);
    bed_ask(&bed, 100 * MS, &ask); /* in the next window the last one still counts */
    assert_int_equal(bed.grant.processes, 3);
    assert_int_equal(bed.key.n_cur, 1);
}

static void test_r14_share(void **state)
{
    (void)state;
    struct bed bed = bed_of(1, DAY, 1000, 100);
    static const int64_t expected[] = {50, 25, 12, 6, 3, 2, 1, 1, 0};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        assert_int_equal(bed_lease(&bed, 0, 1000), expected[i]);
    }

    struct bed held = bed_of(1, DAY, 1000, 100);
    struct weir__ask ask = bed_nothing;
    ask.want = 1000;
    ask.held = 61;
    bed_ask(&held, 0, &ask);
    assert_int_equal(held.grant.lease, 19);
    ask.held = 1000;
    ask.least = 7;
    bed_ask(&held, 0, &ask);
    assert_int_equal(held.grant.lease,
                     7); /* always the least that is useful, while there is room */
    ask.least = 75;
    bed_ask(&held, 0, &ask);
    assert_int_equal(held.grant.lease, 0);
}

static void test_new_keys_start_as_told(void **state)
{
    (void)state;
    struct bed bed = bed_of(1, SECOND, 10, 0);
    bed.rule.initial = 3;
    assert_false(bed_take(&bed, 0, 4));
    assert_int_equal(bed.grant.remaining, 3);
    assert_int_equal(bed.grant.retry_after_us, SECOND);
    bed.rule.initial = 0;
    assert_int_equal(bed_look(&bed, 0), 3); /* not new any more */
}

/* R4: were the key forgotten as soon as it is full, who asks a moment later would find it empty,
 * and so for ever. */
static void test_r4_a_rare_caller_is_served_by_a_key_that_starts_empty(void **state)
{
    (void)state;
    struct bed bed = bed_of(10, SECOND, 1, 0);
    bed.rule.initial = 0;
    assert_false(bed_take(&bed, 0, 1));
    int64_t retry_us = bed.grant.retry_after_us;
    assert_int_equal(retry_us, 100 * MS);
    assert_true(bed_take(&bed, retry_us + 50 * MS, 1));
    assert_false(bed_take(&bed, 200 * MS, 1));
    assert_true(bed_take(&bed, 10 * SECOND, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_r0_ticks_bring_nothing_early),
        cmocka_unit_test(test_r0_brim_within_a_tick),
        cmocka_unit_test(test_r1_a_look_leaves_no_trace),
        cmocka_unit_test(test_r2_a_clock_set_far_back),
        cmocka_unit_test(test_r3_windows),
        cmocka_unit_test(test_r4_key_outlives_its_windows),
        cmocka_unit_test(test_r4_a_rare_caller_is_served_by_a_key_that_starts_empty),
        cmocka_unit_test(test_r5_forged_rows),
        cmocka_unit_test(test_r9_exact_is_outside_the_budget),
        cmocka_unit_test(test_r10_refund),
        cmocka_unit_test(test_r11_versions),
        cmocka_unit_test(test_r11_window_changes_with_the_next),
        cmocka_unit_test(test_r11_budget_comes_and_goes),
        cmocka_unit_test(test_r12_reserve),
        cmocka_unit_test(test_r12_deep_reservations_delay_a_rule),
        cmocka_unit_test(test_r13_who_is_here),
        cmocka_unit_test(test_r14_share),
        cmocka_unit_test(test_new_keys_start_as_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
