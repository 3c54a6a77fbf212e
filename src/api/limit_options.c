/* SPDX-License-Identifier: MIT */

/*
 * From the options of a limit to a rule of exact integers (R0).
 *
 * Path of a token: before its path begins.  Each field is read once, in an order in which what a
 * field depends on comes before it: algorithm, rate and capacity, budget, times, outage, cap,
 * start, version.  What the library fills in where a field was left alone is decided here, and
 * nowhere else.
 *
 *     token bucket       capacity_tokens   rate in ticks
 *     leaky, a meter     capacity_tokens   rate in ticks
 *     leaky, a queue     queue_tokens      rate in ticks; ahead of time, as far as it is long
 *     window algorithms  rate_tokens       in periods; nothing ahead of time
 *
 * A field that its limit has no use for is refused, not passed over: who set it meant something.
 * Every refusal names the field and the value.
 */

#include "api/limits.h"

#include <inttypes.h>
#include <math.h>
#include <time.h>

#include "api/complaint.h"
#include "base/num.h"
#include "core/policy.h"
#include "core/rule.h"

#define TOKENS_MOST UINT64_C(1000000000) /* capacity, and tokens per second */
#define RATE_PART_MOST                                                                             \
    UINT64_C(1000000000000)               /* each part of the rate: keeps products in 128 bits */
#define MONTH_US UINT64_C(2678400000000)  /* of 31 days, the longest */
#define QUEUE_MOST_US INT64_C(3600000000) /* an hour: no caller can wait longer (weir_acquire) */
#define WAIT_MOST_MS UINT64_C(60000)
#define WINDOW_LEAST_MS UINT64_C(10)
#define WINDOW_MOST_MS UINT64_C(60000)
#define VERSION_MOST (UINT64_C(1) << 52)
#define CAP_TIME_MOST_MS UINT64_C(3600000)
#define DEFAULT_BUDGET_PERCENT 5.0 /* by choice: the overshoot most people accept without asking */
#define DEFAULT_WAIT_MS 1000       /* by choice: longer than that few callers wait for one cost */
#define DEFAULT_CAP_BURST_MS 1000  /* Guava's: a second's worth of what was not used */

void weir_limit_options_init(struct weir_limit_options *options, size_t size)
{
    struct weir_limit_options ours = {
        .capacity_tokens = WEIR_DEFAULT,
        .budget_tokens = WEIR_DEFAULT,
        .budget_percent = WEIR__UNSET_PERCENT,
        .initial_tokens = WEIR_DEFAULT,
        .initial_percent = WEIR__UNSET_PERCENT,
        .max_wait_ms = WEIR_DEFAULT,
        .window_ms = WEIR_DEFAULT,
        .version = WEIR_DEFAULT,
        .outage = WEIR_OUTAGE_LOCAL,
        .outage_share_percent = WEIR__UNSET_PERCENT,
        .algorithm = WEIR_TOKEN_BUCKET,
        .cap_burst_ms = WEIR_DEFAULT,
    };
    weir__options_init(options, size, &ours, sizeof(ours));
}

static int check_range(const char *field, uint64_t value, uint64_t least, uint64_t most,
                       struct weir_error *error)
{
    if (value < least || value > most) {
        return weir__complain(error, WEIR_EINVAL,
                              "%s: %" PRIu64 ": must be from %" PRIu64 " to %" PRIu64, field, value,
                              least, most);
    }
    return WEIR_OK;
}

static uint64_t or_default(uint64_t value, uint64_t instead)
{
    return value == WEIR_DEFAULT ? instead : value;
}

/* ---- What counts, and how fast --------------------------------------------------------------- */

static int read_algorithm(struct weir__rule *rule, const struct weir_limit_options *o,
                          struct weir_error *error)
{
    const char *name = weir_algorithm_name((int)o->algorithm);
    switch (o->algorithm) {
    case WEIR_TOKEN_BUCKET:
    case WEIR_LEAKY_BUCKET:
    case WEIR_FIXED_WINDOW:
    case WEIR_SLIDING_LOG:
    case WEIR_SLIDING_COUNTER: break;
    default:
        return weir__complain(error, WEIR_EINVAL, "algorithm: %d: no such algorithm",
                              (int)o->algorithm);
    }
    rule->algorithm = (enum weir__algorithm_id)o->algorithm;
    if (o->calendar != WEIR_CALENDAR_NONE) {
        if (o->calendar != WEIR_CALENDAR_MONTH) {
            return weir__complain(error, WEIR_EINVAL, "calendar: %d: no such calendar",
                                  (int)o->calendar);
        }
        if (o->algorithm != WEIR_FIXED_WINDOW) {
            return weir__complain(error, WEIR_EINVAL,
                                  "calendar: %d: only fixed-window has months, "
                                  "%s has none",
                                  (int)o->calendar, name);
        }
        rule->variant = WEIR__VARIANT_MONTH;
    }
    if (o->queue_tokens != 0) {
        if (o->algorithm != WEIR_LEAKY_BUCKET) {
            return weir__complain(error, WEIR_EINVAL,
                                  "queue_tokens: %" PRIu64 ": only leaky has a queue, %s has none",
                                  o->queue_tokens, name);
        }
        rule->variant = WEIR__VARIANT_QUEUE;
    }
    return WEIR_OK;
}

