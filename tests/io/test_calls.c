/* SPDX-License-Identifier: MIT */
/* What becomes of calls: each is answered once, by its deadline, with what is known about its
 * fate. */
#include "io/conn.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "io/peer.h"
#include "io/rig.h"

#define NS_PER_MS UINT64_C(1000000)
#define CALLS 100

static bool all_answered(const struct rig_call *calls, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        assert_true(calls[i].answers <= 1);
        if (calls[i].answers == 0) {
            return false;
        }
    }
    return true;
}

static void assert_answer(const struct rig_call *call, int number)
{
    assert_int_equal(call->outcome.fate, WEIR__ANSWERED);
    assert_int_equal(call->outcome.count, 2);
    assert_int_equal(call->outcome.values[0], number);
    assert_int_equal(call->outcome.values[1], 7);
}

static void test_each_call_gets_its_own_reply(void **state)
{
    (void)state;
    struct rig rig;
    struct peer peer = {0};
    static struct rig_call calls[CALLS];
    memset(calls, 0, sizeof(calls));
    rig_init(&rig, 0);
    peer_listen(&peer, &rig.loop, 0, NULL);
    rig.config.endpoint.port = (uint16_t)peer.port;
    rig_up(&rig);
    for (int i = 0; i < CALLS; i++) {
        rig_call(&rig, &calls[i], i - 3, 1000);
    }
    RIG_UNTIL(&rig, all_answered(calls, CALLS));
    for (int i = 0; i < CALLS; i++) {
        assert_answer(&calls[i], i - 3);
    }
    peer_stop(&peer);
    rig_deinit(&rig);
}

static void test_without_a_connection_nothing_runs(void **state)
{
    (void)state;
    struct rig rig;
    struct rig_call call = {0};
    rig_init(&rig, 1); /* nobody listens there */
    rig_connect(&rig);
    rig_call(&rig, &call, 1, 1000);
    RIG_UNTIL(&rig, call.answers == 1);
    assert_int_equal(call.outcome.fate, WEIR__NOT_EXECUTED);
    assert_string_equal(call.error, "not connected");
    rig_deinit(&rig);
}

static void slow_hundred(struct peer_client *client) { peer_slow(client, 100, 0); }

/* A deadline ends the call and not the connection; the late reply is nobody's, also when the
 * memory of its call has gone. */
static void test_a_late_reply_is_counted_and_matched_to_nobody(void **state)
{
    (void)state;
    struct rig rig;
    struct peer peer = {0};
    struct rig_call late = {0}, next = {0};
    rig_init(&rig, 0);
    peer_listen(&peer, &rig.loop, 0, NULL);
    rig.config.endpoint.port = (uint16_t)peer.port;
    rig_up(&rig);
    slow_hundred(peer.clients[0]);
    for (int i = 0; i < 5; i++) {
        struct rig_call *gone = calloc(1, sizeof(*gone));
        gone->free_on_answer = true;
        rig_call(&rig, gone, 1000 + i, 15);
    }
    rig_call(&rig, &late, 1, 20);
    rig_call(&rig, &next, 2, 1000);
    RIG_UNTIL(&rig, late.answers == 1);
    assert_int_equal(late.outcome.fate, WEIR__FATE_UNKNOWN);
    assert_true(late.answered_ns - late.called_ns >= 20 * NS_PER_MS);
    assert_true(late.answered_ns - late.called_ns < 100 * NS_PER_MS);
    assert_int_equal(next.answers, 0);
    RIG_UNTIL(&rig, next.answers == 1);
    assert_answer(&next, 2);
    assert_int_equal(late.answers, 1);
    struct weir__conn_stats stats;
    weir__conn_stats(rig.conn, &stats);
    assert_int_equal(stats.late_replies, 6);
    assert_int_equal(stats.connects, 1);
    peer_stop(&peer);
    rig_deinit(&rig);
}

