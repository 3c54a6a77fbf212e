/* SPDX-License-Identifier: MIT */
#ifndef WEIR_TESTS_CROWD_H
#define WEIR_TESTS_CROWD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/engine.h"
#include "core/global.h"

/*
 * A crowd of processes under one limit of any algorithm: real engines, one store, callers at
 * random, messages that are slow or lost, processes that crash, all in virtual time.  What comes
 * out is the list of admissions in the store's time, to be held against the bound.
 */

#define CROWD_MOST 16

struct admission {
    int64_t at_us;
    int64_t tokens;
};

struct admissions {
    struct admission *list; /* by time */
    size_t count, room;
};

struct crowd_plan {
    struct weir__rule rule;
    unsigned processes;
    double offered_per_s; /* over all processes, in tokens */
    int64_t seconds_us;   /* how long */
    int64_t rtt_us;       /* each way: half of it, +-50 % */
    double lost;          /* part of the replies */
    double crashes_per_s; /* of one process or another */
    double waiting;       /* part of the callers who wait, up to wait_us */
    int64_t wait_us;
    bool slots_only; /* record when a slot is used, not when it is decided */
    uint64_t seed;
};

struct crowd_result {
    struct admissions admissions;
    uint64_t calls, allowed, asks, denied, unanswered;
    int64_t stranded; /* term S */
};

/* Runs the plan from store time `begin_us`.  The result's list is the caller's, until
 * crowd_free. */
void crowd_run(const struct crowd_plan *plan, int64_t begin_us, struct crowd_result *result);
void crowd_free(struct crowd_result *result);

void admissions_add(struct admissions *admissions, int64_t at_us, int64_t tokens);

/* The most that was admitted in an interval [x, x + length). */
int64_t admissions_worst(const struct admissions *admissions, int64_t length_us);

/* The most in one period aligned to the epoch. */
int64_t admissions_worst_aligned(const struct admissions *admissions, int64_t period_us);

/* The most tokens above rate * t over any interval [x, x + t], t >= 0: the burst. */
int64_t admissions_burst(const struct admissions *admissions, const struct weir__rule *rule);

/* The most that the sliding counter's own formula ever came to, rounded up. */
int64_t admissions_weighted(const struct admissions *admissions, int64_t period_us);

#endif
