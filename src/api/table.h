/* SPDX-License-Identifier: MIT */
#ifndef WEIR_API_TABLE_H
#define WEIR_API_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * From (limit, key) to bucket: many readers without a lock, one writer at a time.  The only place
 * that uses ck_hs and ck_epoch.
 *
 * An entry is embedded in its bucket.  `refs` counts the owners outside the table; the table itself
 * is none.
 *
 *     0..     owners                                       an entry with 0 may be evicted
 *     + RETIRED   left the table: no new owner; memory is freed once no reader can see it
 *     + ORPHAN    the table is gone; the last owner frees it (weir__table_unref returns true)
 */
struct weir__entry {
    uint32_t refs; /* atomic */
    uint32_t key_len;
    const void *space;        /* the limit: keys of different limits are different */
    const unsigned char *key; /* in the bucket's memory, not changed while it lives */
    uint64_t hash;
    _Alignas(void *) unsigned char deferred[2 * sizeof(void *)]; /* the table's */
};

struct weir__table_config {
    uint64_t seed[2]; /* for the hash: so that nobody outside can make keys that collide */
    uint64_t most;    /* entries */
    /* Under the table's lock: may this entry, which nobody owns, be forgotten? */
    bool (*may_evict)(void *arg, struct weir__entry *entry);
    /* An entry has left and no reader can see it: free it.  Any thread that writes. */
    void (*destroy)(void *arg, struct weir__entry *entry);
    void *arg;
};

struct weir__table;

/* Returns NULL without memory. */
struct weir__table *weir__table_new(const struct weir__table_config *config);

/* Finds an entry and becomes an owner of it; NULL: not there.  Thread: any.  Cost: no lock. */
struct weir__entry *weir__table_find(struct weir__table *table, const void *space, const void *key,
                                     size_t key_len);

enum weir__table_put { WEIR__PUT_NEW, WEIR__PUT_FOUND, WEIR__PUT_FULL, WEIR__PUT_NO_MEMORY };

/* Puts an entry (space, key, key_len filled), or finds the one of the same key that is there
 * already; *out is owned by the caller.  When full, forgets one that may be forgotten, looking at a
 * bounded number.  On anything but NEW the given entry is still the caller's.  Thread: any. */
enum weir__table_put weir__table_put(struct weir__table *table, struct weir__entry *entry,
                                     struct weir__entry **out);

/* One more owner (the caller is one); one fewer.  unref returns true when the caller was the last
 * owner of an orphan and must free it.  Thread: any. */
void weir__table_ref(struct weir__entry *entry);
bool weir__table_unref(struct weir__entry *entry);

uint64_t weir__table_count(struct weir__table *table);

/* Calls visit for every entry, under the table's lock. */
void weir__table_visit(struct weir__table *table,
                       void (*visit)(void *arg, struct weir__entry *entry), void *arg);

/* Ends the table: entries without an owner are destroyed, the others become orphans.  Returns how
 * many.  No other call on the table may run or come, but unref. */
uint64_t weir__table_free(struct weir__table *table);

#endif
