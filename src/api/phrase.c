/* SPDX-License-Identifier: MIT */

/*
 * A limit read from text: "10/min burst=20".
 *
 * A rate, then words, in one pass from left to right; api/phrase_scan reads what they are made of.
 * Each part of the grammar either reads what it is for and moves on, or refuses: with the number of
 * the character, what stands there, and what was expected.
 *
 * It works on a copy, so that a refused text changes nothing.  A word speaks of one thing, which
 * then is as it says and no longer as any other field said.  What fields can be together is not of
 * the text but of the limit: weir__limit_read says that.  Not part of the path of a token.
 */

#include "api/phrase.h"

#include <string.h>

#include "api/limits.h"
#include "api/phrase_scan.h"

/* As of the fields of struct weir_limit_options. */
#define RATE_MOST UINT64_C(1000000000000)
#define TOKENS_MOST UINT64_C(1000000000)
#define VERSION_MOST (UINT64_C(1) << 52)
#define WINDOW_LEAST_MS 10
#define WINDOW_MOST_MS 60000
#define WAIT_MOST_MS 60000
#define CAP_TIME_MOST_MS 3600000

struct reader {
    struct weir__scanner scan;
    struct weir_limit_options options;
    size_t size;       /* of the caller's struct: an older program lacks the last fields */
    const char *month; /* where the rate says so */
    uint32_t seen;     /* words that were there, by their place in the table */
};

/* Tokens, or a part in percent; what was said before in the other way no longer counts. */
static bool scan_part(struct reader *r, uint64_t *tokens, double *percent)
{
    const char *from = r->scan.at;
    double value;
    if (!weir__scan_percent(&r->scan, &value)) {
        *percent = WEIR__UNSET_PERCENT;
        return weir__scan_whole(&r->scan, 0, TOKENS_MOST, tokens);
    }
    *tokens = WEIR_DEFAULT;
    *percent = value;
    return value <= 100 ||
           weir__scan_refuse(&r->scan, from, (size_t)(r->scan.at - from), "from 0%% to 100%%");
}

static bool scan_burst(struct reader *r)
{
    return weir__scan_whole(&r->scan, 1, TOKENS_MOST, &r->options.capacity_tokens);
}

static bool scan_queue(struct reader *r)
{
    return weir__scan_whole(&r->scan, 1, TOKENS_MOST, &r->options.queue_tokens);
}

static bool scan_budget(struct reader *r)
{
    return scan_part(r, &r->options.budget_tokens, &r->options.budget_percent);
}

static bool scan_initial(struct reader *r)
{
    struct weir_limit_options *o = &r->options;
    o->learn = weir__scan_is(&r->scan, "learn");
    if (o->learn) {
        o->initial_tokens = WEIR_DEFAULT;
        o->initial_percent = WEIR__UNSET_PERCENT;
        return true;
    }
    return scan_part(r, &o->initial_tokens, &o->initial_percent);
}

static bool scan_window(struct reader *r)
{
    return weir__scan_ms(&r->scan, WINDOW_LEAST_MS, WINDOW_MOST_MS, &r->options.window_ms);
}

static bool scan_wait(struct reader *r)
{
    return weir__scan_ms(&r->scan, 0, WAIT_MOST_MS, &r->options.max_wait_ms);
}

static bool scan_outage(struct reader *r)
{
    for (int policy = WEIR_OUTAGE_LOCAL; policy <= WEIR_OUTAGE_CLOSED; policy++) {
        if (weir__scan_is(&r->scan, weir__outage_words[policy])) {
            r->options.outage = (enum weir_outage_policy)policy;
            return true;
        }
    }
    return weir__scan_refuse_word(&r->scan, "local, open or closed");
}

static bool scan_share(struct reader *r)
{
    const char *from = r->scan.at;
    if (!weir__scan_percent(&r->scan, &r->options.outage_share_percent)) {
        return weir__scan_refuse_word(&r->scan, "a percentage from 0.0001% to 100%");
    }
    double share = r->options.outage_share_percent;
    return (share <= 100 && share * 1e4 >= 1) ||
           weir__scan_refuse(&r->scan, from, (size_t)(r->scan.at - from), "from 0.0001%% to 100%%");
}

static bool scan_version(struct reader *r)
{
    return weir__scan_whole(&r->scan, 1, VERSION_MOST, &r->options.version);
}

static bool scan_cap(struct reader *r)
{
    return weir__scan_rate(&r->scan, TOKENS_MOST, &r->options.cap_tokens, &r->options.cap_period_us,
                           NULL);
}

static bool scan_cap_burst(struct reader *r)
{
    return weir__scan_ms(&r->scan, 0, CAP_TIME_MOST_MS, &r->options.cap_burst_ms);
}

