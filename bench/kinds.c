/* SPDX-License-Identifier: MIT */
/*
 * One limit in the words of each algorithm, for measurements that compare them.
 */
#include "kinds.h"

#include <stdlib.h>

#include "core/algorithms/algorithm.h"
#include "core/rule.h"

#define MAX_WAIT_US 60000000 /* the whole queue of any limit that is measured here */
#define WINDOW_US 400000     /* the longest that the library chooses by itself */

const struct kind kinds[KINDS] = {
    {"token-bucket", WEIR_TOKEN_BUCKET, false, false},
    {"leaky-meter", WEIR_LEAKY_BUCKET, false, false},
    {"leaky-queue", WEIR_LEAKY_BUCKET, true, false},
    {"fixed-window", WEIR_FIXED_WINDOW, false, true},
    {"sliding-log", WEIR_SLIDING_LOG, false, true},
    {"sliding-counter", WEIR_SLIDING_COUNTER, false, true},
};

struct weir__rule kind_rule(const struct kind *kind, int64_t tokens, int64_t period_us,
                            int64_t budget)
{
    struct weir__rule rule = {
        .version = 1,
        .budget = budget,
        .window_us = WINDOW_US,
        .max_wait_us = kind->queue ? MAX_WAIT_US : 0,
        .initial = tokens,
        .algorithm = (enum weir__algorithm_id)kind->algorithm,
        .variant = kind->queue ? WEIR__VARIANT_QUEUE : 0,
    };
    uint64_t largest;
    if (kind->periods) {
        weir__rule_set_periods(&rule, (uint64_t)tokens, (uint64_t)period_us);
    } else if (!weir__rule_set_rate(&rule, (uint64_t)tokens, (uint64_t)period_us, (uint64_t)tokens,
                                    &largest)) {
        abort(); /* none of the limits measured here is that fine */
    }
    return rule;
}

void kind_options(const struct kind *kind, uint64_t tokens, uint64_t period_us,
                  struct weir_limit_options *options)
{
    weir_limit_options_init(options, sizeof *options);
    options->name = kind->name;
    options->algorithm = kind->algorithm;
    options->rate_tokens = tokens;
    options->rate_period_us = period_us;
    if (kind->queue) {
        options->queue_tokens = tokens;
    } else if (!kind->periods) {
        options->capacity_tokens = tokens;
    }
}

struct weir__ask kind_ask(void)
{
    return (struct weir__ask){
        .least = 1,
        .since = WEIR__NO_WINDOW,
        .heard = WEIR__NO_WINDOW,
        .settle = {{.window = WEIR__NO_WINDOW}, {.window = WEIR__NO_WINDOW}},
    };
}

struct weir__global *kind_global_new(void)
{
    struct weir__global *global = calloc(1, sizeof *global);
    struct weir__log_entry *entries = calloc(WEIR__LOG_BOUND, sizeof *entries);
    if (global == NULL || entries == NULL) {
        abort();
    }
    global->log = (struct weir__log){.entries = entries, .room = WEIR__LOG_BOUND};
    return global;
}

void kind_global_free(struct weir__global *global)
{
    free(global->log.entries);
    free(global);
}
