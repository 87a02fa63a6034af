/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of open heaps, also in a child made by fork().
 */
#include "api/init.h"

#include "serve/serve.h"

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static trz_heap *open_heaps;

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
	for (trz_heap *h = open_heaps; h; h = h->next_open) {
		atomic_store_explicit(&h->inherited, true, memory_order_relaxed);
		atomic_store_explicit(&h->watched, true, memory_order_relaxed);
	}
	open_heaps = NULL;
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
	h->next_open = open_heaps;
	open_heaps = h;
	pthread_mutex_unlock(&list_lock);
}

void init_remove_heap(trz_heap *h)
{
	pthread_mutex_lock(&list_lock);
	trz_heap **link = &open_heaps;
	while (*link != h)
		link = &(*link)->next_open;
	*link = h->next_open;
	pthread_mutex_unlock(&list_lock);
}

void init_each_heap(void (*function)(trz_heap *h, void *arg), void *arg)
{
	pthread_mutex_lock(&list_lock);
	for (trz_heap *h = open_heaps; h; h = h->next_open)
		function(h, arg);
	pthread_mutex_unlock(&list_lock);
}

bool init_find_owner(const trz_heap *but, const void *address, int *device)
{
	bool found = false;
	pthread_mutex_lock(&list_lock);
	for (trz_heap *h = open_heaps; h && !found; h = h->next_open) {
		trz_pointer_info info;
		found = h != but && serve_query(h, (trz_addr)address, &info);
		if (found)
			*device = info.device;
	}
	pthread_mutex_unlock(&list_lock);
	return found;
}
