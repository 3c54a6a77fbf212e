/* SPDX-License-Identifier: MIT */
#ifndef WEIR_API_WAITING_H
#define WEIR_API_WAITING_H

#include "api/objects.h"

/* Callers who wait: weir_acquire and weir_acquire_wait, and what stands on them. */

#define WEIR__TIMEOUT_MOST_US (UINT64_C(3600) * 1000000)

/* One who waits.  Memory of its owner until `done`, which comes once, on the loop's thread. */
struct weir__waiting {
    struct weir__waiter core;
    struct weir_bucket *bucket;
    struct weir__cap_taken taken; /* of the bucket's cap; given back if the answer is a refusal */
    void (*done)(struct weir__waiting *waiting, const struct weir_result *result);
};

/* How long, from now: tokens that come later than `until_us` are of no use, and there must be an
 * answer after `answer_us`, which is more where the store has to be asked. */
struct weir__patience {
    uint64_t until_us;
    uint64_t answer_us;
};

/* Takes now what is there now, else waits, in memory of the caller's with `done` set.
 * Thread: any.  Owns: the caller holds the bucket until the answer.
 * Returns WEIR_PENDING: `done` comes, and may be over already; else what weir_try_acquire
 * returns. */
int weir__waiting_take(struct weir__waiting *waiting, struct weir_bucket *bucket, uint64_t cost,
                       struct weir__patience patience, struct weir_result *result);

/* The bucket has more than those in its line were told: they are asked for again.  Thread: any. */
void weir__waiting_nudge(struct weir_bucket *bucket);

/* For the driver: one is done. */
void weir__waiting_answered(void *arg, struct weir__waiter *waiter);

#endif
