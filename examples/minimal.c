/* SPDX-License-Identifier: MIT */
/* Five requests under a limit of three: minimal [URL], URL as in unix:///run/redis.sock */
#include <stdio.h>
#include <weir/weir.h>

int main(int argc, char **argv)
{
    struct weir_options options;
    weir_options_init(&options, sizeof options);
    options.url = argc > 1 ? argv[1] : NULL; /* none: everything works in this process alone */

    struct weir_limit_options rule;
    weir_limit_options_init(&rule, sizeof rule);
    rule.name = "greetings";
    rule.rate_tokens = 3;
    rule.rate_period_us = 60 * 1000 * 1000;
    rule.capacity_tokens = 3;

    struct weir *weir;
    struct weir_limit *limit;
    struct weir_error error;
    if (weir_open(&weir, &options, &error) != WEIR_OK ||
        weir_limit_define(weir, &limit, &rule, &error) != WEIR_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    for (int i = 1; i <= 5; i++) {
        struct weir_result result;
        int verdict = weir_acquire_wait_key(limit, "alice", 5, 1, 0, &result);
        printf("%d %s: %s\n", i, weir_verdict_name(verdict), weir_reason_text((int)result.reason));
    }
    return weir_close_wait(weir) == WEIR_OK ? 0 : 1;
}
