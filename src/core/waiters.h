/* SPDX-License-Identifier: MIT */
#ifndef WEIR_CORE_WAITERS_H
#define WEIR_CORE_WAITERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/heap.h"
#include "base/list.h"
#include "base/stack.h"

/* Callers who wait for tokens of one bucket, in order of arrival.  Verdicts and reasons are
 * numbered as in weir/weir.h (tests hold them equal). */

enum weir__verdict { WEIR__DENIED = 0, WEIR__ALLOWED = 1, WEIR__UNAVAILABLE = 2 };

enum weir__reason {
    WEIR__REASON_WITHIN_LIMIT = 0,
    WEIR__REASON_OVER_LIMIT = 1,
    WEIR__REASON_COLD = 2,
    WEIR__REASON_COST_ABOVE_CAPACITY = 3,
    WEIR__REASON_STORE_DOWN = 4,
    WEIR__REASON_DEADLINE = 5,
    WEIR__REASON_BUSY = 6,
    WEIR__REASON_CLOSED = 7,
};

#define WEIR__TIME_UNKNOWN (-1)
#define WEIR__TIME_NEVER (-2)

struct weir__bucket;

/* Memory of whoever waits, from weir__engine_wait until it comes out of weir__engine_next_done. */
struct weir__waiter {
    struct weir__stack_node pushed;  /* on its way to the loop */
    struct weir__list line;          /* among its bucket's waiters, or among the done */
    struct weir__heap_node deadline; /* key: answer_us; once reserved, when the tokens are due */
    struct weir__bucket *bucket;
    int64_t cost;      /* 0: a look */
    int64_t until_us;  /* our clock: tokens later than this are of no use */
    int64_t answer_us; /* our clock: must be answered by then */
    bool hasty;        /* came with less patience than a horizon */
    bool covered;      /* the exact part of the ask in flight is for it, among others */
    bool refused;      /* the store has said no */
    bool reserved;     /* its tokens are ours once they are due (R12) */

    /* the answer */
    enum weir__verdict verdict;
    enum weir__reason reason;
    int64_t retry_after_us; /* >= 0, WEIR__TIME_UNKNOWN, WEIR__TIME_NEVER */
};

#endif
