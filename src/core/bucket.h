/* SPDX-License-Identifier: MIT */
#ifndef WEIR_CORE_BUCKET_H
#define WEIR_CORE_BUCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/heap.h"
#include "base/list.h"
#include "base/stack.h"
#include "core/ask.h"
#include "core/demand.h"
#include "core/leases.h"
#include "core/limit.h"

/*
 * One key under one limit, as this process holds it.
 *
 *     first line       credit, gate, hints                                 any thread, atomics
 *     from the second  leases, demand, waiters, the ask in flight          under the engine's lock
 */

/* The gate: what a caller who found too little credit needs to know.  Bits. */
#define WEIR__GATE_WATCHED 1u /* the loop will look at this bucket soon, unasked: no need to ring */
#define WEIR__GATE_MISSED 2u  /* a caller found too little since the loop last looked */
#define WEIR__GATE_REFUSE 4u  /* over the limit until the loop says otherwise */
#define WEIR__GATE_TOUCHED 8u /* pushed to the loop and not yet taken from there */
#define WEIR__GATE_QUEUED 16u /* callers wait in line: who may wait joins them */
#define WEIR__GATE_CLOSED 32u /* the weir was closed */
#define WEIR__GATE_CAPPED 64u /* the limit may have a cap, which is asked first */
/* the store is there and will not serve this bucket, whose outage policy decides */
#define WEIR__GATE_BROKEN 128u

#define WEIR__HINT_UNKNOWN INT64_MIN

/* The ask on its way: at most one a bucket. */
struct weir__flight {
    uint64_t serial; /* 0: none */
    int64_t sent_us;
    bool overtaken; /* by a reset, a refund or another rule: its answer says nothing about later */
    struct weir__ask ask;
};

/* The period of a window algorithm that was in force when the store last answered: a token can go
 * back only into the period that it came from. */
struct weir__period {
    int64_t start_us; /* store time; WEIR__NO_WINDOW: the algorithm has no periods */
    int64_t admitted; /* tokens taken here in it and not refunded */
};

static inline void weir__period_heard(struct weir__period *period, const struct weir__grant *grant)
{
    if (grant->start_us != period->start_us) {
        *period = (struct weir__period){.start_us = grant->start_us};
    }
}

/* How many of `tokens`, which were admitted and not used, may go back to the store. */
static inline int64_t weir__period_refund(struct weir__period *period, int64_t tokens)
{
    if (period->start_us == WEIR__NO_WINDOW) {
        return tokens;
    }
    int64_t part = tokens < period->admitted ? tokens : period->admitted;
    period->admitted -= part;
    return part;
}

struct weir__bucket {
    _Alignas(WEIR__CACHE_LINE) int64_t credit; /* tokens to be had now, >= 0 */
    uint32_t gate;                             /* WEIR__GATE_ */
    uint32_t joining;                          /* callers who wait, on their way to the line */
    int64_t retry_at_us; /* hints for results, our clock: when the next tokens are expected, */
    int64_t reset_at_us; /* when the global bucket is full; WEIR__HINT_UNKNOWN */
    int64_t remaining;   /* in the store as of its last answer; WEIR__HINT_UNKNOWN */
    struct weir__stack_node touched;

