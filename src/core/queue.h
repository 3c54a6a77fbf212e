/* SPDX-License-Identifier: MIT */
#ifndef WEIR_CORE_QUEUE_H
#define WEIR_CORE_QUEUE_H

#include "core/engine.h"

/* The waiters of a bucket: who joins, who is served, who is told no.  For the engine's own
 * files. */

/* Answers a waiter: it leaves its bucket and comes out of weir__engine_next_done. */
void weir__queue_finish(struct weir__engine *engine, struct weir__waiter *waiter,
                        enum weir__verdict verdict, enum weir__reason reason,
                        int64_t retry_after_us);

/* Gives credit to the waiters in order, as far as it goes. */
void weir__queue_serve(struct weir__engine *engine, struct weir__bucket *bucket);

/* The answer to the waiters' part of an ask. */
void weir__queue_deliver(struct weir__engine *engine, struct weir__bucket *bucket,
                         const struct weir__ask *ask, const struct weir__grant *grant, bool late,
                         int64_t now_us);

/* No answer came: the covered wait on, for another ask. */
void weir__queue_uncover(struct weir__bucket *bucket);

/* Answers all of a bucket's waiters but those with reserved tokens. */
void weir__queue_finish_all(struct weir__engine *engine, struct weir__bucket *bucket,
                            enum weir__verdict verdict, enum weir__reason reason,
                            int64_t retry_after_us);

/* Answers who must be answered by now. */
void weir__queue_tick(struct weir__engine *engine, int64_t now_us);

static inline struct weir__waiter *weir__queue_first(const struct weir__bucket *bucket)
{
    return weir__list_empty(&bucket->waiters)
               ? NULL
               : weir__container(bucket->waiters.next, struct weir__waiter, line);
}

static inline struct weir__waiter *weir__queue_after(const struct weir__bucket *bucket,
                                                     const struct weir__waiter *waiter)
{
    return waiter->line.next == &bucket->waiters
               ? NULL
               : weir__container(waiter->line.next, struct weir__waiter, line);
}

#endif
