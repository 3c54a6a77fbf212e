/* SPDX-License-Identifier: MIT */
/*
 * Waiting for tokens, in process and on a real Redis alike: each waiter is answered once, in
 * order, by its deadline, on the loop's thread; callbacks may call everything that does not
 * block.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "api/setup.h"
#include "script/server.h"

static int inprocess(void **state)
{
    (void)state;
    weir = open_inprocess(NULL);
    return 0;
}

static int redis(void **state)
{
    (void)start_store(state);
    return open_on_store(state);
}

/* A bucket with nothing in it, that gets `rate` tokens a second. */
static struct weir_bucket *empty_bucket(uint64_t rate, uint64_t capacity, uint64_t budget)
{
    struct weir_limit_options options = limit_options("limit", rate, SECOND, capacity, budget);
    options.initial_tokens = 0;
    return get(define_with(weir, &options), "key");
}

/* ---- Order and time -------------------------------------------------------------------------- */

#define CROWD 20

static void in_order(uint64_t budget)
{
    static struct answer head, answers[CROWD];
    struct weir_bucket *bucket = empty_bucket(200, CROWD, budget);
    int64_t from_us = real_us();
    /* The head of the line takes so long that all others come to stand behind it. */
    assert_int_equal(ask(&head, bucket, CROWD, 5 * SECOND, NULL), WEIR_PENDING);
    for (int i = 0; i < CROWD; i++) {
        assert_int_equal(ask(&answers[i], bucket, 1, 5 * SECOND, NULL), WEIR_PENDING);
    }
    UNTIL(answered(&head));
    for (int i = 0; i < CROWD; i++) {
        UNTIL(answered(&answers[i]));
        assert_int_equal(answers[i].result.verdict, WEIR_ALLOWED);
        assert_int_equal(answers[i].result.reason, WEIR_WITHIN_LIMIT);
        assert_int_equal(answers[i].order, head.order + 1 + (unsigned)i);
        assert_int_equal(answers[i].thread, head.thread);
        assert_false(answers[i].called_inside);
        assert_true(answers[i].thread != answers[i].caller);
    }
    /* The bucket began to fill after from_us, and the tokens take their time. */
    assert_true(answers[CROWD - 1].at_us - from_us >= 2 * CROWD * 5 * MS);
    pause_us(20000);
    for (int i = 0; i < CROWD; i++) {
        assert_true(answered(&answers[i])); /* and not twice */
    }
    assert_int_equal(stats_of(weir).waiters, 0);
    weir_bucket_unref(bucket);
}

static void waiters_are_served_in_order(void **state)
{
    (void)state;
    in_order(0);
}

static void waiters_are_served_in_order_by_leases(void **state)
{
    (void)state;
    in_order(CROWD);
}

/* A large cost is not starved by small ones that came later. */
static void a_large_cost_is_not_overtaken(void **state)
{
    (void)state;
    static struct answer large, small[5];
    struct weir_bucket *bucket = empty_bucket(100, 30, 0);
    assert_int_equal(ask(&large, bucket, 20, 5 * SECOND, NULL), WEIR_PENDING);
    UNTIL(stats_of(weir).waiters == 1);
    pause_us(20000);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(ask(&small[i], bucket, 1, 5 * SECOND, NULL), WEIR_PENDING);
    }
    UNTIL(answered(&large));
    assert_int_equal(large.result.verdict, WEIR_ALLOWED);
    for (int i = 0; i < 5; i++) {
        UNTIL(answered(&small[i]));
        assert_int_equal(small[i].result.verdict, WEIR_ALLOWED);
        assert_true(small[i].order > large.order);
    }
    weir_bucket_unref(bucket);
}

