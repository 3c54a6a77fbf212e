/* SPDX-License-Identifier: MIT */
/* core/exchange: one ask at a time, what it says, and what becomes of its answer or its loss. */
#include "core/exchange.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "desk.h"

#define SECOND_US INT64_C(1000000)

static struct desk desk;

/* 2,000 a second, C 1,000, E 200: a first lease is there. */
static void begin_with_credit(void)
{
    desk_begin(&desk, 2000, 1000, 200);
    assert_int_equal(desk_miss(&desk), WEIR__MISS_TOUCH);
    assert_true(desk_sends(&desk));
    desk_run(&desk);
    desk_hear(&desk);
    assert_true(desk.bucket.credit > 0);
}

/* Somebody took all and wants more: the engine has an ask to send. */
static void exhaust(void)
{
    desk.bucket.credit = 0;
    (void)desk_miss(&desk);
    weir__engine_look(&desk.engine, &desk.bucket, desk.now_us);
}

static void test_a_miss_leads_to_a_lease(void **state)
{
    (void)state;
    begin_with_credit();
    assert_int_equal(desk.bucket.credit, desk.grant.lease);
    assert_int_equal(desk.engine.ledger.granted, desk.grant.lease);
    assert_int_equal(desk.engine.asks, 0);
    assert_int_equal(desk.bucket.heard, desk.grant.window);
}

static void test_one_ask_at_a_time(void **state)
{
    (void)state;
    desk_begin(&desk, 2000, 1000, 200);
    (void)desk_miss(&desk);
    assert_true(desk_sends(&desk));
    assert_int_equal(desk.command.deadline_us, desk.now_us + DESK_TIMEOUT_US);
    exhaust();
    desk.now_us += 1000;
    weir__engine_tick(&desk.engine, desk.now_us);
    assert_false(desk_sends(&desk));
    assert_int_equal(desk.engine.asks, 1);
}

/* What was spent travels with the next ask, once. */
static void test_settles_with_the_next_ask(void **state)
{
    (void)state;
    begin_with_credit();
    int64_t first = desk.grant.lease, window = desk.grant.window;
    exhaust();
    desk.now_us += 5000;
    weir__engine_look(&desk.engine, &desk.bucket, desk.now_us);
    assert_true(desk_sends(&desk));
    assert_int_equal(desk.command.ask.settle[0].window, window);
    assert_int_equal(desk.command.ask.settle[0].spent, first);
    assert_int_equal(desk.command.ask.heard, window);

    /* R8: lost, and so are the amounts: the next ask does not repeat them */
    weir__engine_fail(&desk.engine, &desk.bucket, desk.command.serial, WEIR__FAILED_LOST,
                      desk.now_us);
    assert_int_equal(desk.engine.counts.asks_lost, 1);
    assert_true(desk_sends(&desk));
    assert_int_equal(desk.command.ask.settle[0].window, WEIR__NO_WINDOW);
}

/* An answer counts once, and only to the ask in flight: not after its loss, not for the next
 * one. */
static void test_answers_to_other_asks(void **state)
{
    (void)state;
    desk_begin(&desk, 2000, 1000, 200);
    (void)desk_miss(&desk);
    assert_true(desk_sends(&desk));
    desk_run(&desk);
    uint64_t first = desk.command.serial;
    desk.now_us += DESK_TIMEOUT_US;
    weir__engine_fail(&desk.engine, &desk.bucket, first, WEIR__FAILED_LOST, desk.now_us);
    desk_hear(&desk);
    assert_int_equal(desk.bucket.credit, 0);

    assert_true(desk_sends(&desk)); /* another is on its way: the late answer is not to it */
    uint64_t second = desk.command.serial;
    weir__engine_answer(&desk.engine, &desk.bucket, first, &desk.grant, desk.now_us);
    weir__engine_answer(&desk.engine, &desk.bucket, 0, &desk.grant, desk.now_us);
    assert_int_equal(desk.bucket.credit, 0);
    assert_int_equal(desk.engine.asks, 1);
    desk_run(&desk);
    desk_hear(&desk);
    desk_hear(&desk);
    assert_int_equal(desk.bucket.credit, desk.grant.lease);
    assert_int_equal(desk.engine.counts.asks_answered, 1);
    weir__engine_fail(&desk.engine, &desk.bucket, second, WEIR__FAILED_LOST, desk.now_us);
    assert_int_equal(desk.engine.counts.asks_lost, 1);
}

