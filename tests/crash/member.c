/* SPDX-License-Identifier: MIT */
/*
 * One process of a fleet: it opens a weir, makes calls to a schedule, and reports.
 *
 * Each thread wakes every millisecond and makes the calls that are due by then.  One that was held
 * up makes up for it at once, which is the hardest moment for the promise: a process that was
 * stopped finds old credit.
 *
 * Each pending call has a slot of its own, never used again, so that an answer too many is seen as
 * surely as one that is missing.
 *
 * Threads: a lane of the record is written by its own thread, the last one by the loop's in the
 * callbacks.  A slot is written by its waiter before the call, and by the loop's thread afterwards;
 * it is read when the weir is closed.
 */
#include "crash/fleet.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/clock.h"

#define TURN_NS NS_PER_MS
#define LANE_WAITER FLEET_TRIERS
#define LANE_LOOP (FLEET_TRIERS + 1)

/* From none at all to some looks of the loop; and costs that a lease always, mostly and seldom
 * covers. */
static const uint64_t timeouts_us[] = {0, 2000, 10000, 25000};
static const uint64_t costs[] = {1, 1, 4};

struct member;

struct slot {
    struct member *member;
    uint64_t cost;
    int64_t called_ns;
    int64_t answer_by_ns;
    bool pending;
    unsigned answers;
};

struct member {
    const struct fleet_plan *plan;
    struct fleet_board *board;
    struct record *record;
    struct fleet_report *report;
    uint32_t first_lane;
    struct weir *weir;
    struct weir_bucket *bucket;
    struct slot *slots;
    uint32_t slots_used;
    uint32_t answered; /* atomic: the callbacks so far */
    uint64_t loop_tokens, loop_refused, loop_unavailable;
    int64_t worst_overrun_ns, worst_heard_ns;
};

struct worker {
    struct member *member;
    unsigned lane;
    uint64_t calls, tokens, refused, unavailable, failed;
    int64_t worst_late_ns;
    pthread_t id;
};

static int64_t since_start_ns(const struct member *member, int64_t now_ns)
{
    return now_ns - member->board->start_ns;
}

static void admit(struct member *member, unsigned lane, uint64_t tokens, int64_t now_ns)
{
    for (; tokens > 0; tokens--) {
        record_add(member->record, member->first_lane + lane, since_start_ns(member, now_ns));
    }
}

/* ---- One call -------------------------------------------------------------------------------- */

static void count(struct worker *worker, int verdict, uint64_t cost)
{
    if (verdict == WEIR_ALLOWED) {
        worker->tokens += cost;
        admit(worker->member, worker->lane, cost, clock_now_ns());
    }
    worker->refused += verdict == WEIR_DENIED;
    worker->unavailable += verdict == WEIR_UNAVAILABLE;
    worker->failed += verdict < 0;
}

static void try_once(struct worker *worker)
{
    count(worker, weir_try_acquire(worker->member->bucket, 1, NULL), 1);
}

static void on_answer(void *arg, const struct weir_result *result)
{
    struct slot *slot = arg;
    struct member *member = slot->member;
    int64_t now_ns = clock_now_ns();
    int64_t overrun_ns = now_ns - slot->answer_by_ns;
    if (overrun_ns > member->worst_overrun_ns) {
        member->worst_overrun_ns = overrun_ns;
    }
    if (result->verdict == WEIR_ALLOWED) {
        int64_t heard_ns = now_ns - slot->called_ns;
        if (heard_ns > member->worst_heard_ns) {
            member->worst_heard_ns = heard_ns;
        }
        member->loop_tokens += slot->cost;
        admit(member, LANE_LOOP, slot->cost, now_ns);
    }
    member->loop_refused += result->verdict == WEIR_DENIED;
    member->loop_unavailable += result->verdict == WEIR_UNAVAILABLE;
    slot->answers++;
    __atomic_fetch_add(&member->answered, 1, __ATOMIC_RELEASE); /* pairs with wait_for_answers */
}