static bool counts_in_periods(enum weir_algorithm algorithm)
{
    return algorithm == WEIR_FIXED_WINDOW || algorithm == WEIR_SLIDING_LOG ||
           algorithm == WEIR_SLIDING_COUNTER;
}

static int read_periods(struct weir__rule *rule, const struct weir_limit_options *o,
                        uint64_t period_us, struct weir_error *error)
{
    if (or_default(o->capacity_tokens, o->rate_tokens) != o->rate_tokens) {
        return weir__complain(
            error, WEIR_EINVAL,
            "capacity_tokens: %" PRIu64 ": %s has rate_tokens, %" PRIu64 ", and no other",
            o->capacity_tokens, weir_algorithm_name((int)o->algorithm), o->rate_tokens);
    }
    weir__rule_set_periods(rule, o->rate_tokens, period_us);
    return WEIR_OK;
}

/* `field`, which holds `capacity`, and the rate in ticks. */
static int read_ticks(struct weir__rule *rule, const struct weir_limit_options *o,
                      const char *field, uint64_t capacity, struct weir_error *error)
{
    int code = check_range(field, capacity, 1, TOKENS_MOST, error);
    uint64_t largest;
    if (code == WEIR_OK &&
        !weir__rule_set_rate(rule, o->rate_tokens, o->rate_period_us, capacity, &largest)) {
        return weir__complain(error, WEIR_EINVAL,
                              "%s: %" PRIu64 ": with this rate at most %" PRIu64
                              " can be counted exactly",
                              field, capacity, largest);
    }
    return code;
}

static int read_queue(struct weir__rule *rule, const struct weir_limit_options *o,
                      struct weir_error *error)
{
    if (o->capacity_tokens != WEIR_DEFAULT) {
        return weir__complain(error, WEIR_EINVAL,
                              "capacity_tokens: %" PRIu64 ": with a queue, queue_tokens is all",
                              o->capacity_tokens);
    }
    int code = read_ticks(rule, o, "queue_tokens", o->queue_tokens, error);
    if (code == WEIR_OK && weir__rule_time_us(rule, rule->capacity) > QUEUE_MOST_US) {
        return weir__complain(error, WEIR_EINVAL,
                              "queue_tokens: %" PRIu64
                              ": the last would wait longer than an hour; at this rate at most "
                              "%" PRId64 " may wait",
                              o->queue_tokens, weir__rule_tokens(rule, QUEUE_MOST_US));
    }
    return code;
}

static int read_rate(struct weir__rule *rule, const struct weir_limit_options *o,
                     struct weir_error *error)
{
    bool periods = counts_in_periods(o->algorithm);
    uint64_t most = periods ? TOKENS_MOST : RATE_PART_MOST;
    int code = check_range("rate_tokens", o->rate_tokens, 1, most, error);
    uint64_t period_us = o->rate_period_us;
    if (code == WEIR_OK && o->calendar == WEIR_CALENDAR_MONTH) {
        code = check_range("rate_period_us", period_us, 0, 0, error);
        period_us = MONTH_US;
    } else if (code == WEIR_OK) {
        code = check_range("rate_period_us", period_us, 1, RATE_PART_MOST, error);
    }
    if (code != WEIR_OK) {
        return code;
    }
    uint64_t per_s = (uint64_t)weir__mul_div((int64_t)o->rate_tokens, 1000000, (int64_t)period_us);
    if (per_s > TOKENS_MOST) {
        return weir__complain(error, WEIR_EINVAL,
                              "rate_tokens: %" PRIu64 " per %" PRIu64
                              " us: more than 10^9 tokens a second",
                              o->rate_tokens, period_us);
    }
    if (periods) {
        return read_periods(rule, o, period_us, error);
    }
    if (o->queue_tokens != 0) {
        return read_queue(rule, o, error);
    }
    uint64_t usual = o->algorithm == WEIR_TOKEN_BUCKET && per_s > 1 ? per_s : 1;
    uint64_t capacity = or_default(o->capacity_tokens, usual);
    return read_ticks(rule, o, "capacity_tokens", capacity, error);
}

