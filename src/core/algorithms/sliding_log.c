/* SPDX-License-Identifier: MIT */
/*
 * The sliding window log: the time of every admission, until it is a period old.  It is
 * lua/sliding_log.lua in C, to the last entry.
 *
 *     level  admissions in the log
 *     stamp  when it was last looked at
 *     log    entries [first, end) of the owner's memory, the oldest first
 *
 * An entry is a moment, not an admission: what is granted at once shares one.  For capacities above
 * EXACT_MOST moments are rounded up to the next of PARTS parts of the period: tokens then come back
 * by so much later, never earlier.  Where the log would still grow longer than
 * WEIR__LOG_BOUND, or than its memory, admissions join the newest entry, which is moved to their
 * time: late again.  With no memory at all nothing is admitted.
 *
 * Invariants: the times of entries rise strictly, every count is at least 1, and the counts add up
 * to level.
 *
 * Entries that are too old are dropped by moving `first`; they are moved to the front of the memory
 * only when its end is reached, so with a quarter to spare an entry is moved a few times in its
 * life.  A look moves `first` of its copy, and writes no entry: see struct weir__run.
 */
#include "core/algorithms/algorithm.h"

#include <string.h>

#include "base/num.h"

#define EXACT_MOST 1024
#define PARTS 256

static unsigned held(const struct weir__log *log) { return log->end - log->first; }

static int64_t time_of(const struct weir__run *run, unsigned index)
{
    return weir__min(run->key.log.entries[index].at_us, run->latest);
}

/* The moment that an admission at t counts for. */
static int64_t moment(const struct weir__run *run)
{
    const struct weir__rule *rule = &run->key.rule;
    if (rule->capacity <= EXACT_MOST) {
        return run->t;
    }
    int64_t grain = weir__div_up(rule->period_us, PARTS);
    return weir__div_up(run->t, grain) * grain;
}

/* The period that holds t, aligned as for the windows; for refunds.  Leases may go beyond it. */
static void enter(struct weir__run *run)
{
    int64_t period_us = run->key.rule.period_us;
    run->start = run->t - run->t % period_us;
    run->edge = WEIR__INT53_MAX;
}

static int64_t span(const struct weir__rule *rule) { return rule->period_us; }

/* Brings the entries to the front of the memory. */
static void compact(struct weir__log *log)
{
    memmove(log->entries, log->entries + log->first, held(log) * sizeof(*log->entries));
    log->end = held(log);
    log->first = 0;
}

/* There is room for one entry at least. */
static void append(struct weir__log *log, int64_t at_us, int64_t count)
{
    unsigned bound = log->room < WEIR__LOG_BOUND ? log->room : WEIR__LOG_BOUND;
    if (held(log) > 0) {
        struct weir__log_entry *newest = &log->entries[log->end - 1];
        if (newest->at_us >= at_us || held(log) >= bound) {
            newest->at_us = weir__max(newest->at_us, at_us);
            newest->count += count;
            return;
        }
    }
    if (log->end == log->room) {
        compact(log);
    }
    log->entries[log->end++] = (struct weir__log_entry){.at_us = at_us, .count = count};
}

static void admit(struct weir__run *run, int64_t at_us, int64_t tokens)
{
    if (tokens > 0 && run->key.log.room > 0) {
        append(&run->key.log, at_us, tokens);
        run->key.level += tokens;
    }
}

static void take(struct weir__run *run, int64_t tokens) { admit(run, moment(run), tokens); }

/* Learning is to start as if all along just as much had been used as the rate allows, in steps. */
static void create(struct weir__run *run, int64_t tokens)
{
    struct weir__global *key = &run->key;
    int64_t capacity = key->rule.capacity;
    int64_t period_us = key->rule.period_us;
    enter(run);
    if (run->look) {
        key->log = (struct weir__log){.entries = run->spare, .room = WEIR__LEARNING_STEPS};
        run->latest = INT64_MAX;
    }
    key->log.first = key->log.end = 0;
    key->level = 0;
    key->stamp_us = run->t;
    if (tokens != WEIR__CREATE_LEARNING) {
        take(run, capacity - tokens);
        return;
    }
    for (int64_t i = 1; i <= WEIR__LEARNING_STEPS; i++) {
        int64_t sum = capacity * i / WEIR__LEARNING_STEPS;
        int64_t into_us = weir__div_up(period_us * i, WEIR__LEARNING_STEPS);
        admit(run, run->t - period_us + into_us, sum - key->level);
    }
}