static void wait_once(struct worker *worker)
{
    struct member *member = worker->member;
    if (member->slots_used == FLEET_WAITS_MAX) {
        worker->failed++;
        return;
    }
    struct slot *slot = &member->slots[member->slots_used++];
    uint64_t timeout_us = timeouts_us[worker->calls % (sizeof timeouts_us / sizeof *timeouts_us)];
    uint64_t limit_us = timeout_us > 0 ? timeout_us : member->plan->ask_timeout_ms * 1000;
    uint64_t cost = costs[worker->calls % (sizeof costs / sizeof *costs)];
    int64_t now_ns = clock_now_ns();
    *slot = (struct slot){
        .member = member,
        .cost = cost,
        .called_ns = now_ns,
        .answer_by_ns = now_ns + (int64_t)limit_us * 1000,
        .pending = true,
    };
    int verdict = weir_acquire(member->bucket, cost, timeout_us, on_answer, slot, NULL);
    if (verdict != WEIR_PENDING) {
        slot->pending = false;
        count(worker, verdict, cost);
    }
}

/* ---- A thread -------------------------------------------------------------------------------- */

static void *work(void *arg)
{
    struct worker *worker = arg;
    struct member *member = worker->member;
    const struct fleet_plan *plan = member->plan;
    bool waits = worker->lane == LANE_WAITER;
    double tried_per_s = member->first_lane == 0 ? plan->first_tried_per_s : plan->tried_per_s;
    double per_ns = (waits ? plan->waits_per_s : tried_per_s / FLEET_TRIERS) / (double)NS_PER_S;
    int64_t begin_ns = clock_now_ns();
    begin_ns = begin_ns > member->board->start_ns ? begin_ns : member->board->start_ns;
    int64_t end_ns = member->board->start_ns + plan->duration_ns;

    for (int64_t turn_ns = begin_ns; turn_ns < end_ns; turn_ns += TURN_NS) {
        clock_sleep_until(turn_ns);
        int64_t late_ns = clock_now_ns() - turn_ns;
        if (late_ns > worker->worst_late_ns) {
            worker->worst_late_ns = late_ns;
        }
        uint64_t due = (uint64_t)(per_ns * (double)(turn_ns - begin_ns));
        for (; worker->calls < due; worker->calls++) {
            if (waits) {
                wait_once(worker);
            } else {
                try_once(worker);
            }
        }
    }
    return NULL;
}

/* ---- A process ------------------------------------------------------------------------------- */

static bool fail(struct member *member, const char *what, const char *why)
{
    snprintf(member->report->why, sizeof member->report->why, "%s: %.120s", what, why);
    return false;
}

static bool open_bucket(struct member *member)
{
    const struct fleet_plan *plan = member->plan;
    struct weir_options options;
    struct weir_limit_options limit_options;
    struct weir_limit *limit;
    struct weir_error error;
    weir_options_init(&options, sizeof options);
    options.url = plan->url;
    options.ask_timeout_ms = plan->ask_timeout_ms;
    if (weir_open(&member->weir, &options, &error) != WEIR_OK) {
        return fail(member, "weir_open", error.text);
    }
    weir_limit_options_init(&limit_options, sizeof limit_options);
    limit_options.name = "fleet";
    limit_options.rate_tokens = plan->rate_per_s;
    limit_options.rate_period_us = 1000000;
    limit_options.capacity_tokens = plan->capacity;
    limit_options.budget_tokens = plan->budget;
    limit_options.version = 1; /* the same in all, whenever each was started */
    limit_options.outage = plan->outage;
    if (plan->outage == WEIR_OUTAGE_LOCAL) {
        limit_options.outage_share_percent = plan->share_percent;
    }
    if (weir_limit_define(member->weir, &limit, &limit_options, &error) != WEIR_OK) {
        return fail(member, "weir_limit_define", error.text);
    }
    int code = weir_bucket_get(limit, "key", strlen("key"), &member->bucket);
    return code == WEIR_OK || fail(member, "weir_bucket_get", weir_code_meaning(code));
}

