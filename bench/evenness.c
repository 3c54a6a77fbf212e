/* SPDX-License-Identifier: MIT */
/*
 * The evenness of a queue's output.
 *
 * Several weirs, each with a loop and a connection of its own as processes have them, share one key
 * of a leaky bucket as a queue, and callers enough wait at each that the queue is never empty.  The
 * moment of every departure is noted, of all weirs in one list.  Perfect would be: each exactly one
 * token's time after the last.
 *
 * Burst: the most that departed in any interval above rate * its length; 1 is perfect.
 */
#include "evenness.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <uv.h>

#include "base/atomic.h"
#include "weir/weir.h"

#define WEIRS 4
#define CALLERS 20 /* at each */
#define RATE_PER_S 200
#define APART_NS (UINT64_C(1000000000) / RATE_PER_S)
#define WARM_MS 500 /* until all queue up */
#define RUN_MS 5000
#define DEPARTURES_MOST (2 * RATE_PER_S * (WARM_MS + RUN_MS) / 1000)
#define PATIENCE_US 3000000

static uint64_t departures[DEPARTURES_MOST];
static uint64_t departed; /* atomic */
static uint64_t failed;   /* atomic: answers that were none */
static uint32_t over;     /* atomic */

static void line_up(struct weir_bucket *bucket);

static void leave(void *arg, const struct weir_result *result)
{
    uint64_t now_ns = uv_hrtime();
    if (result->verdict == WEIR_ALLOWED) {
        uint64_t at = weir__add_relaxed(&departed, 1);
        if (at < DEPARTURES_MOST) {
            departures[at] = now_ns;
        }
    } else if (!weir__load_relaxed(&over)) {
        (void)weir__add_relaxed(&failed, 1);
    }
    line_up(arg);
}

static void line_up(struct weir_bucket *bucket)
{
    if (!weir__load_relaxed(&over) &&
        weir_acquire(bucket, 1, PATIENCE_US, leave, bucket, NULL) != WEIR_PENDING) {
        (void)weir__add_relaxed(&failed, 1);
    }
}

static int by_time(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static double burst_of(const uint64_t *at, size_t count)
{
    double excess = 0, worst = 0;
    for (size_t i = 0; i < count; i++) {
        double flowed = i > 0 ? (double)(at[i] - at[i - 1]) / (double)APART_NS : 0;
        excess = (excess > flowed ? excess - flowed : 0) + 1;
        worst = excess > worst ? excess : worst;
    }
    return worst;
}

static void print(uint64_t *at, size_t count)
{
    static uint64_t gaps[DEPARTURES_MOST];
    qsort(at, count, sizeof *at, by_time);
    double burst = burst_of(at, count);
    for (size_t i = 1; i < count; i++) {
        gaps[i - 1] = at[i] - at[i - 1];
    }
    size_t n = count - 1;
    qsort(gaps, n, sizeof *gaps, by_time);
    printf("{\"weirs\": %d, \"rate_per_s\": %d, \"departures\": %zu, \"apart_ms\": %.3f, "
           "\"gap_ms_p1\": %.3f, \"gap_ms_p50\": %.3f, \"gap_ms_p99\": %.3f, \"burst\": %.2f}\n",
           WEIRS, RATE_PER_S, count, (double)APART_NS / 1e6, (double)gaps[n / 100] / 1e6,
           (double)gaps[n / 2] / 1e6, (double)gaps[n - 1 - n / 100] / 1e6, burst);
}

static struct weir_bucket *open_one(struct weir **weir, const char *url, struct weir_error *error)
{
    struct weir_options options;
    struct weir_limit_options rule;
    struct weir_limit *limit;
    struct weir_bucket *bucket;
    weir_options_init(&options, sizeof options);
    weir_limit_options_init(&rule, sizeof rule);
    options.url = url;
    rule.name = "evenness";
    if (weir_limit_parse(&rule, "200/s leaky queue=100 budget=0", error) != WEIR_OK ||
        weir_open(weir, &options, error) != WEIR_OK) {
        return NULL;
    }
    if (weir_limit_define(*weir, &limit, &rule, error) != WEIR_OK ||
        weir_bucket_get(limit, "key", 3, &bucket) != WEIR_OK) {
        return NULL;
    }
    return bucket;
}

bool evenness_print(const char *url, char *why, size_t why_size)
{
    struct weir *weirs[WEIRS] = {NULL};
    struct weir_bucket *buckets[WEIRS] = {NULL};
    struct weir_error error = {.text = ""};
    bool open = true;
    for (int i = 0; i < WEIRS && open; i++) {
        buckets[i] = open_one(&weirs[i], url, &error);
        open = buckets[i] != NULL;
        for (int k = 0; k < CALLERS && open; k++) {
            line_up(buckets[i]);
        }
    }
    size_t from = 0, to = 0;
    if (open) {
        uv_sleep(WARM_MS);
        from = weir__load_relaxed(&departed);
        uv_sleep(RUN_MS);
        to = weir__load_relaxed(&departed);
    }
    weir__store_relaxed(&over, 1);
    for (int i = 0; i < WEIRS; i++) {
        weir_bucket_unref(buckets[i]);
        if (weirs[i] != NULL) {
            (void)weir_close_wait(weirs[i]);
        }
    }
    if (!open || failed > 0 || to > DEPARTURES_MOST || to < from + RATE_PER_S) {
        snprintf(why, why_size, "%s%" PRIu64 " callers were refused, %zu departed", error.text,
                 failed, to - from);
        return false;
    }
    print(departures + from, to - from);
    return true;
}
