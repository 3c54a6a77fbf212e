/* SPDX-License-Identifier: MIT */
#ifndef WEIR_TESTS_CRASH_VERDICT_H
#define WEIR_TESTS_CRASH_VERDICT_H

#include "crash/fleet.h"

/* Whether a fleet has kept the promise, with the terms of docs/protocol.md, section 2, that its run
 * has earned. */

struct verdict_terms {
    unsigned losses;   /* of the key: max(C, E) each */
    int64_t outage_ns; /* local policy: the time without a store, summed over the members */
};

/* Prints what was measured; fails the test if any interval holds more than C + r*t + E and the
 * terms. */
void verdict_check_promise(const struct fleet *fleet, const struct verdict_terms *terms);

/* Of what the limit allows in the whole run, the part that was admitted. */
double verdict_used_share(const struct fleet *fleet);

/* By when a member had admitted its first token since `from_ns`; INT64_MAX: never. */
int64_t verdict_first_admission_ns(const struct fleet *fleet, unsigned member, int64_t from_ns);

/* Tokens that a member admitted in an interval. */
uint64_t verdict_admitted_between(const struct fleet *fleet, unsigned member, int64_t from_ns,
                                  int64_t to_ns);

#endif