/* Bytes that keep coming move no deadline, and a call on another connection does not notice. */
static void test_a_dripping_reply_holds_up_no_deadline(void **state)
{
    (void)state;
    struct rig rig, other;
    struct peer peer = {0}, honest = {0};
    static struct rig_call calls[11];
    memset(calls, 0, sizeof(calls));
    struct rig_call elsewhere = {0}, after = {0};
    rig_init(&rig, 0);
    peer_listen(&peer, &rig.loop, 0, NULL);
    rig.config.endpoint.port = (uint16_t)peer.port;
    rig_up(&rig);
    rig_init(&other, 0);
    peer_listen(&honest, &other.loop, 0, NULL);
    other.config.endpoint.port = (uint16_t)honest.port;
    rig_up(&other);

    peer_slow(peer.clients[0], 0, 20);
    for (int i = 0; i < 11; i++) {
        rig_call(&rig, &calls[i], i, 100);
    }
    RIG_UNTIL(&rig, all_answered(calls, 11));
    for (int i = 0; i < 11; i++) {
        assert_int_equal(calls[i].outcome.fate, WEIR__FATE_UNKNOWN);
        uint64_t took_ns = calls[i].answered_ns - calls[i].called_ns;
        assert_true(took_ns >= 100 * NS_PER_MS && took_ns < 300 * NS_PER_MS);
    }
    rig_call(&other, &elsewhere, 5, 1000);
    RIG_UNTIL(&other, elsewhere.answers == 1);
    assert_answer(&elsewhere, 5);

    peer_slow(peer.clients[0], 0, 1);
    rig_call(&rig, &after, 77, 3000);
    RIG_UNTIL(&rig, after.answers == 1);
    assert_answer(&after, 77);
    assert_int_equal(rig.downs, 0);
    peer_stop(&honest);
    rig_deinit(&other);
    peer_stop(&peer);
    rig_deinit(&rig);
}

/* A host that blocks its loop makes the loop's own time old; a deadline counts from the call
 * anyway. */
static void test_a_blocked_loop_shortens_no_deadline(void **state)
{
    (void)state;
    struct rig rig;
    struct peer peer = {0};
    struct rig_call call = {0};
    rig_init(&rig, 0);
    peer_listen(&peer, &rig.loop, 0, NULL);
    rig.config.endpoint.port = (uint16_t)peer.port;
    rig_up(&rig);
    peer_deaf(peer.clients[0]);
    uint64_t until_ns = uv_hrtime() + 120 * NS_PER_MS;
    while (uv_hrtime() < until_ns) {
    }
    rig_call(&rig, &call, 1, 80);
    RIG_UNTIL(&rig, call.answers == 1);
    assert_int_equal(call.outcome.fate, WEIR__FATE_UNKNOWN);
    assert_true(call.answered_ns - call.called_ns >= 80 * NS_PER_MS);
    peer_stop(&peer);
    rig_deinit(&rig);
}

static void test_calls_on_the_wire_are_bounded(void **state)
{
    (void)state;
    struct rig rig;
    struct peer peer = {0};
    struct rig_call calls[4] = {0};
    rig_init(&rig, 0);
    peer_listen(&peer, &rig.loop, 0, NULL);
    rig.config.endpoint.port = (uint16_t)peer.port;
    rig.config.max_calls = 2;
    rig_up(&rig);
    peer_deaf(peer.clients[0]);
    rig_call(&rig, &calls[0], 0, 30);
    rig_call(&rig, &calls[1], 1, 30);
    rig_call(&rig, &calls[2], 2, 30);
    RIG_UNTIL(&rig, calls[2].answers == 1);
    assert_int_equal(calls[2].outcome.fate, WEIR__NOT_EXECUTED);
    assert_string_equal(calls[2].error, "too many calls are unanswered");
    RIG_UNTIL(&rig, calls[0].answers == 1 && calls[1].answers == 1);
    /* The two are answered, but their replies are still owed. */
    rig_call(&rig, &calls[3], 3, 30);
    RIG_UNTIL(&rig, calls[3].answers == 1);
    assert_int_equal(calls[3].outcome.fate, WEIR__NOT_EXECUTED);
    peer_stop(&peer);
    rig_deinit(&rig);
}

static void test_a_call_that_is_late_already_is_not_sent(void **state)
{
    (void)state;
    struct rig rig;
    struct peer peer = {0};
    struct rig_call call = {0};
    rig_init(&rig, 0);
    peer_listen(&peer, &rig.loop, 0, NULL);
    rig.config.endpoint.port = (uint16_t)peer.port;
    rig_up(&rig);
    rig_call(&rig, &call, 1, 0);
    RIG_UNTIL(&rig, call.answers == 1);
    assert_int_equal(call.outcome.fate, WEIR__NOT_EXECUTED);
    assert_int_equal(peer.calls, 0);
    peer_stop(&peer);
    rig_deinit(&rig);
}

