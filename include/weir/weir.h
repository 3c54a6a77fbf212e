/* SPDX-License-Identifier: MIT */
#ifndef WEIR_WEIR_H
#define WEIR_WEIR_H

/*
 * weir: a two-tier rate limiter.
 *
 * May this key do this now?  A lock-free bucket inside the process answers almost every request in
 * nanoseconds.  It leases batches of tokens from a global bucket in Redis, so that many processes
 * on many machines share one limit.
 *
 * THE PROMISE.  A limit is (rate r, capacity C, budget E).  A token bucket admits for every key,
 * over every interval of length t, summed over every process:
 *
 *     admitted(t) <= C + r*t + E
 *
 * E is what has been leased and not yet spent; the store enforces it whatever the number of
 * processes.  Faults of the store itself add known terms: see docs/protocol.md, section 2.  The
 * other algorithms have promises of their own shape: see docs/algorithms.md.
 *
 * IN FIVE CALLS
 *
 *     weir_open()            one weir per process: an event loop, a store, limits, buckets
 *     weir_limit_define()    a named rule: 1000 tokens per second, bursts of 2000
 *     weir_bucket_get()      one key under one limit; keep the handle, it is the fast way
 *     weir_try_acquire()     take tokens, or be refused, now
 *     weir_close()           gives back what was leased and not spent
 *
 * READING A DECLARATION.  Each comment says, in this order: what the call does; Thread, from where
 * it may be called; Owns, who owns what is passed; Returns, each value that can come; the unit of
 * every number stands in its name.  Calls that return int return a verdict or WEIR_OK (both >= 0),
 * or an error (< 0).  A denial is not an error, and neither is a store that is down.
 *
 * LIFETIMES.  struct weir outlives its limits, and limits live as long as their weir.  A bucket is
 * counted: each weir_bucket_get() is paired with one weir_bucket_unref().  All three are opaque.
 *
 * FORK.  A weir does not survive fork(): open it in the child.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(WEIR_BUILD) && defined(__GNUC__)
#define WEIR_API __attribute__((visibility("default")))
#else
#define WEIR_API
#endif

struct weir;
struct weir_limit;
struct weir_bucket;
struct uv_loop_s;

/* "1.2.3": the version of the library that is running.  Thread: any.  Owns: a constant. */
WEIR_API const char *weir_version(void);

/* ---- Errors -------------------------------------------------------------------------------- */

/* Number, name, meaning, what to do.  The numbers are part of the ABI and never change. */
#define WEIR_ERRORS(X)                                                                             \
    X(-1, WEIR_EINVAL, "an argument or a field is not valid",                                      \
      "read the error's text: it names it")                                                        \
    X(-2, WEIR_ENOMEM, "memory could not be had", "free memory, or lower max_keys")                \
    X(-3, WEIR_ECLOSED, "the weir is closing or closed", "stop calling it")                        \
    X(-4, WEIR_EFULL, "a bound of this weir is reached", "raise the bound: max_keys, max_waiters") \
    X(-5, WEIR_ESYSTEM, "the operating system refused", "read the error's text")                   \
    X(-6, WEIR_EEXIST, "a limit of this name exists", "use weir_limit_update to change it")        \
    X(-7, WEIR_ETHREAD, "this call would block the loop's own thread", "call it from another one")

enum weir_code {
    WEIR_OK = 0,
#define WEIR_ERROR_ENUM(number, name, meaning, advice) name = number,
    WEIR_ERRORS(WEIR_ERROR_ENUM)
#undef WEIR_ERROR_ENUM
};

/* What went wrong, in words, with the field and the value.  Filled only when a call fails. */
struct weir_error {
    int code;       /* one of enum weir_code */
    char text[248]; /* never holds a password */
};

/* Name ("WEIR_EINVAL"), meaning and advice of a code.  Thread: any.  Owns: constants.
 * Returns "WEIR_OK" / "success" / "" for 0, and "unknown" for a number that is no code. */
WEIR_API const char *weir_code_name(int code);
WEIR_API const char *weir_code_meaning(int code);
WEIR_API const char *weir_code_advice(int code);

/* ---- Open and close ------------------------------------------------------------------------- */

/* Leave this field of struct weir_limit_options to the library. */
#define WEIR_DEFAULT UINT64_MAX

