/* SPDX-License-Identifier: MIT */

/*
 * Callers who wait for tokens.
 *
 * Path of a token: weir_acquire found too little -> weir__engine_wait -> either credit comes
 * (core/leases) and weir__queue_serve takes it, or an ask carries the cost as its exact part
 * (core/exchange) and weir__queue_deliver hands over what the store granted for it, at once or at a
 * reserved time.
 *
 * Invariants: a waiter is in its bucket's line, or reserved, or done; it is in the heap of
 * deadlines unless it is done; it becomes done once.  The covered are at the head of the line.
 *
 * In order: only the head of the line is served, so a large cost is not overtaken by small ones
 * behind it.  A refusal that is certain is told at once: the time at which the tokens ahead of a
 * waiter and its own will have accrued, if nobody else takes any, is the earliest possible; if that
 * is later than the waiter can use, no more asking helps.
 *
 * Failures: an ask that is lost leaves its waiters in line, and each is answered by its deadline at
 * the latest.  Tokens granted for a waiter that has left meanwhile go back to the store (R10).
 */

#include "core/queue.h"

#include "base/check.h"
#include "base/num.h"
#include "core/exchange.h"
#include "core/rule.h"

static void wait_less(struct weir__engine *engine, struct weir__bucket *bucket)
{
    WEIR__ASSERT(bucket->waiting > 0 && engine->waiters > 0);
    bucket->waiting--;
    engine->waiters--;
    if (bucket->waiting == 0) {
        (void)weir__and_acq_rel(&bucket->gate, ~WEIR__GATE_QUEUED);
    }
}

static void answer(struct weir__engine *engine, struct weir__waiter *waiter,
                   enum weir__verdict verdict, enum weir__reason reason, int64_t retry_after_us)
{
    waiter->verdict = verdict;
    waiter->reason = reason;
    waiter->retry_after_us = retry_after_us;
    weir__list_append(&engine->done, &waiter->line);
}

void weir__queue_finish(struct weir__engine *engine, struct weir__waiter *waiter,
                        enum weir__verdict verdict, enum weir__reason reason,
                        int64_t retry_after_us)
{
    weir__list_remove(&waiter->line);
    weir__heap_remove(&engine->deadlines, &waiter->deadline);
    waiter->bucket->hasty -= waiter->hasty;
    wait_less(engine, waiter->bucket);
    answer(engine, waiter, verdict, reason, retry_after_us);
}

void weir__queue_finish_all(struct weir__engine *engine, struct weir__bucket *bucket,
                            enum weir__verdict verdict, enum weir__reason reason,
                            int64_t retry_after_us)
{
    struct weir__waiter *waiter;
    while ((waiter = weir__queue_first(bucket)) != NULL) {
        weir__queue_finish(engine, waiter, verdict, reason, retry_after_us);
    }
}

void weir__queue_serve(struct weir__engine *engine, struct weir__bucket *bucket)
{
    struct weir__waiter *waiter;
    while ((waiter = weir__queue_first(bucket)) != NULL) {
        bool served = waiter->cost == 0 ? weir__load_relaxed(&bucket->credit) > 0
                                        : weir__bucket_take(bucket, waiter->cost);
        if (!served) {
            return;
        }
        bucket->served_credit += waiter->cost;
        weir__queue_finish(engine, waiter, WEIR__ALLOWED, WEIR__REASON_WITHIN_LIMIT, 0);
    }
}

static void spend_exact(struct weir__engine *engine, struct weir__bucket *bucket, int64_t tokens)
{
    bucket->served_exact += tokens;
    engine->counts.exact_spent += (uint64_t)tokens;
}

/* R12: the tokens are ours `wait` after the script ran.  Our clock starts at the reply, which is
 * later, and runs wait / 32 longer, since it may be fast.  Nobody is let go before one who was
 * ahead, whose reply may have been slower, but for the sake of a deadline. */
static void reserve(struct weir__engine *engine, struct weir__waiter *waiter, int64_t wait_us,
                    int64_t now_us)
{
    struct weir__bucket *bucket = waiter->bucket;
    weir__list_remove(&waiter->line);
    waiter->reserved = true;
    int64_t due_us = now_us + wait_us + wait_us / 32 + 1;
    due_us = weir__max(due_us, weir__min(bucket->reserved_us + 1, waiter->until_us));
    bucket->reserved_us = weir__max(bucket->reserved_us, due_us);
    weir__heap_update(&engine->deadlines, &waiter->deadline, due_us);
}

