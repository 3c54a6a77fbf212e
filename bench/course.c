/* SPDX-License-Identifier: MIT */
/*
 * What each algorithm admits over time, by the code of the in-process store under a time of our
 * own.
 *
 * The course.  A limit of 100 in a second meets a load in four parts, all shown in slots of 50 ms:
 *
 *     0.0 - 1.0 s    six tenths of the rate
 *     1.8 - 2.2 s    six times the rate, across an edge of the periods
 *     3.0 - 5.0 s    three times the rate
 *     5.5 - 6.5 s    six tenths of the rate
 *
 * The worst.  A greedy user leaves a key alone until it is full, takes all of it at some moment,
 * and from then on takes whatever there is, every millisecond.  All moments of a period are tried,
 * and of what was admitted the fullest interval of one period, and of 10 ms, is kept.  With a
 * budget processes lease all they can some time before that moment and spend it at that moment,
 * which is the worst that leases can add.  The leases of a queue are its slots, each with a time of
 * its own, and add nothing.
 */
#include "course.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "core/global.h"
#include "core/rule.h"

#define EPOCH_US INT64_C(1700000000000000) /* some edge of the periods */
#define PERIOD_US 1000000
#define STEP_US 1000
#define LEASES_MAX 64 /* asks for half of what is left come to an end before */

/* ---- The course ------------------------------------------------------------------------------ */

#define COURSE_TOKENS 100
#define COURSE_US 7000000
#define SLOT_US 50000
#define SLOTS (COURSE_US / SLOT_US)
#define PATIENCE_US 500000 /* of those who queue */

static int64_t load_per_s(int64_t at_us)
{
    static const struct {
        int64_t from_us, to_us, per_s;
    } parts[] = {
        {0, 1000000, 60}, {1800000, 2200000, 600}, {3000000, 5000000, 300}, {5500000, 6500000, 60}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (at_us >= parts[i].from_us && at_us < parts[i].to_us) {
            return parts[i].per_s;
        }
    }
    return 0;
}

/* One caller asks for one token.  Returns when it may go, or -1. */
static int64_t ask_one(struct weir__global *global, const struct weir__rule *rule, int64_t at_us)
{
    struct weir__ask ask = kind_ask();
    struct weir__grant grant;
    ask.exact = 1;
    ask.wait_us = PATIENCE_US;
    weir__global_ask(global, rule, &ask, EPOCH_US + at_us, &grant);
    return grant.exact == 1 ? at_us + grant.wait_us : -1;
}

void course_print(const struct kind *kind)
{
    struct weir__rule rule = kind_rule(kind, COURSE_TOKENS, PERIOD_US, 0);
    struct weir__global *global = kind_global_new();
    int offered[SLOTS] = {0}, admitted[SLOTS] = {0};
    int64_t due = 0; /* in parts of a token, a million each */
    for (int64_t at_us = 0; at_us < COURSE_US; at_us += STEP_US) {
        for (due += load_per_s(at_us) * STEP_US; due >= 1000000; due -= 1000000) {
            int64_t goes_us = ask_one(global, &rule, at_us);
            offered[at_us / SLOT_US]++;
            if (goes_us >= 0 && goes_us < COURSE_US) {
                admitted[goes_us / SLOT_US]++;
            }
        }
    }
    for (int slot = 0; slot < SLOTS; slot++) {
        printf("%.3f %d %d\n", (double)slot * SLOT_US / 1e6, offered[slot], admitted[slot]);
    }
    kind_global_free(global);
}

/* ---- The worst ------------------------------------------------------------------------------- */

#define WORST_TOKENS 1000
#define QUIET_STEPS 1000 /* before the first moment: leases fit in */
#define WORST_STEPS 4000 /* in all: three periods follow */
#define SHORT_STEPS 10
#define MOMENTS 50 /* of a period */

/* Takes what is there at once, up to the capacity.  Returns how many, and when the last may go. */
static int64_t take_all(struct weir__global *global, const struct weir__rule *rule, int64_t at_us,
                        int64_t *goes_us)
{
    struct weir__ask ask = kind_ask();
    struct weir__grant grant;
    ask.peek = true;
    weir__global_ask(global, rule, &ask, at_us, &grant);
    ask.peek = false;
    ask.exact = weir__min(grant.remaining, rule->capacity);
    ask.wait_us = rule->max_wait_us;
    *goes_us = at_us;
    if (ask.exact > 0) {
        weir__global_ask(global, rule, &ask, at_us, &grant);
        *goes_us += grant.wait_us;
    }
    return ask.exact > 0 ? grant.exact : 0;
}

