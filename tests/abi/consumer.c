/* SPDX-License-Identifier: MIT */
/* A program of someone else: includes what is installed, links what is installed, and asks the
 * library for two tokens of a limit of one. */
#include <stdio.h>
#include <string.h>

#include <weir/weir.h>

int main(void)
{
    struct weir_options options;
    struct weir_limit_options limit_options;
    struct weir_error error;
    struct weir *weir;
    struct weir_limit *limit;

    if (strcmp(weir_version(), EXPECTED_VERSION) != 0) {
        fprintf(stderr, "version %s, expected %s\n", weir_version(), EXPECTED_VERSION);
        return 1;
    }
    weir_options_init(&options, sizeof options);
    if (weir_open(&weir, &options, &error) != WEIR_OK) {
        fprintf(stderr, "weir_open: %s\n", error.text);
        return 1;
    }
    weir_limit_options_init(&limit_options, sizeof limit_options);
    limit_options.name = "logins";
    limit_options.rate_tokens = 1;
    limit_options.rate_period_us = 3600000000;
    limit_options.capacity_tokens = 1;
    if (weir_limit_define(weir, &limit, &limit_options, &error) != WEIR_OK) {
        fprintf(stderr, "weir_limit_define: %s\n", error.text);
        return 1;
    }
    int first = weir_acquire_wait_key(limit, "alice", 5, 1, 0, NULL);
    int second = weir_acquire_wait_key(limit, "alice", 5, 1, 0, NULL);
    weir_close_wait(weir);
    printf("first %s, second %s\n", weir_verdict_name(first), weir_verdict_name(second));
    return first == WEIR_ALLOWED && second == WEIR_DENIED ? 0 : 1;
}
