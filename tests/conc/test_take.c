/* SPDX-License-Identifier: MIT */
/*
 * Many threads at one bucket: exactly the tokens that are there are admitted, nobody is told
 * "empty" while some are left, and the books agree while refunds, statistics, changed limits and
 * evictions go on beside.
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

#define THREADS_MAX 8

/* cmocka's asserts jump, which only its own thread may do. */
#define MUST(condition) ((condition) ? (void)0 : must(#condition, __LINE__))

static void must(const char *condition, int line)
{
    print_error("line %d: not so: %s\n", line, condition);
    abort();
}

/* ---- One instant ----------------------------------------------------------------------------- */

struct instant {
    pthread_barrier_t gate;
    struct weir_bucket *bucket;
    bool over;
    unsigned allowed; /* atomic */
};

static void *take_one(void *arg)
{
    struct instant *instant = arg;
    while (pthread_barrier_wait(&instant->gate), !instant->over) {
        if (weir_try_acquire(instant->bucket, 1, NULL) == WEIR_ALLOWED) {
            __atomic_add_fetch(&instant->allowed, 1, __ATOMIC_RELAXED);
        }
        pthread_barrier_wait(&instant->gate);
    }
    return NULL;
}

/* `taken` of `initial` tokens are taken, then a second passes that brings `rate`, and all
 * threads take one at once: how many got it, each round? */
static void instants(unsigned threads, unsigned rounds, uint64_t rate, uint64_t capacity,
                     uint64_t budget, uint64_t initial, uint64_t taken, unsigned expected)
{
    struct hand_clock hand;
    struct instant instant = {.over = false};
    pthread_t ids[THREADS_MAX];
    int64_t now_us = SECOND;
    hand_clock_set(&hand, now_us);
    struct weir *weir = open_inprocess(&hand);
    struct weir_limit_options rule = limit_options("limit", rate, SECOND, capacity, budget);
    rule.initial_tokens = initial;
    struct weir_limit *limit = define_with(weir, &rule);
    pthread_barrier_init(&instant.gate, NULL, threads + 1);
    for (unsigned i = 0; i < threads; i++) {
        assert_int_equal(pthread_create(&ids[i], NULL, take_one, &instant), 0);
    }
    for (unsigned i = 0; i < rounds; i++) {
        assert_int_equal(weir_bucket_get(limit, &i, sizeof(i), &instant.bucket), WEIR_OK);
        assert_int_equal(weir_try_acquire(instant.bucket, taken, NULL), WEIR_ALLOWED);
        hand_clock_set(&hand, now_us += SECOND);
        instant.allowed = 0;
        pthread_barrier_wait(&instant.gate);
        pthread_barrier_wait(&instant.gate);
        assert_int_equal(instant.allowed, expected);
        weir_bucket_unref(instant.bucket);
    }
    instant.over = true;
    pthread_barrier_wait(&instant.gate);
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
    }
    pthread_barrier_destroy(&instant.gate);
    assert_int_equal(weir_close_wait(weir), WEIR_OK);
}

/* Three there and one that accrues in this instant: four of eight, every time. */
static void three_and_one_are_four(void **state)
{
    (void)state;
    instants(8, 1000, 1, 10, 0, 4, 1, 4);
    instants(8, 1000, 1, 10, 4, 4, 1, 4);
    instants(8, 1000, 1, 10, 10, 4, 1, 4);
}

/* Who loses the race to refill is served by what the winner has brought. */
static void the_loser_of_a_refill_is_served(void **state)
{
    (void)state;
    instants(2, 1500, 100, 100, 0, 100, 100, 2);
    instants(2, 1500, 100, 100, 50, 100, 100, 2);
    instants(2, 1500, 100, 100, 100, 100, 100, 2);
}

/* ---- Takes and refunds ----------------------------------------------------------------------- */

