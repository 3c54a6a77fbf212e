/* SPDX-License-Identifier: MIT */
/*
 * Judges a record: did anything in it hold more than the promise allows?
 *
 * Every interval.  There are as many as pairs of admissions, but one pass finds the worst.  Pour
 * each admission into a vessel that leaks at the rate and is never less than empty; with a(k)
 * tokens in bin k,
 *
 *     w(k) = max(0, w(k-1) - rate * bin) + a(k)
 *
 * is the largest, over all intervals that end in bin k, of  admitted - rate * t.  So the largest w,
 * less the capacity, is the largest excess, and the promise is  largest excess <= budget.
 *
 * Aligned periods.  The bins that lie inside a period for certain are summed up; those that its
 * edges cross, or come as near as the clocks are in doubt, are in doubt as well.
 *
 * Every interval of one period.  As many bins as a period has room for are one, wherever they
 * begin.
 *
 * Weighted periods.  The rule is looked at when each bin ends; its first term falls with time, so
 * what was true at an admission inside the bin is larger by rate * bin at most.
 *
 * What the record cannot see.  Two tokens j bins apart are between (j-1) and (j+1) bins apart in
 * truth: at most rate * bin tokens either way, or what the bins at the edges of a period hold.  And
 * a thread that is stopped between an admission and its stamp moves that one token: at most one
 * token a lane.  Their sum is the record's error.
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

static wide div_down(wide a, wide b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }
static wide div_up(wide a, wide b) { return -div_down(-a, b); }

static uint64_t bin_count(const struct record *record, uint32_t bin)
{
    uint64_t count = 0;
    for (uint32_t lane = 0; lane < record->lanes; lane++) {
        count += record->counts[(size_t)lane * record->bins + bin];
    }
    return count;
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* ---- Every interval -------------------------------------------------------------------------- */

static void judge_intervals(const struct record *record, const struct promise *promise,
                            struct judgement *judgement)
{
    wide leak = (wide)promise->rate_per_s * record->bin_ns;
    wide level = 0;
    wide highest = 0;
    for (uint32_t bin = 0; bin < record->bins; bin++) {
        uint64_t count = bin_count(record, bin);
        level = level > leak ? level - leak : 0;
        level += (wide)count * NS_PER_S;
        highest = level > highest ? level : highest;
        judgement->admitted += count;
    }
    wide excess = highest - (wide)promise->capacity * NS_PER_S;
    judgement->largest_excess = (int64_t)div_up(excess, NS_PER_S);
    judgement->error = (int64_t)div_up(leak, NS_PER_S) + record->lanes;
}

/* ---- Periods --------------------------------------------------------------------------------- */

/* What one aligned period holds. */
struct period {
    int64_t from_ns;             /* since the record began; may be < 0 */
    int64_t first_bin, past_bin; /* those inside for certain */
    int64_t certain, doubtful;   /* tokens */
};

static int64_t sum(const struct record *record, int64_t first_bin, int64_t past_bin)
{
    uint64_t count = 0;
    for (int64_t bin = first_bin; bin < past_bin; bin++) {
        count += bin_count(record, (uint32_t)bin);
    }
    return (int64_t)count;
}

static int64_t within_record(const struct record *record, wide bin)
{
    return bin < 0 ? 0 : bin > record->bins ? record->bins : (int64_t)bin;
}

static struct period period_number(const struct record *record, const struct promise *promise,
                                   int64_t number)
{
    int64_t from_ns = (int64_t)((wide)number * promise->period_ns - promise->epoch_ns);
    int64_t to_ns = from_ns + promise->period_ns;
    int64_t error_ns = promise->epoch_error_ns, bin_ns = record->bin_ns;
    struct period period = {
        .from_ns = from_ns,
        .first_bin = within_record(record, div_up(from_ns + error_ns, bin_ns)),
        .past_bin = within_record(record, div_down(to_ns - error_ns, bin_ns)),
    };
    period.certain = sum(record, period.first_bin, period.past_bin);
    period.doubtful = sum(record, within_record(record, div_down(from_ns - error_ns, bin_ns)),
                          within_record(record, div_up(to_ns + error_ns, bin_ns))) -
                      period.certain;
    return period;
}

