/* SPDX-License-Identifier: MIT */
/*
 * core/cap: both shapes, to the nanosecond.
 *
 * The burst shape is compared with the definition as it is written down elsewhere, two exact
 * fractions (the next free time, and stored tokens); the warmup shape with the area under its line,
 * added up cell by cell.  Neither uses floating point.
 */
#include "core/cap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "unit/caps.h"

/* Rows of: at this time this cost; the answer is this wait, 0: taken. */
struct row {
    int64_t ms, cost, wait_us;
};

static void play(const struct weir__cap_config *config, const struct row *rows, size_t count)
{
    struct weir__cap cap;
    weir__cap_init(&cap);
    for (size_t i = 0; i < count; i++) {
        int64_t now_ns = START + rows[i].ms * MS;
        int64_t wait_ns = cap_take(&cap, config, rows[i].cost, now_ns);
        if (wait_ns != rows[i].wait_us * US) {
            fail_msg("row %zu: waits %lld ns", i, (long long)wait_ns);
        }
    }
}

/* ---- Burst ----------------------------------------------------------------------------------- */

/* 2 a second, of one second's worth: nothing is stored at first; the first never waits, and the
 * next pays. */
static void test_burst_sequence(void **state)
{
    (void)state;
    const struct weir__cap_config config = {.tokens = 2, .period_us = S_US, .burst_us = S_US};
    static const struct row rows[] = {
        {0, 1, 0},         {0, 1, 500000}, {499, 1, 1000}, {500, 1, 0},       {700, 1, 300000},
        {1000, 1, 0},      {3000, 1, 0},   {3000, 1, 0},   {3000, 1, 0},      {3000, 1, 500000},
        {3250, 1, 250000}, {3500, 1, 0},   {4250, 1, 0},   {4250, 1, 250000}, {4500, 1, 0},
        {5000, 1, 0},      {9000, 1, 0},   {9000, 0, 0},   {9000, 2, 0},      {9000, 0, 500000},
        {9000, 1, 500000}, {9500, 1, 0},
    };
    play(&config, rows, sizeof rows / sizeof rows[0]);
}

/* A cost above all that can be stored is allowed, and paid by who comes next. */
static void test_burst_large_cost(void **state)
{
    (void)state;
    const struct weir__cap_config config = {.tokens = 10, .period_us = S_US, .burst_us = S_US};
    static const struct row rows[] = {
        {0, 100, 0},     {0, 1, 10000000},    {9999, 1, 1000}, {10000, 1, 0},
        {20000, 100, 0}, {20000, 1, 9000000}, {29000, 1, 0},   {29000, 1, 100000},
    };
    play(&config, rows, sizeof rows / sizeof rows[0]);
}

static void test_no_burst_is_even_spacing(void **state)
{
    (void)state;
    const struct weir__cap_config config = {.tokens = 4, .period_us = S_US};
    static const struct row rows[] = {
        {0, 1, 0},         {0, 1, 250000},  {250, 1, 0},  {9000, 1, 0},
        {9000, 1, 250000}, {9249, 1, 1000}, {9250, 1, 0},
    };
    play(&config, rows, sizeof rows / sizeof rows[0]);
}

/* A million takes, each as early as it may be: the last is when a million tokens are due, to the
 * nanosecond. */
static void test_burst_does_not_drift(void **state)
{
    (void)state;
    static const struct {
        int64_t tokens, period_us;
    } rates[] = {{3, S_US}, {7, 11}, {999999937, S_US}, {1000003, 86400 * S_US}};
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        const struct weir__cap_config config = {
            .tokens = rates[i].tokens, .period_us = rates[i].period_us, .burst_us = S_US};
        struct weir__cap cap;
        weir__cap_init(&cap);
        int64_t now_ns = START;
        const int64_t count = 1000000;
        for (int64_t n = 0; n < count; n++) {
            struct weir__cap_taken taken;
            now_ns += weir__cap_wait_ns(&cap, &config, now_ns);
            assert_int_equal(weir__cap_take(&cap, &config, 1, &taken, now_ns), 0);
        }
        wide due = (wide)count * config.period_us * US;
        wide due_ns = (due + config.tokens - 1) / config.tokens;
        int64_t free_ns = now_ns + weir__cap_wait_ns(&cap, &config, now_ns);
        assert_true(free_ns - START == (int64_t)due_ns);
    }
}

/* The definition, literally: the next free time in 1 / tokens ns, and stored tokens in 1 / period
 * of a token. */
struct model {
    wide free, stored;
};

