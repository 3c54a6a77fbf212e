/* SPDX-License-Identifier: MIT */
/* base/check: a false assertion ends the process and says where; with NDEBUG nothing is
 * evaluated. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#undef NDEBUG
#include "base/check.h"

static void assert_about(int value) { WEIR__ASSERT(value == 42); }

#define NDEBUG
#undef WEIR_BASE_CHECK_H
#undef WEIR__ASSERT
#include "base/check.h"

static int evaluations;
static int count_evaluation(void) { return ++evaluations; }
static void assert_nothing(void) { WEIR__ASSERT(count_evaluation() == 0); }

static void a_true_assertion_goes_on(void **state)
{
    (void)state;
    assert_about(42);
}

static void a_false_assertion_aborts_and_says_where(void **state)
{
    (void)state;
    int out[2];
    assert_int_equal(pipe(out), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        signal(SIGABRT, SIG_DFL); /* a sanitizer or the test framework may have its own */
        dup2(out[1], STDERR_FILENO);
        assert_about(41);
        _exit(0);
    }
    close(out[1]);
    char text[4096];
    size_t length = 0;
    ssize_t got;
    while ((got = read(out[0], text + length, sizeof text - 1 - length)) > 0) {
        length += (size_t)got;
    }
    text[length] = '\0';
    close(out[0]);

    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
    assert_non_null(strstr(text, "value == 42"));
    assert_non_null(strstr(text, "test_check.c"));
}

static void with_ndebug_nothing_is_evaluated(void **state)
{
    (void)state;
    assert_nothing();
    assert_int_equal(evaluations, 0);
    assert_int_equal(count_evaluation(), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_true_assertion_goes_on),
        cmocka_unit_test(a_false_assertion_aborts_and_says_where),
        cmocka_unit_test(with_ndebug_nothing_is_evaluated),
    };
    return cmocka_run_group_tests_name("check", tests, NULL, NULL);
}
