/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of open heaps, also in a child made by fork().
 */
#include "api/init.h"

#include <sched.h>

#include "serve/uses.h"

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(trz_heap *) open_heaps;

/* Walks take no lock: all threads report the program's events by one. A heap leaves the list first, and then
 * waits for the walks that may have seen it: each counts itself before it reads the list. */
static atomic_uint walks;

static void before_fork(void)
{
	pthread_mutex_lock(&list_lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&list_lock);
}

static void in_child(void)
{
	for (trz_heap *h = atomic_load(&open_heaps); h; h = atomic_load(&h->next_open)) {
		atomic_store_explicit(&h->inherited, true, memory_order_relaxed);
		atomic_store_explicit(&h->watched, true, memory_order_relaxed);
	}
	atomic_store(&open_heaps, NULL);
	atomic_store(&walks, 0);  /* those of threads that the child has not */
	after_fork();
}

static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork, in_child);
}

void init_add_heap(trz_heap *h)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, watch_forks);
	pthread_mutex_lock(&list_lock);
	atomic_store(&h->next_open, atomic_load(&open_heaps));
	atomic_store(&open_heaps, h);
	pthread_mutex_unlock(&list_lock);
	heap_lock(h);
	clocks_start(&h->clocks);
	heap_unlock(h);
}

void init_remove_heap(trz_heap *h)
{
	pthread_mutex_lock(&list_lock);
	_Atomic(trz_heap *) *link = &open_heaps;
	while (atomic_load(link) != h)
		link = &atomic_load(link)->next_open;
	atomic_store(link, atomic_load(&h->next_open));
	pthread_mutex_unlock(&list_lock);
	while (atomic_load(&walks))
		sched_yield();
}

void init_each_heap(void (*function)(trz_heap *h, void *arg), void *arg)
{
	atomic_fetch_add(&walks, 1);
	for (trz_heap *h = atomic_load(&open_heaps); h; h = atomic_load(&h->next_open))
		function(h, arg);
	atomic_fetch_sub(&walks, 1);
}

struct search {
	const trz_heap *but;
	const void *address;
	int *device;
	bool found;
};

static void look(trz_heap *h, void *arg)
{
	struct search *s = arg;
	trz_pointer_info info;
	if (s->found || h == s->but || !uses_query(h, (trz_addr)s->address, &info))
		return;
	s->found = true;
	*s->device = info.device;
}

bool init_find_owner(const trz_heap *but, const void *address, int *device)
{
	struct search s = {.but = but, .address = address, .device = device};
	init_each_heap(look, &s);
	return s.found;
}
