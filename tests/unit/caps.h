/* SPDX-License-Identifier: MIT */
#ifndef WEIR_TESTS_CAPS_H
#define WEIR_TESTS_CAPS_H

#include <stdint.h>

#include "core/cap.h"

/* Caps drawn at random, and asked by hand. */

#define US INT64_C(1000) /* ns */
#define MS (1000 * US)
#define SECOND (1000 * MS)
#define S_US INT64_C(1000000)
#define START (1000 * SECOND)
#define FINE (INT64_C(1) << 20) /* of these, stored time is counted in 1 ns */

__extension__ typedef __int128 wide;

/* Sets the seed from WEIR_SEED or a number of its own, and prints it; for a group's setup. */
int cap_seed(void **state);

/* 0..most */
int64_t cap_draw(int64_t most);

struct weir__cap_config cap_random_burst(void);
struct weir__cap_config cap_random_warmup(void);
struct weir__cap_config cap_random_config(void);

/* A time to let pass: often up to the very moment of the next take, or a nanosecond before. */
int64_t cap_random_step(const struct weir__cap *cap, const struct weir__cap_config *config,
                        int64_t now_ns);

/* weir__cap_take.  Fails unless a look says the same before, and what takes nothing changes
 * nothing. */
int64_t cap_take(struct weir__cap *cap, const struct weir__cap_config *config, int64_t cost,
                 int64_t now_ns);

#endif