static bool scan_cap_warmup(struct reader *r)
{
    return weir__scan_ms(&r->scan, 0, CAP_TIME_MOST_MS, &r->options.cap_warmup_ms);
}

/* `end` is where the struct must reach to hold the word's field. */
#define FIELD_END(field)                                                                           \
    offsetof(struct weir_limit_options, field) + sizeof(((struct weir_limit_options *)0)->field)

static const struct {
    const char *name;
    bool (*scan)(struct reader *r);
    size_t end;
} words[] = {
    {"burst=", scan_burst, FIELD_END(capacity_tokens)},
    {"queue=", scan_queue, FIELD_END(queue_tokens)},
    {"budget=", scan_budget, FIELD_END(budget_percent)},
    {"initial=", scan_initial, FIELD_END(learn)},
    {"window=", scan_window, FIELD_END(window_ms)},
    {"wait=", scan_wait, FIELD_END(max_wait_ms)},
    {"outage=", scan_outage, FIELD_END(outage)},
    {"share=", scan_share, FIELD_END(outage_share_percent)},
    {"version=", scan_version, FIELD_END(version)},
    {"cap=", scan_cap, FIELD_END(cap_period_us)},
    {"cap-burst=", scan_cap_burst, FIELD_END(cap_burst_ms)},
    {"cap-warmup=", scan_cap_warmup, FIELD_END(cap_warmup_ms)},
};
#define WORDS (sizeof(words) / sizeof(words[0]))
#define ALGORITHM_WORD WORDS /* its bit in `seen` */

static bool first_time(struct reader *r, size_t word, size_t end)
{
    if (r->seen & UINT32_C(1) << word) {
        return weir__scan_refuse_word(&r->scan, "each word once");
    }
    r->seen |= UINT32_C(1) << word;
    return r->size >= end ||
           weir__scan_refuse_word(&r->scan, "a program that was built with a newer weir/weir.h");
}

static bool scan_word(struct reader *r)
{
    for (size_t i = 0; i < WORDS; i++) {
        size_t len = strlen(words[i].name);
        if (strncmp(r->scan.at, words[i].name, len) == 0) {
            if (!first_time(r, i, words[i].end)) {
                return false;
            }
            r->scan.at += len;
            return words[i].scan(r);
        }
    }
    const char *from = r->scan.at;
    for (int number = WEIR_TOKEN_BUCKET; number <= WEIR_SLIDING_COUNTER; number++) {
        if (weir__scan_is(&r->scan, weir_algorithm_name(number))) {
            const char *end = r->scan.at;
            r->scan.at = from; /* for a refusal */
            r->options.algorithm = (enum weir_algorithm)number;
            bool first = first_time(r, ALGORITHM_WORD, FIELD_END(algorithm));
            r->scan.at = end;
            return first;
        }
    }
    return weir__scan_refuse_word(
        &r->scan, "token-bucket, leaky, fixed-window, sliding-log, sliding-counter, "
                  "burst=, queue=, budget=, initial=, window=, wait=, outage=, "
                  "share=, version=, cap=, cap-burst= or cap-warmup=");
}

static bool scan_limit(struct reader *r)
{
    struct weir_limit_options *o = &r->options;
    weir__scan_skip_blanks(&r->scan);
    if (!weir__scan_rate(&r->scan, RATE_MOST, &o->rate_tokens, &o->rate_period_us, &r->month)) {
        return false;
    }
    o->calendar = r->month != NULL ? WEIR_CALENDAR_MONTH : WEIR_CALENDAR_NONE;
    for (;;) {
        const char *end = r->scan.at;
        weir__scan_skip_blanks(&r->scan);
        if (*r->scan.at == '\0') {
            break;
        }
        if (r->scan.at == end) {
            return weir__scan_refuse(&r->scan, end, 1, "a blank, or the end");
        }
        if (!scan_word(r)) {
            return false;
        }
    }
    if (r->month != NULL && o->algorithm != WEIR_FIXED_WINDOW) {
        return weir__scan_refuse(&r->scan, r->month, strlen(WEIR__MONTH),
                                 "a time of a fixed length: months need the word fixed-window");
    }
    return true;
}

int weir_limit_parse(struct weir_limit_options *options, const char *text, struct weir_error *error)
{
    struct reader r = {.scan = {.text = text, .at = text, .error = error}, .size = options->size};
    weir_limit_options_init(&r.options, sizeof(r.options));
    int code = weir__options_copy(&r.options, sizeof(r.options), options, error);
    if (code != WEIR_OK) {
        return code;
    }
    if (!scan_limit(&r)) {
        return WEIR_EINVAL;
    }
    r.options.size = r.size;
    memcpy(options, &r.options, r.size < sizeof(r.options) ? r.size : sizeof(r.options));
    return WEIR_OK;
}
