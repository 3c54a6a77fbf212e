/* SPDX-License-Identifier: MIT */
/*
 * Opening and closing: at each state of the store and of the callers, on a loop of one's own and
 * on a borrowed one; what handles say afterwards; and that nothing is left, no descriptor, no
 * thread, no handle on the host's loop.
 */
#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <uv.h>

#include "api/setup.h"
#include "script/server.h"

extern char **environ;

static char *program; /* this one */

static unsigned entries_of(const char *folder)
{
    unsigned count = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    while (readdir(dir) != NULL) {
        count++;
    }
    closedir(dir);
    return count;
}

static unsigned descriptors(void) { return entries_of("/proc/self/fd"); }
static unsigned threads(void) { return entries_of("/proc/self/task"); }

/* ---- Every state ----------------------------------------------------------------------------- */

/* A socket on which somebody listens and nobody answers. */
struct deaf {
    char path[48];
    int fd;
};

static void deaf_open(struct deaf *deaf)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(deaf->path, sizeof(deaf->path), "/tmp/weir-deaf-%d", (int)getpid());
    strcpy(address.sun_path, deaf->path);
    deaf->fd = socket(AF_UNIX, SOCK_STREAM, 0);
    unlink(deaf->path);
    assert_int_equal(bind(deaf->fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(deaf->fd, 8), 0);
}

static void deaf_close(struct deaf *deaf)
{
    close(deaf->fd);
    unlink(deaf->path);
}

enum where { NOWHERE, AT_DEAF, AT_STORE, WITH_LEASE, WITH_WAITERS, IN_FLIGHT, INPROCESS, STATES };

/* One weir in one state, on a loop of its own or on a borrowed one. */
struct scene {
    enum where where;
    bool borrowed;
    uv_loop_t loop;
    struct deaf deaf;
    struct weir *weir;
    struct weir_bucket *bucket;
    struct answer answers[3];
    unsigned pending;
    unsigned closed; /* atomic */
};

/* Lets the loop run, if it is ours to run. */
static void turn(struct scene *scene)
{
    if (scene->borrowed) {
        uv_run(&scene->loop, UV_RUN_NOWAIT);
    }
}

#define SCENE_UNTIL(scene, condition) UNTIL((turn(scene), (condition)))

static void scene_open(struct scene *scene)
{
    char url[128] = "unix:///nonexistent/weir/socket";
    struct weir_options options;
    if (scene->where == AT_DEAF) {
        deaf_open(&scene->deaf);
        snprintf(url, sizeof(url), "unix://%s", scene->deaf.path);
    } else if (scene->where != NOWHERE) {
        url_of(server, url);
    }
    options = store_options(url);
    options.ask_timeout_ms = 200; /* what closing may take at most */
    if (scene->where == INPROCESS) {
        options.url = NULL;
    }
    if (scene->borrowed) {
        assert_int_equal(uv_loop_init(&scene->loop), 0);
        options.loop = &scene->loop;
    }
    scene->weir = open_with(&options);
}

static void scene_reach(struct scene *scene)
{
    uint64_t budget = scene->where == WITH_LEASE ? 500 : 0;
    struct weir_limit_options rule = limit_options("limit", 1000, SECOND, 1000, budget);
    rule.outage = WEIR_OUTAGE_CLOSED;
    scene->bucket = get(define_with(scene->weir, &rule), "key");
    if (scene->where == NOWHERE || scene->where == AT_DEAF) {
        (void)weir_try_acquire(scene->bucket, 1, NULL);
        turn(scene);
        return;
    }
    if (scene->where != INPROCESS) {
        SCENE_UNTIL(scene, stats_of(scene->weir).store_state == WEIR_STORE_UP);
    }
    if (scene->where == WITH_LEASE) {
        SCENE_UNTIL(scene, weir_try_acquire(scene->bucket, 1, NULL) == WEIR_ALLOWED);
    } else if (scene->where == WITH_WAITERS || scene->where == IN_FLIGHT ||
               scene->where == INPROCESS) {
        bool silent = scene->where == IN_FLIGHT;
        rule = limit_options("slow", 10, HOUR, 100, 0);
        rule.initial_tokens = 0;
        rule.max_wait_ms = 0;
        weir_bucket_unref(scene->bucket);
        scene->bucket = get(define_with(scene->weir, &rule), "key");
        if (silent) {
            kill(server->pid, SIGSTOP);
        }
        for (int i = 0; i < 3; i++) {
            scene->pending += ask(&scene->answers[i], scene->bucket, 1, HOUR, NULL) == WEIR_PENDING;
        }
        assert_int_equal(scene->pending, 3);
        SCENE_UNTIL(scene, !silent || stats_of(scene->weir).asks > 0);
    }
}

