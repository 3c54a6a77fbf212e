/* SPDX-License-Identifier: MIT */
/* api/limit_options: what a limit's options become in exact integers, above all those left to the
 * library, and what cannot go together. */
#include "api/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "core/rule.h"
#include "unit/phrases.h"

#define SECOND UINT64_C(1000000)
#define DAY (86400 * SECOND)
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

/* ---- By algorithm ---------------------------------------------------------------------------- */

static struct weir__rule rule_of(const char *text)
{
    struct weir_limit_options options = parse(text);
    return read_ok(&options).rule;
}

static void each_algorithm_has_its_rule(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum weir__algorithm_id algorithm;
        int64_t variant, capacity, initial, period_us, max_wait_us;
    } rows[] = {
        {"100/s", WEIR__TOKEN_BUCKET, 0, 100, 100, 0, 1000000},
        {"100/s leaky", WEIR__LEAKY_BUCKET, 0, 1, 1, 0, 1000000},
        {"100/s leaky burst=7 wait=0s", WEIR__LEAKY_BUCKET, 0, 7, 7, 0, 0},
        {"100/s leaky queue=50", WEIR__LEAKY_BUCKET, WEIR__VARIANT_QUEUE, 50, 50, 0, 500000},
        {"3/s leaky queue=1", WEIR__LEAKY_BUCKET, WEIR__VARIANT_QUEUE, 1, 1, 0, 333334},
        {"1/s leaky queue=3600", WEIR__LEAKY_BUCKET, WEIR__VARIANT_QUEUE, 3600, 3600, 0,
         INT64_C(3600000000)},
        {"5 per 10s fixed-window", WEIR__FIXED_WINDOW, 0, 5, 5, 10000000, 0},
        {"5 per 10s fixed-window burst=5 wait=0s", WEIR__FIXED_WINDOW, 0, 5, 5, 10000000, 0},
        {"100/month fixed-window initial=0", WEIR__FIXED_WINDOW, WEIR__VARIANT_MONTH, 100, 0,
         INT64_C(2678400000000), 0},
        {"5 per 10s sliding-log initial=3", WEIR__SLIDING_LOG, 0, 5, 3, 10000000, 0},
        {"1000000000/1000000s sliding-counter", WEIR__SLIDING_COUNTER, 0, 1000000000, 1000000000,
         INT64_C(1000000000000), 0},
        {"1/us sliding-counter", WEIR__SLIDING_COUNTER, 0, 1, 1, 1, 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct weir__rule rule = rule_of(rows[i].text);
        assert_int_equal(rule.algorithm, rows[i].algorithm);
        assert_int_equal(rule.variant, rows[i].variant);
        assert_int_equal(rule.capacity, rows[i].capacity);
        assert_int_equal(rule.initial, rows[i].initial);
        assert_int_equal(rule.period_us, rows[i].period_us);
        assert_int_equal(rule.max_wait_us, rows[i].max_wait_us);
        assert_true(rule.budget >= 1 && rule.budget <= rule.capacity);
        assert_true(rule.max_wait_us <= UINT32_MAX); /* it travels as four bytes */
        assert_false(rule.learn);
    }
}

/* A million and three a day, exactly, with any capacity, under every algorithm. */
static void odd_rates_are_exact(void **state)
{
    (void)state;
    static const uint64_t capacities[] = {1, 2, 1000, 104249, 1000003, 999999999, 1000000000};
    static const char *const buckets[] = {"1000003/day", "1000003/day leaky"};
    for (size_t a = 0; a < 2; a++) {
        for (size_t i = 0; i < sizeof(capacities) / sizeof(capacities[0]); i++) {
            struct weir_limit_options options = parse(buckets[a]);
            options.capacity_tokens = capacities[i];
            struct weir__rule rule = read_ok(&options).rule;
            assert_int_equal(rule.capacity, capacities[i]);
            /* a / b per tick is the rate */
            assert_true((uint64_t)rule.units_per_tick * (DAY / (uint64_t)rule.tick_us) ==
                        1000003 * (uint64_t)rule.units_per_token);
            assert_true(rule.capacity * rule.units_per_token + rule.units_per_tick < INT64_C(1)
                                                                                         << 53);
        }
    }
    struct weir__rule queue = rule_of("1000003/day leaky queue=41666");
    assert_int_equal(weir__rule_tokens(&queue, (int64_t)DAY), 1000003);
    static const char *const windows[] = {"1000003/day fixed-window", "1000003/day sliding-log",
                                          "1000003/day sliding-counter"};
    for (size_t a = 0; a < 3; a++) {
        struct weir__rule rule = rule_of(windows[a]);
        assert_int_equal(rule.capacity, 1000003);
        assert_int_equal(rule.period_us, DAY);
        assert_int_equal(weir__rule_tokens(&rule, (int64_t)DAY), 1000003);
    }
}

