/* SPDX-License-Identifier: MIT */
#ifndef WEIR_CORE_LOCAL_H
#define WEIR_CORE_LOCAL_H

#include "core/engine.h"

/* A bucket while its store is down: its outage policy decides.  For the engine's own files. */

/* Serves waiters, and callers under the local policy, as the policy says.  Call while the store is
 * down. */
void weir__local_serve(struct weir__engine *engine, struct weir__bucket *bucket, int64_t now_us);

/* The store is up, but will not serve this bucket: answers its waiters. */
void weir__local_broken(struct weir__engine *engine, struct weir__bucket *bucket);

/* When to serve again, if there is somebody to serve; INT64_MAX: not by time. */
int64_t weir__local_next_us(const struct weir__engine *engine, const struct weir__bucket *bucket,
                            int64_t now_us);

#endif