enum weir_log_level { WEIR_LOG_ERROR = 1, WEIR_LOG_WARN = 2, WEIR_LOG_INFO = 3 };

/* Thread: the loop's, one call at a time.  `text` is one line without its end, borrowed for the
 * call; it never holds a password.  Must not call back into the weir. */
typedef void (*weir_log_fn)(void *arg, enum weir_log_level level, const char *text);

/* A monotonic clock in nanoseconds that goes on while the machine is suspended.  Thread: any, many
 * at once. */
typedef uint64_t (*weir_clock_fn)(void *arg);

struct weir_options {
    size_t size; /* set by weir_options_init */

    /* Where the global buckets live.  NULL: in this process, no Redis, everything works.
     *   redis://[user:password@]host[:port][/db]      port 6379, db 0
     *   unix:///path/to/socket[?db=n]                 also unix://user:password@/path
     * A password with reserved characters is percent-encoded.  Copied. */
    const char *url;

    /* The loop that carries the library's own work.  NULL: a thread of its own.  Else the loop is
     * borrowed: the host runs it, and calls weir_open and weir_close on its thread. */
    struct uv_loop_s *loop;

    /* keys are {prefix}:{limit}:{key}; 1..64 bytes as of a limit's name; default "weir"; copied */
    const char *key_prefix;

    uint64_t ask_timeout_ms;     /* 1..60000, default 100: an answer later than this is lost */
    uint64_t connect_timeout_ms; /* 1..60000, default 1000: name, connect, log in, load scripts */
    uint64_t max_keys;           /* 1..2^26, default 1000000: buckets held at once */
    uint64_t max_waiters;        /* 1..2^26, default 65536: callers waiting at once */
    /* 1..65536, default 1024: asks on their way to the store at once */
    uint64_t max_asks;

    weir_log_fn log; /* default: none; the library never writes to stdout or stderr */
    void *log_arg;
    /* default: CLOCK_BOOTTIME.  For tests: leases follow it, timers do not.  The in-process store
     * takes its zero for 1970-01-01 UTC; with the default clock, what the wall clock said when the
     * weir was opened */
    weir_clock_fn clock_ns;
    void *clock_arg;
};

/* Fills *options with the defaults.  Thread: any.  `size` is sizeof *options. */
WEIR_API void weir_options_init(struct weir_options *options, size_t size);

/* Opens a weir.  Does not wait for the store: a store that is down is a state, not an error.
 * Thread: any; with a borrowed loop, the loop's.
 * Owns: options and strings are copied; *out is the caller's until weir_close.
 * Returns WEIR_OK, WEIR_EINVAL, WEIR_ENOMEM, WEIR_ESYSTEM; *error (or NULL) then says why. */
WEIR_API int weir_open(struct weir **out, const struct weir_options *options,
                       struct weir_error *error);

/* Closes: answers every waiter (UNAVAILABLE, CLOSED), gives back unspent leases, ends the
 * connection, frees everything, then calls `closed(arg)` once, on the loop's thread, or from
 * nowhere if NULL.  Handles of buckets may still be unref'ed afterwards, and acquires through them
 * answer WEIR_ECLOSED.  Calls that take the weir, a limit or a key must be over by then; those that
 * take a bucket may go on.
 * Takes at most ask_timeout_ms, and longer only while the system's resolver works on the store's
 * name.  With a borrowed loop, keep running the loop until `closed`; after it,
 * nothing of the weir is left on it.
 * Thread: any; with a borrowed loop, the loop's.  Owns: takes the weir; do not use it again.
 * Returns WEIR_OK, or WEIR_ECLOSED when it is closing already. */
WEIR_API int weir_close(struct weir *weir, void (*closed)(void *arg), void *arg);

/* weir_close for a weir with its own thread, waiting until all is done.
 * Thread: any but the loop's.  Returns WEIR_OK, WEIR_ECLOSED; WEIR_ETHREAD on the loop's thread or
 * with a borrowed loop. */
WEIR_API int weir_close_wait(struct weir *weir);

/* ---- Limits ---------------------------------------------------------------------------------- */

/* What a limit does while the store cannot be asked. */
enum weir_outage_policy {
    /* this process admits rate * share; adds share*r*outage to the promise */
    WEIR_OUTAGE_LOCAL = 1,
    /* everything is allowed, reason WEIR_STORE_DOWN: no promise meanwhile */
    WEIR_OUTAGE_OPEN = 2,
    WEIR_OUTAGE_CLOSED = 3, /* everything is WEIR_UNAVAILABLE: the promise holds */
};

