/* SPDX-License-Identifier: MIT */
/*
 * Threads that use a handle in every way while another closes the weir: each call is answered or
 * told ECLOSED, each callback comes once, and nothing that is gone is touched.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "api/fixture.h"
#include "base/num.h"
#include "script/server.h"

#define THREADS 4

/* cmocka's asserts jump, which only its own thread may do. */
#define MUST(condition) ((condition) ? (void)0 : must(#condition, __LINE__))

static void must(const char *condition, int line)
{
    print_error("line %d: not so: %s\n", line, condition);
    abort();
}

struct round {
    pthread_barrier_t *gate;
    struct weir_bucket *bucket; /* each thread owns it once */
    bool over;
    uint64_t pending, called; /* atomic */
    uint64_t after;           /* atomic: calls that were told ECLOSED */
};

struct user {
    struct round *round;
    uint64_t seed;
};

static void on_answer(void *arg, const struct weir_result *result)
{
    struct round *round = arg;
    MUST(result->verdict != WEIR_PENDING);
    __atomic_add_fetch(&round->called, 1, __ATOMIC_RELEASE);
}

/* One call of some kind; returns what it said. */
static int call_something(struct user *user)
{
    struct round *round = user->round;
    struct weir_bucket *bucket = round->bucket;
    struct weir_result result;
    int code;
    switch (weir__random(&user->seed) % 8) {
    case 0:
        code = weir_acquire(bucket, 1, 100 * MS, on_answer, round, &result);
        if (code == WEIR_PENDING) {
            __atomic_add_fetch(&round->pending, 1, __ATOMIC_RELAXED);
        }
        return code;
    case 1: return weir_acquire_wait(bucket, 1, 200, &result);
    case 2:
        code = weir_refund(bucket, 1);
        MUST(code == WEIR_OK || code == WEIR_EINVAL || code == WEIR_ECLOSED);
        return code == WEIR_EINVAL ? WEIR_OK : code;
    case 3: return weir_peek(bucket, &result);
    case 4: return weir_try_acquire(bucket, 1, &result);
    default: return weir_try_acquire(bucket, 1 + weir__random(&user->seed) % 3, NULL);
    }
}

static void *use(void *arg)
{
    struct user *user = arg;
    struct round *round = user->round;
    while (pthread_barrier_wait(round->gate), !round->over) {
        int code;
        while ((code = call_something(user)) != WEIR_ECLOSED) {
            MUST(code >= 0);
        }
        /* Closed for one, closed for all that follows: but for tokens that were here already. */
        for (int i = 0; i < 10; i++) {
            code = call_something(user);
            MUST(code == WEIR_ECLOSED || code == WEIR_ALLOWED || code == WEIR_OK);
        }
        weir_bucket_unref(round->bucket);
        __atomic_add_fetch(&round->after, 1, __ATOMIC_RELAXED);
        pthread_barrier_wait(round->gate);
    }
    return NULL;
}

static void on_closed(void *arg) { __atomic_store_n((unsigned *)arg, 1, __ATOMIC_RELEASE); }

/* One weir from its opening to its end, with all threads on one bucket of it. */
static void play(struct round *round, const struct weir_options *options, unsigned pause)
{
    struct weir *weir = open_with(options);
    struct weir_limit *limit = define(weir, "limit", 10000, SECOND, 1000, pause % 2 ? 300 : 0);
    round->bucket = get(limit, "key");
    for (int i = 1; i < THREADS; i++) {
        (void)weir_bucket_ref(round->bucket);
    }
    round->pending = round->called = 0;
    pthread_barrier_wait(round->gate);
    pause_us(pause);
    if (pause % 3 == 0) {
        unsigned closed = 0;
        assert_int_equal(weir_close(weir, on_closed, &closed), WEIR_OK);
        UNTIL(__atomic_load_n(&closed, __ATOMIC_ACQUIRE) == 1);
    } else {
        assert_int_equal(weir_close_wait(weir), WEIR_OK);
    }
    pthread_barrier_wait(round->gate);
    assert_int_equal(__atomic_load_n(&round->called, __ATOMIC_ACQUIRE),
                     __atomic_load_n(&round->pending, __ATOMIC_RELAXED));
}

static void play_many(const struct weir_options *options, unsigned rounds)
{
    pthread_barrier_t gate;
    pthread_t threads[THREADS];
    struct user users[THREADS];
    struct round round = {.gate = &gate};
    pthread_barrier_init(&gate, NULL, THREADS + 1);
    for (unsigned i = 0; i < THREADS; i++) {
        users[i] = (struct user){&round, i + 1};
        assert_int_equal(pthread_create(&threads[i], NULL, use, &users[i]), 0);
    }
    for (unsigned i = 0; i < rounds; i++) {
        play(&round, options, i * 37 % 1500);
    }
    round.over = true;
    pthread_barrier_wait(&gate);
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    pthread_barrier_destroy(&gate);
    assert_int_equal(round.after, THREADS * rounds);
}

static void closing_a_weir_in_process(void **state)
{
    (void)state;
    struct weir_options options;
    weir_options_init(&options, sizeof(options));
    play_many(&options, 200);
}

static void closing_a_weir_on_redis(void **state)
{
    (void)state;
    char url[128];
    struct server *server = store_start();
    url_of(server, url);
    struct weir_options options = store_options(url);
    options.ask_timeout_ms = 200;
    play_many(&options, 70);
    store_stop(server);
}

static void closing_a_weir_without_a_store(void **state)
{
    (void)state;
    struct weir_options options = store_options("unix:///nonexistent/weir/socket");
    play_many(&options, 70);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closing_a_weir_in_process),
        cmocka_unit_test(closing_a_weir_on_redis),
        cmocka_unit_test(closing_a_weir_without_a_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
