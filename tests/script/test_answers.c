/* SPDX-License-Identifier: MIT */
/*
 * What is true of the answers whatever the algorithm, or of one algorithm's by its definition, on
 * random states.  C and Lua answer together (twins).
 *
 *   - at exactly retry_after a call is granted, a microsecond earlier it is not
 *   - at exactly reset_after the bucket is full, a microsecond earlier it is not
 *   - what costs more than the capacity is refused for ever, and takes nothing
 *   - a refusal changes no later answer
 *   - no aligned window admits more than its limit; no window at all, with a log
 *   - months are those of the calendar
 *
 * WEIR_SEED replays a run, WEIR_STEPS sets the number of states for each algorithm.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/num.h"

#include "random_asks.h"
#include "twins.h"

#define STATES 1000
#define HISTORY 12 /* random asks before each state, at most */
#define START_US INT64_C(1700000000000000)
#define SECOND INT64_C(1000000)
/* The clock has 53 bits; a wait longer than this may pass their end. */
#define LONG_US (INT64_C(1) << 50)

static struct twins twins;

static int set_up(void **state)
{
    (void)state;
    twins_init(&twins);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    twins_deinit(&twins);
    return 0;
}

static int64_t below(uint64_t *seed, int64_t bound)
{
    return bound <= 1 ? 0 : (int64_t)(weir__random(seed) % (uint64_t)bound);
}

/* A state that came about by chance: random->rule is in force, and random->now_us was the last
 * time that the store saw. */
static void draw_state(struct random_asks *random, const char *what, uint64_t seed,
                       enum weir__algorithm_id only)
{
    struct weir__grant grant;
    struct weir__ask ask;
    twins_begin(&twins, what, seed);
    random_asks_begin(random, seed, only);
    int64_t asks = below(&random->seed, HISTORY);
    for (int64_t i = 0; i < asks; i++) {
        random_asks_next(random, &ask);
        twins_ask(&twins, &random->rule, &ask, random->now_us, &grant);
        random_asks_heard(random, &grant);
    }
    if (twins.bucket.exists) {
        random->rule = twins.bucket.rule;
    }
}

static bool take(const struct weir__rule *rule, int64_t cost, int64_t patience_us, int64_t now_us,
                 struct weir__grant *grant)
{
    struct weir__ask ask = twins_nothing;
    ask.exact = cost;
    ask.wait_us = patience_us;
    twins_ask(&twins, rule, &ask, now_us, grant);
    return grant->exact == cost;
}

static int64_t look(const struct weir__rule *rule, int64_t now_us, struct weir__grant *grant)
{
    struct weir__ask ask = twins_nothing;
    ask.peek = true;
    twins_ask(&twins, rule, &ask, now_us, grant);
    return grant->remaining;
}

/* Every algorithm, each with states of its own. */
static void for_each(void (*check)(const char *what, uint64_t seed, enum weir__algorithm_id only))
{
    static const char *const names[] = {"token bucket", "leaky bucket", "fixed window",
                                        "sliding log", "sliding counter"};
    uint64_t seed = random_asks_seed(1);
    uint64_t states = random_asks_count(STATES);
    print_message("WEIR_SEED=%llu WEIR_STEPS=%llu\n", (unsigned long long)seed,
                  (unsigned long long)states);
    for (uint64_t i = 0; i < 5 * states; i++) {
        enum weir__algorithm_id only = (enum weir__algorithm_id)(1 + i % 5);
        check(names[i % 5], seed + i / 5, only);
    }
}

/* A check that passes by most states would say little.  A replay has few. */
static void assert_enough(unsigned checked)
{
    uint64_t states = random_asks_count(STATES);
    assert_true(states < 100 || checked > states);
}

/* ---- Waits ----------------------------------------------------------------------------------- */

static unsigned hints;

static void check_hint(const char *what, uint64_t seed, enum weir__algorithm_id only)
{
    struct random_asks random;
    struct weir__grant grant;
    draw_state(&random, what, seed, only);
    const struct weir__rule rule = random.rule;
    bool queue = only == WEIR__LEAKY_BUCKET && rule.variant == WEIR__VARIANT_QUEUE;
    /* what may be reserved ahead is granted before it is there: no patience, but in a queue */
    int64_t patience_us = queue ? below(&random.seed, 2 * rule.max_wait_us) : 0;
    int64_t cost = 1 + below(&random.seed, rule.capacity);
    int64_t now_us = random.now_us;
    for (int i = 0; i < 20 && take(&rule, cost, patience_us, now_us, &grant); i++) {
        cost = 1 + below(&random.seed, rule.capacity);
    }
    int64_t hint_us = grant.retry_after_us;
    if (grant.exact > 0 || hint_us > LONG_US) {
        return;
    }
    if (hint_us <= 0) {
        twins_fail(&twins, "a refusal without a hint");
    }
    struct twins_copy refused = twins_keep(&twins);
    if (take(&rule, cost, patience_us, now_us + hint_us - 1, &grant)) {
        twins_fail(&twins, "granted a microsecond before retry_after");
    }
    if (grant.retry_after_us != 1) {
        twins_fail(&twins, "the hint changed on the way");
    }
    twins_restore(&twins, &refused);
    if (!take(&rule, cost, patience_us, now_us + hint_us, &grant)) {
        twins_fail(&twins, "refused at retry_after");
    }
    twins_forget(&refused);
    hints++;
}

