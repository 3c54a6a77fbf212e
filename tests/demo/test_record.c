/* SPDX-License-Identifier: MIT */
/*
 * The demo's judge must itself be right: a record that breaks the promise is found, in whatever
 * interval or period and over however many threads it is spread, and one that keeps it is not.
 * Last, random records against oracles that try every interval and every period; the seed is
 * printed, and WEIR_SEED replays it.
 */
#include "record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/num.h"

#define LANES 3
#define BINS 400
#define BIN_NS 1000000
#define ERROR (1 + LANES) /* of the limit below: one token a bin, and one a lane */

static const struct promise promise = {.rate_per_s = 1000, .capacity = 100, .budget = 10};

static struct record *new_record(void)
{
    struct record *record = calloc(1, record_bytes(LANES, BINS));
    assert_non_null(record);
    record_init(record, LANES, BINS, BIN_NS);
    return record;
}

/* `count` tokens in a bin, dealt to the lanes in turn. */
static void admit(struct record *record, int64_t bin, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        record_add(record, i % LANES, bin * BIN_NS + BIN_NS / 2);
    }
}

static void test_nothing_admitted(void **state)
{
    (void)state;
    struct record *record = new_record();
    struct judgement judgement = record_judge(record, &promise);
    assert_int_equal(judgement.admitted, 0);
    assert_int_equal(judgement.largest_excess, -100);
    assert_true(judgement.within_bound);
    free(record);
}

static void test_a_perfect_limiter_has_no_excess(void **state)
{
    (void)state;
    struct record *record = new_record();
    admit(record, 0, 100);
    for (int64_t bin = 1; bin < BINS; bin++) {
        admit(record, bin, 1);
    }
    struct judgement judgement = record_judge(record, &promise);
    assert_int_equal(judgement.admitted, 100 + BINS - 1);
    assert_int_equal(judgement.largest_excess, 0);
    assert_true(judgement.within_bound);
    free(record);
}

static void test_the_bound_is_sharp(void **state)
{
    (void)state;
    struct record *record = new_record();
    admit(record, 7, 100 + 10 + ERROR);
    struct judgement judgement = record_judge(record, &promise);
    assert_int_equal(judgement.error, ERROR);
    assert_int_equal(judgement.largest_excess, 10 + ERROR);
    assert_true(judgement.within_bound);
    admit(record, 7, 1);
    judgement = record_judge(record, &promise);
    assert_int_equal(judgement.largest_excess, 10 + ERROR + 1);
    assert_false(judgement.within_bound);
    free(record);
}

/* The sum over the whole run is far below the bound; an interval in its middle is not. */
static void test_an_excess_in_the_middle_is_found(void **state)
{
    (void)state;
    struct record *record = new_record();
    admit(record, 200, 60);
    admit(record, 210, 80); /* 140 in ten bins: 30 above C + r*t */
    struct judgement judgement = record_judge(record, &promise);
    assert_true(judgement.admitted < 100 + BINS);
    assert_int_equal(judgement.largest_excess, 30);
    assert_false(judgement.within_bound);
    free(record);
}

/* Each lane alone keeps the promise. */
static void test_an_excess_of_the_sum_is_found(void **state)
{
    (void)state;
    struct record *record = new_record();
    for (uint32_t lane = 0; lane < LANES; lane++) {
        for (int i = 0; i < 40; i++) {
            record_add(record, lane, 50 * BIN_NS);
        }
    }
    assert_int_equal(record_judge(record, &promise).largest_excess, 20);
    assert_false(record_judge(record, &promise).within_bound);
    free(record);
}

static void test_a_quiet_time_is_no_credit_beyond_the_capacity(void **state)
{
    (void)state;
    struct record *record = new_record();
    admit(record, 0, 100);
    admit(record, BINS - 1, 100 + 10 + ERROR + 1);
    assert_false(record_judge(record, &promise).within_bound);
    free(record);
}

