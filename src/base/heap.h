/* SPDX-License-Identifier: MIT */
#ifndef WEIR_BASE_HEAP_H
#define WEIR_BASE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A heap of nodes that their owners keep: who is due first?  Pairing heap, so it needs no memory of
 * its own.  Each node is not above any of its children:
 *
 *     root -> child <-> next <-> next        child:  first child
 *               |                            next:   next sibling, NULL at the end
 *             child <-> next                 prev:   previous sibling, of the first the parent
 *
 * Insert and min take constant time; remove and update O(log n) amortised (Fredman, Sedgewick,
 * Sleator, Tarjan, "The pairing heap", Algorithmica 1986).  Nodes of equal keys leave in no
 * particular order.
 *
 * Thread: one at a time.
 */
struct weir__heap_node {
    struct weir__heap_node *child;
    struct weir__heap_node *next;
    struct weir__heap_node *prev;
    int64_t key;
};

struct weir__heap {
    struct weir__heap_node *root; /* NULL: empty */
};

static inline void weir__heap_init(struct weir__heap *heap) { heap->root = NULL; }

/* For a node that is in no heap yet, once, before any other call with it. */
static inline void weir__heap_node_init(struct weir__heap_node *node)
{
    node->child = NULL;
    node->next = NULL;
    node->prev = NULL;
    node->key = 0;
}

/* A node with the smallest key, or NULL. */
static inline struct weir__heap_node *weir__heap_min(const struct weir__heap *heap)
{
    return heap->root;
}

/* Whether an initialised node is in this heap; it must not be in another one. */
static inline bool weir__heap_has(const struct weir__heap *heap, const struct weir__heap_node *node)
{
    return node->prev != NULL || heap->root == node;
}

/* Joins two roots, neither NULL: the larger becomes the first child of the smaller. */
static inline struct weir__heap_node *weir__heap_link(struct weir__heap_node *a,
                                                      struct weir__heap_node *b)
{
    struct weir__heap_node *parent = a->key <= b->key ? a : b;
    struct weir__heap_node *child = a->key <= b->key ? b : a;

    child->next = parent->child;
    if (child->next != NULL) {
        child->next->prev = child;
    }
    child->prev = parent;
    parent->child = child;
    parent->next = NULL;
    parent->prev = NULL;
    return parent;
}

/* Joins a list of siblings: in pairs from the left, then the pairs from the right.  Without
 * recursion, since a list may be as long as the heap. */
static inline struct weir__heap_node *weir__heap_link_siblings(struct weir__heap_node *first)
{
    struct weir__heap_node *pairs = NULL; /* a stack through `next` */

    while (first != NULL) {
        struct weir__heap_node *a = first;
        struct weir__heap_node *b = a->next;
        first = b == NULL ? NULL : b->next;
        if (b != NULL) {
            a = weir__heap_link(a, b);
        }
        a->next = pairs;
        pairs = a;
    }

    struct weir__heap_node *root = NULL;
    while (pairs != NULL) {
        struct weir__heap_node *next = pairs->next;
        pairs->next = NULL;
        pairs->prev = NULL;
        root = root == NULL ? pairs : weir__heap_link(root, pairs);
        pairs = next;
    }
    return root;
}

/* The node must be in no heap. */
static inline void weir__heap_insert(struct weir__heap *heap, struct weir__heap_node *node,
                                     int64_t key)
{
    node->child = NULL;
    node->next = NULL;
    node->prev = NULL;
    node->key = key;
    heap->root = heap->root == NULL ? node : weir__heap_link(heap->root, node);
}

/* A node that is in no heap is left alone. */
static inline void weir__heap_remove(struct weir__heap *heap, struct weir__heap_node *node)
{
    if (!weir__heap_has(heap, node)) {
        return;
    }
    struct weir__heap_node *orphans = weir__heap_link_siblings(node->child);

    if (heap->root == node) {
        heap->root = orphans;
    } else {
        if (node->prev->child == node) {
            node->prev->child = node->next;
        } else {
            node->prev->next = node->next;
        }
        if (node->next != NULL) {
            node->next->prev = node->prev;
        }
        if (orphans != NULL) {
            heap->root = weir__heap_link(heap->root, orphans);
        }
    }
    node->child = NULL;
    node->next = NULL;
    node->prev = NULL;
}

/* Gives a node another key; one that is in no heap is inserted. */
static inline void weir__heap_update(struct weir__heap *heap, struct weir__heap_node *node,
                                     int64_t key)
{
    weir__heap_remove(heap, node);
    weir__heap_insert(heap, node, key);
}

#endif