/* Leases all that the budget has.  Returns how many tokens live until `until_us`. */
static int64_t lease_all(struct weir__global *global, const struct weir__rule *rule, int64_t at_us,
                         int64_t until_us)
{
    int64_t leased = 0;
    for (int i = 0; i < LEASES_MAX; i++) {
        struct weir__ask ask = kind_ask();
        struct weir__grant grant;
        ask.want = rule->budget;
        weir__global_ask(global, rule, &ask, at_us, &grant);
        if (grant.lease == 0) {
            break;
        }
        leased += at_us + grant.life_us > until_us ? grant.lease : 0;
    }
    return leased;
}

/* The fullest `length` steps in a row. */
static int64_t fullest(const int64_t *admitted, int length)
{
    int64_t held = 0, most = 0;
    for (int step = 0; step < WORST_STEPS; step++) {
        held += admitted[step] - (step >= length ? admitted[step - length] : 0);
        most = weir__max(most, held);
    }
    return most;
}

/* Notes what leaves at `at_us`, if that is still of interest. */
static void note(int64_t *admitted, int64_t at_us, int64_t tokens)
{
    if (at_us / STEP_US < WORST_STEPS) {
        admitted[at_us / STEP_US] += tokens;
    }
}

struct worst {
    int64_t in_period, in_short;
};

/* A user who strikes at `moment_us` of a period, with all that can be leased `ahead_us` before. */
static void strike(const struct weir__rule *rule, int64_t moment_us, int64_t ahead_us,
                   struct worst *worst)
{
    static int64_t admitted[WORST_STEPS];
    struct weir__global *global = kind_global_new();
    memset(admitted, 0, sizeof admitted);
    int64_t strike_us = QUIET_STEPS * STEP_US + moment_us;
    if (rule->budget > 0 && !weir__rule_has_slots(rule)) {
        note(admitted, strike_us,
             lease_all(global, rule, EPOCH_US + strike_us - ahead_us, EPOCH_US + strike_us));
    }
    for (int64_t at_us = strike_us; at_us < WORST_STEPS * STEP_US; at_us += STEP_US) {
        int64_t goes_us;
        int64_t tokens = take_all(global, rule, EPOCH_US + at_us, &goes_us);
        if (weir__rule_has_slots(rule)) {
            for (int64_t i = 0; i < tokens; i++) { /* the first goes at once, one after another */
                note(admitted, goes_us - EPOCH_US + weir__rule_time_us(rule, i), 1);
            }
        } else {
            note(admitted, at_us, tokens);
        }
    }
    kind_global_free(global);
    worst->in_period = weir__max(worst->in_period, fullest(admitted, PERIOD_US / STEP_US));
    worst->in_short = weir__max(worst->in_short, fullest(admitted, SHORT_STEPS));
}

static struct worst worst_of(const struct kind *kind, int64_t budget)
{
    struct weir__rule rule = kind_rule(kind, WORST_TOKENS, PERIOD_US, budget);
    struct worst worst = {0, 0};
    for (int moment = 0; moment < MOMENTS; moment++) {
        int64_t moment_us = PERIOD_US / MOMENTS * (moment + 1) - STEP_US;
        for (int64_t ahead_us = 0; ahead_us <= PERIOD_US / 2; ahead_us += PERIOD_US / MOMENTS) {
            strike(&rule, moment_us, ahead_us, &worst);
        }
    }
    return worst;
}

void course_print_worst(const struct kind *kind)
{
    int64_t budget = WORST_TOKENS / 10;
    struct worst exact = worst_of(kind, 0), leased = worst_of(kind, budget);
    printf("{\"name\": \"%s\", \"capacity\": %d, \"budget\": %lld, \"period\": %lld, \"short\": "
           "%lld, \"period_leased\": %lld, \"short_leased\": %lld}\n",
           kind->name, WORST_TOKENS, (long long)budget, (long long)exact.in_period,
           (long long)exact.in_short, (long long)leased.in_period, (long long)leased.in_short);
}
