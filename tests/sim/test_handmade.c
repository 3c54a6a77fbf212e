/* SPDX-License-Identifier: MIT */
/*
 * One shortest schedule for each rule that breaks the promise where the rule is left out, as
 * docs/protocol.md lists them: here with the rules in place, on the real leases and on both stores,
 * the shipped script and its twin in C.  What is admitted in each is the number that the reference
 * model admits (tests/model/handmade.py), so a schedule cannot pass by doing nothing.
 *
 * Unless a test says otherwise: one token a microsecond, C = E = 10, W = 1 ms.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/num.h"
#include "core/leases.h"
#include "io/conn.h"
#include "sim/promise.h"
#include "sim/store.h"

#define CLIENTS_MAX 8
#define ALL 1000000
#define START_US 1000000

struct client {
    int64_t credit;
    struct weir__leases leases;
    struct weir__ledger sum;
    int64_t drift_ppm, refund, heard, sent_us;
    struct weir__ask ask; /* the latest */
};

struct stage {
    struct store store;
    struct promise promise;
    struct weir__rule rule; /* of whoever asks next */
    int64_t now_us, step_us;
    struct client clients[CLIENTS_MAX];
    unsigned count;
    int64_t admitted;
};

static struct stage stage;
static struct lua_host *host;
static int script;

/* ---- The stage ------------------------------------------------------------------------------- */

static void set(const struct weir__rule *rule, bool lua)
{
    memset(&stage, 0, sizeof stage);
    store_init(&stage.store, lua ? host : NULL, script);
    stage.rule = *rule;
    stage.now_us = START_US;
    promise_init(&stage.promise, rule, store_smooth_us(&stage.store, stage.now_us));
}

static struct weir__rule ten(void)
{
    return (struct weir__rule){.version = 1,
                               .algorithm = WEIR__TOKEN_BUCKET,
                               .tick_us = 1,
                               .units_per_tick = 1,
                               .units_per_token = 1,
                               .capacity = 10,
                               .budget = 10,
                               .window_us = 1000,
                               .initial = 10};
}

static void at(int64_t us) { stage.now_us = START_US + us; }

static int64_t smooth(void) { return store_smooth_us(&stage.store, stage.now_us); }

static struct client *client(int64_t drift_ppm)
{
    assert_true(stage.count < CLIENTS_MAX);
    struct client *c = &stage.clients[stage.count++];
    c->drift_ppm = drift_ppm;
    c->heard = WEIR__NO_WINDOW;
    weir__leases_init(&c->leases, &c->credit, &c->sum);
    return c;
}

static int64_t clock_of(const struct client *c)
{
    return stage.now_us + stage.now_us * c->drift_ppm / 1000000;
}

static void admit(int64_t tokens)
{
    promise_admit(&stage.promise, tokens, smooth());
    stage.admitted += tokens;
}

/* From here on what is settled and given back is gone, whatever becomes of the ask. */
static struct weir__ask send(struct client *c, int64_t want, int64_t back)
{
    (void)weir__leases_look(&c->leases, clock_of(c));
    c->ask = (struct weir__ask){.want = want, .least = 1, .refund = c->refund, .heard = c->heard};
    weir__leases_settle(&c->leases, back, c->ask.settle, clock_of(c));
    /* so that the share rule (R14), which only slows greed, is out of the way */
    c->ask.held = -ALL;
    c->refund = 0;
    c->sent_us = clock_of(c);
    return c->ask;
}

static struct weir__grant run(const struct weir__ask *ask)
{
    struct weir__grant grant;
    stage.store.step_us = stage.step_us;
    store_ask(&stage.store, 0, &stage.rule, ask, stage.now_us, &grant);
    assert_string_equal(stage.store.difference, "");
    promise_refund(&stage.promise, grant.refunded, smooth());
    return grant;
}

static void hear(struct client *c, const struct weir__grant *grant)
{
    (void)weir__leases_look(&c->leases, clock_of(c));
    c->heard = grant->window;
    if (grant->lease > 0) {
        (void)weir__leases_add(&c->leases, grant->window, grant->lease, c->sent_us, grant->life_us,
                               clock_of(c));
    }
}