/* There are tokens for a small cost, but somebody waits already, if only since this moment. */
static void who_comes_second_is_not_first(void **state)
{
    (void)state;
    static struct answer first, second;
    struct weir_limit_options rule = limit_options("limit", 50, SECOND, 10, 0);
    rule.initial_tokens = 3;
    struct weir_bucket *bucket = get(define_with(weir, &rule), "key");
    assert_int_equal(ask(&first, bucket, 10, 5 * SECOND, NULL), WEIR_PENDING);
    assert_int_equal(ask(&second, bucket, 1, 5 * SECOND, NULL), WEIR_PENDING);
    UNTIL(answered(&first) && answered(&second));
    assert_int_equal(first.result.verdict, WEIR_ALLOWED);
    assert_int_equal(second.result.verdict, WEIR_ALLOWED);
    assert_true(first.order < second.order);
    weir_bucket_unref(bucket);
}

static void blocking_waits_as_long_as_needed(void **state)
{
    (void)state;
    struct weir_bucket *bucket = empty_bucket(100, 10, 0);
    struct weir_result result;
    int64_t from_us = real_us();
    assert_int_equal(weir_acquire_wait(bucket, 10, 5 * SECOND, &result), WEIR_ALLOWED);
    int64_t us = real_us() - from_us;
    assert_true(us >= 99 * MS - 1 * MS && us < 2 * SECOND);
    assert_int_equal(result.verdict, WEIR_ALLOWED);
    assert_int_equal(result.limit_tokens, 10);
    weir_bucket_unref(bucket);
}

/* A refusal that is certain comes as soon as it is known, not at the deadline. */
static void a_certain_refusal_comes_at_once(void **state)
{
    (void)state;
    struct weir_bucket *bucket = empty_bucket(1, 100, 0);
    struct weir_result result;
    int64_t from_us = real_us();
    assert_int_equal(weir_acquire_wait(bucket, 50, 10 * SECOND, &result), WEIR_DENIED);
    assert_true(real_us() - from_us < 5 * SECOND);
    assert_int_equal(result.reason, WEIR_OVER_LIMIT);
    assert_true(result.retry_after_us > 40 * SECOND && result.retry_after_us <= 50 * SECOND);
    weir_bucket_unref(bucket);
}

/* Others take what a waiter hoped for: it is told by its deadline. */
static void a_deadline_is_kept(void **state)
{
    (void)state;
    static struct answer first, second;
    struct weir_bucket *bucket = empty_bucket(10, 10, 0);
    int64_t from_us = real_us();
    assert_int_equal(ask(&first, bucket, 2, 5 * SECOND, NULL), WEIR_PENDING);
    UNTIL(stats_of(weir).waiters == 1);
    int code = ask(&second, bucket, 1, 150 * MS, NULL); /* needs 300 ms behind the first */
    if (code == WEIR_PENDING) {
        UNTIL(answered(&second));
        assert_int_equal(second.result.verdict, WEIR_DENIED);
        assert_int_equal(second.result.reason, WEIR_OVER_LIMIT);
        assert_true(second.at_us - from_us < 2 * SECOND);
    } else {
        assert_int_equal(code, WEIR_DENIED);
    }
    UNTIL(answered(&first));
    assert_int_equal(first.result.verdict, WEIR_ALLOWED);
    weir_bucket_unref(bucket);
}

static void no_time_means_no_waiting(void **state)
{
    (void)state;
    struct weir_bucket *bucket = empty_bucket(1, 10, 0);
    struct weir_result result;
    int64_t from_us = real_us();
    assert_int_equal(weir_acquire_wait(bucket, 5, 0, &result), WEIR_DENIED);
    assert_true(real_us() - from_us < SECOND);
    assert_int_equal(result.reason, WEIR_OVER_LIMIT);
    assert_true(result.retry_after_us > 0 && result.retry_after_us <= 5 * SECOND);
    weir_bucket_unref(bucket);
}

static void ignore(void *arg, const struct weir_result *result)
{
    (void)arg;
    (void)result;
    fail(); /* nobody may call it */
}

