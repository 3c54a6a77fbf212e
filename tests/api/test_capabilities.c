/* SPDX-License-Identifier: MIT */
/*
 * Stores that cannot do everything: no clock, no memory, no writes, no script, a key of another
 * making.  For each algorithm: what is missing is told from "over the limit", leaves nothing
 * behind, and is over when it is over.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "api/kinds.h"
#include "api/setup.h"
#include "script/server.h"

#define TOKENS 100
#define BACK_US (2 * SECOND) /* in which service is back */

/* What the log of a weir said. */
struct lines {
    pthread_mutex_t lock;
    char text[16384]; /* cut */
};

static struct lines lines;

static void on_log(void *arg, enum weir_log_level level, const char *text)
{
    struct lines *heard = arg;
    assert_true(level == WEIR_LOG_WARN || level == WEIR_LOG_INFO);
    pthread_mutex_lock(&heard->lock);
    strncat(heard->text, text, sizeof(heard->text) - strlen(heard->text) - 2);
    strcat(heard->text, "\n");
    pthread_mutex_unlock(&heard->lock);
}

static unsigned lines_with(const char *words)
{
    unsigned count = 0;
    pthread_mutex_lock(&lines.lock);
    for (const char *at = lines.text; (at = strstr(at, words)) != NULL; at++) {
        count++;
    }
    pthread_mutex_unlock(&lines.lock);
    return count;
}

static struct weir *open_as(const char *user)
{
    char url[160];
    snprintf(url, sizeof(url), "unix://%s%s", user, server->socket);
    struct weir_options options = store_options(url);
    options.ask_timeout_ms = 5000; /* nothing here is late but by the machine's fault */
    options.log = on_log;
    options.log_arg = &lines;
    return open_with(&options);
}

static int start(void **state)
{
    pthread_mutex_init(&lines.lock, NULL);
    return start_store(state);
}

static int stop(void **state)
{
    (void)stop_store(state);
    pthread_mutex_destroy(&lines.lock);
    return 0;
}

static int setup(void **state)
{
    (void)state;
    lines.text[0] = '\0';
    weir = open_as("");
    UNTIL(stats_of(weir).store_state == WEIR_STORE_UP);
    return 0;
}

static struct weir_limit *limit_of(struct weir *of, unsigned kind)
{
    struct weir_limit_options options = kind_options(kind, TOKENS, kind_long_us(kind));
    options.version = 1;
    return define_with(of, &options);
}

static int take(struct weir_bucket *bucket, struct weir_result *result)
{
    return weir_acquire_wait(bucket, 1, 0, result);
}

static uint64_t take_all(struct weir_bucket *bucket)
{
    struct weir_result result;
    uint64_t taken = 0;
    while (take(bucket, &result) == WEIR_ALLOWED) {
        taken++;
    }
    if (result.verdict != WEIR_DENIED || result.reason != WEIR_OVER_LIMIT) {
        fail_msg("%s, after %d tokens", weir_reason_text((int)result.reason), (int)taken);
    }
    return taken;
}

static void key_of(unsigned kind, const char *key, char out[64])
{
    snprintf(out, 64, "weir:%s:%s", kind_name(kind), key);
}

/* ---- No clock -------------------------------------------------------------------------------- */

#define RIGHTS "+evalsha +script|load +hmget +hset +pexpire"

static void a_user_who_may_not_read_the_clock(void **state)
{
    (void)state;
    store_do(server, "ACL SETUSER blind reset on >secret ~weir:* " RIGHTS);
    struct weir *blind = open_as("blind:secret@");
    for (unsigned kind = 0; kind < KINDS; kind++) {
        const uint64_t all = kind_at_once(kind, TOKENS);
        struct weir_bucket *theirs = get(limit_of(blind, kind), "alone");
        assert_int_equal(take_all(theirs), all);
        weir_bucket_unref(theirs);
    }
    assert_int_equal(weir_close_wait(blind), WEIR_OK);
    assert_int_equal(lines_with("tells no time"), 1);
    assert_int_equal(lines_with("WEIRTIME"), 1);
    long long stamp_us = store_do(server, "EVAL %s 1 weir:token-bucket:alone",
                                  "return tonumber(redis.call('HGET', KEYS[1], 't'))");
    assert_true(llabs(stamp_us / SECOND - (long long)time(NULL)) < 60);
    store_do(server, "ACL DELUSER blind");
}

