/* SPDX-License-Identifier: MIT */
/*
 * One connection to one Redis, kept alive.
 *
 * Path of a token: io/driver (an ask, packed) -> weir__conn_call -> io/uvredis -> the store ->
 * on_replied -> io/reply -> the call's done -> core/wire.
 *
 *     WAITING --> RESOLVING --> LINKING --> LOGGING_IN --> UP --> LEAVING
 *        ^           |            |  ^          |          |        |
 *        +-----------+------------+  +----------+          |        |
 *        |       no address is left    the next address    |        |
 *        +-------------------------------------------------+--------+
 *
 * Happy path: a numeric address or a path is used as it is, a name is resolved anew for each
 * attempt; the addresses are tried in turn, each with its share of the time that is left; the
 * log-in is one round trip; then calls are sent as they come, and each reply finds the oldest
 * record on the wire.
 *
 * Failures:
 *   - No answer by a call's deadline: the call is answered FATE_UNKNOWN, the record stays, the
 *     connection too.  The reply, when it comes, meets a record without a call, and is counted.
 *   - Not a byte for silence_ms while replies are owed: the peer is given up.
 *   - The link is lost: calls whose command the system never took whole are NOT_EXECUTED, the
 *     others FATE_UNKNOWN.
 *   - NOSCRIPT: the script is loaded once, whatever the number of calls that met it, and each call
 *     is sent again behind the load, at most WEIR__REPLAYS_MAX times.  The store runs commands of
 *     one connection in order, so nobody has to wait for the load's reply.
 *   - WEIRTIME: the store tells its scripts no time.  As long as the link stands it is told ours,
 *     and each call that met this is sent again.
 *   - READONLY: a master has become a replica.  Nothing more is sent; the replies that are owed
 *     come first, since they most likely say the same, and NOT_EXECUTED is worth more than
 *     unknown.  Then the link is closed, and the name resolved again.
 *   - A reply that no script of ours sends: the link is closed at once, and later replies are not
 *     believed.
 *   - A log-in that fails (AUTH, LOADING, a wrong SHA-1) is a failed attempt like any other: it is
 *     tried again after the back-off, since someone may mend the store.
 *
 * Callbacks (up, down, done) come from the loop only, never from inside weir__conn_new or
 * weir__conn_call: what has to be said there is left to `turn`.  Each may close the connection, so
 * after each the state is read anew.
 *
 * Closing: the link goes first, then a name question that cannot be called back is waited for,
 * then the handles.
 */
#include "io/conn.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <uv.h>

#include "base/check.h"
#include "base/mem.h"
#include "io/backoff.h"
#include "io/calls.h"
#include "io/evalsha.h"
#include "io/login.h"
#include "io/reply.h"
#include "io/resolve.h"
#include "io/uvredis.h"

#define NS_PER_MS UINT64_C(1000000)

/* A round trip, and then some: what is owed by a replica is as good as answered. */
#define WEIR__LEAVE_NS (50 * NS_PER_MS)

/* One for a script that was lost, one for a flush between the load and the call; then something is
 * wrong. */
#define WEIR__REPLAYS_MAX 2

#define PEER_MAX (WEIR__HOST_MAX + 16) /* a path, or an address in brackets and a port */
#define WHY_MAX (PEER_MAX + WEIR__REPLY_TEXT_MAX + 4)

enum conn_state { WAITING = 1, RESOLVING, LINKING, LOGGING_IN, UP, LEAVING };

struct weir__conn {
    uv_loop_t *loop;
    struct weir__conn_config config;
    enum conn_state state;

    uv_timer_t attempt;  /* WAITING: the back-off; a time-out, but for UP */
    uv_timer_t deadline; /* UP, LEAVING: of calls, and of the peer's silence */
    uv_idle_t turn;      /* what must not be said from inside a call */
    int open_handles;

    struct weir__resolve resolve;
    size_t next_address;
    uint64_t attempt_end_ns;
    struct weir__backoff backoff;
    bool told_down; /* the log has it */

    struct weir__uvredis *link;
    char peer[PEER_MAX];
    struct weir__login_step steps[WEIR__LOGIN_STEPS_MAX];
    size_t step_count;
    size_t steps_done;
    bool tells_no_time; /* so that it is told */
    uint64_t up_ns;

