/* SPDX-License-Identifier: MIT */
/*
 * A peer that is not a store, or not in its right mind: whatever bytes come, in whatever pieces,
 * the process lives, no call is told a thing that was not its own, and the connection is left
 * where its stream cannot be trusted.
 */
#include "io/conn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/num.h"
#include "io/peer.h"
#include "io/rig.h"

/* What the peer says to a call. */
static const char *to_say;

static void say_to_calls(struct peer_client *client, const struct peer_command *command)
{
    if (peer_is(command, "EVALSHA") && to_say != NULL) {
        peer_say(client, to_say);
        return;
    }
    peer_answer(client, command);
}

/* One call answered with `text`: the fate must be unknown and the connection left. */
static void assert_left(const char *text, const char *why)
{
    struct rig rig;
    struct peer peer = {.heard = say_to_calls};
    struct rig_call call = {0}, again = {0};
    rig_init(&rig, 0);
    peer_listen(&peer, &rig.loop, 0, NULL);
    rig.config.endpoint.port = (uint16_t)peer.port;
    rig_up(&rig);
    to_say = text;
    rig_call(&rig, &call, 1, 2000);
    RIG_UNTIL(&rig, call.answers == 1 && rig.downs == 1);
    assert_int_equal(call.outcome.fate, WEIR__FATE_UNKNOWN);
    if (strstr(rig.why, why) == NULL) {
        fail_msg("%s is not in %s", why, rig.why);
    }
    to_say = NULL;
    RIG_UNTIL(&rig, rig.ups == 2);
    rig_call(&rig, &again, 5, 2000);
    RIG_UNTIL(&rig, again.answers == 1);
    assert_int_equal(again.outcome.fate, WEIR__ANSWERED);
    assert_int_equal(again.outcome.values[0], 5);
    peer_stop(&peer);
    rig_deinit(&rig);
}

static void test_replies_of_no_script(void **state)
{
    (void)state;
    assert_left("+OK\r\n", "not an array");
    assert_left("$-1\r\n", "not an array");
    assert_left("*-1\r\n", "not an array");
    assert_left(":1\r\n", "not an array");
    assert_left("*2\r\n:1\r\n$1\r\n2\r\n", "not an integer");
    assert_left("*2\r\n:1\r\n$-1\r\n", "not an integer");
    assert_left("*2\r\n:1\r\n*1\r\n:1\r\n", "too many elements");
    assert_left(
        "*17\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n"
        ":1\r\n:1\r\n:1\r\n:1\r\n",
        "too many values");
}

static void test_bytes_of_no_protocol(void **state)
{
    (void)state;
    assert_left("HTTP/1.1 400 Bad Request\r\n\r\n", "Protocol error");
    assert_left("*x\r\n", "");
    assert_left("*2\r\n:99999999999999999999\r\n:1\r\n", "");
    assert_left("$-5\r\n", "");
}

static void test_headers_that_announce_too_much(void **state)
{
    (void)state;
    assert_left("*2147483647\r\n", "too many elements");
    assert_left("*1025\r\n", "too many elements");
    assert_left("*9223372036854775807\r\n", "");
}

/* A long string takes the memory of the bytes that have come, up to a bound. */
static void test_a_string_without_end(void **state)
{
    (void)state;
    static char text[60000];
    struct rig rig;
    struct peer peer = {.heard = say_to_calls};
    struct rig_call call = {0};
    rig_init(&rig, 0);
    peer_listen(&peer, &rig.loop, 0, NULL);
    rig.config.endpoint.port = (uint16_t)peer.port;
    rig_up(&rig);
    memset(text, 'x', sizeof(text) - 1);
    memcpy(text, "$2147483647\r\n", 13);
    to_say = text;
    rig_call(&rig, &call, 1, 2000);
    RIG_UNTIL(&rig, peer.calls == 1);
    for (int i = 0; i < 3; i++) {
        uv_run(&rig.loop, UV_RUN_NOWAIT);
    }
    assert_int_equal(call.answers, 0);
    assert_int_equal(rig.downs, 0);
    peer_say(peer.clients[0], text);
    RIG_UNTIL(&rig, call.answers == 1 && rig.downs == 1);
    assert_int_equal(call.outcome.fate, WEIR__FATE_UNKNOWN);
    assert_non_null(strstr(rig.why, "too long"));
    peer_stop(&peer);
    rig_deinit(&rig);
}