static void mistakes_are_told(void **state)
{
    (void)state;
    struct weir_bucket *bucket = empty_bucket(1, 10, 0);
    assert_int_equal(weir_acquire(bucket, 1, 0, NULL, NULL, NULL), WEIR_EINVAL);
    assert_int_equal(weir_acquire(bucket, 1, HOUR + 1, ignore, NULL, NULL), WEIR_EINVAL);
    assert_int_equal(weir_acquire(bucket, 1, UINT64_MAX, ignore, NULL, NULL), WEIR_EINVAL);
    assert_int_equal(weir_acquire_wait(bucket, 1, HOUR + 1, NULL), WEIR_EINVAL);
    weir_bucket_unref(bucket);
}

/* ---- Bounds ---------------------------------------------------------------------------------- */

static void max_waiters_is_held(void **state)
{
    (void)state;
    char url[128];
    struct weir_options options;
    if (server != NULL) {
        url_of(server, url);
        options = store_options(url);
    } else {
        weir_options_init(&options, sizeof(options));
    }
    options.max_waiters = 3;
    struct weir *small = open_with(&options);
    struct weir_limit_options rule = limit_options("small", 20, SECOND, 10, 0);
    rule.initial_tokens = 0;
    struct weir_bucket *bucket = get(define_with(small, &rule), "key");
    static struct answer answers[4];
    struct weir_result result;
    for (uint64_t i = 0; i < 3; i++) { /* the first needs half a second */
        assert_int_equal(ask(&answers[i], bucket, i == 0 ? 10 : 1, 5 * SECOND, NULL), WEIR_PENDING);
    }
    assert_int_equal(ask(&answers[3], bucket, 1, 5 * SECOND, &result), WEIR_UNAVAILABLE);
    assert_int_equal(result.reason, WEIR_BUSY);
    assert_int_equal(result.remaining_tokens, WEIR_UNKNOWN);
    assert_int_equal(weir_acquire_wait(bucket, 1, 5 * SECOND, &result), WEIR_UNAVAILABLE);
    assert_int_equal(result.reason, WEIR_BUSY);
    assert_int_equal(stats_of(small).unavailable, 2);
    for (int i = 0; i < 3; i++) {
        UNTIL(answered(&answers[i]));
        assert_int_equal(answers[i].result.verdict, WEIR_ALLOWED);
    }
    assert_int_equal(weir_acquire_wait(bucket, 1, 5 * SECOND, NULL), WEIR_ALLOWED);
    weir_bucket_unref(bucket);
    assert_int_equal(weir_close_wait(small), WEIR_OK);
}

/* ---- From inside a callback ------------------------------------------------------------------ */

#define CHAIN 30

struct chain {
    struct weir_bucket *bucket;
    unsigned links; /* atomic */
    int last;
};

static void next_link(void *arg, const struct weir_result *result)
{
    struct chain *chain = arg;
    chain->last = (int)result->verdict;
    if (__atomic_add_fetch(&chain->links, 1, __ATOMIC_RELEASE) < CHAIN) {
        int code = weir_acquire(chain->bucket, 1, 5 * SECOND, next_link, chain, NULL);
        if (code != WEIR_PENDING) { /* there was a token at once */
            struct weir_result at_once = {.verdict = (enum weir_verdict)code};
            next_link(chain, &at_once);
        }
    }
}

static void a_callback_may_acquire(void **state)
{
    (void)state;
    struct chain chain = {.bucket = empty_bucket(200, 5, 0)};
    assert_int_equal(weir_acquire(chain.bucket, 1, 5 * SECOND, next_link, &chain, NULL),
                     WEIR_PENDING);
    UNTIL(__atomic_load_n(&chain.links, __ATOMIC_ACQUIRE) == CHAIN);
    assert_int_equal(chain.last, WEIR_ALLOWED);
    weir_bucket_unref(chain.bucket);
}

struct visitor {
    struct weir_bucket *bucket;
    unsigned done; /* atomic */
    int wait, close_wait, get, try, peek, refund, stats, define;
};

