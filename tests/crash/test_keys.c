/* SPDX-License-Identifier: MIT */
/*
 * Many keys: four processes share a thousand buckets under a light load, somewhat more than each
 * allows.  Every bucket keeps its own limit, no key is ever without an expiry, and when all is
 * quiet they go by themselves.
 */
#include <weir/weir.h>

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "bench/clock.h"
#include "crash/server.h"

#define PROCESSES 4
#define KEYS 1000
#define CALLS_PER_MS 1 /* of each process: four a second for each key */
#define RATE 2
#define CAPACITY 2
#define BUDGET 1
#define DURATION_NS (3 * NS_PER_S)
#define ASK_TIMEOUT_MS 250 /* a loaded machine is no outage; windows are four times this */
#define LOOK_NS (200 * NS_PER_MS)

/* In memory that all share. */
struct board {
    uint64_t allowed[KEYS];                         /* atomic */
    uint64_t called, answered, unavailable, failed; /* atomic */
};

struct scene {
    struct server server;
    struct board *board;
    pid_t pids[PROCESSES];
};

struct call {
    struct board *board;
    unsigned key;
};

static void count(uint64_t *counter) { __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED); }

static void note(struct board *board, unsigned key, int verdict)
{
    if (verdict == WEIR_ALLOWED) {
        count(&board->allowed[key]);
    } else if (verdict != WEIR_DENIED) {
        count(verdict == WEIR_UNAVAILABLE ? &board->unavailable : &board->failed);
    }
    count(&board->answered);
}

static void on_answer(void *arg, const struct weir_result *result)
{
    struct call *call = arg;
    note(call->board, call->key, (int)result->verdict);
    free(call);
}

static void call_once(struct board *board, struct weir_limit *limit, unsigned key)
{
    char name[16];
    int length = snprintf(name, sizeof name, "%u", key);
    struct call *call = malloc(sizeof *call);
    if (call == NULL) {
        _exit(1);
    }
    *call = (struct call){.board = board, .key = key};
    count(&board->called);
    int verdict = weir_acquire_key(limit, name, (size_t)length, 1, 0, on_answer, call, NULL);
    if (verdict != WEIR_PENDING) {
        note(board, key, verdict);
        free(call);
    }
}

static int be_member(struct board *board, const char *url, unsigned number)
{
    struct weir_options options;
    struct weir_limit_options limit_options;
    struct weir *weir;
    struct weir_limit *limit;
    weir_options_init(&options, sizeof options);
    options.url = url;
    options.ask_timeout_ms = ASK_TIMEOUT_MS;
    weir_limit_options_init(&limit_options, sizeof limit_options);
    limit_options.name = "many";
    limit_options.rate_tokens = RATE;
    limit_options.rate_period_us = 1000000;
    limit_options.capacity_tokens = CAPACITY;
    limit_options.budget_tokens = BUDGET;
    limit_options.version = 1;
    limit_options.outage = WEIR_OUTAGE_CLOSED;
    if (weir_open(&weir, &options, NULL) != WEIR_OK ||
        weir_limit_define(weir, &limit, &limit_options, NULL) != WEIR_OK) {
        return 1;
    }
    unsigned key = number * KEYS / PROCESSES; /* so that they are not at one key at one time */
    int64_t begin_ns = clock_now_ns();
    for (int64_t turn_ns = begin_ns; turn_ns < begin_ns + DURATION_NS; turn_ns += NS_PER_MS) {
        clock_sleep_until(turn_ns);
        for (int i = 0; i < CALLS_PER_MS; i++) {
            call_once(board, limit, key++ % KEYS);
        }
    }
    weir_close_wait(weir);
    return 0;
}

static int setup(void **state)
{
    struct scene *scene = calloc(1, sizeof *scene);
    *state = scene;
    server_open(&scene->server, SERVER_KEEPS_NOTHING);
    scene->board = mmap(NULL, sizeof *scene->board, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return scene->board == MAP_FAILED ? -1 : 0;
}

static int teardown(void **state)
{
    struct scene *scene = *state;
    for (unsigned i = 0; i < PROCESSES; i++) {
        if (scene->pids[i] > 0) {
            kill(scene->pids[i], SIGKILL);
            waitpid(scene->pids[i], NULL, 0);
        }
    }
    server_close(&scene->server);
    munmap(scene->board, sizeof *scene->board);
    free(scene);
    return 0;
}

static void start_members(struct scene *scene)
{
    fflush(NULL); /* or the children would write it again */
    for (unsigned i = 0; i < PROCESSES; i++) {
        scene->pids[i] = fork();
        assert_true(scene->pids[i] >= 0);
        if (scene->pids[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            _exit(be_member(scene->board, scene->server.url, i));
        }
    }
}

/* Looks at the keys while the members run.  Returns the most that were there at once. */
static int64_t watch_keys(struct scene *scene, int64_t until_ns)
{
    int64_t most = 0;
    while (clock_now_ns() < until_ns) {
        struct server_keys keys = server_keys(&scene->server);
        assert_int_equal(keys.eternal, 0);
        most = keys.count > most ? keys.count : most;
        clock_sleep_until(clock_now_ns() + LOOK_NS);
    }
    return most;
}

static void test_a_thousand_keys(void **state)
{
    struct scene *scene = *state;
    const struct board *board = scene->board;
    int64_t begin_ns = clock_now_ns();
    start_members(scene);
    int64_t most_keys = watch_keys(scene, begin_ns + DURATION_NS);
    for (unsigned i = 0; i < PROCESSES; i++) {
        int status;
        assert_int_equal(waitpid(scene->pids[i], &status, 0), scene->pids[i]);
        scene->pids[i] = 0;
        assert_int_equal(status, 0);
    }
    double seconds = (double)(clock_now_ns() - begin_ns) / (double)NS_PER_S;

    uint64_t sum = 0, largest = 0;
    for (unsigned key = 0; key < KEYS; key++) {
        sum += board->allowed[key];
        largest = board->allowed[key] > largest ? board->allowed[key] : largest;
    }
    double bound = CAPACITY + RATE * seconds + BUDGET;
    double used = (double)sum / (KEYS * (CAPACITY + RATE * (double)DURATION_NS / NS_PER_S));
    print_message("%llu calls, %llu answers, %llu unavailable; %lld keys; at most %llu allowed for "
                  "a key, of %.1f; used "
                  "share %.3f\n",
                  (unsigned long long)board->called, (unsigned long long)board->answered,
                  (unsigned long long)board->unavailable, (long long)most_keys,
                  (unsigned long long)largest, bound, used);
    assert_int_equal(board->called, board->answered);
    assert_int_equal(board->failed, 0);
    assert_true(board->unavailable < board->called / 100);
    assert_int_equal(most_keys, KEYS);
    assert_true((double)largest <= bound);
    assert_true(used >= 0.8);
    server_wait_until_empty(&scene->server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_thousand_keys, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