/* ---- Parts of the capacity ------------------------------------------------------------------- */

static bool percent(double value) { return value >= 0 && value <= 100; /* false for NaN */ }

/* A number of tokens that may be given as such or in percent of the capacity. */
struct part {
    const char *tokens_field;
    uint64_t tokens;
    const char *percent_field;
    double percent;
    double default_percent;
};

static bool part_is_default(const struct part *part)
{
    return part->tokens == WEIR_DEFAULT && part->percent == WEIR__UNSET_PERCENT;
}

static int read_part(int64_t *out, const struct part *part, int64_t capacity,
                     struct weir_error *error)
{
    if (part->tokens != WEIR_DEFAULT) {
        *out = (int64_t)part->tokens;
        return check_range(part->tokens_field, part->tokens, 0, (uint64_t)capacity, error);
    }
    double value = part_is_default(part) ? part->default_percent : part->percent;
    if (!percent(value)) {
        return weir__complain(error, WEIR_EINVAL, "%s: %g: must be from 0 to 100",
                              part->percent_field, value);
    }
    *out = (int64_t)floor((double)capacity * value / 100);
    return WEIR_OK;
}

static int read_budget(struct weir__rule *rule, const struct weir_limit_options *o,
                       struct weir_error *error)
{
    const struct part part = {"budget_tokens", o->budget_tokens, "budget_percent",
                              o->budget_percent, DEFAULT_BUDGET_PERCENT};
    int code = read_part(&rule->budget, &part, rule->capacity, error);
    if (part_is_default(&part)) {
        rule->budget = weir__max(rule->budget, 1); /* so that weir_try_acquire finds something */
    }
    return code;
}

static int read_start(struct weir__rule *rule, const struct weir_limit_options *o,
                      struct weir_error *error)
{
    const struct part part = {"initial_tokens", o->initial_tokens, "initial_percent",
                              o->initial_percent, 100};
    int code = read_part(&rule->initial, &part, rule->capacity, error);
    if (code != WEIR_OK) {
        return code;
    }
    rule->learn = o->learn;
    const char *why = o->outage != WEIR_OUTAGE_LOCAL ? "only with the outage policy local"
                      : weir__rule_has_slots(rule)   ? "not with a queue, which starts empty"
                      : !part_is_default(&part)      ? "not together with initial tokens"
                                                     : NULL;
    if (rule->learn && why != NULL) {
        return weir__complain(error, WEIR_EINVAL, "learn: true: %s", why);
    }
    if (weir__rule_has_slots(rule) && !part_is_default(&part)) {
        if (part.tokens != WEIR_DEFAULT) {
            return weir__complain(error, WEIR_EINVAL,
                                  "initial_tokens: %" PRIu64 ": a queue starts empty", part.tokens);
        }
        return weir__complain(error, WEIR_EINVAL, "initial_percent: %g: a queue starts empty",
                              part.percent);
    }
    return WEIR_OK;
}

/* ---- Times ----------------------------------------------------------------------------------- */

static int read_wait(struct weir__rule *rule, const struct weir_limit_options *o,
                     struct weir_error *error)
{
    bool queue = weir__rule_has_slots(rule);
    bool periods = weir__rule_has_periods(rule);
    uint64_t wait_ms = or_default(o->max_wait_ms, periods ? 0 : DEFAULT_WAIT_MS);
    if (queue && o->max_wait_ms != WEIR_DEFAULT) {
        return weir__complain(error, WEIR_EINVAL,
                              "max_wait_ms: %" PRIu64 ": with a queue, its length decides",
                              wait_ms);
    }
    if (periods && wait_ms > 0) {
        return weir__complain(error, WEIR_EINVAL,
                              "max_wait_ms: %" PRIu64 ": nothing of %s can be reserved ahead",
                              wait_ms, weir_algorithm_name((int)o->algorithm));
    }
    rule->max_wait_us = queue ? weir__rule_time_us(rule, rule->capacity)
                              : (int64_t)(wait_ms * 1000);
    return check_range("max_wait_ms", wait_ms, 0, WAIT_MOST_MS, error);
}

static int read_window(struct weir__rule *rule, const struct weir_limit_options *o,
                       uint64_t ask_timeout_us, struct weir_error *error)
{
    rule->window_us = weir__policy_window_us(rule, (int64_t)ask_timeout_us);
    if (o->window_ms == WEIR_DEFAULT) {
        return WEIR_OK;
    }
    rule->window_us = (int64_t)(o->window_ms * 1000);
    return check_range("window_ms", o->window_ms, WINDOW_LEAST_MS, WINDOW_MOST_MS, error);
}

/* ---- What this process does alone ------------------------------------------------------------ */