/* One process is told the time, the other tells it: one limit. */
static void both_clocks_share_a_limit(void **state)
{
    (void)state;
    store_do(server, "ACL SETUSER blind reset on >secret ~weir:* " RIGHTS);
    struct weir *blind = open_as("blind:secret@");
    for (unsigned kind = 0; kind < KINDS; kind++) {
        struct weir_bucket *theirs = get(limit_of(blind, kind), "shared");
        struct weir_bucket *ours = get(limit_of(weir, kind), "shared");
        uint64_t taken = 0;
        struct weir_result result = {.verdict = WEIR_ALLOWED};
        while (result.verdict == WEIR_ALLOWED) {
            assert_true(take(taken % 2 == 0 ? theirs : ours, &result) >= 0);
            taken += result.verdict == WEIR_ALLOWED;
        }
        assert_int_equal(result.reason, WEIR_OVER_LIMIT);
        assert_int_equal(taken, kind_at_once(kind, TOKENS));
        weir_bucket_unref(theirs);
        weir_bucket_unref(ours);
    }
    assert_int_equal(weir_close_wait(blind), WEIR_OK);
    store_do(server, "ACL DELUSER blind");
}

/* The right goes while it is used, and comes back: the next connection reads the clock again. */
static void the_clock_goes_and_comes_back(void **state)
{
    (void)state;
    store_do(server, "ACL SETUSER seer reset on >secret ~weir:* +time " RIGHTS);
    struct weir *seer = open_as("seer:secret@");
    struct weir_bucket *bucket = get(limit_of(seer, 0), "key");
    assert_int_equal(take(bucket, NULL), WEIR_ALLOWED);
    assert_int_equal(lines_with("tells no time"), 0);
    store_do(server, "ACL SETUSER seer -time");
    for (int i = 0; i < 10; i++) {
        assert_int_equal(take(bucket, NULL), WEIR_ALLOWED);
    }
    assert_int_equal(lines_with("tells no time"), 1);
    store_do(server, "ACL SETUSER seer +time");
    store_do(server, "CLIENT KILL USER seer");
    UNTIL(stats_of(seer).connects == 2 && stats_of(seer).store_state == WEIR_STORE_UP);
    assert_int_equal(take(bucket, NULL), WEIR_ALLOWED);
    assert_int_equal(lines_with("tells no time"), 1);
    struct weir_stats stats = stats_of(seer);
    assert_int_equal(stats.asks_refused, 0);
    weir_bucket_unref(bucket);
    assert_int_equal(weir_close_wait(seer), WEIR_OK);
    store_do(server, "ACL DELUSER seer");
}

/* ---- No memory, no writes -------------------------------------------------------------------- */

/* Keeps what a key holds, to see later that it is the same. */
static void keep(const char *key) { store_do(server, "COPY %s kept:%s REPLACE", key, key); }

static bool is_kept(const char *key)
{
    static const char same[] = "return redis.call('DUMP', KEYS[1]) == redis.call('DUMP', KEYS[2]) "
                               "and 1 or 0";
    return store_do(server, "EVAL %s 2 %s kept:%s", same, key, key) == 1;
}

