/* SPDX-License-Identifier: MIT */
/*
 * A process on a wire: an order goes out, the process does it, an answer comes back.  A process
 * that dies or hangs fails the test that waits for its answer.
 */
#include "crash/puppet.h"

#include <poll.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "bench/clock.h"

#define ANSWER_LIMIT_MS 10000 /* longer than any timeout that a test uses */
#define PAUSE_NS (NS_PER_MS / 5)
#define ASK_TIMEOUT_MS 1000 /* a loaded machine is no outage */

enum order_kind { ORDER_ACQUIRE = 1, ORDER_TAKE };

struct order {
    enum order_kind kind;
    char key[32];
    uint64_t tokens;
    uint64_t time_us;
};

/* ---- In the process -------------------------------------------------------------------------- */

struct waiting {
    sem_t done;
    struct puppet_answer *answer;
};

static void on_answer(void *arg, const struct weir_result *result)
{
    struct waiting *waiting = arg;
    waiting->answer->heard_ns = clock_now_ns();
    waiting->answer->result = *result;
    waiting->answer->code = (int)result->verdict;
    waiting->answer->callbacks++;
    sem_post(&waiting->done);
}

static void acquire(struct weir_bucket *bucket, const struct order *order,
                    struct puppet_answer *answer)
{
    struct waiting waiting = {.answer = answer};
    sem_init(&waiting.done, 0, 0);
    answer->called_ns = clock_now_ns();
    int code = weir_acquire(bucket, order->tokens, order->time_us, on_answer, &waiting,
                            &answer->result);
    if (code == WEIR_PENDING) {
        while (sem_wait(&waiting.done) != 0) {
        }
    } else {
        answer->heard_ns = clock_now_ns();
        answer->code = code;
    }
    answer->tokens = answer->code == WEIR_ALLOWED ? order->tokens : 0;
    sem_destroy(&waiting.done);
}

static void take(struct weir_bucket *bucket, const struct order *order,
                 struct puppet_answer *answer)
{
    answer->called_ns = clock_now_ns();
    int64_t until_ns = answer->called_ns + (int64_t)order->time_us * 1000;
    while (answer->tokens < order->tokens && clock_now_ns() < until_ns) {
        answer->code = weir_try_acquire(bucket, 1, &answer->result);
        if (answer->code == WEIR_ALLOWED) {
            answer->tokens++;
        } else {
            clock_sleep_until(clock_now_ns() + PAUSE_NS);
        }
    }
    answer->heard_ns = clock_now_ns();
}

static int serve(int wire, const char *url, const struct weir_limit_options *limit_options)
{
    struct weir_options options;
    struct weir *weir;
    struct weir_limit *limit;
    struct weir_error error;
    struct order order;
    weir_options_init(&options, sizeof options);
    options.url = url;
    options.ask_timeout_ms = ASK_TIMEOUT_MS;
    if (weir_open(&weir, &options, &error) != WEIR_OK ||
        weir_limit_define(weir, &limit, limit_options, &error) != WEIR_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    while (read(wire, &order, sizeof order) == sizeof order) {
        struct puppet_answer answer = {.stats.size = sizeof answer.stats};
        struct weir_bucket *bucket;
        if (weir_bucket_get(limit, order.key, strlen(order.key), &bucket) != WEIR_OK) {
            return 1;
        }
        if (order.kind == ORDER_ACQUIRE) {
            acquire(bucket, &order, &answer);
        } else {
            take(bucket, &order, &answer);
        }
        weir_stats_read(weir, &answer.stats);
        weir_bucket_unref(bucket);
        if (write(wire, &answer, sizeof answer) != sizeof answer) {
            return 1;
        }
    }
    weir_close_wait(weir);
    return 0;
}

/* ---- In the test ----------------------------------------------------------------------------- */

void puppet_start(struct puppet *puppet, const char *url, const struct weir_limit_options *limit)
{
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    fflush(NULL); /* or the child would write it again */
    puppet->wire = ends[0];
    puppet->pid = fork();
    assert_true(puppet->pid >= 0);
    if (puppet->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ends[0]);
        _exit(serve(ends[1], url, limit));
    }
    close(ends[1]);
}

void puppet_kill(struct puppet *puppet)
{
    if (puppet->pid > 0) {
        kill(puppet->pid, SIGKILL);
        waitpid(puppet->pid, NULL, 0);
        close(puppet->wire);
        puppet->pid = 0;
    }
}

void puppet_stop(const struct puppet *puppet)
{
    int status;
    assert_int_equal(kill(puppet->pid, SIGSTOP), 0);
    assert_int_equal(waitpid(puppet->pid, &status, WUNTRACED), puppet->pid);
    assert_true(WIFSTOPPED(status));
}

void puppet_continue(const struct puppet *puppet)
{
    assert_int_equal(kill(puppet->pid, SIGCONT), 0);
}

void puppet_end(struct puppet *puppet)
{
    char nothing;
    if (puppet->pid <= 0) {
        return;
    }
    shutdown(puppet->wire, SHUT_WR);
    struct pollfd wire = {.fd = puppet->wire, .events = POLLIN};
    bool closed = poll(&wire, 1, ANSWER_LIMIT_MS) == 1 && read(puppet->wire, &nothing, 1) == 0;
    if (!closed) {
        kill(puppet->pid, SIGKILL);
    }
    int status = 0;
    waitpid(puppet->pid, &status, 0);
    close(puppet->wire);
    puppet->pid = 0;
    assert_int_equal(status, 0);
}

static void send_order(const struct puppet *puppet, enum order_kind kind, const char *key,
                       uint64_t tokens, uint64_t time_us)
{
    struct order order = {.kind = kind, .tokens = tokens, .time_us = time_us};
    snprintf(order.key, sizeof order.key, "%s", key);
    assert_int_equal(send(puppet->wire, &order, sizeof order, MSG_NOSIGNAL), sizeof order);
}

struct puppet_answer puppet_finish(const struct puppet *puppet)
{
    struct puppet_answer answer;
    struct pollfd wire = {.fd = puppet->wire, .events = POLLIN};
    assert_int_equal(poll(&wire, 1, ANSWER_LIMIT_MS), 1);
    assert_int_equal(read(puppet->wire, &answer, sizeof answer), sizeof answer);
    return answer;
}

struct puppet_answer puppet_acquire(const struct puppet *puppet, const char *key, uint64_t cost,
                                    uint64_t timeout_us)
{
    send_order(puppet, ORDER_ACQUIRE, key, cost, timeout_us);
    return puppet_finish(puppet);
}

void puppet_begin_take(const struct puppet *puppet, const char *key, uint64_t tokens,
                       uint64_t time_us)
{
    send_order(puppet, ORDER_TAKE, key, tokens, time_us);
}

struct puppet_answer puppet_take(const struct puppet *puppet, const char *key, uint64_t tokens,
                                 uint64_t time_us)
{
    puppet_begin_take(puppet, key, tokens, time_us);
    return puppet_finish(puppet);
}
