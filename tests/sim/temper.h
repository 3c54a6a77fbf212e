/* SPDX-License-Identifier: MIT */
#ifndef WEIR_TESTS_TEMPER_H
#define WEIR_TESTS_TEMPER_H

#include "sim/sim.h"

/*
 * A hostile world.  Each seed has a temperament of its own: which faults there are and how often,
 * how callers behave, how slow and lossy the network is (swarm testing: a mix of everything
 * everywhere would drown the schedules that need one thing often and another never).
 */

enum temper_fault {
    TEMPER_CRASH,
    TEMPER_STALL,
    TEMPER_CUT,
    TEMPER_HANG,
    TEMPER_CLOCK_BACK,
    TEMPER_CLOCK_FORWARD,
    TEMPER_DATA_LOSS,
    TEMPER_FAILOVER,
    TEMPER_LIMIT,
    TEMPER_FAULTS,
};

struct temper {
    struct sim_config config;
    struct weir__rule rules[STORE_KEYS_MAX];
    unsigned processes;
    bool lua;
    unsigned faults;       /* a set of enum temper_fault, as bits */
    double fault_rate;     /* of what happens, how often it is a fault */
    double tries, refunds; /* and of the rest: a try, a refund; else a waiter */
    double greedy;         /* how often a caller takes all there is */
    double large;          /* how often a cost is large */
    double patient;        /* how often a waiter waits for long */
    double edgy;           /* how often time moves to where something is due */
    double quiet;          /* how often nobody comes for a while */
    int64_t length_us;
};

/* The temperament of a seed.  `with` is added to its faults. */
void temper_of(struct temper *temper, uint64_t seed, unsigned with);

/* One world from beginning to end: hostile for length_us, then mended, to see that everybody is
 * served, then left alone, to see that all comes to rest.  Returns whether all checks held; if not,
 * sim->failure says which did not. */
bool temper_run(struct sim *sim, const struct temper *temper, struct lua_host *lua, int script);

void temper_print(const struct temper *temper, FILE *out);

#endif
