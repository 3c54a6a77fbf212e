/* SPDX-License-Identifier: MIT */
#ifndef WEIR_TESTS_UNIT_PHRASES_H
#define WEIR_TESTS_UNIT_PHRASES_H

#include "core/limit.h"
#include "weir/weir.h"

/* Limits as text, for tests: each of these fails the test when it cannot do what it says. */

/* Options as weir_limit_options_init leaves them. */
struct weir_limit_options untouched(void);

struct weir_limit_options parse(const char *text);
void format(char out[512], const struct weir_limit_options *options);

/* What these options make. */
struct weir__limit read_limit(const struct weir_limit_options *options);

/* Every field but the size and the name. */
void assert_same(const struct weir_limit_options *a, const struct weir_limit_options *b);

#endif
