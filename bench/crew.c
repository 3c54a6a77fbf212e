/* SPDX-License-Identifier: MIT */
/*
 * Runs the load.  Processes are forked before anything of the library exists, since a weir does not
 * survive a fork; they open their trade, report ready, and start together at a time that is set in
 * memory they share.
 *
 * The load is paced, not spun: each thread wakes every millisecond, at a phase of its own, and
 * makes the decisions that are due by its schedule,
 *
 *     due(t) = floor(share of the thread * (t - start)),
 *
 * so that the processors are left to the limiter and its store.  A thread that wakes late makes up
 * for it at once, and how late it was is kept: a thread that was away for long is a fault of the
 * machine in the measurement, and the report says so.  When a decision takes longer than its place
 * in the schedule, as with a store call each, the thread falls behind and simply does what it can
 * until the end.
 *
 * Each admission is stamped by itself, right after the decision: the record is as fine as that.
 *
 * Periods are of the store's clock, which is this machine's wall clock.  The record's is another
 * one, that is never set; what lies between the two is measured before the start and after the end,
 * and by how much it moved is an error of the record.  A run starts a whole number of bins after an
 * edge of the periods, so that where these are whole bins too each bin lies in one of them.
 *
 * Threads: a lane is written by its own thread.  The parent reads `offered` and `admitted` for its
 * progress line while they run, relaxed, and all the rest after the processes have ended.
 */
#include "crew.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"

#define TURN_NS NS_PER_MS
#define LEAD_NS (50 * NS_PER_MS)       /* from the last process ready to the start */
#define READY_LIMIT_NS (15 * NS_PER_S) /* longer than a process waits for its store */
#define LOOK_NS (10 * NS_PER_MS)       /* how often the parent looks */
#define RECORD_SLACK_NS (2 * NS_PER_S) /* for threads that end late */
#define RECORD_BYTES_MAX (UINT64_C(1) << 30)

struct lane {
    _Alignas(64) uint64_t offered;
    uint64_t admitted;
    uint64_t failed;
    int64_t first_ns;
    int64_t last_ns;
    int64_t worst_late_ns;
};

/* All that processes share. */
struct board {
    int64_t start_ns; /* 0: not yet.  Written by the parent, read by all. */
    uint32_t ready;   /* processes that have opened */
    struct lane lanes[PROCESSES_MAX * THREADS_MAX];
    struct process_report reports[PROCESSES_MAX];
};

struct crew {
    const struct trade *trade;
    const struct settings *settings;
    const char *url;
    int64_t duration_ns;
    struct board *board;
    struct record *record;
    size_t record_size;
    int64_t wall_offset_ns, wall_error_ns; /* as measured before the start */
    pid_t pids[PROCESSES_MAX];             /* 0: has ended */
};

struct worker {
    struct crew *crew;
    void *state;
    unsigned process, thread;
    pthread_t id;
};

/* ---- A thread -------------------------------------------------------------------------------- */

static void make_decisions(struct worker *worker, uint32_t number, uint64_t due, int64_t end_ns)
{
    struct crew *crew = worker->crew;
    struct lane *lane = &crew->board->lanes[number];
    uint64_t offered = lane->offered, admitted = lane->admitted;
    int64_t now_ns = clock_now_ns();
    if (offered == 0 && due > 0) {
        lane->first_ns = now_ns;
    }
    while (offered < due && now_ns < end_ns) {
        enum outcome outcome = crew->trade->decide(worker->state, worker->thread);
        now_ns = clock_now_ns();
        offered++;
        if (outcome == OUTCOME_ALLOWED) {
            record_add(crew->record, number, now_ns - crew->board->start_ns);
            admitted++;
        } else if (outcome == OUTCOME_FAILED) {
            lane->failed++;
        }
    }
    if (offered > lane->offered) {
        lane->last_ns = now_ns;
    }
    /* Relaxed: the parent's progress line needs no order. */
    __atomic_store_n(&lane->offered, offered, __ATOMIC_RELAXED);
    __atomic_store_n(&lane->admitted, admitted, __ATOMIC_RELAXED);
}

static void *work(void *arg)
{
    struct worker *worker = arg;
    struct crew *crew = worker->crew;
    const struct settings *settings = crew->settings;
    uint32_t lanes = settings->processes * settings->threads;
    uint32_t number = worker->process * settings->threads + worker->thread;
    struct lane *lane = &crew->board->lanes[number];
    int64_t start_ns = crew->board->start_ns;
    int64_t end_ns = start_ns + crew->duration_ns;
    double per_ns = settings->offered * (double)settings->rate_per_s / (double)NS_PER_S / lanes;

    for (int64_t turn_ns = start_ns + TURN_NS * number / lanes; turn_ns <= end_ns;
         turn_ns += TURN_NS) {
        clock_sleep_until(turn_ns);
        int64_t late_ns = clock_now_ns() - turn_ns;
        if (late_ns > lane->worst_late_ns) {
            lane->worst_late_ns = late_ns;
        }
        make_decisions(worker, number, (uint64_t)(per_ns * (double)(turn_ns - start_ns)), end_ns);
        if (worker->thread == 0 && crew->trade->turn != NULL) {
            crew->trade->turn(worker->state, turn_ns - start_ns);
        }
    }
    return NULL;
}

