/* SPDX-License-Identifier: MIT */
#ifndef WEIR_TESTS_CRASH_SERVER_H
#define WEIR_TESTS_CRASH_SERVER_H

#include <stdint.h>
#include <sys/types.h>

/* A private redis-server that can be stopped, killed and started again on the same folder. */

/* What outlives the server. */
enum server_keeps {
    SERVER_KEEPS_NOTHING,
    SERVER_KEEPS_SNAPSHOT, /* what it saves when it is asked to end */
    SERVER_KEEPS_LOG,      /* every write, on disk before it is answered */
};

struct server {
    enum server_keeps keeps;
    pid_t pid; /* 0: does not run */
    char folder[40];
    char socket[64];
    char url[80];
};

/* Make a folder and start a server in it; end it in any way and remove the folder.  The second may
 * be called after any failure, and twice. */
void server_open(struct server *server, enum server_keeps keeps);
void server_close(struct server *server);

void server_start(
    struct server *server); /* returns when it answers; fails the test if it does not */
void server_kill(struct server *server);
void server_save_and_end(struct server *server);
void server_stop(struct server *server); /* SIGSTOP */
void server_continue(struct server *server);

/* A command of words without blanks; its integer, or the length of its array.  Fails the test on an
 * error. */
__attribute__((format(printf, 2, 3))) int64_t server_ask(const struct server *server,
                                                         const char *format, ...);

/* What the server holds now. */
struct server_keys {
    int64_t count;
    int64_t eternal;    /* keys that never expire: there must be none */
    int64_t longest_ms; /* until the last of them expires */
};
struct server_keys server_keys(const struct server *server);

/* Waits until the last key has expired by itself, and fails the test if one has not when it should
 * have. */
void server_wait_until_empty(const struct server *server);

#endif
