/* SPDX-License-Identifier: MIT */
/* api/table, one thread: what is found, what leaves and when, memory that cannot be had. */
#include "api/table.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <ck_hs.h>
#include <cmocka.h>

#include "base/hash.h"
#include "base/list.h"
#include "base/mem.h"

#define LOOKS 64          /* at most, by one eviction */
#define PENDING_MOST 4096 /* evicted and not yet freed */

struct item {
    struct weir__entry entry;
    uint64_t id; /* its bytes are the key */
    bool keep;   /* may not be evicted */
};

struct rig {
    struct weir__table *table;
    uint64_t made, destroyed, asked;
    uint64_t last_asked, last_evicted; /* ids */
    bool look_inside;                  /* look up what is just being judged */
};

static const uint64_t seed[2] = {UINT64_C(0x5eed), UINT64_C(0xfeed)};
static const int spaces[2];

static struct item *item_of(struct weir__entry *entry)
{
    return weir__container(entry, struct item, entry);
}

static struct weir__entry *find(struct rig *rig, uint64_t id)
{
    return weir__table_find(rig->table, &spaces[0], &id, sizeof id);
}

static bool may_evict(void *arg, struct weir__entry *entry)
{
    struct rig *rig = arg;
    rig->asked++;
    rig->last_asked = item_of(entry)->id;
    if (rig->look_inside) {
        assert_null(find(rig, item_of(entry)->id));
    }
    if (!item_of(entry)->keep) {
        rig->last_evicted = item_of(entry)->id;
    }
    return !item_of(entry)->keep;
}

static void destroy(void *arg, struct weir__entry *entry)
{
    struct rig *rig = arg;
    rig->destroyed++;
    memset(entry, 0xdd, sizeof *entry);
    weir__mem_free(item_of(entry));
}

static void open_rig(struct rig *rig, uint64_t most)
{
    *rig = (struct rig){0};
    struct weir__table_config config = {.seed = {seed[0], seed[1]},
                                        .most = most,
                                        .may_evict = may_evict,
                                        .destroy = destroy,
                                        .arg = rig};
    rig->table = weir__table_new(&config);
}

/* Everything that was made is destroyed: nothing leaks and nothing is freed twice. */
static void close_rig(struct rig *rig)
{
    assert_int_equal(weir__table_free(rig->table), 0);
    assert_int_equal(rig->destroyed, rig->made);
}

static struct item *make(uint64_t id)
{
    struct item *item = weir__mem_zero(sizeof *item);
    assert_non_null(item);
    item->id = id;
    item->entry.space = &spaces[0];
    item->entry.key = (const unsigned char *)&item->id;
    item->entry.key_len = sizeof item->id;
    return item;
}

/* Puts a new item and owns it no more, unless `owned` wants it. */
static enum weir__table_put put(struct rig *rig, uint64_t id, struct weir__entry **owned)
{
    struct item *item = make(id);
    struct weir__entry *entry = NULL;
    enum weir__table_put result = weir__table_put(rig->table, &item->entry, &entry);
    if (result == WEIR__PUT_NEW) {
        assert_ptr_equal(entry, &item->entry);
        rig->made++;
    } else {
        weir__mem_free(item);
    }
    if (result == WEIR__PUT_NEW || result == WEIR__PUT_FOUND) {
        assert_int_equal(item_of(entry)->id, id);
        if (owned == NULL) {
            assert_false(weir__table_unref(entry));
        }
    }
    if (owned != NULL) {
        *owned = entry;
    }
    return result;
}

static bool holds(struct rig *rig, uint64_t id)
{
    struct weir__entry *entry = find(rig, id);
    if (entry == NULL) {
        return false;
    }
    assert_int_equal(item_of(entry)->id, id);
    assert_false(weir__table_unref(entry));
    return true;
}

static void what_was_put_is_found(void **state)
{
    (void)state;
    struct rig rig;
    open_rig(&rig, 100);
    assert_false(holds(&rig, 1));
    assert_int_equal(put(&rig, 1, NULL), WEIR__PUT_NEW);
    assert_int_equal(put(&rig, 2, NULL), WEIR__PUT_NEW);
    assert_true(holds(&rig, 1));
    assert_true(holds(&rig, 2));
    assert_false(holds(&rig, 3));
    assert_int_equal(put(&rig, 1, NULL), WEIR__PUT_FOUND);
    assert_int_equal(weir__table_count(rig.table), 2);
    close_rig(&rig);
}