static void test_what_comes_after_the_end_counts_into_the_last_bin(void **state)
{
    (void)state;
    struct record *record = new_record();
    record_add(record, 1, (BINS + 5) * (int64_t)BIN_NS);
    assert_int_equal(record->counts[2 * BINS - 1], 1);
    assert_int_equal(record_judge(record, &promise).admitted, 1);
    free(record);
}

static void test_bins_are_short_against_the_capacity(void **state)
{
    (void)state;
    /* rate * bin is at most 1 % of the capacity, where the clock allows it */
    static const uint64_t limits[][2] = {{100000, 100000}, {100000, 1000}, {1000, 10}, {1, 1}};
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        int64_t bin_ns = record_bin_ns(limits[i][0], limits[i][1]);
        assert_in_range(bin_ns, 10000, 1000000);
        assert_true((int64_t)limits[i][0] * bin_ns <= (int64_t)limits[i][1] * 10000000);
    }
    assert_true((int64_t)record_bins(5000, 1000) * 1000 > 5000);
}

/* The largest excess of a record, by trying every interval; in tokens, rounded up. */
static int64_t oracle(const struct record *record, const struct promise *limit)
{
    int64_t worst = INT64_MIN;
    for (uint32_t from = 0; from < record->bins; from++) {
        int64_t sum = 0;
        for (uint32_t to = from; to < record->bins; to++) {
            for (uint32_t lane = 0; lane < record->lanes; lane++) {
                sum += record->counts[lane * record->bins + to];
            }
            int64_t refill_ns = (int64_t)limit->rate_per_s * (to - from) * record->bin_ns;
            worst = weir__max(worst, sum - refill_ns / 1000000000);
        }
    }
    return worst - (int64_t)limit->capacity;
}

/* ---- Periods --------------------------------------------------------------------------------- */

#define PERIOD_BINS 100
#define START_BIN                                                                                  \
    30 /* of a period, at the record's begin; its edges are before bins 70, 170, ... */
#define EDGE (PERIOD_BINS - START_BIN)

static struct promise periodic(enum bound bound)
{
    return (struct promise){
        .rate_per_s = 1000, /* a token a bin, the capacity a period */
        .capacity = 100,
        .budget = 10,
        .bound = bound,
        .period_ns = (int64_t)PERIOD_BINS * BIN_NS,
        .epoch_ns = (int64_t)(7 * PERIOD_BINS + START_BIN) * BIN_NS,
    };
}

static struct judgement judge(const struct record *record, enum bound bound)
{
    const struct promise limit = periodic(bound);
    return record_judge(record, &limit);
}

static void test_nothing_admitted_in_periods(void **state)
{
    (void)state;
    struct record *record = new_record();
    for (int bound = BOUND_ALIGNED; bound <= BOUND_WEIGHTED; bound++) {
        struct judgement judgement = judge(record, (enum bound)bound);
        assert_int_equal(judgement.admitted, 0);
        assert_int_equal(judgement.largest_excess, -100);
        assert_true(judgement.within_bound);
    }
    free(record);
}

/* A full period, and another at once: as a fixed window allows it, and neither of the others. */
static void test_a_burst_across_an_edge(void **state)
{
    (void)state;
    struct record *record = new_record();
    admit(record, EDGE - 1, 100);
    admit(record, EDGE, 100);
    assert_int_equal(judge(record, BOUND_ALIGNED).admitted, 200);
    assert_int_equal(judge(record, BOUND_ALIGNED).largest_excess, 0);
    assert_int_equal(judge(record, BOUND_ALIGNED).error, LANES);
    assert_int_equal(judge(record, BOUND_SLIDING).largest_excess, 100);
    assert_int_equal(judge(record, BOUND_WEIGHTED).largest_excess, 99);
    assert_false(judge(record, BOUND_SLIDING).within_bound);
    assert_false(judge(record, BOUND_WEIGHTED).within_bound);
    free(record);
}

