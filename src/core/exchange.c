/* SPDX-License-Identifier: MIT */

/*
 * One bucket's asks and grants: the state machine of a lease.
 *
 *     observe            what callers took, what they missed
 *     plan               what to ask: lease, exact part, settle rows, refund
 *     next_command       the ask leaves; from here on its settled amounts are gone (R8)
 *     answer | fail      credit and exact tokens, or nothing; and when to ask again
 *
 * Path of a token: demand -> [plan -> next_command] -> core/wire -> store -> core/wire -> [answer]
 * -> credit.
 *
 * Invariants: one ask in flight a bucket; an answer counts only with the serial of that ask; a
 * lease lives from the send of its ask (R6); an exact part is void if its answer took longer than
 * the ask timeout (R9), and never becomes credit.
 *
 * Failures: a lost ask loses its grant, its settle rows and its refund; the store's window forgets
 * what was not settled.  An ask that surely did not run keeps its refund.  Either way the next ask
 * waits a moment, and after several the store counts as down (core/outage).
 */

#include "core/exchange.h"

#include "base/check.h"
#include "base/num.h"
#include "core/local.h"
#include "core/queue.h"
#include "core/rule.h"

/* After a store that refuses for a reason that someone must mend. */
#define REFUSED_PACE_US 250000

/* Waiters of one crowded key ask again no later than this, however many processes there are. */
#define CROWD_MOST_US 1000000

static struct weir__situation situation_of(const struct weir__engine *engine,
                                           const struct weir__bucket *bucket)
{
    return (struct weir__situation){
        .rule = &bucket->limit->rule,
        .rtt = &engine->rtt,
        .demand_per_s = bucket->demand.per_s,
        .processes = bucket->processes,
        .credit = weir__load_relaxed(&bucket->credit) + weir__leases_coming(&bucket->leases),
    };
}

void weir__exchange_forget_paces(struct weir__bucket *bucket)
{
    bucket->lease_after_us = bucket->exact_after_us = 0;
    bucket->refused_cost = INT64_MAX;
    bucket->refused_until_us = WEIR__HINT_UNKNOWN;
    bucket->flight.overtaken = true;
    (void)weir__and_acq_rel(&bucket->gate, ~WEIR__GATE_REFUSE);
}

void weir__exchange_renew(struct weir__bucket *bucket)
{
    if (bucket->paced_version != bucket->limit->rule.version) {
        bucket->paced_version = bucket->limit->rule.version;
        weir__exchange_forget_paces(bucket);
    }
}

void weir__exchange_observe(struct weir__engine *engine, struct weir__bucket *bucket,
                            int64_t now_us)
{
    weir__exchange_renew(bucket);
    /* In process callers lease for themselves, and the books of credit are kept there. */
    int64_t spent = engine->config.leases ? weir__leases_look(&bucket->leases, now_us) : 0;
    int64_t offered = spent - bucket->served_credit + bucket->arrived;
    bucket->admitted += spent + bucket->served_exact;
    if (engine->config.leases) { /* else the store here has counted them */
        /* A log's leases may be older than its period: what they brought goes back here, or not. */
        bool may_be_older = bucket->limit->rule.algorithm == WEIR__SLIDING_LOG;
        bucket->period.admitted += bucket->served_exact + (may_be_older ? 0 : spent);
    }
    bucket->served_exact = bucket->served_credit = bucket->arrived = 0;

    /* Acquire: pairs with the caller's or in weir__bucket_miss; what it saw, we see. */
    uint32_t gate = weir__and_acq_rel(&bucket->gate, ~WEIR__GATE_MISSED);
    bool missed = (gate & WEIR__GATE_MISSED) != 0;
    bucket->missed = bucket->missed || missed;
    if (offered > 0 || missed || bucket->waiting > 0) {
        bucket->busy_us = now_us;
    }

    struct weir__situation situation = situation_of(engine, bucket);
    struct weir__sizes sizes;
    weir__policy_sizes(&sizes, &situation);
    double rate = weir__rule_per_s(situation.rule);
    /* By choice: a first miss asks for 1/64 of the budget, and no process wants more than twice the
     * rate. */
    struct weir__demand_bounds bounds = {
        .first_per_s = rate / 32, .most_per_s = rate * 2, .horizon_us = sizes.horizon_us};
    weir__demand_update(&bucket->demand, offered, missed, &bounds, now_us);
}

