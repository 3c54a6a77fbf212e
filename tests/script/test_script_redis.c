/* SPDX-License-Identifier: MIT */
/*
 * lua/token_bucket.lua on a real Redis.  First bit for bit against C, with the one line that
 * reads the clock exchanged for an argument and the expiry moved far away, so that the server's
 * own clock has no say; then the script as it ships: expiry, looks, full memory, foreign values,
 * wrong arguments, rights.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <hiredis/hiredis.h>

#include "core/algorithms/token_bucket.h"
#include "core/rule.h"
#include "core/wire.h"
#include "io/conn.h"

#include "random_asks.h"
#include "server.h"
#include "stored_bucket.h"

#define SEQUENCES 500
#define STEPS 20
#define MS INT64_C(1000)
#define FAR_AWAY_MS INT64_C(1000000000000) /* 31 years: no key of a test gets that old */
#define PATIENCE_MS 60000                  /* between a call and the look at its expiry */

static struct server server;
static redisContext *redis;

static int set_up(void **state)
{
    (void)state;
    if (server_start(&server) != 0) {
        print_error("redis-server does not start: is it installed?\n");
        return -1;
    }
    redis = redisConnectUnix(server.socket);
    return redis == NULL || redis->err != 0;
}

static int tear_down(void **state)
{
    (void)state;
    redisFree(redis);
    server_stop(&server);
    return 0;
}

static int empty(void **state)
{
    (void)state;
    freeReplyObject(redisCommand(redis, "CONFIG SET maxmemory 0"));
    freeReplyObject(redisCommand(redis, "FLUSHALL"));
    return 0;
}

/* The integer a command answers. */
static long long number(const char *command, const char *key)
{
    redisReply *reply = redisCommand(redis, command, key);
    assert_non_null(reply);
    assert_int_equal(reply->type, REDIS_REPLY_INTEGER);
    long long value = reply->integer;
    freeReplyObject(reply);
    return value;
}

static void run(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    redisReply *reply = redisvCommand(redis, format, list);
    va_end(list);
    assert_non_null(reply);
    if (reply->type == REDIS_REPLY_ERROR) {
        fail_msg("%s: %s", format, reply->str);
    }
    freeReplyObject(reply);
}

/* EVAL of `source` with what a client would send, and the clock as a third argument. */
static redisReply *eval(const char *source, const char *key, const struct weir__rule *rule,
                        const struct weir__ask *ask, int64_t now_us)
{
    unsigned char rule_bytes[WEIR__RULE_BYTES];
    unsigned char ask_bytes[WEIR__ASK_BYTES];
    weir__wire_pack_rule(rule_bytes, rule);
    weir__wire_pack_ask(ask_bytes, ask);
    redisReply *reply = redisCommand(redis, "EVAL %s 1 %s %b %b %lld", source, key, rule_bytes,
                                     sizeof rule_bytes, ask_bytes, sizeof ask_bytes,
                                     (long long)now_us);
    assert_non_null(reply);
    return reply;
}

static void read_values(const redisReply *reply, int64_t values[WEIR__GRANT_FIELDS])
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
}

/* The shipped script with its own clock; the grant must be one that core/wire believes. */
static struct weir__grant ask_store(const char *key, const struct weir__rule *rule,
                                    const struct weir__ask *ask)
{
    int64_t values[WEIR__GRANT_FIELDS];
    struct weir__grant grant;
    redisReply *reply = eval(weir__script_token_bucket.source, key, rule, ask, 0);
    read_values(reply, values);
    assert_true(weir__wire_read_grant(&grant, values, WEIR__GRANT_FIELDS, rule, ask));
    freeReplyObject(reply);
    return grant;
}

/* The error the shipped script ends with. */
static void assert_error(redisReply *reply, const char *first_word)
{
    assert_int_equal(reply->type, REDIS_REPLY_ERROR);
    if (strncmp(reply->str, first_word, strlen(first_word)) != 0) {
        fail_msg("expected %s, got: %s", first_word, reply->str);
    }
    freeReplyObject(reply);
}

static struct weir__rule rule_of(uint64_t per_s, uint64_t capacity, int64_t budget)
{
    struct weir__rule rule = {.version = 1, .budget = budget, .window_us = 1000 * MS};
    uint64_t largest;
    assert_true(weir__rule_set_rate(&rule, per_s, 1000000, capacity, &largest));
    rule.initial = rule.capacity;
    return rule;
}