/* A store that cannot write, for each kind on a key that is there and on one that is not. */
static void cannot_write(const char *break_it, const char *mend_it, const char *word)
{
    struct weir_bucket *old[KINDS], *new[KINDS];
    struct weir_result result;
    char key[64];
    for (unsigned kind = 0; kind < KINDS; kind++) {
        struct weir_limit *limit = limit_of(weir, kind);
        old[kind] = get(limit, "old");
        new[kind] = get(limit, "new");
        assert_int_equal(take(old[kind], NULL), WEIR_ALLOWED);
        key_of(kind, "old", key);
        keep(key);
    }
    store_do(server, break_it);
    for (unsigned kind = 0; kind < KINDS; kind++) {
        struct weir_bucket *both[] = {old[kind], new[kind]};
        for (int i = 0; i < 2; i++) {
            assert_int_equal(take(both[i], &result), WEIR_UNAVAILABLE);
            assert_int_equal(result.reason, WEIR_STORE_DOWN);
            assert_int_equal(result.remaining_tokens, WEIR_UNKNOWN);
            assert_int_equal(weir_try_acquire(both[i], 1, &result), WEIR_UNAVAILABLE);
            assert_int_equal(result.reason, WEIR_STORE_DOWN);
        }
        key_of(kind, "new", key);
        assert_int_equal(store_do(server, "EXISTS %s", key), 0);
        key_of(kind, "old", key);
        assert_true(is_kept(key));
        assert_true(store_do(server, "PTTL %s", key) > 0);
    }
    assert_int_equal(stats_of(weir).denied + stats_of(weir).cold, 0);
    assert_true(lines_with(word) >= 1);
    store_do(server, mend_it);
    int64_t mended_us = real_us();
    for (unsigned kind = 0; kind < KINDS; kind++) {
        UNTIL(take(new[kind], &result) == WEIR_ALLOWED && result.reason == WEIR_WITHIN_LIMIT);
        assert_true(real_us() - mended_us < BACK_US);
        assert_int_equal(take_all(new[kind]), kind_at_once(kind, TOKENS) - 1);
        assert_int_equal(take_all(old[kind]), kind_at_once(kind, TOKENS) - 1);
        weir_bucket_unref(new[kind]);
        weir_bucket_unref(old[kind]);
    }
}

static void a_store_with_full_memory(void **state)
{
    (void)state;
    cannot_write("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0", "refused: OOM");
    assert_int_equal(lines_with("an ask of weir:token-bucket was refused: OOM"), 1);
    assert_int_equal(stats_of(weir).connects, 1);
}

static void a_replica(void **state)
{
    (void)state;
    cannot_write("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", "READONLY");
    assert_true(stats_of(weir).connects >= 2);
}

/* The other policies are asked too. */
static void full_memory_under_each_policy(void **state)
{
    (void)state;
    struct weir_result result;
    struct weir_limit_options options = limit_options("open", 1000, SECOND, 1000, 0);
    options.outage = WEIR_OUTAGE_OPEN;
    struct weir_bucket *open = get(define_with(weir, &options), "key");
    options.name = "local";
    options.outage = WEIR_OUTAGE_LOCAL;
    options.outage_share_percent = 10;
    struct weir_bucket *local = get(define_with(weir, &options), "key");
    store_do(server, "CONFIG SET maxmemory 1");
    assert_int_equal(take(open, &result), WEIR_ALLOWED);
    assert_int_equal(result.reason, WEIR_STORE_DOWN);
    int64_t from_us = real_us();
    uint64_t taken = 0;
    while (real_us() < from_us + 300 * MS) {
        int verdict = weir_acquire_wait(local, 1, 20 * MS, &result);
        assert_true(verdict == WEIR_ALLOWED || result.reason == WEIR_STORE_DOWN ||
                    result.reason == WEIR_DEADLINE);
        taken += verdict == WEIR_ALLOWED;
    }
    assert_true(taken > 5);
    assert_true(taken <= (uint64_t)(real_us() - from_us) / 10000 + 100);
    assert_int_equal(store_do(server, "DBSIZE"), 0);
    store_do(server, "CONFIG SET maxmemory 0");
    weir_bucket_unref(open);
    weir_bucket_unref(local);
}

/* ---- No script ------------------------------------------------------------------------------- */

static void a_script_that_is_lost_between_any_two_calls(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < KINDS; kind++) {
        struct weir_bucket *bucket = get(limit_of(weir, kind), "key");
        for (uint64_t i = 0; i < kind_at_once(kind, 3); i++) {
            store_do(server, "SCRIPT FLUSH");
            assert_int_equal(take(bucket, NULL), WEIR_ALLOWED);
        }
        assert_int_equal(take_all(bucket), kind_at_once(kind, TOKENS) - kind_at_once(kind, 3));
        weir_bucket_unref(bucket);
    }
    struct weir_stats stats = stats_of(weir);
    assert_int_equal(stats.scripts_loaded, 1 + 5 * 3 + 1);
    assert_int_equal(stats.asks_refused + stats.asks_lost, 0);
    assert_int_equal(stats.connects, 1);
}

