/* SPDX-License-Identifier: MIT */
/* api/text: every number has its name and its words, and no other number has any. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/limit.h"
#include "core/waiters.h"
#include "weir/weir.h"

static void codes(void **state)
{
    (void)state;
    assert_string_equal(weir_code_name(WEIR_OK), "WEIR_OK");
    assert_string_equal(weir_code_meaning(WEIR_OK), "success");
    assert_string_equal(weir_code_advice(WEIR_OK), "");
    static const char *const names[] = {"WEIR_EINVAL",  "WEIR_ENOMEM", "WEIR_ECLOSED", "WEIR_EFULL",
                                        "WEIR_ESYSTEM", "WEIR_EEXIST", "WEIR_ETHREAD"};
    for (int code = -1; code >= -7; code--) {
        assert_string_equal(weir_code_name(code), names[-code - 1]);
        assert_true(strlen(weir_code_meaning(code)) > 10);
        assert_true(strlen(weir_code_advice(code)) > 10);
    }
    const int none[] = {1, 2, 3, -8, 1000, INT_MAX, INT_MIN};
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
        assert_string_equal(weir_code_name(none[i]), "unknown");
        assert_string_equal(weir_code_meaning(none[i]), "unknown");
        assert_string_equal(weir_code_advice(none[i]), "unknown");
    }
}

static void algorithms_have_names(void **state)
{
    (void)state;
    static const char *const names[] = {"unknown",     "token-bucket",    "leaky",  "fixed-window",
                                        "sliding-log", "sliding-counter", "unknown"};
    for (int i = 0; i <= 6; i++) {
        assert_string_equal(weir_algorithm_name(i), names[i]);
    }
    assert_string_equal(weir_algorithm_name(-1), "unknown");
}

static void reasons_and_verdicts(void **state)
{
    (void)state;
    static const char *const verdicts[] = {"DENIED", "ALLOWED", "UNAVAILABLE", "PENDING"};
    for (int i = 0; i < 4; i++) {
        assert_string_equal(weir_verdict_name(i), verdicts[i]);
    }
    for (int i = 0; i < 9; i++) {
        assert_string_not_equal(weir_reason_text(i), "unknown");
        for (int j = 0; j < i; j++) {
            assert_string_not_equal(weir_reason_text(i), weir_reason_text(j));
        }
    }
    assert_string_equal(weir_reason_text(WEIR_OVER_LIMIT), "over the limit");
    const int none[] = {-1, 9, INT_MAX, INT_MIN};
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
        assert_string_equal(weir_reason_text(none[i]), "unknown");
        assert_string_equal(weir_verdict_name(none[i]), "unknown");
    }
    assert_true(strlen(weir_version()) >= 5);
}

/* The core has numbers of its own, since it may not know the public header. */
static void both_sides_count_alike(void **state)
{
    (void)state;
    const int pairs[][2] = {
        {WEIR_DENIED, WEIR__DENIED},
        {WEIR_ALLOWED, WEIR__ALLOWED},
        {WEIR_UNAVAILABLE, WEIR__UNAVAILABLE},
        {WEIR_WITHIN_LIMIT, WEIR__REASON_WITHIN_LIMIT},
        {WEIR_OVER_LIMIT, WEIR__REASON_OVER_LIMIT},
        {WEIR_COLD, WEIR__REASON_COLD},
        {WEIR_COST_ABOVE_CAPACITY, WEIR__REASON_COST_ABOVE_CAPACITY},
        {WEIR_STORE_DOWN, WEIR__REASON_STORE_DOWN},
        {WEIR_DEADLINE, WEIR__REASON_DEADLINE},
        {WEIR_BUSY, WEIR__REASON_BUSY},
        {WEIR_CLOSED, WEIR__REASON_CLOSED},
        {WEIR_UNKNOWN, WEIR__TIME_UNKNOWN},
        {WEIR_NEVER, WEIR__TIME_NEVER},
        {WEIR_OUTAGE_LOCAL, WEIR__OUTAGE_LOCAL},
        {WEIR_OUTAGE_OPEN, WEIR__OUTAGE_OPEN},
        {WEIR_OUTAGE_CLOSED, WEIR__OUTAGE_CLOSED},
    };
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        assert_int_equal(pairs[i][0], pairs[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes),
        cmocka_unit_test(algorithms_have_names),
        cmocka_unit_test(reasons_and_verdicts),
        cmocka_unit_test(both_sides_count_alike),
    };
    return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
