/* SPDX-License-Identifier: MIT */
/*
 * hiredis on libuv.  A link is one socket: hiredis frames commands and parses replies, libuv says
 * when the socket is ready, and this file keeps the two from hurting the host.
 *
 * Path of a token: io/conn (an ask) -> weir__uvredis_send -> the socket -> on_poll -> on_reply ->
 * io/conn.
 *
 * Happy path:
 *   - open: hiredis connects without blocking; the poll handle waits until the socket is writable.
 *   - send: hiredis appends to its buffer; the idle handle writes it all at once, before the loop
 *     next sleeps. Only what the system does not take at once waits for the poll handle.
 *   - read: hiredis calls on_reply for each whole reply.
 *
 * What hiredis (0.14.1 to 1.2) does to a host that is not careful, and what is done here:
 *   - A refused connection.  libuv reports it as an error status and stops the handle; hiredis
 *     must still be called once, to find the error in the socket and to unwind.  on_poll does so.
 *   - Freeing a context inside its connect callback reads freed memory.  So that callback tells
 *     nobody: it leaves the mark `fresh`, and leave() says `connected` when hiredis is off the
 *     stack.  Inside a *reply* callback redisAsyncFree is sound: it only sets a mark of its own.
 *   - A reply that nobody asked for aborts the process by assertion.  Bytes are looked at before
 *     hiredis reads them while no command waits, and on_reply looks for bytes left over when it is
 *     the last one; either ends the link.  The reply before the surplus is not believed either:
 *     the stream may be shifted.
 *   - An array header makes it allocate for every element announced.  Its function for arrays is
 *     wrapped by create_array, which refuses what no script of ours sends.
 *   - Without memory it can drop the note that a command waits, and later replies would be matched
 *     wrongly. weir__uvredis_send looks at the end of its queue.
 *   - Its write raises SIGPIPE when the peer has gone.  The host's handlers are its own: the
 *     signal is blocked for this thread during the write, and one that the write raised is taken
 *     back before it is unblocked. (Doing the send here, with MSG_NOSIGNAL, would bypass hiredis'
 *     transports.)  One that was pending before is left pending.
 *   - A descriptor 0 is never closed by 0.14.1, and the host may print to 1 and 2: such a socket
 *     is moved up.
 *
 * Descriptors: the poll handle leaves the loop's table in on_cleanup, before hiredis closes the
 * socket, so that no number is ever watched twice.
 *
 * Memory: hiredis frees its context when it likes, and on_cleanup is where we hear of it.  The
 * link itself lives until both handles are closed, then says `closed`, and is freed.
 */
#include "io/uvredis.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <hiredis/async.h>
#include <hiredis/hiredis.h>

#include "base/check.h"
#include "base/mem.h"
#include "io/reply.h"

/* The one difference between the versions that reaches us. */
#if HIREDIS_MAJOR < 1
typedef int element_count;
#else
typedef size_t element_count;
#endif

struct weir__uvredis {
    redisAsyncContext *context; /* NULL once hiredis has let go of it */
    const struct weir__uvredis_events *events;
    void *arg;

    uv_poll_t poll;
    uv_idle_t flush;
    int open_handles;
    int interest; /* UV_READABLE | UV_WRITABLE, as the poll handle is set */

    bool connected;
    bool fresh;    /* connected, and not told yet */
    bool flushing; /* inside on_flush */
    bool doomed;   /* nothing more is told or sent; to be freed, if it is not yet */

    uint64_t queued;  /* bytes of all commands so far */
    uint64_t written; /* of those, what the system took; set on cleanup */
    uint64_t heard_ns;

    redisReplyObjectFunctions functions; /* hiredis', with create_array in the place of its own */
    void *(*create_array)(const redisReadTask *task, element_count count);

    char why[WEIR__REPLY_TEXT_MAX];
};

static void doom(struct weir__uvredis *link, const char *why)
{
    if (!link->doomed) {
        link->doomed = true;
        snprintf(link->why, sizeof(link->why), "%s", why);
    }
}

/* ---- What hiredis asks of an event loop ------------------------------------------------------ */

static void on_poll(uv_poll_t *poll, int status, int events);

static void watch(struct weir__uvredis *link, int interest)
{
    if (interest == link->interest) {
        return;
    }
    link->interest = interest;
    if (interest == 0) {
        uv_poll_stop(&link->poll);
    } else {
        uv_poll_start(&link->poll, interest, on_poll);
    }
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct weir__uvredis *link = handle->data;
    if (--link->open_handles == 0) {
        link->events->closed(link->arg, link->why, link->written);
        weir__mem_free(link);
    }
}