/* When `need` tokens will be in the store if nobody else takes any: not before `least_us`, surely
 * by `surely_us`.  The store answers to the microsecond for what was asked, and in whole tokens for
 * the rest. */
struct span {
    int64_t least_us, surely_us;
};

/* All that is used comes back by the reset, and of a fixed window none before; what was asked for
 * by the time that was told, and less with it.  Where none was told the rate makes a guess, at
 * which to ask again: nobody is refused by it, since the least is 0. */
static struct span time_of_periods(const struct weir__rule *rule, const struct weir__grant *grant,
                                   int64_t asked, int64_t need)
{
    int64_t reset_us = grant->reset_after_us;
    int64_t retry_us = grant->retry_after_us;
    if (rule->algorithm == WEIR__FIXED_WINDOW) {
        return (struct span){reset_us, reset_us};
    }
    if (retry_us <= 0) {
        int64_t guess_us = weir__rule_time_us(rule, need - grant->remaining);
        return (struct span){0, weir__min(guess_us, reset_us)};
    }
    return need < asked ? (struct span){0, retry_us} : (struct span){retry_us, reset_us};
}

static struct span time_of(const struct weir__rule *rule, const struct weir__grant *grant,
                           int64_t asked, int64_t need)
{
    if (need <= grant->remaining) {
        return (struct span){0, 0};
    }
    if (need == asked && grant->retry_after_us > 0) {
        return (struct span){grant->retry_after_us, grant->retry_after_us};
    }
    if (weir__rule_has_periods(rule)) {
        return time_of_periods(rule, grant, asked, need);
    }
    return (struct span){
        .least_us = weir__rule_time_us(rule, need - grant->remaining - 1),
        .surely_us = weir__rule_time_us(rule, need - grant->remaining),
    };
}

/* The store is short.  Tells it to everyone for whom that is certain, and when to ask for the
 * others. */
static void refuse(struct weir__engine *engine, struct weir__bucket *bucket, int64_t asked,
                   const struct weir__grant *grant, int64_t now_us)
{
    const struct weir__rule *rule = &bucket->limit->rule;
    int64_t ahead = 0;
    int64_t first_us = -1;
    struct weir__waiter *next;

    for (struct weir__waiter *w = weir__queue_first(bucket); w != NULL; w = next) {
        next = weir__queue_after(bucket, w);
        int64_t need = weir__add_sat(ahead, weir__max(w->cost, 1));
        struct span span = time_of(rule, grant, asked, need);
        int64_t left_us = w->until_us - now_us;
        w->refused = true;
        if (span.least_us > weir__max(left_us, 0)) {
            weir__queue_finish(engine, w, WEIR__DENIED, WEIR__REASON_OVER_LIMIT, span.surely_us);
            continue;
        }
        ahead = need;
        if (first_us < 0) {
            first_us = span.surely_us <= left_us ? span.surely_us : span.least_us;
        }
    }
    bucket->exact_after_us = weir__add_sat(now_us, weir__max(first_us, 0));
}

/* The exact part is above the capacity in force, which may be lower than ours (R11). */
static void refuse_for_ever(struct weir__engine *engine, struct weir__bucket *bucket)
{
    struct weir__waiter *first = weir__queue_first(bucket);
    struct weir__waiter *second = first == NULL ? NULL : weir__queue_after(bucket, first);
    if (first == NULL || !first->covered) {
        return;
    }
    if (second != NULL && second->covered) {
        bucket->alone = true; /* together they are too much; each may fit */
        return;
    }
    weir__queue_finish(engine, first, WEIR__DENIED, WEIR__REASON_COST_ABOVE_CAPACITY,
                       WEIR__TIME_NEVER);
}

/* The queue is full, or its end too far away.  It gets no shorter for those who wait, since no slot
 * comes back. */
