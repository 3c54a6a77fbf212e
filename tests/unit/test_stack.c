/* SPDX-License-Identifier: MIT */
/* base/stack: how callers hand work to the loop.  (With threads: tests/conc.) */
#include "base/stack.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void test_the_first_pushed_comes_first(void **state)
{
    (void)state;
    struct weir__stack stack = {.top = NULL};
    struct weir__stack_node nodes[3];
    assert_null(weir__stack_take(&stack));
    for (int i = 0; i < 3; i++) {
        assert_true(weir__stack_push(&stack, &nodes[i]));
    }
    struct weir__stack_node *node = weir__stack_take(&stack);
    for (int i = 0; i < 3; i++) {
        assert_ptr_equal(node, &nodes[i]);
        node = node->next;
    }
    assert_null(node);
    assert_null(weir__stack_take(&stack));
}

static void test_a_node_may_come_again(void **state)
{
    (void)state;
    struct weir__stack stack = {.top = NULL};
    struct weir__stack_node node;
    for (int i = 0; i < 3; i++) {
        assert_true(weir__stack_push(&stack, &node));
        assert_ptr_equal(weir__stack_take(&stack), &node);
    }
}

static void test_shut_is_for_good_and_loses_nothing(void **state)
{
    (void)state;
    struct weir__stack stack = {.top = NULL};
    struct weir__stack_node before, after;
    assert_true(weir__stack_push(&stack, &before));
    struct weir__stack_node *last = weir__stack_shut(&stack);
    assert_ptr_equal(last, &before);
    assert_null(last->next);
    assert_false(weir__stack_push(&stack, &after));
    assert_false(weir__stack_push(&stack, &before));
}

static void test_shut_while_empty(void **state)
{
    (void)state;
    struct weir__stack stack = {.top = NULL};
    struct weir__stack_node node;
    assert_null(weir__stack_shut(&stack));
    assert_false(weir__stack_push(&stack, &node));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_pushed_comes_first),
        cmocka_unit_test(test_a_node_may_come_again),
        cmocka_unit_test(test_shut_is_for_good_and_loses_nothing),
        cmocka_unit_test(test_shut_while_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