static int64_t ask(struct client *c, int64_t want)
{
    const struct weir__ask sent = send(c, want, 0);
    const struct weir__grant grant = run(&sent);
    hear(c, &grant);
    return grant.lease;
}

/* Callers take all there is, as the loop has left it. */
static int64_t spend_unlooked(struct client *c)
{
    int64_t tokens = c->credit;
    c->credit = 0;
    admit(tokens);
    return tokens;
}

static void spend(struct client *c)
{
    (void)weir__leases_look(&c->leases, clock_of(c));
    (void)spend_unlooked(c);
}

/* Everybody spends and settles; then a newcomer takes all that the store still gives. */
static void burst(void)
{
    unsigned count = stage.count;
    for (unsigned i = 0; i < count; i++) {
        spend(&stage.clients[i]);
        (void)ask(&stage.clients[i], 0);
    }
    struct client *newcomer = client(0);
    while (ask(newcomer, ALL) > 0) {
        spend(newcomer);
    }
}

static void kept(int64_t admitted)
{
    assert_int_equal(stage.admitted, admitted);
    assert_int_equal(promise_excess(&stage.promise), 0);
}

/* ---- The schedules --------------------------------------------------------------------------- */

/* R6: the clock of `a` is 1 % slow. */
static void margin(bool lua)
{
    const struct weir__rule rule = ten();
    set(&rule, lua);
    struct client *a = client(-10000), *b = client(0), *z = client(0);
    at(0), (void)ask(z, 0);
    at(999), (void)ask(a, ALL);
    at(1000), (void)ask(z, 0);
    at(2000), (void)ask(b, ALL);
    at(2007), burst();
    kept(17);
}

/* R6: the reply comes late in the life of its lease. */
static void from_send(bool lua)
{
    const struct weir__rule rule = ten();
    set(&rule, lua);
    struct client *a = client(0), *b = client(0), *z = client(0);
    at(0), (void)ask(z, 0);
    at(999);
    const struct weir__ask sent = send(a, ALL, 0);
    const struct weir__grant grant = run(&sent);
    assert_int_equal(grant.lease, 10);
    at(1000), (void)ask(z, 0);
    at(1900), hear(a, &grant);
    at(2000), (void)ask(b, ALL);
    at(2100), burst();
    kept(20);
}

/* R2, R3: the clock of the store goes to and fro over the end of a window. */
static void raw_clock(bool lua)
{
    const struct weir__rule rule = ten();
    set(&rule, lua);
    struct client *a = client(0), *b = client(0), *z = client(0);
    at(1), (void)ask(a, ALL);
    for (int i = 0; i < 2; i++) {
        stage.step_us = -2, (void)ask(z, 0);
        stage.step_us = 0;
        if (i == 0) {
            (void)ask(z, 0);
        }
    }
    at(50), (void)ask(b, ALL);
    at(90), burst();
    kept(20);
}

/* R4: the bucket fills long before its window is over. */
static void ttl(bool lua)
{
    const struct weir__rule rule = ten();
    set(&rule, lua);
    struct client *a = client(0), *b = client(0);
    at(0), (void)ask(a, ALL);
    at(20), (void)ask(b, ALL);
    at(40), burst();
    kept(20);
}

/* R5: a give-back arrives after its window. */
static void live_settle(bool lua)
{
    const struct weir__rule rule = ten();
    set(&rule, lua);
    struct client *a = client(0), *b = client(0);
    at(0), (void)ask(a, ALL);
    const struct weir__ask late = send(a, 0, 10);
    at(2500), (void)ask(b, ALL);
    at(2600), burst();
    (void)run(&late);
    burst();
    kept(20);
}

/* R8: an ask is run and its reply lost; what it settled is not settled again. */
static void settle_once(bool lua)
{
    const struct weir__rule rule = ten();
    set(&rule, lua);
    struct client *a = client(0), *b = client(0), *c = client(0);
    at(0), (void)ask(a, ALL), spend(a);
    at(20);
    const struct weir__ask lost = send(a, 0, 0);
    (void)run(&lost);
    (void)ask(b, ALL);
    at(40), (void)ask(a, 0), (void)ask(c, ALL);
    at(80), burst();
    kept(30);
}

