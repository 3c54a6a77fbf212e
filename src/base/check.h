/* SPDX-License-Identifier: MIT */
#ifndef WEIR_BASE_CHECK_H
#define WEIR_BASE_CHECK_H

#include <assert.h>

/*
 * WEIR__ASSERT states what cannot be false unless weir itself is wrong: it aborts with the
 * expression, the file and the line.  With NDEBUG (release builds) nothing is evaluated, but the
 * expression must still compile, so that it does not rot and its variables count as used.  A
 * caller's mistake is not asserted: it is answered WEIR_EINVAL.
 */
#ifdef NDEBUG
#define WEIR__ASSERT(expression) ((void)sizeof((expression) ? 1 : 0))
#else
#define WEIR__ASSERT(expression) assert(expression)
#endif

#endif
