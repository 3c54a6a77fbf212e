/* SPDX-License-Identifier: MIT */
/*
 * An HTTP server with a limit for each client, on the libuv loop it already has.
 *
 *     http_server [--url URL] [--listen HOST:PORT] [--rate N] [--burst N]
 *
 * A client is who its X-Client header says it is (as a proxy in front would set it), else its
 * address. Each request asks weir_acquire_key: usually the answer is there at once, else it comes
 * on the loop, and nothing blocks meanwhile.  The answer is
 *
 *     200   within the limit
 *     429   over it, with Retry-After
 *     503   the store cannot say, and this limit is closed then
 *
 * and tells what is left in RateLimit and RateLimit-Policy (IETF httpapi draft).
 *
 * A connection has one request at a time.  From its end until its answer is written nothing more is
 * read, so what a client sends ahead waits in `input`, and the connection cannot go away while an
 * answer of weir is on its way to it.
 *
 * SIGINT or SIGTERM: stop listening, close idle connections, close the weir, which answers all who
 * wait and gives back what was leased and not spent; then the loop has nothing left, and the
 * program ends.
 */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <http_parser.h>
#include <uv.h>
#include <weir/weir.h>

#define BACKLOG 511
#define INPUT_MAX 16384
#define CLIENT_MAX 64
#define RESPONSE_MAX 512
#define PATIENCE_US 20000 /* a request may wait this long for its token */

struct server {
    uv_loop_t loop;
    uv_tcp_t listener;
    uv_signal_t interrupt, terminate;
    struct weir *weir;
    struct weir_limit *limit;
    uint64_t rate, burst;
    struct connection *connections;
    bool stopping;
};

struct connection {
    uv_tcp_t socket;
    uv_write_t write;
    struct server *server;
    struct connection *previous, *next;
    http_parser parser;
    char input[INPUT_MAX];
    size_t input_length;
    char address[CLIENT_MAX]; /* of the peer */
    char client[CLIENT_MAX];  /* whose request this is */
    size_t client_length;
    char name[16]; /* of the header at hand: as much as tells it apart */
    size_t name_length;
    bool in_value;
    bool keep_alive;
    bool busy; /* a request is being answered */
    char response[RESPONSE_MAX];
};

static void read_more(struct connection *connection);

/* ---- A connection ---------------------------------------------------------------------------- */

static void on_connection_closed(uv_handle_t *handle)
{
    struct connection *connection = handle->data;
    if (connection->previous != NULL) {
        connection->previous->next = connection->next;
    } else {
        connection->server->connections = connection->next;
    }
    if (connection->next != NULL) {
        connection->next->previous = connection->previous;
    }
    free(connection);
}

static void connection_close(struct connection *connection)
{
    uv_handle_t *handle = (uv_handle_t *)&connection->socket;
    if (!uv_is_closing(handle)) {
        uv_close(handle, on_connection_closed);
    }
}

/* ---- The answer ------------------------------------------------------------------------------ */

static const char *status_line(int verdict)
{
    switch (verdict) {
    case WEIR_ALLOWED: return "200 OK";
    case WEIR_DENIED: return "429 Too Many Requests";
    default: return "503 Service Unavailable";
    }
}

/* Seconds for a header: whole, and never too early. */
static long long seconds_up(int64_t us) { return (us + 999999) / 1000000; }

/* The headers that tell a client about its limit; what is not known is left out. */
static int limit_headers(char *out, size_t size, const struct server *server,
                         const struct weir_result *result)
{
    int length = snprintf(out, size, "RateLimit-Policy: \"client\";q=%llu;w=%llu\r\n",
                          (unsigned long long)server->burst,
                          (unsigned long long)((server->burst + server->rate - 1) / server->rate));
    if (result->remaining_tokens >= 0) {
        length += snprintf(out + length, size - (size_t)length, "RateLimit: \"client\";r=%lld",
                           (long long)result->remaining_tokens);
        if (result->reset_after_us >= 0) {
            length += snprintf(out + length, size - (size_t)length, ";t=%lld",
                               seconds_up(result->reset_after_us));
        }
        length += snprintf(out + length, size - (size_t)length, "\r\n");
    }
    if (result->verdict != WEIR_ALLOWED && result->retry_after_us >= 0) {
        length += snprintf(out + length, size - (size_t)length, "Retry-After: %lld\r\n",
                           seconds_up(result->retry_after_us));
    }
    return length;
}