static void cut_on_call(struct peer_client *client, const struct peer_command *command)
{
    if (peer_is(command, "EVALSHA")) {
        peer_cut(client);
    } else {
        peer_answer(client, command);
    }
}

static void test_what_was_sent_before_a_loss_is_unknown(void **state)
{
    (void)state;
    struct rig rig;
    struct peer peer = {.heard = cut_on_call};
    struct rig_call calls[3] = {0}, again = {0};
    rig_init(&rig, 0);
    peer_listen(&peer, &rig.loop, 0, NULL);
    rig.config.endpoint.port = (uint16_t)peer.port;
    rig_up(&rig);
    for (int i = 0; i < 3; i++) {
        rig_call(&rig, &calls[i], i, 1000);
    }
    RIG_UNTIL(&rig, all_answered(calls, 3));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(calls[i].outcome.fate, WEIR__FATE_UNKNOWN);
    }
    assert_int_equal(rig.downs, 1);
    peer.heard = NULL;
    RIG_UNTIL(&rig, rig.ups == 2);
    rig_call(&rig, &again, 9, 1000);
    RIG_UNTIL(&rig, again.answers == 1);
    assert_answer(&again, 9);
    peer_stop(&peer);
    rig_deinit(&rig);
}

/* More than the sockets hold: the tail never left this process, and is known not to have run. */
static void test_what_was_never_written_did_not_run(void **state)
{
    (void)state;
    enum { MANY = 400, KEY_LEN = 65536 };
    static char key[KEY_LEN];
    struct rig rig;
    struct peer peer = {0};
    struct rig_call *calls = calloc(MANY, sizeof(*calls));
    rig_init(&rig, 0);
    peer_listen(&peer, &rig.loop, 0, NULL);
    rig.config.endpoint.port = (uint16_t)peer.port;
    rig_up(&rig);
    peer_deaf(peer.clients[0]);
    for (int i = 0; i < MANY; i++) {
        rig_call(&rig, &calls[i], i, 2000);
    }
    /* And the same again with a key as long as keys get. */
    struct rig_call *large = calloc(MANY, sizeof(*large));
    for (int i = 0; i < MANY; i++) {
        large[i].rig = &rig;
        large[i].call = calls[i].call;
        large[i].call.key = key;
        large[i].call.key_len = KEY_LEN;
        weir__conn_call(rig.conn, &large[i].call);
    }
    for (int turn = 0; turn < 3; turn++) {
        uv_run(&rig.loop, UV_RUN_ONCE);
    }
    peer_cut(peer.clients[0]);
    RIG_UNTIL(&rig, all_answered(large, MANY) && all_answered(calls, MANY));
    assert_int_equal(calls[0].outcome.fate, WEIR__FATE_UNKNOWN);
    assert_int_equal(large[0].outcome.fate, WEIR__FATE_UNKNOWN);
    assert_int_equal(large[MANY - 1].outcome.fate, WEIR__NOT_EXECUTED);
    for (int i = 1; i < MANY; i++) {
        /* In order: once one was not written, none after it was. */
        assert_true(large[i].outcome.fate == WEIR__NOT_EXECUTED ||
                    large[i - 1].outcome.fate == WEIR__FATE_UNKNOWN);
    }
    free(large);
    free(calls);
    peer_stop(&peer);
    rig_deinit(&rig);
}

static void test_silence_ends_the_connection(void **state)
{
    (void)state;
    struct rig rig;
    struct peer peer = {0};
    struct rig_call call = {0};
    rig_init(&rig, 0);
    peer_listen(&peer, &rig.loop, 0, NULL);
    rig.config.endpoint.port = (uint16_t)peer.port;
    rig.config.silence_ms = 60;
    rig_up(&rig);
    peer_deaf(peer.clients[0]);
    rig_call(&rig, &call, 1, 1000);
    RIG_UNTIL(&rig, call.answers == 1);
    assert_int_equal(call.outcome.fate, WEIR__FATE_UNKNOWN);
    assert_non_null(strstr(rig.why, "silent for 60 ms"));
    uint64_t took_ns = call.answered_ns - call.called_ns;
    assert_true(took_ns >= 60 * NS_PER_MS && took_ns < 500 * NS_PER_MS);
    RIG_UNTIL(&rig, rig.ups == 2);
    peer_stop(&peer);
    rig_deinit(&rig);
}