static void on_closed(void *arg)
{
    struct scene *scene = arg;
    __atomic_add_fetch(&scene->closed, 1, __ATOMIC_RELEASE);
}

static unsigned closed(const struct scene *scene)
{
    return __atomic_load_n(&scene->closed, __ATOMIC_ACQUIRE);
}

static void *close_elsewhere(void *arg)
{
    struct scene *scene = arg;
    assert_int_equal(weir_close(scene->weir, on_closed, scene), WEIR_OK);
    return NULL;
}

/* `wait`: what who would block is told. */
static void assert_shut(struct weir_bucket *bucket, int wait)
{
    struct weir_result result;
    struct answer answer;
    assert_int_equal(weir_try_acquire(bucket, 1, &result), WEIR_ECLOSED);
    assert_int_equal(weir_try_acquire(bucket, 1, NULL), WEIR_ECLOSED);
    assert_int_equal(weir_try_acquire(bucket, 0, NULL), WEIR_ECLOSED);
    assert_int_equal(weir_try_acquire(bucket, UINT64_MAX, NULL), WEIR_ECLOSED);
    assert_int_equal(ask(&answer, bucket, 1, SECOND, NULL), WEIR_ECLOSED);
    assert_int_equal(weir_acquire_wait(bucket, 1, SECOND, NULL), wait);
    assert_int_equal(weir_refund(bucket, 1), WEIR_ECLOSED);
    assert_int_equal(weir_peek(bucket, &result), WEIR_ECLOSED);
    assert_false(answered(&answer));
}

static void close_at(enum where where, bool borrowed, bool from_elsewhere)
{
    struct scene scene = {.where = where, .borrowed = borrowed};
    unsigned fds = descriptors();
    unsigned tasks = threads();
    scene_open(&scene);
    scene_reach(&scene);

    int64_t from_us = real_us();
    pthread_t thread;
    if (from_elsewhere) {
        assert_int_equal(pthread_create(&thread, NULL, close_elsewhere, &scene), 0);
        pthread_join(thread, NULL);
    } else {
        close_elsewhere(&scene);
    }
    /* What was leased may be spent until the loop has given it back. */
    int verdict = weir_try_acquire(scene.bucket, 1, NULL);
    assert_true(verdict == WEIR_ECLOSED || (verdict == WEIR_ALLOWED && where == WITH_LEASE));
    assert_int_equal(weir_close(scene.weir, on_closed, &scene), WEIR_ECLOSED);
    SCENE_UNTIL(&scene, closed(&scene) == 1);
    assert_true(real_us() - from_us < 3 * SECOND);
    for (unsigned i = 0; i < scene.pending; i++) {
        assert_true(answered(&scene.answers[i]));
        assert_int_equal(scene.answers[i].result.verdict, WEIR_UNAVAILABLE);
        assert_int_equal(scene.answers[i].result.reason, WEIR_CLOSED);
        assert_true(scene.answers[i].at_us >= from_us);
    }
    if (where == IN_FLIGHT) {
        kill(server->pid, SIGCONT);
    }
    assert_shut(scene.bucket, borrowed ? WEIR_ETHREAD : WEIR_ECLOSED);
    if (borrowed) {
        assert_int_equal(uv_loop_alive(&scene.loop), 0);
        assert_int_equal(uv_loop_close(&scene.loop), 0);
    }
    weir_bucket_unref(scene.bucket); /* the last owner frees what is left */
    if (where == AT_DEAF) {
        deaf_close(&scene.deaf);
    }
    UNTIL(threads() == tasks);
    UNTIL(descriptors() == fds);
    assert_int_equal(closed(&scene), 1);
}

static void closing_at_each_state(void **state)
{
    (void)state;
    /* Once, for what a process makes only at its first weir. */
    assert_int_equal(weir_close_wait(open_store(server)), WEIR_OK);
    for (int where = 0; where < STATES; where++) {
        close_at((enum where)where, false, false);
        close_at((enum where)where, false, true);
    }
}