static void call_everything(void *arg, const struct weir_result *result)
{
    struct visitor *v = arg;
    struct weir_result own;
    struct weir_limit *limit;
    struct weir_bucket *bucket;
    struct weir_stats stats = {.size = sizeof(stats)};
    struct weir_limit_options options = limit_options("inside", 1, HOUR, 5, 0);
    (void)result;
    v->wait = weir_acquire_wait(v->bucket, 1, SECOND, &own);
    v->close_wait = weir_close_wait(weir);
    v->define = weir_limit_define(weir, &limit, &options, NULL);
    v->get = weir_bucket_get(limit, "key", 3, &bucket);
    v->try = weir_try_acquire(bucket, 1, &own);
    v->peek = weir_peek(bucket, &own);
    v->stats = weir_stats_read(weir, &stats);
    weir_bucket_unref(bucket);
    v->refund = weir_refund(v->bucket, 1);
    __atomic_store_n(&v->done, 1, __ATOMIC_RELEASE);
}

static void a_callback_may_call_all_but_what_blocks(void **state)
{
    (void)state;
    struct visitor v = {.bucket = empty_bucket(100, 5, 0)};
    assert_int_equal(weir_acquire(v.bucket, 1, 5 * SECOND, call_everything, &v, NULL),
                     WEIR_PENDING);
    UNTIL(__atomic_load_n(&v.done, __ATOMIC_ACQUIRE) == 1);
    assert_int_equal(v.wait, WEIR_ETHREAD);
    assert_int_equal(v.close_wait, WEIR_ETHREAD);
    assert_int_equal(v.define, WEIR_OK);
    assert_int_equal(v.get, WEIR_OK);
    assert_int_equal(v.try, server == NULL ? WEIR_ALLOWED : WEIR_DENIED);
    assert_int_equal(v.peek, WEIR_OK);
    assert_int_equal(v.stats, WEIR_OK);
    assert_int_equal(v.refund, WEIR_OK);
    weir_bucket_unref(v.bucket);
}

/* ---- A silent store -------------------------------------------------------------------------- */

static void a_silent_store_is_told_by_the_deadline(void **state)
{
    (void)state;
    struct weir_bucket *bucket = empty_bucket(100, 10, 0);
    static struct answer answers[5];
    struct weir_result result;
    assert_int_equal(weir_acquire_wait(bucket, 1, SECOND, NULL), WEIR_ALLOWED);
    kill(server->pid, SIGSTOP);
    int64_t from_us = real_us();
    for (int i = 0; i < 5; i++) {
        assert_int_equal(ask(&answers[i], bucket, 1, 50 * MS + i * 10 * MS, NULL), WEIR_PENDING);
    }
    for (int i = 0; i < 5; i++) {
        UNTIL(answered(&answers[i]));
        assert_int_equal(answers[i].result.verdict, WEIR_UNAVAILABLE);
        assert_int_equal(answers[i].result.reason, WEIR_DEADLINE);
        assert_int_equal(answers[i].result.remaining_tokens, WEIR_UNKNOWN);
        assert_int_equal(answers[i].result.retry_after_us, WEIR_UNKNOWN);
        assert_int_equal(answers[i].result.reset_after_us, WEIR_UNKNOWN);
        int64_t us = answers[i].at_us - from_us;
        assert_true(us >= 50 * MS + i * 10 * MS && us < 900 * MS);
    }
    kill(server->pid, SIGCONT);
    UNTIL(weir_acquire_wait(bucket, 1, SECOND, &result) == WEIR_ALLOWED);
    assert_int_equal(stats_of(weir).unavailable, 5);
    weir_bucket_unref(bucket);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(waiters_are_served_in_order),
        BOTH(waiters_are_served_in_order_by_leases),
        BOTH(a_large_cost_is_not_overtaken),
        BOTH(who_comes_second_is_not_first),
        BOTH(blocking_waits_as_long_as_needed),
        BOTH(a_certain_refusal_comes_at_once),
        BOTH(a_deadline_is_kept),
        BOTH(no_time_means_no_waiting),
        BOTH(mistakes_are_told),
        BOTH(max_waiters_is_held),
        BOTH(a_callback_may_acquire),
        BOTH(a_callback_may_call_all_but_what_blocks),
        THERE(a_silent_store_is_told_by_the_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