static void what_a_key_starts_with(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t initial;
        bool learn;
    } rows[] = {
        {"1000/s initial=0", 0, false},          {"1000/s initial=0%", 0, false},
        {"1000/s initial=33.3%", 333, false},    {"1000/s initial=0.0999%", 0, false},
        {"1000/s initial=100%", 1000, false},    {"1000/min fixed-window initial=50%", 500, false},
        {"1000/s initial=learn", 1000, true},    {"1000/min sliding-log initial=learn", 1000, true},
        {"1000/s leaky initial=learn", 1, true},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct weir__rule rule = rule_of(rows[i].text);
        assert_int_equal(rule.initial, rows[i].initial);
        assert_true(rule.learn == rows[i].learn);
    }
}

static void caps(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        struct weir__cap_config cap;
    } rows[] = {
        {"1/s", {0}},
        {"1/s cap=5/10s", {5, 10000000, 1000000, 0}},
        {"1/s cap=5/s cap-burst=0s", {5, 1000000, 0, 0}},
        {"1/s cap=1000000000/us cap-burst=1h", {1000000000, 1, INT64_C(3600000000), 0}},
        {"1/s cap=1/1000000s cap-warmup=1h",
         {1, INT64_C(1000000000000), 1000000, INT64_C(3600000000)}},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct weir_limit_options options = parse(rows[i].text);
        struct weir__limit limit = read_ok(&options);
        assert_memory_equal(&limit.cap, &rows[i].cap, sizeof(limit.cap));
    }
}

/* Above 1000 a second nothing is cut to an interval: a fraction of units a microsecond. */
static void test_b77_fast_rates_are_fractions(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t a, b, capacity;
    } rows[] = {
        {"2000/s burst=1", 1, 500, 1},         {"6000/s", 3, 500, 6000},
        {"999999/s", 999999, 1000000, 999999}, {"1000000000/s burst=1", 1000, 1, 1},
        {"6000/s leaky", 3, 500, 1},           {"6000/s sliding-log", 3, 500, 6000},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct weir__rule rule = rule_of(rows[i].text);
        assert_int_equal(rule.tick_us, 1);
        assert_int_equal(rule.units_per_tick, rows[i].a);
        assert_int_equal(rule.units_per_token, rows[i].b);
        assert_int_equal(rule.capacity, rows[i].capacity);
    }
}

/* ---- What is refused ------------------------------------------------------------------------- */

static void refused(const struct weir_limit_options *options, const char *says)
{
    struct weir__limit limit;
    struct weir_limit_options ours;
    struct weir_error error = {0};
    if (weir__limit_read(&limit, &ours, options, ASK_TIMEOUT_US, &error) == WEIR_OK) {
        fail_msg("not refused: %s", says);
    }
    assert_int_equal(error.code, WEIR_EINVAL);
    if (strstr(error.text, says) != error.text) {
        fail_msg("\"%s\": not at the begin of: %s", says, error.text);
    }
}

static void what_does_not_go_together(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"10/s queue=5", "queue_tokens: 5: only leaky has a queue, token-bucket has none"},
        {"10/s queue=5 fixed-window", "queue_tokens: 5: only leaky has a queue, fixed-window has"},
        {"10/s leaky queue=5 burst=5", "capacity_tokens: 5: with a queue, queue_tokens is all"},
        {"10/s leaky queue=36001", "queue_tokens: 36001: the last would wait longer than an hour; "
                                   "at this rate at most 36000 may wait"},
        {"1/day leaky queue=1", "queue_tokens: 1: the last would wait longer than an hour; at this "
                                "rate at most 0"},
        {"10/s leaky queue=5 initial=5", "initial_tokens: 5: a queue starts empty"},
        {"10/s leaky queue=5 initial=100%", "initial_percent: 100: a queue starts empty"},
        {"10/s leaky queue=5 initial=learn", "learn: true: not with a queue"},
        {"10/s leaky queue=5 wait=1s", "max_wait_ms: 1000: with a queue, its length decides"},
        {"10/s leaky queue=5 budget=6", "budget_tokens: 6: must be from 0 to 5"},
        {"10/s fixed-window burst=9", "capacity_tokens: 9: fixed-window has rate_tokens, 10, and"},
        {"10/s sliding-log burst=20", "capacity_tokens: 20: sliding-log has rate_tokens, 10, and"},
        {"10/s sliding-log wait=1ms", "max_wait_ms: 1: nothing of sliding-log can be reserved"},
        {"10/s sliding-counter initial=11", "initial_tokens: 11: must be from 0 to 10"},
        {"10/s fixed-window budget=11", "budget_tokens: 11: must be from 0 to 10"},
        {"1000000001/day fixed-window", "rate_tokens: 1000000001: must be from 1 to 1000000000"},
        {"1001/us sliding-counter", "rate_tokens: 1001 per 1 us: more than 10^9 tokens a second"},
        {"10/s outage=open initial=learn", "learn: true: only with the outage policy local"},
        {"10/s outage=closed initial=learn", "learn: true: only with the outage policy local"},
        {"10/s cap-burst=0s", "cap_burst_ms: 0: cap_tokens is 0, so there is no cap"},
        {"10/s cap-warmup=5ms", "cap_warmup_ms: 5: cap_tokens is 0, so there is no cap"},
        {"10/s cap=1/s cap-burst=1s cap-warmup=1s", "cap_burst_ms: 1000: a cap that warms up"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct weir_limit_options options = parse(rows[i][0]);
        refused(&options, rows[i][1]);
    }
}

