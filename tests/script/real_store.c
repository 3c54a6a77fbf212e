/* SPDX-License-Identifier: MIT */
/* A connection of the plain blocking kind: what is tested here is the script, not the client. */
#include "real_store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "io/conn.h"

int real_store_start(struct real_store *store)
{
    store->redis = NULL;
    if (server_start(&store->server) != 0) {
        print_error("%s does not start: is it installed?\n", server_program());
        return -1;
    }
    real_store_clear(store);
    return 0;
}

void real_store_stop(struct real_store *store)
{
    if (store->redis != NULL) {
        redisFree(store->redis);
    }
    server_stop(&store->server);
}

void real_store_clear(struct real_store *store)
{
    if (store->redis != NULL) {
        redisFree(store->redis);
    }
    store->redis = redisConnectUnix(store->server.socket);
    assert_non_null(store->redis);
    assert_int_equal(store->redis->err, 0);
    store_run(store, "CONFIG SET maxmemory 0");
    store_run(store, "FLUSHALL");
    char sha1[41];
    store_load(store, weir__script_lease.source, sha1);
    assert_string_equal(sha1, weir__script_lease.sha1);
}

void store_load(struct real_store *store, const char *source, char sha1[41])
{
    redisReply *reply = redisCommand(store->redis, "SCRIPT LOAD %s", source);
    assert_non_null(reply);
    assert_int_equal(reply->type, REDIS_REPLY_STRING);
    snprintf(sha1, 41, "%s", reply->str);
    freeReplyObject(reply);
}

long long store_number(struct real_store *store, const char *format, const char *key)
{
    redisReply *reply = redisCommand(store->redis, format, key);
    assert_non_null(reply);
    assert_int_equal(reply->type, REDIS_REPLY_INTEGER);
    long long value = reply->integer;
    freeReplyObject(reply);
    return value;
}

void store_run(struct real_store *store, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    redisReply *reply = redisvCommand(store->redis, format, list);
    va_end(list);
    assert_non_null(reply);
    if (reply->type == REDIS_REPLY_ERROR) {
        fail_msg("%s: %s", format, reply->str);
    }
    freeReplyObject(reply);
}

redisReply *store_eval(struct real_store *store, const char *sha1, const char *key,
                       const struct weir__rule *rule, const struct weir__ask *ask, int64_t now_us)
{
    unsigned char rule_bytes[WEIR__RULE_BYTES];
    unsigned char ask_bytes[WEIR__ASK_BYTES];
    weir__wire_pack_rule(rule_bytes, rule);
    weir__wire_pack_ask(ask_bytes, ask);
    redisReply *reply;
    if (now_us != OWN_TIME) {
        reply = redisCommand(store->redis, "EVALSHA %s 1 %s %b %b %lld", sha1, key, rule_bytes,
                             sizeof rule_bytes, ask_bytes, sizeof ask_bytes, (long long)now_us);
    } else {
        reply = redisCommand(store->redis, "EVALSHA %s 1 %s %b %b", sha1, key, rule_bytes,
                             sizeof rule_bytes, ask_bytes, sizeof ask_bytes);
    }
    assert_non_null(reply);
    return reply;
}

void store_values(redisReply *reply, int64_t values[WEIR__GRANT_FIELDS])
{
    if (reply->type == REDIS_REPLY_ERROR) {
        fail_msg("%s", reply->str);
    }
    assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
    assert_int_equal(reply->elements, WEIR__GRANT_FIELDS);
    for (size_t i = 0; i < WEIR__GRANT_FIELDS; i++) {
        assert_int_equal(reply->element[i]->type, REDIS_REPLY_INTEGER);
        values[i] = reply->element[i]->integer;
    }
    freeReplyObject(reply);
}

struct weir__grant store_ask(struct real_store *store, const char *key,
                             const struct weir__rule *rule, const struct weir__ask *ask)
{
    int64_t values[WEIR__GRANT_FIELDS];
    struct weir__grant grant;
    store_values(store_eval(store, weir__script_lease.sha1, key, rule, ask, OWN_TIME), values);
    assert_true(weir__wire_read_grant(&grant, values, WEIR__GRANT_FIELDS, rule, ask));
    return grant;
}

void store_assert_error(redisReply *reply, const char *first_word)
{
    assert_non_null(reply);
    assert_int_equal(reply->type, REDIS_REPLY_ERROR);
    if (strncmp(reply->str, first_word, strlen(first_word)) != 0) {
        fail_msg("expected %s, got: %s", first_word, reply->str);
    }
    freeReplyObject(reply);
}
