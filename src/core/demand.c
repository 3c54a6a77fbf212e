/* SPDX-License-Identifier: MIT */

/*
 * How many tokens per second are wanted from one bucket in this process.
 *
 * Path of a token: the loop looks (core/engine), sees what callers took since, and this turns it
 * into the size of the next lease (core/policy).
 *
 * An estimate that is too low costs calls to the store, one that is too high holds tokens others
 * could use until they are given back; neither touches the promise, which the store keeps.
 */

#include "core/demand.h"

#include "base/num.h"

/* L7: tau = max(4 h, 20 ms). */
#define TAU_HORIZONS 4
#define TAU_LEAST_US 20000.0

static void decay(struct weir__demand *demand, int64_t taken, double elapsed_us, double horizon_us)
{
    double tau = TAU_HORIZONS * horizon_us;
    if (tau < TAU_LEAST_US) {
        tau = TAU_LEAST_US;
    }
    /* 1 - exp(-x) by x / (1 + x): never negative, never above 1.  What was taken in no time still
     * counts, spread over tau. */
    demand->per_s *= tau / (tau + elapsed_us);
    demand->per_s += (double)taken * 1e6 / (tau + elapsed_us);
}

void weir__demand_update(struct weir__demand *demand, int64_t taken, bool missed,
                         const struct weir__demand_bounds *bounds, int64_t now_us)
{
    if (!demand->started) {
        *demand = (struct weir__demand){.started = true, .last_us = now_us, .grant_us = now_us};
    }
    double elapsed_us = (double)weir__max(now_us - demand->last_us, 0);
    double horizon_us = (double)bounds->horizon_us;
    demand->since_grant += taken;
    demand->last_us = now_us;

    /* Time with refused callers and nothing to take tells nothing: it is left out. */
    if (!missed || taken > 0) {
        decay(demand, taken, elapsed_us, horizon_us);
    }
    if (missed) {
        double age_us = (double)(now_us - demand->grant_us);
        if (age_us < horizon_us && demand->since_grant > 0) {
            double speed = 2e6 * (double)demand->since_grant / (age_us < 1 ? 1 : age_us);
            demand->per_s = speed > demand->per_s ? speed : demand->per_s;
        }
        if (demand->per_s < bounds->first_per_s && demand->since_grant == 0) {
            demand->per_s = bounds->first_per_s;
        }
    }
    if (demand->per_s > bounds->most_per_s) {
        demand->per_s = bounds->most_per_s;
    }
}

void weir__demand_granted(struct weir__demand *demand, int64_t now_us)
{
    demand->grant_us = now_us;
    demand->since_grant = 0;
}
