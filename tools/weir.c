/* SPDX-License-Identifier: MIT */

/*
 * The command-line tool.
 *
 *     weir check TEXT [--json]     what a limit means, and what it costs
 *
 * Exit status: 0; 1, what was asked could not be done; 2, it was not understood what was asked.
 */

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "check.h"

static int usage(void)
{
    fputs("usage: weir check TEXT [--json]\n"
          "\n"
          "  check   explains a limit: \"10/min burst=20\", \"5 per 10s fixed-window\"\n",
          stderr);
    return 2;
}

static int run_check(int count, char **arguments)
{
    const char *text = NULL;
    bool json = false;
    for (int i = 0; i < count; i++) {
        if (strcmp(arguments[i], "--json") == 0) {
            json = true;
        } else if (text == NULL && strncmp(arguments[i], "--", 2) != 0) {
            text = arguments[i];
        } else {
            return usage();
        }
    }
    return text != NULL ? check_limit(text, json) : usage();
}

int main(int argc, char **argv)
{
    if (argc >= 2 && strcmp(argv[1], "check") == 0) {
        return run_check(argc - 2, argv + 2);
    }
    return usage();
}
