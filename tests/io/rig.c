/* SPDX-License-Identifier: MIT */
/* What every test of a connection needs; see rig.h. */
#include "io/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define NS_PER_MS UINT64_C(1000000)
#define TICK_MS 10

#define SOURCE "return {tonumber(ARGV[2]), 7}"
const struct weir__script rig_script = {.name = "rig",
                                        .source = SOURCE,
                                        .source_len = sizeof(SOURCE) - 1,
                                        .sha1 = "02ecaccf6b84cca2cce07251d42a91ac5b0c2cee"};

static const struct weir__script *const scripts[] = {&rig_script, NULL};

static void on_tick(uv_timer_t *tick)
{
    struct rig *rig = tick->data;
    uint64_t now_ns = uv_hrtime();
    if (now_ns - rig->ticked_ns > rig->largest_gap_ns) {
        rig->largest_gap_ns = now_ns - rig->ticked_ns;
    }
    rig->ticked_ns = now_ns;
}

static void on_conn_closed(void *arg)
{
    struct rig *rig = arg;
    assert_false(rig->closed);
    rig->closed = true;
    rig->conn = NULL;
}

void rig_close(struct rig *rig)
{
    rig->closing = true;
    weir__conn_close(rig->conn, on_conn_closed, rig);
}

static void on_up(void *arg)
{
    struct rig *rig = arg;
    assert_true(weir__conn_is_up(rig->conn));
    rig->ups++;
    if (rig->close_on_up) {
        rig_close(rig);
    }
}

static void on_down(void *arg, const char *why)
{
    struct rig *rig = arg;
    assert_false(weir__conn_is_up(rig->conn));
    rig->downs++;
    snprintf(rig->why, sizeof(rig->why), "%s", why);
    if (rig->close_on_down) {
        rig_close(rig);
    }
}

static void on_log(void *arg, int level, const char *text)
{
    struct rig *rig = arg;
    (void)level;
    rig->logs++;
    strncat(rig->log, text, sizeof(rig->log) - strlen(rig->log) - 1);
    strncat(rig->log, "\n", sizeof(rig->log) - strlen(rig->log) - 1);
}

void rig_init(struct rig *rig, int port)
{
    *rig = (struct rig){.config = {.endpoint = {.host = "127.0.0.1", .port = (uint16_t)port},
                                   .connect_timeout_ms = 1000,
                                   .silence_ms = 2000,
                                   .max_calls = 1024,
                                   .seed = 1,
                                   .scripts = scripts,
                                   .up = on_up,
                                   .down = on_down,
                                   .log = on_log,
                                   .arg = rig}};
    assert_int_equal(uv_loop_init(&rig->loop), 0);
    uv_timer_init(&rig->loop, &rig->tick);
    rig->tick.data = rig;
    rig->ticked_ns = uv_hrtime();
    uv_timer_start(&rig->tick, on_tick, TICK_MS, TICK_MS);
}

void rig_connect(struct rig *rig)
{
    rig->conn = weir__conn_new(&rig->loop, &rig->config);
    assert_non_null(rig->conn);
    assert_int_equal(rig->ups + rig->downs, 0);
}

void rig_up(struct rig *rig)
{
    rig_connect(rig);
    RIG_UNTIL(rig, rig->ups == 1);
}

void rig_deinit(struct rig *rig)
{
    if (rig->conn != NULL) {
        if (!rig->closing) {
            rig_close(rig);
        }
        RIG_UNTIL(rig, rig->closed);
    }
    uv_close((uv_handle_t *)&rig->tick, NULL);
    /* Ends by itself only if nothing is active any more. */
    assert_int_equal(uv_run(&rig->loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&rig->loop), 0);
}

static void on_done(struct weir__call *call, const struct weir__outcome *outcome)
{
    struct rig_call *of = (struct rig_call *)(void *)call;
    if (of->free_on_answer) {
        free(of);
        return;
    }
    assert_non_null(of->rig);
    of->answers++;
    of->answered_ns = uv_hrtime();
    of->outcome = *outcome;
    of->outcome.error = NULL;
    snprintf(of->error, sizeof(of->error), "%s", outcome->error != NULL ? outcome->error : "");
    if (of->close_on_answer) {
        rig_close(of->rig);
    }
}

void rig_call(struct rig *rig, struct rig_call *call, int number, uint64_t timeout_ms)
{
    static const char key[] = "key\0with\r\nall";
    unsigned before = call->answers;
    int len = snprintf(call->number, sizeof(call->number), "%d", number);
    call->called_ns = uv_hrtime();
    call->call = (struct weir__call){.script = &rig_script,
                                     .key = key,
                                     .key_len = sizeof(key) - 1,
                                     .argv = {"\0\r\n$", call->number},
                                     .argv_len = {4, (size_t)len},
                                     .deadline_ns = call->called_ns + timeout_ms * NS_PER_MS,
                                     .done = on_done};
    /* Set last, so that an answer from inside the call is noticed. */
    call->rig = NULL;
    weir__conn_call(rig->conn, &call->call);
    call->rig = rig;
    assert_int_equal(call->answers, before);
}
