/* SPDX-License-Identifier: MIT */

/*
 * From what the user wrote to a rule of exact integers (R0).
 *
 * Path of a token: before its path begins.  Nothing here reaches a store: a limit that is refused
 * leaves everything as it was.
 */

#include "api/limits.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "api/complaint.h"
#include "api/inprocess.h"
#include "base/mem.h"
#include "base/num.h"
#include "core/policy.h"
#include "core/rule.h"

#define TOKENS_MOST UINT64_C(1000000000) /* capacity, and tokens per second */
#define RATE_PART_MOST                                                                             \
    UINT64_C(1000000000000) /* each part of the rate: keeps products in 128 bits */
#define WAIT_MOST_MS UINT64_C(60000)
#define WINDOW_LEAST_MS UINT64_C(10)
#define WINDOW_MOST_MS UINT64_C(60000)
#define VERSION_MOST (UINT64_C(1) << 52)
#define DEFAULT_BUDGET_PERCENT 5.0 /* by choice: the overshoot most people accept without asking */
#define UNSET_PERCENT (-DBL_MAX)   /* what nobody writes by hand */
#define DEFAULT_WAIT_MS 1000       /* by choice: longer than that few callers wait for one cost */

void weir_limit_options_init(struct weir_limit_options *options, size_t size)
{
    struct weir_limit_options ours = {
        .capacity_tokens = WEIR_DEFAULT,
        .budget_tokens = WEIR_DEFAULT,
        .budget_percent = UNSET_PERCENT,
        .initial_tokens = WEIR_DEFAULT,
        .max_wait_ms = WEIR_DEFAULT,
        .window_ms = WEIR_DEFAULT,
        .version = WEIR_DEFAULT,
        .outage = WEIR_OUTAGE_LOCAL,
        .outage_share_percent = UNSET_PERCENT,
    };
    weir__options_init(options, size, &ours, sizeof(ours));
}

void weir__options_init(void *theirs, size_t their_size, void *ours, size_t our_size)
{
    memcpy(ours, &their_size, sizeof(their_size));
    memset(theirs, 0, their_size);
    memcpy(theirs, ours, their_size < our_size ? their_size : our_size);
}

int weir__options_copy(void *ours, size_t our_size, const void *theirs, struct weir_error *error)
{
    size_t their_size;
    memcpy(&their_size, theirs, sizeof(their_size));
    if (their_size < sizeof(their_size) || their_size > 65536) {
        return weir__complain(error, WEIR_EINVAL, "size: %zu: was the options struct initialised?",
                              their_size);
    }
    for (size_t i = our_size; i < their_size; i++) {
        if (((const unsigned char *)theirs)[i] != 0) {
            return weir__complain(error, WEIR_EINVAL,
                                  "size: %zu: an option at byte %zu is newer than this library",
                                  their_size, i);
        }
    }
    memcpy(ours, theirs, their_size < our_size ? their_size : our_size);
    memcpy(ours, &our_size, sizeof(our_size));
    return WEIR_OK;
}

int weir__name_check(const char *field, const char *name, struct weir_error *error)
{
    if (name == NULL || name[0] == '\0') {
        return weir__complain(error, WEIR_EINVAL, "%s: empty: 1 to %d bytes are needed", field,
                              WEIR__NAME_MAX);
    }
    size_t len = strlen(name);
    if (len > WEIR__NAME_MAX) {
        return weir__complain(error, WEIR_EINVAL, "%s: %zu bytes long: at most %d", field, len,
                              WEIR__NAME_MAX);
    }
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)name[i];
        if (c < 0x21 || c == 0x7f || c == '{' || c == '}' || c == ':') {
            return weir__complain(error, WEIR_EINVAL,
                                  "%s: byte %zu is 0x%02x: no braces, ':', blanks or control bytes",
                                  field, i + 1, c);
        }
    }
    return WEIR_OK;
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

