/* SPDX-License-Identifier: MIT */

/*
 * weir_acquire and weir_acquire_wait: take tokens now if they are there, else wait for them.
 *
 * Path of a token: credit, or the in-process store, answers at once; else a waiter is pushed to the
 * loop (io/driver), lives in its bucket's line (core/queue), and comes back through
 * weir__waiting_answered.
 *
 * Threads: the acquiring calls run anywhere; weir__waiting_answered on the loop's.  A waiter holds
 * its bucket.
 *
 * Every pushed waiter is answered exactly once: by tokens, by a refusal, by its deadline, or by the
 * closing.
 */

#include "api/waiting.h"

#include "api/answer.h"
#include "api/buckets.h"
#include "api/capped.h"
#include "api/inprocess.h"
#include "base/mem.h"
#include "base/num.h"

/* weir_acquire, on the heap. */
struct called {
    struct weir__waiting waiting;
    weir_acquire_fn fn;
    void *arg;
};

/* weir_acquire_wait, on the caller's stack. */
struct blocked {
    struct weir__waiting waiting;
    uv_sem_t done;
    struct weir_result result;
};

static void count_answer(struct weir *weir, const struct weir__waiter *core)
{
    if (core->verdict == WEIR__DENIED) {
        weir__tally_add(&weir->tallies, WEIR__COUNT_DENIED, 1);
    } else if (core->verdict == WEIR__UNAVAILABLE) {
        weir__tally_add(&weir->tallies, WEIR__COUNT_UNAVAILABLE, 1);
    }
}

void weir__waiting_answered(void *arg, struct weir__waiter *core)
{
    struct weir *weir = arg;
    struct weir__waiting *waiting = weir__container(core, struct weir__waiting, core);
    struct weir_result result;
    (void)weir__answer(waiting->bucket, &result, (enum weir_verdict)core->verdict,
                       (enum weir_reason)core->reason, core->retry_after_us);
    count_answer(weir, core);
    if (result.verdict != WEIR_ALLOWED) {
        weir__capped_undo(waiting->bucket, &waiting->taken);
    }
    (void)weir__sub_acq_rel(&weir->waiters, 1);
    waiting->done(waiting, &result);
}

static void call_back(struct weir__waiting *waiting, const struct weir_result *result)
{
    struct called *called = weir__container(waiting, struct called, waiting);
    weir_acquire_fn fn = called->fn;
    void *arg = called->arg;
    struct weir_bucket *bucket = waiting->bucket;
    weir__mem_free(called);
    fn(arg, result);
    weir_bucket_unref(bucket);
}

static void unblock(struct weir__waiting *waiting, const struct weir_result *result)
{
    struct blocked *blocked = weir__container(waiting, struct blocked, waiting);
    blocked->result = *result;
    uv_sem_post(&blocked->done); /* it is the blocked thread's again */
}

/* What can be said without waiting: a verdict or an error.  WEIR_PENDING: nothing. */
static int at_once(struct weir_bucket *bucket, uint64_t cost, uint64_t timeout_us,
                   struct weir_result *result)
{
    struct weir *weir = bucket->limit->weir;
    uint32_t gate = weir__load_acquire(&bucket->core.gate);
    if ((gate & WEIR__GATE_CLOSED) != 0) {
        return WEIR_ECLOSED;
    }
    if (cost > (uint64_t)weir__load_relaxed(&bucket->limit->capacity)) {
        return weir__try_uncapped(bucket, cost, result);
    }
    if (!weir->remote && !weir__bucket_has_line(&bucket->core)) {
        struct weir__grant grant;
        if (cost == 0) {
            return weir__try_uncapped(bucket, cost, result);
        }
        if (weir__inprocess_take(bucket, (int64_t)cost, &grant)) {
            return weir__answer_exact(bucket, result, WEIR_ALLOWED, WEIR_WITHIN_LIMIT, &grant);
        }
        if (grant.retry_after_us > (int64_t)timeout_us) {
            weir__tally_add(&weir->tallies, WEIR__COUNT_DENIED, 1);
            return weir__answer_exact(bucket, result, WEIR_DENIED, WEIR_OVER_LIMIT, &grant);
        }
        return WEIR_PENDING;
    }
    bool outage = weir__answer_by_policy(bucket);
    uint32_t policy = weir__load_relaxed(&bucket->limit->outage);
    if (weir->remote && outage && policy != WEIR_OUTAGE_LOCAL) {
        return weir__try_uncapped(bucket, cost, result);
    }
    return WEIR_PENDING;
}

/* Takes from credit unless others wait in line before us. */
static bool take_credit(struct weir_bucket *bucket, uint64_t cost)
{
    return (int64_t)cost > 0 && !weir__bucket_has_line(&bucket->core) &&
           weir__bucket_take(&bucket->core, (int64_t)cost);
}

/* The cap is asked first.  WEIR_ALLOWED and WEIR_PENDING: *taken is what it gave. */
static int take_now(struct weir_bucket *bucket, uint64_t cost, uint64_t until_us,
                    struct weir__cap_taken *taken, struct weir_result *result)
{
    *taken = (struct weir__cap_taken){0};
    int code = weir__capped(bucket) ? weir__capped_ask(bucket, cost, taken, result) : WEIR_ALLOWED;
    if (code != WEIR_ALLOWED) {
        return code;
    }
    if (take_credit(bucket, cost)) {
        return weir__answer(bucket, result, WEIR_ALLOWED, WEIR_WITHIN_LIMIT, 0);
    }
    code = at_once(bucket, cost, until_us, result);
    if (code != WEIR_ALLOWED && code != WEIR_PENDING) {
        weir__capped_undo(bucket, taken);
    }
    return code;
}

