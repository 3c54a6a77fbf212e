/* SPDX-License-Identifier: MIT */
#ifndef WEIR_CORE_ALGORITHMS_TOKEN_BUCKET_H
#define WEIR_CORE_ALGORITHMS_TOKEN_BUCKET_H

#include "core/ask.h"

/*
 * lua/token_bucket.lua in C, field by field and step by step; tests hold the two together, bit
 * for bit.  It is the in-process store, and the store of most simulations.
 */

struct weir__token_bucket {
    bool exists;
    struct weir__rule rule; /* in force (R11) */
    int64_t level;          /* units; negative: reserved ahead (R12) */
    int64_t stamp_us;       /* level is as of then; moves by whole ticks, and back only by R2 */

    /* The account of open leases (R3-R5).  Present while the budget is above 0 or something is out;
     * without it `has_account` is false, the rest is zero, and a grant names no window. */
    bool has_account;
    int64_t seen_us; /* store time of the last call; the stamp may lag behind it within a tick */
    int64_t cur, cur_end_us, cur_life_us, out_cur;
    int64_t prev, out_prev;
    int64_t n_cur, n_prev;

    int64_t expires_us; /* the key vanishes then (R4) */
};

/* Runs one ask at store time `now_us`.  *bucket with exists == false is a key that is not there;
 * one whose expiry has come is made so, and nothing else of it is changed by a look. */
void weir__token_bucket_ask(struct weir__token_bucket *bucket, const struct weir__rule *rule,
                            const struct weir__ask *ask, int64_t now_us, struct weir__grant *grant);

#endif
