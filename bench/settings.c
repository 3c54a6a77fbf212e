/* SPDX-License-Identifier: MIT */
/*
 * The demo's command line.  Each option is one row: its name, the least and the most it may be, and
 * where it goes.  The defaults are a limit that one Redis call per decision could not carry.
 */
#include "settings.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define RATE_MAX 10000000 /* tokens a second; more is for a larger machine than one clock fits */
#define CAPACITY_MAX 1000000000
#define PERIOD_LEAST_US 10000 /* shorter ones are over before a lease is worth its call */

static const struct algorithm algorithms[] = {
    {WEIR_TOKEN_BUCKET, "token-bucket", "token bucket", BOUND_INTERVAL},
    {WEIR_LEAKY_BUCKET, "leaky-bucket", "leaky bucket, as a meter", BOUND_INTERVAL},
    {WEIR_FIXED_WINDOW, "fixed-window", "fixed window", BOUND_ALIGNED},
    {WEIR_SLIDING_LOG, "sliding-log", "sliding log", BOUND_SLIDING},
    {WEIR_SLIDING_COUNTER, "sliding-counter", "sliding counter", BOUND_WEIGHTED},
};

static const struct settings defaults = {
    .seconds = 10,
    .processes = 4,
    .threads = 2,
    .algorithm = &algorithms[0],
    .rate_per_s = 100000,
    .capacity = 100000,
    .offered = 3,
};
static const char default_budget[] = "10%";

enum option_id {
    OPTION_ALGORITHM = 1,
    OPTION_SECONDS,
    OPTION_PROCESSES,
    OPTION_THREADS,
    OPTION_RATE,
    OPTION_BURST,
    OPTION_BUDGET,
    OPTION_OFFERED,
    OPTION_STORE,
    OPTION_URL,
    OPTION_JSON,
};

static const struct option long_options[] = {
    {"algorithm", required_argument, NULL, OPTION_ALGORITHM},
    {"seconds", required_argument, NULL, OPTION_SECONDS},
    {"processes", required_argument, NULL, OPTION_PROCESSES},
    {"threads", required_argument, NULL, OPTION_THREADS},
    {"rate", required_argument, NULL, OPTION_RATE},
    {"burst", required_argument, NULL, OPTION_BURST},
    {"budget", required_argument, NULL, OPTION_BUDGET},
    {"offered", required_argument, NULL, OPTION_OFFERED},
    {"store", required_argument, NULL, OPTION_STORE},
    {"url", required_argument, NULL, OPTION_URL},
    {"json", no_argument, NULL, OPTION_JSON},
    {NULL, 0, NULL, 0},
};

/* What is wrong with an argument, and room to say so. */
struct complaint {
    char *why;
    size_t size;
};

static bool complain(const struct complaint *complaint, const char *name, const char *wanted,
                     const char *text)
{
    snprintf(complaint->why, complaint->size, "--%s wants %s, not '%s'", name, wanted, text);
    return false;
}

static bool parse_count(const struct complaint *complaint, const char *name, const char *text,
                        uint64_t most, uint64_t *out)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || value == 0 || value > most) {
        char wanted[64];
        snprintf(wanted, sizeof wanted, "a whole number from 1 to %llu", (unsigned long long)most);
        return complain(complaint, name, wanted, text);
    }
    *out = value;
    return true;
}

static bool parse_unsigned(const struct complaint *complaint, const char *name, const char *text,
                           unsigned most, unsigned *out)
{
    uint64_t value;
    if (!parse_count(complaint, name, text, most, &value)) {
        return false;
    }
    *out = (unsigned)value;
    return true;
}

/* Tokens, or a percentage of the capacity. */
static bool parse_budget(const struct complaint *complaint, const char *text, uint64_t capacity,
                         uint64_t *out)
{
    char *end;
    double value = strtod(text, &end);
    if (strcmp(end, "%") == 0) {
        value *= (double)capacity / 100;
        end++;
    }
    /* Without a budget each decision is a call to the store: there is no local tier to show. */
    if (end == text || *end != '\0' || !(value >= 1 && value <= (double)capacity)) {
        return complain(complaint, "budget", "tokens, or percent of the burst: 1 token to 100%",
                        text);
    }
    *out = (uint64_t)value;
    return true;
}

