/* SPDX-License-Identifier: MIT */
/* Compares what a store holds, byte for byte, with the bucket in C. */
#include "stored_bucket.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/wire.h"

#define ACCOUNT_DOUBLES 9

static bool same(const char *name, int64_t ours, int64_t theirs, char why[160])
{
    if (ours != theirs) {
        snprintf(why, 160, "%s: C has %lld, the store %lld", name, (long long)ours,
                 (long long)theirs);
    }
    return ours == theirs;
}

/* A field that must be an integer in plain digits. */
static bool same_number(const char *name, int64_t ours, const char *data, size_t len, char why[160])
{
    char text[32];
    int digits = snprintf(text, sizeof text, "%lld", (long long)ours);
    bool equal = data != NULL && len == (size_t)digits && memcmp(text, data, len) == 0;
    if (!equal) {
        snprintf(why, 160, "%s: C has %s, the store %.*s", name, text, (int)len,
                 data != NULL ? data : "nothing");
    }
    return equal;
}

bool stored_bucket_equals(const struct stored_bucket *stored,
                          const struct weir__token_bucket *bucket, char why[160])
{
    if (!same_number("level", bucket->level, stored->level.data, stored->level.len, why) ||
        !same_number("stamp", bucket->stamp_us, stored->stamp.data, stored->stamp.len, why)) {
        return false;
    }
    unsigned char rule[WEIR__RULE_BYTES];
    weir__wire_pack_rule(rule, &bucket->rule);
    if (stored->rule.data == NULL || stored->rule.len != sizeof rule ||
        memcmp(stored->rule.data, rule, sizeof rule) != 0) {
        snprintf(why, 160, "rule: not the bytes of version %lld", (long long)bucket->rule.version);
        return false;
    }
    if (!bucket->has_account) {
        return same("account bytes", 0, (int64_t)stored->account.len, why);
    }
    if (!same("account bytes", ACCOUNT_DOUBLES * 8, (int64_t)stored->account.len, why)) {
        return false;
    }
    double numbers[ACCOUNT_DOUBLES];
    memcpy(numbers, stored->account.data, sizeof numbers);
    return same("seen", bucket->seen_us, (int64_t)numbers[0], why) &&
           same("cur", bucket->cur, (int64_t)numbers[1], why) &&
           same("cur_end", bucket->cur_end_us, (int64_t)numbers[2], why) &&
           same("cur_life", bucket->cur_life_us, (int64_t)numbers[3], why) &&
           same("out_cur", bucket->out_cur, (int64_t)numbers[4], why) &&
           same("prev", bucket->prev, (int64_t)numbers[5], why) &&
           same("out_prev", bucket->out_prev, (int64_t)numbers[6], why) &&
           same("n_cur", bucket->n_cur, (int64_t)numbers[7], why) &&
           same("n_prev", bucket->n_prev, (int64_t)numbers[8], why);
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
           same("version", ours->version, theirs[11], why);
}
