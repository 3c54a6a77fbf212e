/* SPDX-License-Identifier: MIT */
/*
 * The script as it ships on a real server, each algorithm in turn: expiry, looks, full memory,
 * values that are not its own, wrong arguments, rights.  test_redis_vs_c has its numbers.
 * WEIR_TEST_SERVER names another server.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/rule.h"
#include "io/conn.h"

#include "real_store.h"
#include "stored_bucket.h"
#include "twins.h"

#define MS INT64_C(1000)
#define SECOND INT64_C(1000000)
#define PATIENCE (3600 * SECOND) /* of who queues */
#define START INT64_C(1700000000000000)

static struct real_store store;

static int set_up(void **state)
{
    (void)state;
    return real_store_start(&store);
}

static int tear_down(void **state)
{
    (void)state;
    real_store_stop(&store);
    return 0;
}

static int empty(void **state)
{
    (void)state;
    real_store_clear(&store);
    return 0;
}

/* The algorithms and their variants. */
#define KINDS 7
static const struct {
    enum weir__algorithm_id algorithm;
    int64_t variant;
} kinds[KINDS] = {{WEIR__TOKEN_BUCKET, 0},   {WEIR__LEAKY_BUCKET, 0}, {WEIR__LEAKY_BUCKET, 1},
                  {WEIR__FIXED_WINDOW, 0},   {WEIR__FIXED_WINDOW, 1}, {WEIR__SLIDING_LOG, 0},
                  {WEIR__SLIDING_COUNTER, 0}};

/* So many a second, and as many at once. */
static struct weir__rule rule_of(size_t kind, int64_t per_s, int64_t budget)
{
    struct weir__rule rule = {.version = 1,
                              .budget = budget,
                              .window_us = SECOND,
                              .algorithm = kinds[kind].algorithm,
                              .variant = kinds[kind].variant};
    uint64_t largest;
    assert_true(weir__rule_set_rate(&rule, (uint64_t)per_s, SECOND, (uint64_t)per_s, &largest));
    rule.initial = rule.capacity;
    if (rule.algorithm == WEIR__LEAKY_BUCKET && rule.variant == WEIR__VARIANT_QUEUE) {
        rule.max_wait_us = PATIENCE;
    }
    bool month = rule.algorithm == WEIR__FIXED_WINDOW && rule.variant == WEIR__VARIANT_MONTH;
    if (rule.algorithm >= WEIR__FIXED_WINDOW && !month) {
        rule.period_us = SECOND;
    }
    return rule;
}

static int64_t take(const char *key, const struct weir__rule *rule, int64_t tokens)
{
    struct weir__ask ask = twins_nothing;
    ask.exact = tokens;
    ask.wait_us = rule->max_wait_us;
    return store_ask(&store, key, rule, &ask).exact;
}

/* Ten at once, and so slow that nothing comes back while a test runs. */
static struct weir__rule slow_of(size_t kind, int64_t budget)
{
    struct weir__rule rule = rule_of(kind, 10, budget);
    if (rule.period_us > 0) {
        rule.period_us = 1000000 * SECOND;
    }
    if (rule.algorithm < WEIR__FIXED_WINDOW) {
        rule.tick_us = SECOND;
        rule.units_per_tick = 1;
        rule.units_per_token = 300;
    }
    return rule;
}

/* ---- Expiry ---------------------------------------------------------------------------------- */

static void test_r4_key_outlives_its_windows(void **state)
{
    (void)state;
    struct weir__rule rule = rule_of(0, 1000, 10); /* ten are back in 10 ms, windows of 1 s */
    struct weir__ask ask = twins_nothing;
    ask.want = 4;
    assert_int_equal(store_ask(&store, "k", &rule, &ask).lease, 4);
    assert_in_range(store_number(&store, "PTTL %s", "k"), 1000, 2002);
}

static void test_b16_every_key_has_an_expiry(void **state)
{
    (void)state;
    static const int64_t rates[] = {1, 1000, 1000000000};
    for (size_t kind = 0; kind < KINDS; kind++) {
        for (size_t i = 0; i < 3; i++) {
            char key[16];
            snprintf(key, sizeof key, "k%zu", kind);
            struct weir__rule rule = rule_of(kind, rates[i], 0);
            rule.version = (int64_t)i + 1;
            take(key, &rule, 1);
            /* it may have gone, but never stays */
            assert_true(store_number(&store, "PTTL %s", key) != -1);
        }
        struct weir__rule slow = slow_of(kind, 0);
        assert_int_equal(take("slow", &slow, 10), 10);
        long long left_ms = store_number(&store, "PTTL %s", "slow");
        assert_true(left_ms > 0);
        assert_int_equal(take("slow", &slow, 10), 0); /* a refusal renews it as well */
        assert_true(store_number(&store, "PTTL %s", "slow") > left_ms - 60000);
        store_run(&store, "DEL slow");
    }
}

