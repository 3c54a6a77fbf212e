/* SPDX-License-Identifier: MIT */
/*
 * Processes under load on one limit: the undisturbed run, and what becomes of the promise when a
 * process is killed or stopped.
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

struct scene {
    struct server server;
    struct fleet fleet;
    struct fleet_plan plan;
};

static int setup(void **state)
{
    struct scene *scene = calloc(1, sizeof *scene);
    *state = scene;
    server_open(&scene->server, SERVER_KEEPS_NOTHING);
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
        .duration_ns = 3 * NS_PER_S,
    };
    return 0;
}

static int teardown(void **state)
{
    struct scene *scene = *state;
    fleet_close(&scene->fleet);
    server_close(&scene->server);
    free(scene);
    return 0;
}

/* A lease is deducted when it is granted, so all grants together never pass what the store had. */
static void check_grants(const struct fleet *fleet)
{
    uint64_t granted = 0;
    for (unsigned i = 0; i < fleet->members; i++) {
        const struct weir_stats *s = &fleet->board->reports[i].stats;
        granted += s->leased + s->exact_spent - s->given_back;
    }
    int64_t elapsed_ns = fleet_now_ns(fleet);
    uint64_t had = fleet->plan.capacity + (uint64_t)((double)elapsed_ns / (double)NS_PER_S *
                                                     (double)fleet->plan.rate_per_s);
    print_message("granted %llu of %llu\n", (unsigned long long)granted, (unsigned long long)had);
    assert_true(granted > 0);
    assert_true(granted <= had);
}

static void test_the_limit_is_kept_and_used(void **state)
{
    struct scene *scene = *state;
    scene->plan.waits_per_s = 0; /* so that no term at all is needed */
    fleet_open(&scene->fleet, &scene->plan, MEMBERS);
    fleet_finish(&scene->fleet);
    check_grants(&scene->fleet);
    verdict_check_promise(&scene->fleet, &(struct verdict_terms){0});
    assert_true(verdict_used_share(&scene->fleet) >= 0.95);
}

static void test_a_process_is_killed_and_another_joins(void **state)
{
    struct scene *scene = *state;
    scene->plan.duration_ns = 4 * NS_PER_S;
    fleet_open(&scene->fleet, &scene->plan, MEMBERS + 1);
    for (unsigned second = 1; second <= 2; second++) {
        fleet_sleep_until(&scene->fleet, second * NS_PER_S);
        fleet_kill(&scene->fleet, second);
        unsigned joined = fleet_join(&scene->fleet);
        assert_int_equal(joined, MEMBERS + second);
    }
    fleet_finish(&scene->fleet);
    verdict_check_promise(&scene->fleet, &(struct verdict_terms){0});
    for (unsigned i = 0; i < scene->fleet.members; i++) {
        const struct fleet_report *report = &scene->fleet.board->reports[i];
        assert_true(verdict_first_admission_ns(&scene->fleet, i, 0) < scene->plan.duration_ns);
        /* The store is well: who waits in vain is over the limit, and is told so. */
        assert_true(report->unavailable <= report->waited / 20);
    }
    /* What a crash keeps blocked is one lease for two windows: the limit is still used. */
    assert_true(verdict_used_share(&scene->fleet) >= 0.95);
}

/* The one that is stopped is offered less than the others, so that it holds credit at that moment.
 * When it goes on it makes up for all it has missed, and may take that credit before its loop has
 * seen that it is void. */
static void test_a_process_is_stopped_and_goes_on(void **state)
{
    struct scene *scene = *state;
    struct fleet *fleet = &scene->fleet;
    scene->plan.first_tried_per_s = RATE / 5.0;
    scene->plan.duration_ns = 6 * NS_PER_S;
    fleet_open(fleet, &scene->plan, MEMBERS + 1);
    static const int64_t stops_ns[] = {2 * NS_PER_S, NS_PER_S / 2, NS_PER_S / 2};
    for (size_t i = 0; i < sizeof stops_ns / sizeof *stops_ns; i++) {
        fleet_sleep_until(fleet, fleet_now_ns(fleet) + NS_PER_S / 2);
        fleet_stop(fleet, 0);
        fleet_sleep_until(fleet, fleet_now_ns(fleet) + stops_ns[i]);
        fleet_continue(fleet, 0);
    }
    int64_t continued_ns = fleet_now_ns(fleet);
    fleet_finish(fleet);
    verdict_check_promise(fleet, &(struct verdict_terms){0});
    int64_t again_ns = verdict_first_admission_ns(fleet, 0, continued_ns);
    print_message("admits %.1f ms after it goes on\n", (double)(again_ns - continued_ns) / 1e6);
    assert_true(again_ns < scene->plan.duration_ns);
    /* At each of the stops it held at most the budget. */
    assert_true(fleet->board->reports[0].stats.stranded <=
                scene->plan.budget * sizeof stops_ns / sizeof *stops_ns);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_limit_is_kept_and_used, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_process_is_killed_and_another_joins, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_process_is_stopped_and_goes_on, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
