/* SPDX-License-Identifier: MIT */

/*
 * One consistent snapshot.
 *
 * On a Redis store the loop's books are brought up to date first: every watched bucket is looked
 * at, under the lock, and the sums are read before the lock is left.  In process each bucket is
 * counted under its stripe, and those that were forgotten besides.
 */

#include <string.h>

#include "api/inprocess.h"
#include "base/num.h"

struct visit {
    const struct weir *weir;
    struct weir__inprocess_sum sum;
    bool begun;
};

/* Under the table's lock: none can be forgotten before the last is counted. */
static void add_bucket(void *arg, struct weir__entry *entry)
{
    struct visit *visit = arg;
    if (!visit->begun) {
        visit->begun = true;
        visit->sum = visit->weir->gone;
    }
    weir__inprocess_count(weir__container(entry, struct weir_bucket, entry), &visit->sum);
}

static void count_inprocess(struct weir *weir, struct weir_stats *s)
{
    struct visit visit = {.weir = weir};
    weir__table_visit(weir->table, add_bucket, &visit);
    const struct weir__inprocess_sum sum = visit.sum;
    s->leased = (uint64_t)sum.leased;
    s->held = (uint64_t)sum.held;
    s->lease_spent = (uint64_t)(sum.leased - sum.held);
    s->exact_spent = (uint64_t)sum.exact;
    s->refunded = (uint64_t)sum.refunded;
}

static void count_engine(struct weir *weir, struct weir_stats *s)
{
    struct weir__engine *engine = &weir->driver.engine;
    uv_mutex_lock(&weir->driver.lock);
    weir__engine_settle_books(engine, weir__now_us(weir));
    const struct weir__ledger *ledger = &engine->ledger;
    const struct weir__engine_counts *counts = &engine->counts;
    s->active = counts->watched;
    s->asks = engine->asks;
    s->leased = (uint64_t)ledger->granted;
    s->lease_spent = (uint64_t)ledger->spent;
    s->given_back = (uint64_t)ledger->given_back;
    s->expired = (uint64_t)ledger->expired;
    s->stranded = (uint64_t)ledger->stranded;
    s->held = (uint64_t)(ledger->granted - ledger->spent - ledger->given_back - ledger->expired);
    s->exact_spent = counts->exact_spent;
    s->exact_void = counts->exact_void;
    s->outage_spent = counts->outage_spent;
    s->refunded = counts->refunded;
    s->asks_sent = counts->asks_sent;
    s->asks_answered = counts->asks_answered;
    s->asks_lost = counts->asks_lost;
    s->asks_refused = counts->asks_refused;
    s->outages = engine->outage.outages;
    s->connects = weir->driver.conn_stats.connects;
    s->scripts_loaded = weir->driver.conn_stats.scripts_loaded;
    uv_mutex_unlock(&weir->driver.lock);
}

int weir_stats_read(struct weir *weir, struct weir_stats *stats)
{
    struct weir_stats s = {0};
    if (stats->size < sizeof(stats->size) || stats->size > sizeof(s)) {
        return WEIR_EINVAL;
    }
    count_engine(weir, &s);
    if (!weir->remote) {
        count_inprocess(weir, &s);
    }
    s.size = stats->size;
    s.store_state = weir->remote ? (enum weir_store_state)weir__load_relaxed(&weir->driver.view)
                                 : WEIR_STORE_LOCAL;
    s.buckets = weir__table_count(weir->table);
    s.waiters = weir__load_relaxed(&weir->waiters);
    s.outage_spent += weir__tally_sum(&weir->tallies, WEIR__COUNT_OUTAGE_ALLOWED);
    s.denied = weir__tally_sum(&weir->tallies, WEIR__COUNT_DENIED);
    s.cold = weir__tally_sum(&weir->tallies, WEIR__COUNT_COLD);
    s.unavailable = weir__tally_sum(&weir->tallies, WEIR__COUNT_UNAVAILABLE);
    memcpy(stats, &s, stats->size);
    return WEIR_OK;
}
