/* SPDX-License-Identifier: MIT */
/*
 * api/phrase: limits as text.  What each text means, exactly; what every refusal says, and that it
 * changes nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/limits.h"
#include "unit/phrases.h"

#define SECOND UINT64_C(1000000)
#define MINUTE (60 * SECOND)
#define HOUR (60 * MINUTE)
#define DAY (24 * HOUR)

/* ---- What texts mean ------------------------------------------------------------------------- */

static void rates(void **state)
{
    (void)state;
    static const struct {
        const char *text, *canonical;
        uint64_t tokens, period_us;
    } rows[] = {
        {"1000/s", "1000/s", 1000, SECOND},
        {"10/min", "10/min", 10, MINUTE},
        {"5 per 10s", "5 per 10s", 5, 10 * SECOND},
        {"5 per 10 s", "5 per 10s", 5, 10 * SECOND},
        {"5/10s", "5 per 10s", 5, 10 * SECOND},
        {"5per10s", "5 per 10s", 5, 10 * SECOND},
        {" \t 5  / \t10  s\t", "5 per 10s", 5, 10 * SECOND},
        {"1000000/day", "1000000/day", 1000000, DAY},
        {"1/h", "1/h", 1, HOUR},
        {"7/us", "7/us", 7, 1},
        {"7 per ms", "7/ms", 7, 1000},
        {"1/90s", "1 per 90s", 1, 90 * SECOND},
        {"1/60s", "1/min", 1, MINUTE},
        {"1/120s", "1 per 2min", 1, 2 * MINUTE},
        {"1/1000us", "1/ms", 1, 1000},
        {"1/1.5h", "1 per 90min", 1, 90 * MINUTE},
        {"0.1/s", "1 per 10s", 1, 10 * SECOND},
        {"0.10/s", "1 per 10s", 1, 10 * SECOND},
        {"2.5/s", "5 per 2s", 5, 2 * SECOND},
        {"10.0/min", "10/min", 10, MINUTE},
        {"0.000001/s", "1 per 1000000s", 1, 1000000 * SECOND},
        {"1.25 per 0.5s", "5 per 2s", 5, 2 * SECOND},
        {"0.001 per 1us", "1/ms", 1, 1000},
        {"007/s", "7/s", 7, SECOND},
        {"1000000000000/1000000000000us", "1000000000000 per 1000000s", 1000000000000,
         1000000000000},
        {"20 per 40s", "20 per 40s", 20, 40 * SECOND}, /* a window of 40 s is none of 2 s */
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[512];
        struct weir_limit_options options = parse(rows[i].text);
        assert_true(options.rate_tokens == rows[i].tokens);
        assert_true(options.rate_period_us == rows[i].period_us);
        format(text, &options);
        assert_string_equal(text, rows[i].canonical);
    }
}

/* Each word alone, against options made by hand. */
static void words(void **state)
{
    (void)state;
#define WORD(text, ...)                                                                            \
    do {                                                                                           \
        struct weir_limit_options want = untouched();                                              \
        struct weir_limit_options got = parse("10/s " text);                                       \
        want.rate_tokens = 10;                                                                     \
        want.rate_period_us = SECOND;                                                              \
        __VA_ARGS__;                                                                               \
        assert_same(&want, &got);                                                                  \
    } while (0)
    WORD("", (void)0);
    WORD("token-bucket", want.algorithm = WEIR_TOKEN_BUCKET);
    WORD("leaky", want.algorithm = WEIR_LEAKY_BUCKET);
    WORD("fixed-window", want.algorithm = WEIR_FIXED_WINDOW);
    WORD("sliding-log", want.algorithm = WEIR_SLIDING_LOG);
    WORD("sliding-counter", want.algorithm = WEIR_SLIDING_COUNTER);
    WORD("burst=20", want.capacity_tokens = 20);
    WORD("queue=50 leaky", want.queue_tokens = 50, want.algorithm = WEIR_LEAKY_BUCKET);
    WORD("budget=0", want.budget_tokens = 0);
    WORD("budget=7", want.budget_tokens = 7);
    WORD("budget=2.5%", want.budget_percent = 2.5);
    WORD("budget=0%", want.budget_percent = 0);
    WORD("budget=1e-3%", want.budget_percent = 0.001);
    WORD("budget=1e1%", want.budget_percent = 10);
    WORD("initial=0", want.initial_tokens = 0);
    WORD("initial=100%", want.initial_percent = 100);
    WORD("initial=learn", want.learn = true);
    WORD("window=250ms", want.window_ms = 250);
    WORD("window=0.25s", want.window_ms = 250);
    WORD("window=10000us", want.window_ms = 10);
    WORD("window=1min", want.window_ms = 60000);
    WORD("wait=0s", want.max_wait_ms = 0);
    WORD("wait=60s", want.max_wait_ms = 60000);
    WORD("outage=local", want.outage = WEIR_OUTAGE_LOCAL);
    WORD("outage=open", want.outage = WEIR_OUTAGE_OPEN);
    WORD("outage=closed", want.outage = WEIR_OUTAGE_CLOSED);
    WORD("share=33.333333333333336%", want.outage_share_percent = 33.333333333333336);
    WORD("share=0.0001%", want.outage_share_percent = 0.0001);
    WORD("version=1", want.version = 1);
    WORD("version=4503599627370496", want.version = UINT64_C(1) << 52);
    WORD("cap=100/s", want.cap_tokens = 100, want.cap_period_us = SECOND);
    WORD("cap=5/10s cap-burst=0s", want.cap_tokens = 5, want.cap_period_us = 10 * SECOND,
         want.cap_burst_ms = 0);
    WORD("cap=0.5per1s cap-warmup=1h", want.cap_tokens = 1, want.cap_period_us = 2 * SECOND,
         want.cap_warmup_ms = 3600000);
#undef WORD
    struct weir_limit_options month = parse("100/month fixed-window");
    assert_int_equal(month.rate_tokens, 100);
    assert_int_equal(month.rate_period_us, 0);
    assert_int_equal(month.calendar, WEIR_CALENDAR_MONTH);
    assert_int_equal(parse("100 per month  fixed-window").calendar, WEIR_CALENDAR_MONTH);
}

