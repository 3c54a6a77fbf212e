/* SPDX-License-Identifier: MIT */
/*
 * No memory: the k-th request of a call is refused, for k = 1, 2, ... until the call succeeds.
 * Each time it says WEIR_ENOMEM, leaves nothing behind (which a sanitizer checks when the
 * program ends), and what was there before goes on working.
 */
#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>
#include <uv.h>

#include "api/fixture.h"
#include "base/mem.h"
#include "script/server.h"

#define MOST 100 /* requests of one call; more mean that it does not end */

static struct server *server;

/* The hook stays from the first test to the last: it may not be changed while a loop's thread is
 * there. */
static pthread_t me;
static unsigned left; /* requests of this thread until one is refused; 0: none is */
static bool refused;  /* one was */
static bool famine;   /* atomic: all requests of all other threads are refused */

static bool refuse(void *arg, size_t size)
{
    (void)arg;
    (void)size;
    if (!pthread_equal(pthread_self(), me)) {
        return __atomic_load_n(&famine, __ATOMIC_RELAXED);
    }
    if (left == 0 || --left > 0) {
        return false;
    }
    refused = true;
    return true;
}

static void arm(unsigned k)
{
    left = k;
    refused = false;
}

/* Returns whether a request was refused. */
static bool disarm(void)
{
    left = 0;
    return refused;
}

static int start(void **state)
{
    (void)state;
    me = pthread_self();
    weir__mem_set_hooks(refuse, NULL);
    server = store_start();
    return 0;
}

static int stop(void **state)
{
    (void)state;
    store_stop(server);
    weir__mem_set_hooks(NULL, NULL);
    return 0;
}

static unsigned threads(void)
{
    unsigned count = 0;
    DIR *dir = opendir("/proc/self/task");
    assert_non_null(dir);
    while (readdir(dir) != NULL) {
        count++;
    }
    closedir(dir);
    return count;
}

/* ---- weir_open ------------------------------------------------------------------------------- */

static void open_and_refuse(const struct weir_options *options)
{
    /* Once, for what a process makes only at its first weir. */
    assert_int_equal(weir_close_wait(open_with(options)), WEIR_OK);
    unsigned tasks = threads();
    unsigned k = 0;
    int code;
    do {
        struct weir *weir = NULL;
        struct weir_error error = {0};
        assert_true(++k < MOST);
        arm(k);
        code = weir_open(&weir, options, &error);
        assert_int_equal(code, disarm() ? WEIR_ENOMEM : WEIR_OK);
        if (code == WEIR_OK) {
            assert_int_equal(weir_close_wait(weir), WEIR_OK);
        } else {
            assert_int_equal(error.code, WEIR_ENOMEM);
            assert_true(error.text[0] != '\0');
            assert_null(weir);
        }
        UNTIL(threads() == tasks); /* a thread that was joined is counted for a moment longer */
    } while (code != WEIR_OK);
    assert_true(k > 1);
}

static void opening_in_process(void **state)
{
    (void)state;
    struct weir_options options;
    weir_options_init(&options, sizeof(options));
    open_and_refuse(&options);
}

static void opening_on_redis(void **state)
{
    (void)state;
    char url[128];
    url_of(server, url);
    struct weir_options options = store_options(url);
    open_and_refuse(&options);
}

static void opening_on_a_borrowed_loop(void **state)
{
    (void)state;
    char url[128];
    unsigned k = 0;
    int code;
    url_of(server, url);
    do {
        uv_loop_t loop;
        struct weir *weir = NULL;
        struct weir_options options = store_options(url);
        assert_true(++k < MOST);
        assert_int_equal(uv_loop_init(&loop), 0);
        options.loop = &loop;
        arm(k);
        code = weir_open(&weir, &options, NULL);
        assert_int_equal(code, disarm() ? WEIR_ENOMEM : WEIR_OK);
        if (code == WEIR_OK) {
            assert_int_equal(weir_close(weir, NULL, NULL), WEIR_OK);
        }
        assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
        assert_int_equal(uv_loop_close(&loop), 0);
    } while (code != WEIR_OK);
}

/* ---- Calls on an open weir ------------------------------------------------------------------- */