    struct weir__calls calls;
    uint64_t owed_ns;  /* since when replies are owed without a pause */
    uint64_t timer_ns; /* what `deadline` is set to; UINT64_MAX: not at all */
    char why[WHY_MAX];

    bool closing;
    bool finishing;
    void (*closed)(void *arg);
    void *closed_arg;

    struct weir__conn_stats stats;
};

static const struct weir__uvredis_events link_events;

__attribute__((format(printf, 3, 4))) static void say(const struct weir__conn *conn, int level,
                                                      const char *format, ...)
{
    if (conn->config.log == NULL) {
        return;
    }
    char text[WHY_MAX + 64];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof(text), format, values);
    va_end(values);
    conn->config.log(conn->config.arg, level, text);
}

/* ---- Timers ---------------------------------------------------------------------------------- */

static void start_timer(struct weir__conn *conn, uv_timer_t *timer, uv_timer_cb callback,
                        uint64_t after_ns)
{
    /* The loop's time is as old as its turn: a host that has blocked meanwhile would shorten the
     * wait. */
    uv_update_time(conn->loop);
    uv_timer_start(timer, callback, (after_ns + NS_PER_MS - 1) / NS_PER_MS, 0);
}

static void on_turn(uv_idle_t *turn);

static void want_turn(struct weir__conn *conn) { uv_idle_start(&conn->turn, on_turn); }

static uint64_t silence_ns(const struct weir__conn *conn)
{
    if (conn->state != UP || conn->calls.on_wire == 0) {
        return UINT64_MAX;
    }
    uint64_t heard_ns = weir__uvredis_heard_ns(conn->link);
    uint64_t since_ns = heard_ns > conn->owed_ns ? heard_ns : conn->owed_ns;
    return since_ns + conn->config.silence_ms * NS_PER_MS;
}

/* Gives the link up at once; `closed` will follow. */
static void leave_with(struct weir__conn *conn, const char *why)
{
    if (conn->state == UP) {
        conn->state = LEAVING;
    }
    weir__uvredis_close(conn->link, why);
}

static void on_deadline(uv_timer_t *timer);

/* Sets the timer when something is due before it fires.  It is not set later when what it waits
 * for has been answered: one firing for nothing costs less than a change for each call. */
static void set_deadline(struct weir__conn *conn)
{
    uint64_t due_ns = weir__calls_deadline_ns(&conn->calls);
    uint64_t silent_ns = silence_ns(conn);
    if (silent_ns < due_ns) {
        due_ns = silent_ns;
    }
    if (due_ns < conn->timer_ns && !conn->finishing) {
        uint64_t now_ns = uv_hrtime();
        conn->timer_ns = due_ns;
        start_timer(conn, &conn->deadline, on_deadline, due_ns > now_ns ? due_ns - now_ns : 0);
    }
}

static void on_deadline(uv_timer_t *timer)
{
    struct weir__conn *conn = timer->data;
    conn->timer_ns = UINT64_MAX;
    uint64_t now_ns = uv_hrtime();
    if (silence_ns(conn) <= now_ns) {
        char why[WEIR__REPLY_TEXT_MAX];
        snprintf(why, sizeof(why), "silent for %" PRIu64 " ms", conn->config.silence_ms);
        leave_with(conn, why);
    }
    weir__calls_answer_overdue(&conn->calls, now_ns);
    set_deadline(conn);
}

/* ---- An attempt: name, address, log-in ------------------------------------------------------- */

static void on_attempt(uv_timer_t *timer);

/* The back-off begins.  Says so, unless the connection is being closed. */
static void wait_again(struct weir__conn *conn)
{
    conn->state = WAITING;
    start_timer(conn, &conn->attempt, on_attempt, weir__backoff_ms(&conn->backoff) * NS_PER_MS);
    if (!conn->told_down) {
        conn->told_down = true;
        say(conn, WEIR__LOG_WARN, "the store is down: %s", conn->why);
    }
    conn->config.down(conn->config.arg, conn->why);
}

/* Opens a link to the next address that does not fail at once; without one the attempt has failed,
 * for the reason the last address gave. */
