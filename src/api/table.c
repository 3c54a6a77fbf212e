/* SPDX-License-Identifier: MIT */
/*
 * The key table: from (limit, key) to bucket.  The only file that knows Concurrency Kit.
 *
 * In the path of a token it comes first when a caller has a key and no handle: find, and on a miss
 * put.
 *
 * One key, one entry.  Writers hold the table's lock, and an entry in the set is never retired when
 * the lock is given up: it is retired and taken out, or restored, in one go.  So who looks under
 * the lock sees the truth, and put looks there before it adds.  A reader without the lock may miss
 * an entry that is just being added or restored; it then calls put, which finds it.
 *
 * Who may free.  An entry leaves only after its `refs` went from 0 to RETIRED in one step: no owner
 * was there, and from then on nobody becomes one.  A reader may still compare its key, so that its
 * memory, and a map that was outgrown, are given back when every thread that was inside a lookup
 * has left it (ck_epoch).  A lookup reads nothing of an entry but hash, space, key and key_len,
 * also of entries of other keys on its way, and those do not change while they can be reached.
 *
 *     held               count <= most
 *     evicted, unfreed   pending <= PENDING_MOST
 *
 * Order of leaving.  `order` holds the entries as they came.  An eviction looks at the first ones,
 * LOOKS at most; one that must stay goes to the end, so that the next eviction looks at others.
 *
 * Threads.  One epoch serves all tables of the process, and each thread that looks up has a record
 * in it.  The epoch never gives a record up, so a thread that ends leaves its own to the next one:
 * there are as many as there were threads at once, and one for the writers of each table.  A thread
 * that gets no record, for lack of memory, looks up under the lock.  In the child of a fork all
 * records are idle, since their threads are not there.
 */
#include "api/table.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

#include <ck_epoch.h>
#include <ck_hs.h>
#include <ck_pr.h>

#include "base/atomic.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/mem.h"

#define RETIRED (UINT32_C(1) << 31)
#define ORPHAN (UINT32_C(1) << 30)
#define OWNERS (ORPHAN - 1)

#define FIRST_SLOTS 1024  /* of the map; 9 KB */
#define LOOKS 64          /* entries one eviction looks at: some microseconds */
#define PENDING_SOME 32   /* evicted entries that make a poll of all records worth its price */
#define PENDING_MOST 4096 /* evicted entries for which a writer waits until the readers have left */

/* DELETE: each slot has a bound for its own probes.  Without it one long probe in the life of a map
 * makes every later miss as long. */
#define SET_MODE (CK_HS_MODE_SPMC | CK_HS_MODE_OBJECT | CK_HS_MODE_DELETE)

struct weir__table {
    struct weir__table_config config;
    pthread_mutex_t lock;
    ck_hs_t set;              /* written under the lock, read without */
    struct reader *reclaimer; /* the record that evicted entries wait in; it never reads */
    struct weir__list order;  /* through `deferred` of the entries in the set */
    uint64_t count;
};

/* ---- What ThreadSanitizer cannot see --------------------------------------------------------- */

/* Concurrency Kit orders memory by means the sanitizer does not follow.  These two tell it what is
 * true: release before an entry is handed on (published, or no longer read), acquire after it was
 * received (found in the set, or all its readers gone). */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TABLE_UNDER_TSAN 1
#endif
#elif defined(__SANITIZE_THREAD__)
#define TABLE_UNDER_TSAN 1
#endif

#ifdef TABLE_UNDER_TSAN
void __tsan_acquire(void *address);
void __tsan_release(void *address);
static void tsan_acquire(const void *entry) { __tsan_acquire((void *)(uintptr_t)entry); }
static void tsan_release(const void *entry) { __tsan_release((void *)(uintptr_t)entry); }
#else
static inline void tsan_acquire(const void *entry) { (void)entry; }
static inline void tsan_release(const void *entry) { (void)entry; }
#endif

/* ---- Readers: the process's epoch, and a record for each thread ------------------------------ */

struct reader {
    ck_epoch_record_t record;
    struct reader *next;      /* in `all`, for ever */
    struct reader *next_idle; /* in `idle`, while no thread has it */
};

