/* SPDX-License-Identifier: MIT */
/*
 * api/phrase_format: limits there and back.  Each has one form; and options written and read again
 * are the same, field by field, for random options over all fields, and for any text that can be
 * read.
 */
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/limits.h"
#include "base/num.h"
#include "unit/phrases.h"

#define SECOND UINT64_C(1000000)
#define MINUTE (60 * SECOND)
#define HOUR (60 * MINUTE)
#define DAY (24 * HOUR)

/* ---- One form -------------------------------------------------------------------------------- */

static void one_form(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"10/min burst=20", "10/min burst=20"},
        {"5 per 10s  fixed-window", "5 per 10s fixed-window"},
        {"100/s queue=50 leaky", "100/s leaky queue=50"},
        {"1000000/day budget=2% sliding-counter", "1000000/day sliding-counter budget=2%"},
        {"10/s token-bucket outage=local", "10/s"},
        {"10/s wait=0ms window=0.5s", "10/s window=500ms wait=0s"},
        {"10/s burst=100 budget=02.50%", "10/s burst=100 budget=2.5%"},
        {"10/s burst=100 budget=100%", "10/s burst=100 budget=100%"},
        {"10/s budget=0.00001%", "10/s budget=0.00001%"},
        {"10/s budget=0.000001%", "10/s budget=1e-6%"},
        {"10/s budget=0.00000125%", "10/s budget=1.25e-6%"},
        {"10/s budget=0.0%", "10/s budget=0%"},
        {"10/s share=1e1% cap=10/60s cap-burst=120s", "10/s share=10% cap=10/min cap-burst=2min"},
        {"3/s initial=learn cap=10/7s cap-warmup=3s", "3/s initial=learn cap=10/7s cap-warmup=3s"},
        {"100 per month fixed-window initial=50% version=3 outage=closed",
         "100/month fixed-window initial=50% outage=closed version=3"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[512];
        struct weir_limit_options options = parse(rows[i][0]);
        format(text, &options);
        assert_string_equal(text, rows[i][1]);
        options = parse(text);
        format(text, &options);
        assert_string_equal(text, rows[i][1]);
    }
}

static void a_text_is_cut_to_its_place(void **state)
{
    (void)state;
    struct weir_limit_options options = parse("10/min burst=20");
    const size_t len = strlen("10/min burst=20");
    for (size_t size = 0; size <= len + 2; size++) {
        char text[32];
        memset(text, 'x', sizeof(text));
        assert_int_equal(weir_limit_format(size > 0 ? text : NULL, size, &options), len);
        size_t shown = size == 0 ? 0 : size - 1 < len ? size - 1 : len;
        assert_memory_equal(text, "10/min burst=20", shown);
        assert_true(size == 0 || text[shown] == '\0');
        assert_true(text[size > shown + 1 ? shown + 1 : size] == 'x');
    }
}

static void what_no_limit_can_be_has_no_text(void **state)
{
    (void)state;
    static const char *const texts[] = {"10/s burst=5 budget=6",          "10/s queue=5",
                                        "10/s fixed-window burst=20",     "2000000000/s",
                                        "10/s outage=open initial=learn", "10/s cap-burst=1s"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct weir_limit_options options = parse(texts[i]);
        char text[16] = "x";
        assert_int_equal(weir_limit_format(text, sizeof(text), &options), 0);
        assert_string_equal(text, "");
    }
    struct weir_limit_options nothing = untouched();
    assert_int_equal(weir_limit_format(NULL, 0, &nothing), 0);
}

/* ---- Random options over all fields ---------------------------------------------------------- */

static uint64_t seed;

static uint64_t below(uint64_t bound) { return weir__random(&seed) % bound; }

static bool one_in(uint64_t n) { return below(n) == 0; }

/* 1..most, of every order of magnitude. */
static uint64_t any(uint64_t most)
{
    uint64_t bound = 1;
    for (uint64_t i = below(20); i > 0 && bound < most; i--) {
        bound *= 10;
    }
    return 1 + below(bound < most ? bound : most);
}

static double any_percent(void)
{
    switch (below(4)) {
    case 0: return (double)below(101);
    case 1: return (double)below(1000001) / 10000;
    case 2: return (double)weir__random(&seed) / 18446744073709551616.0 * 100;
    default: return (double)weir__random(&seed) / 18446744073709551616.0 * 1e-300;
    }
}

static uint64_t any_period(void)
{
    static const uint64_t units[] = {1, 1000, SECOND, MINUTE, HOUR, DAY};
    uint64_t unit = units[below(6)];
    return unit * any(UINT64_C(1000000000000) / unit);
}

static void random_start(struct weir_limit_options *o, uint64_t capacity)
{
    switch (below(4)) {
    case 0: o->initial_tokens = below(capacity + 1); break;
    case 1: o->initial_percent = any_percent(); break;
    case 2: o->learn = o->outage == WEIR_OUTAGE_LOCAL; break;
    default: break;
    }
}