/* A bucket of the same key, made anew in the same memory, does not hear what the old one asked. */
static void test_a_new_bucket_is_another(void **state)
{
    (void)state;
    desk_begin(&desk, 2000, 1000, 200);
    (void)desk_miss(&desk);
    assert_true(desk_sends(&desk));
    desk_run(&desk);
    uint64_t old = desk.command.serial;
    weir__engine_fail(&desk.engine, &desk.bucket, old, WEIR__FAILED_LOST, desk.now_us);
    desk_pass(&desk, 10 * SECOND_US);
    assert_false(weir__engine_holds(&desk.engine, &desk.bucket));
    weir__bucket_init(&desk.bucket, &desk.engine, &desk.limit, "key", 3);
    (void)desk_miss(&desk);
    assert_true(desk_sends(&desk));
    assert_true(desk.command.serial != old);
    weir__engine_answer(&desk.engine, &desk.bucket, old, &desk.grant, desk.now_us);
    assert_int_equal(desk.bucket.credit, 0);
}

/* R6: a lease lives from the send of its ask; one that died on the way is nothing. */
static void test_lease_from_the_send(void **state)
{
    (void)state;
    desk_begin(&desk, 2000, 1000, 200);
    (void)desk_miss(&desk);
    assert_true(desk_sends(&desk));
    desk_run(&desk);
    int64_t sent_us = desk.now_us;
    desk.now_us += 90000;
    desk_hear(&desk);
    assert_int_equal(weir__leases_next_us(&desk.bucket.leases), sent_us + DESK_WINDOW_US * 3 / 4);

    desk_begin(&desk, 2000, 1000, 200);
    (void)desk_miss(&desk);
    assert_true(desk_sends(&desk));
    desk_run(&desk);
    desk.now_us += DESK_WINDOW_US; /* the loop stood still */
    struct weir__waiter waiter;
    desk_wait(&desk, &waiter, 1, SECOND_US);
    desk_hear(&desk);
    assert_int_equal(desk.bucket.credit, 0);
    assert_int_equal(desk.engine.ledger.expired, desk.grant.lease);
    assert_int_equal(desk.engine.ledger.stranded, 0);
    assert_null(weir__engine_next_done(&desk.engine)); /* and nobody is served from it */
}

/* R9: an exact part that took longer than the timeout is void, and its waiter waits on. */
static void test_exact_part_too_late(void **state)
{
    (void)state;
    struct weir__waiter waiter;
    desk_begin(&desk, 10, 5, 0);
    desk_wait(&desk, &waiter, 1, SECOND_US);
    assert_true(desk_sends(&desk));
    desk_run(&desk);
    desk.now_us += DESK_TIMEOUT_US + 1;
    desk_hear(&desk);
    assert_null(weir__engine_next_done(&desk.engine));
    assert_int_equal(desk.engine.counts.exact_void, 1);
    assert_int_equal(desk.engine.counts.exact_spent, 0);
    assert_int_equal(desk.bucket.refund, 0); /* void: it does not go back either */
    desk_pass(&desk, SECOND_US);
    assert_true(desk_told(&desk, &waiter, WEIR__ALLOWED, WEIR__REASON_WITHIN_LIMIT));
}

/* What surely did not run keeps its refund; what may have run does not. */
static void test_refund_and_failure(void **state)
{
    (void)state;
    static const struct {
        enum weir__failure failure;
        int64_t kept;
    } rows[] = {{WEIR__FAILED_LOST, 0},
                {WEIR__FAILED_NOT_EXECUTED, 2},
                {WEIR__FAILED_REFUSED, 0},
                {WEIR__FAILED_KEY, 2}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct weir__waiter waiter, next;
        desk_begin(&desk, 10, 5, 0);
        desk_wait(&desk, &waiter, 3, 0);
        (void)desk_settle(&desk);
        assert_true(weir__engine_refund(&desk.engine, &desk.bucket, 2, desk.now_us));
        assert_false(weir__engine_refund(&desk.engine, &desk.bucket, 2, desk.now_us));
        desk_wait(&desk, &next, 1, SECOND_US);
        assert_true(desk_sends(&desk));
        assert_int_equal(desk.command.ask.refund, 2);
        weir__engine_fail(&desk.engine, &desk.bucket, desk.command.serial, rows[i].failure,
                          desk.now_us);
        assert_int_equal(desk.bucket.refund, rows[i].kept);
        assert_false(desk_sends(&desk) && rows[i].failure != WEIR__FAILED_LOST); /* not at once */
    }
}

/* A key that the store cannot serve: its bucket's policy decides, it is asked again now and then,
 * and the store counts as up. */
