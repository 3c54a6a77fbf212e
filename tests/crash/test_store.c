/* SPDX-License-Identifier: MIT */
/*
 * A store that is flushed of its scripts, restarted, stopped and killed under load.  Each fault
 * adds the term that docs/protocol.md gives it, and no other; service is back soon after the store
 * is.
 */
#include "crash/fleet.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "bench/clock.h"
#include "crash/server.h"
#include "crash/verdict.h"

#define MEMBERS 2
#define RATE 20000
#define OVERLOAD 3.0
#define OUTAGE_NS (5 * NS_PER_S)
#define RUN_AFTER_NS                                                                               \
    (5 * NS_PER_S / 2) /* what a run has left after a fault, to see service return */
#define BACK_LIMIT_NS (2 * NS_PER_S)

struct scene {
    struct server server;
    struct fleet fleet;
    struct fleet_plan plan;
};

static int setup(void **state, enum server_keeps keeps)
{
    struct scene *scene = calloc(1, sizeof *scene);
    *state = scene;
    server_open(&scene->server, keeps);
    scene->plan = (struct fleet_plan){
        .url = scene->server.url,
        .rate_per_s = RATE,
        .capacity = RATE,
        .budget = RATE / 10,
        .tried_per_s = OVERLOAD * RATE / MEMBERS,
        .first_tried_per_s = OVERLOAD * RATE / MEMBERS,
        .waits_per_s = 250,
        .outage = WEIR_OUTAGE_CLOSED,
        .ask_timeout_ms = 100,
        .duration_ns = NS_PER_S + RUN_AFTER_NS,
    };
    return 0;
}

static int setup_forgetful(void **state) { return setup(state, SERVER_KEEPS_NOTHING); }
static int setup_snapshot(void **state) { return setup(state, SERVER_KEEPS_SNAPSHOT); }
static int setup_log(void **state) { return setup(state, SERVER_KEEPS_LOG); }

static int teardown(void **state)
{
    struct scene *scene = *state;
    fleet_close(&scene->fleet);
    server_close(&scene->server);
    free(scene);
    return 0;
}

static uint64_t sum_unavailable(const struct fleet *fleet)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < fleet->members; i++) {
        sum += fleet->board->reports[i].unavailable;
    }
    return sum;
}

/* Every member admits again, from leases, soon after `back_ns`. */
static void check_service_returns(const struct fleet *fleet, int64_t back_ns)
{
    for (unsigned i = 0; i < fleet->members; i++) {
        int64_t first_ns = verdict_first_admission_ns(fleet, i, back_ns);
        print_message("  member %u admits %.1f ms after the store is back\n", i,
                      (double)(first_ns - back_ns) / 1e6);
        assert_true(first_ns - back_ns < BACK_LIMIT_NS);
    }
}

static void test_the_scripts_are_flushed(void **state)
{
    struct scene *scene = *state;
    fleet_open(&scene->fleet, &scene->plan, MEMBERS);
    int flushes = 0;
    for (int64_t at_ns = NS_PER_S / 2; at_ns < 3 * NS_PER_S; at_ns += 50 * NS_PER_MS, flushes++) {
        fleet_sleep_until(&scene->fleet, at_ns);
        server_ask(&scene->server, "SCRIPT FLUSH");
    }
    fleet_finish(&scene->fleet);
    verdict_check_promise(&scene->fleet, &(struct verdict_terms){0});
    for (unsigned i = 0; i < MEMBERS; i++) {
        const struct weir_stats *stats = &scene->fleet.board->reports[i].stats;
        print_message("  member %u loaded %llu scripts after %d flushes\n", i,
                      (unsigned long long)stats->scripts_loaded, flushes);
        assert_true(stats->scripts_loaded > 1);
        assert_int_equal(stats->connects, 1);
        assert_int_equal(stats->outages, 0);
    }
    assert_true(verdict_used_share(&scene->fleet) >= 0.9);
}

/* Ends the store in one of three ways at the first second of a run, and starts it again at once. */
static void run_with_a_restart(struct scene *scene, void (*end)(struct server *), unsigned losses)
{
    fleet_open(&scene->fleet, &scene->plan, MEMBERS);
    fleet_sleep_until(&scene->fleet, NS_PER_S);
    end(&scene->server);
    server_start(&scene->server);
    int64_t back_ns = fleet_now_ns(&scene->fleet);
    int64_t kept = server_ask(&scene->server, "EXISTS weir:fleet:key");
    fleet_finish(&scene->fleet);
    verdict_check_promise(&scene->fleet, &(struct verdict_terms){.losses = losses});
    check_service_returns(&scene->fleet, back_ns);
    print_message("  the key %s\n", kept != 0 ? "was kept" : "was lost, or not yet made again");
    assert_true(kept != 0 || losses > 0);
    for (unsigned i = 0; i < MEMBERS; i++) {
        assert_true(scene->fleet.board->reports[i].stats.connects >= 2);
    }
}

static void test_a_restart_with_its_data(void **state)
{
    run_with_a_restart(*state, server_save_and_end, 0);
}

static void test_a_kill_with_its_log(void **state) { run_with_a_restart(*state, server_kill, 0); }

