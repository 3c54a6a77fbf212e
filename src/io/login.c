/* SPDX-License-Identifier: MIT */
/*
 * The log-in: AUTH, SELECT, and SCRIPT LOAD for each script, each only where it is needed.  All
 * steps leave in one write, so that a log-in takes one round trip.
 *
 * Not in the path of a token, but for one: a script that the store has lost is loaded again by its
 * step.
 *
 * Each reply is held against what it must be.  SCRIPT LOAD must return the SHA-1 that the calls
 * will use: a proxy that changes the source would else show only as endless NOSCRIPT.
 *
 * An error of AUTH is told by its first word only.  Where AUTH has been renamed away the server
 * quotes the unknown command with its arguments, and the password would stand in the log.
 */
#include "io/login.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <hiredis/hiredis.h>

#include "base/check.h"

size_t weir__login_plan(struct weir__login_step steps[WEIR__LOGIN_STEPS_MAX],
                        const struct weir__endpoint *endpoint,
                        const struct weir__script *const *scripts)
{
    size_t count = 0;
    if (endpoint->password[0] != '\0') {
        steps[count++] = (struct weir__login_step){.kind = WEIR__LOGIN_AUTH};
    }
    if (endpoint->db != 0) {
        steps[count++] = (struct weir__login_step){.kind = WEIR__LOGIN_SELECT};
    }
    for (; *scripts != NULL; scripts++) {
        WEIR__ASSERT(count < WEIR__LOGIN_STEPS_MAX);
        steps[count++] = (struct weir__login_step){.kind = WEIR__LOGIN_LOAD, .script = *scripts};
    }
    return count;
}

static int auth_words(const struct weir__endpoint *endpoint, const char *argv[3])
{
    int argc = 0;
    argv[argc++] = "AUTH";
    if (endpoint->user[0] != '\0') {
        argv[argc++] = endpoint->user; /* Redis 6 and later */
    }
    argv[argc++] = endpoint->password;
    return argc;
}

bool weir__login_send(struct weir__login_step *step, const struct weir__endpoint *endpoint,
                      struct weir__uvredis *link, void *tag, uint64_t *end)
{
    char db[11]; /* of a uint32_t */
    const char *argv[3] = {"SCRIPT", "LOAD", NULL};
    size_t len[3];
    int argc = 0;

    switch (step->kind) {
    case WEIR__LOGIN_AUTH: argc = auth_words(endpoint, argv); break;
    case WEIR__LOGIN_SELECT:
        snprintf(db, sizeof(db), "%" PRIu32, endpoint->db);
        argv[0] = "SELECT";
        argv[1] = db;
        argc = 2;
        break;
    case WEIR__LOGIN_LOAD:
        argv[2] = step->script->source;
        argc = 3;
        break;
    }
    for (int i = 0; i < argc; i++) {
        len[i] = strlen(argv[i]);
    }
    if (step->kind == WEIR__LOGIN_LOAD) {
        len[2] = step->script->source_len;
    }
    step->open = weir__uvredis_send(link, tag, argc, argv, len, end);
    return step->open;
}

static void explain_error(const struct weir__login_step *step, const struct redisReply *reply,
                          char why[WEIR__REPLY_TEXT_MAX])
{
    char text[WEIR__REPLY_TEXT_MAX];
    weir__reply_text(text, reply->str, reply->len);
    switch (step->kind) {
    case WEIR__LOGIN_AUTH:
        text[strcspn(text, " ")] = '\0';
        snprintf(why, WEIR__REPLY_TEXT_MAX, "AUTH was answered %.100s", text);
        break;
    case WEIR__LOGIN_SELECT: snprintf(why, WEIR__REPLY_TEXT_MAX, "SELECT: %.140s", text); break;
    case WEIR__LOGIN_LOAD:
        snprintf(why, WEIR__REPLY_TEXT_MAX, "SCRIPT LOAD of %.20s: %.110s", step->script->name,
                 text);
        break;
    }
}

static bool is_text(const struct redisReply *reply, int type, const char *text)
{
    return reply->type == type && reply->len == strlen(text) &&
           memcmp(reply->str, text, reply->len) == 0;
}

bool weir__login_check(struct weir__login_step *step, const struct redisReply *reply,
                       char why[WEIR__REPLY_TEXT_MAX])
{
    step->open = false;
    if (reply->type == REDIS_REPLY_ERROR) {
        explain_error(step, reply, why);
        return false;
    }
    if (step->kind == WEIR__LOGIN_LOAD) {
        if (!is_text(reply, REDIS_REPLY_STRING, step->script->sha1)) {
            snprintf(why, WEIR__REPLY_TEXT_MAX,
                     "SCRIPT LOAD of %.20s: not the SHA-1 of what was sent", step->script->name);
            return false;
        }
        return true;
    }
    if (!is_text(reply, REDIS_REPLY_STATUS, "OK")) {
        snprintf(why, WEIR__REPLY_TEXT_MAX, "%s was not answered OK",
                 step->kind == WEIR__LOGIN_AUTH ? "AUTH" : "SELECT");
        return false;
    }
    return true;
}
