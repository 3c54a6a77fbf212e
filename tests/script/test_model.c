/* SPDX-License-Identifier: MIT */
/*
 * The twin in C and the shipped Lua against the reference model: agree.py writes random asks with
 * the model's answers, and both must come to the same grant, state and expiry.  The model is
 * Python with integers of any size, so it shares no arithmetic with either; it is a token bucket,
 * under all rules of the protocol.  WEIR_SEED replays, WEIR_STEPS sets the number of asks;
 * WEIR_TESTS is the folder of the tests when it is not
 * where it was built from.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/global.h"
#include "core/wire.h"
#include "io/conn.h"

#include "lua_host.h"
#include "random_asks.h"
#include "stored_bucket.h"

#define ASKS 50000
#define SEQUENCE 25      /* asks of one key, as in agree.py */
#define GRANT_NUMBERS 12 /* the fields that the model has */
#define NUMBERS (2 + 9 + 14 + GRANT_NUMBERS + 14)

static const char key[] = "weir:limit:key";
#define KEY key, sizeof key - 1

/* One line of agree.py. */
struct line {
    bool begins;
    int64_t now_us;
    struct weir__rule rule;
    struct weir__ask ask;
    int64_t grant[WEIR__GRANT_FIELDS];
    struct weir__global after;
};

static bool read_line(FILE *in, struct line *line)
{
    long long n[NUMBERS];
    for (size_t i = 0; i < NUMBERS; i++) {
        if (fscanf(in, "%lld", &n[i]) != 1) {
            assert_int_equal(i, 0);
            return false;
        }
    }
    const long long *r = n + 2;
    const long long *a = r + 9;
    const long long *g = a + 14;
    const long long *s = g + GRANT_NUMBERS;
    line->begins = n[0] != 0;
    line->now_us = n[1];
    line->rule = (struct weir__rule){.version = r[0],
                                     .tick_us = r[1],
                                     .units_per_tick = r[2],
                                     .units_per_token = r[3],
                                     .capacity = r[4],
                                     .budget = r[5],
                                     .window_us = r[6],
                                     .max_wait_us = r[7],
                                     .initial = r[8],
                                     .algorithm = WEIR__TOKEN_BUCKET};
    line->ask = (struct weir__ask){.peek = a[0] != 0,
                                   .want = a[1],
                                   .least = a[2],
                                   .held = a[3],
                                   .exact = a[4],
                                   .wait_us = a[5],
                                   .refund = a[6],
                                   .since = WEIR__NO_WINDOW,
                                   .heard = a[7],
                                   .settle = {{a[8], a[9], a[10]}, {a[11], a[12], a[13]}}};
    for (size_t i = 0; i < GRANT_NUMBERS; i++) {
        line->grant[i] = g[i];
    }
    line->grant[12] = line->grant[13] = 0; /* no slots */
    line->grant[14] = WEIR__NO_WINDOW;     /* no periods */
    line->after = (struct weir__global){.exists = s[0] != 0,
                                        .level = s[1],
                                        .stamp_us = s[2],
                                        .has_account = s[3] != 0,
                                        .seen_us = s[4],
                                        .cur = s[5],
                                        .cur_end_us = s[6],
                                        .cur_life_us = s[7],
                                        .out_cur = s[8],
                                        .prev = s[9],
                                        .out_prev = s[10],
                                        .n_cur = s[11],
                                        .n_prev = s[12],
                                        .expires_us = s[13]};
    return true;
}

static bool same_bucket(const struct weir__global *x, const struct weir__global *y)
{
    if (!x->exists || !y->exists) {
        return x->exists == y->exists;
    }
    return x->level == y->level && x->stamp_us == y->stamp_us && x->has_account == y->has_account &&
           x->seen_us == y->seen_us && x->cur == y->cur && x->cur_end_us == y->cur_end_us &&
           x->cur_life_us == y->cur_life_us && x->out_cur == y->out_cur && x->prev == y->prev &&
           x->out_prev == y->out_prev && x->n_cur == y->n_cur && x->n_prev == y->n_prev &&
           x->expires_us == y->expires_us;
}

