/* SPDX-License-Identifier: MIT */
/*
 * The promise as a bucket.  What it holds at a time is the least, over all intervals that end
 * there, of
 *
 *     C + E + r * length + terms of the faults that reach the interval - admissions in it
 *
 * An interval that begins now has C + E and the terms that still reach it: this is the capacity.  A
 * rule with other units per token fits in as long as UNITS_MORE is a multiple of how many times
 * more it has.
 */
#include "sim/promise.h"

#include <assert.h>

#include "base/num.h"

#define UNITS_MORE 12

static int64_t rate_units(const struct promise *promise, const struct weir__rule *rule)
{
    int64_t per_token = rule->units_per_token * rule->tick_us;
    assert(promise->per_token % per_token == 0);
    return rule->units_per_tick * (promise->per_token / per_token);
}

static int64_t full(const struct promise *promise)
{
    int64_t tokens = promise->capacity + promise->budget;
    for (unsigned i = 0; i < promise->raise_count; i++) {
        tokens += promise->raises[i].tokens;
    }
    return tokens * promise->per_token + promise->tick_units;
}

static void clip(struct promise *promise)
{
    promise->content = weir__min(promise->content, full(promise));
}

static void put_in_force(struct promise *promise, const struct weir__rule *rule)
{
    promise->per_us = rate_units(promise, rule);
    promise->capacity = rule->capacity;
    promise->budget = rule->budget;
    promise->version = rule->version;
    if (rule->max_wait_us > 0) {
        promise->tick_units = weir__max(promise->tick_units, promise->per_us * rule->tick_us);
    }
}

void promise_init(struct promise *promise, const struct weir__rule *rule, int64_t now_us)
{
    promise->per_token = rule->units_per_token * rule->tick_us * UNITS_MORE;
    promise->tick_units = 0;
    put_in_force(promise, rule);
    promise->now_us = now_us;
    promise->worst = 0;
    promise->raise_count = promise->due_count = 0;
    promise->content = full(promise);
}

static void flow(struct promise *promise, int64_t now_us)
{
    if (now_us <= promise->now_us) {
        return;
    }
    promise->content += (now_us - promise->now_us) * promise->per_us;
    promise->now_us = now_us;
    unsigned kept = 0;
    for (unsigned i = 0; i < promise->raise_count; i++) {
        if (promise->raises[i].at_us > now_us) {
            promise->raises[kept++] = promise->raises[i];
        }
    }
    promise->raise_count = kept;
    clip(promise);
}

static void take(struct promise *promise, int64_t tokens)
{
    promise->content -= tokens * promise->per_token;
    promise->worst = weir__min(promise->worst, promise->content);
}

void promise_advance(struct promise *promise, int64_t now_us)
{
    while (promise->due_count > 0) {
        unsigned first = 0;
        for (unsigned i = 1; i < promise->due_count; i++) {
            if (promise->due[i].at_us < promise->due[first].at_us) {
                first = i;
            }
        }
        struct promise_item item = promise->due[first];
        if (item.at_us > now_us) {
            break;
        }
        promise->due[first] = promise->due[--promise->due_count];
        flow(promise, item.at_us);
        take(promise, item.tokens);
    }
    flow(promise, now_us);
}

void promise_admit(struct promise *promise, int64_t tokens, int64_t now_us)
{
    promise_advance(promise, now_us);
    take(promise, tokens);
}

void promise_admit_at(struct promise *promise, int64_t tokens, int64_t at_us, int64_t now_us)
{
    promise_advance(promise, now_us);
    assert(promise->due_count < PROMISE_DUE_MAX);
    promise->due[promise->due_count++] = (struct promise_item){tokens, at_us};
}

void promise_refund(struct promise *promise, int64_t tokens, int64_t now_us)
{
    promise_advance(promise, now_us);
    promise->content += tokens * promise->per_token;
    clip(promise);
}

static void raise(struct promise *promise, int64_t tokens, int64_t until_us)
{
    struct promise_item *last = &promise->raises[PROMISE_RAISES_MAX - 1];
    /* the longer time for both is the mild side */
    if (promise->raise_count == PROMISE_RAISES_MAX) {
        last->tokens += tokens;
        last->at_us = weir__max(last->at_us, until_us);
        return;
    }
    promise->raises[promise->raise_count++] = (struct promise_item){tokens, until_us};
}

void promise_allow(struct promise *promise, int64_t tokens, int64_t until_us, int64_t now_us)
{
    promise_advance(promise, now_us);
    raise(promise, tokens, until_us);
    promise->content += tokens * promise->per_token;
    clip(promise);
}

void promise_change(struct promise *promise, const struct weir__rule *rule, bool anew,
                    int64_t until_us, int64_t now_us)
{
    promise_advance(promise, now_us);
    int64_t more = rule->capacity - promise->capacity;
    if (promise->budget > rule->budget) {
        raise(promise, promise->budget - rule->budget, until_us);
    }
    put_in_force(promise, rule);
    if (anew && more > 0) {
        promise->content += more * promise->per_token;
    }
    clip(promise);
}

int64_t promise_reserved(const struct promise *promise)
{
    int64_t tokens = 0;
    for (unsigned i = 0; i < promise->due_count; i++) {
        tokens += promise->due[i].tokens;
    }
    return tokens;
}

int64_t promise_units(const struct promise *promise, const struct weir__rule *rule, int64_t us)
{
    return rate_units(promise, rule) * us;
}

int64_t promise_excess(const struct promise *promise)
{
    return weir__div_up(-promise->worst, promise->per_token);
}
