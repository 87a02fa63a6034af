/* SPDX-License-Identifier: Apache-2.0
 *
 * Keeps a heap from being closed while a thread is inside one of its calls: one thread may reset a device while others
 * allocate. Entering costs one store, without a barrier: a thread that closes a heap asks the kernel for that. A thread
 * inside is not cancelled.
 */
#ifndef TRZ_NATIVE_GUARD_H
#define TRZ_NATIVE_GUARD_H

#include <stdatomic.h>

#include "base/uncancelled.h"

struct native_reader {
	atomic_int inside;            /* calls, nested ones included */
	atomic_int owned;             /* 1: a thread has it */
	int cancel;                   /* whether it could be cancelled before the outermost call */
	struct native_reader *next;   /* constant; readers are never freed */
};

extern _Thread_local struct native_reader *native_reader;

/* Gives the thread a reader, on its first call. NULL: no host memory. */
struct native_reader *native_reader_get(void);

static inline void native_enter(void)
{
	struct native_reader *r = native_reader ? native_reader : native_reader_get();
	if (r) {
		int inside = atomic_load_explicit(&r->inside, memory_order_relaxed);
		if (inside == 0)
			r->cancel = uncancelled_begin();
		atomic_store_explicit(&r->inside, inside + 1, memory_order_relaxed);
	}
	atomic_signal_fence(memory_order_seq_cst);
}

static inline void native_leave(void)
{
	struct native_reader *r = native_reader;
	if (r) {
		int inside = atomic_load_explicit(&r->inside, memory_order_relaxed) - 1;
		atomic_store_explicit(&r->inside, inside, memory_order_release);
		if (inside == 0)
			uncancelled_end(r->cancel);
	}
}

/* Waits until every other thread has left the calls that it was in. */
void native_wait_for_readers(void);

#endif
