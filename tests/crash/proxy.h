/* SPDX-License-Identifier: MIT */
#ifndef WEIR_TESTS_CRASH_PROXY_H
#define WEIR_TESTS_CRASH_PROXY_H

#include <stdint.h>
#include <sys/types.h>

/* A bad network: a process that stands between clients on 127.0.0.1 and a server's socket. */

/* Odds are of each piece of a reply, per thousand. */
struct proxy_faults {
    uint64_t delay_most_us; /* each piece is held back by 0 to this, in order */
    unsigned cut;           /* half of it comes, then the connection ends */
    unsigned reset;         /* nothing of it comes, but a reset */
    unsigned half_close; /* it comes, and then the end of the stream; requests still go through */
    unsigned swallow;    /* nothing of it comes, nor of any after it */
    uint64_t seed;
};

struct proxy_counts {
    uint32_t connections, cuts, resets, half_closes, swallows;
};

struct proxy {
    pid_t pid; /* 0: none */
    char url[48];
    struct proxy_counts *counts; /* written by the process while it lives */
};

void proxy_start(struct proxy *proxy, const char *server_socket, const struct proxy_faults *faults);
void proxy_stop(struct proxy *proxy); /* may be called twice, or for none */

#endif
