/* SPDX-License-Identifier: Apache-2.0
 *
 * A walk over all windows that sorts free memory by whom it could serve.
 */
#include "supply/facts.h"

#include "heap/ledger.h"
#include "supply/shared.h"

/* Bytes of a free block that are whole tiles. */
static uint64_t whole_bytes(const struct window *w, const struct block *b)
{
	uint64_t bytes = 0;
	trz_addr cursor = b->address;
	if (w->classic)
		return b->size == w->size ? b->size : 0;
	if (b->tileless)
		return 0;
	for (const struct place *p; (p = window_next_owned(w, &cursor, block_end(b)));)
		bytes += p->tile->size;
	return bytes;
}

static void add_free(struct facts *f, const struct lane *l, const struct lane *of, uint64_t bytes, uint64_t piece)
{
	bool pools = of->pool != l->pool && lane_is_pinned(of), own = of == l || of->pool != l->pool;
	uint64_t *sum = pools ? &f->free_pools : own ? &f->free_own : &f->free_streams;
	uint64_t *largest = pools ? &f->largest_pools : own ? &f->largest_own : &f->largest_streams;
	*sum += bytes;
	if (of == l || !own || pools)  /* other pools that no graph relies on serve the lane by whole tiles alone */
		*largest = max_u64(*largest, piece);
}

static uint64_t free_slot_bytes(const struct slab *s)
{
	return (uint64_t)__builtin_popcountll(s->free) * slab_class(s)->slot_size;
}

static void add_block_locked(trz_heap *h, const struct lane *l, const struct window *w, const struct block *b,
                             struct facts *f)
{
	(void)h;
	HEAP_LOCKED(h);
	if (b->state == BLOCK_SLAB) {
		uint64_t bytes = free_slot_bytes(b->slab);
		f->free_slots += bytes;
		add_free(f, l, b->home, bytes, 0);
	} else if (b->state == BLOCK_FREE) {
		uint64_t whole = whole_bytes(w, b);
		add_free(f, l, b->home, b->size, b->size);
		*(lane_is_pinned(b->home) ? &f->whole_pools : &f->whole) += whole;
	}
}

void facts_gather(trz_heap *h, const struct lane *l, struct facts *f)
{
	HEAP_GROWTH_LOCKED(h);
	struct counters counters;
	shared_ask(h->driver.device, &f->shared);
	f->heap = h->serial;
	f->withheld = h->withheld;
	f->site = heap_thread.stack;
	f->category = heap_thread.category;
	f->pool = pool_id(l->pool);
	heap_lock(h);
	heap_call_all_in_locked(h);
	for (int kind = 0; kind < KINDS; kind++)
		for (const struct window *w = h->windows[kind]; w; w = w->next)
			for (const struct block *b = w->blocks.first; b; b = b->next)
				add_block_locked(h, l, w, b, f);
	heap_unlock(h);
	heap_read_counters(h, &counters);
	f->live_requested = flow_all(&counters.requested_bytes);
	f->peak_allocated = counter_get(&counters.allocated_bytes.peak[2]);
	f->peak_reserved = counter_get(&counters.reserved_bytes.peak[2]);
}