/* It counts from when a reply is owed, not from the last byte of a quiet hour ago. */
static void test_a_quiet_connection_is_not_silent(void **state)
{
    (void)state;
    struct rig rig;
    struct peer peer = {0};
    struct rig_call call = {0};
    rig_init(&rig, 0);
    peer_listen(&peer, &rig.loop, 0, NULL);
    rig.config.endpoint.port = (uint16_t)peer.port;
    rig.config.silence_ms = 100;
    rig_up(&rig);
    uint64_t until_ns = uv_hrtime() + 150 * NS_PER_MS;
    RIG_UNTIL(&rig, uv_hrtime() > until_ns);
    peer_slow(peer.clients[0], 20, 0);
    rig_call(&rig, &call, 3, 1000);
    RIG_UNTIL(&rig, call.answers == 1);
    assert_answer(&call, 3);
    assert_int_equal(rig.downs, 0);
    peer_stop(&peer);
    rig_deinit(&rig);
}

static const char *error_to_say;
static unsigned errors_left;

static void error_to_calls(struct peer_client *client, const struct peer_command *command)
{
    if (peer_is(command, "EVALSHA") && errors_left > 0) {
        errors_left--;
        peer_say(client, error_to_say);
        return;
    }
    peer_answer(client, command);
}

/* The store has lost the script: one load serves all that met it. */
static void test_a_lost_script_is_loaded_once(void **state)
{
    (void)state;
    struct rig rig;
    struct peer peer = {.heard = error_to_calls};
    static struct rig_call calls[CALLS];
    memset(calls, 0, sizeof(calls));
    rig_init(&rig, 0);
    peer_listen(&peer, &rig.loop, 0, NULL);
    rig.config.endpoint.port = (uint16_t)peer.port;
    rig_up(&rig);
    assert_int_equal(peer.loads, 1);
    error_to_say = "-NOSCRIPT No matching script.\r\n";
    errors_left = CALLS;
    for (int i = 0; i < CALLS; i++) {
        rig_call(&rig, &calls[i], i, 2000);
    }
    RIG_UNTIL(&rig, all_answered(calls, CALLS));
    for (int i = 0; i < CALLS; i++) {
        assert_answer(&calls[i], i);
    }
    assert_int_equal(peer.loads, 2);
    assert_int_equal(peer.calls, 2 * CALLS);
    peer_stop(&peer);
    rig_deinit(&rig);
}

static void test_a_script_that_stays_lost_ends_the_replays(void **state)
{
    (void)state;
    struct rig rig;
    struct peer peer = {.heard = error_to_calls};
    struct rig_call call = {0};
    rig_init(&rig, 0);
    peer_listen(&peer, &rig.loop, 0, NULL);
    rig.config.endpoint.port = (uint16_t)peer.port;
    rig_up(&rig);
    error_to_say = "-NOSCRIPT x\r\n";
    errors_left = 1000;
    rig_call(&rig, &call, 1, 2000);
    RIG_UNTIL(&rig, call.answers == 1);
    assert_int_equal(call.outcome.fate, WEIR__NOT_EXECUTED);
    assert_int_equal(peer.calls, 3);
    errors_left = 0;
    peer_stop(&peer);
    rig_deinit(&rig);
}

static void test_an_error_that_mentions_a_word_is_no_such_error(void **state)
{
    (void)state;
    struct rig rig;
    struct peer peer = {.heard = error_to_calls};
    struct rig_call call = {0};
    rig_init(&rig, 0);
    peer_listen(&peer, &rig.loop, 0, NULL);
    rig.config.endpoint.port = (uint16_t)peer.port;
    rig_up(&rig);
    error_to_say = "-ERR NOSCRIPT is a word\r\n";
    errors_left = 1;
    rig_call(&rig, &call, 1, 2000);
    RIG_UNTIL(&rig, call.answers == 1);
    assert_int_equal(call.outcome.fate, WEIR__REFUSED);
    assert_string_equal(call.error, "ERR NOSCRIPT is a word");
    assert_int_equal(peer.loads, 1);
    peer_stop(&peer);
    rig_deinit(&rig);
}

