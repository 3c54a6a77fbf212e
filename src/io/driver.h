/* SPDX-License-Identifier: MIT */
#ifndef WEIR_IO_DRIVER_H
#define WEIR_IO_DRIVER_H

#include <stdbool.h>
#include <uv.h>

#include "base/stack.h"
#include "core/engine.h"
#include "io/conn.h"
#include "io/wake.h"

/*
 * The engine on a loop: callers' work in, asks out to the connection, answers back in, timers.
 *
 * Threads: init, fields without a comment, and all callbacks are the loop's.  The engine is used
 * under `lock`, by the loop and by the few calls that need it (stats, refund, a changed limit);
 * never while a callback of the user runs.
 */

/* What the loop says about the store, for callers. */
enum weir__store_view {
    WEIR__VIEW_CONNECTING = 1,
    WEIR__VIEW_UP = 2,
    WEIR__VIEW_OUTAGE = 3,
};

struct weir__driver_config {
    struct weir__engine_config engine;
    bool remote;                    /* false: the store is this process */
    struct weir__conn_config store; /* remote: endpoint, connect_timeout_ms and log are set */

    int64_t (*now_us)(void *arg); /* our clock; any thread */
    /* Answers an ask at once, without the lock held by anyone else; for a store that is this
     * process. */
    void (*ask_here)(void *arg, struct weir__bucket *bucket, const struct weir__rule *rule,
                     const struct weir__ask *ask, struct weir__grant *grant);
    void (*answered)(void *arg, struct weir__waiter *waiter); /* without the lock */
    /* the last callback: nothing of the driver is on the loop any more */
    void (*closed)(void *arg);
    void *arg;
};

struct weir__request;

struct weir__driver {
    struct weir__driver_config config;
    uv_mutex_t lock;
    struct weir__engine engine; /* under lock */
    struct weir__stack touched; /* any thread: struct weir__bucket.touched */
    struct weir__stack joined;  /* any thread: struct weir__waiter.pushed */
    struct weir__wake wake;     /* any thread */
    uint32_t view;              /* enum weir__store_view; any thread */
    uint32_t close_wanted;      /* any thread */
    uv_loop_t *loop;
    uv_timer_t timer;
    struct weir__conn *conn;            /* NULL: not remote, or closed */
    struct weir__conn_stats conn_stats; /* under lock */
    struct weir__request *requests;     /* max_asks of them */
    struct weir__request *spare;        /* those not in use */
    int64_t close_by_us;                /* 0: not closing */
    uint64_t refusals;                  /* from the one that is in the log, it included */
    uint64_t refusal_told_ns;           /* when it was logged, uv_hrtime */
    bool ended;
};

/* Puts the driver on a loop.  Returns 0, or an error of libuv; then nothing is left behind.
 * Without memory for a connection it returns 0 with `conn` NULL, which serves nobody: close it. */
int weir__driver_init(struct weir__driver *driver, uv_loop_t *loop,
                      const struct weir__driver_config *config);

/* Hands work over.  Thread: any.  Returns false when the driver has closed: the node was not
 * taken. */
bool weir__driver_touch(struct weir__driver *driver, struct weir__bucket *bucket);
bool weir__driver_join(struct weir__driver *driver, struct weir__waiter *waiter);

/* Does what is due, soon.  Thread: any. */
void weir__driver_ring(struct weir__driver *driver);

/* Gives back, ends, and calls config.closed.  Thread: any; once. */
void weir__driver_close(struct weir__driver *driver);

/* Frees the lock.  After `closed`, when no other thread can be inside a call any more. */
void weir__driver_deinit(struct weir__driver *driver);

#endif
