/* SPDX-License-Identifier: MIT */
#ifndef WEIR_BENCH_SETTINGS_H
#define WEIR_BENCH_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weir/weir.h>

#include "record.h"

/* Bounds of a run: what one machine can carry and one record can hold. */
#define PROCESSES_MAX 64
#define THREADS_MAX 64
#define SECONDS_MAX 600

/* What the demo calls an algorithm, and what that promises. */
struct algorithm {
    enum weir_algorithm id;
    const char *name; /* of the option --algorithm, and in the JSON */
    const char *title;
    enum bound bound;
};

/* What the user of the demo chose. */
struct settings {
    unsigned seconds;
    unsigned processes;
    unsigned threads; /* of each process */
    const struct algorithm *algorithm;
    uint64_t rate_per_s; /* r */
    uint64_t capacity;   /* C */
    uint64_t period_us;  /* of the windows, C / r: what each of them may admit is C; else 0 */
    uint64_t budget;     /* E, in tokens */
    double offered;      /* the load, in multiples of the rate */
    const char *url;     /* of a store that is there already; NULL: start one */
    bool memory;         /* the store in the process, no Redis */
    bool json;
    char key_prefix[48]; /* of this run alone, so that its buckets start full */
};

/* Fills *settings from the arguments of main, over the defaults.  Returns false with the reason. */
bool settings_parse(struct settings *settings, int argc, char **argv, char *why, size_t why_size);

#endif
