/* SPDX-License-Identifier: MIT */
/*
 * The wait between two attempts to connect: it doubles from one failure to the next, up to a most,
 * with jitter, so that the clients of a store that comes back do not come all at once.
 *
 *     wait = min(LEAST << failures, MOST) * U(0.5, 1.5)
 */
#include "io/backoff.h"

#include "base/num.h"

/* By choice.  50 ms: a restart of a proxy is over by then, and 20 attempts a second hurt nobody.
 * 500 ms: with jitter 750 ms at most, so that service is back well within 2 s. */
#define LEAST_MS 50
#define MOST_MS 500
#define DOUBLINGS 4 /* 50, 100, 200, 400, then the most */

/* A connection that stood for less has not shown that it works. */
#define STOOD_NS UINT64_C(1000000000)

uint64_t weir__backoff_ms(struct weir__backoff *backoff)
{
    int64_t wait_ms = MOST_MS;
    if (backoff->failures < DOUBLINGS) {
        wait_ms = (int64_t)LEAST_MS << backoff->failures;
        backoff->failures++;
    }
    return (uint64_t)weir__jitter(wait_ms, &backoff->seed);
}

void weir__backoff_stood(struct weir__backoff *backoff, uint64_t stood_ns)
{
    if (stood_ns >= STOOD_NS) {
        backoff->failures = 0;
    }
}
