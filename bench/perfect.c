/* SPDX-License-Identifier: MIT */
/*
 * What a perfect limiter makes of a load: the yardstick for how well a real one uses its limit.
 *
 * Tokens flow, in a thousand steps a period.  In each step as much is admitted as is offered or is
 * there, whichever is less:
 *
 *     aligned     there = C - this period
 *     sliding     there = C - the last thousand steps
 *     weighted    there = C - this period - what is left of this one / period * the period before
 *
 * The first and the last period of a run are seldom whole, so no formula of the rate alone will do.
 * Whole periods under a load above the rate hold C each, with any of the three: an aligned one by
 * its rule; a sliding one since the steps of the last period cease to count just as they came; a
 * weighted one since at its end nothing is left of the one before, and so C - this period is there.
 */
#include "perfect.h"

#include "clock.h"

#define STEPS 1000 /* a period */

struct flow {
    double now;          /* in this aligned period */
    double before;       /* in the one before */
    double steps[STEPS]; /* the last of a period, by number modulo STEPS */
    double held;         /* their sum */
};

static double there(const struct flow *flow, const struct promise *promise, double left)
{
    double capacity = (double)promise->capacity;
    switch (promise->bound) {
    case BOUND_ALIGNED: return capacity - flow->now;
    case BOUND_SLIDING: return capacity - flow->held;
    default: return capacity - flow->now - left * flow->before;
    }
}

/* Step `number` since an edge of the periods. */
static double step(struct flow *flow, const struct promise *promise, int64_t number, double offered)
{
    int64_t place = number % STEPS;
    if (place == 0) {
        flow->before = flow->now;
        flow->now = 0;
    }
    flow->held -= flow->steps[place];
    flow->steps[place] = 0;
    double left = 1 - (double)(place + 1) / STEPS;
    double free = there(flow, promise, left);
    double admitted = offered < free ? offered : free > 0 ? free : 0;
    flow->now += admitted;
    flow->held += admitted;
    flow->steps[place] = admitted;
    return admitted;
}

double perfect_admits(const struct promise *promise, double offered_per_s, int64_t span_ns)
{
    if (promise->bound == BOUND_INTERVAL) {
        return (double)promise->capacity +
               (double)promise->rate_per_s * (double)span_ns / (double)NS_PER_S;
    }
    static struct flow flow;
    flow = (struct flow){0};
    double step_ns = (double)promise->period_ns / STEPS;
    double offered = offered_per_s * step_ns / (double)NS_PER_S;
    int64_t first = (int64_t)((double)(promise->epoch_ns % promise->period_ns) / step_ns);
    int64_t count = (int64_t)((double)span_ns / step_ns);
    double admitted = 0;
    for (int64_t i = 0; i < count; i++) {
        admitted += step(&flow, promise, first + i, offered);
    }
    return admitted;
}
