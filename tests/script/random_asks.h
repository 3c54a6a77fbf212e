/* SPDX-License-Identifier: MIT */
#ifndef WEIR_TESTS_RANDOM_ASKS_H
#define WEIR_TESTS_RANDOM_ASKS_H

#include "core/ask.h"

/*
 * Random sequences of asks for one key, as hostile as clients, operators and clocks can be: rates
 * from one a day to 10^9 a second in each tick, periods from a microsecond to 10^12 and months,
 * rule changes with versions of either order, also from algorithm to algorithm, time that stands
 * still, jumps by years or goes back, waits that are obeyed to the microsecond or missed by one,
 * periods likewise, and settle rows and refunds that are true, stale or forged.
 */

#define RANDOM_ASKS_WINDOWS 4
#define RANDOM_ASKS_ANY ((enum weir__algorithm_id)0)

struct random_asks {
    uint64_t seed;
    enum weir__algorithm_id only; /* RANDOM_ASKS_ANY */
    struct weir__rule rule;       /* of the asks now */
    int64_t now_us;
    int64_t windows[RANDOM_ASKS_WINDOWS]; /* heard of lately, newest first */
    struct weir__grant last;
    int64_t window_ends_us; /* a guess */
};

/* Starts a sequence with a rule of its own, of one algorithm or of all. */
void random_asks_begin(struct random_asks *random, uint64_t seed, enum weir__algorithm_id only);

/* Another rule of its algorithm, or of all; the version stays. */
void random_asks_rule(struct random_asks *random);

/* The next ask; random->rule and random->now_us go with it. */
void random_asks_next(struct random_asks *random, struct weir__ask *ask);

/* What was answered; later asks build on it. */
void random_asks_heard(struct random_asks *random, const struct weir__grant *grant);

/* Seed of a test, and how many asks it makes of each kind: from the environment (WEIR_SEED,
 * WEIR_STEPS), else these. */
uint64_t random_asks_seed(uint64_t otherwise);
uint64_t random_asks_count(uint64_t otherwise);

#endif
