/* SPDX-License-Identifier: MIT */
/*
 * core/leases: by hand, and random operations against an oracle: a list of single tokens, each with
 * its window and its times, from which callers take the oldest.  The seed is printed, WEIR_SEED
 * replays it.
 */
#include "core/leases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/num.h"

#define LIFE_US 75000 /* of a window of 100 ms */
#define OVER_US (LIFE_US + LIFE_US * 7 / 24)

struct desk {
    int64_t credit;
    struct weir__ledger sum;
    struct weir__leases leases;
    struct weir__settle rows[WEIR__SETTLE_ROWS];
};

static struct desk desk;

static void begin(void)
{
    memset(&desk, 0, sizeof desk);
    weir__leases_init(&desk.leases, &desk.credit, &desk.sum);
}

static bool add(int64_t window, int64_t tokens, int64_t sent_us, int64_t now_us)
{
    (void)weir__leases_look(&desk.leases, now_us);
    return weir__leases_add(&desk.leases, window, tokens, sent_us, LIFE_US, now_us);
}

static void settle(int64_t back, int64_t now_us)
{
    (void)weir__leases_look(&desk.leases, now_us);
    weir__leases_settle(&desk.leases, back, desk.rows, now_us);
}

static void assert_row(unsigned row, int64_t window, int64_t spent, int64_t back)
{
    assert_int_equal(desk.rows[row].window, window);
    assert_int_equal(desk.rows[row].spent, spent);
    assert_int_equal(desk.rows[row].back, back);
}

static void assert_conserved(void)
{
    int64_t left = 0;
    for (unsigned i = 0; i < desk.leases.count; i++) {
        left += desk.leases.at[i].left;
    }
    const struct weir__ledger *own = &desk.leases.own;
    assert_int_equal(desk.leases.expected, left);
    assert_in_range(desk.credit, 0, (uintmax_t)left);
    assert_int_equal(own->granted, own->spent + left + own->given_back + own->expired);
    assert_memory_equal(own, &desk.sum, sizeof *own);
}

/* ---- By hand --------------------------------------------------------------------------------- */

static void test_spent_is_what_is_missing(void **state)
{
    (void)state;
    begin();
    assert_true(add(1, 10, 0, 500));
    assert_int_equal(desk.credit, 10);
    desk.credit -= 3;
    assert_int_equal(weir__leases_look(&desk.leases, 600), 3);
    assert_int_equal(weir__leases_look(&desk.leases, 600), 0);
    assert_true(weir__leases_unsettled(&desk.leases));
    settle(0, 700);
    assert_row(0, 1, 3, 0);
    assert_row(1, WEIR__NO_WINDOW, 0, 0);
    settle(0, 800); /* each amount is sent once (R8) */
    assert_row(0, WEIR__NO_WINDOW, 0, 0);
    assert_false(weir__leases_unsettled(&desk.leases));
    assert_conserved();
}

static void test_expires_from_the_send_on(void **state)
{
    (void)state;
    begin();
    assert_true(add(1, 10, 1000, 20000));
    assert_int_equal(weir__leases_next_us(&desk.leases), 1000 + LIFE_US);
    (void)weir__leases_look(&desk.leases, 1000 + LIFE_US - 1);
    assert_int_equal(desk.credit, 10);
    (void)weir__leases_look(&desk.leases, 1000 + LIFE_US);
    assert_int_equal(desk.credit, 0);
    assert_int_equal(desk.leases.own.expired, 10);
    assert_int_equal(desk.leases.own.stranded, 0);
    assert_int_equal(weir__leases_next_us(&desk.leases), INT64_MAX);
    assert_conserved();
}

/* A lease whose answer took longer than it lives never becomes credit, not even for a moment. */
static void test_dead_on_arrival(void **state)
{
    (void)state;
    begin();
    assert_false(add(1, 10, 1000, 1000 + LIFE_US));
    assert_int_equal(desk.credit, 0);
    assert_int_equal(desk.leases.count, 0);
    assert_int_equal(desk.leases.own.granted, 10);
    assert_int_equal(desk.leases.own.expired, 10);
    assert_conserved();
}

