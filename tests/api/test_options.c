/* SPDX-License-Identifier: MIT */
/*
 * Options: every bound of every field, with a message that names the field and the value, and
 * nothing changed by a refusal; structs of older and newer programs; names; texts for numbers.
 */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/fixture.h"
#include "script/server.h"

/* ---- weir_open ------------------------------------------------------------------------------- */

static void refused_open(const struct weir_options *options, const char *field, const char *value)
{
    struct weir *weir = NULL;
    struct weir_error error = {0};
    assert_int_equal(weir_open(&weir, options, &error), WEIR_EINVAL);
    assert_int_equal(error.code, WEIR_EINVAL);
    if (strstr(error.text, field) == NULL || strstr(error.text, value) == NULL) {
        fail_msg("%s, %s: not in: %s", field, value, error.text);
    }
    assert_null(weir);
    assert_int_equal(weir_open(&weir, options, NULL), WEIR_EINVAL);
}

static void numbers_of_open(void **state)
{
    (void)state;
    const struct {
        const char *field;
        size_t at;
        uint64_t most;
    } rows[] = {
        {"ask_timeout_ms", offsetof(struct weir_options, ask_timeout_ms), 60000},
        {"connect_timeout_ms", offsetof(struct weir_options, connect_timeout_ms), 60000},
        {"max_keys", offsetof(struct weir_options, max_keys), 1 << 26},
        {"max_waiters", offsetof(struct weir_options, max_waiters), 1 << 26},
        {"max_asks", offsetof(struct weir_options, max_asks), 65536},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const uint64_t bad[] = {0, rows[i].most + 1, UINT64_C(1) << 32, UINT64_MAX};
        const uint64_t good[] = {1, rows[i].most};
        for (size_t b = 0; b < 4; b++) {
            struct weir_options options;
            char value[24];
            weir_options_init(&options, sizeof(options));
            memcpy((char *)&options + rows[i].at, &bad[b], sizeof(bad[b]));
            snprintf(value, sizeof(value), "%llu", (unsigned long long)bad[b]);
            refused_open(&options, rows[i].field, value);
        }
        for (size_t g = 0; g < 2; g++) {
            struct weir_options options;
            weir_options_init(&options, sizeof(options));
            memcpy((char *)&options + rows[i].at, &good[g], sizeof(good[g]));
            struct weir *weir = open_with(&options);
            assert_int_equal(weir_close_wait(weir), WEIR_OK);
        }
    }
}

static void names_of_keys(void **state)
{
    (void)state;
    char longest[66];
    memset(longest, 'p', sizeof(longest));
    longest[65] = '\0';
    const struct {
        const char *name, *value;
    } bad[] = {{NULL, "empty"}, {"", "empty"},   {longest, "65 bytes"},
               {"a:b", "0x3a"}, {"{", "0x7b"},   {"ab}", "byte 3"},
               {"a b", "0x20"}, {"a\n", "0x0a"}, {"\x7f", "0x7f"}};
    struct weir *weir = open_inprocess(NULL);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct weir_options options;
        weir_options_init(&options, sizeof(options));
        options.key_prefix = bad[i].name;
        refused_open(&options, "key_prefix", bad[i].value);

        struct weir_limit *limit = NULL;
        struct weir_error error = {0};
        struct weir_limit_options rule = limit_options(bad[i].name, 1, SECOND, 1, 0);
        assert_int_equal(weir_limit_define(weir, &limit, &rule, &error), WEIR_EINVAL);
        assert_non_null(strstr(error.text, "name"));
        assert_non_null(strstr(error.text, bad[i].value));
        assert_null(limit);
    }
    longest[64] = '\0';
    (void)define(weir, longest, 1, SECOND, 1, 0);
    (void)define(weir, "\xc3\xa9t\xc3\xa9", 1, SECOND, 1, 0);
    assert_int_equal(weir_close_wait(weir), WEIR_OK);
}

static void urls_of_open(void **state)
{
    (void)state;
    const struct {
        const char *url, *says;
    } bad[] = {{"", "character 1:"},
               {"http://host", "character 1:"},
               {"rediss://host", "redis:// or unix://"},
               {"redis://host:0", "port"},
               {"redis://host:65536", "port"},
               {"redis://user:secret@host/x", "database"},
               {"unix://relative", "path"}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct weir_options options = store_options(bad[i].url);
        refused_open(&options, "url", bad[i].says);
    }
}

/* ---- Size and version ------------------------------------------------------------------------ */

