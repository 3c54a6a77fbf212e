/* SPDX-License-Identifier: MIT */
/*
 * Measures short operations on a machine that is not quiet.
 *
 * A batch is a few microseconds, long against the clock's own cost and short against the time
 * between two interruptions.  A run takes many batches of each operation in turn and keeps the
 * median batch; the result is the median of the runs, with the least and the most beside it.
 */
#include "cost.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "clock.h"

#define BATCHES 101
#define BATCH_OPERATIONS 2000
#define RUN_LIMIT_NS (2 * NS_PER_S)

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median batch of one run, in ns an operation; < 0: the path was hardly ever taken. */
static double run_once(const struct cost *cost)
{
    double batches_ns[BATCHES];
    unsigned done = 0;
    int64_t until_ns = clock_now_ns() + RUN_LIMIT_NS;
    while (done < BATCHES) {
        int64_t start_ns = clock_now_ns();
        bool counts = cost->batch(cost->arg, BATCH_OPERATIONS);
        int64_t end_ns = clock_now_ns();
        if (end_ns > until_ns) {
            return -1;
        }
        if (counts) {
            batches_ns[done++] = (double)(end_ns - start_ns) / BATCH_OPERATIONS;
        }
    }
    qsort(batches_ns, BATCHES, sizeof batches_ns[0], compare);
    return batches_ns[BATCHES / 2];
}

bool cost_measure(struct cost *costs, size_t count, char *why, size_t why_size)
{
    for (unsigned run = 0; run < COST_RUNS; run++) {
        for (size_t i = 0; i < count; i++) {
            costs[i].runs_ns[run] = run_once(&costs[i]);
            if (costs[i].runs_ns[run] < 0) {
                snprintf(why, why_size, "%s: the operations do not take this path", costs[i].name);
                return false;
            }
        }
    }
    for (size_t i = 0; i < count; i++) {
        struct cost *cost = &costs[i];
        qsort(cost->runs_ns, COST_RUNS, sizeof cost->runs_ns[0], compare);
        cost->median_ns = cost->runs_ns[COST_RUNS / 2];
        cost->least_ns = cost->runs_ns[0];
        cost->most_ns = cost->runs_ns[COST_RUNS - 1];
    }
    return true;
}
