/* SPDX-License-Identifier: MIT */
/*
 * What must be true after every event.
 *
 *   - The promise, with its terms (sim/promise).
 *   - The invariant of its proof, which is stronger, since it holds before anybody has spent
 *     anything:
 *
 *         LEVEL + UNSPENT + GIVEN BACK IN FLIGHT + RESERVED  <=  content of the promise
 *
 *   - Conservation, in each process: what was granted is spent, held, given back or expired; and
 *     what the books say was spent is what callers got.
 *   - Bounds: asks in flight, waiters, and each waiter answered once and in time.
 */
#include "sim/inside.h"

#include "base/num.h"

/* Two clocks, each cut to whole microseconds, can seem to differ by so much. */
#define CLOCK_GRAIN_US 2

/* ---- The invariant --------------------------------------------------------------------------- */

/* Units in the store, as if time flowed: at least what the next ask will find. */
static int64_t level_units(const struct sim *sim, unsigned index)
{
    const struct promise *promise = &sim->promises[index];
    const struct weir__global *key = &sim->store.keys[index].bucket;
    int64_t now_us = store_now_us(&sim->store, sim->now_us);
    if (!key->exists || now_us >= key->expires_us) {
        return promise->capacity * promise->per_token;
    }
    int64_t unit = promise->per_token / key->rule.units_per_token;
    int64_t gap_us = weir__max(now_us, weir__max(key->stamp_us, key->seen_us)) - key->stamp_us;
    int64_t level = key->level * unit + promise_units(promise, &key->rule, gap_us);
    return weir__min(level, key->rule.capacity * promise->per_token);
}

/* Tokens of one process that can still be spent and are not stranded. */
static int64_t unspent(const struct sim *sim, const struct sim_process *process, unsigned key)
{
    const struct weir__leases *leases = &process->buckets[key].leases;
    int64_t taken = leases->expected - *leases->credit;
    int64_t clock_us = sim_clock(sim, process);
    int64_t sum = 0;
    for (unsigned i = 0; i < leases->count; i++) {
        const struct weir__lease *lease = &leases->at[i];
        int64_t gone = weir__min(taken, lease->left);
        taken -= gone;
        sum += clock_us < lease->over_us ? lease->left - gone : 0;
    }
    return sum;
}

/* Credit on its way back, as far as the store will take it: into the windows that the next ask will
 * find (R3, R5). */
static int64_t coming_back(const struct sim *sim, unsigned index)
{
    const struct weir__global *key = &sim->store.keys[index].bucket;
    int64_t t = weir__max(store_now_us(&sim->store, sim->now_us), key->seen_us);
    bool turns = t >= key->cur_end_us;
    int64_t out_prev = turns ? 0 : key->out_prev;
    int64_t out_cur = turns && t >= key->cur_end_us + key->cur_life_us ? 0 : key->out_cur;
    int64_t back_cur = 0, back_prev = 0;
    for (unsigned i = 0; i < sim->message_count && key->has_account; i++) {
        const struct sim_message *message = &sim->messages[i];
        for (unsigned row = 0; row < WEIR__SETTLE_ROWS; row++) {
            const struct weir__settle *settle = &message->ask.settle[row];
            if (message->reply || message->key != index || settle->window < 0) {
                continue;
            }
            back_cur += settle->window == key->cur ? settle->back : 0;
            back_prev += settle->window == key->prev ? settle->back : 0;
        }
    }
    return weir__min(back_cur, out_cur) + weir__min(back_prev, out_prev);
}

/* Leases in replies that will be heard while they live. */
static int64_t coming(const struct sim *sim, unsigned index)
{
    int64_t sum = 0;
    for (unsigned i = 0; i < sim->message_count; i++) {
        const struct sim_message *message = &sim->messages[i];
        const struct sim_process *process = &sim->processes[message->process];
        if (message->reply && message->key == index && message->failure == 0 &&
            message->life == process->life && message->link == process->link &&
            message->serial == process->flights[index].serial &&
            sim_clock(sim, process) < message->sent_us + message->grant.life_us) {
            sum += message->grant.lease;
        }
    }
    return sum;
}

