/* SPDX-License-Identifier: MIT */

/*
 * The leases of one bucket: what was granted, until when, and what became of it.
 *
 * Path of a token: a grant arrives (core/exchange) -> weir__leases_add puts it into the credit word
 * -> a caller takes it (core/bucket.h) -> weir__leases_look sees that it is gone and attributes it
 * -> weir__leases_settle tells the store with the next ask.
 *
 * Invariants:
 *     credit <= expected = sum(left)            callers only take; nobody else gives
 *     granted = spent + sum(left) + given_back + expired
 *     a token is in exactly one of: left, spent, given_back, expired
 *     each spent or given-back amount is written into a row once (R8)
 *
 * Threads: all of this under the engine's lock, but for the credit word, which any caller lowers at
 * any time.  So whoever takes credit away here (expiry, give-back) does it in one compare-exchange
 * that also reads what callers have taken meanwhile: a token cannot both expire and be spent.
 *
 * The credit word is relaxed throughout: it carries nothing but itself.
 */

#include "core/leases.h"

#include <stddef.h>

#include "base/atomic.h"
#include "base/check.h"
#include "base/num.h"

void weir__leases_init(struct weir__leases *leases, int64_t *credit, struct weir__ledger *sum)
{
    *leases = (struct weir__leases){.credit = credit, .sum = sum};
}

/* Every change of the books goes through here. */
static void book(struct weir__leases *leases, const struct weir__ledger *change)
{
    struct weir__ledger *books[] = {&leases->own, leases->sum};
    for (unsigned i = 0; i < 2; i++) {
        books[i]->granted += change->granted;
        books[i]->spent += change->spent;
        books[i]->given_back += change->given_back;
        books[i]->expired += change->expired;
        books[i]->stranded += change->stranded;
    }
    leases->expected += change->granted - change->spent - change->given_back - change->expired;
}

/* Takes `spent` from the oldest leases.  What was taken from one whose window is over may have been
 * taken after it was over: the loop was stalled, and this is the term S of the promise. */
static void attribute(struct weir__leases *leases, int64_t spent, int64_t now_us)
{
    struct weir__ledger change = {.spent = spent};
    for (unsigned i = 0; i < leases->count && spent > 0; i++) {
        struct weir__lease *lease = &leases->at[i];
        int64_t part = weir__min(spent, lease->left);
        lease->left -= part;
        lease->spent += lease->window == WEIR__NO_WINDOW ? 0 : part;
        spent -= part;
        if (now_us >= lease->over_us) {
            change.stranded += part;
        }
    }
    WEIR__ASSERT(spent == 0);
    book(leases, &change);
}

static int64_t slot_us(const struct weir__lease *lease, int64_t i)
{
    return lease->first_us + weir__mul_div(i, lease->spread_us, lease->slots);
}

/* When the next slot is due; INT64_MAX: none comes. */
static int64_t next_slot_us(const struct weir__lease *lease)
{
    return lease->coming > 0 ? slot_us(lease, lease->slots - lease->coming) : INT64_MAX;
}

/* Credit dies with its lease, and a slot when the next one is due: the output would else not be
 * even. */
static bool is_void(const struct weir__lease *lease, int64_t now_us)
{
    return now_us >= lease->expires_us || now_us >= next_slot_us(lease);
}

/* How much of what is void now would be left if `spent` more were taken first, oldest first. */
static int64_t void_after(const struct weir__leases *leases, int64_t spent, int64_t now_us)
{
    int64_t gone = 0;
    for (unsigned i = 0; i < leases->count; i++) {
        const struct weir__lease *lease = &leases->at[i];
        int64_t part = weir__min(spent, lease->left);
        spent -= part;
        if (is_void(lease, now_us)) {
            gone += lease->left - part;
        }
    }
    return gone;
}

/* A lease with nothing left to say: no credit, and settled or no longer counted by the store. */
static void forget(struct weir__leases *leases, int64_t now_us)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < leases->count; i++) {
        const struct weir__lease *lease = &leases->at[i];
        bool unsettled = lease->spent > 0 && now_us < lease->over_us;
        if (lease->left > 0 || lease->coming > 0 || unsettled) {
            leases->at[kept++] = *lease;
        }
    }
    leases->count = kept;
}

/* How many slots are not due at this time. */
static int64_t coming_at(const struct weir__lease *lease, int64_t us)
{
    if (us < lease->first_us) {
        return lease->slots;
    }
    int64_t due = weir__mul_div(us - lease->first_us, lease->slots, lease->spread_us) + 1;
    while (due < lease->slots && us >= slot_us(lease, due)) { /* rounding leaves one at most */
        due++;
    }
    return weir__max(lease->slots - due, 0);
}

/* What a loop may be late by, and still bring all that was due: its looks are a millisecond
 * apart. */
#define SLOTS_LATE_US 2000

