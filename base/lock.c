/* SPDX-License-Identifier: Apache-2.0
 *
 * The contended half of the spinlock.
 */
#include "lock.h"

#include <time.h>

enum {
	REST_SPINS = 64,            /* longer than it takes a waiting processor to see that the lock is free */
	SPINS_MAX = 200,            /* about the length of the longest section it guards */
	SLEEP_NS_FIRST = 2000,
	SLEEP_NS_MAX = 100000
};

static inline void cpu_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

#ifndef NDEBUG
_Thread_local char lock_thread;
#endif

#ifdef TRZ_HEAP_CHECKS
_Thread_local unsigned spinlock_steps;
atomic_uint spinlock_most;

void spinlock_end_hold(void)
{
	if (spinlock_steps > atomic_load_explicit(&spinlock_most, memory_order_relaxed))
		atomic_store_explicit(&spinlock_most, spinlock_steps, memory_order_relaxed);
	spinlock_steps = 0;
}
#endif

void spinlock_rest(struct spinlock *l)
{
	spinlock_give(l);
	for (int i = 0; i < REST_SPINS; i++)
		cpu_relax();
	spinlock_take(l);
}

void spinlock_wait(struct spinlock *l)
{
	long sleep_ns = SLEEP_NS_FIRST;
	for (;;) {
		for (int i = 0; i < SPINS_MAX; i++) {
			if (!atomic_load_explicit(&l->held, memory_order_relaxed) &&
			    !atomic_exchange_explicit(&l->held, true, memory_order_acquire))
				return;
			cpu_relax();
		}
		nanosleep(&(struct timespec){.tv_nsec = sleep_ns}, NULL);
		if (sleep_ns < SLEEP_NS_MAX)
			sleep_ns *= 2;
	}
}
