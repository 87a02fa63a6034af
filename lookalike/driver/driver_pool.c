/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory pools and stream-ordered allocation. A pool keeps whole plain allocations: a freed one serves its stream
 * at once and others when its work has passed; what exceeds the pool's threshold is given back when the host
 * synchronises, or when memory runs out. What is freed in a capture stays with the capture and its graph until that
 * has been destroyed; a graph has no memory nodes, so this memory counts as the pool's.
 */
#include "driver_lookalike.h"

#include <pthread.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "bits.h"

struct pool_block {
	LIST_ENTRY(pool_block) link; /* while it is free, or a graph's */
	trz_addr address;
	uint64_t size;
	struct look_pool *pool;
	trz_context context;
	void *stream;                /* that it was freed on */
	trz_event freed;             /* recorded there, or behind its graph's newest launch; NULL: never */
	uint64_t capture;            /* that it was freed in; 0: none */
};

/* Invariant: used + bytes of the free blocks = reserved. A graph's blocks are used. */
struct look_pool {
	LIST_ENTRY(look_pool) link;
	int device;
	uint64_t threshold, reserved, used, reserved_high, used_high;
	LIST_HEAD(, pool_block) unused;
};

static struct {
	pthread_mutex_t lock;
	LIST_HEAD(, look_pool) all;
	struct look_pool standard[LOOK_DEVICES];
	struct look_pool *current[LOOK_DEVICES];  /* NULL: the standard one */
	void *blocks;                             /* a tree of all blocks by address */
	LIST_HEAD(, pool_block) of_graphs;        /* freed in captures */
	uint64_t block_count, unused_count, graph_count;  /* read without the lock where 0 means nothing to do */
} pools = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int by_address(const void *a, const void *b)
{
	const struct pool_block *p = a, *q = b;
	return (p->address > q->address) - (p->address < q->address);
}

static void enlist_standard(void)
{
	for (int i = 0; i < LOOK_DEVICES; i++) {
		pools.standard[i].device = i;
		LIST_INSERT_HEAD(&pools.all, &pools.standard[i], link);
	}
}

static struct look_pool *standard_pool(int device)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, enlist_standard);
	return &pools.standard[device];
}

static struct look_pool *current_pool(int device)
{
	struct look_pool *standard = standard_pool(device);
	return pools.current[device] ? pools.current[device] : standard;
}

/* ---- blocks, under the lock ------------------------------------------------------------ */

static bool has_passed(const struct pool_block *b)
{
	return !b->freed || look.table->event_query(look.table->self, b->context, b->freed) == TRZ_OK;
}

static struct pool_block *find_unused(const struct look_pool *pool, uint64_t size, trz_context context, void *stream)
{
	struct pool_block *b, *best = NULL;
	LIST_FOREACH(b, &pool->unused, link) {
		bool fits = b->size >= size && b->size / 2 <= size && (!best || b->size < best->size);
		if (fits && ((b->stream == stream && b->context == context) || has_passed(b)))
			best = b;
	}
	return best;
}

static struct pool_block *new_block(struct look_pool *pool, uint64_t size, trz_context context)
{
	struct pool_block *b = calloc(1, sizeof *b);
	if (!b)
		return NULL;
	if (look.table->mem_alloc(look.table->self, context, size, &b->address) != TRZ_OK ||
	    !tsearch(b, &pools.blocks, by_address)) {
		free(b);
		return NULL;
	}
	b->size = size;
	b->pool = pool;
	b->context = context;
	pools.block_count++;
	pool->reserved += size;
	pool->reserved_high = max_u64(pool->reserved_high, pool->reserved);
	return b;
}

static void end_block(struct pool_block *b)
{
	if (b->freed)
		look.table->event_destroy(look.table->self, b->context, b->freed);
	look.table->mem_free(look.table->self, b->context, b->address);
	tdelete(b, &pools.blocks, by_address);
	LIST_REMOVE(b, link);
	pools.unused_count--;
	pools.block_count--;
	b->pool->reserved -= b->size;
	free(b);
}

static bool trim(struct look_pool *pool, uint64_t keep)
{
	bool some = false;
	struct pool_block *b, *next;
	for (b = LIST_FIRST(&pool->unused); b && pool->reserved > keep; b = next) {
		next = LIST_NEXT(b, link);
		if (!has_passed(b))
			continue;
		end_block(b);
		some = true;
	}
	return some;
}

