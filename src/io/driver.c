/* SPDX-License-Identifier: MIT */

/*
 * The engine on a loop.
 *
 * Path of a token: a caller pushes its bucket or its waiter and rings -> [turn: the engine takes
 * them, looks, asks] -> io/conn -> Redis -> [answered: core/wire reads the grant, the engine makes
 * credit of it] -> the caller's word.
 *
 * One turn does everything that is due, in this order: take what callers pushed, tick the engine,
 * send its asks, arm the timer, and then, without the lock, answer the waiters that are done.
 *
 * Threads: a turn runs on the loop's thread under the lock.  Callers only push and ring.
 *
 * Happy path: ring or timer -> turn.  Failures: an answer that cannot be true counts as lost (R8);
 * a refusal is logged with the name of its limit, at most once in a while; the connection comes and
 * goes by itself (io/conn) and the engine is told; a node pushed while the driver closes is found
 * when the stacks are shut, or refused.
 *
 * Closing: the engine answers all waiters and gives back; when nothing is on its way any more, or
 * after one ask timeout, the connection, the timer and the bell close in turn.
 */

#include "io/driver.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/num.h"
#include "core/wire.h"
#include "io/reply.h"

/* By choice: a line now and then is noticed as well as a line for each ask. */
#define REFUSAL_EVERY_NS UINT64_C(10000000000)

/* An ask on its way, with its bytes. */
struct weir__request {
    struct weir__call call;
    struct weir__driver *driver;
    struct weir__command command;
    unsigned char rule[WEIR__RULE_BYTES];
    unsigned char ask[WEIR__ASK_BYTES];
    struct weir__request *next_spare;
};

static void turn(struct weir__driver *driver);

static int64_t now_us(struct weir__driver *driver)
{
    return driver->config.now_us(driver->config.arg);
}

static enum weir__failure failure_of(enum weir__fate fate)
{
    switch (fate) {
    case WEIR__NOT_EXECUTED: return WEIR__FAILED_NOT_EXECUTED;
    case WEIR__REFUSED: return WEIR__FAILED_REFUSED;
    case WEIR__KEY_REFUSED: return WEIR__FAILED_KEY;
    case WEIR__ANSWERED:
    case WEIR__FATE_UNKNOWN: break;
    }
    return WEIR__FAILED_LOST;
}

/* How much of a bucket's key, {prefix}:{limit}:{the user's}, may be logged: not the user's, who may
 * have secrets in it. */
static size_t limit_len(const struct weir__bucket *bucket)
{
    size_t colons = 0, len = 0;
    while (len < bucket->key_len && (bucket->key[len] != ':' || ++colons < 2)) {
        len++;
    }
    return len;
}

/* A store that answers, but does not serve this bucket, goes to the log: no state of the connection
 * shows it. */
static void tell_refusal(struct weir__driver *driver, const struct weir__bucket *bucket,
                         const char *why)
{
    char limit[WEIR__REPLY_TEXT_MAX], text[2 * WEIR__REPLY_TEXT_MAX + 64], others[64] = "";
    uint64_t now_ns = uv_hrtime();
    if (driver->refusals > 0 && now_ns - driver->refusal_told_ns < REFUSAL_EVERY_NS) {
        driver->refusals++;
        return;
    }
    if (driver->refusals > 1) {
        snprintf(others, sizeof(others), " (and %" PRIu64 " others since the last line)",
                 driver->refusals - 1);
    }
    weir__reply_text(limit, (const char *)bucket->key, limit_len(bucket));
    snprintf(text, sizeof(text), "an ask of %s was refused: %s%s", limit, why, others);
    driver->refusals = 1;
    driver->refusal_told_ns = now_ns;
    driver->config.store.log(driver->config.arg, WEIR__LOG_WARN, text);
}

static void on_answer(struct weir__call *call, const struct weir__outcome *outcome)
{
    struct weir__request *request = weir__container(call, struct weir__request, call);
    struct weir__driver *driver = request->driver;
    const struct weir__command *command = &request->command;
    struct weir__grant grant;
    bool answered = outcome->fate == WEIR__ANSWERED &&
                    weir__wire_read_grant(&grant, outcome->values, outcome->count, &command->rule,
                                          &command->ask);
    int64_t now = now_us(driver);
    bool refused = !answered && failure_of(outcome->fate) != WEIR__FAILED_LOST;
    if (refused && driver->conn != NULL && weir__conn_is_up(driver->conn)) {
        tell_refusal(driver, command->bucket, outcome->error); /* while the bucket must stay */
    }

    uv_mutex_lock(&driver->lock);
    if (answered) {
        weir__engine_answer(&driver->engine, command->bucket, command->serial, &grant, now);
    } else {
        weir__engine_fail(&driver->engine, command->bucket, command->serial,
                          failure_of(outcome->fate), now);
    }
    uv_mutex_unlock(&driver->lock);
    request->next_spare = driver->spare;
    driver->spare = request;
    turn(driver);
}

