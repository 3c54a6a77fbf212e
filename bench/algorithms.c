/* SPDX-License-Identifier: MIT */
/*
 * What docs/algorithms.md shows, as numbers: scripts/plot-algorithms runs this and writes them
 * down.
 *
 *     algorithms course NAME    what an algorithm admits over time, in columns
 *     algorithms worst          the worst that a greedy user can do to each
 *     algorithms kinds          what a key of each costs in Redis: bytes, CPU a call
 *     algorithms logs           what a sliding log costs by its length, and as a sorted set
 *     algorithms memory         what a bucket of each costs in the process
 *     algorithms evenness       how evenly a queue lets out
 *
 * The last four start a private redis-server.  Exit status: 0, 1 when something failed, 2 for a
 * wrong word.
 */
#include <stdio.h>
#include <string.h>

#include "course.h"
#include "evenness.h"
#include "price.h"
#include "redis_server.h"

static int usage(void)
{
    fprintf(stderr,
            "algorithms: course NAME | worst | kinds | logs | memory | evenness; NAME is one of");
    for (int i = 0; i < KINDS; i++) {
        fprintf(stderr, " %s", kinds[i].name);
    }
    fprintf(stderr, "\n");
    return 2;
}

static int course(const char *name)
{
    for (int i = 0; i < KINDS; i++) {
        if (strcmp(name, kinds[i].name) == 0) {
            course_print(&kinds[i]);
            return 0;
        }
    }
    return usage();
}

static int priced(bool (*print)(const char *url, char *why, size_t why_size))
{
    struct redis_server server;
    char why[256];
    bool done = redis_server_start(&server, why, sizeof why) && print(server.url, why, sizeof why);
    redis_server_stop(&server);
    if (!done) {
        fprintf(stderr, "algorithms: %s\n", why);
    }
    return done ? 0 : 1;
}

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";
    if (argc == 3 && strcmp(word, "course") == 0) {
        return course(argv[2]);
    }
    if (argc != 2) {
        return usage();
    }
    if (strcmp(word, "worst") == 0) {
        for (int i = 0; i < KINDS; i++) {
            course_print_worst(&kinds[i]);
        }
        return 0;
    }
    if (strcmp(word, "kinds") == 0) {
        return priced(price_print_kinds);
    }
    if (strcmp(word, "logs") == 0) {
        return priced(price_print_logs);
    }
    if (strcmp(word, "memory") == 0) {
        return priced(price_print_memory);
    }
    return strcmp(word, "evenness") == 0 ? priced(evenness_print) : usage();
}