/* Keys are any bytes, also none; the limit and every byte count. */
static void keys_are_bytes(void **state)
{
    (void)state;
    static const struct {
        int space;
        const char *key;
        uint32_t len;
    } rows[] = {
        {0, NULL, 0},         {1, "", 0},    {0, "\0", 1},       {0, "\0\0", 2},
        {0, "a", 1},          {1, "a", 1},   {0, "a\0", 2},      {0, "ab", 2},
        {0, "b", 1},          {0, "\0a", 2}, {0, "12345678", 8}, {0, "123456780", 9},
        {0, "12345678\0", 9},
    };
    enum { ROWS = sizeof rows / sizeof *rows };
    struct rig rig;
    open_rig(&rig, 100);
    struct weir__entry *put_as[ROWS];
    for (int i = 0; i < ROWS; i++) {
        struct item *item = make(0);
        item->entry.space = &spaces[rows[i].space];
        item->entry.key = (const unsigned char *)rows[i].key;
        item->entry.key_len = rows[i].len;
        assert_int_equal(weir__table_put(rig.table, &item->entry, &put_as[i]), WEIR__PUT_NEW);
        rig.made++;
    }
    for (int i = 0; i < ROWS; i++) {
        struct weir__entry *found = weir__table_find(rig.table, &spaces[rows[i].space], rows[i].key,
                                                     rows[i].len);
        assert_ptr_equal(found, put_as[i]);
        assert_false(weir__table_unref(found));
        assert_false(weir__table_unref(found));
    }
    assert_null(weir__table_find(rig.table, &spaces[1], "ab", 2));
    close_rig(&rig);
}

static void who_is_owned_stays(void **state)
{
    (void)state;
    struct rig rig;
    struct weir__entry *one, *two, *again;
    open_rig(&rig, 2);
    assert_int_equal(put(&rig, 1, &one), WEIR__PUT_NEW);
    assert_int_equal(put(&rig, 2, &two), WEIR__PUT_NEW);
    assert_int_equal(put(&rig, 3, NULL), WEIR__PUT_FULL);
    assert_int_equal(rig.asked, 0); /* nobody is asked about what has an owner */
    assert_int_equal(put(&rig, 1, &again), WEIR__PUT_FOUND);
    assert_ptr_equal(again, one);

    assert_false(weir__table_unref(one));
    weir__table_ref(one);
    assert_false(weir__table_unref(again));
    assert_int_equal(put(&rig, 3, NULL), WEIR__PUT_FULL);
    assert_false(weir__table_unref(one));
    assert_int_equal(put(&rig, 3, NULL), WEIR__PUT_NEW);
    assert_int_equal(rig.last_evicted, 1);
    assert_true(holds(&rig, 2));
    assert_int_equal(weir__table_count(rig.table), 2);
    assert_false(weir__table_unref(two));
    close_rig(&rig);
}

/* While it is judged nobody can become its owner; if it stays, it is as before. */
static void who_may_not_leave_is_restored(void **state)
{
    (void)state;
    struct rig rig;
    struct weir__entry *one;
    open_rig(&rig, 1);
    rig.look_inside = true;
    assert_int_equal(put(&rig, 1, &one), WEIR__PUT_NEW);
    item_of(one)->keep = true;
    assert_false(weir__table_unref(one));
    assert_int_equal(put(&rig, 2, NULL), WEIR__PUT_FULL);
    assert_int_equal(rig.asked, 1);
    assert_true(holds(&rig, 1));
    assert_int_equal(put(&rig, 1, &one), WEIR__PUT_FOUND);
    item_of(one)->keep = false;
    assert_false(weir__table_unref(one));
    assert_int_equal(put(&rig, 2, NULL), WEIR__PUT_NEW);
    assert_false(holds(&rig, 1));
    close_rig(&rig);
}

