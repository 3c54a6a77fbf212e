/* SPDX-License-Identifier: MIT */
#ifndef WEIR_TESTS_CRASH_FLEET_H
#define WEIR_TESTS_CRASH_FLEET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <weir/weir.h>

#include "bench/record.h"

/*
 * Processes that share one limit on one key, under a paced load, while a test hurts them or their
 * store.
 *
 *     member 0   [ tries | tries | waits | loop ]      one lane of the record each
 *     member 1   [ tries | tries | waits | loop ]      a member that joins later has lanes too
 *
 * What they admitted and when, and what they reported, lies in memory that all share, so that it
 * survives them.  Times are counted from the start of the run.
 */

#define FLEET_MEMBERS_MAX 8
#define FLEET_TRIERS 2 /* threads that call weir_try_acquire */
#define FLEET_LANES (FLEET_TRIERS + 2)
#define FLEET_WAITS_MAX 16384

struct fleet_plan {
    const char *url;
    uint64_t rate_per_s, capacity, budget;
    double tried_per_s;       /* by each member through weir_try_acquire, */
    double first_tried_per_s; /* but for the first of them */
    double waits_per_s;       /* by each member through weir_acquire */
    enum weir_outage_policy outage;
    double share_percent; /* of the local policy */
    uint64_t ask_timeout_ms;
    int64_t duration_ns;
};

/* What a member knows at its end. */
struct fleet_report {
    bool ended; /* all of it is filled in */
    struct weir_stats stats;
    uint64_t tried, allowed_tokens; /* calls; tokens by whatever verb */
    uint64_t refused, unavailable, failed;
    uint64_t waited; /* calls of weir_acquire that were left pending, */
    uint64_t unanswered, answered_twice;
    int64_t worst_overrun_ns; /* an answer came this long after its deadline */
    int64_t worst_heard_ns;   /* a pending call that was allowed took this long */
    int64_t worst_late_ns;    /* a thread was woken this long after its time: the machine's fault */
    int64_t close_ns;
    char why[160]; /* what went wrong; "": nothing */
};

struct fleet_board;

struct fleet {
    struct fleet_plan plan;
    unsigned members;              /* that were ever started */
    pid_t pids[FLEET_MEMBERS_MAX]; /* 0: has ended */
    int ends[FLEET_MEMBERS_MAX];   /* as waitpid says */
    struct fleet_board *board;
    struct record *record;
    size_t record_size;
};

/* What all share. */
struct fleet_board {
    int64_t start_ns; /* 0: not yet */
    uint32_t ready;
    struct fleet_report reports[FLEET_MEMBERS_MAX];
};

/* The longest that an answer may take beyond its deadline, a process that ends may take to close,
 * and the like, on a machine that is loaded; what the run itself measured of the machine's lateness
 * comes on top. */
#define FLEET_SLACK_NS (100 * INT64_C(1000000))

/* Starts the members and their common clock.  Fails the test if they cannot. */
void fleet_open(struct fleet *fleet, const struct fleet_plan *plan, unsigned members);
void fleet_close(struct fleet *fleet); /* may be called twice, and after any failure */

unsigned fleet_join(struct fleet *fleet); /* one more member; returns its number */
void fleet_kill(struct fleet *fleet, unsigned member);
void fleet_stop(struct fleet *fleet, unsigned member);
void fleet_continue(struct fleet *fleet, unsigned member);

int64_t fleet_now_ns(const struct fleet *fleet);
void fleet_sleep_until(const struct fleet *fleet, int64_t at_ns);

/* Waits until all have ended; fails the test if one hangs, crashed, or reports something wrong: an
 * answer that did not come, came twice or too late; a token that its stats do not know; a close
 * that took too long. */
void fleet_finish(struct fleet *fleet);

/* Runs in a member's process; returns its exit code. */
int fleet_be_member(const struct fleet_plan *plan, struct fleet_board *board, struct record *record,
                    unsigned member);

#endif
