/* SPDX-License-Identifier: MIT */
/*
 * One thread and one poll, over pairs of sockets:
 *
 *     client  --- requests, in order, late --->  server
 *     client  <-- replies, in order, late, and with a fate each ---  server
 *
 * What is read waits in a queue of pieces until it is due; a queue that is full is not read into.
 * A piece is due no earlier than the one before it, as on a stream.  A piece is written whole or
 * the pair ends: they are small against what a socket takes.
 */
#include "crash/proxy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/num.h"
#include "bench/clock.h"

#define PAIRS_MAX 32
#define PIECES_MAX 64
#define PIECE_BYTES 2048
#define IDLE_MS 1000

struct piece {
    int64_t due_ns;
    size_t bytes;
    char data[PIECE_BYTES];
};

struct pipe {
    struct piece pieces[PIECES_MAX];
    unsigned first, count;
    int64_t last_due_ns;
};

enum end { CLIENT, SERVER };

struct pair {
    bool open;
    bool swallowing; /* replies are read and thrown away */
    int fds[2];
    struct pipe from[2]; /* what each end has said */
};

struct relay {
    int listener;
    struct sockaddr_un server;
    struct proxy_faults faults;
    struct proxy_counts *counts;
    struct pair pairs[PAIRS_MAX];
};

static void count(uint32_t *counter) { __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED); }

static void end_pair(struct pair *pair)
{
    close(pair->fds[CLIENT]);
    close(pair->fds[SERVER]);
    pair->open = false;
}

static void accept_one(struct relay *relay)
{
    int client = accept(relay->listener, NULL, NULL);
    int server = socket(AF_UNIX, SOCK_STREAM, 0);
    for (unsigned i = 0; i < PAIRS_MAX && client >= 0 && server >= 0; i++) {
        struct pair *pair = &relay->pairs[i];
        if (!pair->open &&
            connect(server, (struct sockaddr *)&relay->server, sizeof relay->server) == 0) {
            memset(pair, 0, sizeof *pair);
            pair->open = true;
            pair->fds[CLIENT] = client;
            pair->fds[SERVER] = server;
            count(&relay->counts->connections);
            return;
        }
    }
    close(client);
    close(server);
}

/* Reads one piece of what an end says.  Returns false when the pair is over. */
static bool read_piece(struct relay *relay, struct pair *pair, enum end end)
{
    struct pipe *pipe = &pair->from[end];
    struct piece *piece = &pipe->pieces[(pipe->first + pipe->count) % PIECES_MAX];
    ssize_t bytes = recv(pair->fds[end], piece->data, sizeof piece->data, 0);
    if (bytes <= 0) {
        return false;
    }
    uint64_t delay_us = weir__random(&relay->faults.seed) % (relay->faults.delay_most_us + 1);
    int64_t due_ns = clock_now_ns() + (int64_t)delay_us * 1000;
    piece->bytes = (size_t)bytes;
    piece->due_ns = weir__max(due_ns, pipe->last_due_ns);
    pipe->last_due_ns = piece->due_ns;
    pipe->count++;
    return true;
}

static bool write_all(int fd, const char *data, size_t bytes)
{
    return send(fd, data, bytes, MSG_NOSIGNAL) == (ssize_t)bytes;
}

/* A reply on its last hop.  Returns false when the pair is over. */
static bool deliver_reply(struct relay *relay, struct pair *pair, const struct piece *piece)
{
    const struct proxy_faults *faults = &relay->faults;
    int client = pair->fds[CLIENT];
    unsigned dice = (unsigned)(weir__random(&relay->faults.seed) % 1000);
    if (pair->swallowing) {
        return true;
    }
    if (dice < faults->cut) {
        (void)write_all(client, piece->data, piece->bytes / 2);
        count(&relay->counts->cuts);
        return false;
    }
    dice -= faults->cut;
    if (dice < faults->reset) {
        const struct linger now = {.l_onoff = 1, .l_linger = 0};
        setsockopt(client, SOL_SOCKET, SO_LINGER, &now, sizeof now);
        count(&relay->counts->resets);
        return false;
    }
    dice -= faults->reset;
    if (dice < faults->swallow) {
        pair->swallowing = true;
        count(&relay->counts->swallows);
        return true;
    }
    dice -= faults->swallow;
    bool written = write_all(client, piece->data, piece->bytes);
    if (written && dice < faults->half_close) {
        shutdown(client, SHUT_WR);
        pair->swallowing = true;
        count(&relay->counts->half_closes);
    }
    return written;
}

