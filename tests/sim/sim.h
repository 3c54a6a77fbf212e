/* SPDX-License-Identifier: MIT */
#ifndef WEIR_TESTS_SIM_H
#define WEIR_TESTS_SIM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "core/engine.h"
#include "sim/promise.h"
#include "sim/store.h"

/*
 * Processes with real engines, one store, links between them that delay, lose and break, and time
 * that is a number.  Nothing here decides by itself: what happens comes from the caller
 * (sim/temper, or a test by hand), or from `chance`, which is a function of the seed.  After every
 * event the books are compared (sim/audit); the first contradiction is kept in `failure`, and all
 * stops.
 *
 * True time runs in microseconds from 0.  A process and the store each have a clock of their own.
 */

#define SIM_PROCESSES_MAX 10
#define SIM_MESSAGES_MAX 512
#define SIM_WAITERS_MAX 16384
#define SIM_TRACE_LINES 120
#define SIM_NEVER INT64_MAX

/* What a test can break on purpose, to see that the checks notice. */
enum sim_mutant {
    SIM_SOUND,
    /* R5: rows of dead windows count, as if they were of the current one */
    SIM_SETTLES_INTO_ANY_WINDOW,
    SIM_KEY_EXPIRES_WHEN_FULL, /* R4: with its account of open leases */
    SIM_BUDGET_DOUBLED,        /* R3: the store leases twice the budget */
    SIM_LIFE_DOUBLED,          /* R6: on the way to the client */
    SIM_LIFE_FROM_REPLY,       /* R6 */
    SIM_REPLY_COUNTED_TWICE,
    SIM_REQUEST_RUN_TWICE,   /* R8: something between retries */
    SIM_ROWS_SENT_AGAIN,     /* R8: what was settled in a lost ask is settled once more */
    SIM_REFUND_TO_CREDIT,    /* R10: always, also what is settled */
    SIM_ANY_VERSION_ADOPTED, /* R11: the caller's rule is the rule */
    SIM_LEAVES_EARLY,        /* R12: a reserved waiter waits half as long */
    SIM_WAITER_FORGOTTEN,    /* a refusal never reaches the caller */
    SIM_TWO_ASKS_AT_ONCE,    /* the engine forgets that one is on its way */
    SIM_MUTANTS,
};

/* How the network treats a message. */
struct sim_network {
    double lossy;     /* how often it is lost */
    double swift;     /* how often it takes no time */
    double refusing;  /* how often the store answers with an error instead of running the ask */
    double late;      /* how often it is later than any deadline */
    int64_t delay_us; /* else: up to this, uniformly, and seldom four times as much */
};

struct sim_config {
    uint64_t seed;
    unsigned keys;
    int64_t ask_timeout_us;
    unsigned max_asks, max_waiters;
    int64_t drift_ppm; /* each clock is off by this much, one way or the other, or not */
    int64_t lag_us;    /* the loop wakes up to this much late */
    enum weir__outage_policy outage;
    int64_t share_ppm;
    struct sim_network network;
    enum sim_mutant mutant;
    bool audits; /* compare the books after every event */
};

struct sim_message {
    bool reply;
    int64_t at_us;
    unsigned process, key;
    unsigned life, link; /* of the process when it was sent: else nobody hears it */
    uint64_t serial;
    int64_t sent_us; /* the ask, by the process's clock */
    struct weir__rule rule;
    struct weir__ask ask;
    struct weir__grant grant;
    int failure;        /* of a reply: 0, or 1 + enum weir__failure */
    int64_t decided_us; /* of a reply: when the store ran it, its smooth time */
};

struct sim_flight {
    uint64_t serial; /* 0: none */
    int64_t deadline_us, sent_us;
    struct weir__ask ask;
};

/* One bucket of one process, as its callers and its link saw it. */
struct sim_books {
    int64_t tries;         /* tokens taken from the credit word by callers directly */
    int64_t answered;      /* tokens waiters were allowed, but those an outage policy let through */
    int64_t refunded;      /* tokens callers gave back */
    int64_t again;         /* of them, what became credit here */
    int64_t leased;        /* heard in grants, and taken under the local policy */
    int64_t local;         /* the latter alone */
    int64_t local_from;    /* `local` when the outage, or the limit in it, began, */
    int64_t local_from_us; /* its clock then, */
    int64_t local_saved;   /* and at most so much had been saved up */
    int64_t promised;      /* credit spent, as far as the promise knows */
    int64_t stranded;      /* term S, counted at each take */
    bool touched;          /* a caller has rung, and the loop has not heard it */
    struct weir__settle lost_rows[WEIR__SETTLE_ROWS]; /* for SIM_ROWS_SENT_AGAIN */
};

