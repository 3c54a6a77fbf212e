/* SPDX-License-Identifier: MIT */
/* A store that does not let its scripts read the clock is told the time with each call. */
#include "io/conn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "io/peer.h"
#include "io/rig.h"

#define CALLS 100
#define WORDS_WITH_TIME 7
#define APART_US 60000000 /* between reading and hearing a clock, on a machine with other work */

struct scene {
    struct rig rig;
    struct peer peer;
    unsigned told; /* calls that carried the time */
    unsigned refused;
    bool loses_scripts;
    uint64_t delay_ms;
};

static int64_t wall_us(void)
{
    uv_timeval64_t now;
    assert_int_equal(uv_gettimeofday(&now), 0);
    return now.tv_sec * 1000000 + now.tv_usec;
}

static void check_time(const struct peer_command *command)
{
    char text[32] = "", *end;
    assert_true(command->len[6] < sizeof(text));
    memcpy(text, command->argv[6], command->len[6]);
    int64_t told_us = strtoll(text, &end, 10);
    assert_int_equal(*end, 0);
    assert_true(llabs(wall_us() - told_us) < APART_US);
}

/* Has no clock. */
static void heard(struct peer_client *client, const struct peer_command *command)
{
    struct scene *scene = peer_of(client)->arg;
    if (!peer_is(command, "EVALSHA")) {
        peer_answer(client, command);
    } else if (scene->loses_scripts) {
        scene->loses_scripts = false;
        peer_say(client, "-NOSCRIPT No matching script.\r\n");
    } else if (command->argc == WORDS_WITH_TIME) {
        scene->told++;
        check_time(command);
        peer_answer(client, command);
    } else {
        scene->refused++;
        peer_slow(client, scene->delay_ms, 0);
        peer_say(client, "-WEIRTIME ERR the user\tcan't run this\r\n");
    }
}

/* Has no clock, and does not listen. */
static void heard_stubborn(struct peer_client *client, const struct peer_command *command)
{
    if (peer_is(command, "EVALSHA")) {
        peer_say(client, "-WEIRTIME no\r\n");
    } else {
        peer_answer(client, command);
    }
}

static void open_scene(struct scene *scene, void (*hears)(struct peer_client *client,
                                                          const struct peer_command *command))
{
    memset(scene, 0, sizeof(*scene));
    scene->peer.heard = hears;
    scene->peer.arg = scene;
    rig_init(&scene->rig, 0);
    peer_listen(&scene->peer, &scene->rig.loop, 0, NULL);
    scene->rig.config.endpoint.port = (uint16_t)scene->peer.port;
    rig_up(&scene->rig);
}

static void close_scene(struct scene *scene)
{
    peer_stop(&scene->peer);
    rig_deinit(&scene->rig);
}

static void assert_answered(struct rig *rig, const struct rig_call *call, int number)
{
    RIG_UNTIL(rig, call->answers == 1);
    if (call->outcome.fate != WEIR__ANSWERED) {
        fail_msg("not answered: %s", call->error);
    }
    assert_int_equal(call->outcome.values[0], number);
}

static unsigned lines_with(const struct rig *rig, const char *word)
{
    unsigned count = 0;
    for (const char *at = rig->log; (at = strstr(at, word)) != NULL; at++) {
        count++;
    }
    return count;
}

/* Each call that met it is sent once more; whoever comes later is not refused at all; the log has
 * it once, with the reason. */
static void test_a_store_without_a_clock_is_told_the_time(void **state)
{
    (void)state;
    static struct scene scene;
    static struct rig_call calls[CALLS];
    memset(calls, 0, sizeof(calls));
    open_scene(&scene, heard);
    for (int i = 0; i < CALLS; i++) {
        rig_call(&scene.rig, &calls[i], i, 5000);
    }
    for (int i = 0; i < CALLS; i++) {
        assert_answered(&scene.rig, &calls[i], i);
    }
    assert_int_equal(scene.refused, CALLS);
    assert_int_equal(scene.told, CALLS);

    struct rig_call later = {0};
    rig_call(&scene.rig, &later, 42, 5000);
    assert_answered(&scene.rig, &later, 42);
    assert_int_equal(scene.refused, CALLS);
    assert_int_equal(scene.told, CALLS + 1);
    assert_int_equal(lines_with(&scene.rig, "tells no time"), 1);
    assert_non_null(strstr(scene.rig.log, "(WEIRTIME ERR the user"));
    close_scene(&scene);
}

/* The next connection may be to another server, or one that has been mended. */
static void test_another_connection_asks_anew(void **state)
{
    (void)state;
    static struct scene scene;
    struct rig_call call = {0};
    open_scene(&scene, heard);
    rig_call(&scene.rig, &call, 1, 5000);
    assert_answered(&scene.rig, &call, 1);
    for (size_t i = 0; i < PEER_CLIENTS_MAX; i++) {
        if (scene.peer.clients[i] != NULL) {
            peer_cut(scene.peer.clients[i]);
        }
    }
    RIG_UNTIL(&scene.rig, scene.rig.ups == 2);
    call = (struct rig_call){0};
    rig_call(&scene.rig, &call, 2, 5000);
    assert_answered(&scene.rig, &call, 2);
    assert_int_equal(scene.refused, 2);
    assert_int_equal(scene.told, 2);
    assert_int_equal(lines_with(&scene.rig, "tells no time"), 2);
    close_scene(&scene);
}

static void test_a_store_that_hears_no_time_ends_the_replays(void **state)
{
    (void)state;
    static struct scene scene;
    struct rig_call call = {0};
    open_scene(&scene, heard_stubborn);
    rig_call(&scene.rig, &call, 1, 5000);
    RIG_UNTIL(&scene.rig, call.answers == 1);
    assert_int_equal(call.outcome.fate, WEIR__NOT_EXECUTED);
    assert_string_equal(call.error, "WEIRTIME no");
    assert_int_equal(scene.peer.calls, 3);
    assert_int_equal(scene.rig.downs, 0);
    close_scene(&scene);
}

static void test_neither_script_nor_clock(void **state)
{
    (void)state;
    static struct scene scene;
    struct rig_call call = {0};
    open_scene(&scene, heard);
    scene.loses_scripts = true;
    rig_call(&scene.rig, &call, 5, 5000);
    assert_answered(&scene.rig, &call, 5);
    assert_int_equal(scene.peer.calls, 3);
    assert_int_equal(scene.peer.loads, 2);
    close_scene(&scene);
}

/* It is not sent again, but what it says of the store is known from then on. */
static void test_a_late_refusal_is_heard(void **state)
{
    (void)state;
    static struct scene scene;
    struct rig_call late = {0}, next = {0};
    open_scene(&scene, heard);
    scene.delay_ms = 60;
    rig_call(&scene.rig, &late, 1, 20);
    RIG_UNTIL(&scene.rig, late.answers == 1);
    assert_int_equal(late.outcome.fate, WEIR__FATE_UNKNOWN);
    RIG_UNTIL(&scene.rig, lines_with(&scene.rig, "tells no time") == 1);
    assert_int_equal(scene.told, 0);
    rig_call(&scene.rig, &next, 2, 5000);
    assert_answered(&scene.rig, &next, 2);
    assert_int_equal(scene.refused, 1);
    assert_int_equal(scene.told, 1);
    close_scene(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_store_without_a_clock_is_told_the_time),
        cmocka_unit_test(test_another_connection_asks_anew),
        cmocka_unit_test(test_a_store_that_hears_no_time_ends_the_replays),
        cmocka_unit_test(test_neither_script_nor_clock),
        cmocka_unit_test(test_a_late_refusal_is_heard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
