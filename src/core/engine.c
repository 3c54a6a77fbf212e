/* SPDX-License-Identifier: MIT */

/*
 * All buckets of one process: who is looked at when, and how it begins and ends.
 *
 * Path of a token: a first caller finds nothing -> weir__engine_touch -> look -> ready ->
 * core/exchange asks -> ... -> credit.  From then on nobody rings: the loop looks at each busy
 * bucket by itself, early enough that the next lease is there before the last one is spent, and
 * forgets it when it has been quiet.
 *
 * A bucket is
 *     asleep     in no heap; nothing held, nothing owed; the next caller rings
 *     watched    in the heap `due`; WEIR__GATE_WATCHED is set while the next look is near
 *     ready      in the list `ready` besides: it has something to ask
 *     in flight  its ask is on the way
 *
 * Going to sleep races with a caller who finds too little and sees WATCHED.  Both sides change the
 * gate by one atomic read-modify-write: either the caller's MISSED comes first and the loop sees it
 * and stays, or the loop's clearing of WATCHED comes first and the caller sees that and rings.
 *
 * Failures: core/exchange for an ask, core/outage and core/local for the store.
 */

#include "core/engine.h"

#include "base/check.h"
#include "base/num.h"
#include "core/exchange.h"
#include "core/local.h"
#include "core/queue.h"

/* How often a refund that cannot be told to the store is looked at; for no reason but to be in the
 * heap. */
#define DEBT_LOOK_US 1000000

void weir__engine_init(struct weir__engine *engine, const struct weir__engine_config *config)
{
    *engine = (struct weir__engine){.config = *config, .seed = config->seed};
    weir__outage_init(&engine->outage);
    weir__heap_init(&engine->due);
    weir__heap_init(&engine->deadlines);
    weir__list_init(&engine->ready);
    weir__list_init(&engine->done);
    if (!config->leases) {
        weir__outage_linked(&engine->outage); /* this process is always there */
    }
    engine->noticed = engine->outage.state;
}

void weir__bucket_init(struct weir__bucket *bucket, struct weir__engine *engine,
                       struct weir__limit *limit, const void *key, size_t key_len)
{
    *bucket = (struct weir__bucket){
        .retry_at_us = WEIR__HINT_UNKNOWN,
        .reset_at_us = WEIR__HINT_UNKNOWN,
        .remaining = WEIR__HINT_UNKNOWN,
        .limit = limit,
        .key = key,
        .key_len = key_len,
        .refused_cost = INT64_MAX,
        .refused_until_us = WEIR__HINT_UNKNOWN,
        .heard = WEIR__NO_WINDOW,
        .processes = 1,
        .period = {.start_us = WEIR__NO_WINDOW},
        .local_from_us = WEIR__HINT_UNKNOWN,
    };
    weir__leases_init(&bucket->leases, &bucket->credit, &engine->ledger);
    weir__heap_node_init(&bucket->due);
    weir__list_init(&bucket->ready);
    weir__list_init(&bucket->waiters);
}

bool weir__engine_holds(const struct weir__engine *engine, const struct weir__bucket *bucket)
{
    const uint32_t coming = WEIR__GATE_WATCHED | WEIR__GATE_TOUCHED;
    return bucket->flight.serial != 0 || bucket->waiting > 0 || bucket->leases.count > 0 ||
           bucket->refund > 0 || !weir__list_empty(&bucket->ready) ||
           weir__heap_has(&engine->due, &bucket->due) ||
           (weir__load_acquire(&bucket->gate) & coming) != 0;
}

static void look_at(struct weir__engine *engine, struct weir__bucket *bucket, int64_t due_us)
{
    if (weir__heap_has(&engine->due, &bucket->due)) {
        weir__heap_update(&engine->due, &bucket->due, due_us);
    } else {
        weir__heap_insert(&engine->due, &bucket->due, due_us);
        engine->counts.watched++;
    }
}

