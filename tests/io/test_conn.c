/* SPDX-License-Identifier: MIT */
/* The life of a connection: address, log-in, loss and return, and closing at each point of it. */
#include "io/conn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "io/peer.h"
#include "io/rig.h"

#define NS_PER_MS UINT64_C(1000000)

/* A port that was free a moment ago. */
static int free_port(struct rig *rig)
{
    struct peer peer = {0};
    peer_listen(&peer, &rig->loop, 0, NULL);
    peer_stop(&peer);
    uv_run(&rig->loop, UV_RUN_NOWAIT);
    return peer.port;
}

static void test_a_refused_connection_is_seen_and_tried_again(void **state)
{
    (void)state;
    struct rig rig;
    struct peer peer = {0};
    rig_init(&rig, 0);
    int port = free_port(&rig);
    rig.config.endpoint.port = (uint16_t)port;
    uint64_t before_ns = uv_hrtime();
    rig_connect(&rig);
    RIG_UNTIL(&rig, rig.downs == 1);
    assert_true(uv_hrtime() - before_ns < 100 * NS_PER_MS);
    assert_non_null(strstr(rig.why, "Connection refused"));
    RIG_UNTIL(&rig, rig.downs == 4);
    assert_int_equal(rig.logs, 1); /* a line for each change, not for each try */
    peer_listen(&peer, &rig.loop, port, NULL);
    before_ns = uv_hrtime();
    RIG_UNTIL(&rig, rig.ups == 1);
    assert_true(uv_hrtime() - before_ns < 2000 * NS_PER_MS);
    assert_int_equal(rig.logs, 2);
    peer_stop(&peer);
    rig_deinit(&rig);
}

static void test_a_missing_socket_is_seen(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, 0);
    rig.config.endpoint.host[0] = '\0';
    snprintf(rig.config.endpoint.path, sizeof(rig.config.endpoint.path), "/nonexistent/weir");
    rig_connect(&rig);
    RIG_UNTIL(&rig, rig.downs == 2);
    assert_non_null(strstr(rig.why, "/nonexistent/weir: No such file"));
    rig_deinit(&rig);
}

static unsigned loadings_left;

static void loading(struct peer_client *client, const struct peer_command *command)
{
    if (loadings_left > 0) {
        loadings_left--;
        peer_say(client, "-LOADING Redis is loading the dataset in memory\r\n");
        return;
    }
    peer_answer(client, command);
}

static void test_a_loading_store_is_waited_for(void **state)
{
    (void)state;
    struct rig rig;
    struct peer peer = {.heard = loading};
    rig_init(&rig, 0);
    peer_listen(&peer, &rig.loop, 0, NULL);
    rig.config.endpoint.port = (uint16_t)peer.port;
    loadings_left = 3;
    rig_connect(&rig);
    RIG_UNTIL(&rig, rig.ups == 1);
    assert_int_equal(rig.downs, 3);
    assert_non_null(strstr(rig.why, "SCRIPT LOAD of rig: LOADING"));
    struct weir__conn_stats stats;
    weir__conn_stats(rig.conn, &stats);
    assert_int_equal(stats.connects, 1);
    assert_int_equal(stats.scripts_loaded, 1);
    peer_stop(&peer);
    rig_deinit(&rig);
}

static char login_heard[256];

static void note_login(struct peer_client *client, const struct peer_command *command)
{
    for (int i = 0; i < command->argc; i++) {
        strncat(login_heard, command->argv[i], command->len[i]);
        strcat(login_heard, i + 1 < command->argc ? " " : ";");
    }
    peer_answer(client, command);
}

static void test_the_log_in_says_who_and_where(void **state)
{
    (void)state;
    struct rig rig;
    struct peer peer = {.heard = note_login};
    rig_init(&rig, 0);
    peer_listen(&peer, &rig.loop, 0, NULL);
    struct weir__endpoint *endpoint = &rig.config.endpoint;
    endpoint->port = (uint16_t)peer.port;
    endpoint->db = 4294967295u;
    strcpy(endpoint->user, "me");
    strcpy(endpoint->password, "se cret");
    login_heard[0] = '\0';
    rig_up(&rig);
    assert_string_equal(login_heard, "AUTH me se cret;SELECT 4294967295;"
                                     "SCRIPT LOAD return {tonumber(ARGV[2]), 7};");
    peer_stop(&peer);
    rig_deinit(&rig);
}

