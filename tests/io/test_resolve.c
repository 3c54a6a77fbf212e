/* SPDX-License-Identifier: MIT */
/*
 * Names: the loop goes on while one is resolved, each attempt asks anew, and each address gets its
 * turn.
 *
 * This program has a getaddrinfo of its own, which libuv finds before the system's.  It knows a
 * few names, and can be made to hang.  The system's sees what is numeric.
 */
#include "io/conn.h"

#include <dlfcn.h>
#include <netdb.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/atomic.h"
#include "io/peer.h"
#include "io/rig.h"

#define NS_PER_MS UINT64_C(1000000)

/* Written by the test before it connects, read by threads of libuv's pool. */
static bool hanging;
static uv_sem_t release;
static const char *addresses[2];
static unsigned asked;       /* any thread */
static unsigned hanging_now; /* any thread */

typedef int getaddrinfo_fn(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *restrict host, const char *restrict service,
                const struct addrinfo *restrict hints, struct addrinfo **restrict found)
{
    getaddrinfo_fn *system_one;
    *(void **)&system_one = dlsym(RTLD_NEXT, "getaddrinfo");
    if (host == NULL || strcmp(host, "store.test") != 0) {
        return system_one(host, service, hints, found);
    }
    weir__add_relaxed(&asked, 1);
    if (weir__load_relaxed(&hanging)) {
        weir__add_relaxed(&hanging_now, 1);
        uv_sem_wait(&release);
    }
    if (addresses[0] == NULL) {
        return EAI_NONAME;
    }
    int status = system_one(addresses[0], service, hints, found);
    if (status == 0 && addresses[1] != NULL) {
        status = system_one(addresses[1], service, hints, &(*found)->ai_next);
    }
    return status;
}

static void begin(struct rig *rig, struct peer *peer, const char *first, const char *second)
{
    hanging = false;
    asked = hanging_now = 0;
    addresses[0] = first;
    addresses[1] = second;
    *peer = (struct peer){0};
    rig_init(rig, 0);
    peer_listen(peer, &rig->loop, 0, NULL);
    rig->config.endpoint.port = (uint16_t)peer->port;
    strcpy(rig->config.endpoint.host, "store.test");
}

static void test_a_name_is_resolved(void **state)
{
    (void)state;
    struct rig rig;
    struct peer peer;
    begin(&rig, &peer, "127.0.0.1", NULL);
    rig_up(&rig);
    assert_int_equal(asked, 1);
    peer_stop(&peer);
    rig_deinit(&rig);
}

static void test_the_next_address_is_tried(void **state)
{
    (void)state;
    struct rig rig;
    struct peer peer;
    begin(&rig, &peer, "127.0.0.2", "127.0.0.1"); /* nobody listens on the first */
    rig_up(&rig);
    assert_int_equal(rig.downs, 0);
    assert_int_equal(asked, 1);
    peer_stop(&peer);
    rig_deinit(&rig);
}

static void on_nobody(uv_stream_t *listener, int status)
{
    (void)listener;
    (void)status;
}

/* The first address accepts and says nothing: it may take its share of the time, and not all of
 * it. */
static void test_a_silent_address_leaves_time_for_the_next(void **state)
{
    (void)state;
    struct rig rig;
    struct peer peer;
    uv_tcp_t mute;
    struct sockaddr_in address;
    begin(&rig, &peer, "127.0.0.2", "127.0.0.1");
    uv_tcp_init(&rig.loop, &mute);
    uv_ip4_addr("127.0.0.2", peer.port, &address);
    assert_int_equal(uv_tcp_bind(&mute, (const struct sockaddr *)&address, 0), 0);
    assert_int_equal(uv_listen((uv_stream_t *)&mute, 1, on_nobody), 0);
    rig.config.connect_timeout_ms = 600;
    uint64_t before_ns = uv_hrtime();
    rig_up(&rig);
    uint64_t took_ns = uv_hrtime() - before_ns;
    assert_true(took_ns >= 299 * NS_PER_MS && took_ns < 600 * NS_PER_MS);
    assert_int_equal(rig.downs, 0);
    uv_close((uv_handle_t *)&mute, NULL);
    peer_stop(&peer);
    rig_deinit(&rig);
}

