/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory pools and stream-ordered allocation. A freed block serves its stream at once, and others as the pool's rules
 * of reuse allow; the pool frees what exceeds its threshold when the host synchronises, or when memory runs out. What a
 * capture allocates is its graph's until that is destroyed, freed or not: each launch uses it again. It counts as the
 * pool's, not as graphs'. Blocks of graphs and of pools that may be exported are plain allocations of their own; others
 * lie in the pool's ranges (driver_pool_range.c).
 */
#include "driver_pool.h"

#include <pthread.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "driver_graph.h"

/* Seen on an H200: peaks of recorded programs come out best if sizes from 2 MiB on are rounded up (docs/sim.md). */
#define ROUNDED_FROM ((uint64_t)2 << 20)

#define OF_RANGES ((uint64_t)1 << 62)  /* in the ids of blocks there: no generation of the machine has it */

static struct {
	pthread_mutex_t lock;
	LIST_HEAD(, look_pool) all;
	struct look_pool standard[LOOK_DEVICES];
	struct look_pool *current[LOOK_DEVICES];  /* NULL: the standard one */
	trz_context home[LOOK_DEVICES];           /* the primary context retained for other devices' streams, or NULL */
	void *blocks;                             /* a tree of all blocks by address */
	LIST_HEAD(, pool_block) of_graphs;        /* not live now, but for the next launch */
	uint64_t block_count, unused_count, graph_count;  /* read without the lock where 0 means nothing to do */
} pools = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* With the lock. */
static void count_up(uint64_t *count)
{
	__atomic_fetch_add(count, 1, __ATOMIC_RELAXED);
}

static void count_down(uint64_t *count)
{
	__atomic_fetch_sub(count, 1, __ATOMIC_RELAXED);
}

/* 0: one lies in the other; blocks never overlap. */
static int by_address(const void *a, const void *b)
{
	const struct pool_block *p = a, *q = b;
	return (p->address >= q->address + q->size) - (q->address >= p->address + p->size);
}

static void init_pool(struct look_pool *pool, int device)
{
	pool->device = device;
	for (int i = 0; i < RULES; i++)
		pool->reuse[i] = 1;
}

