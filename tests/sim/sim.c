/* SPDX-License-Identifier: MIT */
/*
 * A world that is a function of its seed: the clocks, the order of events, chance, and the trace.
 *
 * One event at a time: the earliest of all messages and all loops that wake.  Where two are due in
 * the same microsecond, chance decides.  A stalled process hears and does nothing until it wakes,
 * and then everything at once, in any order.
 */
#include "sim/inside.h"

#include <stdarg.h>
#include <string.h>

#include "base/num.h"

void sim_begin(struct sim *sim, const struct sim_config *config, const struct weir__rule *rules,
               unsigned count, struct lua_host *lua, int script)
{
    sim->config = *config;
    sim->seed = config->seed;
    sim->now_us = 0;
    sim->count = count;
    sim->message_count = sim->waiters_used = 0;
    sim->free_waiters = NULL;
    sim->store_hangs = false;
    sim->longest_window_us = 0;
    sim->asks = sim->events = 0;
    sim->failure[0] = 0;
    sim->traced = 0;
    memset(sim->tally, 0, sizeof sim->tally);
    store_init(&sim->store, lua, script);
    sim->store.drift_ppm = config->drift_ppm * sim_between(sim, -1, 1);
    for (unsigned key = 0; key < config->keys; key++) {
        sim->first_rules[key] = rules[key];
        promise_init(&sim->promises[key], &rules[key], sim__smooth(sim));
        sim->longest_window_us = weir__max(sim->longest_window_us, rules[key].window_us);
    }
    for (unsigned i = 0; i < count; i++) {
        sim->processes[i].life = 0;
        sim__process_begin(sim, i, rules);
    }
}

void sim_end(struct sim *sim) { store_deinit(&sim->store); }

/* ---- Chance ---------------------------------------------------------------------------------- */

double sim_chance(struct sim *sim)
{
    return (double)(weir__random(&sim->seed) >> 11) / (double)(INT64_C(1) << 53);
}

int64_t sim_between(struct sim *sim, int64_t low, int64_t high)
{
    return low + (int64_t)(sim_chance(sim) * (double)(high - low + 1));
}

/* ---- Failure and trace ----------------------------------------------------------------------- */

void sim_say(struct sim *sim, const char *format, ...)
{
    if (!sim->tracing) {
        return;
    }
    char *line = sim->trace[sim->traced++ % SIM_TRACE_LINES];
    int used = snprintf(line, sizeof sim->trace[0], "%9lld  ", (long long)sim->now_us);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + used, sizeof sim->trace[0] - (size_t)used, format, arguments);
    va_end(arguments);
    if (sim->telling != NULL) {
        fprintf(sim->telling, "%s\n", line);
    }
}

void sim_fail(struct sim *sim, const char *format, ...)
{
    if (sim->failure[0] != 0) {
        return;
    }
    int used = snprintf(sim->failure, sizeof sim->failure, "at %lld us: ", (long long)sim->now_us);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sim->failure + used, sizeof sim->failure - (size_t)used, format, arguments);
    va_end(arguments);
    sim_say(sim, "FAILED: %.120s", sim->failure);
}

void sim_print_trace(const struct sim *sim, FILE *out)
{
    unsigned long first = sim->traced > SIM_TRACE_LINES ? sim->traced - SIM_TRACE_LINES : 0;
    for (unsigned long i = first; i < sim->traced; i++) {
        fprintf(out, "%s\n", sim->trace[i % SIM_TRACE_LINES]);
    }
}

/* ---- Time ------------------------------------------------------------------------------------ */

static int64_t clock_at(const struct sim_process *process, int64_t true_us)
{
    return process->born_us + true_us + true_us * process->drift_ppm / 1000000;
}

int64_t sim_clock(const struct sim *sim, const struct sim_process *process)
{
    return clock_at(process, sim->now_us);
}

int64_t sim_true_us(const struct sim_process *process, int64_t clock_us)
{
    if (clock_us == INT64_MAX) {
        return SIM_NEVER;
    }
    int64_t ran_us = clock_us - process->born_us;
    int64_t true_us = ran_us * 1000000 / (1000000 + process->drift_ppm);
    while (clock_at(process, true_us) >= clock_us) {
        true_us--;
    }
    while (clock_at(process, true_us) < clock_us) {
        true_us++;
    }
    return true_us;
}

static int64_t next_wake(const struct sim *sim, unsigned *index)
{
    int64_t at_us = SIM_NEVER;
    for (unsigned i = 0; i < sim->count; i++) {
        const struct sim_process *process = &sim->processes[i];
        int64_t wake_us = weir__max(process->wake_us, process->stalled_till_us);
        if (wake_us < at_us) {
            at_us = wake_us;
            *index = i;
        }
    }
    return at_us;
}

void sim_run_to(struct sim *sim, int64_t true_us)
{
    while (sim->failure[0] == 0) {
        unsigned process = 0, message = 0;
        int64_t wake_us = next_wake(sim, &process);
        int64_t message_us = sim__link_next(sim, &message);
        int64_t at_us = weir__min(wake_us, message_us);
        if (at_us > true_us) {
            break;
        }
        sim->now_us = weir__max(sim->now_us, at_us);
        bool wakes = wake_us < message_us || (wake_us == message_us && sim_chance(sim) < 0.5);
        if (wakes) {
            sim__process_turn(sim, &sim->processes[process]);
        } else {
            sim__link_deliver(sim, message);
        }
        sim__audit(sim);
    }
    sim->now_us = weir__max(sim->now_us, true_us);
}