/* The model's state, with what it does not know from C, against the fields in the host. */
static bool same_stored(struct lua_host *host, const struct line *line, char why[160])
{
    if (lua_host_key_exists(host, KEY) != line->after.exists) {
        snprintf(why, 160, "only one of both has the key");
        return false;
    }
    if (!line->after.exists) {
        return true;
    }
    if (lua_host_key_ttl_us(host, KEY) != line->after.expires_us - line->now_us) {
        snprintf(why, 160, "expiry");
        return false;
    }
    struct stored_bucket stored = {.fields = {{NULL, 0}}};
    for (size_t i = 0; i < STORED_FIELDS; i++) {
        stored.fields[i].data = lua_host_field(host, KEY, stored_field_names[i],
                                               &stored.fields[i].len);
    }
    return stored_bucket_equals(&stored, &line->after, why);
}

static void check_line(struct lua_host *host, int script, struct weir__global *bucket,
                       struct line *line, uint64_t number)
{
    unsigned char rule[WEIR__RULE_BYTES];
    unsigned char ask[WEIR__ASK_BYTES];
    struct weir__grant grant;
    struct lua_reply reply;
    char why[160] = "";

    weir__global_ask(bucket, &line->rule, &line->ask, line->now_us, &grant);
    if (!grants_equal(&grant, line->grant, WEIR__GRANT_FIELDS, why)) {
        fail_msg("line %llu, C and model: %s", (unsigned long long)number, why);
    }
    if (!same_bucket(bucket, &line->after)) {
        fail_msg("line %llu: C and model differ in state", (unsigned long long)number);
    }
    weir__wire_pack_rule(rule, &line->rule);
    weir__wire_pack_ask(ask, &line->ask);
    lua_host_set_now_us(host, line->now_us);
    lua_host_call(host, script, KEY, (const void *const[]){rule, ask},
                  (const size_t[]){sizeof rule, sizeof ask}, 2, &reply);
    line->after.rule = bucket->rule;
    line->after.ago = bucket->ago;
    if (reply.error[0] != 0 || memcmp(reply.values, line->grant, sizeof line->grant) != 0 ||
        !same_stored(host, line, why)) {
        fail_msg("line %llu, Lua and model: %s%s", (unsigned long long)number, why, reply.error);
    }
}

static FILE *start_model(uint64_t count, uint64_t seed)
{
    const char *tests = getenv("WEIR_TESTS");
    char folder[512];
    char command[1024];
    if (tests != NULL) {
        snprintf(folder, sizeof folder, "%s/script", tests);
    } else {
        snprintf(folder, sizeof folder, "%s", __FILE__);
        *strrchr(folder, '/') = 0;
    }
    snprintf(command, sizeof command, "python3 '%s/agree.py' %llu %llu", folder,
             (unsigned long long)count, (unsigned long long)seed);
    FILE *in = popen(command, "r");
    assert_non_null(in);
    return in;
}

static void test_model_agrees(void **state)
{
    (void)state;
    uint64_t seed = random_asks_seed(1);
    uint64_t asks = random_asks_count(ASKS);
    uint64_t count = (asks + SEQUENCE - 1) / SEQUENCE;
    print_message("WEIR_SEED=%llu WEIR_STEPS=%llu\n", (unsigned long long)seed,
                  (unsigned long long)asks);
    struct lua_host *host = lua_host_new();
    int script = lua_host_load(host, weir__script_lease.source, weir__script_lease.source_len);
    assert_true(script >= 0);
    struct weir__global bucket = {.exists = false};
    struct line line;
    uint64_t lines = 0;
    uint64_t begun = 0;
    FILE *in = start_model(count, seed);
    while (read_line(in, &line)) {
        lines++;
        if (line.begins) {
            begun++;
            lua_host_flush(host);
            bucket = (struct weir__global){.exists = false};
        }
        check_line(host, script, &bucket, &line, lines);
    }
    assert_int_equal(pclose(in), 0);
    assert_int_equal(begun, count);
    assert_int_equal(lines, count * SEQUENCE);
    lua_host_free(host);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model_agrees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
