/* SPDX-License-Identifier: MIT */
/*
 * Starts, hurts and ends a redis-server.
 *
 * It is a child on a socket in a folder of its own, and dies with this program however that ends.
 * It writes its log into its folder, which is removed with everything in it.  Each question has a
 * connection of its own, so that none survives a server.
 */
#include "crash/server.h"

#include <ftw.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <hiredis/hiredis.h>

#include "bench/clock.h"

#define LOOK_NS (2 * NS_PER_MS)
#define START_LIMIT_NS                                                                             \
    (10 * NS_PER_S) /* a loaded machine is slow; a server that cannot start ends */
#define ANSWER_LIMIT_S 5
#define SCAN_BATCH 500
/* The server looks for what has expired ten times a second, and at a part of the keys each time. */
#define EXPIRY_SLACK_NS (2 * NS_PER_S)

static redisContext *connect_to(const struct server *server)
{
    const struct timeval limit = {.tv_sec = ANSWER_LIMIT_S};
    redisContext *link = redisConnectUnixWithTimeout(server->socket, limit);
    if (link != NULL && link->err == 0) {
        redisSetTimeout(link, limit);
        return link;
    }
    if (link != NULL) {
        redisFree(link);
    }
    return NULL;
}

static bool answers(const struct server *server)
{
    redisContext *link = connect_to(server);
    if (link == NULL) {
        return false;
    }
    redisReply *reply = redisCommand(link, "PING"); /* an error while it still loads */
    bool well = reply != NULL && reply->type == REDIS_REPLY_STATUS;
    freeReplyObject(reply);
    redisFree(link);
    return well;
}

static _Noreturn void become_server(const struct server *server)
{
    const char *log = server->keeps == SERVER_KEEPS_LOG ? "yes" : "no";
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", server->socket, "--save",
           "", "--appendonly", log, "--appendfsync", "always", "--dir", server->folder, "--logfile",
           "redis.log", (char *)NULL);
    _exit(127);
}

void server_start(struct server *server)
{
    fflush(NULL); /* or the child would write it again */
    server->pid = fork();
    assert_true(server->pid >= 0);
    if (server->pid == 0) {
        become_server(server);
    }
    int64_t until_ns = clock_now_ns() + START_LIMIT_NS;
    while (!answers(server)) {
        int status;
        if (waitpid(server->pid, &status, WNOHANG) != 0) {
            server->pid = 0;
            fail_msg("redis-server has ended, status %d", status);
        }
        assert_true(clock_now_ns() < until_ns);
        clock_sleep_until(clock_now_ns() + LOOK_NS);
    }
}

void server_open(struct server *server, enum server_keeps keeps)
{
    *server = (struct server){.keeps = keeps, .folder = "/tmp/weir-crash-XXXXXX"};
    assert_non_null(mkdtemp(server->folder));
    snprintf(server->socket, sizeof server->socket, "%s/socket", server->folder);
    snprintf(server->url, sizeof server->url, "unix://%s", server->socket);
    server_start(server);
}

void server_kill(struct server *server)
{
    if (server->pid > 0) {
        kill(server->pid, SIGKILL);
        waitpid(server->pid, NULL, 0);
        server->pid = 0;
    }
}

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *where)
{
    (void)about;
    (void)kind;
    (void)where;
    return remove(path);
}

void server_close(struct server *server)
{
    server_kill(server);
    if (server->folder[0] != '\0') {
        nftw(server->folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
        server->folder[0] = '\0';
    }
}

void server_save_and_end(struct server *server)
{
    redisContext *link = connect_to(server);
    assert_non_null(link);
    freeReplyObject(
        redisCommand(link, "SHUTDOWN SAVE")); /* answered by the end of the connection */
    redisFree(link);
    int status = 0;
    assert_int_equal(waitpid(server->pid, &status, 0), server->pid);
    server->pid = 0;
    assert_int_equal(status, 0);
}

void server_stop(struct server *server)
{
    int status;
    assert_int_equal(kill(server->pid, SIGSTOP), 0);
    assert_int_equal(waitpid(server->pid, &status, WUNTRACED), server->pid);
    assert_true(WIFSTOPPED(status));
}

void server_continue(struct server *server) { assert_int_equal(kill(server->pid, SIGCONT), 0); }

static redisReply *reply_of(redisContext *link)
{
    redisReply *reply = NULL;
    assert_int_equal(redisGetReply(link, (void **)&reply), REDIS_OK);
    if (reply->type == REDIS_REPLY_ERROR) {
        fail_msg("redis-server: %s", reply->str);
    }
    return reply;
}

int64_t server_ask(const struct server *server, const char *format, ...)
{
    redisContext *link = connect_to(server);
    assert_non_null(link);
    va_list words;
    va_start(words, format);
    redisvAppendCommand(link, format, words);
    va_end(words);
    redisReply *reply = reply_of(link);
    int64_t number = reply->type == REDIS_REPLY_ARRAY ? (int64_t)reply->elements : reply->integer;
    freeReplyObject(reply);
    redisFree(link);
    return number;
}

/* One batch of a scan: the keys and when each expires. */
static void add_keys(redisContext *link, const redisReply *names, struct server_keys *keys)
{
    for (size_t i = 0; i < names->elements; i++) {
        const redisReply *name = names->element[i];
        redisAppendCommand(link, "PTTL %b", name->str, (size_t)name->len);
    }
    for (size_t i = 0; i < names->elements; i++) {
        redisReply *left = reply_of(link);
        keys->count += left->integer != -2; /* -2: gone meanwhile */
        keys->eternal += left->integer == -1;
        keys->longest_ms = left->integer > keys->longest_ms ? left->integer : keys->longest_ms;
        freeReplyObject(left);
    }
}

struct server_keys server_keys(const struct server *server)
{
    struct server_keys keys = {0};
    char cursor[24] = "0";
    redisContext *link = connect_to(server);
    assert_non_null(link);
    do {
        redisAppendCommand(link, "SCAN %s COUNT %d", cursor, SCAN_BATCH);
        redisReply *batch = reply_of(link);
        assert_int_equal(batch->elements, 2);
        snprintf(cursor, sizeof cursor, "%s", batch->element[0]->str);
        add_keys(link, batch->element[1], &keys);
        freeReplyObject(batch);
    } while (strcmp(cursor, "0") != 0);
    redisFree(link);
    return keys;
}

void server_wait_until_empty(const struct server *server)
{
    struct server_keys keys = server_keys(server);
    int64_t until_ns = clock_now_ns() + keys.longest_ms * NS_PER_MS + EXPIRY_SLACK_NS;
    int64_t left = keys.count;
    while (left > 0 && clock_now_ns() < until_ns) {
        clock_sleep_until(clock_now_ns() + 20 * LOOK_NS);
        left = server_ask(server, "DBSIZE");
    }
    print_message("%lld keys, the last was to expire in %lld ms; %lld are left\n",
                  (long long)keys.count, (long long)keys.longest_ms, (long long)left);
    assert_int_equal(left, 0);
}
