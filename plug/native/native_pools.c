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

struct search {
	const void *pool;
	struct native_heap *found;
};

static void compare(struct native_heap *heap, void *argument)
{
	struct search *s = argument;
	if (heap->pool == s->pool)
		s->found = heap;
}

struct native_heap *native_of_pool(void *pool)
{
	struct search s = {.pool = pool};
	if (pool)
		native_each(compare, &s);
	return s.found;
}

void native_pool_trim(void *pool, size_t keep)
{
	native_enter();
	struct native_heap *h = native_of_pool(pool);
	if (h)
		trz_trim(h->heap, keep, NULL);
	native_leave();
}

static uint64_t stat(const struct native_heap *h, const char *name)
{
	uint64_t value = 0;
	trz_stat(h->heap, name, &value);
	return value;
}

static size_t larger(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* While memory is free, nothing tells whether it was reserved for streams or for cuMemAlloc, so all of it counts. */
static void add(const struct native_heap *h, int attribute, uint64_t *bytes)
{
	size_t used = atomic_load(&h->async), most = larger(used, atomic_load(&h->async_most));
	uint64_t reserved = stat(h, "reserved_bytes.all.current"), allocated = stat(h, "allocated_bytes.all.current");
	uint64_t cached = reserved > allocated ? reserved - allocated : 0;
	switch (attribute) {
	case USED_CURRENT:
		*bytes += used;
		break;
	case USED_HIGH:
		*bytes += larger(most, atomic_load(&h->used_before));
		break;
	case RESERVED_CURRENT:
		*bytes += used + cached;
		break;
	case RESERVED_HIGH:
		*bytes += larger(most, atomic_load(&h->reserved_before)) + cached;
		break;
	}
}

void native_pool_add(void *pool, int attribute, void *value)
{
	native_enter();
	const struct native_heap *h = native_of_pool(pool);
	if (h)
		add(h, attribute, value);
	native_leave();
}

void native_pool_open(void *pool, const struct cuda_mem_access *access, size_t count)
{
	native_enter();
	struct native_heap *h = native_of_pool(pool);
	for (size_t i = 0; h && i < count; i++)
		if (access[i].flags == TRZ_CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			trz_enable_peer(h->heap, access[i].location.id, true);
	native_leave();
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
static void reset(struct native_heap *h, atomic_size_t *own_before, atomic_size_t *other_before)
{
	size_t most = atomic_exchange(&h->async_most, atomic_load(&h->async));
	atomic_store(own_before, 0);
	atomic_store(other_before, larger(most, atomic_load(other_before)));
}

void native_pool_reset(void *pool, int attribute)
{
	native_enter();
	struct native_heap *h = native_of_pool(pool);
	if (h && attribute == USED_HIGH)
		reset(h, &h->used_before, &h->reserved_before);
	else if (h && attribute == RESERVED_HIGH)
		reset(h, &h->reserved_before, &h->used_before);
	native_leave();
}
