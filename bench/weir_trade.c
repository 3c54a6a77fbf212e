/* SPDX-License-Identifier: MIT */
/*
 * What a server with weir in it does.  The hot key is decided by weir_try_acquire on a
 * handle.  Beside it each process serves many users, every one far below a limit of their own,
 * through weir_acquire_key and its callback: if the hot key disturbed them, some would be refused.
 *
 * The users' traffic goes through a weir of its own, so that the calls to the store that are
 * counted are those for the hot key and no others.
 *
 * Threads: `decide` from all, `turn` from the first thread of the process; the callbacks come on
 * the loop's thread and touch only the two counters that are atomic.
 */
#include "weir_trade.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/weir.h>

#include "clock.h"

#define USER_RATE_PER_S 20 /* eight times what each is offered, on average */
#define STORE_LIMIT_NS (10 * NS_PER_S)
#define ANSWERS_LIMIT_NS (2 * NS_PER_S)
#define LOOK_NS (2 * NS_PER_MS)

struct weir_state {
    struct weir *weir;
    struct weir_bucket *hot;
    struct weir *users_weir;
    struct weir_limit *users;
    double users_per_ns;
    unsigned next_user;
    uint64_t users_offered;
    uint64_t users_answered, users_refused; /* atomic */
};

static struct weir *open_weir(const struct settings *settings, const char *url,
                              struct process_report *report)
{
    struct weir_options options;
    struct weir_error error;
    struct weir *weir;
    weir_options_init(&options, sizeof options);
    options.url = url;
    options.key_prefix = settings->key_prefix;
    if (weir_open(&weir, &options, &error) != WEIR_OK) {
        snprintf(report->why, sizeof report->why, "%.150s", error.text);
        return NULL;
    }
    struct weir_stats stats = {.size = sizeof stats};
    int64_t until_ns = clock_now_ns() + STORE_LIMIT_NS;
    do {
        clock_sleep_until(clock_now_ns() + LOOK_NS);
        weir_stats_read(weir, &stats);
    } while (stats.store_state != WEIR_STORE_UP && stats.store_state != WEIR_STORE_LOCAL &&
             clock_now_ns() < until_ns);
    if (stats.store_state != WEIR_STORE_UP && stats.store_state != WEIR_STORE_LOCAL) {
        snprintf(report->why, sizeof report->why, "the store does not answer");
        weir_close_wait(weir);
        return NULL;
    }
    return weir;
}

static struct weir_limit *define_limit(struct weir *weir, struct weir_limit_options *options,
                                       struct process_report *report)
{
    struct weir_error error;
    struct weir_limit *limit = NULL;
    options->version = 1; /* the same in all processes, whatever second each starts in */
    options->outage = WEIR_OUTAGE_CLOSED;
    if (weir_limit_define(weir, &limit, options, &error) != WEIR_OK) {
        snprintf(report->why, sizeof report->why, "%.150s", error.text);
        return NULL;
    }
    return limit;
}

static bool open_hot(struct weir_state *state, const struct settings *settings,
                     struct process_report *report)
{
    struct weir_limit_options options;
    weir_limit_options_init(&options, sizeof options);
    options.name = "hot";
    options.algorithm = settings->algorithm->id;
    options.budget_tokens = settings->budget;
    if (settings->period_us > 0) {
        options.rate_tokens = settings->capacity;
        options.rate_period_us = settings->period_us;
    } else {
        options.rate_tokens = settings->rate_per_s;
        options.rate_period_us = 1000000;
        options.capacity_tokens = settings->capacity;
    }
    struct weir_limit *limit = define_limit(state->weir, &options, report);
    if (limit == NULL) {
        return false;
    }
    int code = weir_bucket_get(limit, "everyone", strlen("everyone"), &state->hot);
    if (code != WEIR_OK) {
        snprintf(report->why, sizeof report->why, "no bucket: %s", weir_code_meaning(code));
    }
    return code == WEIR_OK;
}

