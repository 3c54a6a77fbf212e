/* SPDX-License-Identifier: MIT */
/*
 * The script on a real server against its twin in C, bit for bit, on random sequences of each
 * algorithm: what the server's own Lua, its struct library and its replies make of it.  The script
 * is told the time, and its expiry is moved far away, so that the server's clock has no say; the
 * latter is the only change to its text.
 *
 * WEIR_SEED replays a run, WEIR_STEPS sets the number of asks for each algorithm, WEIR_TEST_SERVER
 * names another server.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/global.h"
#include "io/conn.h"

#include "random_asks.h"
#include "real_store.h"
#include "stored_bucket.h"
#include "twins.h"

#define ASKS 4000
#define SEQUENCE 20
#define MS INT64_C(1000)
#define FAR_AWAY_MS INT64_C(1000000000000) /* 31 years: no key of a test gets that old */
#define PATIENCE_MS 60000                  /* between a call and the look at its expiry */

static struct real_store store;
static char sha1[41]; /* of the changed text */

/* The shipped text with the only occurrence of `from` exchanged. */
static char *exchanged(const char *from, const char *to)
{
    const char *text = weir__script_lease.source;
    const char *at = strstr(text, from);
    assert_non_null(at);
    assert_null(strstr(at + 1, from));
    size_t size = strlen(text) + strlen(to) + 1;
    char *out = malloc(size);
    assert_non_null(out);
    snprintf(out, size, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    return out;
}

static int set_up(void **state)
{
    (void)state;
    char later[64];
    snprintf(later, sizeof later, "call('PEXPIRE', key, %lld + ", (long long)FAR_AWAY_MS);
    if (real_store_start(&store) != 0) {
        return -1;
    }
    char *source = exchanged("call('PEXPIRE', key, ", later);
    store_load(&store, source, sha1);
    free(source);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    real_store_stop(&store);
    return 0;
}

/* A look (`written` false) leaves the expiry where it was, which time has moved away from since. */
static bool same_state(const struct weir__global *bucket, int64_t now_us, bool written,
                       char why[160])
{
    if (store_number(&store, "EXISTS %s", "k") != bucket->exists) {
        snprintf(why, 160, "only one of both has the key");
        return false;
    }
    if (!bucket->exists) {
        return true;
    }
    long long left_ms = (bucket->expires_us - now_us) / MS;
    long long ttl_ms = store_number(&store, "PTTL %s", "k") - FAR_AWAY_MS;
    if (written && (ttl_ms < left_ms - PATIENCE_MS || ttl_ms > left_ms)) {
        snprintf(why, 160, "expiry: C %lld ms, the server %lld ms", left_ms, ttl_ms);
        return false;
    }
    redisReply *fields = redisCommand(store.redis, "HMGET k l t r a x");
    assert_int_equal(fields->elements, STORED_FIELDS);
    struct stored_bucket stored = {.fields = {{NULL, 0}}};
    for (size_t i = 0; i < STORED_FIELDS; i++) {
        stored.fields[i].data = fields->element[i]->str;
        stored.fields[i].len = (size_t)fields->element[i]->len;
    }
    bool equal = stored_bucket_equals(&stored, bucket, why);
    freeReplyObject(fields);
    return equal;
}

static void run_sequence(uint64_t seed, enum weir__algorithm_id only)
{
    struct random_asks random;
    struct weir__global bucket = {.exists = false};
    random_asks_begin(&random, seed, only);
    store_run(&store, "DEL k");
    for (int step = 0; step < SEQUENCE; step++) {
        struct weir__ask ask;
        struct weir__grant grant;
        int64_t values[WEIR__GRANT_FIELDS];
        char why[160] = "";
        random_asks_next(&random, &ask);
        if (random.now_us >= bucket.expires_us) {
            store_run(&store, "DEL k");
        }
        twins_make_room(&bucket, &random.rule);
        weir__global_ask(&bucket, &random.rule, &ask, random.now_us, &grant);
        store_values(store_eval(&store, sha1, "k", &random.rule, &ask, random.now_us), values);
        if (!grants_equal(&grant, values, WEIR__GRANT_FIELDS, why) ||
            !same_state(&bucket, random.now_us, !ask.peek, why)) {
            fail_msg("WEIR_SEED=%llu, algorithm %d, step %d: %s", (unsigned long long)seed, only,
                     step, why);
        }
        random_asks_heard(&random, &grant);
    }
    free(bucket.log.entries);
}

static void run(enum weir__algorithm_id only)
{
    uint64_t seed = random_asks_seed(1);
    uint64_t asks = random_asks_count(ASKS);
    print_message("WEIR_SEED=%llu WEIR_STEPS=%llu\n", (unsigned long long)seed,
                  (unsigned long long)asks);
    for (uint64_t i = 0; i * SEQUENCE < asks; i++) {
        run_sequence(seed + i, only);
    }
}

static void test_token_bucket(void **state)
{
    (void)state;
    run(WEIR__TOKEN_BUCKET);
}

static void test_leaky_bucket(void **state)
{
    (void)state;
    run(WEIR__LEAKY_BUCKET);
}

static void test_fixed_window(void **state)
{
    (void)state;
    run(WEIR__FIXED_WINDOW);
}

static void test_sliding_log(void **state)
{
    (void)state;
    run(WEIR__SLIDING_LOG);
}

static void test_sliding_counter(void **state)
{
    (void)state;
    run(WEIR__SLIDING_COUNTER);
}

static void test_one_after_another(void **state)
{
    (void)state;
    run(RANDOM_ASKS_ANY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_token_bucket),    cmocka_unit_test(test_leaky_bucket),
        cmocka_unit_test(test_fixed_window),    cmocka_unit_test(test_sliding_log),
        cmocka_unit_test(test_sliding_counter), cmocka_unit_test(test_one_after_another),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
