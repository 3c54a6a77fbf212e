/* SPDX-License-Identifier: MIT */
/*
 * The leaky bucket as a queue: every admission is a slot, and slots leave at the rate.  It is
 * lua/leaky_bucket.lua in C, to the last unit.
 *
 *     level  the slots free, in units; a slot taken now leaves after `fill`, when all that were
 *            taken before it have left
 *
 * As a meter the leaky bucket is the token bucket, its level counted from the other end (water =
 * full - level), and so it is GCRA (the theoretical arrival time is t + fill).  The queue differs
 * in three things only: what is taken now has a time of its own, the queue has an end, beyond which
 * nothing can be reserved, and a slot cannot be given back, since whoever came after it has been
 * told its time already.
 *
 * Invariants: those of core/algorithms/token_bucket; the level is below 0 only where a shorter or
 * faster queue was made of one that held more.
 */
#include "core/algorithms/algorithm.h"

#include "base/num.h"

static int64_t exact(const struct weir__run *run, int64_t tokens, int64_t patience)
{
    int64_t wait = weir__token_bucket_fill(run);
    bool fits = tokens * run->key.rule.units_per_token <= run->key.level;
    return fits && wait <= patience ? wait : -1;
}

/* R11: who is in the queue leaves when it was told, so it is this time that is kept, and not the
 * slots that are free; up to what the new units can hold. */
static bool adopt(struct weir__run *run, const struct weir__rule *rule)
{
    struct weir__global *key = &run->key;
    const struct weir__rule *old = &key->rule;
    int64_t full = rule->capacity * rule->units_per_token;
    if (rule->tick_us == old->tick_us && rule->units_per_tick == old->units_per_tick &&
        rule->units_per_token == old->units_per_token) {
        key->level += full - old->capacity * old->units_per_token;
        return true;
    }
    int64_t time = weir__token_bucket_fill(run);
    int64_t ticks = weir__min(time / rule->tick_us,
                              (WEIR__INT53_MAX - full) / rule->units_per_tick - 1);
    int64_t idle = weir__max(0, (ticks + 1) * rule->tick_us - time);
    key->level = full - (ticks + 1) * rule->units_per_tick +
                 weir__mul_div(idle, rule->units_per_tick, rule->tick_us);
    key->stamp_us = run->t;
    return true;
}

static int64_t give(struct weir__run *run, int64_t tokens, int64_t since, int64_t ago)
{
    (void)run;
    (void)tokens;
    (void)since;
    (void)ago;
    return 0;
}

/* Until there is room in the queue, and it is short enough for the asker's patience. */
static int64_t due(const struct weir__run *run, int64_t tokens, int64_t patience)
{
    int64_t room = weir__token_bucket_due(run, tokens, patience);
    return weir__max(room, weir__token_bucket_fill(run) - patience);
}

const struct weir__algorithm weir__leaky_queue = {
    .span = weir__token_bucket_span,
    .create = weir__token_bucket_create,
    .rewind = weir__token_bucket_rewind,
    .refill = weir__token_bucket_refill,
    .adopt = adopt,
    .there = weir__token_bucket_there,
    .exact = exact,
    .take = weir__token_bucket_take,
    .give = give,
    .due = due,
    .fill = weir__token_bucket_fill,
    .slots = true,
};