static const struct weir__ask nothing = {
    .least = 1,
    .heard = WEIR__NO_WINDOW,
    .settle = {{WEIR__NO_WINDOW, 0, 0}, {WEIR__NO_WINDOW, 0, 0}}};

/* ---- Bit for bit --------------------------------------------------------------------------- */

/* `source` with the only occurrence of `from` exchanged; the caller frees it. */
static char *exchange(const char *source, const char *from, const char *to)
{
    const char *at = strstr(source, from);
    assert_non_null(at);
    assert_null(strstr(at + 1, from));
    size_t size = strlen(source) + strlen(to) + 1;
    char *out = malloc(size);
    assert_non_null(out);
    snprintf(out, size, "%.*s%s%s", (int)(at - source), source, to, at + strlen(from));
    return out;
}

static char *script_with_our_clock(void)
{
    char later[64];
    snprintf(later, sizeof later, "ceil(life / 1000) + 1 + %lld)", (long long)FAR_AWAY_MS);
    char *clock = exchange(weir__script_token_bucket.source, "call('TIME')", "{0, ARGV[3]}");
    char *both = exchange(clock, "ceil(life / 1000) + 1)", later);
    free(clock);
    return both;
}

/* A look (`written` false) leaves the expiry where it was, which time has moved away from since. */
static bool same_state(const struct weir__token_bucket *bucket, int64_t now_us, bool written,
                       char why[160])
{
    if (number("EXISTS %s", "k") != bucket->exists) {
        snprintf(why, 160, "only one of both has the key");
        return false;
    }
    if (!bucket->exists) {
        return true;
    }
    long long left_ms = (bucket->expires_us - now_us) / MS;
    long long ttl_ms = number("PTTL %s", "k") - FAR_AWAY_MS;
    if (written && (ttl_ms < left_ms - PATIENCE_MS || ttl_ms > left_ms)) {
        snprintf(why, 160, "expiry: C %lld ms, Redis %lld ms", left_ms, ttl_ms);
        return false;
    }
    redisReply *fields = redisCommand(redis, "HMGET k l t r a");
    struct stored_bucket stored = {.level = {NULL, 0}};
    stored.level.data = fields->element[0]->str;
    stored.level.len = (size_t)fields->element[0]->len;
    stored.stamp.data = fields->element[1]->str;
    stored.stamp.len = (size_t)fields->element[1]->len;
    stored.rule.data = fields->element[2]->str;
    stored.rule.len = (size_t)fields->element[2]->len;
    stored.account.data = fields->element[3]->str;
    stored.account.len = (size_t)fields->element[3]->len;
    bool equal = stored_bucket_equals(&stored, bucket, why);
    freeReplyObject(fields);
    return equal;
}

static void run_sequence(const char *source, uint64_t seed)
{
    struct random_asks random;
    struct weir__token_bucket bucket = {.exists = false};
    random_asks_begin(&random, seed);
    run("DEL k");
    for (int step = 0; step < STEPS; step++) {
        struct weir__ask ask;
        struct weir__grant grant;
        int64_t values[WEIR__GRANT_FIELDS];
        char why[160] = "";
        random_asks_next(&random, &ask);
        if (random.now_us >= bucket.expires_us) {
            run("DEL k");
        }
        weir__token_bucket_ask(&bucket, &random.rule, &ask, random.now_us, &grant);
        redisReply *reply = eval(source, "k", &random.rule, &ask, random.now_us);
        read_values(reply, values);
        freeReplyObject(reply);
        if (!grants_equal(&grant, values, WEIR__GRANT_FIELDS, why) ||
            !same_state(&bucket, random.now_us, !ask.peek, why)) {
            fail_msg("sequence %llu, step %d: %s", (unsigned long long)seed, step, why);
        }
        random_asks_heard(&random, &grant);
    }
}

static void test_same_as_c(void **state)
{
    (void)state;
    uint64_t seed = random_asks_seed(1);
    uint64_t count = random_asks_count(SEQUENCES);
    print_message("WEIR_SEED=%llu WEIR_STEPS=%llu\n", (unsigned long long)seed,
                  (unsigned long long)count);
    char *source = script_with_our_clock();
    for (uint64_t i = 0; i < count; i++) {
        run_sequence(source, seed + i);
    }
    free(source);
}

/* ---- As it ships --------------------------------------------------------------------------- */