static void audit_promise(struct sim *sim, unsigned index)
{
    struct promise *promise = &sim->promises[index];
    promise_advance(promise, sim__smooth(sim));
    if (promise->worst < 0) {
        sim_fail(sim, "key %u: %lld tokens above the promise", index,
                 (long long)promise_excess(promise));
    }
    int64_t tokens = promise_reserved(promise) + coming_back(sim, index) + coming(sim, index);
    for (unsigned i = 0; i < sim->count; i++) {
        tokens += unspent(sim, &sim->processes[i], index);
    }
    int64_t sum = level_units(sim, index) + tokens * promise->per_token;
    if (sum > promise->content) {
        sim_fail(sim,
                 "key %u: level and what is out are %lld units (a token is %lld) above the"
                 " promise",
                 index, (long long)(sum - promise->content), (long long)promise->per_token);
    }
}

/* ---- The books of a process ------------------------------------------------------------------ */

static void audit_conservation(struct sim *sim, const struct sim_process *process)
{
    const struct weir__ledger *sum = &process->engine.ledger;
    int64_t held = 0, taken = 0, spent = 0, leased = 0, got = 0, stranded = 0;
    for (unsigned key = 0; key < sim->config.keys; key++) {
        const struct weir__leases *leases = &process->buckets[key].leases;
        const struct sim_books *books = &process->books[key];
        int64_t left = 0;
        for (unsigned i = 0; i < leases->count; i++) {
            left += leases->at[i].left;
        }
        if (left != leases->expected || *leases->credit < 0 || *leases->credit > left) {
            sim_fail(sim, "process %u, key %u: credit %lld, expected %lld, left %lld",
                     sim__index(sim, process), key, (long long)*leases->credit,
                     (long long)leases->expected, (long long)left);
        }
        held += left;
        taken += left - *leases->credit;
        spent += books->again;
        leased += books->leased + books->local;
        got += books->tries + books->answered;
        stranded += books->stranded;
    }
    if (sum->granted != sum->spent + held + sum->given_back + sum->expired ||
        sum->granted != leased) {
        sim_fail(sim,
                 "process %u: heard of %lld, granted %lld = spent %lld + held %lld + back %lld"
                 " + expired %lld",
                 sim__index(sim, process), (long long)leased, (long long)sum->granted,
                 (long long)sum->spent, (long long)held, (long long)sum->given_back,
                 (long long)sum->expired);
    }
    spent += sum->spent + taken + (int64_t)process->engine.counts.exact_spent;
    if (spent != got) {
        sim_fail(sim, "process %u: callers got %lld, the books say %lld", sim__index(sim, process),
                 (long long)got, (long long)spent);
    }
    /* What was taken in time and seen too late counts as stranded, which only a late loop can
     * do. */
    bool in_time = sim->config.lag_us == 0 && process->resumed_us == INT64_MIN;
    if (taken == 0 && (sum->stranded < stranded || (in_time && sum->stranded > 0))) {
        sim_fail(sim, "process %u: %lld stranded, the books say %lld", sim__index(sim, process),
                 (long long)stranded, (long long)sum->stranded);
    }
}

static void audit_bounds(struct sim *sim, const struct sim_process *process)
{
    const struct weir__engine *engine = &process->engine;
    unsigned flights = 0, watched = 0, waiting = 0;
    for (unsigned key = 0; key < sim->config.keys; key++) {
        flights += process->flights[key].serial != 0;
        watched += weir__heap_has(&engine->due, &process->buckets[key].due);
        waiting += process->buckets[key].waiting;
    }
    if (engine->asks != flights || flights > sim->config.max_asks) {
        sim_fail(sim, "process %u: %u asks on their way, the engine says %u",
                 sim__index(sim, process), flights, engine->asks);
    }
    if (engine->waiters != process->waiters || waiting != process->waiters ||
        process->waiters > sim->config.max_waiters) {
        sim_fail(sim, "process %u: %u waiters, the engine says %u", sim__index(sim, process),
                 process->waiters, engine->waiters);
    }
    if (engine->counts.watched != watched) {
        sim_fail(sim, "process %u: %u buckets in the heap, the engine says %u",
                 sim__index(sim, process), watched, (unsigned)engine->counts.watched);
    }
}

