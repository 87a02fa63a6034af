/* SPDX-License-Identifier: Apache-2.0
 *
 * Counting what callers hold by call site (stats/sites.h), and reading it. Blocks are counted one by one, slots by the
 * sample. A block has its site's number; so has a slot of the sample, in its slab, whose mask `sampled` sends the free
 * the long way.
 *
 * The stack is asked for before any lock is taken: by an operation on a block, and by one that finds the next slot of
 * its stream to be of the sample. The short ways of a slot leave such a slot to the long one (slots_are_due).
 */
#ifndef TRZ_ALLOC_HOLDERS_H
#define TRZ_ALLOC_HOLDERS_H

#include "heap/ledger.h"
#include "observe/frames.h"
#include "observe/steps.h"

/* Whether holders_prepare has anything to do. */
static inline bool holders_prepares(const trz_heap *h)
{
	return period_is_due(h) || atomic_load_explicit(&h->site_stacks, memory_order_relaxed);
}

/* Asks the callback, if there is one, for the stack of the operation that the thread begins, on a block or on a slot
 * that is due. Before that, ends the step if an earlier operation was found to end one. No lock is held. */
static inline void holders_prepare(trz_heap *h)
{
	if (UNLIKELY(period_is_due(h)))
		steps_end_recognised(h);
	if (UNLIKELY(atomic_load_explicit(&h->site_stacks, memory_order_relaxed)))
		frames_gather_site(h);
}

/* The slow part of holders_take_block_locked: threads with a tag or a category, and other sites than the last one. */
void holders_take_block_slow_locked(trz_heap *h, struct block *b);

/* A caller holds the block from now on. */
static inline void holders_take_block_locked(trz_heap *h, struct block *b)
{
	HEAP_LOCKED(h);
	const struct heap_thread *t = &heap_thread;
	if (LIKELY(t->stack == h->sites.last_stack && !t->marked)) {
		const struct site_weight w = sites_whole(b->requested);
		b->site = (uint16_t)h->sites.last_number;
		site_add(h->sites.last, &w);
	} else {
		holders_take_block_slow_locked(h, b);
	}
}

/* A caller holds the block no more. */
static inline void holders_give_block_locked(trz_heap *h, const struct block *b)
{
	HEAP_LOCKED(h);
	if (LIKELY(b->site))
		sites_leave(&h->sites, b->site, sites_whole(b->requested));
}

/* The block's caller had asked for `size` bytes, and has b->requested now. */
void holders_grow_block_locked(trz_heap *h, const struct block *b, uint64_t size);

void holders_sample_slot_locked(trz_heap *h, struct slab *s, unsigned slot);
void holders_give_sampled_locked(trz_heap *h, struct slab *s, unsigned slot);

/* A caller holds the slot from now on; account_slot_alloc has counted it. */
static inline void holders_take_slot_locked(trz_heap *h, struct slab *s, unsigned slot)
{
	SLOTS_IN(h, s->home->stream);
	if (UNLIKELY(slots_are_due(&s->home->stream->slots, 0)))
		holders_sample_slot_locked(h, s, slot);
}

static inline void holders_give_slot_locked(trz_heap *h, struct slab *s, unsigned slot)
{
	SLOTS_IN(h, s->home->stream);
	if (UNLIKELY(s->sampled >> slot & 1))
		holders_give_sampled_locked(h, s, slot);
}

/* As holders_grow_block_locked; the added bytes have been counted. */
void holders_grow_slot_locked(trz_heap *h, struct slab *s, unsigned slot, uint64_t size);

/* Live memory changes its category. false: the address is not that of a live allocation. */
bool holders_categorize(trz_heap *h, trz_addr address, unsigned category);

struct holders_count {
	uint64_t stack, count;
};

/* The sites with live allocations from number *next on, which begins with 1; returns how many it has found. Fewer than
 * `capacity`: there are no more. Takes no lock but the heap lock. */
size_t holders_live(trz_heap *h, uint32_t *next, struct holders_count *out, size_t capacity);

/* How many allocations of a site are live; 0: there is no such site. */
uint64_t holders_live_of(trz_heap *h, uint64_t site);

/* The largest, by live bytes, up to `capacity`; returns how many there are. Takes no lock but the heap lock. */
size_t holders_read(trz_heap *h, trz_holder_kind by, trz_holder *out, size_t capacity);

#endif
