/* SPDX-License-Identifier: MIT */
/*
 * core/cap: what is taken back, at once or behind others' takes, and limits that change.  Each is
 * compared with a cap to which it never happened.
 */
#include "core/cap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "unit/caps.h"

/* ---- Taking back ----------------------------------------------------------------------------- */

/* Some takes, so that the state is one among many. */
static int64_t wander(struct weir__cap *cap, const struct weir__cap_config *config)
{
    int64_t now_ns = START;
    weir__cap_init(cap);
    for (int64_t n = cap_draw(10); n >= 0; n--) {
        (void)cap_take(cap, config, 1 + cap_draw(20), now_ns);
        now_ns += cap_random_step(cap, config, now_ns);
    }
    return now_ns + weir__cap_wait_ns(cap, config, now_ns);
}

/* The same answers from here on. */
static void assert_alike(struct weir__cap a, struct weir__cap b,
                         const struct weir__cap_config *config, int64_t now_ns)
{
    for (int n = 0; n < 20; n++) {
        int64_t cost = cap_draw(20);
        assert_int_equal(cap_take(&a, config, cost, now_ns), cap_take(&b, config, cost, now_ns));
        now_ns += cap_random_step(&a, config, now_ns);
    }
}

static void test_undone_at_once_is_as_never(void **state)
{
    (void)state;
    for (int i = 0; i < 5000; i++) {
        const struct weir__cap_config config = cap_random_config();
        struct weir__cap cap, never;
        int64_t now_ns = wander(&cap, &config);
        never = cap;
        struct weir__cap_taken taken;
        assert_int_equal(weir__cap_take(&cap, &config, 1 + cap_draw(1000), &taken, now_ns), 0);
        int64_t later_ns = now_ns + cap_draw(1) * cap_draw(10 * SECOND);
        (void)cap_take(&cap, &config, cap_draw(3) * (cap.at_ns > later_ns),
                       later_ns); /* a refusal */
        weir__cap_undo(&cap, &config, &taken, later_ns);
        assert_alike(cap, never, &config, later_ns);
    }
}

/* Burst: others have taken in between.  What comes back is what there would be; never more, and
 * less only by what could not have been kept. */
static void test_burst_undone_behind_others(void **state)
{
    (void)state;
    unsigned same = 0, less = 0;
    for (int i = 0; i < 5000; i++) {
        const struct weir__cap_config config = cap_random_burst();
        struct weir__cap cap, never;
        int64_t now_ns = wander(&cap, &config);
        never = cap;
        struct weir__cap_taken taken;
        assert_int_equal(weir__cap_take(&cap, &config, 1 + cap_draw(20), &taken, now_ns), 0);
        for (int n = 0; n < 3; n++) {
            now_ns += cap_random_step(&cap, &config, now_ns);
            int64_t cost = 1 + cap_draw(20);
            if (cap_take(&cap, &config, cost, now_ns) == 0) {
                assert_int_equal(cap_take(&never, &config, cost, now_ns), 0);
            }
        }
        weir__cap_undo(&cap, &config, &taken, now_ns);
        assert_true(cap.at_ns > never.at_ns ||
                    (cap.at_ns == never.at_ns && cap.part >= never.part));
        bool equal = cap.at_ns == never.at_ns && cap.part == never.part;
        same += equal;
        less += !equal;
    }
    assert_true(same > 1000 && less > 100);
}

/* Warmup: what was stored is so again, and the time that was made unused has cooled, as it would
 * have: at 2 a second, one more is taken when the first take is over, and then that is undone. */
static void test_warmup_undone_behind_others(void **state)
{
    (void)state;
    const struct weir__cap_config config = {.tokens = 2, .period_us = S_US, .warmup_us = 4 * S_US};
    static const struct {
        int64_t stored_ms, cost, then_ms, left_ms, never_waits_ms;
    } rows[] = {{0, 4, 3000, 2500, 875}, {1000, 2, 1500, 2000, 625}};
    for (size_t i = 0; i < 2; i++) {
        struct weir__cap cap = {.at_ns = START, .part = rows[i].stored_ms * MS * FINE};
        struct weir__cap never = cap;
        struct weir__cap_taken taken;
        assert_int_equal(weir__cap_take(&cap, &config, rows[i].cost, &taken, START), 0);
        int64_t now_ns = START + rows[i].then_ms * MS;
        assert_int_equal(cap_take(&cap, &config, 1, now_ns), 0);
        assert_int_equal(cap_take(&never, &config, 1, now_ns), 0);
        assert_int_equal(never.part, rows[i].left_ms * MS * FINE);
        assert_true(cap.part < never.part);
        weir__cap_undo(&cap, &config, &taken, now_ns);
        assert_int_equal(cap.part, never.part);
        assert_int_equal(cap.at_ns, now_ns + 500 * MS);
        assert_int_equal(never.at_ns, now_ns + rows[i].never_waits_ms * MS);
    }
}

