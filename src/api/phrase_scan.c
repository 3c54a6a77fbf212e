/* SPDX-License-Identifier: MIT */

/*
 * Numbers, times and rates in the text of a limit.
 *
 * Exact: a decimal is digits over a power of ten, and so is a rate with decimals, "0.1/s" being 1
 * per 10 s, the very fraction.  Only percents become doubles, by strtod, and from digits without a
 * point: what a point looks like there depends on the host's locale.
 *
 * Every product is checked or 128 bits wide, and what does not fit is refused like any wrong
 * number. Not part of the path of a token.
 */

#include "api/phrase_scan.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/complaint.h"
#include "api/phrase.h"
#include "base/num.h"

#define PERIOD_MOST_US UINT64_C(1000000000000) /* as of rate_period_us */
#define SHOWN_MOST 24                          /* bytes of the text that a refusal repeats */
#define PERCENT_DIGITS 40 /* of a percentage; no double of 0 to 100 needs more than 17 */
#define EXPONENT_DIGITS 4 /* the smallest double has three */

#define UNIT_WORDS "us, ms, s, min, h or day"
#define PERIOD_WORDS "a period of whole microseconds, 1 to %" PRIu64

/* ---- Refusals -------------------------------------------------------------------------------- */

/* Writes `len` bytes as they can be shown, at most SHOWN_MOST of them. */
static void show(char out[SHOWN_MOST * 4 + 4], const char *from, size_t len)
{
    size_t shown = len > SHOWN_MOST ? SHOWN_MOST : len;
    for (size_t i = 0; i < shown; i++) {
        unsigned char c = (unsigned char)from[i];
        out += sprintf(out, c >= 0x20 && c < 0x7f ? "%c" : "\\x%02x", c);
    }
    strcpy(out, shown < len ? "..." : "");
}

bool weir__scan_refuse(struct weir__scanner *s, const char *from, size_t len, const char *format,
                       ...)
{
    char shown[SHOWN_MOST * 4 + 4];
    char expected[192];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(expected, sizeof(expected), format, arguments);
    va_end(arguments);
    show(shown, from, len);
    const char *quote = len > 0 ? "'" : "";
    weir__complain(s->error, WEIR_EINVAL, "character %td: %s%s%s: expected %s", from - s->text + 1,
                   quote, len > 0 ? shown : "the end", quote, expected);
    return false;
}

static bool blank(char c) { return c == ' ' || c == '\t'; }

static bool digit(char c) { return c >= '0' && c <= '9'; }

static size_t word_length(const char *from)
{
    size_t len = 0;
    while (from[len] != '\0' && !blank(from[len])) {
        len++;
    }
    return len;
}

bool weir__scan_refuse_word(struct weir__scanner *s, const char *expected)
{
    return weir__scan_refuse(s, s->at, word_length(s->at), "%s", expected);
}

void weir__scan_skip_blanks(struct weir__scanner *s)
{
    while (blank(*s->at)) {
        s->at++;
    }
}

bool weir__scan_is(struct weir__scanner *s, const char *word)
{
    size_t len = strlen(word);
    if (word_length(s->at) != len || strncmp(s->at, word, len) != 0) {
        return false;
    }
    s->at += len;
    return true;
}

/* ---- Numbers --------------------------------------------------------------------------------- */

/* digits / 10^places, places being as few as can be. */
struct decimal {
    uint64_t digits;
    int places;
    const char *from;
    size_t len;
};

/* Reads digits, and perhaps a point and digits.  `expected` is for none, or too many. */
static bool scan_decimal(struct weir__scanner *s, struct decimal *out, const char *expected)
{
    *out = (struct decimal){.from = s->at};
    if (!digit(*s->at)) {
        return weir__scan_refuse_word(s, expected);
    }
    bool fits = true, point = false;
    for (; digit(*s->at) || (*s->at == '.' && !point && digit(s->at[1])); s->at++) {
        if (*s->at == '.') {
            point = true;
            continue;
        }
        fits = fits && !__builtin_mul_overflow(out->digits, 10, &out->digits) &&
               !__builtin_add_overflow(out->digits, (uint64_t)(*s->at - '0'), &out->digits);
        out->places += point;
    }
    for (; out->places > 0 && out->digits % 10 == 0; out->places--) {
        out->digits /= 10;
    }
    out->len = (size_t)(s->at - out->from);
    return fits || weir__scan_refuse(s, out->from, out->len, "%s", expected);
}

bool weir__scan_whole(struct weir__scanner *s, uint64_t least, uint64_t most, uint64_t *out)
{
    char expected[80];
    struct decimal number;
    (void)snprintf(expected, sizeof(expected), "a whole number from %" PRIu64 " to %" PRIu64, least,
                   most);
    if (!scan_decimal(s, &number, expected)) {
        return false;
    }
    *out = number.digits;
    return (number.places == 0 && number.digits >= least && number.digits <= most) ||
           weir__scan_refuse(s, number.from, number.len, "%s", expected);
}

bool weir__scan_percent(struct weir__scanner *s, double *out)
{
    char digits[PERCENT_DIGITS + 16];
    const char *at = s->at;
    int count = 0, places = 0, exponent = 0;
    bool point = false;
    for (; digit(*at) || (*at == '.' && !point && count > 0 && digit(at[1])); at++) {
        if (*at == '.') {
            point = true;
        } else if (count < PERCENT_DIGITS) {
            digits[count++] = *at;
            places += point;
        } else {
            return false;
        }
    }
    if (*at == 'e' && digit(at[at[1] == '-' ? 2 : 1])) {
        int sign = at[1] == '-' ? -1 : 1;
        at += sign < 0 ? 2 : 1;
        for (int i = 0; digit(*at) && i < EXPONENT_DIGITS; at++, i++) {
            exponent = exponent * 10 + sign * (*at - '0');
        }
    }
    if (*at != '%' || count == 0) {
        return false;
    }
    (void)snprintf(digits + count, sizeof(digits) - (size_t)count, "e%d", exponent - places);
    *out = strtod(digits, NULL);
    s->at = at + 1;
    return true;
}

