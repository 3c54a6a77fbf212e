/* SPDX-License-Identifier: MIT */

/*
 * weir_try_acquire: take tokens or be refused, now.
 *
 * Path of a token: it begins here, and ends here.
 *
 *     a cap             try_capped(): it is asked first (api/capped), then the same as without
 *     credit there      weir__bucket_take, one atomic exchange, done
 *     refused crowd     the gate says over the limit, somebody has said so to the loop already: one
 *                       more load, done
 *     else              slow(): the in-process store; or an outage policy; or a bell for the loop
 *
 * Threads: any.  The slow path reads nothing that closing frees: a bucket's limit and weir live as
 * long as its handle.
 */

#include "api/answer.h"
#include "api/buckets.h"
#include "api/capped.h"
#include "api/inprocess.h"
#include "api/waiting.h"
#include "base/num.h"
#include "core/rule.h"

#define CROWD (WEIR__GATE_MISSED | WEIR__GATE_WATCHED | WEIR__GATE_REFUSE)
#define GATE_TELLS (CROWD | WEIR__GATE_CLOSED)

static int count(struct weir_bucket *bucket, enum weir__count kind, uint64_t n, int verdict)
{
    weir__tally_add(bucket->tallies, kind, n);
    return verdict;
}

static int refuse(struct weir_bucket *bucket, struct weir_result *result, enum weir_reason reason,
                  int64_t retry_after_us)
{
    int verdict = weir__answer(bucket, result, WEIR_DENIED, reason, retry_after_us);
    return count(bucket, WEIR__COUNT_DENIED, 1, verdict);
}

static int try_inprocess(struct weir_bucket *bucket, int64_t cost, struct weir_result *result)
{
    struct weir__grant grant;
    if (cost == 0) {
        weir__inprocess_peek(bucket, &grant);
        bool some = grant.remaining > 0;
        return weir__answer_exact(bucket, result, some ? WEIR_ALLOWED : WEIR_DENIED,
                                  some ? WEIR_WITHIN_LIMIT : WEIR_OVER_LIMIT, &grant);
    }
    if (weir__inprocess_take(bucket, cost, &grant)) {
        return weir__answer_exact(bucket, result, WEIR_ALLOWED, WEIR_WITHIN_LIMIT, &grant);
    }
    (void)count(bucket, WEIR__COUNT_DENIED, 1, WEIR_DENIED);
    return weir__answer_exact(bucket, result, WEIR_DENIED, WEIR_OVER_LIMIT, &grant);
}

/* The store is down, and the policy of the limit is to let all in, or none. */
static int by_policy(struct weir_bucket *bucket, int64_t cost, enum weir_outage_policy policy,
                     struct weir_result *result)
{
    if (policy == WEIR_OUTAGE_OPEN) {
        int verdict = weir__answer(bucket, result, WEIR_ALLOWED, WEIR_STORE_DOWN, 0);
        return count(bucket, WEIR__COUNT_OUTAGE_ALLOWED, (uint64_t)cost, verdict);
    }
    int verdict = weir__answer(bucket, result, WEIR_UNAVAILABLE, WEIR_STORE_DOWN, WEIR_UNKNOWN);
    return count(bucket, WEIR__COUNT_UNAVAILABLE, 1, verdict);
}

static int try_remote(struct weir_bucket *bucket, int64_t cost, struct weir_result *result)
{
    struct weir *weir = bucket->limit->weir;
    if (cost == 0 && weir__load_relaxed(&bucket->core.credit) > 0) {
        return weir__answer(bucket, result, WEIR_ALLOWED, WEIR_WITHIN_LIMIT, 0);
    }
    enum weir__miss miss = weir__bucket_miss(&bucket->core);
    if (miss == WEIR__MISS_CLOSED ||
        (miss == WEIR__MISS_TOUCH && !weir__driver_touch(&weir->driver, &bucket->core))) {
        return WEIR_ECLOSED;
    }
    bool outage = weir__answer_by_policy(bucket);
    enum weir_outage_policy policy = (enum weir_outage_policy)weir__load_relaxed(
        &bucket->limit->outage);
    if (outage && policy != WEIR_OUTAGE_LOCAL) {
        return by_policy(bucket, cost, policy, result);
    }
    if (miss == WEIR__MISS_REFUSED) {
        int64_t retry_us = result == NULL ? WEIR_UNKNOWN : weir__answer_retry_us(bucket);
        return refuse(bucket, result, outage ? WEIR_STORE_DOWN : WEIR_OVER_LIMIT, retry_us);
    }
    int verdict = weir__answer(bucket, result, WEIR_DENIED, WEIR_COLD, WEIR_UNKNOWN);
    return count(bucket, WEIR__COUNT_COLD, 1, verdict);
}

