/* SPDX-License-Identifier: MIT */
/*
 * The two ways through weir_try_acquire that nearly all calls take.
 *
 * Allowed: the bucket is so large that its credit outlasts any batch.  Denied: the bucket has a
 * small limit that each batch exceeds by far, so that the loop has closed its gate; a call in a
 * batch is refused here, without the store.  A batch in which a grant came, or which ran dry, does
 * not count.
 */
#include "paths.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"

#define RICH_RATE_PER_S 1000000000
#define POOR_PERIOD_US 60000000 /* a token a minute: no grant comes while it is measured */
#define WARM_LIMIT_NS (5 * NS_PER_S)

static bool open_bucket(struct weir **weir, struct weir_bucket **bucket, const char *url,
                        struct weir_limit_options *limit_options, char *why, size_t why_size)
{
    struct weir_options options;
    struct weir_error error;
    struct weir_limit *limit;
    char prefix[32];
    weir_options_init(&options, sizeof options);
    snprintf(prefix, sizeof prefix, "weir-bench-%d", (int)getpid());
    options.url = url;
    options.key_prefix = prefix;
    if (weir_open(weir, &options, &error) != WEIR_OK) {
        snprintf(why, why_size, "%s", error.text);
        return false;
    }
    limit_options->budget_percent = 50;
    if (weir_limit_define(*weir, &limit, limit_options, &error) != WEIR_OK) {
        snprintf(why, why_size, "%s", error.text);
        return false;
    }
    int code = weir_bucket_get(limit, "key", strlen("key"), bucket);
    if (code != WEIR_OK) {
        snprintf(why, why_size, "no bucket: %s", weir_code_meaning(code));
    }
    return code == WEIR_OK;
}

/* Calls until the bucket answers as it will from then on. */
static bool warm(struct weir_bucket *bucket, int verdict, enum weir_reason reason)
{
    int64_t until_ns = clock_now_ns() + WARM_LIMIT_NS;
    struct weir_result result;
    while (weir_try_acquire(bucket, 1, &result) != verdict || result.reason != reason) {
        if (clock_now_ns() >= until_ns) {
            return false;
        }
    }
    return true;
}

bool paths_open(struct paths *paths, const char *url, char *why, size_t why_size)
{
    struct weir_limit_options limit;
    *paths = (struct paths){0};
    weir_limit_options_init(&limit, sizeof limit);
    limit.name = "rich";
    limit.rate_tokens = RICH_RATE_PER_S;
    limit.rate_period_us = 1000000;
    if (!open_bucket(&paths->rich_weir, &paths->rich, NULL, &limit, why, why_size)) {
        paths_close(paths);
        return false;
    }
    weir_limit_options_init(&limit, sizeof limit);
    limit.name = "poor";
    limit.rate_tokens = 1;
    limit.rate_period_us = POOR_PERIOD_US;
    limit.capacity_tokens = 2;
    if (!open_bucket(&paths->poor_weir, &paths->poor, url, &limit, why, why_size)) {
        paths_close(paths);
        return false;
    }
    if (!warm(paths->rich, WEIR_ALLOWED, WEIR_WITHIN_LIMIT) ||
        !warm(paths->poor, WEIR_DENIED, WEIR_OVER_LIMIT)) {
        snprintf(why, why_size, "the buckets do not answer as they should");
        paths_close(paths);
        return false;
    }
    return true;
}

void paths_close(struct paths *paths)
{
    weir_bucket_unref(paths->rich);
    weir_bucket_unref(paths->poor);
    if (paths->rich_weir != NULL) {
        weir_close_wait(paths->rich_weir);
    }
    if (paths->poor_weir != NULL) {
        weir_close_wait(paths->poor_weir);
    }
    *paths = (struct paths){0};
}

bool paths_allow(void *arg, unsigned count)
{
    int all = WEIR_ALLOWED;
    for (unsigned i = 0; i < count; i++) {
        all &= weir_try_acquire(arg, 1, NULL);
    }
    return all == WEIR_ALLOWED;
}

bool paths_deny(void *arg, unsigned count)
{
    int any = WEIR_DENIED;
    for (unsigned i = 0; i < count; i++) {
        any |= weir_try_acquire(arg, 1, NULL);
    }
    /* The reason is asked for outside the batch's bulk: one call in thousands. */
    struct weir_result result;
    return any == WEIR_DENIED && weir_try_acquire(arg, 1, &result) == WEIR_DENIED &&
           result.reason == WEIR_OVER_LIMIT;
}