/* How tokens are counted.  docs/algorithms.md says which to choose. */
#define WEIR_ALGORITHMS(X)                                                                         \
    X(1, WEIR_TOKEN_BUCKET, "token-bucket")                                                        \
    X(2, WEIR_LEAKY_BUCKET, "leaky")                                                               \
    X(3, WEIR_FIXED_WINDOW, "fixed-window")                                                        \
    X(4, WEIR_SLIDING_LOG, "sliding-log")                                                          \
    X(5, WEIR_SLIDING_COUNTER, "sliding-counter")

enum weir_algorithm {
#define WEIR_ALGORITHM_ENUM(number, name, text) name = number,
    WEIR_ALGORITHMS(WEIR_ALGORITHM_ENUM)
#undef WEIR_ALGORITHM_ENUM
};

/* "token-bucket"; "unknown" for a number that is no algorithm.  Thread: any.  Owns: a constant. */
WEIR_API const char *weir_algorithm_name(int algorithm);

/* Windows of a fixed window: as long as the rate's period, aligned to 1970-01-01 UTC; or months. */
enum weir_calendar { WEIR_CALENDAR_NONE = 0, WEIR_CALENDAR_MONTH = 1 };

struct weir_limit_options {
    size_t size; /* set by weir_limit_options_init */

    /* 1..64 bytes without '{', '}', ':', blanks and control bytes; part of every key; copied */
    const char *name;

    /* The rate: `rate_tokens` per `rate_period_us`.  Each 1..10^12; together at most 10^9 tokens a
     * second.  Kept as an exact fraction.  For the window algorithms: so many in each window, which
     * is so long; rate_tokens is then at most 10^9.  A window of a day is a day of UTC. */
    uint64_t rate_tokens;
    uint64_t rate_period_us;

    /* C, 1..10^9: the burst.  Default: of a token bucket max(1, tokens per second), of a leaky
     * bucket 1.  The window algorithms have rate_tokens, and no other. */
    uint64_t capacity_tokens;

    /* E, the budget: tokens leased and not yet spent, over all processes.  0..C.  In tokens, or
     * else in percent of C (0..100).  Default 5 %, at least 1.  0 makes every decision exact: one
     * call to the store each, and weir_try_acquire then always answers WEIR_COLD on a Redis
     * store. */
    uint64_t budget_tokens;
    double budget_percent;

    /* What a key that is new in the store starts with, 0..C.  In tokens, or else in percent of C
     * (0..100).  Default 100 %.  A queue starts empty: with it they are left alone. */
    uint64_t initial_tokens;
    double initial_percent;

    /* 0..60000, default 1000: how far ahead a large cost may reserve.  Window algorithms cannot,
     * and a queue reserves as far as it is long: with them it is left alone. */
    uint64_t max_wait_ms;

    /* W, 10..60000: leases are counted in windows of this length, and a lease that nobody hears of
     * blocks its part of the budget for up to twice as long.  Not the period of a window algorithm.
     * Default from rate, budget and ask_timeout_ms. */
    uint64_t window_ms;

    /* Which definition is in force when processes disagree: the highest.  1..2^52.  Default: the
     * wall-clock second of this call. */
    uint64_t version;

    enum weir_outage_policy outage; /* default WEIR_OUTAGE_LOCAL */
    /* WEIR_OUTAGE_LOCAL: this process's part, 0.0001..100.  Default: 1/N of the processes last seen
     * on the key, and 10 before any was. */
    double outage_share_percent;

    enum weir_algorithm algorithm; /* default WEIR_TOKEN_BUCKET */

    /* WEIR_LEAKY_BUCKET: so many may wait for their turn, 1..10^9; admissions then leave one by
     * one, evenly spaced at the rate, and capacity_tokens is left alone.  The last in the queue may
     * wait at most an hour.  Default 0: no queue, the bucket is a meter; what it cannot hold is
     * refused, and who may wait waits for tokens as under any limit. */
    uint64_t queue_tokens;

    /* WEIR_FIXED_WINDOW: WEIR_CALENDAR_MONTH makes each window a month of UTC, and rate_period_us
     * is left at 0. */
    enum weir_calendar calendar;

