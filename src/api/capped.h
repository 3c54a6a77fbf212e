/* SPDX-License-Identifier: MIT */
#ifndef WEIR_API_CAPPED_H
#define WEIR_API_CAPPED_H

#include "api/objects.h"

/* The cap of a bucket's limit (core/cap), asked before the bucket.  Thread: any. */

/* Whether there may be one: one bit of the line that every caller reads. */
static inline bool weir__capped(const struct weir_bucket *bucket)
{
    /* Relaxed: the cap itself is read under its lock. */
    return (weir__load_relaxed(&bucket->core.gate) & WEIR__GATE_CAPPED) != 0;
}

/* For who is going to ask the bucket for `cost`.  WEIR_ALLOWED: go on, and give *taken to
 * weir__capped_undo if the bucket refuses.  Else the verdict, with *result filled and counted. */
int weir__capped_ask(struct weir_bucket *bucket, uint64_t cost, struct weir__cap_taken *taken,
                     struct weir_result *result);

/* Nothing happens if nothing was taken. */
void weir__capped_undo(struct weir_bucket *bucket, const struct weir__cap_taken *taken);

void weir__capped_refund(struct weir_bucket *bucket, uint64_t tokens);

/* What a look at the bucket has found, unless the cap refuses. */
void weir__capped_look(struct weir_bucket *bucket, struct weir_result *result);

/* Whether a new cap would let more through now than this one. */
bool weir__capped_owes(struct weir_bucket *bucket);

/* weir_try_acquire without the cap.  (In api/acquire.) */
int weir__try_uncapped(struct weir_bucket *bucket, uint64_t cost, struct weir_result *result);

#endif