/* Out of line, so that the two short ways through weir_try_acquire save no registers. */
static __attribute__((noinline)) int slow(struct weir_bucket *bucket, uint64_t cost,
                                          struct weir_result *result)
{
    if ((weir__load_acquire(&bucket->core.gate) & WEIR__GATE_CLOSED) != 0) {
        return WEIR_ECLOSED;
    }
    if (cost > (uint64_t)weir__load_relaxed(&bucket->limit->capacity)) {
        return refuse(bucket, result, WEIR_COST_ABOVE_CAPACITY, WEIR_NEVER);
    }
    return bucket->limit->weir->remote ? try_remote(bucket, (int64_t)cost, result)
                                       : try_inprocess(bucket, (int64_t)cost, result);
}

static __attribute__((noinline)) int tell_allowed(struct weir_bucket *bucket,
                                                  struct weir_result *result)
{
    return weir__answer(bucket, result, WEIR_ALLOWED, WEIR_WITHIN_LIMIT, 0);
}

static inline int try_bucket(struct weir_bucket *bucket, uint64_t cost, struct weir_result *result)
{
    if ((int64_t)cost > 0 && weir__bucket_take(&bucket->core, (int64_t)cost)) {
        return result == NULL ? WEIR_ALLOWED : tell_allowed(bucket, result);
    }
    /* Relaxed: what the gate says is acted on alone. */
    uint32_t gate = weir__load_relaxed(&bucket->core.gate);
    int place = weir__tally_place;
    if ((gate & GATE_TELLS) == CROWD && result == NULL && cost != 0 && place > 0) {
        weir__tally_own(&bucket->tallies->at[place], WEIR__COUNT_DENIED, 1);
        return WEIR_DENIED;
    }
    return slow(bucket, cost, result);
}

int weir__try_uncapped(struct weir_bucket *bucket, uint64_t cost, struct weir_result *result)
{
    return try_bucket(bucket, cost, result);
}

static __attribute__((noinline)) int try_capped(struct weir_bucket *bucket, uint64_t cost,
                                                struct weir_result *result)
{
    struct weir__cap_taken taken;
    int verdict = weir__capped_ask(bucket, cost, &taken, result);
    if (verdict == WEIR_ALLOWED) {
        verdict = weir__try_uncapped(bucket, cost, result);
        if (verdict != WEIR_ALLOWED) {
            weir__capped_undo(bucket, &taken);
        }
    }
    return verdict;
}

int weir_try_acquire(struct weir_bucket *bucket, uint64_t cost, struct weir_result *result)
{
    return weir__capped(bucket) ? try_capped(bucket, cost, result)
                                : try_bucket(bucket, cost, result);
}

int weir_try_acquire_key(struct weir_limit *limit, const void *key, size_t key_len, uint64_t cost,
                         struct weir_result *result)
{
    struct weir_bucket *bucket;
    int code = weir_bucket_get(limit, key, key_len, &bucket);
    if (code != WEIR_OK) {
        return code;
    }
    code = weir_try_acquire(bucket, cost, result);
    weir_bucket_unref(bucket);
    return code;
}

static int refund_remote(struct weir_bucket *bucket, uint64_t tokens)
{
    struct weir *weir = bucket->limit->weir;
    int code = WEIR_ECLOSED;
    uv_mutex_lock(&weir->driver.lock);
    /* Once more: the engine ends under this lock, after all gates are closed, and then takes
     * nothing. */
    if ((weir__load_acquire(&bucket->core.gate) & WEIR__GATE_CLOSED) == 0) {
        bool admitted = weir__engine_refund(&weir->driver.engine, &bucket->core, (int64_t)tokens,
                                            weir__now_us(weir));
        code = admitted ? WEIR_OK : WEIR_EINVAL;
    }
    uv_mutex_unlock(&weir->driver.lock);
    weir__driver_ring(&weir->driver);
    return code;
}