/* Term S: what was taken after the account of its window was over, as far as can be told. */
static void test_stranded(void **state)
{
    (void)state;
    begin();
    (void)add(1, 10, 0, 0);
    desk.credit -= 4;
    (void)weir__leases_look(&desk.leases, OVER_US - 1); /* dead, but still counted by the store */
    assert_int_equal(desk.leases.own.stranded, 0);
    begin();
    (void)add(1, 10, 0, 0);
    desk.credit -= 4;
    (void)weir__leases_look(&desk.leases, OVER_US);
    assert_int_equal(desk.leases.own.stranded, 4);
    assert_int_equal(desk.leases.own.expired, 6);
    assert_conserved();
}

static void test_the_oldest_is_taken_first(void **state)
{
    (void)state;
    begin();
    (void)add(1, 5, 0, 0);
    (void)add(2, 5, 10, 10);
    desk.credit -= 7;
    settle(0, 20);
    assert_row(0, 2, 2, 0);
    assert_row(1, 1, 5, 0);
    assert_conserved();
}

static void test_gives_back_the_oldest_first(void **state)
{
    (void)state;
    begin();
    (void)add(1, 5, 0, 0);
    (void)add(2, 5, 10, 10);
    desk.credit -= 1;
    settle(6, 20);
    assert_row(0, 2, 0, 2);
    assert_row(1, 1, 1, 4);
    assert_int_equal(desk.credit, 3);
    settle(INT64_MAX, 30); /* no more than there is */
    assert_row(0, 2, 0, 3);
    assert_int_equal(desk.credit, 0);
    assert_int_equal(desk.leases.count, 0);
    assert_conserved();
}

/* Three windows: the store has forgotten the oldest, and it gets no row. */
static void test_two_newest_windows_get_rows(void **state)
{
    (void)state;
    begin();
    (void)add(1, 5, 0, 0);
    (void)add(2, 5, 10, 10);
    (void)add(3, 5, 20, 20);
    desk.credit -= 12;
    settle(0, 30);
    assert_row(0, 3, 2, 0);
    assert_row(1, 2, 5, 0);
    settle(0, 30);
    assert_row(0, WEIR__NO_WINDOW, 0, 0);
    assert_conserved();
}

/* R10. */
static void test_refund_only_what_is_unsettled(void **state)
{
    (void)state;
    begin();
    (void)add(1, 10, 0, 0);
    desk.credit -= 6;
    settle(0, 10);
    desk.credit -= 2;
    (void)weir__leases_look(&desk.leases, 20);
    assert_int_equal(weir__leases_refund(&desk.leases, 5, 20), 2);
    assert_int_equal(desk.credit, 4);
    desk.credit -= 1;
    (void)weir__leases_look(&desk.leases, LIFE_US); /* the lease is dead: nothing revives it */
    assert_int_equal(weir__leases_refund(&desk.leases, 1, LIFE_US), 0);
    assert_int_equal(desk.credit, 0);
    assert_conserved();
}

/* Credit of the local policy belongs to no window: nothing to settle, and nothing that a refund
 * revives. */
static void test_without_a_window(void **state)
{
    (void)state;
    begin();
    (void)add(WEIR__NO_WINDOW, 5, 0, 0);
    desk.credit -= 2;
    (void)weir__leases_look(&desk.leases, 10);
    assert_false(weir__leases_unsettled(&desk.leases));
    assert_int_equal(weir__leases_refund(&desk.leases, 2, 10), 0);
    settle(INT64_MAX, 20);
    assert_row(0, WEIR__NO_WINDOW, 0, 0);
    assert_int_equal(desk.leases.own.given_back, 3);
    assert_conserved();
}

/* What was spent and not settled keeps a dead lease only until the store has forgotten it as
 * well. */
