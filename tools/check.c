/* SPDX-License-Identifier: MIT */

/*
 * What a limit means, before it is used: its numbers, its worst case, and what it costs.
 *
 * The text goes through the library's own reading, so what is shown is what would run.  The worst
 * case is of any interval as long as the rate's period P; docs/protocol.md has the proofs, and the
 * terms that faults of the store add.
 *
 *     token bucket, meter   C + r*P + E
 *     queue                 r*P + 1: slots evenly spaced; and one more where they are leased, since
 *                           a leased slot may be used until the next is due
 *     fixed window          2 * C: an interval of P meets two windows, and 31 days may meet three
 *                           months.  Leases die with their window, so E adds nothing
 *     sliding log           C + E: granted within P, or leased before and spent in it
 *     sliding counter       2 * C - 1: of an interval from one window to e < P of the next, n <= C
 *                           are in the first; of these n * (P - e) / P still count then.  So
 *                           n + C - n * (P - e) / P = C + n * e / P < 2 * C
 *
 * The cost is of one process that uses all of the limit at the first guess of a round trip: one
 * call a horizon (L1), or one a decision where leases cannot carry the limit (L8).
 */

#include "check.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/limits.h"
#include "api/phrase.h"
#include "base/num.h"
#include "core/policy.h"
#include "core/rule.h"
#include "weir/weir.h"

#define ASK_TIMEOUT_US 100000     /* the default of struct weir_options */
#define STAY_US INT64_C(10000000) /* R4: of keys that start with less than C */
#define FIELD_NAMES 5             /* l, t, r, a, x: a byte each */
#define STAMP_DIGITS 16           /* of microseconds since 1970, until the year 2286 */
#define RULE_BYTES 59             /* docs/protocol.md, section 6 */
#define ACCOUNT_BYTES 53          /* likewise */
#define LOG_ENTRY_BYTES 12        /* likewise */
#define LOG_EXACT 1024            /* lua/sliding_log.lua: up to this capacity to the microsecond, */
#define LOG_PARTS 256             /* and above it in so many parts of a period */

struct facts {
    char text[512]; /* in the one form */
    struct weir_limit_options options;
    struct weir__rule rule;
    double per_s;
    int64_t worst; /* tokens in any interval of `period_us` */
    int64_t period_us;
    bool exact; /* every decision is a call */
    double calls_per_s;
    int64_t horizon_us;
    int64_t key_bytes;
    int64_t ttl_ms;
};

/* ---- Working it out -------------------------------------------------------------------------- */

static int64_t worst_case(const struct weir__rule *rule, int64_t rate_tokens)
{
    int64_t c = rule->capacity, e = rule->budget;
    switch (rule->algorithm) {
    case WEIR__FIXED_WINDOW: return rule->variant == WEIR__VARIANT_MONTH ? 3 * c : 2 * c;
    case WEIR__SLIDING_LOG: return c + e;
    case WEIR__SLIDING_COUNTER: return 2 * c - 1;
    default: return weir__rule_has_slots(rule) ? rate_tokens + 1 + (e > 0) : c + rate_tokens + e;
    }
}

static int64_t digits(int64_t value) { return snprintf(NULL, 0, "%" PRId64, value); }

/* Of the hash when it is full: names and values, as they are written. */
static int64_t key_bytes(const struct weir__rule *rule)
{
    int64_t c = rule->capacity;
    bool periods = weir__rule_has_periods(rule);
    int64_t extra = 0;
    if (rule->algorithm == WEIR__SLIDING_LOG) {
        extra = LOG_ENTRY_BYTES * (c <= LOG_EXACT ? c : LOG_PARTS + 1);
    } else if (rule->algorithm == WEIR__SLIDING_COUNTER) {
        extra = digits(c);
    }
    int64_t level = digits(periods ? c : c * rule->units_per_token);
    int64_t account = rule->budget > 0 ? ACCOUNT_BYTES : 0;
    return FIELD_NAMES + level + STAMP_DIGITS + RULE_BYTES + account + extra;
}

/* R4, after a last use that left as little as can be. */
static int64_t ttl_ms(const struct weir__rule *rule)
{
    int64_t span = rule->period_us, fill;
    if (!weir__rule_has_periods(rule)) {
        span = weir__rule_time_us(rule, rule->capacity);
        fill = span + (weir__rule_has_slots(rule) ? 0 : rule->max_wait_us);
    } else if (rule->algorithm == WEIR__SLIDING_COUNTER) {
        fill = span = 2 * rule->period_us;
    } else {
        bool coarse = rule->algorithm == WEIR__SLIDING_LOG && rule->capacity > LOG_EXACT;
        fill = span + (coarse ? weir__div_up(span, LOG_PARTS) : 0);
    }
    if (rule->initial < rule->capacity || rule->learn) {
        fill += weir__max(span, STAY_US);
    }
    int64_t hold = rule->budget > 0 ? 2 * rule->window_us : 1;
    return weir__div_up(weir__max(fill, hold), 1000) + 1;
}

