/* SPDX-License-Identifier: MIT */
#ifndef WEIR_TESTS_SIM_INSIDE_H
#define WEIR_TESTS_SIM_INSIDE_H

#include "sim/sim.h"

/* What the files of the simulation share. */

/* sim/process */
void sim__process_begin(struct sim *sim, unsigned index, const struct weir__rule *rules);
void sim__process_replace(struct sim *sim, unsigned index);
void sim__process_turn(struct sim *sim, struct sim_process *process);  /* its timer fired */
void sim__process_after(struct sim *sim, struct sim_process *process); /* each call of its engine */
void sim__process_resume(struct sim *sim, struct sim_process *process); /* if its stall is over */
bool sim__process_stalled(const struct sim *sim, const struct sim_process *process);

/* sim/link */
void sim__link_send(struct sim *sim, struct sim_process *process,
                    const struct weir__command *command);
void sim__link_deliver(struct sim *sim, unsigned message);
void sim__link_lose(struct sim *sim, struct sim_process *process, unsigned key);
int64_t sim__link_next(const struct sim *sim, unsigned *message); /* true time; SIM_NEVER: none */

/* sim/ending */
void sim__ending(struct sim *sim); /* mends the world, serves everybody, lets all come to rest */

/* sim/audit */
void sim__audit(struct sim *sim);
void sim__audit_answer(struct sim *sim, const struct sim_waiter *waiter); /* just come out */

static inline unsigned sim__index(const struct sim *sim, const struct sim_process *process)
{
    return (unsigned)(process - sim->processes);
}

static inline int64_t sim__smooth(const struct sim *sim)
{
    return store_smooth_us(&sim->store, sim->now_us);
}

/* Until when leases matter that were granted before now: the longest window and a little for drift,
 * and the longest reservation. */
static inline int64_t sim__leases_end(const struct sim *sim, unsigned key)
{
    return sim__smooth(sim) + sim->longest_window_us * 17 / 16 + 2 +
           sim->first_rules[key].max_wait_us;
}

#endif
