/* SPDX-License-Identifier: MIT */
/*
 * A connection beside weir's own: for the peer that calls the store once a decision, and for asking
 * the store what it has used.  The address is read as the library reads it.
 */
#include "store_link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/url.h"

/* Sends one command and tells whether it went well. */
static bool say(redisContext *link, int words, const char **word)
{
    redisReply *reply = redisCommandArgv(link, words, word, NULL);
    bool well = reply != NULL && reply->type != REDIS_REPLY_ERROR;
    freeReplyObject(reply);
    return well;
}

static bool log_in(redisContext *link, const struct weir__endpoint *endpoint)
{
    if (endpoint->password[0] != '\0') {
        const char *with_user[] = {"AUTH", endpoint->user, endpoint->password};
        const char *without[] = {"AUTH", endpoint->password};
        bool has_user = endpoint->user[0] != '\0';
        if (!say(link, has_user ? 3 : 2, has_user ? with_user : without)) {
            return false;
        }
    }
    char db[16];
    snprintf(db, sizeof db, "%u", endpoint->db);
    const char *select[] = {"SELECT", db};
    return endpoint->db == 0 || say(link, 2, select);
}

redisContext *store_link_open(const char *url, char *why, size_t why_size)
{
    struct weir__endpoint endpoint;
    struct weir_error error;
    if (weir__url_read(&endpoint, url, &error) != WEIR_OK) {
        snprintf(why, why_size, "%s", error.text);
        return NULL;
    }
    redisContext *link = endpoint.path[0] != '\0' ? redisConnectUnix(endpoint.path)
                                                  : redisConnect(endpoint.host, endpoint.port);
    if (link == NULL || link->err != 0) {
        snprintf(why, why_size, "no connection to the store: %s",
                 link != NULL ? link->errstr : "no memory");
    } else if (!log_in(link, &endpoint)) {
        snprintf(why, why_size, "the store does not let us in");
    } else {
        return link;
    }
    if (link != NULL) {
        redisFree(link);
    }
    return NULL;
}

static double number_after(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at != NULL ? strtod(at + strlen(name), NULL) : -1;
}

double store_link_cpu_s(redisContext *link)
{
    double cpu_s = -1;
    redisReply *reply = redisCommand(link, "INFO cpu");
    if (reply != NULL && reply->type == REDIS_REPLY_STRING) {
        double system_s = number_after(reply->str, "used_cpu_sys:");
        double user_s = number_after(reply->str, "used_cpu_user:");
        cpu_s = system_s >= 0 && user_s >= 0 ? system_s + user_s : -1;
    }
    freeReplyObject(reply);
    return cpu_s;
}