static void test_b24_key_without_expiry_is_mended(void **state)
{
    (void)state;
    for (size_t kind = 0; kind < KINDS; kind++) {
        struct weir__rule rule = slow_of(kind, 5);
        assert_int_equal(take("k", &rule, 10), 10);
        store_run(&store, "PERSIST k");
        assert_int_equal(store_number(&store, "PTTL %s", "k"), -1);
        assert_int_equal(take("k", &rule, 1), 0);
        assert_true(store_number(&store, "PTTL %s", "k") > 0);
        store_run(&store, "DEL k");
    }
}

/* ---- What is written ------------------------------------------------------------------------- */

static redisReply *fields_of(const char *key)
{
    redisReply *reply = redisCommand(store.redis, "HMGET %s l t r a x", key);
    assert_non_null(reply);
    assert_int_equal(reply->elements, STORED_FIELDS);
    return reply;
}

/* Frees both. */
static void assert_same_fields(redisReply *before, redisReply *after)
{
    for (size_t i = 0; i < STORED_FIELDS; i++) {
        assert_int_equal(after->element[i]->type, before->element[i]->type);
        assert_int_equal(after->element[i]->len, before->element[i]->len);
        if (before->element[i]->len > 0) {
            assert_memory_equal(after->element[i]->str, before->element[i]->str,
                                (size_t)before->element[i]->len);
        }
    }
    freeReplyObject(before);
    freeReplyObject(after);
}

static void test_look_changes_nothing(void **state)
{
    (void)state;
    struct weir__ask look = twins_nothing;
    look.peek = true;
    for (size_t kind = 0; kind < KINDS; kind++) {
        struct weir__rule rule = rule_of(kind, 10, 5);
        assert_int_equal(store_ask(&store, "k", &rule, &look).remaining, 10);
        assert_int_equal(store_number(&store, "EXISTS %s", "k"), 0);

        rule = slow_of(kind, 5);
        assert_int_equal(take("k", &rule, 2), 2);
        store_run(&store, "PERSIST k");
        redisReply *before = fields_of("k");
        assert_int_equal(store_ask(&store, "k", &rule, &look).remaining, 8);
        rule.version = 2;
        store_ask(&store, "k", &rule, &look);
        assert_same_fields(before, fields_of("k"));
        assert_int_equal(store_number(&store, "PTTL %s", "k"), -1);
        store_run(&store, "DEL k");
    }
}

static void test_r1_no_account_without_budget(void **state)
{
    (void)state;
    struct weir__rule rule = rule_of(0, 10, 0);
    assert_int_equal(take("k", &rule, 1), 1);
    assert_int_equal(store_number(&store, "HSTRLEN %s a", "k"), 0);
    rule.version++;
    rule.budget = 5;
    assert_int_equal(take("k", &rule, 1), 1);
    assert_true(store_number(&store, "HSTRLEN %s a", "k") > 0);
    rule.version++;
    rule.budget = 0;
    assert_int_equal(take("k", &rule, 1), 1);
    assert_int_equal(store_number(&store, "HSTRLEN %s a", "k"), 0);
}

/* The log has an entry to drop first, and grows all the same. */
static void test_b26_full_memory_writes_nothing(void **state)
{
    (void)state;
    const char *sha1 = weir__script_lease.sha1;
    struct weir__ask ask = twins_nothing;
    ask.exact = 1;
    for (size_t kind = 0; kind < KINDS; kind++) {
        struct weir__rule rule = slow_of(kind, 5);
        redisReply *reply = store_eval(&store, sha1, "old", &rule, &ask, START);
        assert_int_equal(reply->element[1]->integer, 1);
        freeReplyObject(reply);
        store_run(&store, "PERSIST old");
        redisReply *before = fields_of("old");
        store_run(&store, "CONFIG SET maxmemory 1");
        rule.version = 2;
        store_assert_error(store_eval(&store, sha1, "new", &rule, &ask, OWN_TIME), "OOM");
        store_assert_error(store_eval(&store, sha1, "old", &rule, &ask, OWN_TIME), "OOM");
        store_run(&store, "CONFIG SET maxmemory 0");
        assert_int_equal(store_number(&store, "EXISTS %s", "new"), 0);
        assert_int_equal(store_number(&store, "PTTL %s", "old"), -1);
        assert_same_fields(before, fields_of("old"));
        store_run(&store, "DEL old");
    }
}

/* ---- What is not its own --------------------------------------------------------------------- */

