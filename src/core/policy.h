/* SPDX-License-Identifier: MIT */
#ifndef WEIR_CORE_POLICY_H
#define WEIR_CORE_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "core/ask.h"

/* How much to ask for, and when: the formulas L1-L7 of docs/protocol.md, section 5.  Nothing here
 * can break the promise; it decides how well the budget is used. */

/* Round trips to the store, as this process measures them: a mean and a mean deviation, as TCP does
 * (RFC 6298). */
struct weir__rtt {
    double mean_us;
    double deviation_us;
    bool known;
};

void weir__rtt_sample(struct weir__rtt *rtt, int64_t us);
int64_t weir__rtt_p50_us(const struct weir__rtt *rtt);
int64_t weir__rtt_p99_us(const struct weir__rtt *rtt);

/* What the sizes of one bucket are worked out from. */
struct weir__situation {
    const struct weir__rule *rule;
    const struct weir__rtt *rtt;
    double demand_per_s;
    int64_t processes; /* >= 1 */
    int64_t credit;
};

struct weir__sizes {
    int64_t horizon_us; /* L1: the time one lease should last */
    int64_t look_us;    /* how often the loop looks while the bucket is busy */
    bool exact;         /* L8: leases cannot carry this bucket; waiters only */
    int64_t low;        /* L3: the credit at which the next ask goes out */
    int64_t keep;       /* L4: what a quiet bucket may hold */
    int64_t want;       /* L5: credit to ask for now, 0: none */
    int64_t least;      /* L5: a smaller grant is not worth a call */
    int64_t idle_us;    /* after this long without a taker credit goes back */
};

/* L1 alone. */
int64_t weir__policy_horizon_us(const struct weir__rule *rule, const struct weir__rtt *rtt);

void weir__policy_sizes(struct weir__sizes *sizes, const struct weir__situation *situation);

/* L6: how long to wait after a grant that was cut because the global bucket is short, or after
 * nothing because the budget is out.  Jittered; *seed moves on. */
int64_t weir__policy_pace_scarce_us(const struct weir__situation *situation, int64_t horizon_us,
                                    int64_t retry_after_us, uint64_t *seed);
int64_t weir__policy_pace_budget_us(int64_t horizon_us, uint64_t *seed);

/* L2: the window for a new limit. */
int64_t weir__policy_window_us(const struct weir__rule *rule, int64_t ask_timeout_us);

/* Whether leases can carry the limit at this round trip: E >= 3 r rtt. */
bool weir__policy_feasible(const struct weir__rule *rule, int64_t rtt_p50_us);

/* Tokens per second. */
double weir__rule_per_s(const struct weir__rule *rule);

#endif
