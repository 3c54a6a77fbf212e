/* SPDX-License-Identifier: MIT */
#ifndef WEIR_API_OBJECTS_H
#define WEIR_API_OBJECTS_H

#include <uv.h>

#include "api/table.h"
#include "api/tally.h"
#include "core/bucket.h"
#include "core/global.h"
#include "io/driver.h"
#include "weir/weir.h"

/* What stands behind the three opaque types. */

#define WEIR__NAME_MAX 64
#define WEIR__KEY_MAX 65536

/* Locks of the in-process store: enough that two busy threads seldom share one.  All are held at
 * once while a limit changes, and a lock checker follows 64. */
#define WEIR__STRIPES 32

/* What buckets of the in-process store have given out, in tokens. */
struct weir__inprocess_sum {
    int64_t leased, held, exact, refunded; /* held: of leased, credit still there */
};

/* Orders: table's lock -> engine's lock (driver.lock) -> a stripe. */
struct weir {
    struct weir__driver driver;
    struct weir__table *table;
    uv_mutex_t limits_lock; /* the list of limits */
    struct weir_limit *limits;
    uv_mutex_t stripes[WEIR__STRIPES]; /* in-process buckets, by address */
    struct weir__inprocess_sum gone;   /* of buckets that were forgotten; under the table's lock */
    struct weir__tallies tallies;

    bool remote;
    bool own_loop;
    uv_loop_t loop;     /* own_loop */
    bool joined;        /* somebody waits for the thread to end */
    uv_thread_t thread; /* of the loop, own or borrowed: where callbacks come */
    uint64_t ask_timeout_us;
    uint64_t max_waiters;
    char prefix[WEIR__NAME_MAX + 1];
    weir_log_fn log;
    void *log_arg;
    weir_clock_fn clock_ns;
    void *clock_arg;
    /* the clock's zero on the wall clock, as of opening; 0 for a clock of the user's */
    int64_t epoch_us;

    uint32_t waiters; /* atomic: joined and not answered */
    uint32_t closing; /* atomic */
    uint64_t handles; /* atomic: orphaned buckets still owned, plus one while the weir is open */
    void (*closed)(void *arg);
    void *closed_arg;
};

struct weir_limit {
    struct weir__limit core; /* changed under the engine's lock and all stripes */
    struct weir *weir;
    struct weir_limit *next;
    int64_t capacity; /* atomic: core.rule.capacity, for callers */
    uint32_t outage;  /* atomic: core.outage, for callers */
    uint32_t capped;  /* atomic: core.cap.tokens > 0, for who makes buckets */
    char name[WEIR__NAME_MAX + 1];
};

struct weir_bucket {
    struct weir__bucket core;
    struct weir__entry entry;
    struct weir_limit *limit;
    struct weir__tallies *tallies; /* the weir's */
    struct weir__cap cap;          /* under the bucket's stripe */

    /* in-process store; under the bucket's stripe */
    struct weir__global global;
    int64_t leased; /* tokens that became credit, net of those that went back */
    int64_t exact;  /* tokens admitted without becoming credit */
    int64_t refunded;

    unsigned char bytes[]; /* the store's key; the user's is its tail */
};

int64_t weir__now_us(const struct weir *weir);

/* The lock of what this process keeps of a bucket in place of a store.  (In api/buckets.) */
uv_mutex_t *weir__stripe_of(const struct weir_bucket *bucket);

#endif
