/* SPDX-License-Identifier: MIT */
#ifndef WEIR_TESTS_IO_PEER_H
#define WEIR_TESTS_IO_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

/*
 * A scripted store: it listens on the test's own loop, cuts the stream into commands, and lets the
 * test say what is answered, when, and in what pieces.  Left to itself it answers like an honest
 * one.
 */

#define PEER_WORDS_MAX 8
#define PEER_CLIENTS_MAX 8

struct peer;
struct peer_client;

struct peer_command {
    int argc;
    const char *argv[PEER_WORDS_MAX];
    size_t len[PEER_WORDS_MAX];
};

struct peer {
    uv_loop_t *loop;
    uv_stream_t *listener; /* NULL: nobody listens */
    int port;
    /* What is done with a command; peer_answer if NULL. */
    void (*heard)(struct peer_client *client, const struct peer_command *command);
    void (*accepted)(struct peer_client *client); /* or NULL */
    void *arg;
    struct peer_client *clients[PEER_CLIENTS_MAX];
    unsigned accepts, calls, loads, commands;
};

/* Listens on 127.0.0.1, at *port or where there is room (0), or at a path. */
void peer_listen(struct peer *peer, uv_loop_t *loop, int port, const char *path);
/* Closes the listener and cuts all clients.  The loop must run for the handles to go. */
void peer_stop(struct peer *peer);

struct peer *peer_of(struct peer_client *client);
bool peer_is(const struct peer_command *command, const char *word);

/* Honestly: AUTH and SELECT with OK, SCRIPT LOAD with the SHA-1 of the test's script, EVALSHA with
 * the number in ARGV[2], and 7. */
void peer_answer(struct peer_client *client, const struct peer_command *command);

/* Adds bytes to what the client is sent. */
void peer_say(struct peer_client *client, const char *text);

/* From now on: what is said first waits `delay_ms`, then leaves a byte each `drip_ms`, or at once
 * if 0. */
void peer_slow(struct peer_client *client, uint64_t delay_ms, uint64_t drip_ms);

void peer_deaf(struct peer_client *client);       /* reads no more */
void peer_cut(struct peer_client *client);        /* closes the socket */
void peer_half_close(struct peer_client *client); /* ends only what it sends */

#endif