static void closing_at_each_state_on_a_borrowed_loop(void **state)
{
    (void)state;
    for (int where = 0; where < STATES; where++) {
        close_at((enum where)where, true, false);
    }
}

static void closing_without_a_turn_of_the_loop(void **state)
{
    (void)state;
    for (int where = 0; where < 3; where++) {
        struct scene scene = {.where = (enum where)where, .borrowed = true};
        scene_open(&scene);
        assert_int_equal(weir_close(scene.weir, NULL, NULL), WEIR_OK);
        assert_int_equal(uv_run(&scene.loop, UV_RUN_DEFAULT), 0); /* ends by itself */
        assert_int_equal(uv_loop_close(&scene.loop), 0);
        if (where == AT_DEAF) {
            deaf_close(&scene.deaf);
        }
    }
}

/* ---- Twice, and from inside ------------------------------------------------------------------ */

static void a_borrowed_loop_cannot_be_waited_for(void **state)
{
    (void)state;
    struct scene scene = {.where = AT_STORE, .borrowed = true};
    scene_open(&scene);
    scene_reach(&scene);
    assert_int_equal(weir_close_wait(scene.weir), WEIR_ETHREAD);
    assert_int_equal(weir_acquire_wait(scene.bucket, 1, 0, NULL), WEIR_ETHREAD);
    close_elsewhere(&scene);
    assert_int_equal(weir_close_wait(scene.weir), WEIR_ETHREAD);
    SCENE_UNTIL(&scene, closed(&scene) == 1);
    assert_int_equal(uv_loop_close(&scene.loop), 0);
    weir_bucket_unref(scene.bucket);
}

struct insider {
    struct scene *scene;
    int close, close_again, try, get;
    unsigned done; /* atomic */
};

static void close_inside(void *arg, const struct weir_result *result)
{
    struct insider *insider = arg;
    struct scene *scene = insider->scene;
    (void)result;
    insider->close = weir_close(scene->weir, on_closed, scene);
    insider->close_again = weir_close(scene->weir, on_closed, scene);
    insider->try = weir_try_acquire(scene->bucket, 1, NULL);
    __atomic_store_n(&insider->done, 1, __ATOMIC_RELEASE);
}

static void closing_inside_a_callback(void **state)
{
    (void)state;
    const enum where places[] = {AT_STORE, INPROCESS};
    for (int i = 0; i < 4; i++) {
        struct scene scene = {.where = places[i / 2], .borrowed = i % 2 == 1};
        struct insider insider = {.scene = &scene};
        scene_open(&scene);
        struct weir_limit_options rule = limit_options("limit", 200, SECOND, 10, 0);
        rule.initial_tokens = 0;
        scene.bucket = get(define_with(scene.weir, &rule), "inside");
        assert_int_equal(weir_acquire(scene.bucket, 1, SECOND, close_inside, &insider, NULL),
                         WEIR_PENDING);
        for (int n = 0; n < 3; n++) { /* others, who are still in line when it closes */
            scene.pending += ask(&scene.answers[n], scene.bucket, 9, SECOND, NULL) == WEIR_PENDING;
        }
        SCENE_UNTIL(&scene, closed(&scene) == 1);
        assert_int_equal(__atomic_load_n(&insider.done, __ATOMIC_ACQUIRE), 1);
        assert_int_equal(insider.close, WEIR_OK);
        assert_int_equal(insider.close_again, WEIR_ECLOSED);
        assert_int_equal(insider.try, WEIR_ECLOSED);
        for (unsigned n = 0; n < scene.pending; n++) {
            assert_true(answered(&scene.answers[n]));
        }
        if (scene.borrowed) {
            assert_int_equal(uv_loop_close(&scene.loop), 0);
        }
        weir_bucket_unref(scene.bucket);
    }
}

/* What a waiter that is told CLOSED tries at once. */
static void ask_again(void *arg, const struct weir_result *result)
{
    struct insider *insider = arg;
    insider->close = (int)result->reason;
    insider->try = weir_acquire(insider->scene->bucket, 1, SECOND, ask_again, arg, NULL);
    insider->get = weir_refund(insider->scene->bucket, 1);
    __atomic_store_n(&insider->done, 1, __ATOMIC_RELEASE);
}

