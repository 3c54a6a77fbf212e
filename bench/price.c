/* SPDX-License-Identifier: MIT */
/*
 * What a key costs.
 *
 * Calls are those that weir sends: the shipped script with packed arguments.  All that is compared
 * is measured in turn in each of several runs, so that a noisy moment strikes it alike.
 *
 * Logs.  A log of n entries is kept at that length: each call comes a part of the period after the
 * last, so that one entry enters and the oldest leaves.  The time is told to the scripts, or no
 * server would be fast enough.  The other way to keep a log is a sorted set, one member an
 * admission, whose name has to be its own.
 */
#include "price.h"

#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/wire.h"
#include "io/conn.h"
#include "script_calls.h"
#include "store_link.h"

#define RUNS 11    /* odd, so that the median is a run; at most RUNS_MAX */
#define LOG_RUNS 5 /* each is longer */
#define KEYS 1000
#define CALLS 1920 /* a run: some 20 ms of the server */

/* More than a run takes: every call is granted.  Exact ones are of a limit so slow that no key has
 * filled, and gone, before it is looked at; leases of one so fast that slots can be leased. */
#define PERIOD_US INT64_C(86400000000)
#define SLOW_TOKENS 10000
#define FAST_TOKENS 100000000
#define FAST_BUDGET 10000000
#define EPOCH_US INT64_C(1700000000000000)

/* ---- Of each kind ---------------------------------------------------------------------------- */

/* What weir says, packed. */
struct packed {
    unsigned char rule[WEIR__RULE_BYTES];
    unsigned char ask[WEIR__ASK_BYTES];
};

static void pack(struct packed *packed, const struct weir__rule *rule, const struct weir__ask *ask)
{
    weir__wire_pack_rule(packed->rule, rule);
    weir__wire_pack_ask(packed->ask, ask);
}

static struct script_caller caller_of(const char *sha, const struct packed *packed, int keys)
{
    return (struct script_caller){
        .sha = sha,
        .arguments = 2,
        .argument = {(const char *)packed->rule, (const char *)packed->ask},
        .size = {sizeof packed->rule, sizeof packed->ask},
        .keys = keys,
    };
}

/* An exact call without an account, or one that leases. */
static bool measure_kind(redisContext *link, const char *sha, const struct kind *kind, bool leases,
                         struct series *us, double *bytes, char *why, size_t why_size)
{
    struct weir__rule rule = leases ? kind_rule(kind, FAST_TOKENS, PERIOD_US, FAST_BUDGET)
                                    : kind_rule(kind, SLOW_TOKENS, PERIOD_US, 0);
    struct weir__ask ask = kind_ask();
    struct packed packed;
    ask.want = leases ? 1 : 0;
    ask.exact = leases ? 0 : 1;
    ask.wait_us = rule.max_wait_us;
    pack(&packed, &rule, &ask);
    struct script_caller caller = caller_of(sha, &packed, KEYS);
    return script_measure(link, &caller, KEYS, CALLS, us, bytes, why, why_size);
}

static bool measure_kinds(redisContext *link, char *why, size_t why_size)
{
    static struct series exact[KINDS], lease[KINDS], idle;
    static double exact_bytes[KINDS], lease_bytes[KINDS];
    char sha[41], idle_sha[41];
    static const char nothing[] = "return 1";
    const struct weir__script *script = &weir__script_lease;
    if (!script_load(link, script->source, script->source_len, sha, why, why_size) ||
        !script_load(link, nothing, strlen(nothing), idle_sha, why, why_size)) {
        return false;
    }
    for (int run = 0; run < RUNS; run++) {
        struct script_caller nobody = {.sha = idle_sha, .keys = KEYS};
        double bytes;
        if (!script_measure(link, &nobody, KEYS, CALLS, &idle, &bytes, why, why_size)) {
            return false;
        }
        for (int i = 0; i < KINDS; i++) {
            if (!measure_kind(link, sha, &kinds[i], false, &exact[i], &exact_bytes[i], why,
                              why_size) ||
                !measure_kind(link, sha, &kinds[i], true, &lease[i], &lease_bytes[i], why,
                              why_size)) {
                return false;
            }
        }
    }
    printf("{\"name\": \"return 1\"");
    series_print("exact_us", &idle);
    printf("}\n");
    for (int i = 0; i < KINDS; i++) {
        printf("{\"name\": \"%s\", \"exact_bytes\": %.0f, \"lease_bytes\": %.0f", kinds[i].name,
               exact_bytes[i], lease_bytes[i]);
        series_print("exact_us", &exact[i]);
        series_print("lease_us", &lease[i]);
        printf("}\n");
    }
    return true;
}

bool price_print_kinds(const char *url, char *why, size_t why_size)
{
    redisContext *link = store_link_open(url, why, why_size);
    if (link == NULL) {
        return false;
    }
    bool done = measure_kinds(link, why, why_size);
    redisFree(link);
    return done;
}

/* ---- Of logs --------------------------------------------------------------------------------- */

/* KEYS: the log.  ARGV: period in microseconds, capacity, the time, a name that nobody else has. */
static const char sorted_set[] =
    "local now, period = tonumber(ARGV[3]), tonumber(ARGV[1])\n"
    "redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - period)\n"
    "local allowed = redis.call('ZCARD', KEYS[1]) < tonumber(ARGV[2])\n"
    "if allowed then redis.call('ZADD', KEYS[1], now, ARGV[3] .. '-' .. ARGV[4]) end\n"
    "redis.call('PEXPIRE', KEYS[1], period / 1000 + 1)\n"
    "return allowed and 1 or 0\n";