/* A cost that leases will hardly ever hold at once. */
static bool first_is_large(const struct weir__bucket *bucket)
{
    const struct weir__waiter *first = weir__queue_first(bucket);
    return first != NULL && first->cost > bucket->limit->rule.budget / 4;
}

/* How many waiters, from the head, the next exact part is for.  As many as the store may have
 * tokens for, by what it last said (less than what it refused) and the rate; at least one; together
 * not above the capacity, or it could never be granted. */
static void plan_exact(const struct weir__bucket *bucket, const struct weir__rtt *rtt,
                       struct weir__plan *plan, int64_t now_us)
{
    const struct weir__rule *rule = &bucket->limit->rule;
    int64_t most = rule->capacity;
    if (bucket->remaining != WEIR__HINT_UNKNOWN) {
        int64_t since_us = weir__max(now_us - bucket->known_us, 0);
        int64_t there = weir__min(bucket->remaining + 1, bucket->refused_cost - 1);
        bool anew = weir__rule_has_periods(rule) && bucket->refused_until_us <= now_us &&
                    bucket->refused_until_us != WEIR__HINT_UNKNOWN;
        /* A fixed window is full then; of the others there is what was refused. */
        int64_t by_now = rule->algorithm == WEIR__FIXED_WINDOW ? most : bucket->refused_cost;
        there = anew ? by_now : weir__add_sat(there, weir__rule_tokens(rule, since_us));
        most = weir__min(most, there);
    }

    bool large = first_is_large(bucket);
    bool slots = weir__rule_has_slots(rule);
    int64_t ahead_us = slots ? weir__max(now_us, bucket->reset_at_us) : 0;
    int64_t until_us = INT64_MAX;
    for (const struct weir__waiter *w = weir__queue_first(bucket); w != NULL;
         w = weir__queue_after(bucket, w)) {
        bool fits = plan->exact + w->cost <= most;
        if (plan->covers > 0 && (!fits || bucket->alone || (large && !plan->sizes.exact))) {
            break;
        }
        /* In a queue each leaves when those before it have, here and in the store. */
        int64_t behind_us = slots ? weir__rule_time_us(rule, plan->exact) : 0;
        if (plan->covers > 0 && w->until_us - behind_us < ahead_us) {
            break;
        }
        until_us = weir__min(until_us, w->until_us - behind_us);
        plan->exact += w->cost;
        plan->covers++;
    }

    /* R12: who can wait, and cannot be served by leases, reserves.  The wait is measured from the
     * reply on, and a little long, so less is asked for. */
    if (plan->exact > 0 && (plan->sizes.exact || large || slots)) {
        int64_t left_us = until_us - now_us - weir__rtt_p99_us(rtt);
        int64_t wait_us = weir__min(weir__max(left_us, 0), rule->max_wait_us);
        plan->wait_us = wait_us - wait_us / 16;
    }
}

void weir__exchange_plan(const struct weir__engine *engine, const struct weir__bucket *bucket,
                         struct weir__plan *plan, int64_t now_us)
{
    struct weir__situation situation = situation_of(engine, bucket);
    *plan = (struct weir__plan){0};
    weir__policy_sizes(&plan->sizes, &situation);
    plan->idle = bucket->waiting == 0 && now_us - bucket->busy_us > plan->sizes.idle_us;

