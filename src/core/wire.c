/* SPDX-License-Identifier: MIT */
/*
 * Between the words of the protocol and bytes.  It stands twice in the path of a token: where an
 * ask leaves for the store, and where the answer comes back.
 *
 * Out: little-endian whatever the machine, as the script reads it with struct.unpack.  Doubles,
 * since that is what a Lua number is; every amount is an integer below 2^53, so nothing is rounded.
 * The rule stays in the store, so what fits in less takes less: with 64 bytes or fewer in each
 * field Redis keeps a bucket's hash in half the memory.
 *
 * In: integers from a place that may be broken, or may not be a store of ours at all.  A reply
 * that could not have been computed from the ask is refused whole, so that a wrong number never
 * becomes credit.  The store may hold another rule than ours (R11), so the bounds are those of
 * the ask and of the protocol, not those of our capacity and budget.
 */
#include "core/wire.h"

#include <string.h>

#include "base/check.h"
#include "base/num.h"

/* 3/4 of the longest window a limit may have, 60 s (R6). */
#define LIFE_US_MAX INT64_C(45000000)

static unsigned char *pack_bytes(unsigned char *out, uint64_t bits, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++) {
        *out++ = (unsigned char)(bits >> 8 * i);
    }
    return out;
}

static unsigned char *pack(unsigned char *out, int64_t value)
{
    double number = (double)value;
    uint64_t bits;
    _Static_assert(sizeof number == sizeof bits, "a double is 64 bits on the wire");
    memcpy(&bits, &number, sizeof bits);
    return pack_bytes(out, bits, 8);
}

static unsigned char *pack_u32(unsigned char *out, int64_t value)
{
    WEIR__ASSERT(value >= 0 && value <= UINT32_MAX);
    return pack_bytes(out, (uint64_t)value, 4);
}

void weir__wire_pack_rule(unsigned char out[WEIR__RULE_BYTES], const struct weir__rule *rule)
{
    out = pack(out, rule->version);
    out = pack(out, rule->units_per_tick);
    out = pack(out, rule->units_per_token);
    out = pack(out, rule->period_us);
    out = pack_u32(out, rule->tick_us);
    out = pack_u32(out, rule->capacity);
    out = pack_u32(out, rule->budget);
    out = pack_u32(out, rule->window_us);
    out = pack_u32(out, rule->max_wait_us);
    out = pack_u32(out, rule->initial);
    out = pack_bytes(out, (uint64_t)rule->algorithm, 1);
    out = pack_bytes(out, (uint64_t)rule->variant, 1);
    pack_bytes(out, rule->learn, 1);
}

#define MODE_ASK 0
#define MODE_LOOK 1
#define MODE_RESET 2

void weir__wire_pack_ask(unsigned char out[WEIR__ASK_BYTES], const struct weir__ask *ask)
{
    out = pack(out, ask->peek ? MODE_LOOK : ask->reset ? MODE_RESET : MODE_ASK);
    out = pack(out, ask->want);
    out = pack(out, ask->least);
    out = pack(out, ask->held);
    out = pack(out, ask->exact);
    out = pack(out, ask->wait_us);
    out = pack(out, ask->refund);
    out = pack(out, ask->since);
    out = pack(out, ask->heard);
    for (size_t i = 0; i < WEIR__SETTLE_ROWS; i++) {
        out = pack(out, ask->settle[i].window);
        out = pack(out, ask->settle[i].spent);
        out = pack(out, ask->settle[i].back);
    }
}

static bool within(int64_t value, int64_t low, int64_t high)
{
    return value >= low && value <= high;
}

/* Whether *grant can be an answer to *ask, whatever the state of the store. */
static bool plausible(const struct weir__grant *grant, const struct weir__rule *rule,
                      const struct weir__ask *ask)
{
    bool granted = grant->lease > 0 || grant->exact > 0;
    if (ask->peek && (granted || grant->refunded != 0)) {
        return false;
    }
    if (!within(grant->lease, 0, ask->want) || (grant->lease > 0 && grant->lease < ask->least)) {
        return false;
    }
    if (grant->exact != 0 && grant->exact != ask->exact) {
        return false;
    }
    if (!within(grant->wait_us, 0, grant->exact > 0 ? ask->wait_us : 0)) {
        return false;
    }
    if (grant->refunded != 0 && grant->refunded != ask->refund) {
        return false;
    }
    if (grant->lease == 0 && (grant->first_us != 0 || grant->spread_us != 0)) {
        return false;
    }
    /* a lease belongs to a window, lives no longer than one, and is out */
    if (grant->lease > 0 && (grant->window < 0 || grant->outstanding < grant->lease)) {
        return false;
    }
    if (grant->retry_after_us > 0 && granted) {
        return false;
    }
    /* R11: an older rule than ours answers only while reservations are too deep for ours */
    bool older = grant->version < rule->version;
    return !older || (grant->lease == 0 && grant->remaining == 0);
}

bool weir__wire_read_grant(struct weir__grant *grant, const int64_t *values, size_t count,
                           const struct weir__rule *rule, const struct weir__ask *ask)
{
    if (count != WEIR__GRANT_FIELDS) {
        return false;
    }
    struct weir__grant read = {
        .lease = values[0],
        .exact = values[1],
        .wait_us = values[2],
        .window = values[3],
        .life_us = values[4],
        .remaining = values[5],
        .retry_after_us = values[6],
        .reset_after_us = values[7],
        .processes = values[8],
        .refunded = values[9],
        .outstanding = values[10],
        .version = values[11],
        .first_us = values[12],
        .spread_us = values[13],
        .start_us = values[14],
    };
    bool in_range = within(read.window, WEIR__NO_WINDOW, WEIR__INT53_MAX) &&
                    within(read.life_us, 0, LIFE_US_MAX) &&
                    within(read.remaining, 0, WEIR__INT53_MAX) &&
                    within(read.retry_after_us, -1, WEIR__INT53_MAX) &&
                    within(read.reset_after_us, 0, WEIR__INT53_MAX) &&
                    within(read.processes, 0, WEIR__INT53_MAX) &&
                    within(read.outstanding, 0, WEIR__INT53_MAX) &&
                    within(read.version, 1, WEIR__INT53_MAX) &&
                    within(read.first_us, 0, WEIR__INT53_MAX) &&
                    within(read.spread_us, 0, WEIR__INT53_MAX) &&
                    within(read.start_us, WEIR__NO_WINDOW, WEIR__INT53_MAX);
    if (!in_range || !plausible(&read, rule, ask)) {
        return false;
    }
    *grant = read;
    return true;
}
