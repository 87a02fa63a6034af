/* SPDX-License-Identifier: Apache-2.0
 *
 * The basic operations on blocks: freeing and joining, cutting, holes, slabs. Heap lock held, unless stated otherwise.
 */
#ifndef TRZ_ALLOC_CARVE_H
#define TRZ_ALLOC_CARVE_H

#include "heap/ledger.h"

/* The index that a free block is in. */
static inline struct fit *heap_index_of(const struct block *b)
{
	return &b->home->fit[window_part(b->window)];
}

/* Whether a free block's last use has passed, so that any stream may have the block. */
static inline bool heap_block_passed(const struct block *b)
{
	return ticket_passed(&b->home->stream->tickets, b->sequence);
}

/* Whether captures alone have used a free block since it last passed, so that a capture of its home's stream may have
 * it (capture.c). */
static inline bool heap_block_is_clean(const struct block *b)
{
	return b->sequence <= b->home->clean;
}

/* Makes a block free in its home: joins it with free neighbours of the same home and indexes it.
 * `sequence` is the ticket of its last use. Returns the block that it is, or has become a part of. */
struct block *heap_free_block_locked(trz_heap *h, struct block *b, uint64_t sequence);

enum { GRAIN_BITS = 5 };

/* Medium blocks are whole grains, so that more of them are equal. A grain is a 32nd of the largest power of two that is
 * not above the size. */
static inline uint64_t heap_grain(uint64_t size)
{
	return max_u64(UNIT, (uint64_t)1 << (log2_floor(size) - GRAIN_BITS));
}

/* How many of the `available` bytes from its address on a block of `size` takes. In large memory a rest too short for
 * any request stays with the block as rounding, instead of being indexed. In small memory, where a whole cell would be
 * much for a block, only a rest of up to a grain does. */
static inline uint64_t heap_block_size(enum kind kind, uint64_t size, uint64_t available)
{
	return available - size <= (kind == LARGE ? CELL : heap_grain(size)) ? available : size;
}

/* Takes a free block out of its index, cut down to [address, address + size); the rest stays free. Two nodes have been
 * reserved. The result is BLOCK_BUSY. */
struct block *heap_cut_block_locked(trz_heap *h, struct block *b, trz_addr address, uint64_t size);

/* Cuts a busy block down to [address, address + size); what is left of it is free. Two nodes have been reserved. */
struct block *heap_trim_busy_locked(trz_heap *h, struct block *b, trz_addr address, uint64_t size);

/* Turns a busy block into a hole and joins it with neighbouring holes. */
void heap_make_hole_locked(trz_heap *h, struct block *b);

/* Drops the blocks of a window that is being given back; all of them are holes. */
void heap_drop_holes_locked(trz_heap *h, struct block *first);

/* Cuts [address, address + size) out of a hole. Two nodes have been reserved. The result is BLOCK_BUSY, but has no
 * memory yet. */
struct block *heap_cut_hole_locked(trz_heap *h, struct block *hole, trz_addr address, uint64_t size);

/* Joins a busy block with a free or busy neighbour behind it; the whole is busy. */
void heap_join_busy_locked(trz_heap *h, struct block *b);

/* Makes one busy block [address, address + size) out of free blocks of any home that lie side by side, beginning with
 * `b`; the rest of them stays free. Two nodes have been reserved. */
struct block *heap_carve_locked(trz_heap *h, struct block *b, trz_addr address, uint64_t size);

/* Takes a node for the block over `bytes` from an address on, and makes the pagemap's leaves for them; NULL: no host
 * memory. heap_give_node undoes it, and ignores NULL. Both take the heap lock. */
struct block *heap_take_node(trz_heap *h, trz_addr address, uint64_t bytes);
void heap_give_node(trz_heap *h, struct block *node);

/* Appends a busy block of `size` bytes behind the last block of a window. The caller has taken `node` from h->blocks
 * (heap_take_node): a reservation would not last from one hold of the lock to the next. */
struct block *heap_append_block_locked(struct block *node, struct window *w, struct lane *home, uint64_t size);

/* Makes a busy block of the class's slab size the first slab of the lane's bin. A slab, and the pagemap's cells, have
 * been reserved; the slots of the lane's stream are in. */
struct slab *heap_open_slab_locked(trz_heap *h, struct lane *l, unsigned size_class, struct block *b);

/* Takes a slab, all slots free, out of its bin and frees its block. The stream's slots are in. */
void heap_retire_slab_locked(trz_heap *h, struct slab *s);

/* Retires every slab without held or pending slots. */
void heap_retire_empty_slabs(trz_heap *h);

/* Notes the least that was free in this step of decay; to be called after taking free memory. */
static inline void heap_note_least_locked(trz_heap *h)
{
	HEAP_LOCKED(h);
	uint64_t cached = counter_get(&h->counters.cached_bytes.current);
	if (cached < h->cached_least)
		h->cached_least = cached;
}

#endif