static bool open_users(struct weir_state *state, const struct settings *settings,
                       struct process_report *report)
{
    struct weir_limit_options options;
    weir_limit_options_init(&options, sizeof options);
    options.name = "user";
    options.rate_tokens = USER_RATE_PER_S;
    options.rate_period_us = 1000000;
    state->users = define_limit(state->users_weir, &options, report);
    state->users_per_ns = (double)USERS_OFFERED_PER_S / (double)NS_PER_S / settings->processes;
    return state->users != NULL;
}

static void discard(struct weir_state *state)
{
    weir_bucket_unref(state->hot);
    if (state->weir != NULL) {
        weir_close_wait(state->weir);
    }
    if (state->users_weir != NULL) {
        weir_close_wait(state->users_weir);
    }
    free(state);
}

static void *weir_trade_open(const struct settings *settings, const char *url, unsigned process,
                             struct process_report *report)
{
    struct weir_state *state = calloc(1, sizeof *state);
    if (state == NULL) {
        snprintf(report->why, sizeof report->why, "no memory");
        return NULL;
    }
    state->next_user = process; /* so that processes do not ask for one user at one time */
    state->weir = open_weir(settings, url, report);
    state->users_weir = state->weir != NULL ? open_weir(settings, url, report) : NULL;
    if (state->users_weir == NULL || !open_hot(state, settings, report) ||
        !open_users(state, settings, report)) {
        discard(state);
        return NULL;
    }
    return state;
}

static enum outcome weir_trade_decide(void *arg, unsigned thread)
{
    struct weir_state *state = arg;
    (void)thread;
    int verdict = weir_try_acquire(state->hot, 1, NULL);
    return verdict == WEIR_ALLOWED  ? OUTCOME_ALLOWED
           : verdict == WEIR_DENIED ? OUTCOME_DENIED
                                    : OUTCOME_FAILED;
}

/* Relaxed: counters that are compared only when all answers are in, or given up. */
static void count_answer(struct weir_state *state, int verdict)
{
    if (verdict != WEIR_ALLOWED) {
        __atomic_fetch_add(&state->users_refused, 1, __ATOMIC_RELAXED);
    }
    __atomic_fetch_add(&state->users_answered, 1, __ATOMIC_RELAXED);
}

static void on_user_answer(void *arg, const struct weir_result *result)
{
    count_answer(arg, (int)result->verdict);
}

static void weir_trade_turn(void *arg, int64_t since_start_ns)
{
    struct weir_state *state = arg;
    uint64_t due = (uint64_t)(state->users_per_ns * (double)since_start_ns);
    while (state->users_offered < due) {
        char key[32];
        int length = snprintf(key, sizeof key, "user-%u", state->next_user % USER_KEYS);
        /* A stride without a common factor visits all users before it comes back to one. */
        state->next_user += 37;
        int verdict = weir_acquire_key(state->users, key, (size_t)length, 1, 0, on_user_answer,
                                       state, NULL);
        if (verdict != WEIR_PENDING) {
            count_answer(state, verdict);
        }
        state->users_offered++;
    }
}

static void weir_trade_close(void *arg, struct process_report *report)
{
    struct weir_state *state = arg;
    struct weir_stats stats = {.size = sizeof stats};
    int64_t until_ns = clock_now_ns() + ANSWERS_LIMIT_NS;
    weir_stats_read(state->weir, &stats);
    report->store_calls = stats.asks_sent;
    report->stranded = stats.stranded;
    report->over_limit = stats.denied;
    report->cold = stats.cold;
    while (__atomic_load_n(&state->users_answered, __ATOMIC_RELAXED) < state->users_offered &&
           clock_now_ns() < until_ns) {
        clock_sleep_until(clock_now_ns() + LOOK_NS);
    }
    uint64_t answered = __atomic_load_n(&state->users_answered, __ATOMIC_RELAXED);
    report->users_offered = state->users_offered;
    /* No answer is a refusal. */
    report->users_refused = __atomic_load_n(&state->users_refused, __ATOMIC_RELAXED) +
                            state->users_offered - answered;
    discard(state);
}

const struct trade weir_trade = {
    .open = weir_trade_open,
    .decide = weir_trade_decide,
    .turn = weir_trade_turn,
    .close = weir_trade_close,
};
