/* SPDX-License-Identifier: MIT */
/* See caps.h. */
#include "unit/caps.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/num.h"

static uint64_t seed;

int64_t cap_draw(int64_t most) { return (int64_t)(weir__random(&seed) % (uint64_t)(most + 1)); }

int cap_seed(void **state)
{
    (void)state;
    const char *given = getenv("WEIR_SEED");
    seed = given != NULL ? strtoull(given, NULL, 0) : 0xca9;
    print_message("WEIR_SEED=%llu\n", (unsigned long long)seed);
    return 0;
}

struct weir__cap_config cap_random_burst(void)
{
    static const int64_t bursts_us[] = {0, 1, 1000, S_US, 3600 * S_US};
    struct weir__cap_config config = {.tokens = 1 + cap_draw(cap_draw(1) ? 20 : 999999999)};
    config.period_us = 1 + cap_draw(cap_draw(1) ? 1000 : 10 * S_US);
    config.burst_us = bursts_us[cap_draw(4)];
    return config;
}

struct weir__cap_config cap_random_warmup(void)
{
    struct weir__cap_config config = cap_random_burst();
    config.burst_us = cap_draw(S_US);
    config.warmup_us = 1 + cap_draw(cap_draw(1) ? 100 : 3599999999);
    return config;
}

struct weir__cap_config cap_random_config(void)
{
    return cap_draw(1) ? cap_random_burst() : cap_random_warmup();
}

int64_t cap_random_step(const struct weir__cap *cap, const struct weir__cap_config *config,
                        int64_t now_ns)
{
    int64_t wait_ns = weir__cap_wait_ns(cap, config, now_ns);
    switch (cap_draw(4)) {
    case 0: return 0;
    case 1: return wait_ns;
    case 2: return weir__max(wait_ns - 1, 0);
    case 3: return cap_draw(100 * US);
    default: return cap_draw(4 * (config->burst_us + config->warmup_us) * US + 10);
    }
}

int64_t cap_take(struct weir__cap *cap, const struct weir__cap_config *config, int64_t cost,
                 int64_t now_ns)
{
    struct weir__cap before = *cap;
    struct weir__cap_taken taken;
    int64_t wait_ns = weir__cap_wait_ns(cap, config, now_ns);
    assert_int_equal(weir__cap_take(cap, config, cost, &taken, now_ns), wait_ns);
    assert_int_equal(taken.cost, wait_ns == 0 ? cost : 0);
    if (wait_ns > 0 || cost == 0) {
        assert_memory_equal(cap, &before, sizeof before);
    }
    return wait_ns;
}