static struct {
    pthread_once_t once;
    pthread_mutex_t lock; /* of all that follows, but the inside of the epoch */
    pthread_key_t key;    /* gives a thread's reader back when it ends */
    bool ready;
    ck_epoch_t epoch;
    struct reader *all;
    struct reader *idle;
} readers = {.once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local struct reader *mine;

static void reader_give(void *arg)
{
    struct reader *reader = arg;
    if (reader == mine) {
        mine = NULL; /* destructors of other libraries may look up once more after this one */
    }
    pthread_mutex_lock(&readers.lock);
    reader->next_idle = readers.idle;
    readers.idle = reader;
    pthread_mutex_unlock(&readers.lock);
}

/* NULL: no memory. */
static struct reader *reader_take(void)
{
    pthread_mutex_lock(&readers.lock);
    struct reader *reader = readers.idle;
    if (reader != NULL) {
        readers.idle = reader->next_idle;
    } else if ((reader = weir__mem_zero_lines(sizeof(*reader))) != NULL) {
        ck_epoch_register(&readers.epoch, &reader->record, NULL);
        reader->next = readers.all;
        readers.all = reader;
    }
    pthread_mutex_unlock(&readers.lock);
    return reader;
}

/* The calling thread's record; NULL: none could be had. */
static ck_epoch_record_t *reader_record(void)
{
    if (mine == NULL) {
        struct reader *reader = reader_take();
        if (reader == NULL) {
            return NULL;
        }
        if (pthread_setspecific(readers.key, reader) != 0) {
            reader_give(reader);
            return NULL;
        }
        mine = reader;
    }
    return &mine->record;
}

static void before_fork(void) { pthread_mutex_lock(&readers.lock); }
static void after_fork(void) { pthread_mutex_unlock(&readers.lock); }

/* A thread that was inside a lookup would be waited for for ever: it is not in this process. */
static void after_fork_in_child(void)
{
    mine = NULL;
    (void)pthread_setspecific(readers.key, NULL);
    ck_epoch_init(&readers.epoch);
    readers.idle = NULL;
    for (struct reader *reader = readers.all; reader != NULL; reader = reader->next) {
        ck_epoch_register(&readers.epoch, &reader->record, NULL);
        reader->next_idle = readers.idle;
        readers.idle = reader;
    }
    pthread_mutex_unlock(&readers.lock);
}

static void readers_init(void)
{
    ck_epoch_init(&readers.epoch);
    readers.ready = pthread_key_create(&readers.key, reader_give) == 0 &&
                    pthread_atfork(before_fork, after_fork, after_fork_in_child) == 0;
}

/* A reader may have lost its CPU inside a lookup; let it run. */
static void let_readers_run(ck_epoch_t *epoch, ck_epoch_record_t *record, void *arg)
{
    (void)epoch;
    (void)record;
    (void)arg;
    (void)sched_yield();
}

/* ---- What ck_hs asks for --------------------------------------------------------------------- */

/* `defer`: readers may be in it.  A map is replaced only to double it, so waits are rare. */
static void map_free(void *map, size_t size, bool defer)
{
    (void)size;
    if (defer) {
        ck_epoch_synchronize_wait(&readers.epoch, let_readers_run, NULL);
    }
    weir__mem_free(map);
}

static struct ck_malloc map_memory = {.malloc = weir__mem_alloc, .free = map_free};

static unsigned long entry_hash(const void *entry, unsigned long seed)
{
    (void)seed; /* it is in the hash already */
    return (unsigned long)((const struct weir__entry *)entry)->hash;
}

static bool entry_matches(const void *stored, const void *sought)
{
    const struct weir__entry *a = stored;
    const struct weir__entry *b = sought;
    tsan_acquire(a);
    bool same = a->hash == b->hash && a->space == b->space && a->key_len == b->key_len &&
                (a->key_len == 0 || memcmp(a->key, b->key, a->key_len) == 0);
    tsan_release(a);
    return same;
}

/* ---- Entries --------------------------------------------------------------------------------- */

/* While in the set, `deferred` links the entry into `order`; afterwards it is the epoch's. */
_Static_assert(sizeof(struct weir__list) <= sizeof(((struct weir__entry *)0)->deferred), "order");
_Static_assert(sizeof(ck_epoch_entry_t) <= sizeof(((struct weir__entry *)0)->deferred), "epoch");

static struct weir__list *order_of(struct weir__entry *entry)
{
    return (struct weir__list *)(void *)entry->deferred;
}

static struct weir__entry *entry_at(void *deferred)
{
    return weir__container(deferred, struct weir__entry, deferred);
}

/* The limit is part of the seed: the same key of another limit is another key. */
static uint64_t hash_of(const struct weir__table *table, const void *space, const void *key,
                        size_t key_len)
{
    const uint64_t seed[2] = {table->config.seed[0], table->config.seed[1] ^ (uintptr_t)space};
    return weir__hash(seed, key, key_len);
}

/* False: it is retired. */
static bool become_owner(struct weir__entry *entry)
{
    /* Relaxed: only a first guess, which the exchange checks. */
    uint32_t refs = weir__load_relaxed(&entry->refs);
    while ((refs & RETIRED) == 0) {
        WEIR__ASSERT((refs & OWNERS) < OWNERS);
        /* Acquire half: pairs with unref, so that the next owner sees what the last one wrote. */
        if (weir__cas_acq_rel(&entry->refs, &refs, refs + 1)) {
            return true;
        }
    }
    return false;
}

void weir__table_ref(struct weir__entry *entry)
{
    /* Relaxed: the caller is an owner, so nothing can end meanwhile. */
    uint32_t refs = weir__add_relaxed(&entry->refs, 1);
    WEIR__ASSERT((refs & OWNERS) > 0 && (refs & OWNERS) < OWNERS);
}

bool weir__table_unref(struct weir__entry *entry)
{
    /* Release half: pairs with become_owner and try_retire.  Acquire half: with the unrefs before,
     * for the one who frees. */
    uint32_t refs = weir__sub_acq_rel(&entry->refs, 1);
    WEIR__ASSERT((refs & OWNERS) > 0);
    return refs == (RETIRED | ORPHAN | 1);
}

/* ---- Leaving, under the lock ----------------------------------------------------------------- */

/* Callbacks of the epoch have no argument: the table whose entries this thread is giving back. */
static _Thread_local struct weir__table *reclaiming;

static void entry_unseen(ck_epoch_entry_t *deferred)
{
    struct weir__entry *entry = entry_at(deferred);
    tsan_acquire(entry);
    reclaiming->config.destroy(reclaiming->config.arg, entry);
}

static void reclaim(struct weir__table *table)
{
    ck_epoch_record_t *record = &table->reclaimer->record;
    reclaiming = table;
    if (record->n_pending >= PENDING_MOST) {
        ck_epoch_barrier_wait(record, let_readers_run, NULL);
    } else if (record->n_pending >= PENDING_SOME) {
        (void)ck_epoch_poll(record);
    }
    reclaiming = NULL;
}

/* True: the entry has no owner and cannot get one any more. */
static bool try_retire(struct weir__table *table, struct weir__entry *entry)
{
    uint32_t refs = 0;
    /* Acquire half: pairs with unref; may_evict and destroy then see what the last owner wrote. */
    while (!weir__cas_acq_rel(&entry->refs, &refs, RETIRED)) {
        if (refs != 0) {
            return false;
        }
    }
    if (table->config.may_evict(table->config.arg, entry)) {
        return true;
    }
    /* Pairs with become_owner.  A plain store: nobody changes a retired word. */
    weir__store_release(&entry->refs, 0);
    return false;
}

static void take_out(struct weir__table *table, struct weir__entry *entry)
{
    void *removed = ck_hs_remove(&table->set, entry_hash(entry, 0), entry);
    WEIR__ASSERT(removed == entry);
    weir__list_remove(order_of(entry));
    table->count--;
    /* The removal must be seen before the epoch is read: else a reader of the next epoch could find
     * the entry yet, and would not be waited for. */
    ck_pr_fence_memory();
    ck_epoch_call(&table->reclaimer->record, (ck_epoch_entry_t *)(void *)entry->deferred,
                  entry_unseen);
}

/* False: all that it looked at must stay. */
static bool evict_one(struct weir__table *table)
{
    uint64_t looks = table->count < LOOKS ? table->count : LOOKS;
    for (uint64_t i = 0; i < looks; i++) {
        struct weir__list *first = table->order.next;
        if (try_retire(table, entry_at(first))) {
            take_out(table, entry_at(first));
            reclaim(table);
            return true;
        }
        weir__list_remove(first);
        weir__list_append(&table->order, first);
    }
    return false;
}

/* ---- Looking up and adding ------------------------------------------------------------------- */

/* Under the lock.  What is in the set is not retired: see the top. */
static struct weir__entry *find_locked(struct weir__table *table, const struct weir__entry *sought)
{
    struct weir__entry *entry = ck_hs_get(&table->set, entry_hash(sought, 0), sought);
    if (entry != NULL) {
        bool owned = become_owner(entry);
        WEIR__ASSERT(owned);
    }
    return entry;
}

struct weir__entry *weir__table_find(struct weir__table *table, const void *space, const void *key,
                                     size_t key_len)
{
    WEIR__ASSERT(key_len <= UINT32_MAX);
    const struct weir__entry sought = {
        .space = space,
        .key = key,
        .key_len = (uint32_t)key_len,
        .hash = hash_of(table, space, key, key_len),
    };
    struct weir__entry *entry;
    ck_epoch_record_t *record = reader_record();
    if (record == NULL) {
        pthread_mutex_lock(&table->lock);
        entry = find_locked(table, &sought);
        pthread_mutex_unlock(&table->lock);
        return entry;
    }
    ck_epoch_begin(record, NULL);
    entry = ck_hs_get(&table->set, entry_hash(&sought, 0), &sought);
    if (entry != NULL && !become_owner(entry)) {
        tsan_release(entry);
        entry = NULL;
    }
    (void)ck_epoch_end(record, NULL);
    return entry;
}

static enum weir__table_put put_locked(struct weir__table *table, struct weir__entry *entry,
                                       struct weir__entry **out)
{
    struct weir__entry *there = find_locked(table, entry);
    if (there != NULL) {
        *out = there;
        return WEIR__PUT_FOUND;
    }
    if (table->count >= table->config.most && !evict_one(table)) {
        return WEIR__PUT_FULL;
    }
    tsan_release(entry);
    /* Pairs with the reader's way from the slot to the entry: ck_hs_put_unique has no fence of its
     * own before it stores the pointer. */
    ck_pr_fence_store();
    if (!ck_hs_put_unique(&table->set, entry_hash(entry, 0), entry)) {
        return WEIR__PUT_NO_MEMORY;
    }
    weir__list_append(&table->order, order_of(entry));
    table->count++;
    *out = entry;
    return WEIR__PUT_NEW;
}

enum weir__table_put weir__table_put(struct weir__table *table, struct weir__entry *entry,
                                     struct weir__entry **out)
{
    entry->hash = hash_of(table, entry->space, entry->key, entry->key_len);
    weir__store_relaxed(&entry->refs, 1); /* nobody sees it yet */
    pthread_mutex_lock(&table->lock);
    enum weir__table_put put = put_locked(table, entry, out);
    pthread_mutex_unlock(&table->lock);
    return put;
}

uint64_t weir__table_count(struct weir__table *table)
{
    pthread_mutex_lock(&table->lock);
    uint64_t count = table->count;
    pthread_mutex_unlock(&table->lock);
    return count;
}

void weir__table_visit(struct weir__table *table,
                       void (*visit)(void *arg, struct weir__entry *entry), void *arg)
{
    pthread_mutex_lock(&table->lock);
    for (struct weir__list *at = table->order.next; at != &table->order; at = at->next) {
        visit(arg, entry_at(at));
    }
    pthread_mutex_unlock(&table->lock);
}

/* ---- Beginning and end ----------------------------------------------------------------------- */

struct weir__table *weir__table_new(const struct weir__table_config *config)
{
    if (pthread_once(&readers.once, readers_init) != 0 || !readers.ready) {
        return NULL;
    }
    struct weir__table *table = weir__mem_zero(sizeof(*table));
    if (table == NULL) {
        return NULL;
    }
    table->config = *config;
    weir__list_init(&table->order);
    if ((table->reclaimer = reader_take()) == NULL) {
        goto fail;
    }
    if (!ck_hs_init(&table->set, SET_MODE, entry_hash, entry_matches, &map_memory, FIRST_SLOTS,
                    0)) {
        goto fail;
    }
    if (pthread_mutex_init(&table->lock, NULL) != 0) {
        ck_hs_destroy(&table->set);
        goto fail;
    }
    return table;

fail:
    if (table->reclaimer != NULL) {
        reader_give(table->reclaimer);
    }
    weir__mem_free(table);
    return NULL;
}

uint64_t weir__table_free(struct weir__table *table)
{
    uint64_t orphans = 0;
    struct weir__list *next;
    for (struct weir__list *at = table->order.next; at != &table->order; at = next) {
        next = at->next; /* read before: an orphan may be freed by its owner as soon as it is one */
        struct weir__entry *entry = entry_at(at);
        /* Pairs with unref: of the last owner and this, the second sees the first, and frees. */
        uint32_t refs = weir__or_acq_rel(&entry->refs, RETIRED | ORPHAN);
        if ((refs & OWNERS) > 0) {
            orphans++;
        } else {
            table->config.destroy(table->config.arg, entry);
        }
    }
    reclaiming = table;
    ck_epoch_barrier_wait(&table->reclaimer->record, let_readers_run, NULL);
    reclaiming = NULL;
    reader_give(table->reclaimer);
    ck_hs_destroy(&table->set);
    pthread_mutex_destroy(&table->lock);
    weir__mem_free(table);
    return orphans;
}
