/* SPDX-License-Identifier: MIT */
/*
 * From a seed to a hostile schedule.  How it ends is in sim/ending.
 */
#include "sim/temper.h"

#include "sim/inside.h"

#include <string.h>

#include "base/num.h"
#include "core/rule.h"

static const char *const fault_names[TEMPER_FAULTS] = {
    "crash",         "stall",     "cut",      "hang",  "clock-back",
    "clock-forward", "data-loss", "failover", "limit",
};

#define PICK(sim, ...)                                                                             \
    pick((sim), (const double[]){__VA_ARGS__},                                                     \
         (unsigned)(sizeof((const double[]){__VA_ARGS__}) / sizeof(double)))

static double pick(uint64_t *seed, const double *from, unsigned count)
{
    return from[weir__random(seed) % count];
}

static int64_t pick_int(uint64_t *seed, const double *from, unsigned count)
{
    return (int64_t)pick(seed, from, count);
}

#define PICK_INT(sim, ...)                                                                         \
    pick_int((sim), (const double[]){__VA_ARGS__},                                                 \
             (unsigned)(sizeof((const double[]){__VA_ARGS__}) / sizeof(double)))

/* ---- Temperament ----------------------------------------------------------------------------- */

static void choose_rule(struct weir__rule *rule, uint64_t *seed, bool calm)
{
    int64_t window_us = calm ? PICK_INT(seed, 40000, 100000)
                             : PICK_INT(seed, 1000, 2000, 5000, 20000);
    int64_t capacity = PICK_INT(seed, 1, 5, 10, 20, 50);
    int64_t tick_us = PICK_INT(seed, 1, 1, 1, 1000);
    double refill = PICK(seed, 0.2, 1, 3, 10, 40); /* tokens a window */
    *rule = (struct weir__rule){
        .version = 1,
        .algorithm = WEIR__TOKEN_BUCKET,
        .tick_us = tick_us,
        .units_per_tick = weir__max(1, (int64_t)(refill * 1e6 / (double)window_us)) * tick_us,
        .units_per_token = 1000000,
        .capacity = capacity,
        .budget = weir__min(capacity, PICK_INT(seed, 0, 1, 2, 5, (double)(capacity / 2),
                                               (double)capacity, (double)capacity)),
        .window_us = window_us,
        .max_wait_us = PICK_INT(seed, 0, (double)window_us, 4.0 * (double)window_us),
        .initial = weir__max(
            1, PICK_INT(seed, (double)capacity, (double)capacity, 0.5 * (double)capacity)),
    };
}

static void choose_network(struct sim_network *network, uint64_t *seed, int64_t timeout_us)
{
    network->lossy = PICK(seed, 0, 0, 0.02, 0.1, 0.4);
    network->swift = PICK(seed, 0, 0.3, 0.8, 1);
    network->refusing = PICK(seed, 0, 0, 0, 0.02, 0.2);
    network->late = PICK(seed, 0, 0, 0.02, 0.2);
    network->delay_us = weir__max(1, timeout_us / PICK_INT(seed, 2, 4, 16));
}

