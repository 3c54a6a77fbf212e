/* SPDX-License-Identifier: MIT */
/*
 * Several limits at once, with waiting: one answer, on the loop's thread and in time, and nothing
 * held for long.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "api/setup.h"
#include "script/server.h"

#define KEYS 100 /* of which there are surely two whose addresses are either way around */

static void open_weir(uint64_t ask_timeout_ms, uint64_t max_waiters)
{
    char url[128];
    struct weir_options options = options_of(url);
    options.ask_timeout_ms = ask_timeout_ms;
    options.max_waiters = max_waiters;
    weir = open_with(&options);
}

static int inprocess(void **state)
{
    (void)state;
    open_weir(100, 1000);
    return 0;
}

static int redis(void **state)
{
    (void)start_store(state);
    open_weir(100, 1000);
    return 0;
}

/* A bucket of each limit, those of the first before or after the other's in the order of taking. */
static void pair(struct weir_limit *one, struct weir_limit *two, bool one_first,
                 struct weir_claim claims[2])
{
    struct weir_bucket *ones[KEYS], *twos[KEYS];
    int i = 0, k = 0;
    for (char key[2] = "\1"; i < KEYS; i++, key[0]++) {
        ones[i] = get(one, key);
        twos[i] = get(two, key);
    }
    for (i = 0; i < KEYS; i++) {
        for (k = 0; k < KEYS && ((uintptr_t)ones[i] < (uintptr_t)twos[k]) != one_first; k++) {
        }
        if (k < KEYS) {
            break;
        }
    }
    assert_true(i < KEYS);
    claims[0] = (struct weir_claim){weir_bucket_ref(ones[i]), 1};
    claims[1] = (struct weir_claim){weir_bucket_ref(twos[k]), 1};
    for (i = 0; i < KEYS; i++) {
        weir_bucket_unref(ones[i]);
        weir_bucket_unref(twos[i]);
    }
}

static struct weir_limit *empty(const char *name, uint64_t rate, int64_t period_us,
                                uint64_t capacity)
{
    struct weir_limit_options options = limit_options(name, rate, period_us, capacity, 0);
    options.initial_tokens = 0;
    return define_with(weir, &options);
}

/* One weir_acquire_all and its callback. */
struct reply {
    struct answer answer;
    size_t refused;
};

static void on_reply(void *arg, const struct weir_result *result, size_t refused)
{
    struct reply *reply = arg;
    struct answer *answer = &reply->answer;
    answer->called_inside = __atomic_load_n(&answer->inside, __ATOMIC_ACQUIRE) &&
                            pthread_self() == (pthread_t)answer->caller;
    answer->thread = (uint64_t)pthread_self();
    answer->at_us = real_us();
    answer->result = *result;
    reply->refused = refused;
    __atomic_add_fetch(&answer->count, 1, __ATOMIC_RELEASE);
}

static int ask_all(struct reply *reply, const struct weir_claim *claims, size_t count,
                   int64_t timeout_us)
{
    *reply = (struct reply){.answer = {.inside = true, .caller = (uint64_t)pthread_self()},
                            .refused = 99};
    int code = weir_acquire_all(claims, count, (uint64_t)timeout_us, on_reply, reply,
                                &reply->answer.result, &reply->refused);
    __atomic_store_n(&reply->answer.inside, false, __ATOMIC_RELEASE);
    return code;
}

/* ---- One caller ------------------------------------------------------------------------------ */

static void both_are_waited_for(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++) {
        static struct reply reply;
        struct weir_claim claims[2];
        struct weir_limit *slow = empty(first ? "slow-first" : "slow", 4, SECOND, 10);
        struct weir_limit *fast = empty(first ? "fast-last" : "fast", 1000, SECOND, 10);
        pair(slow, fast, first, claims);
        int64_t from_us = real_us();
        assert_int_equal(ask_all(&reply, claims, 2, 5 * SECOND), WEIR_PENDING);
        UNTIL(answered(&reply.answer));
        assert_int_equal(reply.answer.result.verdict, WEIR_ALLOWED);
        assert_int_equal(reply.refused, 2);
        assert_false(reply.answer.called_inside);
        assert_true(reply.answer.thread != reply.answer.caller);
        assert_true(reply.answer.at_us - from_us >= 240 * MS);
        pause_us(5000);
        assert_true(answered(&reply.answer)); /* and not twice */
        assert_int_equal(stats_of(weir).waiters, 0);
        drop(claims, 2);
    }
}