static void test_unsettled_until_over(void **state)
{
    (void)state;
    begin();
    (void)add(1, 5, 0, 0);
    desk.credit -= 5;
    (void)weir__leases_look(&desk.leases, LIFE_US);
    assert_int_equal(desk.leases.count, 1);
    assert_int_equal(weir__leases_next_us(&desk.leases), OVER_US);
    (void)weir__leases_look(&desk.leases, OVER_US);
    assert_int_equal(desk.leases.count, 0);
    assert_conserved();
}

/* More leases than places: two of a window are joined, and no credit is void before its time by
 * much. */
static void test_ninth_lease(void **state)
{
    (void)state;
    begin();
    for (int i = 0; i < WEIR__LEASES_MAX + 3; i++) {
        assert_true(add(i < 6 ? 1 : 2, 2, i * 100, i * 100));
        assert_conserved();
    }
    assert_int_equal(desk.leases.count, WEIR__LEASES_MAX);
    assert_int_equal(desk.credit, 2 * (WEIR__LEASES_MAX + 3));
    desk.credit -= 13;
    settle(0, 2000);
    assert_row(0, 2, 1, 0);
    assert_row(1, 1, 12, 0);
}

/* A dead lease with something to settle takes no live neighbour with it. */
static void test_joined_with_a_dead_one(void **state)
{
    (void)state;
    begin();
    (void)add(1, 2, 0, 0);
    desk.credit -= 2;
    for (int i = 1; i < WEIR__LEASES_MAX; i++) {
        (void)add(1, 1, 50000, 50000);
    }
    (void)add(1, 1, LIFE_US + 1, LIFE_US + 1);
    (void)weir__leases_look(&desk.leases, LIFE_US + 2);
    assert_int_equal(desk.credit, WEIR__LEASES_MAX);
    settle(0, LIFE_US + 3);
    assert_row(0, 1, 2, 0);
    assert_conserved();
}

/* A store that forgets its windows again and again: the oldest lease is let go, and only it. */
static void test_nine_windows(void **state)
{
    (void)state;
    for (int spent = 0; spent <= 3; spent++) {
        begin();
        for (int i = 0; i < WEIR__LEASES_MAX; i++) {
            (void)add(i + 1, 3, i, i);
        }
        desk.credit -= spent;
        (void)weir__leases_look(&desk.leases, 10);
        assert_true(add(99, 3, 20, 20));
        assert_int_equal(desk.leases.count, WEIR__LEASES_MAX);
        assert_int_equal(desk.credit, 3 * WEIR__LEASES_MAX);
        assert_int_equal(desk.leases.at[0].window, 2);
        assert_int_equal(desk.leases.own.expired, 3 - spent);
        assert_conserved();
    }
}

/* ---- Against an oracle ----------------------------------------------------------------------- */

#define TOKENS_MAX 4096
#define STEPS 200000

enum fate { HELD, SPENT, SETTLED, BACK, VOID };

struct token {
    int64_t window, expires_us, over_us;
    enum fate fate;
};

static struct token tokens[TOKENS_MAX]; /* oldest first */
static unsigned token_count;

static int64_t oracle_held(void)
{
    int64_t count = 0;
    for (unsigned i = 0; i < token_count; i++) {
        count += tokens[i].fate == HELD;
    }
    return count;
}

static void oracle_take(int64_t count, enum fate from, enum fate to)
{
    for (unsigned i = 0; i < token_count && count > 0; i++) {
        if (tokens[i].fate == from) {
            tokens[i].fate = to;
            count--;
        }
    }
    assert_int_equal(count, 0);
}

static void oracle_expire(int64_t now_us)
{
    for (unsigned i = 0; i < token_count; i++) {
        if (tokens[i].fate == HELD && now_us >= tokens[i].expires_us) {
            tokens[i].fate = VOID;
        }
    }
}

static void oracle_add(int64_t window, int64_t count, int64_t sent_us)
{
    for (int64_t i = 0; i < count; i++) {
        assert_true(token_count < TOKENS_MAX);
        tokens[token_count++] = (struct token){window, sent_us + LIFE_US, sent_us + OVER_US, HELD};
    }
}

