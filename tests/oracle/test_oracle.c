/* SPDX-License-Identifier: MIT */
/*
 * The five algorithms against an oracle that shares nothing with them.  oracle.py knows the words
 * of the documentation only: lists of admissions, integers of any size, "when" as the least moment
 * at which it is so.  It asks, each ask runs in C and in the shipped script (twins holds these two
 * together), and it judges what was granted, how long to wait, what remains, when it is full, what
 * a refund brings back, what a change of the limit leaves, and when the key may go.
 *
 * WEIR_SEED replays, WEIR_SEQUENCES sets how many keys are asked about.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "script/random_asks.h"
#include "script/twins.h"

#include "judge.h"

#define SEQUENCES 1500 /* a few seconds */

static uint64_t sequences(void)
{
    const char *text = getenv("WEIR_SEQUENCES");
    return text == NULL ? SEQUENCES : strtoull(text, NULL, 10);
}

static struct twins keys[JUDGE_LANES];

static int set_up(void **state)
{
    (void)state;
    for (size_t i = 0; i < JUDGE_LANES; i++) {
        twins_init(&keys[i]);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (size_t i = 0; i < JUDGE_LANES; i++) {
        twins_deinit(&keys[i]);
    }
    return 0;
}

static void answer(struct judge *judge, const struct question *question, uint64_t seed)
{
    struct twins *twins = &keys[question->lane];
    const struct weir__global *key = &twins->bucket;
    struct weir__grant grant;
    if (question->begins) {
        twins_begin(twins, "an ask of the oracle", seed);
    }
    twins_ask(twins, &question->rule, &question->ask, question->now_us, &grant);
    bool exists = key->exists && question->now_us < key->expires_us;
    judge_tell(judge, &grant, exists, key->expires_us);
}

static void test_answers_are_right(void **state)
{
    (void)state;
    uint64_t seed = random_asks_seed(1);
    uint64_t count = sequences();
    uint64_t asked = 0;
    struct judge judge;
    struct question question;
    judge_start(&judge, count, seed);
    while (judge_next(&judge, &question)) {
        answer(&judge, &question, seed);
        asked++;
    }
    int code = judge_stop(&judge);
    print_message("WEIR_SEED=%" PRIu64 " WEIR_SEQUENCES=%" PRIu64 ": %" PRIu64 " asks\n", seed,
                  count, asked);
    assert_string_equal(judge.verdict, "done");
    assert_int_equal(code, 0);
    assert_true(asked > count);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers_are_right),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