/* What a word says holds, whatever stood in its fields before; of the rest nothing is touched. */
static void a_word_replaces_what_was(void **state)
{
    (void)state;
    struct weir_limit_options options = untouched();
    options.name = "limit";
    options.budget_tokens = 3;
    options.initial_percent = 50;
    options.version = 9;
    options.algorithm = WEIR_FIXED_WINDOW;
    options.calendar = WEIR_CALENDAR_MONTH;
    assert_int_equal(weir_limit_parse(&options, "10/s budget=2% initial=5", NULL), WEIR_OK);
    assert_string_equal(options.name, "limit");
    assert_true(options.budget_tokens == WEIR_DEFAULT && options.budget_percent == 2);
    assert_true(options.initial_tokens == 5 && options.initial_percent == WEIR__UNSET_PERCENT);
    assert_int_equal(options.version, 9);
    assert_int_equal(options.algorithm, WEIR_FIXED_WINDOW);
    assert_int_equal(options.calendar, WEIR_CALENDAR_NONE);
    assert_int_equal(weir_limit_parse(&options, "10/month initial=learn", NULL), WEIR_OK);
    assert_int_equal(options.calendar, WEIR_CALENDAR_MONTH);
    assert_true(options.learn && options.initial_tokens == WEIR_DEFAULT);
    assert_int_equal(weir_limit_parse(&options, "10/s initial=0% budget=1", NULL), WEIR_OK);
    assert_true(!options.learn && options.initial_percent == 0);
    assert_true(options.budget_tokens == 1 && options.budget_percent == WEIR__UNSET_PERCENT);
}

/* One rate in three ways: one rule. */
static void test_b79_rates_below_one_a_second(void **state)
{
    (void)state;
    static const char *const texts[] = {"0.1/s", "6/min", "1 per 10s", "1 per 10 s", "8640/day"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct weir_limit_options options = parse(texts[i]);
        struct weir__limit limit = read_limit(&options);
        assert_int_equal(limit.rule.tick_us, 1);
        assert_int_equal(limit.rule.units_per_tick, 1);
        assert_int_equal(limit.rule.units_per_token, 10000000);
        assert_int_equal(limit.rule.capacity, 1);
        assert_int_equal(limit.rule.initial, 1);
    }
    struct weir_limit_options half = parse("0.5/s");
    assert_int_equal(read_limit(&half).rule.capacity, 1);
    struct weir_limit_options more = parse("2.5/s");
    assert_int_equal(read_limit(&more).rule.capacity, 2);
}

/* ---- What is refused ------------------------------------------------------------------------- */

static void refused(const char *text, const char *says)
{
    struct weir_limit_options options = untouched();
    options.name = "limit";
    options.budget_percent = 12.5;
    struct weir_limit_options before;
    memcpy(&before, &options, sizeof(before));
    struct weir_error error = {0};
    assert_int_equal(weir_limit_parse(&options, text, &error), WEIR_EINVAL);
    assert_int_equal(error.code, WEIR_EINVAL);
    if (strstr(error.text, says) != error.text) {
        fail_msg("\"%s\": not at the begin of: %s", says, error.text);
    }
    assert_memory_equal(&options, &before, sizeof(before));
    assert_int_equal(weir_limit_parse(&options, text, NULL), WEIR_EINVAL);
}

