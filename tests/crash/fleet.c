/* SPDX-License-Identifier: MIT */
/*
 * The side of the test: starts the members of a fleet, hurts them, and checks what they report.
 *
 * They are forked while this process has no other thread and no weir, since a weir does not survive
 * a fork.  All times are of one clock; a member that joins later starts at once.
 */
#include "crash/fleet.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "bench/clock.h"

#define LEAD_NS (20 * NS_PER_MS)
#define READY_LIMIT_NS (10 * NS_PER_S)
#define HANG_LIMIT_NS (5 * NS_PER_S) /* far more than a close and the answers before it may take */
#define LOOK_NS (5 * NS_PER_MS)
#define RECORD_SLACK_NS NS_PER_S /* for callbacks after the end */

static void *share_memory(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

unsigned fleet_join(struct fleet *fleet)
{
    unsigned member = fleet->members;
    assert_true(member < FLEET_MEMBERS_MAX);
    fflush(NULL); /* or the child would write it again */
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(fleet_be_member(&fleet->plan, fleet->board, fleet->record, member));
    }
    fleet->pids[member] = pid;
    fleet->members++;
    return member;
}

static void reap(struct fleet *fleet)
{
    for (unsigned i = 0; i < fleet->members; i++) {
        if (fleet->pids[i] > 0 &&
            waitpid(fleet->pids[i], &fleet->ends[i], WNOHANG) == fleet->pids[i]) {
            fleet->pids[i] = 0;
        }
    }
}

void fleet_open(struct fleet *fleet, const struct fleet_plan *plan, unsigned members)
{
    int64_t bin_ns = record_bin_ns(plan->rate_per_s, plan->capacity);
    uint32_t lanes = FLEET_MEMBERS_MAX * FLEET_LANES;
    uint32_t bins = record_bins(plan->duration_ns + RECORD_SLACK_NS, bin_ns);
    *fleet = (struct fleet){.plan = *plan, .record_size = record_bytes(lanes, bins)};
    fleet->board = share_memory(sizeof *fleet->board);
    fleet->record = share_memory(fleet->record_size);
    record_init(fleet->record, lanes, bins, bin_ns);

    for (unsigned i = 0; i < members; i++) {
        (void)fleet_join(fleet);
    }
    int64_t until_ns = clock_now_ns() + READY_LIMIT_NS;
    while (__atomic_load_n(&fleet->board->ready, __ATOMIC_ACQUIRE) < members) {
        reap(fleet);
        for (unsigned i = 0; i < members; i++) {
            if (fleet->pids[i] == 0) {
                fail_msg("member %u did not start: %s", i, fleet->board->reports[i].why);
            }
        }
        assert_true(clock_now_ns() < until_ns);
        clock_sleep_until(clock_now_ns() + LOOK_NS);
    }
    /* Release: pairs with fleet_be_member. */
    __atomic_store_n(&fleet->board->start_ns, clock_now_ns() + LEAD_NS, __ATOMIC_RELEASE);
}

void fleet_close(struct fleet *fleet)
{
    for (unsigned i = 0; i < fleet->members; i++) {
        fleet_kill(fleet, i);
    }
    if (fleet->board != NULL) {
        munmap(fleet->board, sizeof *fleet->board);
        fleet->board = NULL;
    }
    if (fleet->record != NULL) {
        munmap(fleet->record, fleet->record_size);
        fleet->record = NULL;
    }
}

void fleet_kill(struct fleet *fleet, unsigned member)
{
    if (fleet->pids[member] > 0) {
        kill(fleet->pids[member], SIGKILL);
        waitpid(fleet->pids[member], &fleet->ends[member], 0);
        fleet->pids[member] = 0;
        fleet->ends[member] = 0; /* by our will */
    }
}

void fleet_stop(struct fleet *fleet, unsigned member)
{
    int status;
    assert_int_equal(kill(fleet->pids[member], SIGSTOP), 0);
    assert_int_equal(waitpid(fleet->pids[member], &status, WUNTRACED), fleet->pids[member]);
    assert_true(WIFSTOPPED(status));
}

