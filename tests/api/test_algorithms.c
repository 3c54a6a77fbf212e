/* SPDX-License-Identifier: MIT */
/*
 * Every algorithm through the public interface: in process on a clock turned by hand, and on a real
 * Redis.  The arithmetic has tests of its own (tests/script, tests/oracle); here it is that the
 * same calls reach it, in both stores: verdicts, waits, refunds, resets, changes of the algorithm.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "api/setup.h"
#include "script/server.h"

#define NOON_US (INT64_C(1700000000) * SECOND / DAY * DAY + DAY / 2)

static int setup(void **state)
{
    (void)state;
    open_at(NOON_US);
    return 0;
}

static struct weir_bucket *bucket_of(const char *name, const char *text)
{
    struct weir_limit_options options;
    struct weir_error error;
    weir_limit_options_init(&options, sizeof(options));
    if (weir_limit_parse(&options, text, &error) != WEIR_OK) {
        fail_msg("%s: %s", text, error.text);
    }
    options.name = name;
    return get(define_with(weir, &options), "key");
}

static void update(struct weir_limit *limit, const char *text, uint64_t version)
{
    struct weir_limit_options options;
    weir_limit_options_init(&options, sizeof(options));
    assert_int_equal(weir_limit_parse(&options, text, NULL), WEIR_OK);
    options.version = version;
    assert_int_equal(weir_limit_update(limit, &options, NULL), WEIR_OK);
}

static unsigned take_all(struct weir_bucket *bucket)
{
    unsigned taken = 0;
    while (taken < 100000 && weir_try_acquire(bucket, 1, NULL) == WEIR_ALLOWED) {
        taken++;
    }
    return taken;
}

static void assert_refused(struct weir_bucket *bucket, uint64_t cost, int64_t retry_us)
{
    struct weir_result result;
    assert_int_equal(weir_try_acquire(bucket, cost, &result), WEIR_DENIED);
    assert_int_equal(result.reason, WEIR_OVER_LIMIT);
    assert_int_equal(result.retry_after_us, retry_us);
}

static int64_t remaining(struct weir_bucket *bucket)
{
    struct weir_result result;
    assert_int_equal(weir_peek(bucket, &result), WEIR_OK);
    return result.remaining_tokens;
}

static void forward(int64_t us) { hand_clock_set(&hand, (int64_t)(hand.ns / 1000) + us); }

/* ---- In process ------------------------------------------------------------------------------ */

static void a_fixed_window_opens_at_its_edge(void **state)
{
    (void)state;
    struct weir_bucket *bucket = bucket_of("fixed", "5 per 10s fixed-window");
    forward(3 * SECOND);
    assert_int_equal(take_all(bucket), 5);
    assert_refused(bucket, 1, 7 * SECOND);
    assert_refused(bucket, 5, 7 * SECOND);
    forward(7 * SECOND - 1);
    assert_refused(bucket, 1, 1);
    forward(1);
    assert_int_equal(take_all(bucket), 5);
    weir_bucket_unref(bucket);
}

/* B22, B83: one moment, and refusals that leave no trace. */
static void b22_b83_a_sliding_log_counts_what_it_let_in(void **state)
{
    (void)state;
    struct weir_bucket *bucket = bucket_of("log", "2 per 4s sliding-log");
    char course[13];
    for (int i = 0; i < 12; i++) {
        course[i] = weir_try_acquire(bucket, 1, NULL) == WEIR_ALLOWED ? 'A' : 'D';
        forward(SECOND);
    }
    course[12] = 0;
    assert_string_equal(course, "AADDAADDAADD");

    struct weir_bucket *five = bucket_of("five", "5 per 10s sliding-log");
    assert_int_equal(weir_try_acquire(five, 3, NULL), WEIR_ALLOWED);
    assert_int_equal(take_all(five), 2);
    assert_refused(five, 1, 10 * SECOND);
    forward(10 * SECOND);
    assert_int_equal(take_all(five), 5);
    weir_bucket_unref(bucket);
    weir_bucket_unref(five);
}