static void test_wrong_type(void **state)
{
    (void)state;
    store_run(&store, "SET k something");
    for (size_t kind = 0; kind < KINDS; kind++) {
        struct weir__rule rule = rule_of(kind, 10, 5);
        store_assert_error(
            store_eval(&store, weir__script_lease.sha1, "k", &rule, &twins_nothing, OWN_TIME),
            "WRONGTYPE");
    }
    assert_int_equal(store_number(&store, "STRLEN %s", "k"), 9);
}

static void test_wrong_arguments(void **state)
{
    (void)state;
    static const char *const tails[] = {"0", "1 k", "1 k r", "1 k r a", "2 k l r a", "0 r a"};
    const char *sha1 = weir__script_lease.sha1;
    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++) {
        char format[32];
        snprintf(format, sizeof format, "EVALSHA %%s %s", tails[i]);
        store_assert_error(redisCommand(store.redis, format, sha1), "WEIRARG");
    }
    char bytes[200] = {0};
    static const struct {
        const char *format;
        size_t rule, ask;
    } calls[] = {{"EVALSHA %s 1 k %b %b", WEIR__RULE_BYTES + 1, WEIR__ASK_BYTES},
                 {"EVALSHA %s 1 k %b %b", WEIR__RULE_BYTES - 1, WEIR__ASK_BYTES},
                 {"EVALSHA %s 1 k %b %b", WEIR__RULE_BYTES, WEIR__ASK_BYTES + 1},
                 {"EVALSHA %s 2 k l %b %b", WEIR__RULE_BYTES, WEIR__ASK_BYTES},
                 {"EVALSHA %s 1 k %b %b", WEIR__RULE_BYTES, WEIR__ASK_BYTES}}; /* algorithm 0 */
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        store_assert_error(redisCommand(store.redis, calls[i].format, sha1, bytes, calls[i].rule,
                                        bytes, calls[i].ask),
                           "WEIRARG");
    }
    assert_int_equal(store_number(&store, "EXISTS %s", "k"), 0);
}

/* What this script did not write is no bucket: it starts anew, whole and with an expiry. */
static void test_foreign_hash_starts_anew(void **state)
{
    (void)state;
    static const char *const foreign[] = {"HSET k l 0", "HSET k l 0 t 0 r short", "HSET k a x",
                                          "HSET k other field", "HSET k l many t 0 r x a y"};
    for (size_t kind = 0; kind < KINDS; kind++) {
        struct weir__rule rule = slow_of(kind, 0);
        for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
            store_run(&store, "DEL k");
            store_run(&store, foreign[i]);
            struct weir__ask ask = twins_nothing;
            ask.exact = 1;
            ask.wait_us = rule.max_wait_us;
            assert_int_equal(store_ask(&store, "k", &rule, &ask).remaining, 9);
            assert_int_equal(store_ask(&store, "k", &rule, &ask).remaining, 8);
            assert_true(store_number(&store, "PTTL %s", "k") > 0);
        }
        store_run(&store, "DEL k");
    }
}

/* Of its own hash a field is gone. */
static void test_half_a_hash_starts_anew(void **state)
{
    (void)state;
    for (size_t kind = 0; kind < KINDS; kind++) {
        struct weir__rule rule = slow_of(kind, 0);
        for (size_t i = 0; i < STORED_FIELDS; i++) {
            const char *name = stored_field_names[i];
            bool has_extra = rule.algorithm >= WEIR__SLIDING_LOG;
            bool needed = strcmp(name, "a") != 0 && (strcmp(name, "x") != 0 || has_extra);
            assert_int_equal(take("k", &rule, 4), 4);
            store_run(&store, "HDEL k %s", name);
            struct weir__ask ask = twins_nothing;
            ask.exact = 1;
            ask.wait_us = rule.max_wait_us;
            assert_int_equal(store_ask(&store, "k", &rule, &ask).remaining, needed ? 9 : 5);
            assert_true(store_number(&store, "PTTL %s", "k") > 0);
            store_run(&store, "DEL k");
        }
    }
}

/* ---- Time ------------------------------------------------------------------------------------ */

/* Told the time, the script does not ask for it; not told, it has the server's. */
static void test_the_time_may_be_given(void **state)
{
    (void)state;
    struct weir__rule rule = rule_of(3, 10, 0);
    struct weir__ask ask = twins_nothing;
    int64_t values[WEIR__GRANT_FIELDS];
    ask.exact = 1;
    store_values(store_eval(&store, weir__script_lease.sha1, "given", &rule, &ask, START + 5),
                 values);
    assert_int_equal(values[14], START);

    redisReply *time = redisCommand(store.redis, "TIME");
    assert_int_equal(time->elements, 2);
    int64_t before_us = atoll(time->element[0]->str) * SECOND;
    freeReplyObject(time);
    int64_t start_us = store_ask(&store, "own", &rule, &ask).start_us;
    assert_true(start_us >= before_us && start_us <= before_us + 600 * SECOND);
}

