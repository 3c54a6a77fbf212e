/* SPDX-License-Identifier: MIT */
#ifndef WEIR_API_TALLY_H
#define WEIR_API_TALLY_H

#include <stdint.h>

#include "base/atomic.h"

/*
 * Counters of refusals that cost a refused caller a plain addition: each thread has a line of its
 * own.  A thread claims one of 63 places at its first count and leaves it when it ends; threads
 * beyond that share place 0 and add atomically.
 */

enum weir__count {
    WEIR__COUNT_DENIED,
    WEIR__COUNT_COLD,
    WEIR__COUNT_UNAVAILABLE,
    WEIR__COUNT_OUTAGE_ALLOWED, /* tokens, not calls */
    WEIR__COUNTS
};

#define WEIR__TALLY_PLACES 64

struct weir__tally {
    _Alignas(WEIR__CACHE_LINE) uint64_t of[WEIR__COUNTS];
};

struct weir__tallies {
    struct weir__tally at[WEIR__TALLY_PLACES];
};

/* This thread's place: 1..63; 0 shared; -1 not claimed yet. */
extern _Thread_local int weir__tally_place;

/* Claims a place for this thread; returns it. */
int weir__tally_claim(void);

/* For the owner of the place.  Relaxed, and no read-modify-write: it alone writes the word. */
static inline void weir__tally_own(struct weir__tally *tally, enum weir__count count, uint64_t n)
{
    weir__store_relaxed(&tally->of[count], weir__load_relaxed(&tally->of[count]) + n);
}

/* Thread: any. */
static inline void weir__tally_add(struct weir__tallies *tallies, enum weir__count count,
                                   uint64_t n)
{
    int place = weir__tally_place < 0 ? weir__tally_claim() : weir__tally_place;
    if (place > 0) {
        weir__tally_own(&tallies->at[place], count, n);
    } else {
        (void)weir__add_relaxed(&tallies->at[place].of[count], n);
    }
}

static inline uint64_t weir__tally_sum(const struct weir__tallies *tallies, enum weir__count count)
{
    uint64_t sum = 0;
    for (int i = 0; i < WEIR__TALLY_PLACES; i++) {
        sum += weir__load_relaxed(&tallies->at[i].of[count]);
    }
    return sum;
}

#endif
