/* SPDX-License-Identifier: MIT */
/*
 * The crowd.  One step is the earliest of: a caller comes, a message arrives, an engine is due, a
 * process crashes.  A process's clock has an offset and runs up to 0.9 % fast or slow.
 *
 * An exact part is counted when the store decides (or, of a queue, when its slot is used); credit
 * when a caller takes it.
 */
#include "sim/crowd.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"

#define TIMEOUT_US 100000
#define MESSAGES_MOST (2 * CROWD_MOST)
#define WAITERS_MOST 64 /* a process */

struct message {
    bool used, answer;
    int64_t at_us;
    unsigned process;
    uint64_t life; /* of the process that asked */
    struct weir__command command;
    struct weir__grant grant;
    bool lost;
};

struct process {
    struct weir__engine engine;
    struct weir__bucket bucket;
    struct weir__waiter waiters[WAITERS_MOST];
    bool waiting[WAITERS_MOST];
    int64_t offset_us;
    double pace; /* our microseconds in one of the store's */
    uint64_t life;
    uint64_t exact_spent; /* of the engine's counts, as last seen */
};

struct crowd {
    const struct crowd_plan *plan;
    struct crowd_result *result;
    struct weir__limit limit;
    struct weir__global store;
    struct weir__log_entry log[4096];
    struct process *processes;
    struct message messages[MESSAGES_MOST];
    int64_t now_us, begin_us;
    uint64_t seed;
};

static double uniform(struct crowd *crowd)
{
    return (double)(weir__random(&crowd->seed) >> 11) / 9007199254740992.0;
}

static int64_t exponential_us(struct crowd *crowd, double per_s)
{
    if (per_s <= 0) {
        return INT64_MAX / 4;
    }
    return (int64_t)fmin(-log(1 - uniform(crowd)) * 1e6 / per_s, 1e15);
}

void admissions_add(struct admissions *admissions, int64_t at_us, int64_t tokens)
{
    if (admissions->count == admissions->room) {
        admissions->room = admissions->room == 0 ? 1024 : 2 * admissions->room;
        admissions->list = realloc(admissions->list, admissions->room * sizeof(*admissions->list));
        assert(admissions->list != NULL);
    }
    /* Nearly in order already: a slot that is used later than it was decided is put in its
     * place. */
    size_t at = admissions->count++;
    for (; at > 0 && admissions->list[at - 1].at_us > at_us; at--) {
        admissions->list[at] = admissions->list[at - 1];
    }
    admissions->list[at] = (struct admission){at_us, tokens};
}

static int64_t here_us(const struct process *process, int64_t us)
{
    return process->offset_us + (int64_t)((double)us * process->pace);
}

static int64_t ours(const struct crowd *crowd, const struct process *process)
{
    return here_us(process, crowd->now_us - crowd->begin_us);
}

static int64_t theirs(const struct crowd *crowd, const struct process *process, int64_t us)
{
    if (us >= INT64_MAX / 4) {
        return INT64_MAX;
    }
    return crowd->begin_us + (int64_t)ceil((double)(us - process->offset_us) / process->pace);
}

static void start(struct crowd *crowd, struct process *process)
{
    const struct weir__engine_config config = {
        .ask_timeout_us = TIMEOUT_US,
        .max_asks = 4,
        .max_waiters = WAITERS_MOST,
        .seed = weir__random(&crowd->seed),
        .leases = true,
    };
    process->life++;
    process->exact_spent = 0;
    process->offset_us = (int64_t)(uniform(crowd) * 1e9);
    process->pace = 1 + (uniform(crowd) - 0.5) * 0.018;
    memset(process->waiting, 0, sizeof(process->waiting));
    weir__engine_init(&process->engine, &config);
    weir__bucket_init(&process->bucket, &process->engine, &crowd->limit, "key", 3);
    weir__engine_linked(&process->engine, true, ours(crowd, process));
}

static int64_t travel_us(struct crowd *crowd)
{
    return 1 + (int64_t)((double)crowd->plan->rtt_us / 2 * (0.5 + uniform(crowd)));
}

static struct message *post(struct crowd *crowd, unsigned process)
{
    for (unsigned i = 0; i < MESSAGES_MOST; i++) {
        struct message *message = &crowd->messages[i];
        if (!message->used) {
            *message = (struct message){.used = true, .process = process};
            message->life = crowd->processes[process].life;
            message->at_us = crowd->now_us + travel_us(crowd);
            return message;
        }
    }
    abort(); /* more messages than processes can have asks */
}