/* B07: the first call of a limit of one passes. */
static void b07_a_sliding_counter_of_one(void **state)
{
    (void)state;
    struct weir_bucket *bucket = bucket_of("one", "1 per 10s sliding-counter");
    const int64_t at_s[] = {0, 3, 12, 20};
    char course[5] = "";
    for (int i = 0; i < 4; i++) {
        hand_clock_set(&hand, NOON_US + at_s[i] * SECOND);
        course[i] = weir_try_acquire(bucket, 1, NULL) == WEIR_ALLOWED ? 'A' : 'D';
    }
    assert_string_equal(course, "ADDA");
    weir_bucket_unref(bucket);
}

/* B15: a rate that milliseconds cannot express. */
static void b15_a_leaky_meter_at_three_thousand_a_second(void **state)
{
    (void)state;
    struct weir_bucket *bucket = bucket_of("meter", "3000/s leaky");
    for (int i = 0; i < 3000; i++) {
        assert_int_equal(weir_try_acquire(bucket, 1, NULL), WEIR_ALLOWED);
        forward(334);
    }
    unsigned allowed = 0;
    for (int i = 0; i < 3000; i++) {
        allowed += weir_try_acquire(bucket, 1, NULL) == WEIR_ALLOWED;
        forward(333);
    }
    assert_in_range(allowed, 1499, 1501);
    weir_bucket_unref(bucket);
}

static void a_queue_gives_one_slot_at_a_time(void **state)
{
    (void)state;
    struct weir_bucket *bucket = bucket_of("queue", "100/s leaky queue=50");
    assert_int_equal(weir_try_acquire(bucket, 1, NULL), WEIR_ALLOWED);
    assert_refused(bucket, 1, 10 * MS);
    forward(10 * MS - 1);
    assert_refused(bucket, 1, 1);
    forward(1);
    assert_int_equal(weir_try_acquire(bucket, 1, NULL), WEIR_ALLOWED);
    struct weir_result result;
    assert_int_equal(weir_try_acquire(bucket, 51, &result), WEIR_DENIED);
    assert_int_equal(result.reason, WEIR_COST_ABOVE_CAPACITY);
    weir_bucket_unref(bucket);
}

static void a_refund_goes_into_its_own_window(void **state)
{
    (void)state;
    static const char *const texts[] = {"10/s fixed-window", "10/s sliding-log",
                                        "10/s sliding-counter"};
    for (int i = 0; i < 3; i++) {
        struct weir_bucket *bucket = bucket_of(strchr(texts[i], ' ') + 1, texts[i]);
        assert_int_equal(take_all(bucket), 10);
        assert_int_equal(weir_refund(bucket, 4), WEIR_OK);
        assert_int_equal(take_all(bucket), 4);
        forward(10 * SECOND);
        assert_int_equal(take_all(bucket), 10);
        forward(2 * SECOND);
        assert_int_equal(take_all(bucket), 10);
        assert_int_equal(weir_refund(bucket, 15), WEIR_OK); /* five of them are of a window past */
        assert_int_equal(take_all(bucket), 10);
        weir_bucket_unref(bucket);
        forward(5 * SECOND - (int64_t)(hand.ns / 1000) % SECOND);
    }
}

static void a_reset_starts_anew(void **state)
{
    (void)state;
    static const char *const texts[] = {"10/s", "10/s leaky burst=10", "10/s fixed-window",
                                        "10/s sliding-log", "10/s sliding-counter"};
    for (int i = 0; i < 5; i++) {
        char name[8];
        snprintf(name, sizeof(name), "kind%d", i);
        struct weir_bucket *bucket = bucket_of(name, texts[i]);
        assert_int_equal(take_all(bucket), 10);
        assert_int_equal(remaining(bucket), 0);
        assert_int_equal(weir_reset(bucket), WEIR_OK);
        assert_int_equal(remaining(bucket), 10);
        assert_int_equal(take_all(bucket), 10);
        weir_bucket_unref(bucket);
    }
}

/* What was used stays used, and under another algorithm there is what was there. */
static void nothing_is_granted_afresh_by_an_update(void **state)
{
    (void)state;
    struct weir_limit_options options;
    weir_limit_options_init(&options, sizeof(options));
    assert_int_equal(weir_limit_parse(&options, "10/min fixed-window version=1", NULL), WEIR_OK);
    options.name = "changing";
    struct weir_limit *limit = define_with(weir, &options);
    struct weir_bucket *bucket = get(limit, "key");
    assert_int_equal(weir_try_acquire(bucket, 8, NULL), WEIR_ALLOWED);
    update(limit, "6/min fixed-window", 2);
    assert_int_equal(remaining(bucket), 0);
    update(limit, "20/min fixed-window", 3);
    assert_int_equal(remaining(bucket), 12);
    update(limit, "100/min sliding-counter", 4);
    assert_int_equal(remaining(bucket), 12);
    update(limit, "100/min burst=50", 5);
    assert_int_equal(remaining(bucket), 12);
    update(limit, "100/min sliding-log", 6);
    assert_int_equal(remaining(bucket), 12);
    update(limit, "100/min leaky burst=5", 7);
    assert_int_equal(remaining(bucket), 5);
    weir_bucket_unref(bucket);
}

