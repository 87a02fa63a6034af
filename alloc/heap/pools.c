/* SPDX-License-Identifier: Apache-2.0
 *
 * References of private pools.
 */
#include "heap/pools.h"

#include "heap/poll.h"

trz_status heap_pool_create(trz_heap *h, struct pool **out)
{
	struct pool *p = meta_alloc(&h->meta, sizeof *p);
	if (!p)
		return meta_exhausted();
	p->heap = h;
	p->users = 1;
	heap_lock(h);
	p->id = ++h->pool_ids;
	p->next = h->pools;
	h->pools = p;
	heap_unlock(h);
	*out = p;
	return TRZ_OK;
}

void heap_pool_release(trz_heap *h, struct pool *p)
{
	heap_lock(h);
	assert(p->users > 0);
	bool last = --p->users == 0;
	heap_unlock(h);
	if (!last)
		return;
	if (heap_lock_growth(h)) {
		heap_poll(h);
		heap_unlock_growth(h);
	} else {
		atomic_store_explicit(&h->poll_wanted, true, memory_order_relaxed);
	}
}
