/* SPDX-License-Identifier: MIT */
#ifndef WEIR_CORE_DEMAND_H
#define WEIR_CORE_DEMAND_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Tokens per second wanted here (L7): an exponentially weighted mean over tau of what was taken,
 * for as long as tokens were there to take.  Refused callers are not counted one by one, since that
 * would cost each of them a shared write.  Instead: a lease that did not last a horizon was too
 * small, and twice the speed at which it went is wanted at least.
 */
struct weir__demand {
    double per_s;
    int64_t last_us;  /* of the last update */
    int64_t grant_us; /* of the last grant */
    int64_t since_grant;
    bool started;
};

struct weir__demand_bounds {
    double first_per_s; /* what a first miss counts for */
    double most_per_s;
    int64_t horizon_us;
};

/* `taken` tokens, or asked for by waiters, since the last update; `missed`: a caller found too
 * little since. */
void weir__demand_update(struct weir__demand *demand, int64_t taken, bool missed,
                         const struct weir__demand_bounds *bounds, int64_t now_us);

/* New credit is there. */
void weir__demand_granted(struct weir__demand *demand, int64_t now_us);

#endif