static void on_written(uv_write_t *write, int status)
{
    struct connection *connection = write->data;
    connection->busy = false;
    if (status != 0 || !connection->keep_alive || connection->server->stopping) {
        connection_close(connection);
        return;
    }
    http_parser_pause(&connection->parser, 0);
    read_more(connection);
}

static void respond(struct connection *connection, const struct weir_result *result)
{
    const struct server *server = connection->server;
    bool keep_alive = connection->keep_alive && !server->stopping;
    char headers[RESPONSE_MAX / 2];
    char body[96];
    limit_headers(headers, sizeof headers, server, result);
    int body_length = snprintf(body, sizeof body, "%s\n", weir_reason_text((int)result->reason));
    int length = snprintf(connection->response, sizeof connection->response,
                          "HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n"
                          "Connection: %s\r\n%s\r\n%s",
                          status_line((int)result->verdict), body_length,
                          keep_alive ? "keep-alive" : "close", headers,
                          connection->parser.method == HTTP_HEAD ? "" : body);
    uv_buf_t buffer = uv_buf_init(connection->response, (unsigned)length);
    connection->keep_alive = keep_alive;
    connection->write.data = connection;
    int status = uv_write(&connection->write, (uv_stream_t *)&connection->socket, &buffer, 1,
                          on_written);
    if (status != 0) {
        connection_close(connection);
    }
}

/* ---- The limit ------------------------------------------------------------------------------- */

static void on_decided(void *arg, const struct weir_result *result) { respond(arg, result); }

static void decide(struct connection *connection)
{
    struct weir_result result;
    int verdict = weir_acquire_key(connection->server->limit, connection->client,
                                   strlen(connection->client), 1, PATIENCE_US, on_decided,
                                   connection, &result);
    if (verdict == WEIR_PENDING) {
        return; /* on_decided will be called, once, later */
    }
    if (verdict < 0) { /* no memory, or too many clients at once: no fault of this one */
        result = (struct weir_result){.verdict = WEIR_UNAVAILABLE,
                                      .reason = WEIR_BUSY,
                                      .remaining_tokens = WEIR_UNKNOWN,
                                      .retry_after_us = WEIR_UNKNOWN,
                                      .reset_after_us = WEIR_UNKNOWN};
    }
    respond(connection, &result);
}

/* ---- The request ----------------------------------------------------------------------------- */

/* Appends a piece of text, as far as it goes. */
static void append(char *text, size_t size, size_t *length, const char *at, size_t more)
{
    size_t room = size - *length;
    size_t taken = more < room ? more : room;
    memcpy(text + *length, at, taken);
    *length += taken;
}

static int on_message_begin(http_parser *parser)
{
    struct connection *connection = parser->data;
    connection->client_length = 0;
    connection->name_length = 0;
    connection->in_value = false;
    return 0;
}

/* Names and values come in pieces, as the network cuts them. */
static int on_header_field(http_parser *parser, const char *at, size_t length)
{
    struct connection *connection = parser->data;
    if (connection->in_value) {
        connection->in_value = false;
        connection->name_length = 0;
    }
    append(connection->name, sizeof connection->name, &connection->name_length, at, length);
    return 0;
}

static int on_header_value(http_parser *parser, const char *at, size_t length)
{
    struct connection *connection = parser->data;
    static const char wanted[] = "X-Client";
    if (connection->name_length != sizeof wanted - 1 ||
        strncasecmp(connection->name, wanted, sizeof wanted - 1) != 0) {
        connection->in_value = true;
        return 0;
    }
    if (!connection->in_value) {
        connection->in_value = true;
        connection->client_length = 0; /* of two such headers the last counts */
    }
    append(connection->client, sizeof connection->client - 1, &connection->client_length, at,
           length);
    return 0;
}

