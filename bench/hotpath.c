/* SPDX-License-Identifier: MIT */
/*
 * What one decision costs a caller, against what the machine can do at best.
 *
 *     hotpath [--json]
 *
 * One thread.  Nanoseconds vary from machine to machine and from minute to minute, ratios much
 * less; so the machine's own limits (a plain decrement in memory, one locked add) are measured in
 * the same runs. Allowed calls come from the store in this process, refused ones are refused by a
 * bucket whose store is a private redis-server, started for this and stopped after.  With --json
 * the last line is one JSON object. The exit status says whether it could be measured, not whether
 * it is fast.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "cost.h"
#include "paths.h"
#include "redis_server.h"

#ifndef HOTPATH_LINKED
#error "HOTPATH_LINKED says how weir is linked: \"shared\" or \"static\""
#endif

enum cost_id { COST_PLAIN, COST_XADD, COST_CLOCK, COST_ALLOW, COST_DENY, COSTS };

static _Alignas(64) int64_t word = INT64_MAX;

/* The compiler must leave each operation in memory: it may think that this looks at the word. */
static inline void keep_in_memory(void) { __asm__ volatile("" ::: "memory"); }

static bool plain_decrement(void *arg, unsigned count)
{
    (void)arg;
    for (unsigned i = 0; i < count; i++) {
        word--;
        keep_in_memory();
    }
    return true;
}

static bool lock_xadd(void *arg, unsigned count)
{
    (void)arg;
    for (unsigned i = 0; i < count; i++) {
        int64_t before = __atomic_fetch_add(&word, -1, __ATOMIC_RELAXED);
        __asm__ volatile("" ::"r"(before)); /* used, or a cheaper instruction would do */
    }
    return true;
}

static bool read_clock(void *arg, unsigned count)
{
    (void)arg;
    for (unsigned i = 0; i < count; i++) {
        int64_t now_ns = clock_now_ns();
        __asm__ volatile("" ::"r"(now_ns));
    }
    return true;
}

static void print_table(const struct cost *costs)
{
    printf("%-18s %9s %9s %9s   times a locked add   (%s library, %d runs)\n", "", "median",
           "least", "most", HOTPATH_LINKED, COST_RUNS);
    for (int i = 0; i < COSTS; i++) {
        printf("%-18s %6.2f ns %6.2f ns %6.2f ns   %.2f\n", costs[i].name, costs[i].median_ns,
               costs[i].least_ns, costs[i].most_ns,
               costs[i].median_ns / costs[COST_XADD].median_ns);
    }
}

static void print_json(const struct cost *costs)
{
    double spread = 0;
    printf("{\"linked\": \"%s\", \"runs\": %d", HOTPATH_LINKED, COST_RUNS);
    for (int i = 0; i < COSTS; i++) {
        const struct cost *cost = &costs[i];
        double width = (cost->most_ns - cost->least_ns) / cost->median_ns;
        spread = width > spread ? width : spread;
        printf(", \"%s_ns\": %.3f, \"%s_min_ns\": %.3f, \"%s_max_ns\": %.3f", cost->name,
               cost->median_ns, cost->name, cost->least_ns, cost->name, cost->most_ns);
    }
    printf(", \"allow_ratio\": %.3f, \"deny_ratio\": %.3f, \"spread\": %.3f}\n",
           costs[COST_ALLOW].median_ns / costs[COST_XADD].median_ns,
           costs[COST_DENY].median_ns / costs[COST_XADD].median_ns, spread);
}

int main(int argc, char **argv)
{
    bool json = argc == 2 && strcmp(argv[1], "--json") == 0;
    if (argc > 1 && !json) {
        fprintf(stderr, "usage: hotpath [--json]\n");
        return 2;
    }
    struct redis_server server;
    struct paths paths;
    char why[256];
    if (!redis_server_start(&server, why, sizeof why)) {
        fprintf(stderr, "hotpath: %s\n", why);
        return 1;
    }
    bool measured = paths_open(&paths, server.url, why, sizeof why);
    if (measured) {
        struct cost costs[COSTS] = {
            [COST_PLAIN] = {.name = "plain_decrement", .batch = plain_decrement},
            [COST_XADD] = {.name = "lock_xadd", .batch = lock_xadd},
            [COST_CLOCK] = {.name = "clock", .batch = read_clock},
            [COST_ALLOW] = {.name = "allow", .batch = paths_allow, .arg = paths.rich},
            [COST_DENY] = {.name = "deny", .batch = paths_deny, .arg = paths.poor},
        };
        measured = cost_measure(costs, COSTS, why, sizeof why);
        if (measured) {
            print_table(costs);
        }
        if (measured && json) {
            print_json(costs);
        }
        paths_close(&paths);
    }
    redis_server_stop(&server);
    if (!measured) {
        fprintf(stderr, "hotpath: %s\n", why);
    }
    return measured ? 0 : 1;
}