bool look_pools_trim(int device, bool all)
{
	struct look_pool *pool;
	bool some = false;
	if (__atomic_load_n(&pools.unused_count, __ATOMIC_RELAXED) == 0)
		return false;
	pthread_mutex_lock(&pools.lock);
	LIST_FOREACH(pool, &pools.all, link)
		if (pool->device == device)
			some = trim(pool, all ? 0 : pool->threshold) || some;
	pthread_mutex_unlock(&pools.lock);
	return some;
}

static struct pool_block *find_block(cuda_addr address)
{
	const struct pool_block wanted = {.address = address};
	struct pool_block **found = tfind(&wanted, &pools.blocks, by_address);
	return found ? *found : NULL;
}

static void make_unused(struct pool_block *b)
{
	LIST_INSERT_HEAD(&b->pool->unused, b, link);
	pools.unused_count++;
	b->pool->used -= b->size;
}

/* By cuMemFree, which waits for the device. */
bool look_pool_free(cuda_addr address)
{
	if (__atomic_load_n(&pools.block_count, __ATOMIC_RELAXED) == 0)
		return false;
	pthread_mutex_lock(&pools.lock);
	struct pool_block *b = find_block(address);
	int device = b ? b->pool->device : -1;
	pthread_mutex_unlock(&pools.lock);
	if (!b)
		return false;
	sim_device_sync(look.sim, device);
	pthread_mutex_lock(&pools.lock);
	make_unused(b);
	trim(b->pool, b->pool->threshold);
	pthread_mutex_unlock(&pools.lock);
	return true;
}

/* ---- allocation ------------------------------------------------------------ */

static struct pool_block *grow(struct look_pool *pool, uint64_t size, trz_context context)
{
	struct pool_block *b = new_block(pool, size, context);
	if (!b && trim(pool, 0))
		b = new_block(pool, size, context);
	if (b)
		pool->used += size;
	return b;
}

static struct pool_block *take(struct look_pool *pool, uint64_t size, trz_context context, void *stream)
{
	struct pool_block *b = find_unused(pool, size, context, stream);
	if (!b)
		return grow(pool, size, context);
	LIST_REMOVE(b, link);
	pools.unused_count--;
	pool->used += b->size;
	return b;
}

/* The graph may be launched on any stream: it is given what its own capture has freed on this stream, or new memory. */
static struct pool_block *take_captured(struct look_pool *pool, uint64_t size, trz_context context, void *stream,
                                        uint64_t capture)
{
	struct pool_block *b;
	LIST_FOREACH(b, &pools.of_graphs, link) {
		if (b->capture != capture || b->pool != pool || b->stream != stream || b->size < size || b->size / 2 > size)
			continue;
		LIST_REMOVE(b, link);
		pools.graph_count--;
		b->capture = 0;
		return b;
	}
	trz_capture_mode mode = TRZ_CAPTURE_RELAXED; /* of this thread: the program itself allocates as it may */
	look.table->capture_mode(look.table->self, &mode);
	b = grow(pool, size, context);
	look.table->capture_mode(look.table->self, &mode);
	return b;
}

static cuda_result allocate(cuda_addr *address, uint64_t size, struct look_pool *pool, void *stream)
{
	trz_capture_status status = TRZ_CAPTURE_NONE;
	uint64_t capture = 0;
	trz_context context = look_stream_context(stream);
	LOOK_NEED(context, INVALID_CONTEXT);
	LOOK_NEED(size > 0, INVALID_VALUE);
	look.table->stream_capture(look.table->self, context, stream, &status, &capture);
	LOOK_NEED(status != TRZ_CAPTURE_INVALIDATED, STREAM_CAPTURE_INVALIDATED);
	size = align_up(size, 512);
	pthread_mutex_lock(&pools.lock);
	struct pool_block *b = status == TRZ_CAPTURE_ACTIVE ? take_captured(pool, size, context, stream, capture)
	                                                    : take(pool, size, context, stream);
	if (b) {
		pool->used_high = max_u64(pool->used_high, pool->used);
		*address = b->address;
	}
	pthread_mutex_unlock(&pools.lock);
	if (!b)
		look_oom("cuMemAllocAsync", size, pool->device);
	return b ? TRZ_CUDA_SUCCESS : TRZ_CUDA_ERROR_OUT_OF_MEMORY;
}

cuda_result cuMemAllocAsync(cuda_addr *address, size_t size, void *stream)
{
	LOOK_ENTER(cuMemAllocAsync);
	trz_context context = look_stream_context(stream);
	LOOK_NEED(context, INVALID_CONTEXT);
	return allocate(address, size, current_pool(sim_context_device(look.sim, context)), stream);
}

