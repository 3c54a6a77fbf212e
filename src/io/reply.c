/* SPDX-License-Identifier: MIT */
/*
 * From a reply to an outcome: what is known about the fate of a script call.
 *
 * Path of a token: io/conn (a reply has come) -> weir__reply_read -> the call's done -> core/wire.
 *
 * Only the first word of an error decides.  The sentence behind it differs between Redis and
 * Valkey and between their versions; "ERR NOSCRIPT ..." is an ordinary error whose text mentions a
 * word.
 *
 * Surely not executed, in the table below: the server says so before it runs anything (NOSCRIPT,
 * MOVED, ASK, LOADING, CLUSTERDOWN, TRYAGAIN, MASTERDOWN, BUSY, NOREPLICAS), or at the first write
 * (READONLY, OOM). A script of weir's only write that grows memory is its first one, so OOM leaves
 * nothing half done.  WEIRTIME is the script's own: the server does not let it read the clock,
 * which it does first.  Every other error is a refusal: the same call would fail again until
 * someone mends the store; or this key, where the script found in it what it cannot read
 * (WRONGTYPE, WEIRARG), which says nothing of the others.
 *
 * A reply that is neither an error nor an array of at most WEIR__REPLY_VALUES_MAX integers cannot
 * come from a script of weir.  It means that the peer is not the store, or that a reply too many
 * or too few has shifted the stream.  The call's fate is unknown, and no later reply of this
 * connection is believed: a grant matched to the wrong bucket would break the promise.
 */
#include "io/reply.h"

#include <stdbool.h>
#include <string.h>

#include <hiredis/hiredis.h>

static const char *const of_the_key[] = {"WRONGTYPE", "WEIRARG"};

static const struct {
    const char *word;
    enum weir__reply_next next;
} not_executed[] = {
    {"NOSCRIPT", WEIR__REPLY_RELOAD}, {"READONLY", WEIR__REPLY_LEAVE},
    {"MOVED", WEIR__REPLY_KEEP},      {"ASK", WEIR__REPLY_KEEP},
    {"LOADING", WEIR__REPLY_KEEP},    {"CLUSTERDOWN", WEIR__REPLY_KEEP},
    {"TRYAGAIN", WEIR__REPLY_KEEP},   {"MASTERDOWN", WEIR__REPLY_KEEP},
    {"BUSY", WEIR__REPLY_KEEP},       {"NOREPLICAS", WEIR__REPLY_KEEP},
    {"OOM", WEIR__REPLY_KEEP},        {"WEIRTIME", WEIR__REPLY_TELL_TIME},
};

static bool first_word_is(const char *error, size_t len, const char *word)
{
    size_t word_len = strlen(word);
    return len >= word_len && memcmp(error, word, word_len) == 0 &&
           (len == word_len || error[word_len] == ' ');
}

void weir__reply_text(char out[WEIR__REPLY_TEXT_MAX], const char *bytes, size_t len)
{
    if (len > WEIR__REPLY_TEXT_MAX - 1) {
        len = WEIR__REPLY_TEXT_MAX - 1;
    }
    for (size_t i = 0; i < len; i++) {
        out[i] = bytes[i] >= ' ' && bytes[i] <= '~' ? bytes[i] : '?';
    }
    out[len] = '\0';
}

static enum weir__reply_next read_error(struct weir__outcome *outcome, const char *error,
                                        size_t len)
{
    for (size_t i = 0; i < sizeof(not_executed) / sizeof(not_executed[0]); i++) {
        if (first_word_is(error, len, not_executed[i].word)) {
            outcome->fate = WEIR__NOT_EXECUTED;
            return not_executed[i].next;
        }
    }
    outcome->fate = WEIR__REFUSED;
    for (size_t i = 0; i < sizeof(of_the_key) / sizeof(of_the_key[0]); i++) {
        if (first_word_is(error, len, of_the_key[i])) {
            outcome->fate = WEIR__KEY_REFUSED;
        }
    }
    return WEIR__REPLY_KEEP;
}

/* Returns NULL, or what is wrong with the shape. */
static const char *read_values(struct weir__outcome *outcome, const struct redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY) {
        return "the reply is not an array";
    }
    if (reply->elements > WEIR__REPLY_VALUES_MAX) {
        return "the reply has too many values";
    }
    for (size_t i = 0; i < reply->elements; i++) {
        if (reply->element[i]->type != REDIS_REPLY_INTEGER) {
            return "a value of the reply is not an integer";
        }
        outcome->values[i] = reply->element[i]->integer;
    }
    outcome->count = reply->elements;
    return NULL;
}

enum weir__reply_next weir__reply_read(struct weir__outcome *outcome,
                                       char text[WEIR__REPLY_TEXT_MAX],
                                       const struct redisReply *reply)
{
    *outcome = (struct weir__outcome){.fate = WEIR__ANSWERED};
    if (reply->type == REDIS_REPLY_ERROR) {
        weir__reply_text(text, reply->str, reply->len);
        outcome->error = text;
        return read_error(outcome, reply->str, reply->len);
    }
    const char *wrong = read_values(outcome, reply);
    if (wrong == NULL) {
        return WEIR__REPLY_KEEP;
    }
    weir__reply_text(text, wrong, strlen(wrong));
    *outcome = (struct weir__outcome){.fate = WEIR__FATE_UNKNOWN, .error = text};
    return WEIR__REPLY_DISTRUST;
}
