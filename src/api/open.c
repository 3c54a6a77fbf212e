/* SPDX-License-Identifier: MIT */

/*
 * Opening and closing a weir.
 *
 * Lifetimes.  A weir's memory lives until it is closed and the last bucket that somebody still
 * holds is given up: `handles` counts these orphans, and one for the open weir.  So a caller with a
 * handle may run into a closing weir at any moment: it is told ECLOSED, and touches nothing that is
 * gone.
 *
 * Closing: gate of every bucket CLOSED -> driver gives back and ends (io/driver) ->
 * on_driver_closed: the table goes, owned buckets become orphans -> `closed` of the user.  With a
 * thread of its own, the thread does this last and ends.
 *
 * Failures: what weir_open has made is undone in reverse; a driver that is on the loop already
 * leaves it the usual way.
 */

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "api/buckets.h"
#include "api/complaint.h"
#include "api/inprocess.h"
#include "api/limits.h"
#include "api/objects.h"
#include "api/url.h"
#include "api/waiting.h"
#include "base/check.h"
#include "base/mem.h"

#define TIMEOUT_MOST_MS 60000
#define COUNT_MOST (UINT64_C(1) << 26)
#define ASKS_MOST 65536

/* A connection that says nothing for this many ask timeouts while it owes answers is given up; at
 * least a second, so that a paused server is not met by a storm of new connections. */
#define SILENT_TIMEOUTS 5
#define SILENT_LEAST_MS 1000

/* Unanswered calls on one connection, late ones included, as a multiple of the asks: an ask is
 * given up after its timeout and replaced, while the server may still owe the reply. */
#define LATE_CALLS 2

#define UNCOUNTED (UINT64_C(1) << 32) /* more than COUNT_MOST */

