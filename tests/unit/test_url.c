/* SPDX-License-Identifier: MIT */
/* api/url: addresses of stores, good and bad; what is wrong is told by its place, never by its
 * text. */
#include "api/url.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void good_addresses(void **state)
{
    (void)state;
    static const struct {
        const char *url, *host, *path;
        unsigned port, db;
        const char *user, *password;
    } rows[] = {
        {"redis://localhost", "localhost", "", 6379, 0, "", ""},
        {"redis://localhost/", "localhost", "", 6379, 0, "", ""},
        {"redis://10.0.0.1:1", "10.0.0.1", "", 1, 0, "", ""},
        {"redis://h:65535/65535", "h", "", 65535, 65535, "", ""},
        {"redis://h:06379/00003", "h", "", 6379, 3, "", ""},
        {"redis://[::1]", "::1", "", 6379, 0, "", ""},
        {"redis://[fe80::1]:7000/2", "fe80::1", "", 7000, 2, "", ""},
        {"redis://:secret@h", "h", "", 6379, 0, "", "secret"},
        {"redis://user:secret@h:1/2", "h", "", 1, 2, "user", "secret"},
        {"redis://u:p@ss@h", "h", "", 6379, 0, "u", "p@ss"},
        {"redis://u:a:b@h", "h", "", 6379, 0, "u", "a:b"},
        {"redis://u%40x:%2f%3A%25%41@h", "h", "", 6379, 0, "u@x", "/:%A"},
        {"redis://u:%ff%01@[::1]:5", "::1", "", 5, 0, "u", "\xff\x01"},
        {"unix:///run/redis.sock", "", "/run/redis.sock", 0, 0, "", ""},
        {"unix:///run/redis.sock?db=7", "", "/run/redis.sock", 0, 7, "", ""},
        {"unix://user:secret@/run/a@b:c", "", "/run/a@b:c", 0, 0, "user", "secret"},
        {"unix://:s%2Fx@/r?db=0", "", "/r", 0, 0, "", "s/x"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct weir__endpoint endpoint;
        struct weir_error error = {0};
        memset(&endpoint, 0x55, sizeof(endpoint));
        if (weir__url_read(&endpoint, rows[i].url, &error) != WEIR_OK) {
            fail_msg("%s: %s", rows[i].url, error.text);
        }
        assert_string_equal(endpoint.host, rows[i].host);
        assert_string_equal(endpoint.path, rows[i].path);
        assert_int_equal(endpoint.port, rows[i].port);
        assert_int_equal(endpoint.db, rows[i].db);
        assert_string_equal(endpoint.user, rows[i].user);
        assert_string_equal(endpoint.password, rows[i].password);
        assert_int_equal(error.code, 0);
    }
}

static void bad_addresses(void **state)
{
    (void)state;
    static const struct {
        const char *url, *says;
    } rows[] = {
        {"", "character 1: expected redis://"},
        {"redis:/h", "character 1:"},
        {"REDIS://h", "character 1:"},
        {" redis://h", "character 1:"},
        {"rediss://h", "character 1:"},
        {"redis+cluster://h", "character 1:"},
        {"localhost:6379", "character 1:"},
        {"redis://", "character 9: expected a host"},
        {"redis:///3", "character 9: expected a host"},
        {"redis://:6379", "character 9: expected a host"},
        {"redis://h%41", "character 9: expected a host"},
        {"redis://h:", "character 10: expected ':' and a port"},
        {"redis://h:0", "port from 1"},
        {"redis://h:65536", "port from 1"},
        {"redis://h:-1", "port from 1"},
        {"redis://h:+1", "port from 1"},
        {"redis://h: 1", "port from 1"},
        {"redis://h:1x", "port from 1"},
        {"redis://h:000001", "port from 1"},
        {"redis://h:99999999999999999999", "port from 1"},
        {"redis://h/x", "character 11: expected a database"},
        {"redis://h/1/", "database"},
        {"redis://h/65536", "database"},
        {"redis://h/-1", "database"},
        {"redis://[::1", "character 9: expected ']'"},
        {"redis://[]", "host"},
        {"redis://[::1]6379", "port"},
        {"redis://[::1]:", "port"},
        {"redis://user@h", "character 13: expected ':' and a password"},
        {"redis://user:@h", "password"},
        {"redis://u:%@h", "percent-encoded"},
        {"redis://u:%4@h", "percent-encoded"},
        {"redis://u:%4g@h", "percent-encoded"},
        {"redis://u:a%00b@h", "percent-encoded"},
        {"redis://%zz:p@h", "character 9: expected a user"},
        {"unix://", "character 8: expected an absolute path"},
        {"unix://run/redis", "absolute path"},
        {"unix:///r%41", "absolute path"},
        {"unix:///r?", "?db="},
        {"unix:///r?db=", "?db="},
        {"unix:///r?db=x", "?db="},
        {"unix:///r?db=1&x=2", "?db="},
        {"unix:///r?password=x", "?db="},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct weir__endpoint endpoint;
        struct weir_error error = {0};
        assert_int_equal(weir__url_read(&endpoint, rows[i].url, &error), WEIR_EINVAL);
        assert_int_equal(error.code, WEIR_EINVAL);
        if (strncmp(error.text, "url: ", 5) != 0 || strstr(error.text, rows[i].says) == NULL) {
            fail_msg("%s: not '%s', but '%s'", rows[i].url, rows[i].says, error.text);
        }
    }
}

/* Each piece at its longest, and one byte longer. */
static void lengths(void **state)
{
    (void)state;
    static const struct {
        const char *before, *after;
        size_t most;
    } rows[] = {
        {"redis://", ":1", WEIR__HOST_MAX},         {"redis://[", "]", WEIR__HOST_MAX},
        {"redis://", ":p@h", WEIR__CREDENTIAL_MAX}, {"redis://u:", "@h", WEIR__CREDENTIAL_MAX},
        {"unix:///", "?db=1", WEIR__PATH_MAX - 1},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (size_t more = 0; more < 2; more++) {
            struct weir__endpoint endpoint;
            char url[1024], piece[600];
            memset(piece, 'a', sizeof(piece));
            piece[rows[i].most + more] = '\0';
            snprintf(url, sizeof(url), "%s%s%s", rows[i].before, piece, rows[i].after);
            assert_int_equal(weir__url_read(&endpoint, url, NULL),
                             more == 0 ? WEIR_OK : WEIR_EINVAL);
        }
    }
}

/* Wherever the mistake is, no message quotes what could be a password. */
static void no_message_holds_a_password(void **state)
{
    (void)state;
    static const char *const urls[] = {
        "redis://user:hunter2@",
        "redis://user:hunter2@h:x",
        "redis://user:hunter2@h/x",
        "redis://user:hunter2@[::1",
        "redis://user:hunter2%@h",
        "redis://hunter2@h",
        "redis://:hunter2",
        "redis://user:hunter2/@h",
        "hunter2",
        "unix://user:hunter2@relative",
        "unix://user:hunter2@/r?password",
        "unix:///r?password=hunter2",
        "redis://user:hunter2#@h:0",
        "http://user:hunter2@h",
    };
    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
        struct weir__endpoint endpoint;
        struct weir_error error = {0};
        assert_int_equal(weir__url_read(&endpoint, urls[i], &error), WEIR_EINVAL);
        assert_null(strstr(error.text, "hunter2"));
        assert_int_equal(weir__url_read(&endpoint, urls[i], NULL), WEIR_EINVAL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_addresses),
        cmocka_unit_test(bad_addresses),
        cmocka_unit_test(lengths),
        cmocka_unit_test(no_message_holds_a_password),
    };
    return cmocka_run_group_tests_name("url", tests, NULL, NULL);
}
