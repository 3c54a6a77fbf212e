/* SPDX-License-Identifier: MIT */
/*
 * The peer: a token bucket in one short Lua script, called once for each decision over a blocking
 * connection that each thread has for itself.  It is as exact as can be, and its price is the
 * point; that of a call differs little from one algorithm to another, so it is the same for all.
 */
#include "naive_trade.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store_link.h"

/* KEYS: the bucket.  ARGV: rate per second, capacity, milliseconds to fill. */
static const char script[] =
    "local time = redis.call('TIME')\n"
    "local now = time[1] + time[2] / 1000000\n"
    "local bucket = redis.call('HMGET', KEYS[1], 'tokens', 'at')\n"
    "local rate, capacity = tonumber(ARGV[1]), tonumber(ARGV[2])\n"
    "local tokens = tonumber(bucket[1]) or capacity\n"
    "local at = tonumber(bucket[2]) or now\n"
    "tokens = math.min(capacity, tokens + math.max(0, now - at) * rate)\n"
    "local allowed = tokens >= 1\n"
    "if allowed then tokens = tokens - 1 end\n"
    "redis.call('HSET', KEYS[1], 'tokens', string.format('%.6f', tokens),\n"
    "    'at', string.format('%.6f', now))\n"
    "redis.call('PEXPIRE', KEYS[1], ARGV[3])\n"
    "return allowed and 1 or 0\n";

struct naive_state {
    unsigned links;
    redisContext *link[THREADS_MAX];
    char sha[41];
    char key[64];
    char rate[24], capacity[24], fill_ms[24];
};

static void discard(struct naive_state *state)
{
    for (unsigned i = 0; i < state->links; i++) {
        redisFree(state->link[i]);
    }
    free(state);
}

static bool load_script(struct naive_state *state, struct process_report *report)
{
    redisReply *reply = redisCommand(state->link[0], "SCRIPT LOAD %s", script);
    bool loaded = reply != NULL && reply->type == REDIS_REPLY_STRING && reply->len == 40;
    if (loaded) {
        memcpy(state->sha, reply->str, sizeof state->sha);
    } else {
        snprintf(report->why, sizeof report->why, "the plain script does not load");
    }
    freeReplyObject(reply);
    return loaded;
}

static void *naive_trade_open(const struct settings *settings, const char *url, unsigned process,
                              struct process_report *report)
{
    (void)process;
    struct naive_state *state = calloc(1, sizeof *state);
    if (state == NULL) {
        snprintf(report->why, sizeof report->why, "no memory");
        return NULL;
    }
    snprintf(state->key, sizeof state->key, "%s:naive", settings->key_prefix);
    snprintf(state->rate, sizeof state->rate, "%" PRIu64, settings->rate_per_s);
    snprintf(state->capacity, sizeof state->capacity, "%" PRIu64, settings->capacity);
    snprintf(state->fill_ms, sizeof state->fill_ms, "%" PRIu64,
             settings->capacity * 1000 / settings->rate_per_s + 1);
    while (state->links < settings->threads) {
        redisContext *link = store_link_open(url, report->why, sizeof report->why);
        if (link == NULL) {
            discard(state);
            return NULL;
        }
        state->link[state->links++] = link;
    }
    if (!load_script(state, report)) {
        discard(state);
        return NULL;
    }
    return state;
}

static enum outcome naive_trade_decide(void *arg, unsigned thread)
{
    const struct naive_state *state = arg;
    redisReply *reply = redisCommand(state->link[thread], "EVALSHA %s 1 %s %s %s %s", state->sha,
                                     state->key, state->rate, state->capacity, state->fill_ms);
    enum outcome outcome = reply == NULL || reply->type != REDIS_REPLY_INTEGER ? OUTCOME_FAILED
                           : reply->integer == 1                               ? OUTCOME_ALLOWED
                                                                               : OUTCOME_DENIED;
    freeReplyObject(reply);
    return outcome;
}

static void naive_trade_close(void *arg, struct process_report *report)
{
    (void)report;
    discard(arg);
}

const struct trade naive_trade = {
    .open = naive_trade_open,
    .decide = naive_trade_decide,
    .close = naive_trade_close,
};
