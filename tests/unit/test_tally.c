/* SPDX-License-Identifier: MIT */
/* api/tally: no count is lost, with fewer threads than places and with more, at once and in
 * turn. */
#include "api/tally.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define COUNTS 2000
#define CROWD 100 /* more than there are places */

struct crowd {
    struct weir__tallies tallies;
    pthread_barrier_t start;
    unsigned owners; /* atomic: threads with a place of their own */
};

static void *count(void *arg)
{
    struct crowd *crowd = arg;
    for (int i = 0; i < COUNTS; i++) {
        weir__tally_add(&crowd->tallies, WEIR__COUNT_DENIED, 1);
        weir__tally_add(&crowd->tallies, WEIR__COUNT_OUTAGE_ALLOWED, 3);
    }
    __atomic_add_fetch(&crowd->owners, weir__tally_place > 0, __ATOMIC_RELAXED);
    pthread_barrier_wait(&crowd->start); /* all have their places before the first leaves */
    return NULL;
}

/* Runs that many threads at once. */
static void gather(struct crowd *crowd, unsigned size)
{
    pthread_t threads[CROWD];
    pthread_barrier_init(&crowd->start, NULL, size);
    crowd->owners = 0;
    for (unsigned i = 0; i < size; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, count, crowd), 0);
    }
    for (unsigned i = 0; i < size; i++) {
        pthread_join(threads[i], NULL);
    }
    pthread_barrier_destroy(&crowd->start);
}

static void assert_counted(const struct crowd *crowd, uint64_t threads)
{
    assert_int_equal(weir__tally_sum(&crowd->tallies, WEIR__COUNT_DENIED), threads * COUNTS);
    assert_int_equal(weir__tally_sum(&crowd->tallies, WEIR__COUNT_OUTAGE_ALLOWED),
                     threads * COUNTS * 3);
    assert_int_equal(weir__tally_sum(&crowd->tallies, WEIR__COUNT_COLD), 0);
}

static void nothing_is_lost_in_a_crowd(void **state)
{
    (void)state;
    static struct crowd crowd;
    gather(&crowd, CROWD);
    assert_int_equal(crowd.owners, WEIR__TALLY_PLACES - 1);
    assert_counted(&crowd, CROWD);
}

/* A place goes on from where its last owner left it. */
static void places_are_left_and_taken_again(void **state)
{
    (void)state;
    static struct crowd crowd;
    for (uint64_t round = 1; round <= 50; round++) {
        gather(&crowd, 4);
        assert_int_equal(crowd.owners, 4);
        assert_counted(&crowd, 4 * round);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_lost_in_a_crowd),
        cmocka_unit_test(places_are_left_and_taken_again),
    };
    return cmocka_run_group_tests_name("tally", tests, NULL, NULL);
}
