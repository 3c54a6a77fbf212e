/* SPDX-License-Identifier: MIT */
#ifndef WEIR_TESTS_BED_H
#define WEIR_TESTS_BED_H

#include <stdbool.h>
#include <stdint.h>

#include "core/global.h"

/* A test bed: one key of a global token bucket, asked by hand. */

#define MS INT64_C(1000)
#define SECOND INT64_C(1000000)
#define MINUTE (60 * SECOND)
#define DAY (24 * 60 * MINUTE)
#define START INT64_C(1700000000000000)

/* One key and the rule its callers have; times are from START. */
struct bed {
    struct weir__global key;
    struct weir__rule rule;
    struct weir__grant grant; /* the last */
};

/* An ask for nothing, to be filled in. */
extern const struct weir__ask bed_nothing;

/* Version 1, windows of 100 ms, no reservations, starts full. */
struct bed bed_of(uint64_t tokens, int64_t period_us, int64_t capacity, int64_t budget);

void bed_ask(struct bed *bed, int64_t at, const struct weir__ask *ask);

/* Tokens for a caller who waits, all or nothing: the exact part. */
bool bed_take(struct bed *bed, int64_t at, int64_t cost);

/* Returns what was leased, to a process that has heard of the window. */
int64_t bed_lease(struct bed *bed, int64_t at, int64_t want);

void bed_settle(struct bed *bed, int64_t at, int64_t window, int64_t spent, int64_t back);

/* Returns what is there, and changes nothing. */
int64_t bed_look(struct bed *bed, int64_t at);

/* The rule of `to` with the next version, as a live update brings it. */
void bed_update(struct bed *bed, struct bed to);

#endif
