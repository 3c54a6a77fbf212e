/* SPDX-License-Identifier: MIT */
/*
 * Each ask in C and in Lua.  Compared are all fields of the reply and of the key, and its expiry.
 * Checked besides, since it holds for every ask: a look writes nothing and all else is one HSET and
 * one PEXPIRE; every key has an expiry; what is told to remain is between nothing and the capacity;
 * no more is out than the budget allows; and the reader of replies (core/wire) believes the reply.
 */
#include "twins.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/num.h"
#include "core/wire.h"
#include "io/conn.h"

#include "hashes.h"
#include "stored_bucket.h"

static const char key[] = "weir:limit:key";
#define KEY key, sizeof key - 1

const struct weir__ask twins_nothing = {
    .least = 1,
    .since = WEIR__NO_WINDOW,
    .heard = WEIR__NO_WINDOW,
    .settle = {{WEIR__NO_WINDOW, 0, 0}, {WEIR__NO_WINDOW, 0, 0}}};

void twins_init(struct twins *twins)
{
    *twins = (struct twins){.host = lua_host_new()};
    twins->script = lua_host_load(twins->host, weir__script_lease.source,
                                  weir__script_lease.source_len);
    assert_true(twins->script >= 0);
}

void twins_deinit(struct twins *twins)
{
    free(twins->bucket.log.entries);
    lua_host_free(twins->host);
}

void twins_begin(struct twins *twins, const char *what, uint64_t seed)
{
    free(twins->bucket.log.entries);
    twins->bucket = (struct weir__global){.exists = false};
    twins->what = what;
    twins->seed = seed;
    twins->asks = 0;
    lua_host_flush(twins->host);
    lua_host_set_full(twins->host, false);
}

void twins_fail(const struct twins *twins, const char *why)
{
    fail_msg("%s, WEIR_SEED=%llu, ask %u: %s", twins->what, (unsigned long long)twins->seed,
             twins->asks, why);
    abort();
}

void twins_make_room(struct weir__global *bucket, const struct weir__rule *rule)
{
    unsigned need = weir__global_log_need(bucket, rule);
    struct weir__log *log = &bucket->log;
    unsigned used = log->end - log->first;
    if (need <= log->room) {
        return;
    }
    struct weir__log_entry *entries = must(malloc(need * sizeof *entries));
    if (used > 0) {
        memcpy(entries, log->entries + log->first, used * sizeof *entries);
    }
    free(log->entries);
    *log = (struct weir__log){.entries = entries, .room = need, .end = used};
}

/* ---- What was stored ------------------------------------------------------------------------- */

static void compare_keys(struct twins *twins, int64_t now_us)
{
    struct weir__global *bucket = &twins->bucket;
    char why[160] = "";
    bool alive = bucket->exists && now_us < bucket->expires_us;
    if (alive != lua_host_key_exists(twins->host, KEY)) {
        twins_fail(twins, alive ? "only C has the key" : "only the store has the key");
    }
    if (!alive) {
        return;
    }
    int64_t left_us = lua_host_key_ttl_us(twins->host, KEY);
    if (left_us != bucket->expires_us - now_us) {
        snprintf(why, sizeof why, "expiry: C in %lld us, Lua in %lld us",
                 (long long)(bucket->expires_us - now_us), (long long)left_us);
        twins_fail(twins, why);
    }
    if (left_us <= 0) {
        twins_fail(twins, "a key without an expiry");
    }
    struct stored_bucket stored = {.fields = {{NULL, 0}}};
    for (size_t i = 0; i < STORED_FIELDS; i++) {
        stored.fields[i].data = lua_host_field(twins->host, KEY, stored_field_names[i],
                                               &stored.fields[i].len);
    }
    if (!stored_bucket_equals(&stored, bucket, why)) {
        twins_fail(twins, why);
    }
}

