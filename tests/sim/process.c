/* SPDX-License-Identifier: MIT */
/*
 * A process: an engine as the driver would run it, and callers as the interface would let them.
 *
 * Callers take from the credit word at any time, also while the loop is stalled; a caller who finds
 * too little and is told to ring is heard when the loop runs next.  Everything that changes the
 * engine ends in sim__process_after: answers go out, asks go out, what was spent is counted, and
 * the time of the next turn is read off.
 */
#include "sim/inside.h"

#include <string.h>

#include "base/num.h"

void sim__process_begin(struct sim *sim, unsigned index, const struct weir__rule *rules)
{
    struct sim_process *process = &sim->processes[index];
    const struct sim_config *config = &sim->config;
    unsigned life = process->life + 1, link = process->link;
    memset(process, 0, sizeof *process);
    process->life = life;
    process->link = link + 1;
    process->linked = true;
    process->drift_ppm = config->drift_ppm * sim_between(sim, -1, 1);
    process->born_us = sim_between(sim, 0, 1000000);
    const struct weir__engine_config engine = {
        .ask_timeout_us = config->ask_timeout_us,
        .max_asks = config->max_asks,
        .max_waiters = config->max_waiters,
        .seed = config->seed * SIM_PROCESSES_MAX + index + life * 1000,
        .leases = true,
    };
    weir__engine_init(&process->engine, &engine);
    for (unsigned key = 0; key < config->keys; key++) {
        process->limits[key] = (struct weir__limit){
            .rule = rules[key], .outage = config->outage, .outage_share_ppm = config->share_ppm};
        weir__bucket_init(&process->buckets[key], &process->engine, &process->limits[key], "", 0);
        process->books[key].lost_rows[0].window = WEIR__NO_WINDOW;
    }
    weir__engine_linked(&process->engine, true, sim_clock(sim, process));
    process->wake_us = SIM_NEVER;
    process->resumed_us = INT64_MIN;
}

void sim__process_replace(struct sim *sim, unsigned index)
{
    struct weir__rule rules[STORE_KEYS_MAX];
    for (unsigned key = 0; key < sim->config.keys; key++) {
        rules[key] = sim->processes[index].limits[key].rule;
    }
    for (unsigned i = 0; i < sim->waiters_used; i++) {
        struct sim_waiter *w = &sim->waiters[i];
        if (w->open && w->process == index) {
            w->open = false;
            w->next_free = sim->free_waiters;
            sim->free_waiters = w;
        }
    }
    sim__process_begin(sim, index, rules);
}

bool sim__process_stalled(const struct sim *sim, const struct sim_process *process)
{
    return process->stalled_till_us > sim->now_us;
}

/* ---- After each call of the engine ----------------------------------------------------------- */

/* Credit that callers and waiters have taken and the promise does not know yet; and the term of the
 * local policy. */
static void count_credit(struct sim *sim, struct sim_process *process)
{
    for (unsigned key = 0; key < sim->config.keys; key++) {
        const struct weir__leases *leases = &process->buckets[key].leases;
        struct sim_books *books = &process->books[key];
        int64_t local = leases->own.granted - books->leased - books->local;
        if (local > 0) {
            books->local += local;
            promise_allow(&sim->promises[key], local, sim__leases_end(sim, key), sim__smooth(sim));
        }
        int64_t spent = leases->own.spent + leases->expected - *leases->credit + books->again;
        if (spent != books->promised) {
            promise_admit(&sim->promises[key], spent - books->promised, sim__smooth(sim));
            books->promised = spent;
        }
    }
}

static void take_answers(struct sim *sim, struct sim_process *process)
{
    struct weir__waiter *waiter;
    while ((waiter = weir__engine_next_done(&process->engine)) != NULL) {
        struct sim_waiter *w = weir__container(waiter, struct sim_waiter, waiter);
        struct sim_tally *tally = &sim->tally[w->process];
        if (sim->config.mutant == SIM_WAITER_FORGOTTEN && waiter->verdict != WEIR__ALLOWED) {
            continue;
        }
        sim__audit_answer(sim, w);
        if (process->latest == w) {
            process->latest = NULL;
            sim->answers[w->process] = (struct sim_answer){.known = true,
                                                           .verdict = waiter->verdict,
                                                           .reason = waiter->reason,
                                                           .retry_after_us = waiter->retry_after_us,
                                                           .at_us = sim->now_us};
        }
        sim_say(sim, "%u/%u answers a waiter of %lld: verdict %d reason %d retry %lld", w->process,
                w->key, (long long)waiter->cost, (int)waiter->verdict, (int)waiter->reason,
                (long long)waiter->retry_after_us);
        if (waiter->verdict == WEIR__ALLOWED) {
            tally->allowed++;
            tally->tokens += (uint64_t)waiter->cost;
            if (waiter->reason != WEIR__REASON_STORE_DOWN) {
                process->books[w->key].answered += waiter->cost;
            }
        } else {
            tally->refused++;
        }
        w->open = false;
        w->next_free = sim->free_waiters;
        sim->free_waiters = w;
        process->waiters--;
        process->events++;
    }
}