void temper_of(struct temper *temper, uint64_t number, unsigned with)
{
    uint64_t state = number * UINT64_C(0x9e3779b97f4a7c15) + 12345;
    uint64_t *seed = &state;
    bool calm = number % 50 == 7; /* windows and outages as in earnest */
    memset(temper, 0, sizeof *temper);
    temper->lua = number % 10 == 0;
    temper->processes = (unsigned)PICK_INT(seed, 1, 2, 3, 5);
    temper->config.keys = (unsigned)PICK_INT(seed, 1, 1, 2, 3);
    int64_t shortest = INT64_MAX;
    for (unsigned key = 0; key < temper->config.keys; key++) {
        choose_rule(&temper->rules[key], seed, calm);
        shortest = weir__min(shortest, temper->rules[key].window_us);
    }
    temper->config.seed = number;
    temper->config.ask_timeout_us = weir__max(1, shortest / PICK_INT(seed, 4, 4, 8, 1));
    temper->config.max_asks = (unsigned)PICK_INT(seed, 1, 2, 1024, 1024);
    temper->config.max_waiters = (unsigned)PICK_INT(seed, 3, 30, 30);
    temper->config.drift_ppm = PICK_INT(seed, 0, 10000);
    temper->config.lag_us = PICK_INT(seed, 0, 0, 0, 200, 1000);
    temper->config.outage = (enum weir__outage_policy)PICK_INT(
        seed, WEIR__OUTAGE_CLOSED, WEIR__OUTAGE_CLOSED, WEIR__OUTAGE_LOCAL, WEIR__OUTAGE_OPEN);
    temper->config.share_ppm = PICK_INT(seed, 0, 100000, 500000, 1000000);
    temper->config.audits = true;
    choose_network(&temper->config.network, seed, temper->config.ask_timeout_us);

    temper->faults = with;
    for (unsigned fault = 0; fault < TEMPER_FAULTS; fault++) {
        temper->faults |= PICK(seed, 0, 0, 1) > 0 ? 1u << fault : 0;
    }
    temper->fault_rate = PICK(seed, 0.005, 0.02, 0.1);
    temper->tries = PICK(seed, 0, 0.5, 0.8, 1);
    temper->refunds = PICK(seed, 0, 0, 0.05, 0.2);
    temper->greedy = PICK(seed, 0, 0.1, 0.6);
    temper->large = PICK(seed, 0, 0.05, 0.3);
    temper->patient = PICK(seed, 0.1, 0.5, 0.9);
    temper->edgy = PICK(seed, 0.1, 0.5, 0.9);
    temper->quiet = PICK(seed, 0, 0, 0.01, 0.1);
    temper->length_us = calm ? 1500000 : weir__max(60000, weir__min(200000, 40 * shortest));
}

void temper_print(const struct temper *temper, FILE *out)
{
    const struct sim_config *config = &temper->config;
    const struct sim_network *network = &config->network;
    fprintf(out,
            "seed %llu: %u processes, %u keys, store %s, timeout %lld us, asks %u, waiters %u,"
            " drift %lld ppm, lag %lld us, outage policy %d share %lld ppm\n",
            (unsigned long long)config->seed, temper->processes, config->keys,
            temper->lua ? "Lua and C" : "C", (long long)config->ask_timeout_us, config->max_asks,
            config->max_waiters, (long long)config->drift_ppm, (long long)config->lag_us,
            (int)config->outage, (long long)config->share_ppm);
    fprintf(out,
            "  network: lossy %.2f swift %.2f refusing %.2f late %.2f delay %lld us; tries %.2f"
            " refunds %.2f greedy %.2f large %.2f patient %.2f edgy %.2f quiet %.2f\n  faults",
            network->lossy, network->swift, network->refusing, network->late,
            (long long)network->delay_us, temper->tries, temper->refunds, temper->greedy,
            temper->large, temper->patient, temper->edgy, temper->quiet);
    for (unsigned fault = 0; fault < TEMPER_FAULTS; fault++) {
        if ((temper->faults & 1u << fault) != 0) {
            fprintf(out, " %s", fault_names[fault]);
        }
    }
    fprintf(out, " at %.3f\n", temper->fault_rate);
    for (unsigned key = 0; key < config->keys; key++) {
        const struct weir__rule *rule = &temper->rules[key];
        fprintf(out,
                "  key %u: %lld units each %lld us, a token is %lld; C %lld E %lld W %lld us"
                " max wait %lld us initial %lld\n",
                key, (long long)rule->units_per_tick, (long long)rule->tick_us,
                (long long)rule->units_per_token, (long long)rule->capacity,
                (long long)rule->budget, (long long)rule->window_us, (long long)rule->max_wait_us,
                (long long)rule->initial);
    }
}

/* ---- Faults ---------------------------------------------------------------------------------- */