static void test_a_broken_key_is_the_failure_of_its_bucket(void **state)
{
    (void)state;
    struct weir__waiter waiter;
    desk_begin(&desk, 1000, 1000, 100);
    for (int i = 0; i < 10; i++) {
        desk_wait(&desk, &waiter, 1, SECOND_US);
        assert_int_equal(weir__bucket_is_broken(&desk.bucket), i > 0);
        if (i == 0) {
            assert_true(desk_sends(&desk));
        } else {
            assert_true(desk_told(&desk, &waiter, WEIR__UNAVAILABLE, WEIR__REASON_STORE_DOWN));
            assert_false(desk_sends(&desk));
            desk.now_us += SECOND_US / 2;
            weir__engine_tick(&desk.engine, desk.now_us);
            assert_true(desk_sends(&desk));
        }
        weir__engine_fail(&desk.engine, &desk.bucket, desk.command.serial, WEIR__FAILED_KEY,
                          desk.now_us);
        if (i == 0) {
            assert_true(desk_told(&desk, &waiter, WEIR__UNAVAILABLE, WEIR__REASON_STORE_DOWN));
        }
        assert_int_equal(desk.engine.outage.state, WEIR__STORE_UP);
        (void)desk_miss(&desk);
    }
    desk.now_us += SECOND_US / 2;
    weir__engine_tick(&desk.engine, desk.now_us);
    assert_true(desk_settle(&desk) > 0); /* it is mended */
    assert_false(weir__bucket_is_broken(&desk.bucket));
    desk_wait(&desk, &waiter, 1, SECOND_US);
    (void)desk_settle(&desk);
    assert_true(desk_told(&desk, &waiter, WEIR__ALLOWED, WEIR__REASON_WITHIN_LIMIT));
    assert_int_equal(desk.engine.outage.outages, 0);
}

/* The store is short: callers are told so from the gate, and nothing is asked before its time. */
static void test_scarce(void **state)
{
    (void)state;
    struct weir__waiter waiter;
    begin_with_credit();
    desk_wait(&desk, &waiter, 1000 - desk.grant.lease, 0); /* all the store has */
    (void)desk_settle(&desk);
    exhaust();
    (void)desk_settle(&desk);
    (void)desk_miss(&desk);
    assert_int_equal(desk_miss(&desk), WEIR__MISS_REFUSED);
    uint64_t asks = desk.engine.counts.asks_sent;
    int64_t until_us = desk.bucket.lease_after_us;
    assert_true(until_us > desk.now_us);
    desk_pass(&desk, until_us - desk.now_us - 1);
    assert_int_equal(desk.engine.counts.asks_sent, asks);
    (void)desk_miss(&desk);
    desk_pass(&desk, 20000);
    assert_true(desk.engine.counts.asks_sent > asks);
    assert_true(desk.bucket.credit > 0);
}

/* A refusal and a pace are of a rule: another one is asked for at once. */
static void test_another_rule_is_asked_at_once(void **state)
{
    (void)state;
    struct weir__waiter waiter;
    begin_with_credit();
    desk_wait(&desk, &waiter, 1000 - desk.grant.lease, 0);
    (void)desk_settle(&desk);
    exhaust();
    (void)desk_settle(&desk);
    (void)desk_miss(&desk);
    assert_int_equal(desk_miss(&desk), WEIR__MISS_REFUSED);
    uint64_t asks = desk.engine.counts.asks_sent;
    desk.bucket.limit->rule.version++;
    weir__engine_look(&desk.engine, &desk.bucket, desk.now_us);
    assert_int_not_equal(desk_miss(&desk), WEIR__MISS_REFUSED);
    assert_true(desk_sends(&desk));
    assert_int_equal(desk.engine.counts.asks_sent, asks + 1);
}

/* Ask after ask, no more than the engine may have on its way. */
static void test_asks_are_bounded(void **state)
{
    (void)state;
    static struct weir__bucket more[6];
    desk_begin(&desk, 2000, 1000, 200);
    for (int i = 0; i < 6; i++) {
        weir__bucket_init(&more[i], &desk.engine, &desk.limit, "k", 1);
        assert_int_equal(weir__bucket_miss(&more[i]), WEIR__MISS_TOUCH);
        weir__engine_touch(&desk.engine, &more[i], desk.now_us);
    }
    struct weir__command first;
    assert_true(weir__engine_next_command(&desk.engine, &first, desk.now_us));
    for (int i = 1; i < 4; i++) {
        assert_true(desk_sends(&desk));
        assert_ptr_equal(desk.command.bucket, &more[i]); /* in the order in which they came */
    }
    assert_false(desk_sends(&desk));
    weir__engine_fail(&desk.engine, first.bucket, first.serial, WEIR__FAILED_LOST, desk.now_us);
    assert_true(desk_sends(&desk));
    assert_ptr_equal(desk.command.bucket, &more[4]);
    assert_false(desk_sends(&desk));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_miss_leads_to_a_lease),
        cmocka_unit_test(test_one_ask_at_a_time),
        cmocka_unit_test(test_settles_with_the_next_ask),
        cmocka_unit_test(test_answers_to_other_asks),
        cmocka_unit_test(test_a_new_bucket_is_another),
        cmocka_unit_test(test_lease_from_the_send),
        cmocka_unit_test(test_exact_part_too_late),
        cmocka_unit_test(test_refund_and_failure),
        cmocka_unit_test(test_a_broken_key_is_the_failure_of_its_bucket),
        cmocka_unit_test(test_scarce),
        cmocka_unit_test(test_another_rule_is_asked_at_once),
        cmocka_unit_test(test_asks_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
