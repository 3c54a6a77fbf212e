/* SPDX-License-Identifier: MIT */
/* See fixture.h. */
#include "api/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <time.h>
#include <pthread.h>
#include <unistd.h>

#include <cmocka.h>
#include <hiredis/hiredis.h>

#include "script/server.h"

void hand_clock_set(struct hand_clock *clock, int64_t us)
{
    __atomic_store_n(&clock->ns, (uint64_t)us * 1000, __ATOMIC_RELAXED);
}

uint64_t hand_clock_ns(void *clock)
{
    return __atomic_load_n(&((struct hand_clock *)clock)->ns, __ATOMIC_RELAXED);
}

int64_t real_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * SECOND + now.tv_nsec / 1000;
}

void pause_us(unsigned us) { usleep(us); }

struct weir *open_with(const struct weir_options *options)
{
    struct weir *weir;
    struct weir_error error = {0};
    if (weir_open(&weir, options, &error) != WEIR_OK) {
        fail_msg("weir_open: %s", error.text);
    }
    return weir;
}

struct weir *open_inprocess(struct hand_clock *clock)
{
    struct weir_options options;
    weir_options_init(&options, sizeof(options));
    if (clock != NULL) {
        options.clock_ns = hand_clock_ns;
        options.clock_arg = clock;
    }
    return open_with(&options);
}

struct weir_options store_options(const char *url)
{
    struct weir_options options;
    weir_options_init(&options, sizeof(options));
    options.url = url;
    options.ask_timeout_ms = 1000;
    return options;
}

void url_of(const struct server *server, char url[128])
{
    snprintf(url, 128, "unix://%s", server->socket);
}

struct weir *open_store(const struct server *server)
{
    char url[128];
    url_of(server, url);
    struct weir_options options = store_options(url);
    return open_with(&options);
}

struct weir_limit_options limit_options(const char *name, uint64_t rate, int64_t period_us,
                                        uint64_t capacity, uint64_t budget)
{
    struct weir_limit_options options;
    weir_limit_options_init(&options, sizeof(options));
    options.name = name;
    options.rate_tokens = rate;
    options.rate_period_us = (uint64_t)period_us;
    options.capacity_tokens = capacity;
    options.budget_tokens = budget;
    return options;
}

struct weir_limit *define_with(struct weir *weir, const struct weir_limit_options *options)
{
    struct weir_limit *limit;
    struct weir_error error = {0};
    if (weir_limit_define(weir, &limit, options, &error) != WEIR_OK) {
        fail_msg("weir_limit_define: %s", error.text);
    }
    return limit;
}

struct weir_limit *define(struct weir *weir, const char *name, uint64_t rate, int64_t period_us,
                          uint64_t capacity, uint64_t budget)
{
    struct weir_limit_options options = limit_options(name, rate, period_us, capacity, budget);
    return define_with(weir, &options);
}

struct weir_bucket *get(struct weir_limit *limit, const char *key)
{
    struct weir_bucket *bucket;
    assert_int_equal(weir_bucket_get(limit, key, strlen(key), &bucket), WEIR_OK);
    return bucket;
}

void drop(struct weir_claim *claims, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        weir_bucket_unref(claims[i].bucket);
    }
}

struct weir_stats stats_of(struct weir *weir)
{
    struct weir_stats stats = {.size = sizeof(stats)};
    assert_int_equal(weir_stats_read(weir, &stats), WEIR_OK);
    return stats;
}

void assert_conserved(const struct weir_stats *s)
{
    assert_int_equal(s->leased, s->lease_spent + s->held + s->given_back + s->expired);
}

struct server *store_start(void)
{
    struct server *server = calloc(1, sizeof(*server));
    assert_non_null(server);
    if (server_start(server) != 0) {
        free(server);
        fail_msg("redis-server did not start");
    }
    return server;
}

void store_stop(struct server *server)
{
    server_stop(server);
    free(server);
}

long long store_do(const struct server *server, const char *format, ...)
{
    redisContext *context = redisConnectUnix(server->socket);
    assert_non_null(context);
    assert_int_equal(context->err, 0);
    va_list arguments;
    va_start(arguments, format);
    redisReply *reply = redisvCommand(context, format, arguments);
    va_end(arguments);
    assert_non_null(reply);
    if (reply->type == REDIS_REPLY_ERROR) {
        fail_msg("%s: %s", format, reply->str);
    }
    long long number = reply->type == REDIS_REPLY_INTEGER ? reply->integer
                       : reply->type == REDIS_REPLY_ARRAY ? (long long)reply->elements
                                                          : 0;
    freeReplyObject(reply);
    redisFree(context);
    return number;
}

static unsigned answers_so_far; /* atomic */

static void on_answer(void *arg, const struct weir_result *result)
{
    struct answer *answer = arg;
    answer->called_inside = __atomic_load_n(&answer->inside, __ATOMIC_ACQUIRE) &&
                            pthread_self() == (pthread_t)answer->caller;
    answer->thread = (uint64_t)pthread_self();
    answer->order = __atomic_add_fetch(&answers_so_far, 1, __ATOMIC_RELAXED);
    answer->at_us = real_us();
    answer->result = *result;
    __atomic_add_fetch(&answer->count, 1, __ATOMIC_RELEASE);
}

int ask(struct answer *answer, struct weir_bucket *bucket, uint64_t cost, int64_t timeout_us,
        struct weir_result *result)
{
    *answer = (struct answer){.inside = true, .caller = (uint64_t)pthread_self()};
    int code = weir_acquire(bucket, cost, (uint64_t)timeout_us, on_answer, answer, result);
    __atomic_store_n(&answer->inside, false, __ATOMIC_RELEASE);
    return code;
}

bool answered(const struct answer *answer)
{
    unsigned count = __atomic_load_n(&answer->count, __ATOMIC_ACQUIRE);
    assert_true(count <= 1);
    return count == 1;
}
