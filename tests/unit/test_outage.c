/* SPDX-License-Identifier: MIT */
/* core/outage: every way between the states, and no other. */
#include "core/outage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define MOST 8
#define MS INT64_C(1000)

static struct weir__outage up(void)
{
    struct weir__outage outage;
    weir__outage_init(&outage);
    weir__outage_linked(&outage);
    assert_int_equal(outage.state, WEIR__STORE_UP);
    return outage;
}

static void test_first_connection(void **state)
{
    (void)state;
    struct weir__outage outage;
    weir__outage_init(&outage);
    assert_int_equal(outage.state, WEIR__STORE_CONNECTING);
    assert_int_equal(weir__outage_asks(&outage, MOST), 0);
    assert_false(weir__outage_is_down(&outage)); /* not yet an outage: asks wait */
    weir__outage_linked(&outage);
    assert_int_equal(weir__outage_asks(&outage, MOST), MOST);
}

static void test_first_connection_fails(void **state)
{
    (void)state;
    struct weir__outage outage;
    weir__outage_init(&outage);
    weir__outage_unlinked(&outage);
    assert_int_equal(outage.state, WEIR__STORE_DOWN);
    /* nothing to probe without a link */
    assert_int_equal(weir__outage_next_us(&outage), INT64_MAX);
    weir__outage_linked(&outage);
    assert_int_equal(outage.state, WEIR__STORE_PROBING);
    assert_int_equal(weir__outage_asks(&outage, MOST), 1);
    weir__outage_answered(&outage);
    assert_int_equal(outage.state, WEIR__STORE_UP);
    assert_int_equal(outage.outages, 1);
}

static void test_one_lost_ask_is_no_outage(void **state)
{
    (void)state;
    struct weir__outage outage = up();
    weir__outage_lost(&outage, 0);
    assert_int_equal(outage.state, WEIR__STORE_SUSPECT);
    assert_int_equal(weir__outage_asks(&outage, MOST), MOST);
    weir__outage_answered(&outage);
    assert_int_equal(outage.state, WEIR__STORE_UP);
}

/* Many asks that were sent together are lost together: that is one event. */
static void test_lost_together(void **state)
{
    (void)state;
    struct weir__outage outage = up();
    for (int i = 0; i < 100; i++) {
        weir__outage_lost(&outage, 10 * MS);
    }
    assert_int_equal(outage.state, WEIR__STORE_SUSPECT);
    weir__outage_lost(&outage, 200 * MS);
    assert_int_equal(outage.state, WEIR__STORE_DOWN);
}

static void test_few_but_far_apart(void **state)
{
    (void)state;
    struct weir__outage outage = up();
    weir__outage_lost(&outage, 0);
    weir__outage_lost(&outage, 1000 * MS);
    assert_int_equal(outage.state, WEIR__STORE_SUSPECT); /* two are not three */
    weir__outage_answered(&outage);
    weir__outage_lost(&outage, 2000 * MS);
    weir__outage_lost(&outage, 3000 * MS);
    assert_int_equal(outage.state, WEIR__STORE_SUSPECT); /* the count starts over with an answer */
    weir__outage_lost(&outage, 4000 * MS);
    assert_int_equal(outage.state, WEIR__STORE_DOWN);
}

static struct weir__outage down_by_loss(int64_t now_us)
{
    struct weir__outage outage = up();
    weir__outage_lost(&outage, now_us - 300 * MS);
    weir__outage_lost(&outage, now_us - 150 * MS);
    weir__outage_lost(&outage, now_us);
    assert_int_equal(outage.state, WEIR__STORE_DOWN);
    return outage;
}

static void test_probes_until_answered(void **state)
{
    (void)state;
    int64_t now_us = 1000 * MS;
    struct weir__outage outage = down_by_loss(now_us);
    for (int i = 0; i < 3; i++) {
        int64_t probe_us = weir__outage_next_us(&outage);
        assert_true(probe_us > now_us && probe_us <= now_us + 500 * MS);
        weir__outage_tick(&outage, probe_us - 1);
        assert_int_equal(outage.state, WEIR__STORE_DOWN);
        weir__outage_tick(&outage, probe_us);
        assert_int_equal(outage.state, WEIR__STORE_PROBING);
        assert_true(weir__outage_is_down(&outage)); /* the policies still decide */
        assert_int_equal(weir__outage_asks(&outage, MOST), 1);
        now_us = probe_us + 100 * MS;
        weir__outage_lost(&outage, now_us);
        assert_int_equal(outage.state, WEIR__STORE_DOWN);
    }
    weir__outage_tick(&outage, weir__outage_next_us(&outage));
    weir__outage_answered(&outage);
    assert_int_equal(outage.state, WEIR__STORE_UP);
    assert_int_equal(outage.outages, 1); /* all this was one */
}

static void test_connection_gone(void **state)
{
    (void)state;
    struct weir__outage outage = up();
    weir__outage_unlinked(&outage);
    assert_int_equal(outage.state, WEIR__STORE_DOWN);
    weir__outage_lost(&outage, 0); /* the asks that were on it are told after */
    weir__outage_answered(&outage);
    assert_int_equal(outage.state, WEIR__STORE_DOWN);
    weir__outage_linked(&outage);
    weir__outage_unlinked(&outage); /* and gone again before the probe */
    assert_int_equal(outage.state, WEIR__STORE_DOWN);
    weir__outage_linked(&outage);
    weir__outage_answered(&outage);
    assert_int_equal(outage.state, WEIR__STORE_UP);
    assert_int_equal(outage.outages, 1);
}

/* Nobody is there to carry the probe: who comes next asks as if nothing had been, and one loss does
 * not make an outage of it. */
static void test_nobody_to_probe(void **state)
{
    (void)state;
    struct weir__outage outage = up();
    weir__outage_unprobed(&outage);
    assert_int_equal(outage.state, WEIR__STORE_UP);
    weir__outage_unlinked(&outage);
    weir__outage_unprobed(&outage);
    assert_int_equal(outage.state, WEIR__STORE_DOWN);
    weir__outage_linked(&outage);
    weir__outage_unprobed(&outage);
    assert_int_equal(outage.state, WEIR__STORE_SUSPECT);
    assert_int_equal(weir__outage_asks(&outage, MOST), MOST);
    weir__outage_lost(&outage, 0);
    assert_int_equal(outage.state, WEIR__STORE_SUSPECT);
    weir__outage_answered(&outage);
    assert_int_equal(outage.state, WEIR__STORE_UP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_connection),
        cmocka_unit_test(test_first_connection_fails),
        cmocka_unit_test(test_one_lost_ask_is_no_outage),
        cmocka_unit_test(test_lost_together),
        cmocka_unit_test(test_few_but_far_apart),
        cmocka_unit_test(test_probes_until_answered),
        cmocka_unit_test(test_connection_gone),
        cmocka_unit_test(test_nobody_to_probe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