/* hiredis lets go of its context, and closes the socket right after.  hiredis 1.x calls this
 * twice. */
static void on_cleanup(void *data)
{
    struct weir__uvredis *link = data;
    if (link->context == NULL) {
        return;
    }
    const redisContext *c = &link->context->c;
    if (c->err != 0) {
        doom(link, c->errstr);
    }
    link->written = link->queued - (c->obuf != NULL ? sdslen(c->obuf) : 0);
    link->context = NULL;
    uv_close((uv_handle_t *)&link->poll, on_handle_closed);
    uv_close((uv_handle_t *)&link->flush, on_handle_closed);
}

static void on_add_read(void *data)
{
    struct weir__uvredis *link = data;
    watch(link, link->interest | UV_READABLE);
}

static void on_del_read(void *data)
{
    struct weir__uvredis *link = data;
    watch(link, link->interest & ~UV_READABLE);
}

static void on_del_write(void *data)
{
    struct weir__uvredis *link = data;
    watch(link, link->interest & ~UV_WRITABLE);
}

/* ---- Reading and writing --------------------------------------------------------------------- */

/* hiredis writes; see SIGPIPE above. */
static void handle_write(struct weir__uvredis *link)
{
    sigset_t pipe_only, pending, before;
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    sigemptyset(&pending);
    sigpending(&pending);
    bool was_pending = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_only, &before);

    redisAsyncHandleWrite(link->context);

    if (!was_pending) {
        const struct timespec at_once = {0, 0};
        while (sigtimedwait(&pipe_only, NULL, &at_once) == -1 && errno == EINTR) {
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void handle_read(struct weir__uvredis *link)
{
    redisAsyncContext *context = link->context;
    if (context->replies.head == NULL) {
        char byte;
        if (recv(context->c.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0) {
            doom(link, "a reply that nobody asked for");
            return;
        }
    }
    redisAsyncHandleRead(context);
    if (link->context == NULL) {
        return;
    }
    link->heard_ns = uv_hrtime();
    if (context->c.reader->len - context->c.reader->pos > WEIR__REPLY_BYTES_MAX) {
        doom(link, "a reply is too long");
    }
}

/* hiredis is off the stack: what had to wait for that is done now. */
static void leave(struct weir__uvredis *link)
{
    if (link->context == NULL) {
        return;
    }
    if (link->doomed) {
        redisAsyncFree(link->context);
    } else if (link->fresh) {
        link->fresh = false;
        link->events->connected(link->arg);
    }
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct weir__uvredis *link = poll->data;
    if (status < 0) {
        link->interest = 0; /* libuv has stopped the handle */
    }
    if (!link->connected) {
        /* Connecting ends here, well or badly.  Not by reading: a peer that speaks first would be
         * read at once, unguarded. */
        handle_write(link);
    } else {
        if (status < 0 || (events & UV_READABLE) != 0) {
            handle_read(link);
        }
        if (link->context != NULL && (events & UV_WRITABLE) != 0) {
            handle_write(link);
        }
    }
    if (link->context != NULL && status < 0) {
        doom(link, uv_strerror(status));
    }
    leave(link);
}

static void on_flush(uv_idle_t *flush)
{
    struct weir__uvredis *link = flush->data;
    uv_idle_stop(flush);
    link->flushing = true;
    handle_write(link);
    link->flushing = false;
    leave(link);
}

static void on_add_write(void *data)
{
    struct weir__uvredis *link = data;
    if ((link->interest & UV_WRITABLE) != 0) {
        return;
    }
    if (link->connected && !link->flushing) {
        uv_idle_start(&link->flush, on_flush);
    } else {
        watch(link, link->interest | UV_WRITABLE);
    }
}

/* ---- What hiredis tells ---------------------------------------------------------------------- */

static void on_connect(const redisAsyncContext *context, int status)
{
    struct weir__uvredis *link = context->data;
    if (status == REDIS_OK) {
        link->connected = true;
        link->fresh = true;
    }
}

static void on_reply(redisAsyncContext *context, void *reply, void *tag)
{
    struct weir__uvredis *link = context->data;
    if (reply == NULL) {
        return; /* the link ends; `closed` says so for all commands at once */
    }
    const redisReader *reader = context->c.reader;
    if (context->replies.head == NULL && reader->len > reader->pos) {
        doom(link, "a reply that nobody asked for");
    }
    if (!link->doomed) {
        link->events->replied(link->arg, tag, reply);
    }
    if (link->doomed) {
        /* The next reply in the buffer could be one too many: hiredis must not look at it. */
        redisAsyncFree(context);
    }
}

static void *create_array(const redisReadTask *task, element_count count)
{
    struct weir__uvredis *link = task->privdata;
    if (task->parent != NULL || (size_t)count > WEIR__REPLY_ELEMENTS_MAX) {
        doom(link, "a reply has too many elements");
        return NULL; /* hiredis takes it for want of memory, and ends the connection */
    }
    return link->create_array(task, count);
}

/* ---- Open, send, close ----------------------------------------------------------------------- */

/* Makes the descriptor one that the host's standard streams and children have no part in. */
static bool own_descriptor(redisContext *c)
{
    if (c->fd > STDERR_FILENO) {
        return fcntl(c->fd, F_SETFD, FD_CLOEXEC) == 0;
    }
    int moved = fcntl(c->fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    close(c->fd);
    c->fd = moved;
    return moved >= 0;
}

static void attach(struct weir__uvredis *link)
{
    redisAsyncContext *context = link->context;
    redisReader *reader = context->c.reader;
    link->functions = *reader->fn;
    link->create_array = link->functions.createArray;
    link->functions.createArray = create_array;
    reader->fn = &link->functions;
    reader->privdata = link;

    context->data = link;
    context->ev.data = link;
    context->ev.addRead = on_add_read;
    context->ev.delRead = on_del_read;
    context->ev.addWrite = on_add_write;
    context->ev.delWrite = on_del_write;
    context->ev.cleanup = on_cleanup;
    redisAsyncSetConnectCallback(context, on_connect);
}

struct weir__uvredis *weir__uvredis_open(uv_loop_t *loop, const char *host, uint16_t port,
                                         const char *path,
                                         const struct weir__uvredis_events *events, void *arg,
                                         char *why, size_t why_size)
{
    const char *reason = "out of memory";
    redisAsyncContext *context = NULL;
    struct weir__uvredis *link = weir__mem_zero(sizeof(*link));
    if (link == NULL) {
        goto fail;
    }
    context = host != NULL ? redisAsyncConnect(host, port) : redisAsyncConnectUnix(path);
    if (context == NULL) {
        goto fail;
    }
    if (context->err != 0) {
        reason = context->errstr;
        goto fail;
    }
    if (!own_descriptor(&context->c)) {
        reason = "no descriptor is left";
        goto fail;
    }
    int status = uv_poll_init(loop, &link->poll, context->c.fd);
    if (status != 0) {
        reason = uv_strerror(status);
        goto fail;
    }
    uv_idle_init(loop, &link->flush);
    link->poll.data = link;
    link->flush.data = link;
    link->open_handles = 2;
    link->events = events;
    link->arg = arg;
    link->context = context;
    attach(link);
    return link;

fail:
    snprintf(why, why_size, "%s", reason);
    if (context != NULL) {
        redisAsyncFree(context);
    }
    weir__mem_free(link);
    return NULL;
}

bool weir__uvredis_send(struct weir__uvredis *link, void *tag, int argc, const char *const *argv,
                        const size_t *argv_len, uint64_t *end)
{
    redisAsyncContext *context = link->context;
    if (link->doomed || context == NULL) {
        return false;
    }
    size_t before = sdslen(context->c.obuf);
    /* hiredis lacks the second const, and does not write. */
    int status = redisAsyncCommandArgv(context, on_reply, tag, argc, (const char **)(uintptr_t)argv,
                                       argv_len);
    link->queued += sdslen(context->c.obuf) - before;
    const redisCallback *last = context->replies.tail;
    if (status != REDIS_OK || context->c.err != 0 || last == NULL || last->privdata != tag) {
        /* Part of the command may be in the buffer, where it could be sent. */
        weir__uvredis_close(link, "out of memory");
        return false;
    }
    *end = link->queued;
    return true;
}

uint64_t weir__uvredis_heard_ns(const struct weir__uvredis *link) { return link->heard_ns; }

void weir__uvredis_close(struct weir__uvredis *link, const char *why)
{
    if (link->context == NULL) {
        return;
    }
    doom(link, why);
    redisAsyncFree(link->context);
}
