/* SPDX-License-Identifier: MIT */
/* Compares what a store holds, byte for byte, with the bucket in C. */
#include "stored_bucket.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/wire.h"

const char *const stored_field_names[STORED_FIELDS] = {"l", "t", "r", "a", "x"};
enum { LEVEL, STAMP, RULE, ACCOUNT, EXTRA };

/* As in lua/prelude.lua: four doubles, five integers of 4 bytes, one byte. */
#define ACCOUNT_BYTES (4 * 8 + 5 * 4 + 1)
/* As in lua/sliding_log.lua: a double, an integer of 4 bytes. */
#define ENTRY_BYTES (8 + 4)

static bool same(const char *name, int64_t ours, int64_t theirs, char why[160])
{
    if (ours != theirs) {
        snprintf(why, 160, "%s: C has %lld, the store %lld", name, (long long)ours,
                 (long long)theirs);
    }
    return ours == theirs;
}

/* A field that must be an integer in plain digits. */
static bool same_number(const struct stored_bucket *stored, size_t field, int64_t ours,
                        char why[160])
{
    char text[32];
    const char *data = stored->fields[field].data;
    size_t len = stored->fields[field].len;
    int digits = snprintf(text, sizeof text, "%lld", (long long)ours);
    bool equal = data != NULL && len == (size_t)digits && memcmp(text, data, len) == 0;
    if (!equal) {
        snprintf(why, 160, "%s: C has %s, the store %.*s", stored_field_names[field], text,
                 data != NULL ? (int)len : 7, data != NULL ? data : "nothing");
    }
    return equal;
}

static uint64_t bits_at(const char *in, size_t bytes)
{
    uint64_t bits = 0;
    for (size_t i = 0; i < bytes; i++) {
        bits |= (uint64_t)(unsigned char)in[i] << 8 * i;
    }
    return bits;
}

/* An integer that is stored as a double; one that is no integer is none of ours. */
static int64_t double_at(const char *in)
{
    uint64_t bits = bits_at(in, 8);
    double number;
    memcpy(&number, &bits, sizeof number);
    int64_t value = (int64_t)number;
    return (double)value == number ? value : INT64_MIN;
}

static bool same_rule(const struct stored_bucket *stored, const struct weir__rule *rule,
                      char why[160])
{
    unsigned char bytes[WEIR__RULE_BYTES];
    weir__wire_pack_rule(bytes, rule);
    const char *data = stored->fields[RULE].data;
    bool equal = data != NULL && stored->fields[RULE].len == sizeof bytes &&
                 memcmp(data, bytes, sizeof bytes) == 0;
    if (!equal) {
        snprintf(why, 160, "rule: not the bytes of version %lld", (long long)rule->version);
    }
    return equal;
}

static bool same_account(const struct stored_bucket *stored, const struct weir__global *bucket,
                         char why[160])
{
    const char *data = stored->fields[ACCOUNT].data;
    size_t bytes = data != NULL ? stored->fields[ACCOUNT].len : 0;
    if (!same("account bytes", bucket->has_account ? ACCOUNT_BYTES : 0, (int64_t)bytes, why)) {
        return false;
    }
    if (!bucket->has_account) {
        return true;
    }
    const int64_t doubles[] = {bucket->seen_us, bucket->cur, bucket->cur_end_us, bucket->prev};
    const int64_t integers[] = {bucket->cur_life_us, bucket->out_cur, bucket->out_prev,
                                bucket->n_cur, bucket->n_prev};
    static const char *const names[] = {"seen",    "cur",      "cur_end", "prev",  "cur_life",
                                        "out_cur", "out_prev", "n_cur",   "n_prev"};
    for (size_t i = 0; i < 4; i++) {
        if (!same(names[i], doubles[i], double_at(data + 8 * i), why)) {
            return false;
        }
    }
    for (size_t i = 0; i < 5; i++) {
        if (!same(names[4 + i], integers[i], (int64_t)bits_at(data + 32 + 4 * i, 4), why)) {
            return false;
        }
    }
    return same("ago", bucket->ago, (int64_t)bits_at(data + 52, 1), why);
}

static bool same_log(const struct stored_bucket *stored, const struct weir__log *log, char why[160])
{
    const char *data = stored->fields[EXTRA].data;
    size_t bytes = data != NULL ? stored->fields[EXTRA].len : 0;
    if (!same("log bytes", (int64_t)(log->end - log->first) * ENTRY_BYTES, (int64_t)bytes, why)) {
        return false;
    }
    for (unsigned i = log->first; i < log->end; i++, data += ENTRY_BYTES) {
        const struct weir__log_entry *entry = &log->entries[i];
        if (!same("a time in the log", entry->at_us, double_at(data), why) ||
            !same("a count in the log", entry->count, (int64_t)bits_at(data + 8, 4), why)) {
            return false;
        }
    }
    return true;
}

static bool same_extra(const struct stored_bucket *stored, const struct weir__global *bucket,
                       char why[160])
{
    if (bucket->rule.algorithm == WEIR__SLIDING_LOG) {
        return same_log(stored, &bucket->log, why);
    }
    if (bucket->rule.algorithm == WEIR__SLIDING_COUNTER) {
        return same_number(stored, EXTRA, bucket->extra, why);
    }
    return same("bytes of extra", 0, (int64_t)stored->fields[EXTRA].len, why);
}

bool stored_bucket_equals(const struct stored_bucket *stored, const struct weir__global *bucket,
                          char why[160])
{
    return same_number(stored, LEVEL, bucket->level, why) &&
           same_number(stored, STAMP, bucket->stamp_us, why) &&
           same_rule(stored, &bucket->rule, why) && same_account(stored, bucket, why) &&
           same_extra(stored, bucket, why);
}

bool grants_equal(const struct weir__grant *ours, const int64_t *theirs, size_t count,
                  char why[160])
{
    if (!same("reply fields", WEIR__GRANT_FIELDS, (int64_t)count, why)) {
        return false;
    }
    return same("lease", ours->lease, theirs[0], why) &&
           same("exact", ours->exact, theirs[1], why) &&
           same("wait", ours->wait_us, theirs[2], why) &&
           same("window", ours->window, theirs[3], why) &&
           same("life", ours->life_us, theirs[4], why) &&
           same("remaining", ours->remaining, theirs[5], why) &&
           same("retry_after", ours->retry_after_us, theirs[6], why) &&
           same("reset_after", ours->reset_after_us, theirs[7], why) &&
           same("processes", ours->processes, theirs[8], why) &&
           same("refunded", ours->refunded, theirs[9], why) &&
           same("outstanding", ours->outstanding, theirs[10], why) &&
           same("version", ours->version, theirs[11], why) &&
           same("first", ours->first_us, theirs[12], why) &&
           same("spread", ours->spread_us, theirs[13], why) &&
           same("start", ours->start_us, theirs[14], why);
}
