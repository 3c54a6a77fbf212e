/* SPDX-License-Identifier: MIT */
/* io/reply: what each error and each shape of a reply means. */
#include "io/reply.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>
#include <hiredis/hiredis.h>

static redisReply error_reply(const char *text)
{
    /* hiredis owns its strings; these are only read. */
    return (redisReply){
        .type = REDIS_REPLY_ERROR, .str = (char *)(uintptr_t)text, .len = strlen(text)};
}

static void test_only_the_first_word_decides(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum weir__fate fate;
        enum weir__reply_next next;
    } rows[] = {
        {"NOSCRIPT No matching script. Please use EVAL.", WEIR__NOT_EXECUTED, WEIR__REPLY_RELOAD},
        {"NOSCRIPT No matching script.", WEIR__NOT_EXECUTED, WEIR__REPLY_RELOAD},
        {"NOSCRIPT x", WEIR__NOT_EXECUTED, WEIR__REPLY_RELOAD},
        {"NOSCRIPT", WEIR__NOT_EXECUTED, WEIR__REPLY_RELOAD},
        {"READONLY You can't write against a read only replica.", WEIR__NOT_EXECUTED,
         WEIR__REPLY_LEAVE},
        {"MOVED 3999 127.0.0.1:6381", WEIR__NOT_EXECUTED, WEIR__REPLY_KEEP},
        {"ASK 3999 127.0.0.1:6381", WEIR__NOT_EXECUTED, WEIR__REPLY_KEEP},
        {"LOADING Redis is loading the dataset in memory", WEIR__NOT_EXECUTED, WEIR__REPLY_KEEP},
        {"CLUSTERDOWN Hash slot not served", WEIR__NOT_EXECUTED, WEIR__REPLY_KEEP},
        {"TRYAGAIN Multiple keys request during rehashing of slot", WEIR__NOT_EXECUTED,
         WEIR__REPLY_KEEP},
        {"MASTERDOWN Link with MASTER is down", WEIR__NOT_EXECUTED, WEIR__REPLY_KEEP},
        {"BUSY Redis is busy running a script.", WEIR__NOT_EXECUTED, WEIR__REPLY_KEEP},
        {"NOREPLICAS Not enough good replicas to write.", WEIR__NOT_EXECUTED, WEIR__REPLY_KEEP},
        {"OOM command not allowed when used memory > 'maxmemory'.", WEIR__NOT_EXECUTED,
         WEIR__REPLY_KEEP},
        {"WEIRTIME ERR This Redis command is not allowed from script", WEIR__NOT_EXECUTED,
         WEIR__REPLY_TELL_TIME},
        {"ERR NOSCRIPT x", WEIR__REFUSED, WEIR__REPLY_KEEP},
        {"ERR WEIRTIME", WEIR__REFUSED, WEIR__REPLY_KEEP},
        {"ERR BUSY", WEIR__REFUSED, WEIR__REPLY_KEEP},
        {"NOSCRIPTS x", WEIR__REFUSED, WEIR__REPLY_KEEP},
        {"noscript x", WEIR__REFUSED, WEIR__REPLY_KEEP},
        {"NOAUTH Authentication required.", WEIR__REFUSED, WEIR__REPLY_KEEP},
        {"WRONGPASS invalid username-password pair", WEIR__REFUSED, WEIR__REPLY_KEEP},
        {"NOPERM this user has no permissions", WEIR__REFUSED, WEIR__REPLY_KEEP},
        {"WRONGTYPE Operation against a key", WEIR__KEY_REFUSED, WEIR__REPLY_KEEP},
        {"WEIRARG no such rule", WEIR__KEY_REFUSED, WEIR__REPLY_KEEP},
        {"ERR WRONGTYPE", WEIR__REFUSED, WEIR__REPLY_KEEP},
        {"", WEIR__REFUSED, WEIR__REPLY_KEEP},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        redisReply reply = error_reply(rows[i].text);
        struct weir__outcome outcome;
        char text[WEIR__REPLY_TEXT_MAX];
        assert_int_equal(weir__reply_read(&outcome, text, &reply), rows[i].next);
        assert_int_equal(outcome.fate, rows[i].fate);
        assert_int_equal(outcome.count, 0);
        assert_string_equal(outcome.error, rows[i].text);
    }
}

static void test_an_array_of_integers_is_an_answer(void **state)
{
    (void)state;
    redisReply values[WEIR__REPLY_VALUES_MAX + 1];
    redisReply *elements[WEIR__REPLY_VALUES_MAX + 1];
    for (int i = 0; i <= WEIR__REPLY_VALUES_MAX; i++) {
        values[i] = (redisReply){.type = REDIS_REPLY_INTEGER, .integer = INT64_MIN + i};
        elements[i] = &values[i];
    }
    redisReply array = {.type = REDIS_REPLY_ARRAY, .element = elements};
    struct weir__outcome outcome;
    char text[WEIR__REPLY_TEXT_MAX];
    for (size_t count = 0; count <= WEIR__REPLY_VALUES_MAX; count++) {
        array.elements = count;
        assert_int_equal(weir__reply_read(&outcome, text, &array), WEIR__REPLY_KEEP);
        assert_int_equal(outcome.fate, WEIR__ANSWERED);
        assert_int_equal(outcome.count, count);
        assert_null(outcome.error);
        for (size_t i = 0; i < count; i++) {
            assert_true(outcome.values[i] == INT64_MIN + (int64_t)i);
        }
    }
    array.elements = WEIR__REPLY_VALUES_MAX + 1;
    assert_int_equal(weir__reply_read(&outcome, text, &array), WEIR__REPLY_DISTRUST);
    assert_int_equal(outcome.fate, WEIR__FATE_UNKNOWN);
    assert_int_equal(outcome.count, 0);

    values[1].type = REDIS_REPLY_NIL;
    array.elements = 2;
    assert_int_equal(weir__reply_read(&outcome, text, &array), WEIR__REPLY_DISTRUST);
    assert_int_equal(outcome.fate, WEIR__FATE_UNKNOWN);
    assert_true(outcome.values[0] == 0); /* nothing half-read is left */
}

static void test_text_is_one_printable_line(void **state)
{
    (void)state;
    char text[WEIR__REPLY_TEXT_MAX];
    char bytes[2 * WEIR__REPLY_TEXT_MAX];
    weir__reply_text(text, "a\nb\x1b[31m\xff\0z", 11);
    assert_string_equal(text, "a?b?[31m??z");
    memset(bytes, 'y', sizeof(bytes));
    weir__reply_text(text, bytes, sizeof(bytes));
    assert_int_equal(strlen(text), WEIR__REPLY_TEXT_MAX - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_the_first_word_decides),
        cmocka_unit_test(test_an_array_of_integers_is_an_answer),
        cmocka_unit_test(test_text_is_one_printable_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
