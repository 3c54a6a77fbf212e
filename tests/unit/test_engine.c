/* SPDX-License-Identifier: MIT */
/* core/engine: from the first caller to sleep, through outages, and to the close. */
#include "core/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "desk.h"

#define SECOND_US INT64_C(1000000)

static struct desk desk;

static void assert_asleep(void)
{
    assert_int_equal(weir__engine_next_us(&desk.engine), INT64_MAX);
    assert_int_equal(desk.bucket.gate, 0);
    assert_int_equal(desk.bucket.credit, 0);
    assert_int_equal(desk.engine.counts.watched, 0);
    assert_false(weir__engine_holds(&desk.engine, &desk.bucket));
}

/* Takes `per_ms` tokens each millisecond for `ms`; returns how many calls found too little. */
static unsigned take(int per_ms, int ms)
{
    unsigned missed = 0;
    for (int i = 0; i < ms; i++) {
        for (int n = 0; n < per_ms; n++) {
            if (!weir__bucket_take(&desk.bucket, 1)) {
                (void)desk_miss(&desk);
                missed++;
            }
        }
        (void)desk_settle(&desk);
        desk_pass(&desk, 1000);
    }
    return missed;
}

static void test_begins_asleep(void **state)
{
    (void)state;
    desk_begin(&desk, 2000, 1000, 200);
    assert_asleep();
    assert_false(desk_sends(&desk));
}

/* After the first, no call below the rate misses, and nobody rings. */
static void test_steady_callers_find_credit(void **state)
{
    (void)state;
    desk_begin(&desk, 20000, 20000, 2000);
    (void)take(10, 300);
    assert_int_equal(take(10, 2000), 0);
    assert_int_equal(desk.bucket.gate & WEIR__GATE_REFUSE, 0);
    /* a lease is to last a horizon, 50 ms, and there are two asks in one at most */
    assert_in_range(desk.engine.counts.asks_sent, 20, 100);
}

static void test_gives_back_and_sleeps(void **state)
{
    (void)state;
    desk_begin(&desk, 20000, 20000, 2000);
    (void)take(10, 300);
    assert_true(desk.bucket.credit > 0);
    desk_pass(&desk, SECOND_US);
    assert_asleep();
    assert_int_equal(desk.store.out_cur + desk.store.out_prev, 0);
    const struct weir__ledger *ledger = &desk.engine.ledger;
    assert_true(ledger->given_back > 0);
    assert_int_equal(ledger->granted, ledger->spent + ledger->given_back + ledger->expired);

    assert_int_equal(desk_miss(&desk), WEIR__MISS_TOUCH); /* and wakes again */
    assert_int_equal(desk_settle(&desk), 1);
    assert_true(desk.bucket.credit > 0);
}

/* Thirty calls while three syncs happen count thirty times, no more and no less. */
static void test_nothing_is_counted_twice(void **state)
{
    (void)state;
    desk_begin(&desk, 1, 1000, 100);
    int taken = 0;
    for (int i = 0; taken < 30; i++) {
        assert_true(i < 1000);
        if (weir__bucket_take(&desk.bucket, 1)) {
            taken++;
        } else {
            (void)desk_miss(&desk);
        }
        desk_pass(&desk, 2000);
        (void)desk_settle(&desk);
    }
    desk_pass(&desk, 5 * SECOND_US);
    assert_asleep();
    assert_true(desk.engine.counts.asks_sent >= 3);
    assert_int_equal(desk.engine.ledger.spent, 30);
    int64_t level = desk.store.level / desk.store.rule.units_per_token;
    assert_in_range(level, 1000 - 30, 1000 - 30 + 5); /* and what has accrued */
}

/* An answer arrives between a caller's try and its miss: nobody is left waiting for what is
 * there. */
static void test_filled_while_a_caller_fails(void **state)
{
    (void)state;
    for (int order = 0; order < 2; order++) {
        desk_begin(&desk, 2000, 1000, 200);
        (void)desk_miss(&desk);
        assert_true(desk_sends(&desk));
        desk_run(&desk);
        assert_false(weir__bucket_take(&desk.bucket, 1)); /* too early */
        if (order == 0) {
            desk_hear(&desk);
            (void)desk_miss(&desk);
        } else {
            assert_int_equal(desk_miss(&desk), WEIR__MISS_COLD);
            desk_hear(&desk);
        }
        assert_true(weir__bucket_take(&desk.bucket, 1)); /* the next call, also of the loser */
    }
}

/* A caller misses in the very moment in which the loop lets the bucket sleep: one of the two sees
 * it. */