static void defining(struct weir *weir)
{
    struct weir_limit_options rule = limit_options("limit", 1000, SECOND, 1000, 100);
    struct weir_limit *limit = NULL;
    struct weir_error error;
    unsigned k = 0;
    int code;
    do {
        assert_true(++k < MOST);
        arm(k);
        code = weir_limit_define(weir, &limit, &rule, &error);
        assert_int_equal(code, disarm() ? WEIR_ENOMEM : WEIR_OK);
        assert_true(code == WEIR_OK || limit == NULL);
    } while (code != WEIR_OK);
    assert_true(k > 1);
    assert_int_equal(weir_limit_define(weir, &limit, &rule, &error), WEIR_EEXIST);
}

/* Enough keys for the table to grow on the way; each is made, or not, and can be made
 * afterwards. */
static void getting(struct weir *weir)
{
    struct weir_limit *limit = define(weir, "keys", 1000, SECOND, 1000, 0);
    unsigned refusals = 0;
    for (uint32_t key = 0; key < 3000; key++) {
        struct weir_bucket *bucket = NULL;
        unsigned k = 0;
        int code;
        do {
            assert_true(++k < MOST);
            arm(k);
            code = weir_bucket_get(limit, &key, sizeof(key), &bucket);
            refusals += disarm();
            assert_true(code == WEIR_OK || (code == WEIR_ENOMEM && refused));
            assert_true(code == WEIR_OK || bucket == NULL);
        } while (code != WEIR_OK);
        weir_bucket_unref(bucket);
    }
    assert_true(refusals >= 3000);
    assert_int_equal(stats_of(weir).buckets, 3000);
}

static void acquiring(struct weir *weir)
{
    struct weir_limit_options rule = limit_options("waits", 100, SECOND, 10, 0);
    rule.initial_tokens = 0;
    struct weir_limit *limit = define_with(weir, &rule);
    struct weir_bucket *bucket = get(limit, "key");
    struct answer answer;
    unsigned k = 0;
    int code;
    do {
        assert_true(++k < MOST);
        arm(k);
        code = ask(&answer, bucket, 1, 5 * SECOND, NULL);
        assert_int_equal(code, disarm() ? WEIR_ENOMEM : WEIR_PENDING);
    } while (code != WEIR_PENDING);
    assert_true(k > 1);
    UNTIL(answered(&answer));
    assert_int_equal(answer.result.verdict, WEIR_ALLOWED);
    assert_int_equal(stats_of(weir).waiters, 0);

    /* By key: the bucket, or the waiter, or both. */
    k = 0;
    do {
        assert_true(++k < MOST);
        arm(k);
        code = weir_acquire_wait_key(limit, &k, sizeof(k), 0, 0, NULL);
        assert_true(disarm() || code != WEIR_ENOMEM);
        assert_true(code == WEIR_ENOMEM || code >= 0);
    } while (code == WEIR_ENOMEM);
    weir_bucket_unref(bucket);
}

static void on_all(void *arg, const struct weir_result *result, size_t index)
{
    unsigned *allowed = arg;
    bool all = result->verdict == WEIR_ALLOWED && index == 2;
    __atomic_store_n(allowed, all ? 1 : 2, __ATOMIC_RELEASE);
}

/* Once a call waits, nothing can run out any more, however often it asks. */
static void acquiring_all(struct weir *weir)
{
    struct weir_limit_options rule = limit_options("slow", 20, SECOND, 10, 0);
    rule.initial_tokens = 0;
    struct weir_claim claims[2] = {{get(define_with(weir, &rule), "key"), 2}};
    rule.name = "slower";
    rule.rate_tokens = 10;
    claims[1] = (struct weir_claim){get(define_with(weir, &rule), "key"), 2};
    unsigned allowed = 0;
    unsigned k = 0;
    int code;
    do {
        assert_true(++k < MOST);
        arm(k);
        code = weir_acquire_all(claims, 2, 5 * SECOND, on_all, &allowed, NULL, NULL);
        assert_int_equal(code, disarm() ? WEIR_ENOMEM : WEIR_PENDING);
    } while (code != WEIR_PENDING);
    assert_int_equal(k, 2); /* one request */
    __atomic_store_n(&famine, true, __ATOMIC_RELAXED);
    UNTIL(__atomic_load_n(&allowed, __ATOMIC_ACQUIRE) != 0);
    __atomic_store_n(&famine, false, __ATOMIC_RELAXED);
    assert_int_equal(allowed, 1);
    assert_int_equal(stats_of(weir).waiters, 0);
    weir_bucket_unref(claims[0].bucket);
    weir_bucket_unref(claims[1].bucket);
}

