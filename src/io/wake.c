/* SPDX-License-Identifier: MIT */
/*
 * The bell between callers and the loop.  A caller pushes its demand somewhere and rings; the
 * loop's callback silences the bell first and looks for demand after.
 *
 * Path of a token: a first touch or a surprise -> weir__wake_ring -> the loop's callback ->
 * io/driver.
 *
 * Why uv_async_send alone is not enough.  It begins with a plain read of its own flag and returns
 * if that is set; a processor may do this read before the caller's push is visible.  The loop,
 * meanwhile, clears the flag, looks, finds nothing, and sleeps: the push is there and nobody
 * comes.  So the bell is a word of our own, and every ring is a read-modify-write of it, with no
 * cheap read before.
 *
 *     bell     bit RUNG: the loop owes a look.  Bit CLOSED: nobody will look any more; never
 * cleared. inside   the number of threads between the first and the last line of weir__wake_ring.
 *
 * No push is lost.  All changes of `bell` form one order.  Take a ring and the next time in this
 * order that the loop clears RUNG.  That clear (acquire) follows our ring (release) through
 * nothing but read-modify-writes, so the look after it sees our push.  And that clear comes:
 *   - if the ring read RUNG clear, it calls uv_async_send.  It read the value that the loop's last
 *     clear wrote (acquire), and libuv clears its flag before it calls us: so the read inside
 *     uv_async_send cannot see the flag as it was before that, and the send counts.
 *   - if the ring read RUNG set, the thread that set it sends, has sent, and no clear lies
 *     between.
 *
 * Closing.  uv_async_send must not touch a handle that is being closed.  The closer sets CLOSED
 * and then reads `inside`; a ring adds to `inside` and then changes `bell`.  In the order of
 * `bell`
 *   - the ring came before CLOSED: the closer's change acquires what the ring released, its
 *     addition to `inside` with it; the closer sees it and waits until it is taken back (release,
 *     after the send);
 *   - the ring came after: it reads CLOSED and sends nothing.  What it still touches is `inside`,
 *     and the memory is there.
 * The wait does not spin: a thread inside a ring may have been put to sleep by the system for any
 * time, so the loop looks again each WEIR__WAKE_WAIT_MS.
 */
#include "io/wake.h"

#include "base/atomic.h"
#include "base/check.h"

#define WEIR__WAKE_RUNG 1u
#define WEIR__WAKE_CLOSED 2u

/* A ring takes microseconds unless its thread is descheduled; a millisecond is the timer's
 * resolution. */
#define WEIR__WAKE_WAIT_MS 1

static void on_async(uv_async_t *async)
{
    struct weir__wake *wake = async->data;
    /* Acquire pairs with the release in weir__wake_ring: the look that follows sees what was
     * pushed. */
    unsigned bell = weir__and_acq_rel(&wake->bell, ~WEIR__WAKE_RUNG);
    if ((bell & WEIR__WAKE_CLOSED) == 0) {
        wake->rung(wake->arg);
    }
}

int weir__wake_init(struct weir__wake *wake, uv_loop_t *loop, void (*rung)(void *arg), void *arg)
{
    *wake = (struct weir__wake){.rung = rung, .arg = arg, .open = 2};
    int status = uv_async_init(loop, &wake->async, on_async);
    if (status != 0) {
        return status;
    }
    status = uv_timer_init(loop, &wake->wait);
    WEIR__ASSERT(status == 0); /* it only fills in the structure */
    wake->async.data = wake;
    wake->wait.data = wake;
    return 0;
}

bool weir__wake_ring(struct weir__wake *wake)
{
    /* Published by the change of `bell` below, to the closer's. */
    weir__add_acq_rel(&wake->inside, 1);
    /* Release: publishes the caller's push, pairs with the clear in on_async.  Acquire: orders
     * uv_async_send after the clear that it read. */
    unsigned bell = weir__or_acq_rel(&wake->bell, WEIR__WAKE_RUNG);
    if (bell == 0) {
        int status = uv_async_send(&wake->async);
        WEIR__ASSERT(status == 0); /* it fails for a handle of another kind only */
        (void)status;
    }
    /* Release: the send is over; pairs with the acquire in close_if_empty. */
    weir__sub_acq_rel(&wake->inside, 1);
    return (bell & WEIR__WAKE_CLOSED) == 0;
}

static void on_closed(uv_handle_t *handle)
{
    struct weir__wake *wake = handle->data;
    if (--wake->open == 0) {
        wake->closed(wake->arg);
    }
}

static bool close_if_empty(struct weir__wake *wake)
{
    /* Pairs with the release at the end of weir__wake_ring. */
    if (weir__load_acquire(&wake->inside) != 0) {
        return false;
    }
    uv_close((uv_handle_t *)&wake->async, on_closed);
    uv_close((uv_handle_t *)&wake->wait, on_closed);
    return true;
}

static void on_wait(uv_timer_t *timer) { close_if_empty(timer->data); }

void weir__wake_close(struct weir__wake *wake, void (*closed)(void *arg))
{
    wake->closed = closed;
    /* Acquire pairs with the release in weir__wake_ring: rings that came before are seen in
     * `inside`. */
    unsigned bell = weir__or_acq_rel(&wake->bell, WEIR__WAKE_CLOSED);
    WEIR__ASSERT((bell & WEIR__WAKE_CLOSED) == 0);
    (void)bell;
    if (!close_if_empty(wake)) {
        int status = uv_timer_start(&wake->wait, on_wait, WEIR__WAKE_WAIT_MS, WEIR__WAKE_WAIT_MS);
        WEIR__ASSERT(status == 0); /* it fails for a closing handle only */
        (void)status;
    }
}
