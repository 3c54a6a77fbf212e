/* SPDX-License-Identifier: MIT */

/*
 * The in-process store: the same arithmetic as the script's (core/global), one short lock away.
 *
 * Path of a token: weir_try_acquire finds too little credit -> weir__inprocess_take -> the global
 * bucket gives the cost and up to a quarter of the budget as credit -> the next callers take that
 * without coming here.
 *
 * The window algorithms and the queue give no credit here: a token of one period must not be spent
 * in the next, nor a slot before its time, and a caller who takes credit looks at no clock.  Each
 * take of theirs comes here, and is exact.
 *
 * Invariants: credit <= budget, since this is the only holder and the account is the credit word
 * itself; so leases need no window and do not expire.  admitted and not refunded = leased - credit
 * + exact - refunded.
 *
 * Threads: `global`, `leased`, `exact`, `refunded` under the bucket's stripe; credit is also
 * lowered by callers, at any time, which only makes the account too large for a moment: the safe
 * side.
 *
 * A caller is never refused while credit and the global bucket together hold what it wants: before
 * a refusal the credit is taken back and the global bucket asked again.
 */

#include "api/inprocess.h"

#include <string.h>

#include "base/mem.h"
#include "base/num.h"

/* By choice: large enough to make the lock rare, small enough to leave the rest for larger
 * costs. */
#define LEASE_PARTS 4

#define LOG_FIRST 16 /* entries a log begins with: as many as a learning one needs at once */

/* Whether callers may hold credit. */
static bool leases(const struct weir__rule *rule)
{
    return !weir__rule_has_periods(rule) && !weir__rule_has_slots(rule);
}

/* Room for one more entry of a sliding log.  Without memory the log makes do with what it has, and
 * errs on the safe side. */
static void grow_log(struct weir__log *log, unsigned need)
{
    if (log->end - log->first < log->room || log->room >= need) {
        return;
    }
    unsigned room = log->room < LOG_FIRST / 2 ? LOG_FIRST : 2 * log->room;
    room = room < need ? room : need;
    struct weir__log_entry *entries = weir__mem_zero(room * sizeof(*entries));
    if (entries == NULL) {
        return;
    }
    unsigned count = log->end - log->first;
    if (count > 0) {
        memcpy(entries, log->entries + log->first, count * sizeof(*entries));
    }
    weir__mem_free(log->entries);
    *log = (struct weir__log){.entries = entries, .room = room, .end = count};
}

/* Periods are aligned to the epoch of UTC. */
static int64_t store_now_us(const struct weir *weir) { return weir__now_us(weir) + weir->epoch_us; }

/* Under the stripe. */
static void ask_global(struct weir_bucket *bucket, struct weir__ask *ask, struct weir__grant *grant)
{
    const struct weir__rule *rule = &bucket->limit->core.rule;
    struct weir__global *global = &bucket->global;
    int64_t credit = weir__load_relaxed(&bucket->core.credit);
    ask->want = leases(rule) ? weir__min(ask->want, weir__max(rule->budget - credit, 0)) : 0;
    ask->heard = global->cur; /* one process, and always the same */
    ask->since = bucket->core.period.start_us;
    global->out_cur = credit;
    global->out_prev = 0;
    grow_log(&global->log, weir__global_log_need(global, rule));
    weir__global_ask(global, rule, ask, store_now_us(bucket->limit->weir), grant);
    weir__period_heard(&bucket->core.period, grant);
    if (grant->lease > 0) {
        bucket->leased += grant->lease;
        (void)weir__add_relaxed(&bucket->core.credit, grant->lease);
    }
}

static struct weir__ask empty_ask(void)
{
    return (struct weir__ask){
        .least = 1,
        .heard = WEIR__NO_WINDOW,
        .settle = {{.window = WEIR__NO_WINDOW}, {.window = WEIR__NO_WINDOW}},
    };
}

/* Under the stripe.  Puts the credit back into the global bucket; returns how much it was. */
static int64_t take_back(struct weir_bucket *bucket)
{
    int64_t credit = weir__exchange_acq_rel(&bucket->core.credit, 0);
    if (credit > 0) {
        struct weir__grant grant;
        struct weir__ask ask = empty_ask();
        ask.refund = credit;
        bucket->leased -= credit;
        ask_global(bucket, &ask, &grant);
    }
    return credit;
}

static void count_exact(struct weir_bucket *bucket, const struct weir__grant *grant)
{
    bucket->exact += grant->exact;
    bucket->core.period.admitted += grant->exact;
}

/* Under the stripe.  A grant's own number is of the global bucket alone. */
static void count_credit(const struct weir_bucket *bucket, struct weir__grant *grant)
{
    int64_t credit = weir__load_relaxed(&bucket->core.credit);
    grant->remaining = weir__min(grant->remaining + credit, bucket->limit->core.rule.capacity);
}

