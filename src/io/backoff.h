/* SPDX-License-Identifier: MIT */
#ifndef WEIR_IO_BACKOFF_H
#define WEIR_IO_BACKOFF_H

#include <stdint.h>

/* How long a connection that was lost, or could not be made, waits until it is tried again. */

struct weir__backoff {
    unsigned failures; /* in a row; the exponent */
    uint64_t seed;     /* of the jitter */
};

/* Another failure.  Returns the wait. */
uint64_t weir__backoff_ms(struct weir__backoff *backoff);

/* A connection has stood for so long, and is gone. */
void weir__backoff_stood(struct weir__backoff *backoff, uint64_t stood_ns);

#endif