/* A demoted master keeps its connections; the first READONLY ends ours. */
static void test_a_replica_is_left(void **state)
{
    (void)state;
    struct rig rig;
    struct peer peer = {.heard = error_to_calls};
    struct rig_call calls[3] = {0}, again = {0};
    rig_init(&rig, 0);
    peer_listen(&peer, &rig.loop, 0, NULL);
    rig.config.endpoint.port = (uint16_t)peer.port;
    rig_up(&rig);
    error_to_say = "-READONLY You can't write against a read only replica.\r\n";
    errors_left = 3;
    for (int i = 0; i < 3; i++) {
        rig_call(&rig, &calls[i], i, 2000);
    }
    RIG_UNTIL(&rig, all_answered(calls, 3) && rig.downs == 1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(calls[i].outcome.fate, WEIR__NOT_EXECUTED);
    }
    assert_non_null(strstr(rig.why, "READONLY"));
    RIG_UNTIL(&rig, rig.ups == 2);
    assert_int_equal(peer.accepts, 2);
    rig_call(&rig, &again, 4, 1000);
    RIG_UNTIL(&rig, again.answers == 1);
    assert_answer(&again, 4);
    peer_stop(&peer);
    rig_deinit(&rig);
}

/* The peer's socket is gone and we write: no signal reaches the host, whose settings stay. */
static void test_a_broken_pipe_is_not_signalled(void **state)
{
    (void)state;
    char folder[] = "/tmp/weir-io-XXXXXX", path[64];
    struct rig rig;
    struct peer peer = {0};
    struct rig_call call = {0};
    sigset_t before, after, pending;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/socket", folder);
    sigset_t none;
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, &before);

    rig_init(&rig, 0);
    peer_listen(&peer, &rig.loop, 0, path);
    snprintf(rig.config.endpoint.path, sizeof(rig.config.endpoint.path), "%s", path);
    rig_up(&rig);
    peer_cut(peer.clients[0]); /* closes the descriptor at once */
    rig_call(&rig, &call, 1, 1000);
    RIG_UNTIL(&rig, call.answers == 1);
    assert_int_equal(call.outcome.fate, WEIR__NOT_EXECUTED);
    assert_non_null(strstr(call.error, "Broken pipe"));

    struct sigaction action;
    assert_int_equal(sigaction(SIGPIPE, NULL, &action), 0);
    assert_true(action.sa_handler == SIG_DFL);
    pthread_sigmask(SIG_SETMASK, &before, &after);
    assert_int_equal(sigismember(&after, SIGPIPE), 0);
    sigpending(&pending);
    assert_int_equal(sigismember(&pending, SIGPIPE), 0);
    peer_stop(&peer);
    rig_deinit(&rig);
    unlink(path);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_call_gets_its_own_reply),
        cmocka_unit_test(test_without_a_connection_nothing_runs),
        cmocka_unit_test(test_a_late_reply_is_counted_and_matched_to_nobody),
        cmocka_unit_test(test_a_dripping_reply_holds_up_no_deadline),
        cmocka_unit_test(test_a_blocked_loop_shortens_no_deadline),
        cmocka_unit_test(test_calls_on_the_wire_are_bounded),
        cmocka_unit_test(test_a_call_that_is_late_already_is_not_sent),
        cmocka_unit_test(test_what_was_sent_before_a_loss_is_unknown),
        cmocka_unit_test(test_what_was_never_written_did_not_run),
        cmocka_unit_test(test_silence_ends_the_connection),
        cmocka_unit_test(test_a_quiet_connection_is_not_silent),
        cmocka_unit_test(test_a_lost_script_is_loaded_once),
        cmocka_unit_test(test_a_script_that_stays_lost_ends_the_replays),
        cmocka_unit_test(test_an_error_that_mentions_a_word_is_no_such_error),
        cmocka_unit_test(test_a_replica_is_left),
        cmocka_unit_test(test_a_broken_pipe_is_not_signalled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
