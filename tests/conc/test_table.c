/* SPDX-License-Identifier: MIT */
/* api/table, many threads: one entry a key, nothing is used after it was freed, nothing leaks. */
#include "api/table.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/atomic.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/num.h"

#define THREADS_MAX 20
#define CANARY UINT64_C(0xca9a31)

/* cmocka's asserts jump, which only its own thread may do. */
#define MUST(condition) ((condition) ? (void)0 : must(#condition, __LINE__))

static void must(const char *condition, int line)
{
    print_error("line %d: not so: %s\n", line, condition);
    abort();
}

struct item {
    struct weir__entry entry;
    uint64_t id;
    uint64_t canary; /* id ^ CANARY while it lives; written before it is put, plain */
    uint64_t taken;  /* atomic: how often somebody became its owner */
};

struct rig {
    struct weir__table *table;
    pthread_barrier_t start;
    uint64_t made, destroyed;   /* atomic */
    uint64_t taken, taken_gone; /* atomic: by all; of it, through entries that were destroyed */
    uint64_t writers;           /* atomic: still at work */
};

static int space;

static struct item *item_of(struct weir__entry *entry)
{
    return weir__container(entry, struct item, entry);
}

static bool may_evict(void *arg, struct weir__entry *entry)
{
    (void)arg;
    MUST(item_of(entry)->canary == (item_of(entry)->id ^ CANARY));
    return true;
}

static void destroy(void *arg, struct weir__entry *entry)
{
    struct rig *rig = arg;
    struct item *item = item_of(entry);
    MUST(item->canary == (item->id ^ CANARY));
    (void)weir__add_relaxed(&rig->taken_gone, item->taken);
    (void)weir__add_relaxed(&rig->destroyed, 1);
    memset(item, 0xdd, sizeof *item);
    weir__mem_free(item);
}

static void open_rig(struct rig *rig, uint64_t most, unsigned threads)
{
    *rig = (struct rig){0};
    struct weir__table_config config = {
        .seed = {1, 2}, .most = most, .may_evict = may_evict, .destroy = destroy, .arg = rig};
    rig->table = weir__table_new(&config);
    assert_non_null(rig->table);
    assert_int_equal(pthread_barrier_init(&rig->start, NULL, threads), 0);
}

/* Everything that was made is gone, and every taking was of one of them. */
static void close_rig(struct rig *rig)
{
    assert_int_equal(weir__table_free(rig->table), 0);
    assert_int_equal(rig->destroyed, rig->made);
    assert_int_equal(rig->taken_gone, rig->taken);
    assert_int_equal(pthread_barrier_destroy(&rig->start), 0);
}

static void run(unsigned count, void *(*body)(void *arg), void *args, size_t size)
{
    pthread_t threads[THREADS_MAX];
    assert_in_range(count, 1, THREADS_MAX);
    for (unsigned i = 0; i < count; i++) {
        void *arg = (char *)args + i * size;
        assert_int_equal(pthread_create(&threads[i], NULL, body, arg), 0);
    }
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
}

static struct item *make(uint64_t id)
{
    struct item *item = weir__mem_zero(sizeof *item);
    MUST(item != NULL);
    item->id = id;
    item->canary = id ^ CANARY;
    item->entry.space = &space;
    item->entry.key = (const unsigned char *)&item->id;
    item->entry.key_len = sizeof item->id;
    return item;
}

/* As a caller does it: find, else put.  NULL: full, since all that could leave has an owner. */
static struct weir__entry *get(struct rig *rig, uint64_t id, uint64_t *made)
{
    struct weir__entry *entry = weir__table_find(rig->table, &space, &id, sizeof id);
    if (entry == NULL) {
        struct item *item = make(id);
        enum weir__table_put put = weir__table_put(rig->table, &item->entry, &entry);
        MUST(put != WEIR__PUT_NO_MEMORY);
        if (put == WEIR__PUT_NEW) {
            MUST(entry == &item->entry);
            (*made)++;
        } else {
            weir__mem_free(item);
        }
        if (put == WEIR__PUT_FULL) {
            return NULL;
        }
    }
    MUST(item_of(entry)->id == id);
    MUST(item_of(entry)->canary == (id ^ CANARY));
    (void)weir__add_relaxed(&item_of(entry)->taken, 1);
    (void)weir__add_relaxed(&rig->taken, 1);
    return entry;
}

static void give(struct weir__entry *entry) { MUST(!weir__table_unref(entry)); }

/* ---- Lookups while writers evict, put again and grow ----------------------------------------- */