/* As a newer program sees it. */
struct newer {
    struct weir_options known;
    uint64_t one_more;
};

struct newer_limit {
    struct weir_limit_options known;
    uint64_t one_more;
};

static void a_newer_program_may_leave_its_field_alone(void **state)
{
    (void)state;
    struct newer options;
    memset(&options, 0x55, sizeof(options));
    weir_options_init(&options.known, sizeof(options));
    assert_int_equal(options.known.size, sizeof(options));
    assert_int_equal(options.one_more, 0);
    struct weir *weir = open_with(&options.known);

    struct newer_limit rule;
    memset(&rule, 0x55, sizeof(rule));
    weir_limit_options_init(&rule.known, sizeof(rule));
    assert_int_equal(rule.one_more, 0);
    rule.known.name = "limit";
    rule.known.rate_tokens = rule.known.rate_period_us = 1;
    (void)define_with(weir, &rule.known);

    options.one_more = 1;
    refused_open(&options.known, "size", "newer than this library");
    rule.one_more = UINT64_C(1) << 63;
    rule.known.name = "other";
    struct weir_limit *limit;
    struct weir_error error;
    assert_int_equal(weir_limit_define(weir, &limit, &rule.known, &error), WEIR_EINVAL);
    assert_non_null(strstr(error.text, "newer than this library"));
    assert_int_equal(weir_close_wait(weir), WEIR_OK);
}

/* Out of the compiler's sight, which would say that these structs are too small. */
static __attribute__((noinline)) void *memory_of(size_t size)
{
    void *memory = malloc(size);
    assert_non_null(memory);
    memset(memory, 0x55, size);
    return memory;
}

/* The memory is as small as the old struct was: nothing is written or read behind it. */
static void an_older_program_gets_defaults_for_what_it_lacks(void **state)
{
    (void)state;
    const size_t size = offsetof(struct weir_options, max_waiters);
    struct weir_options *options = memory_of(size);
    weir_options_init(options, size);
    assert_int_equal(options->size, size);
    assert_int_equal(options->max_keys, 1000000);
    struct weir *weir = open_with(options);
    free(options);

    const size_t limit_size = offsetof(struct weir_limit_options, budget_tokens);
    struct weir_limit_options *rule = memory_of(limit_size);
    weir_limit_options_init(rule, limit_size);
    rule->name = "limit";
    rule->rate_tokens = 5;
    rule->rate_period_us = SECOND;
    struct weir_limit *limit = define_with(weir, rule);
    free(rule);
    struct weir_bucket *bucket = get(limit, "key");
    struct weir_result result;
    assert_int_equal(weir_peek(bucket, &result), WEIR_OK);
    assert_int_equal(result.limit_tokens, 5);
    assert_int_equal(result.remaining_tokens, 5);
    weir_bucket_unref(bucket);
    assert_int_equal(weir_close_wait(weir), WEIR_OK);
}

static void a_size_that_cannot_be_is_refused(void **state)
{
    (void)state;
    const size_t sizes[] = {0, sizeof(size_t) - 1, 65537, SIZE_MAX};
    struct weir *weir = open_inprocess(NULL);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct weir_options options;
        char value[24];
        weir_options_init(&options, sizeof(options));
        options.size = sizes[i];
        snprintf(value, sizeof(value), "%zu", sizes[i]);
        refused_open(&options, "size", value);
        struct weir_limit_options rule = limit_options("limit", 1, SECOND, 1, 0);
        struct weir_limit *limit;
        struct weir_error error;
        rule.size = sizes[i];
        assert_int_equal(weir_limit_define(weir, &limit, &rule, &error), WEIR_EINVAL);
        assert_non_null(strstr(error.text, value));
    }
    assert_int_equal(weir_close_wait(weir), WEIR_OK);
}

static void stats_come_in_sizes(void **state)
{
    (void)state;
    struct weir *weir = open_inprocess(NULL);
    struct weir_stats stats;
    const size_t size = offsetof(struct weir_stats, leased);
    memset(&stats, 0x55, sizeof(stats));
    stats.size = size;
    assert_int_equal(weir_stats_read(weir, &stats), WEIR_OK);
    assert_int_equal(stats.size, size);
    assert_int_equal(stats.asks, 0);
    assert_int_equal(stats.leased, UINT64_C(0x5555555555555555));
    stats.size = sizeof(stats) + 1;
    assert_int_equal(weir_stats_read(weir, &stats), WEIR_EINVAL);
    stats.size = 0;
    assert_int_equal(weir_stats_read(weir, &stats), WEIR_EINVAL);
    assert_int_equal(weir_close_wait(weir), WEIR_OK);
}

