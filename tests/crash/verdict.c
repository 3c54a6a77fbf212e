/* SPDX-License-Identifier: MIT */
/*
 * The promise over every interval, from what each member admitted and when:
 *
 *     admitted(t) <= C + r*t + E  + max(C, E)           for each loss of the key
 *                                 + S                    credit that stalled members took too late
 *                                 + share * r * outage   for each member under the local policy
 *                                 + heard late
 *
 * Heard late.  A token that comes by a callback was decided earlier than it is stamped, by as long
 * as the call took at most.  An interval may so hold tokens of before its begin: those that
 * callbacks brought within that time of it, and no more.  Both are taken from the record itself.
 *
 * A member that was killed has reported nothing: its S is unknown, and counts as 0.
 */
#include "crash/verdict.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "bench/clock.h"

#define LANE_LOOP (FLEET_LANES - 1)

static uint64_t in_bin(const struct record *record, uint32_t first_lane, uint32_t lanes,
                       uint32_t bin)
{
    uint64_t tokens = 0;
    for (uint32_t lane = first_lane; lane < first_lane + lanes; lane++) {
        tokens += record->counts[(size_t)lane * record->bins + bin];
    }
    return tokens;
}

/* The most tokens that callbacks brought in any interval as long as the slowest of them took. */
static uint64_t heard_late(const struct fleet *fleet)
{
    const struct record *record = fleet->record;
    int64_t longest_ns = 0;
    for (unsigned i = 0; i < fleet->members; i++) {
        int64_t heard_ns = fleet->board->reports[i].worst_heard_ns;
        longest_ns = heard_ns > longest_ns ? heard_ns : longest_ns;
    }
    uint32_t width = (uint32_t)(longest_ns / record->bin_ns) + 2;
    uint64_t sum = 0, most = 0;
    for (uint32_t bin = 0; bin < record->bins; bin++) {
        for (unsigned i = 0; i < fleet->members; i++) {
            uint32_t lane = i * FLEET_LANES + LANE_LOOP;
            sum += in_bin(record, lane, 1, bin);
            sum -= bin >= width ? in_bin(record, lane, 1, bin - width) : 0;
        }
        most = sum > most ? sum : most;
    }
    return most;
}

static uint64_t local_share(const struct fleet *fleet, const struct verdict_terms *terms)
{
    const struct fleet_plan *plan = &fleet->plan;
    if (plan->outage != WEIR_OUTAGE_LOCAL) {
        return 0;
    }
    double seconds = (double)terms->outage_ns / (double)NS_PER_S;
    double rate = plan->share_percent / 100 * (double)plan->rate_per_s;
    return (uint64_t)(rate * seconds);
}

void verdict_check_promise(const struct fleet *fleet, const struct verdict_terms *terms)
{
    const struct fleet_plan *plan = &fleet->plan;
    uint64_t loss = terms->losses * (plan->capacity > plan->budget ? plan->capacity : plan->budget);
    uint64_t stranded = 0;
    for (unsigned i = 0; i < fleet->members; i++) {
        stranded += fleet->board->reports[i].stats.stranded;
    }
    uint64_t local = local_share(fleet, terms);
    uint64_t late = heard_late(fleet);
    const struct promise promise = {
        .rate_per_s = plan->rate_per_s,
        .capacity = plan->capacity,
        .budget = plan->budget + loss + stranded + local + late,
    };
    struct judgement judgement = record_judge(fleet->record, &promise);
    print_message("admitted %llu; the worst interval holds C + r*t %+lld; allowed +%llu: E %llu, "
                  "lost keys %llu, stranded "
                  "%llu, local %llu, heard late %llu; resolution %lld; used share %.3f\n",
                  (unsigned long long)judgement.admitted, (long long)judgement.largest_excess,
                  (unsigned long long)promise.budget, (unsigned long long)plan->budget,
                  (unsigned long long)loss, (unsigned long long)stranded, (unsigned long long)local,
                  (unsigned long long)late, (long long)judgement.error, verdict_used_share(fleet));
    assert_true(judgement.admitted > 0);
    assert_true(judgement.within_bound);
}

uint64_t verdict_admitted_between(const struct fleet *fleet, unsigned member, int64_t from_ns,
                                  int64_t to_ns)
{
    const struct record *record = fleet->record;
    uint64_t tokens = 0;
    for (uint32_t bin = (uint32_t)(from_ns / record->bin_ns);
         bin < record->bins && bin * record->bin_ns < to_ns; bin++) {
        tokens += in_bin(record, member * FLEET_LANES, FLEET_LANES, bin);
    }
    return tokens;
}

double verdict_used_share(const struct fleet *fleet)
{
    const struct fleet_plan *plan = &fleet->plan;
    double seconds = (double)plan->duration_ns / (double)NS_PER_S;
    double allowed = (double)plan->capacity + (double)plan->rate_per_s * seconds;
    double admitted = 0;
    for (unsigned i = 0; i < fleet->members; i++) {
        admitted += (double)verdict_admitted_between(fleet, i, 0, plan->duration_ns);
    }
    return admitted / allowed;
}

int64_t verdict_first_admission_ns(const struct fleet *fleet, unsigned member, int64_t from_ns)
{
    const struct record *record = fleet->record;
    for (uint32_t bin = (uint32_t)(from_ns / record->bin_ns); bin < record->bins; bin++) {
        if (in_bin(record, member * FLEET_LANES, FLEET_LANES, bin) > 0) {
            return (bin + 1) * record->bin_ns;
        }
    }
    return INT64_MAX;
}
