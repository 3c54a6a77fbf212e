/* SPDX-License-Identifier: MIT */
/* api/limits: what a limit's options become in exact integers, above all those left to the
 * library. */
#include "api/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#define SECOND UINT64_C(1000000)
#define ASK_TIMEOUT_US 10000

static struct weir_limit_options options_of(uint64_t tokens, uint64_t period_us)
{
    struct weir_limit_options options;
    weir_limit_options_init(&options, sizeof(options));
    options.name = "limit";
    options.rate_tokens = tokens;
    options.rate_period_us = period_us;
    return options;
}

static struct weir__limit read_ok(const struct weir_limit_options *options)
{
    struct weir__limit limit;
    struct weir_limit_options ours;
    struct weir_error error = {0};
    if (weir__limit_read(&limit, &ours, options, ASK_TIMEOUT_US, &error) != WEIR_OK) {
        fail_msg("%s", error.text);
    }
    assert_int_equal(ours.size, sizeof(ours));
    return limit;
}

static void defaults(void **state)
{
    (void)state;
    static const struct {
        uint64_t tokens, period_us;
        int64_t capacity, budget, window_us;
    } rows[] = {
        {1000, SECOND, 1000, 50, 200000},  /* h = E / 2r = 25 ms, W = 8 h */
        {2000, SECOND, 2000, 100, 200000}, /* the same at any rate: E is a part of a second */
        {1, SECOND, 1, 1, 400000},         /* h = 500 ms, W at its most */
        {1, 60 * SECOND, 1, 1, 400000},    {100, 60 * SECOND, 1, 1, 400000},
        {19, SECOND, 19, 1, 8 * 26315},    {40, SECOND, 40, 2, 200000},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct weir_limit_options options = options_of(rows[i].tokens, rows[i].period_us);
        int64_t before = (int64_t)time(NULL);
        struct weir__limit limit = read_ok(&options);
        assert_int_equal(limit.rule.capacity, rows[i].capacity);
        assert_int_equal(limit.rule.initial, rows[i].capacity);
        assert_int_equal(limit.rule.budget, rows[i].budget);
        assert_int_equal(limit.rule.window_us, rows[i].window_us);
        assert_int_equal(limit.rule.max_wait_us, 1000000);
        assert_true(limit.rule.version >= before && limit.rule.version <= (int64_t)time(NULL));
        assert_int_equal(limit.outage, WEIR__OUTAGE_LOCAL);
        assert_int_equal(limit.outage_share_ppm, 0);
    }
}

static void budgets(void **state)
{
    (void)state;
    static const struct {
        uint64_t tokens; /* WEIR_DEFAULT: by percent */
        double percent;
        int64_t budget;
    } rows[] = {
        {WEIR_DEFAULT, 0, 0},      {WEIR_DEFAULT, 5, 50},
        {WEIR_DEFAULT, 100, 1000}, {WEIR_DEFAULT, 0.05, 0},
        {WEIR_DEFAULT, 0.1, 1},    {WEIR_DEFAULT, 99.99, 999},
        {WEIR_DEFAULT, 33.3, 333}, {0, 50, 0},
        {1000, 0, 1000},           {7, 50, 7},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct weir_limit_options options = options_of(1000, SECOND);
        options.budget_tokens = rows[i].tokens;
        options.budget_percent = rows[i].percent;
        assert_int_equal(read_ok(&options).rule.budget, rows[i].budget);
    }
}

static void what_is_said_is_taken(void **state)
{
    (void)state;
    struct weir_limit_options options = options_of(3, 7);
    options.capacity_tokens = 500;
    options.budget_tokens = 200;
    options.initial_tokens = 0;
    options.max_wait_ms = 0;
    options.window_ms = 10;
    options.version = 42;
    options.outage = WEIR_OUTAGE_OPEN;
    options.outage_share_percent = 0.0001;
    struct weir__limit limit = read_ok(&options);
    assert_int_equal(limit.rule.tick_us, 1);
    assert_int_equal(limit.rule.units_per_tick, 3);
    assert_int_equal(limit.rule.units_per_token, 7);
    assert_int_equal(limit.rule.capacity, 500);
    assert_int_equal(limit.rule.budget, 200);
    assert_int_equal(limit.rule.initial, 0);
    assert_int_equal(limit.rule.max_wait_us, 0);
    assert_int_equal(limit.rule.window_us, 10000);
    assert_int_equal(limit.rule.version, 42);
    assert_int_equal(limit.outage, WEIR__OUTAGE_OPEN);
    assert_int_equal(limit.outage_share_ppm, 1);
    options.outage_share_percent = 100;
    assert_int_equal(read_ok(&options).outage_share_ppm, WEIR__PPM);
}

/* A window outlives the asks that travel in it. */
static void a_window_is_four_asks_at_least(void **state)
{
    (void)state;
    struct weir__limit limit;
    struct weir_limit_options ours;
    struct weir_limit_options options = options_of(1000000, SECOND);
    options.budget_tokens = 1;
    assert_int_equal(weir__limit_read(&limit, &ours, &options, 100000, NULL), WEIR_OK);
    assert_int_equal(limit.rule.window_us, 400000);
    assert_int_equal(weir__limit_read(&limit, &ours, &options, 60000000, NULL), WEIR_OK);
    assert_int_equal(limit.rule.window_us, 60000000); /* no window is longer */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(budgets),
        cmocka_unit_test(what_is_said_is_taken),
        cmocka_unit_test(a_window_is_four_asks_at_least),
    };
    return cmocka_run_group_tests_name("limits", tests, NULL, NULL);
}