static int read_rate(struct weir__rule *rule, const struct weir_limit_options *o,
                     struct weir_error *error)
{
    int code = check_range("rate_tokens", o->rate_tokens, 1, RATE_PART_MOST, error);
    if (code == WEIR_OK) {
        code = check_range("rate_period_us", o->rate_period_us, 1, RATE_PART_MOST, error);
    }
    if (code != WEIR_OK) {
        return code;
    }
    uint64_t per_s = (uint64_t)weir__mul_div((int64_t)o->rate_tokens, 1000000,
                                             (int64_t)o->rate_period_us);
    if (per_s > TOKENS_MOST) {
        return weir__complain(error, WEIR_EINVAL,
                              "rate_tokens: %" PRIu64 " per %" PRIu64
                              " us: more than 10^9 tokens a second",
                              o->rate_tokens, o->rate_period_us);
    }
    uint64_t capacity = or_default(o->capacity_tokens, per_s > 1 ? per_s : 1);
    code = check_range("capacity_tokens", capacity, 1, TOKENS_MOST, error);
    if (code != WEIR_OK) {
        return code;
    }
    uint64_t largest;
    if (!weir__rule_set_rate(rule, o->rate_tokens, o->rate_period_us, capacity, &largest)) {
        return weir__complain(error, WEIR_EINVAL,
                              "capacity_tokens: %" PRIu64 ": with this rate at most %" PRIu64
                              " can be counted exactly",
                              capacity, largest);
    }
    return WEIR_OK;
}

static bool percent(double value) { return value >= 0 && value <= 100; /* false for NaN */ }

static int read_budget(struct weir__rule *rule, const struct weir_limit_options *o,
                       struct weir_error *error)
{
    double part = o->budget_percent;
    bool by_default = part == UNSET_PERCENT;
    if (o->budget_tokens != WEIR_DEFAULT) {
        rule->budget = (int64_t)o->budget_tokens;
        return check_range("budget_tokens", o->budget_tokens, 0, (uint64_t)rule->capacity, error);
    }
    if (!by_default && !percent(part)) {
        return weir__complain(error, WEIR_EINVAL, "budget_percent: %g: must be from 0 to 100",
                              part);
    }
    double tokens = (double)rule->capacity * (by_default ? DEFAULT_BUDGET_PERCENT : part) / 100;
    rule->budget = (int64_t)floor(tokens);
    if (by_default) {
        rule->budget = weir__max(rule->budget, 1); /* so that weir_try_acquire finds something */
    }
    return WEIR_OK;
}

static int read_times(struct weir__rule *rule, const struct weir_limit_options *o,
                      uint64_t ask_timeout_us, struct weir_error *error)
{
    uint64_t wait_ms = or_default(o->max_wait_ms, DEFAULT_WAIT_MS);
    int code = check_range("max_wait_ms", wait_ms, 0, WAIT_MOST_MS, error);
    if (code != WEIR_OK) {
        return code;
    }
    rule->max_wait_us = (int64_t)wait_ms * 1000;
    rule->window_us = weir__policy_window_us(rule, (int64_t)ask_timeout_us);
    if (o->window_ms != WEIR_DEFAULT) {
        code = check_range("window_ms", o->window_ms, WINDOW_LEAST_MS, WINDOW_MOST_MS, error);
        rule->window_us = (int64_t)o->window_ms * 1000;
    }
    return code;
}

static int read_outage(struct weir__limit *limit, const struct weir_limit_options *o,
                       struct weir_error *error)
{
    if (o->outage != WEIR_OUTAGE_LOCAL && o->outage != WEIR_OUTAGE_OPEN &&
        o->outage != WEIR_OUTAGE_CLOSED) {
        return weir__complain(error, WEIR_EINVAL, "outage: %d: no such policy", (int)o->outage);
    }
    limit->outage = (enum weir__outage_policy)o->outage;
    double share = o->outage_share_percent;
    if (share == UNSET_PERCENT) {
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
        code = read_rate(rule, &o, error);
    }
    if (code == WEIR_OK) {
        code = read_budget(rule, &o, error);
    }
    if (code == WEIR_OK) {
        code = read_times(rule, &o, ask_timeout_us, error);
    }
    if (code == WEIR_OK) {
        code = read_outage(limit, &o, error);
    }
    if (code == WEIR_OK) {
        uint64_t initial = or_default(o.initial_tokens, (uint64_t)rule->capacity);
        rule->initial = (int64_t)initial;
        code = check_range("initial_tokens", initial, 0, (uint64_t)rule->capacity, error);
    }
    if (code == WEIR_OK) {
        uint64_t version = or_default(o.version, (uint64_t)time(NULL));
        rule->version = (int64_t)version;
        code = check_range("version", version, 1, VERSION_MOST, error);
    }
    return code;
}

