/* SPDX-License-Identifier: MIT */

/*
 * The arithmetic of the cap; the header has the formulas.
 *
 * Path of a token: before all else.  Who is refused here asks no bucket and no store.
 *
 * Sizes.  period_us <= 10^12 and cost <= 10^9, so cost * period in nanoseconds is below 2^80, and
 * in 2^-20 of one below 2^100.  warmup is below 2^42 ns, so `stored` is below 2^62 and its square
 * below 2^124.  All products are made in 128 bits, and each is divided once.
 *
 * No function keeps a time between calls but the two words of the state: a clock that steps back
 * makes callers wait, and gives nothing twice.
 */

#include "core/cap.h"

#include "base/num.h"

#define NS_PER_US 1000
#define FINE_BITS 20 /* by choice: the finest with which warmup's hour fits 63 bits */
#define SPAN_MOST_NS (INT64_C(1) << 61)

/* The time of `cost` tokens in nanoseconds times config->tokens. */
static weir__u128 price(const struct weir__cap_config *config, int64_t cost)
{
    return (weir__u128)(uint64_t)cost * (uint64_t)(config->period_us * NS_PER_US);
}

/* ---- Burst: exact fractions ------------------------------------------------------------------ */

/* The time of `cost` tokens, as a number like `at`. */
static struct weir__cap exact_price(const struct weir__cap_config *config, int64_t cost)
{
    uint64_t tokens = (uint64_t)config->tokens;
    weir__u128 ns = price(config, cost) / tokens;
    if (ns >= (weir__u128)SPAN_MOST_NS) {
        return (struct weir__cap){.at_ns = SPAN_MOST_NS};
    }
    return (struct weir__cap){(int64_t)ns, (int64_t)(price(config, cost) % tokens)};
}

static struct weir__cap plus(struct weir__cap a, struct weir__cap b, int64_t tokens)
{
    int64_t part = a.part + b.part;
    int64_t carry = part >= tokens;
    return (struct weir__cap){a.at_ns + b.at_ns + carry, part - carry * tokens};
}

static struct weir__cap minus(struct weir__cap a, struct weir__cap b, int64_t tokens)
{
    int64_t part = a.part - b.part;
    int64_t borrow = part < 0;
    return (struct weir__cap){a.at_ns - b.at_ns - borrow, part + borrow * tokens};
}

static struct weir__cap later(struct weir__cap a, struct weir__cap b)
{
    bool first = a.at_ns != b.at_ns ? a.at_ns > b.at_ns : a.part > b.part;
    return first ? a : b;
}

/* The earliest that `at` may be. */
static struct weir__cap burst_full(const struct weir__cap_config *config, int64_t now_ns)
{
    return (struct weir__cap){.at_ns = now_ns - config->burst_us * NS_PER_US};
}

static struct weir__cap burst_undo(struct weir__cap cap, const struct weir__cap_config *config,
                                   const struct weir__cap_taken *taken, int64_t now_ns)
{
    struct weir__cap cost = exact_price(config, taken->cost);
    struct weir__cap full = burst_full(config, now_ns);
    /* the limit may have changed since */
    struct weir__cap before = {taken->before.at_ns,
                               weir__min(taken->before.part, config->tokens - 1)};
    /* without the take, what was stored before it would have passed the most by so much */
    struct weir__cap lost = minus(later(full, before), before, config->tokens);
    struct weir__cap back = minus(later(cost, lost), lost, config->tokens);
    return minus(cap, back, config->tokens);
}

/* ---- Warmup: rounded against the caller ------------------------------------------------------ */

static int64_t warmup_fine(const struct weir__cap_config *config)
{
    return (config->warmup_us * NS_PER_US) << FINE_BITS;
}

/* 2 * max(0, stored - warmup / 2) */
static weir__u128 above_half(int64_t stored, int64_t warmup)
{
    return stored > warmup - stored ? (weir__u128)(uint64_t)(stored - (warmup - stored)) : 0;
}

/* f(high) - f(low) times 2 * warmup, for high >= low. */
static weir__u128 climb(int64_t high, int64_t low, int64_t warmup)
{
    weir__u128 a = above_half(high, warmup);
    weir__u128 b = above_half(low, warmup);
    return (a - b) * (a + b);
}

static int64_t less_or_none(int64_t stored, weir__u128 fine)
{
    return fine < (weir__u128)(uint64_t)stored ? stored - (int64_t)fine : 0;
}

static int64_t more_or_all(int64_t stored, weir__u128 fine, int64_t warmup)
{
    weir__u128 sum = (weir__u128)(uint64_t)stored + fine;
    return sum < (weir__u128)(uint64_t)warmup ? (int64_t)sum : warmup;
}

static int64_t bounded_ns(weir__u128 ns)
{
    return ns < (weir__u128)SPAN_MOST_NS ? (int64_t)ns : SPAN_MOST_NS;
}

