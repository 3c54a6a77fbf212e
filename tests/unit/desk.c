/* SPDX-License-Identifier: MIT */
#include "desk.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/num.h"
#include "core/rule.h"

/* The store's clock and ours have nothing in common. */
#define STORE_EPOCH_US INT64_C(1700000000000000)
#define OUR_EPOCH_US INT64_C(5000000)

#define UNTOLD INT64_MIN /* no answer has this retry_after_us */

void desk_begin(struct desk *desk, uint64_t tokens, int64_t capacity, int64_t budget)
{
    uint64_t largest;
    const struct weir__engine_config config = {
        .ask_timeout_us = DESK_TIMEOUT_US,
        .max_asks = 4,
        .max_waiters = 8,
        .seed = 1,
        .leases = true,
    };
    *desk = (struct desk){.now_us = OUR_EPOCH_US};
    desk->limit.outage = WEIR__OUTAGE_CLOSED;
    desk->limit.rule = (struct weir__rule){
        .version = 1,
        .algorithm = WEIR__TOKEN_BUCKET,
        .budget = budget,
        .window_us = DESK_WINDOW_US,
        .initial = capacity,
    };
    assert_true(
        weir__rule_set_rate(&desk->limit.rule, tokens, 1000000, (uint64_t)capacity, &largest));
    weir__engine_init(&desk->engine, &config);
    weir__bucket_init(&desk->bucket, &desk->engine, &desk->limit, "key", 3);
    weir__engine_linked(&desk->engine, true, desk->now_us);
}

bool desk_sends(struct desk *desk)
{
    return weir__engine_next_command(&desk->engine, &desk->command, desk->now_us);
}

void desk_run(struct desk *desk)
{
    weir__global_ask(&desk->store, &desk->command.rule, &desk->command.ask,
                     STORE_EPOCH_US + desk->now_us, &desk->grant);
}

void desk_hear(struct desk *desk)
{
    weir__engine_answer(&desk->engine, &desk->bucket, desk->command.serial, &desk->grant,
                        desk->now_us);
}

unsigned desk_settle(struct desk *desk)
{
    unsigned asks = 0;
    while (desk_sends(desk)) {
        desk_run(desk);
        desk_hear(desk);
        assert_true(++asks <= 100);
    }
    return asks;
}

void desk_pass(struct desk *desk, int64_t us)
{
    int64_t end_us = desk->now_us + us;
    int64_t next_us;
    (void)desk_settle(desk);
    while ((next_us = weir__engine_next_us(&desk->engine)) <= end_us) {
        desk->now_us = weir__max(desk->now_us, next_us);
        weir__engine_tick(&desk->engine, desk->now_us);
        assert_true(weir__engine_next_us(&desk->engine) > desk->now_us);
        (void)desk_settle(desk);
    }
    desk->now_us = end_us;
}

enum weir__miss desk_miss(struct desk *desk)
{
    enum weir__miss miss = weir__bucket_miss(&desk->bucket);
    if (miss == WEIR__MISS_TOUCH) {
        weir__engine_touch(&desk->engine, &desk->bucket, desk->now_us);
    }
    return miss;
}

void desk_wait(struct desk *desk, struct weir__waiter *waiter, int64_t cost, int64_t timeout_us)
{
    *waiter = (struct weir__waiter){
        .bucket = &desk->bucket,
        .cost = cost,
        .until_us = desk->now_us + timeout_us,
        .answer_us = desk->now_us + (timeout_us == 0 ? DESK_TIMEOUT_US : timeout_us),
        .retry_after_us = UNTOLD,
    };
    weir__engine_wait(&desk->engine, waiter, desk->now_us);
}

bool desk_told(struct desk *desk, const struct weir__waiter *waiter, enum weir__verdict verdict,
               enum weir__reason reason)
{
    while (weir__engine_next_done(&desk->engine) != NULL) {
    }
    return waiter->retry_after_us != UNTOLD && waiter->verdict == verdict &&
           waiter->reason == reason;
}
