/* SPDX-License-Identifier: MIT */
/*
 * Faults that other rate limiters had, as inputs to every algorithm that could have them: of
 * arithmetic, of time, of keys, and of rates; the point of each is in its title.  test_faults_told
 * has those of changed limits and of what is told.  tests/unit/test_token_bucket_faults.c has more
 * of the token bucket.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/num.h"
#include "core/wire.h"

#include "trial.h"

/* ---- Arithmetic ------------------------------------------------------------------------------ */

/* Ten a second, all used, and asked for every 50 ms: every other poll finds a whole one.  A window
 * is asked once the next has begun: a fixed one is all there at once, of the sliding ones comes
 * back what ceases to count, a tenth of a second's at a time. */
static void test_b03_a_polled_limit_keeps_its_rate(void **state)
{
    (void)state;
    static const char *const verdicts[KINDS] = {
        [TOKEN] = "DADADADADADADADADADA", [LEAKY] = "DADADADADADADADADADA",
        [QUEUE] = "DADADADADADADADADADA", [FIXED] = "AAAAAAAAAADDDDDDDDDD",
        [LOG] = "ADADADADADADADADADAD",   [COUNTER] = "DDADADADADADADADADAD",
    };
    for (enum trial_kind kind = TOKEN; kind < KINDS; kind++) {
        int64_t polls[20];
        trial_begin(kind, 10, SECOND, 10);
        for (int64_t i = 0; i < 10; i++) {
            assert_true(trial_take(kind == LOG ? i * 100 * MS : 0, 1));
        }
        for (int64_t i = 0; i < 20; i++) {
            polls[i] = (kind < FIXED ? 50 * MS : SECOND) + i * 50 * MS;
        }
        trial_verdicts(polls, verdicts[kind]);
    }
}

static void test_b05_the_wait_counts_what_has_passed(void **state)
{
    (void)state;
    static const int64_t waits[KINDS] = {
        [LEAKY] = 800 * MS, [QUEUE] = 800 * MS,    [FIXED] = 800 * MS,
        [LOG] = 800 * MS,   [COUNTER] = 1800 * MS, [TOKEN] = 800 * MS,
    };
    for (enum trial_kind kind = TOKEN; kind < KINDS; kind++) {
        trial_begin(kind, 1, SECOND, 1);
        assert_true(trial_take(0, 1));
        assert_false(trial_take(200 * MS, 1));
        assert_int_equal(trial.grant.retry_after_us, waits[kind]);
        assert_false(trial_take(200 * MS + waits[kind] - 1, 1));
        assert_true(trial_take(200 * MS + waits[kind], 1));
    }
}

static void test_b07_a_limit_of_one_admits_one(void **state)
{
    (void)state;
    static const char *const verdicts[KINDS] = {"ADAD", "ADAD", "ADAD", "ADAA", "ADAD", "ADDA"};
    for (enum trial_kind kind = TOKEN; kind < KINDS; kind++) {
        trial_begin(kind, 1, 10 * SECOND, 1);
        trial_verdicts(TIMES(0, 3 * SECOND, 12 * SECOND, 20 * SECOND), verdicts[kind]);
    }
}

/* Numbers that leave the script are whole, rounded so that they are true. */
static void test_b20_no_fraction_leaves_any_algorithm(void **state)
{
    (void)state;
    for (enum trial_kind kind = TOKEN; kind < KINDS; kind++) {
        trial_begin(kind, 3, SECOND, 3);
        assert_true(trial_take(0, 3));
        int64_t at = kind == COUNTER ? SECOND : 0;
        assert_false(trial_take(at, 1));
        bool third = kind <= QUEUE || kind == COUNTER; /* 333333.3 rounded up */
        assert_int_equal(trial.grant.retry_after_us, third ? 333334 : SECOND);
        bool nearly = kind <= QUEUE || kind == COUNTER; /* 2.999997 rounded down */
        assert_int_equal(trial_look(at + SECOND - 1), nearly ? 2 : 0);
        assert_false(trial_take(at, 4));
        assert_int_equal(trial.grant.retry_after_us, -1);
        assert_int_equal(trial.grant.exact, 0);
    }
}