/* hiredis 0.14 aborts the process for a reply that no command waits for. */
static void test_a_reply_that_nobody_asked_for(void **state)
{
    (void)state;
    assert_left("*2\r\n:1\r\n:7\r\n+OK\r\n", "nobody asked for");
    assert_left("*2\r\n:1\r\n:7\r\n+", "nobody asked for");

    struct rig rig;
    struct peer peer = {0};
    rig_init(&rig, 0);
    peer_listen(&peer, &rig.loop, 0, NULL);
    rig.config.endpoint.port = (uint16_t)peer.port;
    rig_up(&rig);
    peer_say(peer.clients[0], "+OK\r\n");
    RIG_UNTIL(&rig, rig.downs == 1);
    assert_non_null(strstr(rig.why, "nobody asked for"));
    RIG_UNTIL(&rig, rig.ups == 2);
    peer_stop(&peer);
    rig_deinit(&rig);
}

static void speak_first(struct peer_client *client) { peer_say(client, "+OK\r\n"); }

static void test_a_peer_that_speaks_first(void **state)
{
    (void)state;
    struct rig rig;
    struct peer peer = {.accepted = speak_first};
    rig_init(&rig, 0);
    peer_listen(&peer, &rig.loop, 0, NULL);
    rig.config.endpoint.port = (uint16_t)peer.port;
    rig_connect(&rig);
    RIG_UNTIL(&rig, rig.downs == 2);
    assert_int_equal(rig.ups, 0);
    peer.accepted = NULL;
    RIG_UNTIL(&rig, rig.ups == 1);
    peer_stop(&peer);
    rig_deinit(&rig);
}

/* A surplus reply before ours shifts the stream by one: the calls behind it must not take the
 * reply of their neighbour. */
static unsigned surplus_left;

static void surplus(struct peer_client *client, const struct peer_command *command)
{
    if (peer_is(command, "EVALSHA") && surplus_left > 0) {
        surplus_left--;
        peer_say(client, "+OK\r\n");
    }
    peer_answer(client, command);
}

static void test_a_shifted_stream_is_not_believed(void **state)
{
    (void)state;
    struct rig rig;
    struct peer peer = {.heard = surplus};
    struct rig_call calls[10] = {0};
    rig_init(&rig, 0);
    peer_listen(&peer, &rig.loop, 0, NULL);
    rig.config.endpoint.port = (uint16_t)peer.port;
    rig_up(&rig);
    surplus_left = 1;
    for (int i = 0; i < 10; i++) {
        rig_call(&rig, &calls[i], i, 2000);
    }
    for (int i = 0; i < 10; i++) {
        RIG_UNTIL(&rig, calls[i].answers == 1);
        assert_int_equal(calls[i].outcome.fate, WEIR__FATE_UNKNOWN);
    }
    peer_stop(&peer);
    rig_deinit(&rig);
}

static void slow(struct peer_client *client) { peer_slow(client, 0, 1); }

