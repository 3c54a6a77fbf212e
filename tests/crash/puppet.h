/* SPDX-License-Identifier: MIT */
#ifndef WEIR_TESTS_CRASH_PUPPET_H
#define WEIR_TESTS_CRASH_PUPPET_H

#include <stdint.h>
#include <sys/types.h>

#include <weir/weir.h>

/* A process with a weir that does one thing at a time, when it is told to. */
struct puppet {
    pid_t pid; /* 0: none */
    int wire;
};

/* What came of it. */
struct puppet_answer {
    int code;        /* of the call, or the verdict of its callback */
    int callbacks;   /* that came */
    uint64_t tokens; /* taken */
    struct weir_result result;
    int64_t called_ns, heard_ns; /* clock_now_ns */
    struct weir_stats stats;     /* at the end of it */
};

/* `limit` is copied; its name too. */
void puppet_start(struct puppet *puppet, const char *url, const struct weir_limit_options *limit);
void puppet_end(struct puppet *puppet); /* in order; may be called twice, or for none */
void puppet_kill(struct puppet *puppet);
void puppet_stop(const struct puppet *puppet); /* SIGSTOP */
void puppet_continue(const struct puppet *puppet);

/* weir_acquire with a callback. */
struct puppet_answer puppet_acquire(const struct puppet *puppet, const char *key, uint64_t cost,
                                    uint64_t timeout_us);
/* weir_try_acquire, one token each, until `tokens` are taken or `time_us` is over. */
struct puppet_answer puppet_take(const struct puppet *puppet, const char *key, uint64_t tokens,
                                 uint64_t time_us);

/* The same in halves, so that several work at once. */
void puppet_begin_take(const struct puppet *puppet, const char *key, uint64_t tokens,
                       uint64_t time_us);
struct puppet_answer puppet_finish(const struct puppet *puppet);

#endif
