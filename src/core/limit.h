/* SPDX-License-Identifier: MIT */
#ifndef WEIR_CORE_LIMIT_H
#define WEIR_CORE_LIMIT_H

#include "core/ask.h"
#include "core/cap.h"

/* What to do for the buckets of a limit while the store cannot be asked.  Numbers as in
 * weir/weir.h. */
enum weir__outage_policy {
    WEIR__OUTAGE_LOCAL = 1,
    WEIR__OUTAGE_OPEN = 2,
    WEIR__OUTAGE_CLOSED = 3,
};

#define WEIR__PPM INT64_C(1000000)

/* A limit as this process defines it.  Changed only while the engine's lock is held. */
struct weir__limit {
    struct weir__rule rule;
    enum weir__outage_policy outage;
    /* 1..PPM; 0: 1/N of the processes last seen, or 10 % before any was */
    int64_t outage_share_ppm;
    struct weir__cap_config cap;
};

#endif
