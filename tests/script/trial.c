/* SPDX-License-Identifier: MIT */
/* A key that is asked by hand, under a rule made of what a test wants to say about it. */
#include "trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/rule.h"

static const struct {
    const char *name;
    enum weir__algorithm_id algorithm;
    int64_t variant;
} kinds[KINDS] = {
    [TOKEN] = {"token bucket", WEIR__TOKEN_BUCKET, 0},
    [LEAKY] = {"leaky bucket", WEIR__LEAKY_BUCKET, 0},
    [QUEUE] = {"leaky bucket as a queue", WEIR__LEAKY_BUCKET, WEIR__VARIANT_QUEUE},
    [FIXED] = {"fixed window", WEIR__FIXED_WINDOW, 0},
    [LOG] = {"sliding log", WEIR__SLIDING_LOG, 0},
    [COUNTER] = {"sliding counter", WEIR__SLIDING_COUNTER, 0},
};

struct trial trial;

int trial_set_up(void **state)
{
    (void)state;
    twins_init(&trial.twins);
    return 0;
}

int trial_tear_down(void **state)
{
    (void)state;
    twins_deinit(&trial.twins);
    return 0;
}

/* `tokens` a period; a window's limit is `tokens`, a bucket's burst is `capacity`. */
static struct weir__rule rule_of(enum trial_kind kind, int64_t tokens, int64_t period_us,
                                 int64_t capacity)
{
    struct weir__rule made = {.version = 1,
                              .window_us = 100 * MS,
                              .algorithm = kinds[kind].algorithm,
                              .variant = kinds[kind].variant};
    uint64_t largest;
    if (kind >= FIXED) {
        capacity = tokens;
        made.period_us = period_us;
    }
    if (kind == QUEUE) { /* whoever fits waits for its turn */
        made.max_wait_us = HOUR;
    }
    assert_true(weir__rule_set_rate(&made, (uint64_t)tokens, (uint64_t)period_us,
                                    (uint64_t)capacity, &largest));
    made.initial = capacity;
    return made;
}

void trial_begin(enum trial_kind kind, int64_t tokens, int64_t period_us, int64_t capacity)
{
    twins_begin(&trial.twins, kinds[kind].name, 0);
    trial.rule = rule_of(kind, tokens, period_us, capacity);
}

void trial_update(enum trial_kind kind, int64_t tokens, int64_t period_us, int64_t capacity)
{
    int64_t version = trial.rule.version + 1;
    trial.rule = rule_of(kind, tokens, period_us, capacity);
    trial.rule.version = version;
}

static void ask(int64_t at, const struct weir__ask *asked)
{
    twins_ask(&trial.twins, &trial.rule, asked, START + at, &trial.grant);
}

bool trial_take(int64_t at, int64_t cost)
{
    struct weir__ask asked = twins_nothing;
    asked.exact = cost;
    asked.wait_us = trial.rule.max_wait_us;
    ask(at, &asked);
    return trial.grant.exact == cost;
}

int64_t trial_look(int64_t at)
{
    struct weir__ask asked = twins_nothing;
    asked.peek = true;
    ask(at, &asked);
    return trial.grant.remaining;
}

int64_t trial_lease(int64_t at, int64_t want)
{
    struct weir__ask asked = twins_nothing;
    asked.want = want;
    ask(at, &asked);
    return trial.grant.lease;
}

void trial_verdicts(const int64_t *at, const char *verdicts)
{
    char got[32] = "";
    for (size_t i = 0; verdicts[i] != 0; i++) {
        got[i] = trial_take(at[i], 1) ? 'A' : 'D';
    }
    if (strcmp(got, verdicts) != 0) {
        char why[100];
        snprintf(why, sizeof why, "%s, expected %s", got, verdicts);
        twins_fail(&trial.twins, why);
    }
}
