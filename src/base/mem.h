/* SPDX-License-Identifier: MIT */
#ifndef WEIR_BASE_MEM_H
#define WEIR_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>

/*
 * All memory of the library comes from here, so that a test can refuse the k-th request and see
 * that nothing breaks.
 *
 * Thread: any.  Owns: what is returned belongs to the caller, until weir__mem_free.
 * Returns NULL when memory cannot be had; a size of 0 is a byte.
 */
void *weir__mem_alloc(size_t size);      /* contents undefined */
void *weir__mem_zero(size_t size);       /* all bytes 0 */
void *weir__mem_zero_lines(size_t size); /* all bytes 0, and on cache lines of its own */
void weir__mem_free(void *memory);       /* of any of them; NULL is allowed */

/* For tests: `refuse` is asked before each request and fails it by returning true; it may be called
 * from several threads at once.  NULL: nothing is refused.
 * Thread: any, while no other thread uses the library. */
void weir__mem_set_hooks(bool (*refuse)(void *arg, size_t size), void *arg);

#endif