static void refuse_slots(struct weir__engine *engine, struct weir__bucket *bucket,
                         const struct weir__ask *ask, const struct weir__grant *grant)
{
    /* A lease that came instead leaves it unsaid, and has made the queue longer. */
    int64_t retry_us = grant->retry_after_us;
    retry_us = retry_us > 0 ? retry_us : weir__max(1, grant->reset_after_us - ask->wait_us);
    struct weir__waiter *first = weir__queue_first(bucket);
    struct weir__waiter *second = first == NULL ? NULL : weir__queue_after(bucket, first);
    bucket->alone = second != NULL &&
                    second->covered; /* together they are too much; each may fit */
    if (first != NULL && first->covered && !bucket->alone) {
        weir__queue_finish(engine, first, WEIR__DENIED, WEIR__REASON_OVER_LIMIT, retry_us);
    }
}

/* The line here is no second queue: who finds no room in the store's is told so. */
static void refuse_beyond(struct weir__engine *engine, struct weir__bucket *bucket,
                          const struct weir__grant *grant)
{
    const struct weir__rule *rule = &bucket->limit->rule;
    int64_t need = 0;
    struct weir__waiter *next;
    for (struct weir__waiter *w = weir__queue_first(bucket); w != NULL; w = next) {
        next = weir__queue_after(bucket, w);
        need = weir__add_sat(need, w->cost);
        if (need > grant->remaining) {
            weir__queue_finish(engine, w, WEIR__DENIED, WEIR__REASON_OVER_LIMIT,
                               weir__rule_time_us(rule, need - grant->remaining));
        }
    }
}

static void answer_look(struct weir__engine *engine, struct weir__waiter *waiter,
                        const struct weir__grant *grant)
{
    bool allowed = grant->remaining > 0 || weir__load_relaxed(&waiter->bucket->credit) > 0;
    if (allowed) {
        weir__queue_finish(engine, waiter, WEIR__ALLOWED, WEIR__REASON_WITHIN_LIMIT, 0);
    } else {
        weir__queue_finish(engine, waiter, WEIR__DENIED, WEIR__REASON_OVER_LIMIT,
                           grant->retry_after_us);
    }
}

void weir__queue_deliver(struct weir__engine *engine, struct weir__bucket *bucket,
                         const struct weir__ask *ask, const struct weir__grant *grant, bool late,
                         int64_t now_us)
{
    if (late) {
        engine->counts.exact_void += (uint64_t)grant->exact;
        weir__queue_uncover(bucket);
        return;
    }
    bool slots = weir__rule_has_slots(&bucket->limit->rule);
    if (ask->exact > 0 && grant->exact == 0 && grant->retry_after_us < 0) {
        refuse_for_ever(engine, bucket);
    } else if (ask->exact > 0 && grant->exact == 0 && slots) {
        refuse_slots(engine, bucket, ask, grant);
    }

    int64_t surplus = grant->exact;
    struct weir__waiter *next;
    for (struct weir__waiter *w = weir__queue_first(bucket); w != NULL && w->covered; w = next) {
        next = weir__queue_after(bucket, w);
        w->covered = false;
        /* In a queue each leaves when those before it have. */
        int64_t behind_us = slots ? weir__rule_time_us(&bucket->limit->rule, grant->exact - surplus)
                                  : 0;
        if (w->cost == 0) {
            answer_look(engine, w, grant);
        } else if (grant->exact > 0 && grant->wait_us + behind_us > 0) {
            surplus -= w->cost;
            reserve(engine, w, grant->wait_us + behind_us, now_us);
        } else if (grant->exact > 0) {
            surplus -= w->cost;
            spend_exact(engine, bucket, w->cost);
            weir__queue_finish(engine, w, WEIR__ALLOWED, WEIR__REASON_WITHIN_LIMIT, 0);
        }
    }
    WEIR__ASSERT(surplus >= 0);
    bucket->refund += surplus;
    if (grant->exact > 0) {
        bucket->alone = false;
    }
    int64_t asked = weir__max(weir__max(ask->exact, ask->least), 1);
    if (slots) {
        refuse_beyond(engine, bucket, grant);
        return;
    }
    if (ask->exact > 0 && grant->exact == 0 && grant->retry_after_us >= 0) {
        refuse(engine, bucket, asked, grant, now_us);
    } else if (!weir__list_empty(&bucket->waiters) && grant->remaining == 0) {
        refuse(engine, bucket, asked, grant, now_us);
    }
}

