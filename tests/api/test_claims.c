/* SPDX-License-Identifier: MIT */
/*
 * Several limits at once, without waiting: all are taken or none, whichever of them refuses;
 * nothing is lost by a refusal; and what is told is of the one that refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "api/kinds.h"
#include "api/setup.h"
#include "script/server.h"

#define LIMITS 3
#define CAPACITY 10

static const char *const names[LIMITS] = {"user", "tenant", "global"};

static int inprocess(void **state)
{
    (void)state;
    open_at(DAY);
    return 0;
}

static int redis(void **state)
{
    (void)start_store(state);
    return open_on_store(state);
}

/* A bucket of CAPACITY tokens that gets one an hour. */
static struct weir_bucket *still_bucket(const char *name, uint64_t budget)
{
    return get(define(weir, name, 1, HOUR, CAPACITY, budget), "key");
}

static void three(struct weir_claim claims[LIMITS], uint64_t budget)
{
    for (int i = 0; i < LIMITS; i++) {
        claims[i] = (struct weir_claim){still_bucket(names[i], budget), 2};
    }
}

/* Exactly `tokens` are left in the store and here together; afterwards none is. */
static void assert_left(struct weir_bucket *bucket, uint64_t tokens)
{
    if (tokens > 0) {
        assert_int_equal(weir_acquire_wait(bucket, tokens, 0, NULL), WEIR_ALLOWED);
    }
    assert_int_equal(weir_acquire_wait(bucket, 1, 0, NULL), WEIR_DENIED);
}

/* ---- All or none ----------------------------------------------------------------------------- */

static void all_are_taken(void **state)
{
    (void)state;
    struct weir_claim claims[LIMITS];
    struct weir_result result;
    size_t refused = 99;
    three(claims, 0);
    claims[1].cost = 7; /* it has the fewest left */
    assert_int_equal(weir_acquire_all_wait(claims, LIMITS, 0, &result, &refused), WEIR_ALLOWED);
    assert_int_equal(refused, LIMITS);
    assert_int_equal(result.verdict, WEIR_ALLOWED);
    assert_int_equal(result.reason, WEIR_WITHIN_LIMIT);
    assert_int_equal(result.retry_after_us, 0);
    assert_int_equal(result.remaining_tokens, 3);
    assert_left(claims[0].bucket, 8);
    assert_left(claims[1].bucket, 3);
    assert_left(claims[2].bucket, 8);
    drop(claims, LIMITS);
}

static void a_refusal_at_any_position_takes_nothing(void **state)
{
    (void)state;
    for (size_t short_one = 0; short_one < LIMITS; short_one++) {
        struct weir_claim claims[LIMITS];
        struct weir_result result;
        size_t refused = 99;
        three(claims, 0);
        assert_left(claims[short_one].bucket, CAPACITY);
        uint64_t exact = stats_of(weir).exact_spent;
        assert_int_equal(weir_acquire_all_wait(claims, LIMITS, 0, &result, &refused), WEIR_DENIED);
        assert_int_equal(refused, short_one);
        assert_int_equal(result.reason, WEIR_OVER_LIMIT);
        int64_t least_us = server == NULL ? 2 * HOUR : 1; /* the store's last word may be of one */
        assert_true(result.retry_after_us >= least_us && result.retry_after_us <= 2 * HOUR);
        struct weir_stats stats = stats_of(weir);
        assert_int_equal(stats.exact_spent - exact, stats.refunded);
        assert_true(stats.refunded <= 2 * 2 * (short_one + 1));
        for (size_t i = 0; i < LIMITS; i++) {
            assert_left(claims[i].bucket, i == short_one ? 0 : CAPACITY);
        }
        drop(claims, LIMITS);
        int (*open_again)(void **) = server == NULL ? inprocess : redis;
        assert_int_equal(close_and_stop(state), 0);
        assert_int_equal(open_again(state), 0);
    }
}

