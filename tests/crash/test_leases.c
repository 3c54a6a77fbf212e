/* SPDX-License-Identifier: MIT */
/*
 * Leases that are held: the account of them lives as long as they do, and not for ever.
 *
 * One process after another gets a lease and holds it, on a bucket that is full again after 25 ms.
 * Then all is spent at once, which is the burst that the budget bounds.  Were the key to expire
 * with the filling (R4), or a lease to outlive its window (R6), the next process would be granted
 * what the first still holds, and the burst be larger.
 */
#include "crash/puppet.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/num.h"
#include "bench/clock.h"
#include "crash/server.h"

#define HOARDERS 10
#define RATE 20000
#define CAPACITY 500
#define BUDGET 500
#define WINDOW_MS 100 /* so that two of them are soon over */
#define KEY "hoard"
#define FILL_NS (25 * NS_PER_MS) /* capacity / rate */
#define HOARD_TIME_US 20000

#define SPEND_TIME_US 3000

#define SHORT_LIVED 100 /* processes */
#define SHORT_LIVED_MOST_US 20000

struct scene {
    struct server server;
    struct puppet puppets[HOARDERS];
    struct weir_limit_options limit;
};

static int setup(void **state)
{
    struct scene *scene = calloc(1, sizeof *scene);
    *state = scene;
    server_open(&scene->server, SERVER_KEEPS_NOTHING);
    struct weir_limit_options *limit = &scene->limit;
    weir_limit_options_init(limit, sizeof *limit);
    limit->name = "leases";
    limit->rate_tokens = RATE;
    limit->rate_period_us = 1000000;
    limit->capacity_tokens = CAPACITY;
    limit->budget_tokens = BUDGET;
    limit->version = 1;
    limit->outage = WEIR_OUTAGE_CLOSED;
    return 0;
}

static int teardown(void **state)
{
    struct scene *scene = *state;
    for (unsigned i = 0; i < HOARDERS; i++) {
        puppet_kill(&scene->puppets[i]);
    }
    server_close(&scene->server);
    free(scene);
    return 0;
}

static void start_hoarders(struct scene *scene)
{
    for (unsigned i = 0; i < HOARDERS; i++) {
        puppet_start(&scene->puppets[i], scene->server.url, &scene->limit);
    }
}

/* Takes enough to be given a lease, and keeps what is left of it while the bucket has time to fill.
 * Returns what the process then holds. */
static uint64_t hoard(struct scene *scene, unsigned number)
{
    const struct puppet *puppet = &scene->puppets[number];
    (void)puppet_take(puppet, KEY, BUDGET / 4, HOARD_TIME_US);
    clock_sleep_until(clock_now_ns() + FILL_NS + FILL_NS / 2);
    struct puppet_answer answer = puppet_take(puppet, KEY, 0, 0);
    int64_t left_ms = server_ask(&scene->server, "PTTL weir:leases:" KEY);
    print_message("  process %u holds %llu; the key expires in %lld ms\n", number,
                  (unsigned long long)answer.stats.held, (long long)left_ms);
    assert_true(left_ms > 0);
    return answer.stats.held;
}

/* What all have been told to take, against the promise for that interval. */
static void check_burst(struct scene *scene)
{
    uint64_t spent = 0, stranded = 0;
    int64_t first_ns = INT64_MAX, last_ns = 0;
    for (unsigned i = 0; i < HOARDERS; i++) {
        struct puppet_answer answer = puppet_finish(&scene->puppets[i]);
        spent += answer.tokens;
        stranded += answer.stats.stranded;
        first_ns = weir__min(first_ns, answer.called_ns);
        last_ns = weir__max(last_ns, answer.heard_ns);
    }
    double seconds = (double)(last_ns - first_ns) / (double)NS_PER_S;
    double bound = CAPACITY + RATE * seconds + BUDGET + (double)stranded;
    print_message("spent %llu in %.1f ms, of at most %.0f; stranded %llu of it\n",
                  (unsigned long long)spent, seconds * 1000, bound, (unsigned long long)stranded);
    assert_true((double)spent > CAPACITY / 2);
    assert_true((double)spent <= bound);
}

static void test_a_key_outlives_its_leases(void **state)
{
    struct scene *scene = *state;
    scene->limit.window_ms = 1000; /* all can hold at once */
    start_hoarders(scene);
    uint64_t held = 0;
    for (unsigned i = 0; i < HOARDERS; i++) {
        held += hoard(scene, i);
    }
    print_message("%llu were held one after another, with a budget of %d\n",
                  (unsigned long long)held, BUDGET);
    assert_true(held > BUDGET / 2);
    for (unsigned i = 0; i < HOARDERS; i++) {
        puppet_begin_take(&scene->puppets[i], KEY, UINT64_MAX, SPEND_TIME_US);
    }
    check_burst(scene);
    server_wait_until_empty(&scene->server);
}

/* Each is stopped while it holds a lease, until the store has forgotten that.  They go on together,
 * and take what they find: nothing where the loop was first, else old credit, which their stats
 * must call stranded. */
static void test_a_lease_dies_in_a_stopped_process(void **state)
{
    struct scene *scene = *state;
    scene->limit.window_ms = WINDOW_MS;
    start_hoarders(scene);
    uint64_t held = 0;
    for (unsigned i = 0; i < HOARDERS; i++) {
        held += hoard(scene, i);
        puppet_stop(&scene->puppets[i]);
        clock_sleep_until(clock_now_ns() + 2 * WINDOW_MS * NS_PER_MS);
    }
    print_message("%llu were held, with a budget of %d\n", (unsigned long long)held, BUDGET);
    assert_true(held > BUDGET);
    for (unsigned i = 0; i < HOARDERS; i++) {
        puppet_begin_take(&scene->puppets[i], KEY, UINT64_MAX, SPEND_TIME_US);
    }
    for (unsigned i = 0; i < HOARDERS; i++) {
        puppet_continue(&scene->puppets[i]);
    }
    check_burst(scene);
}

static void test_keys_of_killed_processes_expire(void **state)
{
    struct scene *scene = *state;
    const char *text = getenv("WEIR_SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 0) : UINT64_C(20260103);
    print_message("seed %llu\n", (unsigned long long)seed);
    scene->limit.window_ms = WINDOW_MS;
    int64_t most = 0;
    for (unsigned born = 0; born < SHORT_LIVED; born += HOARDERS) {
        for (unsigned i = 0; i < HOARDERS; i++) {
            char key[32];
            snprintf(key, sizeof key, "%u", (born + i) % (3 * HOARDERS));
            puppet_start(&scene->puppets[i], scene->server.url, &scene->limit);
            puppet_begin_take(&scene->puppets[i], key, UINT64_MAX, UINT32_MAX);
        }
        for (unsigned i = 0; i < HOARDERS; i++) {
            int64_t life_us = (int64_t)(weir__random(&seed) % SHORT_LIVED_MOST_US);
            clock_sleep_until(clock_now_ns() + life_us * 1000);
            puppet_kill(&scene->puppets[i]);
        }
        struct server_keys keys = server_keys(&scene->server);
        assert_int_equal(keys.eternal, 0);
        most = weir__max(most, keys.count);
    }
    print_message("at most %lld keys at once\n", (long long)most);
    assert_true(most > 0);
    server_wait_until_empty(&scene->server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_key_outlives_its_leases, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_lease_dies_in_a_stopped_process, setup, teardown),
        cmocka_unit_test_setup_teardown(test_keys_of_killed_processes_expire, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