void weir__queue_uncover(struct weir__bucket *bucket)
{
    for (struct weir__waiter *w = weir__queue_first(bucket); w != NULL && w->covered;
         w = weir__queue_after(bucket, w)) {
        w->covered = false;
    }
}

/* Nothing came in time.  An ask of its own was refused; or none was sent, since the bucket is known
 * to be short and leases are paced; or the store did not answer. */
static void time_out(struct weir__engine *engine, struct weir__waiter *w, int64_t now_us)
{
    const struct weir__bucket *bucket = w->bucket;
    bool paced = !w->covered && engine->outage.state == WEIR__STORE_UP &&
                 (weir__load_relaxed(&bucket->gate) & WEIR__GATE_REFUSE) != 0;
    if (!w->refused && !paced) {
        weir__queue_finish(engine, w, WEIR__UNAVAILABLE, WEIR__REASON_DEADLINE, WEIR__TIME_UNKNOWN);
        return;
    }
    int64_t at_us = w->refused ? bucket->refused_until_us : bucket->lease_after_us;
    weir__queue_finish(engine, w, WEIR__DENIED, WEIR__REASON_OVER_LIMIT,
                       at_us == WEIR__HINT_UNKNOWN || at_us < now_us ? WEIR__TIME_UNKNOWN
                                                                     : at_us - now_us);
}

void weir__queue_tick(struct weir__engine *engine, int64_t now_us)
{
    struct weir__heap_node *node;
    while ((node = weir__heap_min(&engine->deadlines)) != NULL && node->key <= now_us) {
        struct weir__waiter *w = weir__container(node, struct weir__waiter, deadline);
        struct weir__bucket *bucket = w->bucket;
        if (w->reserved) {
            spend_exact(engine, bucket, w->cost);
            weir__queue_finish(engine, w, WEIR__ALLOWED, WEIR__REASON_WITHIN_LIMIT, 0);
        } else {
            time_out(engine, w, now_us);
        }
        weir__engine_look(engine, bucket, now_us);
    }
}

void weir__engine_wait(struct weir__engine *engine, struct weir__waiter *waiter, int64_t now_us)
{
    struct weir__bucket *bucket = waiter->bucket;
    weir__list_init(&waiter->line);
    weir__heap_node_init(&waiter->deadline);
    waiter->hasty = waiter->covered = waiter->refused = waiter->reserved = false;

    if (engine->closing) {
        answer(engine, waiter, WEIR__UNAVAILABLE, WEIR__REASON_CLOSED, WEIR__TIME_UNKNOWN);
        return;
    }
    if (waiter->cost > bucket->limit->rule.capacity) {
        answer(engine, waiter, WEIR__DENIED, WEIR__REASON_COST_ABOVE_CAPACITY, WEIR__TIME_NEVER);
        return;
    }
    if (engine->waiters >= engine->config.max_waiters) {
        answer(engine, waiter, WEIR__UNAVAILABLE, WEIR__REASON_BUSY, WEIR__TIME_UNKNOWN);
        return;
    }
    weir__exchange_renew(bucket);
    if (!weir__outage_is_down(&engine->outage) &&
        weir__max(waiter->cost, 1) >= bucket->refused_cost &&
        bucket->refused_until_us > weir__max(waiter->until_us, now_us)) {
        answer(engine, waiter, WEIR__DENIED, WEIR__REASON_OVER_LIMIT,
               bucket->refused_until_us - now_us);
        return;
    }
    int64_t horizon_us = weir__policy_horizon_us(&bucket->limit->rule, &engine->rtt);
    waiter->hasty = waiter->until_us - now_us < horizon_us;
    bucket->hasty += waiter->hasty;
    weir__list_append(&bucket->waiters, &waiter->line);
    weir__heap_insert(&engine->deadlines, &waiter->deadline, waiter->answer_us);
    if (bucket->waiting++ == 0) {
        (void)weir__or_acq_rel(&bucket->gate, WEIR__GATE_QUEUED);
    }
    engine->waiters++;
    bucket->arrived += waiter->cost;
    weir__engine_look(engine, bucket, now_us);
}