/* Fields within their ranges; not all that are so go together. */
static struct weir_limit_options random_options(void)
{
    struct weir_limit_options o = untouched();
    o.algorithm = (enum weir_algorithm)(1 + below(5));
    bool periods = o.algorithm >= WEIR_FIXED_WINDOW;
    bool queue = o.algorithm == WEIR_LEAKY_BUCKET && one_in(2);
    o.calendar = o.algorithm == WEIR_FIXED_WINDOW && one_in(2) ? WEIR_CALENDAR_MONTH
                                                               : WEIR_CALENDAR_NONE;
    o.rate_tokens = any(periods ? 1000000000 : 1000000000000);
    o.rate_period_us = o.calendar == WEIR_CALENDAR_MONTH ? 0 : any_period();
    uint64_t capacity = periods ? o.rate_tokens : any(1000000000);
    if (queue) {
        o.queue_tokens = capacity;
    } else if (!periods || one_in(2)) {
        o.capacity_tokens = capacity;
    }
    if (one_in(2)) {
        o.budget_tokens = below(capacity + 1);
    } else if (one_in(2)) {
        o.budget_percent = any_percent();
    }
    o.outage = (enum weir_outage_policy)(1 + below(3));
    if (!queue) {
        random_start(&o, capacity);
    }
    o.max_wait_ms = queue || one_in(2) ? WEIR_DEFAULT : periods ? 0 : below(60001);
    o.window_ms = one_in(2) ? WEIR_DEFAULT : 10 + below(59991);
    o.version = one_in(2) ? WEIR_DEFAULT : any(UINT64_C(1) << 52);
    if (one_in(2)) {
        double share = any_percent();
        o.outage_share_percent = share < 0.0001 ? 0.0001 : share;
    }
    if (one_in(2)) {
        o.cap_tokens = any(1000000000);
        o.cap_period_us = any_period();
        o.cap_burst_ms = one_in(2) ? WEIR_DEFAULT : below(3600001);
        o.cap_warmup_ms = o.cap_burst_ms == WEIR_DEFAULT ? below(3600001) : 0;
    }
    return o;
}

static void what_is_written_is_read_again(void **state)
{
    (void)state;
    seed = 20240607;
    int written = 0, by_algorithm[6] = {0};
    for (int i = 0; i < 30000; i++) {
        struct weir_limit_options options = random_options();
        char text[512], again[512];
        if (weir_limit_format(NULL, 0, &options) == 0) {
            continue;
        }
        written++;
        by_algorithm[options.algorithm]++;
        format(text, &options);
        struct weir_limit_options got = parse(text);
        assert_same(&options, &got);
        format(again, &got);
        assert_string_equal(text, again);
        struct weir__limit a = read_limit(&options), b = read_limit(&got);
        a.rule.version = b.rule.version = 0; /* by default the second of the call */
        assert_memory_equal(&a, &b, sizeof(a));
    }
    assert_true(written > 10000);
    for (int algorithm = 1; algorithm <= 5; algorithm++) {
        assert_true(by_algorithm[algorithm] > 500);
    }
}

/* Bytes of the grammar in any order: read or refused at a character of the text, and what was read
 * and can be a limit comes back. */
static void any_text_is_read_or_refused(void **state)
{
    (void)state;
    static const char *const pieces[] = {"1",      "0",       "10",       "/",    "per",
                                         " ",      ".",       "5",        "s",    "min",
                                         "month",  "burst=",  "budget=",  "%",    "e-",
                                         "leaky",  "cap=",    "queue=",   "=",    "-",
                                         "learn",  "window=", "initial=", "ms",   "99999",
                                         "share=", "outage",  "open",     "\xff", "fixed-window",
                                         "wait=",  "version="};
    seed = 5;
    int read = 0;
    for (int i = 0; i < 200000; i++) {
        char text[256];
        strcpy(text, one_in(2) ? "10/s " : "");
        for (uint64_t n = below(10); n > 0; n--) {
            strcat(text, pieces[below(sizeof(pieces) / sizeof(pieces[0]))]);
        }
        struct weir_limit_options options = untouched();
        struct weir_error error = {0};
        if (weir_limit_parse(&options, text, &error) == WEIR_OK) {
            char canonical[512];
            read++;
            if (weir_limit_format(canonical, sizeof(canonical), &options) > 0) {
                struct weir_limit_options again = parse(canonical);
                assert_same(&options, &again);
            }
        } else {
            int at = 0;
            assert_int_equal(sscanf(error.text, "character %d: ", &at), 1);
            assert_true(at >= 1 && (size_t)at <= strlen(text) + 1);
            assert_non_null(strstr(error.text, ": expected "));
        }
    }
    assert_true(read > 1000);
}

/* The host may have a locale whose decimal point is a comma.  One is made here, from the
 * definitions in the package `locales`. */
static void the_locale_does_not_matter(void **state)
{
    (void)state;
    char folder[] = "/tmp/weir-locale-XXXXXX";
    char command[128];
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof(command), "localedef --no-archive -i de_DE -f UTF-8 %s/de_DE", folder);
    assert_int_equal(system(command), 0);
    assert_int_equal(setenv("LOCPATH", folder, 1), 0);
    bool comma = setlocale(LC_ALL, "de_DE") != NULL && localeconv()->decimal_point[0] == ',';
    snprintf(command, sizeof(command), "rm -r %s", folder);
    assert_int_equal(system(command), 0);
    assert_true(comma);
    struct weir_limit_options options = parse("0.5/s budget=2.5% share=33.333333333333336%");
    char text[512];
    format(text, &options);
    (void)setlocale(LC_ALL, "C");
    assert_true(options.budget_percent == 2.5);
    assert_string_equal(text, "1 per 2s budget=2.5% share=33.333333333333336%");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_form),
        cmocka_unit_test(a_text_is_cut_to_its_place),
        cmocka_unit_test(what_no_limit_can_be_has_no_text),
        cmocka_unit_test(what_is_written_is_read_again),
        cmocka_unit_test(any_text_is_read_or_refused),
        cmocka_unit_test(the_locale_does_not_matter),
    };
    return cmocka_run_group_tests_name("phrase_format", tests, NULL, NULL);
}