/* Who waits for its user's tokens keeps none of the global limit's from others. */
static void nothing_is_held_while_it_waits(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++) {
        static struct reply reply;
        struct weir_claim claims[2];
        struct weir_limit *user = empty(first ? "user-first" : "user", 1, SECOND, 10);
        struct weir_limit *global = define(weir, first ? "global-last" : "global", 1, HOUR, 1, 0);
        pair(user, global, first, claims);
        assert_int_equal(ask_all(&reply, claims, 2, 5 * SECOND), WEIR_PENDING);
        pause_us(300000);
        assert_int_equal(weir_acquire_wait(claims[1].bucket, 1, 0, NULL), WEIR_ALLOWED);
        assert_false(answered(&reply.answer));
        UNTIL(answered(&reply.answer));
        assert_int_equal(reply.answer.result.verdict, WEIR_DENIED);
        assert_int_equal(reply.answer.result.reason, WEIR_OVER_LIMIT);
        assert_int_equal(reply.refused, 1);
        /* What the user had was given back. */
        assert_int_equal(weir_acquire_wait(claims[0].bucket, 1, 900 * MS, NULL), WEIR_ALLOWED);
        drop(claims, 2);
    }
}

static void open_by_hand(void)
{
    (void)close_weir(NULL);
    open_at(DAY);
}

static struct weir_limit *reserved_ahead(const char *name, int64_t period_us, uint64_t initial)
{
    struct weir_limit_options rule = limit_options(name, 1, period_us, 10, 0);
    rule.initial_tokens = initial;
    rule.max_wait_ms = 60000;
    return define_with(weir, &rule);
}

/* Who has the later of two does not wait for the earlier, however soon that comes: or two callers
 * could each wait for what the other holds. */
static void no_wait_goes_against_the_order(void **state)
{
    (void)state;
    static struct reply reply;
    static struct answer bell;
    struct weir_claim claims[2];
    open_by_hand();
    pair(reserved_ahead("one", 10350 * MS, 1), reserved_ahead("two", 10 * SECOND, 0), true, claims);
    assert_int_equal(ask_all(&reply, claims, 2, MINUTE), WEIR_PENDING);
    UNTIL(stats_of(weir).asks_answered == 1); /* it waits for the second */
    assert_int_equal(stats_of(weir).refunded, 1);
    assert_int_equal(weir_try_acquire(claims[0].bucket, 1, NULL), WEIR_ALLOWED);

    hand_clock_set(&hand, DAY + 10320 * MS); /* the first comes in 30 ms */
    (void)ask(&bell, claims[1].bucket, 10, MINUTE, NULL);
    UNTIL(stats_of(weir).refunded == 2);
    hand_clock_set(&hand, DAY + 100 * SECOND);
    assert_int_equal(weir_close_wait(weir), WEIR_OK);
    assert_true(answered(&reply.answer));
    drop(claims, 2);
    open_weir(100, 1000);
}

static void a_certain_refusal_comes_at_once(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++) {
        struct weir_claim claims[2];
        struct weir_result result;
        size_t refused = 99;
        struct weir_limit *never = empty(first ? "never-first" : "never", 1, HOUR, 1);
        struct weir_limit *ready = define(weir, first ? "ready-last" : "ready", 1, HOUR, 1, 0);
        pair(never, ready, first, claims);
        int64_t from_us = real_us();
        assert_int_equal(weir_acquire_all_wait(claims, 2, 30 * SECOND, &result, &refused),
                         WEIR_DENIED);
        assert_true(real_us() - from_us < 5 * SECOND);
        assert_int_equal(refused, 0);
        assert_int_equal(result.reason, WEIR_OVER_LIMIT);
        assert_true(result.retry_after_us > HOUR - MINUTE && result.retry_after_us <= HOUR);
        assert_int_equal(weir_acquire_wait(claims[1].bucket, 1, 0, NULL), WEIR_ALLOWED);
        drop(claims, 2);
    }
}

/* The deadline is of all together: each of these could be had in time alone. */
static void a_deadline_is_kept(void **state)
{
    (void)state;
    static struct answer ahead[2];
    struct weir_claim claims[2];
    struct weir_result result;
    size_t refused = 99;
    pair(empty("one", 10, SECOND, 10), empty("two", 10, SECOND, 10), true, claims);
    assert_int_equal(ask(&ahead[0], claims[0].bucket, 5, 5 * SECOND, NULL), WEIR_PENDING);
    assert_int_equal(ask(&ahead[1], claims[1].bucket, 8, 5 * SECOND, NULL), WEIR_PENDING);
    UNTIL(stats_of(weir).waiters == 2);
    int64_t from_us = real_us();
    assert_int_equal(weir_acquire_all_wait(claims, 2, 700 * MS, &result, &refused), WEIR_DENIED);
    assert_true(real_us() - from_us < SECOND);
    assert_int_equal(refused, 1);
    UNTIL(answered(&ahead[0]) && answered(&ahead[1]));
    assert_int_equal(ahead[0].result.verdict, WEIR_ALLOWED);
    assert_int_equal(ahead[1].result.verdict, WEIR_ALLOWED);
    assert_int_equal(weir_acquire_all_wait(claims, 2, 5 * SECOND, NULL, NULL), WEIR_ALLOWED);
    drop(claims, 2);
}

