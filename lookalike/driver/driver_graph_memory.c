/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs' memory: an allocation node has an address from the beginning, and memory there from the first launch on.
 * Graphs that free what they allocate share memory, the same handle mapped at the addresses of each, if they are
 * launched on one stream or one has completed. Unused memory stays reserved until the program trims it.
 */
#include "driver_graph.h"

#include <pthread.h>
#include <stdlib.h>

#include "bits.h"

/* Physical memory. Invariant: `users` blocks have it mapped. */
struct backing {
	LIST_ENTRY(backing) link;
	int device;
	uint64_t size;
	trz_handle handle;
	unsigned users;
	bool exclusive;              /* its user's allocation outlives launches */
	trz_event last;              /* recorded behind the newest launch or free; NULL: there was none */
	trz_context context;
	void *stream;
};

/* Invariant: `references` counts the nodes of graphs and instances that are about it, and one more while live. */
struct look_block {
	LIST_ENTRY(look_block) link;
	unsigned references;
	const struct look_graph *owner;  /* never dereferenced */
	int device;
	uint32_t access;             /* the devices that reach it, one bit each */
	cuda_addr address;
	uint64_t size;
	unsigned allocations, frees; /* nodes of the owner: a block freed there may be allocated again */
	const struct look_node *freed_by;  /* the newest of these frees; never dereferenced */
	bool freed_elsewhere;        /* a node of another graph frees it */
	bool live;                   /* a launch has allocated it, and nothing has freed it since */
	struct backing *backing;     /* NULL: it has no memory yet */
};

static struct {
	pthread_mutex_t lock;
	LIST_HEAD(, look_block) blocks;
	LIST_HEAD(, look_block) ended;   /* no longer referenced, but work may still use them */
	LIST_HEAD(, backing) backings;
	uint64_t used[LOOK_DEVICES], reserved[LOOK_DEVICES], used_high[LOOK_DEVICES], reserved_high[LOOK_DEVICES];
} memory = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- memory behind addresses, with the lock ------------------------------------------------------------ */

static bool has_passed(const struct backing *p)
{
	return !p->last || look.table->event_query(look.table->self, p->context, p->last) == TRZ_OK;
}

static void forget_event(trz_context context, trz_event *event)
{
	if (*event)
		look.table->event_destroy(look.table->self, context, *event);
	*event = NULL;
}

void look_mark(trz_context *of, trz_event *event, trz_context context, void *stream)
{
	if (*of != context)
		forget_event(*of, event);
	*of = context;
	if (!*event && look.table->event_create(look.table->self, context, event) != TRZ_OK)
		*event = NULL;
	if (*event)
		look.table->event_record(look.table->self, context, *event, stream);
}

/* Records that the next user of the memory must come after the stream's work so far. */
static void mark(struct backing *p, trz_context context, void *stream)
{
	p->stream = stream;
	look_mark(&p->context, &p->last, context, stream);
}

static void use(struct backing *p, int users)
{
	bool before = p->users;
	p->users += (unsigned)users;
	if (!before && p->users)
		memory.used[p->device] += p->size;
	else if (before && !p->users)
		memory.used[p->device] -= p->size;
	p->exclusive = p->exclusive && p->users;
	memory.used_high[p->device] = max_u64(memory.used_high[p->device], memory.used[p->device]);
}

static void take_away(struct look_block *b)
{
	look.table->unmap(look.table->self, b->address, b->size);
	use(b->backing, -1);
	b->backing = NULL;
}

static void end_backing(struct backing *p)
{
	forget_event(p->context, &p->last);
	look.table->release(look.table->self, p->handle);
	memory.reserved[p->device] -= p->size;
	LIST_REMOVE(p, link);
	free(p);
}

/* Ends the blocks that nothing refers to and no work uses. */
static void reap(void)
{
	struct look_block *b, *next;
	for (b = LIST_FIRST(&memory.ended); b; b = next) {
		next = LIST_NEXT(b, link);
		if (b->backing && !has_passed(b->backing))
			continue;
		if (b->backing)
			take_away(b);
		look.table->unreserve(look.table->self, b->address, b->size);
		LIST_REMOVE(b, link);
		free(b);
	}
}

static void drop(struct look_block *b)
{
	if (--b->references > 0)
		return;
	LIST_REMOVE(b, link);
	LIST_INSERT_HEAD(&memory.ended, b, link);
	reap();
}

