/* SPDX-License-Identifier: MIT */
#ifndef WEIR_TESTS_TRIAL_H
#define WEIR_TESTS_TRIAL_H

#include "twins.h"

/*
 * One key under a limit of any algorithm, asked by hand.  C and Lua answer together, so what passes
 * passes in both.
 *
 * Numbers of the sliding counter follow from its rule: of the period before counts what a window of
 * one period's length still covers, rounded up.
 */

#define MS INT64_C(1000)
#define SECOND INT64_C(1000000)
#define MINUTE (60 * SECOND)
#define HOUR (60 * MINUTE)
#define DAY (24 * HOUR)
/* All times are from here: the begin of a day, and so of each period that divides one. */
#define START (19676 * DAY)

enum trial_kind { TOKEN, LEAKY, QUEUE, FIXED, LOG, COUNTER, KINDS };

struct trial {
    struct twins twins;
    struct weir__rule rule;   /* of the callers */
    struct weir__grant grant; /* the last */
};
extern struct trial trial;

int trial_set_up(void **state);
int trial_tear_down(void **state);

/* A new key under a limit of `tokens` a period; that is a window's limit, and a bucket's burst is
 * `capacity`.  In a queue whoever fits waits for its turn. */
void trial_begin(enum trial_kind kind, int64_t tokens, int64_t period_us, int64_t capacity);

/* The callers have another limit from now on. */
void trial_update(enum trial_kind kind, int64_t tokens, int64_t period_us, int64_t capacity);

/* Tokens for a caller who waits, all or nothing. */
bool trial_take(int64_t at, int64_t cost);

/* Returns what is there, and changes nothing. */
int64_t trial_look(int64_t at);

/* Returns what was leased. */
int64_t trial_lease(int64_t at, int64_t want);

/* Single tokens at these times must be A(llowed) or D(enied), 31 at most. */
void trial_verdicts(const int64_t *at, const char *verdicts);

#define TIMES(...) ((const int64_t[]){__VA_ARGS__})

#endif