/* The slots that are due become credit; those that a stalled loop has missed do not, but for the
 * last of them. */
static void open_slots(struct weir__leases *leases, struct weir__lease *lease, int64_t now_us)
{
    int64_t before = lease->coming;
    if (before == 0) {
        return;
    }
    lease->coming = weir__min(before, coming_at(lease, now_us));
    int64_t in_time = weir__min(before, coming_at(lease, now_us - SLOTS_LATE_US)) - lease->coming;
    int64_t due = before > lease->coming ? weir__max(in_time, 1) : 0;
    if (now_us >= lease->expires_us) {
        lease->coming = due = 0;
    }
    if (due > 0) {
        lease->left += due;
        book(leases, &(struct weir__ledger){.granted = due});
        (void)weir__add_relaxed(leases->credit, due);
    }
}

int64_t weir__leases_look(struct weir__leases *leases, int64_t now_us)
{
    int64_t credit = weir__load_relaxed(leases->credit);
    int64_t gone = void_after(leases, leases->expected - credit, now_us);
    while (gone > 0 && !weir__cas_relaxed(leases->credit, &credit, credit - gone)) {
        gone = void_after(leases, leases->expected - credit, now_us);
    }

    int64_t spent = leases->expected - credit;
    WEIR__ASSERT(spent >= 0);
    attribute(leases, spent, now_us);

    book(leases, &(struct weir__ledger){.expired = gone});
    for (unsigned i = 0; i < leases->count; i++) {
        struct weir__lease *lease = &leases->at[i];
        if (is_void(lease, now_us)) {
            lease->left = 0;
        }
        open_slots(leases, lease, now_us);
    }
    forget(leases, now_us);
    return spent;
}

static void remove_at(struct weir__leases *leases, unsigned i)
{
    leases->count--;
    for (; i < leases->count; i++) {
        leases->at[i] = leases->at[i + 1];
    }
}

/* Frees a place by joining two neighbours of one window.  The earlier times count for the credit of
 * both, which is the safe side; what was spent is settled by the later ones, since the store keeps
 * the account of a window for the last lease in it (R3).  Live leases belong to two windows at
 * most, so there is a pair; only a store that forgot its windows again and again leaves none, and
 * then the oldest lease is let go, credit and account. */
static void make_room(struct weir__leases *leases, int64_t now_us)
{
    for (unsigned i = 0; i + 1 < leases->count; i++) {
        const struct weir__lease *older = &leases->at[i];
        struct weir__lease *newer = &leases->at[i + 1];
        if (older->window == newer->window) {
            if (older->left > 0) {
                newer->expires_us = weir__min(older->expires_us, newer->expires_us);
                newer->over_us = weir__min(older->over_us, newer->over_us);
            }
            newer->left += older->left;
            newer->spent += older->spent;
            remove_at(leases, i);
            return;
        }
    }
    leases->at[0].expires_us = now_us;
    (void)weir__leases_look(leases, now_us);
    if (leases->count == WEIR__LEASES_MAX) { /* some of it was spent */
        leases->at[0].spent = 0;
        forget(leases, now_us);
    }
}

/* A lease is void after 3/4 of its window.  Its window's account ends at 31/32 of it (two clocks,
 * each off by 1 %): 7/24 of the life later. */
#define OVER_NUMERATOR 7
#define OVER_DENOMINATOR 24

bool weir__leases_add(struct weir__leases *leases, int64_t window, int64_t tokens, int64_t sent_us,
                      int64_t life_us, int64_t now_us)
{
    WEIR__ASSERT(tokens > 0 && life_us >= 0);
    int64_t expires_us = weir__add_sat(sent_us, life_us);
    if (now_us >= expires_us) { /* the answer took longer than the lease lives */
        book(leases, &(struct weir__ledger){.granted = tokens, .expired = tokens});
        return false;
    }
    if (leases->count == WEIR__LEASES_MAX) {
        make_room(leases, now_us);
    }
    int64_t slack_us = weir__mul_div(life_us, OVER_NUMERATOR, OVER_DENOMINATOR);
    leases->at[leases->count++] = (struct weir__lease){
        .window = window,
        .left = tokens,
        .expires_us = expires_us,
        .over_us = weir__add_sat(expires_us, slack_us),
    };
    book(leases, &(struct weir__ledger){.granted = tokens});
    (void)weir__add_relaxed(leases->credit, tokens);
    return true;
}

