/* SPDX-License-Identifier: MIT */
/* The adapter alone: descriptors come back, none is watched twice, and the host's own are left
 * alone. */
#include "io/uvredis.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "io/peer.h"
#include "io/rig.h"

#define CYCLES 1000

struct cycle {
    struct rig *rig;
    struct peer *peer;
    struct weir__uvredis *link;
    unsigned connected, replied, closed;
    unsigned cycles_left;
    int host_fd; /* one that the host opens and closes meanwhile */
    char why[160];
};

static const struct weir__uvredis_events events;

static void open_link(struct cycle *cycle)
{
    cycle->link = weir__uvredis_open(&cycle->rig->loop, "127.0.0.1", (uint16_t)cycle->peer->port,
                                     NULL, &events, cycle, cycle->why, sizeof(cycle->why));
    assert_non_null(cycle->link);
}

static void send_word(struct cycle *cycle, void *tag)
{
    const char *const argv[] = {"SELECT", "1"};
    const size_t len[] = {6, 1};
    uint64_t end = 0;
    assert_true(weir__uvredis_send(cycle->link, tag, 2, argv, len, &end));
    assert_true(end > 0);
}

static void on_connected(void *arg)
{
    struct cycle *cycle = arg;
    cycle->connected++;
    send_word(cycle, arg);
}

static void on_replied(void *arg, void *tag, const struct redisReply *reply)
{
    struct cycle *cycle = arg;
    assert_ptr_equal(tag, arg);
    assert_non_null(reply);
    cycle->replied++;
    if (cycle->cycles_left % 2 == 0) {
        weir__uvredis_close(cycle->link, "from here"); /* hiredis is on the stack */
        weir__uvredis_close(cycle->link, "twice");
    } else {
        peer_cut(cycle->peer->clients[0]);
    }
}

static void on_closed(void *arg, const char *why, uint64_t written)
{
    struct cycle *cycle = arg;
    assert_true(written > 0);
    cycle->closed++;
    snprintf(cycle->why, sizeof(cycle->why), "%s", why);
    cycle->link = NULL;
    if (cycle->host_fd >= 0) {
        close(cycle->host_fd);
        cycle->host_fd = -1;
    } else {
        cycle->host_fd = open("/dev/null", O_RDONLY);
    }
    if (--cycle->cycles_left > 0) {
        open_link(cycle); /* on the number that has just become free */
    }
}

static const struct weir__uvredis_events events = {
    .connected = on_connected, .replied = on_replied, .closed = on_closed};

static unsigned open_descriptors(void)
{
    unsigned count = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder) != NULL) {
        count++;
    }
    closedir(folder);
    return count;
}

static void test_descriptors_come_back(void **state)
{
    (void)state;
    unsigned before = open_descriptors();
    struct rig rig;
    struct peer peer = {0};
    rig_init(&rig, 0);
    peer_listen(&peer, &rig.loop, 0, NULL);
    struct cycle cycle = {.rig = &rig, .peer = &peer, .cycles_left = CYCLES, .host_fd = -1};
    open_link(&cycle);
    RIG_UNTIL(&rig, cycle.closed == CYCLES);
    assert_int_equal(cycle.connected, CYCLES);
    assert_int_equal(cycle.replied, CYCLES);
    assert_int_equal(cycle.host_fd, -1);
    peer_stop(&peer);
    rig_deinit(&rig);
    assert_int_equal(open_descriptors(), before);
}

/* A host without standard input: our socket does not take its number, and is closed in the end. */
static void test_standard_descriptors_are_not_taken(void **state)
{
    (void)state;
    int kept = dup(STDIN_FILENO);
    unsigned before = open_descriptors();
    struct rig rig;
    struct peer peer = {0};
    rig_init(&rig, 0);
    peer_listen(&peer, &rig.loop, 0, NULL);
    struct cycle cycle = {.rig = &rig, .peer = &peer, .cycles_left = 1, .host_fd = -1};
    close(STDIN_FILENO);
    open_link(&cycle);
    assert_int_equal(fcntl(STDIN_FILENO, F_GETFD), -1);
    assert_int_equal(dup2(kept, STDIN_FILENO), STDIN_FILENO);
    RIG_UNTIL(&rig, cycle.closed == 1);
    assert_int_equal(cycle.replied, 1);
    close(cycle.host_fd);
    peer_stop(&peer);
    rig_deinit(&rig);
    assert_int_equal(open_descriptors(), before);
    close(kept);
}

static void test_a_failed_open_leaves_nothing(void **state)
{
    (void)state;
    unsigned before = open_descriptors();
    struct rig rig;
    char why[160] = "";
    rig_init(&rig, 0);
    assert_null(
        weir__uvredis_open(&rig.loop, NULL, 0, "/nonexistent", &events, NULL, why, sizeof(why)));
    assert_string_equal(why, "No such file or directory");
    assert_null(
        weir__uvredis_open(&rig.loop, "not an address", 1, NULL, &events, NULL, why, sizeof(why)));
    rig_deinit(&rig);
    assert_int_equal(open_descriptors(), before);
}

/* libuv keeps two descriptors for signals from the first loop on. */
static int make_a_loop(void **state)
{
    (void)state;
    uv_loop_t loop;
    return uv_loop_init(&loop) != 0 || uv_loop_close(&loop) != 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_descriptors_come_back),
        cmocka_unit_test(test_standard_descriptors_are_not_taken),
        cmocka_unit_test(test_a_failed_open_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, make_a_loop, NULL);
}
