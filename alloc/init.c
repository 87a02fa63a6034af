/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of open heaps.
 */
#include "init.h"

#include "serve.h"

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static trz_heap *open_heaps;

void init_add_heap(trz_heap *h)
{
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