static int64_t model_take(struct model *m, const struct weir__cap_config *config, int64_t cost,
                          int64_t now_ns)
{
    wide now = (wide)now_ns * config->tokens;
    wide most = (wide)config->burst_us * US * config->tokens;
    if (now > m->free) {
        m->stored += now - m->free;
        m->stored = m->stored < most ? m->stored : most;
        m->free = now;
    }
    if (m->free > now) {
        return (int64_t)((m->free - now + config->tokens - 1) / config->tokens);
    }
    wide want = (wide)cost * config->period_us * US;
    wide spend = want < m->stored ? want : m->stored;
    m->stored -= spend;
    m->free += want - spend;
    return 0;
}

static void test_burst_is_the_definition(void **state)
{
    (void)state;
    for (int i = 0; i < 2000; i++) {
        const struct weir__cap_config config = cap_random_burst();
        struct weir__cap cap;
        weir__cap_init(&cap);
        int64_t now_ns = START;
        struct model model = {.free = (wide)now_ns * config.tokens};
        for (int n = 0; n < 60; n++) {
            int64_t cost = cap_draw(cap_draw(2) ? 3 : 1000) + (n == 0); /* a look begins nothing */
            int64_t wait_ns = cap_take(&cap, &config, cost, now_ns);
            assert_int_equal(wait_ns, model_take(&model, &config, cost, now_ns));
            now_ns += cap_random_step(&cap, &config, now_ns);
        }
    }
}

/* ---- The bounds, against who knows the state ------------------------------------------------- */

#define TAKES 200

struct history {
    int64_t at_ns[TAKES], cost[TAKES];
    size_t count;
};

/* Asks at the best moments, and idles to store. */
static void attack(struct history *history, const struct weir__cap_config *config)
{
    struct weir__cap cap;
    weir__cap_init(&cap);
    int64_t now_ns = START;
    history->count = 0;
    while (history->count < TAKES) {
        int64_t cost = 1 + cap_draw(cap_draw(3) ? 2 : 50);
        if (cap_take(&cap, config, cost, now_ns) == 0) {
            history->at_ns[history->count] = now_ns;
            history->cost[history->count++] = cost;
        }
        now_ns += cap_random_step(&cap, config, now_ns);
    }
}

/* Over every interval that begins and ends with a take: all but the last <= (kept + t) / s. */
static void assert_bounded(const struct history *h, const struct weir__cap_config *config,
                           int64_t kept_us)
{
    for (size_t i = 0; i < h->count; i++) {
        wide taken = 0;
        for (size_t j = i; j < h->count; j++) {
            wide time_ns = h->at_ns[j] - h->at_ns[i] + kept_us * US;
            assert_true(taken * config->period_us * US <= time_ns * config->tokens);
            taken += h->cost[j];
        }
    }
}

static void test_burst_bound(void **state)
{
    (void)state;
    static struct history history;
    for (int i = 0; i < 200; i++) {
        const struct weir__cap_config config = cap_random_burst();
        attack(&history, &config);
        assert_bounded(&history, &config, config.burst_us);
    }
}

/* The bound is reached: all that is stored at once, and then the last one on top. */
static void test_burst_bound_is_tight(void **state)
{
    (void)state;
    const struct weir__cap_config config = {.tokens = 10, .period_us = S_US, .burst_us = 3 * S_US};
    struct weir__cap cap;
    weir__cap_init(&cap);
    assert_int_equal(cap_take(&cap, &config, 1, START), 0);
    int64_t now_ns = START + 100 * SECOND;
    for (int i = 0; i < 30; i++) {
        assert_int_equal(cap_take(&cap, &config, 1, now_ns), 0);
    }
    assert_int_equal(cap_take(&cap, &config, 1000, now_ns), 0);
    assert_int_equal(cap_take(&cap, &config, 1, now_ns), 100 * SECOND);
}

static void test_warmup_bound(void **state)
{
    (void)state;
    static struct history history;
    for (int i = 0; i < 200; i++) {
        const struct weir__cap_config config = cap_random_warmup();
        attack(&history, &config);
        assert_bounded(&history, &config, 0);
    }
}

/* ---- Warmup ---------------------------------------------------------------------------------- */