    bool leases = engine->config.leases && !engine->closing && !plan->idle &&
                  situation.rule->budget > 0 && now_us >= bucket->lease_after_us;
    if (leases && !plan->sizes.exact && situation.credit <= plan->sizes.low) {
        plan->want = plan->sizes.want;
    }
    if (leases && bucket->missed && plan->want == 0 && situation.credit == 0) {
        plan->want = weir__max(plan->sizes.want, 1);
    }
    /* Waiters of a bucket that leases carry are served by leases, at their pace, and their exact
     * part rides along; unless one of them cannot wait that long. */
    bool carried = engine->config.leases && !plan->sizes.exact && !first_is_large(bucket) &&
                   bucket->hasty == 0;
    plan->exact_at_us = carried ? weir__max(bucket->exact_after_us, bucket->lease_after_us)
                                : bucket->exact_after_us;
    /* With an ask on its way, or waiting to leave, the line need not be counted: it may be long. */
    bool asks = bucket->flight.serial == 0 && weir__list_empty(&bucket->ready) &&
                weir__outage_asks(&engine->outage, engine->config.max_asks) > 0;
    if (asks && now_us >= plan->exact_at_us) {
        plan_exact(bucket, &engine->rtt, plan, now_us);
    }

    bool something = situation.credit > 0 || bucket->refund > 0 ||
                     weir__leases_unsettled(&bucket->leases);
    plan->reset = bucket->reset && !engine->closing;
    plan->give_back = engine->config.leases && (plan->idle || engine->closing) && something;
    /* Whoever is looked at may carry the probe, though it be a look at the store and nothing more:
     * else a policy that answers everyone at once would leave nobody to ask, and the outage would
     * never end. */
    bool probes = engine->outage.state == WEIR__STORE_PROBING ||
                  (weir__bucket_is_broken(bucket) && now_us >= bucket->lease_after_us);
    probes = probes && !engine->closing;
    plan->any = plan->want > 0 || plan->covers > 0 || plan->give_back || plan->reset || probes;
}

static void cover(struct weir__bucket *bucket, unsigned covers)
{
    struct weir__waiter *w = weir__queue_first(bucket);
    for (; covers > 0; covers--, w = weir__queue_after(bucket, w)) {
        w->covered = true;
    }
}

static void build_ask(struct weir__engine *engine, struct weir__bucket *bucket,
                      const struct weir__plan *plan, struct weir__ask *ask, int64_t now_us)
{
    int64_t back = plan->give_back ? INT64_MAX : 0;
    bool unsettled = weir__leases_unsettled(&bucket->leases);
    *ask = (struct weir__ask){
        .want = plan->want,
        .least = weir__max(1, weir__min(plan->sizes.least, plan->want)),
        .exact = plan->exact,
        .wait_us = plan->wait_us,
        .refund = bucket->refund,
        .since = engine->config.leases ? bucket->period.start_us : WEIR__NO_WINDOW,
        .heard = bucket->heard,
        .reset = plan->reset,
    };
    weir__leases_settle(&bucket->leases, back, ask->settle, now_us);
    ask->held = weir__load_relaxed(&bucket->credit) + weir__leases_coming(&bucket->leases);
    ask->peek = ask->want == 0 && ask->exact == 0 && ask->refund == 0 && !unsettled &&
                !plan->give_back && !plan->reset;
    bucket->refund = 0;
    bucket->reset = false;
    bucket->flight = (struct weir__flight){
        .serial = ++engine->serial, .sent_us = now_us, .ask = *ask};
    cover(bucket, plan->covers);
}

bool weir__engine_next_command(struct weir__engine *engine, struct weir__command *command,
                               int64_t now_us)
{
    while (engine->asks < weir__outage_asks(&engine->outage, engine->config.max_asks) &&
           !weir__list_empty(&engine->ready)) {
        struct weir__bucket *bucket = weir__container(engine->ready.next, struct weir__bucket,
                                                      ready);
        weir__list_remove(&bucket->ready);
        weir__exchange_observe(engine, bucket, now_us);
        weir__queue_serve(engine, bucket);

        struct weir__plan plan;
        weir__exchange_plan(engine, bucket, &plan, now_us);
        if (!plan.any) {
            weir__engine_look(engine, bucket, now_us);
            continue;
        }
        command->bucket = bucket;
        command->rule = bucket->limit->rule;
        build_ask(engine, bucket, &plan, &command->ask, now_us);
        command->serial = bucket->flight.serial;
        command->deadline_us = now_us + engine->config.ask_timeout_us;
        engine->asks++;
        engine->counts.asks_sent++;
        weir__engine_look(engine, bucket, now_us);
        return true;
    }
    return false;
}

