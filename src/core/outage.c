/* SPDX-License-Identifier: MIT */

/*
 * Whether the store can be asked, with hysteresis: one lost reply is not an outage.
 *
 *                 linked                        lost for a while
 *     CONNECTING --------> UP <---> SUSPECT --------------------> DOWN
 *          |                ^  lost / answered                    |  ^
 *          | a try failed   | answered                 probe time |  | lost
 *          +---> DOWN       +--------- PROBING <------------------+  |
 *                                         |   (or linked again)      |
 *                                         +--------------------------+
 *     any state, the connection is gone: DOWN
 *     PROBING, and no bucket has anything to ask: SUSPECT, so that who comes next is not refused,
 *     but finds out
 *
 * Path of a token: core/engine sends no ask while this says DOWN, and one while it says PROBING;
 * the buckets are then served by their outage policy.
 */

#include "core/outage.h"

/* By choice: three lost asks that were not lost together.  A fork of the server or a lost packet is
 * no outage. */
#define LOST_IN_A_ROW 3
#define LOST_APART_US 150000

/* By choice: service is back within half a second of the store. */
#define PROBE_EVERY_US 250000

void weir__outage_init(struct weir__outage *outage)
{
    *outage = (struct weir__outage){.state = WEIR__STORE_CONNECTING};
}

static void go_down(struct weir__outage *outage)
{
    if (!weir__outage_is_down(outage)) {
        outage->outages++;
    }
    outage->state = WEIR__STORE_DOWN;
}

void weir__outage_linked(struct weir__outage *outage)
{
    outage->linked = true;
    outage->lost_in_row = 0;
    outage->state = outage->state == WEIR__STORE_CONNECTING ? WEIR__STORE_UP : WEIR__STORE_PROBING;
}

void weir__outage_unlinked(struct weir__outage *outage)
{
    outage->linked = false;
    go_down(outage);
}

void weir__outage_unprobed(struct weir__outage *outage)
{
    if (outage->state == WEIR__STORE_PROBING) {
        outage->state = WEIR__STORE_SUSPECT;
    }
}

void weir__outage_answered(struct weir__outage *outage)
{
    outage->lost_in_row = 0;
    if (outage->linked) {
        outage->state = WEIR__STORE_UP;
    }
}

void weir__outage_lost(struct weir__outage *outage, int64_t now_us)
{
    if (outage->lost_in_row++ == 0) {
        outage->lost_from_us = now_us;
    }
    bool long_enough = outage->lost_in_row >= LOST_IN_A_ROW &&
                       now_us - outage->lost_from_us >= LOST_APART_US;
    if (!outage->linked) {
        return;
    }
    if (outage->state == WEIR__STORE_PROBING || long_enough) {
        go_down(outage);
        outage->probe_at_us = now_us + PROBE_EVERY_US;
    } else if (outage->state == WEIR__STORE_UP) {
        outage->state = WEIR__STORE_SUSPECT;
    }
}

void weir__outage_tick(struct weir__outage *outage, int64_t now_us)
{
    if (outage->state == WEIR__STORE_DOWN && outage->linked && now_us >= outage->probe_at_us) {
        outage->state = WEIR__STORE_PROBING;
    }
}

unsigned weir__outage_asks(const struct weir__outage *outage, unsigned most)
{
    switch (outage->state) {
    case WEIR__STORE_UP:
    case WEIR__STORE_SUSPECT: return most;
    case WEIR__STORE_PROBING: return 1;
    case WEIR__STORE_CONNECTING:
    case WEIR__STORE_DOWN: break;
    }
    return 0;
}