/* ---- Limits ---------------------------------------------------------------------------------- */

#define FIELD(name) #name, offsetof(struct weir_limit_options, name)

/* Each alone is wrong, with what the message must say. */
static const struct {
    const char *field;
    size_t at;
    uint64_t value;
    const char *says;
} wrong_numbers[] = {
    {FIELD(rate_tokens), 0, ": 0:"},
    {FIELD(rate_tokens), UINT64_C(1000000000001), "1000000000001"},
    {FIELD(rate_tokens), UINT64_MAX, "18446744073709551615"},
    {FIELD(rate_tokens), 1000000001, "10^9 tokens a second"},
    {FIELD(rate_period_us), 0, ": 0:"},
    {FIELD(rate_period_us), UINT64_C(1000000000001), "1000000000001"},
    {FIELD(capacity_tokens), 0, ": 0:"},
    {FIELD(capacity_tokens), 1000000001, "1000000001"},
    {FIELD(capacity_tokens), UINT64_MAX - 1, "18446744073709551614"},
    {FIELD(budget_tokens), 101, ": 101: must be from 0 to 100"},
    {FIELD(budget_tokens), UINT64_MAX - 1, "18446744073709551614"},
    {FIELD(initial_tokens), 101, ": 101: must be from 0 to 100"},
    {FIELD(max_wait_ms), 60001, "60001"},
    {FIELD(window_ms), 0, ": 0:"},
    {FIELD(window_ms), 9, ": 9:"},
    {FIELD(window_ms), 60001, "60001"},
    {FIELD(queue_tokens), 5, "only leaky has a queue"},
    {FIELD(cap_tokens), 1000000001, "1000000001"},
    {FIELD(cap_period_us), 5, "there is no cap"},
    {FIELD(cap_burst_ms), 5, "there is no cap"},
    {FIELD(cap_warmup_ms), 5, "there is no cap"},
    {FIELD(version), 0, ": 0:"},
    {FIELD(version), (UINT64_C(1) << 52) + 1, "4503599627370497"},
};

static const struct {
    const char *field;
    size_t at;
    double value;
} wrong_percents[] = {
    {FIELD(budget_percent), -0.001},        {FIELD(budget_percent), -1},
    {FIELD(budget_percent), 100.001},       {FIELD(budget_percent), NAN},
    {FIELD(budget_percent), INFINITY},      {FIELD(budget_percent), -INFINITY},
    {FIELD(initial_percent), -1},           {FIELD(initial_percent), 100.001},
    {FIELD(initial_percent), NAN},          {FIELD(initial_percent), INFINITY},
    {FIELD(outage_share_percent), -1},      {FIELD(outage_share_percent), 0},
    {FIELD(outage_share_percent), 0.00009}, {FIELD(outage_share_percent), 100.001},
    {FIELD(outage_share_percent), NAN},     {FIELD(outage_share_percent), INFINITY},
    {FIELD(outage_share_percent), DBL_MAX},
};

static struct weir_limit_options right(const char *name)
{
    struct weir_limit_options options = limit_options(name, 100, SECOND, 100, WEIR_DEFAULT);
    return options;
}

static void refused_limit(struct weir *weir, struct weir_limit *limit,
                          const struct weir_limit_options *options, const char *field,
                          const char *says)
{
    struct weir_limit *made = NULL;
    struct weir_error errors[2] = {{0}};
    assert_int_equal(weir_limit_define(weir, &made, options, &errors[0]), WEIR_EINVAL);
    assert_int_equal(weir_limit_update(limit, options, &errors[1]), WEIR_EINVAL);
    assert_int_equal(weir_limit_update(limit, options, NULL), WEIR_EINVAL);
    assert_null(made);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(errors[i].code, WEIR_EINVAL);
        if (strstr(errors[i].text, field) != errors[i].text ||
            strstr(errors[i].text, says) == NULL) {
            fail_msg("%s, %s: not in: %s", field, says, errors[i].text);
        }
    }
}