static void refusals_of_rates(void **state)
{
    (void)state;
    refused("", "character 1: the end: expected a number above 0");
    refused("  ", "character 3: the end: expected a number");
    refused("ten/s", "character 1: 'ten/s': expected a number");
    refused("-1/s", "character 1: '-1/s': expected a number");
    refused("0/s", "character 1: '0': expected a number above 0, up to 1000000000000");
    refused("0.000/s", "character 1: '0.000': expected a number above 0");
    refused(".5/s", "character 1: '.5/s': expected a number");
    refused("1000000000001/s", "character 1: '1000000000001': expected a number above 0, up to");
    refused("18446744073709551616/s", "character 1: '18446744073709551616': expected a number");
    refused("99999999999999999999999999/s", "character 1: '999999999999999999999999...': expected");
    refused("10", "character 3: the end: expected '/' or 'per'");
    refused("10 x/s", "character 4: 'x': expected '/' or 'per'");
    refused("10./s", "character 3: '.': expected '/' or 'per'");
    refused("10 pe s", "character 4: 'p': expected '/' or 'per'");
    refused("10/", "character 4: the end: expected us, ms, s, min, h or day, or month");
    refused("10/fortnight",
            "character 4: 'fortnight': expected us, ms, s, min, h or day, or month");
    refused("10/S", "character 4: 'S': expected us");
    refused("10/\xc2\xb5s", "character 4: '\\xc2\\xb5s': expected us");
    refused("10/s\n", "character 4: 's\\x0a': expected us");
    refused("10/s20", "character 4: 's20': expected us");
    refused("10/0s", "character 1: '10/0s': expected a period of whole microseconds, 1 to");
    refused("10/0.5us", "character 1: '10/0.5us': expected a period of whole microseconds");
    refused("10/12day", "character 1: '10/12day': expected a period of whole microseconds, 1 to "
                        "1000000000000");
    refused("10/99999999999999999999s",
            "character 4: '99999999999999999999': expected a number of");
    refused("0.0000001/day", "character 1: '0.0000001/day': expected a period");
    refused("0.000000000000000001/day", "character 1: '0.000000000000000001/day'");
    refused("100/month", "character 5: 'month': expected a time of a fixed length: months need the "
                         "word fixed-window");
    refused("100/month leaky", "character 5: 'month': expected a time of a fixed length");
    refused("0.5/month fixed-window", "character 1: '0.5': expected a whole number");
    refused("100/2month fixed-window", "character 6: 'month': expected us");
}