static void trying_in_process_takes_all_or_none(void **state)
{
    (void)state;
    struct weir_claim claims[LIMITS];
    three(claims, 5);
    for (int told = 0; told < 2; told++) {
        struct weir_result result;
        size_t refused = 99;
        assert_int_equal(
            weir_try_acquire_all(claims, LIMITS, told ? &result : NULL, told ? &refused : NULL),
            WEIR_ALLOWED);
        assert_true(!told || (refused == LIMITS && result.remaining_tokens == 6));
    }
    assert_int_equal(weir_try_acquire(claims[2].bucket, 5, NULL), WEIR_ALLOWED);
    struct weir_result before[LIMITS], after, result;
    for (int i = 0; i < LIMITS; i++) {
        assert_int_equal(weir_peek(claims[i].bucket, &before[i]), WEIR_OK);
    }
    struct weir_stats was = stats_of(weir);
    size_t refused = 99;
    assert_int_equal(weir_try_acquire_all(claims, LIMITS, &result, &refused), WEIR_DENIED);
    assert_int_equal(refused, 2);
    assert_int_equal(result.remaining_tokens, 1);
    assert_int_equal(result.retry_after_us, HOUR);
    assert_int_equal(weir_try_acquire_all(claims, LIMITS, NULL, NULL), WEIR_DENIED);
    for (int i = 0; i < LIMITS; i++) {
        assert_int_equal(weir_peek(claims[i].bucket, &after), WEIR_OK);
        assert_int_equal(after.verdict, before[i].verdict);
        assert_int_equal(after.remaining_tokens, before[i].remaining_tokens);
    }
    struct weir_stats is = stats_of(weir);
    assert_int_equal(is.refunded - was.refunded, 2 * 2 * 2);
    assert_int_equal(is.lease_spent + is.exact_spent - is.refunded,
                     was.lease_spent + was.exact_spent - was.refunded);
    assert_int_equal(is.denied - was.denied, 2);
    drop(claims, LIMITS);
}

/* On a store a refusal may be for want of a lease; the others' leases stay whole, and are asked for
 * while the first is. */
static void trying_on_redis_takes_all_or_none(void **state)
{
    (void)state;
    struct weir_claim claims[LIMITS];
    three(claims, CAPACITY);
    for (int i = 0; i < LIMITS; i++) {
        claims[i].cost = 1;
    }
    size_t refused = 99;
    struct weir_result result;
    assert_int_equal(weir_try_acquire_all(claims, LIMITS, &result, &refused), WEIR_DENIED);
    assert_int_equal(refused, 0);
    assert_int_equal(result.reason, WEIR_COLD);
    assert_int_equal(result.retry_after_us, WEIR_UNKNOWN);
    for (int i = 0; i < LIMITS; i++) { /* without another call */
        UNTIL(weir_peek(claims[i].bucket, &result) == WEIR_OK && result.verdict == WEIR_ALLOWED);
    }
    assert_int_equal(stats_of(weir).cold, LIMITS);
    UNTIL(weir_try_acquire_all(claims, LIMITS, &result, &refused) == WEIR_ALLOWED);
    assert_int_equal(refused, LIMITS);

    /* The last is used up: the first two are left as they are, whether their leases live or not. */
    assert_int_equal(weir_acquire_wait(claims[2].bucket, CAPACITY - 1, SECOND, NULL), WEIR_ALLOWED);
    UNTIL(weir_try_acquire_all(claims, LIMITS, &result, &refused) == WEIR_DENIED && refused == 2);
    assert_true(stats_of(weir).refunded >= 2);
    drop(claims, LIMITS);
    assert_int_equal(weir_close_wait(weir), WEIR_OK); /* leases go back */
    weir = open_store(server);
    three(claims, 0);
    assert_left(claims[0].bucket, CAPACITY - 1);
    assert_left(claims[1].bucket, CAPACITY - 1);
    assert_left(claims[2].bucket, 0);
    drop(claims, LIMITS);
}

