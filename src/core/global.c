/* SPDX-License-Identifier: MIT */
/*
 * One ask about one global bucket in C: lua/lease.lua, step by step and to the last unit.  Tests
 * run both on the same asks and compare every number, so a change here is a change there.  In this
 * process it is the store; the rules (R0-R14) and their proof are in docs/protocol.md.
 *
 * An algorithm knows how many tokens are there, and when more will be (core/algorithms); everything
 * else is here, the same for all of them.
 *
 * Invariants, before and after each ask:
 *
 *     0 <= out_cur, out_prev                has_account  <=>  budget > 0 or out_cur + out_prev > 0
 *     stamp, seen <= t                      cur < cur_end <= cur + edge at the beginning of cur
 *
 * The order of an ask: time (R2), refill (R0), a newer rule (R11), a reset, windows (R3), what is
 * settled and given back (R5, R10), what waiters need (R9, R12), what is leased (R3, R14), the
 * answer, the expiry (R4).  A look runs the same steps on a copy, without those that move tokens.
 * Nothing here can fail.
 */
#include "core/global.h"

#include <stddef.h>

#include "base/check.h"
#include "base/num.h"
#include "core/algorithms/algorithm.h"

/* By choice: longer than any client pauses between two asks. */
#define STAY_LEAST_US 10000000
/* A lease that dies earlier is of no use to anyone. */
#define LIFE_LEAST_US 1000

/* Between a lease's death and the period's: a look of the loop, twice. */
#define EDGE_MARGIN_US 2000

const struct weir__algorithm *weir__algorithm_of(const struct weir__rule *rule)
{
    switch (rule->algorithm) {
    case WEIR__TOKEN_BUCKET: return &weir__token_bucket;
    case WEIR__LEAKY_BUCKET:
        return rule->variant == WEIR__VARIANT_QUEUE ? &weir__leaky_queue : &weir__token_bucket;
    case WEIR__FIXED_WINDOW: return &weir__fixed_window;
    case WEIR__SLIDING_LOG: return &weir__sliding_log;
    case WEIR__SLIDING_COUNTER: return &weir__sliding_counter;
    }
    return NULL;
}

/* a / 2 rounded down. */
static int64_t half(int64_t a) { return a / 2 - (a % 2 < 0); }

/* R4: a key that would start anew with less than it holds when full stays on for a while: who asks
 * as rarely as it fills must find it. */
static int64_t stay_of(const struct weir__run *run)
{
    const struct weir__rule *rule = &run->key.rule;
    bool anew = rule->initial < rule->capacity || rule->learn;
    return anew ? weir__max(run->op->span(rule), STAY_LEAST_US) : 0;
}

static void start_anew(struct weir__run *run)
{
    const struct weir__rule *rule = &run->key.rule;
    run->op->create(run, rule->learn ? WEIR__CREATE_LEARNING : rule->initial);
}

static void create(struct weir__run *run, const struct weir__rule *rule, int64_t now_us)
{
    struct weir__log log = {.entries = run->key.log.entries, .room = run->key.log.room};
    run->key = (struct weir__global){.exists = true, .rule = *rule, .log = log};
    run->op = weir__algorithm_of(rule);
    run->t = now_us;
    start_anew(run);
}

static void close_account(struct weir__global *key)
{
    key->has_account = false;
    key->seen_us = 0;
    key->cur = key->cur_end_us = key->cur_life_us = key->out_cur = 0;
    key->prev = key->out_prev = 0;
    key->n_cur = key->n_prev = 0;
    key->ago = 0;
}

/* R2: a stored time too far ahead of the clock comes from a clock that has since been set back. */
static void tell_time(struct weir__run *run, int64_t now_us)
{
    struct weir__global *key = &run->key;
    int64_t patience = weir__max(run->op->span(&key->rule), key->cur_life_us);
    run->t = weir__max(now_us, weir__max(key->stamp_us, key->seen_us));
    if (run->t - now_us > patience) {
        run->t = now_us;
        run->op->rewind(run);
        if (key->has_account) {
            key->cur_end_us = run->t + weir__min(key->cur_life_us, run->edge);
        }
    }
}

