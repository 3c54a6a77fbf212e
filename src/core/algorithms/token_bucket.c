/* SPDX-License-Identifier: MIT */
/*
 * The token bucket: tokens accrue at a rate, up to the capacity.  It is lua/token_bucket.lua in C,
 * to the last unit.
 *
 *     level  in units, b of them a token; negative while tokens are reserved ahead
 *     stamp  the level is as of then, and ticks are counted from it
 *
 * Invariants, before and after each ask:
 *
 *     level <= full = capacity * b          full - level < 2^53          full + a < 2^53
 *     level + a * (t - stamp) / tick <= full         t - stamp < tick
 *
 * The last line is what makes whole ticks safe: what a flowing time would have spilled over the
 * rim is not brought again by the next tick.  The others keep every number of the script below
 * 2^53, and here far from where 64 bits end.
 */
#include "core/algorithms/algorithm.h"

#include "base/num.h"

/* a / b rounded down, for b > 0 and any a. */
static int64_t div_floor(int64_t a, int64_t b) { return a / b - (a % b < 0); }

static int64_t full_of(const struct weir__rule *rule)
{
    return rule->capacity * rule->units_per_token;
}

/* Microseconds, in whole ticks, in which `units` accrue; for ever is 285 years.  units >= 0. */
static int64_t span_of(const struct weir__rule *rule, int64_t units)
{
    int64_t ticks = weir__div_up(units, rule->units_per_tick);
    return ticks > WEIR__INT53_MAX / rule->tick_us ? WEIR__INT53_MAX : ticks * rule->tick_us;
}

/* Microseconds from the stamp until the bucket is full: whole ticks, and of the last one only the
 * part in which a flowing time would have filled it. */
static int64_t fill_time(const struct weir__global *key)
{
    const struct weir__rule *rule = &key->rule;
    int64_t missing = full_of(rule) - key->level;
    int64_t ticks = missing / rule->units_per_tick;
    int64_t rest = missing % rule->units_per_tick;
    if (ticks > WEIR__INT53_MAX / rule->tick_us) {
        return WEIR__INT53_MAX;
    }
    int64_t idle = weir__mul_div(rule->units_per_tick - rest, rule->tick_us, rule->units_per_tick);
    int64_t part = rule->tick_us - idle; /* rounded up */
    return weir__min(WEIR__INT53_MAX, ticks * rule->tick_us + part);
}

/* There are no periods, so nothing ends. */
static void enter(struct weir__run *run)
{
    run->start = WEIR__NO_WINDOW;
    run->edge = WEIR__INT53_MAX;
}

int64_t weir__token_bucket_span(const struct weir__rule *rule)
{
    return span_of(rule, full_of(rule));
}

/* Learning is to start without tokens: as if all along just as much had been used as the rate
 * allows. */
void weir__token_bucket_create(struct weir__run *run, int64_t tokens)
{
    enter(run);
    tokens = tokens == WEIR__CREATE_LEARNING ? 0 : tokens;
    run->key.level = tokens * run->key.rule.units_per_token;
    run->key.stamp_us = run->t;
}

void weir__token_bucket_rewind(struct weir__run *run)
{
    enter(run);
    run->key.stamp_us = run->t;
}

/* R0: whole ticks only, until the bucket is full. */
void weir__token_bucket_refill(struct weir__run *run)
{
    struct weir__global *key = &run->key;
    int64_t gap_us = run->t - key->stamp_us;
    enter(run);
    if (gap_us >= fill_time(key)) {
        key->level = full_of(&key->rule);
        key->stamp_us = run->t;
    } else {
        int64_t ticks = gap_us / key->rule.tick_us;
        key->level += ticks * key->rule.units_per_tick;
        key->stamp_us += ticks * key->rule.tick_us;
    }
}

/* R11: the level in the units of a newer rule, rounded down, and never above its capacity.
 * Reservations too deep for the new units keep the old rule until time has lifted the level. */
bool weir__token_bucket_adopt(struct weir__run *run, const struct weir__rule *rule)
{
    struct weir__global *key = &run->key;
    int64_t old_b = key->rule.units_per_token;
    int64_t new_b = rule->units_per_token;
    int64_t whole = div_floor(key->level, old_b);
    if (-whole > (WEIR__INT53_MAX - full_of(rule)) / new_b) {
        return false;
    }
    if (whole >= rule->capacity) {
        key->level = full_of(rule);
    } else {
        key->level = whole * new_b + weir__mul_div(key->level - whole * old_b, new_b, old_b);
    }
    if (rule->tick_us != key->rule.tick_us || new_b != old_b ||
        rule->units_per_tick != key->rule.units_per_tick) {
        key->stamp_us = run->t;
    }
    return true;
}

int64_t weir__token_bucket_there(const struct weir__run *run)
{
    return div_floor(run->key.level, run->key.rule.units_per_token);
}

/* By whole ticks, or because the bucket is full before. */
int64_t weir__token_bucket_due(const struct weir__run *run, int64_t tokens, int64_t patience)
{
    (void)patience;
    const struct weir__global *key = &run->key;
    int64_t missing = tokens * key->rule.units_per_token - key->level;
    if (missing <= 0) {
        return 0;
    }
    return weir__min(span_of(&key->rule, missing), fill_time(key)) - (run->t - key->stamp_us);
}

/* R12: what is not there yet may be reserved. */
static int64_t exact(const struct weir__run *run, int64_t tokens, int64_t patience)
{
    const struct weir__rule *rule = &run->key.rule;
    int64_t missing = tokens * rule->units_per_token - run->key.level;
    int64_t wait = weir__token_bucket_due(run, tokens, patience);
    return missing <= WEIR__INT53_MAX - full_of(rule) && wait <= patience ? wait : -1;
}

void weir__token_bucket_take(struct weir__run *run, int64_t tokens)
{
    run->key.level -= tokens * run->key.rule.units_per_token;
}

/* R12: while the level is reserved ahead only time lifts it, and what comes back is lost. */
static int64_t give(struct weir__run *run, int64_t tokens, int64_t since, int64_t ago)
{
    (void)since;
    (void)ago;
    struct weir__global *key = &run->key;
    if (key->level < 0) {
        return 0;
    }
    int64_t units = weir__min(tokens, key->rule.capacity) * key->rule.units_per_token;
    int64_t full = full_of(&key->rule);
    key->level = units < full - key->level ? key->level + units : full;
    return tokens;
}

int64_t weir__token_bucket_fill(const struct weir__run *run)
{
    return fill_time(&run->key) - (run->t - run->key.stamp_us);
}

const struct weir__algorithm weir__token_bucket = {
    .span = weir__token_bucket_span,
    .create = weir__token_bucket_create,
    .rewind = weir__token_bucket_rewind,
    .refill = weir__token_bucket_refill,
    .adopt = weir__token_bucket_adopt,
    .there = weir__token_bucket_there,
    .exact = exact,
    .take = weir__token_bucket_take,
    .give = give,
    .due = weir__token_bucket_due,
    .fill = weir__token_bucket_fill,
};