    /* A key that is new in the store, which may have lost it, starts as if it had been used at its
     * rate all along: at first it gives what the shares of WEIR_OUTAGE_LOCAL together would.  Not
     * together with initial_tokens or initial_percent, with another outage policy, or with
     * queue_tokens.  Default false. */
    bool learn;

    /* A cap of this process alone on each key, exact, asked before the bucket; no store is needed
     * for it.  `cap_tokens` (0: no cap; 1..10^9) per `cap_period_us` (1..10^12).  What was not used
     * is kept for up to cap_burst_ms (0..3600000, default 1000) and may then be taken at once; a
     * new key has nothing kept.  With cap_warmup_ms (0..3600000, default 0) the cap warms up
     * instead: at first, and after a pause, it starts at a third of its rate and comes to it over
     * that time; it keeps nothing, and cap_burst_ms is left alone.
     *
     * Whoever finds the cap free gets the whole cost, also more than is kept, and who comes next
     * waits for it: over every interval of length t at most rate * (burst + t) plus the last cost
     * (warmup: rate * t plus the last cost).  The cap itself makes nobody wait: weir_acquire too is
     * refused at once, WEIR_OVER_CAP, and told when the cap is free.  What the bucket then refuses,
     * at once or after a wait, costs the cap nothing; weir_refund gives back to it too. */
    uint64_t cap_tokens;
    uint64_t cap_period_us;
    uint64_t cap_burst_ms;
    uint64_t cap_warmup_ms;
};

/* Fills *options with the defaults; name and rate have none.  Thread: any. */
WEIR_API void weir_limit_options_init(struct weir_limit_options *options, size_t size);

/* Reads a limit from text into *options, which weir_limit_options_init has filled; the name is left
 * alone, and what the text does not speak of keeps its value.  Whether the fields go together is
 * for weir_limit_define to say.
 *
 *     RATE [WORD...]
 *     RATE    "1000/s"  "10/min"  "5 per 10s"  "1000000/day"  "100/month"
 *             a number, then "/" or "per", then a time: [number] us ms s min h day (month:
 *             fixed-window)
 *             Decimals are exact: "0.1/s" is 1 per 10 s.
 *     WORD    token-bucket, leaky, fixed-window, sliding-log, sliding-counter
 *             burst=TOKENS  queue=TOKENS  budget=TOKENS|PERCENT%  initial=TOKENS|PERCENT%|learn
 *             window=TIME  wait=TIME  outage=local|open|closed  share=PERCENT%  version=NUMBER
 *             cap=RATE  cap-burst=TIME  cap-warmup=TIME           (RATE and TIME without blanks)
 *             Each at most once, and one algorithm.
 *
 *     "10/min burst=20"    "5 per 10s fixed-window"    "100/s leaky queue=50"
 *     "1000000/day sliding-counter budget=2%"
 *
 * Thread: any.  Owns: nothing is kept of text.
 * Returns WEIR_OK, or WEIR_EINVAL: *error then says at which character and what was expected, and
 * *options is as before. */
WEIR_API int weir_limit_parse(struct weir_limit_options *options, const char *text,
                              struct weir_error *error);

/* Writes a limit as weir_limit_parse reads it, in one form: what has its default is left out, times
 * are in the largest unit that holds them.  weir_limit_parse reads the same options from it, but
 * for the name.  Cuts it to `size` bytes, which include the zero (size 0: out may be NULL).
 * Thread: any.  Returns the length of the whole text without the zero; 0 for options that
 * weir_limit_define would refuse. */
WEIR_API size_t weir_limit_format(char *out, size_t size, const struct weir_limit_options *options);

/* Defines a limit.  It lives as long as the weir.
 * Thread: any.  Owns: options are copied; *out belongs to the weir.
 * Returns WEIR_OK; WEIR_EINVAL, WEIR_ENOMEM, WEIR_EEXIST, WEIR_ECLOSED with *error (or NULL)
 * filled. */
WEIR_API int weir_limit_define(struct weir *weir, struct weir_limit **out,
                               const struct weir_limit_options *options, struct weir_error *error);