static struct backing *new_backing(int device, uint64_t size)
{
	const trz_tile_props props = {.device = device};
	trz_handle handle = 0;
	struct backing *p = calloc(1, sizeof *p);
	trz_status status = p ? look.table->create(look.table->self, &props, size, &handle) : TRZ_ERROR_HOST_MEMORY;
	if (status == TRZ_ERROR_OUT_OF_MEMORY && look_pools_trim(device, true))
		status = look.table->create(look.table->self, &props, size, &handle);
	if (status != TRZ_OK) {
		free(p);
		return NULL;
	}
	*p = (struct backing){.device = device, .size = size, .handle = handle};
	LIST_INSERT_HEAD(&memory.backings, p, link);
	memory.reserved[device] += size;
	memory.reserved_high[device] = max_u64(memory.reserved_high[device], memory.reserved[device]);
	return p;
}

static bool is_mapped_in(const struct look_list *list, const struct backing *p)
{
	for (size_t i = 0; i < list->count; i++)
		if (list->nodes[i]->block && list->nodes[i]->block->backing == p)
			return true;
	return false;
}

/* Finds memory that nothing else uses once the stream gets there; `any`: the stream may have to wait for that. */
static struct backing *find_backing(const struct look_block *b, const struct look_list *list, trz_context context,
                                    const void *stream, bool any)
{
	struct backing *p;
	LIST_FOREACH(p, &memory.backings, link) {
		bool alone = b->allocations > b->frees && p->users;
		if (p->device != b->device || p->size != b->size || p->exclusive || alone || is_mapped_in(list, p))
			continue;
		if (any || has_passed(p) || (p->context == context && p->stream == stream))
			return p;
	}
	return NULL;
}

static cuda_result lay(struct look_block *b, struct backing *p)
{
	int devices[LOOK_DEVICES], count = 0;
	for (int i = 0; i < look.devices; i++)
		if (b->access >> i & 1)
			devices[count++] = i;
	trz_status status = look.table->map(look.table->self, b->address, b->size, p->handle);
	if (status != TRZ_OK)
		return look_result(status);
	status = look.table->set_access(look.table->self, b->address, b->size, devices, count);
	if (status != TRZ_OK) {
		look.table->unmap(look.table->self, b->address, b->size);
		return look_result(status);
	}
	b->backing = p;
	use(p, 1);
	p->exclusive = b->allocations > b->frees;
	return TRZ_CUDA_SUCCESS;
}

static cuda_result give_memory(struct look_block *b, const struct look_list *list, trz_context context,
                               const void *stream)
{
	reap();
	struct backing *p = find_backing(b, list, context, stream, false);
	if (!p)
		p = new_backing(b->device, b->size);
	if (!p)
		p = find_backing(b, list, context, stream, true);
	cuda_result result = p ? lay(b, p) : TRZ_CUDA_ERROR_OUT_OF_MEMORY;
	look_answered("cuGraphLaunch", b->size, b->device, result);
	return result;
}

/* ---- nodes ------------------------------------------------------------ */

static bool follows(const struct look_node *n, const struct look_node *other)
{
	for (size_t i = 0; i < n->before_count; i++)
		if (n->before[i] == other || follows(n->before[i], other))
			return true;
	return false;
}

/* With the lock: a block that the graph frees before the node. */
static struct look_block *find_freed(const struct look_node *n, int device, uint64_t size, uint32_t access)
{
	struct look_block *b;
	LIST_FOREACH(b, &memory.blocks, link)
		if (b->owner == n->graph && b->device == device && b->size == size && b->access == access &&
		    b->allocations == b->frees && follows(n, b->freed_by))
			break;
	return b;
}

/* With the lock; NULL: no addresses. */
static struct look_block *new_block(const struct look_graph *owner, int device, uint64_t size, uint32_t access)
{
	struct look_block *b = calloc(1, sizeof *b);
	trz_addr address = 0;
	if (!b || look.table->reserve(look.table->self, size, 0, 0, &address) != TRZ_OK) {
		free(b);
		return NULL;
	}
	*b = (struct look_block){.owner = owner, .device = device, .size = size, .access = access, .address = address};
	LIST_INSERT_HEAD(&memory.blocks, b, link);
	return b;
}