static void a_waiter_that_is_told_cannot_come_again(void **state)
{
    (void)state;
    struct scene scene = {.where = AT_STORE};
    struct insider insider = {.scene = &scene};
    scene_open(&scene);
    struct weir_limit_options rule = limit_options("again", 1, HOUR, 10, 0);
    rule.initial_tokens = 0;
    rule.max_wait_ms = 0;
    scene.bucket = get(define_with(scene.weir, &rule), "key");
    assert_int_equal(weir_acquire(scene.bucket, 1, HOUR, ask_again, &insider, NULL), WEIR_PENDING);
    close_elsewhere(&scene);
    SCENE_UNTIL(&scene, closed(&scene) == 1);
    assert_int_equal(__atomic_load_n(&insider.done, __ATOMIC_ACQUIRE), 1);
    assert_int_equal(insider.close, WEIR_CLOSED);
    assert_int_equal(insider.try, WEIR_ECLOSED);
    assert_int_equal(insider.get, WEIR_ECLOSED);
    weir_bucket_unref(scene.bucket);
}

/* ---- Handles --------------------------------------------------------------------------------- */

static void handles_outlive_their_weir(void **state)
{
    (void)state;
    for (int remote = 0; remote < 2; remote++) {
        weir = remote ? open_store(server) : open_inprocess(NULL);
        struct weir_limit *limit = define(weir, "limit", 1000, SECOND, 1000, 100);
        struct weir_bucket *a = get(limit, "a");
        struct weir_bucket *b = get(limit, "b");
        UNTIL(weir_try_acquire(a, 1, NULL) == WEIR_ALLOWED); /* and a lease is here */
        assert_ptr_equal(weir_bucket_ref(a), a);
        assert_int_equal(weir_close_wait(weir), WEIR_OK);
        assert_shut(a, WEIR_ECLOSED);
        assert_shut(b, WEIR_ECLOSED);
        weir_bucket_unref(b);
        weir_bucket_unref(a);
        assert_shut(a, WEIR_ECLOSED);
        weir_bucket_unref(a);
    }
}

static void calls_after_the_closing_began(void **state)
{
    (void)state;
    struct scene scene = {.where = IN_FLIGHT};
    scene_open(&scene);
    scene_reach(&scene);
    struct weir_limit *limit = define(scene.weir, "last", 1, SECOND, 1, 0);
    close_elsewhere(&scene); /* the store is stopped: this takes a while */
    struct weir_limit *late = NULL;
    struct weir_bucket *bucket = NULL;
    struct weir_error error;
    struct weir_limit_options rule = limit_options("late", 1, SECOND, 1, 0);
    assert_int_equal(weir_limit_define(scene.weir, &late, &rule, &error), WEIR_ECLOSED);
    assert_int_equal(error.code, WEIR_ECLOSED);
    assert_int_equal(weir_limit_update(limit, &rule, NULL), WEIR_ECLOSED);
    assert_int_equal(weir_bucket_get(limit, "key", 3, &bucket), WEIR_ECLOSED);
    assert_int_equal(weir_try_acquire_key(limit, "key", 3, 1, NULL), WEIR_ECLOSED);
    assert_int_equal(weir_close_wait(scene.weir), WEIR_ECLOSED);
    assert_null(late);
    assert_null(bucket);
    kill(server->pid, SIGCONT);
    SCENE_UNTIL(&scene, closed(&scene) == 1);
    weir_bucket_unref(scene.bucket);
}

/* ---- Many ------------------------------------------------------------------------------------ */

static void two_in_one_process(void **state)
{
    (void)state;
    struct weir *remote = open_store(server);
    struct weir *local = open_inprocess(NULL);
    struct weir_bucket *far = get(define(remote, "limit", 1, HOUR, 3, 0), "two");
    struct weir_bucket *near = get(define(local, "limit", 1, HOUR, 2, 0), "two");
    for (int i = 0; i < 4; i++) {
        assert_int_equal(weir_acquire_wait(far, 1, 0, NULL), i < 3 ? WEIR_ALLOWED : WEIR_DENIED);
        assert_int_equal(weir_acquire_wait(near, 1, 0, NULL), i < 2 ? WEIR_ALLOWED : WEIR_DENIED);
    }
    assert_int_equal(weir_close_wait(remote), WEIR_OK);
    assert_int_equal(weir_acquire_wait(far, 1, 0, NULL), WEIR_ECLOSED);
    assert_int_equal(weir_acquire_wait(near, 1, 0, NULL), WEIR_DENIED);
    assert_int_equal(weir_close_wait(local), WEIR_OK);
    weir_bucket_unref(far);
    weir_bucket_unref(near);
}