/* ---- A process ------------------------------------------------------------------------------- */

static bool start_threads(struct worker *workers, unsigned count, struct process_report *report)
{
    for (unsigned i = 0; i < count; i++) {
        int error = pthread_create(&workers[i].id, NULL, work, &workers[i]);
        if (error != 0) {
            snprintf(report->why, sizeof report->why, "no thread: %s", strerror(error));
            return false;
        }
    }
    return true;
}

static int run_process(struct crew *crew, unsigned process)
{
    struct board *board = crew->board;
    struct process_report *report = &board->reports[process];
    struct worker workers[THREADS_MAX];
    prctl(PR_SET_PDEATHSIG, SIGKILL);

    void *state = crew->trade->open(crew->settings, crew->url, process, report);
    if (state == NULL) {
        return 1;
    }
    for (unsigned i = 0; i < crew->settings->threads; i++) {
        workers[i] = (struct worker){.crew = crew, .state = state, .process = process, .thread = i};
    }
    __atomic_fetch_add(&board->ready, 1, __ATOMIC_RELEASE);
    /* Acquire: pairs with the release in wait_until_ready. */
    while (__atomic_load_n(&board->start_ns, __ATOMIC_ACQUIRE) == 0) {
        clock_sleep_until(clock_now_ns() + NS_PER_MS);
    }
    if (!start_threads(workers, crew->settings->threads, report)) {
        return 1; /* the process ends, and with it those that run */
    }
    for (unsigned i = 0; i < crew->settings->threads; i++) {
        pthread_join(workers[i].id, NULL);
    }
    crew->trade->close(state, report);
    return report->why[0] == '\0' ? 0 : 1;
}

/* ---- The parent ------------------------------------------------------------------------------ */

