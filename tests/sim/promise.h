/* SPDX-License-Identifier: MIT */
#ifndef WEIR_TESTS_PROMISE_H
#define WEIR_TESTS_PROMISE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/ask.h"

/*
 * The promise, watched over every interval at once: a bucket of rate r and capacity C + E that each
 * admission is taken from.  Some interval has admitted more than C + r*t + E when, and only when,
 * its content is negative.
 *
 * Each fault adds its own term, and only to the intervals it can reach: the content is lifted by
 * the term, and the capacity is for as long as leases live that the fault made the store forget.
 *
 * Time is the store's without its steps.  All amounts are tokens.
 */

#define PROMISE_RAISES_MAX 96
#define PROMISE_DUE_MAX 256

struct promise_item {
    int64_t tokens, at_us;
};

struct promise {
    int64_t per_us;           /* units that accrue each microsecond */
    int64_t per_token;        /* units of one token, the same under every rule */
    int64_t capacity, budget; /* in force */
    /* with reservations (R12): what a tick brings, since they are due in whole ticks */
    int64_t tick_units;
    int64_t version; /* of the rule in force */
    int64_t content; /* units */
    int64_t now_us;
    int64_t worst;                                  /* the lowest content so far */
    struct promise_item raises[PROMISE_RAISES_MAX]; /* of the capacity, until then */
    unsigned raise_count;
    struct promise_item due[PROMISE_DUE_MAX]; /* reserved admissions (R12), which count when due */
    unsigned due_count;
};

void promise_init(struct promise *promise, const struct weir__rule *rule, int64_t now_us);
void promise_advance(struct promise *promise, int64_t now_us);

/* Admissions now, or at `at_us`; those that were not used after all. */
void promise_admit(struct promise *promise, int64_t tokens, int64_t now_us);
void promise_admit_at(struct promise *promise, int64_t tokens, int64_t at_us, int64_t now_us);
void promise_refund(struct promise *promise, int64_t tokens, int64_t now_us);

/* A fault's term: `tokens` more, in all intervals that begin before `until_us`. */
void promise_allow(struct promise *promise, int64_t tokens, int64_t until_us, int64_t now_us);

/* Another rule is in force.  The larger budget of both counts until `until_us`.  `anew`: for a key
 * that had been full and forgotten, so that it is full again. */
void promise_change(struct promise *promise, const struct weir__rule *rule, bool anew,
                    int64_t until_us, int64_t now_us);

/* Reserved and not yet due, in tokens. */
int64_t promise_reserved(const struct promise *promise);

/* Units that accrue under this rule in `us`. */
int64_t promise_units(const struct promise *promise, const struct weir__rule *rule, int64_t us);

/* Tokens above the promise, rounded up; 0: kept. */
int64_t promise_excess(const struct promise *promise);

#endif
