/* SPDX-License-Identifier: MIT */
/*
 * How much can really be had?  Processes that speak the protocol, and keep all of its rules, try to
 * get as much as possible through in one interval: they hoard leases to the last moment of their
 * lives, burst together, and come back the moment anything is due.  The bound of each algorithm is
 * never passed, and reached within 5 %, so that it is tight.
 *
 * The schedule is drawn at random around the times that matter; what is reported is the worst over
 * all draws.
 */
#include "sim/crowd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/num.h"
#include "core/rule.h"

#define S INT64_C(1000000)
#define BEGIN_US (INT64_C(1700000000) * S)
#define HOARDERS 10
#define HELD_MOST 64
#define DRAWS 400 /* WEIR_DRAWS for more */

struct held {
    int64_t window, tokens, dies_us; /* dies: store time, for a clock that is right */
};

struct plot {
    struct weir__rule rule;
    struct weir__global store;
    struct weir__log_entry log[4096];
    struct admissions admissions;
    struct held held[HOARDERS][HELD_MOST];
    struct weir__settle rows[HOARDERS][2]; /* to tell the store */
    struct {
        int64_t tokens, at_us, start_us;
    } unused[HOARDERS]; /* admitted, and to be refunded some time */
    int64_t now_us;
    uint64_t seed;
};

static struct weir__rule rule_of(enum weir__algorithm_id algorithm, int64_t period_us)
{
    struct weir__rule rule = {
        .version = 1, .algorithm = algorithm, .budget = 100, .window_us = 400000};
    uint64_t largest;
    assert_true(weir__rule_set_rate(&rule, 1000, (uint64_t)period_us, 1000, &largest));
    rule.initial = 1000;
    rule.period_us = algorithm >= WEIR__FIXED_WINDOW ? period_us : 0;
    return rule;
}

static struct weir__settle *row_of(struct weir__settle rows[2], int64_t window)
{
    for (int i = 0; i < 2; i++) {
        if (rows[i].window == window) {
            return &rows[i];
        }
    }
    struct weir__settle *older = rows[0].window < rows[1].window ? &rows[0] : &rows[1];
    *older = (struct weir__settle){.window = window};
    return older;
}

static void spend(struct plot *plot, unsigned i, struct held *held)
{
    struct weir__settle *row = row_of(plot->rows[i], held->window);
    if (held->tokens > 0 && plot->now_us < held->dies_us) {
        admissions_add(&plot->admissions, plot->now_us, held->tokens);
        row->spent += held->tokens;
    } else {
        row->back += held->tokens;
    }
    held->tokens = 0;
}

/* Unspent leases go back, in time or not. */
static void give_back(struct plot *plot)
{
    for (unsigned i = 0; i < HOARDERS; i++) {
        for (unsigned k = 0; k < HELD_MOST; k++) {
            struct held *held = &plot->held[i][k];
            if (held->tokens > 0) {
                row_of(plot->rows[i], held->window)->back += held->tokens;
                held->tokens = 0;
            }
        }
    }
}

static void spend_all(struct plot *plot)
{
    for (unsigned i = 0; i < HOARDERS; i++) {
        for (unsigned k = 0; k < HELD_MOST; k++) {
            spend(plot, i, &plot->held[i][k]);
        }
    }
}

/* Leases are spent in the last microsecond of their lives. */
static void spend_dying(struct plot *plot, int64_t until_us)
{
    for (unsigned i = 0; i < HOARDERS; i++) {
        for (unsigned k = 0; k < HELD_MOST; k++) {
            struct held *held = &plot->held[i][k];
            if (held->tokens > 0 && held->dies_us <= until_us) {
                plot->now_us = weir__max(plot->now_us, held->dies_us - 1);
                spend(plot, i, held);
            }
        }
    }
}

static void ask(struct plot *plot, unsigned i, int64_t want, int64_t exact, bool refund)
{
    struct weir__grant grant;
    struct weir__ask ask = {.want = want, .least = 1, .exact = exact, .heard = -1};
    if (refund) {
        ask.refund = plot->unused[i].tokens;
        ask.since = plot->unused[i].start_us;
    }
    memcpy(ask.settle, plot->rows[i], sizeof(ask.settle));
    plot->rows[i][0] = plot->rows[i][1] = (struct weir__settle){.window = WEIR__NO_WINDOW};
    weir__global_ask(&plot->store, &plot->rule, &ask, plot->now_us, &grant);
    if (grant.refunded > 0) { /* it was never used */
        admissions_add(&plot->admissions, plot->unused[i].at_us, -grant.refunded);
    }
    plot->unused[i].tokens = refund ? 0 : plot->unused[i].tokens;
    if (grant.exact > 0) {
        admissions_add(&plot->admissions, plot->now_us, grant.exact);
        plot->unused[i].tokens = grant.exact;
        plot->unused[i].at_us = plot->now_us;
        plot->unused[i].start_us = grant.start_us;
    }
    for (unsigned k = 0; k < HELD_MOST && grant.lease > 0; k++) {
        struct held *held = &plot->held[i][k];
        if (held->tokens == 0) {
            *held = (struct held){grant.window, grant.lease, plot->now_us + grant.life_us};
            break;
        }
    }
}

