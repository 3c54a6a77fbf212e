/* SPDX-License-Identifier: MIT */
/*
 * What a run means, as a table for people and one line of JSON for programs.
 *
 *     bound        C + r*t + E for the whole run; where there are periods, C for each of them that
 *                  it touches, and E (+ S, tokens that callers took while their loop was stalled)
 *     perfect      what a limiter of this kind without budget and delay admits: C + r*t, or where
 *                  there are periods what bench/perfect.c finds
 *     used share   admitted / perfect, in the time t from the first decision to the last
 *     horizon      min(E/2r, 50 ms): how far ahead a lease is meant to last.  Who is kept from
 *                  running for longer finds the credit gone, which is no property of the limiter:
 *                  such a run is disturbed, and says nothing about the used share.
 */
#include "report.h"

#include <stdio.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "clock.h"
#include "perfect.h"
#include "weir_trade.h"

#define HORIZON_MOST_NS (50 * NS_PER_MS) /* as in docs/protocol.md, L1 */
#define USED_SHARE_LEAST 0.97
#define EXIT_DISTURBED 3

/* How the demo words a promise and what it finds about it. */
static const struct wording {
    const char *promise;
    const char *bound;
    const char *share;
    const char *excess, *where;
    const char *kept;
} wordings[] = {
    [BOUND_INTERVAL] = {"in every interval of length t: admitted <= C + r*t + E",
                        "bound C + r*t + E", "C + r*t", "largest excess over C + r*t",
                        "of all intervals", "in every interval"},
    [BOUND_ALIGNED] = {"in each period aligned to the epoch: admitted <= C + E",
                       "bound C * periods + E", "what a perfect one admits",
                       "largest excess over C", "of all periods", "in every period"},
    [BOUND_SLIDING] = {"in every interval of one period: admitted <= C + E",
                       "bound C * periods + E", "what a perfect one admits",
                       "largest excess over C", "of all intervals of a period",
                       "in every interval"},
    [BOUND_WEIGHTED] = {"at every instant: (period before) * (what is left of this one) / period + "
                        "(this period) <= C + E; and in every interval of length t: admitted <= "
                        "C + r*t + E",
                        "bound C * periods + E", "what a perfect one admits",
                        "largest excess over C", "weighted, at all instants", "at every instant"},
};

static const struct wording *wording_of(const struct report *report)
{
    return &wordings[report->load.promise.bound];
}

/* What the promise allows for the run as a whole. */
static double run_bound(const struct promise *promise, int64_t span_ns)
{
    double capacity = (double)promise->capacity;
    if (promise->bound == BOUND_INTERVAL) {
        double refill = (double)promise->rate_per_s * (double)span_ns / (double)NS_PER_S;
        return capacity + refill + (double)promise->budget;
    }
    int64_t into_ns = promise->bound == BOUND_SLIDING ? 0 : promise->epoch_ns % promise->period_ns;
    int64_t touched = (into_ns + span_ns + promise->period_ns - 1) / promise->period_ns;
    return capacity * (double)touched + (double)promise->budget;
}

void report_conclude(struct report *report)
{
    const struct settings *settings = report->settings;
    const struct crew_result *load = &report->load;
    double calls = (double)load->sum.store_calls;
    double offered_per_s = settings->offered * (double)settings->rate_per_s;
    report->perfect = perfect_admits(&load->promise, offered_per_s, load->span_ns);
    report->bound = run_bound(&load->promise, load->span_ns);
    report->used_share = (double)load->judgement.admitted / report->perfect;
    report->decisions_per_store_call = calls > 0 ? (double)load->offered / calls : UNKNOWN;
    report->admitted_per_store_call = calls > 0 ? (double)load->judgement.admitted / calls
                                                : UNKNOWN;

    double horizon_ns = (double)settings->budget / 2 / (double)settings->rate_per_s *
                        (double)NS_PER_S;
    report->horizon_ns = horizon_ns < (double)HORIZON_MOST_NS ? (int64_t)horizon_ns
                                                              : HORIZON_MOST_NS;
    report->disturbed = load->worst_late_ns > report->horizon_ns;
}

