/* SPDX-License-Identifier: MIT */
#ifndef WEIR_CORE_ASK_H
#define WEIR_CORE_ASK_H

#include <stdbool.h>
#include <stdint.h>

/*
 * The words of the lease protocol (docs/protocol.md): what a process says to the store about one
 * bucket, and what it hears.  Every store understands these and nothing else.  All times are
 * microseconds, all amounts are tokens unless they say units; every number is an integer below
 * 2^53.
 */

enum weir__algorithm_id {
    WEIR__TOKEN_BUCKET = 1,
    WEIR__LEAKY_BUCKET = 2,
    WEIR__FIXED_WINDOW = 3,
    WEIR__SLIDING_LOG = 4,
    WEIR__SLIDING_COUNTER = 5,
};

/* Variants of a leaky bucket and of a fixed window; 0: none. */
#define WEIR__VARIANT_QUEUE 1
#define WEIR__VARIANT_MONTH 1

/*
 * A limit as it travels: exact integers (R0).  Every `tick_us` microseconds `units_per_tick` units
 * accrue; `units_per_token` of them are one token.  For token and leaky buckets capacity *
 * units_per_token + units_per_tick < 2^53; the window algorithms count tokens in periods, and the
 * rate is only for pacing.
 */
struct weir__rule {
    int64_t version;         /* R11: the highest wins */
    int64_t tick_us;         /* 1, 1000 or 1000000 */
    int64_t units_per_tick;  /* a */
    int64_t units_per_token; /* b */
    int64_t capacity;        /* C */
    int64_t budget;          /* E */
    int64_t window_us;       /* W */
    int64_t max_wait_us;     /* R12: how far ahead tokens may be reserved; 0: not at all */
    int64_t initial;         /* tokens of a new key */
    int64_t period_us;       /* of the windows, 1..10^12; 0: the algorithm has none */
    enum weir__algorithm_id algorithm;
    int64_t variant; /* WEIR__VARIANT_ */
    bool learn;      /* a new key starts as if it had been used at its rate all along */
};

static inline bool weir__rule_has_periods(const struct weir__rule *rule)
{
    return rule->period_us > 0;
}

/* Whether what is granted are departure slots, one after another: a leaky bucket as a queue. */
static inline bool weir__rule_has_slots(const struct weir__rule *rule)
{
    return rule->algorithm == WEIR__LEAKY_BUCKET && rule->variant == WEIR__VARIANT_QUEUE;
}

/* What was done with the tokens of one window (R5). */
struct weir__settle {
    int64_t window;
    int64_t spent;
    int64_t back;
};

#define WEIR__SETTLE_ROWS 2 /* leases live in at most two windows of the store */
#define WEIR__NO_WINDOW (-1)

struct weir__ask {
    bool peek;       /* a look: nothing is written, no key is made, no expiry renewed */
    bool reset;      /* not with peek: the bucket starts anew, before all else that is asked */
    int64_t want;    /* lease tokens wished */
    int64_t least;   /* fewer are useless; >= 1 */
    int64_t held;    /* credit still held here, for the share rule (R14) */
    int64_t exact;   /* tokens for waiters: all or nothing, spent on arrival (R9) */
    int64_t wait_us; /* the exact part may be reserved up to this far ahead (R12) */
    int64_t refund;  /* tokens of settled admissions that were not used after all (R10) */
    int64_t since; /* all of `refund` was granted in the period that began then (grant.start_us) */
    int64_t heard; /* window this process last heard of, WEIR__NO_WINDOW before the first (R13) */
    struct weir__settle settle[WEIR__SETTLE_ROWS]; /* an unused row has window WEIR__NO_WINDOW */
};

struct weir__grant {
    int64_t lease;     /* tokens leased, 0..want */
    int64_t exact;     /* 0, or what was asked */
    int64_t wait_us;   /* the exact part may be used this long after the script ran */
    int64_t window;    /* the window the lease belongs to */
    int64_t life_us;   /* how long it may be spent, from the send of the ask (R6) */
    int64_t remaining; /* tokens left in the global bucket, never negative */
    /* until max(1, least, exact) tokens are there; 0: something was granted, or only the budget
     * refused; -1: never (exact above capacity) */
    int64_t retry_after_us;
    int64_t reset_after_us; /* until the global bucket is full */
    int64_t processes;      /* seen in this window or the last; may count one twice (R13) */
    int64_t refunded;       /* of ask.refund, what was accepted */
    int64_t outstanding;    /* out_cur + out_prev after this grant, <= E */
    int64_t version;        /* of the rule in force */
    /* of a leaky bucket as a queue: the lease's first slot is due so long after the script ran, and
     * its slots are spread evenly over so long; else 0 */
    int64_t first_us, spread_us;
    int64_t start_us; /* store time at which the period in force began; WEIR__NO_WINDOW: none */
};

#endif
