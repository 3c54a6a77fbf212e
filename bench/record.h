/* SPDX-License-Identifier: MIT */
#ifndef WEIR_BENCH_RECORD_H
#define WEIR_BENCH_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * What a run admitted and when, and whether that keeps the promise.
 *
 *     lane 0   | 3 | 0 | 7 | ...      one lane a thread, written by that thread alone
 *     lane 1   | 2 | 4 | 1 | ...      one bin a slice of `bin_ns`, counted from the start
 *
 * Lies in memory that all processes share.  Read it when its writers have ended.
 */
struct record {
    int64_t bin_ns;
    uint32_t lanes;
    uint32_t bins; /* of each lane */
    uint32_t counts[];
};

/* What an algorithm promises, with or without periods. */
enum bound {
    /* in every interval of length t:  admitted <= capacity + rate * t + budget */
    BOUND_INTERVAL = 0,
    /* in each period, aligned to the epoch:  admitted <= capacity + budget */
    BOUND_ALIGNED = 1,
    /* in every interval of one period:  admitted <= capacity + budget */
    BOUND_SLIDING = 2,
    /* at every instant:  (in the aligned period before) * (what is left of this one) / period + (in
     * this one so far) <= capacity + budget;  and BOUND_INTERVAL, which follows from it */
    BOUND_WEIGHTED = 3,
};

struct promise {
    uint64_t rate_per_s;
    uint64_t capacity;
    uint64_t budget; /* with what a fault may add to it */
    enum bound bound;

    /* Of the last three. */
    int64_t period_ns;
    int64_t epoch_ns;       /* the wall clock of the store when the record begins */
    int64_t epoch_error_ns; /* of that, either way */
};

struct judgement {
    uint64_t admitted;
    int64_t largest_excess; /* most that is found above the bound without budget; may be < 0 */
    int64_t error;          /* of largest_excess, either way, since a record has bins */
    bool within_bound;      /* largest_excess <= budget + error */
};

/* A bin's width for a limit: short against the time it takes to fill. */
int64_t record_bin_ns(uint64_t rate_per_s, uint64_t capacity);

/* Bins that hold `duration_ns`, and the bytes of a record. */
uint32_t record_bins(int64_t duration_ns, int64_t bin_ns);
size_t record_bytes(uint32_t lanes, uint32_t bins);

/* `record` is record_bytes of zeroed memory. */
void record_init(struct record *record, uint32_t lanes, uint32_t bins, int64_t bin_ns);

/* One token was admitted `at_ns` after the start.  Past the last bin it counts into that one: time
 * is only ever cut short, which can raise an excess and not hide it.  Thread: the lane's. */
static inline void record_add(struct record *record, uint32_t lane, int64_t at_ns)
{
    int64_t bin = at_ns / record->bin_ns;
    if (bin >= record->bins) {
        bin = record->bins - 1;
    }
    record->counts[(size_t)lane * record->bins + (size_t)bin]++;
}

struct judgement record_judge(const struct record *record, const struct promise *promise);

#endif
