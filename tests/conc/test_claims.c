/* SPDX-License-Identifier: MIT */
/*
 * Threads that want several limits at once, in whatever order: each call is answered in time, each
 * limit holds, and nobody is starved, by each other or by lines that never empty.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "api/setup.h"
#include "base/num.h"
#include "script/server.h"

/* A short ask timeout makes the first rounds' patience short. */
static void open_impatient(uint64_t ask_timeout_ms)
{
    char url[128];
    struct weir_options options = options_of(url);
    options.ask_timeout_ms = ask_timeout_ms;
    weir = open_with(&options);
}

static int inprocess(void **state)
{
    (void)state;
    open_impatient(20);
    return 0;
}

static int redis(void **state)
{
    (void)start_store(state);
    open_impatient(100);
    return 0;
}

#define THREADS 8
#define LIMITS 4
#define RUN_US (1200 * MS)

struct crowd {
    struct weir_bucket *buckets[LIMITS];
    uint64_t admitted[LIMITS]; /* atomic */
    uint64_t calls, allowed;   /* atomic */
    int64_t until_us;
};

struct member {
    struct crowd *crowd;
    uint64_t seed;
    pthread_t thread;
    int64_t longest_us; /* a call took */
};

#define WAIT_US (200 * MS)

/* Any of the limits, in any order, some twice. */
static size_t choose(struct member *m, struct weir_claim claims[LIMITS + 1], uint64_t want[LIMITS])
{
    size_t count = 1 + weir__random(&m->seed) % (LIMITS + 1);
    for (size_t i = 0; i < LIMITS; i++) {
        want[i] = 0;
    }
    for (size_t i = 0; i < count; i++) {
        size_t which = weir__random(&m->seed) % LIMITS;
        uint64_t cost = 1 + weir__random(&m->seed) % 2;
        claims[i] = (struct weir_claim){m->crowd->buckets[which], cost};
        want[which] += cost;
    }
    return count;
}

static void *take_part(void *arg)
{
    struct member *m = arg;
    struct crowd *crowd = m->crowd;
    while (real_us() < crowd->until_us) {
        struct weir_claim claims[LIMITS + 1];
        uint64_t want[LIMITS];
        size_t count = choose(m, claims, want);
        bool waits = weir__random(&m->seed) % 4 != 0;
        int64_t from_us = real_us();
        int code = waits ? weir_acquire_all_wait(claims, count, WAIT_US, NULL, NULL)
                         : weir_try_acquire_all(claims, count, NULL, NULL);
        m->longest_us = weir__max(m->longest_us, real_us() - from_us);
        __atomic_add_fetch(&crowd->calls, 1, __ATOMIC_RELAXED);
        for (size_t i = 0; i < LIMITS && code == WEIR_ALLOWED; i++) {
            __atomic_add_fetch(&crowd->admitted[i], want[i], __ATOMIC_RELAXED);
        }
        __atomic_add_fetch(&crowd->allowed, code == WEIR_ALLOWED, __ATOMIC_RELAXED);
        if (!waits) {
            pause_us(500);
        }
    }
    return NULL;
}

static void a_crowd(uint64_t budget)
{
    static const char *const names[LIMITS] = {"a", "b", "c", "d"};
    static const uint64_t rates[LIMITS] = {100, 200, 300, 400};
    struct crowd crowd = {.until_us = real_us() + RUN_US};
    struct member members[THREADS];
    int64_t from_us = real_us();
    for (size_t i = 0; i < LIMITS; i++) {
        crowd.buckets[i] = get(define(weir, names[i], rates[i], SECOND, 20, budget), "key");
    }
    for (int i = 0; i < THREADS; i++) {
        members[i] = (struct member){.crowd = &crowd, .seed = (uint64_t)i};
        assert_int_equal(pthread_create(&members[i].thread, NULL, take_part, &members[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(members[i].thread, NULL), 0);
        assert_true(members[i].longest_us < WAIT_US + 2 * SECOND);
    }
    double s = (double)(real_us() - from_us) / 1e6;
    for (size_t i = 0; i < LIMITS; i++) {
        assert_true((double)crowd.admitted[i] <= 20 + (double)(budget + 1) + (double)rates[i] * s);
        weir_bucket_unref(crowd.buckets[i]);
    }
    assert_true(crowd.allowed > 50);
    assert_true(crowd.calls >= crowd.allowed);
    assert_int_equal(stats_of(weir).waiters, 0);
    struct weir_stats stats = stats_of(weir);
    assert_conserved(&stats);
    uint64_t admitted = 0;
    for (size_t i = 0; i < LIMITS; i++) {
        admitted += crowd.admitted[i];
    }
    /* On a store what was given back while its lease lives is not spent any more. */
    uint64_t most = stats.lease_spent + stats.exact_spent;
    assert_in_range(admitted, most - stats.refunded, server == NULL ? most - stats.refunded : most);
}

static void a_crowd_comes_through(void **state)
{
    (void)state;
    a_crowd(0);
}

static void a_crowd_comes_through_by_leases(void **state)
{
    (void)state;
    a_crowd(10);
}

/* Lines that never empty, in both limits, each longer than the first rounds' patience. */
static void *stand_in_line(void *arg)
{
    struct member *m = arg;
    struct weir_bucket *bucket = m->crowd->buckets[m->seed % 2];
    while (!__atomic_load_n(&m->crowd->allowed, __ATOMIC_ACQUIRE)) {
        (void)weir_acquire_wait(bucket, 1, 10 * SECOND, NULL);
    }
    return NULL;
}

static void two_full_lines_do_not_starve_it(void **state)
{
    (void)state;
    struct weir_claim claims[2];
    struct member members[THREADS];
    uint64_t rate = server == NULL ? 50 : 15;
    claims[0] = (struct weir_claim){get(define(weir, "one", rate, SECOND, 5, 0), "key"), 1};
    claims[1] = (struct weir_claim){get(define(weir, "two", rate, SECOND, 5, 0), "key"), 1};
    struct crowd crowd = {.buckets = {claims[0].bucket, claims[1].bucket}};
    for (int i = 0; i < THREADS; i++) {
        members[i] = (struct member){.crowd = &crowd, .seed = (uint64_t)i};
        assert_int_equal(pthread_create(&members[i].thread, NULL, stand_in_line, &members[i]), 0);
    }
    UNTIL(stats_of(weir).waiters == THREADS);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(weir_acquire_all_wait(claims, 2, 10 * SECOND, NULL, NULL), WEIR_ALLOWED);
    }
    __atomic_store_n(&crowd.allowed, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(members[i].thread, NULL), 0);
    }
    weir_bucket_unref(claims[0].bucket);
    weir_bucket_unref(claims[1].bucket);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(a_crowd_comes_through),
        BOTH(a_crowd_comes_through_by_leases),
        BOTH(two_full_lines_do_not_starve_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
