/* SPDX-License-Identifier: MIT */
#ifndef WEIR_TESTS_SERVER_H
#define WEIR_TESTS_SERVER_H

#include <sys/types.h>

/* A real server of this test's own, on a unix socket in a temporary folder.  It keeps nothing. */
struct server {
    pid_t pid;
    int log; /* what it says; read until it is ready */
    char folder[64];
    char socket[96];
};

/* What is started: redis-server, or what WEIR_TEST_SERVER names (valkey-server). */
const char *server_program(void);

/* Returns 0 once it accepts connections; -1, with everything undone, when there is none. */
int server_start(struct server *server);
void server_stop(struct server *server);

#endif