/* R11: elapsed time has counted at the old rule; a higher version may now take over.  What is there
 * under one algorithm is there under the next. */
static void adopt(struct weir__run *run, const struct weir__rule *asked, bool reset)
{
    struct weir__global *key = &run->key;
    if (asked->version <= key->rule.version) {
        return;
    }
    int64_t tokens = weir__max(0, weir__min(run->op->there(run), asked->capacity));
    bool same = !reset && asked->algorithm == key->rule.algorithm &&
                asked->variant == key->rule.variant;
    if (same && !run->op->adopt(run, asked)) {
        return;
    }
    key->rule = *asked;
    run->op = weir__algorithm_of(asked);
    if (!same) {
        key->extra = 0;
        key->log.first = key->log.end = 0;
        run->op->create(run, tokens);
    }
    run->op->refill(run);
    if (key->has_account) {
        key->cur_end_us = weir__min(key->cur_end_us, run->t + run->edge);
    }
}

/* How many periods ago the one that began at `began_us` was; 2: more than one, or none at all. */
static int64_t ago_of(const struct weir__run *run, int64_t began_us)
{
    return began_us == run->start ? 0 : began_us == run->start - run->key.rule.period_us ? 1 : 2;
}

/* R3: a window ends when the first ask at or after its end comes.  None reaches beyond a period of
 * the algorithm, of which the last began at `began_us`. */
static void turn_window(struct weir__run *run, int64_t began_us)
{
    struct weir__global *key = &run->key;
    int64_t t = run->t;
    int64_t length = key->rule.window_us;
    if (key->has_account && t >= key->cur_end_us) {
        /* every lease of cur is dead as well */
        bool dead = t >= key->cur_end_us + key->cur_life_us;
        key->prev = key->cur;
        key->out_prev = dead ? 0 : key->out_cur;
        key->n_prev = dead ? 0 : key->n_cur;
        key->ago = ago_of(run, began_us);
        key->cur = weir__max(t, key->cur + 1);
        key->cur_end_us = t + weir__min(weir__max(key->cur_life_us, length), run->edge);
        key->cur_life_us = length;
        key->out_cur = key->n_cur = 0;
    } else if (!key->has_account && key->rule.budget > 0) {
        key->has_account = true;
        key->cur = t;
        key->cur_end_us = t + weir__min(length, run->edge);
        key->cur_life_us = length;
        key->prev = WEIR__NO_WINDOW;
    }
}

/* R5: rows of live windows only; never more comes back than is out.  R10: admissions that were
 * settled and not used after all. */
static void settle(struct weir__run *run, const struct weir__ask *ask, struct weir__grant *grant)
{
    struct weir__global *key = &run->key;
    for (int i = 0; i < WEIR__SETTLE_ROWS; i++) {
        const struct weir__settle *row = &ask->settle[i];
        bool in_cur = row->window == key->cur;
        if (!key->has_account || row->window == WEIR__NO_WINDOW ||
            (!in_cur && row->window != key->prev)) {
            continue;
        }
        int64_t *out = in_cur ? &key->out_cur : &key->out_prev;
        int64_t back = weir__min(row->back, *out);
        *out = weir__max(0, *out - back - row->spent);
        (void)run->op->give(run, back, row->window, in_cur ? 0 : key->ago);
    }
    if (ask->refund > 0) {
        int64_t ago = ask->since == run->start ? 0 : WEIR__AGO_UNKNOWN;
        grant->refunded = run->op->give(run, ask->refund, run->start, ago);
    }
}

/* How long the asker is ready to wait; for a lease there is no bound. */
static int64_t patience_of(const struct weir__run *run, const struct weir__ask *ask)
{
    return ask->exact > 0 ? weir__min(ask->wait_us, run->key.rule.max_wait_us) : WEIR__INT53_MAX;
}

