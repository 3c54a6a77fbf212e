/* SPDX-License-Identifier: MIT */
/*
 * Two pipes to a Python.  One line of integers an ask, one an answer: what is asked next in a lane
 * depends on what was answered there, as with any client.  Answers wait in the buffer until the
 * oracle has asked in every lane; both of these fit in a pipe.
 */
#include "judge.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define RULE_NUMBERS 13
#define ASK_NUMBERS (10 + 3 * WEIR__SETTLE_ROWS)
#define NUMBERS (3 + RULE_NUMBERS + ASK_NUMBERS)

/* Beside this file, unless WEIR_TESTS names the folder of the tests. */
static void path_of_oracle(char path[1024])
{
    const char *tests = getenv("WEIR_TESTS");
    if (tests != NULL) {
        snprintf(path, 1024, "%s/oracle/oracle.py", tests);
        return;
    }
    const char *slash = strrchr(__FILE__, '/');
    snprintf(path, 1024, "%.*s/oracle.py", slash == NULL ? 1 : (int)(slash - __FILE__),
             slash == NULL ? "." : __FILE__);
}

static void become_oracle(const int asks[2], const int answers[2], uint64_t count, uint64_t seed)
{
    char path[1024];
    char count_text[24];
    char seed_text[24];
    path_of_oracle(path);
    snprintf(count_text, sizeof count_text, "%llu", (unsigned long long)count);
    snprintf(seed_text, sizeof seed_text, "%llu", (unsigned long long)seed);
    dup2(answers[0], STDIN_FILENO);
    dup2(asks[1], STDOUT_FILENO);
    close(asks[0]);
    close(asks[1]);
    close(answers[0]);
    close(answers[1]);
    execlp("python3", "python3", "-B", path, count_text, seed_text, (char *)NULL);
    _exit(127);
}

void judge_start(struct judge *judge, uint64_t count, uint64_t seed)
{
    int asks[2];
    int answers[2];
    assert_int_equal(pipe(asks), 0);
    assert_int_equal(pipe(answers), 0);
    signal(SIGPIPE, SIG_IGN); /* an oracle that died has said why in its verdict, or says nothing */
    judge->pid = fork();
    assert_true(judge->pid >= 0);
    if (judge->pid == 0) {
        become_oracle(asks, answers, count, seed);
    }
    close(asks[1]);
    close(answers[0]);
    judge->asks = fdopen(asks[0], "r");
    judge->answers = fdopen(answers[1], "w");
    assert_non_null(judge->asks);
    assert_non_null(judge->answers);
    judge->verdict[0] = 0;
}

static void read_rule(struct weir__rule *rule, const int64_t n[RULE_NUMBERS])
{
    *rule = (struct weir__rule){.version = n[0],
                                .tick_us = n[1],
                                .units_per_tick = n[2],
                                .units_per_token = n[3],
                                .capacity = n[4],
                                .budget = n[5],
                                .window_us = n[6],
                                .max_wait_us = n[7],
                                .initial = n[8],
                                .period_us = n[9],
                                .algorithm = (enum weir__algorithm_id)n[10],
                                .variant = n[11],
                                .learn = n[12] != 0};
}

static void read_ask(struct weir__ask *ask, const int64_t n[ASK_NUMBERS])
{
    *ask = (struct weir__ask){.peek = n[0] != 0,
                              .reset = n[1] != 0,
                              .want = n[2],
                              .least = n[3],
                              .held = n[4],
                              .exact = n[5],
                              .wait_us = n[6],
                              .refund = n[7],
                              .since = n[8],
                              .heard = n[9]};
    for (size_t i = 0; i < WEIR__SETTLE_ROWS; i++) {
        const int64_t *row = n + 10 + 3 * i;
        ask->settle[i] = (struct weir__settle){row[0], row[1], row[2]};
    }
}

/* The next line that is no end of a round.  False: there is none. */
static bool read_line(struct judge *judge, char *line, int size)
{
    while (fgets(line, size, judge->asks) != NULL) {
        if (line[0] != '?') {
            return true;
        }
        fflush(judge->answers);
    }
    return false;
}

bool judge_next(struct judge *judge, struct question *question)
{
    char line[sizeof judge->verdict];
    int64_t n[NUMBERS];
    if (!read_line(judge, line, sizeof line)) {
        snprintf(judge->verdict, sizeof judge->verdict, "the oracle fell silent");
        return false;
    }
    char *at = line;
    for (size_t i = 0; i < NUMBERS; i++) {
        char *end;
        n[i] = strtoll(at, &end, 10);
        if (end == at) {
            line[strcspn(line, "\n")] = 0;
            memcpy(judge->verdict, line, sizeof line);
            return false;
        }
        at = end;
    }
    question->lane = (size_t)n[0];
    assert_in_range(question->lane, 0, JUDGE_LANES - 1);
    question->begins = n[1] != 0;
    question->now_us = n[2];
    read_rule(&question->rule, n + 3);
    read_ask(&question->ask, n + 3 + RULE_NUMBERS);
    return true;
}

void judge_tell(struct judge *judge, const struct weir__grant *grant, bool exists,
                int64_t expires_us)
{
    const int64_t n[] = {
        grant->lease,     grant->exact,     grant->wait_us,        grant->window,
        grant->life_us,   grant->remaining, grant->retry_after_us, grant->reset_after_us,
        grant->processes, grant->refunded,  grant->outstanding,    grant->version,
        grant->first_us,  grant->spread_us, grant->start_us,       exists,
        expires_us};
    for (size_t i = 0; i < sizeof n / sizeof n[0]; i++) {
        fprintf(judge->answers, "%lld ", (long long)n[i]);
    }
    fprintf(judge->answers, "\n");
}

int judge_stop(struct judge *judge)
{
    int status = 0;
    fclose(judge->answers);
    fclose(judge->asks);
    assert_int_equal(waitpid(judge->pid, &status, 0), judge->pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
