/* SPDX-License-Identifier: MIT */
#ifndef WEIR_BENCH_STORE_LINK_H
#define WEIR_BENCH_STORE_LINK_H

#include <stdbool.h>
#include <stddef.h>

#include <hiredis/hiredis.h>

/* A plain blocking connection to the store of a run, for what is measured beside weir. */

/* NULL with the reason.  The caller's until redisFree. */
redisContext *store_link_open(const char *url, char *why, size_t why_size);

/* Seconds of CPU that the store has used; < 0: it does not say. */
double store_link_cpu_s(redisContext *link);

#endif