static void max_waiters_is_held(void **state)
{
    (void)state;
    static struct reply replies[3];
    struct weir_claim claims[2];
    assert_int_equal(weir_close_wait(weir), WEIR_OK);
    open_weir(100, 2);
    pair(empty("one", 10, SECOND, 10), empty("two", 10, SECOND, 10), true, claims);
    assert_int_equal(ask_all(&replies[0], claims, 2, 5 * SECOND), WEIR_PENDING);
    assert_int_equal(ask_all(&replies[1], claims, 2, 5 * SECOND), WEIR_PENDING);
    assert_int_equal(ask_all(&replies[2], claims, 2, 5 * SECOND), WEIR_UNAVAILABLE);
    assert_int_equal(replies[2].answer.result.reason, WEIR_BUSY);
    assert_int_equal(replies[2].refused, 0);
    for (int i = 0; i < 2; i++) {
        UNTIL(answered(&replies[i].answer));
        assert_int_equal(replies[i].answer.result.verdict, WEIR_ALLOWED);
    }
    drop(claims, 2);
}

static void a_silent_store_is_told_by_the_deadline(void **state)
{
    (void)state;
    struct weir_claim claims[2];
    struct weir_result result;
    size_t refused = 99;
    pair(define(weir, "one", 1, HOUR, 10, 0), define(weir, "two", 1, HOUR, 10, 0), true, claims);
    assert_int_equal(weir_acquire_all_wait(claims, 2, 0, NULL, NULL), WEIR_ALLOWED);
    for (int64_t timeout_us = 0; timeout_us <= 50 * MS; timeout_us += 50 * MS) {
        kill(server->pid, SIGSTOP);
        int64_t from_us = real_us();
        assert_int_equal(weir_acquire_all_wait(claims, 2, (uint64_t)timeout_us, &result, &refused),
                         WEIR_UNAVAILABLE);
        int64_t us = real_us() - from_us;
        assert_int_equal(result.reason, WEIR_DEADLINE);
        assert_int_equal(refused, 0);
        assert_true(us >= 50 * MS && us < SECOND);
        kill(server->pid, SIGCONT);
        UNTIL(weir_acquire_wait(claims[0].bucket, 1, SECOND, NULL) == WEIR_ALLOWED);
    }
    drop(claims, 2);
}

/* The store falls silent while tokens that it has promised are waited for: the other claim, which
 * is only asked then, has no more time than was left. */
static void a_deadline_is_kept_when_the_store_falls_silent(void **state)
{
    (void)state;
    static struct reply reply;
    struct weir_claim claims[2];
    struct weir_limit_options later = limit_options("later", 1, SECOND, 10, 0);
    later.initial_tokens = 0;
    later.max_wait_ms = 5000;
    assert_int_equal(weir_close_wait(weir), WEIR_OK);
    open_weir(900, 1000);
    pair(define(weir, "first", 1, HOUR, 10, 0), define_with(weir, &later), true, claims);
    int64_t from_us = real_us();
    assert_int_equal(ask_all(&reply, claims, 2, 1500 * MS), WEIR_PENDING);
    pause_us(400000);
    kill(server->pid, SIGSTOP);
    UNTIL(answered(&reply.answer));
    kill(server->pid, SIGCONT);
    assert_int_equal(reply.answer.result.reason, WEIR_DEADLINE);
    assert_int_equal(reply.refused, 0);
    assert_true(reply.answer.at_us - from_us < 1750 * MS);
    drop(claims, 2);
}

/* ---- Closing, and from inside a callback ----------------------------------------------------- */

