/* SPDX-License-Identifier: MIT */
/* Starts the server as a child and reads its log until it says that it is ready, so nothing here
 * waits by guessing.  The child dies with us: it is killed when this program ends in any way. */
#include "server.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

const char *server_program(void)
{
    const char *program = getenv("WEIR_TEST_SERVER");
    return program != NULL ? program : "redis-server";
}

static void run_server(const struct server *server, int log)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    const char *program = server_program();
    execlp(program, program, "--port", "0", "--unixsocket", server->socket, "--dir", server->folder,
           "--save", "", "--appendonly", "no", "--daemonize", "no", (char *)NULL);
    _exit(127);
}

/* Until the line that says so, or until the child is gone. */
static int wait_until_ready(int log)
{
    char text[16384];
    size_t len = 0;
    while (len < sizeof text - 1) {
        ssize_t n = read(log, text + len, sizeof text - 1 - len);
        if (n <= 0) {
            break;
        }
        len += (size_t)n;
        text[len] = 0;
        if (strstr(text, "eady to accept connections") != NULL) {
            return 0;
        }
    }
    return -1;
}

int server_start(struct server *server)
{
    int ends[2];
    strcpy(server->folder, "/tmp/weir-test-XXXXXX");
    if (mkdtemp(server->folder) == NULL) {
        return -1;
    }
    snprintf(server->socket, sizeof server->socket, "%s/redis", server->folder);
    if (pipe(ends) != 0) {
        rmdir(server->folder);
        return -1;
    }
    server->log = ends[0];
    server->pid = fork();
    if (server->pid == 0) {
        close(ends[0]);
        run_server(server, ends[1]);
    }
    close(ends[1]);
    if (server->pid > 0 && wait_until_ready(server->log) == 0) {
        return 0;
    }
    server_stop(server);
    return -1;
}

void server_stop(struct server *server)
{
    if (server->pid > 0) {
        kill(server->pid, SIGKILL);
        waitpid(server->pid, NULL, 0);
    }
    close(server->log);
    unlink(server->socket);
    rmdir(server->folder);
    server->pid = -1;
}
