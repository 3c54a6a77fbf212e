/* SPDX-License-Identifier: MIT */
#ifndef WEIR_API_INPROCESS_H
#define WEIR_API_INPROCESS_H

#include "api/objects.h"

/* The store when no address is given: the global bucket is here, and callers lease from it
 * themselves. */

/* Takes `cost` > 0, <= capacity, from the global bucket, and a lease besides.  Returns whether it
 * was there; *grant then, and else, is the answer; grant->remaining counts credit as well.  Thread:
 * any.  Cost: a clock and a short lock. */
bool weir__inprocess_take(struct weir_bucket *bucket, int64_t cost, struct weir__grant *grant);

/* A look: takes nothing.  grant->remaining counts credit as well. */
void weir__inprocess_peek(struct weir_bucket *bucket, struct weir__grant *grant);

/* For the driver: an ask of the engine, for waiters. */
void weir__inprocess_ask(void *arg, struct weir__bucket *bucket, const struct weir__rule *rule,
                         const struct weir__ask *ask, struct weir__grant *grant);

/* Returns false if more than was admitted. */
bool weir__inprocess_refund(struct weir_bucket *bucket, int64_t tokens);

/* The bucket starts anew. */
void weir__inprocess_reset(struct weir_bucket *bucket);

/* The limit has changed: what accrued until now counts at the old rate, all that follows at the new
 * one. */
void weir__inprocess_adopt(struct weir_bucket *bucket);

/* Adds what the bucket has given out. */
void weir__inprocess_count(struct weir_bucket *bucket, struct weir__inprocess_sum *sum);

/* Whether the bucket is full, so that forgetting it changes nothing. */
bool weir__inprocess_full(struct weir_bucket *bucket);

#endif
