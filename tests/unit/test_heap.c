/* SPDX-License-Identifier: MIT */
/*
 * base/heap against an oracle that cannot be wrong: a plain array, searched from end to end.  After
 * every random operation the minimum and the shape of the heap are checked; the seed is printed,
 * and WEIR_SEED replays it.
 */
#include "base/heap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/list.h"
#include "base/num.h"

#define NODES 200
#define STEPS 20000
#define KEYS 64 /* few, so that many nodes share one */

struct item {
    int64_t owner_field; /* so that the node is not the first member */
    struct weir__heap_node node;
    bool in;
};

static uint64_t seed_of_this_run(void)
{
    const char *text = getenv("WEIR_SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 0) : UINT64_C(20260101);
    print_message("seed %llu\n", (unsigned long long)seed);
    return seed;
}

/* Counts the nodes below and including `node`, and checks order and back links on the way. */
static size_t check_tree(const struct weir__heap_node *node)
{
    size_t count = 1;
    const struct weir__heap_node *before = node;
    for (const struct weir__heap_node *child = node->child; child != NULL; child = child->next) {
        assert_true(child->key >= node->key);
        assert_ptr_equal(child->prev, before);
        count += check_tree(child);
        before = child;
    }
    return count;
}

static void check_against(const struct weir__heap *heap, const struct item *items)
{
    size_t count = 0;
    int64_t least = INT64_MAX;
    for (size_t i = 0; i < NODES; i++) {
        assert_int_equal(weir__heap_has(heap, &items[i].node), items[i].in);
        if (items[i].in) {
            count++;
            least = weir__min(least, items[i].node.key);
        }
    }
    if (count == 0) {
        assert_null(weir__heap_min(heap));
        return;
    }
    assert_int_equal(weir__heap_min(heap)->key, least);
    assert_null(heap->root->prev);
    assert_null(heap->root->next);
    assert_int_equal(check_tree(heap->root), count);
}

static void random_operations_agree_with_a_search(void **state)
{
    (void)state;
    uint64_t seed = seed_of_this_run();
    struct item items[NODES];
    struct weir__heap heap;
    weir__heap_init(&heap);
    for (size_t i = 0; i < NODES; i++) {
        weir__heap_node_init(&items[i].node);
        items[i].in = false;
    }

    for (int step = 0; step < STEPS; step++) {
        struct item *item = &items[weir__random(&seed) % NODES];
        int64_t key = (int64_t)(weir__random(&seed) % KEYS) - KEYS / 2;
        switch (weir__random(&seed) % 4) {
        case 0:
            if (!item->in) {
                weir__heap_insert(&heap, &item->node, key);
                item->in = true;
            }
            break;
        case 1:
            weir__heap_remove(&heap, &item->node);
            item->in = false;
            break;
        case 2:
            weir__heap_update(&heap, &item->node, key);
            item->in = true;
            break;
        default:
            if (weir__heap_min(&heap) != NULL) {
                struct item *first = weir__container(weir__heap_min(&heap), struct item, node);
                weir__heap_remove(&heap, &first->node);
                first->in = false;
            }
        }
        check_against(&heap, items);
    }
}

static void nodes_leave_in_order_of_their_keys(void **state)
{
    (void)state;
    static const int64_t keys[] = {5, INT64_MAX, -3, 0, 5, INT64_MIN, 7, -3};
    static const int64_t sorted[] = {INT64_MIN, -3, -3, 0, 5, 5, 7, INT64_MAX};
    struct weir__heap_node nodes[8];
    struct weir__heap heap;
    weir__heap_init(&heap);
    for (size_t i = 0; i < 8; i++) {
        weir__heap_insert(&heap, &nodes[i], keys[i]);
    }
    for (size_t i = 0; i < 8; i++) {
        struct weir__heap_node *node = weir__heap_min(&heap);
        assert_int_equal(node->key, sorted[i]);
        weir__heap_remove(&heap, node);
    }
    assert_null(weir__heap_min(&heap));
}

static void removing_twice_is_harmless(void **state)
{
    (void)state;
    struct weir__heap_node nodes[2];
    struct weir__heap heap;
    weir__heap_init(&heap);
    weir__heap_insert(&heap, &nodes[0], 1);
    weir__heap_insert(&heap, &nodes[1], 2);
    weir__heap_remove(&heap, &nodes[0]);
    weir__heap_remove(&heap, &nodes[0]);
    assert_ptr_equal(weir__heap_min(&heap), &nodes[1]);
    weir__heap_remove(&heap, &nodes[1]);
    weir__heap_remove(&heap, &nodes[1]);
    assert_null(weir__heap_min(&heap));
}

/* Inserted in falling order, every node is a child of the root before: the deepest heap there is;
 * in rising order, one list of siblings: the widest.  Neither may need stack. */
static void a_large_heap_needs_no_stack(void **state)
{
    (void)state;
    enum { MANY = 1000000 };
    struct weir__heap_node *nodes = calloc(MANY, sizeof *nodes);
    assert_non_null(nodes);
    struct weir__heap heap;
    for (int falling = 0; falling < 2; falling++) {
        weir__heap_init(&heap);
        for (int i = 0; i < MANY; i++) {
            weir__heap_insert(&heap, &nodes[i], falling != 0 ? MANY - i : i);
        }
        int64_t last = INT64_MIN;
        for (int i = 0; i < MANY; i++) {
            struct weir__heap_node *node = weir__heap_min(&heap);
            assert_true(node->key > last);
            last = node->key;
            weir__heap_remove(&heap, node);
        }
        assert_null(weir__heap_min(&heap));
    }
    free(nodes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_leave_in_order_of_their_keys),
        cmocka_unit_test(removing_twice_is_harmless),
        cmocka_unit_test(random_operations_agree_with_a_search),
        cmocka_unit_test(a_large_heap_needs_no_stack),
    };
    return cmocka_run_group_tests_name("heap", tests, NULL, NULL);
}
