/* SPDX-License-Identifier: MIT */
#ifndef WEIR_CORE_CAP_H
#define WEIR_CORE_CAP_H

#include <stdbool.h>
#include <stdint.h>

/*
 * The cap: what one process lets through for one bucket, before the bucket is asked.  Two shapes,
 * after the definition of Guava's SmoothRateLimiter.
 *
 *     s       the stable interval, period / tokens: the time of one token
 *     free    the next free time: who comes before it is refused
 *     stored  time in which nobody came, and which may be taken as tokens, one for each s
 *
 * In both, whoever comes at or after `free` gets all it wants, also more than is stored, and who
 * comes next waits for it: `free` moves.
 *
 * BURST, warmup_us = 0.  Stored tokens cost nothing; at most burst is stored, and nothing at first.
 * Then free - stored is one number, `at`: a take of `cost` at `now` is allowed iff at <= now, and
 *
 *     at := max(at, now - burst) + cost * s
 *
 * It is kept in nanoseconds and a fraction of one with the denominator `tokens`: nothing is ever
 * rounded.  So over every interval of length t, with `last` the cost of the last take in it,
 *
 *     taken <= (burst + t) / s + last
 *
 * since at >= begin - burst before the first take, and at <= end before the last.
 *
 * WARMUP.  Unused is cold: at most warmup is stored, and all of it at first.  Stored tokens cost
 * time too: s each in the lower half, from there rising evenly to 3 * s each when all is stored
 * (Guava's trapezoid with its coldFactor 3: maxPermits is warmup / s, thresholdPermits half of it,
 * and a token cools down in s).  With f(u) = 2 * max(0, u - warmup / 2)^2 / warmup, a take is
 * allowed iff free <= now, and
 *
 *     stored := min(stored + (now - free), warmup)
 *     free   := now + cost * s + f(stored) - f(max(0, stored - cost * s))
 *     stored := max(0, stored - cost * s)
 *
 * `free` is kept in nanoseconds, `stored` in 2^-20 of one, both rounded against the caller: a take
 * leaves `free` never earlier than real numbers would from the same state, and later by less than
 * 1 ns + 2^-18 ns; `stored` never smaller, and larger by less than 2^-20 ns.  Every token costs s
 * or more, so over every interval
 *
 *     taken <= t / s + last
 *
 * No cost moves `free` by more than 2^61 ns, 73 years; until then the formulas hold.
 *
 * A changed limit needs no work here.  Both words are times and may be read in either shape: what
 * was stored stays stored, as a time, and what is more than the new limit allows is cut when it is
 * read.
 */

/* tokens 0: no cap.  tokens 1..10^9, period_us 1..10^12, the others 0..3.6 * 10^9. */
struct weir__cap_config {
    int64_t tokens;
    int64_t period_us;
    int64_t burst_us;
    int64_t warmup_us; /* 0: the burst shape */
};

/* The state of one bucket's cap.  All times are of one clock, which may step back. */
struct weir__cap {
    int64_t at_ns; /* burst: `at`; warmup: `free`; WEIR__CAP_NEW */
    int64_t part;  /* burst: of 1 / tokens ns, on top; warmup: `stored`, of 2^-20 ns */
};

#define WEIR__CAP_NEW INT64_MIN

#define WEIR__CAP_COST_MOST INT64_C(1000000000) /* no capacity is larger */

/* A take that may have to be undone. */
struct weir__cap_taken {
    int64_t cost; /* 0: nothing was taken */
    struct weir__cap before, after;
};

/* In all of them: *config has tokens > 0; now_ns is 0..2^61. */

void weir__cap_init(struct weir__cap *cap);

/* How long until a take is allowed: 0, now. */
int64_t weir__cap_wait_ns(const struct weir__cap *cap, const struct weir__cap_config *config,
                          int64_t now_ns);

/* Takes `cost` (0..WEIR__CAP_COST_MOST) and returns 0, or changes nothing and returns the time
 * until it would be allowed.  Cost 0 changes nothing. */
int64_t weir__cap_take(struct weir__cap *cap, const struct weir__cap_config *config, int64_t cost,
                       struct weir__cap_taken *taken, int64_t now_ns);

/* As if the take had never been.  Exactly so if nobody has taken since (but that a first take has
 * begun to store).  Else, in the burst shape, its tokens are stored again, less what could not have
 * been kept so long; in the warmup shape the time that it made unused counts as unused, which makes
 * the cap colder, as it would be. */
void weir__cap_undo(struct weir__cap *cap, const struct weir__cap_config *config,
                    const struct weir__cap_taken *taken, int64_t now_ns);

/* Puts back tokens (0..WEIR__CAP_COST_MOST) that were taken some time ago: as if the last takes had
 * been so much smaller.  In the bounds above they count as not taken at the time they come back. */
void weir__cap_refund(struct weir__cap *cap, const struct weir__cap_config *config, int64_t tokens,
                      int64_t now_ns);

#endif
