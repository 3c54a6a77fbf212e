/* SPDX-License-Identifier: MIT */
/*
 * A limit in exact integers (R0).  A rate is a fraction of tokens per microsecond; its level is
 * kept in units such that both a tick's refill and a token are whole numbers of them:
 *
 *     a units accrue each tick,   b units are one token,   a/b = rate * tick, reduced
 *
 * The store keeps levels in doubles, so every level must stay below 2^53:
 *
 *     capacity * b + a < 2^53
 *
 * A finer tick makes b larger; the finest one that fits is taken.  Nothing is ever rounded here: a
 * million and three tokens a day stay exactly that.
 *
 * Window algorithms count whole tokens in periods, and their capacity is no factor: for them the
 * rate is what leases and waits are paced by, and holds one token at least.
 */
#include "core/rule.h"

#include <assert.h>
#include <stddef.h>

#include "base/num.h"

static const int64_t ticks_us[] = {1, 1000, 1000000};

/* The largest capacity that fits with this tick, or -1 where a or b alone is too large. */
static int64_t fit(struct weir__rule *rule, uint64_t tokens, uint64_t period_us, int64_t tick_us)
{
    /* tokens / period_us is reduced, so only the tick can still share a factor with the period */
    uint64_t common = weir__gcd((uint64_t)tick_us, period_us);
    uint64_t per_token = period_us / common;
    uint64_t per_tick;
    if (__builtin_mul_overflow(tokens, (uint64_t)tick_us / common, &per_tick)) {
        return -1;
    }
    if (per_tick >= (uint64_t)WEIR__INT53_MAX || per_token > (uint64_t)WEIR__INT53_MAX) {
        return -1;
    }
    rule->tick_us = tick_us;
    rule->units_per_tick = (int64_t)per_tick;
    rule->units_per_token = (int64_t)per_token;
    return (WEIR__INT53_MAX - rule->units_per_tick) / rule->units_per_token;
}

bool weir__rule_set_rate(struct weir__rule *rule, uint64_t rate_tokens, uint64_t period_us,
                         uint64_t capacity, uint64_t *largest_capacity)
{
    *largest_capacity = 0;
    if (rate_tokens == 0 || period_us == 0) {
        return false;
    }
    uint64_t common = weir__gcd(rate_tokens, period_us);
    for (size_t i = 0; i < sizeof ticks_us / sizeof ticks_us[0]; i++) {
        struct weir__rule tried = *rule;
        int64_t largest = fit(&tried, rate_tokens / common, period_us / common, ticks_us[i]);
        if (largest > 0 && (uint64_t)largest > *largest_capacity) {
            *largest_capacity = (uint64_t)largest;
        }
        if (capacity > 0 && largest > 0 && capacity <= (uint64_t)largest) {
            *rule = tried;
            rule->capacity = (int64_t)capacity;
            return true;
        }
    }
    return false;
}

void weir__rule_set_periods(struct weir__rule *rule, uint64_t tokens, uint64_t period_us)
{
    uint64_t largest;
    bool fits = weir__rule_set_rate(rule, tokens, period_us, 1, &largest);
    assert(fits);
    (void)fits;
    rule->capacity = (int64_t)tokens;
    rule->period_us = (int64_t)period_us;
}

int64_t weir__rule_time_us(const struct weir__rule *rule, int64_t tokens)
{
    if (tokens <= 0) {
        return 0;
    }
    __extension__ typedef unsigned __int128 wide;
    wide units = (wide)(uint64_t)tokens * (uint64_t)rule->units_per_token;
    wide per_tick = (uint64_t)rule->units_per_tick;
    wide ticks = (units + per_tick - 1) / per_tick;
    /* first the ticks: their product with the tick could pass 128 bits */
    if (ticks > INT64_MAX) {
        return INT64_MAX;
    }
    wide us = ticks * (uint64_t)rule->tick_us;
    return us > INT64_MAX ? INT64_MAX : (int64_t)us;
}

int64_t weir__rule_tokens(const struct weir__rule *rule, int64_t us)
{
    if (us <= 0) {
        return 0;
    }
    return weir__mul_div(us / rule->tick_us, rule->units_per_tick, rule->units_per_token);
}
