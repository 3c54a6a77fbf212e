/* SPDX-License-Identifier: MIT */
#ifndef WEIR_API_PHRASE_H
#define WEIR_API_PHRASE_H

#include <stdint.h>

/* The words of a limit as text that its reader and its writer share; the grammar is that of
 * weir_limit_parse. */

#define WEIR__MONTH "month"

struct weir__unit {
    const char *name;
    uint64_t us;
};

/* Units of time, the largest first. */
#define WEIR__UNITS 6
static const struct weir__unit weir__units[WEIR__UNITS] = {
    {"day", UINT64_C(86400000000)},
    {"h", UINT64_C(3600000000)},
    {"min", 60000000},
    {"s", 1000000},
    {"ms", 1000},
    {"us", 1},
};

/* The text of each outage policy, by its number. */
static const char *const weir__outage_words[] = {"", "local", "open", "closed"};

#endif
