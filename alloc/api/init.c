/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of open heaps, also in a child made by fork().
 */
#include "api/init.h"

#include <sched.h>
#include <stdlib.h>

#include "observe/dump.h"
#include "serve/uses.h"

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(trz_heap *) open_heaps;

/* Walks take no lock, since all threads report the program's events by them. A heap first leaves the list, then begins
 * the next generation of walks, and waits for those of the generation before, which may have seen it. Walks that begin
 * meanwhile do not hold it up. Only one heap at a time does this, since there are counts for two generations. */
static atomic_uint generation, walks[2];
static pthread_mutex_t leaving = PTHREAD_MUTEX_INITIALIZER;

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
	atomic_store(&walks[0], 0);  /* they are walks of threads that the child does not have */
	atomic_store(&walks[1], 0);
	pthread_mutex_init(&leaving, NULL);
	after_fork();
}

static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork, in_child);
}

/* Programs end with heaps open: those of PyTorch, those that run preloaded. */
static void at_exit(void)
{
	trz_heap *h;
	for (uint64_t before = UINT64_MAX; (h = init_hold(before)); init_let_go(h)) {
		before = h->serial;
		dump_end(h);
	}
}

static void watch_exit(void)
{
	atexit(at_exit);
	at_quick_exit(at_exit);
}

void init_add_heap(trz_heap *h)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT, ends = PTHREAD_ONCE_INIT;
	pthread_once(&once, watch_forks);
	if (h->config.exit_snapshot[0])
		pthread_once(&ends, watch_exit);
	pthread_mutex_lock(&list_lock);
	atomic_store(&h->next_open, atomic_load(&open_heaps));
	atomic_store(&open_heaps, h);
	pthread_mutex_unlock(&list_lock);
	heap_lock(h);
	clocks_start(&h->clocks);
	heap_unlock(h);
}

/* ---- walks ---- */

/* Returns the generation, for end_walk. Once a heap that leaves has begun the next generation, no walk joins the one
 * before. */
static unsigned begin_walk(void)
{
	for (;;) {
		unsigned now = atomic_load(&generation);
		atomic_fetch_add(&walks[now % 2], 1);
		if (atomic_load(&generation) == now)
			return now;
		atomic_fetch_sub(&walks[now % 2], 1);
	}
}

static void end_walk(unsigned begun)
{
	atomic_fetch_sub(&walks[begun % 2], 1);
}

/* Yields at first, since walks are short; threads that hold a heap may take longer. */
static void wait_for_none(const atomic_uint *users)
{
	enum { YIELDS = 100, PAUSE_NS = 100000 };
	for (unsigned i = 0; atomic_load(users); i++)
		if (i < YIELDS)
			sched_yield();
		else
			thread_sleep(PAUSE_NS);
}

void init_remove_heap(trz_heap *h)
{
	pthread_mutex_lock(&list_lock);
	_Atomic(trz_heap *) *link = &open_heaps;
	while (atomic_load(link) != h)
		link = &atomic_load(link)->next_open;
	atomic_store(link, atomic_load(&h->next_open));
	pthread_mutex_unlock(&list_lock);
	pthread_mutex_lock(&leaving);
	wait_for_none(&walks[atomic_fetch_add(&generation, 1) % 2]);
	pthread_mutex_unlock(&leaving);
	wait_for_none(&h->holders);
}

void init_each_heap(void (*function)(trz_heap *h, void *arg), void *arg)
{
	unsigned begun = begin_walk();
	for (trz_heap *h = atomic_load(&open_heaps); h; h = atomic_load(&h->next_open))
		function(h, arg);
	end_walk(begun);
}

trz_heap *init_hold(uint64_t before)
{
	unsigned begun = begin_walk();
	trz_heap *newest = NULL;
	for (trz_heap *h = atomic_load(&open_heaps); h; h = atomic_load(&h->next_open))
		if (h->serial < before && (!newest || h->serial > newest->serial))
			newest = h;
	if (newest)
		atomic_fetch_add(&newest->holders, 1);
	end_walk(begun);
	return newest;
}

void init_let_go(trz_heap *h)
{
	atomic_fetch_sub(&h->holders, 1);
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