static bool parse_algorithm(const struct complaint *complaint, const char *text,
                            const struct algorithm **out)
{
    for (size_t i = 0; i < sizeof algorithms / sizeof algorithms[0]; i++) {
        if (strcmp(text, algorithms[i].name) == 0) {
            *out = &algorithms[i];
            return true;
        }
    }
    return complain(complaint, "algorithm",
                    "token-bucket, leaky-bucket, fixed-window, sliding-log or sliding-counter",
                    text);
}

static bool parse_offered(const struct complaint *complaint, const char *text, double *out)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= 0.01 && value <= 100)) {
        return complain(complaint, "offered", "a number from 0.01 to 100", text);
    }
    *out = value;
    return true;
}

static bool parse_option(const struct complaint *complaint, struct settings *settings, int id,
                         const char *text, const char **budget)
{
    switch (id) {
    case OPTION_ALGORITHM: return parse_algorithm(complaint, text, &settings->algorithm);
    case OPTION_SECONDS:
        return parse_unsigned(complaint, "seconds", text, SECONDS_MAX, &settings->seconds);
    case OPTION_PROCESSES:
        return parse_unsigned(complaint, "processes", text, PROCESSES_MAX, &settings->processes);
    case OPTION_THREADS:
        return parse_unsigned(complaint, "threads", text, THREADS_MAX, &settings->threads);
    case OPTION_RATE: return parse_count(complaint, "rate", text, RATE_MAX, &settings->rate_per_s);
    case OPTION_BURST:
        return parse_count(complaint, "burst", text, CAPACITY_MAX, &settings->capacity);
    case OPTION_BUDGET: *budget = text; return true;
    case OPTION_OFFERED: return parse_offered(complaint, text, &settings->offered);
    case OPTION_STORE:
        settings->memory = strcmp(text, "memory") == 0;
        return settings->memory || strcmp(text, "redis") == 0 ||
               complain(complaint, "store", "memory or redis", text);
    case OPTION_URL: settings->url = text; return true;
    case OPTION_JSON: settings->json = true; return true;
    default:
        snprintf(complaint->why, complaint->size,
                 "not an option, or without its value: see --help");
        return false;
    }
}

/* The period that makes windows of C tokens admit the rate. */
static bool set_period(struct settings *settings, char *why, size_t why_size)
{
    if (settings->algorithm->bound == BOUND_INTERVAL) {
        return true;
    }
    uint64_t million_tokens = settings->capacity * 1000000;
    settings->period_us = million_tokens / settings->rate_per_s;
    if (million_tokens % settings->rate_per_s != 0 || settings->period_us < PERIOD_LEAST_US) {
        snprintf(why, why_size,
                 "--burst and --rate make periods of %.3f us: a %s wants whole "
                 "microseconds, and %d at least",
                 (double)million_tokens / (double)settings->rate_per_s, settings->algorithm->title,
                 PERIOD_LEAST_US);
        return false;
    }
    return true;
}

bool settings_parse(struct settings *settings, int argc, char **argv, char *why, size_t why_size)
{
    const struct complaint complaint = {.why = why, .size = why_size};
    const char *budget = default_budget;
    *settings = defaults;
    opterr = 0;
    optind = 1;
    int id;
    while ((id = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
        if (!parse_option(&complaint, settings, id, optarg, &budget)) {
            return false;
        }
    }
    if (optind < argc) {
        snprintf(why, why_size, "'%s' is not an option: see --help", argv[optind]);
        return false;
    }
    if (settings->memory && settings->url != NULL) {
        snprintf(why, why_size, "--store memory has no --url");
        return false;
    }
    if (settings->memory) {
        settings->processes = 1; /* the store is the process */
    }
    snprintf(settings->key_prefix, sizeof settings->key_prefix, "weir-demo-%lld-%d",
             (long long)time(NULL), (int)getpid());
    return set_period(settings, why, why_size) &&
           parse_budget(&complaint, budget, settings->capacity, &settings->budget);
}