/* Lets out what the engine has ready. */
static void flush(struct crowd *crowd, unsigned index)
{
    struct process *process = &crowd->processes[index];
    struct weir__engine *engine = &process->engine;
    struct weir__command command;
    int64_t now = ours(crowd, process);
    while (weir__engine_next_command(engine, &command, now)) {
        struct message *message = post(crowd, index);
        message->command = command;
        crowd->result->asks++;
    }
    int64_t served = 0;
    struct weir__waiter *waiter;
    while ((waiter = weir__engine_next_done(engine)) != NULL) {
        assert(process->waiting[waiter - process->waiters]);
        process->waiting[waiter - process->waiters] = false;
        bool allowed = waiter->verdict == WEIR__ALLOWED;
        served += allowed ? waiter->cost : 0;
        crowd->result->allowed += allowed;
        crowd->result->denied += !allowed;
    }
    int64_t exact = (int64_t)(engine->counts.exact_spent - process->exact_spent);
    process->exact_spent = engine->counts.exact_spent;
    int64_t now_counted = crowd->plan->slots_only ? served : served - exact;
    if (now_counted > 0) {
        admissions_add(&crowd->result->admissions, crowd->now_us, now_counted);
    }
}

static void call(struct crowd *crowd, unsigned index, int64_t cost)
{
    struct process *process = &crowd->processes[index];
    crowd->result->calls++;
    if (uniform(crowd) < crowd->plan->waiting) {
        for (unsigned i = 0; i < WAITERS_MOST; i++) {
            struct weir__waiter *waiter = &process->waiters[i];
            if (!process->waiting[i]) {
                process->waiting[i] = true;
                int64_t until = ours(crowd, process) + crowd->plan->wait_us;
                *waiter = (struct weir__waiter){
                    .bucket = &process->bucket,
                    .cost = cost,
                    .until_us = until,
                    .answer_us = weir__max(until, ours(crowd, process) + TIMEOUT_US),
                };
                weir__engine_wait(&process->engine, waiter, ours(crowd, process));
                break;
            }
        }
    } else if (weir__bucket_take(&process->bucket, cost)) {
        crowd->result->allowed++;
        admissions_add(&crowd->result->admissions, crowd->now_us, cost);
    } else {
        crowd->result->denied++;
        if (weir__bucket_miss(&process->bucket) == WEIR__MISS_TOUCH) {
            weir__engine_touch(&process->engine, &process->bucket, ours(crowd, process));
        }
    }
    flush(crowd, index);
}

/* An exact part counts from the store's decision, heard or not; what was not used counts no more
 * from when the store accepts it back (docs/protocol.md, R10). */
static void decided(struct crowd *crowd, const struct weir__grant *grant)
{
    struct admissions *admissions = &crowd->result->admissions;
    if (grant->refunded > 0) {
        admissions_add(admissions, crowd->now_us, -grant->refunded);
    }
    if (grant->exact > 0 && !crowd->plan->slots_only) {
        admissions_add(admissions, crowd->now_us + grant->wait_us, grant->exact);
    }
}

static void arrive(struct crowd *crowd, struct message *message)
{
    struct process *process = &crowd->processes[message->process];
    if (!message->answer) {
        weir__global_ask(&crowd->store, &message->command.rule, &message->command.ask,
                         crowd->now_us, &message->grant);
        decided(crowd, &message->grant);
        message->answer = true;
        message->lost = uniform(crowd) < crowd->plan->lost;
        message->at_us = crowd->now_us + (message->lost ? TIMEOUT_US : travel_us(crowd));
        return;
    }
    message->used = false;
    if (message->life != process->life) {
        return;
    }
    int64_t now = ours(crowd, process);
    if (message->lost) {
        weir__engine_fail(&process->engine, &process->bucket, message->command.serial,
                          WEIR__FAILED_LOST, now);
    } else {
        weir__engine_answer(&process->engine, &process->bucket, message->command.serial,
                            &message->grant, now);
    }
    flush(crowd, message->process);
}

static struct message *first_message(struct crowd *crowd)
{
    struct message *first = NULL;
    for (unsigned i = 0; i < MESSAGES_MOST; i++) {
        struct message *message = &crowd->messages[i];
        if (message->used && (first == NULL || message->at_us < first->at_us)) {
            first = message;
        }
    }
    return first;
}

static void crash(struct crowd *crowd)
{
    unsigned index = (unsigned)(uniform(crowd) * crowd->plan->processes);
    struct process *process = &crowd->processes[index];
    weir__engine_settle_books(&process->engine, ours(crowd, process));
    flush(crowd, index);
    crowd->result->stranded += process->engine.ledger.stranded;
    start(crowd, process);
}

