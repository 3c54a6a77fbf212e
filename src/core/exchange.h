/* SPDX-License-Identifier: MIT */
#ifndef WEIR_CORE_EXCHANGE_H
#define WEIR_CORE_EXCHANGE_H

#include "core/engine.h"

/* One bucket's asks and grants.  For the engine's own files. */

struct weir__plan {
    struct weir__sizes sizes;
    bool idle;      /* nobody took or wanted a token for a while */
    bool any;       /* there is something to ask or to say now */
    bool give_back; /* all credit goes back */
    bool reset;     /* the bucket starts anew */
    int64_t want;   /* lease */
    int64_t exact;  /* for the first `covers` waiters */
    unsigned covers;
    int64_t wait_us;     /* the exact part may be reserved up to this far ahead */
    int64_t exact_at_us; /* when waiters may be asked for */
};

/* What would be asked now, were an ask sent. */
void weir__exchange_plan(const struct weir__engine *engine, const struct weir__bucket *bucket,
                         struct weir__plan *plan, int64_t now_us);

/* Forgets paces and a refusal. */
void weir__exchange_forget_paces(struct weir__bucket *bucket);

/* The same if they were of another rule: a raised limit is in force at once. */
void weir__exchange_renew(struct weir__bucket *bucket);

/* Looks at the credit: what callers took, whether some found too little, how much is wanted. */
void weir__exchange_observe(struct weir__engine *engine, struct weir__bucket *bucket,
                            int64_t now_us);

/* The store may have come or gone: if so, every bucket is looked at anew.  (In core/engine.) */
void weir__exchange_notice(struct weir__engine *engine, int64_t now_us);

#endif
