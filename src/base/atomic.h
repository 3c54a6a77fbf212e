/* SPDX-License-Identifier: MIT */
#ifndef WEIR_BASE_ATOMIC_H
#define WEIR_BASE_ATOMIC_H

/*
 * Every word that threads share is read and written through these, so that each use states its
 * memory order in its name and ThreadSanitizer sees it.  Plain integers and __atomic builtins: they
 * compile as C and C++ alike.  docs/ordering.md has a row for each shared field.
 */

#define weir__load_relaxed(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define weir__load_acquire(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define weir__store_relaxed(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define weir__store_release(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define weir__exchange_acq_rel(p, v) __atomic_exchange_n((p), (v), __ATOMIC_ACQ_REL)
#define weir__add_relaxed(p, v) __atomic_fetch_add((p), (v), __ATOMIC_RELAXED)
#define weir__add_acq_rel(p, v) __atomic_fetch_add((p), (v), __ATOMIC_ACQ_REL)
#define weir__sub_acq_rel(p, v) __atomic_fetch_sub((p), (v), __ATOMIC_ACQ_REL)
#define weir__or_acq_rel(p, v) __atomic_fetch_or((p), (v), __ATOMIC_ACQ_REL)
#define weir__and_acq_rel(p, v) __atomic_fetch_and((p), (v), __ATOMIC_ACQ_REL)

/* Weak: may fail without a reason; call it in a loop.  *expected is refreshed on failure. */
#define weir__cas_relaxed(p, expected, desired)                                                    \
    __atomic_compare_exchange_n((p), (expected), (desired), 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED)
#define weir__cas_acq_rel(p, expected, desired)                                                    \
    __atomic_compare_exchange_n((p), (expected), (desired), 1, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)

/* A cache line on every machine this is built for; two of them share a prefetch pair on x86. */
#define WEIR__CACHE_LINE 64

#endif