#define LOGS 4
static const int log_lengths[LOGS] = {10, 100, 1000, 10000};

#define LOG_ENTRY_US 100000                    /* of the period, for each entry */
#define LOG_STEP_US (LOG_ENTRY_US * 101 / 100) /* so that what is rounded up leaves in time */
#define LOG_CALLS 640

static const struct kind *log_kind(void)
{
    const struct kind *kind = kinds;
    while (kind->algorithm != WEIR_SLIDING_LOG) {
        kind++;
    }
    return kind;
}

static bool measure_packed_log(redisContext *link, const char *sha, int length, struct series *us,
                               double *bytes, char *why, size_t why_size)
{
    struct weir__rule rule = kind_rule(log_kind(), length, (int64_t)length * LOG_ENTRY_US, 0);
    struct weir__ask ask = kind_ask();
    struct packed packed;
    ask.exact = 1;
    pack(&packed, &rule, &ask);
    struct script_caller caller = caller_of(sha, &packed, 1);
    caller.now_us = EPOCH_US;
    caller.step_us = LOG_STEP_US;
    return script_measure(link, &caller, length, LOG_CALLS, us, bytes, why, why_size);
}

static bool measure_set_log(redisContext *link, const char *sha, int length, struct series *us,
                            double *bytes, char *why, size_t why_size)
{
    char period[24], capacity[24];
    snprintf(period, sizeof period, "%" PRId64, (int64_t)length * LOG_ENTRY_US);
    snprintf(capacity, sizeof capacity, "%d", length);
    struct script_caller caller = {
        .sha = sha,
        .arguments = 2,
        .argument = {period, capacity},
        .size = {strlen(period), strlen(capacity)},
        .keys = 1,
        .now_us = EPOCH_US,
        .step_us = LOG_STEP_US,
        .named = true,
    };
    return script_measure(link, &caller, length, LOG_CALLS, us, bytes, why, why_size);
}

static bool measure_logs(redisContext *link, char *why, size_t why_size)
{
    static struct series packed[LOGS], set[LOGS];
    static double packed_bytes[LOGS], set_bytes[LOGS];
    char sha[41], set_sha[41];
    const struct weir__script *script = &weir__script_lease;
    if (!script_load(link, script->source, script->source_len, sha, why, why_size) ||
        !script_load(link, sorted_set, strlen(sorted_set), set_sha, why, why_size)) {
        return false;
    }
    for (int run = 0; run < LOG_RUNS; run++) {
        for (int i = 0; i < LOGS; i++) {
            if (!measure_packed_log(link, sha, log_lengths[i], &packed[i], &packed_bytes[i], why,
                                    why_size) ||
                !measure_set_log(link, set_sha, log_lengths[i], &set[i], &set_bytes[i], why,
                                 why_size)) {
                return false;
            }
        }
    }
    for (int i = 0; i < LOGS; i++) {
        printf("{\"entries\": %d, \"packed_bytes\": %.0f, \"set_bytes\": %.0f", log_lengths[i],
               packed_bytes[i], set_bytes[i]);
        series_print("packed_us", &packed[i]);
        series_print("set_us", &set[i]);
        printf("}\n");
    }
    return true;
}

bool price_print_logs(const char *url, char *why, size_t why_size)
{
    redisContext *link = store_link_open(url, why, why_size);
    if (link == NULL) {
        return false;
    }
    bool done = measure_logs(link, why, why_size);
    redisFree(link);
    return done;
}

/* ---- In the process -------------------------------------------------------------------------- */

#define BUCKETS 20000

/* Bytes on the heap for each of many buckets, each touched once. */
static bool heap_bytes(const struct kind *kind, const char *url, double *bytes, char *why,
                       size_t why_size)
{
    struct weir_options options;
    struct weir_limit_options rule;
    struct weir_error error;
    struct weir *weir;
    struct weir_limit *limit;
    weir_options_init(&options, sizeof options);
    options.url = url;
    if (weir_open(&weir, &options, &error) != WEIR_OK) {
        snprintf(why, why_size, "%s", error.text);
        return false;
    }
    kind_options(kind, 1000, 1000000, &rule);
    int code = weir_limit_define(weir, &limit, &rule, &error);
    if (code != WEIR_OK) {
        snprintf(why, why_size, "%s", error.text);
    }
    size_t before = mallinfo2().uordblks;
    for (int i = 0; i < BUCKETS && code >= 0; i++) {
        code = weir_try_acquire_key(limit, &i, sizeof i, 1, NULL);
    }
    *bytes = (double)(mallinfo2().uordblks - before) / BUCKETS;
    weir_close_wait(weir);
    return code >= 0;
}

bool price_print_memory(const char *url, char *why, size_t why_size)
{
    for (int i = 0; i < KINDS; i++) {
        double elsewhere, here;
        if (!heap_bytes(&kinds[i], url, &elsewhere, why, why_size) ||
            !heap_bytes(&kinds[i], NULL, &here, why, why_size)) {
            return false;
        }
        printf("{\"name\": \"%s\", \"bytes\": %.0f, \"bytes_alone\": %.0f}\n", kinds[i].name,
               elsewhere, here);
    }
    return true;
}
