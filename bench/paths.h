/* SPDX-License-Identifier: MIT */
#ifndef WEIR_BENCH_PATHS_H
#define WEIR_BENCH_PATHS_H

#include <stdbool.h>
#include <stddef.h>

#include <weir/weir.h>

/* Two buckets, each kept where one path of weir_try_acquire can be measured alone: one with credit
 * in plenty, from the store in the process, and one that is over its limit. */
struct paths {
    struct weir *rich_weir, *poor_weir;
    struct weir_bucket *rich, *poor;
};

/* The poor bucket lives in the store at `url`, NULL: in this process.  Blocks until it is over its
 * limit.  Returns false with the reason. */
bool paths_open(struct paths *paths, const char *url, char *why, size_t why_size);
void paths_close(struct paths *paths);

/* Batches for cost_measure; arg is the bucket. */
bool paths_allow(void *arg, unsigned count);
bool paths_deny(void *arg, unsigned count);

#endif
