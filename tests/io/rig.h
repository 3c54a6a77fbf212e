/* SPDX-License-Identifier: MIT */
#ifndef WEIR_TESTS_IO_RIG_H
#define WEIR_TESTS_IO_RIG_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "io/conn.h"

/* A loop, one connection on it, and a note of everything the connection says. */

/* Returns {ARGV[2] as a number, 7}. */
extern const struct weir__script rig_script;

struct rig {
    uv_loop_t loop;
    uv_timer_t tick; /* so that the loop turns while nothing happens; sees the largest gap too */
    uint64_t ticked_ns, largest_gap_ns;
    struct weir__conn *conn;
    struct weir__conn_config config;
    unsigned ups, downs, logs;
    bool closing, closed;
    bool close_on_up, close_on_down;
    char why[512];  /* of the last down */
    char log[4096]; /* all lines, cut */
};

struct rig_call {
    struct weir__call call;
    struct rig *rig;
    unsigned answers;
    uint64_t called_ns, answered_ns;
    struct weir__outcome outcome; /* error is in `error` */
    char error[200];
    char number[16];
    bool close_on_answer;
    bool free_on_answer; /* the memory is gone as soon as it may be */
};

/* The loop, and a config for 127.0.0.1:port with short times. */
void rig_init(struct rig *rig, int port);
void rig_connect(struct rig *rig);
/* rig_connect, and runs until up. */
void rig_up(struct rig *rig);
/* Closes the connection, if that has not happened, runs until closed; then ends the loop and fails
 * if anything is left on it. */
void rig_deinit(struct rig *rig);

/* Sends a call that asks for `number`, with a time-out. */
void rig_call(struct rig *rig, struct rig_call *call, int number, uint64_t timeout_ms);
void rig_close(struct rig *rig);

/* Turns the loop until the condition holds; fails after a time that no test needs, even
 * on a machine with other work. */
#define RIG_UNTIL(rig, condition)                                                                  \
    do {                                                                                           \
        uint64_t rig_end_ns = uv_hrtime() + UINT64_C(20000000000);                                 \
        while (!(condition)) {                                                                     \
            if (uv_hrtime() > rig_end_ns) {                                                        \
                fail_msg("never came true: %s (down: %s)", #condition, (rig)->why);                \
            }                                                                                      \
            uv_run(&(rig)->loop, UV_RUN_ONCE);                                                     \
        }                                                                                          \
    } while (0)

#endif