static struct weir_limit *find_limit(const struct weir *weir, const char *name)
{
    struct weir_limit *limit = weir->limits;
    while (limit != NULL && strcmp(limit->name, name) != 0) {
        limit = limit->next;
    }
    return limit;
}

int weir_limit_define(struct weir *weir, struct weir_limit **out,
                      const struct weir_limit_options *options, struct weir_error *error)
{
    struct weir__limit core;
    struct weir_limit_options o;
    int code = weir__limit_read(&core, &o, options, weir->ask_timeout_us, error);
    if (code == WEIR_OK) {
        code = weir__name_check("name", o.name, error);
    }
    if (code != WEIR_OK) {
        return code;
    }
    struct weir_limit *limit = weir__mem_zero(sizeof(*limit));
    if (limit == NULL) {
        return weir__complain(error, WEIR_ENOMEM, "no memory for the limit '%s'", o.name);
    }
    limit->core = core;
    limit->weir = weir;
    limit->capacity = core.rule.capacity;
    limit->outage = core.outage;
    strcpy(limit->name, o.name); /* its length was checked */

    uv_mutex_lock(&weir->limits_lock);
    if (weir__load_acquire(&weir->closing)) {
        code = weir__complain(error, WEIR_ECLOSED, "the weir is closing");
    } else if (find_limit(weir, limit->name) != NULL) {
        code = weir__complain(error, WEIR_EEXIST, "name: '%s': a limit of this name exists",
                              limit->name);
    } else {
        limit->next = weir->limits;
        weir->limits = limit;
    }
    uv_mutex_unlock(&weir->limits_lock);
    if (code != WEIR_OK) {
        weir__mem_free(limit);
        return code;
    }
    *out = limit;
    return WEIR_OK;
}

/* In process nobody else brings the new limit to a bucket that is quiet. */
static void adopt(void *arg, struct weir__entry *entry)
{
    struct weir_bucket *bucket = weir__container(entry, struct weir_bucket, entry);
    if (bucket->limit == arg) {
        weir__inprocess_adopt(bucket);
    }
}

int weir_limit_update(struct weir_limit *limit, const struct weir_limit_options *options,
                      struct weir_error *error)
{
    struct weir *weir = limit->weir;
    struct weir__limit core;
    struct weir_limit_options o;
    int code = weir__limit_read(&core, &o, options, weir->ask_timeout_us, error);
    if (code != WEIR_OK) {
        return code;
    }
    if (weir__load_acquire(&weir->closing)) {
        return weir__complain(error, WEIR_ECLOSED, "the weir is closing");
    }
    uv_mutex_lock(&weir->driver.lock);
    for (int i = 0; i < WEIR__STRIPES; i++) {
        uv_mutex_lock(&weir->stripes[i]);
    }
    /* R11: the store takes the highest version; two changes within a second must not be equal. */
    if (o.version == WEIR_DEFAULT && core.rule.version <= limit->core.rule.version) {
        core.rule.version = limit->core.rule.version + 1;
    }
    limit->core = core;
    /* Relaxed: a caller may use either. */
    weir__store_relaxed(&limit->capacity, core.rule.capacity);
    weir__store_relaxed(&limit->outage, (uint32_t)core.outage);
    for (int i = WEIR__STRIPES; i-- > 0;) {
        uv_mutex_unlock(&weir->stripes[i]);
    }
    uv_mutex_unlock(&weir->driver.lock);
    if (!weir->remote) {
        weir__table_visit(weir->table, adopt, limit);
    }
    weir__driver_ring(&weir->driver);
    return WEIR_OK;
}