cuda_result cuMemAllocFromPoolAsync(cuda_addr *address, size_t size, void *pool, void *stream)
{
	LOOK_ENTER(cuMemAllocFromPoolAsync);
	return allocate(address, size, pool, stream);
}

/* Records on the stream that the block's work is done; under the lock. */
static trz_status mark(struct pool_block *b, trz_context context, void *stream)
{
	trz_status status = TRZ_OK;
	if (b->freed && b->context != context) {
		look.table->event_destroy(look.table->self, b->context, b->freed);
		b->freed = NULL;
	}
	if (!b->freed)
		status = look.table->event_create(look.table->self, context, &b->freed);
	if (status == TRZ_OK)
		status = look.table->event_record(look.table->self, context, b->freed, stream);
	if (status == TRZ_OK) {
		b->stream = stream;
		b->context = context;
	}
	return status;
}

static void give_to_graph(struct pool_block *b, uint64_t capture, trz_context context, void *stream)
{
	b->capture = capture;
	b->context = context;
	b->stream = stream;
	LIST_INSERT_HEAD(&pools.of_graphs, b, link);
	pools.graph_count++;
}

/* Memory that is from no pool is freed when the stream is idle. */
cuda_result cuMemFreeAsync(cuda_addr address, void *stream)
{
	trz_capture_status capturing = TRZ_CAPTURE_NONE;
	uint64_t capture = 0;
	LOOK_ENTER(cuMemFreeAsync);
	trz_context context = look_stream_context(stream);
	LOOK_NEED(context, INVALID_CONTEXT);
	look.table->stream_capture(look.table->self, context, stream, &capturing, &capture);
	trz_status status = TRZ_OK;
	pthread_mutex_lock(&pools.lock);
	struct pool_block *b = find_block(address);
	if (b && capturing == TRZ_CAPTURE_ACTIVE)
		give_to_graph(b, capture, context, stream);
	else if (b && (status = mark(b, context, stream)) == TRZ_OK)
		make_unused(b);
	pthread_mutex_unlock(&pools.lock);
	if (b)
		return look_result(status);
	cuda_result result = cuStreamSynchronize(stream);
	return result == TRZ_CUDA_SUCCESS ? cuMemFree_v2(address) : result;
}

void look_pools_launched(uint64_t capture, trz_context context, void *stream)
{
	struct pool_block *b;
	if (__atomic_load_n(&pools.graph_count, __ATOMIC_RELAXED) == 0)
		return;
	pthread_mutex_lock(&pools.lock);
	LIST_FOREACH(b, &pools.of_graphs, link)
		if (b->capture == capture)
			mark(b, context, stream);
	pthread_mutex_unlock(&pools.lock);
}

void look_pools_end_graph(uint64_t capture)
{
	struct pool_block *b, *next;
	if (__atomic_load_n(&pools.graph_count, __ATOMIC_RELAXED) == 0)
		return;
	pthread_mutex_lock(&pools.lock);
	for (b = LIST_FIRST(&pools.of_graphs); b; b = next) {
		next = LIST_NEXT(b, link);
		if (b->capture != capture)
			continue;
		LIST_REMOVE(b, link);
		pools.graph_count--;
		b->capture = 0;
		make_unused(b);
	}
	pthread_mutex_unlock(&pools.lock);
}

/* ---- pools ------------------------------------------------------------ */

cuda_result cuMemPoolCreate(void **pool, const struct cuda_pool_props *props)
{
	LOOK_ENTER(cuMemPoolCreate);
	LOOK_NEED(props->location.type == TRZ_CU_MEM_LOCATION_TYPE_DEVICE && props->location.id >= 0 &&
	          props->location.id < look.devices, INVALID_VALUE);
	struct look_pool *made = calloc(1, sizeof *made);
	LOOK_NEED(made, OUT_OF_MEMORY);
	made->device = props->location.id;
	standard_pool(made->device);
	pthread_mutex_lock(&pools.lock);
	LIST_INSERT_HEAD(&pools.all, made, link);
	pthread_mutex_unlock(&pools.lock);
	*pool = made;
	return TRZ_CUDA_SUCCESS;
}

