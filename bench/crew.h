/* SPDX-License-Identifier: MIT */
#ifndef WEIR_BENCH_CREW_H
#define WEIR_BENCH_CREW_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "record.h"
#include "settings.h"

/*
 * Many threads of many processes that make decisions to one schedule, started and ended
 * together.  What a decision is, is the trade of the crew.
 */

enum outcome { OUTCOME_DENIED, OUTCOME_ALLOWED, OUTCOME_FAILED };

/* What one process reports at its end, in memory that all share. */
struct process_report {
    uint64_t store_calls; /* for the hot key */
    uint64_t stranded;    /* tokens of the promise's term S */
    uint64_t over_limit;  /* refusals of the hot key: over the limit as far as the process knew, */
    uint64_t cold;        /* and those where nothing was leased and nothing was known */
    uint64_t users_offered, users_refused;
    char why[160]; /* "": went well */
};

struct trade {
    /* In each process, before the start.  NULL: failed, and report->why says why. */
    void *(*open)(const struct settings *settings, const char *url, unsigned process,
                  struct process_report *report);
    /* In each thread: one decision about the hot key, now. */
    enum outcome (*decide)(void *state, unsigned thread);
    /* In the first thread of each process, at each of its turns; NULL: nothing. */
    void (*turn)(void *state, int64_t since_start_ns);
    /* In each process, at the end. */
    void (*close)(void *state, struct process_report *report);
};

struct crew_result {
    uint64_t offered, admitted, failed;
    int64_t span_ns;       /* from the first decision to the last */
    int64_t worst_late_ns; /* that a thread began a turn after its time */
    double cpu_cores;      /* that the processes used, with their libraries' threads */
    struct process_report sum;
    struct promise promise; /* that was judged */
    struct judgement judgement;
};

/*
 * Runs a crew for `seconds`.  `progress` shows a line each second on stderr.  Forks: call it while
 * this process has no other thread and no weir.  Returns false with the reason: a process could not
 * start, or has died, or `*stop` was set.
 */
bool crew_run(const struct trade *trade, const struct settings *settings, const char *url,
              unsigned seconds, bool progress, const volatile sig_atomic_t *stop,
              struct crew_result *result, char *why, size_t why_size);

#endif