/* However tokens are counted, a refusal elsewhere leaves them; but the turns of a queue, which are
 * over when they are not taken. */
static void every_kind_gets_its_tokens_back(void **state)
{
    (void)state;
    struct weir_bucket *none = still_bucket("none", 0);
    assert_left(none, CAPACITY);
    for (unsigned kind = 0; kind < KINDS; kind++) {
        struct weir_limit_options options = kind_options(kind, CAPACITY, MINUTE);
        struct weir_claim claims[] = {{get(define_with(weir, &options), "key"), 1}, {none, 1}};
        struct weir_result before, after;
        size_t refused = 99;
        assert_int_equal(weir_peek(claims[0].bucket, &before), WEIR_OK);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(weir_try_acquire_all(claims, 2, NULL, &refused), WEIR_DENIED);
            bool slots = options.queue_tokens > 0;
            assert_int_equal(refused, slots && i > 0 ? 0 : 1);
        }
        assert_int_equal(weir_peek(claims[0].bucket, &after), WEIR_OK);
        int64_t lost = options.queue_tokens > 0 ? 1 : 0;
        assert_int_equal(after.remaining_tokens, before.remaining_tokens - lost);
        weir_bucket_unref(claims[0].bucket);
    }
    weir_bucket_unref(none);
}

/* ---- What is told ---------------------------------------------------------------------------- */

static void the_longest_wait_is_told(void **state)
{
    (void)state;
    struct weir_claim claims[LIMITS] = {
        {get(define(weir, "fast", 1, SECOND, 1, 0), "key"), 1},
        {get(define(weir, "slow", 1, MINUTE, 1, 0), "key"), 1},
        {get(define(weir, "full", 1, DAY, 1, 0), "key"), 1},
    };
    for (int i = 0; i < 2; i++) {
        assert_int_equal(weir_try_acquire(claims[i].bucket, 1, NULL), WEIR_ALLOWED);
    }
    for (size_t turn = 0; turn < 2; turn++) { /* whichever comes first */
        struct weir_result result;
        size_t refused = 99;
        assert_int_equal(weir_try_acquire_all(claims, LIMITS, &result, &refused), WEIR_DENIED);
        assert_int_equal(refused, 0);
        assert_int_equal(result.retry_after_us, MINUTE);
        assert_int_equal(weir_acquire_all_wait(claims, LIMITS, 0, &result, &refused), WEIR_DENIED);
        assert_true(refused == 0 || refused == 1);
        assert_int_equal(result.retry_after_us, MINUTE);
        struct weir_claim first = claims[0];
        claims[0] = claims[1];
        claims[1] = first;
    }
    assert_int_equal(weir_try_acquire(claims[2].bucket, 1, NULL), WEIR_ALLOWED);
    drop(claims, LIMITS);
}

static void claims_of_one_bucket_are_added_up(void **state)
{
    (void)state;
    struct weir_bucket *one = still_bucket("one", 0), *two = still_bucket("two", 0);
    struct weir_claim fits[] = {{one, 3}, {two, 1}, {one, 4}};
    struct weir_result result;
    size_t refused = 99;
    assert_int_equal(weir_acquire_all_wait(fits, 3, 0, &result, &refused), WEIR_ALLOWED);
    assert_int_equal(refused, 3);
    assert_int_equal(result.remaining_tokens, 3);

    struct weir_claim more[] = {{two, 1}, {one, 2}, {one, 2}};
    assert_int_equal(weir_acquire_all_wait(more, 3, 0, &result, &refused), WEIR_DENIED);
    assert_int_equal(refused, 1);
    assert_int_equal(result.reason, WEIR_OVER_LIMIT);
    assert_left(one, 3);
    assert_left(two, 9);
    drop((struct weir_claim[]){{one, 0}, {two, 0}}, 2);
}