static void test_miss_while_falling_asleep(void **state)
{
    (void)state;
    desk_begin(&desk, 2000, 1000, 200);
    (void)take(1, 50);
    for (int i = 0; i < 1000 && (desk.bucket.gate & WEIR__GATE_WATCHED) == 0; i++) {
        desk_pass(&desk, 1000);
        weir__engine_look(&desk.engine, &desk.bucket, desk.now_us);
    }
    desk.bucket.credit = 0; /* the last token goes while the loop is near, */
    assert_int_equal(desk_miss(&desk), WEIR__MISS_COLD); /* and nobody has to ring */
    desk_pass(&desk, 50000);
    assert_true(desk.bucket.credit > 0);
}

static void go_down(void)
{
    weir__engine_linked(&desk.engine, false, desk.now_us);
    assert_int_equal(desk.engine.outage.state, WEIR__STORE_DOWN);
}

static void come_back(void)
{
    weir__engine_linked(&desk.engine, true, desk.now_us);
    (void)desk_settle(&desk);
}

/* Whatever the policy answers meanwhile, who comes first after the outage carries the probe. */
static void test_an_outage_ends(void **state)
{
    (void)state;
    static const enum weir__outage_policy policies[] = {WEIR__OUTAGE_CLOSED, WEIR__OUTAGE_OPEN,
                                                        WEIR__OUTAGE_LOCAL};
    for (size_t i = 0; i < 3; i++) {
        for (int64_t budget = 0; budget <= 5; budget += 5) {
            struct weir__waiter before, first, second;
            desk_begin(&desk, 10, 5, budget);
            desk.limit.outage = policies[i];
            desk_wait(&desk, &before, 5, 0);
            go_down();
            come_back();
            assert_true(desk.engine.outage.state != WEIR__STORE_DOWN);
            desk_wait(&desk, &first, 1, 0); /* may be answered by the policy, but has asked */
            desk_pass(&desk, 1000);
            assert_int_equal(desk.engine.outage.state, WEIR__STORE_UP);
            desk_wait(&desk, &second, 1, SECOND_US);
            desk_pass(&desk, SECOND_US);
            assert_true(desk_told(&desk, &second, WEIR__ALLOWED, WEIR__REASON_WITHIN_LIMIT));
        }
    }
}

static void test_closed_policy(void **state)
{
    (void)state;
    struct weir__waiter before, during;
    desk_begin(&desk, 10, 5, 0);
    desk_wait(&desk, &before, 1, SECOND_US);
    assert_true(desk_sends(&desk));
    go_down();
    weir__engine_fail(&desk.engine, &desk.bucket, desk.command.serial, WEIR__FAILED_LOST,
                      desk.now_us);
    weir__engine_tick(&desk.engine, desk.now_us);
    assert_true(desk_told(&desk, &before, WEIR__UNAVAILABLE, WEIR__REASON_STORE_DOWN));
    desk_wait(&desk, &during, 1, SECOND_US);
    assert_true(desk_told(&desk, &during, WEIR__UNAVAILABLE, WEIR__REASON_STORE_DOWN));
    assert_false(desk_sends(&desk));
}

static void test_open_policy(void **state)
{
    (void)state;
    struct weir__waiter waiter;
    desk_begin(&desk, 10, 5, 0);
    desk.limit.outage = WEIR__OUTAGE_OPEN;
    go_down();
    desk_wait(&desk, &waiter, 3, 0);
    assert_true(desk_told(&desk, &waiter, WEIR__ALLOWED, WEIR__REASON_STORE_DOWN));
    assert_int_equal(desk.engine.counts.outage_spent, 3);
}

/* Four processes with a quarter each, unlimited demand, five seconds: together no more than the
 * rate, no burst at the start and none when the store is back. */
static void test_local_policy(void **state)
{
    (void)state;
    desk_begin(&desk, 100, 100, 10);
    desk.limit.outage = WEIR__OUTAGE_LOCAL;
    desk.limit.outage_share_ppm = WEIR__PPM / 4;
    go_down();
    int64_t taken = 0;
    for (int ms = 0; ms < 5000; ms++) {
        while (weir__bucket_take(&desk.bucket, 1)) {
            taken++;
        }
        (void)desk_miss(&desk);
        desk_pass(&desk, 1000);
        assert_true(taken <= 1 + 25 * (ms + 1) / 1000);
    }
    assert_in_range(taken, 120, 125);
    assert_int_equal(desk.engine.counts.outage_spent, taken + desk.bucket.credit);
    come_back();
    desk_pass(&desk, 1000);
    assert_int_equal(desk.engine.outage.state, WEIR__STORE_UP);
    assert_in_range(desk.bucket.credit, 0, 10);
}

