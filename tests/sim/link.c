/* SPDX-License-Identifier: MIT */
/*
 * The way of an ask: out of the engine, through the network, into the store, and back.
 *
 * The promise counts the waiters' tokens (R9) when the store grants them, reserved ones (R12) when
 * they are due by the store's clock, and refunds when the store accepts them.  Leases count when
 * they are spent (sim/process).
 *
 * What a mutant changes is changed here, between an engine and a store that are both sound.
 */
#include "sim/inside.h"

#include "base/num.h"

/* How long a message takes; -1: it is lost. */
static int64_t delay_of(struct sim *sim)
{
    const struct sim_network *network = &sim->config.network;
    if (sim_chance(sim) < network->lossy) {
        return -1;
    }
    if (sim_chance(sim) < network->late) {
        return sim->config.ask_timeout_us * sim_between(sim, 1, 12);
    }
    if (sim_chance(sim) < network->swift) {
        return 0;
    }
    int64_t most_us = network->delay_us * (sim_chance(sim) < 0.05 ? 4 : 1);
    return sim_between(sim, most_us / 4, most_us);
}

static void post(struct sim *sim, const struct sim_message *message)
{
    int64_t delay_us = delay_of(sim);
    if (delay_us < 0 || sim->message_count == SIM_MESSAGES_MAX) {
        sim_say(sim, "%s %u of %u is lost", message->reply ? "reply" : "ask",
                (unsigned)message->serial, message->process);
        return;
    }
    struct sim_message *placed = &sim->messages[sim->message_count++];
    *placed = *message;
    placed->at_us = sim->now_us + delay_us;
}

void sim__link_send(struct sim *sim, struct sim_process *process,
                    const struct weir__command *command)
{
    unsigned key = (unsigned)(command->bucket - process->buckets);
    struct sim_flight *flight = &process->flights[key];
    struct sim_books *books = &process->books[key];
    const struct weir__ask *ask = &command->ask;
    int64_t clock_us = sim_clock(sim, process);
    if (flight->serial != 0) {
        sim_fail(sim, "process %u has two asks on their way for key %u", sim__index(sim, process),
                 key);
    }
    if (!process->linked || command->deadline_us != clock_us + sim->config.ask_timeout_us) {
        sim_fail(sim, "process %u sends without a link, or with another deadline",
                 sim__index(sim, process));
    }
    sim_say(sim,
            "%u/%u asks #%u: %s want %lld least %lld exact %lld wait %lld refund %lld"
            " rows %lld:%lld,%lld %lld:%lld,%lld",
            sim__index(sim, process), key, (unsigned)command->serial, ask->peek ? "peek" : "",
            (long long)ask->want, (long long)ask->least, (long long)ask->exact,
            (long long)ask->wait_us, (long long)ask->refund, (long long)ask->settle[0].window,
            (long long)ask->settle[0].spent, (long long)ask->settle[0].back,
            (long long)ask->settle[1].window, (long long)ask->settle[1].spent,
            (long long)ask->settle[1].back);
    *flight = (struct sim_flight){.serial = command->serial,
                                  .deadline_us = command->deadline_us,
                                  .sent_us = clock_us,
                                  .ask = *ask};
    struct sim_message message = {.process = sim__index(sim, process),
                                  .key = key,
                                  .life = process->life,
                                  .link = process->link,
                                  .serial = command->serial,
                                  .sent_us = clock_us,
                                  .rule = command->rule,
                                  .ask = *ask};
    if (sim->config.mutant == SIM_ROWS_SENT_AGAIN && books->lost_rows[0].window >= 0) {
        for (unsigned i = 0; i < WEIR__SETTLE_ROWS; i++) {
            struct weir__settle *row = &message.ask.settle[i];
            if (row->window == books->lost_rows[i].window || row->window < 0) {
                row->window = books->lost_rows[i].window;
                row->spent += books->lost_rows[i].spent;
                row->back += books->lost_rows[i].back;
            }
        }
        books->lost_rows[0].window = WEIR__NO_WINDOW;
    }
    post(sim, &message);
    if (sim->config.mutant == SIM_TWO_ASKS_AT_ONCE && sim_chance(sim) < 0.1) {
        process->engine.asks--;
        command->bucket->flight.serial = 0;
        weir__engine_look(&process->engine, command->bucket, clock_us);
    }
}

/* ---- At the store ---------------------------------------------------------------------------- */

