/* SPDX-License-Identifier: MIT */
/*
 * The global token bucket in C: lua/token_bucket.lua, step by step and to the last unit.  Tests
 * run both on the same asks and compare every number, so a change here is a change there.  In
 * this process it is the store; the rules (R0-R14) and their proof are in docs/protocol.md.
 *
 * Invariants, before and after each ask:
 *
 *     level <= full = capacity * b          full - level < 2^53
 *     0 <= out_cur, out_prev                has_account  <=>  budget > 0 or out_cur + out_prev > 0
 *     level + a * (t - stamp) / tick <= full         t - stamp < tick
 *
 * The last line is what makes whole ticks safe: what a flowing time would have spilled over the
 * rim is not brought again by the next tick.
 *
 * The order of an ask: time (R2), refill (R0), a newer rule (R11), windows (R3), what is settled
 * and given back (R5, R10), what waiters need (R9, R12), what is leased (R3, R14), the answer,
 * the expiry (R4).  A look runs the same steps on a copy, without those that move tokens. 
 * Nothing here can fail.
 */
#include "core/algorithms/token_bucket.h"

#include "base/num.h"

/* One ask under way: the state it works on and the time it runs at. */
struct run {
    struct weir__token_bucket key;
    int64_t t; /* store time, never behind what the key has seen */
};

/* a / b rounded down, for b > 0 and any a. */
static int64_t div_floor(int64_t a, int64_t b) { return a / b - (a % b < 0); }

static int64_t full_of(const struct weir__rule *rule)
{
    return rule->capacity * rule->units_per_token;
}

/* Microseconds, in whole ticks, in which `units` accrue; for ever is 285 years.  units >= 0. */
static int64_t span_us(const struct weir__rule *rule, int64_t units)
{
    int64_t ticks = weir__div_up(units, rule->units_per_tick);
    return ticks > WEIR__INT53_MAX / rule->tick_us ? WEIR__INT53_MAX : ticks * rule->tick_us;
}

/* Microseconds from the stamp until the bucket is full: whole ticks, and of the last one only the
 * part in which a flowing time would have filled it. */
static int64_t fill_time_us(const struct weir__token_bucket *key)
{
    const struct weir__rule *rule = &key->rule;
    int64_t missing = full_of(rule) - key->level;
    int64_t ticks = missing / rule->units_per_tick;
    int64_t rest = missing % rule->units_per_tick;
    if (ticks > WEIR__INT53_MAX / rule->tick_us) {
        return WEIR__INT53_MAX;
    }
    int64_t part = weir__mul_div(rest, rule->tick_us, rule->units_per_tick) + (rest > 0);
    return weir__min(WEIR__INT53_MAX, ticks * rule->tick_us + part);
}

/* From t until `units` more are there: by whole ticks, or because the bucket is full before. */
static int64_t due_us(const struct run *run, int64_t units)
{
    int64_t us = weir__min(span_us(&run->key.rule, units), fill_time_us(&run->key));
    return us - (run->t - run->key.stamp_us);
}

/* R4: a key that would start anew with less than it holds when full stays on for a while: who asks
 * as rarely as it fills must find it.  10 s, by choice: longer than any client pauses between two
 * asks. */
#define STAY_LEAST_US 10000000

static int64_t stay_of(const struct weir__rule *rule)
{
    bool same = rule->initial >= rule->capacity;
    return same ? 0 : weir__max(span_us(rule, full_of(rule)), STAY_LEAST_US);
}

static void create(struct weir__token_bucket *key, const struct weir__rule *rule, int64_t now_us)
{
    *key = (struct weir__token_bucket){
        .exists = true,
        .rule = *rule,
        .level = rule->initial * rule->units_per_token,
        .stamp_us = now_us,
    };
}

static void close_account(struct weir__token_bucket *key)
{
    key->has_account = false;
    key->seen_us = 0;
    key->cur = key->cur_end_us = key->cur_life_us = key->out_cur = 0;
    key->prev = key->out_prev = 0;
    key->n_cur = key->n_prev = 0;
}