static void work_out(struct facts *f, const struct weir__limit *limit)
{
    const struct weir__rule *rule = &limit->rule;
    const struct weir__rtt first_guess = {0};
    f->rule = *rule;
    f->per_s = weir__rule_per_s(rule);
    const struct weir__situation all_of_it = {
        .rule = rule, .rtt = &first_guess, .demand_per_s = f->per_s, .processes = 1};
    struct weir__sizes sizes;
    weir__policy_sizes(&sizes, &all_of_it);
    f->exact = sizes.exact;
    f->horizon_us = sizes.horizon_us;
    f->calls_per_s = sizes.exact ? f->per_s : fmin(f->per_s, 1e6 / (double)sizes.horizon_us);
    bool month = f->options.calendar == WEIR_CALENDAR_MONTH;
    f->period_us = month ? rule->period_us : (int64_t)f->options.rate_period_us;
    f->worst = worst_case(rule, (int64_t)f->options.rate_tokens);
    f->key_bytes = key_bytes(rule);
    f->ttl_ms = ttl_ms(rule);
}

/* ---- In words -------------------------------------------------------------------------------- */

/* "1 min", "90 min", "24.69 ms": in the largest unit that holds it, or in short. */
static const char *in_words(char out[32], int64_t us)
{
    size_t i = 0;
    while ((uint64_t)us % weir__units[i].us != 0) {
        i++;
    }
    int64_t count = us / (int64_t)weir__units[i].us;
    if (count >= 10000) { /* more than a reader wants: six digits of it */
        bool long_one = us >= 1000000;
        (void)snprintf(out, 32, "%.6g %s", (double)us / (long_one ? 1e6 : 1e3),
                       long_one ? "s" : "ms");
    } else {
        const char *plural = i == 0 && count > 1 ? "s" : ""; /* "2 days", and "2 h" */
        (void)snprintf(out, 32, "%" PRId64 " %s%s", count, weir__units[i].name, plural);
    }
    return out;
}

/* "min" for "1 min". */
static const char *each(char out[32], int64_t us)
{
    return strncmp(in_words(out, us), "1 ", 2) == 0 ? out + 2 : out;
}

static const char *how_it_counts(const struct weir__rule *rule)
{
    switch (rule->algorithm) {
    case WEIR__TOKEN_BUCKET: return "tokens accrue at the rate, up to the burst";
    case WEIR__LEAKY_BUCKET:
        return weir__rule_has_slots(rule)
                   ? "admissions leave one by one at the rate, and some may wait for their turn"
                   : "admissions pour in, the rate leaks out, what does not fit is refused";
    case WEIR__FIXED_WINDOW: return "so many in each window, counted anew when the next begins";
    case WEIR__SLIDING_LOG: return "so many in any window: the moment of each admission is kept";
    case WEIR__SLIDING_COUNTER:
        return "this window's count, and of the last one's what a sliding window still covers";
    }
    return "";
}

static void print_worst_case(const struct facts *f)
{
    const struct weir__rule *rule = &f->rule;
    int64_t c = rule->capacity, e = rule->budget;
    char span[32];
    printf("worst case    %" PRId64 " in any %s: ", f->worst, in_words(span, f->period_us));
    switch (rule->algorithm) {
    case WEIR__FIXED_WINDOW:
        if (rule->variant == WEIR__VARIANT_MONTH) {
            printf("the end of January, February, the begin of March\n");
        } else {
            printf("the end of one window and the begin of the next\n");
        }
        printf("              %" PRId64 " in each window, as it is aligned\n", c);
        break;
    case WEIR__SLIDING_LOG: printf("window %" PRId64 ", budget %" PRId64 "\n", c, e); break;
    case WEIR__SLIDING_COUNTER:
        printf("all at the end of one window, and what of\n"
               "              them has faded by the end of the next; %" PRId64
               " in each window, as it is aligned\n",
               c);
        break;
    default:
        if (weir__rule_has_slots(rule)) {
            printf("rate %" PRIu64 ", first slot 1%s\n", f->options.rate_tokens,
                   e > 0 ? ", a leased one used late 1" : "");
        } else {
            printf("burst %" PRId64 ", rate %" PRIu64 ", budget %" PRId64 "\n", c,
                   f->options.rate_tokens, e);
        }
    }
    printf("              (faults of the store add the terms of docs/protocol.md, section 2)\n");
}

