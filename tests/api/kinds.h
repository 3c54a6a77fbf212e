/* SPDX-License-Identifier: MIT */
#ifndef WEIR_TESTS_API_KINDS_H
#define WEIR_TESTS_API_KINDS_H

#include <stdint.h>

#include "weir/weir.h"

/* Every way to count tokens: the five algorithms, the leaky bucket as a meter and as a queue. */

#define KINDS 6

/* The name of the kind, which its limit bears too. */
const char *kind_name(unsigned kind);

/* `tokens` in `period_us`, every decision exact; and UNAVAILABLE while the store is down. */
struct weir_limit_options kind_options(unsigned kind, uint64_t tokens, int64_t period_us);

/* A period that no test sees the end of: windows are aligned to 1970, and the last in a queue may
 * wait for an hour. */
int64_t kind_long_us(unsigned kind);

/* How many of the `tokens` of a full one go at once: slots of a queue leave one by one. */
uint64_t kind_at_once(unsigned kind, uint64_t tokens);

#endif