int weir_refund(struct weir_bucket *bucket, uint64_t tokens)
{
    if ((weir__load_acquire(&bucket->core.gate) & WEIR__GATE_CLOSED) != 0) {
        return WEIR_ECLOSED;
    }
    if (tokens > INT64_MAX / 2) {
        return WEIR_EINVAL;
    }
    int code;
    if (bucket->limit->weir->remote) {
        code = refund_remote(bucket, tokens);
    } else {
        code = weir__inprocess_refund(bucket, (int64_t)tokens) ? WEIR_OK : WEIR_EINVAL;
        weir__waiting_nudge(bucket);
    }
    if (code == WEIR_OK && weir__capped(bucket)) {
        weir__capped_refund(bucket, tokens);
    }
    return code;
}

int weir_reset(struct weir_bucket *bucket)
{
    struct weir *weir = bucket->limit->weir;
    if ((weir__load_acquire(&bucket->core.gate) & WEIR__GATE_CLOSED) != 0) {
        return WEIR_ECLOSED;
    }
    if (!weir->remote) {
        weir__inprocess_reset(bucket);
        weir__waiting_nudge(bucket);
        return WEIR_OK;
    }
    int code = WEIR_ECLOSED;
    uv_mutex_lock(&weir->driver.lock);
    if ((weir__load_acquire(&bucket->core.gate) & WEIR__GATE_CLOSED) == 0) {
        weir__engine_reset(&weir->driver.engine, &bucket->core, weir__now_us(weir));
        code = WEIR_OK;
    }
    uv_mutex_unlock(&weir->driver.lock);
    weir__driver_ring(&weir->driver);
    return code;
}

/* The store's tokens as of its last answer, grown at the limit's rate since. */
static int64_t grown(struct weir_bucket *bucket, int64_t now_us)
{
    const struct weir__bucket *core = &bucket->core;
    if (core->remaining == WEIR__HINT_UNKNOWN) {
        return WEIR_UNKNOWN;
    }
    const struct weir__rule *rule = &core->limit->rule;
    int64_t since_us = weir__max(now_us - core->known_us, 0);
    int64_t tokens = core->remaining;
    if (!weir__rule_has_periods(rule)) {
        tokens = weir__add_sat(tokens, weir__rule_tokens(rule, since_us));
    } else if (now_us >= core->reset_at_us) {
        tokens = rule->capacity;
    }
    tokens = weir__add_sat(tokens, weir__load_relaxed(&core->credit));
    return weir__min(tokens, rule->capacity);
}

static void peek_remote(struct weir_bucket *bucket, struct weir_result *result)
{
    bool outage = weir__answer_by_policy(bucket);
    enum weir_outage_policy policy = (enum weir_outage_policy)weir__load_relaxed(
        &bucket->limit->outage);
    if (weir__load_relaxed(&bucket->core.credit) > 0) {
        (void)weir__answer(bucket, result, WEIR_ALLOWED, WEIR_WITHIN_LIMIT, 0);
    } else if (outage && policy == WEIR_OUTAGE_OPEN) {
        (void)weir__answer(bucket, result, WEIR_ALLOWED, WEIR_STORE_DOWN, 0);
    } else if (outage && policy == WEIR_OUTAGE_CLOSED) {
        (void)weir__answer(bucket, result, WEIR_UNAVAILABLE, WEIR_STORE_DOWN, WEIR_UNKNOWN);
    } else if ((weir__load_relaxed(&bucket->core.gate) & WEIR__GATE_REFUSE) != 0) {
        (void)weir__answer(bucket, result, WEIR_DENIED, outage ? WEIR_STORE_DOWN : WEIR_OVER_LIMIT,
                           weir__answer_retry_us(bucket));
    } else {
        (void)weir__answer(bucket, result, WEIR_DENIED, WEIR_COLD, WEIR_UNKNOWN);
    }
}

int weir_peek(struct weir_bucket *bucket, struct weir_result *result)
{
    struct weir *weir = bucket->limit->weir;
    if ((weir__load_acquire(&bucket->core.gate) & WEIR__GATE_CLOSED) != 0) {
        return WEIR_ECLOSED;
    }
    if (result == NULL) {
        return WEIR_OK;
    }
    if (!weir->remote) {
        (void)try_inprocess(bucket, 0, result);
    } else {
        peek_remote(bucket, result);
        uv_mutex_lock(&weir->driver.lock);
        result->remaining_tokens = grown(bucket, weir__now_us(weir));
        uv_mutex_unlock(&weir->driver.lock);
    }
    if (weir__capped(bucket)) {
        weir__capped_look(bucket, result);
    }
    return WEIR_OK;
}