/* A refund of the last take is its undoing: exactly, or to the rounding of one take. */
static void test_refund(void **state)
{
    (void)state;
    for (int i = 0; i < 5000; i++) {
        const struct weir__cap_config config = cap_random_config();
        struct weir__cap cap;
        int64_t now_ns = wander(&cap, &config);
        int64_t cost = 1 + cap_draw(20);
        struct weir__cap_taken taken;
        assert_int_equal(weir__cap_take(&cap, &config, cost, &taken, now_ns), 0);
        weir__cap_refund(&cap, &config, cost, now_ns);
        if (config.warmup_us == 0) {
            assert_memory_equal(&cap, &taken.before, sizeof cap);
        } else if (taken.after.part > 0) {
            assert_in_range(cap.at_ns - taken.before.at_ns, 0, 2);
            assert_in_range(FINE + cap.part - taken.before.part, FINE - 1, FINE + 1);
        } else {
            assert_true(cap.at_ns >= now_ns && cap.part >= taken.before.part - 1);
        }
        /* again and again it does not become more than a cap can hold */
        for (int n = 0; n < 3; n++) {
            weir__cap_refund(&cap, &config, 1000000000, now_ns);
        }
        struct weir__cap most = {.at_ns = -START * 1000, .part = config.warmup_us * US * FINE};
        if (config.warmup_us == 0) {
            assert_alike(cap, most, &config, now_ns);
        } else {
            assert_true(cap.at_ns >= now_ns && cap.part <= most.part);
        }
    }
}

/* What is still to be waited for becomes less, rounded against the caller. */
static void test_warmup_refund_of_a_part(void **state)
{
    (void)state;
    const struct weir__cap_config config = {.tokens = 3, .period_us = S_US, .warmup_us = 4 * S_US};
    struct weir__cap cap = {.at_ns = START};
    assert_int_equal(cap_take(&cap, &config, 10, START), 0);
    assert_int_equal(cap.at_ns - START, 3333333334);
    weir__cap_refund(&cap, &config, 1, START);
    assert_int_equal(cap.at_ns - START, 3000000001);
    weir__cap_refund(&cap, &config, 10, START);
    assert_int_equal(cap.at_ns, START);
}

/* ---- A changed limit ------------------------------------------------------------------------- */

static void test_change_keeps_time(void **state)
{
    (void)state;
    const struct weir__cap_config slow = {.tokens = 1, .period_us = S_US, .burst_us = 8 * S_US};
    const struct weir__cap_config fast = {.tokens = 4, .period_us = S_US, .burst_us = 2 * S_US};
    struct weir__cap cap;
    weir__cap_init(&cap);
    assert_int_equal(cap_take(&cap, &slow, 1, START), 0);
    /* five seconds are stored: with the new limit two, and so eight tokens and the one ahead */
    int64_t now_ns = START + 6 * SECOND;
    for (int i = 0; i < 9; i++) {
        assert_int_equal(cap_take(&cap, &fast, 1, now_ns), 0);
    }
    assert_int_equal(cap_take(&cap, &fast, 1, now_ns), 250 * MS);
    /* what is owed stays owed, as a time */
    assert_int_equal(cap_take(&cap, &slow, 1, now_ns), 250 * MS);
}

