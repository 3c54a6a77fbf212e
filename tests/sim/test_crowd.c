/* SPDX-License-Identifier: MIT */
/* Each algorithm under a crowd of real engines: its bound holds through lost replies, crashes and
 * clocks that drift, what the limit allows is used, and nobody is left without an answer. */
#include "sim/crowd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/num.h"
#include "core/policy.h"
#include "core/rule.h"

#define S INT64_C(1000000)
#define BEGIN_US (INT64_C(1700000000) * S + 123456)
#define WORLDS 60 /* of each algorithm; WEIR_WORLDS for more */

static unsigned worlds(void)
{
    const char *text = getenv("WEIR_WORLDS");
    return text == NULL ? WORLDS : (unsigned)strtoul(text, NULL, 10);
}

static struct weir__rule rule_of(enum weir__algorithm_id algorithm, uint64_t tokens,
                                 int64_t period_us, int64_t capacity, int64_t budget)
{
    struct weir__rule rule = {.version = 1, .algorithm = algorithm, .budget = budget};
    uint64_t largest;
    bool windows = algorithm >= WEIR__FIXED_WINDOW;
    assert_true(weir__rule_set_rate(&rule, tokens, (uint64_t)period_us,
                                    windows ? 1 : (uint64_t)capacity, &largest));
    rule.capacity = rule.initial = windows ? (int64_t)tokens : capacity;
    rule.period_us = windows ? period_us : 0;
    rule.window_us = weir__policy_window_us(&rule, 100000);
    return rule;
}

static void check(const struct crowd_plan *plan, const struct crowd_result *result)
{
    const struct weir__rule *rule = &plan->rule;
    const struct admissions *list = &result->admissions;
    int64_t c = rule->capacity, e = rule->budget, worst, bound;
    switch (rule->algorithm) {
    case WEIR__FIXED_WINDOW:
        worst = admissions_worst_aligned(list, rule->period_us);
        bound = c + result->stranded;
        break;
    case WEIR__SLIDING_LOG:
        worst = admissions_worst(list, rule->period_us);
        bound = c + e;
        break;
    case WEIR__SLIDING_COUNTER:
        worst = admissions_weighted(list, rule->period_us);
        bound = c + result->stranded;
        break;
    default:
        worst = admissions_burst(list, rule);
        bound = c + e;
        break;
    }
    if (worst > bound) {
        fail_msg("seed %llu, algorithm %d: %lld admitted, %lld promised",
                 (unsigned long long)plan->seed, (int)rule->algorithm, (long long)worst,
                 (long long)bound);
    }
}

static struct crowd_plan draw(enum weir__algorithm_id algorithm, uint64_t seed)
{
    uint64_t random = seed;
    int64_t period_us = (int64_t[]){20000, 100000, S, 700001}[weir__random(&random) % 4];
    uint64_t tokens = (uint64_t[]){5, 100, 2000, 400}[weir__random(&random) % 4];
    int64_t capacity = weir__random(&random) % 2 == 0 ? (int64_t)tokens : 1 + (int64_t)tokens / 3;
    int64_t parts = (int64_t[]){1, 2, 10, 50}[weir__random(&random) % 4];
    struct crowd_plan plan = {
        .rule = rule_of(algorithm, tokens, period_us, capacity, weir__max(1, capacity / parts)),
        .processes = 1 + (unsigned)(weir__random(&random) % 8),
        .seconds_us = weir__min(3 * S, 12 * period_us + 200000),
        .rtt_us = (int64_t[]){200, 1000, 5000}[weir__random(&random) % 3],
        .lost = weir__random(&random) % 3 == 0 ? 0.05 : 0,
        .crashes_per_s = weir__random(&random) % 3 == 0 ? 5 : 0,
        .waiting = (double[]){0, 0.1, 1}[weir__random(&random) % 3],
        .wait_us = (int64_t[]){0, 10000, 300000}[weir__random(&random) % 3],
        .seed = seed,
    };
    double rate = (double)tokens * 1e6 / (double)period_us;
    plan.offered_per_s = (rate < 20000 ? rate : 20000) * (weir__random(&random) % 2 == 0 ? 3 : 0.7);
    return plan;
}

static void hostile(enum weir__algorithm_id algorithm)
{
    for (unsigned i = 0; i < worlds(); i++) {
        struct crowd_plan plan = draw(algorithm, 1000 * (uint64_t)algorithm + i);
        struct crowd_result result;
        crowd_run(&plan, BEGIN_US, &result);
        check(&plan, &result);
        crowd_free(&result);
    }
}

