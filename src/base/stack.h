/* SPDX-License-Identifier: MIT */
#ifndef WEIR_BASE_STACK_H
#define WEIR_BASE_STACK_H

#include <stdbool.h>
#include <stddef.h>

#include "base/atomic.h"

/*
 * Many threads push, one thread takes all: how callers hand work to the loop.  Lock-free.  The
 * whole stack leaves at once, so a node cannot come back under a pusher's feet (no ABA).  A stack
 * that is shut holds its own address as its top, which no node can have.
 */
struct weir__stack_node {
    struct weir__stack_node *next;
};

struct weir__stack {
    struct weir__stack_node *top;
};

static inline struct weir__stack_node *weir__stack_shut_mark(struct weir__stack *stack)
{
    return (struct weir__stack_node *)(void *)stack;
}

/* Thread: any.  The node must not be in the stack.  Returns true: it is the taker's now; false: the
 * stack is shut and the node was not taken. */
static inline bool weir__stack_push(struct weir__stack *stack, struct weir__stack_node *node)
{
    /* Relaxed: only a first guess, which the exchange checks. */
    struct weir__stack_node *top = weir__load_relaxed(&stack->top);
    do {
        if (top == weir__stack_shut_mark(stack)) {
            return false;
        }
        node->next = top;
        /* Release half: pairs with the exchange in weir__stack_swap, which then sees the node's
         * fields. */
    } while (!weir__cas_acq_rel(&stack->top, &top, node));
    return true;
}

/* Puts `top` in place of all nodes and returns these, the first pushed first. */
static inline struct weir__stack_node *weir__stack_swap(struct weir__stack *stack,
                                                        struct weir__stack_node *top)
{
    /* Acquire half: pairs with the push. */
    struct weir__stack_node *node = weir__exchange_acq_rel(&stack->top, top);
    struct weir__stack_node *first = NULL;
    while (node != NULL && node != weir__stack_shut_mark(stack)) {
        struct weir__stack_node *next = node->next;
        node->next = first;
        first = node;
        node = next;
    }
    return first;
}

/* Returns all nodes, the first pushed first, or NULL.  Thread: one at a time; not after the
 * shutting. */
static inline struct weir__stack_node *weir__stack_take(struct weir__stack *stack)
{
    return weir__stack_swap(stack, NULL);
}

/* As take, and from here on every push returns false.  Once. */
static inline struct weir__stack_node *weir__stack_shut(struct weir__stack *stack)
{
    return weir__stack_swap(stack, weir__stack_shut_mark(stack));
}

#endif
