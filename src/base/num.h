/* SPDX-License-Identifier: MIT */
#ifndef WEIR_BASE_NUM_H
#define WEIR_BASE_NUM_H

#include <stdint.h>

/* Integer arithmetic that cannot overflow or round the wrong way. */

/* The largest integer that a double, and so a Lua number, holds together with all smaller ones. */
#define WEIR__INT53_MAX ((INT64_C(1) << 53) - 1)

__extension__ typedef unsigned __int128 weir__u128;

static inline int64_t weir__min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t weir__max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t weir__clamp(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

/* a / b rounded up; a >= 0, b > 0, and neither near INT64_MAX. */
static inline int64_t weir__div_up(int64_t a, int64_t b) { return a / b + (a % b != 0); }

/* a * b / c rounded down, through 128 bits; all >= 0, c > 0; saturates at INT64_MAX. */
static inline int64_t weir__mul_div(int64_t a, int64_t b, int64_t c)
{
    weir__u128 q = (weir__u128)(uint64_t)a * (uint64_t)b / (uint64_t)c;
    return q > INT64_MAX ? INT64_MAX : (int64_t)q;
}

static inline int64_t weir__add_sat(int64_t a, int64_t b)
{
    int64_t sum;
    if (!__builtin_add_overflow(a, b, &sum)) {
        return sum;
    }
    return a > 0 ? INT64_MAX : INT64_MIN;
}

static inline uint64_t weir__gcd(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

/* splitmix64: one step of a small generator whose whole state is *seed.  For jitter, never for
 * secrets.
 * Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014. */
static inline uint64_t weir__random(uint64_t *seed)
{
    uint64_t z = (*seed += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* x * U(0.5, 1.5): the jitter of protocol.md L6.  x >= 0 and below 2^52. */
static inline int64_t weir__jitter(int64_t x, uint64_t *seed)
{
    return x / 2 + (int64_t)((weir__u128)weir__random(seed) * (uint64_t)(x + 1) >> 64);
}

#endif