/* A colder cap than the new limit knows is as cold as it can be. */
static void test_change_cuts_what_is_stored(void **state)
{
    (void)state;
    const struct weir__cap_config longer = {.tokens = 1, .period_us = S_US, .warmup_us = 60 * S_US};
    const struct weir__cap_config shorter = {.tokens = 2, .period_us = S_US, .warmup_us = 4 * S_US};
    struct weir__cap cap;
    weir__cap_init(&cap);
    assert_int_equal(cap_take(&cap, &longer, 1, START), 0);
    int64_t now_ns = START + weir__cap_wait_ns(&cap, &longer, START);
    assert_int_equal(cap_take(&cap, &shorter, 1, now_ns), 0);
    assert_int_equal(cap_take(&cap, &shorter, 1, now_ns), 1375 * MS);
}

/* Takes one after the other, each as early as it may be, come at the rate, to the nanosecond. */
static void assert_paced(struct weir__cap cap, const struct weir__cap_config *config,
                         int64_t now_ns)
{
    int64_t begin_ns = 0;
    for (int64_t n = 0; n <= 2000; n++) {
        int64_t cost = n == 0 ? 3600 * config->tokens : 1; /* at first all that may be stored */
        assert_int_equal(cap_take(&cap, config, cost, now_ns), 0);
        now_ns += weir__cap_wait_ns(&cap, config, now_ns);
        begin_ns = n == 0 ? now_ns : begin_ns;
        wide due = n * config->period_us * US;
        assert_true((wide)(now_ns - begin_ns + 1) * config->tokens > due);
        assert_true((wide)(now_ns - begin_ns - 1) * config->tokens < due);
    }
}

/* Nothing is left of the other shape's numbers. */
static void test_change_of_shape_is_exact(void **state)
{
    (void)state;
    const struct weir__cap_config warmup = {.tokens = 7, .period_us = 3, .warmup_us = 60 * S_US};
    const struct weir__cap_config burst = {.tokens = 13, .period_us = S_US, .burst_us = S_US};
    struct weir__cap cap;
    weir__cap_init(&cap);
    struct weir__cap_taken taken;
    assert_int_equal(weir__cap_take(&cap, &warmup, 1, &taken, START), 0);
    int64_t now_ns = START + weir__cap_wait_ns(&cap, &burst, START);
    assert_paced(cap, &burst, now_ns);
    now_ns = START + SECOND + MS; /* part of what is undone could not have been kept */
    assert_int_equal(cap_take(&cap, &burst, 1, now_ns), 0);
    weir__cap_undo(&cap, &burst, &taken, now_ns);
    assert_paced(cap, &burst, now_ns);
}

/* From any limit to any other nobody gets through earlier than before, and what is stored is no
 * more than the new limit allows. */
static void test_change_gives_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < 20000; i++) {
        const struct weir__cap_config from = cap_random_config();
        const struct weir__cap_config to = cap_random_config();
        struct weir__cap cap;
        int64_t now_ns = wander(&cap, &from);
        struct weir__cap_taken taken;
        assert_int_equal(weir__cap_take(&cap, &from, 1 + cap_draw(1000), &taken, now_ns), 0);
        int64_t old_ns = weir__cap_wait_ns(&cap, &from, now_ns);
        int64_t new_ns = weir__cap_wait_ns(&cap, &to, now_ns);
        assert_in_range(new_ns + 1 - old_ns, 0, 2);

        weir__cap_undo(&cap, &to, &taken, now_ns);
        now_ns += weir__cap_wait_ns(&cap, &to, now_ns);
        assert_int_equal(cap_take(&cap, &to, 1, now_ns), 0);
        weir__cap_undo(&cap, &to, &taken, now_ns); /* behind another's take */
        int64_t kept_us = to.warmup_us == 0 ? to.burst_us : 0;
        wide sum = 0;
        while (sum < 100 && cap_take(&cap, &to, 1, now_ns) == 0) {
            assert_true(sum++ * to.period_us <= (wide)kept_us * to.tokens);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_undone_at_once_is_as_never),
        cmocka_unit_test(test_burst_undone_behind_others),
        cmocka_unit_test(test_warmup_undone_behind_others),
        cmocka_unit_test(test_refund),
        cmocka_unit_test(test_warmup_refund_of_a_part),
        cmocka_unit_test(test_change_keeps_time),
        cmocka_unit_test(test_change_cuts_what_is_stored),
        cmocka_unit_test(test_change_of_shape_is_exact),
        cmocka_unit_test(test_change_gives_nothing),
    };
    return cmocka_run_group_tests_name("cap_back", tests, cap_seed, NULL);
}
