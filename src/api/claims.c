/* SPDX-License-Identifier: MIT */

/*
 * Several limits at once: weir_try_acquire_all, weir_acquire_all, weir_acquire_all_wait.  All of
 * some claims, or none.
 *
 * Path of a token: weir_try_acquire, or api/waiting, takes it for each bucket in turn; when one
 * refuses, weir_refund gives back what the others gave (R10).  Claims of one bucket are one part,
 * whose cost is their sum.
 *
 * Trying: in the caller's order.  Each bucket after the one that refuses is looked at, for the time
 * to tell, and so that all that are cold ask for leases at once and not one after the other.
 *
 * Waiting: in rounds.  All callers take in one order, that of addresses; but one bucket, the pivot,
 * comes first.
 *
 *     the pivot           asked with all the time that is left, while nothing is held
 *     those before it     asked, and not waited for
 *     those after it      waited for up to ask_timeout * 2^round
 *
 * Whoever refuses, and might not have with more time, ends the round: all is given back, and it is
 * the next round's pivot.  The first round's is the first in order.
 *
 * Nobody waits for ever: a wait for one bucket ends by its own deadline, whatever others hold.
 * No circle: who waits and holds something waits for a bucket that comes after all it holds.  Of
 * two who hold what the other wants, the one with the later bucket is refused at once and gives it
 * back; it does not meet the other again so, for its next pivot is the earlier one.
 * It ends: a refusal by who was asked with all the time left is the answer.  From round DOUBLINGS
 * on that is the pivot and all after it; so the pivot can only move down, CLAIMS_MOST times at
 * most.
 * Lines that never empty do not starve it: patience doubles, and at last outlasts any line that
 * the call's own time does.
 * Waiting costs others little: what is held meanwhile is held for a few ask timeouts in the first
 * rounds, and longer only after as many refusals.  A caller without hope in one bucket's line does
 * not drain the others: it waits there with empty hands.
 *
 * The promise: tokens are counted when they are taken, and used when the last is there.  Between
 * the two lies a time H: no more than the call's timeout, and for a call of n buckets that is
 * answered in its first round n - 1 ask timeouts; each bucket's bound grows by min(r * H, C), as by
 * any grant of which its caller hears late.
 *
 * Threads: a call belongs to who makes it until the first wait begins, then to the loop's.  At most
 * one waiter of it is anywhere at a time, in its own memory, so that nothing can run out midway.
 *
 * Failures: what an outage policy let through was not taken, and is not given back.  What cannot be
 * given back (the weir is closing; a departure of a leaky bucket; a period that is over) is lost,
 * the safe side.  A closing weir answers the waiter, and so the call, once.
 */

#include "api/answer.h"
#include "api/buckets.h"
#include "api/waiting.h"
#include "base/check.h"
#include "base/mem.h"
#include "base/num.h"

/* The least ask timeout, 1 ms, doubled so often is more than an hour, the longest timeout. */
#define DOUBLINGS 22
#define ROUNDS_MOST (DOUBLINGS + WEIR_CLAIMS_MOST)

/* A bucket, and all that is wanted of it. */
struct part {
    struct weir_bucket *bucket;
    uint64_t cost;
    size_t index; /* of the first claim of this bucket */
    bool owed;    /* taken, to be given back if another refuses */
};

struct parts {
    struct part at[WEIR_CLAIMS_MOST];
    size_t count;
    size_t claims;
};

/* A call that may wait.  On the heap for weir_acquire_all, on the caller's stack for
 * weir_acquire_all_wait. */
struct call {
    struct weir__waiting waiting; /* in the one bucket that is asked */
    struct weir *weir;
    struct parts parts;
    bool waits;
    int64_t until_us; /* our clock */
    size_t pivot;
    size_t step; /* parts taken in this round */
    unsigned round;
    bool last;              /* the part that is asked has all the time that is left */
    weir_acquire_all_fn fn; /* NULL: somebody blocks on `done` */
    void *arg;
    uv_sem_t done;
    struct weir_result result; /* of the parts taken the one with the fewest left, or the refusal */
    size_t refused;
};

/* ---- Parts ----------------------------------------------------------------------------------- */

