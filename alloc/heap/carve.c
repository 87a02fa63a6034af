/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks are cut and joined here and nowhere else.
 */
#include "heap/carve.h"

#include <assert.h>

/* A dedicated tile that is kept stays one block. The parts of one that serves once join: when all of it is free, it is
 * returned. */
static inline bool joins(const struct block *a, const struct block *b)
{
	return a && b && a->state == BLOCK_FREE && b->state == BLOCK_FREE && a->home == b->home &&
	       !lane_keeps_dedicated(a->home);
}

/* More is free than trim_threshold allows. What a trim had to leave, for want of whole tiles, is looked at again when
 * as much has been freed. */
static NOINLINE void want_trim_locked(trz_heap *h)
{
	HEAP_LOCKED(h);
	if (flow_freed(&h->counters.allocated_bytes) >= h->trim_again)
		atomic_store_explicit(&h->poll_wanted, true, memory_order_relaxed);
}

struct block *heap_free_block_locked(trz_heap *h, struct block *b, uint64_t sequence)
{
	HEAP_LOCKED(h);
	assert(b->state != BLOCK_HOLE && !b->exports && !b->window->foreign);
	assert(b->home->dedicated == b->window->dedicated && sequence <= b->home->stream->tickets.newest);
	struct fit *f = heap_index_of(b);
	b->state = BLOCK_FREE;
	b->sequence = sequence;
	if (joins(b, b->next)) {
		fit_remove(f, b->next);
		b->sequence = max_u64(b->sequence, b->next->sequence);
		block_absorb_next(&h->blocks, b);
	}
	if (joins(b->prev, b)) {
		struct block *prev = b->prev;
		fit_remove(f, prev);
		prev->sequence = max_u64(prev->sequence, b->sequence);
		block_absorb_next(&h->blocks, prev);
		b = prev;
	}
	fit_insert(f, b);
	uint64_t most = h->config.trim_threshold;
	if (UNLIKELY(most && counter_get(&h->counters.cached_bytes.current) > most))
		want_trim_locked(h);
	return b;
}

struct block *heap_cut_block_locked(trz_heap *h, struct block *b, trz_addr address, uint64_t size)
{
	HEAP_LOCKED(h);
	struct fit *f = heap_index_of(b);
	assert(b->state == BLOCK_FREE && address >= b->address && address + size <= block_end(b));
	assert(size > 0 && (address | size) % UNIT == 0);
	fit_remove(f, b);
	if (address > b->address) {
		struct block *front = b;
		b = block_split(&h->blocks, front, address - front->address);
		fit_insert(f, front);
	}
	if (b->size > size)
		fit_insert(f, block_split(&h->blocks, b, size));
	b->state = BLOCK_BUSY;
	return b;
}

struct block *heap_trim_busy_locked(trz_heap *h, struct block *b, trz_addr address, uint64_t size)
{
	HEAP_LOCKED(h);
	assert(b->state == BLOCK_BUSY && address >= b->address && address + size <= block_end(b));
	if (b->address < address) {
		struct block *front = b;
		b = block_split(&h->blocks, front, address - front->address);
		heap_free_block_locked(h, front, front->sequence);
	}
	if (b->size > size) {
		struct block *rest = block_split(&h->blocks, b, size);
		heap_free_block_locked(h, rest, rest->sequence);
	}
	return b;
}

static void list_hole(trz_heap *h, struct block *b)
{
	b->hole_prev = NULL;
	b->hole_next = h->holes;
	if (b->hole_next)
		b->hole_next->hole_prev = b;
	h->holes = b;
}

static void unlist_hole(trz_heap *h, struct block *b)
{
	if (b->hole_prev)
		b->hole_prev->hole_next = b->hole_next;
	else
		h->holes = b->hole_next;
	if (b->hole_next)
		b->hole_next->hole_prev = b->hole_prev;
}

void heap_make_hole_locked(trz_heap *h, struct block *b)
{
	HEAP_GROWTH_LOCKED(h);
	HEAP_LOCKED(h);
	assert(b->state != BLOCK_FREE && b->state != BLOCK_SLAB && b->state != BLOCK_HOLE);  /* an import's is not busy */
	b->home = NULL;
	if (b->next && b->next->state == BLOCK_HOLE) {
		unlist_hole(h, b->next);
		block_absorb_next(&h->blocks, b);
	}
	if (b->prev && b->prev->state == BLOCK_HOLE) {
		b = b->prev;
		block_absorb_next(&h->blocks, b);
	} else {
		b->state = BLOCK_HOLE;
		list_hole(h, b);
	}
}

void heap_drop_holes_locked(trz_heap *h, struct block *b)
{
	HEAP_GROWTH_LOCKED(h);
	HEAP_LOCKED(h);
	while (b) {
		struct block *next = b->next;
		assert(b->state == BLOCK_HOLE);
		unlist_hole(h, b);
		node_pool_give(&h->blocks, b);
		b = next;
	}
}

