/* SPDX-License-Identifier: MIT */
#ifndef WEIR_TESTS_LUA_HOST_H
#define WEIR_TESTS_LUA_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A store in a box: the shipped scripts, run by the same Lua that Redis has (5.1), over a few
 * hash keys and a clock that stands still until it is set.  It knows the commands the scripts use
 * (TIME, HMGET, HSET, PEXPIRE), numbers travel as they do in Redis, and keys can be lost, copied
 * and put back, which is what fault injection needs.  One thread at a time.
 */

struct lua_host;
struct lua_host_copy; /* one key as it was, with its expiry; also a key that was not there */

#define LUA_HOST_ARGS_MAX 3
#define LUA_HOST_VALUES_MAX 16

struct lua_reply {
    size_t count; /* of values; an array ends at its first nil */
    int64_t values[LUA_HOST_VALUES_MAX];
    char error[256]; /* "" : none; else count is 0 */
};

/* Aborts without memory, like everything here. */
struct lua_host *lua_host_new(void);
void lua_host_free(struct lua_host *host);

/* Store time in microseconds; it may go back. */
void lua_host_set_now_us(struct lua_host *host, int64_t now_us);

/* Memory full, no eviction: each command that writes is refused with OOM, as Redis does. */
void lua_host_set_full(struct lua_host *host, bool full);

/* Compiles a script once.  Returns its handle for lua_host_call, or -1 (the text is no Lua). */
int lua_host_load(struct lua_host *host, const char *source, size_t source_len);

/* EVALSHA with one key and up to LUA_HOST_ARGS_MAX arguments. */
void lua_host_call(struct lua_host *host, int script, const void *key, size_t key_len,
                   const void *const argv[], const size_t argv_len[], size_t argc,
                   struct lua_reply *reply);

/* How many commands that write scripts have run so far. */
uint64_t lua_host_writes(const struct lua_host *host);

bool lua_host_key_exists(struct lua_host *host, const void *key, size_t key_len);
int64_t lua_host_key_ttl_us(struct lua_host *host, const void *key, size_t key_len); /* -1: no
                                                                      expiry; -2: no key */

/* The bytes of a field, borrowed until the next call; NULL when there is none. */
const char *lua_host_field(struct lua_host *host, const void *key, size_t key_len,
                           const char *field, size_t *len);

/* As another client would: HSET (making the key without expiry), HDEL, PERSIST, DEL, FLUSHALL. */
void lua_host_field_set(struct lua_host *host, const void *key, size_t key_len, const char *field,
                        const void *value, size_t len);
void lua_host_field_delete(struct lua_host *host, const void *key, size_t key_len,
                           const char *field);
void lua_host_key_persist(struct lua_host *host, const void *key, size_t key_len);
void lua_host_key_delete(struct lua_host *host, const void *key, size_t key_len);
void lua_host_flush(struct lua_host *host);

/* A failover puts back what a replica had.  The copy is the caller's; restoring does not
 * use it up. */
struct lua_host_copy *lua_host_key_copy(struct lua_host *host, const void *key, size_t key_len);
void lua_host_key_restore(struct lua_host *host, const struct lua_host_copy *copy);
void lua_host_copy_free(struct lua_host_copy *copy);

#endif
