/* SPDX-License-Identifier: MIT */

/*
 * The sizes and the pace of leases.
 *
 * Path of a token: demand (core/demand) -> here -> an ask (core/exchange).  The formulas are L1-L8
 * of docs/protocol.md, which says what each was measured to do.
 *
 *     horizon  h    = clamp(E / 2r, 2 rtt_p50, 50 ms)                                  L1
 *     window   W    = clamp(8 h, 4 ask deadlines, 400 ms)                              L2
 *     low           = d + 3 sqrt(d),  d = demand * (rtt_p99 + time between looks)      L3
 *     keep          = min(E / 4N, demand * W / 2)                                      L4
 *     want          = max(demand * h + low, keep) - credit,  least = max(1, min(want / 8, E / 16))
 *                                                            L5
 *     pace, scarce  = max(retry_after, h, N m / r) * U(0.5, 1.5),  m = max(1, E / 4N)  L6
 *                     with periods and a long wait: retry_after + h / 4 * U(0.5, 1.5)
 *     pace, budget  = h / 2 * U(0.5, 1.5)                                              L6
 *     exact         when max(demand * h, keep) < 1, or E < 3 r rtt                     L8
 */

#include "core/policy.h"

#include <math.h>

#include "base/num.h"

#define HORIZON_MOST_US 50000    /* L1; longer leases save no calls worth having */
#define WINDOW_MOST_US 400000    /* L2; what a crash can keep blocked, twice */
#define WINDOW_BOUND_US 60000000 /* what a window may be set to by hand (api/limits) */
#define LOOKS_A_HORIZON 8        /* a look costs under a microsecond */
#define LOOK_LEAST_US 1000       /* the timers of the loop are that coarse */
#define LOOK_MOST_US 10000
#define RTT_FIRST_US 1000 /* before the first answer: a guess that errs on the slow side */

void weir__rtt_sample(struct weir__rtt *rtt, int64_t us)
{
    double sample = (double)us;
    if (!rtt->known) {
        *rtt = (struct weir__rtt){.mean_us = sample, .deviation_us = sample / 2, .known = true};
        return;
    }
    double error = sample - rtt->mean_us;
    rtt->mean_us += error / 8;
    rtt->deviation_us += (fabs(error) - rtt->deviation_us) / 4;
}

int64_t weir__rtt_p50_us(const struct weir__rtt *rtt)
{
    return rtt->known ? (int64_t)rtt->mean_us + 1 : RTT_FIRST_US;
}

int64_t weir__rtt_p99_us(const struct weir__rtt *rtt)
{
    return rtt->known ? (int64_t)(rtt->mean_us + 4 * rtt->deviation_us) + 1 : 2 * RTT_FIRST_US;
}

double weir__rule_per_s(const struct weir__rule *rule)
{
    return (double)rule->units_per_tick * 1e6 /
           ((double)rule->units_per_token * (double)rule->tick_us);
}

static double budget_time_us(const struct weir__rule *rule)
{
    return (double)rule->budget * 1e6 / weir__rule_per_s(rule);
}

static int64_t horizon_us(const struct weir__rule *rule, int64_t rtt_p50_us)
{
    double half = budget_time_us(rule) / 2;
    int64_t wished = half < HORIZON_MOST_US ? (int64_t)half : HORIZON_MOST_US;
    return weir__max(wished, 2 * rtt_p50_us);
}

int64_t weir__policy_horizon_us(const struct weir__rule *rule, const struct weir__rtt *rtt)
{
    return horizon_us(rule, weir__rtt_p50_us(rtt));
}

bool weir__policy_feasible(const struct weir__rule *rule, int64_t rtt_p50_us)
{
    return budget_time_us(rule) >= 3.0 * (double)rtt_p50_us;
}

int64_t weir__policy_window_us(const struct weir__rule *rule, int64_t ask_timeout_us)
{
    int64_t window = weir__min(8 * horizon_us(rule, 0), WINDOW_MOST_US);
    return weir__min(weir__max(window, 4 * ask_timeout_us), WINDOW_BOUND_US);
}

void weir__policy_sizes(struct weir__sizes *sizes, const struct weir__situation *situation)
{
    const struct weir__rule *rule = situation->rule;
    double demand = situation->demand_per_s;
    double budget = (double)rule->budget;

    int64_t horizon = horizon_us(rule, weir__rtt_p50_us(situation->rtt));
    int64_t look = weir__clamp(horizon / LOOKS_A_HORIZON, LOOK_LEAST_US, LOOK_MOST_US);
    double blind_us = (double)(weir__rtt_p99_us(situation->rtt) + look);
    double blind = demand * blind_us / 1e6;
    double low = blind + 3 * sqrt(blind);
    double a_horizon = demand * (double)horizon / 1e6;
    double keep = fmin(budget / (4.0 * (double)situation->processes),
                       demand * (double)rule->window_us / 2e6);

    sizes->horizon_us = horizon;
    sizes->look_us = look;
    sizes->exact = rule->budget == 0 || fmax(a_horizon, keep) < 1 ||
                   !weir__policy_feasible(rule, weir__rtt_p50_us(situation->rtt));
    sizes->low = (int64_t)fmin(low, budget);
    sizes->keep = (int64_t)keep;

    double wished = fmin(ceil(fmax(a_horizon + low, keep)), budget);
    sizes->want = weir__max((int64_t)wished - situation->credit, 0);
    sizes->least = weir__max(1, weir__min(sizes->want / 8, rule->budget / 16));
    sizes->idle_us = weir__max(2 * horizon, rule->window_us / 2);
}

int64_t weir__policy_pace_scarce_us(const struct weir__situation *situation, int64_t horizon,
                                    int64_t retry_after_us, uint64_t *seed)
{
    const struct weir__rule *rule = situation->rule;
    double processes = (double)situation->processes;
    double portion = fmax(1, (double)rule->budget / (4 * processes));
    double crowd_us = processes * portion * 1e6 / weir__rule_per_s(rule);
    double pace = fmax(fmax((double)retry_after_us, (double)horizon), crowd_us);
    double most = 3600e6; /* a wait nobody would notice to be longer, far from overflow */
    if (weir__rule_has_periods(rule) && retry_after_us > weir__max(horizon, (int64_t)crowd_us)) {
        /* Much comes at once, at a time that is known. */
        return (int64_t)fmin((double)retry_after_us, most) + weir__jitter(horizon / 4, seed);
    }
    return weir__jitter((int64_t)fmin(pace, most), seed);
}

int64_t weir__policy_pace_budget_us(int64_t horizon, uint64_t *seed)
{
    return weir__max(weir__jitter(horizon / 2, seed), 1);
}