/* ---- Time ------------------------------------------------------------------------------------ */

/* Five a second: 5, then 4 and 1 from an older clock, then none. */
static void test_b09_an_older_clock_gives_nothing_twice(void **state)
{
    (void)state;
    for (enum trial_kind kind = TOKEN; kind < KINDS; kind++) {
        int64_t full = kind == COUNTER ? 2 * SECOND : SECOND; /* as long as it takes to fill */
        const struct {
            int64_t at;
            int tries, granted;
        } rows[] = {{0, 5, 5}, {full, 4, 4}, {0, 1, 1}, {full, 5, 0}};
        trial_begin(kind, 5, SECOND, 5);
        for (size_t i = 0; i < 4; i++) {
            int granted = 0;
            for (int k = 0; k < rows[i].tries; k++) {
                granted += trial_take(rows[i].at, 1);
            }
            assert_int_equal(granted, rows[i].granted);
        }
    }
}

/* What is stored is a second ahead, and used up. */
static void test_b09_a_stored_time_ahead_is_waited_for(void **state)
{
    (void)state;
    static const int64_t waits[KINDS] = {
        [TOKEN] = 200 * MS, [LEAKY] = 200 * MS, [QUEUE] = 200 * MS,
        [FIXED] = SECOND,   [LOG] = SECOND,     [COUNTER] = 1200 * MS,
    };
    for (enum trial_kind kind = TOKEN; kind < KINDS; kind++) {
        trial_begin(kind, 5, SECOND, 5);
        assert_true(trial_take(SECOND, 5));
        assert_false(trial_take(0, 1));
        assert_int_equal(trial.twins.bucket.stamp_us, START + SECOND);
        assert_int_equal(trial.grant.retry_after_us, SECOND + waits[kind]);
        assert_false(trial_take(SECOND + waits[kind] - 1, 1));
        assert_true(trial_take(SECOND + waits[kind], 1));
    }
}

/* One a second, asked for every 600 ms: nobody starves, whatever a refusal does to the time. */
static void test_b11_no_whole_seconds_anywhere(void **state)
{
    (void)state;
    static const char *const verdicts[KINDS] = {"ADADAD", "ADADAD", "ADADAD",
                                                "ADADAA", "ADADAD", "ADDDAD"};
    for (enum trial_kind kind = TOKEN; kind < KINDS; kind++) {
        trial_begin(kind, 1, SECOND, 1);
        trial_verdicts(TIMES(0, 600 * MS, 1200 * MS, 1800 * MS, 2400 * MS, 3000 * MS),
                       verdicts[kind]);
    }
}

/* Used up a millisecond before the second is over: what is there when it is. */
static void test_b11_no_second_comes_in_a_lump(void **state)
{
    (void)state;
    static const int64_t there[KINDS] = {
        [TOKEN] = 10, [LEAKY] = 10, [QUEUE] = 10, [FIXED] = 10000, [LOG] = 0, [COUNTER] = 0,
    };
    for (enum trial_kind kind = TOKEN; kind < KINDS; kind++) {
        trial_begin(kind, 10000, SECOND, 10000);
        assert_true(trial_take(1999 * MS, 10000));
        int64_t allowed = 0;
        for (int i = 0; i < 20; i++) {
            allowed += trial_take(2 * SECOND, 1);
        }
        assert_int_equal(allowed, weir__min(20, there[kind]));
    }
}

/* 3000 calls, one a third of a millisecond apart or a little less. */
static int64_t spaced(enum trial_kind kind, int64_t period_us, int64_t apart_us)
{
    int64_t allowed = 0;
    if (kind == LOG) {
        trial_begin(kind, 1, period_us, 1);
    } else {
        trial_begin(kind, 3000, SECOND, 1);
    }
    for (int64_t i = 0; i < 3000; i++) {
        allowed += trial_take(i * apart_us, 1);
    }
    return allowed;
}

