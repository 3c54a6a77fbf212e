/* SPDX-License-Identifier: MIT */
/* base/mem: what comes back, and that a hook can refuse it. */
#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/atomic.h"

static void zeroed_memory_is_zero(void **state)
{
    (void)state;
    for (size_t size = 0; size < 300; size++) {
        unsigned char *plain = weir__mem_zero(size);
        unsigned char *lines = weir__mem_zero_lines(size);
        assert_non_null(plain);
        assert_non_null(lines);
        assert_int_equal((uintptr_t)lines % WEIR__CACHE_LINE, 0);
        for (size_t i = 0; i < size; i++) {
            assert_int_equal(plain[i], 0);
            assert_int_equal(lines[i], 0);
            plain[i] = 0xff; /* so that the next round cannot be zero by luck */
            lines[i] = 0xff;
        }
        weir__mem_free(plain);
        weir__mem_free(lines);
    }
}

static void nothing_is_a_byte(void **state)
{
    (void)state;
    void *memory = weir__mem_alloc(0);
    assert_non_null(memory);
    weir__mem_free(memory);
    weir__mem_free(NULL);
}

static void a_size_that_would_wrap_is_refused(void **state)
{
    (void)state;
    assert_null(weir__mem_zero_lines(SIZE_MAX));
    assert_null(weir__mem_zero_lines(SIZE_MAX - WEIR__CACHE_LINE + 1));
}

struct countdown {
    int left;
    size_t last_size;
};

static bool refuse_at_zero(void *arg, size_t size)
{
    struct countdown *countdown = arg;
    countdown->last_size = size;
    return countdown->left-- == 0;
}

static void a_hook_can_refuse_the_kth_request(void **state)
{
    (void)state;
    struct countdown countdown = {.left = 2, .last_size = 0};
    weir__mem_set_hooks(refuse_at_zero, &countdown);
    void *first = weir__mem_alloc(10);
    void *second = weir__mem_zero(20);
    void *third = weir__mem_zero_lines(30);
    void *fourth = weir__mem_alloc(40);
    weir__mem_set_hooks(NULL, NULL);

    assert_non_null(first);
    assert_non_null(second);
    assert_null(third);
    assert_non_null(fourth);
    assert_int_equal(countdown.last_size, 40);
    weir__mem_free(first);
    weir__mem_free(second);
    weir__mem_free(fourth);

    void *after = weir__mem_alloc(50);
    assert_non_null(after);
    assert_int_equal(countdown.last_size, 40);
    weir__mem_free(after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zeroed_memory_is_zero),
        cmocka_unit_test(nothing_is_a_byte),
        cmocka_unit_test(a_size_that_would_wrap_is_refused),
        cmocka_unit_test(a_hook_can_refuse_the_kth_request),
    };
    return cmocka_run_group_tests_name("mem", tests, NULL, NULL);
}