/* R9, R12: the waiters' part, all or nothing and outside the budget; now, or reserved ahead. */
static void grant_exact(struct weir__run *run, const struct weir__ask *ask,
                        struct weir__grant *grant)
{
    if (ask->exact <= 0 || ask->exact > run->key.rule.capacity) {
        return;
    }
    int64_t wait_us = run->op->exact(run, ask->exact, patience_of(run, ask));
    if (wait_us >= 0) {
        grant->exact = ask->exact;
        grant->wait_us = wait_us;
        run->op->take(run, ask->exact);
    }
}

/* R6: how long a lease of the present window may be spent.  Two clocks may be apart, and a loop
 * sweeps what is dead when it looks. */
static int64_t life_of(const struct weir__run *run)
{
    int64_t margin = weir__max(weir__div_up(run->edge, 32), EDGE_MARGIN_US);
    return weir__max(0, weir__min(run->key.cur_life_us * 3 / 4, run->edge - margin));
}

/* Where the last of so many slots would come too late for a lease, half as many, and so on.
 * Returns how many; 0, and takes nothing, if that is fewer than `least`. */
static int64_t take_slots(struct weir__run *run, int64_t lease, int64_t least,
                          struct weir__grant *grant)
{
    int64_t first_us = run->op->fill(run);
    int64_t life_us = life_of(run);
    int64_t before = lease - 1; /* slots, before the last */
    run->op->take(run, before);
    while (lease >= least && run->op->fill(run) > life_us) {
        lease /= 2;
        int64_t fewer = weir__max(0, lease - 1);
        run->op->take(run, fewer - before);
        before = fewer;
    }
    if (lease < least) {
        run->op->take(run, -before);
        return 0;
    }
    run->op->take(run, 1);
    grant->first_us = first_us;
    grant->spread_us = weir__max(1, run->op->fill(run) - first_us);
    return lease;
}

/* R3, R14: inside the budget, and at most half of what is free of it; none that would be dead on
 * arrival. */
static void grant_lease(struct weir__run *run, const struct weir__ask *ask,
                        struct weir__grant *grant)
{
    struct weir__global *key = &run->key;
    int64_t least = weir__max(1, ask->least);
    int64_t room = key->rule.budget - key->out_cur - key->out_prev;
    int64_t share = weir__max(half(room - ask->held), least);
    int64_t lease = weir__min(weir__min(ask->want, run->op->there(run)), weir__min(room, share));
    if (lease < least || run->edge < EDGE_MARGIN_US + LIFE_LEAST_US) {
        return;
    }
    if (run->op->slots) {
        lease = take_slots(run, lease, least, grant);
    } else {
        run->op->take(run, lease);
    }
    grant->lease = lease;
    key->out_cur += lease;
}

/* The numbers of the answer; a stored time ahead of the clock by `ahead_us` has to pass first. */
static void answer(const struct weir__run *run, const struct weir__ask *ask, int64_t fill_us,
                   int64_t ahead_us, struct weir__grant *grant)
{
    const struct weir__global *key = &run->key;
    int64_t capacity = key->rule.capacity;
    if (ask->exact > capacity) {
        grant->retry_after_us = -1;
    } else if (grant->lease == 0 && grant->exact == 0) {
        int64_t wanted = weir__min(weir__max(weir__max(1, ask->least), ask->exact), capacity);
        int64_t due_us = run->op->due(run, wanted, patience_of(run, ask));
        grant->retry_after_us = due_us > 0 ? weir__min(WEIR__INT53_MAX, due_us + ahead_us) : 0;
    }
    grant->reset_after_us = fill_us > 0 ? weir__min(WEIR__INT53_MAX, fill_us + ahead_us) : 0;
    grant->remaining = weir__max(0, run->op->there(run));
    grant->window = key->has_account ? key->cur : WEIR__NO_WINDOW;
    grant->life_us = life_of(run);
    grant->processes = weir__max(key->n_cur, key->n_prev);
    grant->outstanding = key->out_cur + key->out_prev;
    grant->version = key->rule.version;
    grant->start_us = run->start;
}