static struct part *part_of(struct parts *parts, struct weir_bucket *bucket)
{
    for (size_t i = 0; i < parts->count; i++) {
        if (parts->at[i].bucket == bucket) {
            return &parts->at[i];
        }
    }
    return NULL;
}

static int gather(struct parts *parts, const struct weir_claim *claims, size_t count)
{
    if (claims == NULL || count < 1 || count > WEIR_CLAIMS_MOST) {
        return WEIR_EINVAL;
    }
    parts->count = 0;
    parts->claims = count;
    for (size_t i = 0; i < count; i++) {
        struct weir_bucket *bucket = claims[i].bucket;
        uint64_t cost = claims[i].cost;
        if (bucket == NULL || bucket->limit->weir != claims[0].bucket->limit->weir) {
            return WEIR_EINVAL;
        }
        struct part *part = part_of(parts, bucket);
        if (part == NULL) {
            parts->at[parts->count++] = (struct part){.bucket = bucket, .cost = cost, .index = i};
        } else {
            part->cost = cost > UINT64_MAX - part->cost ? UINT64_MAX : part->cost + cost;
        }
    }
    return WEIR_OK;
}

/* Refuses the first part that can never be had.  WEIR_PENDING: there is none. */
static int refuse_too_large(const struct parts *parts, struct weir_result *result, size_t *refused)
{
    for (size_t i = 0; i < parts->count; i++) {
        struct weir_bucket *bucket = parts->at[i].bucket;
        if (parts->at[i].cost <= (uint64_t)weir__load_relaxed(&bucket->limit->capacity)) {
            continue;
        }
        if ((weir__load_acquire(&bucket->core.gate) & WEIR__GATE_CLOSED) != 0) {
            return WEIR_ECLOSED;
        }
        *refused = parts->at[i].index;
        weir__tally_add(bucket->tallies, WEIR__COUNT_DENIED, 1);
        return weir__answer(bucket, result, WEIR_DENIED, WEIR_COST_ABOVE_CAPACITY, WEIR_NEVER);
    }
    return WEIR_PENDING;
}

static void give_back(struct parts *parts)
{
    for (size_t i = 0; i < parts->count; i++) {
        struct part *part = &parts->at[i];
        if (part->owed) {
            part->owed = false;
            (void)weir_refund(part->bucket, part->cost); /* ECLOSED: lost with all the rest */
        }
    }
}

/* *result becomes that of the part with fewer tokens left. */
static void keep_fewest(struct weir_result *result, const struct weir_result *one, bool first)
{
    bool fewer = one->remaining_tokens >= 0 &&
                 (result->remaining_tokens < 0 || one->remaining_tokens < result->remaining_tokens);
    if (first || fewer) {
        *result = *one;
    }
}

static void take(struct part *part, const struct weir_result *one)
{
    part->owed = part->cost > 0 && one->reason == WEIR_WITHIN_LIMIT;
}

/* *result is a refusal: it lasts as long as that of this part does, if that is known. */
static void lengthen(struct weir_result *result, const struct part *part)
{
    struct weir_result look;
    int code = weir_try_acquire(part->bucket, 0, &look);
    if ((code == WEIR_DENIED || code == WEIR_UNAVAILABLE) && result->retry_after_us != WEIR_NEVER) {
        result->retry_after_us = weir__max(result->retry_after_us, look.retry_after_us);
    }
}

static void tell(struct weir_result *to_result, size_t *to_refused,
                 const struct weir_result *result, size_t refused)
{
    if (to_result != NULL) {
        *to_result = *result;
    }
    if (to_refused != NULL) {
        *to_refused = refused;
    }
}

/* ---- Trying ---------------------------------------------------------------------------------- */

/* *result is filled if `told`, and always where a policy may let through what was not taken. */
static int try_parts(struct parts *parts, bool told, struct weir_result *result, size_t *refused)
{
    told = told || parts->at[0].bucket->limit->weir->remote;
    for (size_t i = 0; i < parts->count; i++) {
        struct part *part = &parts->at[i];
        struct weir_result one = {.reason = WEIR_WITHIN_LIMIT};
        int code = weir_try_acquire(part->bucket, part->cost, told ? &one : NULL);
        if (code == WEIR_ALLOWED) {
            take(part, &one);
            keep_fewest(result, &one, i == 0);
            continue;
        }
        give_back(parts);
        for (size_t k = i + 1; told && code >= 0 && k < parts->count; k++) {
            lengthen(&one, &parts->at[k]);
        }
        *result = one;
        *refused = part->index;
        return code;
    }
    *refused = parts->claims;
    return WEIR_ALLOWED;
}

