/* SPDX-License-Identifier: MIT */
#ifndef WEIR_API_BUCKETS_H
#define WEIR_API_BUCKETS_H

#include "api/objects.h"

/* The buckets of a weir: found, made, forgotten. */

/* The table for them; NULL without memory. */
struct weir__table *weir__buckets_table(struct weir *weir, const uint64_t seed[2], uint64_t most);

/* From here on no caller gets anything from any bucket. */
void weir__buckets_shut(struct weir *weir);

/* The loop has ended: whatever credit is left is void, so that a handle gives nothing any more. */
void weir__buckets_drain(struct weir *weir);

/* The limit's cap was added or taken away: its buckets' callers ask it from here on, or not. */
void weir__buckets_cap(struct weir_limit *limit);

/* An orphan was given up, or the weir was closed: frees the weir when it was the last.  (In
 * api/open.) */
void weir__handle_gone(struct weir *weir);

#endif
