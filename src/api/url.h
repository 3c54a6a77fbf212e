/* SPDX-License-Identifier: MIT */
#ifndef WEIR_API_URL_H
#define WEIR_API_URL_H

#include "io/endpoint.h"
#include "weir/weir.h"

/* Reads options.url:
 *
 *     redis://[user[:password]@]host[:port][/db]      host may be [v6]
 *     unix://[user[:password]@]/path[?db=n]
 *
 * User and password are percent-decoded.  Returns WEIR_OK, or WEIR_EINVAL with the place and what
 * was expected; the text never holds the password. */
int weir__url_read(struct weir__endpoint *endpoint, const char *url, struct weir_error *error);

#endif