static void look_no_more(struct weir__engine *engine, struct weir__bucket *bucket)
{
    if (weir__heap_has(&engine->due, &bucket->due)) {
        weir__heap_remove(&engine->due, &bucket->due);
        engine->counts.watched--;
    }
}

/* When credit will be down to the low mark, at the demand we see. */
static int64_t low_at_us(const struct weir__bucket *bucket, const struct weir__plan *plan,
                         int64_t now_us)
{
    double above = (double)(weir__load_relaxed(&bucket->credit) - plan->sizes.low);
    double us = above <= 0 || bucket->demand.per_s <= 0 ? 0 : above * 1e6 / bucket->demand.per_s;
    double most = (double)plan->sizes.horizon_us;
    int64_t in_us = (int64_t)(us / 2 < most ? us / 2 : most);
    return now_us + weir__max(in_us, plan->sizes.look_us);
}

/* When the loop must look again; INT64_MAX: only when something happens. */
static int64_t next_look_us(struct weir__engine *engine, struct weir__bucket *bucket,
                            const struct weir__plan *plan, int64_t now_us)
{
    int64_t at = weir__leases_next_us(&bucket->leases);
    bool waits = !weir__list_empty(&bucket->waiters);
    bool holds = bucket->leases.count > 0 || bucket->refund > 0;
    bool leases = engine->config.leases && !plan->idle;
    bool lease_next = leases && !engine->closing && (bucket->missed || !plan->sizes.exact);

    if (leases && (holds || bucket->missed || lease_next)) {
        at = weir__min(at, bucket->busy_us + plan->sizes.idle_us + 1);
    }
    if (weir__outage_is_down(&engine->outage)) {
        at = weir__min(at, weir__local_next_us(engine, bucket, now_us));
        /* When the store is back it is told at once what is in the heap: a debt must be there. */
        return bucket->refund > 0 ? weir__min(at, now_us + DEBT_LOOK_US) : at;
    }
    if (bucket->flight.serial != 0 || !weir__list_empty(&bucket->ready)) {
        return at; /* the answer will bring us here */
    }
    if (engine->outage.state == WEIR__STORE_CONNECTING) {
        return waits || bucket->missed ? weir__min(at, now_us + plan->sizes.look_us) : at;
    }
    if (weir__bucket_is_broken(bucket) && !plan->idle) {
        at = weir__min(at, weir__max(bucket->lease_after_us, now_us + 1));
        at = weir__min(at, weir__local_next_us(engine, bucket, now_us));
    }
    if (waits) {
        at = weir__min(at, weir__max(plan->exact_at_us, now_us + 1));
    }
    if (lease_next) {
        int64_t low = low_at_us(bucket, plan, now_us);
        at = weir__min(at, weir__max(bucket->lease_after_us, low));
    }
    return at;
}

/* Puts the bucket to sleep, unless a caller came in that moment. */
static bool sleep_now(struct weir__engine *engine, struct weir__bucket *bucket)
{
    uint32_t gate = weir__and_acq_rel(&bucket->gate, ~(WEIR__GATE_WATCHED | WEIR__GATE_REFUSE));
    if ((gate & WEIR__GATE_MISSED) != 0) {
        return false;
    }
    bucket->missed = false;
    look_no_more(engine, bucket);
    return true;
}

static void schedule(struct weir__engine *engine, struct weir__bucket *bucket,
                     const struct weir__plan *plan, int64_t now_us)
{
    bool flying = bucket->flight.serial != 0 || !weir__list_empty(&bucket->ready);
    if (plan->idle) {
        bucket->missed = false;
    }
    int64_t at = next_look_us(engine, bucket, plan, now_us);
    if (at == INT64_MAX && !flying) {
        if (sleep_now(engine, bucket)) {
            return;
        }
        at = now_us + plan->sizes.look_us;
    }
    if (at == INT64_MAX) {
        look_no_more(engine, bucket);
    } else {
        look_at(engine, bucket, at);
    }

    /* Watched: a caller who finds too little need not ring, since the loop comes by itself soon, or
     * could do nothing. */
    bool paced = bucket->lease_after_us > now_us;
    bool near = flying || paced || at - now_us <= 2 * plan->sizes.look_us;
    if (near) {
        (void)weir__or_acq_rel(&bucket->gate, WEIR__GATE_WATCHED);
        return;
    }
    uint32_t gate = weir__and_acq_rel(&bucket->gate, ~(WEIR__GATE_WATCHED | WEIR__GATE_REFUSE));
    if ((gate & WEIR__GATE_MISSED) != 0) {
        (void)weir__or_acq_rel(&bucket->gate, WEIR__GATE_WATCHED);
        look_at(engine, bucket, now_us + plan->sizes.look_us);
    }
}

