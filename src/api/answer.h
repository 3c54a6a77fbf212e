/* SPDX-License-Identifier: MIT */
#ifndef WEIR_API_ANSWER_H
#define WEIR_API_ANSWER_H

#include "api/objects.h"

/* Results: what is known, and nothing that is not. */

/* Fills *result, unless it is NULL, and returns the verdict. */
int weir__answer(struct weir_bucket *bucket, struct weir_result *result, enum weir_verdict verdict,
                 enum weir_reason reason, int64_t retry_after_us);

/* The same from an answer of the in-process store, which knows all. */
int weir__answer_exact(struct weir_bucket *bucket, struct weir_result *result,
                       enum weir_verdict verdict, enum weir_reason reason,
                       const struct weir__grant *grant);

/* When a refused bucket may have tokens again, from now; WEIR_UNKNOWN. Reads the clock. */
int64_t weir__answer_retry_us(const struct weir_bucket *bucket);

/* Whether the store cannot be asked about this bucket, so that the policy of its limit decides. */
bool weir__answer_by_policy(const struct weir_bucket *bucket);

#endif
