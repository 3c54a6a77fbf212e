/* SPDX-License-Identifier: MIT */
/*
 * Every call into hiredis comes from the loop's thread, whoever acquires: this program stands
 * between the library and hiredis, by functions of the same names, and looks who calls.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <hiredis/async.h>

#include "api/fixture.h"
#include "script/server.h"

#define THREADS 8
#define ACQUIRES 20000
#define KEYS 32

static uint64_t loop_thread;    /* atomic: of the first call; 0: none yet */
static uint64_t calls, foreign; /* atomic */

static void look_who_calls(void)
{
    uint64_t self = (uint64_t)pthread_self();
    uint64_t none = 0;
    __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
    if (!__atomic_compare_exchange_n(&loop_thread, &none, self, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE) &&
        none != self) {
        __atomic_add_fetch(&foreign, 1, __ATOMIC_RELAXED);
    }
}

/* The function that would have been called.  Through memory: a cast to a function is not in C. */
#define REAL(type, name)                                                                           \
    type real;                                                                                     \
    void *symbol = dlsym(RTLD_NEXT, name);                                                         \
    memcpy(&real, &symbol, sizeof(real));                                                          \
    look_who_calls()

int redisAsyncCommandArgv(redisAsyncContext *context, redisCallbackFn *fn, void *arg, int argc,
                          const char **argv, const size_t *len)
{
    typedef int function(redisAsyncContext *, redisCallbackFn *, void *, int, const char **,
                         const size_t *);
    REAL(function *, "redisAsyncCommandArgv");
    return real(context, fn, arg, argc, argv, len);
}

redisAsyncContext *redisAsyncConnectUnix(const char *path)
{
    typedef redisAsyncContext *function(const char *);
    REAL(function *, "redisAsyncConnectUnix");
    return real(path);
}

void redisAsyncHandleRead(redisAsyncContext *context)
{
    typedef void function(redisAsyncContext *);
    REAL(function *, "redisAsyncHandleRead");
    real(context);
}

void redisAsyncHandleWrite(redisAsyncContext *context)
{
    typedef void function(redisAsyncContext *);
    REAL(function *, "redisAsyncHandleWrite");
    real(context);
}

void redisAsyncFree(redisAsyncContext *context)
{
    typedef void function(redisAsyncContext *);
    REAL(function *, "redisAsyncFree");
    real(context);
}

static struct weir_limit *limit;

/* A budget of nothing makes each wait a call to the store, and each try a wish for one. */
static void *acquire_many(void *arg)
{
    uintptr_t mine = (uintptr_t)arg;
    for (uintptr_t i = 0; i < ACQUIRES; i++) {
        uint32_t key = (uint32_t)((i + mine) % KEYS);
        if (i % 200 == 0) {
            (void)weir_acquire_wait_key(limit, &key, sizeof(key), 1, 0, NULL);
        } else {
            (void)weir_try_acquire_key(limit, &key, sizeof(key), 1, NULL);
        }
    }
    return NULL;
}

static void hiredis_is_called_by_the_loop_alone(void **state)
{
    (void)state;
    struct server *server = store_start();
    struct weir *weir = open_store(server);
    pthread_t threads[THREADS];
    struct answer answer;
    limit = define(weir, "limit", 10000, SECOND, 1000, 100);
    struct weir_bucket *bucket = get(define(weir, "exact", 1, HOUR, 10, 0), "key");
    assert_int_equal(ask(&answer, bucket, 1, SECOND, NULL), WEIR_PENDING);
    for (uintptr_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, acquire_many, (void *)i), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    UNTIL(answered(&answer));
    assert_int_equal(answer.result.verdict, WEIR_ALLOWED);
    struct weir_stats stats = stats_of(weir);
    assert_true(stats.asks_sent > 0);
    weir_bucket_unref(bucket);
    assert_int_equal(weir_close_wait(weir), WEIR_OK);
    store_stop(server);
    assert_true(calls > stats.asks_sent); /* all of them went through here */
    assert_int_equal(foreign, 0);
    assert_int_equal(loop_thread, answer.thread);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hiredis_is_called_by_the_loop_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
