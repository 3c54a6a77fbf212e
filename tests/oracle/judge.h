/* SPDX-License-Identifier: MIT */
#ifndef WEIR_TESTS_JUDGE_H
#define WEIR_TESTS_JUDGE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "core/ask.h"

/*
 * oracle.py as a program beside the test: it asks, hears what was answered, and says at the end, or
 * at the first answer that is wrong, what it thinks of them.  It asks about JUDGE_LANES keys side
 * by side, so that neither waits for the other at each ask.
 */
#define JUDGE_LANES 32

struct judge {
    pid_t pid;
    FILE *asks;
    FILE *answers;
    char verdict[4096]; /* "done", or what was wrong; "" while it asks */
};

/* One ask. */
struct question {
    size_t lane;
    bool begins; /* from now on the lane is about a key nobody has seen */
    int64_t now_us;
    struct weir__rule rule;
    struct weir__ask ask;
};

/* So many sequences, each with a seed of its own, from `seed` on. */
void judge_start(struct judge *judge, uint64_t count, uint64_t seed);

/* The next ask.  False: there is none, and the verdict is in. */
bool judge_next(struct judge *judge, struct question *question);

/* The answer, whether the key is there after it, and when it expires. */
void judge_tell(struct judge *judge, const struct weir__grant *grant, bool exists,
                int64_t expires_us);

/* Ends the program, whatever it was doing.  Returns its exit code. */
int judge_stop(struct judge *judge);

#endif
