/* SPDX-License-Identifier: MIT */
/*
 * A threaded server's request path: threads [URL]
 *
 * Each request passes two limits.  One is for the whole service, on one key that every thread hits:
 * its bucket is looked up once and kept, so a decision is one atomic take.  The other is for each
 * user, found by key.  weir has a thread of its own for the store, and no worker ever waits for it
 * longer than it says.
 *
 * The order matters: the user's limit comes first, so that one greedy user's refused requests cost
 * the service nothing.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <weir/weir.h>

#define WORKERS 4
#define REQUESTS 100 /* of each worker */

struct service {
    struct weir *weir;
    struct weir_bucket *all; /* everybody's requests together */
    struct weir_limit *each_user;
};

struct worker {
    struct service *service;
    pthread_t thread;
    const char *user;
    unsigned served, turned_away, failed;
};

/* May this request be served?  An HTTP status says it. */
static int admit(struct service *service, const char *user)
{
    /* The first request of a user has nothing leased here yet, so this may wait for the store, but
     * never for tokens: the time to wait for those is 0. */
    int verdict = weir_acquire_wait_key(service->each_user, user, strlen(user), 1, 0, NULL);
    if (verdict == WEIR_ALLOWED) {
        /* The hot key: a few nanoseconds; it waits only when nothing is leased yet. */
        verdict = weir_acquire_wait(service->all, 1, 0, NULL);
    }
    switch (verdict) {
    case WEIR_ALLOWED: return 200;
    case WEIR_DENIED: return 429;
    default: return 503; /* the store cannot say, or an error: not the user's fault */
    }
}

static void *serve(void *arg)
{
    struct worker *worker = arg;
    for (int i = 0; i < REQUESTS; i++) {
        switch (admit(worker->service, worker->user)) {
        case 200: worker->served++; break;
        case 429: worker->turned_away++; break;
        default: worker->failed++; break;
        }
    }
    return NULL;
}

static int define(struct weir *weir, struct weir_limit **limit, const char *name,
                  uint64_t per_minute, struct weir_error *error)
{
    struct weir_limit_options rule;
    weir_limit_options_init(&rule, sizeof rule);
    rule.name = name;
    rule.rate_tokens = per_minute;
    rule.rate_period_us = 60 * 1000 * 1000;
    rule.capacity_tokens = per_minute;
    rule.budget_percent = 10;
    rule.outage = WEIR_OUTAGE_CLOSED;
    return weir_limit_define(weir, limit, &rule, error);
}

static int service_open(struct service *service, const char *url, struct weir_error *error)
{
    struct weir_options options;
    struct weir_limit *all;
    weir_options_init(&options, sizeof options);
    options.url = url;
    int code = weir_open(&service->weir, &options, error);
    if (code != WEIR_OK) {
        return code;
    }
    code = define(service->weir, &all, "service", 150, error);
    if (code == WEIR_OK) {
        code = define(service->weir, &service->each_user, "user", 60, error);
    }
    if (code == WEIR_OK) {
        code = weir_bucket_get(all, "", 0, &service->all); /* there is one: any key will do */
        snprintf(error->text, sizeof error->text, "%s", weir_code_meaning(code));
    }
    if (code != WEIR_OK) {
        weir_close_wait(service->weir);
    }
    return code;
}

static void service_close(struct service *service)
{
    weir_bucket_unref(service->all);
    weir_close_wait(service->weir); /* gives back what was leased and not spent */
}

int main(int argc, char **argv)
{
    static const char *const users[WORKERS] = {"alice", "bob", "carol", "dave"};
    struct service service;
    struct worker workers[WORKERS];
    struct weir_error error;
    if (service_open(&service, argc > 1 ? argv[1] : NULL, &error) != WEIR_OK) {
        fprintf(stderr, "threads: %s\n", error.text);
        return 1;
    }
    unsigned started = 0;
    for (; started < WORKERS; started++) {
        workers[started] = (struct worker){.service = &service, .user = users[started]};
        if (pthread_create(&workers[started].thread, NULL, serve, &workers[started]) != 0) {
            fprintf(stderr, "threads: no thread\n");
            break;
        }
    }
    for (unsigned i = 0; i < started; i++) {
        pthread_join(workers[i].thread, NULL);
        printf("%-6s served %3u, turned away %3u, failed %u\n", workers[i].user, workers[i].served,
               workers[i].turned_away, workers[i].failed);
    }
    service_close(&service);
    return started == WORKERS ? 0 : 1;
}