#define READERS 16
#define WRITERS 2
#define HOT 1000
#define MOST 34000 /* so that the map, twice the entries, grows from 1024 slots past 65536 */
#define COLD 20000 /* a writer: together more than MOST, so that what is hot must leave too */

struct worker {
    struct rig *rig;
    unsigned number;
    uint64_t met; /* readers: lookups that found an entry at once */
};

static void *read_hot(void *arg)
{
    struct worker *worker = arg;
    struct rig *rig = worker->rig;
    uint64_t made = 0, random = worker->number;
    pthread_barrier_wait(&rig->start);
    while (weir__load_relaxed(&rig->writers) > 0) {
        uint64_t id = weir__random(&random) % HOT;
        struct weir__entry *entry = weir__table_find(rig->table, &space, &id, sizeof id);
        if (entry != NULL) {
            MUST(item_of(entry)->id == id);
            worker->met++;
            give(entry);
        }
        /* What has an owner stays, and a key has one entry: all ways lead to the same. */
        struct weir__entry *mine = get(rig, id, &made);
        MUST(mine != NULL);
        struct weir__entry *again = get(rig, id, &made);
        MUST(again == mine);
        give(mine);
        give(again);
    }
    (void)weir__add_relaxed(&rig->made, made);
    return NULL;
}

static void *write_cold(void *arg)
{
    struct worker *worker = arg;
    struct rig *rig = worker->rig;
    uint64_t made = 0;
    pthread_barrier_wait(&rig->start);
    for (uint64_t i = 0; i < COLD; i++) {
        struct weir__entry *entry = get(rig, HOT + worker->number * COLD + i, &made);
        MUST(entry != NULL);
        give(entry);
    }
    (void)weir__add_relaxed(&rig->made, made);
    (void)__atomic_sub_fetch(&rig->writers, 1, __ATOMIC_RELAXED);
    return NULL;
}

static void *read_or_write(void *arg)
{
    struct worker *worker = arg;
    return worker->number < WRITERS ? write_cold(arg) : read_hot(arg);
}

static void lookups_while_writers_evict_and_grow(void **state)
{
    (void)state;
    struct rig rig;
    struct worker workers[READERS + WRITERS];
    open_rig(&rig, MOST, READERS + WRITERS);
    rig.writers = WRITERS;
    for (unsigned i = 0; i < READERS + WRITERS; i++) {
        workers[i] = (struct worker){.rig = &rig, .number = i};
    }
    run(READERS + WRITERS, read_or_write, workers, sizeof *workers);
    uint64_t met = 0;
    for (unsigned i = WRITERS; i < READERS + WRITERS; i++) {
        met += workers[i].met;
    }
    assert_true(met > 0);
    assert_int_equal(weir__table_count(rig.table), MOST);
    assert_true(rig.made >= WRITERS * COLD);
    close_rig(&rig);
}

/* ---- Two threads make the same keys ---------------------------------------------------------- */

#define SAME 20000

struct maker {
    struct rig *rig;
    struct weir__entry **got;
};

static void *make_all(void *arg)
{
    struct maker *maker = arg;
    uint64_t made = 0;
    pthread_barrier_wait(&maker->rig->start);
    for (uint64_t id = 0; id < SAME; id++) {
        maker->got[id] = get(maker->rig, id, &made);
    }
    (void)weir__add_relaxed(&maker->rig->made, made);
    return NULL;
}

static void two_makers_get_the_same_entry(void **state)
{
    (void)state;
    static struct weir__entry *got[2][SAME];
    struct rig rig;
    struct maker makers[2] = {{.rig = &rig, .got = got[0]}, {.rig = &rig, .got = got[1]}};
    open_rig(&rig, SAME, 2);
    run(2, make_all, makers, sizeof *makers);
    assert_int_equal(rig.made, SAME);
    assert_int_equal(weir__table_count(rig.table), SAME);
    for (int id = 0; id < SAME; id++) {
        assert_ptr_equal(got[0][id], got[1][id]);
        give(got[0][id]);
        give(got[1][id]);
    }
    close_rig(&rig);
}

/* ---- A small table that is always full ------------------------------------------------------- */

#define CROWD 4
#define CHURNS 20000
#define SEATS 32

static void *churn(void *arg)
{
    struct worker *worker = arg;
    struct rig *rig = worker->rig;
    uint64_t made = 0, random = worker->number + 1;
    pthread_barrier_wait(&rig->start);
    for (int i = 0; i < CHURNS; i++) {
        uint64_t id = weir__random(&random) % (2 * SEATS);
        struct weir__entry *entry = get(rig, id, &made);
        MUST(entry != NULL);
        struct weir__entry *again = get(rig, id, &made);
        MUST(again == entry);
        give(again);
        give(entry);
    }
    (void)weir__add_relaxed(&rig->made, made);
    return NULL;
}

