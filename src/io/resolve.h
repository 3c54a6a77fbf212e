/* SPDX-License-Identifier: MIT */
#ifndef WEIR_IO_RESOLVE_H
#define WEIR_IO_RESOLVE_H

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

/* From a host's name to the addresses it has now, without blocking the loop. */

#define WEIR__ADDRESSES_MAX 8     /* a name with more is cut: the system puts the best first */
#define WEIR__ADDRESS_TEXT_MAX 64 /* an IPv6 address, '%', an interface: 46 + 1 + 16 */

/* Memory: the owner's, which keeps it while `busy`. */
struct weir__resolve {
    uv_getaddrinfo_t request;
    bool busy; /* a question is open */
    char address[WEIR__ADDRESSES_MAX][WEIR__ADDRESS_TEXT_MAX];
    size_t count;
    void (*done)(void *arg, int status);
    void *arg;
};

/* True when `host` is an address already: then it is the answer, there and then. */
bool weir__resolve_numeric(struct weir__resolve *resolve, const char *host);

/* Asks.  done(arg, status) comes once, on a later turn: status is 0 and the answer holds at least
 * one address, or it is an error of libuv.  Not while `busy`. Returns 0, or an error of libuv:
 * then `done` does not come. */
int weir__resolve_start(struct weir__resolve *resolve, uv_loop_t *loop, const char *host,
                        void (*done)(void *arg, int status), void *arg);

/* Asks to be answered soon, if possible; `done` still comes.  A question that the system's
 * resolver works on already cannot be called back. */
void weir__resolve_hurry(struct weir__resolve *resolve);

#endif