static void check_bounds(const struct twins *twins, const struct weir__rule *rule,
                         const struct weir__grant *grant, bool peek, int64_t out_before)
{
    const struct weir__global *bucket = &twins->bucket;
    int64_t capacity = bucket->rule.capacity;
    int64_t budget = bucket->rule.budget;
    if (peek) { /* under which rule, is not stored */
        capacity = weir__max(rule->capacity, bucket->exists ? capacity : 0);
        budget = weir__max(rule->budget, bucket->exists ? budget : 0);
    }
    if (grant->remaining < 0 || grant->remaining > capacity) {
        twins_fail(twins, "remaining is not between nothing and the capacity");
    }
    if (grant->outstanding > weir__max(budget, out_before)) {
        twins_fail(twins, "more is out than the budget allows");
    }
    if (grant->lease > 0 && grant->life_us <= 0) {
        twins_fail(twins, "a lease without a life");
    }
}

/* ---- Asking ---------------------------------------------------------------------------------- */

static void ask_lua(struct twins *twins, const struct weir__rule *rule, const struct weir__ask *ask,
                    int64_t now_us, struct lua_reply *reply)
{
    unsigned char rule_bytes[WEIR__RULE_BYTES];
    unsigned char ask_bytes[WEIR__ASK_BYTES];
    char time[32];
    weir__wire_pack_rule(rule_bytes, rule);
    weir__wire_pack_ask(ask_bytes, ask);
    int time_len = snprintf(time, sizeof time, "%lld", (long long)now_us);
    const void *argv[] = {rule_bytes, ask_bytes, time};
    const size_t argv_len[] = {sizeof rule_bytes, sizeof ask_bytes, (size_t)time_len};
    lua_host_set_now_us(twins->host, now_us - twins->behind_us);
    lua_host_call(twins->host, twins->script, KEY, argv, argv_len, twins->behind_us != 0 ? 3 : 2,
                  reply);
}

void twins_ask(struct twins *twins, const struct weir__rule *rule, const struct weir__ask *ask,
               int64_t now_us, struct weir__grant *grant)
{
    struct weir__grant read;
    struct lua_reply reply;
    char why[160] = "";
    uint64_t writes = lua_host_writes(twins->host);
    int64_t out_before = twins->bucket.out_cur + twins->bucket.out_prev;
    twins->asks++;
    twins_make_room(&twins->bucket, rule);
    weir__global_ask(&twins->bucket, rule, ask, now_us, grant);
    ask_lua(twins, rule, ask, now_us, &reply);
    if (reply.error[0] != 0) {
        twins_fail(twins, reply.error);
    }
    if (!grants_equal(grant, reply.values, reply.count, why)) {
        twins_fail(twins, why);
    }
    if (lua_host_writes(twins->host) - writes != (ask->peek ? 0 : 2)) {
        twins_fail(twins, "not one HSET and one PEXPIRE, or a look that writes");
    }
    compare_keys(twins, now_us);
    check_bounds(twins, rule, grant, ask->peek, out_before);
    if (!weir__wire_read_grant(&read, reply.values, reply.count, rule, ask)) {
        twins_fail(twins, "a true reply is not believed");
    }
}

/* ---- Copies ---------------------------------------------------------------------------------- */

static struct weir__global copy_of(const struct weir__global *from)
{
    struct weir__global to = *from;
    if (from->log.entries != NULL) {
        size_t size = from->log.room * sizeof *to.log.entries;
        to.log.entries = must(malloc(size + 1));
        memcpy(to.log.entries, from->log.entries, size);
    }
    return to;
}

struct twins_copy twins_keep(const struct twins *twins)
{
    return (struct twins_copy){.bucket = copy_of(&twins->bucket),
                               .key = lua_host_key_copy(twins->host, KEY)};
}

void twins_restore(struct twins *twins, const struct twins_copy *copy)
{
    free(twins->bucket.log.entries);
    twins->bucket = copy_of(&copy->bucket);
    lua_host_key_restore(twins->host, copy->key);
}

void twins_forget(struct twins_copy *copy)
{
    free(copy->bucket.log.entries);
    lua_host_copy_free(copy->key);
}