/* One eviction looks at few, and the next one at others. */
static void looks_are_bounded_and_go_round(void **state)
{
    (void)state;
    enum { HELD = 3 * LOOKS };
    struct rig rig;
    struct weir__entry *entry, *last = NULL;
    open_rig(&rig, HELD);
    for (uint64_t id = 1; id <= HELD; id++) {
        assert_int_equal(put(&rig, id, &entry), WEIR__PUT_NEW);
        item_of(entry)->keep = true;
        last = entry;
        assert_false(weir__table_unref(entry));
    }
    for (uint64_t round = 1; round <= 4; round++) {
        assert_int_equal(put(&rig, 1000, NULL), WEIR__PUT_FULL);
        assert_int_equal(rig.asked, round * LOOKS);
        assert_int_equal(rig.last_asked, (round * LOOKS - 1) % HELD + 1);
    }
    item_of(last)->keep = false;
    assert_int_equal(put(&rig, 1000, NULL), WEIR__PUT_FULL); /* it is the third group's */
    assert_int_equal(put(&rig, 1000, NULL), WEIR__PUT_NEW);
    assert_int_equal(rig.last_evicted, HELD);
    close_rig(&rig);
}

static void the_first_come_leave_first(void **state)
{
    (void)state;
    struct rig rig;
    open_rig(&rig, 10);
    for (uint64_t id = 1; id <= 100; id++) {
        assert_int_equal(put(&rig, id, NULL), WEIR__PUT_NEW);
        assert_int_equal(rig.last_evicted, id <= 10 ? 0 : id - 10);
    }
    close_rig(&rig);
}

/* Keys that somebody else chooses do not make memory grow. */
static void keys_without_end_stay_within_most(void **state)
{
    (void)state;
    struct rig rig;
    open_rig(&rig, 1000);
    for (uint64_t id = 0; id < 100000; id++) {
        assert_int_equal(put(&rig, id, NULL), WEIR__PUT_NEW);
        assert_true(weir__table_count(rig.table) <= 1000);
        assert_true(rig.made - rig.destroyed <= 1000 + PENDING_MOST);
    }
    assert_int_equal(weir__table_count(rig.table), 1000);
    for (uint64_t id = 0; id < 100000; id++) {
        assert_int_equal(holds(&rig, id), id >= 99000);
    }
    close_rig(&rig);
}

/* Finds `count` ids whose places in any map of up to 2^16 slots are the same. */
static void colliding_ids(uint64_t *ids, int count)
{
    const uint64_t in_space[2] = {seed[0], seed[1] ^ (uintptr_t)&spaces[0]};
    uint64_t wanted = 0;
    int found = 0;
    for (uint64_t id = 0; found < count; id++) {
        uint64_t place = weir__hash(in_space, &id, sizeof id) & 0xffff;
        if (found == 0) {
            wanted = place;
        }
        if (place == wanted) {
            ids[found++] = id;
        }
    }
}

/* A leaves a hole on the way to B: B must be found behind it, not put into it once more. */
static void a_hole_does_not_hide_who_stands_behind_it(void **state)
{
    (void)state;
    uint64_t ids[3];
    colliding_ids(ids, 3);
    struct rig rig;
    struct weir__entry *b, *again;
    open_rig(&rig, 2);
    assert_int_equal(put(&rig, ids[0], NULL), WEIR__PUT_NEW);
    assert_int_equal(put(&rig, ids[1], &b), WEIR__PUT_NEW);
    assert_int_equal(put(&rig, 12345678, NULL), WEIR__PUT_NEW);
    assert_int_equal(rig.last_evicted, ids[0]);
    assert_int_equal(put(&rig, ids[1], &again), WEIR__PUT_FOUND);
    assert_ptr_equal(again, b);
    assert_int_equal(weir__table_count(rig.table), 2);
    assert_int_equal(put(&rig, ids[2], NULL), WEIR__PUT_NEW);
    assert_true(holds(&rig, ids[1]));
    assert_false(holds(&rig, ids[0]));
    assert_false(weir__table_unref(b));
    assert_false(weir__table_unref(again));
    close_rig(&rig);
}

static void *plain_alloc(size_t size) { return weir__mem_alloc(size); }
static void plain_free(void *memory, size_t size, bool defer)
{
    (void)size;
    (void)defer;
    weir__mem_free(memory);
}
static unsigned long same_hash(const void *key, unsigned long unused)
{
    (void)key;
    (void)unused;
    return 42;
}
static bool same_text(const void *a, const void *b) { return strcmp(a, b) == 0; }