cuda_result look_block_make(struct look_node *n, struct cuda_alloc_node *alloc)
{
	trz_device_info info = {.granularity = 0};
	int device = alloc->pool.location.id;
	LOOK_NEED(alloc->size > 0 && alloc->pool.handle_types == 0, INVALID_VALUE);
	LOOK_NEED(alloc->pool.location.type == TRZ_CU_MEM_LOCATION_TYPE_DEVICE && device >= 0 && device < look.devices,
	          INVALID_VALUE);
	LOOK_NEED(!n->graph->belongs, NOT_SUPPORTED);
	uint32_t access = 1u << device;
	for (size_t i = 0; i < alloc->access_count; i++) {
		int peer = alloc->access[i].location.id;
		LOOK_NEED(peer >= 0 && peer < look.devices, INVALID_VALUE);
		access |= 1u << peer;
	}
	cuda_result result = LOOK_SLOT(device_info, device, &info);
	if (result != TRZ_CUDA_SUCCESS)
		return result;
	uint64_t size = align_up(alloc->size, info.granularity);
	LOOK_NEED(size >= alloc->size, OUT_OF_MEMORY);
	pthread_mutex_lock(&memory.lock);
	struct look_block *b = find_freed(n, device, size, access);
	b = b ? b : new_block(n->graph, device, size, access);
	if (b) {
		b->references++;
		b->allocations++;
		alloc->address = b->address;
	}
	pthread_mutex_unlock(&memory.lock);
	n->block = b;
	n->graph->has_memory = true;
	LOOK_NEED(b, OUT_OF_MEMORY);
	return TRZ_CUDA_SUCCESS;
}

/* A node of the owner frees what another of its nodes allocates; a node of another graph frees what outlives the
 * owner's launches. */
cuda_result look_block_free_node(struct look_node *n, cuda_addr address)
{
	struct look_block *b;
	pthread_mutex_lock(&memory.lock);
	LIST_FOREACH(b, &memory.blocks, link)
		if (b->address == address)
			break;
	bool inside = b && b->owner == n->graph;
	bool valid = b && b->allocations > b->frees && !(inside && b->freed_elsewhere);
	if (valid) {
		b->references++;
		b->frees += inside;
		b->freed_by = inside ? n : b->freed_by;
		b->freed_elsewhere = !inside;
	}
	pthread_mutex_unlock(&memory.lock);
	LOOK_NEED(valid, INVALID_VALUE);
	n->block = b;
	n->graph->has_memory = true;
	return TRZ_CUDA_SUCCESS;
}

void look_block_hold(struct look_block *b)
{
	pthread_mutex_lock(&memory.lock);
	b->references++;
	pthread_mutex_unlock(&memory.lock);
}

void look_block_drop(struct look_node *n)
{
	if (!n->block)
		return;
	pthread_mutex_lock(&memory.lock);
	drop(n->block);
	pthread_mutex_unlock(&memory.lock);
	n->block = NULL;
}

/* ---- launches ------------------------------------------------------------ */

static void set_live(struct look_block *b, bool live)
{
	if (b->live == live)
		return;
	b->live = live;
	if (live)
		b->references++;
	else
		drop(b);
}

static struct look_graph *inner_of(const struct look_node *n)
{
	return n->is.type == TRZ_CU_GRAPH_NODE_TYPE_GRAPH && !n->source ? n->is.of.child.graph : NULL;
}

/* With the lock: whether no block that the launch allocates is live, or `frees`: launches free live ones. */
static bool may_launch(const struct look_list *list, bool frees)
{
	for (size_t i = 0; i < list->count; i++) {
		const struct look_node *n = list->nodes[i];
		const struct look_graph *inner = inner_of(n);
		if (inner && !may_launch(&inner->list, frees))
			return false;
		if (n->is.type == TRZ_CU_GRAPH_NODE_TYPE_MEM_ALLOC && n->block && n->block->live && !frees)
			return false;
	}
	return true;
}

static cuda_result lay_list(const struct look_list *list, trz_context context, void *stream, bool *moved)
{
	for (size_t i = 0; i < list->count; i++) {
		struct look_block *b = list->nodes[i]->block;
		const struct look_graph *inner = inner_of(list->nodes[i]);
		cuda_result result = inner ? lay_list(&inner->list, context, stream, moved) : TRZ_CUDA_SUCCESS;
		if (b && !b->backing && list->nodes[i]->is.type == TRZ_CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
			result = give_memory(b, list, context, stream);
			*moved = true;
		}
		if (result != TRZ_CUDA_SUCCESS)
			return result;
		struct backing *p = b ? b->backing : NULL;
		if (p && p->last && (p->stream != stream || p->context != context) &&
		    !sim_capture_of(look.sim, context, stream))
			look.table->stream_wait(look.table->self, context, stream, p->last);
	}
	return TRZ_CUDA_SUCCESS;
}

cuda_result look_blocks_lay(struct look_exec *e, trz_context context, void *stream, bool *moved)
{
	*moved = false;
	if (!e->has_memory)
		return TRZ_CUDA_SUCCESS;
	trz_capture_mode mode = TRZ_CAPTURE_RELAXED; /* the program's own mode must not matter here */
	look.table->capture_mode(look.table->self, &mode);
	pthread_mutex_lock(&memory.lock);
	bool frees = e->flags & TRZ_CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
	cuda_result result = may_launch(&e->list, frees) ? lay_list(&e->list, context, stream, moved)
	                                                 : TRZ_CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_unlock(&memory.lock);
	look.table->capture_mode(look.table->self, &mode);
	return result;
}

