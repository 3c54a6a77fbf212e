/* SPDX-License-Identifier: MIT */
#ifndef WEIR_IO_CONN_H
#define WEIR_IO_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "io/endpoint.h"

/*
 * One connection to one Redis, kept alive: resolve, connect, log in, select, load scripts, and
 * again after each loss with exponential back-off and jitter.  Calls are script calls.  Each call
 * is answered exactly once, by its deadline at the latest, with what is known about its fate (R8).
 *
 * Thread: the loop's, for everything here.
 */

struct uv_loop_s;
struct weir__conn;
struct weir__record;

/* A Lua script as built in (joined of lua/ at build time). */
struct weir__script {
    const char *name;
    const char *source;
    size_t source_len;
    const char *sha1; /* 40 hex digits */
};
extern const struct weir__script weir__script_lease;

enum weir__fate {
    WEIR__ANSWERED = 1,     /* values hold the reply */
    WEIR__NOT_EXECUTED = 2, /* surely never ran: may be replayed with the same rows */
    WEIR__REFUSED = 3,      /* never ran, and will not until someone mends the store */
    WEIR__FATE_UNKNOWN = 4, /* may have run: lost */
    WEIR__KEY_REFUSED = 5,  /* never ran, and will not until someone mends this key */
};

#define WEIR__REPLY_VALUES_MAX 16

struct weir__outcome {
    enum weir__fate fate;
    int64_t values[WEIR__REPLY_VALUES_MAX]; /* of an array of integers */
    size_t count;
    const char *error; /* the store's, or our own words; borrowed for the call */
};

/* One call.  The caller's memory: untouched by it from weir__conn_call until `done`. */
struct weir__call {
    const struct weir__script *script;
    const void *key;
    size_t key_len;
    const void *argv[2];
    size_t argv_len[2];
    uint64_t deadline_ns; /* uv_hrtime */
    void (*done)(struct weir__call *call, const struct weir__outcome *outcome);

    /* the connection's own */
    struct weir__list node;
    struct weir__record *record; /* on the wire */
    const char *refusal;         /* why it was not sent */
    unsigned replays;
};

/* Levels of the log, numbered as in weir/weir.h. */
enum weir__log_level { WEIR__LOG_WARN = 2, WEIR__LOG_INFO = 3 };

struct weir__conn_config {
    struct weir__endpoint endpoint; /* copied */
    uint64_t connect_timeout_ms;    /* from the start of resolving until scripts are loaded */
    uint64_t silence_ms;            /* no byte for this long while replies are owed: given up */
    size_t max_calls;               /* on the wire, late ones included; more are NOT_EXECUTED */
    uint64_t seed;                  /* jitter */
    const struct weir__script *const *scripts; /* NULL-terminated; loaded on each connect */

    /* All on the loop's thread, none from inside weir__conn_new or weir__conn_call. */
    void (*up)(void *arg);
    /* Once for each loss and each failed try, the first one too; before the calls lost with it are
     * answered. */
    void (*down)(void *arg, const char *why);
    void (*log)(void *arg, int level, const char *text);
    void *arg;
};

struct weir__conn_stats {
    uint64_t connects, scripts_loaded, late_replies;
};

/* Starts connecting.  Returns NULL only without memory. */
struct weir__conn *weir__conn_new(struct uv_loop_s *loop, const struct weir__conn_config *config);

/* Sends a call, or keeps it for the reload of a script; one write a loop turn carries all of them.
 * `done` comes exactly once, never from inside this call. While not up: NOT_EXECUTED. */
void weir__conn_call(struct weir__conn *conn, struct weir__call *call);

bool weir__conn_is_up(const struct weir__conn *conn);
void weir__conn_stats(const struct weir__conn *conn, struct weir__conn_stats *stats);

/* Answers what is pending (FATE_UNKNOWN, or NOT_EXECUTED where it was never written), closes every
 * handle, frees the connection, then calls closed(arg) on a later turn. */
void weir__conn_close(struct weir__conn *conn, void (*closed)(void *arg), void *arg);

#endif
