/* SPDX-License-Identifier: MIT */
/* core/wire: bytes out exactly as documented, and nothing in that no store could have said. */
#include "core/wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/num.h"

static const struct weir__rule rule = {.version = 5,
                                       .tick_us = 1,
                                       .units_per_tick = 1,
                                       .units_per_token = 1000,
                                       .capacity = 100,
                                       .budget = 20,
                                       .window_us = 100000,
                                       .max_wait_us = 5000,
                                       .initial = 99,
                                       .period_us = 7,
                                       .algorithm = WEIR__SLIDING_LOG,
                                       .variant = 1,
                                       .learn = true};

static const struct weir__ask ask = {.want = 10,
                                     .least = 2,
                                     .exact = 3,
                                     .wait_us = 400,
                                     .refund = 6,
                                     .heard = WEIR__NO_WINDOW,
                                     .settle = {{WEIR__NO_WINDOW, 0, 0}, {WEIR__NO_WINDOW, 0, 0}}};

static const int64_t good[WEIR__GRANT_FIELDS] = {10, 3, 400, 77, 75000, 50, 0,   9,
                                                 1,  6, 15,  5,  30,    60, 1000};

enum {
    LEASE,
    EXACT,
    WAIT,
    WINDOW,
    LIFE,
    REMAINING,
    RETRY,
    RESET,
    PROCESSES,
    REFUNDED,
    OUT,
    VERSION,
    FIRST,
    SPREAD,
    START
};

static void assert_double_at(const unsigned char *bytes, size_t index, const char *hex_big_endian)
{
    char hex[17];
    for (size_t i = 0; i < 8; i++) {
        unsigned byte = bytes[index * 8 + 7 - i];
        hex[2 * i] = "0123456789abcdef"[byte >> 4];
        hex[2 * i + 1] = "0123456789abcdef"[byte & 15];
    }
    hex[16] = 0;
    assert_string_equal(hex, hex_big_endian);
}

static void test_rule_bytes(void **state)
{
    (void)state;
    unsigned char bytes[WEIR__RULE_BYTES + 1];
    bytes[WEIR__RULE_BYTES] = 0x5a;
    weir__wire_pack_rule(bytes, &rule);
    assert_double_at(bytes, 0, "4014000000000000"); /* 5 */
    assert_double_at(bytes, 1, "3ff0000000000000"); /* 1 */
    assert_double_at(bytes, 2, "408f400000000000"); /* 1000 */
    assert_double_at(bytes, 3, "401c000000000000"); /* 7 */
    static const unsigned char rest[] = {
        1,    0,    0,    0, /* tick */
        100,  0,    0,    0, /* capacity */
        20,   0,    0,    0, /* budget */
        0xa0, 0x86, 0x01, 0, /* window 100000 */
        0x88, 0x13, 0,    0, /* longest wait 5000 */
        99,   0,    0,    0, /* initial */
        4,    1,    1,       /* algorithm, variant, learn */
    };
    assert_int_equal(sizeof rest, WEIR__RULE_BYTES - 32);
    assert_memory_equal(bytes + 32, rest, sizeof rest);
    assert_int_equal(bytes[WEIR__RULE_BYTES], 0x5a);
}

static void test_ask_bytes(void **state)
{
    (void)state;
    struct weir__ask odd = {.peek = true,
                            .want = 1,
                            .least = 2,
                            .held = 4,
                            .exact = 8,
                            .wait_us = 16,
                            .refund = 32,
                            .since = 64,
                            .heard = 128,
                            .settle = {{256, 512, 1024}, {WEIR__INT53_MAX, 2048, 4096}}};
    unsigned char bytes[WEIR__ASK_BYTES + 1];
    bytes[WEIR__ASK_BYTES] = 0x5a;
    weir__wire_pack_ask(bytes, &odd);
    assert_double_at(bytes, 0, "3ff0000000000000");
    static const char *const powers[] = {"3ff0", "4000", "4010", "4020", "4030", "4040",
                                         "4050", "4060", "4070", "4080", "4090"};
    for (size_t i = 0; i < 11; i++) {
        char hex[17];
        strcpy(hex, powers[i]);
        strcat(hex, "000000000000");
        assert_double_at(bytes, 1 + i, hex);
    }
    assert_double_at(bytes, 12, "433fffffffffffff"); /* 2^53 - 1 */
    assert_double_at(bytes, 13, "40a0000000000000");
    assert_double_at(bytes, 14, "40b0000000000000");
    assert_int_equal(bytes[WEIR__ASK_BYTES], 0x5a);

    weir__wire_pack_ask(bytes, &ask);
    assert_double_at(bytes, 0, "0000000000000000");
    assert_double_at(bytes, 8, "bff0000000000000"); /* no window: -1 */

    struct weir__ask reset = {.reset = true};
    weir__wire_pack_ask(bytes, &reset);
    assert_double_at(bytes, 0, "4000000000000000");
}