static void quote_password(struct peer_client *client, const struct peer_command *command)
{
    peer_say(client, peer_is(command, "AUTH")
                         ? "-ERR unknown command 'AUTH', with args beginning with: 'hunter2'\r\n"
                         : "-NOAUTH Authentication required.\r\n");
}

/* A server that has renamed AUTH quotes the password; we do not pass it on. */
static void test_a_password_is_never_told(void **state)
{
    (void)state;
    struct rig rig;
    struct peer peer = {.heard = quote_password};
    rig_init(&rig, 0);
    peer_listen(&peer, &rig.loop, 0, NULL);
    rig.config.endpoint.port = (uint16_t)peer.port;
    strcpy(rig.config.endpoint.password, "hunter2");
    rig_connect(&rig);
    RIG_UNTIL(&rig, rig.downs == 2);
    assert_non_null(strstr(rig.why, "AUTH was answered ERR"));
    assert_null(strstr(rig.why, "hunter2"));
    assert_null(strstr(rig.log, "hunter2"));
    peer_stop(&peer);
    rig_deinit(&rig);
}

static void wrong_sha(struct peer_client *client, const struct peer_command *command)
{
    (void)command;
    peer_say(client, "$40\r\n0000000000000000000000000000000000000000\r\n");
}

static void test_another_sha_is_no_log_in(void **state)
{
    (void)state;
    struct rig rig;
    struct peer peer = {.heard = wrong_sha};
    rig_init(&rig, 0);
    peer_listen(&peer, &rig.loop, 0, NULL);
    rig.config.endpoint.port = (uint16_t)peer.port;
    rig_connect(&rig);
    RIG_UNTIL(&rig, rig.downs == 1);
    assert_non_null(strstr(rig.why, "not the SHA-1"));
    assert_int_equal(rig.ups, 0);
    peer_stop(&peer);
    rig_deinit(&rig);
}

static void say_nothing(struct peer_client *client, const struct peer_command *command)
{
    (void)client;
    (void)command;
}

static void test_a_silent_log_in_ends_in_time(void **state)
{
    (void)state;
    struct rig rig;
    struct peer peer = {.heard = say_nothing};
    rig_init(&rig, 0);
    peer_listen(&peer, &rig.loop, 0, NULL);
    rig.config.endpoint.port = (uint16_t)peer.port;
    rig.config.connect_timeout_ms = 60;
    uint64_t before_ns = uv_hrtime();
    rig_connect(&rig);
    RIG_UNTIL(&rig, rig.downs == 1);
    assert_true(uv_hrtime() - before_ns >= 59 * NS_PER_MS);
    assert_true(uv_hrtime() - before_ns < 200 * NS_PER_MS);
    assert_non_null(strstr(rig.why, "no answer to the log-in in time"));
    peer_stop(&peer);
    rig_deinit(&rig);
}

static void block(uv_timer_t *timer)
{
    (void)timer;
    uint64_t until_ns = uv_hrtime() + 120 * NS_PER_MS;
    while (uv_hrtime() < until_ns) {
    }
}

/* The host blocks its loop right before an attempt begins: the loop's own time is old by then, and
 * the attempt has its whole time-out anyway. */
static void test_a_blocked_loop_shortens_no_attempt(void **state)
{
    (void)state;
    struct rig rig;
    struct peer peer = {0};
    uv_timer_t host;
    rig_init(&rig, 0);
    peer_listen(&peer, &rig.loop, 0, NULL);
    rig.config.endpoint.port = (uint16_t)peer.port;
    rig.config.connect_timeout_ms = 60;
    uv_timer_init(&rig.loop, &host);
    uv_timer_start(&host, block, 0, 0);
    rig_up(&rig);
    assert_int_equal(rig.downs, 0);
    uv_close((uv_handle_t *)&host, NULL);
    peer_stop(&peer);
    rig_deinit(&rig);
}

