/* SPDX-License-Identifier: MIT */
#ifndef WEIR_BENCH_NAIVE_TRADE_H
#define WEIR_BENCH_NAIVE_TRADE_H

#include "crew.h"

/* Decides by one EVALSHA each, as many limiters do: what weir is compared with. */
extern const struct trade naive_trade;

#endif