int weir_try_acquire_all(const struct weir_claim *claims, size_t count, struct weir_result *result,
                         size_t *refused)
{
    struct parts parts;
    struct weir_result told;
    size_t index;
    if (gather(&parts, claims, count) != WEIR_OK) {
        return WEIR_EINVAL;
    }
    int code = refuse_too_large(&parts, &told, &index);
    if (code == WEIR_PENDING) {
        code = try_parts(&parts, result != NULL, &told, &index);
    }
    if (code >= 0) {
        tell(result, refused, &told, index);
    }
    return code;
}

/* ---- Waiting --------------------------------------------------------------------------------- */

/* All callers' order: of addresses. */
static void sort(struct parts *parts)
{
    for (size_t i = 1; i < parts->count; i++) {
        struct part part = parts->at[i];
        size_t k = i;
        for (; k > 0 && (uintptr_t)parts->at[k - 1].bucket > (uintptr_t)part.bucket; k--) {
            parts->at[k] = parts->at[k - 1];
        }
        parts->at[k] = part;
    }
}

/* The part of a step: the pivot, then the others in order. */
static size_t part_at(const struct call *call, size_t step)
{
    if (step == 0) {
        return call->pivot;
    }
    return step <= call->pivot ? step - 1 : step;
}

/* How long the part of this step may be waited for, of what time is left. */
static int64_t longest_us(const struct call *call)
{
    size_t part = part_at(call, call->step);
    if (part == call->pivot) {
        return INT64_MAX;
    }
    int64_t doublings = weir__min(call->round, DOUBLINGS);
    return part < call->pivot ? 0 : (int64_t)call->weir->ask_timeout_us << doublings;
}

static struct weir__patience patience(struct call *call)
{
    int64_t left_us = 0;
    int64_t answer_us = (int64_t)call->weir->ask_timeout_us;
    if (call->waits) {
        left_us = weir__max(call->until_us - weir__now_us(call->weir), 0);
        answer_us = weir__min(answer_us, left_us);
    }
    int64_t until_us = weir__min(left_us, longest_us(call));
    call->last = until_us == left_us;
    return (struct weir__patience){
        .until_us = (uint64_t)until_us,
        .answer_us = (uint64_t)(until_us > 0 ? until_us : answer_us),
    };
}

/* Whether who refused so might not have with more time. */
static bool time_helps(const struct weir_result *one)
{
    switch (one->reason) {
    case WEIR_OVER_LIMIT:
    case WEIR_COLD:
    case WEIR_DEADLINE: return true;
    case WEIR_STORE_DOWN: return one->verdict == WEIR_DENIED; /* the local share is used up */
    case WEIR_WITHIN_LIMIT:
    case WEIR_COST_ABOVE_CAPACITY:
    case WEIR_BUSY:
    case WEIR_CLOSED:
    case WEIR_OVER_CAP: break;
    }
    return false;
}

/* The part that was asked has said `code`.  WEIR_PENDING: the next one is to be asked. */
static int hear(struct call *call, int code, const struct weir_result *one)
{
    struct parts *parts = &call->parts;
    size_t asked = part_at(call, call->step);
    if (code == WEIR_ALLOWED) {
        take(&parts->at[asked], one);
        keep_fewest(&call->result, one, call->step == 0);
        call->refused = parts->claims;
        return ++call->step < parts->count ? WEIR_PENDING : WEIR_ALLOWED;
    }
    give_back(parts);
    if (code >= 0 && !call->last && time_helps(one)) {
        WEIR__ASSERT(call->round < ROUNDS_MOST);
        call->round++;
        call->pivot = asked;
        call->step = 0;
        return WEIR_PENDING;
    }
    call->refused = parts->at[asked].index;
    if (code >= 0) {
        call->result = *one;
        for (size_t step = call->step + 1; step < parts->count; step++) {
            lengthen(&call->result, &parts->at[part_at(call, step)]);
        }
    }
    return code;
}