/* 2 a second, warm after 4 seconds: what each take makes the next wait. */
static void test_warmup_sequence(void **state)
{
    (void)state;
    const struct weir__cap_config config = {.tokens = 2, .period_us = S_US, .warmup_us = 4 * S_US};
    static const struct {
        int64_t idle_ms, waits_ms[8];
    } parts[] = {
        {0, {1375, 1125, 875, 625, 500, 500, 500, 500}}, /* cold at first */
        {500, {500, 500, 500, 500, 500, 500, 500, 500}}, /* half a second is not enough to cool */
        {4000, {1375, 1125, 875, 625, 500, 500, 500, 500}}, /* cold after the whole period, */
        {9000, {1375, 1125, 875, 625, 500, 500, 500, 500}}, /* and not colder than that */
        {2000, {500, 500, 500, 500, 500, 500, 500, 500}},
        {2500, {625, 500, 500, 500, 500, 500, 500, 500}},
        {3000, {875, 625, 500, 500, 500, 500, 500, 500}},
    };
    struct weir__cap cap;
    weir__cap_init(&cap);
    int64_t now_ns = START;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        now_ns += parts[i].idle_ms * MS;
        for (size_t n = 0; n < 8; n++) {
            assert_int_equal(cap_take(&cap, &config, 1, now_ns), 0);
            int64_t wait_ns = cap_take(&cap, &config, 1, now_ns);
            if (wait_ns != parts[i].waits_ms[n] * MS) {
                fail_msg("part %zu, take %zu: waits %lld ns", i, n, (long long)wait_ns);
            }
            now_ns += wait_ns;
        }
    }
}

/* Several at once cost what they cost one by one; and more than all that is stored is allowed. */
static void test_warmup_large_cost(void **state)
{
    (void)state;
    const struct weir__cap_config config = {.tokens = 2, .period_us = S_US, .warmup_us = 4 * S_US};
    static const struct row rows[] = {
        {0, 2, 0},      {0, 1, 2500000},     {2500, 6, 0},    {2500, 1, 3500000},
        {6000, 1, 0},   {6000, 1, 500000},   {90000, 100, 0}, {90000, 1, 52000000},
        {142000, 1, 0}, {142000, 1, 500000},
    };
    play(&config, rows, sizeof rows / sizeof rows[0]);
}

/* Cold it gives a third of the rate; going on so it is warm when the period is over, and has then
 * given half of what the rate would have. */
static void test_warmup_takes_its_period(void **state)
{
    (void)state;
    const struct weir__cap_config config = {
        .tokens = 1000, .period_us = S_US, .warmup_us = 10 * S_US};
    struct weir__cap cap;
    weir__cap_init(&cap);
    int64_t now_ns = START, wait_ns = 0, taken = 0, first_ns = 0;
    while (wait_ns != MS) {
        assert_int_equal(cap_take(&cap, &config, 1, now_ns), 0);
        wait_ns = weir__cap_wait_ns(&cap, &config, now_ns);
        first_ns = taken++ == 0 ? wait_ns : first_ns;
        now_ns += wait_ns;
    }
    assert_int_equal(first_ns, 3 * MS - 200);
    assert_int_equal(taken - 1, 5000);
    assert_int_equal(now_ns - wait_ns - START, 10 * SECOND);
}

/* The area under the line, over the `cost` tokens right of it, times tokens^2 * warmup_ns: added up
 * over cells of 1 / tokens ns, each by its middle, which is exact since the line bends between two
 * cells. */
static wide area(const struct weir__cap_config *config, int64_t stored_ns, int64_t cost)
{
    wide scale = (wide)config->tokens * config->warmup_us * US;
    wide cell = (wide)stored_ns * config->tokens;
    wide sum = 0;
    for (int64_t n = cost * config->period_us * US; n > 0; n--) {
        sum += scale;
        if (cell > 0) {
            cell--;
            wide twice_middle = 2 * cell + 1;
            sum += twice_middle > scale ? 2 * (twice_middle - scale) : 0;
        }
    }
    return sum;
}

static void assert_is_the_area(const struct weir__cap_config *config, int64_t stored_ns,
                               int64_t cost)
{
    struct weir__cap cap = {.at_ns = START, .part = stored_ns * FINE};
    assert_int_equal(cap_take(&cap, config, cost, START), 0);

    wide one_ns = (wide)config->tokens * config->tokens * config->warmup_us * US;
    wide paid = (cap.at_ns - START) * one_ns;
    wide real = area(config, stored_ns, cost);
    assert_true(paid >= real);
    assert_true((paid - real - one_ns) * (FINE / 4) < one_ns);

    wide left = (wide)stored_ns * config->tokens - (wide)cost * config->period_us * US;
    wide over = (wide)cap.part * config->tokens - (left > 0 ? left : 0) * FINE;
    assert_true(over >= 0 && over < config->tokens);
}