/* What is there at this time, under the rule that is now in force. */
static void prepare(struct weir__run *run, const struct weir__rule *rule,
                    const struct weir__ask *ask, int64_t now_us)
{
    if (!run->key.exists) {
        create(run, rule, now_us);
    }
    tell_time(run, now_us);
    int64_t began_us = run->key.stamp_us;
    run->op->refill(run);
    adopt(run, rule, ask->reset && !ask->peek);
    if (ask->reset && !ask->peek) {
        start_anew(run);
    }
    turn_window(run, began_us);
}

/* What moves tokens: all but a look. */
static void decide(struct weir__run *run, const struct weir__ask *ask, struct weir__grant *grant)
{
    if (!ask->peek) {
        settle(run, ask, grant);
    }
    run->op->refill(run); /* what came back, or a lower capacity, may have filled it in a tick */
    if (!ask->peek) {
        grant_exact(run, ask, grant);
        grant_lease(run, ask, grant);
        run->key.n_cur += run->key.has_account && ask->heard != run->key.cur; /* R13 */
    }
    if (run->key.rule.budget == 0 && run->key.out_cur + run->key.out_prev == 0) {
        close_account(&run->key);
    }
    if (run->key.has_account) {
        run->key.seen_us = run->t;
    }
}

void weir__global_ask(struct weir__global *global, const struct weir__rule *rule,
                      const struct weir__ask *ask, int64_t now_us, struct weir__grant *grant)
{
    struct weir__log_entry spare[WEIR__LEARNING_STEPS];
    WEIR__ASSERT(weir__algorithm_of(rule) != NULL);
    if (now_us >= global->expires_us) {
        global->exists = false; /* for good, even if the clock goes back */
    }
    struct weir__run run = {
        .key = *global,
        .op = weir__algorithm_of(&global->rule),
        .look = ask->peek,
        .latest = INT64_MAX,
        .spare = spare,
    };
    *grant = (struct weir__grant){.lease = 0};
    prepare(&run, rule, ask, now_us);
    decide(&run, ask, grant);
    int64_t ahead_us = run.t - now_us;
    int64_t fill_us = run.op->fill(&run);
    answer(&run, ask, fill_us, ahead_us, grant);
    if (ask->peek) {
        return;
    }
    /* R4: whole milliseconds, rounded up, and one more: a server counts from the one it is in */
    int64_t hold_us = run.key.cur_end_us + run.key.cur_life_us - run.t;
    int64_t life_us = weir__max(1, weir__max(fill_us + stay_of(&run), hold_us)) + ahead_us;
    life_us = weir__min(WEIR__INT53_MAX, life_us);
    run.key.expires_us = now_us + (weir__div_up(life_us, 1000) + 1) * 1000;
    *global = run.key;
}

/* No append makes the log longer than the capacity, since each entry holds one token at least. */
unsigned weir__global_log_need(const struct weir__global *global, const struct weir__rule *rule)
{
    const struct weir__rule *in_force = global->exists ? &global->rule : rule;
    bool asked_logs = rule->algorithm == WEIR__SLIDING_LOG;
    bool logs = in_force->algorithm == WEIR__SLIDING_LOG;
    if (!asked_logs && !logs) {
        return 0;
    }
    int64_t most = weir__max(asked_logs ? rule->capacity : 0, logs ? in_force->capacity : 0);
    if (logs && global->exists) {
        most = weir__max(most, global->log.end - global->log.first);
    }
    most = weir__min(most, WEIR__LOG_BOUND);
    /* a quarter more, so that entries are seldom moved to the front */
    return (unsigned)(most + most / 4);
}
