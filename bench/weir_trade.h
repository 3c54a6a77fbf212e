/* SPDX-License-Identifier: MIT */
#ifndef WEIR_BENCH_WEIR_TRADE_H
#define WEIR_BENCH_WEIR_TRADE_H

#include "crew.h"

#define USER_KEYS 200
#define USERS_OFFERED_PER_S 500 /* over all keys and processes */

/* Decides by weir: the hot key by its handle, and beside it some traffic of many users by key. */
extern const struct trade weir_trade;

#endif
