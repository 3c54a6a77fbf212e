/* SPDX-License-Identifier: MIT */
/*
 * The store in a box: a Lua state in which `redis`, `struct`, KEYS and ARGV are what a script
 * finds in Redis, over hashes in this process.  What is imitated, because the scripts could
 * depend on it:
 *
 *   - an argument of redis.call that is a number is written with 17 digits ("%.17g")
 *   - a nil reply is false in Lua; TIME answers two strings
 *   - a reply number loses its fraction, an array ends at its first nil, and a table
 *     with `err` is an error
 *   - an unknown command, or one that fails, ends the script
 *   - scripts cannot make globals
 *   - a key vanishes at its time, and PEXPIRE counts whole milliseconds
 */
#include "lua_host.h"

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hashes.h"
#include "lua_struct.h"

struct lua_host {
    lua_State *lua;
    struct hashes hashes;
    bool full;
    uint64_t writes;
};

struct lua_host_copy {
    struct bytes key;
    struct hash *hash; /* NULL: it was not there */
};

/* ---- What a script finds ------------------------------------------------------------------- */

static struct lua_host *host_of(lua_State *lua) { return lua_touserdata(lua, lua_upvalueindex(1)); }

/* The argument of redis.call as Redis would send it; a number goes through `text`. */
static const char *argument(lua_State *lua, int index, char text[32], size_t *len)
{
    if (lua_type(lua, index) == LUA_TNUMBER) {
        *len = (size_t)snprintf(text, 32, "%.17g", lua_tonumber(lua, index));
        return text;
    }
    if (lua_type(lua, index) != LUA_TSTRING) {
        luaL_error(lua, "Lua redis lib command arguments must be strings or integers");
    }
    return lua_tolstring(lua, index, len);
}

static int call_time(lua_State *lua, struct lua_host *host)
{
    char text[32];
    lua_createtable(lua, 2, 0);
    snprintf(text, sizeof text, "%lld", (long long)(host->hashes.now_us / 1000000));
    lua_pushstring(lua, text);
    lua_rawseti(lua, -2, 1);
    snprintf(text, sizeof text, "%lld", (long long)(host->hashes.now_us % 1000000));
    lua_pushstring(lua, text);
    lua_rawseti(lua, -2, 2);
    return 1;
}

static int call_hmget(lua_State *lua, struct hash *hash)
{
    int count = lua_gettop(lua) - 2;
    lua_createtable(lua, count, 0);
    for (int i = 0; i < count; i++) {
        struct field *field = hash == NULL ? NULL : hash_field(hash, luaL_checkstring(lua, i + 3));
        if (field == NULL) {
            lua_pushboolean(lua, 0);
        } else {
            lua_pushlstring(lua, field->value.data, field->value.len);
        }
        lua_rawseti(lua, -2, i + 1);
    }
    return 1;
}

static int call_hset(lua_State *lua, struct lua_host *host, const char *key, size_t key_len)
{
    int top = lua_gettop(lua);
    if (top < 4 || top % 2 != 0) {
        return luaL_error(lua, "ERR wrong number of arguments for 'hset' command");
    }
    if (host->full) {
        return luaL_error(lua, "OOM command not allowed when used memory > 'maxmemory'");
    }
    struct hash *hash = hashes_find_or_make(&host->hashes, key, key_len);
    for (int i = 3; i < top; i += 2) {
        char text[32];
        size_t len;
        const char *value = argument(lua, i + 1, text, &len);
        hash_set(hash, luaL_checkstring(lua, i), value, len);
    }
    host->writes++;
    lua_pushnumber(lua, (top - 2) / 2);
    return 1;
}

static int call_pexpire(lua_State *lua, struct lua_host *host, struct hash *hash)
{
    char text[32];
    char *end;
    size_t len;
    const char *value = argument(lua, 3, text, &len);
    long long ms = strtoll(value, &end, 10);
    if (*end != 0 || len == 0) {
        return luaL_error(lua, "ERR value is not an integer or out of range");
    }
    if (hash != NULL) {
        hash->expires_us = host->hashes.now_us + ms * 1000;
    }
    host->writes++;
    lua_pushnumber(lua, hash != NULL);
    return 1;
}