/* ---- A key of another making ----------------------------------------------------------------- */

/* The store is down for one bucket of each policy; new ones of other limits do not notice.  The log
 * has it once, with the name of the limit and not the key. */
static void broken_key(void (*break_key)(const char *key), const char *word)
{
    static const struct {
        enum weir_outage_policy policy;
        int verdict;
    } rows[] = {{WEIR_OUTAGE_OPEN, WEIR_ALLOWED},
                {WEIR_OUTAGE_CLOSED, WEIR_UNAVAILABLE},
                {WEIR_OUTAGE_LOCAL, WEIR_DENIED}};
    struct weir_bucket *broken[3];
    struct weir_result result;
    for (int i = 0; i < 3; i++) {
        char name[8], key[32];
        snprintf(name, sizeof(name), "limit%d", i);
        snprintf(key, sizeof(key), "weir:%s:private", name);
        break_key(key);
        struct weir_limit_options options = limit_options(name, 1, HOUR, 100, 5);
        options.outage = rows[i].policy;
        broken[i] = get(define_with(weir, &options), "private");
        UNTIL(weir_try_acquire(broken[i], 1, &result) == rows[i].verdict &&
              result.reason == WEIR_STORE_DOWN);
    }
    struct weir_limit *whole = limit_of(weir, 1);
    for (uint32_t k = 0; k < 60; k++) {
        for (int i = 0; i < 3; i++) {
            assert_int_equal(weir_acquire_wait(broken[i], 1, 50 * MS, &result), rows[i].verdict);
            assert_int_equal(result.reason, WEIR_STORE_DOWN);
            assert_int_equal(weir_try_acquire(broken[i], 1, &result), rows[i].verdict);
            assert_int_equal(result.reason, WEIR_STORE_DOWN);
        }
        if (k % 10 == 9) { /* between two of these no answer of theirs hides the refusals */
            assert_int_equal(weir_acquire_wait_key(whole, &k, sizeof(k), 1, 0, &result),
                             WEIR_ALLOWED);
            assert_int_equal(result.reason, WEIR_WITHIN_LIMIT);
        }
        pause_us(20 * MS);
    }
    struct weir_stats stats = stats_of(weir);
    assert_true(stats.asks_refused >= 3 * 3);
    assert_int_equal(stats.outages, 0);
    char line[80];
    snprintf(line, sizeof(line), "an ask of weir:limit0 was refused: %s", word);
    assert_int_equal(lines_with(line), 1);
    assert_int_equal(lines_with("was refused"), 1);
    assert_int_equal(lines_with("private"), 0);
    for (int i = 0; i < 3; i++) {
        store_do(server, "DEL weir:limit%d:private", i);
        UNTIL(weir_acquire_wait(broken[i], 1, 0, &result) == WEIR_ALLOWED &&
              result.reason == WEIR_WITHIN_LIMIT);
        assert_int_equal(weir_acquire_wait(broken[i], 1, 0, &result), WEIR_ALLOWED);
        assert_int_equal(result.reason, WEIR_WITHIN_LIMIT);
        weir_bucket_unref(broken[i]);
    }
}

static void put_text(const char *key) { store_do(server, "SET %s text", key); }

/* As a later weir would leave it. */
static void put_unknown(const char *key)
{
    unsigned char rule[59] = {0};
    rule[56] = 99; /* the algorithm */
    store_do(server, "HSET %s l 0 t 0 r %b", key, rule, sizeof(rule));
}

static void a_key_of_another_type(void **state)
{
    (void)state;
    broken_key(put_text, "WRONGTYPE");
}

static void a_key_of_an_unknown_algorithm(void **state)
{
    (void)state;
    broken_key(put_unknown, "WEIRARG");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, close_and_clear)
    const struct CMUnitTest tests[] = {
        TEST(a_user_who_may_not_read_the_clock),
        TEST(both_clocks_share_a_limit),
        TEST(the_clock_goes_and_comes_back),
        TEST(a_store_with_full_memory),
        TEST(a_replica),
        TEST(full_memory_under_each_policy),
        TEST(a_script_that_is_lost_between_any_two_calls),
        TEST(a_key_of_another_type),
        TEST(a_key_of_an_unknown_algorithm),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