    _Alignas(WEIR__CACHE_LINE) struct weir__limit *limit;
    const unsigned char *key; /* as the store knows it */
    size_t key_len;
    struct weir__leases leases;
    struct weir__demand demand;
    struct weir__flight flight;
    /* when the loop must look again; in no heap: asleep, nothing held */
    struct weir__heap_node due;
    struct weir__list ready;   /* in the engine's list of buckets with an ask to send */
    struct weir__list waiters; /* struct weir__waiter.line, the first come first */
    unsigned waiting;          /* how many of them, and of those with reserved tokens */
    int64_t arrived;           /* since the last look: tokens new waiters want, */
    int64_t served_exact;      /* tokens waiters took outside the credit word, */
    int64_t served_credit;     /* and from it */
    /* waiters who cannot wait for a lease's pace: less than a horizon */
    unsigned hasty;
    int64_t busy_us;        /* when a token was last taken, or wanted */
    int64_t paced_version;  /* the rule that the paces and the refusal below are of */
    int64_t lease_after_us; /* pace: no ask for a lease before */
    int64_t exact_after_us; /* pace: no ask for waiters before */
    int64_t known_us;       /* when `remaining` was heard */
    int64_t reserved_us;    /* when the last reserved tokens are due */
    /* the store's last answer has refused this many tokens; INT64_MAX: none, */
    int64_t refused_cost;
    int64_t refused_until_us; /* and will until then; WEIR__HINT_UNKNOWN */
    int64_t heard;            /* window last heard of (R13) */
    int64_t processes;        /* last heard, >= 1 */
    int64_t refund;           /* to travel with the next ask (R10) */
    int64_t admitted;         /* tokens taken here and not refunded */
    struct weir__period period;
    bool reset;            /* the next ask lets the bucket start anew */
    bool missed;           /* somebody found too little, and nothing was granted since */
    bool alone;            /* the next exact part is for one waiter only */
    int64_t local_from_us; /* local policy: tokens accrue from here; WEIR__HINT_UNKNOWN */
};

/*
 * The hot path: takes `cost` > 0 tokens or none.
 *
 * Exact: the word is compared and exchanged whole, and a loser looks again, so nobody is told
 * "empty" while tokens are there, and none is made or lost.  Relaxed: the word carries nothing but
 * itself.
 * Thread: any.  Cost: one atomic exchange.
 */
static inline bool weir__bucket_take(struct weir__bucket *bucket, int64_t cost)
{
    int64_t credit = weir__load_relaxed(&bucket->credit);
    while (credit >= cost) {
        if (weir__cas_relaxed(&bucket->credit, &credit, credit - cost)) {
            return true;
        }
    }
    return false;
}

/* Whether callers wait already, so that one more who may wait goes behind them.  Thread: any. */
static inline bool weir__bucket_has_line(const struct weir__bucket *bucket)
{
    /* Acquire: pairs with hand_in of io/driver; who is not on the way any more is seen in line. */
    return weir__load_acquire(&bucket->joining) != 0 ||
           (weir__load_relaxed(&bucket->gate) & WEIR__GATE_QUEUED) != 0;
}

/* Thread: any. */
static inline bool weir__bucket_is_broken(const struct weir__bucket *bucket)
{
    return (weir__load_relaxed(&bucket->gate) & WEIR__GATE_BROKEN) != 0; /* acted on alone */
}

/* What a caller is told who found too little. */
enum weir__miss {
    WEIR__MISS_REFUSED, /* over the limit, as far as this process knows */
    WEIR__MISS_COLD,    /* nothing leased here; the loop will see to it */
    WEIR__MISS_TOUCH,   /* as COLD, and the caller must push `touched` and ring */
    WEIR__MISS_CLOSED,
};

/* Thread: any.  Cost in the steady state of a refused crowd: one load. */
static inline enum weir__miss weir__bucket_miss(struct weir__bucket *bucket)
{
    const uint32_t known = WEIR__GATE_MISSED | WEIR__GATE_WATCHED;
    /* Relaxed: when all is known already there is nothing to order. */
    uint32_t gate = weir__load_relaxed(&bucket->gate);
    if ((gate & (known | WEIR__GATE_CLOSED)) != known) {
        if ((gate & WEIR__GATE_CLOSED) != 0) {
            return WEIR__MISS_CLOSED;
        }
        /* Pairs with the loop's and in core/engine sleep_now: one of the two sees the other. */
        gate = weir__or_acq_rel(&bucket->gate, WEIR__GATE_MISSED);
        if ((gate & WEIR__GATE_WATCHED) == 0 &&
            (weir__or_acq_rel(&bucket->gate, WEIR__GATE_TOUCHED) & WEIR__GATE_TOUCHED) == 0) {
            return WEIR__MISS_TOUCH;
        }
    }
    return (gate & WEIR__GATE_REFUSE) != 0 ? WEIR__MISS_REFUSED : WEIR__MISS_COLD;
}

#endif
