/* SPDX-License-Identifier: MIT */
/*
 * The ledger of a connection's calls.
 *
 * Path of a token: io/conn enters an ask here when it is sent; a reply, a deadline or a loss takes
 * it out, and calls its done.
 *
 * Invariants:
 *     a call is in `waiting`, or in `refused`, or answered
 *     a call is in `waiting`  <=>  its record is on the wire and points back
 *     records on the wire <= max_records
 *
 * Each call is answered once: weir__calls_answer takes it out of its list and cuts it from its
 * record before it calls done, and every way to it goes through one of the two.
 *
 * Whatever done does (call again, close), lists may change under a loop that answers.  So each
 * loop here takes the first of its list anew, and ends: a call made while nothing is sent goes to
 * `refused`, which is answered from a snapshot.
 */
#include "io/calls.h"

#include "base/check.h"
#include "base/mem.h"

static struct weir__call *call_of(struct weir__list *node)
{
    return weir__container(node, struct weir__call, node);
}

static struct weir__record *record_of(struct weir__list *node)
{
    return weir__container(node, struct weir__record, node);
}

bool weir__calls_init(struct weir__calls *calls, size_t max_records)
{
    weir__list_init(&calls->waiting);
    weir__list_init(&calls->refused);
    weir__list_init(&calls->wire);
    weir__list_init(&calls->spare);
    calls->on_wire = 0;
    calls->records = weir__mem_zero(max_records * sizeof(*calls->records));
    if (calls->records == NULL) {
        return false;
    }
    for (size_t i = 0; i < max_records; i++) {
        weir__list_append(&calls->spare, &calls->records[i].node);
    }
    return true;
}

void weir__calls_deinit(struct weir__calls *calls)
{
    weir__mem_free(calls->records);
    calls->records = NULL;
}

struct weir__record *weir__calls_put(struct weir__calls *calls, struct weir__call *call,
                                     struct weir__login_step *step)
{
    WEIR__ASSERT(!weir__list_empty(&calls->spare));
    struct weir__record *record = record_of(calls->spare.next);
    weir__list_remove(&record->node);
    weir__list_append(&calls->wire, &record->node);
    calls->on_wire++;
    record->call = call;
    record->step = step;
    record->end = UINT64_MAX;
    if (call != NULL) {
        call->record = record;
    }
    return record;
}

void weir__calls_drop(struct weir__calls *calls, struct weir__record *record)
{
    if (record->call != NULL) {
        record->call->record = NULL;
        record->call = NULL;
    }
    weir__list_remove(&record->node);
    weir__list_append(&calls->spare, &record->node);
    calls->on_wire--;
}

void weir__calls_wait(struct weir__calls *calls, struct weir__call *call)
{
    /* From the end: most calls have the same time-out, so the latest call has the latest deadline.
     * */
    struct weir__list *after = calls->waiting.prev;
    while (after != &calls->waiting && call_of(after)->deadline_ns > call->deadline_ns) {
        after = after->prev;
    }
    weir__list_append(after->next, &call->node);
}

void weir__calls_refuse(struct weir__calls *calls, struct weir__call *call, const char *refusal)
{
    call->refusal = refusal;
    weir__list_append(&calls->refused, &call->node);
}

void weir__calls_answer(struct weir__call *call, const struct weir__outcome *outcome)
{
    weir__list_remove(&call->node);
    if (call->record != NULL) {
        call->record->call = NULL;
        call->record = NULL;
    }
    call->done(call, outcome);
}

void weir__calls_answer_refused(struct weir__calls *calls)
{
    if (weir__list_empty(&calls->refused)) {
        return;
    }
    /* The snapshot: a head of its own takes the whole ring over. */
    struct weir__list now = calls->refused;
    now.next->prev = &now;
    now.prev->next = &now;
    weir__list_init(&calls->refused);
    while (!weir__list_empty(&now)) {
        struct weir__call *call = call_of(now.next);
        const struct weir__outcome outcome = {.fate = WEIR__NOT_EXECUTED, .error = call->refusal};
        weir__calls_answer(call, &outcome);
    }
}

void weir__calls_answer_overdue(struct weir__calls *calls, uint64_t now_ns)
{
    const struct weir__outcome outcome = {.fate = WEIR__FATE_UNKNOWN,
                                          .error = "no answer before the deadline"};
    /* A done that calls again with a deadline in the past is refused, so this ends. */
    while (weir__calls_deadline_ns(calls) <= now_ns) {
        weir__calls_answer(call_of(calls->waiting.next), &outcome);
    }
}

void weir__calls_answer_lost(struct weir__calls *calls, uint64_t written, const char *why)
{
    while (!weir__list_empty(&calls->wire)) {
        struct weir__record *record = record_of(calls->wire.next);
        struct weir__call *call = record->call;
        bool never_sent = record->end > written;
        weir__calls_drop(calls, record);
        if (call != NULL) {
            const struct weir__outcome outcome = {
                .fate = never_sent ? WEIR__NOT_EXECUTED : WEIR__FATE_UNKNOWN, .error = why};
            weir__calls_answer(call, &outcome);
        }
    }
}

uint64_t weir__calls_deadline_ns(const struct weir__calls *calls)
{
    return weir__list_empty(&calls->waiting) ? UINT64_MAX
                                             : call_of(calls->waiting.next)->deadline_ns;
}
