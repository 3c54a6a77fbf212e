/* SPDX-License-Identifier: MIT */
#ifndef WEIR_CORE_ENGINE_H
#define WEIR_CORE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/bucket.h"
#include "core/outage.h"
#include "core/policy.h"
#include "core/waiters.h"

/*
 * All leases of one process: which bucket asks for how much, when, and what each answer means.
 *
 *     events in                          commands out, by value
 *     weir__engine_touch                 weir__engine_next_command    an ask to send
 *     weir__engine_wait                  weir__engine_next_done       a waiter to answer
 *     weir__engine_answer / _fail        weir__engine_next_us         when to call
 *                                                                     weir__engine_tick
 *     weir__engine_tick
 *
 * It has no clock, no randomness but its seed, no I/O and no memory but what it is handed.
 *
 * Thread: one at a time; io/driver keeps a lock around it.  `now_us` is our clock: monotonic,
 * counting suspend.
 */

struct weir__engine_config {
    int64_t ask_timeout_us; /* an answer later than this is lost, and an exact part void (R9) */
    unsigned max_asks;
    unsigned max_waiters;
    uint64_t seed;
    /* false: the store is this process, callers lease for themselves, only waiters come here */
    bool leases;
};

struct weir__engine_counts {
    uint64_t asks_sent, asks_answered, asks_lost, asks_refused;
    uint64_t exact_spent, exact_void, refunded;
    /* by the loop: waiters under an open policy, and leases of the local policy */
    uint64_t outage_spent;
    uint64_t watched; /* buckets in the heap now */
};

struct weir__engine {
    struct weir__engine_config config;
    struct weir__outage outage;
    enum weir__store_state noticed; /* the state that all buckets were last looked at in */
    int64_t down_from_us;           /* when the policies last began to decide */
    struct weir__rtt rtt;
    struct weir__ledger ledger; /* sum over all buckets */
    struct weir__engine_counts counts;
    struct weir__heap due;       /* buckets by when to look */
    struct weir__heap deadlines; /* waiters by when to answer */
    struct weir__list ready;     /* buckets with an ask to send, the longest ready first */
    struct weir__list done;      /* waiters to answer */
    unsigned asks;               /* on their way */
    unsigned waiters;
    uint64_t serial; /* of the last ask */
    uint64_t seed;
    bool closing;
};

/* An ask to send.  Everything is by value but the bucket, which stays until this serial is answered
 * or failed. */
struct weir__command {
    struct weir__bucket *bucket;
    uint64_t serial;
    struct weir__rule rule;
    struct weir__ask ask;
    int64_t deadline_us;
};

void weir__engine_init(struct weir__engine *engine, const struct weir__engine_config *config);

/* The caller's memory, zeroed; `key` stays valid as long as the bucket. */
void weir__bucket_init(struct weir__bucket *bucket, struct weir__engine *engine,
                       struct weir__limit *limit, const void *key, size_t key_len);

/* Whether the engine holds anything of the bucket: a lease, an ask, a waiter, a debt to the
 * store. */
bool weir__engine_holds(const struct weir__engine *engine, const struct weir__bucket *bucket);

/* A caller found too little, and nobody watches the bucket. */
void weir__engine_touch(struct weir__engine *engine, struct weir__bucket *bucket, int64_t now_us);

/* A caller waits.  Fields bucket, cost, until_us, answer_us are set; comes out of next_done exactly
 * once. */
void weir__engine_wait(struct weir__engine *engine, struct weir__waiter *waiter, int64_t now_us);

/* Up to `tokens` of admissions were not used.  Returns false, and does nothing, if more than was
 * admitted. */
bool weir__engine_refund(struct weir__engine *engine, struct weir__bucket *bucket, int64_t tokens,
                         int64_t now_us);

/* The bucket shall start anew in the store: the next ask says so. */
void weir__engine_reset(struct weir__engine *engine, struct weir__bucket *bucket, int64_t now_us);

/* The store has more than it said when those in line were refused: they are asked for again. */
void weir__engine_nudge(struct weir__engine *engine, struct weir__bucket *bucket, int64_t now_us);

/* The next ask to send; false: none now. */
bool weir__engine_next_command(struct weir__engine *engine, struct weir__command *command,
                               int64_t now_us);

/* The answer to the ask with this serial.  One that is late, or not the bucket's, is ignored: lost
 * (R8). */
void weir__engine_answer(struct weir__engine *engine, struct weir__bucket *bucket, uint64_t serial,
                         const struct weir__grant *grant, int64_t now_us);

enum weir__failure {
    WEIR__FAILED_NOT_EXECUTED, /* surely never ran */
    WEIR__FAILED_REFUSED,      /* never ran; the store must be mended first */
    WEIR__FAILED_KEY,          /* never ran; this key must be mended first, others need not */
    WEIR__FAILED_LOST,         /* may have run: grant and settled amounts are gone (R8) */
};
void weir__engine_fail(struct weir__engine *engine, struct weir__bucket *bucket, uint64_t serial,
                       enum weir__failure failure, int64_t now_us);

/* The connection came, or is gone. */
void weir__engine_linked(struct weir__engine *engine, bool linked, int64_t now_us);

/* Does what is due.  Call it at weir__engine_next_us, or earlier. */
void weir__engine_tick(struct weir__engine *engine, int64_t now_us);
int64_t weir__engine_next_us(const struct weir__engine *engine); /* INT64_MAX: nothing is due */

/* A waiter whose answer is known: verdict, reason, retry_after_us are filled.  NULL: none now. */
struct weir__waiter *weir__engine_next_done(struct weir__engine *engine);

/* The limit of a bucket has changed, or a first look is wanted for another reason. */
void weir__engine_look(struct weir__engine *engine, struct weir__bucket *bucket, int64_t now_us);

/* Brings the ledger up to date: looks at every bucket with a lease that is watched or ready. */
void weir__engine_settle_books(struct weir__engine *engine, int64_t now_us);

/* Answers every waiter, asks for nothing more; each bucket that is watched gives back what it holds
 * with a last ask.  Ends when `asks` is 0 and next_command has no more. */
void weir__engine_close(struct weir__engine *engine, int64_t now_us);

#endif