static void cold_starts(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        unsigned tokens;
    } rows[] = {
        {"100/s initial=0", 0},
        {"100/s initial=7", 7},
        {"100/s initial=25%", 25},
        {"100/s initial=learn", 0},
        {"100/s fixed-window initial=0", 0},
        {"100/s fixed-window initial=30", 30},
        {"100/s fixed-window initial=learn", 75},
        {"100/s sliding-log initial=40%", 40},
        {"100/s sliding-log initial=learn", 0},
        {"100/s sliding-counter initial=9", 9},
        {"100/s sliding-counter initial=learn", 0},
    };
    forward(SECOND / 4);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char name[16];
        snprintf(name, sizeof(name), "row-%zu", i);
        struct weir_bucket *bucket = bucket_of(name, rows[i].text);
        assert_int_equal(take_all(bucket), rows[i].tokens);
        weir_bucket_unref(bucket);
    }
    forward(SECOND / 2);
    /* What a learning key gives in its first window is what the rate brings. */
    struct weir_limit_options options;
    weir_limit_options_init(&options, sizeof(options));
    assert_int_equal(weir_limit_parse(&options, "1600/s sliding-log initial=learn", NULL), WEIR_OK);
    options.name = "learning";
    struct weir_bucket *bucket = get(define_with(weir, &options), "key");
    assert_int_equal(take_all(bucket), 0);
    forward(SECOND / 4);
    assert_int_equal(take_all(bucket), 400);
    weir_bucket_unref(bucket);
}

/* ---- On Redis -------------------------------------------------------------------------------- */

static const char *const kinds[] = {
    "50 per 10min burst=50",    "50 per 10min leaky burst=50",  "50 per 10min fixed-window",
    "50 per 10min sliding-log", "50 per 10min sliding-counter",
};

#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static struct weir_bucket *bucket_of_kind(size_t i)
{
    char name[8];
    snprintf(name, sizeof(name), "kind%zu", i);
    return bucket_of(name, kinds[i]);
}

static unsigned take_waiting(struct weir_bucket *bucket, unsigned most)
{
    unsigned taken = 0;
    while (taken < most && weir_acquire_wait(bucket, 1, 0, NULL) == WEIR_ALLOWED) {
        taken++;
    }
    return taken;
}

/* In periods of ten minutes these tests would wait for an edge that is near. */
static void away_from_an_edge(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t left_s = 600 - now.tv_sec % 600;
    if (left_s < 20) {
        pause_us((unsigned)left_s * 1000000);
    }
}

static void each_kind_admits_its_limit_and_no_more(void **state)
{
    (void)state;
    away_from_an_edge();
    for (size_t i = 0; i < KINDS; i++) {
        struct weir_bucket *bucket = bucket_of_kind(i);
        struct weir_result result;
        assert_int_equal(take_waiting(bucket, 1000), 50);
        assert_int_equal(weir_acquire_wait(bucket, 1, 0, &result), WEIR_DENIED);
        assert_int_equal(result.reason, WEIR_OVER_LIMIT);
        assert_in_range(result.retry_after_us, 1, 1200 * SECOND); /* of a counter two periods */
        assert_int_equal(weir_acquire_wait(bucket, 51, 0, &result), WEIR_DENIED);
        assert_int_equal(result.reason, WEIR_COST_ABOVE_CAPACITY);
        weir_bucket_unref(bucket);
    }
}

static void each_kind_takes_refunds_and_resets(void **state)
{
    (void)state;
    away_from_an_edge();
    for (size_t i = 0; i < KINDS; i++) {
        struct weir_bucket *bucket = bucket_of_kind(i);
        assert_int_equal(take_waiting(bucket, 1000), 50);
        assert_int_equal(weir_refund(bucket, 10), WEIR_OK);
        assert_int_equal(take_waiting(bucket, 1000), 10);
        assert_int_equal(weir_reset(bucket), WEIR_OK);
        UNTIL(weir_acquire_wait(bucket, 1, 0, NULL) == WEIR_ALLOWED);
        assert_int_equal(take_waiting(bucket, 1000), 49);
        weir_bucket_unref(bucket);
    }
}