/* R2: a stored time too far ahead of the clock comes from a clock that has since been set back. */
static void tell_time(struct run *run, int64_t now_us)
{
    struct weir__token_bucket *key = &run->key;
    int64_t t = weir__max(now_us, weir__max(key->stamp_us, key->seen_us));
    int64_t patience = weir__max(span_us(&key->rule, full_of(&key->rule)), key->cur_life_us);
    if (t - now_us > patience) {
        key->stamp_us = now_us;
        if (key->has_account) {
            key->cur_end_us = now_us + key->cur_life_us;
        }
        t = now_us;
    }
    run->t = t;
}

/* R0: whole ticks only, until the bucket is full. */
static void refill(struct run *run)
{
    struct weir__token_bucket *key = &run->key;
    int64_t gap_us = run->t - key->stamp_us;
    if (gap_us >= fill_time_us(key)) {
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
static void adopt(struct run *run, const struct weir__rule *asked)
{
    struct weir__token_bucket *key = &run->key;
    int64_t old_b = key->rule.units_per_token;
    int64_t new_b = asked->units_per_token;
    int64_t whole = div_floor(key->level, old_b);
    if (asked->version <= key->rule.version ||
        -whole > (WEIR__INT53_MAX - full_of(asked)) / new_b) {
        return;
    }
    if (whole >= asked->capacity) {
        key->level = full_of(asked);
    } else {
        key->level = whole * new_b + weir__mul_div(key->level - whole * old_b, new_b, old_b);
    }
    if (asked->tick_us != key->rule.tick_us || new_b != old_b ||
        asked->units_per_tick != key->rule.units_per_tick) {
        key->stamp_us = run->t;
    }
    key->rule = *asked;
}

/* R3: a window ends when the first ask at or after its end comes. */
static void turn_window(struct run *run)
{
    struct weir__token_bucket *key = &run->key;
    int64_t t = run->t;
    int64_t length = key->rule.window_us;
    if (key->has_account && t >= key->cur_end_us) {
        bool dead = t >=
                    key->cur_end_us + key->cur_life_us; /* every lease of cur is dead as well */
        key->prev = key->cur;
        key->out_prev = dead ? 0 : key->out_cur;
        key->n_prev = dead ? 0 : key->n_cur;
        key->cur = weir__max(t, key->cur + 1);
        key->cur_end_us = t + weir__max(key->cur_life_us, length);
        key->cur_life_us = length;
        key->out_cur = key->n_cur = 0;
    } else if (!key->has_account && key->rule.budget > 0) {
        key->has_account = true;
        key->cur = t;
        key->cur_end_us = t + length;
        key->cur_life_us = length;
        key->prev = WEIR__NO_WINDOW;
    }
}

static void lift(struct weir__token_bucket *key, int64_t tokens)
{
    int64_t units = weir__min(tokens, key->rule.capacity) * key->rule.units_per_token;
    int64_t full = full_of(&key->rule);
    key->level = units < full - key->level ? key->level + units : full;
}

/* R5: rows of live windows only; never more comes back than is out.  R10: refunds.
 * R12: while the level is reserved ahead only time lifts it, and what comes back is lost. */
static void settle(struct weir__token_bucket *key, const struct weir__ask *ask,
                   struct weir__grant *grant)
{
    bool owing = key->level < 0;
    for (int i = 0; i < WEIR__SETTLE_ROWS; i++) {
        const struct weir__settle *row = &ask->settle[i];
        bool in_cur = row->window == key->cur;
        if (!key->has_account || row->window == WEIR__NO_WINDOW ||
            (!in_cur && row->window != key->prev)) {
            continue;
        }
        int64_t *out = in_cur ? &key->out_cur : &key->out_prev;
        int64_t back = weir__min(row->back, *out);
        *out = weir__max(0, *out - back - row->spent);
        if (!owing) {
            lift(key, back);
        }
    }
    if (ask->refund > 0 && !owing) {
        grant->refunded = ask->refund;
        lift(key, ask->refund);
    }
}

/* R9, R12: the waiters' part, all or nothing and outside the budget; now, or reserved ahead. */
static void grant_exact(struct run *run, const struct weir__ask *ask, struct weir__grant *grant)
{
    struct weir__token_bucket *key = &run->key;
    if (ask->exact <= 0 || ask->exact > key->rule.capacity) {
        return;
    }
    int64_t units = ask->exact * key->rule.units_per_token;
    int64_t short_units = units - key->level;
    if (short_units > 0) {
        int64_t wait_us = due_us(run, short_units);
        if (short_units > WEIR__INT53_MAX - full_of(&key->rule) ||
            wait_us > weir__min(ask->wait_us, key->rule.max_wait_us)) {
            return;
        }
        grant->wait_us = wait_us;
    }
    grant->exact = ask->exact;
    key->level -= units;
}

/* R3, R14: inside the budget, and at most half of what is free of it. */
static void grant_lease(struct weir__token_bucket *key, const struct weir__ask *ask,
                        struct weir__grant *grant)
{
    int64_t least = weir__max(1, ask->least);
    int64_t room = key->rule.budget - key->out_cur - key->out_prev;
    int64_t share = weir__max(div_floor(room - ask->held, 2), least);
    int64_t there = div_floor(key->level, key->rule.units_per_token);
    int64_t lease = weir__min(weir__min(ask->want, there), weir__min(room, share));
    if (lease < least) {
        return;
    }
    grant->lease = lease;
    key->level -= lease * key->rule.units_per_token;
    key->out_cur += lease;
}

/* The numbers of the answer; a stored time ahead of the clock by `ahead_us` has to pass first. */
static void answer(const struct run *run, const struct weir__ask *ask, int64_t fill_us,
                   int64_t ahead_us, struct weir__grant *grant)
{
    const struct weir__token_bucket *key = &run->key;
    const struct weir__rule *rule = &key->rule;
    int64_t wanted = weir__min(weir__max(weir__max(1, ask->least), ask->exact), rule->capacity);
    int64_t short_units = wanted * rule->units_per_token - key->level;
    if (ask->exact > rule->capacity) {
        grant->retry_after_us = -1;
    } else if (grant->lease == 0 && grant->exact == 0 && short_units > 0) {
        grant->retry_after_us = weir__min(WEIR__INT53_MAX, due_us(run, short_units) + ahead_us);
    }
    grant->reset_after_us = fill_us > 0 ? weir__min(WEIR__INT53_MAX, fill_us + ahead_us) : 0;
    grant->remaining = weir__max(0, div_floor(key->level, rule->units_per_token));
    grant->window = key->has_account ? key->cur : WEIR__NO_WINDOW;
    grant->life_us = key->cur_life_us * 3 / 4; /* R6 */
    grant->processes = weir__max(key->n_cur, key->n_prev);
    grant->outstanding = key->out_cur + key->out_prev;
    grant->version = rule->version;
}

void weir__token_bucket_ask(struct weir__token_bucket *bucket, const struct weir__rule *rule,
                            const struct weir__ask *ask, int64_t now_us, struct weir__grant *grant)
{
    if (now_us >= bucket->expires_us) {
        bucket->exists = false; /* for good, even if the clock goes back */
    }
    struct run run = {.key = *bucket};
    struct weir__token_bucket *key = &run.key;
    *grant = (struct weir__grant){.lease = 0};
    if (!key->exists) {
        create(key, rule, now_us);
    }
    tell_time(&run, now_us);
    refill(&run);
    adopt(&run, rule);
    turn_window(&run);
    if (!ask->peek) {
        settle(key, ask, grant);
    }
    refill(&run); /* what came back, or a lower capacity, may have filled it within a tick */
    if (!ask->peek) {
        grant_exact(&run, ask, grant);
        grant_lease(key, ask, grant);
        key->n_cur += key->has_account && ask->heard != key->cur; /* R13 */
    }
    if (key->rule.budget == 0 && key->out_cur + key->out_prev == 0) {
        close_account(key);
    }
    if (key->has_account) {
        key->seen_us = run.t;
    }
    int64_t ahead_us = run.t - now_us;
    int64_t fill_us = due_us(&run, full_of(&key->rule) - key->level);
    answer(&run, ask, fill_us, ahead_us, grant);
    if (ask->peek) {
        return;
    }
    /* R4: whole milliseconds, rounded up, and one more: a server counts from the one it is in */
    int64_t hold_us = key->cur_end_us + key->cur_life_us - run.t;
    int64_t stay_us = stay_of(&key->rule);
    int64_t life_us = weir__max(1, weir__max(fill_us + stay_us, hold_us)) + ahead_us;
    life_us = weir__min(WEIR__INT53_MAX, life_us);
    key->expires_us = now_us + (weir__div_up(life_us, 1000) + 1) * 1000;
    *bucket = *key;
}