static int read_outage(struct weir__limit *limit, const struct weir_limit_options *o,
                       struct weir_error *error)
{
    if (o->outage != WEIR_OUTAGE_LOCAL && o->outage != WEIR_OUTAGE_OPEN &&
        o->outage != WEIR_OUTAGE_CLOSED) {
        return weir__complain(error, WEIR_EINVAL, "outage: %d: no such policy", (int)o->outage);
    }
    limit->outage = (enum weir__outage_policy)o->outage;
    double share = o->outage_share_percent;
    if (share == WEIR__UNSET_PERCENT) {
        limit->outage_share_ppm = 0;
        return WEIR_OK;
    }
    if (!percent(share) || share * 1e4 < 1) {
        return weir__complain(error, WEIR_EINVAL,
                              "outage_share_percent: %g: must be from 0.0001 to 100", share);
    }
    limit->outage_share_ppm = (int64_t)(share * 1e4);
    return WEIR_OK;
}

static int read_cap(struct weir__cap_config *cap, const struct weir_limit_options *o,
                    struct weir_error *error)
{
    if (o->cap_tokens == 0) {
        const struct {
            const char *field;
            uint64_t value, unset;
        } rest[] = {{"cap_period_us", o->cap_period_us, 0},
                    {"cap_burst_ms", o->cap_burst_ms, WEIR_DEFAULT},
                    {"cap_warmup_ms", o->cap_warmup_ms, 0}};
        for (size_t i = 0; i < sizeof(rest) / sizeof(rest[0]); i++) {
            if (rest[i].value != rest[i].unset) {
                return weir__complain(error, WEIR_EINVAL,
                                      "%s: %" PRIu64 ": cap_tokens is 0, so there is no cap",
                                      rest[i].field, rest[i].value);
            }
        }
        return WEIR_OK;
    }
    uint64_t burst_ms = or_default(o->cap_burst_ms, DEFAULT_CAP_BURST_MS);
    int code = check_range("cap_tokens", o->cap_tokens, 1, TOKENS_MOST, error);
    if (code == WEIR_OK) {
        code = check_range("cap_period_us", o->cap_period_us, 1, RATE_PART_MOST, error);
    }
    if (code == WEIR_OK) {
        code = check_range("cap_burst_ms", burst_ms, 0, CAP_TIME_MOST_MS, error);
    }
    if (code == WEIR_OK) {
        code = check_range("cap_warmup_ms", o->cap_warmup_ms, 0, CAP_TIME_MOST_MS, error);
    }
    if (code == WEIR_OK && o->cap_warmup_ms > 0 && o->cap_burst_ms != WEIR_DEFAULT) {
        code = weir__complain(error, WEIR_EINVAL,
                              "cap_burst_ms: %" PRIu64 ": a cap that warms up keeps no burst",
                              burst_ms);
    }
    *cap = (struct weir__cap_config){.tokens = (int64_t)o->cap_tokens,
                                     .period_us = (int64_t)o->cap_period_us,
                                     .burst_us = (int64_t)(burst_ms * 1000),
                                     .warmup_us = (int64_t)(o->cap_warmup_ms * 1000)};
    return code;
}

/* ---- All together ---------------------------------------------------------------------------- */

int weir__limit_read(struct weir__limit *limit, struct weir_limit_options *ours,
                     const struct weir_limit_options *options, uint64_t ask_timeout_us,
                     struct weir_error *error)
{
    weir_limit_options_init(ours, sizeof(*ours));
    int code = weir__options_copy(ours, sizeof(*ours), options, error);
    const struct weir_limit_options o = *ours;
    *limit = (struct weir__limit){0};
    struct weir__rule *rule = &limit->rule;
    if (code == WEIR_OK) {
        code = read_algorithm(rule, &o, error);
    }
    if (code == WEIR_OK) {
        code = read_rate(rule, &o, error);
    }
    if (code == WEIR_OK) {
        code = read_budget(rule, &o, error);
    }
    if (code == WEIR_OK) {
        code = read_wait(rule, &o, error);
    }
    if (code == WEIR_OK) {
        code = read_window(rule, &o, ask_timeout_us, error);
    }
    if (code == WEIR_OK) {
        code = read_outage(limit, &o, error);
    }
    if (code == WEIR_OK) {
        code = read_cap(&limit->cap, &o, error);
    }
    if (code == WEIR_OK) {
        code = read_start(rule, &o, error);
    }
    if (code == WEIR_OK) {
        uint64_t version = or_default(o.version, (uint64_t)time(NULL));
        rule->version = (int64_t)version;
        code = check_range("version", version, 1, VERSION_MOST, error);
    }
    return code;
}