static void note_outage(struct sim *sim, struct sim_process *process)
{
    bool down = weir__outage_is_down(&process->engine.outage);
    if (down && !process->was_down) {
        for (unsigned key = 0; key < sim->config.keys; key++) {
            process->books[key].local_from = process->books[key].local;
            process->books[key].local_from_us = sim_clock(sim, process);
            process->books[key].local_saved = 0;
        }
    }
    process->was_down = down;
}

static void set_wake(struct sim *sim, struct sim_process *process)
{
    int64_t next_us = weir__engine_next_us(&process->engine);
    bool rung = false;
    for (unsigned key = 0; key < sim->config.keys; key++) {
        rung = rung || process->books[key].touched;
        if (process->flights[key].serial != 0) {
            next_us = weir__min(next_us, process->flights[key].deadline_us);
        }
    }
    int64_t wake_us = sim_true_us(process, next_us);
    if (wake_us != SIM_NEVER) {
        wake_us = weir__max(wake_us + process->lag_us, sim->now_us);
    }
    process->wake_us = rung ? sim->now_us : wake_us;
}

void sim__process_after(struct sim *sim, struct sim_process *process)
{
    struct weir__command command;
    note_outage(sim, process);
    count_credit(sim, process);
    take_answers(sim, process);
    while (sim->failure[0] == 0 &&
           weir__engine_next_command(&process->engine, &command, sim_clock(sim, process))) {
        sim__link_send(sim, process, &command);
    }
    count_credit(sim, process);
    take_answers(sim, process);
    set_wake(sim, process);
}

/* ---- Turns ----------------------------------------------------------------------------------- */

/* A loop turns when something is due, and for nothing else: when each lease dies and is over, and a
 * few times for each key and event in a millisecond. */
static void bound_turns(struct sim *sim, struct sim_process *process)
{
    int64_t ms = sim_clock(sim, process) / 1000;
    if (ms != process->turn_ms) {
        process->turn_ms = ms;
        process->turns = process->events = 0;
    }
    process->turns++;
    unsigned most = 4 + (4 + 2 * WEIR__LEASES_MAX) * sim->config.keys + 2 * process->events;
    if (process->turns > most) {
        sim_fail(sim, "the loop of process %u turns %u times in a millisecond with %u events",
                 sim__index(sim, process), process->turns, process->events);
    }
}

void sim__process_resume(struct sim *sim, struct sim_process *process)
{
    if (process->stalled_till_us != 0) {
        process->stalled_till_us = 0;
        process->stopped = false;
        process->resumed_us = sim_clock(sim, process);
        process->events++;
        sim_say(sim, "%u runs again", sim__index(sim, process));
    }
}

void sim__process_turn(struct sim *sim, struct sim_process *process)
{
    int64_t clock_us = sim_clock(sim, process);
    sim__process_resume(sim, process);
    for (unsigned key = 0; key < sim->config.keys; key++) {
        if (process->books[key].touched) {
            process->books[key].touched = false;
            process->events++;
            weir__engine_touch(&process->engine, &process->buckets[key], clock_us);
        }
    }
    for (unsigned key = 0; key < sim->config.keys; key++) {
        const struct sim_flight *flight = &process->flights[key];
        if (flight->serial != 0 && flight->deadline_us <= clock_us) {
            sim__link_lose(sim, process, key);
        }
    }
    bound_turns(sim, process);
    process->lag_us = sim_between(sim, 0, sim->config.lag_us);
    weir__engine_tick(&process->engine, clock_us);
    if (weir__engine_next_us(&process->engine) <= clock_us) {
        sim_fail(sim, "process %u has work left after a tick", sim__index(sim, process));
    }
    sim__process_after(sim, process);
}

/* ---- Callers --------------------------------------------------------------------------------- */

/* Of `cost` tokens taken now, those whose window is over: term S. */
static int64_t stranded_of(const struct weir__leases *leases, int64_t cost, int64_t clock_us)
{
    int64_t before = leases->expected - *leases->credit - cost;
    int64_t stranded = 0;
    for (unsigned i = 0; i < leases->count && cost > 0; i++) {
        int64_t left = leases->at[i].left;
        int64_t gone = weir__min(before, left);
        int64_t part = weir__min(cost, left - gone);
        before -= gone;
        cost -= part;
        stranded += clock_us >= leases->at[i].over_us ? part : 0;
    }
    return stranded;
}

static bool take(struct sim *sim, struct sim_process *process, unsigned key, int64_t cost)
{
    struct weir__bucket *bucket = &process->buckets[key];
    struct sim_books *books = &process->books[key];
    if (!weir__bucket_take(bucket, cost)) {
        return false;
    }
    int64_t stranded = stranded_of(&bucket->leases, cost, sim_clock(sim, process));
    promise_admit(&sim->promises[key], cost - stranded, sim__smooth(sim));
    books->tries += cost;
    books->promised += cost;
    books->stranded += stranded;
    sim_say(sim, "%u/%u takes %lld, %lld of it stranded", sim__index(sim, process), key,
            (long long)cost, (long long)stranded);
    return true;
}