void crowd_run(const struct crowd_plan *plan, int64_t begin_us, struct crowd_result *result)
{
    struct crowd *crowd = calloc(1, sizeof(*crowd));
    assert(crowd != NULL && plan->processes <= CROWD_MOST);
    *result = (struct crowd_result){.calls = 0};
    crowd->plan = plan;
    crowd->result = result;
    crowd->seed = plan->seed;
    crowd->begin_us = crowd->now_us = begin_us;
    crowd->limit.rule = plan->rule;
    crowd->limit.outage = WEIR__OUTAGE_CLOSED;
    crowd->store.log = (struct weir__log){.entries = crowd->log, .room = 4096};
    crowd->processes = calloc(plan->processes, sizeof(*crowd->processes));
    assert(crowd->processes != NULL);
    for (unsigned i = 0; i < plan->processes; i++) {
        start(crowd, &crowd->processes[i]);
    }
    int64_t caller_us = begin_us + exponential_us(crowd, plan->offered_per_s);
    int64_t crash_us = begin_us + exponential_us(crowd, plan->crashes_per_s);
    int64_t end_us = begin_us + plan->seconds_us;
    while (crowd->now_us < end_us) {
        struct message *message = first_message(crowd);
        int64_t message_us = message == NULL ? INT64_MAX : message->at_us;
        int64_t engine_us = INT64_MAX;
        unsigned engine = 0;
        for (unsigned i = 0; i < plan->processes; i++) {
            struct process *process = &crowd->processes[i];
            int64_t us = theirs(crowd, process, weir__engine_next_us(&process->engine));
            if (us < engine_us) {
                engine_us = us;
                engine = i;
            }
        }
        int64_t next = weir__min(weir__min(message_us, engine_us), weir__min(caller_us, crash_us));
        crowd->now_us = weir__max(crowd->now_us, next);
        if (next == caller_us) {
            call(crowd, (unsigned)(uniform(crowd) * plan->processes), 1);
            caller_us = crowd->now_us + exponential_us(crowd, plan->offered_per_s);
        } else if (next == message_us) {
            arrive(crowd, message);
        } else if (next == crash_us) {
            crash(crowd);
            crash_us = crowd->now_us + exponential_us(crowd, plan->crashes_per_s);
        } else {
            struct process *process = &crowd->processes[engine];
            /* A clock that is slow within a microsecond is never left behind. */
            weir__engine_tick(&process->engine, weir__max(ours(crowd, process),
                                                          weir__engine_next_us(&process->engine)));
            flush(crowd, engine);
        }
    }
    for (unsigned i = 0; i < plan->processes; i++) {
        result->stranded += crowd->processes[i].engine.ledger.stranded;
    }
    free(crowd->processes);
    free(crowd);
}

void crowd_free(struct crowd_result *result) { free(result->admissions.list); }

int64_t admissions_worst(const struct admissions *admissions, int64_t length_us)
{
    int64_t sum = 0, worst = 0;
    size_t first = 0;
    for (size_t i = 0; i < admissions->count; i++) {
        sum += admissions->list[i].tokens;
        while (admissions->list[i].at_us - admissions->list[first].at_us >= length_us) {
            sum -= admissions->list[first++].tokens;
        }
        worst = weir__max(worst, sum);
    }
    return worst;
}

int64_t admissions_worst_aligned(const struct admissions *admissions, int64_t period_us)
{
    int64_t sum = 0, worst = 0, period = -1;
    for (size_t i = 0; i < admissions->count; i++) {
        int64_t in = admissions->list[i].at_us / period_us;
        sum = in == period ? sum : 0;
        period = in;
        sum += admissions->list[i].tokens;
        worst = weir__max(worst, sum);
    }
    return worst;
}

int64_t admissions_burst(const struct admissions *admissions, const struct weir__rule *rule)
{
    /* The excess over rate * t, in units, is a walk that never goes below 0. */
    __extension__ typedef __int128 wide;
    wide excess = 0, worst = 0;
    wide per_token = (wide)rule->units_per_token * rule->tick_us;
    for (size_t i = 0; i < admissions->count; i++) {
        if (i > 0) {
            int64_t us = admissions->list[i].at_us - admissions->list[i - 1].at_us;
            excess -= (wide)us * rule->units_per_tick;
            excess = excess < 0 ? 0 : excess;
        }
        excess += admissions->list[i].tokens * per_token;
        excess = excess < 0 ? 0 : excess;
        worst = excess > worst ? excess : worst;
    }
    return (int64_t)((worst + per_token - 1) / per_token);
}

int64_t admissions_weighted(const struct admissions *admissions, int64_t period_us)
{
    int64_t before = 0, here = 0, period = -1, worst = 0;
    for (size_t i = 0; i < admissions->count; i++) {
        int64_t at_us = admissions->list[i].at_us;
        int64_t in = at_us / period_us;
        if (in != period) {
            before = in == period + 1 ? here : 0;
            here = 0;
            period = in;
        }
        here += admissions->list[i].tokens;
        int64_t gone = weir__mul_div(at_us % period_us, before, period_us);
        worst = weir__max(worst, before - gone + here);
    }
    return worst;
}