/* What never asks for memory: a take, a refusal, a wait on the caller's own stack. */
static void these_need_none(struct weir *weir)
{
    struct weir_limit *limit = define(weir, "none", 100, SECOND, 10, 5);
    struct weir_limit_options change = limit_options(NULL, 200, SECOND, 10, 5);
    struct weir_bucket *bucket = get(limit, "key");
    struct weir_claim claims[2] = {{bucket, 1}, {bucket, 1}};
    struct weir_result result;
    (void)weir_try_acquire(bucket, 1, NULL); /* a thread's first call may need some */
    arm(1);
    for (int i = 0; i < 20; i++) {
        assert_true(weir_try_acquire(bucket, 1, &result) >= 0);
        assert_true(weir_try_acquire(bucket, 1, NULL) >= 0);
    }
    assert_int_equal(weir_acquire_wait(bucket, 1, SECOND, NULL), WEIR_ALLOWED);
    assert_true(weir_try_acquire_all(claims, 2, &result, NULL) >= 0);
    assert_int_equal(weir_acquire_all_wait(claims, 2, SECOND, NULL, NULL), WEIR_ALLOWED);
    assert_int_equal(weir_refund(bucket, 1), WEIR_OK);
    assert_int_equal(weir_peek(bucket, &result), WEIR_OK);
    assert_int_equal(weir_limit_update(limit, &change, NULL), WEIR_OK);
    (void)stats_of(weir);
    struct weir_bucket *again;
    assert_int_equal(weir_bucket_get(limit, "key", 3, &again), WEIR_OK);
    weir_bucket_unref(again);
    assert_false(disarm());
    weir_bucket_unref(bucket);
}

static void everything(struct weir *weir)
{
    defining(weir);
    getting(weir);
    acquiring(weir);
    acquiring_all(weir);
    these_need_none(weir);
    struct weir_limit *limit = define(weir, "after", 1, HOUR, 3, 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(weir_acquire_wait_key(limit, "key", 3, 1, 0, NULL),
                         i < 3 ? WEIR_ALLOWED : WEIR_DENIED);
    }
    assert_int_equal(weir_close_wait(weir), WEIR_OK);
}

static void calls_in_process(void **state)
{
    (void)state;
    everything(open_inprocess(NULL));
}

static void calls_on_redis(void **state)
{
    (void)state;
    everything(open_store(server));
}

/* The loop gets no memory for a while: a store that cannot be reached, and no more. */
static void the_loop_without_memory(void **state)
{
    (void)state;
    struct weir *weir = open_store(server);
    struct weir_limit_options rule = limit_options("loop", 1000, SECOND, 1000, 0);
    rule.outage = WEIR_OUTAGE_CLOSED;
    struct weir_bucket *bucket = get(define_with(weir, &rule), "key");
    struct weir_result result;
    assert_int_equal(weir_acquire_wait(bucket, 1, SECOND, NULL), WEIR_ALLOWED);
    __atomic_store_n(&famine, true, __ATOMIC_RELAXED);
    store_do(server, "CLIENT KILL TYPE normal");
    UNTIL(weir_acquire_wait(bucket, 1, 100 * MS, &result) == WEIR_UNAVAILABLE);
    assert_int_equal(result.reason, WEIR_STORE_DOWN);
    pause_us(100000);
    assert_int_equal(weir_acquire_wait(bucket, 1, 100 * MS, &result), WEIR_UNAVAILABLE);
    __atomic_store_n(&famine, false, __ATOMIC_RELAXED);
    UNTIL(weir_acquire_wait(bucket, 1, SECOND, NULL) == WEIR_ALLOWED);
    weir_bucket_unref(bucket);
    assert_int_equal(weir_close_wait(weir), WEIR_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening_in_process),
        cmocka_unit_test(opening_on_redis),
        cmocka_unit_test(opening_on_a_borrowed_loop),
        cmocka_unit_test(calls_in_process),
        cmocka_unit_test(calls_on_redis),
        cmocka_unit_test(the_loop_without_memory),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