static void refuse_all(struct weir *weir, struct weir_limit *limit)
{
    for (size_t i = 0; i < sizeof(wrong_numbers) / sizeof(wrong_numbers[0]); i++) {
        struct weir_limit_options options = right("other");
        memcpy((char *)&options + wrong_numbers[i].at, &wrong_numbers[i].value, sizeof(uint64_t));
        refused_limit(weir, limit, &options, wrong_numbers[i].field, wrong_numbers[i].says);
    }
    for (size_t i = 0; i < sizeof(wrong_percents) / sizeof(wrong_percents[0]); i++) {
        struct weir_limit_options options = right("other");
        char value[32];
        memcpy((char *)&options + wrong_percents[i].at, &wrong_percents[i].value, sizeof(double));
        snprintf(value, sizeof(value), "%g:", wrong_percents[i].value);
        refused_limit(weir, limit, &options, wrong_percents[i].field, value);
    }
    for (int policy = -1; policy <= 4; policy += policy == 0 ? 4 : 1) {
        struct weir_limit_options options = right("other");
        char value[16];
        memcpy(&options.outage, &policy, sizeof(options.outage));
        snprintf(value, sizeof(value), "%d", policy);
        refused_limit(weir, limit, &options, "outage", value);
    }
    /* Together too much to be counted exactly; the message says how much would do. */
    struct weir_limit_options options = right("other");
    options.rate_tokens = 999999999989;
    options.rate_period_us = 999999999961;
    options.capacity_tokens = 1000000000;
    refused_limit(weir, limit, &options, "capacity_tokens", "at most");
}

static void a_refused_limit_changes_nothing(void **state)
{
    (void)state;
    struct hand_clock hand;
    hand_clock_set(&hand, SECOND);
    struct weir *weir = open_inprocess(&hand);
    struct weir_limit_options rule = right("limit");
    struct weir_limit *limit = define_with(weir, &rule);
    struct weir_bucket *bucket = get(limit, "key");
    struct weir_result before, after;
    assert_int_equal(weir_try_acquire(bucket, 40, NULL), WEIR_ALLOWED);
    assert_int_equal(weir_peek(bucket, &before), WEIR_OK);
    refuse_all(weir, limit);
    assert_int_equal(weir_peek(bucket, &after), WEIR_OK);
    assert_memory_equal(&before, &after, sizeof(before));
    hand_clock_set(&hand, SECOND + 10 * MS);
    assert_int_equal(weir_peek(bucket, &after), WEIR_OK);
    assert_int_equal(after.remaining_tokens, before.remaining_tokens + 1);
    assert_int_equal(weir_try_acquire(bucket, 61, NULL), WEIR_ALLOWED);
    assert_int_equal(weir_try_acquire(bucket, 1, NULL), WEIR_DENIED);
    weir_bucket_unref(bucket);
    (void)define(weir, "other", 1, SECOND, 1, 0); /* the name was not taken by any refusal */
    assert_int_equal(weir_close_wait(weir), WEIR_OK);
}

static void a_refused_limit_does_not_reach_the_store(void **state)
{
    (void)state;
    struct server *server = store_start();
    struct weir *weir = open_store(server);
    struct weir_limit *limit = define(weir, "limit", 1, HOUR, 100, 0);
    assert_int_equal(weir_acquire_wait_key(limit, "key", 3, 1, SECOND, NULL), WEIR_ALLOWED);
    assert_int_equal(store_do(server, "EXISTS weir:limit:key"), 1);
    store_do(server, "DEL weir:limit:key");
    uint64_t sent = stats_of(weir).asks_sent;
    refuse_all(weir, limit);
    assert_int_equal(store_do(server, "EXISTS weir:other:key"), 0);
    assert_int_equal(stats_of(weir).asks_sent, sent);
    assert_int_equal(weir_close_wait(weir), WEIR_OK);
    store_stop(server);
}

static void the_bounds_themselves_are_allowed(void **state)
{
    (void)state;
    struct weir *weir = open_inprocess(NULL);
    const struct {
        const char *name;
        uint64_t rate, period_us, capacity, budget, initial, wait_ms, window_ms, version;
        double percent, share;
    } rows[] = {
        {"a", 1, 1000000000000, 1, 0, 0, 0, 10, 1, 0, 0.0001},
        {"b", 1000000000, SECOND, 1000000000, 1000000000, 1000000000, 60000, 60000,
         UINT64_C(1) << 52, 100, 100},
        {"c", 1000000000000, 1000000000000, 1, 1, 1, 0, 10, 1, 100, 50},
        {"d", 1000, 1, 1, 1, 0, 0, 10, 1, 0, 50},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct weir_limit_options options = limit_options(
            rows[i].name, rows[i].rate, (int64_t)rows[i].period_us, rows[i].capacity, 0);
        options.budget_tokens = rows[i].budget;
        options.initial_tokens = rows[i].initial;
        options.max_wait_ms = rows[i].wait_ms;
        options.window_ms = rows[i].window_ms;
        options.version = rows[i].version;
        options.outage_share_percent = rows[i].share;
        struct weir_limit *limit = define_with(weir, &options);
        struct weir_bucket *bucket = get(limit, "key");
        struct weir_result result;
        assert_int_equal(weir_peek(bucket, &result), WEIR_OK);
        assert_int_equal(result.limit_tokens, rows[i].capacity);
        assert_true(result.remaining_tokens >= (int64_t)rows[i].initial);
        weir_bucket_unref(bucket);
        options.budget_tokens = WEIR_DEFAULT;
        options.budget_percent = rows[i].percent;
        assert_int_equal(weir_limit_update(limit, &options, NULL), WEIR_OK);
    }
    assert_int_equal(weir_close_wait(weir), WEIR_OK);
}