static void send_away(struct weir__driver *driver, const struct weir__command *command, int64_t now)
{
    struct weir__request *request = driver->spare;
    WEIR__ASSERT(request != NULL); /* as many as the engine may have asks on their way */
    driver->spare = request->next_spare;
    request->command = *command;
    weir__wire_pack_rule(request->rule, &command->rule);
    weir__wire_pack_ask(request->ask, &command->ask);
    request->call = (struct weir__call){
        .script = &weir__script_lease,
        .key = command->bucket->key,
        .key_len = command->bucket->key_len,
        .argv = {request->rule, request->ask},
        .argv_len = {sizeof(request->rule), sizeof(request->ask)},
        .deadline_ns = uv_hrtime() + (uint64_t)(command->deadline_us - now) * 1000,
        .done = on_answer,
    };
    weir__conn_call(driver->conn, &request->call);
}

static void send_all(struct weir__driver *driver, int64_t now)
{
    struct weir__command command;
    while (weir__engine_next_command(&driver->engine, &command, now)) {
        if (driver->config.remote) {
            send_away(driver, &command, now);
            continue;
        }
        struct weir__grant grant;
        driver->config.ask_here(driver->config.arg, command.bucket, &command.rule, &command.ask,
                                &grant);
        weir__engine_answer(&driver->engine, command.bucket, command.serial, &grant, now);
    }
}

/* The engine gets what callers pushed. */
static void hand_in(struct weir__driver *driver, struct weir__stack_node *touched,
                    struct weir__stack_node *joined, int64_t now)
{
    struct weir__stack_node *next;
    for (struct weir__stack_node *n = touched; n != NULL; n = next) {
        next = n->next;
        weir__engine_touch(&driver->engine, weir__container(n, struct weir__bucket, touched), now);
    }
    for (struct weir__stack_node *n = joined; n != NULL; n = next) {
        next = n->next;
        struct weir__waiter *waiter = weir__container(n, struct weir__waiter, pushed);
        struct weir__bucket *bucket = waiter->bucket;
        weir__engine_wait(&driver->engine, waiter, now);
        /* Release: pairs with weir__bucket_has_line. */
        (void)weir__sub_acq_rel(&bucket->joining, 1);
    }
}

static enum weir__store_view view_of(const struct weir__outage *outage)
{
    if (outage->state == WEIR__STORE_CONNECTING) {
        return WEIR__VIEW_CONNECTING;
    }
    return weir__outage_is_down(outage) ? WEIR__VIEW_OUTAGE : WEIR__VIEW_UP;
}

static void on_timer(uv_timer_t *timer) { turn(timer->data); }

static void arm(struct weir__driver *driver, int64_t now)
{
    int64_t next = weir__engine_next_us(&driver->engine);
    if (driver->close_by_us != 0) {
        next = weir__min(next, driver->close_by_us);
    }
    if (next == INT64_MAX) {
        uv_timer_stop(&driver->timer);
        return;
    }
    /* Rounded up: never early.  The loop's own time is stale after a long callback: refresh it. */
    uint64_t in_ms = (uint64_t)weir__div_up(weir__max(next - now, 1), 1000);
    uv_update_time(driver->loop);
    uv_timer_start(&driver->timer, on_timer, in_ms, 0);
}

/* ---- closing: connection, timer, bell, in this order ---- */

static void on_wake_closed(void *arg)
{
    struct weir__driver *driver = arg;
    /* What was pushed in the last moment is here; from now on a push is refused. */
    struct weir__waiter *waiter;
    hand_in(driver, weir__stack_shut(&driver->touched), weir__stack_shut(&driver->joined),
            now_us(driver));
    while ((waiter = weir__engine_next_done(&driver->engine)) != NULL) {
        driver->config.answered(driver->config.arg, waiter);
    }
    weir__mem_free(driver->requests);
    driver->requests = NULL;
    driver->config.closed(driver->config.arg);
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct weir__driver *driver = handle->data;
    weir__wake_close(&driver->wake, on_wake_closed);
}

static void on_conn_closed(void *arg)
{
    struct weir__driver *driver = arg;
    uv_close((uv_handle_t *)&driver->timer, on_timer_closed);
}

static void end(struct weir__driver *driver)
{
    driver->ended = true;
    uv_timer_stop(&driver->timer);
    if (driver->conn == NULL) {
        on_conn_closed(driver);
        return;
    }
    struct weir__conn *conn = driver->conn;
    driver->conn = NULL;
    weir__conn_close(conn, on_conn_closed, driver);
}

/* Under the lock.  Returns whether all that could be given back is. */
static bool close_step(struct weir__driver *driver, int64_t now)
{
    /* Acquire: pairs with weir__driver_close. */
    if (driver->close_by_us == 0 && weir__load_acquire(&driver->close_wanted)) {
        driver->close_by_us = now + driver->engine.config.ask_timeout_us;
        weir__engine_close(&driver->engine, now);
        send_all(driver, now);
    }
    return driver->close_by_us != 0 && (driver->engine.asks == 0 || now >= driver->close_by_us);
}

