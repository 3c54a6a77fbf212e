/* SPDX-License-Identifier: MIT */
#ifndef WEIR_BENCH_REDIS_SERVER_H
#define WEIR_BENCH_REDIS_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* A private redis-server: on a socket in a temporary folder, without TCP, without persistence. */
struct redis_server {
    pid_t pid; /* 0: none */
    char folder[64];
    char socket[80];
    char url[96];
};

/* Starts one and waits until it answers.  Returns false with the reason; nothing is left then. */
bool redis_server_start(struct redis_server *server, char *why, size_t why_size);

/* Ends it and removes its folder.  May be called when none was started. */
void redis_server_stop(struct redis_server *server);

#endif