/* Changes a limit while it runs.  The name stays.  Tokens accrued until now count at the old rate;
 * what is above a lowered capacity is lost; nothing is granted afresh: what a window had used stays
 * used, and under another algorithm there is what was there.  On failure nothing changes.
 * Thread: any.  Returns as weir_limit_define, but for WEIR_EEXIST. */
WEIR_API int weir_limit_update(struct weir_limit *limit, const struct weir_limit_options *options,
                               struct weir_error *error);

/* ---- Buckets --------------------------------------------------------------------------------- */

/* Finds or makes the bucket of a key.  Keys are bytes: any, also none.
 * Thread: any.  Owns: key is copied; *out is the caller's until weir_bucket_unref.
 * Returns WEIR_OK; WEIR_EINVAL (key longer than 65536 bytes), WEIR_ENOMEM, WEIR_ECLOSED;
 * WEIR_EFULL when max_keys buckets are held and none that was looked at can be forgotten. */
WEIR_API int weir_bucket_get(struct weir_limit *limit, const void *key, size_t key_len,
                             struct weir_bucket **out);

/* One more owner; one fewer (NULL is allowed).  Thread: any, also after weir_close. */
WEIR_API struct weir_bucket *weir_bucket_ref(struct weir_bucket *bucket);
WEIR_API void weir_bucket_unref(struct weir_bucket *bucket);

/* ---- Verdicts -------------------------------------------------------------------------------- */

enum weir_verdict {
    WEIR_DENIED = 0,      /* over the limit: a 429 */
    WEIR_ALLOWED = 1,     /* the tokens are taken */
    WEIR_UNAVAILABLE = 2, /* the store cannot say, and the policy does not allow: a 503 */
    WEIR_PENDING = 3,     /* the callback will come */
};

/* Why.  Number, name, text for people. */
#define WEIR_REASONS(X)                                                                            \
    X(0, WEIR_WITHIN_LIMIT, "within the limit")                                                    \
    X(1, WEIR_OVER_LIMIT, "over the limit")                                                        \
    X(2, WEIR_COLD, "no tokens leased here yet; they are being asked for")                         \
    X(3, WEIR_COST_ABOVE_CAPACITY, "the cost is more than the capacity, now and for ever")         \
    X(4, WEIR_STORE_DOWN, "the store cannot be asked; the outage policy decided")                  \
    X(5, WEIR_DEADLINE, "no answer from the store before the deadline")                            \
    X(6, WEIR_BUSY, "too many callers are waiting")                                                \
    X(7, WEIR_CLOSED, "the weir was closed")                                                       \
    X(8, WEIR_OVER_CAP, "over the cap of this process")

enum weir_reason {
#define WEIR_REASON_ENUM(number, name, text) name = number,
    WEIR_REASONS(WEIR_REASON_ENUM)
#undef WEIR_REASON_ENUM
};

/* Thread: any.  Owns: a constant.  "unknown" for a number that is no reason or verdict. */
WEIR_API const char *weir_reason_text(int reason);
WEIR_API const char *weir_verdict_name(int verdict);

#define WEIR_UNKNOWN (-1) /* a number that cannot be told honestly */
#define WEIR_NEVER (-2)   /* retry_after_us: no time will help */

struct weir_result {
    enum weir_verdict verdict;
    enum weir_reason reason;
    int64_t limit_tokens; /* capacity */
    /* 0..capacity, or WEIR_UNKNOWN; as old as the last answer of the store */
    int64_t remaining_tokens;
    int64_t retry_after_us; /* 0 when allowed; rounded up; WEIR_UNKNOWN, WEIR_NEVER */
    int64_t reset_after_us; /* until the bucket is full again; WEIR_UNKNOWN */
};

/* ---- The three verbs ------------------------------------------------------------------------- */

/*
 * One meaning in all: take `cost` tokens, all of them or none.
 *   cost 0                takes nothing: a look.  ALLOWED if at least one token could be taken.
 *   cost > capacity       DENIED, WEIR_COST_ABOVE_CAPACITY, at once.
 * `result` may be NULL; then the answer costs less.
 */

/* Takes now or not at all; never waits, never blocks.
 * Thread: any.
 * Returns WEIR_ALLOWED; WEIR_DENIED (OVER_LIMIT; OVER_CAP; STORE_DOWN by the local policy; COLD
 * where nothing is leased here yet: the lease is asked for, and the next call may find it);
 * WEIR_UNAVAILABLE; WEIR_ECLOSED.
 * Cost, with result NULL: allowed, one atomic take, no clock, no lock, no allocation, no system
 * call; denied, two loads and a count of this thread's own.  The in-process store reads a clock and
 * takes a short lock where credit is out, and a cap does so always. */
