/* SPDX-License-Identifier: MIT */
#ifndef WEIR_IO_ENDPOINT_H
#define WEIR_IO_ENDPOINT_H

#include <stdint.h>

/* Where a store listens and how to log in.  Filled by api/url from options.url. */
#define WEIR__HOST_MAX 255
/* sun_path holds 108 bytes; hiredis 0.14.1 leaves the last of them unset, and the end must be
 * before it. */
#define WEIR__PATH_MAX 106
#define WEIR__CREDENTIAL_MAX 512

struct weir__endpoint {
    char host[WEIR__HOST_MAX + 1]; /* "" when path is set */
    char path[WEIR__PATH_MAX + 1]; /* "" when host is set */
    uint16_t port;
    uint32_t db;
    char user[WEIR__CREDENTIAL_MAX + 1];     /* "" : none */
    char password[WEIR__CREDENTIAL_MAX + 1]; /* "" : no log-in */
};

#endif
