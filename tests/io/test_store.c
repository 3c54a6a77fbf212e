/* SPDX-License-Identifier: MIT */
/*
 * A real redis-server: logging in, losing scripts, restarting.  Each test starts its own, on a
 * socket in a folder of its own; nothing listens on the network.
 */
#include "io/conn.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <hiredis/hiredis.h>

#include "io/rig.h"

#define CALLS 100

struct store {
    char folder[32];
    char path[48];
    pid_t pid;
};

static void store_start(struct store *store)
{
    store->pid = fork();
    assert_true(store->pid >= 0);
    if (store->pid == 0) {
        execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", store->path, "--save",
               "", "--appendonly", "no", "--dir", store->folder, "--logfile", "redis.log",
               (char *)NULL);
        _exit(127);
    }
}

static void store_stop(struct store *store)
{
    int status = 0;
    kill(store->pid, SIGTERM);
    assert_int_equal(waitpid(store->pid, &status, 0), store->pid);
    assert_int_equal(status, 0); /* 127 << 8: there is no redis-server */
}

static void rig_at(struct rig *rig, const struct store *store)
{
    rig_init(rig, 0);
    rig->config.endpoint.host[0] = '\0';
    strcpy(rig->config.endpoint.path, store->path);
}

static int store_setup(void **state)
{
    struct store *store = calloc(1, sizeof(*store));
    strcpy(store->folder, "/tmp/weir-store-XXXXXX");
    if (mkdtemp(store->folder) == NULL) {
        return -1;
    }
    snprintf(store->path, sizeof(store->path), "%s/socket", store->folder);
    store_start(store);
    /* It is up when a connection is; until then the connection tries again. */
    struct rig rig;
    rig_at(&rig, store);
    rig_up(&rig);
    rig_deinit(&rig);
    *state = store;
    return 0;
}

static int store_teardown(void **state)
{
    struct store *store = *state;
    char log[48];
    store_stop(store);
    snprintf(log, sizeof(log), "%s/redis.log", store->folder);
    unlink(log);
    unlink(store->path);
    int status = rmdir(store->folder);
    free(store);
    return status;
}

/* The other way in, which the tests use to arrange things. */
static void store_do(const struct store *store, const char *const *words, int count)
{
    redisContext *context = redisConnectUnix(store->path);
    assert_non_null(context);
    redisReply *reply = redisCommandArgv(context, count, (const char **)(uintptr_t)words, NULL);
    assert_non_null(reply);
    if (reply->type == REDIS_REPLY_ERROR) {
        fail_msg("%s: %s", words[0], reply->str);
    }
    freeReplyObject(reply);
    redisFree(context);
}