/* The same of the set below, with hashes that are equal in every bit: other sets keep B twice. */
static void the_set_keeps_one_of_each(void **state)
{
    (void)state;
    struct ck_malloc memory = {.malloc = plain_alloc, .free = plain_free};
    static const char a[] = "a", b[] = "b", b_again[] = "b";
    ck_hs_t set;
    assert_true(ck_hs_init(&set, CK_HS_MODE_SPMC | CK_HS_MODE_OBJECT | CK_HS_MODE_DELETE, same_hash,
                           same_text, &memory, 64, 0));
    assert_true(ck_hs_put(&set, 42, a));
    assert_true(ck_hs_put(&set, 42, b));
    assert_ptr_equal(ck_hs_remove(&set, 42, a), a);
    assert_false(ck_hs_put(&set, 42, b_again));
    assert_int_equal(ck_hs_count(&set), 1);
    assert_ptr_equal(ck_hs_get(&set, 42, b_again), b);
    assert_null(ck_hs_get(&set, 42, a));
    ck_hs_destroy(&set);
}

static void count_visited(void *arg, struct weir__entry *entry)
{
    unsigned *visited = arg;
    visited[item_of(entry)->id]++;
}

static void visit_sees_each_once(void **state)
{
    (void)state;
    struct rig rig;
    unsigned visited[5000] = {0};
    open_rig(&rig, 3000);
    for (uint64_t id = 0; id < 5000; id++) {
        assert_int_equal(put(&rig, id, NULL), WEIR__PUT_NEW);
    }
    weir__table_visit(rig.table, count_visited, visited);
    for (unsigned id = 0; id < 5000; id++) {
        assert_int_equal(visited[id], id >= 2000);
    }
    close_rig(&rig);
}

static void owners_outlive_the_table(void **state)
{
    (void)state;
    struct rig rig;
    struct weir__entry *one, *two;
    open_rig(&rig, 10);
    assert_int_equal(put(&rig, 1, &one), WEIR__PUT_NEW);
    assert_int_equal(put(&rig, 2, &two), WEIR__PUT_NEW);
    assert_int_equal(put(&rig, 3, NULL), WEIR__PUT_NEW);
    weir__table_ref(two);
    assert_int_equal(weir__table_free(rig.table), 2);
    assert_int_equal(rig.destroyed, 1);
    assert_true(weir__table_unref(one));
    assert_false(weir__table_unref(two));
    weir__table_ref(two);
    assert_false(weir__table_unref(two));
    assert_int_equal(item_of(two)->id, 2);
    assert_true(weir__table_unref(two));
    weir__mem_free(item_of(one));
    weir__mem_free(item_of(two));
}

struct refusal {
    int left; /* requests until one is refused */
    bool for_ever;
};

static bool refuse(void *arg, size_t size)
{
    struct refusal *refusal = arg;
    /* The items of these tests are not what is tested. */
    if (size == sizeof(struct item)) {
        return false;
    }
    return refusal->left-- == 0 || (refusal->for_ever && refusal->left < 0);
}

static void any_request_may_be_refused_at_the_start(void **state)
{
    (void)state;
    int k = 0;
    struct rig rig = {0};
    for (; rig.table == NULL; k++) {
        assert_in_range(k, 0, 10);
        struct refusal refusal = {.left = k};
        weir__mem_set_hooks(refuse, &refusal);
        open_rig(&rig, 10);
        weir__mem_set_hooks(NULL, NULL);
        assert_true(rig.table == NULL || refusal.left >= 0);
    }
    assert_true(k >= 3); /* the table and its map can both fail */
    close_rig(&rig);
}

static void without_memory_to_grow_all_else_goes_on(void **state)
{
    (void)state;
    struct rig rig;
    open_rig(&rig, 100000);
    struct refusal refusal = {.left = 0, .for_ever = true};
    weir__mem_set_hooks(refuse, &refusal);
    enum weir__table_put result;
    uint64_t full = 0;
    while ((result = put(&rig, full, NULL)) == WEIR__PUT_NEW) {
        full++;
        assert_true(full < 10000);
    }
    assert_int_equal(result, WEIR__PUT_NO_MEMORY);
    assert_true(full > 500);
    assert_int_equal(weir__table_count(rig.table), full);
    for (uint64_t id = 0; id <= full; id++) {
        assert_int_equal(holds(&rig, id), id < full);
    }
    weir__mem_set_hooks(NULL, NULL);
    for (uint64_t id = full; id < 20000; id++) {
        assert_int_equal(put(&rig, id, NULL), WEIR__PUT_NEW);
    }
    for (uint64_t id = 0; id <= 20000; id++) {
        assert_int_equal(holds(&rig, id), id < 20000);
    }
    close_rig(&rig);
}

