/* SPDX-License-Identifier: MIT */
#ifndef WEIR_CORE_WIRE_H
#define WEIR_CORE_WIRE_H

#include <stddef.h>

#include "core/ask.h"

/*
 * The two arguments of the script and its reply, as bytes; lua/prelude.lua has the same layouts.
 *
 *     ARGV[1], the rule    doubles version, a, b, period; 32-bit integers tick, capacity, budget,
 *                          window, max_wait, initial; bytes algorithm, variant, learn
 *     ARGV[2], the ask     doubles mode (0 an ask, 1 a look, 2 a reset), want, least, held, exact,
 *                          wait, refund, since, heard, and the settle rows
 *
 * All little-endian.  The rule's bytes are what the store keeps, and compares.  The reply is an
 * array of integers in the order of struct weir__grant.
 */

#define WEIR__RULE_BYTES (4 * 8 + 6 * 4 + 3)
#define WEIR__ASK_BYTES ((9 + 3 * WEIR__SETTLE_ROWS) * 8)
#define WEIR__GRANT_FIELDS 15

void weir__wire_pack_rule(unsigned char out[WEIR__RULE_BYTES], const struct weir__rule *rule);
void weir__wire_pack_ask(unsigned char out[WEIR__ASK_BYTES], const struct weir__ask *ask);

/* Returns false, and leaves *grant alone, unless `count` is WEIR__GRANT_FIELDS and the values can
 * be an answer to *ask from a store that was shown *rule: a store that lies is not believed. */
bool weir__wire_read_grant(struct weir__grant *grant, const int64_t *values, size_t count,
                           const struct weir__rule *rule, const struct weir__ask *ask);

#endif
