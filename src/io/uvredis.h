/* SPDX-License-Identifier: MIT */
#ifndef WEIR_IO_UVREDIS_H
#define WEIR_IO_UVREDIS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

/*
 * hiredis on libuv: one socket, from connect to close, no retries, no deadlines.  The only file
 * that calls hiredis' asynchronous interface, and the only place where its versions differ.
 *
 * Thread: the loop's, for everything here.
 */

struct redisReply;
struct weir__uvredis;

/* A reply that needs more than this is none of ours, and ends the link before it takes memory. */
#define WEIR__REPLY_ELEMENTS_MAX 1024   /* of an array; arrays inside of arrays are refused */
#define WEIR__REPLY_BYTES_MAX (1 << 16) /* of one string, or of an unfinished line */

/* None comes from inside weir__uvredis_open, _send or _close. */
struct weir__uvredis_events {
    /* Once, when the socket is connected. */
    void (*connected)(void *arg);
    /* Once for each command sent, in the order of sending, until `closed`.  `reply` is borrowed. */
    void (*replied)(void *arg, void *tag, const struct redisReply *reply);
    /* Once, last; the link is freed when it returns.  Commands that have no reply by now get none.
     * `written` says how many bytes the system took from us: a command that ends after it was
     * never sent whole, so it surely did not run.  `why` is borrowed. */
    void (*closed)(void *arg, const char *why, uint64_t written);
};

/* Starts connecting to a numeric `host`, or to the socket at `path` when host is NULL.
 * Owns: strings are copied, *events is borrowed until `closed`.
 * Returns NULL, with the reason in why[why_size], when it fails at once. */
struct weir__uvredis *weir__uvredis_open(uv_loop_t *loop, const char *host, uint16_t port,
                                         const char *path,
                                         const struct weir__uvredis_events *events, void *arg,
                                         char *why, size_t why_size);

/* Adds a command; all of one loop turn leave in one write.  *end is the offset of its last byte,
 * to be held against `written`.  Returns false when the link is about to close: no reply will
 * come, nothing was sent. */
bool weir__uvredis_send(struct weir__uvredis *link, void *tag, int argc, const char *const *argv,
                        const size_t *argv_len, uint64_t *end);

/* When the last bytes came (uv_hrtime), 0 before the first. */
uint64_t weir__uvredis_heard_ns(const struct weir__uvredis *link);

/* Closes; may be called at any time, also twice.  No event but `closed` follows.  `why` is copied.
 * */
void weir__uvredis_close(struct weir__uvredis *link, const char *why);

#endif
