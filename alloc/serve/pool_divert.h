/* SPDX-License-Identifier: Apache-2.0
 *
 * Diversions: which allocations go to a private pool without naming it. One takes those of a thread, those whose
 * stream a filter accepts, or those of the streams of a capture. The newest one that applies wins.
 */
#ifndef TRZ_ALLOC_POOL_DIVERT_H
#define TRZ_ALLOC_POOL_DIVERT_H

#include "heap/heap.h"

/* Invariant: exactly one of `thread`, `filter` and `captured` says what is taken. */
struct diversion {
	struct diversion *next;      /* an older one */
	struct pool *pool;
	uint64_t owner;              /* the number of the thread that began it */
	bool thread;                 /* takes that thread's allocations */
	trz_pool_filter *filter;
	void *user;
	bool captured;               /* takes allocations on streams that are in one capture with `stream` */
	trz_stream stream;
};

/* The pool that an allocation of this thread on a stream goes to, with a reference for the caller; NULL: the default
 * one. May call the driver and filters, with no lock of the heap held but that of the list of diversions. Errors: the
 * driver's, if it cannot say which capture a stream is in, since no other pool's memory will do. */
trz_status pool_divert(trz_heap *h, trz_stream stream, const struct capture *capture, struct pool **out);

/* Begins a diversion that takes what `d`, which is copied, says. HOST_MEMORY, NOT_PERMITTED. */
trz_status pool_divert_begin(trz_heap *h, const struct diversion *d);

/* Ends the newest one to `p` that this thread began, else the newest one to it. NOT_FOUND: there is none. */
trz_status pool_divert_end(trz_heap *h, const struct pool *p);

/* Whether any diversion is under way. Takes no lock. */
static inline bool pool_diverting(const trz_heap *h)
{
	return atomic_load_explicit(&h->diverting, memory_order_acquire) != 0;
}

#endif