/* R11: two processes of a rolling deploy, the old one with an older limit of another kind. */
static void two_versions_of_a_limit(void **state)
{
    (void)state;
    away_from_an_edge();
    for (size_t from = 0; from < KINDS; from++) {
        for (size_t to = 0; to < KINDS; to++) {
            struct weir *old_weir = open_store(server), *new_weir = open_store(server);
            struct weir_limit_options options;
            char name[16];
            snprintf(name, sizeof(name), "deploy%zu%zu", from, to);
            weir_limit_options_init(&options, sizeof(options));
            assert_int_equal(weir_limit_parse(&options, kinds[from], NULL), WEIR_OK);
            options.name = name;
            options.version = 1;
            struct weir_bucket *old_bucket = get(define_with(old_weir, &options), "key");
            weir_limit_options_init(&options, sizeof(options));
            assert_int_equal(weir_limit_parse(&options, kinds[to], NULL), WEIR_OK);
            options.name = name;
            options.version = 2;
            struct weir_bucket *new_bucket = get(define_with(new_weir, &options), "key");

            assert_int_equal(take_waiting(old_bucket, 20), 20);
            assert_int_equal(take_waiting(new_bucket, 20), 20);
            /* The old one is answered by the limit in force, and what was used stays used. */
            assert_int_equal(take_waiting(old_bucket, 100), 10);
            assert_int_equal(take_waiting(new_bucket, 100), 0);
            weir_bucket_unref(old_bucket);
            weir_bucket_unref(new_bucket);
            assert_int_equal(weir_close_wait(old_weir), WEIR_OK);
            assert_int_equal(weir_close_wait(new_weir), WEIR_OK);
        }
    }
}

/* Who waits in a queue leaves at his time, evenly; who would wait too long, or finds it full, is
 * told at once. */
static void a_queue_lets_out_evenly(void **state)
{
    (void)state;
    enum { SENT = 60, QUEUE = 30 };
    struct weir_bucket *bucket = bucket_of("queue", "20/s leaky queue=30 budget=0");
    struct answer answers[SENT];
    struct weir_result result;
    memset(answers, 0, sizeof(answers));
    for (int i = 0; i < SENT; i++) {
        assert_int_equal(ask(&answers[i], bucket, 1, 3 * SECOND, &result), WEIR_PENDING);
    }
    unsigned allowed = 0;
    int64_t first_us = INT64_MAX, last_us = 0;
    for (int i = 0; i < SENT; i++) {
        UNTIL(answered(&answers[i]));
        if (answers[i].result.verdict == WEIR_ALLOWED) {
            allowed++;
            first_us = answers[i].at_us < first_us ? answers[i].at_us : first_us;
            last_us = answers[i].at_us > last_us ? answers[i].at_us : last_us;
        } else {
            assert_int_equal(answers[i].result.reason, WEIR_OVER_LIMIT);
            assert_true(answers[i].result.retry_after_us > 0);
        }
    }
    assert_in_range(allowed, QUEUE, QUEUE + 5); /* it drains while they come */
    /* 50 ms apart; the margin for clocks makes the last one later, never earlier. */
    assert_true(last_us - first_us >= (allowed - 1) * 50 * MS - 20 * MS);
    weir_bucket_unref(bucket);
}

/* The slots of a lease come one by one, to who does not wait. */
static void a_queue_leases_slots(void **state)
{
    (void)state;
    struct weir_bucket *bucket = bucket_of("slots", "100/s leaky queue=100 budget=20");
    int64_t begin_us = real_us();
    unsigned allowed = 0;
    while (real_us() - begin_us < SECOND) {
        allowed += weir_try_acquire(bucket, 1, NULL) == WEIR_ALLOWED;
        pause_us(100);
    }
    int64_t took_us = real_us() - begin_us;
    assert_true(allowed <= 100 * took_us / SECOND + 20 + 1);
    printf("# %u of %lld slots used\n", allowed, (long long)(100 * took_us / SECOND));
    assert_true(allowed >= 50); /* half of them, on a machine that does much else */
    weir_bucket_unref(bucket);
}