static int64_t oracle_refund(int64_t count, int64_t now_us)
{
    int64_t again = 0;
    for (unsigned i = token_count; i-- > 0 && again < count;) {
        if (tokens[i].fate == SPENT && now_us < tokens[i].expires_us) {
            tokens[i].fate = HELD;
            again++;
        }
    }
    return again;
}

/* What goes back, and then the rows: of the two newest windows that have something to say. */
static void oracle_settle(int64_t back, int64_t now_us)
{
    struct weir__settle rows[WEIR__SETTLE_ROWS] = {{WEIR__NO_WINDOW, 0, 0},
                                                   {WEIR__NO_WINDOW, 0, 0}};
    oracle_take(back, HELD, BACK);
    for (unsigned i = token_count; i-- > 0;) {
        struct token *token = &tokens[i];
        bool spent = token->fate == SPENT && now_us < token->over_us;
        for (unsigned row = 0; row < WEIR__SETTLE_ROWS && (spent || token->fate == BACK); row++) {
            if (rows[row].window == WEIR__NO_WINDOW || rows[row].window == token->window) {
                rows[row].window = token->window;
                rows[row].spent += spent;
                rows[row].back += token->fate == BACK;
                break;
            }
        }
        token->fate = token->fate == SPENT ? SETTLED : token->fate;
    }
    assert_memory_equal(rows, desk.rows, sizeof rows);
}

static void forget_old(void)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < token_count; i++) {
        if (tokens[i].fate == HELD || tokens[i].fate == SPENT) {
            tokens[kept++] = tokens[i];
        }
    }
    token_count = kept;
}

static void test_against_an_oracle(void **state)
{
    (void)state;
    const char *text = getenv("WEIR_SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 0) : 20260101;
    print_message("WEIR_SEED=%llu\n", (unsigned long long)seed);
    int64_t now_us = 0, window = 0;
    begin();
    token_count = 0;
    for (int step = 0; step < STEPS; step++) {
        now_us += (int64_t)(weir__random(&seed) % 6000);
        window += weir__random(&seed) % 20 == 0;
        unsigned what = (unsigned)(weir__random(&seed) % 8);
        int64_t count = (int64_t)(weir__random(&seed) % 5) + 1;
        if (what < 3) {
            count = weir__min(count, desk.credit);
            desk.credit -= count;
            oracle_take(count, HELD, SPENT);
        }
        (void)weir__leases_look(&desk.leases, now_us);
        oracle_expire(now_us);
        if (what == 3 && desk.leases.count < WEIR__LEASES_MAX) {
            (void)weir__leases_add(&desk.leases, window, count, now_us - 1000, LIFE_US, now_us);
            oracle_add(window, count, now_us - 1000);
        } else if (what == 4) {
            assert_int_equal(weir__leases_refund(&desk.leases, count, now_us),
                             oracle_refund(count, now_us));
        } else if (what == 5) {
            int64_t back = weir__random(&seed) % 2 == 0 ? count : 0;
            back = weir__min(back, desk.credit);
            weir__leases_settle(&desk.leases, back, desk.rows, now_us);
            oracle_settle(back, now_us);
        }
        assert_int_equal(desk.credit, oracle_held());
        assert_conserved();
        forget_old();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spent_is_what_is_missing),
        cmocka_unit_test(test_expires_from_the_send_on),
        cmocka_unit_test(test_dead_on_arrival),
        cmocka_unit_test(test_stranded),
        cmocka_unit_test(test_the_oldest_is_taken_first),
        cmocka_unit_test(test_gives_back_the_oldest_first),
        cmocka_unit_test(test_two_newest_windows_get_rows),
        cmocka_unit_test(test_refund_only_what_is_unsettled),
        cmocka_unit_test(test_without_a_window),
        cmocka_unit_test(test_unsettled_until_over),
        cmocka_unit_test(test_ninth_lease),
        cmocka_unit_test(test_joined_with_a_dead_one),
        cmocka_unit_test(test_nine_windows),
        cmocka_unit_test(test_against_an_oracle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