/* ---- Times ----------------------------------------------------------------------------------- */

/* number * `us`, where that is a whole number. */
static bool decimal_times(const struct decimal *number, uint64_t us, uint64_t *out)
{
    weir__u128 product = (weir__u128)number->digits * us;
    for (int i = 0; i < number->places; i++) {
        if (product % 10 != 0) {
            return false;
        }
        product /= 10;
    }
    *out = (uint64_t)product;
    return product <= UINT64_MAX;
}

static bool scan_unit(struct weir__scanner *s, uint64_t *us, const char *expected)
{
    for (size_t i = 0; i < WEIR__UNITS; i++) {
        if (weir__scan_is(s, weir__units[i].name)) {
            *us = weir__units[i].us;
            return true;
        }
    }
    return weir__scan_refuse_word(s, expected);
}

bool weir__scan_ms(struct weir__scanner *s, uint64_t least, uint64_t most, uint64_t *ms)
{
    const char *from = s->at;
    struct decimal number;
    uint64_t unit_us = 0, us;
    if (!scan_decimal(s, &number, "a number of " UNIT_WORDS) ||
        !scan_unit(s, &unit_us, UNIT_WORDS)) {
        return false;
    }
    if (!decimal_times(&number, unit_us, &us) || us % 1000 != 0 || us / 1000 < least ||
        us / 1000 > most) {
        return weir__scan_refuse(s, from, (size_t)(s->at - from),
                                 "whole milliseconds from %" PRIu64 " to %" PRIu64, least, most);
    }
    *ms = us / 1000;
    return true;
}

/* ---- Rates ----------------------------------------------------------------------------------- */

/* "s", "10s" or, unless in one word, "10 s". */
static bool scan_period(struct weir__scanner *s, bool one_word, uint64_t *period_us, bool *whole)
{
    struct decimal count = {.digits = 1};
    uint64_t unit_us = 0;
    if (digit(*s->at)) {
        if (!scan_decimal(s, &count, "a number of " UNIT_WORDS)) {
            return false;
        }
        if (!one_word) {
            weir__scan_skip_blanks(s);
        }
    }
    if (!scan_unit(s, &unit_us, one_word ? UNIT_WORDS : UNIT_WORDS ", or " WEIR__MONTH)) {
        return false;
    }
    *whole = decimal_times(&count, unit_us, period_us);
    return true;
}

/* The fraction tokens / period without decimals; false where it has no place in 64 bits.  Cancels
 * only what the decimals brought in: 2.5 per s is 25 per 10 s, and that is 5 per 2 s; 10 per min
 * stays. */
static bool lift_decimals(uint64_t *tokens, uint64_t *period_us, int places)
{
    bool fits = true;
    for (int i = 0; fits && i < places; i++) {
        fits = !__builtin_mul_overflow(*period_us, 10, period_us);
    }
    for (int i = 0; i < places; i++) {
        for (unsigned prime = 2; prime <= 5; prime += 3) {
            if (*tokens % prime == 0) {
                *tokens /= prime;
                *period_us /= prime;
            }
        }
    }
    return fits;
}

static bool scan_per(struct weir__scanner *s)
{
    if (*s->at == '/') {
        s->at++;
    } else if (strncmp(s->at, "per", 3) == 0) {
        s->at += 3;
    } else {
        return weir__scan_refuse(s, s->at, *s->at != '\0', "'/' or 'per'");
    }
    return true;
}

bool weir__scan_rate(struct weir__scanner *s, uint64_t most, uint64_t *tokens, uint64_t *period_us,
                     const char **month)
{
    const char *from = s->at;
    struct decimal number;
    char expected[64];
    (void)snprintf(expected, sizeof(expected), "a number above 0, up to %" PRIu64, most);
    if (!scan_decimal(s, &number, expected)) {
        return false;
    }
    if (number.digits == 0) {
        return weir__scan_refuse(s, number.from, number.len, "%s", expected);
    }
    if (month != NULL) {
        weir__scan_skip_blanks(s);
    }
    if (!scan_per(s)) {
        return false;
    }
    if (month != NULL) {
        weir__scan_skip_blanks(s);
    }
    *tokens = number.digits;
    const char *period = s->at;
    bool whole = number.places == 0;
    if (month != NULL && weir__scan_is(s, WEIR__MONTH)) {
        *month = period;
        *period_us = 0;
        return (whole && *tokens <= most) ||
               weir__scan_refuse(s, number.from, number.len,
                                 "a whole number up to %" PRIu64 ": a month has no fixed length",
                                 most);
    }
    if (!scan_period(s, month == NULL, period_us, &whole)) {
        return false;
    }
    if (!whole || !lift_decimals(tokens, period_us, number.places) || *period_us < 1 ||
        *period_us > PERIOD_MOST_US) {
        return weir__scan_refuse(s, from, (size_t)(s->at - from), PERIOD_WORDS, PERIOD_MOST_US);
    }
    return *tokens <= most || weir__scan_refuse(s, number.from, number.len, "%s", expected);
}