static void expect_never(const struct weir_claim *claims, size_t count, size_t index)
{
    for (int waits = 0; waits < 2; waits++) {
        struct weir_result result;
        size_t refused = 99;
        int code = waits ? weir_acquire_all_wait(claims, count, HOUR, &result, &refused)
                         : weir_try_acquire_all(claims, count, &result, &refused);
        assert_int_equal(code, WEIR_DENIED);
        assert_int_equal(refused, index);
        assert_int_equal(result.reason, WEIR_COST_ABOVE_CAPACITY);
        assert_int_equal(result.retry_after_us, WEIR_NEVER);
    }
}

static void more_than_a_capacity_is_never_there(void **state)
{
    (void)state;
    struct weir_bucket *one = still_bucket("one", 0), *two = still_bucket("two", 0);
    expect_never((struct weir_claim[]){{one, CAPACITY + 1}, {two, 1}}, 2, 0);
    expect_never((struct weir_claim[]){{one, 1}, {two, CAPACITY + 1}}, 2, 1);
    expect_never((struct weir_claim[]){{one, 1}, {two, 6}, {two, 5}}, 3, 1);
    expect_never((struct weir_claim[]){{one, 1}, {two, UINT64_MAX}, {two, 2}}, 3, 1);
    assert_int_equal(stats_of(weir).denied, 8);
    assert_int_equal(stats_of(weir).exact_spent, 0);
    assert_int_equal(stats_of(weir).asks_sent, 0);
    assert_left(one, CAPACITY);
    assert_left(two, CAPACITY);
    drop((struct weir_claim[]){{one, 0}, {two, 0}}, 2);
}

/* A cost of nothing is a look among others. */
static void a_look_may_refuse_for_all(void **state)
{
    (void)state;
    struct weir_bucket *one = still_bucket("one", 0), *two = still_bucket("two", 0);
    struct weir_claim claims[] = {{one, 1}, {two, 0}};
    size_t refused = 99;
    assert_int_equal(weir_acquire_all_wait(claims, 2, 0, NULL, &refused), WEIR_ALLOWED);
    assert_int_equal(refused, 2);
    assert_left(two, CAPACITY);
    assert_int_equal(weir_acquire_all_wait(claims, 2, 0, NULL, &refused), WEIR_DENIED);
    assert_int_equal(refused, 1);
    assert_left(one, CAPACITY - 1);
    drop(claims, 2);
}

/* ---- Policies -------------------------------------------------------------------------------- */

/* What an open policy lets through was not taken from the limit: giving it back would hand out what
 * others have really used. */
static void what_a_policy_let_through_is_not_given_back(void **state)
{
    (void)state;
    struct weir_limit_options open = limit_options("open", 1, HOUR, 10, 0);
    struct weir_limit_options closed = limit_options("closed", 1, HOUR, 10, 0);
    open.outage = WEIR_OUTAGE_OPEN;
    closed.outage = WEIR_OUTAGE_CLOSED;
    struct weir_claim claims[] = {
        {get(define_with(weir, &open), "key"), 1},
        {get(define_with(weir, &closed), "key"), 1},
    };
    struct weir_result result;
    size_t refused;
    assert_int_equal(weir_acquire_wait(claims[0].bucket, 5, 0, NULL), WEIR_ALLOWED);
    server_stop(server);
    UNTIL(stats_of(weir).store_state == WEIR_STORE_OUTAGE);
    for (int waits = 0; waits < 2; waits++) {
        int code = waits ? weir_acquire_all_wait(claims, 2, SECOND, &result, &refused)
                         : weir_try_acquire_all(claims, 2, &result, &refused);
        assert_int_equal(code, WEIR_UNAVAILABLE);
        assert_int_equal(refused, 1);
        assert_int_equal(result.reason, WEIR_STORE_DOWN);
    }
    assert_int_equal(stats_of(weir).refunded, 0);
    struct weir_claim twice[] = {claims[0], claims[0]};
    assert_int_equal(weir_try_acquire_all(twice, 2, &result, &refused), WEIR_ALLOWED);
    assert_int_equal(result.reason, WEIR_STORE_DOWN);
    drop(claims, 2);
    assert_int_equal(server_start(server), 0);
}

