/* SPDX-License-Identifier: MIT */
#ifndef WEIR_CORE_WIRE_H
#define WEIR_CORE_WIRE_H

#include <stddef.h>

#include "core/ask.h"

/*
 * The two arguments of a script and its reply, as bytes.  ARGV[1] is the rule, ARGV[2] the ask:
 * packed little-endian doubles in the order of the structs in core/ask.h (peek as 0 or 1, the
 * settle rows last), which struct.unpack("<ddd...") reads.  The rule's bytes are what the store
 * keeps, and compares.  The reply is an array of integers in the order of struct weir__grant.
 */

#define WEIR__RULE_BYTES (9 * 8)
#define WEIR__ASK_BYTES ((8 + 3 * WEIR__SETTLE_ROWS) * 8)
#define WEIR__GRANT_FIELDS 12

void weir__wire_pack_rule(unsigned char out[WEIR__RULE_BYTES], const struct weir__rule *rule);
void weir__wire_pack_ask(unsigned char out[WEIR__ASK_BYTES], const struct weir__ask *ask);

/* Returns false, and leaves *grant alone, unless `count` is WEIR__GRANT_FIELDS and the values can
 * be an answer to *ask from a store that was shown *rule: a store that lies is not believed. */
bool weir__wire_read_grant(struct weir__grant *grant, const int64_t *values, size_t count,
                           const struct weir__rule *rule, const struct weir__ask *ask);

#endif
