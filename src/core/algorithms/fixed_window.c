/* SPDX-License-Identifier: MIT */
/*
 * The fixed window: so many in each period, counted from nothing when the next one begins.  It is
 * lua/fixed_window.lua in C, to the last token.
 *
 *     level  used in the period that began at stamp; above the capacity after that was lowered
 *
 * Periods are half-open and aligned to the epoch, or are the months of the calendar, in UTC.
 * Invariant after each refill: stamp = start <= t < start + length, edge = start + length - t.
 */
#include "core/algorithms/algorithm.h"

#include "base/num.h"

#define DAY_US INT64_C(86400000000)
#define MONTH_MOST_US (31 * DAY_US)

/* The day, counted from the epoch, on which the month of `day` began.  Counts years from March, so
 * that the odd day comes last.
 * Source: E. G. Richards, "Mapping Time", 1998, chapter 25. */
static int64_t month_begin(int64_t day)
{
    int64_t z = day + 719468; /* days since 1 March of the year 0 */
    int64_t era_day = z % 146097;
    int64_t year = (era_day - era_day / 1460 + era_day / 36524 - era_day / 146096) / 365;
    int64_t year_day = era_day - (365 * year + year / 4 - year / 100);
    int64_t nth = (5 * year_day + 2) / 153;
    return day - year_day + (153 * nth + 2) / 5;
}

/* The period that holds t. */
static void enter(struct weir__run *run, const struct weir__rule *rule)
{
    int64_t to;
    if (rule->variant == WEIR__VARIANT_MONTH) {
        int64_t from = month_begin(run->t / DAY_US);
        run->start = from * DAY_US;
        to = month_begin(from + 31) * DAY_US;
    } else {
        run->start = run->t - run->t % rule->period_us;
        to = run->start + rule->period_us;
    }
    run->edge = to - run->t;
}

static int64_t span(const struct weir__rule *rule)
{
    return rule->variant == WEIR__VARIANT_MONTH ? MONTH_MOST_US : rule->period_us;
}

/* Learning is to start as if all along just as much had been used as the rate allows. */
static void create(struct weir__run *run, int64_t tokens)
{
    struct weir__global *key = &run->key;
    enter(run, &key->rule);
    if (tokens == WEIR__CREATE_LEARNING) {
        int64_t length = run->t + run->edge - run->start;
        tokens = weir__mul_div(run->edge, key->rule.capacity, length);
    }
    key->level = key->rule.capacity - tokens;
    key->stamp_us = run->start;
}

static void rewind(struct weir__run *run)
{
    enter(run, &run->key.rule);
    run->key.stamp_us = run->start;
}

static void refill(struct weir__run *run)
{
    enter(run, &run->key.rule);
    if (run->start > run->key.stamp_us) {
        run->key.level = 0;
        run->key.stamp_us = run->start;
    }
}

/* R11: what was used stays used. */
static bool adopt(struct weir__run *run, const struct weir__rule *rule)
{
    enter(run, rule);
    run->key.stamp_us = run->start;
    return true;
}

static int64_t there(const struct weir__run *run)
{
    return run->key.rule.capacity - run->key.level;
}

static int64_t exact(const struct weir__run *run, int64_t tokens, int64_t patience)
{
    (void)patience;
    return tokens <= there(run) ? 0 : -1;
}

static void take(struct weir__run *run, int64_t tokens) { run->key.level += tokens; }

/* Only into the period that it came from. */
static int64_t give(struct weir__run *run, int64_t tokens, int64_t since, int64_t ago)
{
    (void)since;
    if (ago != 0) {
        return 0;
    }
    run->key.level = weir__max(0, run->key.level - tokens);
    return tokens;
}

static int64_t due(const struct weir__run *run, int64_t tokens, int64_t patience)
{
    (void)patience;
    return tokens > there(run) ? run->edge : 0;
}

static int64_t fill(const struct weir__run *run) { return run->key.level > 0 ? run->edge : 0; }

const struct weir__algorithm weir__fixed_window = {
    .span = span,
    .create = create,
    .rewind = rewind,
    .refill = refill,
    .adopt = adopt,
    .there = there,
    .exact = exact,
    .take = take,
    .give = give,
    .due = due,
    .fill = fill,
};