static void try_next_address(struct weir__conn *conn)
{
    const struct weir__endpoint *endpoint = &conn->config.endpoint;
    bool is_path = endpoint->path[0] != '\0';
    size_t count = is_path ? 1 : conn->resolve.count;
    uint64_t now_ns = uv_hrtime();
    while (conn->next_address < count && now_ns < conn->attempt_end_ns) {
        uint64_t share_ns = (conn->attempt_end_ns - now_ns) / (count - conn->next_address);
        const char *address = is_path ? NULL : conn->resolve.address[conn->next_address];
        if (is_path) {
            snprintf(conn->peer, sizeof(conn->peer), "%s", endpoint->path);
        } else {
            snprintf(conn->peer, sizeof(conn->peer), strchr(address, ':') ? "[%s]:%u" : "%s:%u",
                     address, (unsigned)endpoint->port);
        }
        conn->next_address++;
        char why[WEIR__REPLY_TEXT_MAX];
        conn->link = weir__uvredis_open(conn->loop, address, endpoint->port, endpoint->path,
                                        &link_events, conn, why, sizeof(why));
        if (conn->link != NULL) {
            conn->state = LINKING;
            start_timer(conn, &conn->attempt, on_attempt, share_ns);
            return;
        }
        snprintf(conn->why, sizeof(conn->why), "%s: %s", conn->peer, why);
    }
    wait_again(conn);
}

static void try_finish(struct weir__conn *conn);

static void on_resolved(void *arg, int status)
{
    struct weir__conn *conn = arg;
    if (conn->closing) {
        try_finish(conn);
        return;
    }
    if (conn->state != RESOLVING) {
        return; /* too late for its attempt; the next one asks again */
    }
    if (status != 0) {
        snprintf(conn->why, sizeof(conn->why), "%s: %s", conn->config.endpoint.host,
                 uv_strerror(status));
        wait_again(conn);
        return;
    }
    try_next_address(conn);
}

static void begin_attempt(struct weir__conn *conn)
{
    const struct weir__endpoint *endpoint = &conn->config.endpoint;
    conn->state = RESOLVING;
    conn->next_address = 0;
    conn->attempt_end_ns = uv_hrtime() + conn->config.connect_timeout_ms * NS_PER_MS;
    if (endpoint->path[0] != '\0') {
        try_next_address(conn);
        return;
    }
    if (!conn->resolve.busy) {
        if (weir__resolve_numeric(&conn->resolve, endpoint->host)) {
            try_next_address(conn);
            return;
        }
        int status = weir__resolve_start(&conn->resolve, conn->loop, endpoint->host, on_resolved,
                                         conn);
        if (status != 0) {
            on_resolved(conn, status);
            return;
        }
    }
    /* A question of an earlier attempt that is still open will do for this one. */
    start_timer(conn, &conn->attempt, on_attempt, conn->config.connect_timeout_ms * NS_PER_MS);
}

static void on_attempt(uv_timer_t *timer)
{
    struct weir__conn *conn = timer->data;
    switch (conn->state) {
    case WAITING: begin_attempt(conn); break;
    case RESOLVING:
        snprintf(conn->why, sizeof(conn->why), "%s: the name was not resolved in time",
                 conn->config.endpoint.host);
        wait_again(conn);
        break;
    case LINKING: leave_with(conn, "no connection in time"); break;
    case LOGGING_IN: leave_with(conn, "no answer to the log-in in time"); break;
    case LEAVING: leave_with(conn, conn->why); break;
    case UP: WEIR__ASSERT(false); break;
    }
}

/* ---- What the link tells --------------------------------------------------------------------- */

static void send_step(struct weir__conn *conn, struct weir__login_step *step)
{
    if (conn->calls.on_wire == 0) {
        conn->owed_ns = uv_hrtime();
    }
    struct weir__record *record = weir__calls_put(&conn->calls, NULL, step);
    if (!weir__login_send(step, &conn->config.endpoint, conn->link, record, &record->end)) {
        weir__calls_drop(&conn->calls, record); /* the link is closing, and will say so */
    }
}

static void go_up(struct weir__conn *conn)
{
    conn->state = UP;
    conn->up_ns = uv_hrtime();
    conn->stats.connects++;
    conn->told_down = false;
    uv_timer_stop(&conn->attempt);
    say(conn, WEIR__LOG_INFO, "the store is up: %s", conn->peer);
    conn->config.up(conn->config.arg);
}

static void on_connected(void *arg)
{
    struct weir__conn *conn = arg;
    conn->state = LOGGING_IN;
    conn->tells_no_time = false;
    conn->steps_done = 0;
    for (size_t i = 0; i < conn->step_count; i++) {
        conn->steps[i].open = false;
        send_step(conn, &conn->steps[i]);
    }
    if (conn->step_count == 0) {
        go_up(conn);
    }
}

