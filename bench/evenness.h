/* SPDX-License-Identifier: MIT */
#ifndef WEIR_BENCH_EVENNESS_H
#define WEIR_BENCH_EVENNESS_H

#include <stdbool.h>
#include <stddef.h>

/* How evenly the departures of one queue are spaced that several weirs share: runs it for some
 * seconds and prints a JSON object.  Returns false with the reason. */
bool evenness_print(const char *url, char *why, size_t why_size);

#endif