struct sim_process {
    struct weir__bucket buckets[STORE_KEYS_MAX];
    struct weir__limit limits[STORE_KEYS_MAX];
    struct weir__engine engine;
    struct sim_flight flights[STORE_KEYS_MAX];
    struct sim_books books[STORE_KEYS_MAX];
    int64_t drift_ppm, born_us;
    unsigned life, link;
    bool linked;
    int64_t wake_us;         /* true time of its next turn */
    int64_t lag_us;          /* how late that will be */
    int64_t stalled_till_us; /* true time; the loop does not run before */
    bool stopped;            /* nor do its callers */
    int64_t resumed_us;      /* its clock, when it last woke from a stall */
    bool was_down;
    unsigned waiters;          /* not yet answered */
    struct sim_waiter *latest; /* its answer is kept; NULL: it is answered */
    int64_t turn_ms;           /* to bound the turns in a millisecond */
    unsigned turns;
    unsigned events; /* what gave it reason to turn, in that millisecond */
};

struct sim_waiter {
    struct weir__waiter waiter;
    struct sim_waiter *next_free;
    bool open;
    unsigned process, key;
    /* the store's smooth time when its tokens are due; SIM_NEVER: not reserved */
    int64_t reserved_us;
};

struct sim_tally {
    uint64_t offered, allowed, refused, cold; /* calls */
    uint64_t tokens;                          /* of those allowed */
};

/* What a process's latest call of sim_wait was answered. */
struct sim_answer {
    bool known;
    enum weir__verdict verdict;
    enum weir__reason reason;
    int64_t retry_after_us;
    int64_t at_us; /* true time */
};

struct sim {
    struct sim_config config;
    uint64_t seed; /* of `chance` */
    int64_t now_us;
    struct store store;
    struct promise promises[STORE_KEYS_MAX];
    struct weir__rule first_rules[STORE_KEYS_MAX];
    int64_t longest_window_us;
    struct sim_process processes[SIM_PROCESSES_MAX];
    unsigned count; /* of processes */
    struct sim_message messages[SIM_MESSAGES_MAX];
    unsigned message_count;
    bool store_hangs; /* asks arrive, and nothing comes back */
    struct sim_waiter waiters[SIM_WAITERS_MAX];
    unsigned waiters_used; /* ever */
    struct sim_waiter *free_waiters;
    struct sim_tally tally[SIM_PROCESSES_MAX];
    struct sim_answer answers[SIM_PROCESSES_MAX];
    uint64_t asks;                    /* that the store ran */
    uint64_t events;                  /* that were audited */
    char failure[400];                /* "" : none */
    bool tracing;                     /* keep the last lines of what happens */
    FILE *telling;                    /* and say each at once; NULL: not */
    char trace[SIM_TRACE_LINES][160]; /* a ring */
    unsigned long traced;
};

/* Starts a world with `count` processes, each with every key under rules[key]. */
void sim_begin(struct sim *sim, const struct sim_config *config, const struct weir__rule *rules,
               unsigned count, struct lua_host *lua, int script);
void sim_end(struct sim *sim);

/* ---- Time ------------------------------------------------------------------------------------ */

/* Lets everything happen that is due until then. */
void sim_run_to(struct sim *sim, int64_t true_us);

/* A process's clock, and the first true time at which it shows at least `clock_us`. */
int64_t sim_clock(const struct sim *sim, const struct sim_process *process);
int64_t sim_true_us(const struct sim_process *process, int64_t clock_us);

/* ---- What callers do ------------------------------------------------------------------------- */

/* Whether the tokens were there. */
bool sim_try(struct sim *sim, unsigned process, unsigned key, int64_t cost);

/* Waits for up to `timeout_us`; the answer shows in the tally, and as answers[process]. */
void sim_wait(struct sim *sim, unsigned process, unsigned key, int64_t cost, int64_t timeout_us);
void sim_refund(struct sim *sim, unsigned process, unsigned key, int64_t tokens);

/* ---- What happens to them -------------------------------------------------------------------- */

void sim_crash(struct sim *sim, unsigned process);
void sim_stall(struct sim *sim, unsigned process, int64_t us, bool callers_too);
void sim_cut(struct sim *sim, unsigned process); /* its connection */
void sim_link(struct sim *sim, unsigned process);
void sim_step_clock(struct sim *sim, int64_t us);
void sim_lose_data(struct sim *sim, unsigned key);
void sim_fail_over(struct sim *sim, int64_t back_us); /* all keys */
void sim_set_rule(struct sim *sim, unsigned process, unsigned key, const struct weir__rule *rule);

/* ---- Chance, failure, trace ------------------------------------------------------------------ */

double sim_chance(struct sim *sim);                              /* 0 <= x < 1 */
int64_t sim_between(struct sim *sim, int64_t low, int64_t high); /* both included */
__attribute__((format(printf, 2, 3))) void sim_fail(struct sim *sim, const char *format, ...);
__attribute__((format(printf, 2, 3))) void sim_say(struct sim *sim, const char *format, ...);
void sim_print_trace(const struct sim *sim, FILE *out);

#endif
