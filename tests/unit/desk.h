/* SPDX-License-Identifier: MIT */
#ifndef WEIR_TESTS_DESK_H
#define WEIR_TESTS_DESK_H

#include "core/global.h"
#include "core/engine.h"

/*
 * One engine with one bucket, its store across the desk, and time in the tester's hand: each step
 * of an ask is a call, so a test can do anything in between, or leave a step out.
 */
struct desk {
    struct weir__engine engine;
    struct weir__limit limit;
    struct weir__bucket bucket;
    struct weir__global store;
    int64_t now_us;
    struct weir__command command; /* the latest */
    struct weir__grant grant;     /* the store's latest answer */
};

#define DESK_TIMEOUT_US 100000
#define DESK_WINDOW_US 400000

/* `tokens` a second; the store is linked; starts full. */
void desk_begin(struct desk *desk, uint64_t tokens, int64_t capacity, int64_t budget);

/* Whether the engine sends an ask now; it is in `command`. */
bool desk_sends(struct desk *desk);

/* The store runs the ask that was sent; the engine hears the answer. */
void desk_run(struct desk *desk);
void desk_hear(struct desk *desk);

/* Sends, runs and hears, until nothing is left to ask.  Returns how many asks that were; at most
 * 100. */
unsigned desk_settle(struct desk *desk);

/* Lets `us` pass, with a tick at each time the engine asked for, and its asks answered at once. */
void desk_pass(struct desk *desk, int64_t us);

/* A caller finds too little, and rings when told to. */
enum weir__miss desk_miss(struct desk *desk);

/* A waiter joins; it must be told by the timeout, or, with none, within the time of an ask. */
void desk_wait(struct desk *desk, struct weir__waiter *waiter, int64_t cost, int64_t timeout_us);

/* Whether this waiter has been answered, and so. */
bool desk_told(struct desk *desk, const struct weir__waiter *waiter, enum weir__verdict verdict,
               enum weir__reason reason);

#endif