/* ---- Rights ---------------------------------------------------------------------------------- */

#define RIGHTS 6
static const char *const rights[RIGHTS] = {"+evalsha", "+script|load", "+time",
                                           "+hmget",   "+hset",        "+pexpire"};

/* A user who may touch this key alone, with the rights that docs/protocol.md names but one. */
static void log_in(const char *key, size_t without)
{
    char list[120] = "";
    for (size_t i = 0; i < RIGHTS; i++) {
        if (i != without) {
            strcat(strcat(list, " "), rights[i]);
        }
    }
    char command[200];
    snprintf(command, sizeof command, "ACL SETUSER weir reset on >secret ~%s%s", key, list);
    store_run(&store, command);
    store_run(&store, "AUTH weir secret");
}

static void test_least_rights(void **state)
{
    (void)state;
    const char *sha1 = weir__script_lease.sha1;
    struct weir__ask ask = twins_nothing;
    ask.want = 2;
    ask.exact = 1;
    log_in("weir:l:k", RIGHTS);
    store_run(&store, "SCRIPT LOAD %s", weir__script_lease.source);
    for (size_t kind = 0; kind < KINDS; kind++) {
        struct weir__rule rule = rule_of(kind, 10, 5);
        rule.version = (int64_t)kind + 1;
        assert_int_equal(store_ask(&store, "weir:l:k", &rule, &ask).version, kind + 1);
        store_assert_error(store_eval(&store, sha1, "weir:l:kk", &rule, &ask, OWN_TIME), "NOPERM");
    }
}

/* In a cluster all keys of a call must be in one slot: the script has one key, and makes up no
 * other. */
static void test_b34_one_key_and_no_other(void **state)
{
    (void)state;
    static const char *const keys[] = {"weir:l:user:42", "weir:l:a", "weir:l:", "weir:l:{x}y"};
    struct weir__ask ask = twins_nothing, look = twins_nothing, reset = twins_nothing;
    ask.want = 2;
    ask.exact = 1;
    look.peek = true;
    reset.reset = true;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        real_store_clear(&store);
        log_in(keys[i], RIGHTS);
        for (size_t kind = 0; kind < KINDS; kind++) {
            struct weir__rule rule = rule_of(kind, 10, 5);
            rule.version = (int64_t)kind + 1;
            assert_int_equal(store_ask(&store, keys[i], &rule, &ask).version, kind + 1);
            store_ask(&store, keys[i], &rule, &look);
            store_ask(&store, keys[i], &rule, &reset);
        }
        store_run(&store, "AUTH default any"); /* who may count them */
        assert_int_equal(store_number(&store, "EXISTS %s", keys[i]), 1);
        assert_int_equal(store_number(&store, "DBSIZE", NULL), 1);
    }
}

static void test_no_right_is_too_many(void **state)
{
    (void)state;
    struct weir__rule rule = rule_of(0, 10, 5);
    for (size_t i = 0; i < RIGHTS; i++) {
        real_store_clear(&store);
        log_in("weir:l:k", i);
        redisReply *reply = strcmp(rights[i], "+script|load") == 0
                                ? redisCommand(store.redis, "SCRIPT LOAD %s", "return 1")
                                : store_eval(&store, weir__script_lease.sha1, "weir:l:k", &rule,
                                             &twins_nothing, OWN_TIME);
        assert_non_null(reply);
        assert_int_equal(reply->type, REDIS_REPLY_ERROR);
        freeReplyObject(reply);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_r4_key_outlives_its_windows, empty),
        cmocka_unit_test_setup(test_b16_every_key_has_an_expiry, empty),
        cmocka_unit_test_setup(test_b24_key_without_expiry_is_mended, empty),
        cmocka_unit_test_setup(test_look_changes_nothing, empty),
        cmocka_unit_test_setup(test_r1_no_account_without_budget, empty),
        cmocka_unit_test_setup(test_b26_full_memory_writes_nothing, empty),
        cmocka_unit_test_setup(test_wrong_type, empty),
        cmocka_unit_test_setup(test_wrong_arguments, empty),
        cmocka_unit_test_setup(test_foreign_hash_starts_anew, empty),
        cmocka_unit_test_setup(test_half_a_hash_starts_anew, empty),
        cmocka_unit_test_setup(test_the_time_may_be_given, empty),
        cmocka_unit_test_setup(test_least_rights, empty),
        cmocka_unit_test_setup(test_b34_one_key_and_no_other, empty),
        cmocka_unit_test_setup(test_no_right_is_too_many, empty),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