/* ---- Mistakes -------------------------------------------------------------------------------- */

static void never_called(void *arg, const struct weir_result *result, size_t refused)
{
    (void)arg;
    (void)result;
    (void)refused;
    abort();
}

static void expect(int code, const struct weir_claim *claims, size_t count)
{
    struct weir_result result;
    size_t refused = 99;
    assert_int_equal(weir_try_acquire_all(claims, count, &result, &refused), code);
    assert_int_equal(weir_acquire_all(claims, count, 0, never_called, NULL, &result, &refused),
                     code);
    assert_int_equal(weir_acquire_all_wait(claims, count, 0, &result, &refused), code);
    assert_int_equal(refused, 99);
}

static void mistakes_are_told(void **state)
{
    (void)state;
    struct weir *other = open_inprocess(NULL);
    struct weir_bucket *ours = still_bucket("ours", 0);
    struct weir_bucket *theirs = get(define(other, "theirs", 1, HOUR, 10, 0), "key");
    struct weir_claim many[WEIR_CLAIMS_MOST + 1];
    for (size_t i = 0; i <= WEIR_CLAIMS_MOST; i++) {
        many[i] = (struct weir_claim){ours, 0};
    }
    expect(WEIR_EINVAL, many, 0);
    expect(WEIR_EINVAL, many, WEIR_CLAIMS_MOST + 1);
    expect(WEIR_EINVAL, NULL, 1);
    expect(WEIR_EINVAL, (struct weir_claim[]){{NULL, 1}, {ours, 1}}, 2);
    expect(WEIR_EINVAL, (struct weir_claim[]){{ours, 1}, {NULL, 1}}, 2);
    expect(WEIR_EINVAL, (struct weir_claim[]){{ours, 1}, {theirs, 1}}, 2);
    assert_int_equal(weir_acquire_all(many, 1, 0, NULL, NULL, NULL, NULL), WEIR_EINVAL);
    assert_int_equal(weir_acquire_all(many, 1, HOUR + 1, never_called, NULL, NULL, NULL),
                     WEIR_EINVAL);
    assert_int_equal(weir_acquire_all_wait(many, 1, HOUR + 1, NULL, NULL), WEIR_EINVAL);
    assert_int_equal(weir_acquire_all_wait(many, WEIR_CLAIMS_MOST, 0, NULL, NULL), WEIR_ALLOWED);

    assert_int_equal(weir_close_wait(other), WEIR_OK);
    expect(WEIR_ECLOSED, (struct weir_claim[]){{theirs, 1}}, 1);
    expect(WEIR_ECLOSED, (struct weir_claim[]){{theirs, CAPACITY + 1}}, 1);
    drop((struct weir_claim[]){{ours, 0}, {theirs, 0}}, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HERE(all_are_taken),
        THERE(all_are_taken),
        HERE(a_refusal_at_any_position_takes_nothing),
        THERE(a_refusal_at_any_position_takes_nothing),
        HERE(every_kind_gets_its_tokens_back),
        HERE(trying_in_process_takes_all_or_none),
        THERE(trying_on_redis_takes_all_or_none),
        HERE(the_longest_wait_is_told),
        HERE(claims_of_one_bucket_are_added_up),
        THERE(claims_of_one_bucket_are_added_up),
        HERE(more_than_a_capacity_is_never_there),
        HERE(a_look_may_refuse_for_all),
        THERE(a_look_may_refuse_for_all),
        THERE(what_a_policy_let_through_is_not_given_back),
        HERE(mistakes_are_told),
        THERE(mistakes_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