static bool stalled(const struct sim *sim, unsigned index)
{
    return sim->processes[index].stalled_till_us > sim->now_us;
}

static void cut(struct sim *sim, unsigned index)
{
    if (sim->processes[index].linked && !stalled(sim, index)) {
        sim_cut(sim, index);
    }
}

static void change_limit(struct sim *sim, unsigned key)
{
    uint64_t *seed = &sim->seed;
    int64_t newest = 0;
    struct weir__rule rule = sim->first_rules[key];
    for (unsigned i = 0; i < sim->count; i++) {
        newest = weir__max(newest, sim->processes[i].limits[key].rule.version);
    }
    newest = weir__max(newest, sim->promises[key].version);
    int64_t finer = PICK_INT(seed, 1, 1, 2, 3); /* the same rate in other units */
    int64_t rate = (int64_t)((double)rule.units_per_tick * PICK(seed, 0.3, 1, 3));
    rule.units_per_token *= finer;
    rule.units_per_tick = weir__max(1, rate) * finer;
    rule.capacity = PICK_INT(seed, 1, 5, 10, 20, 50);
    rule.budget = weir__min(rule.capacity, PICK_INT(seed, 0, 1, 2, 5, 20));
    rule.window_us = weir__max(500, (int64_t)((double)rule.window_us * PICK(seed, 0.5, 1, 2)));
    rule.initial = weir__max(1, weir__min(rule.initial, rule.capacity));
    rule.version = newest + 1;
    unsigned first = (unsigned)sim_between(sim, 0, (int64_t)sim->count - 1);
    for (unsigned i = 0; i < sim->count; i++) { /* some keep what they have */
        if ((i == first || sim_chance(sim) < 0.5) && !stalled(sim, i)) {
            sim_set_rule(sim, i, key, &rule);
        }
    }
}

static void step_clock(struct sim *sim, int64_t sign)
{
    int64_t window_us = sim->longest_window_us;
    int64_t fill_us = weir__rule_time_us(&sim->first_rules[0], sim->first_rules[0].capacity);
    sim_step_clock(sim,
                   sign * PICK_INT(&sim->seed, 1, (double)(window_us / 2), (double)window_us,
                                   3.0 * (double)window_us, (double)(fill_us + 10 * window_us)));
}

static void lose(struct sim *sim)
{
    for (unsigned key = 0; key < sim->config.keys; key++) {
        sim_lose_data(sim, key);
    }
    for (unsigned i = 0; i < sim->count; i++) {
        if (sim_chance(sim) < 0.5) { /* it was a restart */
            cut(sim, i);
        }
    }
}

static void do_fault(struct sim *sim, const struct temper *temper)
{
    unsigned fault = (unsigned)sim_between(sim, 0, TEMPER_FAULTS - 1);
    unsigned index = (unsigned)sim_between(sim, 0, (int64_t)sim->count - 1);
    int64_t window_us = sim->longest_window_us;
    if ((temper->faults & 1u << fault) == 0) {
        return;
    }
    switch ((enum temper_fault)fault) {
    case TEMPER_CRASH: sim_crash(sim, index); break;
    case TEMPER_STALL:
        sim_stall(sim, index, sim_between(sim, 1, 4 * window_us), sim_chance(sim) < 0.3);
        break;
    case TEMPER_CUT: cut(sim, index); break;
    case TEMPER_HANG:
        sim->store_hangs = !sim->store_hangs;
        sim_say(sim, "the store %s", sim->store_hangs ? "hangs" : "answers again");
        break;
    case TEMPER_CLOCK_BACK: step_clock(sim, -1); break;
    case TEMPER_CLOCK_FORWARD: step_clock(sim, 1); break;
    case TEMPER_DATA_LOSS: lose(sim); break;
    case TEMPER_FAILOVER: sim_fail_over(sim, sim_between(sim, 0, 3 * window_us)); break;
    case TEMPER_LIMIT:
        change_limit(sim, (unsigned)sim_between(sim, 0, (int64_t)sim->config.keys - 1));
        break;
    case TEMPER_FAULTS: break;
    }
}

