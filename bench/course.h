/* SPDX-License-Identifier: MIT */
#ifndef WEIR_BENCH_COURSE_H
#define WEIR_BENCH_COURSE_H

#include "kinds.h"

/* Prints what one limit makes of a load over time, in columns: seconds, offered and admitted in
 * this slot.  No clock and no store: it is the same on every machine. */
void course_print(const struct kind *kind);

/* Prints the worst that a greedy user can do: one JSON object, in tokens. */
void course_print_worst(const struct kind *kind);

#endif
