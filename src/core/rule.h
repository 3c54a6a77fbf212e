/* SPDX-License-Identifier: MIT */
#ifndef WEIR_CORE_RULE_H
#define WEIR_CORE_RULE_H

#include "core/ask.h"

/* The exact arithmetic of a limit (R0). */

/*
 * Expresses `rate_tokens` per `period_us` with capacity `capacity` exactly: the fraction reduced,
 * and the finest tick (us, ms, s) for which capacity in units stays below 2^53.  Fills tick_us,
 * units_per_tick, units_per_token and capacity of *rule. Returns true; false where even seconds
 * fail: *largest_capacity then says what would fit (0: nothing).
 */
bool weir__rule_set_rate(struct weir__rule *rule, uint64_t rate_tokens, uint64_t period_us,
                         uint64_t capacity, uint64_t *largest_capacity);

/* Makes *rule count `tokens` in each period of `period_us`, 1 to 10^12 each: period_us, capacity,
 * and the rate, which is only for pacing and so always fits the finest tick. */
void weir__rule_set_periods(struct weir__rule *rule, uint64_t tokens, uint64_t period_us);

/* Microseconds, rounded up, in which `tokens` accrue; saturates at INT64_MAX. */
int64_t weir__rule_time_us(const struct weir__rule *rule, int64_t tokens);

/* Tokens, rounded down, that accrue in `us` microseconds; saturates. */
int64_t weir__rule_tokens(const struct weir__rule *rule, int64_t us);

#endif