/* Memory still allocated from the pool moves to the device's standard one. */
cuda_result cuMemPoolDestroy(void *pool)
{
	struct look_pool *p = pool;
	LOOK_ENTER(cuMemPoolDestroy);
	struct look_pool *heir = standard_pool(p->device);
	LOOK_NEED(p != heir, INVALID_VALUE);
	pthread_mutex_lock(&pools.lock);
	trim(p, 0);
	heir->reserved += p->reserved;
	heir->used += p->used;
	p->reserved = p->used = 0;
	LIST_REMOVE(p, link);
	if (pools.current[p->device] == p)
		pools.current[p->device] = NULL;
	pthread_mutex_unlock(&pools.lock);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuMemPoolTrimTo(void *pool, size_t keep)
{
	LOOK_ENTER(cuMemPoolTrimTo);
	pthread_mutex_lock(&pools.lock);
	trim(pool, keep);
	pthread_mutex_unlock(&pools.lock);
	return TRZ_CUDA_SUCCESS;
}

/* The figure of an attribute; NULL: none, a rule of reuse that makes no difference here. */
static uint64_t *figure(struct look_pool *p, int attribute)
{
	switch (attribute) {
	case TRZ_CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		return &p->threshold;
	case TRZ_CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
		return &p->reserved;
	case TRZ_CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
		return &p->reserved_high;
	case TRZ_CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
		return &p->used;
	case TRZ_CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		return &p->used_high;
	default:
		return NULL;
	}
}

/* A high-water mark can only be set to 0, which means the current value. */
cuda_result cuMemPoolSetAttribute(void *pool, int attribute, void *value)
{
	struct look_pool *p = pool;
	LOOK_ENTER(cuMemPoolSetAttribute);
	pthread_mutex_lock(&pools.lock);
	if (attribute == TRZ_CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
		memcpy(&p->threshold, value, sizeof p->threshold);
	else if (attribute == TRZ_CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
		p->reserved_high = p->reserved;
	else if (attribute == TRZ_CU_MEMPOOL_ATTR_USED_MEM_HIGH)
		p->used_high = p->used;
	pthread_mutex_unlock(&pools.lock);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuMemPoolGetAttribute(void *pool, int attribute, void *value)
{
	LOOK_ENTER(cuMemPoolGetAttribute);
	pthread_mutex_lock(&pools.lock);
	const uint64_t *found = figure(pool, attribute);
	if (found)
		memcpy(value, found, sizeof *found);
	else
		*(int *)value = 1;
	pthread_mutex_unlock(&pools.lock);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuMemPoolSetAccess(void *pool, const struct cuda_mem_access *access, size_t count)
{
	const struct look_pool *p = pool;
	cuda_result result = TRZ_CUDA_SUCCESS;
	LOOK_ENTER(cuMemPoolSetAccess);
	for (size_t i = 0; i < count && result == TRZ_CUDA_SUCCESS; i++)
		if (access[i].location.id != p->device)
			result = look_result(sim_plain_peer(look.sim, p->device, access[i].location.id,
			                                    access[i].flags == TRZ_CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
	return result;
}

cuda_result cuMemPoolGetAccess(int *flags, void *pool, struct cuda_mem_location *location)
{
	const struct look_pool *p = pool;
	LOOK_ENTER(cuMemPoolGetAccess);
	*flags = location->id == p->device ? TRZ_CU_MEM_ACCESS_FLAGS_PROT_READWRITE : TRZ_CU_MEM_ACCESS_FLAGS_PROT_NONE;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuDeviceGetDefaultMemPool(void **pool, cuda_device device)
{
	LOOK_ENTER(cuDeviceGetDefaultMemPool);
	LOOK_NEED(device >= 0 && device < look.devices, INVALID_DEVICE);
	*pool = standard_pool(device);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuDeviceGetMemPool(void **pool, cuda_device device)
{
	LOOK_ENTER(cuDeviceGetMemPool);
	LOOK_NEED(device >= 0 && device < look.devices, INVALID_DEVICE);
	*pool = current_pool(device);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuDeviceSetMemPool(cuda_device device, void *pool)
{
	LOOK_ENTER(cuDeviceSetMemPool);
	LOOK_NEED(device >= 0 && device < look.devices, INVALID_DEVICE);
	pools.current[device] = pool;
	return TRZ_CUDA_SUCCESS;
}

/* Graphs have no memory nodes here: what they hold counts as the pool's, and their own figures are 0. */
cuda_result cuDeviceGetGraphMemAttribute(cuda_device device, int attribute, void *value)
{
	const uint64_t none = 0;
	LOOK_ENTER(cuDeviceGetGraphMemAttribute);
	(void)device, (void)attribute;
	memcpy(value, &none, sizeof none);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuDeviceSetGraphMemAttribute(cuda_device device, int attribute, void *value)
{
	LOOK_ENTER(cuDeviceSetGraphMemAttribute);
	(void)device, (void)attribute, (void)value;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuDeviceGraphMemTrim(cuda_device device)
{
	LOOK_ENTER(cuDeviceGraphMemTrim);
	(void)device;
	return TRZ_CUDA_SUCCESS;
}