/* L6: when the next lease may be asked for, and whether callers are over the limit until then. */
static void pace(struct weir__engine *engine, struct weir__bucket *bucket,
                 const struct weir__ask *ask, const struct weir__grant *grant, int64_t now_us)
{
    struct weir__situation situation = situation_of(engine, bucket);
    struct weir__sizes sizes;
    weir__policy_sizes(&sizes, &situation);

    bool cut = grant->lease < ask->want;
    bool scarce = cut && grant->remaining < ask->least;
    int64_t wait_us = 0;
    if (scarce) {
        wait_us = weir__policy_pace_scarce_us(&situation, sizes.horizon_us, grant->retry_after_us,
                                              &engine->seed);
    } else if (cut && grant->lease == 0) {
        wait_us = weir__policy_pace_budget_us(sizes.horizon_us, &engine->seed);
    }
    bucket->lease_after_us = now_us + wait_us;

    if (scarce) {
        /* Relaxed hint: it is a number for people. */
        weir__store_relaxed(&bucket->retry_at_us, bucket->lease_after_us);
        (void)weir__or_acq_rel(&bucket->gate, WEIR__GATE_REFUSE);
    } else {
        (void)weir__and_acq_rel(&bucket->gate, ~WEIR__GATE_REFUSE);
    }
}

/* L6 for waiters: the more processes wait for the same tokens, the less often each asks.  In a
 * bucket that leases carry whoever comes meanwhile, and cannot wait, is refused here; in an exact
 * one the store's word alone counts. */
static void pace_waiters(struct weir__engine *engine, struct weir__bucket *bucket,
                         const struct weir__grant *grant, int64_t now_us)
{
    struct weir__situation situation = situation_of(engine, bucket);
    struct weir__sizes sizes;
    weir__policy_sizes(&sizes, &situation);
    int64_t crowd_us = weir__policy_pace_scarce_us(&situation, 0, 0, &engine->seed);
    int64_t at_us = now_us + weir__min(crowd_us, CROWD_MOST_US);
    const struct weir__waiter *first = weir__queue_first(bucket);
    if (!engine->config.leases) {
        return; /* nobody else asks */
    }
    if (sizes.exact) {
        /* who was refused for the sake of others in the same ask has not had an answer yet */
        bool again = weir__rule_has_slots(situation.rule) && bucket->alone;
        if (first != NULL && grant->exact == 0 && !again) {
            at_us = weir__min(at_us, first->until_us);
            bucket->exact_after_us = weir__max(bucket->exact_after_us, at_us);
        }
        return;
    }
    if (grant->remaining < weir__max(1, situation.rule->budget / 16)) {
        bucket->exact_after_us = weir__max(bucket->exact_after_us, at_us);
        bucket->refused_cost = 1;
        bucket->refused_until_us = bucket->exact_after_us;
        weir__store_relaxed(&bucket->retry_at_us, bucket->refused_until_us);
    }
}

static void note(const struct weir__engine *engine, struct weir__bucket *bucket,
                 const struct weir__ask *ask, const struct weir__grant *grant, int64_t now_us)
{
    bucket->heard = grant->window;
    if (engine->config.leases) {
        bool over = grant->start_us != bucket->period.start_us;
        bucket->refund = over ? 0 : bucket->refund; /* of a period that is over */
        weir__period_heard(&bucket->period, grant);
    }
    bucket->processes = weir__max(grant->processes, 1);
    bucket->known_us = now_us;
    weir__store_relaxed(&bucket->remaining, grant->remaining);
    weir__store_relaxed(&bucket->reset_at_us, weir__add_sat(now_us, grant->reset_after_us));

    bool nothing = grant->lease == 0 && grant->exact == 0;
    bool refused = nothing && grant->retry_after_us > 0;
    bucket->refused_cost = refused ? weir__max(weir__max(ask->exact, ask->least), 1) : INT64_MAX;
    bucket->refused_until_us = WEIR__HINT_UNKNOWN;
    if (refused && grant->version == bucket->limit->rule.version) {
        bucket->refused_until_us = weir__add_sat(now_us, grant->retry_after_us);
        weir__store_relaxed(&bucket->retry_at_us, bucket->refused_until_us);
    }
}

