/* SPDX-License-Identifier: Apache-2.0
 *
 * What was freed while a stream was being captured, by threads that may free then. A free has to wait, which would
 * break the capture, so the wait comes when no capture is under way.
 */
#include "native.h"

#include <pthread.h>
#include <stdlib.h>

struct native_late {
	struct native_late *next;
	void *ptr;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

bool native_late_add(struct native_heap *h, void *ptr)
{
	struct native_late *added = malloc(sizeof *added), *l;
	if (!added)
		return false;
	pthread_mutex_lock(&lock);
	for (l = h->late; l && l->ptr != ptr; l = l->next)
		continue;
	if (!l) {
		*added = (struct native_late){h->late, ptr};
		h->late = added;
	}
	pthread_mutex_unlock(&lock);
	if (l)
		free(added);
	return !l;
}

static struct native_late *exchange(struct native_heap *h, struct native_late *with)
{
	pthread_mutex_lock(&lock);
	struct native_late *all = h->late;
	h->late = with;
	pthread_mutex_unlock(&lock);
	return all;
}

static void end(struct native_heap *h, struct native_late *l, bool give_back)
{
	for (struct native_late *next; l; l = next) {
		next = l->next;
		if (give_back)
			trz_free_on(h->heap, l->ptr, h->host);
		free(l);
	}
}

void native_late_settle(struct native_heap *h, cuda_result (*wait)(struct native_heap *h))
{
	if (!atomic_load_explicit(&h->late, memory_order_relaxed))
		return;
	struct native_late *all = exchange(h, NULL), *last = all;
	if (!all)
		return;
	if (wait(h) == TRZ_CUDA_SUCCESS) {
		end(h, all, true);
		return;
	}
	/* A capture has begun: put them back. */
	while (last->next)
		last = last->next;
	pthread_mutex_lock(&lock);
	last->next = h->late;
	h->late = all;
	pthread_mutex_unlock(&lock);
}

void native_late_forget(struct native_heap *h)
{
	end(h, exchange(h, NULL), false);
}
