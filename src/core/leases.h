/* SPDX-License-Identifier: MIT */
#ifndef WEIR_CORE_LEASES_H
#define WEIR_CORE_LEASES_H

#include <stdbool.h>
#include <stdint.h>

#include "core/ask.h"

/* Leases of one bucket kept apart.  A lease lives 3/4 of a window and one comes each horizon, of
 * which a window has eight: six are usual.  When all are taken two of one window are merged. */
#define WEIR__LEASES_MAX 8

struct weir__lease {
    int64_t window;
    int64_t left; /* unspent when last looked */
    /* spent and not yet settled; 0 without a window, which is nobody's to settle */
    int64_t spent;
    int64_t expires_us; /* our clock; at or after it, `left` is void */
    int64_t over_us;    /* our clock; from here on the store no longer counts it */

    /* Of departure slots (a leaky bucket as a queue): `coming` are not due yet and no credit; the
     * one that is due lasts until the next is.  Slot i of `slots` is due at first_us + i *
     * spread_us / slots. */
    int64_t slots, coming;
    int64_t first_us, spread_us;
};

/* Tokens by what became of them, for one bucket and for all together. */
struct weir__ledger {
    int64_t granted, spent, given_back, expired;
    /* of spent: from leases whose window was over, so that the loop was stalled (term S) */
    int64_t stranded;
};

/*
 * What this process holds of one global bucket.  Callers only ever lower the credit word; all else
 * is worked out from it by the loop, when it looks:
 *
 *     expected = sum(left)                    as of the last look
 *     expected - credit >= 0                  was spent since, from the oldest lease first
 *     granted  = spent + sum(left) + given_back + expired            conservation, exact at each
 *                                                                    look
 *
 * Slots count as granted when they are due.
 */
struct weir__leases {
    int64_t *credit; /* the word callers take from */
    int64_t expected;
    unsigned count;
    struct weir__lease at[WEIR__LEASES_MAX]; /* oldest first */
    struct weir__ledger own;
    struct weir__ledger *sum; /* of all buckets; kept in step with `own` */
};

void weir__leases_init(struct weir__leases *leases, int64_t *credit, struct weir__ledger *sum);

/* Looks at the credit word: attributes what was spent, voids what is past its time, forgets leases
 * with nothing left to say.  Returns what was spent since the last look. */
int64_t weir__leases_look(struct weir__leases *leases, int64_t now_us);

/* A grant of `tokens` > 0 came; it lives `life_us` from the send of its ask (R6).  Look first.
 * Returns whether it is credit now; one that has died on its way is not. */
bool weir__leases_add(struct weir__leases *leases, int64_t window, int64_t tokens, int64_t sent_us,
                      int64_t life_us, int64_t now_us);

/* The same for a lease of departure slots, which become credit one by one, as weir__leases_look
 * finds them due.  Returns whether any will. */
bool weir__leases_add_slots(struct weir__leases *leases, const struct weir__grant *grant,
                            int64_t sent_us, int64_t now_us);

/* Takes up to `tokens` of credit away from callers, oldest first, and notes them in rows to be sent
 * with the next ask.  Fills the rows of the two newest windows with what was spent and what goes
 * back (R5); from here on these amounts are gone, whatever becomes of the ask (R8). */
void weir__leases_settle(struct weir__leases *leases, int64_t back_tokens,
                         struct weir__settle rows[WEIR__SETTLE_ROWS], int64_t now_us);

/* Slots that are held and not due yet. */
int64_t weir__leases_coming(const struct weir__leases *leases);

/* Whether an ask would have something to settle. */
bool weir__leases_unsettled(const struct weir__leases *leases);

/* Up to `tokens` of earlier admissions were not used.  Returns how many became credit again (R10):
 * those that are not yet settled and whose lease lives.  The rest must travel to the store. */
int64_t weir__leases_refund(struct weir__leases *leases, int64_t tokens, int64_t now_us);

/* When the next lease changes by time alone: its credit dies, its next slot is due, or what was
 * spent of it need not be settled any more; INT64_MAX: none is held. */
int64_t weir__leases_next_us(const struct weir__leases *leases);

#endif