static void on_step_replied(struct weir__conn *conn, struct weir__login_step *step,
                            const struct redisReply *reply)
{
    char why[WEIR__REPLY_TEXT_MAX];
    if (!weir__login_check(step, reply, why)) {
        /* Also after a reload: a store that does not take the script is as good as down. */
        leave_with(conn, why);
        return;
    }
    if (step->kind == WEIR__LOGIN_LOAD) {
        conn->stats.scripts_loaded++;
    }
    if (conn->state == LOGGING_IN && ++conn->steps_done == conn->step_count) {
        go_up(conn);
    }
}

static bool send_call(struct weir__conn *conn, struct weir__call *call)
{
    if (conn->calls.on_wire == 0) {
        conn->owed_ns = uv_hrtime();
    }
    struct weir__record *record = weir__calls_put(&conn->calls, call, NULL);
    if (!weir__evalsha_send(call, conn->tells_no_time, conn->link, record, &record->end)) {
        weir__calls_drop(&conn->calls, record);
        return false;
    }
    return true;
}

static void load_again(struct weir__conn *conn, const struct weir__script *script)
{
    for (size_t i = 0; i < conn->step_count; i++) {
        if (conn->steps[i].script == script && !conn->steps[i].open) {
            send_step(conn, &conn->steps[i]);
        }
    }
}

/* Mends what `next` says is missing, and sends the call again.  Returns false when the call may not
 * be sent again. */
static bool replay(struct weir__conn *conn, struct weir__call *call, enum weir__reply_next next)
{
    if (conn->state != UP || call->replays == WEIR__REPLAYS_MAX ||
        call->deadline_ns <= uv_hrtime()) {
        return false;
    }
    call->replays++;
    if (next == WEIR__REPLY_RELOAD) {
        load_again(conn, call->script);
    }
    return send_call(conn, call);
}

static void tell_time(struct weir__conn *conn, const char *why)
{
    if (!conn->tells_no_time) {
        conn->tells_no_time = true;
        say(conn, WEIR__LOG_WARN, "the store tells no time (%s): it is told this machine's", why);
    }
}

static void on_call_replied(struct weir__conn *conn, struct weir__call *call,
                            const struct redisReply *reply)
{
    char text[WEIR__REPLY_TEXT_MAX];
    struct weir__outcome outcome;
    enum weir__reply_next next = weir__reply_read(&outcome, text, reply);
    if (next == WEIR__REPLY_TELL_TIME) {
        tell_time(conn, text);
    }
    bool again = next == WEIR__REPLY_RELOAD || next == WEIR__REPLY_TELL_TIME;
    if (again && call != NULL && replay(conn, call, next)) {
        return;
    }
    if (next == WEIR__REPLY_DISTRUST) {
        leave_with(conn, text);
    }
    if (next == WEIR__REPLY_LEAVE && conn->state == UP) {
        conn->state = LEAVING;
        snprintf(conn->why, sizeof(conn->why), "%s", text);
        start_timer(conn, &conn->attempt, on_attempt, WEIR__LEAVE_NS);
    }
    if (call != NULL) {
        weir__calls_answer(call, &outcome);
    } else {
        conn->stats.late_replies++;
    }
}

static void on_replied(void *arg, void *tag, const struct redisReply *reply)
{
    struct weir__conn *conn = arg;
    struct weir__record *record = tag;
    struct weir__call *call = record->call;
    struct weir__login_step *step = record->step;
    WEIR__ASSERT(conn->calls.wire.next == &record->node);
    weir__calls_drop(&conn->calls, record);
    if (step != NULL) {
        on_step_replied(conn, step, reply);
    } else {
        on_call_replied(conn, call, reply);
    }
    if (conn->state == LEAVING && conn->calls.on_wire == 0) {
        leave_with(conn, conn->why);
    }
}

static void on_link_closed(void *arg, const char *why, uint64_t written)
{
    struct weir__conn *conn = arg;
    bool was_up = conn->state == UP || conn->state == LEAVING;
    char text[WEIR__REPLY_TEXT_MAX];
    weir__reply_text(text, why, strlen(why));
    conn->link = NULL;
    snprintf(conn->why, sizeof(conn->why), "%s: %s", conn->peer, text);
    if (was_up && !conn->closing) {
        weir__backoff_stood(&conn->backoff, uv_hrtime() - conn->up_ns);
        wait_again(conn);
    }
    weir__calls_answer_lost(&conn->calls, written, text);
    if (conn->closing) {
        try_finish(conn);
    } else if (!was_up) {
        try_next_address(conn);
    }
}