static void test_b15_calls_a_third_of_a_millisecond_apart(void **state)
{
    (void)state;
    static const enum trial_kind with_spacing[] = {TOKEN, LEAKY, QUEUE, LOG};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(spaced(with_spacing[i], 334, 334), 3000);
        assert_int_equal(spaced(with_spacing[i], 334, 333), 1500);
    }
}

/* ---- The key --------------------------------------------------------------------------------- */

static void test_b16_a_short_period_is_still_stored(void **state)
{
    (void)state;
    static const int64_t rates[][2] = {{3, SECOND}, {1000, SECOND}, {1000000000, SECOND}};
    static const int64_t periods[] = {333333, 1000, 1};
    for (enum trial_kind kind = TOKEN; kind < KINDS; kind++) {
        for (size_t i = 0; i < 3; i++) {
            if (kind < FIXED) {
                trial_begin(kind, rates[i][0], rates[i][1], 1);
            } else {
                trial_begin(kind, 1, periods[i], 1);
            }
            trial_verdicts(TIMES(0, 0), "AD");
            assert_true(trial.twins.bucket.expires_us >= START + MS);
        }
    }
}

static void test_b18_the_key_outlives_what_it_counts(void **state)
{
    (void)state;
    for (enum trial_kind kind = TOKEN; kind < KINDS; kind++) {
        int64_t full = kind == COUNTER ? 20 * SECOND : 10 * SECOND;
        trial_begin(kind, 1, 10 * SECOND, 1);
        assert_true(trial_take(0, 1));
        assert_true(trial.twins.bucket.expires_us >= START + full);
        trial_verdicts(TIMES(2 * SECOND, full - 100 * MS, full), "DDA");
    }
}

/* Ten calls in one microsecond are ten. */
static void test_b22_calls_at_one_moment_all_count(void **state)
{
    (void)state;
    static const int64_t same[10] = {0};
    for (enum trial_kind kind = TOKEN; kind < KINDS; kind++) {
        trial_begin(kind, 5, 10 * SECOND, 5);
        trial_verdicts(same, "AAAAADDDDD");

        trial_begin(kind, 5, 10 * SECOND, 5);
        assert_true(trial_take(0, 3));
        assert_int_equal(trial.grant.remaining, 2);
        trial_verdicts(same, "AAD");
    }
    trial_begin(LOG, 5, 10 * SECOND, 5);
    trial_verdicts(same, "AAAAAD");
    assert_int_equal(trial.twins.bucket.level, 5);
    assert_int_equal(trial.twins.bucket.log.end - trial.twins.bucket.log.first, 1); /* one moment */
}

/* Memory is full: the error is told, and nothing of a key is written or lost. */
static void test_b26_full_memory_leaves_keys_as_they_are(void **state)
{
    (void)state;
    static const char key[] = "k";
    unsigned char rule_bytes[WEIR__RULE_BYTES];
    unsigned char ask_bytes[WEIR__ASK_BYTES];
    const void *argv[] = {rule_bytes, ask_bytes};
    const size_t argv_len[] = {sizeof rule_bytes, sizeof ask_bytes};
    struct weir__ask asked = twins_nothing;
    asked.exact = 1;
    weir__wire_pack_ask(ask_bytes, &asked);
    for (enum trial_kind kind = TOKEN; kind < KINDS; kind++) {
        struct lua_reply reply;
        trial_begin(kind, 5, SECOND, 5);
        weir__wire_pack_rule(rule_bytes, &trial.rule);
        lua_host_set_now_us(trial.twins.host, START);
        lua_host_set_full(trial.twins.host, true);
        lua_host_call(trial.twins.host, trial.twins.script, key, 1, argv, argv_len, 2, &reply);
        assert_non_null(strstr(reply.error, "OOM"));
        assert_false(lua_host_key_exists(trial.twins.host, key, 1));

        lua_host_set_full(trial.twins.host, false);
        lua_host_call(trial.twins.host, trial.twins.script, key, 1, argv, argv_len, 2, &reply);
        assert_int_equal(reply.values[1], 1);
        uint64_t writes = lua_host_writes(trial.twins.host);
        lua_host_set_now_us(trial.twins.host,
                            START + 1500 * MS); /* the log has something to drop */
        lua_host_set_full(trial.twins.host, true);
        lua_host_call(trial.twins.host, trial.twins.script, key, 1, argv, argv_len, 2, &reply);
        assert_non_null(strstr(reply.error, "OOM"));
        assert_int_equal(lua_host_writes(trial.twins.host), writes);
        lua_host_set_full(trial.twins.host, false);
    }
}

