/* SPDX-License-Identifier: MIT */
/*
 * A store that is not there, goes away, and comes back: each policy through each verb, reasons
 * that are told apart from "over the limit", no invented numbers, and service within two seconds
 * of its return.
 *
 * The weir's address is a symbolic link, so that a store can go and another can come in its
 * place.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "api/fixture.h"
#include "script/server.h"

#define CALLS 100

struct place {
    char folder[32];
    char link[64];
    char url[96];
    struct server *server; /* NULL: nobody is there */
};

static struct place place;
static struct weir *weir;

static void come(void)
{
    place.server = store_start();
    assert_int_equal(symlink(place.server->socket, place.link), 0);
}

static void go(void)
{
    unlink(place.link);
    store_stop(place.server);
    place.server = NULL;
}

static int setup(void **state)
{
    (void)state;
    strcpy(place.folder, "/tmp/weir-outage-XXXXXX");
    if (mkdtemp(place.folder) == NULL) {
        return -1;
    }
    snprintf(place.link, sizeof(place.link), "%s/socket", place.folder);
    snprintf(place.url, sizeof(place.url), "unix://%s", place.link);
    struct weir_options options = store_options(place.url);
    weir = open_with(&options);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    assert_int_equal(weir_close_wait(weir), WEIR_OK);
    if (place.server != NULL) {
        go();
    }
    return rmdir(place.folder);
}

static enum weir_store_state state_now(void) { return stats_of(weir).store_state; }

static struct weir_bucket *bucket_with(const char *name, enum weir_outage_policy policy,
                                       double share_percent)
{
    struct weir_limit_options options = limit_options(name, 1000, SECOND, 1000, 200);
    options.outage = policy;
    options.outage_share_percent = share_percent;
    return get(define_with(weir, &options), "key");
}

static void assert_no_numbers(const struct weir_result *result)
{
    assert_int_equal(result->limit_tokens, 1000);
    assert_int_equal(result->remaining_tokens, WEIR_UNKNOWN);
    assert_int_equal(result->reset_after_us, WEIR_UNKNOWN);
}

/* Each of many calls, through each verb, is answered so. */
static void all_are(struct weir_bucket *bucket, int verdict, int64_t retry_after_us)
{
    for (int i = 0; i < CALLS; i++) {
        struct weir_result results[4];
        struct answer answer;
        assert_int_equal(weir_try_acquire(bucket, 1, &results[0]), verdict);
        assert_int_equal(weir_acquire_wait(bucket, 1, SECOND, &results[1]), verdict);
        assert_int_equal(ask(&answer, bucket, 1, SECOND, &results[2]), verdict);
        assert_int_equal(weir_peek(bucket, &results[3]), WEIR_OK);
        for (int r = 0; r < 4; r++) {
            assert_int_equal(results[r].verdict, verdict);
            assert_int_equal(results[r].reason, WEIR_STORE_DOWN);
            assert_int_equal(results[r].retry_after_us, retry_after_us);
        }
        assert_no_numbers(&results[0]);
        assert_no_numbers(&results[1]);
        assert_no_numbers(&results[2]);
        assert_false(answered(&answer));
    }
}

static void nobody_is_there(void **state)
{
    (void)state;
    UNTIL(state_now() == WEIR_STORE_OUTAGE);
    struct weir_bucket *open = bucket_with("open", WEIR_OUTAGE_OPEN, 100);
    struct weir_bucket *closed = bucket_with("closed", WEIR_OUTAGE_CLOSED, 100);
    all_are(open, WEIR_ALLOWED, 0);
    struct weir_stats stats = stats_of(weir);
    assert_int_equal(stats.outage_spent, 3 * CALLS);
    assert_int_equal(stats.unavailable, 0);
    all_are(closed, WEIR_UNAVAILABLE, WEIR_UNKNOWN);
    stats = stats_of(weir);
    assert_int_equal(stats.outage_spent, 3 * CALLS);
    assert_int_equal(stats.unavailable, 3 * CALLS);
    assert_int_equal(stats.denied + stats.cold, 0);
    assert_int_equal(stats.leased + stats.exact_spent, 0);
    assert_int_equal(stats.connects, 0);
    assert_int_equal(stats.outages, 1);

    /* What can never be is told as ever. */
    struct weir_result result;
    assert_int_equal(weir_try_acquire(open, 1001, &result), WEIR_DENIED);
    assert_int_equal(result.reason, WEIR_COST_ABOVE_CAPACITY);
    weir_bucket_unref(open);
    weir_bucket_unref(closed);
}

