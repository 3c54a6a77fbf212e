/* SPDX-License-Identifier: MIT */
#ifndef WEIR_CORE_GLOBAL_H
#define WEIR_CORE_GLOBAL_H

#include "core/ask.h"

/*
 * A global bucket and one ask about it: lua/lease.lua in C, field by field and step by step; tests
 * hold the two together, bit for bit.  It is the in-process store, and the store of most
 * simulations.  What differs from algorithm to algorithm is in core/algorithms.
 */

/* An entry of the sliding log: `count` admissions at one moment. */
struct weir__log_entry {
    int64_t at_us;
    int64_t count;
};

/* The sliding log, the oldest first.  The memory is the owner's. */
struct weir__log {
    struct weir__log_entry *entries;
    /* entries that fit; where it is less than needed, admissions share the newest */
    unsigned room;
    unsigned first; /* the oldest that still counts */
    unsigned end;   /* one past the newest */
};

struct weir__global {
    bool exists;
    struct weir__rule rule; /* in force (R11) */
    int64_t level;          /* as the algorithm has it; see lua/ */
    int64_t stamp_us;       /* likewise */
    int64_t extra;          /* the sliding counter's period before */
    struct weir__log log;

    /* The account of open leases (R3-R5).  Present while the budget is above 0 or something is out;
     * without it `has_account` is false, the rest is zero, and a grant names no window. */
    bool has_account;
    int64_t seen_us; /* store time of the last call; the stamp may lag behind it */
    int64_t cur, cur_end_us, cur_life_us, out_cur;
    int64_t prev, out_prev;
    int64_t n_cur, n_prev;
    int64_t ago; /* how many periods before cur prev was: 0, 1; 2: more */

    int64_t expires_us; /* the key vanishes then (R4) */
};

/* Runs one ask at store time `now_us`.  *global with exists == false is a key that is not there;
 * one whose expiry has come is made so, and nothing else of it is changed by a look. */
void weir__global_ask(struct weir__global *global, const struct weir__rule *rule,
                      const struct weir__ask *ask, int64_t now_us, struct weir__grant *grant);

/* How many entries of a log one more ask under this rule may need, at most; 0 for other
 * algorithms.  The owner gives the log that much room, or less (struct weir__log). */
unsigned weir__global_log_need(const struct weir__global *global, const struct weir__rule *rule);

#endif
