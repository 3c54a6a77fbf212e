/* SPDX-License-Identifier: MIT */
/*
 * The sliding window counter: two counts, of this period and of the one before, and of the latter
 * only the part that a window of one period's length still covers, as if its admissions had been
 * spread evenly.  It is lua/sliding_counter.lua in C, to the last token.
 *
 *     level  used in the period that began at stamp
 *     extra  used in the one before
 *
 *     admitted while   extra * (period - e) / period + level + tokens <= capacity,   e = t - stamp
 *
 * The first term is rounded up.  Periods are half-open and aligned to the epoch.
 * Invariant after each refill: stamp = start <= t < start + period, edge = start + period - t.
 */
#include "core/algorithms/algorithm.h"

#include "base/num.h"

/* The period that holds t. */
static void enter(struct weir__run *run, const struct weir__rule *rule)
{
    int64_t e = run->t % rule->period_us;
    run->start = run->t - e;
    run->edge = rule->period_us - e;
}

/* Of the period before, what still counts. */
static int64_t carried(const struct weir__run *run)
{
    const struct weir__global *key = &run->key;
    return key->extra - weir__mul_div(run->t - key->stamp_us, key->extra, key->rule.period_us);
}

/* How far into a period all but `room` of the period before it has ceased to count.
 * 0 <= room < before. */
static int64_t ebb(int64_t period_us, int64_t before, int64_t room)
{
    weir__u128 share = (weir__u128)(uint64_t)(before - room) * (uint64_t)period_us;
    uint64_t of = (uint64_t)before;
    return (int64_t)((share + of - 1) / of);
}

static int64_t span(const struct weir__rule *rule) { return 2 * rule->period_us; }

/* Learning is to start as if all along just as much had been used as the rate allows. */
static void create(struct weir__run *run, int64_t tokens)
{
    struct weir__global *key = &run->key;
    int64_t capacity = key->rule.capacity;
    enter(run, &key->rule);
    key->stamp_us = run->start;
    if (tokens == WEIR__CREATE_LEARNING) {
        key->level = weir__mul_div(run->t - key->stamp_us, capacity, key->rule.period_us);
        key->extra = capacity;
    } else {
        key->level = capacity - tokens;
        key->extra = 0;
    }
}

static void rewind(struct weir__run *run)
{
    enter(run, &run->key.rule);
    run->key.stamp_us = run->start;
}

static void refill(struct weir__run *run)
{
    struct weir__global *key = &run->key;
    enter(run, &key->rule);
    if (run->start > key->stamp_us) {
        key->extra = run->start - key->stamp_us == key->rule.period_us ? key->level : 0;
        key->level = 0;
        key->stamp_us = run->start;
    }
}

/* R11: what was used stays used. */
static bool adopt(struct weir__run *run, const struct weir__rule *rule)
{
    struct weir__global *key = &run->key;
    if (rule->period_us != key->rule.period_us) {
        key->level += carried(run);
        key->extra = 0;
        enter(run, rule);
        key->stamp_us = run->start;
    }
    return true;
}

static int64_t there(const struct weir__run *run)
{
    return run->key.rule.capacity - run->key.level - carried(run);
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
    struct weir__global *key = &run->key;
    if (ago == 0) {
        key->level = weir__max(0, key->level - tokens);
    } else if (ago == 1) {
        key->extra = weir__max(0, key->extra - tokens);
    } else {
        return 0;
    }
    return tokens;
}

/* In this period, when enough of the one before has ceased to count; or in the next, when enough of
 * this one has. */
static int64_t due(const struct weir__run *run, int64_t tokens, int64_t patience)
{
    (void)patience;
    const struct weir__global *key = &run->key;
    int64_t period_us = key->rule.period_us;
    if (tokens <= there(run)) {
        return 0;
    }
    int64_t room = key->rule.capacity - tokens;
    int64_t at = key->level <= room ? ebb(period_us, key->extra, room - key->level)
                                    : period_us + ebb(period_us, key->level, room);
    return key->stamp_us + at - run->t;
}

static int64_t fill(const struct weir__run *run)
{
    const struct weir__global *key = &run->key;
    int64_t at = key->level > 0   ? 2 * key->rule.period_us
                 : key->extra > 0 ? key->rule.period_us
                                  : 0;
    return at > 0 ? key->stamp_us + at - run->t : 0;
}

const struct weir__algorithm weir__sliding_counter = {
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
