/* SPDX-License-Identifier: MIT */
#ifndef WEIR_BENCH_SCRIPT_CALLS_H
#define WEIR_BENCH_SCRIPT_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <hiredis/hiredis.h>

/* Calls of a script by the thousand, and what the server says that they cost it. */

#define RUNS_MAX 15
#define ARGUMENTS_MAX 4

/* One number of several runs. */
struct series {
    double runs[RUNS_MAX];
    int count;
};

/* Prints it as a member of a JSON object that is not the first: [median, least, most]. */
void series_print(const char *name, struct series *series);

/* A script with its arguments, written anew for each call. */
struct script_caller {
    const char *sha;
    int arguments;
    const char *argument[ARGUMENTS_MAX];
    size_t size[ARGUMENTS_MAX];
    int keys; /* dealt in turn */
    /* told to the script, and moved on with each call; step 0: it reads the clock */
    int64_t now_us, step_us;
    char now[24];
    bool named; /* each call brings a name of its own, after the time */
    char name[48];
    uint64_t calls;
};

/* Returns false with the reason, as those below. */
bool script_load(redisContext *link, const char *text, size_t size, char sha[41], char *why,
                 size_t why_size);

/* In an empty database: `warm` calls unmeasured, so that each key is there; then `calls` of which
 * each must be granted.  Adds to *us what one took, and fills *bytes of the first key: 0 where
 * there is none. */
bool script_measure(redisContext *link, struct script_caller *caller, int warm, int calls,
                    struct series *us, double *bytes, char *why, size_t why_size);

#endif
