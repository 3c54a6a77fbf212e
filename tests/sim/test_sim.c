/* SPDX-License-Identifier: MIT */
/*
 * Thousands of hostile worlds, each a function of its seed.  In nine of ten the store is the twin
 * in C, in the tenth it is the shipped script as well, and both must agree.
 *
 *     WEIR_SEEDS=100000 WEIR_FIRST_SEED=1 build/.../sim-sim     more of them
 *     WEIR_SEEDS=1 WEIR_FIRST_SEED=4711 WEIR_TRACE=1 ...         one of them, with what happened
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "io/conn.h"
#include "sim/temper.h"

#define SEEDS 10000

static struct sim sim;
static struct lua_host *host;
static int script;

static uint64_t from_environment(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 0) : otherwise;
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

static bool run(uint64_t seed, bool tracing, struct temper *temper)
{
    temper_of(temper, seed, 0);
    sim.tracing = tracing;
    return temper_run(&sim, temper, host, script);
}

static void test_hostile_worlds(void **state)
{
    (void)state;
    static struct temper temper;
    uint64_t first = from_environment("WEIR_FIRST_SEED", 1);
    uint64_t count = from_environment("WEIR_SEEDS", SEEDS);
    bool tracing = from_environment("WEIR_TRACE", 0) != 0;
    uint64_t asks = 0, events = 0;
    for (uint64_t seed = first; seed < first + count; seed++) {
        sim.telling = tracing ? stderr : NULL;
        bool kept = run(seed, tracing, &temper);
        asks += sim.asks;
        events += sim.events;
        if (!kept) {
            sim.telling = NULL;
            (void)run(seed, true, &temper); /* the same again, with what happened */
        }
        if (!kept) {
            temper_print(&temper, stderr);
            sim_print_trace(&sim, stderr);
            fail_msg("seed %llu: %s\nreplay: WEIR_FIRST_SEED=%llu WEIR_SEEDS=1 WEIR_TRACE=1",
                     (unsigned long long)seed, sim.failure, (unsigned long long)seed);
        }
    }
    print_message("%llu worlds from seed %llu: %llu asks, %llu events checked\n",
                  (unsigned long long)count, (unsigned long long)first, (unsigned long long)asks,
                  (unsigned long long)events);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hostile_worlds),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