static void test_r4_key_outlives_its_windows(void **state)
{
    (void)state;
    struct weir__rule rule = rule_of(1000, 10, 10); /* full in 10 ms, windows of 1 s */
    struct weir__ask ask = nothing;
    ask.want = 4;
    assert_int_equal(ask_store("k", &rule, &ask).lease, 4);
    long long left_ms = number("PTTL %s", "k");
    assert_in_range(left_ms, 1000, 2002);
}

static void test_b16_every_key_has_an_expiry(void **state)
{
    (void)state;
    static const uint64_t rates[] = {3, 1000, 1000000000};
    for (size_t i = 0; i < 3; i++) {
        struct weir__rule rule = rule_of(rates[i], 1, 0);
        rule.version = (int64_t)i + 1;
        struct weir__ask ask = nothing;
        ask.exact = 1;
        ask_store("k", &rule, &ask);
        assert_true(number("PTTL %s", "k") != -1);
    }
    struct weir__rule slow = rule_of(1, 1000, 0);
    struct weir__ask all = nothing;
    all.exact = 1000;
    assert_int_equal(ask_store("slow", &slow, &all).exact, 1000);
    assert_in_range(number("PTTL %s", "slow"), 999000, 1000001);
    assert_int_equal(ask_store("slow", &slow, &all).exact, 0); /* a refusal renews it as well */
    assert_in_range(number("PTTL %s", "slow"), 990000, 1000001);
}

static void test_b24_key_without_expiry_is_mended(void **state)
{
    (void)state;
    struct weir__rule rule = rule_of(1, 10, 5);
    struct weir__ask ask = nothing;
    ask.exact = 10;
    assert_int_equal(ask_store("k", &rule, &ask).exact, 10);
    run("PERSIST k");
    assert_int_equal(number("PTTL %s", "k"), -1);
    ask.exact = 1;
    struct weir__grant grant = ask_store("k", &rule, &ask);
    assert_true(number("PTTL %s", "k") > 0);
    if (grant.exact == 0) { /* it will be let in once a token is there */
        assert_in_range(grant.retry_after_us, 1, 1000000);
    }
}

static void test_look_changes_nothing(void **state)
{
    (void)state;
    struct weir__rule rule = rule_of(1, 10, 5);
    struct weir__ask look = nothing;
    look.peek = true;
    assert_int_equal(ask_store("k", &rule, &look).remaining, 10);
    assert_int_equal(number("EXISTS %s", "k"), 0);

    struct weir__ask ask = nothing;
    ask.want = 2;
    assert_int_equal(ask_store("k", &rule, &ask).lease, 2);
    run("PERSIST k");
    assert_int_equal(ask_store("k", &rule, &look).outstanding, 2);
    assert_int_equal(number("PTTL %s", "k"), -1);
}

static void test_r1_no_account_without_budget(void **state)
{
    (void)state;
    struct weir__rule rule = rule_of(1, 10, 0);
    struct weir__ask ask = nothing;
    ask.exact = 1;
    assert_int_equal(ask_store("k", &rule, &ask).exact, 1);
    assert_int_equal(number("HLEN %s", "k"), 3);
    rule.version++;
    rule.budget = 5;
    assert_int_equal(ask_store("k", &rule, &ask).exact, 1);
    assert_int_equal(number("HLEN %s", "k"), 4);
    rule.version++;
    rule.budget = 0;
    assert_int_equal(ask_store("k", &rule, &ask).exact, 1);
    assert_int_equal(number("HSTRLEN %s a", "k"), 0);
}

static void test_b26_full_memory_writes_nothing(void **state)
{
    (void)state;
    struct weir__rule rule = rule_of(1, 10, 5);
    struct weir__ask ask = nothing;
    ask.want = 2;
    assert_int_equal(ask_store("old", &rule, &ask).lease, 2);
    run("PERSIST old");
    redisReply *before = redisCommand(redis, "HMGET old l t r a");
    run("CONFIG SET maxmemory 1");
    rule.version = 2;
    assert_error(eval(weir__script_token_bucket.source, "new", &rule, &ask, 0), "OOM");
    assert_error(eval(weir__script_token_bucket.source, "old", &rule, &ask, 0), "OOM");
    run("CONFIG SET maxmemory 0");
    assert_int_equal(number("EXISTS %s", "new"), 0);
    assert_int_equal(number("PTTL %s", "old"), -1);
    redisReply *after = redisCommand(redis, "HMGET old l t r a");
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(after->element[i]->len, before->element[i]->len);
        assert_memory_equal(after->element[i]->str, before->element[i]->str,
                            (size_t)before->element[i]->len);
    }
    freeReplyObject(before);
    freeReplyObject(after);
}