static int on_message_complete(http_parser *parser)
{
    struct connection *connection = parser->data;
    connection->client[connection->client_length] = '\0';
    if (connection->client_length == 0) {
        memcpy(connection->client, connection->address, sizeof connection->client);
    }
    connection->keep_alive = http_should_keep_alive(parser) != 0;
    connection->busy = true;
    http_parser_pause(parser, 1); /* one request at a time */
    return 0;
}

static const http_parser_settings parser_settings = {
    .on_message_begin = on_message_begin,
    .on_header_field = on_header_field,
    .on_header_value = on_header_value,
    .on_message_complete = on_message_complete,
};

/* Hands what was read to the parser.  Returns false when it is no HTTP. */
static bool parse_input(struct connection *connection)
{
    size_t used = http_parser_execute(&connection->parser, &parser_settings, connection->input,
                                      connection->input_length);
    connection->input_length -= used;
    memmove(connection->input, connection->input + used, connection->input_length);
    enum http_errno error = HTTP_PARSER_ERRNO(&connection->parser);
    return (error == HPE_OK || error == HPE_PAUSED) && !connection->parser.upgrade;
}

static void on_buffer(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    struct connection *connection = handle->data;
    (void)suggested;
    *buffer = uv_buf_init(connection->input + connection->input_length,
                          (unsigned)(sizeof connection->input - connection->input_length));
}

static void on_read(uv_stream_t *stream, ssize_t length, const uv_buf_t *buffer)
{
    struct connection *connection = stream->data;
    (void)buffer;
    if (length < 0) { /* the end, or an error: the same to us */
        connection_close(connection);
        return;
    }
    connection->input_length += (size_t)length;
    uv_read_stop(stream);
    read_more(connection);
}

/* The next request: from what is here already, else from the peer. */
static void read_more(struct connection *connection)
{
    if (connection->input_length > 0 && !parse_input(connection)) {
        connection_close(connection);
    } else if (connection->busy) {
        decide(connection);
    } else if (uv_read_start((uv_stream_t *)&connection->socket, on_buffer, on_read) != 0) {
        connection_close(connection);
    }
}

/* ---- The server ------------------------------------------------------------------------------ */

static void note_address(struct connection *connection)
{
    struct sockaddr_storage peer;
    int length = sizeof peer;
    if (uv_tcp_getpeername(&connection->socket, (struct sockaddr *)&peer, &length) == 0) {
        if (peer.ss_family == AF_INET6) {
            uv_ip6_name((struct sockaddr_in6 *)&peer, connection->address, CLIENT_MAX);
        } else {
            uv_ip4_name((struct sockaddr_in *)&peer, connection->address, CLIENT_MAX);
        }
    }
}

static void on_connection(uv_stream_t *listener, int status)
{
    struct server *server = listener->data;
    struct connection *connection = status == 0 ? calloc(1, sizeof *connection) : NULL;
    if (connection == NULL) {
        return; /* this one is lost, the next may do better */
    }
    connection->server = server;
    connection->socket.data = connection;
    connection->parser.data = connection;
    connection->next = server->connections;
    if (connection->next != NULL) {
        connection->next->previous = connection;
    }
    server->connections = connection;
    http_parser_init(&connection->parser, HTTP_REQUEST);
    uv_tcp_init(&server->loop, &connection->socket);
    if (uv_accept(listener, (uv_stream_t *)&connection->socket) != 0) {
        connection_close(connection);
        return;
    }
    note_address(connection);
    read_more(connection);
}

static void server_stop(struct server *server)
{
    if (server->stopping) {
        return;
    }
    server->stopping = true;
    uv_close((uv_handle_t *)&server->interrupt, NULL);
    uv_close((uv_handle_t *)&server->terminate, NULL);
    uv_close((uv_handle_t *)&server->listener, NULL);
    for (struct connection *c = server->connections; c != NULL; c = c->next) {
        if (!c->busy) { /* those that are close after their answer */
            connection_close(c);
        }
    }
    weir_close(server->weir, NULL, NULL);
}

static void on_signal(uv_signal_t *handle, int number)
{
    (void)number;
    server_stop(handle->data);
}