static int join(struct weir__waiting *waiting, struct weir_bucket *bucket, uint64_t cost,
                struct weir__patience patience, struct weir_result *result)
{
    struct weir *weir = bucket->limit->weir;
    if (weir__add_acq_rel(&weir->waiters, 1) >= weir->max_waiters) {
        (void)weir__sub_acq_rel(&weir->waiters, 1);
        weir__capped_undo(bucket, &waiting->taken);
        weir__tally_add(&weir->tallies, WEIR__COUNT_UNAVAILABLE, 1);
        return weir__answer(bucket, result, WEIR_UNAVAILABLE, WEIR_BUSY, WEIR_UNKNOWN);
    }
    int64_t now_us = weir__now_us(weir);
    waiting->bucket = bucket;
    waiting->core.bucket = &bucket->core;
    waiting->core.cost = (int64_t)cost;
    waiting->core.until_us = now_us + (int64_t)patience.until_us;
    waiting->core.answer_us = now_us + (int64_t)patience.answer_us;
    if (!weir__driver_join(&weir->driver, &waiting->core)) {
        (void)weir__sub_acq_rel(&weir->waiters, 1);
        weir__capped_undo(bucket, &waiting->taken);
        return WEIR_ECLOSED;
    }
    return WEIR_PENDING;
}

int weir__waiting_take(struct weir__waiting *waiting, struct weir_bucket *bucket, uint64_t cost,
                       struct weir__patience patience, struct weir_result *result)
{
    int code = take_now(bucket, cost, patience.until_us, &waiting->taken, result);
    return code == WEIR_PENDING ? join(waiting, bucket, cost, patience, result) : code;
}

static struct weir__patience patience_of(const struct weir *weir, uint64_t timeout_us)
{
    return (struct weir__patience){
        .until_us = timeout_us,
        .answer_us = timeout_us == 0 ? weir->ask_timeout_us : timeout_us,
    };
}

int weir_acquire(struct weir_bucket *bucket, uint64_t cost, uint64_t timeout_us, weir_acquire_fn fn,
                 void *arg, struct weir_result *result)
{
    if (fn == NULL || timeout_us > WEIR__TIMEOUT_MOST_US) {
        return WEIR_EINVAL;
    }
    struct weir__cap_taken taken;
    int code = take_now(bucket, cost, timeout_us, &taken, result);
    if (code != WEIR_PENDING) {
        return code;
    }
    struct called *called = weir__mem_zero(sizeof(*called));
    if (called == NULL) {
        weir__capped_undo(bucket, &taken);
        return WEIR_ENOMEM;
    }
    *called = (struct called){
        .waiting = {.taken = taken, .done = call_back},
        .fn = fn,
        .arg = arg,
    };
    code = join(&called->waiting, weir_bucket_ref(bucket), cost,
                patience_of(bucket->limit->weir, timeout_us), result);
    if (code != WEIR_PENDING) {
        weir__mem_free(called);
        weir_bucket_unref(bucket);
    }
    return code;
}

int weir_acquire_wait(struct weir_bucket *bucket, uint64_t cost, uint64_t timeout_us,
                      struct weir_result *result)
{
    struct weir *weir = bucket->limit->weir;
    uv_thread_t self = uv_thread_self();
    if (timeout_us > WEIR__TIMEOUT_MOST_US) {
        return WEIR_EINVAL;
    }
    if (uv_thread_equal(&self, &weir->thread)) {
        return WEIR_ETHREAD;
    }
    struct weir__cap_taken taken;
    int code = take_now(bucket, cost, timeout_us, &taken, result);
    if (code != WEIR_PENDING) {
        return code;
    }
    struct blocked blocked = {.waiting = {.taken = taken, .done = unblock}};
    if (uv_sem_init(&blocked.done, 0) != 0) {
        weir__capped_undo(bucket, &taken);
        return WEIR_ENOMEM;
    }
    code = join(&blocked.waiting, bucket, cost, patience_of(weir, timeout_us), result);
    if (code == WEIR_PENDING) {
        uv_sem_wait(&blocked.done);
        code = (int)blocked.result.verdict;
        if (result != NULL) {
            *result = blocked.result;
        }
    }
    uv_sem_destroy(&blocked.done);
    return code;
}

int weir_acquire_key(struct weir_limit *limit, const void *key, size_t key_len, uint64_t cost,
                     uint64_t timeout_us, weir_acquire_fn fn, void *arg, struct weir_result *result)
{
    struct weir_bucket *bucket;
    int code = weir_bucket_get(limit, key, key_len, &bucket);
    if (code != WEIR_OK) {
        return code;
    }
    code = weir_acquire(bucket, cost, timeout_us, fn, arg, result);
    weir_bucket_unref(bucket);
    return code;
}

int weir_acquire_wait_key(struct weir_limit *limit, const void *key, size_t key_len, uint64_t cost,
                          uint64_t timeout_us, struct weir_result *result)
{
    struct weir_bucket *bucket;
    int code = weir_bucket_get(limit, key, key_len, &bucket);
    if (code != WEIR_OK) {
        return code;
    }
    code = weir_acquire_wait(bucket, cost, timeout_us, result);
    weir_bucket_unref(bucket);
    return code;
}

void weir__waiting_nudge(struct weir_bucket *bucket)
{
    struct weir *weir = bucket->limit->weir;
    if (!weir__bucket_has_line(&bucket->core)) {
        return;
    }
    uv_mutex_lock(&weir->driver.lock);
    if ((weir__load_acquire(&bucket->core.gate) & WEIR__GATE_CLOSED) == 0) {
        weir__engine_nudge(&weir->driver.engine, &bucket->core, weir__now_us(weir));
    }
    uv_mutex_unlock(&weir->driver.lock);
    weir__driver_ring(&weir->driver);
}