static void test_token_bucket(void **state) { (void)state, hostile(WEIR__TOKEN_BUCKET); }
static void test_leaky_meter(void **state) { (void)state, hostile(WEIR__LEAKY_BUCKET); }
static void test_fixed_window(void **state) { (void)state, hostile(WEIR__FIXED_WINDOW); }
static void test_sliding_log(void **state) { (void)state, hostile(WEIR__SLIDING_LOG); }
static void test_sliding_counter(void **state) { (void)state, hostile(WEIR__SLIDING_COUNTER); }

/* Three times the rate, healthy: how much of it is used, and for how many asks. */
static void usage(enum weir__algorithm_id algorithm, double least)
{
    struct crowd_plan plan = {
        .rule = rule_of(algorithm, 20000, S, 20000, 2000),
        .processes = 8,
        .offered_per_s = 60000,
        .seconds_us = 4 * S,
        .rtt_us = 500,
        .seed = 7,
    };
    plan.rule.initial = algorithm < WEIR__FIXED_WINDOW ? 0 : plan.rule.capacity;
    struct crowd_result result;
    crowd_run(&plan, BEGIN_US / S * S, &result);
    check(&plan, &result);
    double used = (double)result.allowed / 80000;
    printf("# algorithm %d: %.4f of the limit used, %.0f admissions an ask\n", (int)algorithm, used,
           (double)result.allowed / (double)result.asks);
    assert_true(used >= least);
    crowd_free(&result);
}

static void test_what_is_there_is_used(void **state)
{
    (void)state;
    usage(WEIR__TOKEN_BUCKET, 0.99);
    usage(WEIR__LEAKY_BUCKET, 0.99);
    usage(WEIR__FIXED_WINDOW, 0.99);
    usage(WEIR__SLIDING_LOG, 0.97);
    usage(WEIR__SLIDING_COUNTER, 0.9);
}

/* A queue's departures, over all processes: at most the rate, but for leased slots that are used a
 * little late, and evenly. */
static void test_a_queue_leaves_evenly(void **state)
{
    (void)state;
    for (unsigned i = 0; i < worlds(); i++) {
        uint64_t random = i;
        int64_t budget = (int64_t[]){0, 1, 5, 25}[weir__random(&random) % 4];
        struct crowd_plan plan = {
            .rule = rule_of(WEIR__LEAKY_BUCKET, 500, S, 50, budget),
            .processes = 1 + (unsigned)(weir__random(&random) % 8),
            .offered_per_s = (double[]){300, 1500}[weir__random(&random) % 2],
            .seconds_us = 2 * S,
            .rtt_us = (int64_t[]){200, 1000, 5000}[weir__random(&random) % 3],
            .lost = weir__random(&random) % 3 == 0 ? 0.02 : 0,
            .waiting = (double[]){0.5, 1}[weir__random(&random) % 2],
            .wait_us = (int64_t[]){0, 20000, 300000}[weir__random(&random) % 3],
            .slots_only = true,
            .seed = i,
        };
        plan.rule.variant = WEIR__VARIANT_QUEUE;
        plan.rule.max_wait_us = weir__rule_time_us(&plan.rule, plan.rule.capacity);
        struct crowd_result result;
        crowd_run(&plan, BEGIN_US, &result);
        int64_t burst = admissions_burst(&result.admissions, &plan.rule);
        if (getenv("WEIR_TRACE") != NULL) {
            printf("# E %lld, %u processes, rtt %lld, offered %.0f, waiting %.1f up to %lld: burst "
                   "%lld, used "
                   "%.3f, %llu allowed, %llu asks\n",
                   (long long)budget, plan.processes, (long long)plan.rtt_us, plan.offered_per_s,
                   plan.waiting, (long long)plan.wait_us, (long long)burst,
                   (double)result.allowed / 1000, (unsigned long long)result.allowed,
                   (unsigned long long)result.asks);
        }
        /* Late by a round trip, by the margin for clocks (R12), and, of a lease, until the next
         * slot is due: docs/algorithms.md. */
        int64_t apart_us = budget > 0 ? weir__rule_time_us(&plan.rule, 1) : 0;
        int64_t late_us = 2 * plan.rtt_us + plan.rule.max_wait_us / 32 + apart_us;
        assert_true(burst <= 2 + weir__rule_tokens(&plan.rule, late_us));
        crowd_free(&result);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_token_bucket),          cmocka_unit_test(test_leaky_meter),
        cmocka_unit_test(test_fixed_window),          cmocka_unit_test(test_sliding_log),
        cmocka_unit_test(test_sliding_counter),       cmocka_unit_test(test_what_is_there_is_used),
        cmocka_unit_test(test_a_queue_leaves_evenly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
