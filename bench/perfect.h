/* SPDX-License-Identifier: MIT */
#ifndef WEIR_BENCH_PERFECT_H
#define WEIR_BENCH_PERFECT_H

#include "record.h"

/* Tokens that a limiter with neither budget nor delay admits in `span_ns` of an even load: what the
 * nature of the algorithm allows.  For BOUND_INTERVAL it is C + r*t, whatever the load. */
double perfect_admits(const struct promise *promise, double offered_per_s, int64_t span_ns);

#endif