static void hoard(struct plot *plot)
{
    for (int round = 0; round < 12; round++) {
        for (unsigned i = 0; i < HOARDERS; i++) {
            ask(plot, i, INT64_C(1) << 40, 0, false);
        }
    }
}

static void refund_all(struct plot *plot)
{
    for (unsigned i = 0; i < HOARDERS; i++) {
        ask(plot, i, 0, 0, true);
    }
}

static void drain(struct plot *plot)
{
    for (int64_t cost = plot->rule.capacity; cost > 0; cost /= 2) {
        for (int n = 0; n < 3; n++) {
            ask(plot, (unsigned)n, 0, cost, false);
        }
    }
}

static int64_t drawn(struct plot *plot, const int64_t *steps, size_t count)
{
    return steps[weir__random(&plot->seed) % count];
}

/* To a moment that matters: about a lease's life, a window's turn, an end of a period. */
static void pass(struct plot *plot)
{
    int64_t period = plot->rule.period_us > 0 ? plot->rule.period_us : S;
    int64_t left = period - plot->now_us % period;
    const int64_t steps[] = {1,
                             plot->rule.window_us * 3 / 4 - 1,
                             plot->rule.window_us,
                             left - 1,
                             left,
                             left - plot->rule.window_us / 2,
                             period - 1,
                             period,
                             S / 3,
                             period - 30000};
    int64_t to_us = plot->now_us + weir__max(1, drawn(plot, steps, sizeof(steps) / sizeof(*steps)));
    if (weir__random(&plot->seed) % 4 != 0) {
        spend_dying(plot, to_us);
    }
    plot->now_us = weir__max(plot->now_us, to_us);
}

static void begin(struct plot *plot, const struct weir__rule *rule, uint64_t seed)
{
    struct admissions admissions = plot->admissions;
    admissions.count = 0;
    *plot = (struct plot){.rule = *rule, .now_us = BEGIN_US, .seed = seed};
    plot->admissions = admissions;
    plot->store.log = (struct weir__log){.entries = plot->log, .room = 4096};
    for (unsigned i = 0; i < HOARDERS; i++) {
        plot->rows[i][0] = plot->rows[i][1] = (struct weir__settle){.window = WEIR__NO_WINDOW};
    }
}

static void scheme(struct plot *plot, const struct weir__rule *rule, uint64_t seed)
{
    begin(plot, rule, seed);
    for (int step = 0; step < 12; step++) {
        switch (weir__random(&plot->seed) % 8) {
        case 0:
        case 1: hoard(plot); break;
        case 2:
        case 3: drain(plot); break;
        case 4: spend_all(plot); break;
        case 5: give_back(plot); break;
        case 6: refund_all(plot); break;
        default: break;
        }
        if (weir__random(&plot->seed) % 2 == 0) {
            pass(plot);
        }
    }
    spend_all(plot);
}

static uint64_t draws(void)
{
    const char *text = getenv("WEIR_DRAWS");
    return text == NULL ? DRAWS : strtoull(text, NULL, 10);
}

static int64_t measure(const struct admissions *list, const struct weir__rule *rule)
{
    switch (rule->algorithm) {
    case WEIR__FIXED_WINDOW: return admissions_worst_aligned(list, rule->period_us);
    case WEIR__SLIDING_LOG: return admissions_worst(list, rule->period_us);
    case WEIR__SLIDING_COUNTER: return admissions_weighted(list, rule->period_us);
    default: return admissions_burst(list, rule);
    }
}

