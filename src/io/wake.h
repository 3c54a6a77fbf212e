/* SPDX-License-Identifier: MIT */
#ifndef WEIR_IO_WAKE_H
#define WEIR_IO_WAKE_H

#include <stdbool.h>
#include <uv.h>

/*
 * The bell: how any thread tells the loop that there is work.  Rings between two answers of the
 * loop melt into one.  Whatever a thread wrote before a ring is seen by the callback that answers
 * it.
 *
 * The memory outlives every ring, also after the bell is closed: whoever may still ring holds a
 * reference to what the bell lives in.
 */
struct weir__wake {
    uv_async_t async;
    uv_timer_t wait; /* only while the bell closes */
    unsigned bell;   /* WEIR__WAKE_... bits; any thread */
    unsigned inside; /* threads inside weir__wake_ring; any thread */
    unsigned open;   /* handles that are not closed yet; the loop's */
    void (*rung)(void *arg);
    void (*closed)(void *arg);
    void *arg;
};

/* Readies the bell.  `rung(arg)` comes on the loop's thread, once or more after each ring.
 * Thread: the loop's.  Owns: the memory is the caller's, until `closed`.
 * Returns 0; or an error of libuv (no descriptor is left), and then there is nothing to close. */
int weir__wake_init(struct weir__wake *wake, uv_loop_t *loop, void (*rung)(void *arg), void *arg);

/* Rings.  Thread: any.  Returns false when the bell is closing or closed: nobody will come.
 * Cost: three atomic operations; a system call where the bell was silent. */
bool weir__wake_ring(struct weir__wake *wake);

/* Closes: later rings return false; once no thread is inside a ring the handles are closed, and
 * closed(arg), with the arg of init, comes on a later turn.  `rung` does not come any more.
 * Thread: the loop's; once. */
void weir__wake_close(struct weir__wake *wake, void (*closed)(void *arg));

#endif
