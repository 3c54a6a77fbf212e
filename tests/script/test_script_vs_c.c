/* SPDX-License-Identifier: MIT */
/*
 * lua/token_bucket.lua against its twin in C, on random sequences: each reply, each stored field
 * and the expiry, to the last unit.  On the way the invariants of the bucket are checked, and
 * that the reader of replies (core/wire) believes every true one.  WEIR_SEED replays a run,
 * WEIR_STEPS sets the number of sequences.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/num.h"
#include "core/algorithms/token_bucket.h"
#include "core/wire.h"
#include "io/conn.h"

#include "lua_host.h"
#include "random_asks.h"
#include "stored_bucket.h"

#define SEQUENCES 20000
#define STEPS 20

static const char key[] = "weir:limit:key";
#define KEY key, sizeof key - 1

static struct lua_host *host;
static int script;

static int set_up(void **state)
{
    (void)state;
    host = lua_host_new();
    script = lua_host_load(host, weir__script_token_bucket.source,
                           weir__script_token_bucket.source_len);
    return script < 0;
}

static int tear_down(void **state)
{
    (void)state;
    lua_host_free(host);
    return 0;
}

static void run_script(const struct weir__rule *rule, const struct weir__ask *ask, int64_t now_us,
                       struct lua_reply *reply)
{
    unsigned char rule_bytes[WEIR__RULE_BYTES];
    unsigned char ask_bytes[WEIR__ASK_BYTES];
    weir__wire_pack_rule(rule_bytes, rule);
    weir__wire_pack_ask(ask_bytes, ask);
    lua_host_set_now_us(host, now_us);
    lua_host_call(host, script, KEY, (const void *const[]){rule_bytes, ask_bytes},
                  (const size_t[]){sizeof rule_bytes, sizeof ask_bytes}, reply);
}

static bool same_state(const struct weir__token_bucket *bucket, int64_t now_us, char why[160])
{
    bool alive = bucket->exists && now_us < bucket->expires_us;
    if (alive != lua_host_key_exists(host, KEY)) {
        snprintf(why, 160, "only one of both has the key");
        return false;
    }
    if (!alive) {
        return true;
    }
    if (lua_host_key_ttl_us(host, KEY) != bucket->expires_us - now_us) {
        snprintf(why, 160, "expiry: C in %lld us, Lua in %lld us",
                 (long long)(bucket->expires_us - now_us),
                 (long long)lua_host_key_ttl_us(host, KEY));
        return false;
    }
    struct stored_bucket stored = {.level = {NULL, 0}};
    stored.level.data = lua_host_field(host, KEY, "l", &stored.level.len);
    stored.stamp.data = lua_host_field(host, KEY, "t", &stored.stamp.len);
    stored.rule.data = lua_host_field(host, KEY, "r", &stored.rule.len);
    stored.account.data = lua_host_field(host, KEY, "a", &stored.account.len);
    return stored_bucket_equals(&stored, bucket, why);
}

static void check_invariants(const struct weir__token_bucket *bucket)
{
    if (!bucket->exists) {
        return;
    }
    int64_t full = bucket->rule.capacity * bucket->rule.units_per_token;
    assert_true(bucket->level <= full);
    assert_true(full - bucket->level <= WEIR__INT53_MAX);
    assert_true(bucket->out_cur >= 0 && bucket->out_prev >= 0);
    int64_t out = bucket->out_cur + bucket->out_prev;
    assert_int_equal(bucket->has_account, bucket->rule.budget > 0 || out > 0);
}

static void run_sequence(uint64_t seed)
{
    struct random_asks random;
    struct weir__token_bucket bucket = {.exists = false};
    random_asks_begin(&random, seed);
    lua_host_flush(host);
    for (int step = 0; step < STEPS; step++) {
        struct weir__ask ask;
        struct weir__grant grant;
        struct lua_reply reply;
        char why[160] = "";
        random_asks_next(&random, &ask);
        int64_t out_before = bucket.out_cur + bucket.out_prev;
        weir__token_bucket_ask(&bucket, &random.rule, &ask, random.now_us, &grant);
        run_script(&random.rule, &ask, random.now_us, &reply);
        if (reply.error[0] != 0 || !grants_equal(&grant, reply.values, reply.count, why) ||
            !same_state(&bucket, random.now_us, why)) {
            fail_msg("sequence %llu, step %d: %s%s", (unsigned long long)seed, step, why,
                     reply.error);
        }
        check_invariants(&bucket);
        assert_true(grant.outstanding <= weir__max(bucket.rule.budget, out_before) || ask.peek);
        assert_true(weir__wire_read_grant(&grant, reply.values, reply.count, &random.rule, &ask));
        random_asks_heard(&random, &grant);
    }
}

static void test_random_sequences(void **state)
{
    (void)state;
    uint64_t seed = random_asks_seed(1);
    uint64_t count = random_asks_count(SEQUENCES);
    print_message("WEIR_SEED=%llu WEIR_STEPS=%llu\n", (unsigned long long)seed,
                  (unsigned long long)count);
    for (uint64_t i = 0; i < count; i++) {
        run_sequence(seed + i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_sequences),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