/* B24, for every kind: a key that lost its expiry gets one. */
static void b24_each_kind_mends_a_key_without_expiry(void **state)
{
    (void)state;
    for (size_t i = 0; i < KINDS; i++) {
        struct weir_bucket *bucket = bucket_of_kind(i);
        assert_int_equal(weir_acquire_wait(bucket, 1, 0, NULL), WEIR_ALLOWED);
        assert_int_equal(store_do(server, "PERSIST weir:kind%d:key", (int)i), 1);
        assert_int_equal(store_do(server, "PTTL weir:kind%d:key", (int)i), -1);
        UNTIL(weir_acquire_wait(bucket, 1, 0, NULL) == WEIR_ALLOWED &&
              store_do(server, "PTTL weir:kind%d:key", (int)i) > 0);
        weir_bucket_unref(bucket);
    }
}

/* Who waits in line is served when there is more than was known: given back, anew, or by another
 * limit. */
static void who_waits_hears_of_it(void **state)
{
    (void)state;
    away_from_an_edge();
    enum { REFUND, RESET, UPDATE, CHANGES };
    for (size_t i = 0; i < KINDS; i++) {
        for (int change = 0; change < CHANGES; change++) {
            struct answer answer = {.count = 0};
            struct weir_result result;
            struct weir_limit_options options;
            char name[16];
            snprintf(name, sizeof(name), "line%zu%d", i, change);
            weir_limit_options_init(&options, sizeof(options));
            assert_int_equal(weir_limit_parse(&options, kinds[i], NULL), WEIR_OK);
            options.name = name;
            options.version = 1;
            options.budget_tokens = change == REFUND ? 5 : 0;
            struct weir_limit *limit = define_with(weir, &options);
            struct weir_bucket *bucket = get(limit, "key");
            assert_int_equal(take_waiting(bucket, 1000), 50);
            assert_int_equal(ask(&answer, bucket, 1, HOUR, &result), WEIR_PENDING);
            pause_us(20 * MS);
            assert_false(answered(&answer));
            if (change == REFUND) {
                assert_int_equal(weir_refund(bucket, 1), WEIR_OK);
            } else if (change == RESET) {
                assert_int_equal(weir_reset(bucket), WEIR_OK);
            } else {
                options.version = 2;
                options.rate_tokens = 100;
                options.rate_period_us = i < 2 ? SECOND : options.rate_period_us;
                assert_int_equal(weir_limit_update(limit, &options, NULL), WEIR_OK);
            }
            UNTIL(answered(&answer));
            assert_int_equal(answer.result.verdict, WEIR_ALLOWED);
            weir_bucket_unref(bucket);
        }
    }
}

static int setup_real(void **state)
{
    (void)state;
    weir = open_inprocess(NULL);
    return 0;
}

int main(void)
{
#define IN_PROCESS(test) cmocka_unit_test_setup_teardown(test, setup, close_weir)
#define ON_STORE(test) cmocka_unit_test_setup_teardown(test, open_on_store, close_and_clear)
    const struct CMUnitTest tests[] = {
        IN_PROCESS(a_fixed_window_opens_at_its_edge),
        IN_PROCESS(b22_b83_a_sliding_log_counts_what_it_let_in),
        IN_PROCESS(b07_a_sliding_counter_of_one),
        IN_PROCESS(b15_a_leaky_meter_at_three_thousand_a_second),
        IN_PROCESS(a_queue_gives_one_slot_at_a_time),
        IN_PROCESS(a_refund_goes_into_its_own_window),
        IN_PROCESS(a_reset_starts_anew),
        IN_PROCESS(nothing_is_granted_afresh_by_an_update),
        IN_PROCESS(cold_starts),
        ON_STORE(each_kind_admits_its_limit_and_no_more),
        ON_STORE(each_kind_takes_refunds_and_resets),
        ON_STORE(two_versions_of_a_limit),
        ON_STORE(a_queue_lets_out_evenly),
        ON_STORE(a_queue_leases_slots),
        ON_STORE(b24_each_kind_mends_a_key_without_expiry),
        ON_STORE(who_waits_hears_of_it),
        cmocka_unit_test_setup_teardown(who_waits_hears_of_it, setup_real, close_weir),
    };
    return cmocka_run_group_tests(tests, start_store, stop_store);
}