static void test_the_hint_is_the_first_moment(void **state)
{
    (void)state;
    hints = 0;
    for_each(check_hint);
    assert_enough(hints);
}

static void check_reset(const char *what, uint64_t seed, enum weir__algorithm_id only)
{
    struct random_asks random;
    struct weir__grant grant;
    draw_state(&random, what, seed, only);
    const struct weir__rule rule = random.rule;
    take(&rule, 1, 0, random.now_us, &grant);
    int64_t reset_us = grant.reset_after_us;
    if (reset_us == 0 || reset_us > LONG_US) {
        return;
    }
    look(&rule, random.now_us + reset_us - 1, &grant);
    if (grant.reset_after_us != 1) {
        twins_fail(&twins, "the reset changed on the way");
    }
    look(&rule, random.now_us + reset_us, &grant);
    if (grant.reset_after_us != 0 || grant.remaining != rule.capacity) {
        twins_fail(&twins, "not full at reset_after");
    }
}

static void test_the_reset_is_the_first_moment(void **state)
{
    (void)state;
    for_each(check_reset);
}

/* ---- Refusals -------------------------------------------------------------------------------- */

static void check_too_much(const char *what, uint64_t seed, enum weir__algorithm_id only)
{
    struct random_asks random;
    struct weir__grant before, grant;
    draw_state(&random, what, seed, only);
    look(&random.rule, random.now_us, &before);
    int64_t cost = random.rule.capacity + 1 + below(&random.seed, INT64_C(1) << 40);
    take(&random.rule, cost, random.rule.max_wait_us, random.now_us, &grant);
    if (grant.exact != 0 || grant.retry_after_us != -1) {
        twins_fail(&twins, "a cost above the capacity is not refused for ever");
    }
    if (grant.remaining != before.remaining) {
        twins_fail(&twins, "what was refused was taken");
    }
}

static void test_more_than_the_capacity_is_never(void **state)
{
    (void)state;
    for_each(check_too_much);
}

static unsigned refusals;

/* A time from now until a little after the wait that was told, most often before. */
static int64_t later(uint64_t *seed, int64_t now_us, int64_t wait_us)
{
    wait_us = weir__clamp(wait_us, 1, LONG_US);
    return now_us + below(seed, 2) * wait_us + below(seed, wait_us);
}

/* Without an account: its windows, and who is counted in them, begin with an ask. */
static void check_refusal(const char *what, uint64_t seed, enum weir__algorithm_id only)
{
    struct random_asks random;
    struct weir__grant grant, with, without;
    draw_state(&random, what, seed, only);
    if (twins.bucket.has_account) {
        return;
    }
    struct weir__rule rule = random.rule;
    rule.budget = 0;
    int64_t now_us = random.now_us;
    take(&rule, 1 + below(&random.seed, rule.capacity), 0, now_us, &grant);
    struct twins_copy before = twins_keep(&twins);
    int64_t cost = weir__min(rule.capacity, grant.remaining + 1 + below(&random.seed, 3));
    /* while the key is there with the refusal and without it */
    int64_t last_us = before.bucket.expires_us - 1;
    if (below(&random.seed, 2) == 0) {
        now_us = weir__min(later(&random.seed, now_us, grant.reset_after_us), last_us);
    }
    if (!take(&rule, cost, 0, now_us, &grant)) {
        last_us = weir__min(last_us, twins.bucket.expires_us - 1);
        int64_t then_us = weir__min(later(&random.seed, now_us, grant.retry_after_us), last_us);
        cost = 1 + below(&random.seed, rule.capacity);
        take(&rule, cost, 0, then_us, &with);
        twins_restore(&twins, &before);
        take(&rule, cost, 0, then_us, &without);
        if (memcmp(&with, &without, sizeof with) != 0) {
            twins_fail(&twins, "a refusal changed a later answer");
        }
        refusals++;
    }
    twins_forget(&before);
}

