/* SPDX-License-Identifier: Apache-2.0
 *
 * The contended half of the spinlock, and the ends of biases.
 */
#include "lock.h"

#include <time.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "uncancelled.h"

enum {
	REST_SPINS = 64,            /* longer than a waiting processor takes to see that the lock is free */
	SPINS_MAX = 200,            /* about the length of the longest section that the lock guards */
	SLEEP_NS_FIRST = 2000,
	SLEEP_NS_MAX = 100000,
	WAY_NS = 50000,             /* about a thousand sections */
	STREAK_AGAIN = 16,          /* waits in a row after which the thread that made way last does so again */
	FIRST_STREAK = 4,
	BLIND_NS = 1000000          /* if membarrier is forbidden meanwhile: longer than any store stays unseen */
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
	int cancel = uncancelled_begin();
	nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
	uncancelled_end(cancel);
}

/* ---- biases ---- */

/* From linux/membarrier.h, which older systems lack. */
enum { BARRIER_PRIVATE = 1 << 3, BARRIER_REGISTER_PRIVATE = 1 << 4 };

static atomic_bool biases_allowed;

static bool membarrier(int command)
{
#if defined(__linux__) && defined(SYS_membarrier)
	return syscall(SYS_membarrier, command, 0, 0) == 0;
#else
	(void)command;
	return false;
#endif
}

void spinlock_allow_biases(void)
{
	bool allowed = thread_pointer() && membarrier(BARRIER_REGISTER_PRIVATE);
	atomic_store_explicit(&biases_allowed, allowed, memory_order_relaxed);
}

/* Bits of a thread pointer that are 0, so that the number of a bias can be added. */
enum { POINTER_STEP = 16 };

/* Waits until the owner of a bias, whose lock has another state by now, is not inside. */
static void wait_for_owner(struct spinlock *l, unsigned bias)
{
	if (!membarrier(BARRIER_PRIVATE))
		thread_sleep(BLIND_NS);
	for (unsigned i = 1; atomic_load_explicit(&l->inside[bias], memory_order_acquire); i++) {
		cpu_relax();
		if (i % SPINS_MAX == 0)
			thread_sleep(SLEEP_NS_FIRST);
	}
}

/* Makes a lock in this state, a biased one, held; false: the state has changed. A bias that its own thread interrupts
 * comes back when the lock is free again. */
static bool end_bias(struct spinlock *l, uintptr_t state)
{
	if (!atomic_compare_exchange_strong_explicit(&l->state, &state, SPINLOCK_HELD, memory_order_seq_cst,
	                                             memory_order_relaxed))
		return false;
	bool own = spinlock_own_bias(state) < BIASES;
	if (!own)
		wait_for_owner(l, (state - BIAS_FIRST) % POINTER_STEP);
	l->hold = BIASES;
	l->freed = own ? state : SPINLOCK_FREE;
	l->streak = own ? l->streak : 0;
	return true;
}

/* How often in a row a thread lets a lock go before it gets its next bias. */
static unsigned streak_wanted(unsigned biases)
{
	return (unsigned)FIRST_STREAK << 2 * biases;
}

/* Notes who lets the lock go. */
static void note_thread(struct spinlock *l)
{
	uintptr_t me = thread_pointer();
	l->streak = l->last == me ? l->streak + 1 : 0;
	l->last = me;
	if (l->freed == SPINLOCK_FREE && l->biases < BIASES && l->streak >= streak_wanted(l->biases) &&
	    me % POINTER_STEP == 0 && atomic_load_explicit(&biases_allowed, memory_order_relaxed))
		l->freed = me + BIAS_FIRST + l->biases++;
}

void spinlock_let_go(struct spinlock *l)
{
	assert(spinlock_is_kept(l));
	note_thread(l);
	atomic_store_explicit(&l->state, l->freed, memory_order_release);
}

/* ---- waiting ---- */

/* Tries to make a lock that was last seen in this state held. */
static bool take_now(struct spinlock *l, uintptr_t state)
{
	if (state >= BIAS_FIRST)
		return end_bias(l, state);
	return spinlock_exchange(l, state);
}

/* Spins until the lock can be taken; false: it is kept. */
static bool spin(struct spinlock *l)
{
	long sleep_ns = SLEEP_NS_FIRST;
	for (;;) {
		for (int i = 0; i < SPINS_MAX; i++) {
			uintptr_t state = atomic_load_explicit(&l->state, memory_order_relaxed);
			if (state == SPINLOCK_KEPT)
				return false;
			if (take_now(l, state))
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
	if (!spin(l))
		return false;
	LOCK_OWN(&l->owner);
	return true;
}

void spinlock_keep(struct spinlock *l)
{
	assert(!spinlock_is_kept(l));
	spin(l);
	atomic_store_explicit(&l->state, SPINLOCK_KEPT, memory_order_relaxed);
}