static void test_a_restart_without_its_data(void **state)
{
    run_with_a_restart(*state, server_kill, 1);
}

static void test_the_store_is_stopped(void **state)
{
    struct scene *scene = *state;
    scene->plan.duration_ns = NS_PER_S + OUTAGE_NS + RUN_AFTER_NS;
    fleet_open(&scene->fleet, &scene->plan, MEMBERS);
    fleet_sleep_until(&scene->fleet, NS_PER_S);
    server_stop(&scene->server);
    fleet_sleep_until(&scene->fleet, fleet_now_ns(&scene->fleet) + OUTAGE_NS);
    int64_t back_ns = fleet_now_ns(&scene->fleet);
    server_continue(&scene->server);
    fleet_finish(&scene->fleet);
    verdict_check_promise(&scene->fleet, &(struct verdict_terms){0});
    check_service_returns(&scene->fleet, back_ns);
    /* Most calls of five seconds. */
    assert_true((double)sum_unavailable(&scene->fleet) > OVERLOAD * RATE * 4);
}

/* The store is dead for a while, and comes back empty.  Returns when it was back, and the time
 * without it. */
static int64_t kill_for_a_while(struct scene *scene, int64_t *outage_ns)
{
    scene->plan.duration_ns = NS_PER_S + OUTAGE_NS + RUN_AFTER_NS;
    fleet_open(&scene->fleet, &scene->plan, MEMBERS);
    fleet_sleep_until(&scene->fleet, NS_PER_S);
    int64_t killed_ns = fleet_now_ns(&scene->fleet);
    server_kill(&scene->server);
    fleet_sleep_until(&scene->fleet, killed_ns + OUTAGE_NS);
    server_start(&scene->server);
    int64_t back_ns = fleet_now_ns(&scene->fleet);
    *outage_ns = back_ns - killed_ns;
    fleet_finish(&scene->fleet);
    return back_ns;
}

static void test_the_store_is_killed(void **state)
{
    struct scene *scene = *state;
    int64_t outage_ns;
    int64_t back_ns = kill_for_a_while(scene, &outage_ns);
    verdict_check_promise(&scene->fleet, &(struct verdict_terms){.losses = 1});
    check_service_returns(&scene->fleet, back_ns);
    assert_true((double)sum_unavailable(&scene->fleet) > OVERLOAD * RATE * 4);
}

/* When a member has admitted, in a tenth of a second, twice what its share brings in that time. */
static int64_t above_its_share_ns(const struct fleet *fleet, unsigned member, int64_t from_ns)
{
    const int64_t step_ns = NS_PER_S / 10;
    double local = fleet->plan.share_percent / 100 * (double)fleet->plan.rate_per_s / 10;
    for (int64_t at_ns = from_ns; at_ns < fleet->plan.duration_ns; at_ns += step_ns) {
        if ((double)verdict_admitted_between(fleet, member, at_ns, at_ns + step_ns) > 2 * local) {
            return at_ns + step_ns;
        }
    }
    return INT64_MAX;
}

static void test_the_store_is_killed_under_the_local_policy(void **state)
{
    struct scene *scene = *state;
    const struct fleet *fleet = &scene->fleet;
    scene->plan.outage = WEIR_OUTAGE_LOCAL;
    scene->plan.share_percent = 10;
    int64_t dead_ns;
    int64_t back_ns = kill_for_a_while(scene, &dead_ns);
    struct verdict_terms terms = {.losses = 1};
    for (unsigned i = 0; i < MEMBERS; i++) {
        int64_t above_ns = above_its_share_ns(fleet, i, back_ns);
        assert_true(above_ns - back_ns < BACK_LIMIT_NS);
        /* Until a member has heard of the store again it keeps to its share. */
        int64_t outage_ns = dead_ns + above_ns - back_ns;
        double share = scene->plan.share_percent / 100 * RATE * (double)outage_ns /
                       (double)NS_PER_S;
        uint64_t spent = fleet->board->reports[i].stats.outage_spent;
        print_message("  member %u: more than its share %.1f ms after the store is back; its "
                      "policy let it have "
                      "%llu of %.0f\n",
                      i, (double)(above_ns - back_ns) / 1e6, (unsigned long long)spent, share);
        assert_true((double)spent <= share + 1);
        assert_true((double)spent > share / 2);
        terms.outage_ns += outage_ns;
    }
    verdict_check_promise(fleet, &terms);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_scripts_are_flushed, setup_forgetful, teardown),
        cmocka_unit_test_setup_teardown(test_a_restart_with_its_data, setup_snapshot, teardown),
        cmocka_unit_test_setup_teardown(test_a_kill_with_its_log, setup_log, teardown),
        cmocka_unit_test_setup_teardown(test_a_restart_without_its_data, setup_forgetful, teardown),
        cmocka_unit_test_setup_teardown(test_the_store_is_stopped, setup_forgetful, teardown),
        cmocka_unit_test_setup_teardown(test_the_store_is_killed, setup_forgetful, teardown),
        cmocka_unit_test_setup_teardown(test_the_store_is_killed_under_the_local_policy,
                                        setup_forgetful, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