/* The worst over all draws: by the algorithm's own measure, and in any interval of a period. */
static void search(enum weir__algorithm_id algorithm, int64_t period_us, int64_t bound,
                   int64_t sliding_bound)
{
    struct weir__rule rule = rule_of(algorithm, period_us);
    struct plot *plot = calloc(1, sizeof(*plot));
    assert_non_null(plot);
    int64_t worst = 0, sliding = 0;
    for (uint64_t seed = 0; seed < draws(); seed++) {
        scheme(plot, &rule, seed);
        worst = weir__max(worst, measure(&plot->admissions, &rule));
        sliding = weir__max(sliding, admissions_worst(&plot->admissions, period_us));
    }
    printf(
        "# algorithm %d, C 1000, E 100, 1000 a second: worst %lld of %lld; in any second %lld of "
        "%lld\n",
        (int)algorithm, (long long)worst, (long long)bound, (long long)sliding,
        (long long)sliding_bound);
    assert_true(worst <= bound && worst >= bound * 95 / 100);
    assert_true(sliding <= sliding_bound && sliding >= sliding_bound * 95 / 100);
    free(plot->admissions.list);
    free(plot);
}

static void test_token_bucket(void **state)
{
    (void)state;
    search(WEIR__TOKEN_BUCKET, S, 1100, 2100);
}

static void test_leaky_meter(void **state)
{
    (void)state;
    search(WEIR__LEAKY_BUCKET, S, 1100, 2100);
}

static void test_fixed_window(void **state)
{
    (void)state;
    search(WEIR__FIXED_WINDOW, S, 1000, 2000);
    search(WEIR__FIXED_WINDOW, S / 10, 1000, 2000);
}

static void test_sliding_log(void **state)
{
    (void)state;
    search(WEIR__SLIDING_LOG, S, 1100, 1100);
    search(WEIR__SLIDING_LOG, S / 10, 1100, 1100);
}

static void test_sliding_counter(void **state)
{
    (void)state;
    search(WEIR__SLIDING_COUNTER, S, 1000, 2000);
    search(WEIR__SLIDING_COUNTER, S / 10, 1000, 2000);
}

/* Some hundred slots of a queue, leased or waited for by anyone; a leased one is used when it is
 * due, or in the last microsecond before the next is. */
static void crowd_the_queue(struct plot *plot, const struct weir__rule *rule, uint64_t seed)
{
    begin(plot, rule, seed);
    for (int step = 0; step < 60; step++) {
        struct weir__grant grant;
        int64_t leased = (int64_t)(weir__random(&plot->seed) % 20);
        struct weir__ask ask = {
            .want = leased,
            .least = 1,
            .exact = leased == 0,
            .wait_us = rule->max_wait_us,
            .heard = -1,
            .settle = {{.window = WEIR__NO_WINDOW}, {.window = WEIR__NO_WINDOW}}};
        weir__global_ask(&plot->store, rule, &ask, plot->now_us, &grant);
        if (grant.exact > 0) {
            admissions_add(&plot->admissions, plot->now_us + grant.wait_us, 1);
        }
        for (int64_t i = 0; i < grant.lease; i++) {
            bool late = weir__random(&plot->seed) % 2 == 0;
            int64_t due_us = weir__mul_div(i + late, grant.spread_us, grant.lease) - late;
            admissions_add(&plot->admissions, plot->now_us + grant.first_us + due_us, 1);
        }
        const int64_t steps[] = {0, 0, 1, 500, 5000, 30000};
        plot->now_us += drawn(plot, steps, sizeof(steps) / sizeof(*steps));
    }
}

/* The output of a queue, of all processes together: at most rate * t and two. */
static void test_leaky_queue(void **state)
{
    (void)state;
    struct weir__rule rule = rule_of(WEIR__LEAKY_BUCKET, S);
    rule.variant = WEIR__VARIANT_QUEUE;
    rule.max_wait_us = weir__rule_time_us(&rule, rule.capacity);
    struct plot *plot = calloc(1, sizeof(*plot));
    assert_non_null(plot);
    int64_t worst = 0, waited = 0;
    for (uint64_t seed = 0; seed < draws(); seed++) {
        crowd_the_queue(plot, &rule, seed);
        worst = weir__max(worst, admissions_burst(&plot->admissions, &rule));
        waited += (int64_t)plot->admissions.count;
    }
    printf("# a queue, 1000 a second, E 100: worst %lld of 2 above the rate, of %lld departures\n",
           (long long)worst, (long long)waited);
    assert_int_equal(worst, 2);
    free(plot->admissions.list);
    free(plot);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_token_bucket),    cmocka_unit_test(test_leaky_meter),
        cmocka_unit_test(test_fixed_window),    cmocka_unit_test(test_sliding_log),
        cmocka_unit_test(test_sliding_counter), cmocka_unit_test(test_leaky_queue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
