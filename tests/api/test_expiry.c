/* SPDX-License-Identifier: MIT */
/*
 * What is left in the store, and for how long: nothing, once its time is over, whatever the
 * algorithm and however the processes ended.
 *
 * WEIR_KILLS says how many processes are killed in mid-traffic, WEIR_SEED which moments are drawn.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <hiredis/hiredis.h>

#include "api/kinds.h"
#include "api/setup.h"
#include "script/server.h"

#define KEYS 1000
#define SHORT_MS 100      /* windows */
#define SHORT_US (SECOND) /* periods */
#define KILLS 200
#define KILL_KEYS 100   /* of each kind */
#define TRAFFIC_US 4000 /* a process lives so long at most, from its first answer on */
#define SCAN_BATCH 500
#define GONE_US (3 * SECOND) /* the server looks for what has expired now and then */

static struct weir_limit *limit_of(struct weir *of, unsigned kind, uint64_t budget)
{
    struct weir_limit_options options = kind_options(kind, 10, SHORT_US);
    options.budget_tokens = budget;
    options.window_ms = SHORT_MS;
    options.version = 1;
    return define_with(of, &options);
}

/* All keys and how long they live on. */
struct ages {
    long long keys;
    long long eternal;
    long long longest_ms;
};

static redisReply *reply_of(redisContext *context)
{
    redisReply *reply = NULL;
    assert_int_equal(redisGetReply(context, (void **)&reply), REDIS_OK);
    assert_int_not_equal(reply->type, REDIS_REPLY_ERROR);
    return reply;
}

static void look_at_batch(redisContext *context, const redisReply *names, struct ages *ages)
{
    for (size_t i = 0; i < names->elements; i++) {
        redisAppendCommand(context, "PTTL %b", names->element[i]->str,
                           (size_t)names->element[i]->len);
    }
    for (size_t i = 0; i < names->elements; i++) {
        redisReply *left = reply_of(context);
        ages->keys += left->integer != -2; /* -2: gone meanwhile */
        ages->eternal += left->integer == -1;
        ages->longest_ms = left->integer > ages->longest_ms ? left->integer : ages->longest_ms;
        freeReplyObject(left);
    }
}

static struct ages look(void)
{
    struct ages ages = {0};
    char cursor[24] = "0";
    redisContext *context = redisConnectUnix(server->socket);
    assert_non_null(context);
    do {
        redisAppendCommand(context, "SCAN %s COUNT %d", cursor, SCAN_BATCH);
        redisReply *batch = reply_of(context);
        snprintf(cursor, sizeof(cursor), "%s", batch->element[0]->str);
        look_at_batch(context, batch->element[1], &ages);
        freeReplyObject(batch);
    } while (strcmp(cursor, "0") != 0);
    redisFree(context);
    return ages;
}

/* ---- They go --------------------------------------------------------------------------------- */

static long long expired_so_far(void)
{
    static const char count[] = "local text = redis.call('INFO', 'stats') "
                                "return tonumber(string.match(text, 'expired_keys:(%d+)'))";
    return store_do(server, "EVAL %s 0", count);
}

/* Two windows, or the time to fill, and no more: B69 for each way to count, leases included. */
static void a_thousand_keys_of_each_kind_go(void **state)
{
    (void)state;
    store_do(server, "SET other %s", "stays");
    long long before = expired_so_far();
    weir = open_store(server);
    for (unsigned kind = 0; kind < KINDS; kind++) {
        struct weir_limit *limit = limit_of(weir, kind, kind % 2);
        for (uint32_t i = 0; i < KEYS; i++) {
            assert_int_equal(weir_acquire_wait_key(limit, &i, sizeof(i), 1, 0, NULL), WEIR_ALLOWED);
        }
    }
    assert_int_equal(weir_close_wait(weir), WEIR_OK);
    struct ages ages = look();
    assert_int_equal(ages.eternal, 1);
    assert_true(ages.longest_ms <= 2 * SHORT_US / MS + 2 * SHORT_MS + 2);
    UNTIL_WITHIN(ages.longest_ms * MS + GONE_US, store_do(server, "DBSIZE") == 1);
    assert_int_equal(store_do(server, "EXISTS other"), 1);
    assert_true(expired_so_far() - before >= KINDS * KEYS); /* and it was not for want of keys */
}

/* ---- None stays for ever --------------------------------------------------------------------- */