static void refusals_of_words(void **state)
{
    (void)state;
    refused("10/s brust=20", "character 6: 'brust=20': expected token-bucket, leaky, fixed-window, "
                             "sliding-log, sliding-counter, burst=, queue=, budget=, initial=, "
                             "window=, wait=, outage=, share=, version=, cap=, cap-burst= or "
                             "cap-warmup=");
    refused("10/s leaky-bucket", "character 6: 'leaky-bucket': expected token-bucket");
    refused("10/s burst", "character 6: 'burst': expected token-bucket");
    refused("10/s burst=", "character 12: the end: expected a whole number from 1 to 1000000000");
    refused("10/s burst= 5", "character 12: the end");
    refused("10/s burst=0", "character 12: '0': expected a whole number from 1 to 1000000000");
    refused("10/s burst=1000000001", "character 12: '1000000001': expected a whole number from 1");
    refused("10/s burst=1.5", "character 12: '1.5': expected a whole number from 1 to 1000000000");
    refused("10/s burst=18446744073709551617", "character 12: '18446744073709551617': expected a");
    refused("10/s burst=5x", "character 13: 'x': expected a blank, or the end");
    refused("10/s queue=0", "character 12: '0': expected a whole number from 1 to 1000000000");
    refused("10/s budget=x", "character 13: 'x': expected a whole number from 0 to 1000000000");
    refused("10/s budget=100.5%", "character 13: '100.5%': expected from 0% to 100%");
    refused("10/s budget=-1%", "character 13: '-1%': expected a whole number");
    refused("10/s budget=1e%", "character 14: 'e': expected a blank");
    refused("10/s budget=1e99999%", "character 14: 'e': expected a blank");
    refused("10/s budget=1e999%", "character 13: '1e999%': expected from 0% to 100%");
    refused("10/s budget=nan%", "character 13: 'nan%': expected a whole number");
    refused("10/s budget=1.2.3%", "character 13: '1.2': expected a whole number");
    refused("10/s initial=full", "character 14: 'full': expected a whole number");
    refused("10/s initial=learning", "character 14: 'learning': expected a whole number");
    refused("10/s window=9ms", "character 13: '9ms': expected whole milliseconds from 10 to 60000");
    refused("10/s window=0s", "character 13: '0s': expected whole milliseconds from 10 to 60000");
    refused("10/s window=61s", "character 13: '61s': expected whole milliseconds");
    refused("10/s window=10.5ms", "character 13: '10.5ms': expected whole milliseconds");
    refused("10/s window=100", "character 16: the end: expected us, ms, s, min, h or day");
    refused("10/s window=min", "character 13: 'min': expected a number of us, ms");
    refused("10/s wait=60001ms", "character 11: '60001ms': expected whole milliseconds from 0");
    refused("10/s outage=shut", "character 13: 'shut': expected local, open or closed");
    refused("10/s outage=", "character 13: the end: expected local, open or closed");
    refused("10/s share=5", "character 12: '5': expected a percentage");
    refused("10/s share=0%", "character 12: '0%': expected from 0.0001% to 100%");
    refused("10/s share=0.00009%", "character 12: '0.00009%': expected from 0.0001% to 100%");
    refused("10/s share=101%", "character 12: '101%': expected from 0.0001% to 100%");
    refused("10/s version=0", "character 14: '0': expected a whole number from 1");
    refused("10/s version=4503599627370497", "character 14: '4503599627370497': expected");
    refused("10/s cap=5", "character 11: the end: expected '/' or 'per'");
    refused("10/s cap=0/s", "character 10: '0': expected a number above 0, up to 1000000000");
    refused("10/s cap=5 /s", "character 11: ' ': expected '/' or 'per'");
    refused("10/s cap=5/10 s", "character 14: the end: expected us, ms, s, min, h or day");
    refused("10/s cap=5/month", "character 12: 'month': expected us, ms, s, min, h or day");
    refused("10/s cap=1000000001/s", "character 10: '1000000001': expected a number above 0");
    refused("10/s cap-burst=3600001ms", "character 16: '3600001ms': expected whole milliseconds");
    refused("10/s cap-warmup=2h", "character 17: '2h': expected whole milliseconds from 0 to");
    refused("10/s burst=5 burst=5", "character 14: 'burst=5': expected each word once");
    refused("10/s leaky sliding-log", "character 12: 'sliding-log': expected each word once");
    refused("10/s budget=5 budget=5%", "character 15: 'budget=5%': expected each word once");
}

/* Out of the compiler's sight, which would say that this struct is too small. */
static __attribute__((noinline)) void *memory_of(size_t size)
{
    void *memory = malloc(size);
    assert_non_null(memory);
    memset(memory, 0x55, size);
    return memory;
}

static void structs_of_other_programs(void **state)
{
    (void)state;
    /* An older one lacks the last fields: their words would be lost. */
    const size_t size = offsetof(struct weir_limit_options, cap_burst_ms);
    struct weir_limit_options *old = memory_of(size + 1);
    weir_limit_options_init(old, size);
    struct weir_error error = {0};
    assert_int_equal(weir_limit_parse(old, "10/s cap=5/s", &error), WEIR_OK);
    assert_int_equal(old->cap_tokens, 5);
    assert_int_equal(old->size, size);
    assert_int_equal(weir_limit_parse(old, "20/s cap=5/s cap-burst=1s", &error), WEIR_EINVAL);
    assert_non_null(strstr(error.text, "character 14: 'cap-burst=1s': expected a program that was "
                                       "built with a newer"));
    assert_int_equal(old->rate_tokens, 10);
    char text[64];
    assert_int_equal(weir_limit_format(text, sizeof(text), old), strlen("10/s cap=5/s"));
    assert_string_equal(text, "10/s cap=5/s");
    assert_int_equal(((unsigned char *)old)[size], 0x55);
    free(old);

    struct weir_limit_options wrong = untouched();
    wrong.size = 1;
    assert_int_equal(weir_limit_parse(&wrong, "10/s", &error), WEIR_EINVAL);
    assert_non_null(strstr(error.text, "size"));
    assert_int_equal(weir_limit_format(text, sizeof(text), &wrong), 0);
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates),
        cmocka_unit_test(words),
        cmocka_unit_test(a_word_replaces_what_was),
        cmocka_unit_test(test_b79_rates_below_one_a_second),
        cmocka_unit_test(refusals_of_rates),
        cmocka_unit_test(refusals_of_words),
        cmocka_unit_test(structs_of_other_programs),
    };
    return cmocka_run_group_tests_name("phrase", tests, NULL, NULL);
}
