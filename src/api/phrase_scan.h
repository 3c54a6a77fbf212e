/* SPDX-License-Identifier: MIT */
#ifndef WEIR_API_PHRASE_SCAN_H
#define WEIR_API_PHRASE_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weir/weir.h"

/*
 * A scanner of text, for weir_limit_parse: what stands at `at` is read and passed, or refused with
 * the number of its character and what was expected.  Functions return false after a refusal.
 */
struct weir__scanner {
    const char *text, *at;
    struct weir_error *error;
};

/* Refuses the `len` bytes at `from`; 0: the end of the text.  The format says what was expected. */
bool weir__scan_refuse(struct weir__scanner *scanner, const char *from, size_t len,
                       const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Refuses what stands here, up to a blank. */
bool weir__scan_refuse_word(struct weir__scanner *scanner, const char *expected);

void weir__scan_skip_blanks(struct weir__scanner *scanner);

/* Whether all that stands here up to a blank is `word`; passes it then. */
bool weir__scan_is(struct weir__scanner *scanner, const char *word);

bool weir__scan_whole(struct weir__scanner *scanner, uint64_t least, uint64_t most, uint64_t *out);

/* Reads "2.5%".  False without a refusal, and nothing passed: what stands here is no percentage. */
bool weir__scan_percent(struct weir__scanner *scanner, double *out);

/* Reads a time of whole milliseconds. */
bool weir__scan_ms(struct weir__scanner *scanner, uint64_t least, uint64_t most, uint64_t *ms);

/* Reads a rate of up to `most` tokens, as a fraction: "0.1/s" is 1 per 10 s.  With `month` blanks
 * may stand in it, and the time may be a month: *month says where, and the period is 0.  Without
 * (NULL) it is one word. */
bool weir__scan_rate(struct weir__scanner *scanner, uint64_t most, uint64_t *tokens,
                     uint64_t *period_us, const char **month);

#endif
