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

#endif
