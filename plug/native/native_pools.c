/* SPDX-License-Identifier: Apache-2.0
 *
 * The device's default pool, as its heap serves it: what the pool's attributes say, and trimming.
 */
#include "native.h"

enum { RESERVED_CURRENT = 5, RESERVED_HIGH = 6, USED_CURRENT = 7, USED_HIGH = 8 };  /* CU_MEMPOOL_ATTR_* */

enum { UNIT = 512 };  /* sizes in pools are multiples of it */

static size_t rounded(size_t size)
{
	return (size + UNIT - 1) / UNIT * UNIT;
}

void native_pool_take(struct native_heap *heap, size_t size)
{
	size_t now = atomic_fetch_add_explicit(&heap->async, rounded(size), memory_order_relaxed) + rounded(size);
	size_t most = atomic_load_explicit(&heap->async_most, memory_order_relaxed);
	while (now > most && !atomic_compare_exchange_weak(&heap->async_most, &most, now)) {}
}

void native_pool_give(struct native_heap *heap, const trz_pointer_info *info)
{
	if (info->stream != heap->host)
		atomic_fetch_sub_explicit(&heap->async, rounded(info->requested), memory_order_relaxed);
}

/* What is done with each heap of a device, one for each of its contexts, when the program names the device's default
 * pool. */
struct request {
	const void *pool;
	void (*act)(struct native_heap *heap, const struct request *request);
	size_t keep;
	int attribute;
	uint64_t *bytes;
	const struct cuda_mem_access *access;
	size_t count;
};

static void act_if_of_pool(struct native_heap *heap, void *argument)
{
	const struct request *r = argument;
	if (heap->pool == r->pool)
		r->act(heap, r);
}

static void act_on_pool(struct request request)
{
	if (!request.pool)
		return;
	native_enter();
	native_each(act_if_of_pool, &request);
	native_leave();
}

static void trim(struct native_heap *h, const struct request *r)
{
	trz_trim(h->heap, r->keep, NULL);
}

void native_pool_trim(void *pool, size_t keep)
{
	act_on_pool((struct request){.pool = pool, .act = trim, .keep = keep});
}

static size_t larger(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* What is reserved now: while memory is free, nothing tells whether it was reserved for streams or for cuMemAlloc, so
 * all of it counts. The most is noted when it is asked for: what was there between two questions is not known. */
static size_t reserved_now(struct native_heap *h)
{
	size_t now = atomic_load(&h->async) + native_cached(h);
	size_t most = atomic_load(&h->reserved_before);
	while (now > most && !atomic_compare_exchange_weak(&h->reserved_before, &most, now)) {}
	return now;
}

static void add(struct native_heap *h, const struct request *r)
{
	size_t most = larger(atomic_load(&h->async), atomic_load(&h->async_most)), now = reserved_now(h);
	switch (r->attribute) {
	case USED_CURRENT:
		*r->bytes += atomic_load(&h->async);
		break;
	case USED_HIGH:
		*r->bytes += larger(most, atomic_load(&h->used_before));
		break;
	case RESERVED_CURRENT:
		*r->bytes += now;
		break;
	case RESERVED_HIGH:
		*r->bytes += larger(most, atomic_load(&h->reserved_before));
		break;
	}
}

void native_pool_add(void *pool, int attribute, void *value)
{
	if (attribute >= RESERVED_CURRENT && attribute <= USED_HIGH)
		act_on_pool((struct request){.pool = pool, .act = add, .attribute = attribute, .bytes = value});
}

static void open_to(struct native_heap *h, const struct request *r)
{
	for (size_t i = 0; i < r->count; i++)
		if (r->access[i].flags == TRZ_CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			trz_enable_peer(h->heap, r->access[i].location.id, true);
}

void native_pool_open(void *pool, const struct cuda_mem_access *access, size_t count)
{
	act_on_pool((struct request){.pool = pool, .act = open_to, .access = access, .count = count});
}

void native_open_to_current(void *context)
{
	cuda_device device;
	if (!native_load() || native_driver.cuCtxGetDevice(&device) != TRZ_CUDA_SUCCESS)
		return;
	native_enter();
	struct native_heap *h = native_of_context(context);
	if (h)
		trz_enable_peer(h->heap, device, true);
	native_leave();
}

/* Sets one peak to what is allocated now; the other one stays. */
static void reset_peak(struct native_heap *h, atomic_size_t *own_before, atomic_size_t *other_before)
{
	size_t most = atomic_exchange(&h->async_most, atomic_load(&h->async));
	atomic_store(own_before, 0);
	atomic_store(other_before, larger(most, atomic_load(other_before)));
}

static void reset(struct native_heap *h, const struct request *r)
{
	if (r->attribute == USED_HIGH)
		reset_peak(h, &h->used_before, &h->reserved_before);
	else if (r->attribute == RESERVED_HIGH)
		reset_peak(h, &h->reserved_before, &h->used_before);
}

void native_pool_reset(void *pool, int attribute)
{
	act_on_pool((struct request){.pool = pool, .act = reset, .attribute = attribute});
}
