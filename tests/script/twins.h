/* SPDX-License-Identifier: MIT */
#ifndef WEIR_TESTS_TWINS_H
#define WEIR_TESTS_TWINS_H

#include "core/global.h"

#include "lua_host.h"

/*
 * One key twice: a global bucket in C, and a hash in a store in a box that the shipped script works
 * on.  Each ask goes to both, and all that can be compared is: the reply, what is stored, the
 * expiry.  A difference fails the test.
 */

struct twins {
    struct lua_host *host;
    int script;
    struct weir__global bucket;
    /* The store's clock is behind by this much, and the script is told the time; 0: it asks for the
     * time itself. */
    int64_t behind_us;
    const char *what; /* of a sequence, for messages */
    uint64_t seed;
    unsigned asks;
};

/* Both as they are at a moment. */
struct twins_copy {
    struct weir__global bucket;
    struct lua_host_copy *key;
};

void twins_init(struct twins *twins);
void twins_deinit(struct twins *twins);

/* No key, on both sides. */
void twins_begin(struct twins *twins, const char *what, uint64_t seed);

/* Asks both. */
void twins_ask(struct twins *twins, const struct weir__rule *rule, const struct weir__ask *ask,
               int64_t now_us, struct weir__grant *grant);

/* A copy is freed by twins_forget; restoring does not use it up. */
struct twins_copy twins_keep(const struct twins *twins);
void twins_restore(struct twins *twins, const struct twins_copy *copy);
void twins_forget(struct twins_copy *copy);

/* Fails the running test with what is known of the sequence. */
void twins_fail(const struct twins *twins, const char *why) __attribute__((noreturn));

/* Memory in a bucket's log for exactly what one more ask needs, so that a need that is told too
 * small shows.  The caller frees log.entries. */
void twins_make_room(struct weir__global *bucket, const struct weir__rule *rule);

/* An ask for nothing, to be filled in. */
extern const struct weir__ask twins_nothing;

#endif
