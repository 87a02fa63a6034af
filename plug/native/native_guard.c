/* SPDX-License-Identifier: Apache-2.0
 *
 * The threads that may be inside a heap.
 */
#include "native_guard.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

_Thread_local struct native_reader *native_reader;

static _Atomic(struct native_reader *) readers;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static atomic_bool has_key, has_barrier;

/* Gives up a thread's reader. If destructors that run after this one free memory, the thread takes another. */
static void give_up(void *reader)
{
	native_reader = NULL;
	atomic_store(&((struct native_reader *)reader)->owned, 0);
}

static void begin(void)
{
	atomic_store(&has_key, pthread_key_create(&key, give_up) == 0);
	atomic_store(&has_barrier, syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0);
}

static struct native_reader *find_unowned(void)
{
	for (struct native_reader *r = atomic_load(&readers); r; r = r->next) {
		int owned = 0;
		if (atomic_compare_exchange_strong(&r->owned, &owned, 1))
			return r;
	}
	return NULL;
}

static struct native_reader *make(void)
{
	struct native_reader *r = calloc(1, sizeof *r);
	if (!r)
		return NULL;
	atomic_store(&r->owned, 1);
	r->next = atomic_load(&readers);
	while (!atomic_compare_exchange_weak(&readers, &r->next, r)) {}
	return r;
}

struct native_reader *native_reader_get(void)
{
	pthread_once(&once, begin);
	struct native_reader *r = find_unowned();
	if (!r)
		r = make();
	if (r && atomic_load(&has_key))
		pthread_setspecific(key, r);
	native_reader = r;
	return r;
}

void native_wait_for_readers(void)
{
	if (!atomic_load(&has_barrier) || syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0)
		usleep(1000);  /* long enough for other threads' stores to be seen */
	for (struct native_reader *r = atomic_load(&readers); r; r = r->next)
		while (r != native_reader && atomic_load_explicit(&r->inside, memory_order_acquire) > 0)
			sched_yield();
}
