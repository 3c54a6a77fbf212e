/* SPDX-License-Identifier: MIT */
/*
 * What happens to a world, each fault with the term it adds to the promise: as docs/protocol.md has
 * it, to the token.  With reservations (R12) the level may be below zero by what is reserved, so
 * where the term says C, C and the reserved tokens are meant.
 */
#include "sim/inside.h"

#include "base/num.h"

static void allow(struct sim *sim, unsigned key, int64_t tokens)
{
    promise_allow(&sim->promises[key], tokens, sim__leases_end(sim, key), sim__smooth(sim));
}

static int64_t most_level(const struct sim *sim, unsigned key)
{
    return sim->promises[key].capacity + promise_reserved(&sim->promises[key]);
}

static int64_t budget_out(const struct sim *sim, unsigned key)
{
    const struct weir__global *bucket = &sim->store.keys[key].bucket;
    return weir__max(sim->promises[key].budget, bucket->out_cur + bucket->out_prev);
}

void sim_crash(struct sim *sim, unsigned index)
{
    sim_say(sim, "%u crashes, and is started again", index);
    sim__process_replace(sim, index);
    sim__audit(sim);
}

void sim_stall(struct sim *sim, unsigned index, int64_t us, bool callers_too)
{
    struct sim_process *process = &sim->processes[index];
    sim_say(sim, "%u stalls for %lld us%s", index, (long long)us,
            callers_too ? ", its callers as well" : "");
    process->stalled_till_us = sim->now_us + us;
    process->stopped = callers_too;
    process->wake_us = weir__min(process->wake_us, process->stalled_till_us);
}

void sim_cut(struct sim *sim, unsigned index)
{
    struct sim_process *process = &sim->processes[index];
    bool told_first = sim_chance(sim) < 0.5;
    sim_say(sim, "%u loses its connection", index);
    process->linked = false;
    process->link++;
    process->events++;
    if (told_first) {
        weir__engine_linked(&process->engine, false, sim_clock(sim, process));
    }
    for (unsigned key = 0; key < sim->config.keys; key++) {
        if (process->flights[key].serial != 0) {
            sim__link_lose(sim, process, key);
        }
    }
    if (!told_first) {
        weir__engine_linked(&process->engine, false, sim_clock(sim, process));
    }
    sim__process_after(sim, process);
    sim__audit(sim);
}

void sim_link(struct sim *sim, unsigned index)
{
    struct sim_process *process = &sim->processes[index];
    sim_say(sim, "%u is connected", index);
    process->linked = true;
    process->events++;
    weir__engine_linked(&process->engine, true, sim_clock(sim, process));
    sim__process_after(sim, process);
    sim__audit(sim);
}

/* Forward: max(min(r F, C) + R, E), since the level is filled and every open lease is forgotten;
 * and what is reserved, R, is due for the store before it is for who waits, so that a refund lifts
 * the level beside it. */
void sim_step_clock(struct sim *sim, int64_t us)
{
    sim_say(sim, "the store's clock is set by %lld us", (long long)us);
    for (unsigned key = 0; key < sim->config.keys && us > 0; key++) {
        const struct promise *promise = &sim->promises[key];
        int64_t filled = weir__div_up(promise->per_us * us, promise->per_token);
        int64_t level = weir__min(filled, promise->capacity) + promise_reserved(promise);
        allow(sim, key, weir__max(level, budget_out(sim, key)));
    }
    sim->store.step_us += us;
    sim__audit(sim);
}

/* max(C, E). */
void sim_lose_data(struct sim *sim, unsigned key)
{
    sim_say(sim, "key %u is lost", key);
    allow(sim, key, weir__max(most_level(sim, key), budget_out(sim, key)));
    store_lose(&sim->store, key);
    sim__audit(sim);
}

/* min(g, C + E), with g granted in the tail that is lost.  Where a change of the limit is lost as
 * well, it is as if the key were: what a lower capacity had cut off may be there again.  It lasts a
 * window longer than other terms: with the clock behind, a window after the failover bears the name
 * of one in the tail, and a lost lease is settled into it. */
void sim_fail_over(struct sim *sim, int64_t back_us)
{
    sim_say(sim, "the store fails over to what it was %lld us ago", (long long)back_us);
    for (unsigned key = 0; key < sim->config.keys; key++) {
        struct promise *promise = &sim->promises[key];
        const struct weir__rule *rule = &sim->store.keys[key].bucket.rule;
        int64_t level = most_level(sim, key);
        int64_t budget = budget_out(sim, key);
        int64_t lost = store_fail_over(&sim->store, key, sim->now_us - back_us, sim->now_us);
        bool changed = lost >= 0 && rule->version != promise->version;
        if (changed) {
            promise_change(promise, rule, false, sim__smooth(sim) + 2 * sim->longest_window_us + 2,
                           sim__smooth(sim));
            level = weir__max(level, most_level(sim, key));
            budget = weir__max(budget, budget_out(sim, key));
        }
        int64_t all = weir__max(level, budget);
        promise_allow(promise, lost < 0 || changed ? all : weir__min(lost, level + budget),
                      sim__leases_end(sim, key) + sim->longest_window_us, sim__smooth(sim));
    }
    sim__audit(sim);
}

void sim_set_rule(struct sim *sim, unsigned index, unsigned key, const struct weir__rule *rule)
{
    struct sim_process *process = &sim->processes[index];
    sim_say(sim, "%u/%u defines version %lld: C %lld E %lld W %lld", index, key,
            (long long)rule->version, (long long)rule->capacity, (long long)rule->budget,
            (long long)rule->window_us);
    process->limits[key].rule = *rule;
    process->books[key].local_from = process->books[key].local;
    process->books[key].local_from_us = sim_clock(sim, process);
    process->books[key].local_saved = rule->capacity * sim->config.share_ppm / WEIR__PPM + 1;
    sim->longest_window_us = weir__max(sim->longest_window_us, rule->window_us);
    weir__engine_look(&process->engine, &process->buckets[key], sim_clock(sim, process));
    sim__process_after(sim, process);
    sim__audit(sim);
}