/* Entries that are ahead of the clock now count from now on. */
static void rewind(struct weir__run *run)
{
    struct weir__log *log = &run->key.log;
    int64_t now_us = moment(run);
    int64_t late = 0;
    enter(run);
    run->key.stamp_us = run->t;
    if (run->look) {
        run->latest = now_us;
        return;
    }
    while (held(log) > 0 && log->entries[log->end - 1].at_us >= now_us) {
        late += log->entries[--log->end].count;
    }
    if (late > 0) {
        append(log, now_us, late);
    }
}

static void refill(struct weir__run *run)
{
    struct weir__global *key = &run->key;
    struct weir__log *log = &key->log;
    enter(run);
    while (held(log) > 0 && time_of(run, log->first) + key->rule.period_us <= run->t) {
        key->level -= log->entries[log->first++].count;
    }
    key->stamp_us = run->t;
}

/* R11: what was used stays used, for as long as the new period says. */
static bool adopt(struct weir__run *run, const struct weir__rule *rule)
{
    (void)run;
    (void)rule;
    return true;
}

static int64_t there(const struct weir__run *run)
{
    return run->key.log.room > 0 ? run->key.rule.capacity - run->key.level : 0;
}

static int64_t exact(const struct weir__run *run, int64_t tokens, int64_t patience)
{
    (void)patience;
    return tokens <= there(run) ? 0 : -1;
}

/* The oldest entries that it can have come from are taken back, so that those who did use theirs
 * count for as long as they must, or longer.  Not once some of them may be gone: what came after
 * would be taken for them. */
static int64_t give(struct weir__run *run, int64_t tokens, int64_t since, int64_t ago)
{
    struct weir__log *log = &run->key.log;
    int64_t left = tokens;
    if (ago == WEIR__AGO_UNKNOWN || since + run->key.rule.period_us <= run->t) {
        return 0;
    }
    unsigned from = log->first;
    while (from < log->end && log->entries[from].at_us < since) {
        from++;
    }
    unsigned to = from; /* those before `to` are taken back as a whole */
    while (to < log->end && log->entries[to].count <= left) {
        left -= log->entries[to++].count;
    }
    if (to < log->end) {
        log->entries[to].count -= left;
        left = 0;
    }
    if (to > from) {
        memmove(log->entries + from, log->entries + to, (log->end - to) * sizeof(*log->entries));
        log->end -= to - from;
    }
    run->key.level -= tokens - left;
    return tokens;
}

/* When as many as are missing will be a period old.  What the log does not hold, for want of
 * memory, is a period away. */
static int64_t due(const struct weir__run *run, int64_t tokens, int64_t patience)
{
    (void)patience;
    const struct weir__log *log = &run->key.log;
    int64_t missing = tokens - there(run);
    int64_t time = run->t - run->key.rule.period_us;
    for (unsigned i = log->first; missing > 0 && i < log->end; i++) {
        time = time_of(run, i);
        missing -= log->entries[i].count;
    }
    return missing > 0 ? run->key.rule.period_us : time + run->key.rule.period_us - run->t;
}

static int64_t fill(const struct weir__run *run)
{
    const struct weir__log *log = &run->key.log;
    return held(log) > 0 ? time_of(run, log->end - 1) + run->key.rule.period_us - run->t : 0;
}

const struct weir__algorithm weir__sliding_log = {
    .span = span,
    .create = create,
    .rewind = rewind,
    .refill = refill,
    .adopt = adopt,
    .there = there,
    .exact = exact,
    .take = take,
    .give = give,
    .due = due,
    .fill = fill,
};