static void a_key_that_comes_and_goes_has_one_entry(void **state)
{
    (void)state;
    struct rig rig;
    struct worker workers[CROWD];
    open_rig(&rig, SEATS, CROWD);
    for (unsigned i = 0; i < CROWD; i++) {
        workers[i] = (struct worker){.rig = &rig, .number = i};
    }
    run(CROWD, churn, workers, sizeof *workers);
    assert_true(weir__table_count(rig.table) <= SEATS);
    assert_true(rig.made > SEATS);
    close_rig(&rig);
}

/* ---- Owners let go while the table ends ------------------------------------------------------ */

#define OWNERS 3
#define OWNED 64
#define ENDS 300

struct owner {
    struct rig *rig;
    struct weir__entry *owned[OWNED];
    uint64_t freed;
};

static void *let_go(void *arg)
{
    struct owner *owner = arg;
    pthread_barrier_wait(&owner->rig->start);
    for (int i = 0; i < OWNED; i++) {
        if (weir__table_unref(owner->owned[i])) {
            MUST(item_of(owner->owned[i])->canary == (item_of(owner->owned[i])->id ^ CANARY));
            weir__mem_free(item_of(owner->owned[i]));
            owner->freed++;
        }
    }
    return NULL;
}

/* Returns how many became orphans. */
static uint64_t end_while_owners_let_go(void)
{
    struct rig rig;
    struct owner owners[OWNERS];
    pthread_t threads[OWNERS];
    open_rig(&rig, OWNED, OWNERS + 1);
    for (int i = 0; i < OWNERS; i++) {
        owners[i] = (struct owner){.rig = &rig};
        for (uint64_t id = 0; id < OWNED; id++) {
            owners[i].owned[id] = get(&rig, id, &rig.made);
        }
    }
    for (int i = 0; i < OWNERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, let_go, &owners[i]), 0);
    }
    pthread_barrier_wait(&rig.start);
    uint64_t orphans = weir__table_free(rig.table);
    uint64_t freed = 0;
    for (int i = 0; i < OWNERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        freed += owners[i].freed;
    }
    assert_int_equal(freed, orphans);
    assert_int_equal(rig.destroyed + orphans, OWNED);
    assert_int_equal(pthread_barrier_destroy(&rig.start), 0);
    return orphans;
}

static void each_entry_is_freed_once_at_the_end(void **state)
{
    (void)state;
    uint64_t orphans = 0;
    for (int i = 0; i < ENDS; i++) {
        orphans += end_while_owners_let_go();
    }
    assert_true(orphans > 0);
}

/* ---- A fork while threads look up ------------------------------------------------------------ */

#define FORKS 8
#define LOOKERS 3
#define CHILD_SECONDS 20

static void *look_up(void *arg)
{
    struct rig *rig = arg;
    while (weir__load_relaxed(&rig->writers) > 0) {
        uint64_t id = 1;
        struct weir__entry *entry = weir__table_find(rig->table, &space, &id, sizeof id);
        MUST(entry != NULL);
        give(entry);
    }
    return NULL;
}

/* The child's own table evicts, grows and ends, and must wait for no thread of the parent. */
static void live_in_the_child(void)
{
    alarm(CHILD_SECONDS);
    struct rig rig;
    uint64_t made = 0;
    open_rig(&rig, 2000, 1);
    for (uint64_t id = 0; id < 8000; id++) {
        give(get(&rig, id, &made));
    }
    MUST(weir__table_free(rig.table) == 0);
    MUST(rig.destroyed == made);
    _exit(0);
}

static void a_child_waits_for_no_thread_of_its_parent(void **state)
{
    (void)state;
    struct rig rig;
    pthread_t threads[LOOKERS];
    open_rig(&rig, 10, 1);
    rig.writers = 1;
    struct weir__entry *entry = get(&rig, 1, &rig.made);
    for (int i = 0; i < LOOKERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, look_up, &rig), 0);
    }
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            live_in_the_child();
        }
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    weir__store_relaxed(&rig.writers, 0);
    for (int i = 0; i < LOOKERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    give(entry);
    close_rig(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lookups_while_writers_evict_and_grow),
        cmocka_unit_test(two_makers_get_the_same_entry),
        cmocka_unit_test(a_key_that_comes_and_goes_has_one_entry),
        cmocka_unit_test(each_entry_is_freed_once_at_the_end),
        cmocka_unit_test(a_child_waits_for_no_thread_of_its_parent),
    };
    return cmocka_run_group_tests_name("table", tests, NULL, NULL);
}
