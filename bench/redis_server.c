/* SPDX-License-Identifier: MIT */
/*
 * Starts and stops a redis-server of our own, so that a measurement neither needs nor touches one
 * that is there already.
 *
 * It is a child, known by its pid.  Should this process be killed, the kernel ends the server with
 * it; only the empty folder stays then.
 */
#include "redis_server.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hiredis/hiredis.h>

#include "clock.h"

#define START_LIMIT_NS (10 * NS_PER_S) /* a loaded machine is slow; a broken server ends sooner */
#define STOP_LIMIT_NS (5 * NS_PER_S)
#define LOOK_NS (5 * NS_PER_MS)
#define EXIT_NO_PROGRAM 127 /* as a shell says it */

static bool answers(const char *socket)
{
    redisContext *link = redisConnectUnix(socket);
    redisReply *reply = link != NULL && link->err == 0 ? redisCommand(link, "PING") : NULL;
    bool well = reply != NULL && reply->type == REDIS_REPLY_STATUS;
    freeReplyObject(reply);
    if (link != NULL) {
        redisFree(link);
    }
    return well;
}

/* In the child. */
_Noreturn static void become_server(const struct redis_server *server)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* A Ctrl-C at the terminal is for the parent, which then ends the server in order. */
    setpgid(0, 0);
    if (freopen("/dev/null", "w", stdout) == NULL) {
        _exit(1);
    }
    execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", server->socket,
           "--unixsocketperm", "700", "--save", "", "--appendonly", "no", "--daemonize", "no",
           "--dir", server->folder, (char *)NULL);
    _exit(errno == ENOENT ? EXIT_NO_PROGRAM : 1);
}

/* Returns true when the child has ended. */
static bool wait_for_end(pid_t pid, int *status, int64_t limit_ns)
{
    int64_t until_ns = clock_now_ns() + limit_ns;
    while (waitpid(pid, status, WNOHANG) == 0) {
        if (clock_now_ns() >= until_ns) {
            return false;
        }
        clock_sleep_until(clock_now_ns() + LOOK_NS);
    }
    return true;
}

bool redis_server_start(struct redis_server *server, char *why, size_t why_size)
{
    *server = (struct redis_server){.folder = "/tmp/weir-redis-XXXXXX"};
    if (mkdtemp(server->folder) == NULL) {
        snprintf(why, why_size, "no folder %s: %s", server->folder, strerror(errno));
        return false;
    }
    snprintf(server->socket, sizeof server->socket, "%s/socket", server->folder);
    snprintf(server->url, sizeof server->url, "unix://%s", server->socket);
    fflush(NULL); /* or the child's freopen would write it a second time */
    server->pid = fork();
    if (server->pid == 0) {
        become_server(server);
    }
    int status = 0;
    int64_t until_ns = clock_now_ns() + START_LIMIT_NS;
    while (server->pid > 0 && clock_now_ns() < until_ns) {
        if (answers(server->socket)) {
            return true;
        }
        if (wait_for_end(server->pid, &status, LOOK_NS)) {
            server->pid = 0;
        }
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_NO_PROGRAM) {
        snprintf(why, why_size, "redis-server is not installed: apt-get install redis-server");
    } else {
        snprintf(why, why_size, "redis-server does not start");
    }
    redis_server_stop(server);
    return false;
}

void redis_server_stop(struct redis_server *server)
{
    int status;
    if (server->pid > 0) {
        kill(server->pid, SIGTERM);
        if (!wait_for_end(server->pid, &status, STOP_LIMIT_NS)) {
            kill(server->pid, SIGKILL);
            waitpid(server->pid, &status, 0);
        }
        server->pid = 0;
    }
    if (server->folder[0] != '\0') {
        unlink(server->socket);
        rmdir(server->folder);
        server->folder[0] = '\0';
    }
}
