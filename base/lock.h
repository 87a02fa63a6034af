/* SPDX-License-Identifier: Apache-2.0
 *
 * Two locks. `spinlock` guards sections of some tens of nanoseconds that make no call which can block; it is
 * taken on every allocation, so an uncontended pair is one atomic exchange and one store. It can also be *kept*: until
 * it is let go, a thread that finds it kept does not wait, but goes another way. `lock` (a POSIX mutex) guards sections
 * that may last as long as the driver likes.
 *
 * Threads that do nothing but take one spinlock slow each other down: what it guards travels between processors each
 * time. The lock's count of takes gives them away: a thread that has to wait again and again, with only a few takes in
 * between, makes way, that is, sleeps for a while and lets the other one work undisturbed. The thread that made way
 * last waits longer before it does so again, so they take turns. Threads that come to a lock only now and then, with
 * work of their own in between, must not sleep for each other, though they too meet there every dozen takes: for an
 * `occasional` lock it takes more waits, with fewer takes in between.
 */
#ifndef TRZ_BASE_LOCK_H
#define TRZ_BASE_LOCK_H

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* In builds with assertions a lock remembers its holder, by the address of a thread-local variable, so that functions
 * that need the lock can assert it. NULL: no holder. */
#ifndef NDEBUG
typedef _Atomic(const char *) lock_owner;

extern _Thread_local char lock_thread;

static inline bool lock_is_mine(const lock_owner *owner)
{
	return atomic_load_explicit(owner, memory_order_relaxed) == &lock_thread;
}

#define LOCK_OWN(owner) atomic_store_explicit(owner, &lock_thread, memory_order_relaxed)
#define LOCK_DISOWN(owner) atomic_store_explicit(owner, NULL, memory_order_relaxed)
#else
#define LOCK_OWN(owner) ((void)0)
#define LOCK_DISOWN(owner) ((void)0)
#endif

enum spinlock_state { SPINLOCK_FREE, SPINLOCK_HELD, SPINLOCK_KEPT };

struct spinlock {
	atomic_uchar state;                    /* enum spinlock_state */
	bool occasional;                       /* constant */
	atomic_uint takes;                     /* by spinlock_take; changes while it is held; wraps around */
	_Atomic(const void *) made_way;        /* the thread that made way last */
#ifndef NDEBUG
	lock_owner owner;
#endif
};

static inline void spinlock_init(struct spinlock *l)
{
	atomic_init(&l->state, SPINLOCK_FREE);
	LOCK_DISOWN(&l->owner);
}

#ifndef NDEBUG
/* Whether this thread holds it. */
static inline bool spinlock_is_mine(const struct spinlock *l)
{
	return lock_is_mine(&l->owner);
}
#endif

/* A thread's waits for spinlocks. */
struct spinlock_waits {
	const struct spinlock *lock;           /* the lock of its last wait */
	unsigned takes, streak;                /* that lock's takes then; waits in a row with few takes in between */
};

/* Whether a thread that has to wait now, after so many takes of the lock, makes way; notes the wait. */
bool spinlock_makes_way(struct spinlock *l, unsigned takes, struct spinlock_waits *own);

/* Takes a lock that another thread holds: makes way, or spins a little, then sleeps in growing steps. So a preempted
 * holder gets its processor back, and no priority is inverted for longer than a time slice. `takes` as above. false:
 * the lock is kept. */
bool spinlock_wait(struct spinlock *l, unsigned takes);

/* For threads that wait for something other than a lock; less than a second. */
void thread_sleep(long ns);

/* Gives the lock up for long enough that a waiting thread gets it, and takes it again. */
void spinlock_rest(struct spinlock *l);

/* Builds with TRZ_HEAP_CHECKS count the work under one hold, in steps of a walk or a change, so that tests can bound
 * it. */
#ifdef TRZ_HEAP_CHECKS
extern _Thread_local unsigned spinlock_steps;  /* of this thread's current hold */
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

/* Takes the lock if it is free; does not count the take. Reads the state first: an exchange that fails costs as much as
 * one that succeeds, and takes the holder's cache line away. */
static inline bool spinlock_try(struct spinlock *l)
{
	unsigned char state = atomic_load_explicit(&l->state, memory_order_relaxed);
	assert(!spinlock_is_mine(l));
	if (__builtin_expect(state != SPINLOCK_FREE || !atomic_compare_exchange_strong_explicit(
	                                                   &l->state, &state, SPINLOCK_HELD, memory_order_acquire,
	                                                   memory_order_relaxed), 0))
		return false;
	LOCK_OWN(&l->owner);
	return true;
}

/* Takes a lock that nobody keeps. */
static inline void spinlock_take(struct spinlock *l)
{
	if (__builtin_expect(!spinlock_try(l), 0))
		spinlock_wait(l, atomic_load_explicit(&l->takes, memory_order_relaxed));
	atomic_store_explicit(&l->takes, atomic_load_explicit(&l->takes, memory_order_relaxed) + 1, memory_order_relaxed);
}

static inline void spinlock_give(struct spinlock *l)
{
	assert(spinlock_is_mine(l));
	SPINLOCK_END_HOLD();
	LOCK_DISOWN(&l->owner);
	atomic_store_explicit(&l->state, SPINLOCK_FREE, memory_order_release);
}

/* Waits for a lock that is not kept, and keeps it. Does not make way, since the thread may hold another lock that
 * others wait for. */
void spinlock_keep(struct spinlock *l);

static inline bool spinlock_is_kept(const struct spinlock *l)
{
	return atomic_load_explicit(&l->state, memory_order_acquire) == SPINLOCK_KEPT;
}

/* Frees a kept lock. Any thread that is ordered after the keeper may do so. */
static inline void spinlock_let_go(struct spinlock *l)
{
	assert(spinlock_is_kept(l));
	atomic_store_explicit(&l->state, SPINLOCK_FREE, memory_order_release);
}

#endif