void fleet_continue(struct fleet *fleet, unsigned member)
{
    assert_int_equal(kill(fleet->pids[member], SIGCONT), 0);
}

int64_t fleet_now_ns(const struct fleet *fleet) { return clock_now_ns() - fleet->board->start_ns; }

void fleet_sleep_until(const struct fleet *fleet, int64_t at_ns)
{
    clock_sleep_until(fleet->board->start_ns + at_ns);
}

static void check_answers(unsigned member, const struct fleet_plan *plan,
                          const struct fleet_report *r)
{
    int64_t slack_ns = FLEET_SLACK_NS + r->worst_late_ns;
    int64_t close_limit_ns = (int64_t)plan->ask_timeout_ms * NS_PER_MS + slack_ns;
    print_message(
        "  member %u: %llu calls, %llu tokens, %llu refused, %llu unavailable; %llu waits, worst "
        "%.1f ms past the deadline; woken %.1f ms late; closed in %.1f ms\n",
        member, (unsigned long long)r->tried, (unsigned long long)r->allowed_tokens,
        (unsigned long long)r->refused, (unsigned long long)r->unavailable,
        (unsigned long long)r->waited, (double)r->worst_overrun_ns / 1e6,
        (double)r->worst_late_ns / 1e6, (double)r->close_ns / 1e6);
    assert_int_equal(r->failed, 0);
    assert_int_equal(r->unanswered, 0);
    assert_int_equal(r->answered_twice, 0);
    assert_true(r->worst_overrun_ns <= slack_ns);
    assert_true(r->close_ns <= close_limit_ns);
}

/* The library's books against what the member counted by itself. */
static void check_books(const struct fleet_report *r)
{
    const struct weir_stats *s = &r->stats;
    print_message("    leased %llu, spent %llu, held %llu, given back %llu, expired %llu, stranded "
                  "%llu; exact %llu; "
                  "asks %llu: answered %llu, lost %llu, refused %llu; %llu outages\n",
                  (unsigned long long)s->leased, (unsigned long long)s->lease_spent,
                  (unsigned long long)s->held, (unsigned long long)s->given_back,
                  (unsigned long long)s->expired, (unsigned long long)s->stranded,
                  (unsigned long long)s->exact_spent, (unsigned long long)s->asks_sent,
                  (unsigned long long)s->asks_answered, (unsigned long long)s->asks_lost,
                  (unsigned long long)s->asks_refused, (unsigned long long)s->outages);
    assert_int_equal(s->leased, s->lease_spent + s->held + s->given_back + s->expired);
    assert_int_equal(r->allowed_tokens, s->lease_spent + s->exact_spent);
    assert_int_equal(s->asks_sent, s->asks_answered + s->asks_lost + s->asks_refused + s->asks);
    assert_int_equal(s->waiters, 0);
    assert_int_equal(r->refused + r->unavailable, s->denied + s->cold + s->unavailable);
}

void fleet_finish(struct fleet *fleet)
{
    int64_t until_ns = fleet->board->start_ns + fleet->plan.duration_ns + HANG_LIMIT_NS;
    unsigned running;
    do {
        clock_sleep_until(clock_now_ns() + LOOK_NS);
        reap(fleet);
        running = 0;
        for (unsigned i = 0; i < fleet->members; i++) {
            running += fleet->pids[i] > 0;
        }
    } while (running > 0 && clock_now_ns() < until_ns);

    for (unsigned i = 0; i < fleet->members; i++) {
        const struct fleet_report *report = &fleet->board->reports[i];
        if (fleet->pids[i] > 0) {
            fail_msg("member %u hangs", i);
        }
        if (fleet->ends[i] != 0) {
            fail_msg("member %u: signal %d, exit code %d: %s", i, WTERMSIG(fleet->ends[i]),
                     WEXITSTATUS(fleet->ends[i]), report->why);
        }
        if (report->ended) {
            check_answers(i, &fleet->plan, report);
            check_books(report);
        }
    }
}