void weir__engine_look(struct weir__engine *engine, struct weir__bucket *bucket, int64_t now_us)
{
    weir__exchange_observe(engine, bucket, now_us);
    weir__queue_serve(engine, bucket);
    bool alone = weir__outage_is_down(&engine->outage) || weir__bucket_is_broken(bucket);
    if (alone && !engine->closing) {
        weir__local_serve(engine, bucket, now_us);
    }
    struct weir__plan plan;
    weir__exchange_plan(engine, bucket, &plan, now_us);
    bool asks = plan.any && weir__outage_asks(&engine->outage, engine->config.max_asks) > 0;
    if (asks && bucket->flight.serial == 0 && weir__list_empty(&bucket->ready)) {
        weir__list_append(&engine->ready, &bucket->ready);
    }
    schedule(engine, bucket, &plan, now_us);
}

void weir__engine_touch(struct weir__engine *engine, struct weir__bucket *bucket, int64_t now_us)
{
    /* From here on the next caller may push it again. */
    (void)weir__and_acq_rel(&bucket->gate, ~WEIR__GATE_TOUCHED);
    if (!engine->closing) {
        weir__engine_look(engine, bucket, now_us);
    }
}

bool weir__engine_refund(struct weir__engine *engine, struct weir__bucket *bucket, int64_t tokens,
                         int64_t now_us)
{
    weir__exchange_observe(engine, bucket, now_us);
    if (tokens > bucket->admitted) {
        return false;
    }
    bucket->admitted -= tokens;
    int64_t again = weir__leases_refund(&bucket->leases, tokens, now_us);
    bucket->period.admitted = weir__max(0, bucket->period.admitted - again);
    int64_t travels = weir__period_refund(&bucket->period, tokens - again);
    bucket->refund += travels;
    if (travels > 0) {
        weir__exchange_forget_paces(bucket); /* the store has more than it said */
    }
    bucket->busy_us = weir__max(bucket->busy_us, now_us);
    engine->counts.refunded += (uint64_t)tokens;
    weir__engine_look(engine, bucket, now_us);
    return true;
}

void weir__engine_reset(struct weir__engine *engine, struct weir__bucket *bucket, int64_t now_us)
{
    bucket->reset = true;
    weir__exchange_forget_paces(bucket);
    weir__engine_look(engine, bucket, now_us);
}

void weir__engine_nudge(struct weir__engine *engine, struct weir__bucket *bucket, int64_t now_us)
{
    if (bucket->waiting > 0 && !engine->closing) {
        weir__exchange_forget_paces(bucket);
        weir__engine_look(engine, bucket, now_us);
    }
}

/* Each bucket that is watched or ready becomes due now, without the bits of its gate that are in
 * `clear`. */
static void all_due(struct weir__engine *engine, uint32_t clear, int64_t now_us)
{
    struct weir__heap old = engine->due;
    struct weir__heap_node *node;
    weir__heap_init(&engine->due);
    while ((node = weir__heap_min(&old)) != NULL) {
        struct weir__bucket *bucket = weir__container(node, struct weir__bucket, due);
        (void)weir__and_acq_rel(&bucket->gate, ~clear);
        weir__heap_remove(&old, node);
        weir__heap_insert(&engine->due, node, now_us);
    }
    while (!weir__list_empty(&engine->ready)) {
        struct weir__bucket *bucket = weir__container(engine->ready.next, struct weir__bucket,
                                                      ready);
        (void)weir__and_acq_rel(&bucket->gate, ~clear);
        weir__list_remove(&bucket->ready);
        look_at(engine, bucket, now_us);
    }
}

