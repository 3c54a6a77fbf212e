/* SPDX-License-Identifier: MIT */
/*
 * struct.pack and struct.unpack as a script finds them in Redis, as far as ours uses them: the
 * numbers d, I4 and B, little-endian, not aligned.  What does not fit is cut there; here that is an
 * error, since no script means to.
 */
#include "lua_struct.h"

#include <lauxlib.h>
#include <stdint.h>
#include <string.h>

/* The size of the number that a format names at *at, which moves on: 8 of a double, else of an
 * unsigned integer; 0 at the end. */
static size_t next_number(lua_State *lua, const char **at)
{
    static const struct {
        const char *name;
        size_t size;
    } kinds[] = {{"d", 8}, {"I4", 4}, {"B", 1}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        size_t len = strlen(kinds[i].name);
        if (strncmp(*at, kinds[i].name, len) == 0) {
            *at += len;
            return kinds[i].size;
        }
    }
    if (**at != 0) {
        luaL_error(lua, "this host packs d, I4 and B only: %s", *at);
    }
    return 0;
}

/* The numbers of a format, which begins with its byte order. */
static const char *numbers_of(lua_State *lua)
{
    const char *format = luaL_checkstring(lua, 1);
    if (format[0] != '<') {
        luaL_error(lua, "this host packs little-endian numbers only: %s", format);
    }
    return format + 1;
}

int lua_struct_pack(lua_State *lua)
{
    const char *at = numbers_of(lua);
    unsigned char out[256];
    size_t len = 0;
    size_t size;
    for (int i = 2; (size = next_number(lua, &at)) > 0; i++) {
        double number = luaL_checknumber(lua, i);
        uint64_t bits;
        memcpy(&bits, &number, sizeof bits);
        if (size < 8) {
            if (!(number >= 0 && number < (double)(UINT64_C(1) << 8 * size)) ||
                number != (double)(uint64_t)number) {
                luaL_error(lua, "%f does not fit into %d bytes", number, (int)size);
            }
            bits = (uint64_t)number;
        }
        if (len + size > sizeof out) {
            luaL_error(lua, "this host packs 256 bytes at most");
        }
        for (size_t k = 0; k < size; k++) {
            out[len++] = (unsigned char)(bits >> 8 * k);
        }
    }
    lua_pushlstring(lua, (const char *)out, len);
    return 1;
}

int lua_struct_unpack(lua_State *lua)
{
    const char *at = numbers_of(lua);
    size_t len;
    const unsigned char *in = (const unsigned char *)luaL_checklstring(lua, 2, &len);
    size_t position = (size_t)luaL_optinteger(lua, 3, 1) - 1;
    size_t size;
    int count = 0;
    while ((size = next_number(lua, &at)) > 0) {
        if (position > len || len - position < size) {
            luaL_error(lua, "data string too short");
        }
        uint64_t bits = 0;
        for (size_t k = 0; k < size; k++) {
            bits |= (uint64_t)in[position++] << 8 * k;
        }
        double number = (double)bits;
        if (size == 8) {
            memcpy(&number, &bits, sizeof number);
        }
        luaL_checkstack(lua, 2, "too many numbers");
        lua_pushnumber(lua, number);
        count++;
    }
    lua_pushnumber(lua, (lua_Number)(position + 1));
    return count + 1;
}
