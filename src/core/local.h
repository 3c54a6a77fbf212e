/* SPDX-License-Identifier: MIT */
#ifndef WEIR_CORE_LOCAL_H
#define WEIR_CORE_LOCAL_H

#include "core/engine.h"

/* A bucket while its store is down, or does not serve it: its outage policy decides.  For the
 * engine's own files. */

/* Serves waiters, and callers under the local policy, as the policy says.  Call while the store is
 * down, or the bucket broken. */
void weir__local_serve(struct weir__engine *engine, struct weir__bucket *bucket, int64_t now_us);

/* The store is up, but will not serve this bucket: answers its waiters. */
void weir__local_broken(struct weir__engine *engine, struct weir__bucket *bucket);

/* The store is up, and serves others: this bucket's policy decides until it is answered. */
void weir__local_break(struct weir__bucket *bucket, int64_t now_us);

/* When to serve again, if there is somebody to serve; INT64_MAX: not by time. */
int64_t weir__local_next_us(const struct weir__engine *engine, const struct weir__bucket *bucket,
                            int64_t now_us);

#endif