static void turn(struct weir__driver *driver)
{
    if (driver->ended) {
        return;
    }
    struct weir__list done;
    struct weir__waiter *waiter;
    int64_t now = now_us(driver);
    weir__list_init(&done);

    uv_mutex_lock(&driver->lock);
    hand_in(driver, weir__stack_take(&driver->touched), weir__stack_take(&driver->joined), now);
    weir__engine_tick(&driver->engine, now);
    send_all(driver, now);
    bool finished = close_step(driver, now);
    if (driver->conn != NULL) {
        weir__conn_stats(driver->conn, &driver->conn_stats);
    }
    while ((waiter = weir__engine_next_done(&driver->engine)) != NULL) {
        weir__list_append(&done, &waiter->line);
    }
    /* Relaxed: callers act on it alone. */
    weir__store_relaxed(&driver->view, (uint32_t)view_of(&driver->engine.outage));
    arm(driver, now);
    uv_mutex_unlock(&driver->lock);

    while (!weir__list_empty(&done)) {
        waiter = weir__container(done.next, struct weir__waiter, line);
        weir__list_remove(&waiter->line);
        driver->config.answered(driver->config.arg, waiter);
    }
    if (finished && !driver->ended) {
        end(driver);
    }
}

static void on_ring(void *arg) { turn(arg); }

static void set_linked(struct weir__driver *driver, bool linked)
{
    int64_t now = now_us(driver);
    uv_mutex_lock(&driver->lock);
    weir__engine_linked(&driver->engine, linked, now);
    uv_mutex_unlock(&driver->lock);
    turn(driver);
}

static void on_up(void *arg) { set_linked(arg, true); }

static void on_down(void *arg, const char *why)
{
    (void)why; /* io/conn has logged it */
    set_linked(arg, false);
}

/* The log goes to the user; the driver stands between only because the connection has one
 * argument. */
static void on_log(void *arg, int level, const char *text)
{
    struct weir__driver *driver = arg;
    driver->config.store.log(driver->config.arg, level, text);
}

static void open_conn(struct weir__driver *driver)
{
    static const struct weir__script *const scripts[] = {&weir__script_lease, NULL};
    struct weir__conn_config config = driver->config.store;
    config.scripts = scripts;
    config.up = on_up;
    config.down = on_down;
    config.log = on_log;
    config.arg = driver;
    driver->conn = weir__conn_new(driver->loop, &config);
}

static int take_memory(struct weir__driver *driver)
{
    unsigned count = driver->config.engine.max_asks;
    driver->requests = weir__mem_zero(count * sizeof(*driver->requests));
    if (driver->requests == NULL) {
        return UV_ENOMEM;
    }
    for (unsigned i = 0; i < count; i++) {
        driver->requests[i].driver = driver;
        driver->requests[i].next_spare = driver->spare;
        driver->spare = &driver->requests[i];
    }
    return 0;
}

int weir__driver_init(struct weir__driver *driver, uv_loop_t *loop,
                      const struct weir__driver_config *config)
{
    memset(driver, 0, sizeof(*driver));
    driver->config = *config;
    driver->loop = loop;
    weir__engine_init(&driver->engine, &config->engine);
    weir__store_relaxed(&driver->view, (uint32_t)view_of(&driver->engine.outage));

    int error = take_memory(driver);
    if (error == 0) {
        error = uv_mutex_init(&driver->lock);
    }
    if (error != 0) {
        goto fail_memory;
    }
    error = weir__wake_init(&driver->wake, loop, on_ring, driver);
    if (error != 0) {
        goto fail_lock;
    }
    error = uv_timer_init(loop, &driver->timer);
    WEIR__ASSERT(error == 0); /* libuv's does not fail */
    driver->timer.data = driver;
    if (config->remote) {
        open_conn(driver);
    }
    return 0;

fail_lock:
    uv_mutex_destroy(&driver->lock);
fail_memory:
    weir__mem_free(driver->requests);
    return error;
}

bool weir__driver_touch(struct weir__driver *driver, struct weir__bucket *bucket)
{
    bool taken = weir__stack_push(&driver->touched, &bucket->touched);
    weir__driver_ring(driver);
    return taken;
}

bool weir__driver_join(struct weir__driver *driver, struct weir__waiter *waiter)
{
    struct weir__bucket *bucket = waiter->bucket;
    (void)weir__add_relaxed(&bucket->joining, 1); /* the push publishes it */
    bool taken = weir__stack_push(&driver->joined, &waiter->pushed);
    if (!taken) {
        (void)weir__sub_acq_rel(&bucket->joining, 1);
    }
    weir__driver_ring(driver);
    return taken;
}

void weir__driver_ring(struct weir__driver *driver) { (void)weir__wake_ring(&driver->wake); }

void weir__driver_close(struct weir__driver *driver)
{
    /* Release: pairs with close_step. */
    weir__store_release(&driver->close_wanted, 1u);
    weir__driver_ring(driver);
}

void weir__driver_deinit(struct weir__driver *driver) { uv_mutex_destroy(&driver->lock); }
