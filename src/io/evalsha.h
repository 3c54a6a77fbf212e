/* SPDX-License-Identifier: MIT */
#ifndef WEIR_IO_EVALSHA_H
#define WEIR_IO_EVALSHA_H

#include <stdbool.h>
#include <stdint.h>

#include "io/conn.h"
#include "io/uvredis.h"

/* A call as the command that the store runs. */

/* Sends it, with the time of this process as its last argument if the store `tells_no_time`; else
 * as weir__uvredis_send. */
bool weir__evalsha_send(const struct weir__call *call, bool tells_no_time,
                        struct weir__uvredis *link, void *tag, uint64_t *end);

#endif
