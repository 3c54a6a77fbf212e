/* SPDX-License-Identifier: MIT */
/* core/queue: who joins the line, who is served, who is told no, when, and once. */
#include "core/queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "core/rule.h"

#include "desk.h"

#define SECOND_US INT64_C(1000000)
#define MINUTE_US (60 * SECOND_US)

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

/* The store's tokens go to somebody else, `step_us` apart, until there are none; the last time is
 * now. */
static void others_take(int64_t tokens, int64_t step_us)
{
    struct weir__ask ask = {.least = 1,
                            .exact = 1,
                            .wait_us = MINUTE_US,
                            .heard = WEIR__NO_WINDOW,
                            .settle = {{.window = WEIR__NO_WINDOW}, {.window = WEIR__NO_WINDOW}}};
    for (int64_t i = 0; i < tokens; i++) {
        desk.now_us += step_us;
        desk.command.rule = desk.limit.rule;
        desk.command.ask = ask;
        desk_run(&desk);
        assert_int_equal(desk.grant.exact, 1);
    }
}

static void make_periods(enum weir__algorithm_id algorithm, uint64_t tokens, int64_t period_us)
{
    static struct weir__log_entry memory[128];
    desk.limit.rule.algorithm = algorithm;
    weir__rule_set_periods(&desk.limit.rule, tokens, (uint64_t)period_us);
    desk.limit.rule.initial = (int64_t)tokens;
    desk.store.log = (struct weir__log){.entries = memory, .room = 128};
}

static void make_queue(void)
{
    desk.limit.rule.algorithm = WEIR__LEAKY_BUCKET;
    desk.limit.rule.variant = WEIR__VARIANT_QUEUE;
    desk.limit.rule.max_wait_us = MINUTE_US;
}

/* What was asked for together is there long before the window is empty. */
static void test_many_wait_for_a_sliding_window(void **state)
{
    (void)state;
    static const enum weir__algorithm_id algorithms[] = {WEIR__SLIDING_LOG, WEIR__SLIDING_COUNTER};
    static struct weir__waiter crowd[5];
    for (size_t i = 0; i < 2; i++) {
        desk_begin(&desk, 100, 100, 0);
        make_periods(algorithms[i], 100, SECOND_US);
        others_take(100, 5000);
        desk_pass(&desk, 400000);
        for (int k = 0; k < 5; k++) {
            desk_wait(&desk, &crowd[k], 1, 5 * SECOND_US);
        }
        (void)desk_settle(&desk);
        assert_int_equal(desk.grant.remaining, 0);
        desk_pass(&desk, desk.grant.retry_after_us);
        for (int k = 0; k < 5; k++) {
            assert_true(desk_told(&desk, &crowd[k], WEIR__ALLOWED, WEIR__REASON_WITHIN_LIMIT));
        }
    }
}

/* A lease of later slots came with the refusal, which tells a time nevertheless. */
static void test_a_queue_that_is_too_long_tells_when(void **state)
{
    (void)state;
    desk_begin(&desk, 100, 100, 50);
    make_queue();
    others_take(15, 0);
    (void)desk_miss(&desk);
    desk_wait(&desk, &a, 1, 100000);
    assert_true(desk_sends(&desk));
    int64_t patience_us = desk.command.ask.wait_us;
    desk_run(&desk);
    desk_hear(&desk);
    assert_true(desk.grant.lease > 0);
    assert_true(desk_told(&desk, &a, WEIR__DENIED, WEIR__REASON_OVER_LIMIT));
    assert_int_equal(a.retry_after_us, desk.grant.reset_after_us - patience_us);
}

/* Two slots by the second's time are too much, and the first's own is not waited for. */
static void test_each_of_a_queue_is_heard(void **state)
{
    (void)state;
    desk_begin(&desk, 1, 10, 0);
    make_queue();
    others_take(1, 0);
    desk.now_us += 200000;
    desk_wait(&desk, &a, 1, SECOND_US);
    desk_wait(&desk, &b, 1, 1700000);
    assert_true(desk_sends(&desk));
    assert_int_equal(desk.command.ask.exact, 2);
    desk_run(&desk);
    desk_hear(&desk);
    assert_int_equal(desk.grant.exact, 0);
    desk_pass(&desk, SECOND_US);
    assert_true(desk_told(&desk, &a, WEIR__ALLOWED, WEIR__REASON_WITHIN_LIMIT));
}

/* A window that is used up is asked about; before the answer the bucket starts anew, or the limit
 * is another. */
static void begin_with_a_late_refusal(void)
{
    desk_begin(&desk, 100, 100, 50);
    make_periods(WEIR__FIXED_WINDOW, 100, 60 * MINUTE_US);
    others_take(100, 0);
    (void)desk_miss(&desk);
    assert_true(desk_sends(&desk));
    desk_run(&desk);
    assert_int_equal(desk.grant.lease, 0);
}

static void credit_comes(void)
{
    desk_hear(&desk);
    (void)desk_miss(&desk);
    desk_pass(&desk, SECOND_US / 4);
    assert_int_equal(desk.bucket.gate & WEIR__GATE_REFUSE, 0);
    assert_true(desk.bucket.leases.own.granted > 0);
}

static void test_a_reset_overtakes_an_ask(void **state)
{
    (void)state;
    begin_with_a_late_refusal();
    weir__engine_reset(&desk.engine, &desk.bucket, desk.now_us);
    credit_comes();
}

static void test_another_rule_overtakes_an_ask(void **state)
{
    (void)state;
    begin_with_a_late_refusal();
    make_periods(WEIR__FIXED_WINDOW, 1000, 60 * MINUTE_US);
    desk.limit.rule.version++;
    credit_comes();
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
        cmocka_unit_test(test_many_wait_for_a_sliding_window),
        cmocka_unit_test(test_a_queue_that_is_too_long_tells_when),
        cmocka_unit_test(test_each_of_a_queue_is_heard),
        cmocka_unit_test(test_a_reset_overtakes_an_ask),
        cmocka_unit_test(test_another_rule_overtakes_an_ask),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