/* Every way in which growth can be refused once: k counts the requests of the maps. */
static void growth_may_be_refused_once(void **state)
{
    (void)state;
    for (int k = 0; k < 6; k++) {
        struct rig rig;
        open_rig(&rig, 100000);
        struct refusal refusal = {.left = k};
        weir__mem_set_hooks(refuse, &refusal);
        for (uint64_t id = 0; id < 9000; id++) {
            enum weir__table_put result = put(&rig, id, NULL);
            if (result == WEIR__PUT_NO_MEMORY) {
                result = put(&rig, id, NULL);
            }
            assert_int_equal(result, WEIR__PUT_NEW);
        }
        weir__mem_set_hooks(NULL, NULL);
        assert_int_equal(refusal.left < 0, k < 5); /* 1024 slots to 32768: five maps */
        for (uint64_t id = 0; id < 9000; id++) {
            assert_true(holds(&rig, id));
        }
        close_rig(&rig);
    }
}

static void *look_up_from_a_thread(void *arg)
{
    struct rig *rig = arg;
    struct weir__entry *entry = find(rig, 7);
    if (entry != NULL) {
        (void)weir__table_unref(entry);
    }
    return entry;
}

static void *run_thread(struct rig *rig)
{
    pthread_t thread;
    void *found = NULL;
    assert_int_equal(pthread_create(&thread, NULL, look_up_from_a_thread, rig), 0);
    assert_int_equal(pthread_join(thread, &found), 0);
    return found;
}

struct held_back {
    unsigned requests;
    bool all;
};

static bool count_requests(void *arg, size_t size)
{
    (void)size;
    struct held_back *held_back = arg;
    held_back->requests++;
    return held_back->all;
}

/* A thread's record is asked for at its first lookup, and the next thread takes it over. */
static void a_thread_without_a_record_still_finds(void **state)
{
    (void)state;
    struct rig rig;
    struct weir__entry *entry;
    open_rig(&rig, 10);
    assert_int_equal(put(&rig, 7, &entry), WEIR__PUT_NEW);
    assert_true(holds(&rig, 7)); /* so that this thread has its own */

    struct held_back held_back = {.requests = 0, .all = true};
    weir__mem_set_hooks(count_requests, &held_back);
    assert_ptr_equal(run_thread(&rig), entry);
    assert_int_equal(held_back.requests, 1);
    held_back.all = false;
    for (int i = 0; i < 50; i++) {
        assert_ptr_equal(run_thread(&rig), entry);
    }
    weir__mem_set_hooks(NULL, NULL);
    assert_int_equal(held_back.requests, 2);
    assert_false(weir__table_unref(entry));
    close_rig(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* first, while no record is idle in the process */
        cmocka_unit_test(a_thread_without_a_record_still_finds),
        cmocka_unit_test(what_was_put_is_found),
        cmocka_unit_test(keys_are_bytes),
        cmocka_unit_test(who_is_owned_stays),
        cmocka_unit_test(who_may_not_leave_is_restored),
        cmocka_unit_test(looks_are_bounded_and_go_round),
        cmocka_unit_test(the_first_come_leave_first),
        cmocka_unit_test(keys_without_end_stay_within_most),
        cmocka_unit_test(a_hole_does_not_hide_who_stands_behind_it),
        cmocka_unit_test(the_set_keeps_one_of_each),
        cmocka_unit_test(visit_sees_each_once),
        cmocka_unit_test(owners_outlive_the_table),
        cmocka_unit_test(any_request_may_be_refused_at_the_start),
        cmocka_unit_test(without_memory_to_grow_all_else_goes_on),
        cmocka_unit_test(growth_may_be_refused_once),
    };
    return cmocka_run_group_tests_name("table", tests, NULL, NULL);
}
