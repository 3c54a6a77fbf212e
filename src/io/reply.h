/* SPDX-License-Identifier: MIT */
#ifndef WEIR_IO_REPLY_H
#define WEIR_IO_REPLY_H

#include <stddef.h>

#include "io/conn.h"

/* What a reply of the store means. */

struct redisReply;

#define WEIR__REPLY_TEXT_MAX 160 /* a word and a sentence; what is longer is cut */

/* What the connection does after a reply to a script call. */
enum weir__reply_next {
    WEIR__REPLY_KEEP = 1,  /* nothing */
    WEIR__REPLY_RELOAD,    /* the script is not there: load it, and the call may be sent again */
    WEIR__REPLY_TELL_TIME, /* the script cannot read the clock: the call may be sent with ours */
    WEIR__REPLY_LEAVE,     /* a replica by now: leave, and resolve the name again */
    WEIR__REPLY_DISTRUST,  /* no reply to a script of ours: the stream may be shifted; leave */
};

/* Reads the reply to a script call into *outcome.  `text` is where outcome->error points when
 * there is one. */
enum weir__reply_next weir__reply_read(struct weir__outcome *outcome,
                                       char text[WEIR__REPLY_TEXT_MAX],
                                       const struct redisReply *reply);

/* Copies `len` bytes as a printable line: what is not ASCII text becomes '?', what is too long is
 * cut. */
void weir__reply_text(char out[WEIR__REPLY_TEXT_MAX], const char *bytes, size_t len);

#endif