void weir__engine_settle_books(struct weir__engine *engine, int64_t now_us)
{
    all_due(engine, 0, now_us);
    weir__engine_tick(engine, now_us);
}

void weir__exchange_notice(struct weir__engine *engine, int64_t now_us)
{
    enum weir__store_state before = engine->noticed;
    enum weir__store_state state = engine->outage.state;
    bool suspicion = (before == WEIR__STORE_UP && state == WEIR__STORE_SUSPECT) ||
                     (before == WEIR__STORE_SUSPECT && state == WEIR__STORE_UP);
    engine->noticed = state;
    if (state == before || suspicion) {
        return;
    }
    bool was_down = before == WEIR__STORE_DOWN || before == WEIR__STORE_PROBING;
    if (!was_down && weir__outage_is_down(&engine->outage)) {
        engine->down_from_us = now_us;
    }

    /* Who was over the limit by the word of one is not by that of the other. */
    all_due(engine, WEIR__GATE_REFUSE, now_us);
    if (state == WEIR__STORE_PROBING && weir__heap_min(&engine->due) == NULL && engine->asks == 0) {
        weir__outage_unprobed(&engine->outage);
        engine->noticed = engine->outage.state;
    }
}

void weir__engine_linked(struct weir__engine *engine, bool linked, int64_t now_us)
{
    if (linked) {
        weir__outage_linked(&engine->outage);
    } else {
        weir__outage_unlinked(&engine->outage);
    }
    weir__exchange_notice(engine, now_us);
}

void weir__engine_tick(struct weir__engine *engine, int64_t now_us)
{
    weir__outage_tick(&engine->outage, now_us);
    weir__exchange_notice(engine, now_us);
    weir__queue_tick(engine, now_us);
    struct weir__heap_node *node;
    while ((node = weir__heap_min(&engine->due)) != NULL && node->key <= now_us) {
        struct weir__bucket *bucket = weir__container(node, struct weir__bucket, due);
        weir__engine_look(engine, bucket, now_us);
        WEIR__ASSERT(bucket->due.key > now_us || !weir__heap_has(&engine->due, &bucket->due));
    }
}

int64_t weir__engine_next_us(const struct weir__engine *engine)
{
    int64_t next = weir__outage_next_us(&engine->outage);
    const struct weir__heap_node *due = weir__heap_min(&engine->due);
    const struct weir__heap_node *deadline = weir__heap_min(&engine->deadlines);
    next = due == NULL ? next : weir__min(next, due->key);
    return deadline == NULL ? next : weir__min(next, deadline->key);
}

struct weir__waiter *weir__engine_next_done(struct weir__engine *engine)
{
    if (weir__list_empty(&engine->done)) {
        return NULL;
    }
    struct weir__waiter *w = weir__container(engine->done.next, struct weir__waiter, line);
    weir__list_remove(&w->line);
    return w;
}

void weir__engine_close(struct weir__engine *engine, int64_t now_us)
{
    engine->closing = true;
    struct weir__heap_node *node;
    while ((node = weir__heap_min(&engine->deadlines)) != NULL) {
        struct weir__waiter *w = weir__container(node, struct weir__waiter, deadline);
        engine->counts.exact_void += w->reserved ? (uint64_t)w->cost : 0;
        weir__queue_finish(engine, w, WEIR__UNAVAILABLE, WEIR__REASON_CLOSED, WEIR__TIME_UNKNOWN);
    }
    while ((node = weir__heap_min(&engine->due)) != NULL) {
        struct weir__bucket *bucket = weir__container(node, struct weir__bucket, due);
        weir__engine_look(engine, bucket, now_us);
        look_no_more(engine, bucket);
    }
}
