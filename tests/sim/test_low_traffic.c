/* SPDX-License-Identifier: MIT */
/*
 * Few tokens, many processes: five a minute over eight processes, one call each.  What a lease-only
 * design cannot do: here each decision is exact, the sixth caller is told to the microsecond when
 * to come back, and who comes back at that time is served.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/num.h"
#include "core/rule.h"
#include "io/conn.h"
#include "sim/sim.h"

#define PROCESSES 8
#define LIMIT 5
#define MINUTE_US INT64_C(60000000)
#define TIMEOUT_US 100000

static struct sim sim;
static struct lua_host *host;
static int script;

static void begin(int64_t budget, int64_t rtt_us)
{
    struct weir__rule rule = {.version = 1,
                              .algorithm = WEIR__TOKEN_BUCKET,
                              .budget = budget,
                              .window_us = 400000,
                              .initial = LIMIT};
    uint64_t largest;
    assert_true(weir__rule_set_rate(&rule, LIMIT, MINUTE_US, LIMIT, &largest));
    const struct sim_config config = {
        .seed = 1,
        .keys = 1,
        .ask_timeout_us = TIMEOUT_US,
        .max_asks = 16,
        .max_waiters = 16,
        .outage = WEIR__OUTAGE_CLOSED,
        .network = {.swift = rtt_us == 0, .delay_us = rtt_us / 2},
        .audits = true,
    };
    sim_begin(&sim, &config, &rule, PROCESSES, host, script);
}

/* One call of a process: with no patience, but with time to ask the store. */
static struct sim_answer call(unsigned process)
{
    sim_wait(&sim, process, 0, 1, 0);
    for (int64_t at_us = sim.now_us; !sim.answers[process].known && sim.failure[0] == 0; at_us++) {
        sim_run_to(&sim, at_us);
    }
    assert_string_equal(sim.failure, "");
    return sim.answers[process];
}

static void five_and_no_more(void)
{
    for (unsigned i = 0; i < LIMIT; i++) {
        assert_int_equal(call(i).verdict, WEIR__ALLOWED);
    }
    for (unsigned i = LIMIT; i < PROCESSES; i++) {
        struct sim_answer answer = call(i);
        assert_int_equal(answer.verdict, WEIR__DENIED);
        assert_int_equal(answer.reason, WEIR__REASON_OVER_LIMIT);
        assert_in_range(answer.retry_after_us, 1, MINUTE_US / LIMIT);
    }
}

/* Nobody is in between: refused one microsecond before the time that was told, and allowed at it.
 * With no way to the store the time is that of the store itself, to the microsecond. */
static void test_to_the_microsecond(void **state)
{
    (void)state;
    begin(0, 0);
    five_and_no_more();
    struct sim_answer refused = call(PROCESSES - 1);
    assert_int_equal(refused.retry_after_us, MINUTE_US / LIMIT);
    int64_t at_us = refused.at_us + refused.retry_after_us;

    sim_run_to(&sim, at_us - 1);
    for (unsigned i = 0; i < PROCESSES; i++) {
        struct sim_answer early = call(i);
        assert_int_equal(early.verdict, WEIR__DENIED);
        assert_int_equal(early.retry_after_us, 1);
    }
    sim_run_to(&sim, at_us);
    assert_int_equal(call(0).verdict, WEIR__ALLOWED);
    assert_int_equal(call(1).verdict, WEIR__DENIED);
    sim_end(&sim);
}

/* With a way to the store: the time that was told is late by the way back, never early. */
static void test_with_a_network(void **state)
{
    (void)state;
    for (int64_t rtt_us = 100; rtt_us <= 10000; rtt_us *= 10) {
        begin(0, rtt_us);
        five_and_no_more();
        struct sim_answer refused = call(PROCESSES - 1);
        int64_t at_us = refused.at_us + refused.retry_after_us;
        sim_run_to(&sim, at_us - 8 * rtt_us); /* a reply may take four times as long as most */
        assert_int_equal(call(0).verdict, WEIR__DENIED);
        sim_run_to(&sim, at_us);
        assert_int_equal(call(1).verdict, WEIR__ALLOWED);
        assert_int_equal(call(2).verdict, WEIR__DENIED);
        sim_end(&sim);
    }
}

/* A refused process that asks again before its time is answered here: the store is not asked. */
static void test_no_ask_for_what_is_known(void **state)
{
    (void)state;
    begin(0, 1000);
    five_and_no_more();
    uint64_t asks = sim.asks;
    for (unsigned i = 0; i < 100; i++) {
        sim_run_to(&sim, sim.now_us + 10000);
        assert_int_equal(call(PROCESSES - 1).verdict, WEIR__DENIED);
    }
    assert_int_equal(sim.asks, asks);
    sim_end(&sim);
}

/* Patient callers in all processes, for ten minutes: all that the limit allows is used, in
 * whole. */
static void test_patient_callers(void **state)
{
    (void)state;
    begin(0, 1000);
    while (sim.now_us < 10 * MINUTE_US && sim.failure[0] == 0) {
        for (unsigned i = 0; i < PROCESSES; i++) {
            if (sim.processes[i].waiters == 0) {
                sim_wait(&sim, i, 0, 1, MINUTE_US);
            }
        }
        sim_run_to(&sim, sim.now_us + 100000);
    }
    assert_string_equal(sim.failure, "");
    uint64_t allowed = 0;
    for (unsigned i = 0; i < PROCESSES; i++) {
        allowed += sim.tally[i].allowed;
    }
    assert_in_range(allowed, LIMIT + 10 * LIMIT - 5, LIMIT + 10 * LIMIT);
    sim_end(&sim);
}

/* The same with a budget that is too small to lease from by demand: still five, and exact. */
static void test_with_a_small_budget(void **state)
{
    (void)state;
    begin(1, 0);
    five_and_no_more();
    sim_end(&sim);
}

static int set_up(void **state)
{
    (void)state;
    host = lua_host_new();
    script = lua_host_load(host, weir__script_lease.source, weir__script_lease.source_len);
    return script < 0;
}

static int tear_down(void **state)
{
    (void)state;
    lua_host_free(host);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_to_the_microsecond),       cmocka_unit_test(test_with_a_network),
        cmocka_unit_test(test_no_ask_for_what_is_known), cmocka_unit_test(test_patient_callers),
        cmocka_unit_test(test_with_a_small_budget),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