WEIR_API int weir_try_acquire(struct weir_bucket *bucket, uint64_t cost,
                              struct weir_result *result);

/* Called once for each WEIR_PENDING, on the loop's thread, never from inside weir_acquire.
 * `result` is borrowed for the call.  May call anything but weir_acquire_wait and
 * weir_close_wait. */
typedef void (*weir_acquire_fn)(void *arg, const struct weir_result *result);

/* Takes now if it can; else waits up to `timeout_us` for tokens, in order of arrival, without
 * blocking.  A refusal that is certain (the tokens come later than the timeout) is answered as soon
 * as it is known.  timeout_us 0 means: do not wait for tokens, but do ask the store (for up to
 * ask_timeout_ms).
 * Thread: any.  Owns: arg is the caller's.
 * Returns what weir_try_acquire returns, when it is known at once: then fn is not called;
 * WEIR_PENDING: then fn comes; WEIR_EINVAL (fn NULL, timeout_us above one hour); WEIR_ENOMEM. */
WEIR_API int weir_acquire(struct weir_bucket *bucket, uint64_t cost, uint64_t timeout_us,
                          weir_acquire_fn fn, void *arg, struct weir_result *result);

/* weir_acquire that blocks its thread.  Thread: any but the loop's (WEIR_ETHREAD).
 * Returns what weir_try_acquire returns; WEIR_EINVAL; WEIR_ENOMEM. */
WEIR_API int weir_acquire_wait(struct weir_bucket *bucket, uint64_t cost, uint64_t timeout_us,
                               struct weir_result *result);

/* The same by key: finds or makes the bucket first.  Return also what weir_bucket_get returns. */
WEIR_API int weir_try_acquire_key(struct weir_limit *limit, const void *key, size_t key_len,
                                  uint64_t cost, struct weir_result *result);
WEIR_API int weir_acquire_key(struct weir_limit *limit, const void *key, size_t key_len,
                              uint64_t cost, uint64_t timeout_us, weir_acquire_fn fn, void *arg,
                              struct weir_result *result);
WEIR_API int weir_acquire_wait_key(struct weir_limit *limit, const void *key, size_t key_len,
                                   uint64_t cost, uint64_t timeout_us, struct weir_result *result);

/* Gives back `tokens` of earlier admissions that were not used after all.  They become credit here
 * while their lease lives, else they travel to the store with the next ask.  Not more than was
 * admitted here through this bucket.
 * Thread: any.  Returns WEIR_OK; WEIR_EINVAL (more than was admitted); WEIR_ECLOSED. */
WEIR_API int weir_refund(struct weir_bucket *bucket, uint64_t tokens);

/* Forgets what was used of a bucket: it starts anew, as a new key does, with initial_tokens or as
 * `learn` says.  What is leased out stays counted, and a cap goes on.  The store is told with the
 * next ask, which this causes; a store that is down at that moment is not told later.  Each time
 * adds C, and what is reserved ahead then, to the promise.
 * Thread: any.  Returns WEIR_OK, WEIR_ECLOSED. */
WEIR_API int weir_reset(struct weir_bucket *bucket);

/* ---- Several limits at once ------------------------------------------------------------------ */

/* One of several: `cost` tokens of `bucket`. */
struct weir_claim {
    struct weir_bucket *bucket;
    uint64_t cost;
};

#define WEIR_CLAIMS_MOST 16

/*
 * All of `count` claims (1..WEIR_CLAIMS_MOST) or none of them: what was taken of some is given
 * back, as by weir_refund, when one refuses.  What an outage policy let through was not taken, and
 * is not given back; what came from a period that is over by then, or was a turn in a leaky
 * bucket's queue, is lost.  Claims of one bucket are added up, and count as the first of them.  All
 * buckets are of one weir.
 *
 * *refused (or NULL) is the index of the claim that refused, `count` when all were allowed.
 * *result (or NULL) is then of that claim, with the longest retry_after_us of all that are known to
 * refuse now; when all were allowed, it is of the one with the fewest tokens left.  Both are filled
 * when a verdict is returned.  Each claim that refuses is counted by weir_stats_read.
 */