/* The library is refused memory at each point of an attempt; it says so, and tries again. */
static size_t allocations_until_refusal;

static bool refuse_one(void *arg, size_t size)
{
    (void)arg;
    (void)size;
    return allocations_until_refusal-- == 0;
}

static void test_without_memory_it_tries_again(void **state)
{
    (void)state;
    struct rig rig;
    struct peer peer = {0};
    rig_init(&rig, 0);
    peer_listen(&peer, &rig.loop, 0, NULL);
    rig.config.endpoint.port = (uint16_t)peer.port;
    weir__mem_set_hooks(refuse_one, NULL);
    for (size_t i = 0; i < 2; i++) {
        allocations_until_refusal = i;
        assert_null(weir__conn_new(&rig.loop, &rig.config));
    }
    allocations_until_refusal = 2;
    rig_connect(&rig);
    RIG_UNTIL(&rig, rig.downs == 1);
    assert_non_null(strstr(rig.why, "out of memory"));
    RIG_UNTIL(&rig, rig.ups == 1);
    weir__mem_set_hooks(NULL, NULL);
    peer_stop(&peer);
    rig_deinit(&rig);
}

/* ---- Closing --------------------------------------------------------------------------------- */

static void test_it_closes_before_it_has_begun(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, 1);
    rig_connect(&rig);
    rig_close(&rig);
    assert_false(rig.closed); /* on a later turn */
    rig_deinit(&rig);
    assert_int_equal(rig.ups + rig.downs, 0);
}

/* After each number of turns of the loop, from the first to well after it is up. */
static void test_it_closes_after_any_number_of_turns(void **state)
{
    (void)state;
    bool was_up = false;
    for (int turns = 0; turns < 30; turns++) {
        struct rig rig;
        struct peer peer = {0};
        struct rig_call call = {0};
        rig_init(&rig, 0);
        peer_listen(&peer, &rig.loop, 0, NULL);
        rig.config.endpoint.port = (uint16_t)peer.port;
        rig_connect(&rig);
        for (int i = 0; i < turns; i++) {
            uv_run(&rig.loop, UV_RUN_NOWAIT);
        }
        was_up = weir__conn_is_up(rig.conn);
        rig_call(&rig, &call, 1, 1000);
        rig_close(&rig);
        assert_int_equal(call.answers, 0);
        RIG_UNTIL(&rig, rig.closed);
        assert_int_equal(call.answers, 1);
        assert_int_equal(call.outcome.fate, WEIR__NOT_EXECUTED); /* it was not written yet */
        peer_stop(&peer);
        rig_deinit(&rig);
    }
    assert_true(was_up);
}

static void test_it_closes_during_the_log_in(void **state)
{
    (void)state;
    struct rig rig;
    struct peer peer = {.heard = say_nothing};
    rig_init(&rig, 0);
    peer_listen(&peer, &rig.loop, 0, NULL);
    rig.config.endpoint.port = (uint16_t)peer.port;
    rig_connect(&rig);
    RIG_UNTIL(&rig, peer.loads == 1);
    peer_stop(&peer);
    rig_deinit(&rig);
    assert_int_equal(rig.ups + rig.downs, 0);
}

static void test_it_closes_while_it_waits_to_try_again(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig, 1);
    rig_connect(&rig);
    RIG_UNTIL(&rig, rig.downs == 1);
    rig_deinit(&rig);
    assert_int_equal(rig.downs, 1);
}

/* Once where the log-in has steps, and once where it has none: then `up` follows the connect at
 * once, in whose callback hiredis cannot be freed. */
