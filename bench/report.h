/* SPDX-License-Identifier: MIT */
#ifndef WEIR_BENCH_REPORT_H
#define WEIR_BENCH_REPORT_H

#include "cost.h"
#include "crew.h"

#define UNKNOWN (-1.0) /* a number of a report that was not to be had */

/* All that a run of the demo has found out. */
struct report {
    const struct settings *settings;
    struct crew_result load;
    double redis_cpu_percent; /* of one core; UNKNOWN */
    bool has_naive;
    unsigned naive_seconds;
    struct crew_result naive;
    double naive_redis_cpu_percent;
    struct cost allow, deny;

    /* worked out by report_conclude */
    double
        perfect;  /* what a perfect limiter of this kind admits; C + r*t where it has no periods */
    double bound; /* for the whole run, with the budget */
    double used_share;                                        /* admitted / perfect */
    double decisions_per_store_call, admitted_per_store_call; /* UNKNOWN: there was no call */
    int64_t horizon_ns;
    bool disturbed; /* a thread was late by more than a horizon: the machine was not quiet */
};

void report_conclude(struct report *report);
void report_print(const struct report *report);
void report_print_json(const struct report *report); /* one line */

/* 0: the bound held and the limit was used; 3: held, but disturbed; 1: else. */
int report_exit_status(const struct report *report);

#endif
