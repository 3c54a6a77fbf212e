/* SPDX-License-Identifier: MIT */
#ifndef WEIR_IO_LOGIN_H
#define WEIR_IO_LOGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/conn.h"
#include "io/reply.h"
#include "io/uvredis.h"

/* What is said on a new connection before the first call: who we are, which database, which
 * scripts. */

#define WEIR__SCRIPTS_MAX 16 /* one an algorithm; there are fewer */
#define WEIR__LOGIN_STEPS_MAX (2 + WEIR__SCRIPTS_MAX)

enum weir__login_kind { WEIR__LOGIN_AUTH = 1, WEIR__LOGIN_SELECT, WEIR__LOGIN_LOAD };

struct weir__login_step {
    enum weir__login_kind kind;
    const struct weir__script *script; /* of LOAD */
    bool open;                         /* sent and not answered */
};

/* The steps for an endpoint, in order.  Returns how many. */
size_t weir__login_plan(struct weir__login_step steps[WEIR__LOGIN_STEPS_MAX],
                        const struct weir__endpoint *endpoint,
                        const struct weir__script *const *scripts);

/* Sends a step; as weir__uvredis_send. */
bool weir__login_send(struct weir__login_step *step, const struct weir__endpoint *endpoint,
                      struct weir__uvredis *link, void *tag, uint64_t *end);

/* Reads the reply to a step.  Returns false with the reason in `why`, which never holds a
 * credential. */
bool weir__login_check(struct weir__login_step *step, const struct redisReply *reply,
                       char why[WEIR__REPLY_TEXT_MAX]);

#endif
