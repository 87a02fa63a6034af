/* SPDX-License-Identifier: Apache-2.0
 *
 * Two locks. `spinlock` guards sections of some tens of nanoseconds that make no call which can block; it is
 * taken on every allocation, so an uncontended pair is at most one atomic exchange and one store. It can also be
 * *kept*: until it is let go, a thread that finds it kept does not wait, but goes another way. `lock` (a POSIX mutex)
 * guards sections that may last as long as the driver likes.
 *
 * Threads that do nothing but take one spinlock slow each other down: what it guards travels between processors each
 * time. The lock's count of takes gives them away: a thread that has to wait again and again, with only a few takes in
 * between, makes way, that is, sleeps for a while and lets the other one work undisturbed. The thread that made way
 * last waits longer before it does so again, so they take turns. Threads that come to a lock only now and then, with
 * work of their own in between, must not sleep for each other, though they too meet there every dozen takes: for an
 * `occasional` lock it takes more waits, with fewer takes in between.
 *
 * A lock that one thread keeps and lets go many times, with no other in between, becomes *biased* to it (Kawachiya et
 * al., OOPSLA 2002): the thread then takes and gives it by plain stores, without an atomic exchange, which costs as
 * much as all else in its section. Another thread that wants the lock ends the bias: it changes the state, has
 * membarrier(2) put a barrier into every running thread, so that the owner either sees the new state or is seen to be
 * inside, and waits while it is inside. That costs some microseconds, so it happens BIASES times in a lock's life at
 * most, each after a longer time than the one before. Each bias has a flag of its own, since a thread that was stopped
 * between its two looks at the state may write to its flag long after the bias has ended.
 */
#ifndef TRZ_BASE_LOCK_H
#define TRZ_BASE_LOCK_H

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

/* A state of BIAS_FIRST or more is that of a biased lock: the owner's thread pointer plus the number of the bias. */
enum { SPINLOCK_FREE, SPINLOCK_HELD, SPINLOCK_KEPT, BIAS_FIRST };
enum { BIASES = 8 };

/* What has no atomic type here belongs to the holder, or to the keeper. Invariants: no flag of `inside` but that of the
 * present bias, or of one that is being ended, keeps a thread out; `freed` is FREE or the state of a bias that nobody
 * has ended. */
struct spinlock {
	_Atomic uintptr_t state;
	atomic_bool inside[BIASES];            /* whether the owner of such a bias holds the lock */
	uint8_t hold;                          /* the bias by which it is held; BIASES: by its state */
	uint8_t biases;                        /* begun so far */
	bool occasional;                       /* constant */
	uint32_t streak;                       /* how often in a row the same thread has let it go ... */
	uintptr_t last;                        /* ... and which */
	uintptr_t freed;                       /* what `state` becomes when the lock is free again */
	atomic_uint takes;                     /* by spinlock_take; changes while it is held; wraps around */
	_Atomic(const void *) made_way;        /* the thread that made way last */
#ifndef NDEBUG
	lock_owner owner;
#endif
};

#ifdef __has_feature
#define LOCK_HAS_FEATURE(name) __has_feature(name)
#else
#define LOCK_HAS_FEATURE(name) 0
#endif

/* A number that no other live thread has; 0: not known here, or a tool watches that does not know of membarrier. */
static inline uintptr_t thread_pointer(void)
{
	uintptr_t pointer = 0;
#if defined(__SANITIZE_THREAD__) || LOCK_HAS_FEATURE(thread_sanitizer)
#elif defined(__x86_64__) && defined(__linux__)
	__asm__("movq %%fs:0, %0" : "=r"(pointer));
#elif defined(__aarch64__) && defined(__linux__)
	__asm__("mrs %0, tpidr_el0" : "=r"(pointer));
#endif
	return pointer;
}

/* The number of this thread's bias, if the state is of one; BIASES or more: it is not. */
static inline uintptr_t spinlock_own_bias(uintptr_t state)
{
	return state - thread_pointer() - BIAS_FIRST;
}

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

/* Takes the lock if its state is FREE. Reads the state first: an exchange that fails costs as much as one that
 * succeeds, and takes the holder's cache line away. */
static inline bool spinlock_exchange(struct spinlock *l, uintptr_t state)
{
	if (__builtin_expect(state != SPINLOCK_FREE || !atomic_compare_exchange_strong_explicit(
	                                                   &l->state, &state, SPINLOCK_HELD, memory_order_acquire,
	                                                   memory_order_relaxed), 0))
		return false;
	l->hold = BIASES;
	return true;
}

/* Takes the lock if it is free, or biased to this thread; does not count the take. */
static inline bool spinlock_try(struct spinlock *l)
{
	assert(!spinlock_is_mine(l));
	uintptr_t state = atomic_load_explicit(&l->state, memory_order_acquire);
	uintptr_t bias = spinlock_own_bias(state);
	if (bias < BIASES) {
		atomic_store_explicit(&l->inside[bias], true, memory_order_relaxed);
		atomic_signal_fence(memory_order_seq_cst);  /* with the membarrier of who ends the bias a full one */
		if (__builtin_expect(atomic_load_explicit(&l->state, memory_order_acquire) != state, 0)) {
			atomic_store_explicit(&l->inside[bias], false, memory_order_release);
			return false;
		}
		l->hold = (uint8_t)bias;
	} else if (__builtin_expect(!spinlock_exchange(l, state), 0)) {
		return false;
	}
	LOCK_OWN(&l->owner);
	return true;
}

/* Takes a lock that nobody keeps, and which is therefore never biased. */
static inline void spinlock_take(struct spinlock *l)
{
	assert(!spinlock_is_mine(l));
	if (__builtin_expect(!spinlock_exchange(l, atomic_load_explicit(&l->state, memory_order_relaxed)), 0))
		spinlock_wait(l, atomic_load_explicit(&l->takes, memory_order_relaxed));
	LOCK_OWN(&l->owner);
	atomic_store_explicit(&l->takes, atomic_load_explicit(&l->takes, memory_order_relaxed) + 1, memory_order_relaxed);
}

static inline void spinlock_give(struct spinlock *l)
{
	assert(spinlock_is_mine(l));
	SPINLOCK_END_HOLD();
	LOCK_DISOWN(&l->owner);
	if (l->hold < BIASES)
		atomic_store_explicit(&l->inside[l->hold], false, memory_order_release);
	else
		atomic_store_explicit(&l->state, l->freed, memory_order_release);
}

/* Makes biases possible in this process, where the system allows; else locks are never biased. Any thread, any number
 * of times; the first may take some 10 ms if the program has several threads. */
void spinlock_allow_biases(void);

/* Waits for a lock that is not kept, and keeps it. Does not make way, since the thread may hold another lock that
 * others wait for. */
void spinlock_keep(struct spinlock *l);

static inline bool spinlock_is_kept(const struct spinlock *l)
{
	return atomic_load_explicit(&l->state, memory_order_acquire) == SPINLOCK_KEPT;
}

/* Frees a kept lock. Any thread that is ordered after the keeper may do so. One that has done so often, with no other
 * in between, gets the lock biased to it. */
void spinlock_let_go(struct spinlock *l);

#endif