/* R7: five processes stall in turn, past the windows of their leases.  This is the term S, and the
 * books know it to the token. */
static void stalled(bool lua)
{
    const struct weir__rule rule = ten();
    set(&rule, lua);
    struct client *held[5];
    for (int i = 0; i < 5; i++) {
        at(i * 2100);
        held[i] = client(0);
        (void)ask(held[i], ALL);
    }
    at(5 * 2100);
    int64_t spent = 0, stranded = 0;
    for (int i = 0; i < 5; i++) {
        spent += spend_unlooked(held[i]);
        (void)weir__leases_look(&held[i]->leases, clock_of(held[i]));
        stranded += held[i]->sum.stranded;
    }
    burst();
    assert_true(spent > 0);
    assert_int_equal(stranded, spent);
    assert_in_range(promise_excess(&stage.promise), 1, (uintmax_t)stranded);
}

/* R10: refunds of what is settled travel to the store; here nothing is left to become credit. */
static void refund(bool lua)
{
    const struct weir__rule rule = ten();
    set(&rule, lua);
    struct client *a = client(0), *b = client(0);
    at(0), (void)ask(a, ALL), spend(a), (void)ask(a, 0), (void)ask(a, 1);
    at(20), (void)ask(b, ALL);
    at(40);
    (void)weir__leases_look(&a->leases, clock_of(a));
    int64_t again = weir__leases_refund(&a->leases, 9, clock_of(a));
    assert_int_equal(again, 0);
    a->refund += 9 - again;
    promise_refund(&stage.promise, again, smooth());
    at(60), burst();
    kept(30);
}

/* R12: who waits for reserved tokens has a clock that is 1 % fast. */
static void early_departure(bool lua)
{
    struct weir__rule rule = ten();
    rule.max_wait_us = 4000;
    set(&rule, lua);
    struct client *c = client(10000);
    int64_t due_us[1024], tokens[1024];
    unsigned count = 0;
    for (;;) {
        struct weir__ask sent = send(c, 0, 0);
        sent.exact = 10;
        sent.wait_us = 4000;
        const struct weir__grant grant = run(&sent);
        if (grant.exact == 0) {
            break;
        }
        int64_t own_us = grant.wait_us + (grant.wait_us > 0 ? grant.wait_us / 32 + 1 : 0);
        due_us[count] = weir__div_up(own_us * 1000000, 1000000 + c->drift_ppm);
        tokens[count++] = grant.exact;
        assert_true(count < 1024);
    }
    for (unsigned i = 0; i < count; i++) { /* granted in the order in which they are due */
        at(due_us[i]), admit(tokens[i]);
    }
    kept(4010);
}

/* R0: within a coarse tick the bucket fills and spills. */
static void spill(bool lua)
{
    const struct weir__rule rule = {.version = 1,
                                    .algorithm = WEIR__TOKEN_BUCKET,
                                    .tick_us = 1000,
                                    .units_per_tick = 3,
                                    .units_per_token = 1,
                                    .capacity = 5,
                                    .window_us = 100000,
                                    .initial = 5};
    static const int64_t times[] = {0, 1900, 2000}, costs[] = {5, 3, 3};
    set(&rule, lua);
    struct client *c = client(0);
    for (int i = 0; i < 3; i++) {
        at(times[i]);
        struct weir__ask sent = send(c, 0, 0);
        sent.exact = costs[i];
        admit(run(&sent).exact);
    }
    kept(8);
}

/* R11: a shorter window is defined while a lease of the longer one lives. */
static void shorter_window(bool lua)
{
    struct weir__rule rule = ten();
    set(&rule, lua);
    struct client *a = client(0), *b = client(0), *z = client(0);
    at(0), (void)ask(a, ALL);
    stage.rule.window_us = 100;
    stage.rule.version = 2;
    at(20), (void)ask(z, 0);
    at(130), (void)ask(z, 0);
    at(260), (void)ask(z, 0), (void)ask(b, ALL);
    at(300), burst();
    kept(20);
}

