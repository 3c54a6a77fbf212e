/* SPDX-License-Identifier: MIT */
#ifndef WEIR_TESTS_API_FIXTURE_H
#define WEIR_TESTS_API_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "weir/weir.h"

struct server;

/* What every test of the public interface needs: a clock to turn by hand, short ways to a weir,
 * a limit and a bucket, a store of its own, and a note of what callbacks said.  Each of these
 * fails the test when it cannot do what it says; so they are for the test's own thread. */

#define MS INT64_C(1000)
#define SECOND INT64_C(1000000)
#define MINUTE (60 * SECOND)
#define HOUR (60 * MINUTE)
#define DAY (24 * HOUR)

/* ---- Time ------------------------------------------------------------------------------------ */

/* A clock that stands still until it is set; any thread. */
struct hand_clock {
    uint64_t ns;
};
void hand_clock_set(struct hand_clock *clock, int64_t us);
uint64_t hand_clock_ns(void *clock);

/* The real time that has passed, and a short pause. */
int64_t real_us(void);
void pause_us(unsigned us);

/* Waits until the condition holds, and fails after some seconds. */
#define UNTIL(condition) UNTIL_WITHIN(5 * SECOND, condition)
#define UNTIL_WITHIN(us, condition)                                                                \
    do {                                                                                           \
        int64_t until_end_us = real_us() + (us);                                                   \
        while (!(condition)) {                                                                     \
            if (real_us() > until_end_us) {                                                        \
                fail_msg("never came true: %s", #condition);                                       \
            }                                                                                      \
            pause_us(200);                                                                         \
        }                                                                                          \
    } while (0)

/* ---- A weir ---------------------------------------------------------------------------------- */

/* In process, on a clock turned by hand (or NULL: the real one). */
struct weir *open_inprocess(struct hand_clock *clock);

/* On a store at a socket, with room in its timeouts for a machine that does much else. */
struct weir_options store_options(const char *url);
struct weir *open_with(const struct weir_options *options);
struct weir *open_store(const struct server *server);
void url_of(const struct server *server, char url[128]);

struct weir_limit_options limit_options(const char *name, uint64_t rate, int64_t period_us,
                                        uint64_t capacity, uint64_t budget);
struct weir_limit *define_with(struct weir *weir, const struct weir_limit_options *options);
struct weir_limit *define(struct weir *weir, const char *name, uint64_t rate, int64_t period_us,
                          uint64_t capacity, uint64_t budget);
struct weir_bucket *get(struct weir_limit *limit, const char *key);
void drop(struct weir_claim *claims, size_t count); /* unrefs their buckets */
struct weir_stats stats_of(struct weir *weir);

/* leased = lease_spent + held + given_back + expired. */
void assert_conserved(const struct weir_stats *stats);

/* ---- A store --------------------------------------------------------------------------------- */

struct server *store_start(void);
void store_stop(struct server *server);

/* Says something to the store; fails on an error reply.  Returns the answer if it is a number, the
 * length of the list if it is one, else 0. */
long long store_do(const struct server *server, const char *format, ...);

/* ---- Answers --------------------------------------------------------------------------------- */

/* One weir_acquire and its callback. */
struct answer {
    unsigned count; /* atomic: callbacks so far */
    unsigned order; /* which callback of all this was; from 1 */
    bool inside;    /* weir_acquire has not returned yet */
    bool called_inside;
    uint64_t caller, thread; /* who asked; who called back */
    int64_t at_us;
    struct weir_result result;
};

/* weir_acquire with *answer to be filled; returns what it returned. */
int ask(struct answer *answer, struct weir_bucket *bucket, uint64_t cost, int64_t timeout_us,
        struct weir_result *result);
bool answered(const struct answer *answer);

#endif