static void print_cost(const struct facts *f)
{
    char span[32];
    printf("budget        %" PRId64 ": leased and not yet spent, over all processes\n",
           f->rule.budget);
    if (f->rule.budget == 0) {
        printf("store calls   one a decision: nothing is leased, everything is exact\n");
    } else if (f->exact) {
        printf("store calls   one a decision: so small a budget, or so low a rate, is not leased;\n"
               "              %.6g a second when all of the limit is used\n",
               f->calls_per_s);
    } else {
        printf(
            "store calls   %.6g a second for a process that uses all of it: a lease lasts %s\n"
            "              (budget / 2 rate, from 2 round trips to 50 ms; a round trip of 1 ms)\n",
            f->calls_per_s, in_words(span, f->horizon_us));
    }
    if (f->rule.budget > 0) {
        printf("              a process that dies with a lease blocks it for %s at most\n",
               in_words(span, 2 * f->rule.window_us));
    }
}

static void print_words(const struct facts *f)
{
    const struct weir__rule *rule = &f->rule;
    char span[32];
    printf("%s\n\n", f->text);
    printf("algorithm     %s: %s\n", weir_algorithm_name((int)rule->algorithm),
           how_it_counts(rule));
    if (f->options.calendar == WEIR_CALENDAR_MONTH) {
        printf("rate          %" PRIu64 " each month of UTC\n", f->options.rate_tokens);
    } else if (weir__rule_has_periods(rule)) {
        printf("rate          %" PRIu64 " each window of %s\n", f->options.rate_tokens,
               in_words(span, f->period_us));
    } else {
        printf("rate          %" PRIu64 " each %s: %.6g a second, in ticks of %s, exactly\n",
               f->options.rate_tokens, each(span, f->period_us), f->per_s,
               rule->tick_us == 1      ? "1 us"
               : rule->tick_us == 1000 ? "1 ms"
                                       : "1 s");
        printf("%s %" PRId64 "\n", weir__rule_has_slots(rule) ? "queue        " : "burst        ",
               rule->capacity);
    }
    print_worst_case(f);
    print_cost(f);
    printf("in Redis      %" PRId64 " bytes a key at most, its name and Redis's own not counted\n"
           "              (docs/algorithms.md: as measured); kept for %.10g s after its last use\n",
           f->key_bytes, (double)f->ttl_ms / 1000);
}

/* ---- As JSON --------------------------------------------------------------------------------- */

/* The text needs no escapes: it is made of letters, digits and few other signs. */
static void print_json(const struct facts *f)
{
    const struct weir__rule *rule = &f->rule;
    printf("{\"text\": \"%s\", \"algorithm\": \"%s\", ", f->text,
           weir_algorithm_name((int)rule->algorithm));
    printf("\"rate_tokens\": %" PRIu64 ", \"rate_period_us\": %" PRId64 ", ",
           f->options.rate_tokens, f->period_us);
    printf("\"capacity\": %" PRId64 ", \"budget\": %" PRId64 ", ", rule->capacity, rule->budget);
    printf("\"worst_case_tokens_per_period\": %" PRId64 ", \"tick_us\": %" PRId64 ", ", f->worst,
           rule->tick_us);
    printf("\"bytes_per_key\": %" PRId64 ", \"ttl_ms\": %" PRId64 ", ", f->key_bytes, f->ttl_ms);
    printf("\"calls_per_second_per_process\": %.9g, ", f->calls_per_s);
    printf("\"horizon_ms\": %.9g, \"window_ms\": %.9g}\n", (double)f->horizon_us / 1000,
           (double)rule->window_us / 1000);
}

/* ---- What is no limit ------------------------------------------------------------------------ */

/* The error, and the text with a caret under the character that it names, if it names one. */
static void print_refusal(const char *text, const struct weir_error *error)
{
    int at = 0;
    fprintf(stderr, "weir: %s\n", error->text);
    if (sscanf(error->text, "character %d:", &at) != 1) {
        return;
    }
    int column = 0;
    fputs("  ", stderr);
    for (int i = 0; text[i] != '\0'; i++) {
        unsigned char c = (unsigned char)text[i];
        bool goes_on = c >= 0x80 && c < 0xc0; /* UTF-8: a byte of the character before */
        column += i < at - 1 && !goes_on;
        fputc(c < 0x20 || c == 0x7f ? ' ' : c, stderr);
    }
    fprintf(stderr, "\n  %*s^\n", column, "");
}

int check_limit(const char *text, bool json)
{
    struct facts facts;
    struct weir_error error;
    struct weir_limit_options options;
    struct weir__limit limit;
    weir_limit_options_init(&options, sizeof(options));
    if (weir_limit_parse(&options, text, &error) != WEIR_OK ||
        weir__limit_read(&limit, &facts.options, &options, ASK_TIMEOUT_US, &error) != WEIR_OK) {
        print_refusal(text, &error);
        return 1;
    }
    size_t len = weir_limit_format(facts.text, sizeof(facts.text), &options);
    assert(len < sizeof(facts.text)); /* every word at most once, and each is short */
    (void)len;
    work_out(&facts, &limit);
    if (json) {
        print_json(&facts);
    } else {
        print_words(&facts);
    }
    return 0;
}
