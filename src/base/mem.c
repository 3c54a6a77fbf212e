/* SPDX-License-Identifier: MIT */
/*
 * Memory.  Thin wrappers over malloc, each behind one question: does a test want this request to
 * fail?
 *
 * Not in the path of a token: callers of weir_try_acquire with a handle never come here.
 *
 * Threads: the hook is set while nothing else runs, and only read afterwards.
 */
#include "base/mem.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"

static bool (*hook_refuse)(void *arg, size_t size);
static void *hook_arg;

void weir__mem_set_hooks(bool (*refuse)(void *arg, size_t size), void *arg)
{
    hook_arg = arg;
    /* Pairs with the acquire in refused(): who sees the function sees its argument. */
    weir__store_release(&hook_refuse, refuse);
}

static bool refused(size_t size)
{
    bool (*refuse)(void *arg, size_t size) = weir__load_acquire(&hook_refuse);
    return refuse != NULL && refuse(hook_arg, size);
}

/* malloc(0) may return NULL, which would read as "no memory". */
static size_t at_least_one(size_t size) { return size == 0 ? 1 : size; }

void *weir__mem_alloc(size_t size) { return refused(size) ? NULL : malloc(at_least_one(size)); }

void *weir__mem_zero(size_t size) { return refused(size) ? NULL : calloc(1, at_least_one(size)); }

void *weir__mem_zero_lines(size_t size)
{
    if (size > SIZE_MAX - WEIR__CACHE_LINE || refused(size)) {
        return NULL;
    }
    /* aligned_alloc wants a multiple of the alignment; it also keeps neighbours off the last
     * line. */
    size_t lines = (at_least_one(size) + WEIR__CACHE_LINE - 1) / WEIR__CACHE_LINE;
    void *memory = aligned_alloc(WEIR__CACHE_LINE, lines * WEIR__CACHE_LINE);
    if (memory != NULL) {
        memset(memory, 0, lines * WEIR__CACHE_LINE);
    }
    return memory;
}

void weir__mem_free(void *memory) { free(memory); }
