/* SPDX-License-Identifier: MIT */
/*
 * The sliding log by hand, and what only its twin in C has: a memory with an end, which looks do
 * not write to.  That both count alike is shown by the tests in tests/script.
 */
#include "core/global.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/num.h"
#include "core/algorithms/algorithm.h"

#include "bed.h"

#define MEMORY 4096

static struct weir__log_entry memory[MEMORY];

/* So many in each second, in a log with so much room. */
static struct bed log_of(int64_t capacity, unsigned room)
{
    struct bed bed = bed_of((uint64_t)capacity, SECOND, capacity, 0);
    bed.rule.algorithm = WEIR__SLIDING_LOG;
    bed.rule.period_us = SECOND;
    bed.key.log = (struct weir__log){.entries = room == 0 ? NULL : memory, .room = room};
    return bed;
}

static unsigned held(const struct bed *bed) { return bed->key.log.end - bed->key.log.first; }

static void test_tokens_come_back_as_they_went(void **state)
{
    (void)state;
    struct bed bed = log_of(3, MEMORY);
    assert_true(bed_take(&bed, 0, 1));
    assert_true(bed_take(&bed, 100 * MS, 2));
    assert_false(bed_take(&bed, 300 * MS, 1));
    assert_int_equal(bed.grant.retry_after_us, 700 * MS);
    assert_int_equal(bed.grant.reset_after_us, 800 * MS);
    assert_int_equal(bed_look(&bed, SECOND - 1), 0);
    assert_int_equal(bed_look(&bed, SECOND), 1);
    assert_int_equal(bed_look(&bed, SECOND + 100 * MS - 1), 1);
    assert_int_equal(bed_look(&bed, SECOND + 100 * MS), 3);
}

static void test_what_is_granted_at_once_is_one_entry(void **state)
{
    (void)state;
    struct bed bed = log_of(100, MEMORY);
    for (int i = 0; i < 10; i++) {
        assert_true(bed_take(&bed, 5, 3));
    }
    assert_int_equal(held(&bed), 1);
    assert_int_equal(memory[0].count, 30);
}

/* The oldest that it can have come from goes first, and nothing older than the window. */
static void test_give_takes_back_the_oldest(void **state)
{
    (void)state;
    struct bed bed = log_of(100, MEMORY);
    bed.rule.budget = 50;
    assert_true(bed_take(&bed, 0, 10));
    int64_t leased = bed_lease(&bed, 200 * MS, 20);
    int64_t window = bed.grant.window;
    assert_int_equal(leased, 20);
    assert_int_equal(window, START + 200 * MS);
    assert_true(bed_take(&bed, 250 * MS, 5));
    assert_int_equal(held(&bed), 3);
    bed_settle(&bed, 260 * MS, window, 8, 12);
    assert_int_equal(bed.grant.remaining, 100 - 10 - 8 - 5);
    assert_int_equal(held(&bed), 3);
    assert_int_equal(bed_look(&bed, SECOND), 100 - 8 - 5);
    assert_int_equal(bed_look(&bed, SECOND + 200 * MS), 100 - 5);
}

/* Returns how many are admitted within a minute, asked for at random moments up to 10 ms apart, and
 * checks each second that passed. */
static int64_t count_honest(struct bed *bed, uint64_t seed)
{
    static struct weir__log_entry admitted[20000];
    unsigned count = 0;
    int64_t sum = 0;
    for (int64_t at = 0; at < MINUTE; at += (int64_t)(weir__random(&seed) % 10000)) {
        int64_t cost = 1 + (int64_t)(weir__random(&seed) % 3);
        if (!bed_take(bed, at, cost)) {
            continue;
        }
        int64_t within = 0;
        sum += cost;
        admitted[count++] = (struct weir__log_entry){at, cost};
        for (unsigned i = count; i > 0 && admitted[i - 1].at_us > at - SECOND; i--) {
            within += admitted[i - 1].count;
        }
        assert_true(within <= bed->rule.capacity);
        assert_true(held(bed) <= bed->key.log.room);
    }
    return sum;
}

static void test_little_memory_is_late_and_never_early(void **state)
{
    (void)state;
    static const unsigned rooms[] = {1, 2, 5, 50};
    int64_t before = 0;
    for (size_t i = 0; i < sizeof rooms / sizeof rooms[0]; i++) {
        struct bed bed = log_of(100, rooms[i]);
        int64_t sum = count_honest(&bed, 1);
        assert_true(sum > before);
        before = sum;
    }
    struct bed bed = log_of(100, MEMORY);
    assert_true(count_honest(&bed, 1) > 59 * 100);
}

static void test_without_memory_nothing_is_admitted(void **state)
{
    (void)state;
    struct bed bed = log_of(100, 0);
    bed.rule.budget = 50;
    assert_false(bed_take(&bed, 0, 1));
    assert_int_equal(bed.grant.retry_after_us, SECOND);
    assert_int_equal(bed.grant.remaining, 0);
    assert_int_equal(bed_lease(&bed, 0, 10), 0);
    bed.rule.learn = true;
    struct weir__ask reset = bed_nothing;
    reset.reset = true;
    reset.exact = 1;
    bed_ask(&bed, SECOND, &reset);
    assert_int_equal(bed.grant.exact, 0);

    bed.key.log = (struct weir__log){.entries = memory, .room = MEMORY}; /* memory was found */
    assert_true(bed_take(&bed, 2 * SECOND, 1));
    assert_int_equal(bed.grant.remaining, 99);
}