/* WEIR_PENDING: the call is the loop's now. */
static int go_on(struct call *call)
{
    int code;
    do {
        struct part *part = &call->parts.at[part_at(call, call->step)];
        struct weir_result one;
        code = weir__waiting_take(&call->waiting, part->bucket, part->cost, patience(call), &one);
        if (code == WEIR_PENDING) {
            return WEIR_PENDING;
        }
        code = hear(call, code, &one);
    } while (code == WEIR_PENDING);
    return code;
}

static void release(struct call *call)
{
    for (size_t i = 0; i < call->parts.count; i++) {
        weir_bucket_unref(call->parts.at[i].bucket);
    }
    weir__mem_free(call);
}

static void on_answer(struct weir__waiting *waiting, const struct weir_result *one)
{
    struct call *call = weir__container(waiting, struct call, waiting);
    int code = hear(call, (int)one->verdict, one);
    if (code == WEIR_PENDING) {
        code = go_on(call);
    }
    if (code == WEIR_PENDING) {
        return;
    }
    if (code < 0) { /* it was closed between two parts */
        struct weir_bucket *bucket = call->parts.at[part_at(call, call->step)].bucket;
        (void)weir__answer(bucket, &call->result, WEIR_UNAVAILABLE, WEIR_CLOSED, WEIR_UNKNOWN);
    }
    if (call->fn == NULL) {
        uv_sem_post(&call->done); /* it is the blocked thread's again */
        return;
    }
    call->fn(call->arg, &call->result, call->refused);
    release(call);
}

static int begin(struct call *call, uint64_t timeout_us)
{
    int code = refuse_too_large(&call->parts, &call->result, &call->refused);
    if (code != WEIR_PENDING) {
        return code;
    }
    sort(&call->parts);
    call->waiting.done = on_answer;
    call->weir = call->parts.at[0].bucket->limit->weir;
    call->waits = timeout_us > 0;
    call->until_us = weir__now_us(call->weir) + (int64_t)timeout_us;
    return go_on(call);
}

int weir_acquire_all(const struct weir_claim *claims, size_t count, uint64_t timeout_us,
                     weir_acquire_all_fn fn, void *arg, struct weir_result *result, size_t *refused)
{
    struct parts parts;
    if (gather(&parts, claims, count) != WEIR_OK || fn == NULL ||
        timeout_us > WEIR__TIMEOUT_MOST_US) {
        return WEIR_EINVAL;
    }
    struct call *call = weir__mem_zero(sizeof(*call));
    if (call == NULL) {
        return WEIR_ENOMEM;
    }
    call->parts = parts;
    call->fn = fn;
    call->arg = arg;
    for (size_t i = 0; i < parts.count; i++) {
        (void)weir_bucket_ref(parts.at[i].bucket);
    }
    int code = begin(call, timeout_us);
    if (code == WEIR_PENDING) {
        return WEIR_PENDING;
    }
    if (code >= 0) {
        tell(result, refused, &call->result, call->refused);
    }
    release(call);
    return code;
}

int weir_acquire_all_wait(const struct weir_claim *claims, size_t count, uint64_t timeout_us,
                          struct weir_result *result, size_t *refused)
{
    struct call call = {.fn = NULL};
    if (gather(&call.parts, claims, count) != WEIR_OK || timeout_us > WEIR__TIMEOUT_MOST_US) {
        return WEIR_EINVAL;
    }
    uv_thread_t self = uv_thread_self();
    if (uv_thread_equal(&self, &claims[0].bucket->limit->weir->thread)) {
        return WEIR_ETHREAD;
    }
    if (uv_sem_init(&call.done, 0) != 0) {
        return WEIR_ENOMEM;
    }
    int code = begin(&call, timeout_us);
    if (code == WEIR_PENDING) {
        uv_sem_wait(&call.done);
        code = (int)call.result.verdict;
    }
    if (code >= 0) {
        tell(result, refused, &call.result, call.refused);
    }
    uv_sem_destroy(&call.done);
    return code;
}