/* Takes the ask out of flight.  Returns false for an answer that is not to the ask in flight. */
static bool land(struct weir__engine *engine, struct weir__bucket *bucket, uint64_t serial,
                 struct weir__flight *flight)
{
    if (serial == 0 || bucket->flight.serial != serial) {
        return false;
    }
    *flight = bucket->flight;
    bucket->flight.serial = 0;
    WEIR__ASSERT(engine->asks > 0);
    engine->asks--;
    return true;
}

static bool take_lease(struct weir__bucket *bucket, const struct weir__grant *grant,
                       int64_t sent_us, int64_t now_us)
{
    struct weir__leases *leases = &bucket->leases;
    if (grant->spread_us > 0) {
        return weir__leases_add_slots(leases, grant, sent_us, now_us);
    }
    return weir__leases_add(leases, grant->window, grant->lease, sent_us, grant->life_us, now_us);
}

void weir__engine_answer(struct weir__engine *engine, struct weir__bucket *bucket, uint64_t serial,
                         const struct weir__grant *grant, int64_t now_us)
{
    struct weir__flight flight;
    weir__exchange_renew(bucket);
    if (!land(engine, bucket, serial, &flight)) {
        return;
    }
    const struct weir__ask *ask = &flight.ask;
    bool late = now_us - flight.sent_us > engine->config.ask_timeout_us;
    engine->counts.asks_answered++;
    weir__rtt_sample(&engine->rtt, now_us - flight.sent_us);
    weir__outage_answered(&engine->outage);
    if (weir__bucket_is_broken(bucket)) {
        (void)weir__and_acq_rel(&bucket->gate, ~(WEIR__GATE_BROKEN | WEIR__GATE_REFUSE));
    }

    weir__exchange_observe(engine, bucket, now_us);
    note(engine, bucket, ask, grant, now_us);
    if (grant->lease > 0 && take_lease(bucket, grant, flight.sent_us, now_us)) {
        weir__demand_granted(&bucket->demand, now_us);
        bucket->missed = false;
    }
    if (ask->want > 0) {
        pace(engine, bucket, ask, grant, now_us);
    }
    weir__queue_serve(engine, bucket);
    weir__queue_deliver(engine, bucket, ask, grant, late, now_us);
    if (ask->exact > 0) {
        pace_waiters(engine, bucket, grant, now_us);
    }
    if (flight.overtaken) {
        weir__exchange_forget_paces(bucket);
    }
    weir__exchange_notice(engine, now_us);
    weir__engine_look(engine, bucket, now_us);
}

void weir__engine_fail(struct weir__engine *engine, struct weir__bucket *bucket, uint64_t serial,
                       enum weir__failure failure, int64_t now_us)
{
    struct weir__flight flight;
    if (!land(engine, bucket, serial, &flight)) {
        return;
    }
    if (failure == WEIR__FAILED_KEY) {
        weir__outage_answered(&engine->outage); /* it serves the others */
    } else {
        weir__outage_lost(&engine->outage, now_us);
    }
    weir__queue_uncover(bucket);

    int64_t pace_us = 0;
    if (failure == WEIR__FAILED_LOST) {
        engine->counts.asks_lost++;
    } else {
        engine->counts.asks_refused++;
        pace_us = REFUSED_PACE_US / 4;
    }
    if (failure == WEIR__FAILED_NOT_EXECUTED || failure == WEIR__FAILED_KEY) {
        bucket->refund += flight.ask.refund;
    }
    if (failure == WEIR__FAILED_REFUSED) {
        /* A right that is missing for the script's last command is told after its first has run:
         * what was sent is lost (R8). */
        pace_us = REFUSED_PACE_US;
        weir__local_broken(engine, bucket);
    }
    if (failure == WEIR__FAILED_KEY) {
        pace_us = REFUSED_PACE_US;
        weir__local_break(bucket, now_us);
    }
    pace_us = weir__jitter(pace_us, &engine->seed);
    bucket->lease_after_us = now_us + pace_us;
    bucket->exact_after_us = now_us + pace_us;
    weir__exchange_notice(engine, now_us);
    weir__engine_look(engine, bucket, now_us);
}
