/* SPDX-License-Identifier: Apache-2.0
 *
 * Two locks. `spinlock` guards sections of some tens of nanoseconds that make no call which can block; it is
 * taken on every allocation, so an uncontended pair is one atomic exchange and one store. `lock` (a POSIX
 * mutex) guards sections that may last as long as the driver likes.
 */
#ifndef TRZ_BASE_LOCK_H
#define TRZ_BASE_LOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct spinlock {
	atomic_bool held;
};

/* Waits for a held lock: spins a little, then sleeps in growing steps, so that a holder that lost its
 * processor gets it back and no priority is inverted for longer than a time slice. */
void spinlock_wait(struct spinlock *l);

/* Gives the lock up for long enough that somebody who waits for it gets it, and takes it again. */
void spinlock_rest(struct spinlock *l);

/* In builds with TRZ_HEAP_CHECKS the work under one hold is counted, in steps of whatever is walked or changed, so that
 * tests can bound it. */
#ifdef TRZ_HEAP_CHECKS
extern _Thread_local unsigned spinlock_steps;  /* of this thread's present hold */
extern atomic_uint spinlock_most;              /* the most of any hold since a test has set it to 0 */
void spinlock_end_hold(void);
#define SPINLOCK_STEP() ((void)spinlock_steps++)
#define SPINLOCK_FORGET() ((void)(spinlock_steps = 0))
#define SPINLOCK_END_HOLD() spinlock_end_hold()
#else
#define SPINLOCK_STEP() ((void)0)
#define SPINLOCK_FORGET() ((void)0)
#define SPINLOCK_END_HOLD() ((void)0)
#endif

static inline void spinlock_take(struct spinlock *l)
{
	if (__builtin_expect(atomic_exchange_explicit(&l->held, true, memory_order_acquire), 0))
		spinlock_wait(l);
}

static inline void spinlock_give(struct spinlock *l)
{
	SPINLOCK_END_HOLD();
	atomic_store_explicit(&l->held, false, memory_order_release);
}

#endif
