/* SPDX-License-Identifier: MIT */
/*
 * The term of a store that tells no time: processes tell it theirs, and the fastest clock is F
 * ahead of the slowest.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/num.h"
#include "bed.h"
#include "core/rule.h"

#define CASES 300
#define ASKS 400
#define PROCESSES 4

static int64_t drawn(uint64_t *seed, int64_t least, int64_t most)
{
    return least + (int64_t)(weir__random(seed) % (uint64_t)(most - least + 1));
}

/* Once r*F above what one clock would admit, over every interval: a virtual bucket of so much more
 * is never overdrawn. */
static void test_clocks_that_differ_cost_the_difference_once(void **state)
{
    (void)state;
    int64_t closest = INT64_MAX; /* what was left of the term at least */
    for (uint64_t seed = 1; seed <= CASES; seed++) {
        uint64_t draws = seed;
        int64_t capacity = drawn(&draws, 1, 50);
        struct bed bed = bed_of((uint64_t)drawn(&draws, 1, 9), 1000, capacity, 0);
        const struct weir__rule *rule = &bed.rule;
        int64_t span_us = weir__rule_time_us(rule, capacity);
        int64_t apart_us = drawn(&draws, 0, span_us);
        int64_t ahead_us[PROCESSES] = {0, apart_us};
        for (int i = 2; i < PROCESSES; i++) {
            ahead_us[i] = drawn(&draws, 0, apart_us);
        }
        int64_t full = capacity * rule->units_per_token + apart_us * rule->units_per_tick;
        int64_t now_us = 0, virtual = full;
        for (int i = 0; i < ASKS; i++) {
            int64_t passed_us = drawn(&draws, 0, 3) == 0 ? drawn(&draws, 0, span_us) : 0;
            now_us += passed_us;
            virtual = weir__min(full, virtual + passed_us * rule->units_per_tick);
            int64_t tokens = drawn(&draws, 1, capacity);
            int64_t told_us = now_us + ahead_us[drawn(&draws, 0, PROCESSES - 1)];
            if (bed_take(&bed, told_us, tokens)) {
                virtual -= tokens * rule->units_per_token;
            }
            assert_true(virtual >= 0);
            closest = weir__min(closest, virtual);
        }
    }
    assert_true(closest < 1000); /* less than a token: the term is no larger than it must be */
}

/* Further apart than the time to fill, a slow clock looks like one that was set back. */
static void test_clocks_too_far_apart_cost_it_again_and_again(void **state)
{
    (void)state;
    const int64_t span_us = 10 * MS; /* ten tokens, one a millisecond */
    const int64_t aparts_us[] = {span_us, span_us + 1};
    int64_t admitted[2] = {0};
    for (int k = 0; k < 2; k++) {
        struct bed bed = bed_of(1, MS, 10, 0);
        for (int i = 0; i < 10; i++) {
            admitted[k] += bed_take(&bed, 0, 10) ? 10 : 0;
            admitted[k] += bed_take(&bed, aparts_us[k], 10) ? 10 : 0;
        }
    }
    assert_int_equal(admitted[0], 20);
    assert_int_equal(admitted[1], 10 + 10 * 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clocks_that_differ_cost_the_difference_once),
        cmocka_unit_test(test_clocks_too_far_apart_cost_it_again_and_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
