/* SPDX-License-Identifier: MIT */
/*
 * A bad network between the processes and their store: replies late, cut in half, reset, swallowed,
 * half-closed. Whatever was granted and not heard is lost, so no fault adds a term to the promise.
 */
#include "crash/fleet.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "bench/clock.h"
#include "crash/proxy.h"
#include "crash/server.h"
#include "crash/verdict.h"

#define MEMBERS 3
/* A bucket that fills while one process is cut off, so that every return is a burst. */
#define RATE 5000
#define CAPACITY 1500
#define BUDGET 1500
#define OVERLOAD 3.0

struct scene {
    struct server server;
    struct proxy proxy;
    struct fleet fleet;
};

static int setup(void **state)
{
    struct scene *scene = calloc(1, sizeof *scene);
    *state = scene;
    server_open(&scene->server, SERVER_KEEPS_NOTHING);
    return 0;
}

static int teardown(void **state)
{
    struct scene *scene = *state;
    fleet_close(&scene->fleet);
    proxy_stop(&scene->proxy);
    server_close(&scene->server);
    free(scene);
    return 0;
}

static void run(struct scene *scene, struct proxy_faults *faults)
{
    const char *text = getenv("WEIR_SEED");
    faults->seed = text != NULL ? strtoull(text, NULL, 0) : UINT64_C(20260104);
    print_message("seed %llu\n", (unsigned long long)faults->seed);
    proxy_start(&scene->proxy, scene->server.socket, faults);
    const struct fleet_plan plan = {
        .url = scene->proxy.url,
        .rate_per_s = RATE,
        .capacity = CAPACITY,
        .budget = BUDGET,
        .tried_per_s = OVERLOAD * RATE / MEMBERS,
        .first_tried_per_s = OVERLOAD * RATE / MEMBERS,
        .waits_per_s = 250,
        .outage = WEIR_OUTAGE_CLOSED,
        .ask_timeout_ms = 100,
        .duration_ns = 5 * NS_PER_S,
    };
    fleet_open(&scene->fleet, &plan, MEMBERS);
    fleet_finish(&scene->fleet);
    const struct proxy_counts *counts = scene->proxy.counts;
    print_message("%u connections; %u cut, %u reset, %u half-closed, %u swallowed\n",
                  counts->connections, counts->cuts, counts->resets, counts->half_closes,
                  counts->swallows);
    verdict_check_promise(&scene->fleet, &(struct verdict_terms){0});
}

static void test_a_slow_network(void **state)
{
    struct scene *scene = *state;
    run(scene, &(struct proxy_faults){.delay_most_us = 25000}); /* each way */
    assert_int_equal(scene->proxy.counts->connections, MEMBERS);
}

static void test_a_network_that_breaks(void **state)
{
    struct scene *scene = *state;
    run(scene,
        &(struct proxy_faults){
            .delay_most_us = 10000, .cut = 20, .reset = 20, .half_close = 20, .swallow = 20});
    const struct proxy_counts *counts = scene->proxy.counts;
    assert_true(counts->cuts + counts->resets + counts->half_closes + counts->swallows > 0);
    assert_true(counts->connections > MEMBERS);
    uint64_t lost = 0;
    for (unsigned i = 0; i < MEMBERS; i++) {
        lost += scene->fleet.board->reports[i].stats.asks_lost;
    }
    assert_true(lost > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_slow_network, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_network_that_breaks, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
