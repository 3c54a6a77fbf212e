/* SPDX-License-Identifier: MIT */
#ifndef WEIR_TESTS_API_SETUP_H
#define WEIR_TESTS_API_SETUP_H

#include "api/fixture.h"

/* The one weir of a test, with its clock or its store, for programs whose tests all want one.  What
 * takes `state` is a fixture of cmocka, for a test or for a group. */

extern struct weir *weir;
extern struct server *server; /* NULL: none runs */
extern struct hand_clock hand;

/* ---- The store ------------------------------------------------------------------------------- */

int start_store(void **state);
int stop_store(void **state);
int clear_store(void **state);

/* ---- The weir -------------------------------------------------------------------------------- */

#define START (1000 * SECOND)

/* In process, on `hand`, which stands at START or as said. */
int open_at_start(void **state);
void open_at(int64_t us);

/* Turns `hand` to so long after START. */
void at(int64_t us);

int open_on_store(void **state);

/* What a weir on the server is opened with, or one in process where there is none. */
struct weir_options options_of(char url[128]);

int close_weir(void **state);
int close_and_clear(void **state); /* and the server, for the next test */
int close_and_stop(void **state);  /* and the server, where there is one */

/* ---- Both kinds of store --------------------------------------------------------------------- */

/* A test in process, on a server of its own, or on each; the program has an inprocess() and a
 * redis() that open its weir. */
#define HERE(name)                                                                                 \
    (struct CMUnitTest) { #name " (in process)", name, inprocess, close_and_stop, NULL }
#define THERE(name)                                                                                \
    (struct CMUnitTest) { #name " (redis)", name, redis, close_and_stop, NULL }
#define BOTH(name) HERE(name), THERE(name)

#endif
