/* SPDX-License-Identifier: MIT */
/*
 * Shows the promise: many processes share one limit on one hot key, and no interval of the run
 * admits more than C + r*t + E, or whatever else the chosen algorithm promises.  scripts/demo
 * builds and runs it; its --help has the options.
 *
 * In order: start a private redis-server (unless told where one is), run the load, measure one
 * decision on a quiet machine, run the same load with one call to the store each, stop the server,
 * print.  The exit status is 0 when the bound held and at least 97 % of what the limit allows was
 * used, 3 when the machine was too busy to say, else 1; 2 for a wrong option.
 *
 * A signal sets `stop`; then the processes are ended, the server is stopped, and nothing stays.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "cost.h"
#include "crew.h"
#include "naive_trade.h"
#include "paths.h"
#include "redis_server.h"
#include "report.h"
#include "settings.h"
#include "store_link.h"
#include "weir_trade.h"

#define NAIVE_SECONDS_MAX 3 /* it loads the machine, and its rate shows at once */

static volatile sig_atomic_t stop;

static void on_signal(int number)
{
    (void)number;
    stop = 1;
}

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    signal(SIGPIPE, SIG_IGN); /* a reader of the table that went away */
}

/* Runs a crew, and finds out what CPU the store at `url` (NULL: none) used meanwhile. */
static bool run_crew(const struct trade *trade, const struct settings *settings, const char *url,
                     unsigned seconds, struct crew_result *result, double *cpu_percent, char *why,
                     size_t why_size)
{
    bool progress = isatty(STDERR_FILENO) || !settings->json;
    redisContext *link = NULL;
    double before_s = -1;
    *cpu_percent = UNKNOWN;
    if (url != NULL) {
        link = store_link_open(url, why, why_size);
        if (link == NULL) {
            return false;
        }
        before_s = store_link_cpu_s(link);
    }
    bool done = crew_run(trade, settings, url, seconds, progress, &stop, result, why, why_size);
    if (link != NULL) {
        double after_s = store_link_cpu_s(link);
        if (before_s >= 0 && after_s >= 0) {
            *cpu_percent = (after_s - before_s) / seconds * 100;
        }
        redisFree(link);
    }
    return done;
}

static bool measure_paths(struct report *report, const char *url, char *why, size_t why_size)
{
    struct paths paths;
    if (!paths_open(&paths, url, why, why_size)) {
        return false;
    }
    struct cost costs[] = {
        {.name = "allow", .batch = paths_allow, .arg = paths.rich},
        {.name = "deny", .batch = paths_deny, .arg = paths.poor},
    };
    bool measured = cost_measure(costs, 2, why, why_size);
    report->allow = costs[0];
    report->deny = costs[1];
    paths_close(&paths);
    return measured;
}

static bool run(struct report *report, const char *url, char *why, size_t why_size)
{
    const struct settings *settings = report->settings;
    if (!run_crew(&weir_trade, settings, url, settings->seconds, &report->load,
                  &report->redis_cpu_percent, why, why_size)) {
        return false;
    }
    if (url != NULL) {
        report->has_naive = true;
        report->naive_seconds = settings->seconds < NAIVE_SECONDS_MAX ? settings->seconds
                                                                      : NAIVE_SECONDS_MAX;
        if (settings->json == false || isatty(STDERR_FILENO)) {
            fprintf(stderr, "the same with one call to the store for each decision\n");
        }
        if (!run_crew(&naive_trade, settings, url, report->naive_seconds, &report->naive,
                      &report->naive_redis_cpu_percent, why, why_size)) {
            return false;
        }
    }
    /* Last: it has threads, and the crews fork. */
    if (!measure_paths(report, url, why, why_size)) {
        return false;
    }
    report_conclude(report);
    return true;
}

int main(int argc, char **argv)
{
    struct settings settings;
    struct redis_server server = {0};
    char why[256];
    if (!settings_parse(&settings, argc, argv, why, sizeof why)) {
        fprintf(stderr, "demo: %s\n", why);
        return 2;
    }
    catch_signals();
    const char *url = settings.url;
    if (url == NULL && !settings.memory) {
        if (!redis_server_start(&server, why, sizeof why)) {
            fprintf(stderr, "demo: %s\n", why);
            return 1;
        }
        url = server.url;
    }
    struct report report = {.settings = &settings};
    bool done = run(&report, url, why, sizeof why);
    redis_server_stop(&server);
    if (!done) {
        fprintf(stderr, "demo: %s\n", why);
        return 1;
    }
    report_print(&report);
    if (settings.json) {
        report_print_json(&report);
    }
    return report_exit_status(&report);
}