bool weir__leases_add_slots(struct weir__leases *leases, const struct weir__grant *grant,
                            int64_t sent_us, int64_t now_us)
{
    WEIR__ASSERT(grant->lease > 0 && grant->spread_us > 0);
    int64_t life_us = grant->life_us;
    /* The script ran before now, so no slot is early. */
    int64_t first_us = weir__add_sat(now_us, grant->first_us);
    if (first_us >= weir__add_sat(sent_us, life_us)) {
        return false;
    }
    if (leases->count == WEIR__LEASES_MAX) {
        make_room(leases, now_us);
    }
    int64_t expires_us = weir__add_sat(sent_us, life_us);
    int64_t slack_us = weir__mul_div(life_us, OVER_NUMERATOR, OVER_DENOMINATOR);
    leases->at[leases->count++] = (struct weir__lease){
        .window = grant->window,
        .expires_us = weir__min(expires_us, weir__add_sat(first_us, grant->spread_us)),
        .over_us = weir__add_sat(expires_us, slack_us),
        .slots = grant->lease,
        .coming = grant->lease,
        .first_us = first_us,
        .spread_us = grant->spread_us,
    };
    (void)weir__leases_look(leases, now_us);
    return true;
}

/* Takes up to `tokens` of credit from callers in one step; returns how many. */
static int64_t withdraw(struct weir__leases *leases, int64_t tokens, int64_t now_us)
{
    int64_t credit = weir__load_relaxed(leases->credit);
    int64_t part = weir__min(tokens, credit);
    while (part > 0 && !weir__cas_relaxed(leases->credit, &credit, credit - part)) {
        part = weir__min(tokens, credit);
    }
    attribute(leases, leases->expected - credit, now_us);
    return part;
}

static struct weir__settle *row_of(struct weir__settle rows[WEIR__SETTLE_ROWS], int64_t window)
{
    for (unsigned i = 0; i < WEIR__SETTLE_ROWS; i++) {
        if (rows[i].window == window || rows[i].window == WEIR__NO_WINDOW) {
            rows[i].window = window;
            return &rows[i];
        }
    }
    return NULL;
}

void weir__leases_settle(struct weir__leases *leases, int64_t back_tokens,
                         struct weir__settle rows[WEIR__SETTLE_ROWS], int64_t now_us)
{
    for (unsigned i = 0; i < WEIR__SETTLE_ROWS; i++) {
        rows[i] = (struct weir__settle){.window = WEIR__NO_WINDOW};
    }
    int64_t back = back_tokens > 0 ? withdraw(leases, back_tokens, now_us) : 0;
    book(leases, &(struct weir__ledger){.given_back = back});

    /* The oldest credit goes back first: it would die first. */
    int64_t backs[WEIR__LEASES_MAX] = {0};
    for (unsigned i = 0; i < leases->count && back > 0; i++) {
        backs[i] = weir__min(back, leases->at[i].left);
        leases->at[i].left -= backs[i];
        back -= backs[i];
    }
    WEIR__ASSERT(back == 0);
    for (unsigned i = 0; i < leases->count && back_tokens == INT64_MAX; i++) {
        backs[i] += leases->at[i].coming; /* slots nobody will use: the budget is free of them */
        leases->at[i].coming = 0;
    }

    for (unsigned i = leases->count; i-- > 0;) { /* the newest windows get the rows */
        struct weir__lease *lease = &leases->at[i];
        if ((lease->spent > 0 || backs[i] > 0) && lease->window != WEIR__NO_WINDOW) {
            struct weir__settle *row = row_of(rows, lease->window);
            if (row != NULL) {
                row->spent += lease->spent;
                row->back += backs[i];
            }
        }
        lease->spent = 0;
    }
    forget(leases, now_us);
}

int64_t weir__leases_coming(const struct weir__leases *leases)
{
    int64_t coming = 0;
    for (unsigned i = 0; i < leases->count; i++) {
        coming += leases->at[i].coming;
    }
    return coming;
}

bool weir__leases_unsettled(const struct weir__leases *leases)
{
    for (unsigned i = 0; i < leases->count; i++) {
        if (leases->at[i].spent > 0) {
            return true;
        }
    }
    return false;
}

int64_t weir__leases_refund(struct weir__leases *leases, int64_t tokens, int64_t now_us)
{
    int64_t again = 0;
    for (unsigned i = leases->count; i-- > 0 && again < tokens;) {
        struct weir__lease *lease = &leases->at[i];
        if (now_us >= lease->expires_us || lease->slots > 0) {
            continue; /* dead; or a departure, whose time is over */
        }
        int64_t part = weir__min(tokens - again, lease->spent);
        lease->spent -= part;
        lease->left += part;
        again += part;
    }
    book(leases, &(struct weir__ledger){.spent = -again});
    (void)weir__add_relaxed(leases->credit, again);
    return again;
}

int64_t weir__leases_next_us(const struct weir__leases *leases)
{
    int64_t next = INT64_MAX;
    for (unsigned i = 0; i < leases->count; i++) {
        const struct weir__lease *lease = &leases->at[i];
        bool lives = lease->left > 0 || lease->coming > 0;
        next = weir__min(next, lives ? lease->expires_us : lease->over_us);
        next = weir__min(next, next_slot_us(lease));
    }
    return next;
}