/* ---- Callers --------------------------------------------------------------------------------- */

static int64_t cost_of(struct sim *sim, const struct temper *temper, unsigned key)
{
    if (sim_chance(sim) < temper->large) {
        return sim_between(sim, 0, sim->first_rules[key].capacity + 1);
    }
    return sim_chance(sim) < 0.8 ? 1 : 2;
}

static void call(struct sim *sim, const struct temper *temper)
{
    unsigned index = (unsigned)sim_between(sim, 0, (int64_t)sim->count - 1);
    unsigned key = (unsigned)sim_between(sim, 0, (int64_t)sim->config.keys - 1);
    struct sim_process *process = &sim->processes[index];
    const struct weir__rule *rule = &sim->first_rules[key];
    bool callers_only = stalled(sim, index);
    if (callers_only && process->stopped) {
        return;
    }
    if (!callers_only && sim_chance(sim) < temper->refunds) {
        const struct sim_books *books = &process->books[key];
        int64_t most = books->tries + books->answered - books->refunded;
        sim_refund(sim, index, key,
                   sim_chance(sim) < 0.3 ? most + (sim_chance(sim) < 0.2)
                                         : weir__min(most, sim_between(sim, 1, 3)));
    } else if (callers_only || sim_chance(sim) < temper->tries) {
        int64_t credit = process->buckets[key].credit;
        bool all = credit > 0 && sim_chance(sim) < temper->greedy;
        (void)sim_try(sim, index, key, all ? credit : weir__max(1, cost_of(sim, temper, key)));
    } else {
        int64_t longest = 4 * rule->window_us;
        bool patient = sim_chance(sim) < temper->patient;
        sim_wait(sim, index, key, cost_of(sim, temper, key),
                 patient ? sim_between(sim, 0, longest) : 0);
    }
}

/* When something happens next: at once, at an edge of some loop or message, or later. */
static int64_t next_us(struct sim *sim, const struct temper *temper)
{
    int64_t window_us = sim->longest_window_us;
    if (sim_chance(sim) < 0.3) {
        return sim->now_us;
    }
    if (sim_chance(sim) < temper->quiet) {
        return sim->now_us + sim_between(sim, 1, 8 * window_us);
    }
    if (sim_chance(sim) < temper->edgy) {
        int64_t edge = SIM_NEVER;
        const struct sim_process *process =
            &sim->processes[sim_between(sim, 0, (int64_t)sim->count - 1)];
        edge = weir__min(edge, process->wake_us);
        if (sim->message_count > 0) {
            edge = weir__min(edge, sim->messages[0].at_us);
        }
        if (edge != SIM_NEVER) {
            return weir__max(sim->now_us, edge + sim_between(sim, -2, 2));
        }
    }
    return sim->now_us + sim_between(sim, 1, weir__max(1, window_us / 8));
}

static void relink(struct sim *sim)
{
    for (unsigned i = 0; i < sim->count; i++) {
        struct sim_process *process = &sim->processes[i];
        if (!process->linked && !stalled(sim, i) && sim_chance(sim) < 0.02) {
            sim_link(sim, i);
        }
    }
}

/* ---- A whole life ---------------------------------------------------------------------------- */

bool temper_run(struct sim *sim, const struct temper *temper, struct lua_host *lua, int script)
{
    sim_begin(sim, &temper->config, temper->rules, temper->processes, temper->lua ? lua : NULL,
              script);
    sim->store.keeps_past = (temper->faults & 1u << TEMPER_FAILOVER) != 0;
    while (sim->now_us < temper->length_us && sim->failure[0] == 0) {
        sim_run_to(sim, next_us(sim, temper));
        relink(sim);
        if (sim_chance(sim) < temper->fault_rate) {
            do_fault(sim, temper);
        } else {
            call(sim, temper);
        }
    }
    sim__ending(sim);
    sim_end(sim);
    return sim->failure[0] == 0;
}