static void closing_answers_once(void **state)
{
    (void)state;
    static struct reply replies[20];
    struct weir_claim claims[2];
    pair(empty("one", 1, SECOND, 10), define(weir, "two", 1, HOUR, 10, 0), true, claims);
    for (int i = 0; i < 20; i++) { /* with either one as the first that is asked */
        claims[i % 2].cost = 2;
        claims[1 - i % 2].cost = 1;
        assert_int_equal(ask_all(&replies[i], claims, 2, HOUR), WEIR_PENDING);
    }
    assert_int_equal(weir_close_wait(weir), WEIR_OK);
    for (int i = 0; i < 20; i++) {
        assert_true(answered(&replies[i].answer));
        assert_int_equal(replies[i].answer.result.verdict, WEIR_UNAVAILABLE);
        assert_int_equal(replies[i].answer.result.reason, WEIR_CLOSED);
        assert_true(replies[i].refused < 2);
    }
    assert_int_equal(ask_all(&replies[0], claims, 2, HOUR), WEIR_ECLOSED);
    drop(claims, 2);
    open_weir(100, 1000);
}

static void close_now(void *arg, const struct weir_result *result)
{
    (void)arg;
    (void)result;
    (void)weir_close(weir, NULL, NULL);
}

/* Both have their tokens in one turn of the loop; the first closes the weir. */
static void closing_between_two_claims_answers_once(void **state)
{
    (void)state;
    static struct reply reply;
    static struct answer third;
    struct weir_claim claims[2];
    open_by_hand();
    pair(reserved_ahead("one", SECOND, 0), define(weir, "two", 1, HOUR, 10, 0), true, claims);
    assert_int_equal(weir_acquire(claims[0].bucket, 1, MINUTE, close_now, NULL, NULL),
                     WEIR_PENDING);
    assert_int_equal(ask_all(&reply, claims, 2, MINUTE), WEIR_PENDING);
    UNTIL(stats_of(weir).asks_answered >= 1);
    hand_clock_set(&hand, DAY + 5 * SECOND);
    bool rang = ask(&third, claims[0].bucket, 1, MINUTE, NULL) == WEIR_PENDING;
    UNTIL(answered(&reply.answer));
    assert_int_equal(reply.answer.result.verdict, WEIR_UNAVAILABLE);
    assert_int_equal(reply.answer.result.reason, WEIR_CLOSED);
    assert_int_equal(reply.refused, 1);
    UNTIL(!rang || answered(&third));
    drop(claims, 2);
    open_weir(100, 1000);
}

struct closer {
    struct weir_claim claims[2];
    struct weir_limit *other;
    unsigned done; /* atomic */
    int blocking, asked;
    struct reply reply;
};

static void on_closed(void *arg)
{
    struct closer *closer = arg;
    __atomic_add_fetch(&closer->done, 1, __ATOMIC_RELEASE);
}

/* Asks again, and then closes the weir, in the callback: the second call is answered too. */
static void ask_and_close(void *arg, const struct weir_result *result, size_t refused)
{
    struct closer *closer = arg;
    struct weir_claim claims[2] = {closer->claims[0], closer->claims[1]};
    (void)result;
    (void)refused;
    closer->blocking = weir_acquire_all_wait(claims, 2, SECOND, NULL, NULL);
    closer->asked = ask_all(&closer->reply, claims, 2, HOUR);
    (void)weir_close(weir, on_closed, closer);
}

static void a_callback_may_ask_and_close(void **state)
{
    (void)state;
    struct closer closer = {.done = 0};
    pair(empty("one", 4, SECOND, 10), define(weir, "two", 1, HOUR, 10, 0), true, closer.claims);
    assert_int_equal(weir_acquire_all(closer.claims, 2, HOUR, ask_and_close, &closer, NULL, NULL),
                     WEIR_PENDING);
    UNTIL(__atomic_load_n(&closer.done, __ATOMIC_ACQUIRE) == 1);
    assert_int_equal(closer.blocking, WEIR_ETHREAD);
    assert_int_equal(closer.asked, WEIR_PENDING);
    assert_true(answered(&closer.reply.answer));
    assert_int_equal(closer.reply.answer.result.reason, WEIR_CLOSED);
    assert_false(closer.reply.answer.called_inside);
    drop(closer.claims, 2);
    open_weir(100, 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(both_are_waited_for),
        BOTH(nothing_is_held_while_it_waits),
        HERE(no_wait_goes_against_the_order),
        BOTH(a_certain_refusal_comes_at_once),
        BOTH(a_deadline_is_kept),
        BOTH(max_waiters_is_held),
        THERE(a_silent_store_is_told_by_the_deadline),
        THERE(a_deadline_is_kept_when_the_store_falls_silent),
        BOTH(closing_answers_once),
        HERE(closing_between_two_claims_answers_once),
        BOTH(a_callback_may_ask_and_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