static int redis_call(lua_State *lua)
{
    struct lua_host *host = host_of(lua);
    const char *command = luaL_checkstring(lua, 1);
    if (strcmp(command, "TIME") == 0) {
        return call_time(lua, host);
    }
    size_t key_len;
    const char *key = luaL_checklstring(lua, 2, &key_len);
    if (strcmp(command, "HMGET") == 0) {
        return call_hmget(lua, hashes_find(&host->hashes, key, key_len));
    }
    if (strcmp(command, "HSET") == 0) {
        return call_hset(lua, host, key, key_len);
    }
    if (strcmp(command, "PEXPIRE") == 0) {
        return call_pexpire(lua, host, hashes_find(&host->hashes, key, key_len));
    }
    return luaL_error(lua, "ERR unknown command called from script: %s", command);
}

/* redis.call whose failure is a table with `err`. */
static int redis_pcall(lua_State *lua)
{
    lua_pushlightuserdata(lua, host_of(lua));
    lua_pushcclosure(lua, redis_call, 1);
    lua_insert(lua, 1);
    if (lua_pcall(lua, lua_gettop(lua) - 1, 1, 0) != 0) {
        lua_createtable(lua, 0, 1);
        lua_insert(lua, -2);
        lua_setfield(lua, -2, "err");
    }
    return 1;
}

static int redis_error_reply(lua_State *lua)
{
    lua_createtable(lua, 0, 1);
    lua_pushvalue(lua, 1);
    lua_setfield(lua, -2, "err");
    return 1;
}

static int refuse_global(lua_State *lua)
{
    return luaL_error(lua, "Script attempted to create global variable '%s'", lua_tostring(lua, 2));
}

static void set_function(struct lua_host *host, const char *table, const char *name,
                         lua_CFunction fn)
{
    lua_State *lua = host->lua;
    lua_getglobal(lua, table);
    lua_pushlightuserdata(lua, host);
    lua_pushcclosure(lua, fn, 1);
    lua_setfield(lua, -2, name);
    lua_pop(lua, 1);
}

/* An array of `count` under a global name, reused by every call. */
static void set_array(lua_State *lua, const char *name, int count)
{
    lua_createtable(lua, count, 0);
    lua_setglobal(lua, name);
}

/* ---- The host ------------------------------------------------------------------------------ */

struct lua_host *lua_host_new(void)
{
    struct lua_host *host = must(calloc(1, sizeof *host));
    hashes_init(&host->hashes);
    lua_State *lua = host->lua = must(luaL_newstate());
    luaL_openlibs(lua);
    set_array(lua, "redis", 0);
    set_array(lua, "struct", 0);
    set_array(lua, "KEYS", 1);
    set_array(lua, "ARGV", LUA_HOST_ARGS_MAX);
    set_function(host, "redis", "call", redis_call);
    set_function(host, "redis", "pcall", redis_pcall);
    set_function(host, "redis", "error_reply", redis_error_reply);
    set_function(host, "struct", "pack", lua_struct_pack);
    set_function(host, "struct", "unpack", lua_struct_unpack);
    lua_createtable(lua, 0, 1);
    lua_pushcfunction(lua, refuse_global);
    lua_setfield(lua, -2, "__newindex");
    lua_setmetatable(lua, LUA_GLOBALSINDEX);
    return host;
}

void lua_host_free(struct lua_host *host)
{
    if (host == NULL) {
        return;
    }
    hashes_deinit(&host->hashes);
    lua_close(host->lua);
    free(host);
}

void lua_host_set_now_us(struct lua_host *host, int64_t now_us) { host->hashes.now_us = now_us; }

uint64_t lua_host_writes(const struct lua_host *host) { return host->writes; }

void lua_host_set_full(struct lua_host *host, bool full) { host->full = full; }

int lua_host_load(struct lua_host *host, const char *source, size_t source_len)
{
    if (luaL_loadbuffer(host->lua, source, source_len, "@user_script") != 0) {
        lua_pop(host->lua, 1);
        return -1;
    }
    return luaL_ref(host->lua, LUA_REGISTRYINDEX);
}

static void fail(struct lua_reply *reply, const char *text)
{
    reply->count = 0;
    snprintf(reply->error, sizeof reply->error, "%s", text != NULL ? text : "ERR");
}