/* A look at `at`, and the same numbers from an ask for nothing on a copy; the memory stays. */
static void look_and_compare(const struct bed *bed, int64_t at)
{
    static struct weir__log_entry before[MEMORY];
    static struct weir__log_entry other[MEMORY];
    struct bed looking = *bed;
    struct bed asking = *bed;
    struct weir__ask look = bed_nothing;
    look.peek = true;
    look.least = bed->rule.capacity;
    struct weir__ask ask = look;
    ask.peek = false;
    memcpy(before, memory, sizeof memory);
    memcpy(other, memory, sizeof memory);
    asking.key.log.entries = other;
    bed_ask(&asking, at, &ask);
    bed_ask(&looking, at, &look);
    assert_memory_equal(memory, before, sizeof memory);
    assert_memory_equal(&looking.grant, &asking.grant, sizeof looking.grant);
}

static void test_a_look_writes_to_no_memory(void **state)
{
    (void)state;
    struct bed bed = log_of(40, 40);
    for (int64_t i = 0; i < 60; i++) {
        (void)bed_take(&bed, 30 * MS * i, 1);
    }
    int64_t last = 59 * 30 * MS;
    look_and_compare(&bed, last);
    look_and_compare(&bed, last + 400 * MS);
    look_and_compare(&bed, last + 400 * DAY);  /* the key has gone */
    look_and_compare(&bed, last - SECOND);     /* a small step back: waited out */
    look_and_compare(&bed, last - SECOND - 1); /* every entry is ahead of the clock */
    bed.rule.learn = true;
    look_and_compare(&bed, last + 400 * DAY);
    bed.rule.version++;
    bed.rule.period_us = 3 * SECOND; /* for the same entries */
    look_and_compare(&bed, last);
    look_and_compare(&bed, last - 2 * SECOND);
    bed.rule.algorithm = WEIR__FIXED_WINDOW;
    look_and_compare(&bed, last);
    bed.rule.algorithm = WEIR__SLIDING_LOG;
    bed.rule.variant = 1; /* another log, and one of coarse moments */
    bed.rule.capacity = 2000;
    look_and_compare(&bed, last - SECOND - 1);
}

static void test_some_entries_ahead_of_the_clock(void **state)
{
    (void)state;
    struct bed bed = log_of(10, MEMORY);
    assert_true(bed_take(&bed, 0, 1));
    bed.rule.version++;
    bed.rule.period_us = 100 * MS; /* so that the clock may go back by less than the log is long */
    bed_ask(&bed, 1, &bed_nothing);
    for (int64_t i = 1; i < 5; i++) {
        assert_true(bed_take(&bed, i * 50 * MS, 1));
        look_and_compare(&bed, i * 50 * MS - 100 * MS - 1);
    }
    bed.key.expires_us = INT64_MAX;
    bed_ask(&bed, 99 * MS, &bed_nothing);
    assert_int_equal(bed.key.stamp_us, START + 99 * MS);
    assert_int_equal(bed.grant.reset_after_us, 100 * MS);
}

/* With the room that is said to be needed nothing is different from having more. */
static void test_the_need_is_enough(void **state)
{
    (void)state;
    static struct weir__log_entry more[MEMORY];
    static const int64_t capacities[] = {1, 7, 40, 1024, 1025, 1000000};
    for (size_t i = 0; i < sizeof capacities / sizeof capacities[0]; i++) {
        struct bed bed = log_of(capacities[i], 0);
        struct bed rich = bed;
        unsigned need = weir__global_log_need(&bed.key, &bed.rule);
        assert_in_range(need, 1, MEMORY);
        bed.key.log = (struct weir__log){.entries = memory, .room = need};
        rich.key.log = (struct weir__log){.entries = more, .room = MEMORY};
        bed.rule.learn = rich.rule.learn = true;
        uint64_t seed = i;
        int64_t step = weir__max(1, 2 * SECOND / weir__min(capacities[i], 1100));
        for (int64_t at = 0; at < 5 * SECOND;
             at += (int64_t)(weir__random(&seed) % (uint64_t)step)) {
            assert_int_equal(weir__global_log_need(&bed.key, &bed.rule), need);
            (void)bed_take(&bed, at, 1);
            (void)bed_take(&rich, at, 1);
            assert_memory_equal(&bed.grant, &rich.grant, sizeof bed.grant);
            assert_int_equal(held(&bed), held(&rich));
        }
    }
    struct bed bucket = bed_of(1, SECOND, 1, 0);
    assert_int_equal(weir__global_log_need(&bucket.key, &bucket.rule), 0);
}

/* 1024 moments of a microsecond, and 256 of each of ever longer parts of a period. */
static void test_a_log_has_an_end(void **state)
{
    (void)state;
    struct bed bed = log_of(1024, MEMORY);
    int64_t at = 0;
    unsigned most = 0;
    bool joined = false;
    for (int i = 0; i < 8; i++) {
        for (int k = 0; k < (i == 0 ? 1000 : 200); k++) {
            assert_true(bed_take(&bed, at, 1));
            most = held(&bed) > most ? held(&bed) : most;
            joined = joined || bed.key.level > held(&bed);
            at += i == 0 ? 1 : weir__div_up(bed.rule.period_us, 256);
        }
        bed.rule.version++;
        bed.rule.capacity = 1000000;
        bed.rule.period_us *= 10;
    }
    assert_int_equal(most, WEIR__LOG_BOUND);
    assert_true(joined);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens_come_back_as_they_went),
        cmocka_unit_test(test_what_is_granted_at_once_is_one_entry),
        cmocka_unit_test(test_give_takes_back_the_oldest),
        cmocka_unit_test(test_little_memory_is_late_and_never_early),
        cmocka_unit_test(test_without_memory_nothing_is_admitted),
        cmocka_unit_test(test_a_look_writes_to_no_memory),
        cmocka_unit_test(test_some_entries_ahead_of_the_clock),
        cmocka_unit_test(test_the_need_is_enough),
        cmocka_unit_test(test_a_log_has_an_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
