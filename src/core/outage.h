/* SPDX-License-Identifier: MIT */
#ifndef WEIR_CORE_OUTAGE_H
#define WEIR_CORE_OUTAGE_H

#include <stdbool.h>
#include <stdint.h>

/* Can the store be asked?  Events in, state out. */

enum weir__store_state {
    WEIR__STORE_CONNECTING, /* never reached yet: asks wait for it */
    WEIR__STORE_UP,
    WEIR__STORE_SUSPECT, /* asks are lost, but not enough of them yet: still asked */
    WEIR__STORE_DOWN,    /* the outage policies decide */
    WEIR__STORE_PROBING, /* connected again, or time to try: one ask, the policies still decide */
};

struct weir__outage {
    enum weir__store_state state;
    bool linked;          /* a connection stands */
    unsigned lost_in_row; /* asks without an answer since the last answer, */
    int64_t lost_from_us; /* and when the first of them was given up */
    int64_t probe_at_us;  /* DOWN with a connection: when to try one ask */
    uint64_t outages;     /* how many times it went down */
};

void weir__outage_init(struct weir__outage *outage);
void weir__outage_linked(struct weir__outage *outage);   /* a connection is up */
void weir__outage_unlinked(struct weir__outage *outage); /* it is gone, or a try failed */
void weir__outage_unprobed(struct weir__outage *outage); /* nobody is there to carry the probe */
void weir__outage_answered(struct weir__outage *outage);
/* an ask was not answered, or refused */
void weir__outage_lost(struct weir__outage *outage, int64_t now_us);
void weir__outage_tick(struct weir__outage *outage, int64_t now_us);

/* How many asks may be on their way at once now. */
unsigned weir__outage_asks(const struct weir__outage *outage, unsigned most);

/* Whether the outage policies decide now. */
static inline bool weir__outage_is_down(const struct weir__outage *outage)
{
    return outage->state == WEIR__STORE_DOWN || outage->state == WEIR__STORE_PROBING;
}

/* When weir__outage_tick has something to do; INT64_MAX: nothing. */
static inline int64_t weir__outage_next_us(const struct weir__outage *outage)
{
    return outage->state == WEIR__STORE_DOWN && outage->linked ? outage->probe_at_us : INT64_MAX;
}

#endif
