/* SPDX-License-Identifier: MIT */
/*
 * Names to addresses, on libuv's thread pool.
 *
 * Not in the path of a token: once for each time the connection is made.
 *
 * hiredis would resolve a name inside its connect call and stop the loop for as long as the
 * resolver takes. So hiredis only ever sees addresses as text, and the system's resolver runs
 * elsewhere.  There is one question at a time: a resolver that hangs holds one thread of the pool
 * and not one more for each retry.
 *
 * An address goes through getnameinfo and not uv_ip6_name, which would drop the interface of a
 * link-local address.
 */
#include "io/resolve.h"

#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>

bool weir__resolve_numeric(struct weir__resolve *resolve, const char *host)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    if (uv_ip4_addr(host, 0, &v4) != 0 && uv_ip6_addr(host, 0, &v6) != 0) {
        return false;
    }
    int len = snprintf(resolve->address[0], WEIR__ADDRESS_TEXT_MAX, "%s", host);
    resolve->count = 1;
    return len < WEIR__ADDRESS_TEXT_MAX;
}

static void keep(struct weir__resolve *resolve, const struct addrinfo *found)
{
    resolve->count = 0;
    for (; found != NULL && resolve->count < WEIR__ADDRESSES_MAX; found = found->ai_next) {
        if (getnameinfo(found->ai_addr, found->ai_addrlen, resolve->address[resolve->count],
                        WEIR__ADDRESS_TEXT_MAX, NULL, 0, NI_NUMERICHOST) == 0) {
            resolve->count++;
        }
    }
}

static void on_answer(uv_getaddrinfo_t *request, int status, struct addrinfo *found)
{
    struct weir__resolve *resolve = request->data;
    resolve->busy = false;
    if (status == 0) {
        keep(resolve, found);
        status = resolve->count > 0 ? 0 : UV_EAI_NODATA;
    }
    uv_freeaddrinfo(found);
    resolve->done(resolve->arg, status);
}

int weir__resolve_start(struct weir__resolve *resolve, uv_loop_t *loop, const char *host,
                        void (*done)(void *arg, int status), void *arg)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    resolve->done = done;
    resolve->arg = arg;
    resolve->request.data = resolve;
    int status = uv_getaddrinfo(loop, &resolve->request, on_answer, host, NULL, &hints);
    resolve->busy = status == 0;
    return status;
}

void weir__resolve_hurry(struct weir__resolve *resolve)
{
    if (resolve->busy) {
        /* Refused when a thread has begun: then the answer comes when it comes. */
        (void)uv_cancel((uv_req_t *)&resolve->request);
    }
}
