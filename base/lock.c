/* SPDX-License-Identifier: Apache-2.0
 *
 * The contended half of the spinlock.
 */
#include "lock.h"

#include <time.h>

enum {
	REST_SPINS = 64,            /* longer than a waiting processor takes to see that the lock is free */
	SPINS_MAX = 200,            /* about the length of the longest section that the lock guards */
	SLEEP_NS_FIRST = 2000,
	SLEEP_NS_MAX = 100000,
	WAY_NS = 50000,             /* about a thousand sections */
	STREAK_AGAIN = 16           /* waits in a row after which the thread that made way last does so again */
};

/* A thread makes way after this many waits in a row, each with fewer than this many takes since the wait before. */
struct patience {
	unsigned takes, waits;
};

static const struct patience always = {32, 4}, occasional = {8, 8};

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

bool spinlock_makes_way(struct spinlock *l, unsigned takes, struct spinlock_waits *own)
{
	const struct patience *p = l->occasional ? &occasional : &always;
	bool soon = own->lock == l && takes - own->takes < p->takes;
	bool again = atomic_load_explicit(&l->made_way, memory_order_relaxed) == own;
	*own = (struct spinlock_waits){l, takes, soon ? own->streak + 1 : 0};
	if (own->streak < (again ? STREAK_AGAIN : p->waits))
		return false;
	atomic_store_explicit(&l->made_way, own, memory_order_relaxed);
	own->streak = 0;
	return true;
}

void thread_sleep(long ns)
{
	nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

/* Spins until the lock is free, and makes it held or kept; false: it is kept. */
static bool spin(struct spinlock *l, unsigned char wanted)
{
	long sleep_ns = SLEEP_NS_FIRST;
	for (;;) {
		for (int i = 0; i < SPINS_MAX; i++) {
			unsigned char state = atomic_load_explicit(&l->state, memory_order_relaxed);
			if (state == SPINLOCK_KEPT)
				return false;
			if (state == SPINLOCK_FREE && atomic_compare_exchange_strong_explicit(
			                                  &l->state, &state, wanted, memory_order_acquire, memory_order_relaxed))
				return true;
			cpu_relax();
		}
		thread_sleep(sleep_ns);
		if (sleep_ns < SLEEP_NS_MAX)
			sleep_ns *= 2;
	}
}

bool spinlock_wait(struct spinlock *l, unsigned takes)
{
	static _Thread_local struct spinlock_waits own;
	if (spinlock_is_kept(l))
		return false;
	if (spinlock_makes_way(l, takes, &own))
		thread_sleep(WAY_NS);
	if (!spin(l, SPINLOCK_HELD))
		return false;
	LOCK_OWN(&l->owner);
	return true;
}

void spinlock_keep(struct spinlock *l)
{
	assert(!spinlock_is_kept(l));
	spin(l, SPINLOCK_KEPT);
}
