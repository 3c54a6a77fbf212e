/* SPDX-License-Identifier: MIT */
/* The bell: no push is lost, a silent bell stays silent, and threads may ring while it closes. */
#include "io/wake.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/atomic.h"

#define THREADS 4
#define PUSHES 20000
#define CLOSES 100

struct belfry {
    uv_loop_t loop;
    struct weir__wake wake;
    unsigned pushed; /* threads add, then ring */
    unsigned seen;   /* the callback's last look */
    unsigned looks;
    bool closed;
    pthread_barrier_t start;
};

static void on_rung(void *arg)
{
    struct belfry *belfry = arg;
    belfry->looks++;
    belfry->seen = weir__load_relaxed(&belfry->pushed);
    assert_false(belfry->closed);
}

static void on_closed(void *arg)
{
    struct belfry *belfry = arg;
    belfry->closed = true;
}

static void build(struct belfry *belfry)
{
    *belfry = (struct belfry){0};
    assert_int_equal(uv_loop_init(&belfry->loop), 0);
    assert_int_equal(weir__wake_init(&belfry->wake, &belfry->loop, on_rung, belfry), 0);
}

static void tear_down(struct belfry *belfry)
{
    weir__wake_close(&belfry->wake, on_closed);
    assert_false(belfry->closed);
    assert_int_equal(uv_run(&belfry->loop, UV_RUN_DEFAULT), 0);
    assert_true(belfry->closed);
    assert_int_equal(uv_loop_close(&belfry->loop), 0);
}

static void test_a_ring_is_answered_and_rings_melt(void **state)
{
    (void)state;
    struct belfry belfry;
    build(&belfry);
    uv_run(&belfry.loop, UV_RUN_NOWAIT);
    assert_int_equal(belfry.looks, 0);
    for (int i = 0; i < 5; i++) {
        assert_true(weir__wake_ring(&belfry.wake));
    }
    uv_run(&belfry.loop, UV_RUN_NOWAIT);
    assert_int_equal(belfry.looks, 1);
    assert_true(weir__wake_ring(&belfry.wake));
    uv_run(&belfry.loop, UV_RUN_NOWAIT);
    assert_int_equal(belfry.looks, 2);
    tear_down(&belfry);
    assert_false(weir__wake_ring(&belfry.wake));
}

static void test_a_closing_bell_is_not_answered(void **state)
{
    (void)state;
    struct belfry belfry;
    build(&belfry);
    assert_true(weir__wake_ring(&belfry.wake));
    tear_down(&belfry);
    assert_int_equal(belfry.looks, 0);
}

/* A thread that the system has put to sleep inside a ring. */
static void test_closing_waits_for_who_is_inside(void **state)
{
    (void)state;
    struct belfry belfry;
    build(&belfry);
    assert_true(weir__wake_ring(&belfry.wake));
    weir__add_acq_rel(&belfry.wake.inside, 1);
    weir__wake_close(&belfry.wake, on_closed);
    for (int turn = 0; turn < 5; turn++) {
        uv_run(&belfry.loop, UV_RUN_ONCE);
        assert_false(uv_is_closing((const uv_handle_t *)&belfry.wake.async));
    }
    assert_int_equal(belfry.looks, 0);
    weir__sub_acq_rel(&belfry.wake.inside, 1);
    assert_int_equal(uv_run(&belfry.loop, UV_RUN_DEFAULT), 0);
    assert_true(belfry.closed);
    assert_int_equal(uv_loop_close(&belfry.loop), 0);
}

static void *push_many(void *arg)
{
    struct belfry *belfry = arg;
    for (int i = 0; i < PUSHES; i++) {
        /* Relaxed: the ring is what publishes it. */
        weir__add_relaxed(&belfry->pushed, 1);
        if (!weir__wake_ring(&belfry->wake)) {
            abort();
        }
    }
    return NULL;
}

/* The last push of all must be seen without another ring.  The alarm turns a lost one into a
 * failure. */
static void on_alarm(uv_timer_t *alarm)
{
    (void)alarm;
    fail_msg("a push was lost");
}

static void test_no_push_is_lost(void **state)
{
    (void)state;
    struct belfry belfry;
    pthread_t threads[THREADS];
    uv_timer_t alarm;
    build(&belfry);
    uv_timer_init(&belfry.loop, &alarm);
    uv_timer_start(&alarm, on_alarm, 20000, 0);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, push_many, &belfry), 0);
    }
    while (belfry.seen < THREADS * PUSHES) {
        uv_run(&belfry.loop, UV_RUN_ONCE);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    uv_close((uv_handle_t *)&alarm, NULL);
    tear_down(&belfry);
}

static void *ring_until_closed(void *arg)
{
    struct belfry *belfry = arg;
    pthread_barrier_wait(&belfry->start);
    while (weir__wake_ring(&belfry->wake)) {
    }
    return NULL;
}

/* Threads ring while the loop closes the bell, at a moment that varies from round to round. */
static void test_threads_ring_while_it_closes(void **state)
{
    (void)state;
    for (int round = 0; round < CLOSES; round++) {
        struct belfry belfry;
        pthread_t threads[THREADS];
        build(&belfry);
        pthread_barrier_init(&belfry.start, NULL, THREADS + 1);
        for (int i = 0; i < THREADS; i++) {
            assert_int_equal(pthread_create(&threads[i], NULL, ring_until_closed, &belfry), 0);
        }
        pthread_barrier_wait(&belfry.start);
        for (int turn = 0; turn < round % 4; turn++) {
            uv_run(&belfry.loop, UV_RUN_ONCE);
        }
        tear_down(&belfry);
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
        }
        pthread_barrier_destroy(&belfry.start);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_ring_is_answered_and_rings_melt),
        cmocka_unit_test(test_a_closing_bell_is_not_answered),
        cmocka_unit_test(test_closing_waits_for_who_is_inside),
        cmocka_unit_test(test_no_push_is_lost),
        cmocka_unit_test(test_threads_ring_while_it_closes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