static void test_each_attempt_asks_anew(void **state)
{
    (void)state;
    struct rig rig;
    struct peer peer;
    begin(&rig, &peer, NULL, NULL);
    rig_connect(&rig);
    RIG_UNTIL(&rig, rig.downs == 1);
    assert_non_null(strstr(rig.why, "store.test: unknown node or service"));
    assert_int_equal(asked, 1);
    addresses[0] = "127.0.0.2";
    RIG_UNTIL(&rig, rig.downs == 2);
    assert_non_null(strstr(rig.why, "127.0.0.2:"));
    addresses[0] = "127.0.0.1";
    RIG_UNTIL(&rig, rig.ups == 1);
    assert_int_equal(asked, 3);
    peer_cut(peer.clients[0]);
    RIG_UNTIL(&rig, rig.ups == 2);
    assert_int_equal(asked, 4);
    peer_stop(&peer);
    rig_deinit(&rig);
}

static void test_a_resolver_that_hangs_does_not_stop_the_loop(void **state)
{
    (void)state;
    struct rig rig;
    struct peer peer;
    begin(&rig, &peer, "127.0.0.1", NULL);
    assert_int_equal(uv_sem_init(&release, 0), 0);
    hanging = true;
    rig.config.connect_timeout_ms = 100;
    rig_connect(&rig);
    /* A resolver that stops the loop stops it in each attempt; a busy machine in some. */
    uint64_t gap_ns = UINT64_MAX;
    for (unsigned attempt = 1; attempt <= 3; attempt++) {
        rig.largest_gap_ns = 0;
        RIG_UNTIL(&rig, rig.downs == attempt);
        gap_ns = rig.largest_gap_ns < gap_ns ? rig.largest_gap_ns : gap_ns;
    }
    assert_true(gap_ns < 50 * NS_PER_MS);
    assert_non_null(strstr(rig.why, "store.test: the name was not resolved in time"));
    assert_int_equal(weir__load_relaxed(&asked),
                     1); /* one question, whatever the number of attempts */
    weir__store_relaxed(&hanging, false);
    uv_sem_post(&release);
    RIG_UNTIL(&rig, rig.ups == 1);
    uv_sem_destroy(&release);
    peer_stop(&peer);
    rig_deinit(&rig);
}

/* A question that a thread works on cannot be called back: closing waits for it, and the loop goes
 * on. */
static void test_it_closes_while_a_name_is_resolved(void **state)
{
    (void)state;
    struct rig rig;
    struct peer peer;
    begin(&rig, &peer, "127.0.0.1", NULL);
    assert_int_equal(uv_sem_init(&release, 0), 0);
    hanging = true;
    rig_connect(&rig);
    RIG_UNTIL(&rig, weir__load_relaxed(&hanging_now) == 1);
    rig_close(&rig);
    for (int turn = 0; turn < 5; turn++) {
        uv_run(&rig.loop, UV_RUN_ONCE);
        assert_false(rig.closed);
    }
    uv_sem_post(&release);
    RIG_UNTIL(&rig, rig.closed);
    assert_int_equal(rig.ups + rig.downs, 0);
    uv_sem_destroy(&release);
    peer_stop(&peer);
    rig_deinit(&rig);
}

/* One that still waits for a thread is called back at once. */
#define POOL_THREADS 4 /* of libuv, unless UV_THREADPOOL_SIZE says otherwise */

static void hang(uv_work_t *work)
{
    (void)work;
    uv_sem_wait(&release);
}

static void test_it_closes_while_the_question_waits(void **state)
{
    (void)state;
    struct rig rig;
    struct peer peer;
    uv_work_t work[POOL_THREADS];
    begin(&rig, &peer, "127.0.0.1", NULL);
    assert_int_equal(uv_sem_init(&release, 0), 0);
    for (int i = 0; i < POOL_THREADS; i++) {
        assert_int_equal(uv_queue_work(&rig.loop, &work[i], hang, NULL), 0);
    }
    rig_connect(&rig);
    uv_run(&rig.loop, UV_RUN_ONCE);
    uv_run(&rig.loop, UV_RUN_ONCE);
    rig_close(&rig);
    RIG_UNTIL(&rig, rig.closed);
    assert_int_equal(asked, 0);
    for (int i = 0; i < POOL_THREADS; i++) {
        uv_sem_post(&release);
    }
    peer_stop(&peer);
    rig_deinit(&rig);
    uv_sem_destroy(&release);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_name_is_resolved),
        cmocka_unit_test(test_the_next_address_is_tried),
        cmocka_unit_test(test_a_silent_address_leaves_time_for_the_next),
        cmocka_unit_test(test_each_attempt_asks_anew),
        cmocka_unit_test(test_a_resolver_that_hangs_does_not_stop_the_loop),
        cmocka_unit_test(test_it_closes_while_a_name_is_resolved),
        cmocka_unit_test(test_it_closes_while_the_question_waits),
    };
    /* The number of threads is part of the last test. */
    setenv("UV_THREADPOOL_SIZE", "4", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