static bool run_threads(struct member *member, struct worker workers[FLEET_LANES - 1])
{
    for (unsigned lane = 0; lane < FLEET_LANES - 1; lane++) {
        workers[lane] = (struct worker){.member = member, .lane = lane};
        int error = pthread_create(&workers[lane].id, NULL, work, &workers[lane]);
        if (error != 0) {
            return fail(member, "pthread_create", strerror(error));
        }
    }
    for (unsigned lane = 0; lane < FLEET_LANES - 1; lane++) {
        pthread_join(workers[lane].id, NULL);
    }
    return true;
}

static uint32_t count_pending(const struct member *member)
{
    uint32_t pending = 0;
    for (uint32_t i = 0; i < member->slots_used; i++) {
        pending += member->slots[i].pending;
    }
    return pending;
}

/* Until all answers are there, or the last of them is overdue. */
static void wait_for_answers(const struct member *member)
{
    int64_t longest_ns = (int64_t)member->plan->ask_timeout_ms * NS_PER_MS;
    int64_t until_ns = clock_now_ns() + longest_ns + 2 * FLEET_SLACK_NS;
    uint32_t pending = count_pending(member);
    /* Acquire: pairs with on_answer. */
    while (__atomic_load_n(&member->answered, __ATOMIC_ACQUIRE) < pending &&
           clock_now_ns() < until_ns) {
        clock_sleep_until(clock_now_ns() + NS_PER_MS);
    }
}

static void report_calls(struct member *member, const struct worker workers[FLEET_LANES - 1])
{
    struct fleet_report *report = member->report;
    for (unsigned lane = 0; lane < FLEET_LANES - 1; lane++) {
        const struct worker *worker = &workers[lane];
        report->tried += worker->calls;
        report->allowed_tokens += worker->tokens;
        report->refused += worker->refused;
        report->unavailable += worker->unavailable;
        report->failed += worker->failed;
        if (worker->worst_late_ns > report->worst_late_ns) {
            report->worst_late_ns = worker->worst_late_ns;
        }
    }
    for (uint32_t i = 0; i < member->slots_used; i++) {
        const struct slot *slot = &member->slots[i];
        report->waited += slot->pending;
        report->unanswered += slot->answers < slot->pending;
        report->answered_twice += slot->answers > slot->pending;
    }
    report->allowed_tokens += member->loop_tokens;
    report->refused += member->loop_refused;
    report->unavailable += member->loop_unavailable;
    report->worst_overrun_ns = member->worst_overrun_ns;
    report->worst_heard_ns = member->worst_heard_ns;
}

int fleet_be_member(const struct fleet_plan *plan, struct fleet_board *board, struct record *record,
                    unsigned number)
{
    struct worker workers[FLEET_LANES - 1];
    struct member member = {
        .plan = plan,
        .board = board,
        .record = record,
        .report = &board->reports[number],
        .first_lane = number * FLEET_LANES,
        .slots = calloc(FLEET_WAITS_MAX, sizeof(struct slot)),
    };
    if (member.slots == NULL || !open_bucket(&member)) {
        return 1;
    }
    __atomic_fetch_add(&board->ready, 1, __ATOMIC_RELEASE);
    /* Acquire: pairs with fleet_open. */
    while (__atomic_load_n(&board->start_ns, __ATOMIC_ACQUIRE) == 0) {
        clock_sleep_until(clock_now_ns() + NS_PER_MS);
    }
    if (!run_threads(&member, workers)) {
        return 1; /* the process ends, and with it those that run */
    }
    wait_for_answers(&member);
    member.report->stats.size = sizeof member.report->stats;
    weir_stats_read(member.weir, &member.report->stats);
    weir_bucket_unref(member.bucket);
    int64_t closing_ns = clock_now_ns();
    weir_close_wait(member.weir);
    member.report->close_ns = clock_now_ns() - closing_ns;
    report_calls(&member, workers);
    free(member.slots);
    member.report->ended = true;
    return 0;
}