struct worker {
    struct weir_limit *limit;
    struct weir_bucket *bucket; /* NULL: by key, of `keys` */
    uint32_t keys;
    uint64_t seed, admitted, refunded, refused;
    int64_t until_us;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    uint64_t mine = 0; /* admitted and not refunded */
    while (real_us() < w->until_us) {
        for (int i = 0; i < 50; i++) {
            uint64_t cost = 1 + weir__random(&w->seed) % 3;
            uint32_t key = w->keys == 0 ? 0 : (uint32_t)(weir__random(&w->seed) % w->keys);
            int verdict = w->bucket != NULL
                              ? weir_try_acquire(w->bucket, cost, NULL)
                              : weir_try_acquire_key(w->limit, &key, sizeof(key), cost, NULL);
            MUST(verdict == WEIR_ALLOWED || verdict == WEIR_DENIED || verdict == WEIR_EFULL);
            mine += verdict == WEIR_ALLOWED ? cost : 0;
            w->admitted += verdict == WEIR_ALLOWED ? cost : 0;
            w->refused += verdict == WEIR_DENIED;
        }
        if (w->bucket != NULL && mine > 0) {
            uint64_t back = 1 + weir__random(&w->seed) % mine;
            MUST(weir_refund(w->bucket, back) == WEIR_OK);
            mine -= back;
            w->refunded += back;
        }
    }
    return NULL;
}

struct sum {
    uint64_t admitted, refunded, refused;
};

/* Runs the workers, with statistics and changes of the limit beside them. */
static struct sum run(struct weir *weir, struct worker *workers, unsigned count,
                      const struct weir_limit_options *change)
{
    pthread_t ids[THREADS_MAX];
    struct sum sum = {0};
    int64_t until_us = real_us() + 500 * MS;
    for (unsigned i = 0; i < count; i++) {
        workers[i].seed = i + 1;
        workers[i].until_us = until_us;
        assert_int_equal(pthread_create(&ids[i], NULL, work, &workers[i]), 0);
    }
    while (real_us() < until_us) {
        struct weir_stats stats = stats_of(weir);
        assert_conserved(&stats);
        if (change != NULL) {
            assert_int_equal(weir_limit_update(workers[0].limit, change, NULL), WEIR_OK);
        }
        pause_us(300);
    }
    for (unsigned i = 0; i < count; i++) {
        pthread_join(ids[i], NULL);
        sum.admitted += workers[i].admitted;
        sum.refunded += workers[i].refunded;
        sum.refused += workers[i].refused;
    }
    return sum;
}

/* Time stands still: what was admitted and not given back, and what is left, make the capacity. */
static void takes_and_refunds_in_process(void **state)
{
    (void)state;
    const uint64_t budgets[] = {0, 100, 1000};
    for (size_t b = 0; b < 3; b++) {
        struct hand_clock hand;
        hand_clock_set(&hand, SECOND);
        struct weir *weir = open_inprocess(&hand);
        struct weir_limit_options rule = limit_options("limit", 1, HOUR, 1000, budgets[b]);
        struct weir_limit *limit = define_with(weir, &rule);
        struct weir_bucket *bucket = get(limit, "key");
        struct worker workers[4];
        for (int i = 0; i < 4; i++) {
            workers[i] = (struct worker){.limit = limit, .bucket = bucket};
        }
        struct sum sum = run(weir, workers, 4, &rule);
        uint64_t left = 0;
        while (weir_try_acquire(bucket, 1, NULL) == WEIR_ALLOWED) {
            left++;
        }
        assert_int_equal(sum.admitted - sum.refunded + left, 1000);
        struct weir_stats stats = stats_of(weir);
        assert_conserved(&stats);
        assert_int_equal(stats.lease_spent + stats.exact_spent, sum.admitted + left);
        assert_int_equal(stats.refunded, sum.refunded);
        assert_int_equal(stats.denied, sum.refused + 1);
        weir_bucket_unref(bucket);
        assert_int_equal(weir_close_wait(weir), WEIR_OK);
    }
}

