/* SPDX-License-Identifier: MIT */
/*
 * EVALSHA: the script's hash, one key, and the call's arguments.
 *
 * Path of a token: io/conn (a call) -> [weir__evalsha_send] -> io/uvredis.
 *
 * The script reads the store's clock, which is one for all processes.  A store that does not let
 * it (a user without the right, a proxy that has renamed TIME away) is told the time with each
 * call: this process's wall clock, which is the one clock that several machines can agree on.  It
 * is read at the sending, so it is never ahead of the run of the script by more than the clocks
 * differ.  What the difference costs is in docs/protocol.md, section 2.
 */
#include "io/evalsha.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define WORDS_MAX 7

/* Microseconds since 1970, in decimal. */
static void write_wall_clock(char out[21])
{
    uv_timeval64_t now;
    (void)uv_gettimeofday(&now); /* fails for a bad address only */
    snprintf(out, 21, "%" PRId64, now.tv_sec * 1000000 + now.tv_usec);
}

bool weir__evalsha_send(const struct weir__call *call, bool tells_no_time,
                        struct weir__uvredis *link, void *tag, uint64_t *end)
{
    char now[21]; /* of an int64_t */
    const char *argv[WORDS_MAX] = {"EVALSHA", call->script->sha1, "1",
                                   call->key, call->argv[0],      call->argv[1]};
    size_t len[WORDS_MAX] = {7, 40, 1, call->key_len, call->argv_len[0], call->argv_len[1]};
    int argc = 6;
    if (tells_no_time) {
        write_wall_clock(now);
        argv[argc] = now;
        len[argc++] = strlen(now);
    }
    return weir__uvredis_send(link, tag, argc, argv, len, end);
}