static void test_one_byte_at_a_time(void **state)
{
    (void)state;
    struct rig rig;
    struct peer peer = {.accepted = slow};
    struct rig_call calls[3] = {0};
    rig_init(&rig, 0);
    peer_listen(&peer, &rig.loop, 0, NULL);
    rig.config.endpoint.port = (uint16_t)peer.port;
    rig_up(&rig);
    for (int i = 0; i < 3; i++) {
        rig_call(&rig, &calls[i], 10 + i, 3000);
    }
    for (int i = 0; i < 3; i++) {
        RIG_UNTIL(&rig, calls[i].answers == 1);
        assert_int_equal(calls[i].outcome.fate, WEIR__ANSWERED);
        assert_int_equal(calls[i].outcome.values[0], 10 + i);
    }
    peer_stop(&peer);
    rig_deinit(&rig);
}

static void half_close(struct peer_client *client, const struct peer_command *command)
{
    if (peer_is(command, "EVALSHA")) {
        peer_say(client, "*2\r\n:1\r\n");
        peer_half_close(client);
        return;
    }
    peer_answer(client, command);
}

static void test_an_end_in_the_middle_of_a_reply(void **state)
{
    (void)state;
    struct rig rig;
    struct peer peer = {.heard = half_close};
    struct rig_call call = {0};
    rig_init(&rig, 0);
    peer_listen(&peer, &rig.loop, 0, NULL);
    rig.config.endpoint.port = (uint16_t)peer.port;
    rig_up(&rig);
    rig_call(&rig, &call, 1, 2000);
    RIG_UNTIL(&rig, call.answers == 1);
    assert_int_equal(call.outcome.fate, WEIR__FATE_UNKNOWN);
    assert_non_null(strstr(call.error, "closed the connection"));
    peer_stop(&peer);
    rig_deinit(&rig);
}

/* Random strings over the alphabet of the protocol: nothing is ever ANSWERED but an array of
 * integers, and each call is answered once. */
static char random_text[64];

static void test_random_bytes(void **state)
{
    (void)state;
    static const char *const pieces[] = {"*",  "$",  ":",     "+", "-",       "\r\n", "1",
                                         "2",  "-1", "0",     "x", "9999999", "\r",   "\n",
                                         "OK", " ",  "MOVED", "_", "%",       ">"};
    const char *text = getenv("WEIR_TEST_SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 0) : UINT64_C(20260102);
    print_message("seed %llu\n", (unsigned long long)seed);
    struct rig rig;
    struct peer peer = {.heard = say_to_calls};
    rig_init(&rig, 0);
    peer_listen(&peer, &rig.loop, 0, NULL);
    rig.config.endpoint.port = (uint16_t)peer.port;
    for (int round = 0; round < 300; round++) {
        struct rig_call call = {0};
        rig.ups = rig.downs = 0;
        rig.closing = rig.closed = false;
        to_say = NULL;
        rig_up(&rig);
        random_text[0] = '\0';
        for (uint64_t count = 1 + weir__random(&seed) % 12; count > 0; count--) {
            size_t piece = weir__random(&seed) % (sizeof(pieces) / sizeof(pieces[0]));
            strncat(random_text, pieces[piece], sizeof(random_text) - strlen(random_text) - 1);
        }
        to_say = random_text;
        rig_call(&rig, &call, 1, 3);
        RIG_UNTIL(&rig, call.answers == 1);
        assert_true(call.outcome.fate != WEIR__ANSWERED || random_text[0] == '*');
        rig_close(&rig);
        RIG_UNTIL(&rig, rig.closed);
        assert_int_equal(call.answers, 1);
    }
    peer_stop(&peer);
    rig_deinit(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replies_of_no_script),
        cmocka_unit_test(test_bytes_of_no_protocol),
        cmocka_unit_test(test_headers_that_announce_too_much),
        cmocka_unit_test(test_a_string_without_end),
        cmocka_unit_test(test_a_reply_that_nobody_asked_for),
        cmocka_unit_test(test_a_peer_that_speaks_first),
        cmocka_unit_test(test_a_shifted_stream_is_not_believed),
        cmocka_unit_test(test_one_byte_at_a_time),
        cmocka_unit_test(test_an_end_in_the_middle_of_a_reply),
        cmocka_unit_test(test_random_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