static const struct weir__uvredis_events link_events = {
    .connected = on_connected, .replied = on_replied, .closed = on_link_closed};

/* ---- Open, call, close ----------------------------------------------------------------------- */

struct weir__conn *weir__conn_new(struct uv_loop_s *loop, const struct weir__conn_config *config)
{
    struct weir__conn *conn = weir__mem_zero(sizeof(*conn));
    if (conn == NULL) {
        return NULL;
    }
    if (!weir__calls_init(&conn->calls, config->max_calls + WEIR__LOGIN_STEPS_MAX)) {
        weir__mem_free(conn);
        return NULL;
    }
    conn->loop = loop;
    conn->config = *config;
    conn->backoff.seed = config->seed;
    conn->timer_ns = UINT64_MAX;
    conn->step_count = weir__login_plan(conn->steps, &conn->config.endpoint, config->scripts);
    uv_timer_init(loop, &conn->attempt);
    uv_timer_init(loop, &conn->deadline);
    uv_idle_init(loop, &conn->turn);
    conn->attempt.data = conn;
    conn->deadline.data = conn;
    conn->turn.data = conn;
    conn->open_handles = 3;
    conn->state = WAITING;
    start_timer(conn, &conn->attempt, on_attempt, 0);
    return conn;
}

void weir__conn_call(struct weir__conn *conn, struct weir__call *call)
{
    const char *refusal = NULL;
    weir__list_init(&call->node);
    call->record = NULL;
    call->replays = 0;
    if (!weir__conn_is_up(conn)) {
        refusal = "not connected";
    } else if (call->deadline_ns <= uv_hrtime()) {
        refusal = "too late to be sent";
    } else if (conn->calls.on_wire >= conn->config.max_calls) {
        refusal = "too many calls are unanswered";
    } else if (!send_call(conn, call)) {
        refusal = "the connection is closing";
    }
    if (refusal != NULL) {
        weir__calls_refuse(&conn->calls, call, refusal);
        want_turn(conn);
        return;
    }
    weir__calls_wait(&conn->calls, call);
    set_deadline(conn);
}

bool weir__conn_is_up(const struct weir__conn *conn) { return conn->state == UP && !conn->closing; }

void weir__conn_stats(const struct weir__conn *conn, struct weir__conn_stats *stats)
{
    *stats = conn->stats;
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct weir__conn *conn = handle->data;
    if (--conn->open_handles > 0) {
        return;
    }
    void (*closed)(void *arg) = conn->closed;
    void *arg = conn->closed_arg;
    weir__calls_deinit(&conn->calls);
    weir__mem_free(conn);
    closed(arg);
}

/* Closes the handles once nothing else is left. */
static void try_finish(struct weir__conn *conn)
{
    if (conn->finishing || conn->link != NULL || conn->resolve.busy) {
        return;
    }
    if (!weir__list_empty(&conn->calls.refused)) {
        want_turn(conn);
        return;
    }
    WEIR__ASSERT(weir__list_empty(&conn->calls.waiting));
    conn->finishing = true;
    uv_close((uv_handle_t *)&conn->attempt, on_handle_closed);
    uv_close((uv_handle_t *)&conn->deadline, on_handle_closed);
    uv_close((uv_handle_t *)&conn->turn, on_handle_closed);
}

static void on_turn(uv_idle_t *turn)
{
    struct weir__conn *conn = turn->data;
    uv_idle_stop(turn);
    weir__calls_answer_refused(&conn->calls);
    if (conn->closing) {
        try_finish(conn);
    }
}

void weir__conn_close(struct weir__conn *conn, void (*closed)(void *arg), void *arg)
{
    WEIR__ASSERT(!conn->closing);
    conn->closing = true;
    conn->closed = closed;
    conn->closed_arg = arg;
    uv_timer_stop(&conn->attempt);
    if (conn->link != NULL) {
        weir__uvredis_close(conn->link, "closed from here");
    }
    weir__resolve_hurry(&conn->resolve);
    want_turn(conn);
}
