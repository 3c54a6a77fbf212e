/* SPDX-License-Identifier: MIT */

/*
 * The cap of a limit, for callers: what core/cap says, under a lock and by this weir's clock.
 *
 * Path of a token: weir_try_acquire and weir_acquire come here first, and only for buckets whose
 * gate says CAPPED.  Who is refused goes no further; the cap makes nobody wait.
 *
 * Invariant: what the bucket refuses in the end, at once or after a wait, the cap gets back.  In
 * between it is taken, and another caller may be refused for it.
 *
 * Threads: a bucket's cap and the limit's own numbers are read and changed under the bucket's
 * stripe.  The gate's bit follows weir_limit.capped: whoever changes that visits all buckets of the
 * limit, and who makes a bucket looks once more when the visits can see it.  So the bit is missing
 * until the visit is over at most; it may be left where the cap is gone, and then costs a lock.
 */

#include "api/capped.h"

#include "api/answer.h"
#include "base/num.h"

#define NS_PER_US 1000

static int64_t now_ns(const struct weir *weir) { return (int64_t)weir->clock_ns(weir->clock_arg); }

/* Time until the cap allows a take, in microseconds and rounded up; 0: now, and then *taken is. */
static int64_t take(struct weir_bucket *bucket, int64_t cost, struct weir__cap_taken *taken)
{
    *taken = (struct weir__cap_taken){0};
    int64_t wait_ns = 0;
    uv_mutex_t *stripe = weir__stripe_of(bucket);
    uv_mutex_lock(stripe);
    const struct weir__cap_config *config = &bucket->limit->core.cap;
    if (config->tokens > 0) {
        wait_ns = weir__cap_take(&bucket->cap, config, cost, taken, now_ns(bucket->limit->weir));
    }
    uv_mutex_unlock(stripe);
    return weir__div_up(wait_ns, NS_PER_US);
}

int weir__capped_ask(struct weir_bucket *bucket, uint64_t cost, struct weir__cap_taken *taken,
                     struct weir_result *result)
{
    bool closed = (weir__load_acquire(&bucket->core.gate) & WEIR__GATE_CLOSED) != 0;
    if (closed || cost > (uint64_t)weir__load_relaxed(&bucket->limit->capacity)) {
        *taken = (struct weir__cap_taken){0}; /* the bucket has an answer that comes first */
        return WEIR_ALLOWED;
    }
    int64_t wait_us = take(bucket, (int64_t)cost, taken);
    if (wait_us == 0) {
        return WEIR_ALLOWED;
    }
    weir__tally_add(bucket->tallies, WEIR__COUNT_DENIED, 1);
    return weir__answer(bucket, result, WEIR_DENIED, WEIR_OVER_CAP, wait_us);
}

void weir__capped_undo(struct weir_bucket *bucket, const struct weir__cap_taken *taken)
{
    if (taken->cost == 0) {
        return;
    }
    uv_mutex_t *stripe = weir__stripe_of(bucket);
    uv_mutex_lock(stripe);
    const struct weir__cap_config *config = &bucket->limit->core.cap;
    if (config->tokens > 0) {
        weir__cap_undo(&bucket->cap, config, taken, now_ns(bucket->limit->weir));
    }
    uv_mutex_unlock(stripe);
}

void weir__capped_refund(struct weir_bucket *bucket, uint64_t tokens)
{
    uv_mutex_t *stripe = weir__stripe_of(bucket);
    uv_mutex_lock(stripe);
    const struct weir__cap_config *config = &bucket->limit->core.cap;
    if (config->tokens > 0) {
        int64_t most = weir__min((int64_t)tokens, WEIR__CAP_COST_MOST);
        weir__cap_refund(&bucket->cap, config, most, now_ns(bucket->limit->weir));
    }
    uv_mutex_unlock(stripe);
}

void weir__capped_look(struct weir_bucket *bucket, struct weir_result *result)
{
    struct weir__cap_taken taken;
    int64_t wait_us = take(bucket, 0, &taken);
    if (wait_us > 0) {
        result->verdict = WEIR_DENIED;
        result->reason = WEIR_OVER_CAP;
        result->retry_after_us = wait_us;
    }
}

bool weir__capped_owes(struct weir_bucket *bucket)
{
    struct weir__cap_taken taken;
    return take(bucket, 0, &taken) > 0;
}
