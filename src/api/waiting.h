/* SPDX-License-Identifier: MIT */
#ifndef WEIR_API_WAITING_H
#define WEIR_API_WAITING_H

#include "api/objects.h"

/* Callers who wait: weir_acquire and weir_acquire_wait.  For the driver: one is done. */
void weir__waiting_answered(void *arg, struct weir__waiter *waiter);

#endif