static void test_the_bound_of_a_period_is_sharp(void **state)
{
    (void)state;
    struct record *record = new_record();
    admit(record, EDGE, 60);
    admit(record, EDGE + PERIOD_BINS - 1, 50 + LANES);
    admit(record, EDGE + PERIOD_BINS, 90);
    struct judgement judgement = judge(record, BOUND_ALIGNED);
    assert_int_equal(judgement.largest_excess, 10 + LANES);
    assert_true(judgement.within_bound);
    admit(record, EDGE + PERIOD_BINS / 2, 1);
    assert_false(judge(record, BOUND_ALIGNED).within_bound);
    free(record);
}

/* What the clocks leave in doubt is in the error, and is not held against the limiter. */
static void test_a_clock_in_doubt_is_an_error(void **state)
{
    (void)state;
    struct record *record = new_record();
    admit(record, EDGE, 100);
    admit(record, EDGE + 1, 50);
    struct promise limit = periodic(BOUND_ALIGNED);
    limit.epoch_error_ns = 1;
    struct judgement judgement = record_judge(record, &limit);
    assert_int_equal(judgement.largest_excess, -50);
    assert_int_equal(judgement.error, 100 + LANES);
    assert_true(judgement.within_bound);
    limit.epoch_error_ns = 0;
    assert_false(record_judge(record, &limit).within_bound);
    free(record);
}

static void test_a_period_that_slides_is_found_anywhere(void **state)
{
    (void)state;
    struct record *record = new_record();
    admit(record, 210, 70);
    admit(record, 210 + PERIOD_BINS - 1, 70);
    admit(record, 210 + PERIOD_BINS, 500); /* a period and a bin after the first */
    admit(record, 210 + PERIOD_BINS, 70);
    struct judgement judgement = judge(record, BOUND_SLIDING);
    assert_int_equal(judgement.largest_excess, 70 + 570 - 100);
    assert_int_equal(judgement.error, 70 + LANES);
    free(record);
}

/* Half a period after the edge half of the last one still counts. */
static void test_the_period_before_counts_in_part(void **state)
{
    (void)state;
    struct record *record = new_record();
    admit(record, 0, 80); /* the record begins inside a period, and this is it */
    admit(record, EDGE + PERIOD_BINS / 2 - 1, 60);
    struct judgement judgement = judge(record, BOUND_WEIGHTED);
    assert_int_equal(judgement.largest_excess, 0);
    assert_int_equal(judgement.error, 1 + LANES);
    admit(record, EDGE + PERIOD_BINS / 2 - 1, 10 + 1 + LANES);
    assert_true(judge(record, BOUND_WEIGHTED).within_bound);
    admit(record, EDGE + PERIOD_BINS / 2 - 1, 1);
    assert_false(judge(record, BOUND_WEIGHTED).within_bound);
    free(record);
}

/* Tokens of a record from one time to another, bins that do not lie inside left out. */
static int64_t between(const struct record *record, int64_t from_ns, int64_t to_ns)
{
    int64_t sum = 0;
    for (uint32_t bin = 0; bin < record->bins; bin++) {
        int64_t at_ns = bin * record->bin_ns;
        for (uint32_t lane = 0; lane < record->lanes; lane++) {
            bool inside = at_ns >= from_ns && at_ns + record->bin_ns <= to_ns;
            sum += inside ? record->counts[lane * record->bins + bin] : 0;
        }
    }
    return sum;
}

/* The largest excess by the words of the promise. */
static int64_t oracle_of_periods(const struct record *record, const struct promise *limit)
{
    int64_t worst = 0, period_ns = limit->period_ns;
    for (uint32_t bin = 0; bin < record->bins; bin++) {
        int64_t end_ns = (bin + 1) * record->bin_ns;
        int64_t edge_ns = -limit->epoch_ns; /* of the period that holds the bin's end */
        while (edge_ns + period_ns < end_ns) {
            edge_ns += period_ns;
        }
        if (limit->bound == BOUND_SLIDING) {
            worst = weir__max(worst, between(record, end_ns - period_ns, end_ns));
        } else if (limit->bound == BOUND_ALIGNED) {
            worst = weir__max(worst, between(record, edge_ns, end_ns));
        } else {
            int64_t before = between(record, edge_ns - period_ns, edge_ns);
            int64_t left_ns = edge_ns + period_ns - end_ns;
            bool inside = end_ns - record->bin_ns >= edge_ns;
            int64_t sum = inside ? between(record, edge_ns, end_ns) : 0;
            int64_t part = (before * left_ns + period_ns - 1) / period_ns;
            worst = inside ? weir__max(worst, part + sum) : worst;
        }
    }
    int64_t excess = worst - (int64_t)limit->capacity;
    return limit->bound == BOUND_WEIGHTED ? weir__max(excess, oracle(record, limit)) : excess;
}

