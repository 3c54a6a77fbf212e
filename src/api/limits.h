/* SPDX-License-Identifier: MIT */
#ifndef WEIR_API_LIMITS_H
#define WEIR_API_LIMITS_H

#include <float.h>

#include "core/limit.h"
#include "weir/weir.h"

/* A percent that nobody wrote: what nobody writes by hand. */
#define WEIR__UNSET_PERCENT (-DBL_MAX)

/* Checks the options of a limit and works out its rule; *ours becomes a full copy of them.  Every
 * refusal names the field and the value. */
int weir__limit_read(struct weir__limit *limit, struct weir_limit_options *ours,
                     const struct weir_limit_options *options, uint64_t ask_timeout_us,
                     struct weir_error *error);

/* Checks a name that becomes part of a key; `field` is what it is called. */
int weir__name_check(const char *field, const char *name, struct weir_error *error);

/* Fills the caller's struct, whose size may be older and smaller than ours, or newer and larger,
 * with our defaults; what we do not know is zero.  `ours` begins with its size, and gets theirs. */
void weir__options_init(void *theirs, size_t their_size, void *ours, size_t our_size);

/* Copies versioned options: what the caller's older struct lacks keeps its default; what a newer
 * one has beyond ours must be zero.  `options` begins with its size. */
int weir__options_copy(void *ours, size_t our_size, const void *theirs, struct weir_error *error);

#endif