/* In memory that both processes share. */
struct shared {
    uint64_t answers; /* atomic */
};

static int be_client(struct shared *shared, uint64_t seed)
{
    weir = open_store(server);
    struct weir_limit *limits[KINDS];
    for (unsigned kind = 0; kind < KINDS; kind++) {
        limits[kind] = limit_of(weir, kind, 5);
    }
    for (;;) {
        seed = seed * UINT64_C(6364136223846793005) + 1;
        uint32_t key = (uint32_t)(seed >> 33) % KILL_KEYS;
        struct weir_limit *limit = limits[(seed >> 50) % KINDS];
        bool tries = (seed >> 45) % 4 != 0;
        int verdict = tries ? weir_try_acquire_key(limit, &key, sizeof(key), 1, NULL)
                            : weir_acquire_wait_key(limit, &key, sizeof(key), 1, 0, NULL);
        if (verdict < 0) {
            return 1;
        }
        if (!tries) {
            __atomic_fetch_add(&shared->answers, 1, __ATOMIC_RELAXED);
        }
    }
}

static void kill_one(struct shared *shared, uint64_t seed)
{
    uint64_t before = __atomic_load_n(&shared->answers, __ATOMIC_RELAXED);
    int status;
    fflush(NULL); /* or the child would write it again */
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(be_client(shared, seed));
    }
    UNTIL_WITHIN(20 * SECOND, __atomic_load_n(&shared->answers, __ATOMIC_RELAXED) > before);
    pause_us((unsigned)(seed % TRAFFIC_US));
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
}

static uint64_t number_from(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text == NULL ? otherwise : strtoull(text, NULL, 10);
}

static void processes_killed_in_mid_traffic_leave_no_key_for_ever(void **state)
{
    (void)state;
    uint64_t kills = number_from("WEIR_KILLS", KILLS), seed = number_from("WEIR_SEED", 1);
    struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    print_message("WEIR_SEED=%llu WEIR_KILLS=%llu\n", (unsigned long long)seed,
                  (unsigned long long)kills);
    long long most = 0;
    for (uint64_t i = 0; i < kills; i++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
        kill_one(shared, seed >> 20);
        struct ages ages = look();
        assert_int_equal(ages.eternal, 0);
        most = ages.keys > most ? ages.keys : most;
    }
    assert_true(most > KINDS);
    UNTIL_WITHIN(look().longest_ms * MS + GONE_US, store_do(server, "DBSIZE") == 0);
    munmap(shared, sizeof(*shared));
}

/* One that lost its expiry gets one with the next ask: PERSIST is 0 where there is none to take.
 * Also with an ask that is refused, which is one of a process that does not know yet. */
static void a_key_without_an_expiry_gets_one(void **state)
{
    (void)state;
    struct weir *other = open_store(server);
    weir = open_store(server);
    for (unsigned kind = 0; kind < KINDS; kind++) {
        struct weir_limit_options options = kind_options(kind, 2, kind_long_us(kind));
        options.version = 1;
        struct weir_bucket *bucket = get(define_with(weir, &options), "key");
        char key[64];
        snprintf(key, sizeof(key), "weir:%s:key", kind_name(kind));
        int verdict = WEIR_ALLOWED;
        while (verdict == WEIR_ALLOWED) {
            verdict = weir_acquire_wait(bucket, 1, 0, NULL);
            assert_int_equal(store_do(server, "PERSIST %s", key), 1);
        }
        assert_int_equal(verdict, WEIR_DENIED);
        weir_bucket_unref(bucket);
        bucket = get(define_with(other, &options), "key");
        assert_int_equal(store_do(server, "PTTL %s", key), -1);
        assert_int_equal(weir_acquire_wait(bucket, 1, 0, NULL), WEIR_DENIED);
        assert_true(store_do(server, "PTTL %s", key) > 0);
        weir_bucket_unref(bucket);
    }
    assert_int_equal(weir_close_wait(weir), WEIR_OK);
    assert_int_equal(weir_close_wait(other), WEIR_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_thousand_keys_of_each_kind_go, clear_store),
        cmocka_unit_test_setup(processes_killed_in_mid_traffic_leave_no_key_for_ever, clear_store),
        cmocka_unit_test_setup(a_key_without_an_expiry_gets_one, clear_store),
    };
    return cmocka_run_group_tests(tests, start_store, stop_store);
}