static struct weir__cap warmup_take(struct weir__cap cap, const struct weir__cap_config *config,
                                    int64_t cost)
{
    uint64_t tokens = (uint64_t)config->tokens;
    int64_t warmup = warmup_fine(config);
    weir__u128 fine = price(config, cost) << FINE_BITS;
    weir__u128 down = fine / tokens;
    weir__u128 up = down + (fine % tokens != 0);
    weir__u128 extra = climb(cap.part, less_or_none(cap.part, up), warmup);
    weir__u128 twice = 2 * (weir__u128)(uint64_t)warmup;
    weir__u128 all = up + extra / twice + (extra % twice != 0);
    weir__u128 one = (weir__u128)1 << FINE_BITS;
    return (struct weir__cap){cap.at_ns + bounded_ns((all + one - 1) / one),
                              less_or_none(cap.part, down)};
}

static struct weir__cap warmup_undo(struct weir__cap cap, const struct weir__cap_config *config,
                                    const struct weir__cap_taken *taken)
{
    int64_t stored = weir__max(taken->before.part - taken->after.part, 0);
    int64_t paid_ns = weir__clamp(taken->after.at_ns - taken->before.at_ns, 0,
                                  config->warmup_us * NS_PER_US);
    int64_t warmup = warmup_fine(config);
    cap.part = more_or_all(cap.part, (weir__u128)(uint64_t)stored, warmup);
    cap.part = more_or_all(cap.part, (weir__u128)(uint64_t)paid_ns << FINE_BITS, warmup);
    return cap;
}

static struct weir__cap warmup_refund(struct weir__cap cap, const struct weir__cap_config *config,
                                      int64_t cost, int64_t now_ns)
{
    int64_t warmup = warmup_fine(config);
    weir__u128 fine = (price(config, cost) << FINE_BITS) / (uint64_t)config->tokens;
    int64_t stored = more_or_all(cap.part, fine, warmup);
    weir__u128 all = fine + climb(stored, cap.part, warmup) / (2 * (weir__u128)(uint64_t)warmup);
    int64_t free_ns = cap.at_ns - bounded_ns(all >> FINE_BITS);
    return (struct weir__cap){weir__max(free_ns, now_ns), stored};
}

/* ---- Both ------------------------------------------------------------------------------------ */

/* The same state as it is at `now_ns`: with what was stored until then, and no more than may be. */
static struct weir__cap as_of(const struct weir__cap *cap, const struct weir__cap_config *config,
                              int64_t now_ns)
{
    if (config->warmup_us == 0) {
        if (cap->at_ns == WEIR__CAP_NEW) {
            return (struct weir__cap){.at_ns = now_ns};
        }
        struct weir__cap at = {cap->at_ns, weir__min(cap->part, config->tokens - 1)};
        return later(at, burst_full(config, now_ns));
    }
    int64_t warmup = warmup_fine(config);
    if (cap->at_ns == WEIR__CAP_NEW) {
        return (struct weir__cap){now_ns, warmup};
    }
    struct weir__cap at = {cap->at_ns, weir__min(cap->part, warmup)};
    if (now_ns > at.at_ns) {
        weir__u128 idle_ns = (uint64_t)(now_ns - at.at_ns);
        at.part = more_or_all(at.part, idle_ns << FINE_BITS, warmup);
        at.at_ns = now_ns;
    }
    return at;
}

static int64_t wait_ns(struct weir__cap at, const struct weir__cap_config *config, int64_t now_ns)
{
    int64_t begun = config->warmup_us == 0 && at.part > 0;
    return weir__max(at.at_ns + begun - now_ns, 0);
}

void weir__cap_init(struct weir__cap *cap) { *cap = (struct weir__cap){.at_ns = WEIR__CAP_NEW}; }

int64_t weir__cap_wait_ns(const struct weir__cap *cap, const struct weir__cap_config *config,
                          int64_t now_ns)
{
    return wait_ns(as_of(cap, config, now_ns), config, now_ns);
}

int64_t weir__cap_take(struct weir__cap *cap, const struct weir__cap_config *config, int64_t cost,
                       struct weir__cap_taken *taken, int64_t now_ns)
{
    *taken = (struct weir__cap_taken){0};
    struct weir__cap at = as_of(cap, config, now_ns);
    int64_t wait = wait_ns(at, config, now_ns);
    if (wait > 0 || cost == 0) {
        return wait;
    }
    *cap = config->warmup_us == 0 ? plus(at, exact_price(config, cost), config->tokens)
                                  : warmup_take(at, config, cost);
    *taken = (struct weir__cap_taken){.cost = cost, .before = at, .after = *cap};
    return 0;
}

void weir__cap_undo(struct weir__cap *cap, const struct weir__cap_config *config,
                    const struct weir__cap_taken *taken, int64_t now_ns)
{
    if (taken->cost == 0) {
        return;
    }
    if (cap->at_ns == taken->after.at_ns && cap->part == taken->after.part) {
        *cap = taken->before;
        return;
    }
    struct weir__cap at = as_of(cap, config, now_ns);
    *cap = config->warmup_us == 0 ? burst_undo(at, config, taken, now_ns)
                                  : warmup_undo(at, config, taken);
}

void weir__cap_refund(struct weir__cap *cap, const struct weir__cap_config *config, int64_t tokens,
                      int64_t now_ns)
{
    struct weir__cap at = as_of(cap, config, now_ns);
    *cap = config->warmup_us == 0 ? minus(at, exact_price(config, tokens), config->tokens)
                                  : warmup_refund(at, config, tokens, now_ns);
}