/* What no text can say. */
static void values_out_of_their_range(void **state)
{
    (void)state;
#define REFUSED(text, field, value, says)                                                          \
    do {                                                                                           \
        struct weir_limit_options options = parse(text);                                           \
        options.field = value;                                                                     \
        refused(&options, says);                                                                   \
    } while (0)
    REFUSED("10/s", algorithm, 0, "algorithm: 0: no such algorithm");
    REFUSED("10/s", algorithm, 6, "algorithm: 6: no such algorithm");
    REFUSED("10/s fixed-window", calendar, 2, "calendar: 2: no such calendar");
    REFUSED("10/s", calendar, WEIR_CALENDAR_MONTH, "calendar: 1: only fixed-window has months, ");
    REFUSED("10/s sliding-log", calendar, WEIR_CALENDAR_MONTH, "calendar: 1: only fixed-window");
    REFUSED("1/month fixed-window", rate_period_us, 1, "rate_period_us: 1: must be from 0 to 0");
    REFUSED("10/s leaky", queue_tokens, 1000000001, "queue_tokens: 1000000001: must be from 1 to");
    REFUSED("10/s leaky", queue_tokens, WEIR_DEFAULT, "queue_tokens: 18446744073709551615: must");
    REFUSED("10/s", initial_percent, 100.5, "initial_percent: 100.5: must be from 0 to 100");
    REFUSED("10/s", initial_percent, -1, "initial_percent: -1: must be from 0 to 100");
    REFUSED("10/s initial=learn", initial_tokens, 5, "learn: true: not together with initial");
    REFUSED("10/s initial=learn", initial_percent, 5, "learn: true: not together with initial");
    REFUSED("10/s", cap_period_us, 1, "cap_period_us: 1: cap_tokens is 0, so there is no cap");
    REFUSED("10/s", cap_tokens, 1, "cap_period_us: 0: must be from 1 to 1000000000000");
    REFUSED("10/s cap=1/s", cap_tokens, 1000000001, "cap_tokens: 1000000001: must be from 1 to");
    REFUSED("10/s cap=1/s", cap_period_us, UINT64_C(1000000000001), "cap_period_us: 1000000000001");
    REFUSED("10/s cap=1/s", cap_burst_ms, 3600001, "cap_burst_ms: 3600001: must be from 0 to");
    REFUSED("10/s cap=1/s", cap_warmup_ms, 3600001, "cap_warmup_ms: 3600001: must be from 0 to");
}

/* Each alone, under every algorithm. */
static void test_b75_zero_is_refused_everywhere(void **state)
{
    (void)state;
    static const char *const limits[] = {"10/s",
                                         "10/s leaky",
                                         "10/s leaky queue=5",
                                         "10/s fixed-window",
                                         "10/s sliding-log",
                                         "10/s sliding-counter"};
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        REFUSED(limits[i], rate_tokens, 0, "rate_tokens: 0: must be from 1 to ");
        REFUSED(limits[i], rate_period_us, 0, "rate_period_us: 0: must be from 1 to ");
        REFUSED(limits[i], capacity_tokens, 0, "capacity_tokens: 0: ");
        REFUSED(limits[i], window_ms, 0, "window_ms: 0: must be from 10 to ");
        REFUSED(limits[i], version, 0, "version: 0: must be from 1 to ");
        REFUSED(limits[i], outage_share_percent, 0, "outage_share_percent: 0: must be from ");
    }
    REFUSED("10/month fixed-window", rate_tokens, 0, "rate_tokens: 0: must be from 1 to ");
}
#undef REFUSED

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(budgets),
        cmocka_unit_test(what_is_said_is_taken),
        cmocka_unit_test(a_window_is_four_asks_at_least),
        cmocka_unit_test(each_algorithm_has_its_rule),
        cmocka_unit_test(odd_rates_are_exact),
        cmocka_unit_test(what_a_key_starts_with),
        cmocka_unit_test(caps),
        cmocka_unit_test(test_b77_fast_rates_are_fractions),
        cmocka_unit_test(what_does_not_go_together),
        cmocka_unit_test(values_out_of_their_range),
        cmocka_unit_test(test_b75_zero_is_refused_everywhere),
    };
    return cmocka_run_group_tests_name("limits", tests, NULL, NULL);
}
