/* SPDX-License-Identifier: MIT */
/* core/queue: who joins the line, who is served, who is told no, when, and once. */
#include "core/queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "desk.h"

#define SECOND_US INT64_C(1000000)

static struct desk desk;
static struct weir__waiter a, b, c;

static void nobody_waits(void)
{
    assert_null(weir__engine_next_done(&desk.engine));
    assert_int_equal(desk.engine.waiters, 0);
    assert_int_equal(desk.bucket.waiting, 0);
    assert_int_equal(desk.bucket.gate & WEIR__GATE_QUEUED, 0);
    assert_null(weir__heap_min(&desk.engine.deadlines));
}

static void test_served_exactly(void **state)
{
    (void)state;
    desk_begin(&desk, 10, 5, 0);
    desk_wait(&desk, &a, 2, 0);
    assert_int_equal(desk.bucket.gate & WEIR__GATE_QUEUED, WEIR__GATE_QUEUED);
    assert_int_equal(desk_settle(&desk), 1);
    assert_true(desk_told(&desk, &a, WEIR__ALLOWED, WEIR__REASON_WITHIN_LIMIT));
    assert_int_equal(desk.engine.counts.exact_spent, 2);
    nobody_waits();
}

static void test_refused_before_anything_is_asked(void **state)
{
    (void)state;
    desk_begin(&desk, 10, 5, 0);
    desk_wait(&desk, &a, 6, SECOND_US);
    assert_true(desk_told(&desk, &a, WEIR__DENIED, WEIR__REASON_COST_ABOVE_CAPACITY));
    assert_int_equal(a.retry_after_us, WEIR__TIME_NEVER);
    assert_int_equal(desk_settle(&desk), 0);
    nobody_waits();
}

static void test_too_many_wait(void **state)
{
    (void)state;
    static struct weir__waiter crowd[8];
    desk_begin(&desk, 10, 5, 0);
    for (int i = 0; i < 8; i++) {
        desk_wait(&desk, &crowd[i], 1, SECOND_US);
    }
    desk_wait(&desk, &a, 1, SECOND_US);
    assert_true(desk_told(&desk, &a, WEIR__UNAVAILABLE, WEIR__REASON_BUSY));
    assert_int_equal(desk.engine.waiters, 8);
}

/* All at once, as far as the store may have tokens; the others are told when. */
static void test_one_ask_for_many(void **state)
{
    (void)state;
    static struct weir__waiter crowd[7];
    desk_begin(&desk, 10, 5, 0);
    for (int i = 0; i < 7; i++) {
        desk_wait(&desk, &crowd[i], 1, 0);
    }
    assert_true(desk_sends(&desk));
    assert_int_equal(desk.command.ask.exact, 5);
    desk_run(&desk);
    desk_hear(&desk);
    assert_true(desk_settle(&desk) <= 2);
    for (int i = 0; i < 5; i++) {
        assert_true(desk_told(&desk, &crowd[i], WEIR__ALLOWED, WEIR__REASON_WITHIN_LIMIT));
    }
    for (int i = 5; i < 7; i++) {
        assert_true(desk_told(&desk, &crowd[i], WEIR__DENIED, WEIR__REASON_OVER_LIMIT));
        assert_in_range(crowd[i].retry_after_us, 1, 200000); /* a tenth of a second a token */
    }
    nobody_waits();
}

/* A waiter who can wait is not told no, and gets its token when it is there. */
static void test_waits_for_tokens(void **state)
{
    (void)state;
    desk_begin(&desk, 10, 5, 0);
    desk_wait(&desk, &a, 5, 0);
    (void)desk_settle(&desk);
    assert_true(desk_told(&desk, &a, WEIR__ALLOWED, WEIR__REASON_WITHIN_LIMIT));
    desk_wait(&desk, &b, 1, SECOND_US);
    (void)desk_settle(&desk);
    assert_null(weir__engine_next_done(&desk.engine));
    desk_pass(&desk, 99999);
    assert_null(weir__engine_next_done(&desk.engine));
    desk_pass(&desk, 200000);
    assert_true(desk_told(&desk, &b, WEIR__ALLOWED, WEIR__REASON_WITHIN_LIMIT));
    nobody_waits();
}

/* Certain, so told at once: the tokens come later than it can wait. */
static void test_certain_refusal(void **state)
{
    (void)state;
    desk_begin(&desk, 10, 5, 0);
    desk_wait(&desk, &a, 5, 0);
    (void)desk_settle(&desk);
    (void)weir__engine_next_done(&desk.engine);
    desk_wait(&desk, &b, 3, 299999);
    (void)desk_settle(&desk);
    assert_true(desk_told(&desk, &b, WEIR__DENIED, WEIR__REASON_OVER_LIMIT));
    assert_int_equal(b.retry_after_us, 300000);

    /* and the next who wants as much is not even asked for */
    desk_wait(&desk, &c, 3, 1000);
    assert_true(desk_told(&desk, &c, WEIR__DENIED, WEIR__REASON_OVER_LIMIT));
    assert_int_equal(c.retry_after_us, 300000);
    nobody_waits();
}

