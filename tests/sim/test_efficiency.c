/* SPDX-License-Identifier: MIT */
/*
 * How well the budget is used: the table of docs/protocol.md, section 5, in short form and with
 * bounds.  Ten processes, 20,000 tokens a second, Poisson arrivals, 0.5 ms to the store and back,
 * loops that wake up to a millisecond late as those of libuv do.
 *
 *     A   C = 20,000  E = 2,000        B   C = 2,000  E = 200        C   C = 20,000  E = 200
 *
 *     used      of what the limit allows, or of what was offered where that is less
 *     per call  decisions for each ask
 *     denied    of all calls; where less is offered than allowed, falsely
 *     cold      the worst served of the quiet processes beside a loud one
 *
 * The bucket is empty at the start where more is offered than allowed, so that the first fill does
 * not flatter; half a second is left out.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <string.h>

#include <cmocka.h>

#include "base/num.h"
#include "core/rule.h"
#include "sim/sim.h"

#define PROCESSES 10
#define RATE 20000.0
#define BIN_US 100
#define WARM_US 500000
#define MEASURED_US 8000000
#define TIMEOUT_US 25000
#define PATIENCE_US 100000 /* of those who wait */

static struct sim sim;

struct row {
    const char *name;
    int64_t capacity, budget;
    double load; /* of the rate, over all processes; 0: one wants 4 r, each other 100 a second */
    bool waits;
    double loss; /* of replies */
    /* bounds */
    double used, per_call, denied, cold;
};

struct result {
    double used, per_call, denied, cold;
};

static int64_t poisson(double mean)
{
    double limit = exp(-mean), product = sim_chance(&sim);
    int64_t count = 0;
    while (product > limit) {
        product *= sim_chance(&sim);
        count++;
    }
    return count;
}

static void begin(const struct row *row)
{
    struct weir__rule rule = {.version = 1,
                              .algorithm = WEIR__TOKEN_BUCKET,
                              .budget = row->budget,
                              .initial = row->load >= 1 || row->load <= 0 ? 0 : row->capacity};
    uint64_t largest;
    assert_true(
        weir__rule_set_rate(&rule, (uint64_t)RATE, 1000000, (uint64_t)row->capacity, &largest));
    rule.window_us = weir__policy_window_us(&rule, TIMEOUT_US);
    const struct sim_config config = {
        .seed = 1,
        .keys = 1,
        .ask_timeout_us = TIMEOUT_US,
        .max_asks = 16,
        .max_waiters = SIM_WAITERS_MAX / PROCESSES,
        .lag_us = 1000,
        .outage = WEIR__OUTAGE_CLOSED,
        .network = {.lossy = row->loss / 2, .delay_us = 400},
    };
    sim_begin(&sim, &config, &rule, PROCESSES, NULL, 0);
}

static void arrive(const struct row *row)
{
    for (unsigned i = 0; i < PROCESSES; i++) {
        double per_s = row->load > 0 ? RATE * row->load / PROCESSES : i == 0 ? 4 * RATE : 100;
        for (int64_t n = poisson(per_s * BIN_US / 1e6); n > 0; n--) {
            if (row->waits) {
                sim_wait(&sim, i, 0, 1, PATIENCE_US);
            } else {
                (void)sim_try(&sim, i, 0, 1);
            }
        }
    }
}

static struct result measure(const struct row *row)
{
    begin(row);
    while (sim.now_us < WARM_US + MEASURED_US && sim.failure[0] == 0) {
        if (sim.now_us == WARM_US) {
            memset(sim.tally, 0, sizeof sim.tally);
            sim.asks = 0;
        }
        arrive(row);
        sim_run_to(&sim, sim.now_us + BIN_US);
    }
    assert_string_equal(sim.failure, "");

    double offered = 0, allowed = 0, denied = 0;
    struct result result = {.cold = 1};
    for (unsigned i = 0; i < PROCESSES; i++) {
        const struct sim_tally *tally = &sim.tally[i];
        offered += (double)tally->offered;
        allowed += (double)tally->allowed;
        denied += (double)(tally->refused + tally->cold);
        if (i > 0) {
            result.cold = fmin(result.cold, (double)tally->allowed / (double)tally->offered);
        }
    }
    result.used = allowed / fmin(offered, RATE * MEASURED_US / 1e6);
    result.per_call = offered / (double)sim.asks;
    result.denied = denied / offered;
    sim_end(&sim);
    return result;
}

/* clang-format off */
static const struct row rows[] = {
    /* name           C      E     load waits loss    used  per call denied cold */
    {"A 2x try",      20000, 2000, 2,   false, 0,     .99,  150,     1,     0},
    {"A 2x wait",     20000, 2000, 2,   true,  0,     .99,  150,     1,     0},
    {"B 2x try",      2000,  200,  2,   false, 0,     .99,  18,      1,     0},
    {"B 2x wait",     2000,  200,  2,   true,  0,     .99,  18,      1,     0},
    {"C 2x try",      20000, 200,  2,   false, 0,     .99,  18,      1,     0},
    {"C 2x wait",     20000, 200,  2,   true,  0,     .99,  18,      1,     0},
    {"A 1x try",      20000, 2000, 1,   false, 0,     .97,  0,       .03,   0},
    {"B 1x try",      2000,  200,  1,   false, 0,     .97,  0,       .03,   0},
    {"A 0.5x try",    20000, 2000, .5,  false, 0,     .99,  0,       .005,  0},
    {"B 0.5x try",    2000,  200,  .5,  false, 0,     .99,  0,       .005,  0},
    {"C 0.5x try",    20000, 200,  .5,  false, 0,     .99,  0,       .005,  0},
    {"A 0.5x wait",   20000, 2000, .5,  true,  0,     .99,  0,       0,     0},
    {"B 0.5x wait",   2000,  200,  .5,  true,  0,     .99,  0,       0,     0},
    {"C 0.5x wait",   20000, 200,  .5,  true,  0,     .99,  0,       0,     0},
    {"A 2x try loss", 20000, 2000, 2,   false, .01,   .97,  0,       1,     0},
    {"B 2x try loss", 2000,  200,  2,   false, .01,   .97,  0,       1,     0},
    {"C 2x try loss", 20000, 200,  2,   false, .01,   .97,  0,       1,     0},
    {"A hot try",     20000, 2000, 0,   false, 0,     .97,  0,       1,     .95},
    {"B hot try",     2000,  200,  0,   false, 0,     .97,  0,       1,     .95},
    {"C hot try",     20000, 200,  0,   false, 0,     .97,  0,       1,     .95},
    {"A hot wait",    20000, 2000, 0,   true,  0,     .97,  0,       1,     .95},
    {"B hot wait",    2000,  200,  0,   true,  0,     .97,  0,       1,     .95},
};
/* clang-format on */

static void test_table(void **state)
{
    (void)state;
    unsigned missed = 0;
    print_message("%-14s %8s %9s %8s %6s\n", "", "used", "per call", "denied", "cold");
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct row *row = &rows[i];
        struct result got = measure(row);
        bool good = got.used >= row->used && got.per_call >= row->per_call &&
                    got.denied <= row->denied && got.cold >= row->cold;
        missed += !good;
        print_message("%-14s %6.2f %% %9.1f %6.3f %% %6.3f%s\n", row->name, got.used * 100,
                      got.per_call, got.denied * 100, got.cold, good ? "" : "   <- misses");
    }
    assert_int_equal(missed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