/* R11: the rate is lowered hundredfold; one process keeps the old definition. */
static void old_version(bool lua)
{
    struct weir__rule old = ten();
    old.units_per_tick = 100000;
    old.units_per_token = 1000000;
    old.capacity = old.initial = 100;
    struct weir__rule new = old;
    new.units_per_tick = 1000;
    new.version = 2;
    set(&new, lua);
    struct client *a = client(0), *b = client(0);
    stage.rule = old, (void)ask(a, 0);
    stage.rule = new, (void)ask(b, 0);
    for (int64_t t = 10; t < 100000; t += 10) {
        at(t);
        stage.rule = old, (void)ask(a, ALL), spend(a);
        stage.rule = new, (void)ask(b, 0);
    }
    kept(199);
}

/* Faults with terms: max(C, E) = 10 for a lost key, and for a step of the clock past all
 * windows. */
static void data_loss(bool lua)
{
    const struct weir__rule rule = ten();
    set(&rule, lua);
    struct client *a = client(0), *b = client(0);
    at(0), (void)ask(a, ALL);
    store_lose(&stage.store, 0);
    at(1), (void)ask(b, ALL);
    at(30), burst();
    assert_int_equal(stage.admitted, 30);
    assert_int_equal(promise_excess(&stage.promise), 10);
}

static void data_loss_settled(bool lua)
{
    const struct weir__rule rule = ten();
    set(&rule, lua);
    struct client *a = client(0), *b = client(0), *c = client(0);
    at(0), (void)ask(a, ALL), spend(a);
    store_lose(&stage.store, 0);
    at(1), (void)ask(b, ALL), (void)ask(a, 0), (void)ask(c, ALL);
    at(30), burst();
    kept(30);
}

static void clock_forward(bool lua)
{
    const struct weir__rule rule = ten();
    set(&rule, lua);
    struct client *a = client(0), *b = client(0);
    at(0), (void)ask(a, ALL);
    stage.step_us = 5000, (void)ask(b, ALL);
    at(30), burst();
    assert_int_equal(stage.admitted, 30);
    assert_int_equal(promise_excess(&stage.promise), 10);
}

/* Something between repeats a request: no rule helps, and the excess is what was given back. */
static void request_repeated(bool lua)
{
    const struct weir__rule rule = ten();
    set(&rule, lua);
    struct client *a = client(0), *b = client(0), *c = client(0);
    at(0), (void)ask(a, 5), (void)ask(b, 5);
    const struct weir__ask sent = send(a, 0, 5);
    (void)run(&sent), (void)run(&sent);
    (void)ask(c, ALL);
    at(40), burst();
    assert_int_equal(stage.admitted, 25);
    assert_int_equal(promise_excess(&stage.promise), 5);
}

/* ---- Each on both stores --------------------------------------------------------------------- */

/* Its versions do not agree on these. */
/* clang-format off */
#define SCHEDULES(X) \
    X(margin) \
    X(from_send) \
    X(raw_clock) \
    X(ttl) \
    X(live_settle) \
    X(settle_once) \
    X(stalled) \
    X(refund) \
    X(early_departure) \
    X(spill) \
    X(shorter_window) \
    X(old_version) \
    X(data_loss) \
    X(data_loss_settled) \
    X(clock_forward) \
    X(request_repeated)
/* clang-format on */

#define BOTH(name)                                                                                 \
    static void test_##name(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        name(false);                                                                               \
        name(true);                                                                                \
        store_deinit(&stage.store);                                                                \
    }
SCHEDULES(BOTH)

static int set_up(void **state)
{
    (void)state;
    host = lua_host_new();
    script = lua_host_load(host, weir__script_lease.source, weir__script_lease.source_len);
    return script < 0;
}

static int tear_down(void **state)
{
    (void)state;
    lua_host_free(host);
    return 0;
}

int main(void)
{
#define ENTRY(name) cmocka_unit_test(test_##name),
    const struct CMUnitTest tests[] = {SCHEDULES(ENTRY)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