/* The line is kept: a small cost behind a large one waits for it. */
static void test_no_overtaking(void **state)
{
    (void)state;
    desk_begin(&desk, 10, 5, 0);
    desk_wait(&desk, &a, 3, 0);
    (void)desk_settle(&desk);
    (void)weir__engine_next_done(&desk.engine);
    desk_wait(&desk, &b, 4, SECOND_US);
    desk_wait(&desk, &c, 1, SECOND_US);
    (void)desk_settle(&desk);
    assert_null(weir__engine_next_done(&desk.engine));
    desk_pass(&desk, SECOND_US);
    assert_true(desk_told(&desk, &b, WEIR__ALLOWED, WEIR__REASON_WITHIN_LIMIT));
    assert_true(desk_told(&desk, &c, WEIR__ALLOWED, WEIR__REASON_WITHIN_LIMIT));
    nobody_waits();
}

/* Together they are too much for what the store has, and no less is there for each: the storm of
 * equal asks must not be. */
static void test_a_refused_sum_is_not_asked_again(void **state)
{
    (void)state;
    static struct weir__waiter crowd[4];
    desk_begin(&desk, 10, 10, 0);
    desk_wait(&desk, &a, 7, 0);
    (void)desk_settle(&desk);
    (void)weir__engine_next_done(&desk.engine);
    for (int i = 0; i < 4; i++) { /* 2 + 2, of 3 */
        desk_wait(&desk, &crowd[i], 2, 0);
    }
    assert_true(desk_settle(&desk) <= 4);
    assert_true(desk_told(&desk, &crowd[0], WEIR__ALLOWED, WEIR__REASON_WITHIN_LIMIT));
    for (int i = 1; i < 4; i++) {
        assert_true(desk_told(&desk, &crowd[i], WEIR__DENIED, WEIR__REASON_OVER_LIMIT));
    }
    nobody_waits();
}

/* R12: reserved ahead, and let go when due by our clock, with a margin. */
static void test_reserved(void **state)
{
    (void)state;
    desk_begin(&desk, 10, 5, 0);
    desk.limit.rule.max_wait_us = SECOND_US;
    desk_wait(&desk, &a, 5, 0);
    (void)desk_settle(&desk);
    (void)weir__engine_next_done(&desk.engine);
    desk_wait(&desk, &b, 5, SECOND_US);
    assert_true(desk_sends(&desk));
    assert_true(desk.command.ask.wait_us > 0 && desk.command.ask.wait_us < SECOND_US);
    desk_run(&desk);
    assert_int_equal(desk.grant.wait_us, 500000);
    desk_hear(&desk);
    assert_true(b.reserved);
    desk_pass(&desk, 500000 + 500000 / 32);
    assert_null(weir__engine_next_done(&desk.engine));
    desk_pass(&desk, 1);
    assert_true(desk_told(&desk, &b, WEIR__ALLOWED, WEIR__REASON_WITHIN_LIMIT));
    nobody_waits();
}

/* The answer takes its time, and who reserved must still go by its timeout: whatever it is, at a
 * steady 20 ms to the store and back, a waiter is let go in time or told no. */
static void test_reserved_in_time(void **state)
{
    (void)state;
    static struct weir__waiter crowd[20];
    const int64_t rtt_us = 20000;
    desk_begin(&desk, 100, 5, 0);
    desk.limit.rule.max_wait_us = SECOND_US;
    for (int i = 0; i < 40; i++) { /* so that the way is known */
        desk_wait(&desk, &a, 0, 0);
        assert_true(desk_sends(&desk));
        desk_run(&desk);
        desk.now_us += rtt_us;
        desk_hear(&desk);
        assert_true(desk_told(&desk, &a, WEIR__ALLOWED, WEIR__REASON_WITHIN_LIMIT));
    }
    int reserved = 0;
    for (int i = 0; i < 20; i++) { /* 50 ms each, one after the other */
        desk_wait(&desk, &crowd[i], 5, 120000 + i * 1000);
        if (!desk_sends(&desk)) {
            continue;
        }
        desk_run(&desk);
        desk.now_us += rtt_us;
        desk_hear(&desk);
        if (crowd[i].reserved) {
            reserved++;
            assert_true(crowd[i].deadline.key <= crowd[i].until_us);
        }
        desk_pass(&desk, 1000);
    }
    assert_true(reserved > 3);
}

/* The store's capacity is 2, ours still 5. */
static void begin_with_an_old_limit(void)
{
    desk_begin(&desk, 10, 5, 0);
    desk.limit.rule.version = 2;
    desk.limit.rule.capacity = desk.limit.rule.initial = 2;
    desk_wait(&desk, &a, 1, 0);
    (void)desk_settle(&desk);
    assert_true(desk_told(&desk, &a, WEIR__ALLOWED, WEIR__REASON_WITHIN_LIMIT));
    desk.limit.rule.version = 1;
    desk.limit.rule.capacity = desk.limit.rule.initial = 5;
}