int report_exit_status(const struct report *report)
{
    if (!report->load.judgement.within_bound) {
        return 1; /* a machine may be slow: no excuse for this one */
    }
    if (report->disturbed) {
        return EXIT_DISTURBED;
    }
    return report->used_share >= USED_SHARE_LEAST ? 0 : 1;
}

/* ---- For people ------------------------------------------------------------------------------ */

static void print_setting(const struct report *report)
{
    const struct settings *settings = report->settings;
    struct utsname machine;
    uname(&machine);
    printf("\nOne key, %s: ", settings->algorithm->title);
    if (settings->period_us > 0) {
        printf("%llu in %.6g s", (unsigned long long)settings->capacity,
               (double)settings->period_us / 1e6);
    } else {
        printf("%llu/s, bursts of %llu", (unsigned long long)settings->rate_per_s,
               (unsigned long long)settings->capacity);
    }
    printf(
        ", budget %llu;\noffered %.3g times the rate for %u s by %u process%s of %u threads, and "
        "%d users\nbeside it.  %ld CPUs, %s, %s.\n\n",
        (unsigned long long)settings->budget, settings->offered, settings->seconds,
        settings->processes, settings->processes == 1 ? "" : "es", settings->threads, USER_KEYS,
        sysconf(_SC_NPROCESSORS_ONLN), machine.machine,
        settings->memory ? "the store in the process" : "one Redis");
}

static void print_count(const char *name, double weir, double naive, bool has_naive)
{
    printf("  %-28s %16.0f", name, weir);
    if (has_naive) {
        printf(" %16.0f", naive);
    }
    printf("\n");
}

static void print_ratio(const char *name, double weir, double naive, bool has_naive,
                        const char *unit)
{
    weir < 0 ? printf("  %-28s %16s", name, "-") : printf("  %-28s %16.1f", name, weir);
    if (has_naive) {
        printf(" %16.1f", naive);
    }
    printf("%s%s\n", unit[0] == '\0' ? "" : "  ", unit);
}

static double per_s(uint64_t count, const struct crew_result *result)
{
    return result->span_ns > 0 ? (double)count * (double)NS_PER_S / (double)result->span_ns : 0;
}

void report_print(const struct report *report)
{
    const struct crew_result *load = &report->load, *naive = &report->naive;
    const struct judgement *judgement = &load->judgement;
    const struct wording *wording = wording_of(report);
    bool both = report->has_naive;

    print_setting(report);
    printf("  %-28s %16s%s\n", "", "weir", both ? "   a call each" : "");
    print_ratio("seconds", (double)load->span_ns / 1e9, (double)naive->span_ns / 1e9, both, "");
    print_count("offered", (double)load->offered, (double)naive->offered, both);
    print_count("offered per second", per_s(load->offered, load), per_s(naive->offered, naive),
                both);
    print_count("admitted", (double)judgement->admitted, (double)naive->judgement.admitted, both);
    print_ratio("CPU of the callers", load->cpu_cores * 100, naive->cpu_cores * 100, both,
                "% of a core");
    if (!report->settings->memory) {
        print_ratio("CPU of Redis", report->redis_cpu_percent, report->naive_redis_cpu_percent,
                    both, "% of a core");
        print_ratio("decisions per store call", report->decisions_per_store_call, 1, both, "");
        print_ratio("admissions per store call", report->admitted_per_store_call,
                    (double)naive->judgement.admitted / (double)(naive->offered + !naive->offered),
                    both, "");
    }
    printf("\n  %-28s %16.0f  tokens, for the whole run\n", wording->bound, report->bound);
    printf("  used share                    %16.2f  %% of %s\n", report->used_share * 100,
           wording->share);
    printf("  %-28s %16lld  tokens, %s; allowed: %llu\n", wording->excess,
           (long long)judgement->largest_excess, wording->where,
           (unsigned long long)load->promise.budget);
    printf("  error of this record          %16lld  tokens\n", (long long)judgement->error);
    printf("  users refused                 %16llu  of %llu\n",
           (unsigned long long)load->sum.users_refused,
           (unsigned long long)load->sum.users_offered);
    printf("  one decision, allowed         %16.1f  ns (%.1f - %.1f)\n", report->allow.median_ns,
           report->allow.least_ns, report->allow.most_ns);
    printf("  one decision, denied          %16.1f  ns (%.1f - %.1f)\n", report->deny.median_ns,
           report->deny.least_ns, report->deny.most_ns);
    printf("  latest turn of a thread       %16.1f  ms; more than %.1f is a disturbed run\n",
           (double)load->worst_late_ns / 1e6, (double)report->horizon_ns / 1e6);
    if (load->failed + naive->failed > 0) {
        printf("  decisions without an answer   %16llu\n",
               (unsigned long long)(load->failed + naive->failed));
    }
    printf("\nThe bound was %s%s.%s\n", judgement->within_bound ? "kept " : "BROKEN",
           judgement->within_bound ? wording->kept : "",
           report->disturbed ? "  The run was disturbed: the machine was not quiet." : "");
}

