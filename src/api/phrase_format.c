/* SPDX-License-Identifier: MIT */

/*
 * A limit written as text, in one form.
 *
 * What weir_limit_parse reads from it are the same options, field by field, down to the last digit
 * of a percent; and what two texts mean the same by is written alike.  Not part of the path of a
 * token.
 */

#include "api/phrase.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/limits.h"
#include "weir/weir.h"

#define DOUBLE_DIGITS 17      /* that many always suffice (C11 5.2.4.2.2, DBL_DECIMAL_DIG) */
#define ANY_TIMEOUT_US 100000 /* no text depends on it */

struct writer {
    char *out;
    size_t size;
    size_t len; /* of the whole text, though it may be cut */
};

static void put(struct writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(struct writer *w, const char *format, ...)
{
    size_t room = w->len < w->size ? w->size - w->len : 0;
    va_list arguments;
    va_start(arguments, format);
    w->len += (size_t)vsnprintf(room > 0 ? w->out + w->len : NULL, room, format, arguments);
    va_end(arguments);
}

/* The largest unit that holds it; of nothing, seconds. */
static const struct weir__unit *unit_of(uint64_t us)
{
    size_t i = us == 0 ? 3 : 0;
    while (us % weir__units[i].us != 0) {
        i++;
    }
    return &weir__units[i];
}

static void put_rate(struct writer *w, uint64_t tokens, uint64_t period_us, const char *per)
{
    const struct weir__unit *unit = unit_of(period_us);
    if (unit->us == period_us) {
        put(w, "%" PRIu64 "/%s", tokens, unit->name);
    } else {
        put(w, "%" PRIu64 "%s%" PRIu64 "%s", tokens, per, period_us / unit->us, unit->name);
    }
}

static void put_ms(struct writer *w, const char *word, uint64_t ms, uint64_t unset)
{
    if (ms != unset) {
        const struct weir__unit *unit = unit_of(ms * 1000);
        put(w, " %s=%" PRIu64 "%s", word, ms * 1000 / unit->us, unit->name);
    }
}

/* The fewest digits that are this very number and no other.  Worked out from digits and exponent:
 * the point between them is the locale's. */
static void put_percent(struct writer *w, const char *word, double value)
{
    char text[DOUBLE_DIGITS + 24];
    char digits[DOUBLE_DIGITS + 1];
    int count = 0;
    value = fabs(value); /* of a zero too */
    for (int after = 0; after < DOUBLE_DIGITS; after++) {
        (void)snprintf(text, sizeof(text), "%.*e", after, value);
        if (strtod(text, NULL) == value) {
            break;
        }
    }
    const char *at = text;
    for (; *at != 'e'; at++) {
        if (*at >= '0' && *at <= '9') {
            digits[count++] = *at;
        }
    }
    digits[count] = '\0';
    int exponent = atoi(at + 1);
    int whole = exponent + 1; /* digits before the point */
    if (exponent < -5) {
        put(w, " %s=%c%s%se%d%%", word, digits[0], count > 1 ? "." : "", digits + 1, exponent);
    } else if (whole <= 0) {
        put(w, " %s=0.%.*s%s%%", word, -whole, "00000", digits);
    } else if (whole >= count) {
        put(w, " %s=%s%.*s%%", word, digits, whole - count, "00");
    } else {
        put(w, " %s=%.*s.%s%%", word, whole, digits, digits + whole);
    }
}

static void put_part(struct writer *w, const char *word, uint64_t tokens, double percent)
{
    if (tokens != WEIR_DEFAULT) {
        put(w, " %s=%" PRIu64, word, tokens);
    } else if (percent != WEIR__UNSET_PERCENT) {
        put_percent(w, word, percent);
    }
}

static void put_limit(struct writer *w, const struct weir_limit_options *o)
{
    if (o->calendar == WEIR_CALENDAR_MONTH) {
        put(w, "%" PRIu64 "/" WEIR__MONTH, o->rate_tokens);
    } else {
        put_rate(w, o->rate_tokens, o->rate_period_us, " per ");
    }
    if (o->algorithm != WEIR_TOKEN_BUCKET) {
        put(w, " %s", weir_algorithm_name((int)o->algorithm));
    }
    if (o->capacity_tokens != WEIR_DEFAULT) {
        put(w, " burst=%" PRIu64, o->capacity_tokens);
    }
    if (o->queue_tokens != 0) {
        put(w, " queue=%" PRIu64, o->queue_tokens);
    }
    put_part(w, "budget", o->budget_tokens, o->budget_percent);
    put_part(w, "initial", o->initial_tokens, o->initial_percent);
    if (o->learn) {
        put(w, " initial=learn");
    }
    put_ms(w, "window", o->window_ms, WEIR_DEFAULT);
    put_ms(w, "wait", o->max_wait_ms, WEIR_DEFAULT);
    if (o->outage != WEIR_OUTAGE_LOCAL) {
        put(w, " outage=%s", weir__outage_words[o->outage]);
    }
    if (o->outage_share_percent != WEIR__UNSET_PERCENT) {
        put_percent(w, "share", o->outage_share_percent);
    }
    if (o->version != WEIR_DEFAULT) {
        put(w, " version=%" PRIu64, o->version);
    }
    if (o->cap_tokens != 0) {
        put(w, " cap=");
        put_rate(w, o->cap_tokens, o->cap_period_us, "/");
    }
    put_ms(w, "cap-burst", o->cap_burst_ms, WEIR_DEFAULT);
    put_ms(w, "cap-warmup", o->cap_warmup_ms, 0);
}

size_t weir_limit_format(char *out, size_t size, const struct weir_limit_options *options)
{
    struct writer writer = {.out = out, .size = size};
    struct weir__limit limit;
    struct weir_limit_options ours;
    if (weir__limit_read(&limit, &ours, options, ANY_TIMEOUT_US, NULL) == WEIR_OK) {
        put_limit(&writer, &ours);
    } else {
        put(&writer, "%s", "");
    }
    return writer.len;
}
