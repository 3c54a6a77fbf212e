/* SPDX-License-Identifier: MIT */

/*
 * Names and sentences for the numbers of the public header.
 *
 * They come from the header's own lists, so a new number has its words, or does not compile.
 * Nothing here is part of the path of a token.
 */

#include "weir/weir.h"

#ifndef WEIR_VERSION
#error "the build defines WEIR_VERSION"
#endif

const char *weir_version(void) { return WEIR_VERSION; }

struct code_text {
    int code;
    const char *name, *meaning, *advice;
};

static struct code_text text_of(int code)
{
    switch (code) {
    case WEIR_OK: return (struct code_text){code, "WEIR_OK", "success", ""};
#define CODE_CASE(number, symbol, meaning, advice)                                                 \
    case number: return (struct code_text){code, #symbol, meaning, advice};
        WEIR_ERRORS(CODE_CASE)
#undef CODE_CASE
    default: return (struct code_text){code, "unknown", "unknown", "unknown"};
    }
}

const char *weir_code_name(int code) { return text_of(code).name; }

const char *weir_code_meaning(int code) { return text_of(code).meaning; }

const char *weir_code_advice(int code) { return text_of(code).advice; }

const char *weir_algorithm_name(int algorithm)
{
    switch (algorithm) {
#define ALGORITHM_CASE(number, symbol, text)                                                       \
    case number: return text;
        WEIR_ALGORITHMS(ALGORITHM_CASE)
#undef ALGORITHM_CASE
    default: return "unknown";
    }
}

const char *weir_reason_text(int reason)
{
    switch (reason) {
#define REASON_CASE(number, symbol, text)                                                          \
    case number: return text;
        WEIR_REASONS(REASON_CASE)
#undef REASON_CASE
    default: return "unknown";
    }
}

const char *weir_verdict_name(int verdict)
{
    switch (verdict) {
    case WEIR_DENIED: return "DENIED";
    case WEIR_ALLOWED: return "ALLOWED";
    case WEIR_UNAVAILABLE: return "UNAVAILABLE";
    case WEIR_PENDING: return "PENDING";
    default: return "unknown";
    }
}
