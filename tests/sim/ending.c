/* SPDX-License-Identifier: MIT */
/*
 * How every simulated world ends, whatever has happened in it.
 *
 * Mended: the store is up, the links are good, clocks stand right; now a waiter in each process and
 * for each key must be served within the time that the tokens need, and that the engine may take to
 * notice that the store is back.
 *
 * At rest: nobody comes any more; now each process must give back all it holds, leave its heap, and
 * wait to be rung by the next caller; and the store must have all its tokens back.
 */
#include "sim/inside.h"

#include "base/num.h"
#include "core/rule.h"

/* Outages are noticed as over within this: core/outage probes each quarter of a second. */
#define NOTICE_US 600000

static void mend(struct sim *sim)
{
    sim_say(sim, "from here on all is well");
    sim->store_hangs = false;
    sim->config.network = (struct sim_network){.swift = 0.2,
                                               .delay_us = sim->config.ask_timeout_us / 4};
    int64_t wakes_us = sim->now_us;
    for (unsigned i = 0; i < sim->count; i++) {
        wakes_us = weir__max(wakes_us, sim->processes[i].stalled_till_us);
    }
    sim_run_to(sim, wakes_us + 1);
    for (unsigned i = 0; i < sim->count; i++) {
        if (!sim->processes[i].linked) {
            sim_link(sim, i);
        }
    }
}

/* By when a token must have come to everyone who waits: the bucket fills, after what is reserved is
 * due and a stored time ahead of the clock has passed (R2), and the outage is noticed as over. */
static int64_t patience_us(const struct sim *sim, unsigned key)
{
    int64_t slowest = 0;
    const struct weir__global *stored = &sim->store.keys[key].bucket;
    for (unsigned i = 0; i < sim->count; i++) {
        const struct weir__rule *rule = &sim->processes[i].limits[key].rule;
        slowest = weir__max(slowest, weir__rule_time_us(rule, rule->capacity));
    }
    if (stored->exists) {
        slowest = weir__max(slowest, weir__rule_time_us(&stored->rule, stored->rule.capacity));
    }
    return NOTICE_US + 4 * slowest + 4 * sim->first_rules[key].max_wait_us +
           8 * sim->longest_window_us;
}

static void serve(struct sim *sim, unsigned index, unsigned key)
{
    const struct sim_answer *answer = &sim->answers[index];
    const struct weir__outage *outage = &sim->processes[index].engine.outage;
    int64_t patience = patience_us(sim, key);
    int64_t until_us = sim->now_us + patience;
    int64_t step_us = weir__max(1000, sim->longest_window_us / 4);
    do {
        if (sim->now_us >= until_us) {
            sim_fail(sim, "process %u is not served with key %u in %lld us, though all is well",
                     index, key, (long long)patience);
            return;
        }
        sim_wait(sim, index, key, 1, until_us - sim->now_us);
        while (sim->failure[0] == 0 && !answer->known) {
            sim_run_to(sim, sim->now_us + step_us);
        }
        if (answer->verdict == WEIR__DENIED && answer->reason == WEIR__REASON_OVER_LIMIT) {
            sim_fail(sim, "process %u is refused with key %u, though it could wait", index, key);
        }
        sim_run_to(sim, sim->now_us + step_us);
    } while (sim->failure[0] == 0 &&
             (answer->verdict != WEIR__ALLOWED || weir__outage_is_down(outage)));
}

static void check_rest(struct sim *sim, unsigned index)
{
    const struct sim_process *process = &sim->processes[index];
    if (process->engine.counts.watched != 0 || process->waiters != 0 ||
        !weir__list_empty(&process->engine.ready)) {
        sim_fail(sim, "process %u does not come to rest", index);
    }
    for (unsigned key = 0; key < sim->config.keys; key++) {
        const struct weir__bucket *bucket = &process->buckets[key];
        if (bucket->credit != 0 || weir__engine_holds(&process->engine, bucket) ||
            (bucket->gate & WEIR__GATE_WATCHED) != 0) {
            sim_fail(sim,
                     "process %u rests and holds key %u: credit %lld, leases %u, refund %lld,"
                     " gate %x",
                     index, key, (long long)bucket->credit, bucket->leases.count,
                     (long long)bucket->refund, bucket->gate);
        }
    }
}

static void rest(struct sim *sim)
{
    /* give back after max(2 h, W / 2), h = 50 ms or 2 rtt; sleep when the last lease has died */
    int64_t rtt_us = 0;
    for (unsigned i = 0; i < sim->count; i++) {
        rtt_us = weir__max(rtt_us, weir__rtt_p50_us(&sim->processes[i].engine.rtt));
    }
    int64_t ahead_us = 0; /* the store's time stands still until its clock has caught up (R2) */
    for (unsigned key = 0; key < sim->config.keys; key++) {
        const struct weir__global *stored = &sim->store.keys[key].bucket;
        ahead_us = weir__max(ahead_us, weir__max(stored->seen_us, stored->stamp_us) -
                                           store_now_us(&sim->store, sim->now_us));
    }
    int64_t at_rest_us = weir__max(100000, 4 * rtt_us) + 4 * sim->longest_window_us +
                         8 * sim->config.ask_timeout_us + ahead_us * 101 / 100;
    sim_run_to(sim, sim->now_us + at_rest_us);
    for (unsigned i = 0; i < sim->count && sim->failure[0] == 0; i++) {
        check_rest(sim, i);
    }
    for (unsigned key = 0; key < sim->config.keys && sim->failure[0] == 0; key++) {
        struct weir__grant grant;
        const struct weir__ask look = {.peek = true, .heard = WEIR__NO_WINDOW};
        store_ask(&sim->store, key, &sim->processes[0].limits[key].rule, &look, sim->now_us,
                  &grant);
        if (grant.outstanding != 0) {
            sim_fail(sim, "key %u: all rest, and %lld are out", key, (long long)grant.outstanding);
        }
    }
}

void sim__ending(struct sim *sim)
{
    mend(sim);
    for (unsigned i = 0; i < sim->count && sim->failure[0] == 0; i++) {
        for (unsigned key = 0; key < sim->config.keys && sim->failure[0] == 0; key++) {
            serve(sim, i, key);
        }
    }
    rest(sim);
}
