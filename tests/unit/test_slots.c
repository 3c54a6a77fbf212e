/* SPDX-License-Identifier: MIT */
/* core/leases: a lease of departure slots, which become credit one by one and do not wait. */
#include "core/leases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/num.h"

#define MS INT64_C(1000)
#define LIFE_US (300 * MS)

static struct {
    int64_t credit;
    struct weir__ledger sum;
    struct weir__leases leases;
    struct weir__settle rows[WEIR__SETTLE_ROWS];
} desk;

/* `slots` of window 7, the first due at `first_us`, the others `apart_us` after it; heard at 0. */
static void lease(int64_t slots, int64_t first_us, int64_t apart_us)
{
    memset(&desk, 0, sizeof desk);
    weir__leases_init(&desk.leases, &desk.credit, &desk.sum);
    const struct weir__grant grant = {.lease = slots,
                                      .window = 7,
                                      .life_us = LIFE_US,
                                      .first_us = first_us,
                                      .spread_us = slots * apart_us};
    assert_true(weir__leases_add_slots(&desk.leases, &grant, 0, 0));
}

/* Looks at this time; returns the credit there is then. */
static int64_t look(int64_t now_us)
{
    (void)weir__leases_look(&desk.leases, now_us);
    int64_t left = 0;
    for (unsigned i = 0; i < desk.leases.count; i++) {
        left += desk.leases.at[i].left;
    }
    assert_int_equal(left, desk.credit);
    assert_int_equal(desk.sum.granted,
                     desk.sum.spent + left + desk.sum.given_back + desk.sum.expired);
    return desk.credit;
}

static void test_each_opens_at_its_time(void **state)
{
    (void)state;
    lease(4, 5 * MS, 10 * MS);
    assert_int_equal(look(5 * MS - 1), 0);
    assert_int_equal(weir__leases_next_us(&desk.leases), 5 * MS);
    for (int64_t i = 0; i < 4; i++) {
        assert_int_equal(weir__leases_coming(&desk.leases), 4 - i);
        assert_int_equal(look(5 * MS + i * 10 * MS), 1);
        desk.credit--; /* a caller */
        assert_int_equal(look(5 * MS + i * 10 * MS + 1), 0);
    }
    assert_int_equal(weir__leases_coming(&desk.leases), 0);
    assert_int_equal(desk.sum.granted, 4);
    assert_int_equal(desk.sum.spent, 4);
}

static void test_one_that_nobody_took_goes_when_the_next_comes(void **state)
{
    (void)state;
    lease(3, 0, 10 * MS);
    assert_int_equal(look(0), 1);
    assert_int_equal(look(10 * MS - 1), 1);
    assert_int_equal(look(10 * MS), 1);
    assert_int_equal(look(20 * MS), 1);
    assert_int_equal(look(30 * MS - 1), 1);
    assert_int_equal(look(30 * MS + 1), 0);
    assert_int_equal(desk.sum.expired, 3);
}

/* Slots closer together than the loop's looks come together. */
static void test_many_a_look(void **state)
{
    (void)state;
    lease(100, 0, 100);
    assert_int_equal(look(0), 1);
    assert_int_equal(look(MS), 10);
    assert_int_equal(look(3 * MS), 20);
}

/* 15 slots have passed in a stall; who comes after it finds one. */
static void test_a_stall_brings_no_burst(void **state)
{
    (void)state;
    lease(25, 0, 10 * MS);
    assert_int_equal(look(0), 1);
    assert_int_equal(look(155 * MS), 1);
    assert_int_equal(weir__leases_coming(&desk.leases), 9);
    assert_int_equal(look(160 * MS), 1);
}

static void test_none_outlives_the_lease(void **state)
{
    (void)state;
    lease(2, LIFE_US - 5 * MS, 10 * MS);
    assert_int_equal(look(LIFE_US - 5 * MS), 1);
    assert_int_equal(look(LIFE_US), 0);
    assert_int_equal(weir__leases_coming(&desk.leases), 0);
    const struct weir__grant late = {
        .lease = 1, .window = 7, .life_us = LIFE_US, .first_us = LIFE_US, .spread_us = 10 * MS};
    assert_false(weir__leases_add_slots(&desk.leases, &late, 0, 0));
}

/* What is spent is told, and with all that goes back the slots to come: they free the budget. */
static void test_the_store_is_told(void **state)
{
    (void)state;
    lease(5, 0, 10 * MS);
    assert_int_equal(look(0), 1);
    desk.credit--;
    assert_int_equal(look(10 * MS), 1);
    weir__leases_settle(&desk.leases, INT64_MAX, desk.rows, 10 * MS);
    assert_int_equal(desk.rows[0].window, 7);
    assert_int_equal(desk.rows[0].spent, 1);
    assert_int_equal(desk.rows[0].back, 4); /* the one that is open, and three to come */
    assert_int_equal(look(20 * MS), 0);
}

static void test_a_departure_is_not_undone(void **state)
{
    (void)state;
    lease(5, 0, 10 * MS);
    assert_int_equal(look(0), 1);
    desk.credit--;
    (void)look(MS);
    assert_int_equal(weir__leases_refund(&desk.leases, 1, MS), 0);
    assert_int_equal(look(2 * MS), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_opens_at_its_time),
        cmocka_unit_test(test_one_that_nobody_took_goes_when_the_next_comes),
        cmocka_unit_test(test_many_a_look),
        cmocka_unit_test(test_a_stall_brings_no_burst),
        cmocka_unit_test(test_none_outlives_the_lease),
        cmocka_unit_test(test_the_store_is_told),
        cmocka_unit_test(test_a_departure_is_not_undone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