static int64_t first_period(const struct promise *promise)
{
    return (int64_t)div_down(promise->epoch_ns - promise->epoch_error_ns, promise->period_ns);
}

static int64_t last_period(const struct record *record, const struct promise *promise)
{
    wide end_ns = (wide)record->bins * record->bin_ns + promise->epoch_ns;
    return (int64_t)div_down(end_ns + promise->epoch_error_ns, promise->period_ns);
}

static void judge_aligned(const struct record *record, const struct promise *promise,
                          struct judgement *judgement)
{
    int64_t most = 0, doubt = 0;
    for (int64_t i = first_period(promise); i <= last_period(record, promise); i++) {
        struct period period = period_number(record, promise, i);
        most = larger(most, period.certain);
        doubt = larger(doubt, period.doubtful);
    }
    judgement->largest_excess = most - (int64_t)promise->capacity;
    judgement->error = doubt + record->lanes;
}

/* The most that any `bins` bins in a row hold. */
static int64_t most_in_a_row(const struct record *record, int64_t bins)
{
    int64_t held = 0, most = 0;
    for (uint32_t bin = 0; bin < record->bins; bin++) {
        held += (int64_t)bin_count(record, bin);
        held -= bin >= bins ? (int64_t)bin_count(record, bin - (uint32_t)bins) : 0;
        most = larger(most, held);
    }
    return most;
}

static void judge_sliding(const struct record *record, const struct promise *promise,
                          struct judgement *judgement)
{
    int64_t inside = (int64_t)div_down(promise->period_ns, record->bin_ns);
    int64_t touched = (int64_t)div_up(promise->period_ns, record->bin_ns) + 1;
    int64_t most = most_in_a_row(record, inside);
    judgement->largest_excess = most - (int64_t)promise->capacity;
    judgement->error = most_in_a_row(record, touched) - most + record->lanes;
}

/* The most that the rule of the weighted periods finds at the ends of the bins of one. */
static int64_t most_weighted(const struct record *record, const struct promise *promise,
                             const struct period *before, const struct period *period)
{
    int64_t held = 0;
    int64_t most = 0;
    for (int64_t bin = period->first_bin; bin < period->past_bin; bin++) {
        held += (int64_t)bin_count(record, (uint32_t)bin);
        int64_t left_ns = promise->period_ns - ((bin + 1) * record->bin_ns - period->from_ns);
        wide weighted = div_up((wide)before->certain * left_ns, promise->period_ns);
        most = larger(most, (int64_t)weighted + held);
    }
    return most;
}

static void judge_weighted(const struct record *record, const struct promise *promise,
                           struct judgement *judgement)
{
    int64_t most = 0, doubt = 0;
    int64_t first = first_period(promise);
    struct period before = period_number(record, promise, first - 1);
    for (int64_t i = first; i <= last_period(record, promise); i++) {
        struct period period = period_number(record, promise, i);
        most = larger(most, most_weighted(record, promise, &before, &period));
        doubt = larger(doubt, before.doubtful + period.doubtful);
        before = period;
    }
    /* judge_intervals was first: its excess is above the capacity too, and either may be larger. */
    int64_t excess = most - (int64_t)promise->capacity;
    judgement->largest_excess = larger(judgement->largest_excess, excess);
    judgement->error += doubt;
}

struct judgement record_judge(const struct record *record, const struct promise *promise)
{
    struct judgement judgement = {0};
    judge_intervals(record, promise, &judgement);
    switch (promise->bound) {
    case BOUND_INTERVAL: break;
    case BOUND_ALIGNED: judge_aligned(record, promise, &judgement); break;
    case BOUND_SLIDING: judge_sliding(record, promise, &judgement); break;
    case BOUND_WEIGHTED: judge_weighted(record, promise, &judgement); break;
    }
    judgement.within_bound = judgement.largest_excess <= (int64_t)promise->budget + judgement.error;
    return judgement;
}
