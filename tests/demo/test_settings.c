/* SPDX-License-Identifier: MIT */
/*
 * The demo's command line: defaults, each option, and a reason for each that is refused.
 */
#include "settings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define WORDS_MAX 8

static char why[256];

/* Parses a line of words. */
static bool parse(struct settings *settings, const char *line)
{
    static char copy[256];
    char *words[WORDS_MAX] = {(char[]){"demo"}};
    int count = 1;
    strncpy(copy, line, sizeof copy - 1);
    for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " ")) {
        assert_true(count < WORDS_MAX - 1);
        words[count++] = word;
    }
    why[0] = '\0';
    return settings_parse(settings, count, words, why, sizeof why);
}

static void test_defaults(void **state)
{
    (void)state;
    struct settings settings;
    assert_true(parse(&settings, ""));
    assert_int_equal(settings.seconds, 10);
    assert_int_equal(settings.processes, 4);
    assert_int_equal(settings.threads, 2);
    assert_int_equal(settings.rate_per_s, 100000);
    assert_int_equal(settings.capacity, 100000);
    assert_int_equal(settings.budget, 10000);
    assert_true(settings.offered == 3);
    assert_int_equal(settings.algorithm->id, WEIR_TOKEN_BUCKET);
    assert_int_equal(settings.period_us, 0);
    assert_false(settings.memory);
    assert_false(settings.json);
    assert_null(settings.url);
}

static void test_a_budget_is_tokens_or_percent_of_the_burst(void **state)
{
    (void)state;
    struct settings settings;
    assert_true(parse(&settings, "--burst 2000 --budget 5%"));
    assert_int_equal(settings.budget, 100);
    assert_true(parse(&settings, "--budget 2.5% --burst 1000")); /* in either order */
    assert_int_equal(settings.budget, 25);
    assert_true(parse(&settings, "--budget 77"));
    assert_int_equal(settings.budget, 77);
}

static void test_the_store_in_memory_is_one_process(void **state)
{
    (void)state;
    struct settings settings;
    assert_true(parse(&settings, "--store memory --processes 8 --json"));
    assert_int_equal(settings.processes, 1);
    assert_true(settings.memory);
    assert_true(settings.json);
}

/* A window holds the burst, and is as long as makes that the rate. */
static void test_each_algorithm_has_its_bound(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        enum weir_algorithm id;
        enum bound bound;
        uint64_t period_us;
    } cases[] = {
        {"--algorithm token-bucket", WEIR_TOKEN_BUCKET, BOUND_INTERVAL, 0},
        {"--algorithm leaky-bucket --burst 500", WEIR_LEAKY_BUCKET, BOUND_INTERVAL, 0},
        {"--algorithm fixed-window", WEIR_FIXED_WINDOW, BOUND_ALIGNED, 1000000},
        {"--algorithm sliding-log --burst 5000", WEIR_SLIDING_LOG, BOUND_SLIDING, 50000},
        {"--rate 3 --burst 30 --algorithm sliding-counter", WEIR_SLIDING_COUNTER, BOUND_WEIGHTED,
         10000000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct settings settings;
        assert_true(parse(&settings, cases[i].line));
        assert_int_equal(settings.algorithm->id, cases[i].id);
        assert_int_equal(settings.algorithm->bound, cases[i].bound);
        assert_int_equal(settings.period_us, cases[i].period_us);
    }
}

static void test_what_is_wrong_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *line, *said;
    } cases[] = {
        {"--seconds 0", "--seconds"},
        {"--seconds 5x", "'5x'"},
        {"--seconds -5", "'-5'"},
        {"--processes 65", "1 to 64"},
        {"--threads many", "--threads"},
        {"--rate 1e5", "--rate"},
        {"--burst 2000000000", "--burst"},
        {"--budget 0", "--budget"},
        {"--budget 101%", "--budget"},
        {"--budget %", "--budget"},
        {"--budget 5%%", "--budget"},
        {"--offered nan", "--offered"},
        {"--offered 0", "--offered"},
        {"--store disk", "memory or redis"},
        {"--store memory --url unix:///x", "--url"},
        {"--url", "without its value"},
        {"--algorithm leaky", "leaky-bucket, fixed-window"},
        {"--algorithm fixed-window --rate 3 --burst 1", "--burst"},
        {"--algorithm sliding-log --burst 999", "10000 at least"},
        {"--unheard-of", "not an option"},
        {"stray", "'stray'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct settings settings;
        assert_false(parse(&settings, cases[i].line));
        if (strstr(why, cases[i].said) == NULL) {
            fail_msg("%s: \"%s\" does not say \"%s\"", cases[i].line, why, cases[i].said);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_a_budget_is_tokens_or_percent_of_the_burst),
        cmocka_unit_test(test_the_store_in_memory_is_one_process),
        cmocka_unit_test(test_each_algorithm_has_its_bound),
        cmocka_unit_test(test_what_is_wrong_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
