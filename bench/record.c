/* SPDX-License-Identifier: MIT */
/*
 * Judges a record: was there any interval, of any length, that holds more than the promise allows?
 *
 * There are as many intervals as pairs of admissions, but one pass finds the worst.  Pour each
 * admission into a vessel that leaks at the rate and is never less than empty; with a(k) tokens in
 * bin k,
 *
 *     w(k) = max(0, w(k-1) - rate * bin) + a(k)
 *
 * is the largest, over all intervals that end in bin k, of  admitted - rate * t.  So the largest w,
 * less the capacity, is the largest excess, and the promise is  largest excess <= budget.
 *
 * What the record cannot see.  Two tokens j bins apart are between (j-1) and (j+1) bins apart in
 * truth: at most rate * bin tokens either way.  And a thread that is stopped between an admission
 * and its stamp moves that one token: at most one token a lane.  Their sum is the record's error.
 *
 * All is exact: tokens are counted in 10^-9 parts, of which rate_per_s leak each nanosecond.
 */
#include "record.h"

#include "clock.h"

__extension__ typedef __int128 wide;

#define BIN_LEAST_NS INT64_C(10000) /* below, the clock's own cost blurs it */
#define BIN_MOST_NS NS_PER_MS
#define BINS_PER_CAPACITY 500 /* a bin is at most 0.2 % of the time to fill */

int64_t record_bin_ns(uint64_t rate_per_s, uint64_t capacity)
{
    wide bin = (wide)capacity * NS_PER_S / rate_per_s / BINS_PER_CAPACITY;
    return bin < BIN_LEAST_NS ? BIN_LEAST_NS : bin > BIN_MOST_NS ? BIN_MOST_NS : (int64_t)bin;
}

uint32_t record_bins(int64_t duration_ns, int64_t bin_ns)
{
    return (uint32_t)(duration_ns / bin_ns + 1);
}

size_t record_bytes(uint32_t lanes, uint32_t bins)
{
    return sizeof(struct record) + (size_t)lanes * bins * sizeof(uint32_t);
}

void record_init(struct record *record, uint32_t lanes, uint32_t bins, int64_t bin_ns)
{
    record->bin_ns = bin_ns;
    record->lanes = lanes;
    record->bins = bins;
}

static wide div_up(wide a, wide b) { return a >= 0 ? (a + b - 1) / b : -(-a / b); }

struct judgement record_judge(const struct record *record, const struct promise *promise)
{
    struct judgement judgement = {0};
    wide leak = (wide)promise->rate_per_s * record->bin_ns;
    wide level = 0;
    wide highest = 0;
    for (uint32_t bin = 0; bin < record->bins; bin++) {
        uint64_t count = 0;
        for (uint32_t lane = 0; lane < record->lanes; lane++) {
            count += record->counts[(size_t)lane * record->bins + bin];
        }
        level = level > leak ? level - leak : 0;
        level += (wide)count * NS_PER_S;
        highest = level > highest ? level : highest;
        judgement.admitted += count;
    }
    wide excess = highest - (wide)promise->capacity * NS_PER_S;
    judgement.largest_excess = (int64_t)div_up(excess, NS_PER_S);
    judgement.error = (int64_t)div_up(leak, NS_PER_S) + record->lanes;
    judgement.within_bound = judgement.largest_excess <= (int64_t)promise->budget + judgement.error;
    return judgement;
}
