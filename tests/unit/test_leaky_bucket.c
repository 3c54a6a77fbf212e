/* SPDX-License-Identifier: MIT */
/*
 * The leaky bucket by hand, as a queue and as a meter.  That the script counts alike is shown by
 * the tests in tests/script.
 */
#include "core/global.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/num.h"

#include "bed.h"

/* Slots of 100 ms. */
static struct bed queue_of(int64_t capacity, int64_t budget)
{
    struct bed bed = bed_of(10, SECOND, capacity, budget);
    bed.rule.algorithm = WEIR__LEAKY_BUCKET;
    bed.rule.variant = WEIR__VARIANT_QUEUE;
    bed.rule.max_wait_us = MINUTE;
    bed.rule.window_us = SECOND;
    return bed;
}

/* Returns how long the caller has to wait for its slot, or -1. */
static int64_t queue_at(struct bed *bed, int64_t at, int64_t patience)
{
    struct weir__ask ask = bed_nothing;
    ask.exact = 1;
    ask.wait_us = patience;
    bed_ask(bed, at, &ask);
    return bed->grant.exact == 1 ? bed->grant.wait_us : -1;
}

static void test_slots_leave_at_the_rate(void **state)
{
    (void)state;
    struct bed bed = queue_of(5, 0);
    for (int64_t i = 0; i < 5; i++) {
        assert_int_equal(queue_at(&bed, 0, SECOND), i * 100 * MS);
    }
    assert_int_equal(queue_at(&bed, 0, SECOND), -1); /* the queue is full */
    assert_int_equal(bed.grant.retry_after_us, 100 * MS);
    assert_int_equal(queue_at(&bed, 100 * MS, SECOND), 400 * MS);
    assert_int_equal(queue_at(&bed, 10 * SECOND, 0), 0); /* it does not save up */
    assert_int_equal(queue_at(&bed, 10 * SECOND, SECOND), 100 * MS);
}

static void test_who_cannot_wait_is_refused(void **state)
{
    (void)state;
    struct bed bed = queue_of(50, 0);
    for (int64_t i = 0; i < 10; i++) {
        assert_int_equal(queue_at(&bed, 0, SECOND), i * 100 * MS);
    }
    assert_int_equal(queue_at(&bed, 0, 900 * MS), -1);
    assert_int_equal(bed.grant.retry_after_us, 100 * MS);
    assert_int_equal(queue_at(&bed, 100 * MS, 900 * MS), 900 * MS);
    bed.rule.version++;
    bed.rule.max_wait_us = 500 * MS;
    assert_int_equal(queue_at(&bed, 100 * MS, MINUTE), -1);
    assert_int_equal(bed.grant.retry_after_us, 500 * MS);
}

static void test_a_lease_is_slots_in_a_row(void **state)
{
    (void)state;
    struct bed bed = queue_of(50, 20);
    assert_int_equal(queue_at(&bed, 0, 0), 0);
    assert_int_equal(bed_lease(&bed, 0, 4), 4);
    assert_int_equal(bed.grant.first_us, 100 * MS);
    assert_int_equal(bed.grant.spread_us, 400 * MS);
    assert_int_equal(queue_at(&bed, 0, SECOND), 500 * MS);
    assert_int_equal(bed.grant.remaining, 44);
}

/* A lease of a second, lives for 3/4 of it. */
static void test_a_lease_ends_with_a_slot_that_is_due_in_its_life(void **state)
{
    (void)state;
    struct bed bed = queue_of(50, 40);
    assert_int_equal(bed_lease(&bed, 0, 18),
                     4); /* 18 and 9 would be too many; due at 0 to 300 ms */
    assert_int_equal(bed.grant.spread_us, 400 * MS);
    assert_int_equal(queue_at(&bed, 0, SECOND), 400 * MS);
    assert_int_equal(bed_lease(&bed, 0, 4), 2);
    assert_int_equal(bed_lease(&bed, 0, 2), 1);
    assert_int_equal(bed.grant.first_us, 700 * MS);
    assert_int_equal(bed_lease(&bed, 0, 1), 0);
    assert_int_equal(bed.grant.first_us, 0);
    assert_int_equal(bed.grant.spread_us, 0);
    assert_int_equal(bed.grant.remaining, 50 - 8);
}

/* One a second: the slot that is due now is a lease, though the next comes after its life. */
static void test_a_slow_queue_leases_what_is_due(void **state)
{
    (void)state;
    struct bed bed = queue_of(5, 1);
    struct bed slow = bed_of(1, SECOND, 5, 1);
    bed.rule.units_per_tick = slow.rule.units_per_tick;
    bed.rule.units_per_token = slow.rule.units_per_token;
    bed.rule.tick_us = slow.rule.tick_us;
    assert_int_equal(bed_lease(&bed, 0, 1), 1);
    assert_int_equal(bed.grant.first_us, 0);
    assert_int_equal(bed.grant.spread_us, SECOND);
}

static void test_a_slot_cannot_be_given_back(void **state)
{
    (void)state;
    struct bed bed = queue_of(50, 20);
    assert_int_equal(bed_lease(&bed, 0, 4), 4);
    bed_settle(&bed, 0, bed.grant.window, 1, 3);
    assert_int_equal(bed.grant.outstanding, 0);
    assert_int_equal(bed.grant.remaining, 46);
    struct weir__ask refund = bed_nothing;
    refund.refund = 1;
    refund.since = bed.grant.start_us;
    bed_ask(&bed, 0, &refund);
    assert_int_equal(bed.grant.refunded, 0);
    assert_int_equal(bed.grant.remaining, 46);
}

/* Water is what the token bucket lacks. */
static void test_a_meter_is_a_token_bucket(void **state)
{
    (void)state;
    struct bed bucket = bed_of(10, SECOND, 20, 8);
    struct bed meter = bucket;
    meter.rule.algorithm = WEIR__LEAKY_BUCKET;
    uint64_t seed = 1;
    unsigned admitted = 0;
    unsigned refused = 0;
    for (int64_t at = 0; at < MINUTE; at += (int64_t)(weir__random(&seed) % 500000)) {
        int64_t cost = (int64_t)(weir__random(&seed) % 8);
        struct weir__ask ask = bed_nothing;
        ask.exact = cost;
        ask.want = 7 - cost;
        bed_ask(&bucket, at, &ask);
        bed_ask(&meter, at, &ask);
        assert_memory_equal(&meter.grant, &bucket.grant, sizeof meter.grant);
        admitted += bucket.grant.exact > 0;
        refused += bucket.grant.exact < cost;
    }
    assert_true(admitted > 10 && refused > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slots_leave_at_the_rate),
        cmocka_unit_test(test_who_cannot_wait_is_refused),
        cmocka_unit_test(test_a_lease_is_slots_in_a_row),
        cmocka_unit_test(test_a_lease_ends_with_a_slot_that_is_due_in_its_life),
        cmocka_unit_test(test_a_slow_queue_leases_what_is_due),
        cmocka_unit_test(test_a_slot_cannot_be_given_back),
        cmocka_unit_test(test_a_meter_is_a_token_bucket),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
