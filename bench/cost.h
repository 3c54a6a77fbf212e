/* SPDX-License-Identifier: MIT */
#ifndef WEIR_BENCH_COST_H
#define WEIR_BENCH_COST_H

#include <stdbool.h>
#include <stddef.h>

/* What operations of nanoseconds cost, side by side. */

#define COST_RUNS 21 /* odd, so that the median is a run */

/* One operation to measure. */
struct cost {
    const char *name;
    /* Does the operation `count` times.  Returns false when this batch does not count: not every
     * operation took the path that is measured. */
    bool (*batch)(void *arg, unsigned count);
    void *arg;
    double runs_ns[COST_RUNS];
    double median_ns, least_ns, most_ns; /* of the runs */
};

/* Measures all, in turn in each run, so that a noisy moment strikes them alike.  Returns false with
 * the reason when one hardly ever took its path. */
bool cost_measure(struct cost *costs, size_t count, char *why, size_t why_size);

#endif
