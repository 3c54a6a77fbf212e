/* SPDX-License-Identifier: MIT */
#include "bed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/rule.h"

struct bed bed_of(uint64_t tokens, int64_t period_us, int64_t capacity, int64_t budget)
{
    struct bed bed = {.key = {.exists = false}};
    uint64_t largest;
    assert_true(
        weir__rule_set_rate(&bed.rule, tokens, (uint64_t)period_us, (uint64_t)capacity, &largest));
    bed.rule.version = 1;
    bed.rule.algorithm = WEIR__TOKEN_BUCKET;
    bed.rule.budget = budget;
    bed.rule.window_us = 100 * MS;
    bed.rule.max_wait_us = 0;
    bed.rule.initial = capacity;
    return bed;
}

const struct weir__ask bed_nothing = {.least = 1,
                                      .heard = WEIR__NO_WINDOW,
                                      .settle = {{WEIR__NO_WINDOW, 0, 0}, {WEIR__NO_WINDOW, 0, 0}}};

void bed_ask(struct bed *bed, int64_t at, const struct weir__ask *ask)
{
    weir__global_ask(&bed->key, &bed->rule, ask, START + at, &bed->grant);
}

bool bed_take(struct bed *bed, int64_t at, int64_t cost)
{
    struct weir__ask ask = bed_nothing;
    ask.exact = cost;
    bed_ask(bed, at, &ask);
    return bed->grant.exact == cost;
}

int64_t bed_lease(struct bed *bed, int64_t at, int64_t want)
{
    struct weir__ask ask = bed_nothing;
    ask.want = want;
    ask.heard = bed->key.has_account ? bed->key.cur : WEIR__NO_WINDOW;
    bed_ask(bed, at, &ask);
    return bed->grant.lease;
}

void bed_settle(struct bed *bed, int64_t at, int64_t window, int64_t spent, int64_t back)
{
    struct weir__ask ask = bed_nothing;
    ask.settle[0] = (struct weir__settle){window, spent, back};
    ask.heard = bed->key.cur;
    bed_ask(bed, at, &ask);
}

int64_t bed_look(struct bed *bed, int64_t at)
{
    struct weir__ask ask = bed_nothing;
    ask.peek = true;
    bed_ask(bed, at, &ask);
    return bed->grant.remaining;
}

void bed_update(struct bed *bed, struct bed to)
{
    to.rule.version = bed->rule.version + 1;
    bed->rule = to.rule;
}