static void close_from_up(const struct weir__script *const *scripts)
{
    struct rig rig;
    struct peer peer = {0};
    rig_init(&rig, 0);
    peer_listen(&peer, &rig.loop, 0, NULL);
    rig.config.endpoint.port = (uint16_t)peer.port;
    rig.close_on_up = true;
    rig.config.scripts = scripts;
    rig_connect(&rig);
    RIG_UNTIL(&rig, rig.closed);
    assert_int_equal(rig.downs, 0);
    peer_stop(&peer);
    rig_deinit(&rig);
}

static void test_it_closes_from_inside_up(void **state)
{
    (void)state;
    static const struct weir__script *const one[] = {&rig_script, NULL};
    static const struct weir__script *const none[] = {NULL};
    close_from_up(one);
    close_from_up(none);
}

/* Down for a loss, with calls under way, and down for a failed try. */
static void test_it_closes_from_inside_down(void **state)
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
    rig_call(&rig, &call, 1, 1000);
    uv_run(&rig.loop, UV_RUN_NOWAIT);
    rig.close_on_down = true;
    peer_cut(peer.clients[0]);
    RIG_UNTIL(&rig, rig.closed);
    assert_int_equal(call.answers, 1);
    assert_int_equal(call.outcome.fate, WEIR__FATE_UNKNOWN);
    peer_stop(&peer);
    rig_deinit(&rig);

    rig_init(&rig, 1);
    rig.close_on_down = true;
    rig_connect(&rig);
    RIG_UNTIL(&rig, rig.closed);
    assert_int_equal(rig.downs, 1);
    rig_deinit(&rig);
}

/* From inside a done by reply, by deadline, by refusal, and by loss: the other calls are answered
 * too. */
static void close_from_done(bool deaf, bool cut, uint64_t timeout_ms, enum weir__fate fate)
{
    struct rig rig;
    struct peer peer = {0};
    struct rig_call calls[3] = {{.close_on_answer = true}};
    rig_init(&rig, 0);
    peer_listen(&peer, &rig.loop, 0, NULL);
    rig.config.endpoint.port = (uint16_t)peer.port;
    rig_up(&rig);
    if (deaf) {
        peer_deaf(peer.clients[0]);
    }
    for (int i = 0; i < 3; i++) {
        rig_call(&rig, &calls[i], i, i == 0 ? timeout_ms : 1000);
    }
    if (cut) {
        uv_run(&rig.loop, UV_RUN_NOWAIT);
        peer_cut(peer.clients[0]);
    }
    RIG_UNTIL(&rig, rig.closed);
    assert_int_equal(calls[0].outcome.fate, fate);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(calls[i].answers, 1);
    }
    peer_stop(&peer);
    rig_deinit(&rig);
}

static void test_it_closes_from_inside_done(void **state)
{
    (void)state;
    close_from_done(false, false, 1000, WEIR__ANSWERED);
    close_from_done(true, false, 20, WEIR__FATE_UNKNOWN);
    close_from_done(true, false, 0, WEIR__NOT_EXECUTED);
    close_from_done(true, true, 1000, WEIR__FATE_UNKNOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_refused_connection_is_seen_and_tried_again),
        cmocka_unit_test(test_a_missing_socket_is_seen),
        cmocka_unit_test(test_a_loading_store_is_waited_for),
        cmocka_unit_test(test_the_log_in_says_who_and_where),
        cmocka_unit_test(test_a_password_is_never_told),
        cmocka_unit_test(test_another_sha_is_no_log_in),
        cmocka_unit_test(test_a_silent_log_in_ends_in_time),
        cmocka_unit_test(test_a_blocked_loop_shortens_no_attempt),
        cmocka_unit_test(test_without_memory_it_tries_again),
        cmocka_unit_test(test_it_closes_before_it_has_begun),
        cmocka_unit_test(test_it_closes_after_any_number_of_turns),
        cmocka_unit_test(test_it_closes_during_the_log_in),
        cmocka_unit_test(test_it_closes_while_it_waits_to_try_again),
        cmocka_unit_test(test_it_closes_from_inside_up),
        cmocka_unit_test(test_it_closes_from_inside_down),
        cmocka_unit_test(test_it_closes_from_inside_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