static uint64_t boot_clock_ns(void *arg)
{
    struct timespec now;
    (void)arg;
    (void)clock_gettime(CLOCK_BOOTTIME, &now); /* cannot fail on a kernel that libuv runs on */
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int64_t boot_epoch_us(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000 -
           (int64_t)(boot_clock_ns(NULL) / 1000);
}

int64_t weir__now_us(const struct weir *weir)
{
    return (int64_t)(weir->clock_ns(weir->clock_arg) / 1000);
}

static int64_t driver_now_us(void *arg) { return weir__now_us(arg); }

void weir_options_init(struct weir_options *options, size_t size)
{
    struct weir_options ours = {
        .key_prefix = "weir",
        .ask_timeout_ms = 100,
        .connect_timeout_ms = 1000,
        .max_keys = 1000000,
        .max_waiters = 65536,
        .max_asks = 1024,
    };
    weir__options_init(options, size, &ours, sizeof(ours));
}

static int check(const char *field, uint64_t value, uint64_t most, struct weir_error *error)
{
    if (value < 1 || value > most) {
        return weir__complain(error, WEIR_EINVAL, "%s: %llu: must be from 1 to %llu", field,
                              (unsigned long long)value, (unsigned long long)most);
    }
    return WEIR_OK;
}

static int check_options(const struct weir_options *o, struct weir__endpoint *endpoint,
                         struct weir_error *error)
{
    int code = weir__name_check("key_prefix", o->key_prefix, error);
    const struct {
        const char *field;
        uint64_t value, most;
    } numbers[] = {
        {"ask_timeout_ms", o->ask_timeout_ms, TIMEOUT_MOST_MS},
        {"connect_timeout_ms", o->connect_timeout_ms, TIMEOUT_MOST_MS},
        {"max_keys", o->max_keys, COUNT_MOST},
        {"max_waiters", o->max_waiters, COUNT_MOST},
        {"max_asks", o->max_asks, ASKS_MOST},
    };
    for (size_t i = 0; code == WEIR_OK && i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        code = check(numbers[i].field, numbers[i].value, numbers[i].most, error);
    }
    return code == WEIR_OK && o->url != NULL ? weir__url_read(endpoint, o->url, error) : code;
}

_Static_assert((int)WEIR__LOG_WARN == (int)WEIR_LOG_WARN &&
                   (int)WEIR__LOG_INFO == (int)WEIR_LOG_INFO,
               "io numbers its levels as the header does");

static void on_log(void *arg, int level, const char *text)
{
    struct weir *weir = arg;
    if (weir->log != NULL) {
        weir->log(weir->log_arg, (enum weir_log_level)level, text);
    }
}

void weir__handle_gone(struct weir *weir)
{
    if (weir__sub_acq_rel(&weir->handles, 1) != 1) {
        return;
    }
    struct weir_limit *next;
    for (struct weir_limit *limit = weir->limits; limit != NULL; limit = next) {
        next = limit->next;
        weir__mem_free(limit);
    }
    weir__driver_deinit(&weir->driver);
    for (int i = 0; i < WEIR__STRIPES; i++) {
        uv_mutex_destroy(&weir->stripes[i]);
    }
    uv_mutex_destroy(&weir->limits_lock);
    weir__mem_free(weir);
}

/* The end of a weir; with a thread of its own this is its last act. */
static void finish(struct weir *weir)
{
    void (*closed)(void *arg) = weir->closed;
    void *arg = weir->closed_arg;
    weir__handle_gone(weir);
    if (closed != NULL) {
        closed(arg);
    }
}

static void on_driver_closed(void *arg)
{
    struct weir *weir = arg;
    weir__buckets_drain(weir);
    /* An orphan may be given up before it is counted: until then there are more handles than
     * that. */
    (void)weir__add_acq_rel(&weir->handles, UNCOUNTED);
    uint64_t orphans = weir__table_free(weir->table);
    weir->table = NULL;
    (void)weir__add_acq_rel(&weir->handles, orphans - UNCOUNTED);
    if (!weir->own_loop) {
        finish(weir);
    }
}

static void run_loop(void *arg)
{
    struct weir *weir = arg;
    (void)uv_run(&weir->loop, UV_RUN_DEFAULT);
    int status = uv_loop_close(&weir->loop);
    WEIR__ASSERT(status == 0);
    (void)status;
    if (!weir->joined) {
        (void)pthread_detach(pthread_self());
    }
    finish(weir);
}

/* The thread takes none of the host's signals. */
static int start_thread(struct weir *weir)
{
    sigset_t all, before;
    sigfillset(&all);
    /* What a fault of the thread's own raises must reach the host's crash handler. */
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int status = uv_thread_create(&weir->thread, run_loop, weir);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}

static bool init_locks(struct weir *weir)
{
    if (uv_mutex_init(&weir->limits_lock) != 0) {
        return false;
    }
    for (int i = 0; i < WEIR__STRIPES; i++) {
        if (uv_mutex_init(&weir->stripes[i]) != 0) {
            while (i-- > 0) {
                uv_mutex_destroy(&weir->stripes[i]);
            }
            uv_mutex_destroy(&weir->limits_lock);
            return false;
        }
    }
    return true;
}

static void deinit_locks(struct weir *weir)
{
    for (int i = 0; i < WEIR__STRIPES; i++) {
        uv_mutex_destroy(&weir->stripes[i]);
    }
    uv_mutex_destroy(&weir->limits_lock);
}

static void fill(struct weir *weir, const struct weir_options *o)
{
    weir->remote = o->url != NULL;
    weir->own_loop = o->loop == NULL;
    weir->ask_timeout_us = o->ask_timeout_ms * 1000;
    weir->max_waiters = o->max_waiters;
    strcpy(weir->prefix, o->key_prefix); /* its length was checked */
    weir->log = o->log;
    weir->log_arg = o->log_arg;
    weir->clock_ns = o->clock_ns != NULL ? o->clock_ns : boot_clock_ns;
    weir->epoch_us = o->clock_ns != NULL ? 0 : boot_epoch_us();
    weir->clock_arg = o->clock_arg;
    weir->handles = 1;
    weir->thread = uv_thread_self(); /* of a borrowed loop */
}

static struct weir__driver_config driver_config(struct weir *weir, const struct weir_options *o,
                                                const struct weir__endpoint *endpoint,
                                                uint64_t seed)
{
    uint64_t silence_ms = SILENT_TIMEOUTS * o->ask_timeout_ms;
    return (struct weir__driver_config){
        .engine = {.ask_timeout_us = (int64_t)weir->ask_timeout_us,
                   .max_asks = (unsigned)o->max_asks,
                   .max_waiters = (unsigned)o->max_waiters,
                   .seed = seed,
                   .leases = weir->remote},
        .remote = weir->remote,
        .store = {.endpoint = *endpoint,
                  .connect_timeout_ms = o->connect_timeout_ms,
                  .silence_ms = silence_ms > SILENT_LEAST_MS ? silence_ms : SILENT_LEAST_MS,
                  .max_calls = LATE_CALLS * o->max_asks,
                  .seed = ~seed,
                  .log = on_log},
        .now_us = driver_now_us,
        .ask_here = weir__inprocess_ask,
        .answered = weir__waiting_answered,
        .closed = on_driver_closed,
        .arg = weir,
    };
}

/* From the locks on: makes the table, the loop and the driver.  On failure all that it made is
 * gone. */
static int assemble(struct weir *weir, const struct weir_options *o,
                    const struct weir__endpoint *endpoint, struct weir_error *error)
{
    uint64_t seeds[3];
    int status = uv_random(NULL, NULL, seeds, sizeof(seeds), 0, NULL);
    if (status != 0) {
        return weir__complain(error, WEIR_ESYSTEM, "no random bytes: %s", uv_strerror(status));
    }
    weir->table = weir__buckets_table(weir, seeds, o->max_keys);
    if (weir->table == NULL) {
        return weir__complain(error, WEIR_ENOMEM, "no memory for the table of keys");
    }
    struct weir__driver_config config = driver_config(weir, o, endpoint, seeds[2]);
    uv_loop_t *loop = o->loop;
    if (weir->own_loop) {
        loop = &weir->loop;
        if ((status = uv_loop_init(loop)) != 0) {
            goto fail;
        }
    }
    if ((status = weir__driver_init(&weir->driver, loop, &config)) != 0) {
        goto fail_loop;
    }
    if (weir->own_loop && (status = start_thread(weir)) != 0) {
        /* The driver is on our loop: let it leave here, on this thread. */
        weir->closed = NULL;
        weir__driver_close(&weir->driver);
        (void)uv_run(loop, UV_RUN_DEFAULT);
        (void)uv_loop_close(loop);
        weir__driver_deinit(&weir->driver);
        return weir__complain(error, WEIR_ESYSTEM, "no thread: %s", uv_strerror(status));
    }
    return WEIR_OK;

fail_loop:
    if (weir->own_loop) {
        (void)uv_loop_close(loop);
    }
fail:
    (void)weir__table_free(weir->table);
    weir->table = NULL;
    return weir__complain(error, status == UV_ENOMEM ? WEIR_ENOMEM : WEIR_ESYSTEM,
                          "no event loop: %s", uv_strerror(status));
}

int weir_open(struct weir **out, const struct weir_options *options, struct weir_error *error)
{
    struct weir_options o;
    struct weir__endpoint endpoint = {0};
    weir_options_init(&o, sizeof(o));
    int code = weir__options_copy(&o, sizeof(o), options, error);
    if (code == WEIR_OK) {
        code = check_options(&o, &endpoint, error);
    }
    if (code != WEIR_OK) {
        goto forget;
    }
    struct weir *weir = weir__mem_zero_lines(sizeof(*weir));
    if (weir == NULL || !init_locks(weir)) {
        weir__mem_free(weir);
        code = weir__complain(error, WEIR_ENOMEM, "no memory for a weir");
        goto forget;
    }
    fill(weir, &o);
    code = assemble(weir, &o, &endpoint, error);
    if (code != WEIR_OK) {
        deinit_locks(weir);
        weir__mem_free(weir);
        goto forget;
    }
    if (weir->remote && weir->driver.conn == NULL) {
        if (weir_close_wait(weir) == WEIR_ETHREAD) {
            (void)weir_close(weir, NULL, NULL); /* the host's loop has to run */
        }
        code = weir__complain(error, WEIR_ENOMEM, "no memory for a connection");
        goto forget;
    }
    *out = weir;
forget:
    explicit_bzero(&endpoint, sizeof(endpoint)); /* it may hold a password */
    return code;
}

static int begin_close(struct weir *weir, void (*closed)(void *arg), void *arg, bool joined)
{
    if (weir__exchange_acq_rel(&weir->closing, 1u) != 0) {
        return WEIR_ECLOSED;
    }
    weir->closed = closed;
    weir->closed_arg = arg;
    weir->joined = joined;
    weir__buckets_shut(weir);
    /* The loop may be done before the bell has been left: until then the memory is ours too. */
    (void)weir__add_acq_rel(&weir->handles, 1);
    weir__driver_close(&weir->driver);
    weir__handle_gone(weir);
    return WEIR_OK;
}

int weir_close(struct weir *weir, void (*closed)(void *arg), void *arg)
{
    return begin_close(weir, closed, arg, false);
}

int weir_close_wait(struct weir *weir)
{
    uv_thread_t self = uv_thread_self();
    if (!weir->own_loop || uv_thread_equal(&self, &weir->thread)) {
        return WEIR_ETHREAD;
    }
    uv_thread_t thread = weir->thread; /* the weir will be gone */
    int code = begin_close(weir, NULL, NULL, true);
    if (code == WEIR_OK) {
        (void)uv_thread_join(&thread);
    }
    return code;
}