static void test_good_reply(void **state)
{
    (void)state;
    struct weir__grant grant;
    assert_true(weir__wire_read_grant(&grant, good, WEIR__GRANT_FIELDS, &rule, &ask));
    assert_int_equal(grant.lease, 10);
    assert_int_equal(grant.exact, 3);
    assert_int_equal(grant.wait_us, 400);
    assert_int_equal(grant.window, 77);
    assert_int_equal(grant.life_us, 75000);
    assert_int_equal(grant.remaining, 50);
    assert_int_equal(grant.retry_after_us, 0);
    assert_int_equal(grant.reset_after_us, 9);
    assert_int_equal(grant.processes, 1);
    assert_int_equal(grant.refunded, 6);
    assert_int_equal(grant.outstanding, 15);
    assert_int_equal(grant.version, 5);
    assert_int_equal(grant.first_us, 30);
    assert_int_equal(grant.spread_us, 60);
    assert_int_equal(grant.start_us, 1000);
}

/* The good reply with one value changed. */
static bool believed(int field, int64_t value)
{
    int64_t values[WEIR__GRANT_FIELDS];
    struct weir__grant grant = {.lease = -99};
    memcpy(values, good, sizeof values);
    values[field] = value;
    bool read = weir__wire_read_grant(&grant, values, WEIR__GRANT_FIELDS, &rule, &ask);
    assert_true(read == (grant.lease != -99)); /* a refused reply leaves the grant alone */
    return read;
}

static void test_lies(void **state)
{
    (void)state;
    for (int field = 0; field < WEIR__GRANT_FIELDS; field++) {
        assert_true(believed(field, good[field]));
        assert_false(believed(field, INT64_MIN));
        assert_false(believed(field, INT64_MAX));
        assert_false(believed(field, -2));
        assert_false(believed(field, WEIR__INT53_MAX + 1));
    }
    static const struct {
        int field;
        int64_t value;
        bool true_once;
    } rows[] = {
        {LEASE, 11, false},      {LEASE, 1, false},
        {LEASE, 2, true},        {LEASE, 0, false}, /* no lease, no slots */
        {EXACT, 2, false},       {EXACT, 4, false},
        {EXACT, 0, false}, /* it waits for nothing */
        {WAIT, 401, false},      {WAIT, 0, true},
        {WAIT, -1, false},       {WINDOW, -1, false},
        {WINDOW, 0, true},       {LIFE, 45000000, true},
        {LIFE, 45000001, false}, {REMAINING, -1, false},
        {RETRY, 1, false},       {RETRY, -1, true},
        {RESET, -1, false},      {PROCESSES, 0, true},
        {REFUNDED, 0, true},     {REFUNDED, 5, false},
        {OUT, 9, false},         {OUT, 10, true},
        {VERSION, 0, false},     {VERSION, 6, true},
        {VERSION, 4, false},     {FIRST, -1, false},
        {SPREAD, -1, false},     {START, -1, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(believed(rows[i].field, rows[i].value), rows[i].true_once);
    }
}

static void test_count(void **state)
{
    (void)state;
    struct weir__grant grant;
    assert_false(weir__wire_read_grant(&grant, good, 0, &rule, &ask));
    assert_false(weir__wire_read_grant(&grant, good, WEIR__GRANT_FIELDS - 1, &rule, &ask));
    assert_false(weir__wire_read_grant(&grant, good, WEIR__GRANT_FIELDS + 1, &rule, &ask));
}

static void test_a_look_is_given_nothing(void **state)
{
    (void)state;
    struct weir__grant grant;
    struct weir__ask look = ask;
    look.peek = true;
    int64_t values[WEIR__GRANT_FIELDS] = {0, 0, 0, -1, 0, 50, 0, 9, 0, 0, 0, 5, 0, 0, -1};
    assert_true(weir__wire_read_grant(&grant, values, WEIR__GRANT_FIELDS, &rule, &look));
    static const int fields[] = {LEASE, EXACT, REFUNDED};
    for (size_t i = 0; i < 3; i++) {
        int64_t lie[WEIR__GRANT_FIELDS];
        memcpy(lie, good, sizeof lie);
        lie[LEASE] = lie[EXACT] = lie[WAIT] = lie[REFUNDED] = lie[FIRST] = lie[SPREAD] = 0;
        lie[fields[i]] = good[fields[i]];
        assert_false(weir__wire_read_grant(&grant, lie, WEIR__GRANT_FIELDS, &rule, &look));
    }
}

/* R11: the store may hold on to an older rule only while it has nothing to give. */
static void test_older_rule_gives_nothing(void **state)
{
    (void)state;
    struct weir__grant grant;
    int64_t values[WEIR__GRANT_FIELDS] = {0, 3, 400, 77, 75000, 0, 0, 9, 1, 0, 15, 4, 0, 0, -1};
    assert_true(weir__wire_read_grant(&grant, values, WEIR__GRANT_FIELDS, &rule, &ask));
    values[REMAINING] = 1;
    assert_false(weir__wire_read_grant(&grant, values, WEIR__GRANT_FIELDS, &rule, &ask));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rule_bytes),
        cmocka_unit_test(test_ask_bytes),
        cmocka_unit_test(test_good_reply),
        cmocka_unit_test(test_lies),
        cmocka_unit_test(test_count),
        cmocka_unit_test(test_a_look_is_given_nothing),
        cmocka_unit_test(test_older_rule_gives_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