static void launched(const struct look_list *list, trz_context context, void *stream)
{
	for (size_t i = 0; i < list->count; i++) {
		const struct look_node *n = list->nodes[i];
		const struct look_graph *inner = inner_of(n);
		if (inner)
			launched(&inner->list, context, stream);
		if (!n->block)
			continue;
		if (n->block->backing)
			mark(n->block->backing, context, stream);
		set_live(n->block, n->is.type == TRZ_CU_GRAPH_NODE_TYPE_MEM_ALLOC);
	}
}

void look_blocks_launched(struct look_exec *e, trz_context context, void *stream)
{
	if (!e->has_memory)
		return;
	pthread_mutex_lock(&memory.lock);
	launched(&e->list, context, stream);
	pthread_mutex_unlock(&memory.lock);
}

/* ---- outside graphs ------------------------------------------------------------ */

bool look_block_free(cuda_addr address, trz_context context, void *stream, cuda_result *result)
{
	struct look_block *b;
	pthread_mutex_lock(&memory.lock);
	LIST_FOREACH(b, &memory.blocks, link)
		if (b->address == address)
			break;
	bool found = b, live = b && b->live && b->allocations > b->frees;
	if (live) {
		if (!sim_capture_of(look.sim, context, stream))
			mark(b->backing, context, stream);
		set_live(b, false);
	}
	pthread_mutex_unlock(&memory.lock);
	*result = live ? TRZ_CUDA_SUCCESS : TRZ_CUDA_ERROR_INVALID_VALUE;
	return found;
}

void look_blocks_end_context(trz_context context)
{
	struct backing *p;
	pthread_mutex_lock(&memory.lock);
	LIST_FOREACH(p, &memory.backings, link)
		if (p->context == context) {
			p->last = NULL;
			p->context = NULL;
		}
	pthread_mutex_unlock(&memory.lock);
}

/* Takes the memory of graphs that are not running; their next launch gets new memory. */
cuda_result cuDeviceGraphMemTrim(cuda_device device)
{
	struct look_block *b;
	struct backing *p, *next;
	LOOK_ENTER(cuDeviceGraphMemTrim);
	LOOK_NEED(device >= 0 && device < look.devices, INVALID_DEVICE);
	pthread_mutex_lock(&memory.lock);
	reap();
	LIST_FOREACH(b, &memory.blocks, link)
		if (b->device == device && b->backing && !b->live && has_passed(b->backing))
			take_away(b);
	for (p = LIST_FIRST(&memory.backings); p; p = next) {
		next = LIST_NEXT(p, link);
		if (p->device == device && !p->users && has_passed(p))
			end_backing(p);
	}
	pthread_mutex_unlock(&memory.lock);
	return TRZ_CUDA_SUCCESS;
}

static uint64_t *figure(cuda_device device, int attribute)
{
	switch (attribute) {
	case TRZ_CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
		return &memory.used[device];
	case TRZ_CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
		return &memory.used_high[device];
	case TRZ_CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
		return &memory.reserved[device];
	case TRZ_CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
		return &memory.reserved_high[device];
	default:
		return NULL;
	}
}

cuda_result cuDeviceGetGraphMemAttribute(cuda_device device, int attribute, void *value)
{
	LOOK_ENTER(cuDeviceGetGraphMemAttribute);
	LOOK_NEED(device >= 0 && device < look.devices, INVALID_DEVICE);
	LOOK_NEED(value && figure(device, attribute), INVALID_VALUE);
	pthread_mutex_lock(&memory.lock);
	*(uint64_t *)value = *figure(device, attribute);
	pthread_mutex_unlock(&memory.lock);
	return TRZ_CUDA_SUCCESS;
}

/* A high-water mark can only be set to 0, which makes it the current value. */
cuda_result cuDeviceSetGraphMemAttribute(cuda_device device, int attribute, void *value)
{
	LOOK_ENTER(cuDeviceSetGraphMemAttribute);
	LOOK_NEED(device >= 0 && device < look.devices, INVALID_DEVICE);
	bool high = attribute == TRZ_CU_GRAPH_MEM_ATTR_USED_MEM_HIGH ||
	            attribute == TRZ_CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
	LOOK_NEED(high && value && *(uint64_t *)value == 0, INVALID_VALUE);
	pthread_mutex_lock(&memory.lock);
	*figure(device, attribute) = *figure(device, attribute - 1);
	pthread_mutex_unlock(&memory.lock);
	return TRZ_CUDA_SUCCESS;
}