static void enlist_standard(void)
{
	for (int i = 0; i < LOOK_DEVICES; i++) {
		init_pool(&pools.standard[i], i);
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

/* NULL: there is no such pool, or the program has destroyed it. With the lock. */
static struct look_pool *find_pool(const void *handle)
{
	struct look_pool *pool;
	standard_pool(0);
	LIST_FOREACH(pool, &pools.all, link)
		if (pool == handle && !pool->destroyed)
			return pool;
	return NULL;
}

/* ---- blocks, under the lock ------------------------------------------------------------ */

bool pool_has_passed(const struct pool_block *b)
{
	const struct pool_mark *m = b->mark;
	return !m || !m->event || look.table->event_query(look.table->self, m->context, m->event) == TRZ_OK;
}

void pool_grow(struct look_pool *pool, uint64_t bytes)
{
	pool->reserved += bytes;
	pool->reserved_high = max_u64(pool->reserved_high, pool->reserved);
}

struct pool_block *pool_block_new(struct look_pool *pool, trz_context home, trz_addr address, uint64_t size)
{
	struct pool_block *b = calloc(1, sizeof *b);
	if (!b)
		return NULL;
	b->address = address;
	b->size = size;
	b->pool = pool;
	b->home = home;
	if (!tsearch(b, &pools.blocks, by_address)) {
		free(b);
		return NULL;
	}
	count_up(&pools.block_count);
	return b;
}

/* A plain allocation of its own. */
static struct pool_block *new_block(const struct wish *w)
{
	struct look_pool *pool = w->pool;
	trz_addr address;
	bool beyond = pool->most && (w->size > pool->most || pool->reserved > pool->most - w->size);
	if (beyond || look.table->mem_alloc(look.table->self, w->home, w->size, &address) != TRZ_OK)
		return NULL;
	struct pool_block *b = pool_block_new(pool, w->home, address, w->size);
	if (b)
		pool_grow(pool, w->size);
	else
		look.table->mem_free(look.table->self, w->home, address);
	return b;
}

void pool_drop_mark(struct pool_block *b)
{
	struct pool_mark *m = b->mark;
	b->mark = NULL;
	if (!m || --m->users > 0)
		return;
	if (m->event)
		look.table->event_destroy(look.table->self, m->context, m->event);
	free(m);
}

static void count_use(struct pool_block *b, uint64_t bytes)
{
	b->pool->used += bytes - b->counted;
	b->counted = bytes;
}

/* The host has synchronised: what has passed may serve any stream, whatever the rules. */
static void forget_passed(struct look_pool *pool)
{
	struct pool_block *b;
	if (pool->reuse[OPPORTUNISTIC])
		return;
	LIST_FOREACH(b, &pool->unused, link)
		if (pool_has_passed(b))
			pool_drop_mark(b);
}

void pool_block_end(struct pool_block *b)
{
	pool_drop_mark(b);
	tdelete(b, &pools.blocks, by_address);
	LIST_REMOVE(b, link);
	if (b->graph)
		count_down(&pools.graph_count);
	else if (!b->live)
		count_down(&pools.unused_count);
	count_use(b, 0);
	count_down(&pools.block_count);
	free(b);
}

/* Ends a plain allocation; its memory has ended. */
static void forget_block(struct pool_block *b)
{
	b->pool->reserved -= b->size;
	pool_block_end(b);
}

/* Sets the thread's capture mode, so that no capture forbids the pool's own calls; the caller exchanges it back. */
static trz_capture_mode exchange_mode(trz_capture_mode mode)
{
	look.table->capture_mode(look.table->self, &mode);
	return mode;
}

static bool trim(struct look_pool *pool, uint64_t keep)
{
	bool some = false;
	struct pool_block *b, *next;
	if (LIST_EMPTY(&pool->unused) || pool->reserved <= keep)
		return false;
	trz_capture_mode mode = exchange_mode(TRZ_CAPTURE_RELAXED);
	for (b = LIST_FIRST(&pool->unused); b && pool->reserved > keep; b = next) {
		next = LIST_NEXT(b, link);
		if (b->range || !pool_has_passed(b))
			continue;
		look.table->mem_free(look.table->self, b->home, b->address);
		forget_block(b);
		some = true;
	}
	some = pool_range_trim(pool, keep) || some;
	exchange_mode(mode);
	return some;
}

static void bury(struct look_pool *pool)
{
	if (!pool->destroyed || pool->reserved > 0)
		return;
	pool_ranges_end(pool, NULL);
	LIST_REMOVE(pool, link);
	free(pool);
}

bool look_pools_trim(int device, bool all)
{
	struct look_pool *pool, *next;
	bool some = false;
	if (__atomic_load_n(&pools.unused_count, __ATOMIC_RELAXED) == 0)
		return false;
	pthread_mutex_lock(&pools.lock);
	for (pool = LIST_FIRST(&pools.all); pool; pool = next) {
		next = LIST_NEXT(pool, link);
		if (pool->device != device)
			continue;
		some = trim(pool, all ? 0 : pool->threshold) || some;
		if (!all)
			forget_passed(pool);
		bury(pool);
	}
	pthread_mutex_unlock(&pools.lock);
	return some;
}

/* The block that the address lies in. */
static struct pool_block *find_block(cuda_addr address)
{
	const struct pool_block wanted = {.address = address, .size = 1};
	struct pool_block **found = tfind(&wanted, &pools.blocks, by_address);
	return found ? *found : NULL;
}

static bool begins_at(const struct pool_block *b, cuda_addr address)
{
	return b && b->address == address;
}

void pool_put_unused(struct pool_block *b)
{
	LIST_INSERT_HEAD(&b->pool->unused, b, link);
	count_up(&pools.unused_count);
}

void pool_pull_unused(struct pool_block *b)
{
	LIST_REMOVE(b, link);
	count_down(&pools.unused_count);
}

/* Moves a block, which was live or a graph's and is in no list now, to `unused`, or keeps it for its graph. */
static void make_unused(struct pool_block *b)
{
	b->live = b->launched = false;
	if (b->graph) {
		LIST_INSERT_HEAD(&pools.of_graphs, b, link);
		return;
	}
	pool_put_unused(b);
	count_use(b, 0);
	if (!b->range)
		return;
	trz_capture_mode mode = exchange_mode(TRZ_CAPTURE_RELAXED);
	pool_range_join(b);
	exchange_mode(mode);
}

bool look_place_at(cuda_addr address, struct sim_place *place, void **pool)
{
	*pool = NULL;
	if (!sim_place_at(look.sim, address, place))
		return false;
	if (__atomic_load_n(&pools.block_count, __ATOMIC_RELAXED) == 0)
		return true;
	pthread_mutex_lock(&pools.lock);
	const struct pool_block *b = find_block(address);
	if (b && (b->live || b->range)) {
		*pool = b->live ? b->pool : NULL;
		place->address = b->address;
		place->size = b->live ? b->asked : b->size;
		place->generation = b->id ? b->id : place->generation;
	}
	pthread_mutex_unlock(&pools.lock);
	return true;
}

/* For cuMemFree, which waits for the device if no stream of it is captured, and which captures forbid. */
bool look_pool_free(cuda_addr address, cuda_result *result)
{
	if (__atomic_load_n(&pools.block_count, __ATOMIC_RELAXED) == 0)
		return false;
	pthread_mutex_lock(&pools.lock);
	const struct pool_block *known = find_block(address);
	int device = known ? known->pool->device : -1;
	pthread_mutex_unlock(&pools.lock);
	if (!known)
		return false;
	*result = look_result(sim_capture_check(look.sim, "cuMemFree"));
	if (*result != TRZ_CUDA_SUCCESS)
		return true;
	if (!sim_is_captured(look.sim, device))
		sim_device_sync(look.sim, device);
	pthread_mutex_lock(&pools.lock);
	struct pool_block *b = find_block(address);
	bool freed = begins_at(b, address) && b->live;
	*result = freed ? TRZ_CUDA_SUCCESS : TRZ_CUDA_ERROR_INVALID_VALUE;
	if (freed) {
		struct look_pool *pool = b->pool;
		LIST_REMOVE(b, link);
		pool_drop_mark(b);
		make_unused(b);
		trim(pool, pool->threshold);
		bury(pool);
	}
	pthread_mutex_unlock(&pools.lock);
	return true;
}

static void forget_context(struct pool_block *b, trz_context context)
{
	for (struct pool_block *next; b; b = next) {
		next = LIST_NEXT(b, link);
		if (b->mark && b->mark->context == context)
			b->mark->event = NULL;
		if (b->home == context && !b->range)
			forget_block(b);
	}
}

/* Memory allocated in a context goes with it, and so do its events, whose work is done. */
void look_pools_end_context(trz_context context)
{
	struct look_pool *pool, *next;
	look_blocks_end_context(context);
	look_managed_end_context();
	pthread_mutex_lock(&pools.lock);
	for (int i = 0; i < LOOK_DEVICES; i++)
		if (pools.home[i] == context)
			pools.home[i] = NULL;
	forget_context(LIST_FIRST(&pools.of_graphs), context);
	for (pool = LIST_FIRST(&pools.all); pool; pool = next) {
		next = LIST_NEXT(pool, link);
		forget_context(LIST_FIRST(&pool->live), context);
		forget_context(LIST_FIRST(&pool->unused), context);
		pool_ranges_end(pool, context);
		bury(pool);
	}
	pthread_mutex_unlock(&pools.lock);
}

/* ---- allocation ------------------------------------------------------------ */

static struct pool_block *new_memory(const struct wish *w)
{
	return w->capture || w->pool->exports ? new_block(w) : pool_range_take(w);
}

static struct pool_block *grow(const struct wish *w)
{
	struct pool_block *b = new_memory(w);
	if (!b && trim(w->pool, 0))
		b = new_memory(w);
	if (b)
		count_use(b, w->size);
	return b;
}

bool pool_serves(const struct pool_block *b, const struct wish *w)
{
	const int *rule = w->pool->reuse;
	const struct pool_mark *m = b->mark;
	if (!m || !m->event || sim_event_is_on(look.sim, w->context, w->stream, m->event))
		return true;
	if (rule[OPPORTUNISTIC] && pool_has_passed(b))
		return true;
	return rule[FOLLOW_EVENTS] && sim_stream_follows(look.sim, w->context, w->stream, m->event);
}

/* Whether a free block is large enough; only in a range its rest would serve others. */
static bool fits(const struct pool_block *b, const struct wish *w)
{
	return b->range ? b->size >= w->room : b->size >= w->size && b->size / 2 <= w->size;
}

static struct pool_block *find_unused(const struct wish *w)
{
	struct pool_block *b, *best = NULL;
	LIST_FOREACH(b, &w->pool->unused, link)
		if (fits(b, w) && (!best || b->size < best->size) && pool_serves(b, w))
			best = b;
	return best;
}

/* The smallest block that is large enough, after a wait of the stream for its work; NULL: there is none, or the pool
 * may add no waits. */
static struct pool_block *wait_for_unused(const struct wish *w)
{
	struct pool_block *b, *best = NULL;
	if (!w->pool->reuse[INTERNAL_DEPENDENCIES])
		return NULL;
	LIST_FOREACH(b, &w->pool->unused, link)
		if (b->size >= (b->range ? w->room : w->size) && (!best || b->size < best->size))
			best = b;
	if (best && best->mark && best->mark->event &&
	    look.table->stream_wait(look.table->self, w->context, w->stream, best->mark->event) != TRZ_OK)
		return NULL;
	return best;
}

static struct pool_block *take(const struct wish *w)
{
	struct pool_block *b = find_unused(w);
	if (!b && w->pool->reuse[OPPORTUNISTIC] && pool_range_settle(w->pool))
		b = find_unused(w);
	struct pool_block *new = b ? NULL : grow(w);
	if (!b && !new)
		b = wait_for_unused(w);
	if (!b)
		return new;
	pool_pull_unused(b);
	if (b->range)
		pool_range_cut(b, w->room);
	count_use(b, w->size);
	return b;
}

/* The graph may be launched on any stream, so it gets only memory that its own capture freed on this stream, or new. */
static struct pool_block *take_captured(const struct wish *w)
{
	struct pool_block *b;
	LIST_FOREACH(b, &pools.of_graphs, link) {
		if (b->graph != w->capture || b->pool != w->pool || b->stream != w->stream || b->size < w->size ||
		    b->size / 2 > w->size)
			continue;
		LIST_REMOVE(b, link);
		count_down(&pools.graph_count);
		count_use(b, w->size);
		return b;
	}
	return grow(w);
}

static void hand_out(struct pool_block *b, uint64_t graph)
{
	static uint64_t allocations;
	b->id = b->range ? ++allocations | OF_RANGES : 0;
	b->live = true;
	b->graph = graph;
	b->freed_by = 0;
	b->freed_inside = false;
	if (graph)
		count_up(&pools.graph_count);
	LIST_INSERT_HEAD(&b->pool->live, b, link);
	b->pool->used_high = max_u64(b->pool->used_high, b->pool->used);
}

/* The context to allocate a device's new memory in: the stream's own, or for another device's stream the device's
 * primary one, which stays retained. */
static cuda_result home_of(int device, trz_context context, trz_context *home)
{
	void *primary = NULL;
	*home = context;
	if (sim_context_device(look.sim, context) == device)
		return TRZ_CUDA_SUCCESS;
	pthread_mutex_lock(&pools.lock);
	*home = pools.home[device];
	pthread_mutex_unlock(&pools.lock);
	cuda_result result = *home ? TRZ_CUDA_SUCCESS : cuDevicePrimaryCtxRetain(&primary, device);
	if (!primary)
		return result;
	pthread_mutex_lock(&pools.lock);
	pools.home[device] = *home = primary;
	pthread_mutex_unlock(&pools.lock);
	return TRZ_CUDA_SUCCESS;
}

/* Adds the allocation to the capture's graph as a node. */
static void place_allocation(const struct wish *w, cuda_addr address, uint64_t size)
{
	struct cuda_node is = {.type = TRZ_CU_GRAPH_NODE_TYPE_MEM_ALLOC};
	is.of.alloc.pool.type = TRZ_CU_MEM_ALLOCATION_TYPE_PINNED;
	is.of.alloc.pool.location = (struct cuda_mem_location){TRZ_CU_MEM_LOCATION_TYPE_DEVICE, w->pool->device};
	is.of.alloc.size = size;
	is.of.alloc.address = address;
	look_graph_place(w->context, w->stream, &is);
}

static cuda_result allocate(cuda_addr *address, struct wish wish)
{
	trz_capture_status status = TRZ_CAPTURE_NONE;
	LOOK_NEED(address && wish.size > 0, INVALID_VALUE);
	cuda_result result = home_of(wish.pool->device, wish.context, &wish.home);
	if (result != TRZ_CUDA_SUCCESS)
		return result;
	look.table->stream_capture(look.table->self, wish.context, wish.stream, &status, &wish.capture);
	LOOK_NEED(status != TRZ_CAPTURE_INVALIDATED, STREAM_CAPTURE_INVALIDATED);
	uint64_t asked = wish.size;
	wish.size = align_up(wish.size, 512);
	LOOK_NEED(wish.size >= asked, OUT_OF_MEMORY);
	wish.room = asked >= ROUNDED_FROM ? align_up(asked, ROUNDED_FROM) : wish.size;
	LOOK_NEED(wish.room >= asked, OUT_OF_MEMORY);
	pthread_mutex_lock(&pools.lock);
	trz_capture_mode mode = exchange_mode(TRZ_CAPTURE_RELAXED);
	struct pool_block *b = status == TRZ_CAPTURE_ACTIVE ? take_captured(&wish) : take(&wish);
	exchange_mode(mode);
	if (b) {
		hand_out(b, status == TRZ_CAPTURE_ACTIVE ? wish.capture : 0);
		b->asked = asked;
		*address = b->address;
	}
	pthread_mutex_unlock(&pools.lock);
	if (b && status == TRZ_CAPTURE_ACTIVE)
		place_allocation(&wish, *address, asked);
	if (b)
		look_note_request(SIM_RECORDED_ALLOC, wish.pool->device, wish.context, wish.stream, *address, asked);
	result = b ? TRZ_CUDA_SUCCESS : TRZ_CUDA_ERROR_OUT_OF_MEMORY;
	look_answered("cuMemAllocAsync", wish.size, wish.pool->device, result);
	return result;
}

cuda_result cuMemAllocAsync(cuda_addr *address, size_t size, void *stream)
{
	LOOK_ENTER(cuMemAllocAsync);
	trz_context context = look_stream_context(stream);
	LOOK_NEED(context, INVALID_CONTEXT);
	const struct wish wish = {
		.pool = current_pool(sim_context_device(look.sim, context)), .size = size, .context = context, .stream = stream,
	};
	return allocate(address, wish);
}

cuda_result cuMemAllocFromPoolAsync(cuda_addr *address, size_t size, void *pool, void *stream)
{
	LOOK_ENTER(cuMemAllocFromPoolAsync);
	struct wish wish = {.size = size, .context = look_stream_context(stream), .stream = stream};
	LOOK_NEED(wish.context, INVALID_CONTEXT);
	pthread_mutex_lock(&pools.lock);
	wish.pool = find_pool(pool);
	bool serves = wish.pool && !wish.pool->imported;
	pthread_mutex_unlock(&pools.lock);
	LOOK_NEED(serves, INVALID_VALUE);
	return allocate(address, wish);
}

static trz_status new_mark(struct pool_block *b, trz_context context)
{
	struct pool_mark *m = calloc(1, sizeof *m);
	if (!m)
		return TRZ_ERROR_DRIVER;
	*m = (struct pool_mark){.users = 1, .context = context};
	trz_status status = look.table->event_create(look.table->self, context, &m->event);
	if (status == TRZ_OK)
		b->mark = m;
	else
		free(m);
	return status;
}

/* Records an event behind the block's work on the stream; under the lock. */
static trz_status mark(struct pool_block *b, trz_context context, void *stream)
{
	trz_status status = TRZ_OK;
	if (b->mark && (b->mark->users > 1 || b->mark->context != context || !b->mark->event))
		pool_drop_mark(b);
	if (!b->mark)
		status = new_mark(b, context);
	if (status == TRZ_OK)
		status = look.table->event_record(look.table->self, context, b->mark->event, stream);
	if (status == TRZ_OK)
		b->mark->stream = b->stream = stream;
	return status;
}

/* Frees a block in the stream's order or, captured, has the launches of the capture's graph free it. False: it is free
 * already, or is to be freed in a capture and was not allocated in one. With the lock. */
static bool give_back(struct pool_block *b, uint64_t capture, trz_context context, void *stream, trz_status *status)
{
	bool elsewhere = capture && b->graph != capture;
	if (!b->live || (elsewhere && (!b->graph || b->freed_by)))
		return false;
	if (elsewhere) {
		b->freed_by = capture;
		return true;
	}
	*status = capture ? TRZ_OK : mark(b, context, stream);
	if (*status != TRZ_OK)
		return true;
	look_note_request(SIM_RECORDED_FREE, b->pool->device, context, stream, b->address, 0);
	LIST_REMOVE(b, link);
	b->freed_inside = capture;
	b->stream = stream;
	make_unused(b);
	return true;
}

/* Waits for the stream before it frees memory that is from no pool. */
cuda_result cuMemFreeAsync(cuda_addr address, void *stream)
{
	trz_capture_status capturing = TRZ_CAPTURE_NONE;
	uint64_t capture = 0;
	LOOK_ENTER(cuMemFreeAsync);
	trz_context context = look_stream_context(stream);
	LOOK_NEED(context, INVALID_CONTEXT);
	look.table->stream_capture(look.table->self, context, stream, &capturing, &capture);
	capture = capturing == TRZ_CAPTURE_ACTIVE ? capture : 0;
	trz_status status = TRZ_OK;
	pthread_mutex_lock(&pools.lock);
	struct pool_block *b = find_block(address);
	bool given = begins_at(b, address) && give_back(b, capture, context, stream, &status);
	pthread_mutex_unlock(&pools.lock);
	const struct cuda_node freed = {.type = TRZ_CU_GRAPH_NODE_TYPE_MEM_FREE, .of.address = address};
	if (given && capture)
		look_graph_place(context, stream, &freed);
	LOOK_NEED(!b || given, INVALID_VALUE);
	if (b)
		return look_result(status);
	cuda_result result;
	if (look_block_free(address, context, stream, &result))
		return result;
	LOOK_NEED(!capture, INVALID_VALUE);
	result = cuStreamSynchronize(stream); /* so that no work uses it */
	return result == TRZ_CUDA_SUCCESS ? cuMemFree_v2(address) : result;
}

bool look_pools_may_launch(uint64_t capture)
{
	const struct look_pool *pool;
	const struct pool_block *b;
	bool may = true;
	pthread_mutex_lock(&pools.lock);
	LIST_FOREACH(pool, &pools.all, link)
		LIST_FOREACH(b, &pool->live, link)
			may = may && !(b->graph == capture && b->launched);
	pthread_mutex_unlock(&pools.lock);
	return may;
}

/* A launch leaves what it does not free itself, and frees what other graphs have left for it. */
static void launched_live(struct look_pool *pool, uint64_t capture, trz_context context, void *stream)
{
	struct pool_block *b, *next;
	for (b = LIST_FIRST(&pool->live); b; b = next) {
		next = LIST_NEXT(b, link);
		b->launched = b->launched || b->graph == capture;
		if (b->freed_by != capture)
			continue;
		LIST_REMOVE(b, link);
		mark(b, context, stream);
		make_unused(b);
	}
}

static void leave_graph(struct pool_block *b, uint64_t capture)
{
	if (b->freed_by == capture)
		b->freed_by = 0;
	if (b->graph != capture)
		return;
	count_down(&pools.graph_count);
	b->graph = 0;
}

void look_pools_launched(uint64_t capture, trz_context context, void *stream)
{
	struct look_pool *pool;
	struct pool_block *b, *next;
	pthread_mutex_lock(&pools.lock);
	for (b = LIST_FIRST(&pools.of_graphs); b; b = next) {
		next = LIST_NEXT(b, link);
		if (b->graph != capture)
			continue;
		mark(b, context, stream);
		if (b->freed_inside)
			continue;
		LIST_REMOVE(b, link);
		b->live = true;
		LIST_INSERT_HEAD(&b->pool->live, b, link);
	}
	LIST_FOREACH(pool, &pools.all, link)
		launched_live(pool, capture, context, stream);
	pthread_mutex_unlock(&pools.lock);
}

/* What a launch has allocated stays allocated. */
void look_pools_end_graph(uint64_t capture)
{
	struct look_pool *pool;
	struct pool_block *b, *next;
	if (__atomic_load_n(&pools.graph_count, __ATOMIC_RELAXED) == 0)
		return;
	pthread_mutex_lock(&pools.lock);
	for (b = LIST_FIRST(&pools.of_graphs); b; b = next) {
		next = LIST_NEXT(b, link);
		if (b->graph != capture)
			continue;
		LIST_REMOVE(b, link);
		leave_graph(b, capture);
		make_unused(b);
	}
	LIST_FOREACH(pool, &pools.all, link)
		LIST_FOREACH(b, &pool->live, link)
			leave_graph(b, capture);
	pthread_mutex_unlock(&pools.lock);
}

/* ---- pools ------------------------------------------------------------ */

cuda_result cuMemPoolCreate(void **pool, const struct cuda_pool_props *props)
{
	LOOK_ENTER(cuMemPoolCreate);
	LOOK_NEED(pool && props && props->type == TRZ_CU_MEM_ALLOCATION_TYPE_PINNED, INVALID_VALUE);
	LOOK_NEED(props->location.type == TRZ_CU_MEM_LOCATION_TYPE_DEVICE && props->location.id >= 0 &&
	          props->location.id < look.devices, INVALID_VALUE);
	LOOK_NEED(!(props->handle_types & ~TRZ_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR), NOT_SUPPORTED);
	struct look_pool *made = calloc(1, sizeof *made);
	LOOK_NEED(made, OUT_OF_MEMORY);
	init_pool(made, props->location.id);
	made->most = props->most_bytes;
	made->exports = props->handle_types & TRZ_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	standard_pool(made->device);
	pthread_mutex_lock(&pools.lock);
	LIST_INSERT_HEAD(&pools.all, made, link);
	pthread_mutex_unlock(&pools.lock);
	*pool = made;
	return TRZ_CUDA_SUCCESS;
}

/* Memory still allocated from the pool stays until it is freed. */
cuda_result cuMemPoolDestroy(void *pool)
{
	LOOK_ENTER(cuMemPoolDestroy);
	pthread_mutex_lock(&pools.lock);
	struct look_pool *p = find_pool(pool);
	if (p && p != &pools.standard[p->device]) {
		p->destroyed = true;
		p->threshold = 0;
		if (pools.current[p->device] == p)
			pools.current[p->device] = NULL;
		trim(p, 0);
		bury(p);
	} else {
		p = NULL;
	}
	pthread_mutex_unlock(&pools.lock);
	LOOK_NEED(p, INVALID_VALUE);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuMemPoolTrimTo(void *pool, size_t keep)
{
	LOOK_ENTER(cuMemPoolTrimTo);
	pthread_mutex_lock(&pools.lock);
	struct look_pool *p = find_pool(pool);
	if (p)
		trim(p, keep);
	pthread_mutex_unlock(&pools.lock);
	LOOK_NEED(p, INVALID_VALUE);
	return TRZ_CUDA_SUCCESS;
}

/* ---- other processes ------------------------------------------------------------ */

bool look_pool_shared(const void *pool, int *device)
{
	pthread_mutex_lock(&pools.lock);
	const struct look_pool *p = find_pool(pool);
	bool shared = p && p->exports;
	*device = p ? p->device : -1;
	pthread_mutex_unlock(&pools.lock);
	return shared;
}

bool look_pool_imported(const void *pool, uint32_t *access)
{
	pthread_mutex_lock(&pools.lock);
	const struct look_pool *p = find_pool(pool);
	bool imported = p && p->imported;
	*access = p ? p->access | 1u << p->device : 0;
	pthread_mutex_unlock(&pools.lock);
	return imported;
}

bool look_pool_exports(cuda_addr address)
{
	pthread_mutex_lock(&pools.lock);
	const struct pool_block *b = find_block(address);
	bool exports = begins_at(b, address) && b->live && b->pool->exports;
	pthread_mutex_unlock(&pools.lock);
	return exports;
}

cuda_result look_pool_import(int device, void **pool)
{
	struct look_pool *made = calloc(1, sizeof *made);
	LOOK_NEED(made, OUT_OF_MEMORY);
	init_pool(made, device);
	made->imported = true;
	standard_pool(device);
	pthread_mutex_lock(&pools.lock);
	LIST_INSERT_HEAD(&pools.all, made, link);
	pthread_mutex_unlock(&pools.lock);
	*pool = made;
	return TRZ_CUDA_SUCCESS;
}

/* ---- attributes ------------------------------------------------------------ */

/* The figure that an attribute names; NULL: none. */
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

/* The rule of reuse that an attribute names; NULL: none. */
static int *rule_of_reuse(struct look_pool *p, int attribute)
{
	int i = attribute - TRZ_CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES;
	return i >= 0 && i < RULES ? &p->reuse[i] : NULL;
}

/* A high-water mark can only be set to 0, which makes it the current value. */
static bool set_attribute(struct look_pool *p, int attribute, const void *value)
{
	uint64_t number = 0;
	int *rule = rule_of_reuse(p, attribute);
	if (rule) {
		memcpy(rule, value, sizeof *rule);
		return true;
	}
	memcpy(&number, value, sizeof number);
	if (attribute == TRZ_CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
		p->threshold = number;
	else if (attribute == TRZ_CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH && number == 0)
		p->reserved_high = p->reserved;
	else if (attribute == TRZ_CU_MEMPOOL_ATTR_USED_MEM_HIGH && number == 0)
		p->used_high = p->used;
	else
		return false;
	return true;
}

cuda_result cuMemPoolSetAttribute(void *pool, int attribute, void *value)
{
	LOOK_ENTER(cuMemPoolSetAttribute);
	LOOK_NEED(value, INVALID_VALUE);
	pthread_mutex_lock(&pools.lock);
	struct look_pool *p = find_pool(pool);
	bool set = p && set_attribute(p, attribute, value);
	pthread_mutex_unlock(&pools.lock);
	LOOK_NEED(set, INVALID_VALUE);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuMemPoolGetAttribute(void *pool, int attribute, void *value)
{
	LOOK_ENTER(cuMemPoolGetAttribute);
	LOOK_NEED(value, INVALID_VALUE);
	pthread_mutex_lock(&pools.lock);
	struct look_pool *p = find_pool(pool);
	const uint64_t *found = p ? figure(p, attribute) : NULL;
	const int *rule = p ? rule_of_reuse(p, attribute) : NULL;
	if (found)
		memcpy(value, found, sizeof *found);
	else if (rule)
		memcpy(value, rule, sizeof *rule);
	pthread_mutex_unlock(&pools.lock);
	LOOK_NEED(found || rule, INVALID_VALUE);
	return TRZ_CUDA_SUCCESS;
}

/* ---- other devices' access ------------------------------------------------------------ */

bool look_pools_reach(int device, int peer)
{
	const struct look_pool *pool;
	bool reach = false;
	pthread_mutex_lock(&pools.lock);
	LIST_FOREACH(pool, &pools.all, link)
		reach |= pool->device == device && pool->access >> peer & 1;
	pthread_mutex_unlock(&pools.lock);
	return reach;
}

/* The simulator can only open all of a device's plain memory to another device, or none. */
static cuda_result open_or_close(struct look_pool *p, int peer, bool on)
{
	cuda_result result = on ? look_result(sim_plain_peer(look.sim, p->device, peer, true)) : TRZ_CUDA_SUCCESS;
	if (result != TRZ_CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&pools.lock);
	p->access = on ? p->access | 1u << peer : p->access & ~(1u << peer);
	pthread_mutex_unlock(&pools.lock);
	if (on || look_peer_enabled(peer, p->device) || look_pools_reach(p->device, peer))
		return TRZ_CUDA_SUCCESS;
	return look_result(sim_plain_peer(look.sim, p->device, peer, false));
}

/* A pool's own device cannot lose access; the simulator has no access only to read. */
static cuda_result set_access(void *pool, const struct cuda_mem_access *access)
{
	int peer = access->location.id, flags = access->flags;
	bool on = flags == TRZ_CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	LOOK_NEED(on || flags == TRZ_CU_MEM_ACCESS_FLAGS_PROT_NONE || flags == TRZ_CU_MEM_ACCESS_FLAGS_PROT_READ,
	          INVALID_VALUE);
	LOOK_NEED(flags != TRZ_CU_MEM_ACCESS_FLAGS_PROT_READ, NOT_SUPPORTED);
	LOOK_NEED(access->location.type == TRZ_CU_MEM_LOCATION_TYPE_DEVICE, NOT_SUPPORTED);
	LOOK_NEED(peer >= 0 && peer < look.devices, INVALID_DEVICE);
	pthread_mutex_lock(&pools.lock);
	struct look_pool *p = find_pool(pool);
	pthread_mutex_unlock(&pools.lock);
	LOOK_NEED(p, INVALID_VALUE);
	LOOK_NEED(peer != p->device || on, INVALID_DEVICE);
	return peer == p->device ? TRZ_CUDA_SUCCESS : open_or_close(p, peer, on);
}

cuda_result cuMemPoolSetAccess(void *pool, const struct cuda_mem_access *access, size_t count)
{
	cuda_result result = TRZ_CUDA_SUCCESS;
	LOOK_ENTER(cuMemPoolSetAccess);
	LOOK_NEED(access || count == 0, INVALID_VALUE);
	for (size_t i = 0; i < count && result == TRZ_CUDA_SUCCESS; i++)
		result = set_access(pool, &access[i]);
	return result;
}

cuda_result cuMemPoolGetAccess(int *flags, void *pool, struct cuda_mem_location *location)
{
	LOOK_ENTER(cuMemPoolGetAccess);
	LOOK_NEED(flags && location && location->type == TRZ_CU_MEM_LOCATION_TYPE_DEVICE, INVALID_VALUE);
	LOOK_NEED(location->id >= 0 && location->id < look.devices, INVALID_VALUE);
	pthread_mutex_lock(&pools.lock);
	const struct look_pool *p = find_pool(pool);
	bool reach = p && (location->id == p->device || p->access >> location->id & 1);
	pthread_mutex_unlock(&pools.lock);
	LOOK_NEED(p, INVALID_VALUE);
	*flags = reach ? TRZ_CU_MEM_ACCESS_FLAGS_PROT_READWRITE : TRZ_CU_MEM_ACCESS_FLAGS_PROT_NONE;
	return TRZ_CUDA_SUCCESS;
}

/* ---- a device's pool ------------------------------------------------------------ */

cuda_result cuDeviceGetDefaultMemPool(void **pool, cuda_device device)
{
	LOOK_ENTER(cuDeviceGetDefaultMemPool);
	LOOK_NEED(pool, INVALID_VALUE);
	LOOK_NEED(device >= 0 && device < look.devices, INVALID_DEVICE);
	*pool = standard_pool(device);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuDeviceGetMemPool(void **pool, cuda_device device)
{
	LOOK_ENTER(cuDeviceGetMemPool);
	LOOK_NEED(pool, INVALID_VALUE);
	LOOK_NEED(device >= 0 && device < look.devices, INVALID_DEVICE);
	*pool = current_pool(device);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuDeviceSetMemPool(cuda_device device, void *pool)
{
	LOOK_ENTER(cuDeviceSetMemPool);
	LOOK_NEED(device >= 0 && device < look.devices, INVALID_DEVICE);
	pthread_mutex_lock(&pools.lock);
	struct look_pool *p = find_pool(pool);
	bool fits = p && p->device == device;
	if (fits)
		pools.current[device] = p;
	pthread_mutex_unlock(&pools.lock);
	LOOK_NEED(fits, INVALID_VALUE);
	return TRZ_CUDA_SUCCESS;
}

/* ---- a location's pool ------------------------------------------------------------ */

/* Only devices have pools here, and only of pinned memory. */
static cuda_result check_location(const struct cuda_mem_location *location, int type)
{
	LOOK_NEED(location && type == TRZ_CU_MEM_ALLOCATION_TYPE_PINNED, INVALID_VALUE);
	LOOK_NEED(location->type == TRZ_CU_MEM_LOCATION_TYPE_DEVICE, NOT_SUPPORTED);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuMemGetDefaultMemPool(void **pool, const struct cuda_mem_location *location, int type)
{
	LOOK_ENTER(cuMemGetDefaultMemPool);
	cuda_result result = check_location(location, type);
	return result == TRZ_CUDA_SUCCESS ? cuDeviceGetDefaultMemPool(pool, location->id) : result;
}

cuda_result cuMemGetMemPool(void **pool, const struct cuda_mem_location *location, int type)
{
	LOOK_ENTER(cuMemGetMemPool);
	cuda_result result = check_location(location, type);
	return result == TRZ_CUDA_SUCCESS ? cuDeviceGetMemPool(pool, location->id) : result;
}

cuda_result cuMemSetMemPool(const struct cuda_mem_location *location, int type, void *pool)
{
	LOOK_ENTER(cuMemSetMemPool);
	cuda_result result = check_location(location, type);
	return result == TRZ_CUDA_SUCCESS ? cuDeviceSetMemPool(location->id, pool) : result;
}
