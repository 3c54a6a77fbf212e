/* SPDX-License-Identifier: MIT */
#ifndef WEIR_IO_CALLS_H
#define WEIR_IO_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "io/conn.h"

/*
 * The ledger of a connection: what is on the wire, who waits for it until when, and whom nobody
 * sent.
 *
 *     waiting   calls, soonest deadline first       a call that was sent and is not answered
 *     refused   calls                               never sent; to be told on a later turn
 *     wire      records, in the order of sending    a reply is owed for each
 *     spare     records
 *
 * A call in `waiting` has one record and is that record's call.  A record whose call was answered
 * without it (its deadline came first) stays on the wire with no call: its reply will be late, and
 * is nobody's.
 */

struct weir__login_step;

struct weir__record {
    struct weir__list node;
    struct weir__call *call;       /* NULL: late, or a step */
    struct weir__login_step *step; /* or NULL */
    uint64_t end;                  /* offset of its last byte; see weir__uvredis_send */
};

struct weir__calls {
    struct weir__list waiting;
    struct weir__list refused;
    struct weir__list wire;
    struct weir__list spare;
    struct weir__record *records;
    size_t on_wire;
};

/* Room for `max_records`.  Returns false without memory. */
bool weir__calls_init(struct weir__calls *calls, size_t max_records);
void weir__calls_deinit(struct weir__calls *calls);

/* A record on the wire for a call or a step; and off it again.  There is room: the connection
 * counts. */
struct weir__record *weir__calls_put(struct weir__calls *calls, struct weir__call *call,
                                     struct weir__login_step *step);
void weir__calls_drop(struct weir__calls *calls, struct weir__record *record);

/* Enters a call among the waiting.  Cost: one step for each waiting call with a later deadline. */
void weir__calls_wait(struct weir__calls *calls, struct weir__call *call);

/* Notes that a call was not sent.  `refusal` is a constant. */
void weir__calls_refuse(struct weir__calls *calls, struct weir__call *call, const char *refusal);

/* Answers a call, from whatever list it is in.  Calls `done`, which may do anything. */
void weir__calls_answer(struct weir__call *call, const struct weir__outcome *outcome);

/* Answers those refused so far, each NOT_EXECUTED; not those that `done` adds. */
void weir__calls_answer_refused(struct weir__calls *calls);

/* Answers those whose deadline has come: FATE_UNKNOWN. */
void weir__calls_answer_overdue(struct weir__calls *calls, uint64_t now_ns);

/* The wire is gone, after `written` bytes: drops every record, and answers their calls:
 * NOT_EXECUTED where the command was not written whole, else FATE_UNKNOWN. */
void weir__calls_answer_lost(struct weir__calls *calls, uint64_t written, const char *why);

/* The soonest deadline; UINT64_MAX when nobody waits. */
uint64_t weir__calls_deadline_ns(const struct weir__calls *calls);

#endif