/* Returns 0 or an error of libuv. */
static int server_listen(struct server *server, const char *host, int port)
{
    struct sockaddr_in address;
    int length = sizeof address;
    server->listener.data = server;
    server->interrupt.data = server;
    server->terminate.data = server;
    uv_tcp_init(&server->loop, &server->listener);
    uv_signal_init(&server->loop, &server->interrupt);
    uv_signal_init(&server->loop, &server->terminate);
    uv_signal_start(&server->interrupt, on_signal, SIGINT);
    uv_signal_start(&server->terminate, on_signal, SIGTERM);
    int status = uv_ip4_addr(host, port, &address);
    if (status == 0) {
        status = uv_tcp_bind(&server->listener, (const struct sockaddr *)&address, 0);
    }
    if (status == 0) {
        status = uv_listen((uv_stream_t *)&server->listener, BACKLOG, on_connection);
    }
    if (status == 0) {
        status = uv_tcp_getsockname(&server->listener, (struct sockaddr *)&address, &length);
    }
    if (status == 0) {
        printf("listening on %s:%d\n", host, ntohs(address.sin_port));
        fflush(stdout);
    }
    return status;
}

/* Opens the weir on our loop. */
static int server_limit(struct server *server, const char *url, struct weir_error *error)
{
    struct weir_options options;
    weir_options_init(&options, sizeof options);
    options.url = url;
    options.loop = &server->loop;
    int code = weir_open(&server->weir, &options, error);
    if (code != WEIR_OK) {
        return code;
    }
    struct weir_limit_options rule;
    weir_limit_options_init(&rule, sizeof rule);
    rule.name = "client";
    rule.rate_tokens = server->rate;
    rule.rate_period_us = 1000 * 1000;
    rule.capacity_tokens = server->burst;
    rule.outage = WEIR_OUTAGE_CLOSED;
    code = weir_limit_define(server->weir, &server->limit, &rule, error);
    if (code != WEIR_OK) {
        weir_close(server->weir, NULL, NULL);
    }
    return code;
}

/* ---- The program ----------------------------------------------------------------------------- */

struct arguments {
    const char *url;
    char host[64];
    int port;
    uint64_t rate, burst;
};

static bool read_arguments(struct arguments *arguments, int argc, char **argv)
{
    *arguments = (struct arguments){.host = "127.0.0.1", .port = 8080, .rate = 1, .burst = 10};
    for (int i = 1; i < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        bool good = value != NULL;
        if (good && strcmp(name, "--url") == 0) {
            arguments->url = value;
        } else if (good && strcmp(name, "--listen") == 0) {
            good = sscanf(value, "%63[^:]:%d", arguments->host, &arguments->port) == 2;
        } else if (good && strcmp(name, "--rate") == 0) {
            arguments->rate = strtoull(value, NULL, 10);
        } else if (good && strcmp(name, "--burst") == 0) {
            arguments->burst = strtoull(value, NULL, 10);
        } else {
            good = false;
        }
        if (!good) {
            return false;
        }
    }
    return arguments->rate > 0 && arguments->burst > 0;
}

int main(int argc, char **argv)
{
    struct arguments arguments;
    if (!read_arguments(&arguments, argc, argv)) {
        fprintf(stderr,
                "usage: http_server [--url URL] [--listen HOST:PORT] [--rate N] [--burst N]\n");
        return 2;
    }
    static struct server server;
    struct weir_error error;
    signal(SIGPIPE, SIG_IGN); /* a client that goes away must not end us */
    server.rate = arguments.rate;
    server.burst = arguments.burst;
    uv_loop_init(&server.loop);
    bool failed = server_limit(&server, arguments.url, &error) != WEIR_OK;
    if (failed) {
        fprintf(stderr, "http_server: %s\n", error.text);
    } else {
        int status = server_listen(&server, arguments.host, arguments.port);
        failed = status != 0;
        if (failed) {
            fprintf(stderr, "http_server: %s:%d: %s\n", arguments.host, arguments.port,
                    uv_strerror(status));
            server_stop(&server);
        }
    }
    uv_run(&server.loop, UV_RUN_DEFAULT);
    /* Nothing may be left on the loop: neither ours nor weir's. */
    return uv_loop_close(&server.loop) == 0 && !failed ? 0 : 1;
}
