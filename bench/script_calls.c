/* SPDX-License-Identifier: MIT */
/*
 * Calls a script as weir does, 64 at once on one connection.  Their CPU is what the server itself
 * counts for EVALSHA (INFO commandstats), so neither this process nor the wire is in it.
 */
#include "script_calls.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/wire.h"

#define PIPELINE 64

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void series_print(const char *name, struct series *series)
{
    int count = series->count;
    qsort(series->runs, (size_t)count, sizeof series->runs[0], by_size);
    printf(", \"%s\": [%.2f, %.2f, %.2f]", name, series->runs[count / 2], series->runs[0],
           series->runs[count - 1]);
}

/* ---- Talking to the store -------------------------------------------------------------------- */

/* One command; NULL with the reason. */
static redisReply *say(redisContext *link, int count, const char **words, const size_t *sizes,
                       char *why, size_t why_size)
{
    redisReply *reply = redisCommandArgv(link, count, words, sizes);
    if (reply == NULL || reply->type == REDIS_REPLY_ERROR) {
        snprintf(why, why_size, "the store: %s", reply != NULL ? reply->str : link->errstr);
        freeReplyObject(reply);
        return NULL;
    }
    return reply;
}

bool script_load(redisContext *link, const char *text, size_t size, char sha[41], char *why,
                 size_t why_size)
{
    const char *words[] = {"SCRIPT", "LOAD", text};
    const size_t sizes[] = {6, 4, size};
    redisReply *reply = say(link, 3, words, sizes, why, why_size);
    if (reply == NULL) {
        return false;
    }
    snprintf(sha, 41, "%s", reply->str);
    freeReplyObject(reply);
    return true;
}

static bool do_words(redisContext *link, int count, const char **words, char *why, size_t why_size)
{
    redisReply *reply = say(link, count, words, NULL, why, why_size);
    freeReplyObject(reply);
    return reply != NULL;
}

static bool start_count(redisContext *link, char *why, size_t why_size)
{
    const char *words[] = {"CONFIG", "RESETSTAT"};
    return do_words(link, 2, words, why, why_size);
}

/* Microseconds an EVALSHA since start_count. */
static bool read_count(redisContext *link, double *us, char *why, size_t why_size)
{
    const char *words[] = {"INFO", "commandstats"};
    redisReply *reply = say(link, 2, words, NULL, why, why_size);
    if (reply == NULL) {
        return false;
    }
    const char *line = strstr(reply->str, "cmdstat_evalsha:");
    const char *at = line != NULL ? strstr(line, "usec_per_call=") : NULL;
    *us = at != NULL ? strtod(at + strlen("usec_per_call="), NULL) : 0;
    freeReplyObject(reply);
    if (at == NULL) {
        snprintf(why, why_size, "the store does not count its commands");
    }
    return at != NULL;
}

static bool bytes_of(redisContext *link, const char *key, double *bytes, char *why, size_t why_size)
{
    const char *words[] = {"MEMORY", "USAGE", key, "SAMPLES", "0"};
    redisReply *reply = say(link, 5, words, NULL, why, why_size);
    *bytes = reply != NULL ? (double)reply->integer : 0;
    freeReplyObject(reply);
    return reply != NULL;
}

static bool forget_all(redisContext *link, char *why, size_t why_size)
{
    const char *words[] = {"FLUSHDB"};
    return do_words(link, 1, words, why, why_size);
}

/* ---- Calls by the thousand ------------------------------------------------------------------- */

static void append(redisContext *link, struct script_caller *caller)
{
    char key[32];
    snprintf(key, sizeof key, "price-%d", (int)(caller->calls % (uint64_t)caller->keys));
    const char *words[ARGUMENTS_MAX + 6] = {"EVALSHA", caller->sha, "1", key};
    size_t sizes[ARGUMENTS_MAX + 6] = {7, 40, 1, strlen(key)};
    int count = 4;
    for (int i = 0; i < caller->arguments; i++, count++) {
        words[count] = caller->argument[i];
        sizes[count] = caller->size[i];
    }
    if (caller->step_us > 0) {
        caller->now_us += caller->step_us;
        snprintf(caller->now, sizeof caller->now, "%" PRId64, caller->now_us);
        words[count] = caller->now;
        sizes[count++] = strlen(caller->now);
    }
    if (caller->named) {
        snprintf(caller->name, sizeof caller->name, "%" PRIu64, caller->calls);
        words[count] = caller->name;
        sizes[count++] = strlen(caller->name);
    }
    caller->calls++;
    redisAppendCommandArgv(link, count, words, sizes);
}

/* An array: a grant, of which something must be; an integer: 1 for allowed. */
static bool granted(const redisReply *reply)
{
    if (reply->type == REDIS_REPLY_INTEGER) {
        return reply->integer == 1;
    }
    return reply->type == REDIS_REPLY_ARRAY && reply->elements == WEIR__GRANT_FIELDS &&
           reply->element[0]->integer + reply->element[1]->integer > 0;
}

static bool call_many(redisContext *link, struct script_caller *caller, int calls, char *why,
                      size_t why_size)
{
    for (int done = 0; done < calls; done += PIPELINE) {
        int batch = calls - done < PIPELINE ? calls - done : PIPELINE;
        for (int i = 0; i < batch; i++) {
            append(link, caller);
        }
        for (int i = 0; i < batch; i++) {
            redisReply *reply = NULL;
            if (redisGetReply(link, (void **)&reply) != REDIS_OK || !granted(reply)) {
                snprintf(why, why_size, "a call was not granted: %s",
                         reply != NULL && reply->type == REDIS_REPLY_ERROR ? reply->str : "");
                freeReplyObject(reply);
                return false;
            }
            freeReplyObject(reply);
        }
    }
    return true;
}

bool script_measure(redisContext *link, struct script_caller *caller, int warm, int calls,
                    struct series *us, double *bytes, char *why, size_t why_size)
{
    return forget_all(link, why, why_size) && call_many(link, caller, warm, why, why_size) &&
           start_count(link, why, why_size) && call_many(link, caller, calls, why, why_size) &&
           read_count(link, &us->runs[us->count++], why, why_size) &&
           bytes_of(link, "price-0", bytes, why, why_size);
}