/* More keys than places: buckets come and go while they are counted and their limit is changed. */
static void evictions_in_process(void **state)
{
    (void)state;
    struct weir_options options;
    weir_options_init(&options, sizeof(options));
    options.max_keys = 32;
    struct weir *weir = open_with(&options);
    struct weir_limit_options rule = limit_options("limit", 1000000, SECOND, 10, 4);
    struct worker workers[4];
    struct weir_limit *limit = define_with(weir, &rule);
    for (int i = 0; i < 4; i++) {
        workers[i] = (struct worker){.limit = limit, .keys = 100};
    }
    struct sum sum = run(weir, workers, 4, &rule);
    struct weir_stats stats = stats_of(weir);
    assert_conserved(&stats);
    assert_true(stats.buckets <= 32);
    assert_int_equal(stats.lease_spent + stats.exact_spent, sum.admitted);
    assert_int_equal(stats.denied, sum.refused);
    assert_int_equal(weir_close_wait(weir), WEIR_OK);
}

/* The loop adds credit while threads take it and give it back. */
static void takes_and_refunds_on_redis(void **state)
{
    (void)state;
    struct server *server = store_start();
    struct weir *weir = open_store(server);
    struct weir_limit_options rule = limit_options("limit", 50000, SECOND, 5000, 2500);
    struct weir_limit *limit = define_with(weir, &rule);
    struct weir_bucket *bucket = get(limit, "key");
    struct worker workers[4];
    for (int i = 0; i < 4; i++) {
        workers[i] = (struct worker){.limit = limit, .bucket = bucket};
    }
    int64_t from_us = real_us();
    struct sum sum = run(weir, workers, 4, &rule);
    uint64_t most = 5000 + 2500 + 50000 * (uint64_t)(real_us() - from_us) / SECOND;
    struct weir_stats stats = stats_of(weir);
    assert_conserved(&stats);
    assert_int_equal(stats.refunded, sum.refunded);
    assert_int_equal(stats.denied + stats.cold, sum.refused);
    /* Refunds that became credit again are taken off what was spent; the others travel. */
    uint64_t spent = stats.lease_spent + stats.exact_spent;
    assert_true(spent <= sum.admitted && spent >= sum.admitted - sum.refunded);
    assert_true(sum.admitted - sum.refunded <= most);
    assert_int_equal(weir_refund(bucket, sum.admitted - sum.refunded), WEIR_OK);
    assert_int_equal(weir_refund(bucket, 1), WEIR_EINVAL);
    weir_bucket_unref(bucket);
    assert_int_equal(weir_close_wait(weir), WEIR_OK);
    store_stop(server);
}

static void evictions_on_redis(void **state)
{
    (void)state;
    char url[128];
    struct server *server = store_start();
    url_of(server, url);
    struct weir_options options = store_options(url);
    options.max_keys = 32;
    struct weir *weir = open_with(&options);
    struct weir_limit_options rule = limit_options("limit", 100000, SECOND, 1000, 500);
    rule.window_ms = 20;
    struct weir_limit *limit = define_with(weir, &rule);
    struct worker workers[3];
    for (int i = 0; i < 3; i++) {
        workers[i] = (struct worker){.limit = limit, .keys = 300};
    }
    struct sum sum = run(weir, workers, 3, &rule);
    struct weir_stats stats = stats_of(weir);
    assert_conserved(&stats);
    assert_true(stats.buckets <= 32);
    assert_int_equal(stats.lease_spent + stats.exact_spent, sum.admitted);
    assert_int_equal(stats.denied + stats.cold, sum.refused);
    assert_int_equal(weir_close_wait(weir), WEIR_OK);
    store_stop(server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_and_one_are_four),
        cmocka_unit_test(the_loser_of_a_refill_is_served),
        cmocka_unit_test(takes_and_refunds_in_process),
        cmocka_unit_test(evictions_in_process),
        cmocka_unit_test(takes_and_refunds_on_redis),
        cmocka_unit_test(evictions_on_redis),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
