/* SPDX-License-Identifier: MIT */
#ifndef WEIR_API_COMPLAINT_H
#define WEIR_API_COMPLAINT_H

#include "weir/weir.h"

/* Fills *error (or nothing, if NULL) and returns the code.  The format is printf's; never pass a
 * password. */
int weir__complain(struct weir_error *error, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
