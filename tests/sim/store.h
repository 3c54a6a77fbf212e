/* SPDX-License-Identifier: MIT */
#ifndef WEIR_TESTS_STORE_H
#define WEIR_TESTS_STORE_H

#include "core/global.h"
#include "script/lua_host.h"

/*
 * The store of a simulation: a few keys, a clock of its own that drifts and is set, and what can
 * happen to data.  The twin in C decides; where a Lua host is given, the shipped script decides as
 * well, and any difference is a failure.
 */

#define STORE_KEYS_MAX 3
#define STORE_PAST 48

/* One key as it was after an ask, for a failover to an older copy. */
struct store_past {
    int64_t at_us; /* true time */
    struct weir__global bucket;
    struct lua_host_copy *copy;
    int64_t granted; /* by that ask */
};

struct store_key {
    struct weir__global bucket;
    struct store_past past[STORE_PAST]; /* a ring, the next goes to past[past_at] */
    unsigned past_count, past_at;
};

struct store {
    struct store_key keys[STORE_KEYS_MAX];
    struct lua_host *lua; /* NULL: the twin alone */
    int script;
    bool keeps_past;
    int64_t drift_ppm;
    int64_t step_us;      /* how far the clock has been set, all together */
    char difference[200]; /* "" : Lua and C agreed so far */
};

void store_init(struct store *store, struct lua_host *lua, int script);

/* The store's time without its steps, and with them. */
int64_t store_smooth_us(const struct store *store, int64_t true_us);
int64_t store_now_us(const struct store *store, int64_t true_us);

void store_ask(struct store *store, unsigned key, const struct weir__rule *rule,
               const struct weir__ask *ask, int64_t true_us, struct weir__grant *grant);

/* The key is gone. */
void store_lose(struct store *store, unsigned key);

/* The key is as it was at `then_us`.  Returns how many tokens were granted since, or -1 if there is
 * no key now. */
int64_t store_fail_over(struct store *store, unsigned key, int64_t then_us, int64_t true_us);

/* Frees the copies.  The Lua host is the caller's. */
void store_deinit(struct store *store);

#endif
