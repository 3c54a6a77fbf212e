/* SPDX-License-Identifier: MIT */
/* See kinds.h. */
#include "api/kinds.h"

#include "api/fixture.h"

#define QUEUE 2

static const struct {
    const char *name;
    enum weir_algorithm algorithm;
} kinds[KINDS] = {
    {"token-bucket", WEIR_TOKEN_BUCKET},
    {"leaky-meter", WEIR_LEAKY_BUCKET},
    [QUEUE] = {"leaky-queue", WEIR_LEAKY_BUCKET},
    {"fixed-window", WEIR_FIXED_WINDOW},
    {"sliding-log", WEIR_SLIDING_LOG},
    {"sliding-counter", WEIR_SLIDING_COUNTER},
};

const char *kind_name(unsigned kind) { return kinds[kind].name; }

struct weir_limit_options kind_options(unsigned kind, uint64_t tokens, int64_t period_us)
{
    enum weir_algorithm algorithm = kinds[kind].algorithm;
    bool has_burst = kind != QUEUE &&
                     (algorithm == WEIR_TOKEN_BUCKET || algorithm == WEIR_LEAKY_BUCKET);
    struct weir_limit_options options = limit_options(kinds[kind].name, tokens, period_us,
                                                      has_burst ? tokens : WEIR_DEFAULT, 0);
    options.algorithm = algorithm;
    options.queue_tokens = kind == QUEUE ? tokens : 0;
    options.outage = WEIR_OUTAGE_CLOSED;
    return options;
}

int64_t kind_long_us(unsigned kind)
{
    return kind == QUEUE ? 1000 * SECOND : INT64_C(1000000000000); /* that ends every twelve days */
}

uint64_t kind_at_once(unsigned kind, uint64_t tokens) { return kind == QUEUE ? 1 : tokens; }