static void mutate_request(struct sim *sim, struct sim_message *message)
{
    struct weir__global *bucket = &sim->store.keys[message->key].bucket;
    if (sim->config.mutant == SIM_SETTLES_INTO_ANY_WINDOW) {
        for (unsigned i = 0; i < WEIR__SETTLE_ROWS; i++) {
            struct weir__settle *row = &message->ask.settle[i];
            row->window = row->window >= 0 && row->window != bucket->prev ? bucket->cur
                                                                          : row->window;
        }
    }
    if (sim->config.mutant == SIM_BUDGET_DOUBLED) {
        message->rule.budget *= 2;
    }
    if (sim->config.mutant == SIM_ANY_VERSION_ADOPTED && bucket->exists &&
        message->rule.version < bucket->rule.version) {
        message->rule.version = bucket->rule.version + 1;
    }
}

/* Has the rule in force changed?  Then so does the promise. */
static void follow_rule(struct sim *sim, unsigned key, const struct weir__rule *asked, bool anew)
{
    struct promise *promise = &sim->promises[key];
    const struct weir__rule *rule = &sim->store.keys[key].bucket.rule;
    bool changed = rule->version != promise->version;
    if (sim->config.mutant == SIM_ANY_VERSION_ADOPTED) {
        rule = asked;
        changed = asked->version > promise->version;
    }
    if (changed && sim->config.mutant != SIM_BUDGET_DOUBLED) {
        /* What was reserved by the old rule is due at the time that the old rule said. */
        promise_allow(promise, promise_reserved(promise), sim__leases_end(sim, key),
                      sim__smooth(sim));
        promise_change(promise, rule, anew, sim__smooth(sim) + 2 * sim->longest_window_us + 2,
                       sim__smooth(sim));
    }
}

static void run_ask(struct sim *sim, struct sim_message *message)
{
    struct weir__global *bucket = &sim->store.keys[message->key].bucket;
    struct promise *promise = &sim->promises[message->key];
    int64_t smooth_us = sim__smooth(sim);
    struct weir__rule asked = message->rule;
    mutate_request(sim, message);

    bool anew = !bucket->exists || store_now_us(&sim->store, sim->now_us) >= bucket->expires_us;
    promise_advance(promise, smooth_us);
    store_ask(&sim->store, message->key, &message->rule, &message->ask, sim->now_us,
              &message->grant);
    if (sim->config.mutant == SIM_KEY_EXPIRES_WHEN_FULL && bucket->exists) {
        bucket->expires_us = store_now_us(&sim->store, sim->now_us) +
                             weir__max(message->grant.reset_after_us, 1);
    }
    const struct weir__grant *grant = &message->grant;
    sim->asks++;
    if (!message->ask.peek) {
        follow_rule(sim, message->key, &asked, anew);
    }
    promise_refund(promise, grant->refunded, smooth_us);
    if (grant->exact > 0 && grant->wait_us == 0) {
        promise_admit(promise, grant->exact, smooth_us);
    } else if (grant->exact > 0) {
        promise_admit_at(promise, grant->exact, smooth_us + grant->wait_us, smooth_us);
    }
    sim_say(sim,
            "store/%u runs #%u of %u: lease %lld exact %lld wait %lld, level %lld/%lld,"
            " out %lld+%lld, window %lld",
            message->key, (unsigned)message->serial, message->process, (long long)grant->lease,
            (long long)grant->exact, (long long)grant->wait_us, (long long)bucket->level,
            (long long)bucket->rule.units_per_token, (long long)bucket->out_cur,
            (long long)bucket->out_prev, (long long)grant->window);
}

static void arrive(struct sim *sim, struct sim_message *message)
{
    struct sim_message answer = *message;
    answer.reply = true;
    if (sim->store_hangs) {
        return;
    }
    if (sim_chance(sim) < sim->config.network.refusing) {
        answer.failure = 1 +
                         (sim_chance(sim) < 0.5 ? WEIR__FAILED_REFUSED : WEIR__FAILED_NOT_EXECUTED);
        post(sim, &answer);
        return;
    }
    run_ask(sim, &answer);
    answer.decided_us = sim__smooth(sim);
    if (sim->config.mutant == SIM_REQUEST_RUN_TWICE && sim_chance(sim) < 0.2) {
        struct sim_message again = *message;
        run_ask(sim, &again);
    }
    post(sim, &answer);
}

/* ---- Back at the process --------------------------------------------------------------------- */

