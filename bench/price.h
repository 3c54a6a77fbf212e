/* SPDX-License-Identifier: MIT */
#ifndef WEIR_BENCH_PRICE_H
#define WEIR_BENCH_PRICE_H

#include <stdbool.h>
#include <stddef.h>

#include "kinds.h"

/* What a key costs: bytes, and microseconds of the store's CPU a call.  Each prints JSON objects,
 * one a line.  They return false with the reason. */

/* Of each kind. */
bool price_print_kinds(const char *url, char *why, size_t why_size);

/* Of a sliding log by its length, beside the same kept as a sorted set. */
bool price_print_logs(const char *url, char *why, size_t why_size);

/* Bytes in the process of a bucket of each kind: with a store elsewhere, and where the store is the
 * process. */
bool price_print_memory(const char *url, char *why, size_t why_size);

#endif