static void test_a_refusal_changes_no_later_answer(void **state)
{
    (void)state;
    refusals = 0;
    for_each(check_refusal);
    assert_enough(refusals);
}

/* ---- Windows --------------------------------------------------------------------------------- */

#define BURSTS 30

struct burst {
    int64_t at_us, tokens;
};

/* Calls and leases at random times under one rule, on a new key; what was admitted when. */
static void admit(const struct random_asks *random, const struct weir__rule *rule, uint64_t *seed,
                  struct burst bursts[BURSTS])
{
    int64_t now_us = random->now_us;
    int64_t period_us = weir__max(rule->period_us, 1);
    for (int i = 0; i < BURSTS; i++) {
        struct weir__grant grant;
        struct weir__ask ask = twins_nothing;
        const int64_t steps[] = {0, 1, period_us / 7, period_us, below(seed, period_us)};
        now_us += steps[below(seed, 5)];
        ask.exact = 1 + below(seed, 2 * weir__max(1, rule->capacity / 3));
        ask.want = below(seed, rule->capacity);
        twins_ask(&twins, rule, &ask, now_us, &grant);
        bursts[i] = (struct burst){now_us, grant.exact + grant.lease};
    }
}

static void check_windows(const char *what, uint64_t seed, enum weir__algorithm_id only)
{
    struct random_asks random;
    struct burst bursts[BURSTS];
    uint64_t dice = seed;
    twins_begin(&twins, what, seed);
    random_asks_begin(&random, seed, only);
    const struct weir__rule rule = random.rule;
    if (only < WEIR__FIXED_WINDOW || rule.period_us == 0) {
        return;
    }
    admit(&random, &rule, &dice, bursts);
    for (int i = 0; i < BURSTS; i++) {
        int64_t aligned = 0;
        int64_t sliding = 0;
        for (int k = i; k < BURSTS; k++) {
            bool same = bursts[k].at_us / rule.period_us == bursts[i].at_us / rule.period_us;
            aligned += same ? bursts[k].tokens : 0;
            sliding += bursts[k].at_us < bursts[i].at_us + rule.period_us ? bursts[k].tokens : 0;
        }
        if (aligned > rule.capacity) {
            twins_fail(&twins, "an aligned window admitted more than its limit");
        }
        if (only == WEIR__SLIDING_LOG && sliding > rule.capacity) {
            twins_fail(&twins, "a window admitted more than its limit");
        }
    }
}

static void test_no_window_admits_more(void **state)
{
    (void)state;
    for_each(check_windows);
}

/* The first of the month that holds the second `at`, or of one after. */
static int64_t month_us(time_t at, int months)
{
    struct tm utc;
    assert_non_null(gmtime_r(&at, &utc));
    struct tm first = {.tm_year = utc.tm_year, .tm_mon = utc.tm_mon + months, .tm_mday = 1};
    return (int64_t)timegm(&first) * SECOND;
}

static void check_month(const struct weir__rule *rule, int64_t now_us)
{
    struct weir__grant grant;
    twins_begin(&twins, "months", (uint64_t)now_us);
    assert_true(take(rule, rule->capacity, 0, now_us, &grant));
    assert_int_equal(grant.start_us, month_us((time_t)(now_us / SECOND), 0));
    assert_int_equal(now_us + grant.reset_after_us, month_us((time_t)(now_us / SECOND), 1));
}

static void test_months_are_those_of_the_calendar(void **state)
{
    (void)state;
    const struct weir__rule rule = {.version = 1,
                                    .tick_us = 1,
                                    .units_per_tick = 1,
                                    .units_per_token = 1,
                                    .capacity = 3,
                                    .window_us = SECOND,
                                    .initial = 3,
                                    .algorithm = WEIR__FIXED_WINDOW,
                                    .variant = WEIR__VARIANT_MONTH};
    uint64_t seed = random_asks_seed(1);
    time_t at = 0;
    while (at < INT64_C(280) * 365 * 86400) { /* a double holds little more in microseconds */
        int64_t first_us = month_us(at, 0);
        check_month(&rule, first_us);
        check_month(&rule, first_us + below(&seed, 28 * 86400 * SECOND));
        at = (time_t)(month_us(at, 1) / SECOND);
        check_month(&rule, (int64_t)at * SECOND - 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_hint_is_the_first_moment),
        cmocka_unit_test(test_the_reset_is_the_first_moment),
        cmocka_unit_test(test_more_than_the_capacity_is_never),
        cmocka_unit_test(test_a_refusal_changes_no_later_answer),
        cmocka_unit_test(test_no_window_admits_more),
        cmocka_unit_test(test_months_are_those_of_the_calendar),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