static void a_key_starts_with_what_was_said(void **state)
{
    (void)state;
    const uint64_t initials[] = {0, 1, 7, 10};
    const char *names[] = {"a", "b", "c", "d"};
    struct hand_clock hand;
    hand_clock_set(&hand, SECOND);
    struct weir *weir = open_inprocess(&hand);
    for (size_t i = 0; i < 4; i++) {
        struct weir_limit_options options = limit_options(names[i], 1, SECOND, 10, 0);
        options.initial_tokens = initials[i];
        struct weir_limit *limit = define_with(weir, &options);
        struct weir_bucket *bucket = get(limit, "key");
        for (uint64_t n = 0; n < initials[i]; n++) {
            assert_int_equal(weir_try_acquire(bucket, 1, NULL), WEIR_ALLOWED);
        }
        assert_int_equal(weir_try_acquire(bucket, 1, NULL), WEIR_DENIED);
        weir_bucket_unref(bucket);
    }
    assert_int_equal(weir_close_wait(weir), WEIR_OK);
}

static void a_name_is_taken_once(void **state)
{
    (void)state;
    struct weir *weir = open_inprocess(NULL);
    struct weir_limit *other = NULL;
    struct weir_error error;
    struct weir_limit_options rule = right("limit");
    (void)define_with(weir, &rule);
    assert_int_equal(weir_limit_define(weir, &other, &rule, &error), WEIR_EEXIST);
    assert_int_equal(error.code, WEIR_EEXIST);
    assert_non_null(strstr(error.text, "limit"));
    assert_null(other);
    assert_int_equal(weir_limit_define(weir, &other, &rule, NULL), WEIR_EEXIST);
    rule.name = "Limit";
    (void)define_with(weir, &rule);
    assert_int_equal(weir_close_wait(weir), WEIR_OK);
}

/* The caller's strings may go as soon as a call is over. */
static void strings_are_copied(void **state)
{
    (void)state;
    struct server *server = store_start();
    char url[128], prefix[] = "prefix", name[] = "name", key[] = "key";
    url_of(server, url);
    struct weir_options options = store_options(url);
    options.key_prefix = prefix;
    struct weir *weir = open_with(&options);
    memset(url, 'x', sizeof(url) - 1);
    memset(prefix, 'x', sizeof(prefix) - 1);
    struct weir_limit *limit = define(weir, name, 1, HOUR, 1, 0);
    memset(name, 'x', sizeof(name) - 1);
    struct weir_bucket *bucket = get(limit, key);
    memset(key, 'x', sizeof(key) - 1);
    assert_int_equal(weir_acquire_wait(bucket, 1, SECOND, NULL), WEIR_ALLOWED);
    assert_int_equal(store_do(server, "EXISTS prefix:name:key"), 1);
    assert_int_equal(store_do(server, "DBSIZE"), 1);
    weir_bucket_unref(bucket);
    assert_int_equal(weir_close_wait(weir), WEIR_OK);
    store_stop(server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_of_open),
        cmocka_unit_test(names_of_keys),
        cmocka_unit_test(urls_of_open),
        cmocka_unit_test(a_newer_program_may_leave_its_field_alone),
        cmocka_unit_test(an_older_program_gets_defaults_for_what_it_lacks),
        cmocka_unit_test(a_size_that_cannot_be_is_refused),
        cmocka_unit_test(stats_come_in_sizes),
        cmocka_unit_test(a_refused_limit_changes_nothing),
        cmocka_unit_test(a_refused_limit_does_not_reach_the_store),
        cmocka_unit_test(the_bounds_themselves_are_allowed),
        cmocka_unit_test(a_key_starts_with_what_was_said),
        cmocka_unit_test(a_name_is_taken_once),
        cmocka_unit_test(strings_are_copied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