static void test_warmup_is_the_area(void **state)
{
    (void)state;
    /* a hair above a whole nanosecond: each rounding counts */
    const struct weir__cap_config near_6_ns = {.tokens = 1001, .period_us = 1, .warmup_us = 8};
    const struct weir__cap_config near_5_ns = {.tokens = 1001, .period_us = 1, .warmup_us = 10};
    assert_is_the_area(&near_6_ns, 7006, 2);
    assert_is_the_area(&near_5_ns, 7506, 2);
    for (int i = 0; i < 3000; i++) {
        struct weir__cap_config config = {.tokens = 1 + cap_draw(cap_draw(1) ? 40 : 5000)};
        config.period_us = 1 + cap_draw(4);
        config.warmup_us = 1 + cap_draw(12);
        int64_t stored_ns = cap_draw(config.warmup_us * US);
        assert_is_the_area(&config, stored_ns, 1 + cap_draw(3));
    }
}

/* ---- The clock, and the ends of the ranges --------------------------------------------------- */

static void test_clock_steps_back(void **state)
{
    (void)state;
    const struct weir__cap_config burst = {.tokens = 1, .period_us = S_US, .burst_us = S_US};
    const struct weir__cap_config warmup = {.tokens = 1, .period_us = S_US, .warmup_us = S_US};
    const struct weir__cap_config *both[] = {&burst, &warmup};
    for (size_t i = 0; i < 2; i++) {
        struct weir__cap cap;
        weir__cap_init(&cap);
        assert_int_equal(cap_take(&cap, both[i], 100, START), 0);
        int64_t free_ns = START + weir__cap_wait_ns(&cap, both[i], START);
        assert_int_equal(cap_take(&cap, both[i], 1, START - 5 * SECOND),
                         free_ns - START + 5 * SECOND);
        assert_int_equal(cap_take(&cap, both[i], 1, free_ns - 1), 1);
        assert_int_equal(cap_take(&cap, both[i], 1, free_ns), 0);
        assert_true(cap_take(&cap, both[i], 1, 0) > 0);
    }
}

static void test_ends_of_the_ranges(void **state)
{
    (void)state;
    const int64_t most = INT64_C(1) << 61;
    /* 1 us, the longest, and one with which 10^9 tokens last longer than the span */
    const int64_t periods_us[] = {1, INT64_C(1000000000000), INT64_C(4611686)};
    for (int i = 0; i < 96; i++) {
        const struct weir__cap_config config = {
            .tokens = (i & 1) != 0 ? 1000000000 : 1,
            .period_us = periods_us[i >> 5],
            .burst_us = (i & 16) != 0 ? 3600 * S_US : 0,
            .warmup_us = (i & 8) != 0   ? 3600 * S_US
                         : (i & 4) != 0 ? 1
                                        : 0,
        };
        struct weir__cap cap;
        weir__cap_init(&cap);
        int64_t now_ns = (i & 2) != 0 ? most : 0;
        struct weir__cap_taken taken;
        assert_int_equal(weir__cap_take(&cap, &config, 1000000000, &taken, now_ns), 0);
        int64_t wait_ns = weir__cap_wait_ns(&cap, &config, now_ns);
        wide due_ns = (wide)1000000000 * config.period_us * US / config.tokens;
        assert_true(wait_ns >= (due_ns < most ? (int64_t)due_ns : most));
        assert_true(wait_ns <= most);
        weir__cap_refund(&cap, &config, 1000000000, now_ns);
        assert_int_equal(weir__cap_take(&cap, &config, 1000000000, &taken, now_ns + wait_ns), 0);
        weir__cap_undo(&cap, &config, &taken, now_ns + wait_ns);
        assert_int_equal(weir__cap_wait_ns(&cap, &config, now_ns + wait_ns), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_burst_sequence),
        cmocka_unit_test(test_burst_large_cost),
        cmocka_unit_test(test_no_burst_is_even_spacing),
        cmocka_unit_test(test_burst_does_not_drift),
        cmocka_unit_test(test_burst_is_the_definition),
        cmocka_unit_test(test_burst_bound),
        cmocka_unit_test(test_burst_bound_is_tight),
        cmocka_unit_test(test_warmup_bound),
        cmocka_unit_test(test_warmup_sequence),
        cmocka_unit_test(test_warmup_large_cost),
        cmocka_unit_test(test_warmup_takes_its_period),
        cmocka_unit_test(test_warmup_is_the_area),
        cmocka_unit_test(test_clock_steps_back),
        cmocka_unit_test(test_ends_of_the_ranges),
    };
    return cmocka_run_group_tests_name("cap", tests, cap_seed, NULL);
}