static void mutate_reply(struct sim *sim, struct sim_process *process,
                         const struct sim_message *message, struct weir__grant *grant)
{
    struct weir__bucket *bucket = &process->buckets[message->key];
    switch (sim->config.mutant) {
    case SIM_LIFE_DOUBLED: grant->life_us *= 2; break;
    case SIM_LIFE_FROM_REPLY: bucket->flight.sent_us = sim_clock(sim, process); break;
    case SIM_REPLY_COUNTED_TWICE: grant->lease *= 2; break;
    case SIM_LEAVES_EARLY: grant->wait_us /= 2; break;
    default: break;
    }
}

/* Exact tokens that were reserved for waiters just now: from when on they may be used. */
static void note_reservations(struct sim *sim, const struct sim_message *message)
{
    for (unsigned i = 0; i < sim->waiters_used; i++) {
        struct sim_waiter *w = &sim->waiters[i];
        if (w->open && w->process == message->process && w->key == message->key &&
            w->waiter.reserved && w->reserved_us == SIM_NEVER) {
            w->reserved_us = message->decided_us + message->grant.wait_us;
        }
    }
}

static void hear(struct sim *sim, struct sim_process *process, const struct sim_message *message)
{
    struct weir__bucket *bucket = &process->buckets[message->key];
    struct sim_books *books = &process->books[message->key];
    struct weir__grant grant = message->grant;
    int64_t clock_us = sim_clock(sim, process);
    uint64_t exact = process->engine.counts.exact_spent;
    int64_t refund = bucket->refund;

    mutate_reply(sim, process, message, &grant);
    books->leased += grant.lease;
    sim_say(sim, "%u/%u hears #%u", message->process, message->key, (unsigned)message->serial);
    weir__engine_answer(&process->engine, bucket, message->serial, &grant, clock_us);
    if (grant.exact > 0 && grant.wait_us > 0) {
        note_reservations(sim, message);
    }
    if (process->engine.counts.exact_spent > exact &&
        clock_us - message->sent_us > sim->config.ask_timeout_us) {
        sim_fail(sim, "process %u uses an exact part that is %lld us old", message->process,
                 (long long)(clock_us - message->sent_us));
    }
    if (bucket->refund - refund < 0 || bucket->refund - refund > grant.exact) {
        sim_fail(sim, "process %u gives back %lld of %lld exact tokens", message->process,
                 (long long)(bucket->refund - refund), (long long)grant.exact);
    }
}

void sim__link_deliver(struct sim *sim, unsigned index)
{
    struct sim_message message = sim->messages[index];
    sim->messages[index] = sim->messages[--sim->message_count];
    if (!message.reply) {
        arrive(sim, &message);
        return;
    }
    struct sim_process *process = &sim->processes[message.process];
    if (message.life != process->life || message.link != process->link) {
        return; /* the connection is gone, and nobody hears it */
    }
    sim__process_resume(sim, process);
    struct sim_flight *flight = &process->flights[message.key];
    struct weir__bucket *bucket = &process->buckets[message.key];
    int64_t clock_us = sim_clock(sim, process);
    bool expected = flight->serial == message.serial;
    if (expected) {
        flight->serial = 0;
    }
    if (message.failure != 0) {
        sim_say(sim, "%u/%u hears that #%u failed", message.process, message.key,
                (unsigned)message.serial);
        weir__engine_fail(&process->engine, bucket, message.serial,
                          (enum weir__failure)(message.failure - 1), clock_us);
    } else if (expected) {
        hear(sim, process, &message);
    } else { /* later than its deadline: of no consequence */
        weir__engine_answer(&process->engine, bucket, message.serial, &message.grant, clock_us);
    }
    process->events++;
    sim__process_after(sim, process);
}

void sim__link_lose(struct sim *sim, struct sim_process *process, unsigned key)
{
    struct sim_flight *flight = &process->flights[key];
    uint64_t serial = flight->serial;
    flight->serial = 0;
    process->books[key].lost_rows[0] = flight->ask.settle[0];
    process->books[key].lost_rows[1] = flight->ask.settle[1];
    process->events++;
    sim_say(sim, "%u/%u gives up #%u", sim__index(sim, process), key, (unsigned)serial);
    weir__engine_fail(&process->engine, &process->buckets[key], serial, WEIR__FAILED_LOST,
                      sim_clock(sim, process));
}

int64_t sim__link_next(const struct sim *sim, unsigned *index)
{
    int64_t at_us = SIM_NEVER;
    for (unsigned i = 0; i < sim->message_count; i++) {
        const struct sim_message *message = &sim->messages[i];
        int64_t due_us = message->at_us;
        if (message->reply) {
            due_us = weir__max(due_us, sim->processes[message->process].stalled_till_us);
        }
        if (due_us < at_us) {
            at_us = due_us;
            *index = i;
        }
    }
    return at_us;
}
