/* SPDX-License-Identifier: Apache-2.0
 *
 * Keeps a heap from being closed under a thread that is inside one of its calls: a device may be reset by one thread
 * while others allocate. To enter costs a store; who closes asks the kernel for the barrier that the store lacks.
 */
#ifndef TRZ_NATIVE_GUARD_H
#define TRZ_NATIVE_GUARD_H

#include <stdatomic.h>

struct native_reader {
	atomic_int inside;            /* calls, nested ones included */
	atomic_int owned;             /* a thread has it */
	struct native_reader *next;   /* constant; none is ever given back */
};

extern _Thread_local struct native_reader *native_reader;

/* The thread's own, on its first call. NULL: no host memory. */
struct native_reader *native_reader_get(void);

static inline void native_enter(void)
{
	struct native_reader *r = native_reader ? native_reader : native_reader_get();
	if (r)
		atomic_store_explicit(&r->inside, atomic_load_explicit(&r->inside, memory_order_relaxed) + 1,
		                      memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
}

static inline void native_leave(void)
{
	struct native_reader *r = native_reader;
	if (r)
		atomic_store_explicit(&r->inside, atomic_load_explicit(&r->inside, memory_order_relaxed) - 1,
		                      memory_order_release);
}

/* Waits until every other thread has left the calls that it was in. */
void native_wait_for_readers(void);

#endif
