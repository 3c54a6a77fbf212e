/* SPDX-License-Identifier: MIT */
#ifndef WEIR_TESTS_REAL_STORE_H
#define WEIR_TESTS_REAL_STORE_H

#include <hiredis/hiredis.h>

#include "core/ask.h"
#include "core/wire.h"

#include "server.h"

/* The shipped script on a real server, asked by hand.  Whatever goes wrong fails the test. */

struct real_store {
    struct server server;
    redisContext *redis;
};

/* Returns 0, or -1 with a message when there is no server.  One at a time. */
int real_store_start(struct real_store *store);
void real_store_stop(struct real_store *store);

/* No keys, no bound of memory, a new connection without a name; the shipped script is loaded. */
void real_store_clear(struct real_store *store);

/* A command that must not fail. */
void store_run(struct real_store *store, const char *format, ...);

/* The integer that a command about a key answers. */
long long store_number(struct real_store *store, const char *format, const char *key);

/* Has the server know a script by its `sha1`. */
void store_load(struct real_store *store, const char *source, char sha1[41]);

/* EVALSHA with what a client would send, and the time unless it is OWN_TIME. */
#define OWN_TIME (-1)
redisReply *store_eval(struct real_store *store, const char *sha1, const char *key,
                       const struct weir__rule *rule, const struct weir__ask *ask, int64_t now_us);

/* The numbers of a grant.  Frees the reply. */
void store_values(redisReply *reply, int64_t values[WEIR__GRANT_FIELDS]);

/* The shipped script by the server's clock; the grant is one that core/wire believes. */
struct weir__grant store_ask(struct real_store *store, const char *key,
                             const struct weir__rule *rule, const struct weir__ask *ask);

/* Fails unless the reply is an error that begins so.  Frees it. */
void store_assert_error(redisReply *reply, const char *first_word);

#endif