/* Takes now or not at all; in the order given.  The claims after one that refuses are looked at:
 * where nothing is leased yet, the lease is asked for.
 * Thread: any.  Owns: nothing is kept.
 * Returns what weir_try_acquire returns, for all together; WEIR_EINVAL (count, a bucket that is
 * NULL or of another weir). */
WEIR_API int weir_try_acquire_all(const struct weir_claim *claims, size_t count,
                                  struct weir_result *result, size_t *refused);

/* As weir_acquire_fn; `refused` as above. */
typedef void (*weir_acquire_all_fn)(void *arg, const struct weir_result *result, size_t refused);

/* Takes now if it can; else waits, up to `timeout_us` for all together.  All calls take in one
 * order of the buckets, whatever the order given, so that no two wait for each other.  Who waits
 * for one claim holds nothing of the others, or only for a while: at first ask_timeout_ms a claim,
 * and twice as long each time that it had to give back.  So a caller whose own limit is used up
 * does not keep tokens of a common one from others.  A cap never waits, and refuses for all.
 * timeout_us 0 means as in weir_acquire, for each claim.
 * Thread: any.  Owns: claims are copied, and hold their buckets; arg is the caller's.
 * Returns as weir_acquire and weir_try_acquire_all; WEIR_PENDING: then fn comes, once. */
WEIR_API int weir_acquire_all(const struct weir_claim *claims, size_t count, uint64_t timeout_us,
                              weir_acquire_all_fn fn, void *arg, struct weir_result *result,
                              size_t *refused);

/* weir_acquire_all that blocks its thread.  Thread: any but the loop's (WEIR_ETHREAD). */
WEIR_API int weir_acquire_all_wait(const struct weir_claim *claims, size_t count,
                                   uint64_t timeout_us, struct weir_result *result,
                                   size_t *refused);

/* What weir_try_acquire(bucket, 1) would answer now, from what is known here, without taking or
 * asking.  remaining_tokens counts the store's tokens as of its last answer, grown at the limit's
 * rate since, and the credit here.  With no answer yet it is WEIR_UNKNOWN.
 * Thread: any.  Returns WEIR_OK, WEIR_ECLOSED. */
WEIR_API int weir_peek(struct weir_bucket *bucket, struct weir_result *result);

/* ---- Observing ------------------------------------------------------------------------------- */

enum weir_store_state {
    WEIR_STORE_LOCAL = 0,      /* no url: the store is this process */
    WEIR_STORE_CONNECTING = 1, /* not yet, or not again */
    WEIR_STORE_UP = 2,
    WEIR_STORE_OUTAGE = 3, /* the outage policies are in force */
};

/*
 * One consistent snapshot.  Conservation, exactly, in tokens:
 *
 *     leased = lease_spent + held + given_back + expired
 *
 * (leased: as heard in grants; what a lost reply granted is nobody's and is not in it.)
 */
struct weir_stats {
    size_t size; /* set by the caller: sizeof; fields beyond it are not written */
    enum weir_store_state store_state;

    uint64_t buckets; /* held now */
    uint64_t active;  /* of them looked at by the loop now */
    uint64_t waiters; /* callers waiting now */
    uint64_t asks;    /* on their way to the store now */

    /* tokens */
    uint64_t leased, lease_spent, held, given_back, expired;
    uint64_t exact_spent;  /* granted to waiters directly, outside the budget */
    uint64_t exact_void;   /* granted to waiters too late to be used: lost */
    uint64_t outage_spent; /* allowed by an outage policy */
    uint64_t refunded;     /* given back by weir_refund, of what limits admitted, not policies */
    /* of lease_spent: from leases whose window was over, so that the loop was stalled: term S */
    uint64_t stranded;

    /* calls */
    uint64_t denied, cold, unavailable; /* refusals, by kind */
    uint64_t asks_sent, asks_answered, asks_lost, asks_refused;
    uint64_t scripts_loaded, connects, outages;
};

/* Thread: any; takes a lock that the loop holds while it works.  Returns WEIR_OK, WEIR_EINVAL
 * (size). */
WEIR_API int weir_stats_read(struct weir *weir, struct weir_stats *stats);

#ifdef __cplusplus
}
#endif
#endif
