/* SPDX-License-Identifier: MIT */
#ifndef WEIR_TOOLS_CHECK_H
#define WEIR_TOOLS_CHECK_H

#include <stdbool.h>

/* `weir check TEXT`: explains a limit on stdout, in words or as one line of JSON.  Returns the exit
 * status: 0, or 1 for a text that is no limit, which stderr then says. */
int check_limit(const char *text, bool json);

#endif