/* The value on top of the stack, as Redis would turn it into a reply. */
static void read_reply(lua_State *lua, struct lua_reply *reply)
{
    if (!lua_istable(lua, -1)) {
        fail(reply, "ERR the reply is no array");
        return;
    }
    lua_getfield(lua, -1, "err");
    bool is_error = lua_isstring(lua, -1);
    if (is_error) {
        fail(reply, lua_tostring(lua, -1));
    }
    lua_pop(lua, 1);
    while (!is_error) {
        lua_rawgeti(lua, -1, (int)reply->count + 1);
        int type = lua_type(lua, -1);
        lua_Number number = lua_tonumber(lua, -1);
        lua_pop(lua, 1);
        if (type == LUA_TNIL) {
            return;
        }
        if (type != LUA_TNUMBER || reply->count == LUA_HOST_VALUES_MAX) {
            fail(reply, "ERR the reply is no array of integers, or too long");
            return;
        }
        /* what a cast of NaN or of a number out of range gives on x86, which is what Redis sends */
        bool fits = number > -9.2233720368547758e18 && number < 9.2233720368547758e18;
        reply->values[reply->count++] = fits ? (int64_t)number : INT64_MIN;
    }
}

void lua_host_call(struct lua_host *host, int script, const void *key, size_t key_len,
                   const void *const argv[], const size_t argv_len[], size_t argc,
                   struct lua_reply *reply)
{
    lua_State *lua = host->lua;
    reply->count = 0;
    reply->error[0] = 0;
    lua_getglobal(lua, "KEYS");
    lua_pushlstring(lua, key, key_len);
    lua_rawseti(lua, -2, 1);
    lua_getglobal(lua, "ARGV");
    for (size_t i = 0; i < LUA_HOST_ARGS_MAX; i++) {
        if (i < argc) {
            lua_pushlstring(lua, argv[i], argv_len[i]);
        } else {
            lua_pushnil(lua);
        }
        lua_rawseti(lua, -2, (int)i + 1);
    }
    lua_rawgeti(lua, LUA_REGISTRYINDEX, script);
    if (lua_pcall(lua, 0, 1, 0) != 0) {
        fail(reply, lua_tostring(lua, -1));
    } else {
        read_reply(lua, reply);
    }
    lua_settop(lua, 0);
}

bool lua_host_key_exists(struct lua_host *host, const void *key, size_t key_len)
{
    return hashes_find(&host->hashes, key, key_len) != NULL;
}

int64_t lua_host_key_ttl_us(struct lua_host *host, const void *key, size_t key_len)
{
    const struct hash *hash = hashes_find(&host->hashes, key, key_len);
    if (hash == NULL) {
        return -2;
    }
    return hash->expires_us == HASHES_NEVER ? -1 : hash->expires_us - host->hashes.now_us;
}

const char *lua_host_field(struct lua_host *host, const void *key, size_t key_len,
                           const char *field, size_t *len)
{
    struct hash *hash = hashes_find(&host->hashes, key, key_len);
    struct field *found = hash == NULL ? NULL : hash_field(hash, field);
    if (found == NULL) {
        return NULL;
    }
    *len = found->value.len;
    return found->value.data;
}

void lua_host_field_set(struct lua_host *host, const void *key, size_t key_len, const char *field,
                        const void *value, size_t len)
{
    hash_set(hashes_find_or_make(&host->hashes, key, key_len), field, value, len);
}

void lua_host_field_delete(struct lua_host *host, const void *key, size_t key_len,
                           const char *field)
{
    struct hash *hash = hashes_find(&host->hashes, key, key_len);
    if (hash != NULL) {
        hash_unset(hash, field);
    }
}

void lua_host_key_persist(struct lua_host *host, const void *key, size_t key_len)
{
    struct hash *hash = hashes_find(&host->hashes, key, key_len);
    if (hash != NULL) {
        hash->expires_us = HASHES_NEVER;
    }
}

void lua_host_key_delete(struct lua_host *host, const void *key, size_t key_len)
{
    hashes_delete(&host->hashes, key, key_len);
}

void lua_host_flush(struct lua_host *host) { hashes_flush(&host->hashes); }

struct lua_host_copy *lua_host_key_copy(struct lua_host *host, const void *key, size_t key_len)
{
    struct lua_host_copy *copy = must(malloc(sizeof *copy));
    const struct hash *hash = hashes_find(&host->hashes, key, key_len);
    copy->key = bytes_of(key, key_len);
    copy->hash = hash == NULL ? NULL : hash_clone(hash);
    return copy;
}

void lua_host_key_restore(struct lua_host *host, const struct lua_host_copy *copy)
{
    lua_host_key_delete(host, copy->key.data, copy->key.len);
    if (copy->hash != NULL) {
        hashes_insert(&host->hashes, hash_clone(copy->hash));
    }
}

void lua_host_copy_free(struct lua_host_copy *copy)
{
    if (copy == NULL) {
        return;
    }
    if (copy->hash != NULL) {
        hash_free(copy->hash);
    }
    free(copy->key.data);
    free(copy);
}
