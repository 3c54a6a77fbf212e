/* SPDX-License-Identifier: MIT */
/*
 * The scripted store of the tests.  It lives on the test's loop, so that a test is one thread and
 * its order of events is the loop's.  What is said goes through one buffer for each client, so
 * that slow bytes and the replies behind them stay in order.
 */
#include "io/peer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "io/rig.h"

#define IN_MAX (1 << 17) /* a command with the longest key, and then some */
#define OUT_MAX (1 << 16)

struct peer_client {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } socket;
    uv_timer_t timer;
    uv_shutdown_t shutdown;
    struct peer *peer;
    int open_handles;
    bool cut;
    uint64_t delay_ms, drip_ms;
    size_t in_len, out_len;
    char in[IN_MAX];
    char out[OUT_MAX];
};

struct peer *peer_of(struct peer_client *client) { return client->peer; }

bool peer_is(const struct peer_command *command, const char *word)
{
    return command->len[0] == strlen(word) && memcmp(command->argv[0], word, strlen(word)) == 0;
}

/* ---- Saying ---------------------------------------------------------------------------------- */

static void send_bytes(struct peer_client *client, size_t len)
{
    uv_buf_t bytes = uv_buf_init(client->out, (unsigned)len);
    int sent = uv_try_write(&client->socket.stream, &bytes, 1);
    if (sent < 0) {
        client->out_len = 0; /* the other side has gone */
        return;
    }
    client->out_len -= (size_t)sent;
    memmove(client->out, client->out + sent, client->out_len);
}

static void on_timer(uv_timer_t *timer)
{
    struct peer_client *client = timer->data;
    send_bytes(client, client->drip_ms > 0 ? 1 : client->out_len);
    if (client->out_len > 0) {
        uv_timer_start(timer, on_timer, client->drip_ms, 0);
    }
}

void peer_say(struct peer_client *client, const char *text)
{
    size_t len = strlen(text);
    if (client->cut) {
        return;
    }
    assert_true(client->out_len + len <= OUT_MAX);
    memcpy(client->out + client->out_len, text, len);
    client->out_len += len;
    if (uv_is_active((uv_handle_t *)&client->timer)) {
        return;
    }
    if (client->delay_ms + client->drip_ms > 0) {
        uv_update_time(client->peer->loop);
        uv_timer_start(&client->timer, on_timer, client->delay_ms + client->drip_ms, 0);
    } else {
        send_bytes(client, client->out_len);
    }
}

void peer_slow(struct peer_client *client, uint64_t delay_ms, uint64_t drip_ms)
{
    client->delay_ms = delay_ms;
    client->drip_ms = drip_ms;
}

void peer_deaf(struct peer_client *client) { uv_read_stop(&client->socket.stream); }

static void on_closed(uv_handle_t *handle)
{
    struct peer_client *client = handle->data;
    if (--client->open_handles == 0) {
        free(client);
    }
}

void peer_cut(struct peer_client *client)
{
    if (client->cut) {
        return;
    }
    client->cut = true;
    for (size_t i = 0; i < PEER_CLIENTS_MAX; i++) {
        if (client->peer->clients[i] == client) {
            client->peer->clients[i] = NULL;
        }
    }
    uv_close(&client->socket.handle, on_closed);
    uv_close((uv_handle_t *)&client->timer, on_closed);
}

static void on_shutdown(uv_shutdown_t *request, int status)
{
    (void)request;
    (void)status;
}

void peer_half_close(struct peer_client *client)
{
    uv_shutdown(&client->shutdown, &client->socket.stream, on_shutdown);
}

void peer_answer(struct peer_client *client, const struct peer_command *command)
{
    char text[64];
    if (peer_is(command, "EVALSHA")) {
        snprintf(text, sizeof(text), "*2\r\n:%.*s\r\n:7\r\n", (int)command->len[5],
                 command->argv[5]);
        peer_say(client, text);
    } else if (peer_is(command, "SCRIPT")) {
        snprintf(text, sizeof(text), "$40\r\n%s\r\n", rig_script.sha1);
        peer_say(client, text);
    } else {
        peer_say(client, "+OK\r\n");
    }
}

/* ---- Hearing --------------------------------------------------------------------------------- */

/* Reads "*3\r\n" or "$3\r\n" at *at.  Returns false when the line is not whole yet. */
static bool read_header(const struct peer_client *client, size_t *at, char kind, size_t *number)
{
    const char *line = client->in + *at;
    const char *end = memchr(line, '\n', client->in_len - *at);
    if (end == NULL) {
        return false;
    }
    assert_true(line[0] == kind);
    *number = strtoul(line + 1, NULL, 10);
    *at += (size_t)(end - line) + 1;
    return true;
}

