/* SPDX-License-Identifier: MIT */

/*
 * Results.
 *
 * The loop leaves hints in a bucket's first line as answers come: tokens left in the store, when
 * the next are due, when the bucket is full.  Each is a relaxed word of its own; together they may
 * be of two neighbouring answers, which is as old as a hint is allowed to be.  The in-process store
 * leaves none: it is asked.
 */

#include "api/answer.h"

#include "api/inprocess.h"
#include "base/num.h"

static int64_t from_now_us(const struct weir_bucket *bucket, int64_t at_us)
{
    if (at_us == WEIR__HINT_UNKNOWN) {
        return WEIR_UNKNOWN;
    }
    return weir__max(at_us - weir__now_us(bucket->limit->weir), 0);
}

int64_t weir__answer_retry_us(const struct weir_bucket *bucket)
{
    int64_t us = from_now_us(bucket, weir__load_relaxed(&bucket->core.retry_at_us));
    return us == 0 ? WEIR_UNKNOWN : us; /* it is past: the next answer is on its way */
}

bool weir__answer_by_policy(const struct weir_bucket *bucket)
{
    /* Relaxed: each is acted on alone. */
    return weir__load_relaxed(&bucket->limit->weir->driver.view) == WEIR__VIEW_OUTAGE ||
           weir__bucket_is_broken(&bucket->core);
}

int weir__answer(struct weir_bucket *bucket, struct weir_result *result, enum weir_verdict verdict,
                 enum weir_reason reason, int64_t retry_after_us)
{
    if (result == NULL) {
        return (int)verdict;
    }
    bool told = reason == WEIR_WITHIN_LIMIT || reason == WEIR_OVER_LIMIT;
    if (told && !bucket->limit->weir->remote) {
        struct weir__grant grant;
        weir__inprocess_peek(bucket, &grant);
        grant.retry_after_us = retry_after_us;
        return weir__answer_exact(bucket, result, verdict, reason, &grant);
    }
    int64_t capacity = weir__load_relaxed(&bucket->limit->capacity);
    int64_t remaining = weir__load_relaxed(&bucket->core.remaining);
    if (remaining != WEIR__HINT_UNKNOWN) {
        remaining = weir__min(remaining + weir__load_relaxed(&bucket->core.credit), capacity);
    }
    bool known = told && remaining != WEIR__HINT_UNKNOWN;
    *result = (struct weir_result){
        .verdict = verdict,
        .reason = reason,
        .limit_tokens = capacity,
        .remaining_tokens = known ? remaining : WEIR_UNKNOWN,
        .retry_after_us = retry_after_us,
        .reset_after_us = told ? from_now_us(bucket, weir__load_relaxed(&bucket->core.reset_at_us))
                               : WEIR_UNKNOWN,
    };
    return (int)verdict;
}

int weir__answer_exact(struct weir_bucket *bucket, struct weir_result *result,
                       enum weir_verdict verdict, enum weir_reason reason,
                       const struct weir__grant *grant)
{
    if (result != NULL) {
        *result = (struct weir_result){
            .verdict = verdict,
            .reason = reason,
            .limit_tokens = weir__load_relaxed(&bucket->limit->capacity),
            .remaining_tokens = grant->remaining,
            .retry_after_us = verdict == WEIR_ALLOWED ? 0 : grant->retry_after_us,
            .reset_after_us = grant->reset_after_us,
        };
    }
    return (int)verdict;
}