/* Who comes before anything is known about the store waits for it, and then the policy decides. */
static void before_the_first_connection(void **state)
{
    (void)state;
    struct weir_bucket *open = bucket_with("open", WEIR_OUTAGE_OPEN, 100);
    struct weir_bucket *closed = bucket_with("closed", WEIR_OUTAGE_CLOSED, 100);
    struct answer answers[2] = {{0}};
    struct weir_result result;
    int first = weir_try_acquire(closed, 1, &result);
    assert_true(first == WEIR_UNAVAILABLE || result.reason == WEIR_COLD);
    int codes[2] = {ask(&answers[0], open, 1, 5 * SECOND, &answers[0].result),
                    ask(&answers[1], closed, 1, 5 * SECOND, &answers[1].result)};
    UNTIL(codes[0] != WEIR_PENDING || answered(&answers[0]));
    UNTIL(codes[1] != WEIR_PENDING || answered(&answers[1]));
    assert_int_equal(answers[0].result.verdict, WEIR_ALLOWED);
    assert_int_equal(answers[0].result.reason, WEIR_STORE_DOWN);
    assert_int_equal(answers[1].result.verdict, WEIR_UNAVAILABLE);
    assert_int_equal(answers[1].result.reason, WEIR_STORE_DOWN);
    weir_bucket_unref(open);
    weir_bucket_unref(closed);
}

/* This process's share of the rate, from the start of the outage: no burst. */
static void a_share_is_admitted_here(void **state)
{
    (void)state;
    int64_t from_us = real_us();
    UNTIL(state_now() == WEIR_STORE_OUTAGE);
    struct weir_bucket *bucket = bucket_with("local", WEIR_OUTAGE_LOCAL, 20); /* 200 a second */
    struct weir_bucket *asked = bucket_with("asked", WEIR_OUTAGE_LOCAL, 20);
    struct weir_result result;
    int64_t until_us = real_us() + 300 * MS;
    uint64_t tries = 0, waits = 0, refused = 0;
    while (real_us() < until_us) {
        int verdict = weir_try_acquire(bucket, 1, &result);
        assert_true(verdict == WEIR_ALLOWED || verdict == WEIR_DENIED);
        tries += verdict == WEIR_ALLOWED;
        refused += verdict == WEIR_DENIED && result.reason == WEIR_STORE_DOWN;
        if (verdict == WEIR_DENIED) {
            assert_true(result.reason == WEIR_STORE_DOWN || result.reason == WEIR_COLD);
            assert_no_numbers(&result);
            pause_us(500);
        }
        verdict = weir_acquire_wait(asked, 1, 2000, &result);
        assert_true(verdict == WEIR_ALLOWED || result.reason == WEIR_STORE_DOWN ||
                    result.reason == WEIR_DEADLINE);
        waits += verdict == WEIR_ALLOWED;
    }
    uint64_t most = (uint64_t)((real_us() - from_us) * 200 / SECOND) + 1;
    assert_true(tries >= 10 && tries <= most);
    assert_true(waits >= 10 && waits <= most);
    assert_true(refused > 0);
    struct weir_stats stats = stats_of(weir);
    assert_conserved(&stats);
    weir_bucket_unref(bucket);
    weir_bucket_unref(asked);
}

/* ---- Coming and going ------------------------------------------------------------------------ */

static void it_comes_goes_and_comes_back(void **state)
{
    (void)state;
    struct weir_result result;
    struct weir_bucket *bucket = bucket_with("closed", WEIR_OUTAGE_CLOSED, 100);
    UNTIL(state_now() == WEIR_STORE_OUTAGE);
    for (int round = 0; round < 2; round++) {
        come();
        int64_t from_us = real_us();
        UNTIL(state_now() == WEIR_STORE_UP);
        assert_true(real_us() - from_us < 2 * SECOND);
        assert_int_equal(weir_acquire_wait(bucket, 1, SECOND, &result), WEIR_ALLOWED);
        assert_int_equal(result.reason, WEIR_WITHIN_LIMIT);
        UNTIL(weir_try_acquire(bucket, 1, NULL) == WEIR_ALLOWED);
        go();
        UNTIL(state_now() == WEIR_STORE_OUTAGE);
        /* What was leased may still be spent; then the policy decides. */
        UNTIL(weir_try_acquire(bucket, 1, &result) == WEIR_UNAVAILABLE);
        assert_int_equal(result.reason, WEIR_STORE_DOWN);
        assert_int_equal(weir_acquire_wait(bucket, 1, SECOND, &result), WEIR_UNAVAILABLE);
        assert_int_equal(result.reason, WEIR_STORE_DOWN);
    }
    struct weir_stats stats = stats_of(weir);
    assert_int_equal(stats.connects, 2);
    assert_true(stats.outages >= 2);
    assert_conserved(&stats);
    weir_bucket_unref(bucket);
}

