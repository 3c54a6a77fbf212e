/* SPDX-License-Identifier: MIT */

/*
 * What a bucket does while its store is down.
 *
 *     closed    waiters are told UNAVAILABLE; callers tell themselves (api/acquire)
 *     open      waiters are let through; callers let themselves through
 *     local     this process alone is the store, for its share of the rate
 *
 * A store that serves all but one bucket is down for that one.
 *
 * Local: tokens accrue at rate * share from the start of the outage, so an outage brings no burst,
 * up to share * C.  They become credit like a lease, of no window of the store, and are never
 * settled.  Adds share * r * outage, per process, to the promise.
 *
 *     tokens(now) = (now - local_from) * r * share,   taking n moves local_from by n / (r * share)
 */

#include "core/local.h"

#include "base/num.h"
#include "core/exchange.h"
#include "core/queue.h"
#include "core/rule.h"

/* A share before anything was heard from the store: a tenth, by choice. */
#define FIRST_SHARE_PPM (WEIR__PPM / 10)

static int64_t share_ppm(const struct weir__bucket *bucket)
{
    if (bucket->limit->outage_share_ppm > 0) {
        return bucket->limit->outage_share_ppm;
    }
    if (bucket->heard == WEIR__NO_WINDOW) {
        return FIRST_SHARE_PPM;
    }
    return weir__max(WEIR__PPM / bucket->processes, 1);
}

/* How long this process's share takes to bring `tokens`. */
static int64_t share_time_us(const struct weir__bucket *bucket, int64_t tokens)
{
    int64_t time_us = weir__rule_time_us(&bucket->limit->rule, tokens);
    return weir__mul_div(time_us, WEIR__PPM, share_ppm(bucket));
}

static int64_t accrued(struct weir__engine *engine, struct weir__bucket *bucket, int64_t now_us)
{
    const struct weir__rule *rule = &bucket->limit->rule;
    int64_t most = weir__max(weir__mul_div(rule->capacity, share_ppm(bucket), WEIR__PPM), 1);
    int64_t from_us = weir__max(bucket->local_from_us, engine->down_from_us);
    bucket->local_from_us = weir__max(from_us, now_us - share_time_us(bucket, most));
    int64_t part_us = weir__mul_div(weir__max(now_us - bucket->local_from_us, 0), share_ppm(bucket),
                                    WEIR__PPM);
    return weir__min(weir__rule_tokens(rule, part_us), most);
}

static void serve_share(struct weir__engine *engine, struct weir__bucket *bucket, int64_t now_us)
{
    int64_t credit = weir__load_relaxed(&bucket->credit);
    int64_t wanted = -credit;
    for (const struct weir__waiter *w = weir__queue_first(bucket); w != NULL;
         w = weir__queue_after(bucket, w)) {
        wanted = weir__add_sat(wanted, weir__max(w->cost, 1));
    }
    if (bucket->missed && credit == 0) {
        struct weir__plan plan;
        weir__exchange_plan(engine, bucket, &plan, now_us);
        wanted = weir__max(wanted, weir__max(plan.sizes.want, 1));
    }
    int64_t grant = weir__min(accrued(engine, bucket, now_us), wanted);
    if (grant > 0) {
        bucket->local_from_us += share_time_us(bucket, grant);
        int64_t life_us = bucket->limit->rule.window_us * 3 / 4;
        (void)weir__leases_add(&bucket->leases, WEIR__NO_WINDOW, grant, now_us, life_us, now_us);
        weir__demand_granted(&bucket->demand, now_us);
        engine->counts.outage_spent += (uint64_t)grant;
        bucket->missed = false;
        (void)weir__and_acq_rel(&bucket->gate, ~WEIR__GATE_REFUSE);
        weir__queue_serve(engine, bucket);
    } else if (wanted > 0) {
        weir__store_relaxed(&bucket->retry_at_us,
                            weir__add_sat(bucket->local_from_us, share_time_us(bucket, 1)));
        (void)weir__or_acq_rel(&bucket->gate, WEIR__GATE_REFUSE);
    }

    /* Who cannot be served in time by this share alone is told so; the store may be back, but not
     * surely. */
    int64_t ahead = 0;
    struct weir__waiter *next;
    for (struct weir__waiter *w = weir__queue_first(bucket); w != NULL; w = next) {
        next = weir__queue_after(bucket, w);
        int64_t need = weir__add_sat(ahead, weir__max(w->cost, 1));
        int64_t at_us = weir__add_sat(bucket->local_from_us, share_time_us(bucket, need));
        if (at_us > weir__max(w->until_us, now_us)) {
            weir__queue_finish(engine, w, WEIR__DENIED, WEIR__REASON_STORE_DOWN,
                               weir__max(at_us - now_us, 0));
        } else {
            ahead = need;
        }
    }
}

static void let_through(struct weir__engine *engine, struct weir__bucket *bucket)
{
    for (const struct weir__waiter *w = weir__queue_first(bucket); w != NULL;
         w = weir__queue_after(bucket, w)) {
        engine->counts.outage_spent += (uint64_t)w->cost;
    }
    weir__queue_finish_all(engine, bucket, WEIR__ALLOWED, WEIR__REASON_STORE_DOWN, 0);
}

static void turn_away(struct weir__engine *engine, struct weir__bucket *bucket)
{
    weir__queue_finish_all(engine, bucket, WEIR__UNAVAILABLE, WEIR__REASON_STORE_DOWN,
                           WEIR__TIME_UNKNOWN);
}

void weir__local_broken(struct weir__engine *engine, struct weir__bucket *bucket)
{
    if (bucket->limit->outage == WEIR__OUTAGE_OPEN) {
        let_through(engine, bucket);
    } else {
        turn_away(engine, bucket);
    }
}

void weir__local_break(struct weir__bucket *bucket, int64_t now_us)
{
    if ((weir__or_acq_rel(&bucket->gate, WEIR__GATE_BROKEN) & WEIR__GATE_BROKEN) == 0) {
        bucket->local_from_us = weir__max(bucket->local_from_us, now_us);
    }
}

void weir__local_serve(struct weir__engine *engine, struct weir__bucket *bucket, int64_t now_us)
{
    if (bucket->limit->outage != WEIR__OUTAGE_LOCAL) {
        /* Nobody is over a limit now. */
        (void)weir__and_acq_rel(&bucket->gate, ~WEIR__GATE_REFUSE);
    }
    switch (bucket->limit->outage) {
    case WEIR__OUTAGE_OPEN: let_through(engine, bucket); break;
    case WEIR__OUTAGE_CLOSED: turn_away(engine, bucket); break;
    case WEIR__OUTAGE_LOCAL: serve_share(engine, bucket, now_us); break;
    }
}

int64_t weir__local_next_us(const struct weir__engine *engine, const struct weir__bucket *bucket,
                            int64_t now_us)
{
    struct weir__plan plan;
    if (!bucket->missed && weir__list_empty(&bucket->waiters)) {
        return INT64_MAX;
    }
    weir__exchange_plan(engine, bucket, &plan, now_us);
    if (bucket->limit->outage != WEIR__OUTAGE_LOCAL) {
        /* Callers decide by themselves; the loop stays, to be the one who asks when the store is
         * back. */
        return now_us + 2 * plan.sizes.look_us;
    }
    int64_t token_us = weir__add_sat(bucket->local_from_us, share_time_us(bucket, 1));
    return weir__max(token_us, now_us + plan.sizes.look_us);
}