/* The local policy: no more than its share of the rate since the outage began. */
static void audit_local(struct sim *sim, const struct sim_process *process)
{
    if (!process->was_down || sim->config.share_ppm == 0) {
        return;
    }
    double share = (double)sim->config.share_ppm / WEIR__PPM;
    for (unsigned key = 0; key < sim->config.keys; key++) {
        const struct sim_books *books = &process->books[key];
        const struct weir__rule *rule = &process->limits[key].rule;
        int64_t down_us = sim_clock(sim, process) - books->local_from_us;
        double most = weir__rule_per_s(rule) * share * (double)down_us / 1e6 + 1 +
                      (double)books->local_saved;
        if ((double)(books->local - books->local_from) > most) {
            sim_fail(sim, "process %u admits %lld by itself in an outage of %lld us",
                     sim__index(sim, process), (long long)(books->local - books->local_from),
                     (long long)down_us);
        }
    }
}

void sim__audit_answer(struct sim *sim, const struct sim_waiter *w)
{
    const struct weir__waiter *waiter = &w->waiter;
    const struct sim_process *process = &sim->processes[w->process];
    int64_t clock_us = sim_clock(sim, process);
    int64_t due_us = weir__max(waiter->answer_us, process->resumed_us);
    if (waiter
            /* its tokens are surely coming, and the answer that said so took its time */
            ->reserved) {
        due_us = weir__max(due_us, waiter->answer_us + sim->config.ask_timeout_us);
    }
    if (!w->open) {
        sim_fail(sim, "process %u answers a waiter twice", w->process);
    }
    if (clock_us > due_us + sim->config.lag_us * 102 / 100 + CLOCK_GRAIN_US) {
        sim_fail(sim, "process %u answers a waiter %lld us late", w->process,
                 (long long)(clock_us - due_us));
    }
    if (waiter->verdict == WEIR__ALLOWED && waiter->reserved &&
        sim__smooth(sim) < w->reserved_us - CLOCK_GRAIN_US) {
        sim_fail(sim, "process %u: a reserved waiter leaves %lld us before its tokens are due",
                 w->process, (long long)(w->reserved_us - sim__smooth(sim)));
    }
    if (waiter->verdict == WEIR__DENIED && waiter->retry_after_us < 0 &&
        waiter->retry_after_us != WEIR__TIME_UNKNOWN &&
        waiter->retry_after_us != WEIR__TIME_NEVER) {
        sim_fail(sim, "process %u: retry after %lld", w->process,
                 (long long)waiter->retry_after_us);
    }
}

/* Who waits too long; seldom, since it looks at every waiter. */
static void audit_waiters(struct sim *sim)
{
    for (unsigned i = 0; i < sim->waiters_used; i++) {
        const struct sim_waiter *w = &sim->waiters[i];
        const struct sim_process *process = &sim->processes[w->process];
        /* In the very moment in which a stall ends the loop has not run yet. */
        if (!w->open || sim->now_us <= process->stalled_till_us) {
            continue;
        }
        int64_t late_us = w->waiter.reserved ? sim->config.ask_timeout_us : 0;
        int64_t due_us = weir__max(w->waiter.answer_us + late_us, process->resumed_us);
        if (sim_clock(sim, process) > due_us + sim->config.lag_us * 102 / 100 + CLOCK_GRAIN_US) {
            sim_fail(sim, "process %u has not answered a waiter, %lld us after its time",
                     w->process, (long long)(sim_clock(sim, process) - due_us));
        }
    }
}

void sim__audit(struct sim *sim)
{
    if (!sim->config.audits || sim->failure[0] != 0) {
        return;
    }
    if (sim->store.difference[0] != 0) {
        sim_fail(sim, "Lua and C differ: %s", sim->store.difference);
    }
    for (unsigned key = 0; key < sim->config.keys; key++) {
        audit_promise(sim, key);
    }
    for (unsigned i = 0; i < sim->count; i++) {
        audit_conservation(sim, &sim->processes[i]);
        audit_bounds(sim, &sim->processes[i]);
        audit_local(sim, &sim->processes[i]);
    }
    if (++sim->events % 64 == 0) {
        audit_waiters(sim);
    }
}