static void *share_memory(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static bool crew_init(struct crew *crew, char *why, size_t why_size)
{
    const struct settings *settings = crew->settings;
    uint32_t lanes = settings->processes * settings->threads;
    int64_t bin_ns = record_bin_ns(settings->rate_per_s, settings->capacity);
    uint32_t bins = record_bins(crew->duration_ns + RECORD_SLACK_NS, bin_ns);
    crew->record_size = record_bytes(lanes, bins);
    if (crew->record_size > RECORD_BYTES_MAX) {
        snprintf(why, why_size, "the record would be too large: fewer seconds, or a larger burst");
        return false;
    }
    crew->board = share_memory(sizeof *crew->board);
    crew->record = share_memory(crew->record_size);
    if (crew->board == NULL || crew->record == NULL) {
        snprintf(why, why_size, "no memory to share: %s", strerror(errno));
        return false;
    }
    record_init(crew->record, lanes, bins, bin_ns);
    return true;
}

static void crew_deinit(struct crew *crew)
{
    for (unsigned i = 0; i < crew->settings->processes; i++) {
        if (crew->pids[i] > 0) {
            kill(crew->pids[i], SIGKILL);
            waitpid(crew->pids[i], NULL, 0);
        }
    }
    if (crew->board != NULL) {
        munmap(crew->board, sizeof *crew->board);
    }
    if (crew->record != NULL) {
        munmap(crew->record, crew->record_size);
    }
}

static bool fork_processes(struct crew *crew, char *why, size_t why_size)
{
    fflush(NULL); /* or the children would write it again */
    for (unsigned i = 0; i < crew->settings->processes; i++) {
        crew->pids[i] = fork();
        if (crew->pids[i] == 0) {
            _exit(run_process(crew, i));
        }
        if (crew->pids[i] < 0) {
            snprintf(why, why_size, "no process: %s", strerror(errno));
            return false;
        }
    }
    return true;
}

/* Reaps what has ended.  Returns how many still run; -1 with the reason: one did not end well. */
static int count_running(struct crew *crew, char *why, size_t why_size)
{
    int running = 0;
    for (unsigned i = 0; i < crew->settings->processes; i++) {
        int status;
        if (crew->pids[i] > 0 && waitpid(crew->pids[i], &status, WNOHANG) == crew->pids[i]) {
            crew->pids[i] = 0;
            if (status != 0) {
                const char *said = crew->board->reports[i].why;
                snprintf(why, why_size, "process %u: %s", i + 1,
                         said[0] != '\0' ? said : "ended before its time");
                return -1;
            }
        }
        running += crew->pids[i] > 0;
    }
    return running;
}

static bool wait_until_ready(struct crew *crew, const volatile sig_atomic_t *stop, char *why,
                             size_t why_size)
{
    int64_t until_ns = clock_now_ns() + READY_LIMIT_NS;
    while (__atomic_load_n(&crew->board->ready, __ATOMIC_ACQUIRE) < crew->settings->processes) {
        if (count_running(crew, why, why_size) < 0) {
            return false;
        }
        if (*stop != 0 || clock_now_ns() >= until_ns) {
            snprintf(why, why_size, *stop != 0 ? "stopped" : "the processes do not get ready");
            return false;
        }
        clock_sleep_until(clock_now_ns() + LOOK_NS);
    }
    crew->wall_offset_ns = clock_wall_offset_ns(&crew->wall_error_ns);
    int64_t start_ns = clock_now_ns() + LEAD_NS;
    int64_t period_ns = (int64_t)crew->settings->period_us * 1000;
    if (period_ns > 0) {
        int64_t into_ns = (start_ns + crew->wall_offset_ns) % period_ns;
        start_ns += crew->record->bin_ns - into_ns % crew->record->bin_ns;
    }
    __atomic_store_n(&crew->board->start_ns, start_ns, __ATOMIC_RELEASE);
    return true;
}

static void show_progress(const struct crew *crew, int64_t second)
{
    uint64_t offered = 0, admitted = 0;
    for (unsigned i = 0; i < crew->settings->processes * crew->settings->threads; i++) {
        offered += __atomic_load_n(&crew->board->lanes[i].offered, __ATOMIC_RELAXED);
        admitted += __atomic_load_n(&crew->board->lanes[i].admitted, __ATOMIC_RELAXED);
    }
    fprintf(stderr, "%4lld s   offered %12llu   admitted %12llu\n", (long long)second,
            (unsigned long long)offered, (unsigned long long)admitted);
}

static bool wait_until_ended(struct crew *crew, bool progress, const volatile sig_atomic_t *stop,
                             char *why, size_t why_size)
{
    int running;
    int64_t shown = 0;
    while ((running = count_running(crew, why, why_size)) > 0) {
        if (*stop != 0) {
            snprintf(why, why_size, "stopped");
            return false;
        }
        int64_t second = (clock_now_ns() - crew->board->start_ns) / NS_PER_S;
        if (progress && second > shown && second * NS_PER_S <= crew->duration_ns) {
            shown = second;
            show_progress(crew, second);
        }
        clock_sleep_until(clock_now_ns() + LOOK_NS);
    }
    return running == 0;
}

static double children_cpu_s(void)
{
    struct rusage used;
    getrusage(RUSAGE_CHILDREN, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static struct promise promise_of(const struct crew *crew, uint64_t stranded)
{
    const struct settings *settings = crew->settings;
    int64_t error_ns;
    int64_t moved_ns = clock_wall_offset_ns(&error_ns) - crew->wall_offset_ns;
    return (struct promise){
        .rate_per_s = settings->rate_per_s,
        .capacity = settings->capacity,
        .budget = settings->budget + stranded,
        .bound = settings->algorithm->bound,
        .period_ns = (int64_t)settings->period_us * 1000,
        .epoch_ns = crew->board->start_ns + crew->wall_offset_ns,
        .epoch_error_ns = crew->wall_error_ns + error_ns + (moved_ns < 0 ? -moved_ns : moved_ns),
    };
}

static void add_up(const struct crew *crew, struct crew_result *result)
{
    const struct settings *settings = crew->settings;
    int64_t first_ns = INT64_MAX, last_ns = 0;
    for (unsigned i = 0; i < settings->processes * settings->threads; i++) {
        const struct lane *lane = &crew->board->lanes[i];
        result->offered += lane->offered;
        result->admitted += lane->admitted;
        result->failed += lane->failed;
        if (lane->offered > 0) {
            first_ns = lane->first_ns < first_ns ? lane->first_ns : first_ns;
            last_ns = lane->last_ns > last_ns ? lane->last_ns : last_ns;
        }
        if (lane->worst_late_ns > result->worst_late_ns) {
            result->worst_late_ns = lane->worst_late_ns;
        }
    }
    result->span_ns = last_ns > first_ns ? last_ns - first_ns : 0;
    for (unsigned i = 0; i < settings->processes; i++) {
        const struct process_report *report = &crew->board->reports[i];
        result->sum.store_calls += report->store_calls;
        result->sum.stranded += report->stranded;
        result->sum.over_limit += report->over_limit;
        result->sum.cold += report->cold;
        result->sum.users_offered += report->users_offered;
        result->sum.users_refused += report->users_refused;
    }
    result->promise = promise_of(crew, result->sum.stranded);
    result->judgement = record_judge(crew->record, &result->promise);
}

bool crew_run(const struct trade *trade, const struct settings *settings, const char *url,
              unsigned seconds, bool progress, const volatile sig_atomic_t *stop,
              struct crew_result *result, char *why, size_t why_size)
{
    *result = (struct crew_result){0};
    struct crew crew = {.trade = trade,
                        .settings = settings,
                        .url = url,
                        .duration_ns = (int64_t)seconds * NS_PER_S};
    double cpu_before_s = children_cpu_s();
    bool done = crew_init(&crew, why, why_size) && fork_processes(&crew, why, why_size) &&
                wait_until_ready(&crew, stop, why, why_size) &&
                wait_until_ended(&crew, progress, stop, why, why_size);
    if (done) {
        add_up(&crew, result);
        result->cpu_cores = (children_cpu_s() - cpu_before_s) / seconds;
    }
    crew_deinit(&crew);
    return done;
}
