/* SPDX-License-Identifier: MIT */
/*
 * Random sequences of asks.  Values are drawn from a few that matter (0, 1, the bound, one past
 * it, far past it) rather than evenly, and time moves mostly to where something happens.
 */
#include "random_asks.h"

#include <stdlib.h>

#include "base/num.h"
#include "core/rule.h"

#define PICK(random, ...)                                                                          \
    pick((random), (const int64_t[]){__VA_ARGS__},                                                 \
         sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

#define SECOND INT64_C(1000000)
#define DAY_US INT64_C(86400000000)
#define HUGE (INT64_C(1) << 52)
#define START_US INT64_C(1700000000000000)
/* As in weir/weir.h. */
#define CAPACITY_MOST INT64_C(1000000000)
#define PERIOD_MOST INT64_C(1000000000000)

static int64_t below(struct random_asks *random, int64_t bound)
{
    return bound <= 1 ? 0 : (int64_t)(weir__random(&random->seed) % (uint64_t)bound);
}

static int64_t pick(struct random_asks *random, const int64_t *values, size_t count)
{
    return values[below(random, (int64_t)count)];
}

static bool one_in(struct random_asks *random, int64_t n) { return below(random, n) == 0; }

/* A number with a random count of bits, so that all magnitudes are as likely. */
static int64_t any_size(struct random_asks *random, int bits)
{
    return below(random, INT64_C(1) << (1 + below(random, bits)));
}

static int64_t draw_period(struct random_asks *random)
{
    return PICK(random, SECOND, SECOND, 60 * SECOND, 3600 * SECOND, DAY_US, 1500, 1, PERIOD_MOST,
                1 + any_size(random, 39));
}

/* The rate of `tokens` in `per_us`, and the largest capacity up to `capacity` that goes with it. */
static void set_rate(struct weir__rule *rule, int64_t tokens, int64_t per_us, int64_t capacity)
{
    uint64_t largest;
    if (!weir__rule_set_rate(rule, (uint64_t)tokens, (uint64_t)per_us, (uint64_t)capacity,
                             &largest)) {
        weir__rule_set_rate(rule, (uint64_t)tokens, (uint64_t)per_us, largest, &largest);
    }
}

/* A rate as a user may write it. */
static void draw_rate(struct random_asks *random)
{
    int64_t per_us = draw_period(random);
    int64_t most = per_us > DAY_US / 86 ? INT64_C(1000000) : per_us * 1000;
    int64_t tokens = PICK(random, 1, 2, 3, 10, 1000003, most, 1 + any_size(random, 30));
    set_rate(&random->rule, weir__clamp(tokens, 1, most), per_us,
             PICK(random, 1, 1, 2, 5, 10, 100, 1000000, CAPACITY_MOST, 1 + any_size(random, 30)));
}

/* Units at the edge of what a double holds. */
static void draw_edge(struct random_asks *random)
{
    struct weir__rule *rule = &random->rule;
    rule->tick_us = PICK(random, 1, 1000, 1000000);
    rule->units_per_tick = 1 + any_size(random, 52) % (WEIR__INT53_MAX - 1);
    rule->units_per_token = 1 + any_size(random, 52) % (WEIR__INT53_MAX - rule->units_per_tick);
    if (one_in(random, 3)) {
        int64_t power = INT64_C(1) << below(random, 52);
        rule->units_per_token = weir__min(power, rule->units_per_token);
    }
    int64_t most = (WEIR__INT53_MAX - rule->units_per_tick) / rule->units_per_token;
    most = weir__min(CAPACITY_MOST, most);
    rule->capacity = weir__max(1, PICK(random, most, most, any_size(random, 50) % most, 1));
}

/* So many in each period.  The rate is for the asker alone, and is what fits. */
static void draw_windows(struct random_asks *random)
{
    struct weir__rule *rule = &random->rule;
    int64_t capacity = PICK(random, 1, 1, 2, 5, 10, 100, 1023, 1024, 1025, 5000, CAPACITY_MOST,
                            1 + any_size(random, 30));
    int64_t period_us = draw_period(random);
    capacity = weir__clamp(capacity, 1, CAPACITY_MOST);
    set_rate(rule, weir__min(capacity, period_us > DAY_US ? 1000 : CAPACITY_MOST), period_us, 1);
    rule->capacity = capacity;
    rule->period_us = period_us;
    if (rule->algorithm == WEIR__FIXED_WINDOW && one_in(random, 3)) {
        rule->variant = WEIR__VARIANT_MONTH;
        rule->period_us = 0;
    }
}

static void draw_algorithm(struct random_asks *random)
{
    struct weir__rule *rule = &random->rule;
    rule->algorithm = random->only;
    if (random->only == RANDOM_ASKS_ANY) {
        rule->algorithm = (enum weir__algorithm_id)(1 + below(random, 5));
    }
    rule->variant = 0;
    rule->period_us = 0;
    if (rule->algorithm >= WEIR__FIXED_WINDOW) {
        draw_windows(random);
        return;
    }
    if (rule->algorithm == WEIR__LEAKY_BUCKET && one_in(random, 2)) {
        rule->variant = WEIR__VARIANT_QUEUE;
    }
    if (one_in(random, 4)) {
        draw_edge(random);
    } else {
        draw_rate(random);
    }
}

void random_asks_rule(struct random_asks *random)
{
    struct weir__rule *rule = &random->rule;
    draw_algorithm(random);
    int64_t c = rule->capacity;
    rule->budget = weir__min(c, PICK(random, 0, 1, 2, c / 20, c / 2, c, below(random, c + 1)));
    rule->window_us = PICK(random, 10000, 40000, 100000, 400001, SECOND, 60 * SECOND, 7777);
    rule->max_wait_us = PICK(random, 0, 1000, SECOND, 60 * SECOND, 3600 * SECOND, UINT32_MAX);
    rule->initial = PICK(random, c, c, 0, below(random, c + 1));
    rule->learn = one_in(random, 6);
}

/* Another rate that is the old one but for one number: conversions of units that come out even, or
 * miss it by one. */
static void change_rate(struct random_asks *random)
{
    struct weir__rule *rule = &random->rule;
    int64_t b = rule->units_per_token;
    switch (below(random, 4)) {
    case 0: rule->tick_us = PICK(random, 1, 1000, 1000000); break;
    case 1:
        b = b % (INT64_C(1) << 40) * PICK(random, 2, 3, 1024, 4095) + PICK(random, -1, 0, 0, 1);
        rule->units_per_token = weir__max(1, b);
        break;
    case 2: rule->units_per_token = weir__max(1, b / PICK(random, 2, 3, 1024, 4095)); break;
    default: rule->units_per_tick = 1 + any_size(random, 40); break;
    }
    int64_t most = (WEIR__INT53_MAX - rule->units_per_tick) / rule->units_per_token;
    rule->capacity = weir__clamp(rule->capacity, 1, weir__max(1, most));
    if (most < 1) {
        rule->units_per_tick = rule->units_per_token = 1;
    }
}

/* Periods that divide one another, or miss it by one; a capacity that was more, or less. */
static void change_windows(struct random_asks *random)
{
    struct weir__rule *rule = &random->rule;
    int64_t c = rule->capacity;
    int64_t p = rule->period_us;
    if (p > 0) {
        p = PICK(random, p, p / 2, p * 2, p + 1, p - 1, p * 7);
        rule->period_us = weir__clamp(p, 1, PERIOD_MOST);
    }
    rule->capacity = weir__clamp(PICK(random, c, c / 2, c * 2, c - 1, c + 1), 1, CAPACITY_MOST);
}

/* The cases between two rules that are close. */
static void change_rule(struct random_asks *random)
{
    struct weir__rule *rule = &random->rule;
    if (rule->algorithm >= WEIR__FIXED_WINDOW) {
        change_windows(random);
    } else {
        change_rate(random);
    }
    rule->budget = weir__min(rule->budget, rule->capacity);
    rule->initial = weir__min(rule->initial, rule->capacity);
}

void random_asks_begin(struct random_asks *random, uint64_t seed, enum weir__algorithm_id only)
{
    *random = (struct random_asks){.seed = seed, .only = only};
    random_asks_rule(random);
    random->rule.version = 1 + below(random, 3);
    random->now_us = START_US + any_size(random, 40);
    for (int i = 0; i < RANDOM_ASKS_WINDOWS; i++) {
        random->windows[i] = WEIR__NO_WINDOW;
    }
}

static void move_time(struct random_asks *random)
{
    const struct weir__rule *rule = &random->rule;
    int64_t w = rule->window_us;
    int64_t p = rule->period_us > 0 ? rule->period_us : random->last.reset_after_us % HUGE;
    int64_t start_us = random->last.start_us; /* of the period in force at the last ask */
    int64_t edge = start_us > 0 ? start_us + p - random->now_us : 0;
    int64_t fill = weir__min(weir__rule_time_us(rule, rule->capacity), INT64_C(1) << 50);
    int64_t to_end = random->window_ends_us - random->now_us;
    int64_t retry = weir__min(random->last.retry_after_us, INT64_C(1) << 50);
    int64_t step = PICK(random, 0, 0, 1, 7, rule->tick_us, below(random, 2 * rule->tick_us),
                        weir__rule_time_us(rule, 1) % DAY_US, retry, retry - 1, fill / 2, fill,
                        random->last.wait_us, to_end - 1, to_end, to_end + w - 1, to_end + w, w / 2,
                        2 * w, below(random, w), edge - 1, edge, edge + 1, edge + p, p - 1, p,
                        p + 1, 2 * p, below(random, p), below(random, p / 8), random->last.first_us,
                        random->last.reset_after_us % HUGE, DAY_US, 31 * DAY_US, 3650 * DAY_US);
    if (one_in(random, 12)) {
        step = -PICK(random, 1, rule->tick_us, w, w + 1, fill, fill + 1, 3 * w, below(random, w), p,
                     p + 1, 2 * p, below(random, p), DAY_US, 400 * DAY_US);
    }
    random->now_us += step;
    if (random->now_us < 0 || random->now_us > HUGE) {
        random->now_us = START_US;
    }
}

static void draw_row(struct random_asks *random, struct weir__settle *row)
{
    int64_t out = random->last.outstanding;
    *row = (struct weir__settle){.window = WEIR__NO_WINDOW};
    if (one_in(random, 2)) {
        row->window = random->windows[below(random, RANDOM_ASKS_WINDOWS)];
        row->spent = PICK(random, 0, 1, out, out / 2, below(random, out + 1), HUGE);
        row->back = PICK(random, 0, 0, 1, out, out / 2, below(random, out + 1), HUGE);
    }
    if (one_in(random, 30)) {
        row->window = random->now_us - below(random, 2 * random->rule.window_us);
    }
}

void random_asks_next(struct random_asks *random, struct weir__ask *ask)
{
    move_time(random);
    int64_t version = random->rule.version;
    if (one_in(random, 8)) {
        if (one_in(random, 3)) {
            random_asks_rule(random);
        } else if (one_in(random, 2)) {
            change_rule(random);
        }
        version = weir__max(1, version + PICK(random, 0, 1, 1, 2, -1));
    }
    random->rule.version = version;

    int64_t c = random->rule.capacity;
    int64_t e = random->rule.budget;
    *ask = (struct weir__ask){
        .peek = one_in(random, 10),
        .reset = one_in(random, 25),
        .want = PICK(random, 0, 1, e, e / 2, below(random, e + 1), HUGE),
        .least = PICK(random, 1, 1, 1, 2, e / 16 + 1, below(random, e + 1) + 1),
        .held = PICK(random, 0, 0, 1, e, below(random, e + 1), HUGE),
        .exact = PICK(random, 0, 0, 0, 1, c / 2, c, c + 1, below(random, c + 1), HUGE),
        .wait_us = PICK(random, 0, 1000, random->rule.max_wait_us, HUGE),
        .refund = PICK(random, 0, 0, 0, 1, c, below(random, c + 1), HUGE),
        .since = PICK(random, random->last.start_us, random->last.start_us, WEIR__NO_WINDOW, 0,
                      random->last.start_us - random->rule.period_us),
        .heard = PICK(random, random->windows[0], random->windows[0], WEIR__NO_WINDOW),
    };
    ask->reset = ask->reset && !ask->peek;
    for (int i = 0; i < WEIR__SETTLE_ROWS; i++) {
        draw_row(random, &ask->settle[i]);
    }
}

void random_asks_heard(struct random_asks *random, const struct weir__grant *grant)
{
    if (grant->window != random->windows[0]) {
        for (int i = RANDOM_ASKS_WINDOWS - 1; i > 0; i--) {
            random->windows[i] = random->windows[i - 1];
        }
        random->windows[0] = grant->window;
        random->window_ends_us = random->now_us + random->rule.window_us;
    }
    random->last = *grant;
}

static uint64_t from_environment(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 0) : otherwise;
}

uint64_t random_asks_seed(uint64_t otherwise) { return from_environment("WEIR_SEED", otherwise); }

uint64_t random_asks_count(uint64_t otherwise) { return from_environment("WEIR_STEPS", otherwise); }
