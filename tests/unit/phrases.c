/* SPDX-License-Identifier: MIT */

/*
 * Limits as text, for tests: reading, writing and comparing them, with what went wrong said.
 */

#include "unit/phrases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/limits.h"

#define TIMEOUT_US 100000

struct weir_limit_options untouched(void)
{
    struct weir_limit_options options;
    weir_limit_options_init(&options, sizeof(options));
    return options;
}

struct weir_limit_options parse(const char *text)
{
    struct weir_limit_options options = untouched();
    struct weir_error error = {0};
    if (weir_limit_parse(&options, text, &error) != WEIR_OK) {
        fail_msg("\"%s\": %s", text, error.text);
    }
    return options;
}

void format(char out[512], const struct weir_limit_options *options)
{
    size_t len = weir_limit_format(out, 512, options);
    assert_true(len < 512);
    assert_int_equal(strlen(out), len);
}

struct weir__limit read_limit(const struct weir_limit_options *options)
{
    struct weir__limit limit;
    struct weir_limit_options ours;
    struct weir_error error = {0};
    if (weir__limit_read(&limit, &ours, options, TIMEOUT_US, &error) != WEIR_OK) {
        fail_msg("%s", error.text);
    }
    return limit;
}

void assert_same(const struct weir_limit_options *a, const struct weir_limit_options *b)
{
    assert_true(a->rate_tokens == b->rate_tokens);
    assert_true(a->rate_period_us == b->rate_period_us);
    assert_true(a->capacity_tokens == b->capacity_tokens);
    assert_true(a->budget_tokens == b->budget_tokens);
    assert_true(a->budget_percent == b->budget_percent);
    assert_true(a->initial_tokens == b->initial_tokens);
    assert_true(a->initial_percent == b->initial_percent);
    assert_true(a->max_wait_ms == b->max_wait_ms);
    assert_true(a->window_ms == b->window_ms);
    assert_true(a->version == b->version);
    assert_true(a->outage == b->outage);
    assert_true(a->outage_share_percent == b->outage_share_percent);
    assert_true(a->algorithm == b->algorithm);
    assert_true(a->queue_tokens == b->queue_tokens);
    assert_true(a->calendar == b->calendar);
    assert_true(a->learn == b->learn);
    assert_true(a->cap_tokens == b->cap_tokens);
    assert_true(a->cap_period_us == b->cap_period_us);
    assert_true(a->cap_burst_ms == b->cap_burst_ms);
    assert_true(a->cap_warmup_ms == b->cap_warmup_ms);
}