/* Nobody else asks for the tokens of an in-process store: who waits gets its own when it is due. */
static void waiting_in_process_with_a_budget(void **state)
{
    (void)state;
    weir = open_inprocess(NULL);
    struct weir_bucket *bucket = get(define(weir, "limit", 100, SECOND, 100, 50), "key");
    assert_int_equal(weir_acquire_wait(bucket, 100, 0, NULL), WEIR_ALLOWED);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(weir_acquire_wait(bucket, 1, SECOND / 2, NULL), WEIR_ALLOWED);
    }
    assert_int_equal(weir_close_wait(weir), WEIR_OK);
    weir_bucket_unref(bucket);
}

/* With a long ask timeout windows are long, and a store that answers is still believed. */
static void the_longest_ask_timeout(void **state)
{
    (void)state;
    char url[128];
    url_of(server, url);
    struct weir_options options = store_options(url);
    options.ask_timeout_ms = 60000;
    weir = open_with(&options);
    struct weir_bucket *bucket = get(define(weir, "patient", 1000, SECOND, 1000, 100), "key");
    assert_int_equal(weir_acquire_wait(bucket, 1, 0, NULL), WEIR_ALLOWED);
    UNTIL(weir_try_acquire(bucket, 1, NULL) == WEIR_ALLOWED);
    assert_int_equal(stats_of(weir).asks_lost, 0);
    assert_int_equal(weir_close_wait(weir), WEIR_OK);
    weir_bucket_unref(bucket);
}

static void two_hundred_leave_nothing(void **state)
{
    (void)state;
    char url[128];
    url_of(server, url);
    unsigned fds = descriptors();
    unsigned tasks = threads();
    for (int i = 0; i < 200; i++) {
        struct weir_options options = store_options(i % 4 == 3 ? NULL : url);
        options.max_asks = 4;
        weir = open_with(&options);
        if (i % 4 != 0) {
            (void)define(weir, "limit", 1, SECOND, 1, 0);
        }
        if (i % 4 == 2) {
            UNTIL(stats_of(weir).store_state == WEIR_STORE_UP);
        }
        assert_int_equal(weir_close_wait(weir), WEIR_OK);
    }
    UNTIL(threads() == tasks);
    assert_int_equal(descriptors(), fds);
}

/* A program that ends without closing: it just ends. */
static int leave(const char *url)
{
    struct weir_options options = store_options(url);
    weir = open_with(&options);
    static struct weir_bucket *bucket;
    bucket = get(define(weir, "limit", 1000, SECOND, 1000, 100), "leave");
    struct answer *answer = calloc(1, sizeof(*answer));
    UNTIL(weir_try_acquire(bucket, 1, NULL) == WEIR_ALLOWED);
    (void)ask(answer, bucket, 900, SECOND, NULL);
    exit(0);
}

static void ending_without_closing(void **state)
{
    (void)state;
    char url[128], word[] = "leave";
    url_of(server, url);
    char *argv[] = {program, word, url, NULL};
    pid_t child;
    int status;
    assert_int_equal(posix_spawn(&child, program, NULL, NULL, argv, environ), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(int argc, char **argv)
{
    program = argv[0];
    if (argc == 3 && strcmp(argv[1], "leave") == 0) {
        return leave(argv[2]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closing_at_each_state),
        cmocka_unit_test(closing_at_each_state_on_a_borrowed_loop),
        cmocka_unit_test(closing_without_a_turn_of_the_loop),
        cmocka_unit_test(a_borrowed_loop_cannot_be_waited_for),
        cmocka_unit_test(closing_inside_a_callback),
        cmocka_unit_test(a_waiter_that_is_told_cannot_come_again),
        cmocka_unit_test(handles_outlive_their_weir),
        cmocka_unit_test(calls_after_the_closing_began),
        cmocka_unit_test(two_in_one_process),
        cmocka_unit_test(waiting_in_process_with_a_budget),
        cmocka_unit_test(the_longest_ask_timeout),
        cmocka_unit_test(two_hundred_leave_nothing),
        cmocka_unit_test(ending_without_closing),
    };
    return cmocka_run_group_tests(tests, start_store, stop_store);
}