/* What is too much for ever is told so, and who is behind it is served. */
static void test_above_the_capacity_in_force(void **state)
{
    (void)state;
    begin_with_an_old_limit();
    desk_wait(&desk, &b, 4, SECOND_US);
    desk_wait(&desk, &c, 1, SECOND_US);
    desk_pass(&desk, SECOND_US);
    assert_true(desk_told(&desk, &b, WEIR__DENIED, WEIR__REASON_COST_ABOVE_CAPACITY));
    assert_int_equal(b.retry_after_us, WEIR__TIME_NEVER);
    assert_true(desk_told(&desk, &c, WEIR__ALLOWED, WEIR__REASON_WITHIN_LIMIT));
    nobody_waits();
}

/* What is too much only together is asked for one by one. */
static void test_together_above_the_capacity_in_force(void **state)
{
    (void)state;
    begin_with_an_old_limit();
    desk.now_us += 100000; /* full again, in the last microsecond in which it is remembered */
    desk_wait(&desk, &b, 0, 0);
    (void)desk_settle(&desk);
    assert_true(desk_told(&desk, &b, WEIR__ALLOWED, WEIR__REASON_WITHIN_LIMIT));
    assert_int_equal(desk.grant.remaining, 2);
    assert_true(desk_told(&desk, &b, WEIR__ALLOWED, WEIR__REASON_WITHIN_LIMIT));
    desk_wait(&desk, &b, 2, SECOND_US);
    desk_wait(&desk, &c, 1, SECOND_US);
    assert_true(desk_sends(&desk));
    assert_int_equal(desk.command.ask.exact, 3);
    desk_run(&desk);
    assert_int_equal(desk.grant.retry_after_us, -1);
    desk_hear(&desk);
    desk_pass(&desk, SECOND_US);
    assert_true(desk_told(&desk, &b, WEIR__ALLOWED, WEIR__REASON_WITHIN_LIMIT));
    assert_true(desk_told(&desk, &c, WEIR__ALLOWED, WEIR__REASON_WITHIN_LIMIT));
    nobody_waits();
}

/* Nobody answers: each waiter hears by its deadline, and the store's late tokens go back. */
static void test_told_by_the_deadline(void **state)
{
    (void)state;
    desk_begin(&desk, 10, 5, 0);
    desk_wait(&desk, &a, 1, 0);
    assert_true(desk_sends(&desk));
    desk.now_us = a.answer_us - 1;
    weir__engine_tick(&desk.engine, desk.now_us);
    assert_null(weir__engine_next_done(&desk.engine));
    assert_int_equal(weir__engine_next_us(&desk.engine), a.answer_us);
    desk.now_us = a.answer_us;
    weir__engine_tick(&desk.engine, desk.now_us);
    assert_true(desk_told(&desk, &a, WEIR__UNAVAILABLE, WEIR__REASON_DEADLINE));
    nobody_waits();
    desk_run(&desk);
    desk_hear(&desk); /* in time, but for nobody */
    assert_int_equal(desk.bucket.refund, 1);
    assert_int_equal(desk.engine.counts.exact_spent, 0);
}

/* A cost of nothing is a question. */
static void test_looks(void **state)
{
    (void)state;
    desk_begin(&desk, 10, 5, 0);
    desk_wait(&desk, &a, 0, 0);
    assert_true(desk_sends(&desk));
    assert_true(desk.command.ask.peek);
    desk_run(&desk);
    desk_hear(&desk);
    assert_true(desk_told(&desk, &a, WEIR__ALLOWED, WEIR__REASON_WITHIN_LIMIT));
    assert_false(desk.store.exists);
    desk_wait(&desk, &b, 5, 0);
    (void)desk_settle(&desk);
    (void)weir__engine_next_done(&desk.engine);
    desk_wait(&desk, &c, 0, 0);
    (void)desk_settle(&desk);
    assert_true(desk_told(&desk, &c, WEIR__DENIED, WEIR__REASON_OVER_LIMIT));
    assert_int_equal(c.retry_after_us, 100000);
    nobody_waits();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_served_exactly),
        cmocka_unit_test(test_refused_before_anything_is_asked),
        cmocka_unit_test(test_too_many_wait),
        cmocka_unit_test(test_one_ask_for_many),
        cmocka_unit_test(test_waits_for_tokens),
        cmocka_unit_test(test_certain_refusal),
        cmocka_unit_test(test_no_overtaking),
        cmocka_unit_test(test_a_refused_sum_is_not_asked_again),
        cmocka_unit_test(test_reserved),
        cmocka_unit_test(test_reserved_in_time),
        cmocka_unit_test(test_above_the_capacity_in_force),
        cmocka_unit_test(test_together_above_the_capacity_in_force),
        cmocka_unit_test(test_told_by_the_deadline),
        cmocka_unit_test(test_looks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