/* Returns how many bytes the first command takes, 0 when it is not whole yet. */
static size_t read_command(const struct peer_client *client, struct peer_command *command)
{
    size_t at = 0, argc = 0;
    if (client->in_len == 0 || !read_header(client, &at, '*', &argc)) {
        return 0;
    }
    assert_true(argc <= PEER_WORDS_MAX);
    command->argc = (int)argc;
    for (size_t i = 0; i < argc; i++) {
        if (at >= client->in_len || !read_header(client, &at, '$', &command->len[i]) ||
            client->in_len - at < command->len[i] + 2) {
            return 0;
        }
        command->argv[i] = client->in + at;
        at += command->len[i] + 2;
    }
    return at;
}

static void on_read(uv_stream_t *stream, ssize_t len, const uv_buf_t *buffer)
{
    struct peer_client *client = stream->data;
    struct peer *peer = client->peer;
    (void)buffer; /* it is the end of client->in */
    if (len < 0) {
        peer_cut(client);
        return;
    }
    client->in_len += (size_t)len;
    struct peer_command command;
    size_t used;
    while (!client->cut && (used = read_command(client, &command)) > 0) {
        peer->commands++;
        peer->calls += peer_is(&command, "EVALSHA");
        peer->loads += peer_is(&command, "SCRIPT");
        (peer->heard != NULL ? peer->heard : peer_answer)(client, &command);
        client->in_len -= used;
        memmove(client->in, client->in + used, client->in_len);
    }
}

static void on_room(uv_handle_t *handle, size_t size, uv_buf_t *buffer)
{
    struct peer_client *client = handle->data;
    (void)size;
    *buffer = uv_buf_init(client->in + client->in_len, (unsigned)(IN_MAX - client->in_len));
}

/* ---- Listening ------------------------------------------------------------------------------- */

static void on_connection(uv_stream_t *listener, int status)
{
    struct peer *peer = listener->data;
    struct peer_client *client = calloc(1, sizeof(*client));
    assert_true(status == 0 && client != NULL);
    client->peer = peer;
    client->open_handles = 2;
    if (listener->type == UV_TCP) {
        uv_tcp_init(peer->loop, &client->socket.tcp);
    } else {
        uv_pipe_init(peer->loop, &client->socket.pipe, 0);
    }
    uv_timer_init(peer->loop, &client->timer);
    client->socket.handle.data = client;
    client->timer.data = client;
    status = uv_accept(listener, &client->socket.stream);
    assert_true(status == 0);
    peer->accepts++;
    size_t slot = 0;
    while (peer->clients[slot] != NULL) {
        slot++;
        assert_true(slot < PEER_CLIENTS_MAX);
    }
    peer->clients[slot] = client;
    uv_read_start(&client->socket.stream, on_room, on_read);
    if (peer->accepted != NULL) {
        peer->accepted(client);
    }
}

void peer_listen(struct peer *peer, uv_loop_t *loop, int port, const char *path)
{
    int status;
    peer->loop = loop;
    if (path != NULL) {
        uv_pipe_t *listener = malloc(sizeof(*listener));
        uv_pipe_init(loop, listener, 0);
        status = uv_pipe_bind(listener, path);
        peer->listener = (uv_stream_t *)listener;
    } else {
        uv_tcp_t *listener = malloc(sizeof(*listener));
        struct sockaddr_in address;
        int len = sizeof(address);
        uv_tcp_init(loop, listener);
        uv_ip4_addr("127.0.0.1", port, &address);
        status = uv_tcp_bind(listener, (const struct sockaddr *)&address, 0);
        assert_true(status == 0);
        uv_tcp_getsockname(listener, (struct sockaddr *)&address, &len);
        peer->port = ntohs(address.sin_port);
        peer->listener = (uv_stream_t *)listener;
    }
    assert_true(status == 0);
    peer->listener->data = peer;
    status = uv_listen(peer->listener, 128, on_connection);
    assert_true(status == 0);
}

static void on_listener_closed(uv_handle_t *handle) { free(handle); }

void peer_stop(struct peer *peer)
{
    for (size_t i = 0; i < PEER_CLIENTS_MAX; i++) {
        if (peer->clients[i] != NULL) {
            peer_cut(peer->clients[i]);
        }
    }
    if (peer->listener != NULL) {
        uv_close((uv_handle_t *)peer->listener, on_listener_closed);
        peer->listener = NULL;
    }
}
