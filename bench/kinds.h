/* SPDX-License-Identifier: MIT */
#ifndef WEIR_BENCH_KINDS_H
#define WEIR_BENCH_KINDS_H

#include <weir/weir.h>

#include "core/ask.h"

/* The algorithms as docs/algorithms.md compares them: five, and one of them in two shapes. */
struct kind {
    const char *name;
    enum weir_algorithm algorithm;
    bool queue; /* a leaky bucket that lets callers wait */
    bool periods;
};

#define KINDS 6
extern const struct kind kinds[KINDS];

/* A limit of `tokens` per `period_us`, bursts (or the queue) of as many, as the store gets it. */
struct weir__rule kind_rule(const struct kind *kind, int64_t tokens, int64_t period_us,
                            int64_t budget);

/* The same as a user of the library writes it. */
void kind_options(const struct kind *kind, uint64_t tokens, uint64_t period_us,
                  struct weir_limit_options *options);

/* An ask that wishes for nothing yet. */
struct weir__ask kind_ask(void);

/* A global bucket that has not been touched, with room for any log. */
struct weir__global *kind_global_new(void);
void kind_global_free(struct weir__global *global);

#endif