/* Passes on what is due.  Returns false when the pair is over. */
static bool deliver_due(struct relay *relay, struct pair *pair, enum end end, int64_t now_ns)
{
    struct pipe *pipe = &pair->from[end];
    for (; pipe->count > 0; pipe->first = (pipe->first + 1) % PIECES_MAX, pipe->count--) {
        const struct piece *piece = &pipe->pieces[pipe->first];
        if (piece->due_ns > now_ns) {
            break;
        }
        bool well = end == SERVER ? deliver_reply(relay, pair, piece)
                                  : write_all(pair->fds[SERVER], piece->data, piece->bytes);
        if (!well) {
            return false;
        }
    }
    return true;
}

/* Fills `polls`; returns how long to sleep.  An end that is not read has fd -1. */
static int prepare(const struct relay *relay, struct pollfd polls[1 + 2 * PAIRS_MAX])
{
    int64_t wake_ns = clock_now_ns() + IDLE_MS * NS_PER_MS;
    polls[0] = (struct pollfd){.fd = relay->listener, .events = POLLIN};
    for (unsigned i = 0; i < 2 * PAIRS_MAX; i++) {
        const struct pair *pair = &relay->pairs[i / 2];
        const struct pipe *pipe = &pair->from[i % 2];
        bool reads = pair->open && pipe->count < PIECES_MAX;
        polls[1 + i] = (struct pollfd){.fd = reads ? pair->fds[i % 2] : -1, .events = POLLIN};
        if (pair->open && pipe->count > 0) {
            wake_ns = weir__min(wake_ns, pipe->pieces[pipe->first].due_ns);
        }
    }
    int64_t in_ns = weir__max(wake_ns - clock_now_ns(), 0);
    return (int)((in_ns + NS_PER_MS - 1) / NS_PER_MS);
}

static _Noreturn void be_relay(struct relay *relay)
{
    struct pollfd polls[1 + 2 * PAIRS_MAX];
    for (;;) {
        int sleep_ms = prepare(relay, polls);
        if (poll(polls, 1 + 2 * PAIRS_MAX, sleep_ms) < 0 && errno != EINTR) {
            _exit(1);
        }
        int64_t now_ns = clock_now_ns();
        for (unsigned i = 0; i < 2 * PAIRS_MAX; i++) {
            struct pair *pair = &relay->pairs[i / 2];
            enum end end = i % 2 == 0 ? CLIENT : SERVER;
            bool well = !pair->open ||
                        ((polls[1 + i].revents == 0 || read_piece(relay, pair, end)) &&
                         deliver_due(relay, pair, end, now_ns));
            if (!well) {
                end_pair(pair);
                i |= 1; /* what was polled of its other end is void */
            }
        }
        if (polls[0].revents != 0) {
            accept_one(relay);
        }
    }
}

void proxy_start(struct proxy *proxy, const char *server_socket, const struct proxy_faults *faults)
{
    static struct relay relay; /* of the process; too large for a stack */
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    memset(&relay, 0, sizeof relay);
    relay.faults = *faults;
    relay.server.sun_family = AF_UNIX;
    snprintf(relay.server.sun_path, sizeof relay.server.sun_path, "%s", server_socket);
    relay.listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(relay.listener >= 0);
    assert_int_equal(bind(relay.listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(relay.listener, PAIRS_MAX), 0);
    assert_int_equal(getsockname(relay.listener, (struct sockaddr *)&address, &size), 0);
    snprintf(proxy->url, sizeof proxy->url, "redis://127.0.0.1:%u", ntohs(address.sin_port));
    proxy->counts = mmap(NULL, sizeof *proxy->counts, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(proxy->counts != MAP_FAILED);
    relay.counts = proxy->counts;
    fflush(NULL); /* or the child would write it again */
    proxy->pid = fork();
    assert_true(proxy->pid >= 0);
    if (proxy->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        be_relay(&relay);
    }
    close(relay.listener);
}

void proxy_stop(struct proxy *proxy)
{
    if (proxy->pid > 0) {
        kill(proxy->pid, SIGKILL);
        waitpid(proxy->pid, NULL, 0);
        proxy->pid = 0;
        munmap(proxy->counts, sizeof *proxy->counts);
    }
}
