/* SPDX-License-Identifier: MIT */
#ifndef WEIR_TESTS_RANDOM_ASKS_H
#define WEIR_TESTS_RANDOM_ASKS_H

#include "core/ask.h"

/*
 * Random sequences of asks for one key, as hostile as clients, operators and clocks can be: rates
 * from one a day to 10^9 a second in each tick, rule changes with versions of either order, time
 * that stands still, jumps by years or goes back, waits that are obeyed to the microsecond or
 * missed by one, and settle rows that are true, stale or forged.
 */

#define RANDOM_ASKS_WINDOWS 4

struct random_asks {
    uint64_t seed;
    struct weir__rule rule; /* of the asks now */
    int64_t now_us;
    int64_t windows[RANDOM_ASKS_WINDOWS]; /* heard of lately, newest first */
    struct weir__grant last;
    int64_t window_ends_us; /* a guess */
};

/* Starts a sequence with a rule of its own. */
void random_asks_begin(struct random_asks *random, uint64_t seed);

/* The next ask; random->rule and random->now_us go with it. */
void random_asks_next(struct random_asks *random, struct weir__ask *ask);

/* What was answered; later asks build on it. */
void random_asks_heard(struct random_asks *random, const struct weir__grant *grant);

/* Seed and count of a test: from the environment (WEIR_SEED, WEIR_STEPS), else these. */
uint64_t random_asks_seed(uint64_t otherwise);
uint64_t random_asks_count(uint64_t otherwise);

#endif
