/* SPDX-License-Identifier: MIT */
#ifndef WEIR_BASE_LIST_H
#define WEIR_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

/* A doubly linked ring.  The head is a node of its own; a node that is in no list points to itself,
 * so that removing it twice is harmless.
 *
 *     head <-> first <-> ... <-> last <-> head
 */
struct weir__list {
    struct weir__list *next;
    struct weir__list *prev;
};

static inline void weir__list_init(struct weir__list *node)
{
    node->next = node;
    node->prev = node;
}

static inline bool weir__list_empty(const struct weir__list *head) { return head->next == head; }

static inline void weir__list_append(struct weir__list *head, struct weir__list *node)
{
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}

static inline void weir__list_remove(struct weir__list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    weir__list_init(node);
}

#define weir__container(pointer, type, member)                                                     \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

#endif
