/* SPDX-License-Identifier: MIT */

/*
 * Buckets: one key under one limit.
 *
 * A bucket is one block of memory: what callers and the loop need, then the key as the store knows
 * it, `{prefix}:{limit}:{key}`, whose tail is the user's key.
 *
 * Forgetting.  When max_keys buckets are held, one that nobody owns, for which the engine holds
 * nothing (no lease, no ask, no waiter), whose cap would let a caller through, and, in process,
 * that is full, leaves for a new one.  Nothing is lost by that: its state is in the store, or the
 * same as a new one's, and a new cap has nothing stored, or is cold.
 */

#include "api/buckets.h"

#include <string.h>

#include "api/capped.h"
#include "api/inprocess.h"
#include "base/mem.h"

static struct weir_bucket *of_entry(struct weir__entry *entry)
{
    return weir__container(entry, struct weir_bucket, entry);
}

static bool may_evict(void *arg, struct weir__entry *entry)
{
    struct weir *weir = arg;
    struct weir_bucket *bucket = of_entry(entry);
    uv_mutex_lock(&weir->driver.lock);
    bool held = weir__engine_holds(&weir->driver.engine, &bucket->core);
    uv_mutex_unlock(&weir->driver.lock);
    if (held || (weir__capped(bucket) && weir__capped_owes(bucket))) {
        return false;
    }
    if (weir->remote) {
        return true;
    }
    bool full = weir__inprocess_full(bucket);
    if (full) {
        weir__inprocess_count(bucket, &weir->gone);
    }
    return full;
}

static void release(struct weir_bucket *bucket)
{
    weir__mem_free(bucket->global.log.entries);
    weir__mem_free(bucket);
}

static void destroy(void *arg, struct weir__entry *entry)
{
    (void)arg;
    release(of_entry(entry));
}

struct weir__table *weir__buckets_table(struct weir *weir, const uint64_t seed[2], uint64_t most)
{
    struct weir__table_config config = {
        .seed = {seed[0], seed[1]},
        .most = most,
        .may_evict = may_evict,
        .destroy = destroy,
        .arg = weir,
    };
    return weir__table_new(&config);
}

static void shut(void *arg, struct weir__entry *entry)
{
    (void)arg;
    (void)weir__or_acq_rel(&of_entry(entry)->core.gate, WEIR__GATE_CLOSED);
}

void weir__buckets_shut(struct weir *weir) { weir__table_visit(weir->table, shut, NULL); }

static void drain(void *arg, struct weir__entry *entry)
{
    (void)arg;
    (void)weir__exchange_acq_rel(&of_entry(entry)->core.credit, 0);
}

void weir__buckets_drain(struct weir *weir) { weir__table_visit(weir->table, drain, NULL); }

/* The gate's bit follows the limit. */
static void follow_cap(void *arg, struct weir__entry *entry)
{
    struct weir_bucket *bucket = of_entry(entry);
    if (bucket->limit != arg) {
        return;
    }
    if (weir__load_relaxed(&bucket->limit->capped)) {
        (void)weir__or_acq_rel(&bucket->core.gate, WEIR__GATE_CAPPED);
    } else {
        (void)weir__and_acq_rel(&bucket->core.gate, ~WEIR__GATE_CAPPED);
    }
}

void weir__buckets_cap(struct weir_limit *limit)
{
    weir__table_visit(limit->weir->table, follow_cap, limit);
}

uv_mutex_t *weir__stripe_of(const struct weir_bucket *bucket)
{
    size_t line = (size_t)(uintptr_t)bucket / WEIR__CACHE_LINE;
    return &bucket->limit->weir->stripes[(line ^ line / WEIR__STRIPES) % WEIR__STRIPES];
}

/* Never clears the bit, since the visit of a later change may have set it already. */
static void begin_capped(struct weir_bucket *bucket)
{
    if (weir__load_relaxed(&bucket->limit->capped)) {
        (void)weir__or_acq_rel(&bucket->core.gate, WEIR__GATE_CAPPED);
    }
}

static struct weir_bucket *make(struct weir_limit *limit, const void *key, size_t key_len)
{
    struct weir *weir = limit->weir;
    size_t prefix_len = strlen(weir->prefix);
    size_t name_len = strlen(limit->name);
    size_t store_len = prefix_len + 1 + name_len + 1 + key_len;
    struct weir_bucket *bucket = weir__mem_zero_lines(sizeof(*bucket) + store_len);
    if (bucket == NULL) {
        return NULL;
    }
    unsigned char *at = bucket->bytes;
    memcpy(at, weir->prefix, prefix_len);
    at += prefix_len;
    *at++ = ':';
    memcpy(at, limit->name, name_len);
    at += name_len;
    *at++ = ':';
    if (key_len > 0) {
        memcpy(at, key, key_len);
    }
    bucket->limit = limit;
    bucket->tallies = &weir->tallies;
    bucket->entry.space = limit;
    bucket->entry.key = at;
    bucket->entry.key_len = (uint32_t)key_len;
    weir__bucket_init(&bucket->core, &weir->driver.engine, &limit->core, bucket->bytes, store_len);
    weir__cap_init(&bucket->cap);
    begin_capped(bucket);
    return bucket;
}

int weir_bucket_get(struct weir_limit *limit, const void *key, size_t key_len,
                    struct weir_bucket **out)
{
    struct weir *weir = limit->weir;
    if (key_len > WEIR__KEY_MAX || (key == NULL && key_len > 0)) {
        return WEIR_EINVAL;
    }
    /* Acquire: pairs with weir_close. */
    if (weir__load_acquire(&weir->closing)) {
        return WEIR_ECLOSED;
    }
    struct weir__entry *entry = weir__table_find(weir->table, limit, key, key_len);
    if (entry != NULL) {
        *out = of_entry(entry);
        return WEIR_OK;
    }
    struct weir_bucket *bucket = make(limit, key, key_len);
    if (bucket == NULL) {
        return WEIR_ENOMEM;
    }
    enum weir__table_put put = weir__table_put(weir->table, &bucket->entry, &entry);
    if (put != WEIR__PUT_NEW) {
        weir__mem_free(bucket);
    }
    if (put == WEIR__PUT_FULL || put == WEIR__PUT_NO_MEMORY) {
        return put == WEIR__PUT_FULL ? WEIR_EFULL : WEIR_ENOMEM;
    }
    *out = of_entry(entry);
    begin_capped(*out); /* the cap may have come after `make` looked */
    if (weir__load_acquire(&weir->closing)) {
        shut(NULL, entry); /* it may have come after the shutting */
    }
    return WEIR_OK;
}

struct weir_bucket *weir_bucket_ref(struct weir_bucket *bucket)
{
    weir__table_ref(&bucket->entry);
    return bucket;
}

void weir_bucket_unref(struct weir_bucket *bucket)
{
    if (bucket == NULL) {
        return;
    }
    /* Read before: once it is given up, another owner may free it. */
    struct weir *weir = bucket->limit->weir;
    if (weir__table_unref(&bucket->entry)) {
        release(bucket);
        weir__handle_gone(weir);
    }
}
