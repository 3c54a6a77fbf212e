/* SPDX-License-Identifier: MIT */
/* core/bucket: what a caller does to the credit word and to the gate, and who has to ring. */
#include "core/bucket.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void test_take_is_all_or_nothing(void **state)
{
    (void)state;
    struct weir__bucket bucket = {.credit = 5};
    assert_false(weir__bucket_take(&bucket, 6));
    assert_int_equal(bucket.credit, 5);
    assert_true(weir__bucket_take(&bucket, 2));
    assert_true(weir__bucket_take(&bucket, 3));
    assert_int_equal(bucket.credit, 0);
    assert_false(weir__bucket_take(&bucket, 1));
    assert_int_equal(bucket.credit, 0);
}

static void test_credit_lies_on_a_line_of_its_own(void **state)
{
    (void)state;
    assert_int_equal(offsetof(struct weir__bucket, credit) % WEIR__CACHE_LINE, 0);
    assert_int_equal(offsetof(struct weir__bucket, limit) % WEIR__CACHE_LINE, 0);
    assert_true(offsetof(struct weir__bucket, touched) + sizeof(struct weir__stack_node) <=
                WEIR__CACHE_LINE);
}

/* The first who finds nothing rings; the others know that somebody has. */
static void test_one_caller_rings(void **state)
{
    (void)state;
    struct weir__bucket bucket = {.credit = 0};
    assert_int_equal(weir__bucket_miss(&bucket), WEIR__MISS_TOUCH);
    assert_int_equal(bucket.gate, WEIR__GATE_MISSED | WEIR__GATE_TOUCHED);
    assert_int_equal(weir__bucket_miss(&bucket), WEIR__MISS_COLD);
    assert_int_equal(weir__bucket_miss(&bucket), WEIR__MISS_COLD);
}

static void test_nobody_rings_while_the_loop_watches(void **state)
{
    (void)state;
    struct weir__bucket bucket = {.gate = WEIR__GATE_WATCHED};
    assert_int_equal(weir__bucket_miss(&bucket), WEIR__MISS_COLD);
    assert_int_equal(bucket.gate, WEIR__GATE_WATCHED | WEIR__GATE_MISSED);
}

static void test_refused_and_closed(void **state)
{
    (void)state;
    struct weir__bucket refused = {.gate = WEIR__GATE_WATCHED | WEIR__GATE_REFUSE};
    assert_int_equal(weir__bucket_miss(&refused), WEIR__MISS_REFUSED);
    assert_int_equal(weir__bucket_miss(&refused), WEIR__MISS_REFUSED);

    const uint32_t known = WEIR__GATE_WATCHED | WEIR__GATE_MISSED;
    struct weir__bucket closed[] = {{.gate = WEIR__GATE_CLOSED},
                                    {.gate = WEIR__GATE_CLOSED | known}};
    assert_int_equal(weir__bucket_miss(&closed[0]), WEIR__MISS_CLOSED);
    assert_int_equal(weir__bucket_miss(&closed[1]), WEIR__MISS_CLOSED);
    assert_int_equal(closed[0].gate, WEIR__GATE_CLOSED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_take_is_all_or_nothing),
        cmocka_unit_test(test_credit_lies_on_a_line_of_its_own),
        cmocka_unit_test(test_one_caller_rings),
        cmocka_unit_test(test_nobody_rings_while_the_loop_watches),
        cmocka_unit_test(test_refused_and_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