/* A debt to the store outlives an outage, and is paid when it is over, though nobody calls. */
static void test_refund_through_an_outage(void **state)
{
    (void)state;
    struct weir__waiter waiter;
    desk_begin(&desk, 1, 5, 0);
    desk_wait(&desk, &waiter, 3, 0);
    (void)desk_settle(&desk);
    go_down();
    assert_true(weir__engine_refund(&desk.engine, &desk.bucket, 2, desk.now_us));
    desk_pass(&desk, 3500000);
    assert_int_equal(desk.bucket.refund, 2);
    come_back();
    desk_pass(&desk, SECOND_US);
    assert_int_equal(desk.bucket.refund, 0);
    assert_int_equal(desk.grant.refunded, 2);
    assert_asleep();
}

static void test_close_gives_back(void **state)
{
    (void)state;
    struct weir__waiter waiter, late;
    desk_begin(&desk, 20000, 20000, 2000);
    (void)take(10, 100);
    int64_t held = desk.bucket.credit;
    desk_wait(&desk, &waiter, 20000, SECOND_US);
    weir__engine_close(&desk.engine, desk.now_us);
    assert_true(desk_told(&desk, &waiter, WEIR__UNAVAILABLE, WEIR__REASON_CLOSED));
    assert_true(desk_sends(&desk));
    assert_int_equal(desk.command.ask.want, 0);
    assert_int_equal(desk.command.ask.exact, 0);
    assert_int_equal(desk.command.ask.settle[0].back + desk.command.ask.settle[1].back, held);
    desk_run(&desk);
    desk_hear(&desk);
    assert_false(desk_sends(&desk));
    assert_int_equal(desk.engine.asks, 0);
    assert_int_equal(desk.store.out_cur + desk.store.out_prev, 0);
    desk_wait(&desk, &late, 1, SECOND_US);
    assert_true(desk_told(&desk, &late, WEIR__UNAVAILABLE, WEIR__REASON_CLOSED));
}

/* The close comes while an ask is on its way: its lease goes back with another. */
static void test_close_with_an_ask_on_its_way(void **state)
{
    (void)state;
    desk_begin(&desk, 2000, 1000, 200);
    (void)desk_miss(&desk);
    assert_true(desk_sends(&desk));
    weir__engine_close(&desk.engine, desk.now_us);
    assert_false(desk_sends(&desk));
    desk_run(&desk);
    int64_t lease = desk.grant.lease;
    desk_hear(&desk);
    assert_true(desk_sends(&desk));
    assert_int_equal(desk.command.ask.settle[0].back, lease);
    desk_run(&desk);
    desk_hear(&desk);
    assert_false(desk_sends(&desk));
    assert_int_equal(desk.engine.asks, 0);
    assert_int_equal(desk.store.out_cur, 0);
}

/* The first process does not get all: half of what is free, then half of the rest, and so on. */
static void test_one_process_does_not_hoard(void **state)
{
    (void)state;
    int64_t out = 0;
    desk_begin(&desk, 1000, 1000, 100);
    for (int i = 0; i < 5; i++) {
        struct weir__global store = desk.store;
        desk_begin(&desk, 1000, 1000, 100); /* another process, the same store */
        desk.store = store;
        (void)desk_miss(&desk);
        assert_true(desk_sends(&desk));
        desk.command.ask.want = 1000;
        desk_run(&desk);
        assert_in_range(desk.grant.lease, 1, (uintmax_t)(100 - out + 1) / 2);
        out += desk.grant.lease;
    }
    assert_true(out < 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_begins_asleep),
        cmocka_unit_test(test_steady_callers_find_credit),
        cmocka_unit_test(test_gives_back_and_sleeps),
        cmocka_unit_test(test_nothing_is_counted_twice),
        cmocka_unit_test(test_filled_while_a_caller_fails),
        cmocka_unit_test(test_miss_while_falling_asleep),
        cmocka_unit_test(test_an_outage_ends),
        cmocka_unit_test(test_closed_policy),
        cmocka_unit_test(test_open_policy),
        cmocka_unit_test(test_local_policy),
        cmocka_unit_test(test_refund_through_an_outage),
        cmocka_unit_test(test_close_gives_back),
        cmocka_unit_test(test_close_with_an_ask_on_its_way),
        cmocka_unit_test(test_one_process_does_not_hoard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