/* ---- Random records -------------------------------------------------------------------------- */

static uint64_t first_seed(void)
{
    const char *text = getenv("WEIR_SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 0) : UINT64_C(20260102);
    print_message("seed %llu\n", (unsigned long long)seed);
    return seed;
}

static struct record *random_record(uint64_t *seed, unsigned *admissions)
{
    struct record *record = new_record();
    record->bin_ns = 1 + (int64_t)(weir__random(seed) % 3000000);
    *admissions = (unsigned)(weir__random(seed) % 600);
    for (unsigned i = 0; i < *admissions; i++) {
        int64_t bin = (int64_t)(weir__random(seed) % BINS);
        record_add(record, (uint32_t)(weir__random(seed) % LANES), bin * record->bin_ns);
    }
    return record;
}

static void test_random_records_agree_with_every_interval(void **state)
{
    (void)state;
    uint64_t seed = first_seed();
    for (int round = 0; round < 60; round++) {
        unsigned admissions;
        struct record *record = random_record(&seed, &admissions);
        struct promise limit = {.rate_per_s = 1 + weir__random(&seed) % 5000,
                                .capacity = 1 + weir__random(&seed) % 200};
        struct judgement judgement = record_judge(record, &limit);
        assert_int_equal(judgement.admitted, admissions);
        assert_int_equal(judgement.largest_excess, oracle(record, &limit));
        free(record);
    }
}

static void test_random_records_agree_with_every_period(void **state)
{
    (void)state;
    uint64_t seed = first_seed();
    for (int round = 0; round < 60; round++) {
        unsigned admissions;
        struct record *record = random_record(&seed, &admissions);
        int64_t bins = 2 + (int64_t)(weir__random(&seed) % 150);
        struct promise limit = {
            .rate_per_s = 1 + weir__random(&seed) % 5000,
            .capacity = 1 + weir__random(&seed) % 200,
            .bound = (enum bound)(BOUND_ALIGNED + round % 3),
            .period_ns = bins * record->bin_ns + (int64_t)weir__random(&seed) % record->bin_ns,
        };
        limit.epoch_ns = (int64_t)(weir__random(&seed) % (uint64_t)limit.period_ns);
        struct judgement judgement = record_judge(record, &limit);
        assert_int_equal(judgement.admitted, admissions);
        assert_int_equal(judgement.largest_excess, oracle_of_periods(record, &limit));
        free(record);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_admitted),
        cmocka_unit_test(test_a_perfect_limiter_has_no_excess),
        cmocka_unit_test(test_the_bound_is_sharp),
        cmocka_unit_test(test_an_excess_in_the_middle_is_found),
        cmocka_unit_test(test_an_excess_of_the_sum_is_found),
        cmocka_unit_test(test_a_quiet_time_is_no_credit_beyond_the_capacity),
        cmocka_unit_test(test_what_comes_after_the_end_counts_into_the_last_bin),
        cmocka_unit_test(test_bins_are_short_against_the_capacity),
        cmocka_unit_test(test_nothing_admitted_in_periods),
        cmocka_unit_test(test_a_burst_across_an_edge),
        cmocka_unit_test(test_the_bound_of_a_period_is_sharp),
        cmocka_unit_test(test_a_clock_in_doubt_is_an_error),
        cmocka_unit_test(test_a_period_that_slides_is_found_anywhere),
        cmocka_unit_test(test_the_period_before_counts_in_part),
        cmocka_unit_test(test_random_records_agree_with_every_interval),
        cmocka_unit_test(test_random_records_agree_with_every_period),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