/* ---- For programs ---------------------------------------------------------------------------- */

static const char *json_bool(bool value) { return value ? "true" : "false"; }

static void print_json_number(const char *name, double value)
{
    value < 0 ? printf(", \"%s\": null", name) : printf(", \"%s\": %.6g", name, value);
}

static void print_json_naive(const struct report *report)
{
    const struct crew_result *naive = &report->naive;
    printf(", \"naive\": {\"seconds\": %.3f, \"offered\": %llu, \"admitted\": %llu, "
           "\"per_second\": %.0f",
           (double)naive->span_ns / 1e9, (unsigned long long)naive->offered,
           (unsigned long long)naive->judgement.admitted, per_s(naive->offered, naive));
    print_json_number("redis_cpu_percent", report->naive_redis_cpu_percent);
    printf(", \"callers_cpu_percent\": %.1f}", naive->cpu_cores * 100);
}

void report_print_json(const struct report *report)
{
    const struct settings *settings = report->settings;
    const struct crew_result *load = &report->load;
    const struct judgement *judgement = &load->judgement;
    printf("{\"algorithm\": \"%s\", \"promise\": \"%s\", \"offered\": %llu, \"admitted\": %llu, "
           "\"bound\": %.0f, \"within_bound\": %s, \"largest_excess\": %lld, "
           "\"record_error\": %lld, \"perfect\": %.0f, \"used_share\": %.4f",
           settings->algorithm->name, wording_of(report)->promise,
           (unsigned long long)load->offered, (unsigned long long)judgement->admitted,
           report->bound, json_bool(judgement->within_bound), (long long)judgement->largest_excess,
           (long long)judgement->error, report->perfect, report->used_share);
    print_json_number("period_s",
                      settings->period_us > 0 ? (double)settings->period_us / 1e6 : UNKNOWN);
    print_json_number("decisions_per_store_call", report->decisions_per_store_call);
    print_json_number("admitted_per_store_call", report->admitted_per_store_call);
    printf(", \"seconds\": %.3f, \"processes\": %u, \"threads\": %u, \"rate\": %llu, "
           "\"capacity\": %llu, \"budget\": %llu, \"store\": \"%s\", \"disturbed\": %s",
           (double)load->span_ns / 1e9, settings->processes, settings->threads,
           (unsigned long long)settings->rate_per_s, (unsigned long long)settings->capacity,
           (unsigned long long)settings->budget, settings->memory ? "memory" : "redis",
           json_bool(report->disturbed));
    printf(", \"worst_late_ms\": %.3f, \"horizon_ms\": %.3f, \"store_calls\": %llu, "
           "\"stranded\": %llu, \"over_limit\": %llu, \"cold\": %llu, \"failed\": %llu, "
           "\"users_offered\": %llu, \"users_refused\": %llu",
           (double)load->worst_late_ns / 1e6, (double)report->horizon_ns / 1e6,
           (unsigned long long)load->sum.store_calls, (unsigned long long)load->sum.stranded,
           (unsigned long long)load->sum.over_limit, (unsigned long long)load->sum.cold,
           (unsigned long long)load->failed, (unsigned long long)load->sum.users_offered,
           (unsigned long long)load->sum.users_refused);
    printf(", \"allow_ns\": %.3f, \"deny_ns\": %.3f, \"callers_cpu_percent\": %.1f",
           report->allow.median_ns, report->deny.median_ns, load->cpu_cores * 100);
    print_json_number("redis_cpu_percent", report->redis_cpu_percent);
    if (report->has_naive) {
        print_json_naive(report);
    }
    printf("}\n");
}