bool weir__inprocess_take(struct weir_bucket *bucket, int64_t cost, struct weir__grant *grant)
{
    uv_mutex_t *stripe = weir__stripe_of(bucket);
    uv_mutex_lock(stripe);
    struct weir__ask ask = empty_ask();
    ask.exact = cost;
    ask.want = bucket->limit->core.rule.budget / LEASE_PARTS;
    ask_global(bucket, &ask, grant);
    if (grant->exact == 0 && (take_back(bucket) > 0 || grant->lease > 0)) {
        /* what is there is not enough: no lease of it, and an answer about all of it */
        ask.want = 0;
        ask_global(bucket, &ask, grant);
    }
    count_exact(bucket, grant);
    count_credit(bucket, grant);
    uv_mutex_unlock(stripe);
    return grant->exact > 0;
}

void weir__inprocess_peek(struct weir_bucket *bucket, struct weir__grant *grant)
{
    uv_mutex_t *stripe = weir__stripe_of(bucket);
    uv_mutex_lock(stripe);
    struct weir__ask ask = empty_ask();
    ask.peek = true;
    ask_global(bucket, &ask, grant);
    count_credit(bucket, grant);
    uv_mutex_unlock(stripe);
}

void weir__inprocess_ask(void *arg, struct weir__bucket *core, const struct weir__rule *rule,
                         const struct weir__ask *engine_ask, struct weir__grant *grant)
{
    (void)arg;
    (void)rule; /* the limit's own, read under the stripe */
    struct weir_bucket *bucket = weir__container(core, struct weir_bucket, core);
    struct weir__ask ask = *engine_ask;
    uv_mutex_t *stripe = weir__stripe_of(bucket);
    uv_mutex_lock(stripe);
    if (ask.exact > 0) {
        /* before tokens are reserved: then nothing can be put back any more (R12) */
        (void)take_back(bucket);
    }
    ask_global(bucket, &ask, grant);
    count_exact(bucket, grant);
    uv_mutex_unlock(stripe);
}

bool weir__inprocess_refund(struct weir_bucket *bucket, int64_t tokens)
{
    uv_mutex_t *stripe = weir__stripe_of(bucket);
    uv_mutex_lock(stripe);
    int64_t credit = weir__load_relaxed(&bucket->core.credit);
    bool admitted = tokens <= bucket->leased - credit + bucket->exact - bucket->refunded;
    if (admitted) {
        struct weir__grant grant;
        struct weir__ask ask = empty_ask();
        ask.refund = weir__period_refund(&bucket->core.period, tokens);
        bucket->refunded += tokens;
        ask_global(bucket, &ask, &grant);
    }
    uv_mutex_unlock(stripe);
    return admitted;
}

void weir__inprocess_reset(struct weir_bucket *bucket)
{
    uv_mutex_t *stripe = weir__stripe_of(bucket);
    uv_mutex_lock(stripe);
    struct weir__grant grant;
    struct weir__ask ask = empty_ask();
    (void)take_back(bucket);
    ask.reset = true;
    ask_global(bucket, &ask, &grant);
    uv_mutex_unlock(stripe);
}

void weir__inprocess_adopt(struct weir_bucket *bucket)
{
    uv_mutex_t *stripe = weir__stripe_of(bucket);
    uv_mutex_lock(stripe);
    struct weir__grant grant;
    struct weir__ask ask = empty_ask();
    (void)take_back(bucket); /* a lowered capacity bounds all that is there */
    ask_global(bucket, &ask, &grant);
    uv_mutex_unlock(stripe);
}

void weir__inprocess_count(struct weir_bucket *bucket, struct weir__inprocess_sum *sum)
{
    uv_mutex_t *stripe = weir__stripe_of(bucket);
    uv_mutex_lock(stripe);
    sum->leased += bucket->leased;
    sum->held += weir__load_relaxed(&bucket->core.credit);
    sum->exact += bucket->exact;
    sum->refunded += bucket->refunded;
    uv_mutex_unlock(stripe);
}

bool weir__inprocess_full(struct weir_bucket *bucket)
{
    uv_mutex_t *stripe = weir__stripe_of(bucket);
    uv_mutex_lock(stripe);
    struct weir__grant grant;
    struct weir__ask ask = empty_ask();
    ask.peek = true;
    (void)take_back(bucket);
    ask_global(bucket, &ask, &grant);
    const struct weir__rule *rule = &bucket->limit->core.rule;
    bool full = grant.remaining == rule->capacity && rule->initial >= rule->capacity &&
                !rule->learn;
    bool as_new = full || !bucket->global.exists; /* expired, or never asked */
    uv_mutex_unlock(stripe);
    return as_new;
}