static void test_wrong_type(void **state)
{
    (void)state;
    struct weir__rule rule = rule_of(1, 10, 5);
    run("SET k something");
    assert_error(eval(weir__script_token_bucket.source, "k", &rule, &nothing, 0), "WRONGTYPE");
    run("GET k");
}

static void test_wrong_arguments(void **state)
{
    (void)state;
    static const char *const tails[] = {"0", "1 k", "1 k r", "1 k r a", "2 k l r a", "0 r a"};
    const char *source = weir__script_token_bucket.source;
    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++) {
        char format[32];
        snprintf(format, sizeof format, "EVAL %%s %s", tails[i]);
        assert_error(redisCommand(redis, format, source), "WEIRARG");
    }
    char rule[WEIR__RULE_BYTES + 1] = {0};
    char ask[WEIR__ASK_BYTES + 1] = {0};
    assert_error(redisCommand(redis, "EVAL %s 1 k %b %b", source, rule, sizeof rule, ask,
                              (size_t)WEIR__ASK_BYTES),
                 "WEIRARG");
    assert_error(redisCommand(redis, "EVAL %s 1 k %b %b", source, rule, (size_t)WEIR__RULE_BYTES,
                              ask, sizeof ask),
                 "WEIRARG");
    assert_error(redisCommand(redis, "EVAL %s 2 k l %b %b", source, rule, (size_t)WEIR__RULE_BYTES,
                              ask, (size_t)WEIR__ASK_BYTES),
                 "WEIRARG");
    assert_int_equal(number("EXISTS %s", "k"), 0);
}

/* What this script did not write is no bucket: it starts anew, whole and with an expiry. */
static void test_foreign_hash_starts_anew(void **state)
{
    (void)state;
    static const char *const foreign[] = {"HSET k l 0", "HSET k l 0 t 0 r short", "HSET k a x",
                                          "HSET k other field", "HSET k l many t 0 r x a y"};
    struct weir__rule rule = rule_of(1, 10, 0);
    struct weir__ask ask = nothing;
    ask.exact = 1;
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        run("DEL k");
        run(foreign[i]);
        assert_int_equal(ask_store("k", &rule, &ask).remaining, 9);
        assert_in_range(ask_store("k", &rule, &ask).remaining, 8, 9);
        assert_true(number("PTTL %s", "k") > 0);
    }
}

/* The rights that docs/protocol.md names are enough. */
static void test_least_rights(void **state)
{
    (void)state;
    struct weir__rule rule = rule_of(1, 10, 5);
    run("ACL SETUSER weir reset on >secret ~weir:* +evalsha +script|load +time +hmget +hset "
        "+pexpire");
    run("AUTH weir secret");
    run("SCRIPT LOAD %s", weir__script_token_bucket.source);
    unsigned char rule_bytes[WEIR__RULE_BYTES];
    unsigned char ask_bytes[WEIR__ASK_BYTES];
    weir__wire_pack_rule(rule_bytes, &rule);
    weir__wire_pack_ask(ask_bytes, &nothing);
    run("EVALSHA %s 1 weir:l:k %b %b", weir__script_token_bucket.sha1, rule_bytes,
        sizeof rule_bytes, ask_bytes, sizeof ask_bytes);
    assert_error(redisCommand(redis, "EVALSHA %s 1 other:k %b %b", weir__script_token_bucket.sha1,
                              rule_bytes, sizeof rule_bytes, ask_bytes, sizeof ask_bytes),
                 "NOPERM");
    redisFree(redis);
    redis = redisConnectUnix(server.socket);
    assert_int_equal(redis->err, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_same_as_c, empty),
        cmocka_unit_test_setup(test_r4_key_outlives_its_windows, empty),
        cmocka_unit_test_setup(test_b16_every_key_has_an_expiry, empty),
        cmocka_unit_test_setup(test_b24_key_without_expiry_is_mended, empty),
        cmocka_unit_test_setup(test_look_changes_nothing, empty),
        cmocka_unit_test_setup(test_r1_no_account_without_budget, empty),
        cmocka_unit_test_setup(test_b26_full_memory_writes_nothing, empty),
        cmocka_unit_test_setup(test_wrong_type, empty),
        cmocka_unit_test_setup(test_wrong_arguments, empty),
        cmocka_unit_test_setup(test_foreign_hash_starts_anew, empty),
        cmocka_unit_test_setup(test_least_rights, empty),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