struct block *heap_cut_hole_locked(trz_heap *h, struct block *hole, trz_addr address, uint64_t size)
{
	HEAP_GROWTH_LOCKED(h);
	HEAP_LOCKED(h);
	struct block *b = hole;
	assert(size > 0 && hole->state == BLOCK_HOLE && address >= hole->address && address + size <= block_end(hole));
	if (address > hole->address)
		b = block_split(&h->blocks, hole, address - hole->address);
	else
		unlist_hole(h, hole);
	if (b->size > size)
		list_hole(h, block_split(&h->blocks, b, size));
	b->state = BLOCK_BUSY;
	return b;
}

void heap_join_busy_locked(trz_heap *h, struct block *b)
{
	HEAP_LOCKED(h);
	struct block *next = b->next;
	assert(b->state == BLOCK_BUSY && next && (next->state == BLOCK_FREE || next->state == BLOCK_BUSY));
	if (next->state == BLOCK_FREE)
		fit_remove(heap_index_of(next), next);
	b->sequence = max_u64(b->sequence, next->sequence);
	block_absorb_next(&h->blocks, b);
}

struct block *heap_carve_locked(trz_heap *h, struct block *b, trz_addr address, uint64_t size)
{
	HEAP_LOCKED(h);
	trz_addr end = address + size;
	b = heap_cut_block_locked(h, b, address, min_u64(end, block_end(b)) - address);
	while (block_end(b) < end) {
		assert(b->next && b->next->state == BLOCK_FREE);
		if (block_end(b->next) > end)
			heap_cut_block_locked(h, b->next, b->next->address, end - b->next->address);
		heap_join_busy_locked(h, b);
	}
	return b;
}

struct block *heap_take_node(trz_heap *h, trz_addr address, uint64_t bytes)
{
	heap_lock(h);
	bool room = pagemap_cover(&h->pagemap, address, bytes) && node_pool_reserve(&h->blocks, 1);
	struct block *node = room ? node_pool_take(&h->blocks) : NULL;
	heap_unlock(h);
	return node;
}

void heap_give_node(trz_heap *h, struct block *node)
{
	if (!node)
		return;
	heap_lock(h);
	node_pool_give(&h->blocks, node);
	heap_unlock(h);
}

struct block *heap_append_block_locked(struct block *b, struct window *w, struct lane *home, uint64_t size)
{
	const struct block *last = w->blocks.last;
	*b = (struct block){.address = last ? block_end(last) : w->base,
	                    .size = size,
	                    .window = w,
	                    .home = home,
	                    .state = BLOCK_BUSY,
	                    .kind = w->kind};
	block_append(&w->blocks, b);
	return b;
}

/* ---- slabs ---- */

struct slab *heap_open_slab_locked(trz_heap *h, struct lane *l, unsigned size_class, struct block *b)
{
	HEAP_LOCKED(h);
	assert(b->state == BLOCK_BUSY && b->kind == SMALL);
	SLOTS_IN(h, l->stream);
	struct slab *s = node_pool_take(&h->slabs);
	b->state = BLOCK_SLAB;
	b->home = l;
	b->slab = s;
	slab_init(s, b, size_class);
	atomic_store_explicit(&s->stream, l->stream, memory_order_relaxed);
	l->slabs++;
	pagemap_set_slab(&h->pagemap, b->address, b->size, s);
	counter_add(&h->counters.slab_bytes, b->size);
	bin_push(&l->bins[size_class], s);
	return s;
}

void heap_retire_slab_locked(trz_heap *h, struct slab *s)
{
	HEAP_LOCKED(h);
	struct block *b = s->block;
	struct lane *home = s->home;
	SLOTS_IN(h, home->stream);
	assert(b->state == BLOCK_SLAB && s->free == slab_all_slots(s) && !s->pending && !s->uses && home->slabs > 0);
	bin_unlink(&home->bins[s->size_class], s);
	home->slabs--;
	pagemap_set_slab(&h->pagemap, b->address, b->size, NULL);
	counter_add(&h->counters.slab_bytes, (uint64_t)0 - b->size);
	if (s->frames)
		node_pool_give(&h->slot_frames, s->frames);
	assert(!s->sampled);
	if (s->sites)
		node_pool_give(&h->slot_sites, s->sites);
	node_pool_give(&h->slabs, s);
	heap_free_block_locked(h, b, ticket_newest(&home->stream->tickets));
}

static void retire_empty_of(trz_heap *h, const struct bin *bin)
{
	if (bin->last && bin->last->free == slab_all_slots(bin->last))
		heap_retire_slab_locked(h, bin->last);
}

void heap_retire_empty_slabs(trz_heap *h)
{
	HEAP_GROWTH_LOCKED(h);
	heap_lock(h);
	for (struct lane *l = h->streams.lanes.first; l; l = l->next) {
		heap_call_in_locked(h, l->stream);
		for (unsigned c = 0; c < CLASS_COUNT; c++)
			retire_empty_of(h, &l->bins[c]);
		heap_unlock(h); /* the growth lock keeps the list as it is, but for additions */
		heap_lock(h);
	}
	heap_unlock(h);
}
