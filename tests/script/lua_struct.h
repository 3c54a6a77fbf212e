/* SPDX-License-Identifier: MIT */
#ifndef WEIR_TESTS_LUA_STRUCT_H
#define WEIR_TESTS_LUA_STRUCT_H

#include <lua.h>

/* For Lua: struct.pack(format, numbers...), struct.unpack(format, bytes, [position]). */
int lua_struct_pack(lua_State *lua);
int lua_struct_unpack(lua_State *lua);

#endif
