/* SPDX-License-Identifier: MIT */
/*
 * Can the checks of a simulated world fail?  Each rule that is broken on purpose, between an engine
 * and a store that are both sound, must be noticed within a number of seeds, and by the check that
 * is meant to notice it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "sim/temper.h"

#define SEEDS_MOST 20000 /* several times what the slowest needs */

static struct sim sim;

struct broken {
    enum sim_mutant mutant;
    const char *name;
    unsigned faults;     /* that the schedule needs */
    const char *notices; /* part of what the check says */
    bool slow;           /* the network: where life is at stake */
};

static void run(const struct broken *broken)
{
    static struct temper temper;
    for (uint64_t seed = 1; seed <= SEEDS_MOST; seed++) {
        temper_of(&temper, seed, broken->faults);
        temper.lua = false;
        temper.config.mutant = broken->mutant;
        if (broken->slow) { /* answers may take two windows, and most come */
            temper.config.keys = 1;
            temper.config.ask_timeout_us = 2 * temper.rules[0].window_us;
            temper.config.network = (struct sim_network){.swift = 0.5,
                                                         .delay_us = temper.rules[0].window_us};
            temper.rules[0].budget = temper.rules[0].capacity;
            temper.rules[0].initial = temper.rules[0].capacity;
            temper.tries = 1;
            temper.quiet = 0.1;
            temper.greedy = temper.refunds = temper.large = 0;
            temper.processes = 5;
        }
        if (!temper_run(&sim, &temper, NULL, 0) && strstr(sim.failure, broken->notices) != NULL) {
            print_message("%-24s seed %4llu %s\n", broken->name, (unsigned long long)seed,
                          sim.failure);
            return;
        }
    }
    fail_msg("%s: not noticed in %d seeds by the check for \"%s\"", broken->name, SEEDS_MOST,
             broken->notices);
}

#define MUTANT(name, mutant, faults, notices, slow)                                                \
    static void test_##name(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        run(&(struct broken){mutant, #name, faults, notices, slow});                               \
    }

#define STALL (1u << TEMPER_STALL)
#define LIMIT (1u << TEMPER_LIMIT)

MUTANT(settles_into_any_window, SIM_SETTLES_INTO_ANY_WINDOW, 0, "above the promise", false)
MUTANT(key_expires_when_full, SIM_KEY_EXPIRES_WHEN_FULL, 0, "above the promise", false)
MUTANT(budget_doubled, SIM_BUDGET_DOUBLED, 0, "above the promise", false)
MUTANT(life_doubled, SIM_LIFE_DOUBLED, 0, "above the promise", true)
MUTANT(life_from_reply, SIM_LIFE_FROM_REPLY, STALL, "above the promise", true)
MUTANT(reply_counted_twice, SIM_REPLY_COUNTED_TWICE, 0, "above the promise", false)
MUTANT(request_run_twice, SIM_REQUEST_RUN_TWICE, 0, "above the promise", false)
MUTANT(rows_sent_again, SIM_ROWS_SENT_AGAIN, 0, "above the promise", false)
MUTANT(refund_to_credit, SIM_REFUND_TO_CREDIT, 0, "above the promise", false)
MUTANT(any_version_adopted, SIM_ANY_VERSION_ADOPTED, LIMIT, "above the promise", false)
MUTANT(leaves_early, SIM_LEAVES_EARLY, 0, "before its tokens are due", false)
MUTANT(waiter_forgotten, SIM_WAITER_FORGOTTEN, 0, "waiters, the engine says", false)
MUTANT(two_asks_at_once, SIM_TWO_ASKS_AT_ONCE, 0, "two asks on their way", false)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_settles_into_any_window),
        cmocka_unit_test(test_key_expires_when_full),
        cmocka_unit_test(test_budget_doubled),
        cmocka_unit_test(test_life_doubled),
        cmocka_unit_test(test_life_from_reply),
        cmocka_unit_test(test_reply_counted_twice),
        cmocka_unit_test(test_request_run_twice),
        cmocka_unit_test(test_rows_sent_again),
        cmocka_unit_test(test_refund_to_credit),
        cmocka_unit_test(test_any_version_adopted),
        cmocka_unit_test(test_leaves_early),
        cmocka_unit_test(test_waiter_forgotten),
        cmocka_unit_test(test_two_asks_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
