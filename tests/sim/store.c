/* SPDX-License-Identifier: MIT */
/*
 * A store that can be set back, emptied and failed over.
 *
 * A failover restores what a replica had: the key as it was after the last ask that the replica
 * saw.  The copies are kept in a ring; where none that old is left, the replica had no key, and all
 * is lost.
 */
#include "sim/store.h"

#include <stdio.h>
#include <string.h>

#include "core/wire.h"
#include "script/stored_bucket.h"

/* Store time at the start: after 2001, as real ones are, and far from the edge of a double. */
#define EPOCH_US INT64_C(1000000000000000)

/* The latest copy leaves the ring. */
static void drop_last(struct store_key *key)
{
    key->past_at = (key->past_at + STORE_PAST - 1) % STORE_PAST;
    key->past_count--;
    if (key->past[key->past_at].copy != NULL) {
        lua_host_copy_free(key->past[key->past_at].copy);
    }
}

static void forget_past(struct store_key *key)
{
    while (key->past_count > 0) {
        drop_last(key);
    }
}

void store_init(struct store *store, struct lua_host *lua, int script)
{
    store->lua = lua;
    store->script = script;
    store->keeps_past = false;
    store->drift_ppm = store->step_us = 0;
    store->difference[0] = 0;
    for (unsigned i = 0; i < STORE_KEYS_MAX; i++) {
        store->keys[i].bucket = (struct weir__global){.exists = false};
        store->keys[i].past_count = store->keys[i].past_at = 0;
    }
    if (lua != NULL) {
        lua_host_flush(lua);
    }
}

void store_deinit(struct store *store)
{
    for (unsigned i = 0; i < STORE_KEYS_MAX; i++) {
        forget_past(&store->keys[i]);
    }
}

int64_t store_smooth_us(const struct store *store, int64_t true_us)
{
    return EPOCH_US + true_us + true_us * store->drift_ppm / 1000000;
}

int64_t store_now_us(const struct store *store, int64_t true_us)
{
    return store_smooth_us(store, true_us) + store->step_us;
}

static const char *name_of(unsigned key)
{
    static const char *const names[STORE_KEYS_MAX] = {"a", "b", "c"};
    return names[key];
}

static void ask_lua(struct store *store, unsigned key, const struct weir__rule *rule,
                    const struct weir__ask *ask, int64_t now_us, const struct weir__grant *grant)
{
    unsigned char rule_bytes[WEIR__RULE_BYTES];
    unsigned char ask_bytes[WEIR__ASK_BYTES];
    struct lua_reply reply;
    char why[160] = "";
    weir__wire_pack_rule(rule_bytes, rule);
    weir__wire_pack_ask(ask_bytes, ask);
    lua_host_set_now_us(store->lua, now_us);
    lua_host_call(store->lua, store->script, name_of(key), 1,
                  (const void *const[]){rule_bytes, ask_bytes},
                  (const size_t[]){sizeof rule_bytes, sizeof ask_bytes}, 2, &reply);
    if (reply.error[0] != 0) {
        snprintf(store->difference, sizeof store->difference, "the script failed: %.150s",
                 reply.error);
    } else if (!grants_equal(grant, reply.values, reply.count, why)) {
        snprintf(store->difference, sizeof store->difference, "%s", why);
    }
}

static void keep_copy(struct store *store, unsigned index, int64_t granted, int64_t true_us)
{
    struct store_key *key = &store->keys[index];
    struct store_past *past = &key->past[key->past_at];
    if (key->past_count == STORE_PAST && past->copy != NULL) {
        lua_host_copy_free(past->copy);
    }
    *past = (struct store_past){.at_us = true_us, .bucket = key->bucket, .granted = granted};
    if (store->lua != NULL) {
        past->copy = lua_host_key_copy(store->lua, name_of(index), 1);
    }
    key->past_at = (key->past_at + 1) % STORE_PAST;
    key->past_count += key->past_count < STORE_PAST;
}

void store_ask(struct store *store, unsigned key, const struct weir__rule *rule,
               const struct weir__ask *ask, int64_t true_us, struct weir__grant *grant)
{
    int64_t now_us = store_now_us(store, true_us);
    weir__global_ask(&store->keys[key].bucket, rule, ask, now_us, grant);
    if (store->lua != NULL) {
        ask_lua(store, key, rule, ask, now_us, grant);
    }
    if (store->keeps_past && !ask->peek) {
        keep_copy(store, key, grant->lease + grant->exact, true_us);
    }
}

void store_lose(struct store *store, unsigned key)
{
    store->keys[key].bucket = (struct weir__global){.exists = false};
    forget_past(&store->keys[key]);
    if (store->lua != NULL) {
        lua_host_key_delete(store->lua, name_of(key), 1);
    }
}

int64_t store_fail_over(struct store *store, unsigned index, int64_t then_us, int64_t true_us)
{
    struct store_key *key = &store->keys[index];
    int64_t granted = 0;
    while (key->past_count > 0) {
        unsigned last = (key->past_at + STORE_PAST - 1) % STORE_PAST;
        const struct store_past *past = &key->past[last];
        if (past->at_us <= then_us) {
            key->bucket = past->bucket;
            if (store->lua != NULL) {
                lua_host_key_restore(store->lua, past->copy);
            }
            if (store_now_us(store, true_us) < key->bucket.expires_us) {
                return granted;
            }
            break; /* it has expired since, and is gone for good */
        }
        granted += past->granted;
        drop_last(key);
    }
    store_lose(store, index);
    return -1;
}