static void miss(struct sim *sim, struct sim_process *process, unsigned key)
{
    struct sim_tally *tally = &sim->tally[sim__index(sim, process)];
    switch (weir__bucket_miss(&process->buckets[key])) {
    case WEIR__MISS_TOUCH:
        process->books[key].touched = true;
        process->wake_us = sim->now_us; /* rings */
        tally->cold++;
        break;
    case WEIR__MISS_COLD: tally->cold++; break;
    case WEIR__MISS_REFUSED:
    case WEIR__MISS_CLOSED: tally->refused++; break;
    }
}

bool sim_try(struct sim *sim, unsigned index, unsigned key, int64_t cost)
{
    struct sim_process *process = &sim->processes[index];
    struct sim_tally *tally = &sim->tally[index];
    tally->offered++;
    bool taken = take(sim, process, key, cost);
    if (taken) {
        tally->allowed++;
        tally->tokens += (uint64_t)cost;
    } else {
        miss(sim, process, key);
    }
    sim__audit(sim);
    return taken;
}

static struct sim_waiter *waiter_new(struct sim *sim)
{
    struct sim_waiter *w = sim->free_waiters;
    if (w != NULL) {
        sim->free_waiters = w->next_free;
        return w;
    }
    return sim->waiters_used < SIM_WAITERS_MAX ? &sim->waiters[sim->waiters_used++] : NULL;
}

void sim_wait(struct sim *sim, unsigned index, unsigned key, int64_t cost, int64_t timeout_us)
{
    struct sim_process *process = &sim->processes[index];
    struct weir__bucket *bucket = &process->buckets[key];
    struct sim_tally *tally = &sim->tally[index];
    int64_t clock_us = sim_clock(sim, process);
    tally->offered++;
    bool queued = (weir__load_relaxed(&bucket->gate) & WEIR__GATE_QUEUED) != 0;
    if (cost > 0 && !queued && take(sim, process, key, cost)) {
        tally->allowed++;
        tally->tokens += (uint64_t)cost;
        sim->answers[index] = (struct sim_answer){
            .known = true, .verdict = WEIR__ALLOWED, .at_us = sim->now_us};
        return;
    }
    struct sim_waiter *w = waiter_new(sim);
    if (w == NULL) {
        sim_fail(sim, "no room for another waiter");
        return;
    }
    w->open = true;
    w->process = index;
    w->key = key;
    w->reserved_us = SIM_NEVER;
    w->waiter.bucket = bucket;
    w->waiter.cost = cost;
    w->waiter.until_us = clock_us + timeout_us;
    /* as the interface has it: no patience is still time enough to ask */
    w->waiter.answer_us = clock_us + (timeout_us == 0 ? sim->config.ask_timeout_us : timeout_us);
    process->waiters++;
    process->latest = w;
    sim->answers[index].known = false;
    process->events++;
    sim_say(sim, "%u/%u waits for %lld, %lld us", index, key, (long long)cost,
            (long long)timeout_us);
    weir__engine_wait(&process->engine, &w->waiter, clock_us);
    sim__process_after(sim, process);
    sim__audit(sim);
}

void sim_refund(struct sim *sim, unsigned index, unsigned key, int64_t tokens)
{
    struct sim_process *process = &sim->processes[index];
    struct weir__bucket *bucket = &process->buckets[key];
    struct sim_books *books = &process->books[key];
    int64_t travels = bucket->refund;
    bool may = tokens <= books->tries + books->answered - books->refunded;
    bool done = weir__engine_refund(&process->engine, bucket, tokens, sim_clock(sim, process));
    if (done != may) {
        sim_fail(sim, "process %u: a refund of %lld is %s", index, (long long)tokens,
                 done ? "taken, of less admitted" : "refused");
    }
    if (done) {
        int64_t again = tokens - (bucket->refund - travels);
        if (sim->config.mutant == SIM_REFUND_TO_CREDIT && bucket->leases.count > 0) {
            struct weir__lease *lease = &bucket->leases.at[bucket->leases.count - 1];
            int64_t naive = bucket->refund - travels;
            bucket->refund = travels;
            bucket->credit += naive;
            bucket->leases.expected += naive;
            bucket->leases.own.spent -= naive;
            process->engine.ledger.spent -= naive;
            lease->left += naive;
            again = tokens;
        }
        books->refunded += tokens;
        books->again += again;
        promise_refund(&sim->promises[key], again, sim__smooth(sim));
        sim_say(sim, "%u/%u refunds %lld, %lld of it to credit", index, key, (long long)tokens,
                (long long)again);
    }
    sim__process_after(sim, process);
    sim__audit(sim);
}
