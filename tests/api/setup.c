/* SPDX-License-Identifier: MIT */
/* See setup.h. */
#include "api/setup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

struct weir *weir;
struct server *server;
struct hand_clock hand;

int start_store(void **state)
{
    (void)state;
    server = store_start();
    return 0;
}

int stop_store(void **state)
{
    (void)state;
    store_stop(server);
    server = NULL;
    return 0;
}

int clear_store(void **state)
{
    (void)state;
    store_do(server, "FLUSHALL");
    return 0;
}

void open_at(int64_t us)
{
    hand_clock_set(&hand, us);
    weir = open_inprocess(&hand);
}

int open_at_start(void **state)
{
    (void)state;
    open_at(START);
    return 0;
}

void at(int64_t us) { hand_clock_set(&hand, START + us); }

int open_on_store(void **state)
{
    (void)state;
    weir = open_store(server);
    return 0;
}

struct weir_options options_of(char url[128])
{
    if (server != NULL) {
        url_of(server, url);
        return store_options(url);
    }
    struct weir_options options;
    weir_options_init(&options, sizeof(options));
    return options;
}

int close_weir(void **state)
{
    (void)state;
    assert_int_equal(weir_close_wait(weir), WEIR_OK);
    return 0;
}

int close_and_clear(void **state)
{
    (void)close_weir(state);
    return clear_store(state);
}

int close_and_stop(void **state)
{
    (void)close_weir(state);
    return server == NULL ? 0 : stop_store(state);
}