#define STORE_DO(store, ...)                                                                       \
    store_do(store, (const char *const[]){__VA_ARGS__},                                            \
             sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static void assert_works(struct rig *rig)
{
    struct rig_call call = {0};
    rig_call(rig, &call, 42, 2000);
    RIG_UNTIL(rig, call.answers == 1);
    if (call.outcome.fate != WEIR__ANSWERED) {
        fail_msg("not answered: %s", call.error);
    }
    assert_int_equal(call.outcome.count, 2);
    assert_int_equal(call.outcome.values[0], 42);
    assert_int_equal(call.outcome.values[1], 7);
}

static void test_a_script_runs(void **state)
{
    struct rig rig;
    rig_at(&rig, *state);
    rig_up(&rig);
    assert_works(&rig);
    rig_deinit(&rig);
}

static void test_a_flushed_script_is_loaded_again(void **state)
{
    struct rig rig;
    static struct rig_call calls[CALLS];
    memset(calls, 0, sizeof(calls));
    rig_at(&rig, *state);
    rig_up(&rig);
    STORE_DO(*state, "SCRIPT", "FLUSH");
    for (int i = 0; i < CALLS; i++) {
        rig_call(&rig, &calls[i], i, 2000);
    }
    for (int i = 0; i < CALLS; i++) {
        RIG_UNTIL(&rig, calls[i].answers == 1);
        assert_int_equal(calls[i].outcome.fate, WEIR__ANSWERED);
        assert_int_equal(calls[i].outcome.values[0], i);
    }
    struct weir__conn_stats stats;
    weir__conn_stats(rig.conn, &stats);
    assert_int_equal(stats.scripts_loaded, 2);
    rig_deinit(&rig);
}

static void test_it_returns_after_a_restart(void **state)
{
    struct rig rig;
    rig_at(&rig, *state);
    rig_up(&rig);
    assert_works(&rig);
    store_stop(*state);
    RIG_UNTIL(&rig, rig.downs == 1);
    store_start(*state);
    uint64_t before_ns = uv_hrtime();
    RIG_UNTIL(&rig, rig.ups == 2);
    assert_true(uv_hrtime() - before_ns < UINT64_C(2000000000));
    assert_works(&rig);
    rig_deinit(&rig);
}

static void test_a_password(void **state)
{
    struct rig rig;
    STORE_DO(*state, "CONFIG", "SET", "requirepass", "right horse");

    rig_at(&rig, *state);
    rig_connect(&rig);
    RIG_UNTIL(&rig, rig.downs == 1);
    assert_non_null(strstr(rig.why, "NOAUTH"));
    rig_deinit(&rig);

    rig_at(&rig, *state);
    strcpy(rig.config.endpoint.password, "wrong horse");
    rig_connect(&rig);
    RIG_UNTIL(&rig, rig.downs == 2);
    assert_non_null(strstr(rig.why, "AUTH was answered WRONGPASS"));
    assert_null(strstr(rig.log, "horse"));
    rig_deinit(&rig);

    rig_at(&rig, *state);
    strcpy(rig.config.endpoint.password, "right horse");
    rig_up(&rig);
    assert_works(&rig);
    rig_deinit(&rig);
}

/* A user with the least rights: what the log-in and a script need, and one database. */
static void test_a_user_and_a_database(void **state)
{
    struct rig rig;
    STORE_DO(*state, "ACL", "SETUSER", "weir", "on", ">secret", "~*", "+evalsha", "+script|load",
             "+select");
    rig_at(&rig, *state);
    strcpy(rig.config.endpoint.user, "weir");
    strcpy(rig.config.endpoint.password, "secret");
    rig.config.endpoint.db = 3;
    rig_up(&rig);
    assert_works(&rig);
    /* Rights taken away while it is up: the call is refused, and that is no loss of the
     * connection. */
    struct rig_call call = {0};
    STORE_DO(*state, "ACL", "SETUSER", "weir", "-evalsha");
    rig_call(&rig, &call, 1, 2000);
    RIG_UNTIL(&rig, call.answers == 1);
    assert_int_equal(call.outcome.fate, WEIR__REFUSED);
    assert_non_null(strstr(call.error, "NOPERM"));
    assert_true(weir__conn_is_up(rig.conn));
    rig_deinit(&rig);

    rig_at(&rig, *state);
    rig.config.endpoint.db = 999;
    rig_connect(&rig);
    RIG_UNTIL(&rig, rig.downs == 1);
    assert_non_null(strstr(rig.why, "SELECT: ERR DB index is out of range"));
    rig_deinit(&rig);
}

/* Someone's endless script: BUSY while it runs, service after. */
static void test_a_busy_store(void **state)
{
    static const char endless[] = "while true do end";
    struct rig rig;
    struct rig_call call = {0};
    struct store *store = *state;
    rig_at(&rig, store);
    rig_up(&rig);
    STORE_DO(store, "CONFIG", "SET", "lua-time-limit", "20");
    redisContext *other = redisConnectUnix(store->path);
    assert_int_equal(redisAppendCommand(other, "EVAL %s 0", endless), REDIS_OK);
    int done = 0;
    while (!done) {
        assert_int_equal(redisBufferWrite(other, &done), REDIS_OK);
    }
    do {
        call.answers = 0;
        rig_call(&rig, &call, 1, 2000);
        RIG_UNTIL(&rig, call.answers == 1);
    } while (call.outcome.fate == WEIR__ANSWERED); /* it has not begun yet */
    assert_int_equal(call.outcome.fate, WEIR__NOT_EXECUTED);
    assert_non_null(strstr(call.error, "BUSY"));
    STORE_DO(store, "SCRIPT", "KILL");
    do {
        call.answers = 0;
        rig_call(&rig, &call, 42, 2000);
        RIG_UNTIL(&rig, call.answers == 1);
        assert_true(call.outcome.fate == WEIR__ANSWERED || strstr(call.error, "BUSY") != NULL);
    } while (call.outcome.fate != WEIR__ANSWERED); /* it dies at its next instruction count */
    assert_int_equal(call.outcome.values[0], 42);
    assert_int_equal(rig.downs, 0);
    redisFree(other);
    rig_deinit(&rig);
}

/* The server becomes a replica under our feet, and a master again. */
static void test_a_demoted_master_is_left(void **state)
{
    static const char source[] = "return redis.call('SET', KEYS[1], 1) and {1}";
    static const struct weir__script writing = {.name = "writing",
                                                .source = source,
                                                .source_len = sizeof(source) - 1,
                                                .sha1 = "727a125b9f5670b9eaf328dac0d5ccd441d33b19"};
    static const struct weir__script *const scripts[] = {&rig_script, &writing, NULL};
    struct rig rig;
    struct rig_call call = {0};
    rig_at(&rig, *state);
    rig.config.scripts = scripts;
    rig_up(&rig);
    STORE_DO(*state, "REPLICAOF", "127.0.0.1", "1");
    rig_call(&rig, &call, 1, 2000);
    RIG_UNTIL(&rig, call.answers == 1); /* one that only reads */
    assert_int_equal(call.outcome.fate, WEIR__ANSWERED);
    call.answers = 0;
    call.call.script = &writing;
    call.call.deadline_ns = uv_hrtime() + UINT64_C(2000000000);
    weir__conn_call(rig.conn, &call.call);
    RIG_UNTIL(&rig, call.answers == 1 && rig.downs == 1);
    assert_int_equal(call.outcome.fate, WEIR__NOT_EXECUTED);
    assert_non_null(strstr(rig.why, "READONLY"));
    STORE_DO(*state, "REPLICAOF", "NO", "ONE");
    RIG_UNTIL(&rig, rig.ups == 2);
    call.answers = 0;
    weir__conn_call(rig.conn, &call.call);
    RIG_UNTIL(&rig, call.answers == 1);
    assert_int_equal(call.outcome.fate, WEIR__ANSWERED);
    rig_deinit(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_script_runs, store_setup, store_teardown),
        cmocka_unit_test_setup_teardown(test_a_flushed_script_is_loaded_again, store_setup,
                                        store_teardown),
        cmocka_unit_test_setup_teardown(test_it_returns_after_a_restart, store_setup,
                                        store_teardown),
        cmocka_unit_test_setup_teardown(test_a_password, store_setup, store_teardown),
        cmocka_unit_test_setup_teardown(test_a_user_and_a_database, store_setup, store_teardown),
        cmocka_unit_test_setup_teardown(test_a_busy_store, store_setup, store_teardown),
        cmocka_unit_test_setup_teardown(test_a_demoted_master_is_left, store_setup, store_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
