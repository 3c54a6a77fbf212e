/* SPDX-License-Identifier: MIT */
#ifndef WEIR_BENCH_CLOCK_H
#define WEIR_BENCH_CLOCK_H

#include <stdint.h>
#include <time.h>

#define NS_PER_S INT64_C(1000000000)
#define NS_PER_MS INT64_C(1000000)

/* The one clock of a run: common to all processes of a machine. */
static inline int64_t clock_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * NS_PER_S + now.tv_nsec;
}

/* Sleeps until the clock shows `at_ns`; sooner only when a signal comes. */
static inline void clock_sleep_until(int64_t at_ns)
{
    struct timespec at = {.tv_sec = at_ns / NS_PER_S, .tv_nsec = at_ns % NS_PER_S};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
}

/* What the wall clock shows less what clock_now_ns() does: by how much, and within *error_ns. */
static inline int64_t clock_wall_offset_ns(int64_t *error_ns)
{
    int64_t offset_ns = 0;
    *error_ns = INT64_MAX;
    for (int i = 0; i < 10; i++) { /* the shortest of ten looks was not interrupted */
        struct timespec wall;
        int64_t before_ns = clock_now_ns();
        clock_gettime(CLOCK_REALTIME, &wall);
        int64_t half_ns = (clock_now_ns() - before_ns) / 2 + 1;
        if (half_ns < *error_ns) {
            *error_ns = half_ns;
            offset_ns = wall.tv_sec * NS_PER_S + wall.tv_nsec - before_ns - half_ns;
        }
    }
    return offset_ns;
}

#endif
