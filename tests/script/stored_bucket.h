/* SPDX-License-Identifier: MIT */
#ifndef WEIR_TESTS_STORED_BUCKET_H
#define WEIR_TESTS_STORED_BUCKET_H

#include <stdbool.h>
#include <stddef.h>

#include "core/global.h"

/* The fields of a key, in this order. */
#define STORED_FIELDS 5
extern const char *const stored_field_names[STORED_FIELDS]; /* l, t, r, a, x */

/* A key as a store holds it; data NULL where a field is missing. */
struct stored_bucket {
    struct {
        const char *data;
        size_t len;
    } fields[STORED_FIELDS];
};

/* Whether the fields say what *bucket says, all but the expiry.  If not, `why` holds the first
 * difference. */
bool stored_bucket_equals(const struct stored_bucket *stored, const struct weir__global *bucket,
                          char why[160]);

/* Whether two grants are the same; if not, `why` names the first field that differs. */
bool grants_equal(const struct weir__grant *ours, const int64_t *theirs, size_t count,
                  char why[160]);

#endif