/* ---- Rates ----------------------------------------------------------------------------------- */

static void test_b77_fast_rates_of_all_algorithms(void **state)
{
    (void)state;
    static const char *const verdicts[KINDS] = {"ADDAAA", "ADDAAA", "ADDAAA",
                                                "ADDAAA", "ADDAAA", "ADDDAD"};
    for (enum trial_kind kind = TOKEN; kind < KINDS; kind++) {
        if (kind < FIXED) {
            trial_begin(kind, 2000, SECOND, 1);
        } else {
            trial_begin(kind, 1, 500, 1);
        }
        trial_verdicts(TIMES(0, 0, 499, 500, 1000, 1500), verdicts[kind]);

        trial_begin(kind, 6000, SECOND, 6000);
        for (int64_t i = 0; i < 6000; i++) {
            assert_true(trial_take(0, 1));
            assert_int_equal(trial.grant.remaining, 5999 - i);
        }
        assert_false(trial_take(0, 1));
        assert_int_equal(trial_look(HOUR), 6000);

        trial_begin(kind, 999999, SECOND, 999999);
        assert_true(trial_take(0, 999999));
        assert_false(trial_take(0, 1));
    }
}

static void test_b79_slow_rates_of_all_algorithms(void **state)
{
    (void)state;
    for (enum trial_kind kind = TOKEN; kind < KINDS; kind++) {
        static const int64_t periods[] = {10 * SECOND, 2 * SECOND, DAY};
        for (size_t i = 0; i < 3; i++) {
            int64_t free = kind == COUNTER ? 2 * periods[i] : periods[i];
            trial_begin(kind, 1, periods[i], 1);
            trial_verdicts(TIMES(0, free - 1, free), "ADA");
        }
    }
    trial_begin(FIXED, 1, DAY, 1);
    trial.rule.variant = WEIR__VARIANT_MONTH; /* START is 15 November 2023 */
    trial.rule.period_us = 0;
    trial_verdicts(TIMES(0, 15 * DAY, 16 * DAY - 1, 16 * DAY, 47 * DAY - 1, 47 * DAY), "ADDADA");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_b03_a_polled_limit_keeps_its_rate),
        cmocka_unit_test(test_b05_the_wait_counts_what_has_passed),
        cmocka_unit_test(test_b07_a_limit_of_one_admits_one),
        cmocka_unit_test(test_b20_no_fraction_leaves_any_algorithm),
        cmocka_unit_test(test_b09_an_older_clock_gives_nothing_twice),
        cmocka_unit_test(test_b09_a_stored_time_ahead_is_waited_for),
        cmocka_unit_test(test_b11_no_whole_seconds_anywhere),
        cmocka_unit_test(test_b11_no_second_comes_in_a_lump),
        cmocka_unit_test(test_b15_calls_a_third_of_a_millisecond_apart),
        cmocka_unit_test(test_b16_a_short_period_is_still_stored),
        cmocka_unit_test(test_b18_the_key_outlives_what_it_counts),
        cmocka_unit_test(test_b22_calls_at_one_moment_all_count),
        cmocka_unit_test(test_b26_full_memory_leaves_keys_as_they_are),
        cmocka_unit_test(test_b77_fast_rates_of_all_algorithms),
        cmocka_unit_test(test_b79_slow_rates_of_all_algorithms),
    };
    return cmocka_run_group_tests(tests, trial_set_up, trial_tear_down);
}