/* A quiet weir, that nobody asks anything, notices as well. */
static void it_is_up_again_without_a_caller(void **state)
{
    (void)state;
    come();
    UNTIL(state_now() == WEIR_STORE_UP);
    go();
    UNTIL(state_now() == WEIR_STORE_OUTAGE);
    come();
    struct weir_bucket *bucket = bucket_with("local", WEIR_OUTAGE_LOCAL, 1);
    int64_t from_us = real_us();
    struct weir_result result;
    UNTIL(weir_acquire_wait(bucket, 100, 100 * MS, &result) == WEIR_ALLOWED &&
          result.reason == WEIR_WITHIN_LIMIT && state_now() == WEIR_STORE_UP);
    assert_true(real_us() - from_us < 2 * SECOND);
    weir_bucket_unref(bucket);
}

/* Spending here during an outage is not forgotten, and the return brings no second burst. */
static void the_return_brings_no_second_burst(void **state)
{
    (void)state;
    come();
    UNTIL(state_now() == WEIR_STORE_UP);
    struct weir_limit_options options = limit_options("slow", 1, HOUR, 20, 0);
    options.outage_share_percent = 100;
    struct weir_bucket *bucket = get(define_with(weir, &options), "key");
    unsigned allowed = 0;
    assert_int_equal(weir_acquire_wait(bucket, 20, SECOND, NULL), WEIR_ALLOWED);
    store_do(place.server, "CLIENT KILL TYPE normal");
    for (int i = 0; i < 100; i++) {
        allowed += weir_try_acquire(bucket, 1, NULL) == WEIR_ALLOWED;
        allowed += weir_acquire_wait(bucket, 1, 5 * MS, NULL) == WEIR_ALLOWED;
    }
    UNTIL(state_now() == WEIR_STORE_UP);
    for (int i = 0; i < 20; i++) {
        allowed += weir_acquire_wait(bucket, 1, 5 * MS, NULL) == WEIR_ALLOWED;
    }
    assert_int_equal(allowed, 0);
    assert_int_equal(stats_of(weir).connects, 2);
    weir_bucket_unref(bucket);
}

/* A store that answers, but not this: waiters are told, and it is no denial. */
static void a_store_that_refuses_is_not_a_denial(void **state)
{
    (void)state;
    come();
    store_do(place.server, "SET weir:broken:key text");
    struct weir_bucket *bucket = bucket_with("broken", WEIR_OUTAGE_CLOSED, 100);
    struct weir_result result;
    UNTIL(state_now() == WEIR_STORE_UP);
    for (int i = 0; i < 3; i++) {
        int verdict = weir_acquire_wait(bucket, 1, SECOND, &result);
        assert_int_equal(verdict, WEIR_UNAVAILABLE);
        assert_true(result.reason == WEIR_STORE_DOWN || result.reason == WEIR_DEADLINE);
        assert_int_equal(result.remaining_tokens, WEIR_UNKNOWN);
    }
    assert_true(stats_of(weir).asks_refused > 0);
    weir_bucket_unref(bucket);
}

/* ---- Secrets --------------------------------------------------------------------------------- */

static char logged[8192];
static unsigned lines; /* atomic */

static void on_log(void *arg, enum weir_log_level level, const char *text)
{
    assert_ptr_equal(arg, logged);
    assert_true(level >= WEIR_LOG_ERROR && level <= WEIR_LOG_INFO);
    strncat(logged, text, sizeof(logged) - strlen(logged) - 1);
    __atomic_add_fetch(&lines, 1, __ATOMIC_RELEASE);
}

/* Logged in with the wrong and the right password: it works, or the log says why, and never what
 * with. */
static void no_password_is_logged(void **state)
{
    (void)state;
    come();
    store_do(place.server, "CONFIG SET requirepass %s", "right:horse@staple");
    char url[160];
    snprintf(url, sizeof(url), "unix://:wr%%6fng-horse@%s", place.link);
    struct weir_options options = store_options(url);
    options.log = on_log;
    options.log_arg = logged;
    struct weir *other = open_with(&options);
    UNTIL(__atomic_load_n(&lines, __ATOMIC_ACQUIRE) > 0);
    UNTIL(stats_of(other).store_state == WEIR_STORE_OUTAGE);
    assert_int_equal(weir_close_wait(other), WEIR_OK);
    assert_non_null(strstr(logged, "WRONGPASS"));

    snprintf(url, sizeof(url), "unix://:right%%3Ahorse%%40staple@%s", place.link);
    other = open_with(&options);
    UNTIL(stats_of(other).store_state == WEIR_STORE_UP);
    assert_int_equal(weir_close_wait(other), WEIR_OK);
    assert_null(strstr(logged, "horse"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(nobody_is_there),
        TEST(before_the_first_connection),
        TEST(a_share_is_admitted_here),
        TEST(it_comes_goes_and_comes_back),
        TEST(it_is_up_again_without_a_caller),
        TEST(the_return_brings_no_second_burst),
        TEST(a_store_that_refuses_is_not_a_denial),
        TEST(no_password_is_logged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
