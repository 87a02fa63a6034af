/* SPDX-License-Identifier: Apache-2.0
 *
 * Counters and history of allocations, frees, mappings and unmappings. Inline, since this is most of the hot path's
 * work.
 */
#ifndef TRZ_ALLOC_ACCOUNT_H
#define TRZ_ALLOC_ACCOUNT_H

#include "heap/heap.h"

/* A request as it is counted: rounded up as PyTorch does. */
static inline uint64_t account_rounded(uint64_t size)
{
	return align_up(size, UNIT);
}

/* Occupied memory. Slots are of small kind, blocks of either. */
enum holder { SLOTS, BLOCKS };

/* Without pending memory these peaks are those of live allocations. */
void account_active_peaks_locked(trz_heap *h);

static inline void account_alloc(trz_heap *h, enum holder by, enum kind kind, uint64_t size, uint64_t occupied)
{
	HEAP_LOCKED(h);
	assert(size > 0 && size <= occupied);
	struct counters *c = &h->counters;
	flow_add(&c->allocation, kind, 1);
	flow_add(&c->allocated_bytes, kind, account_rounded(size));
	flow_add(&c->requested_bytes, kind, size);
	counter_add(&c->occupied_bytes[by], occupied);
	if (UNLIKELY(counter_get(&c->pending.current)))
		account_active_peaks_locked(h);
}

/* An allocation of `size` bytes is one of `grown` bytes now, and occupies `added` bytes more. */
static inline void account_grow(trz_heap *h, enum holder by, enum kind kind, uint64_t size, uint64_t grown,
                                uint64_t added)
{
	HEAP_LOCKED(h);
	assert(size < grown);
	struct counters *c = &h->counters;
	flow_add(&c->allocated_bytes, kind, account_rounded(grown) - account_rounded(size));
	flow_add(&c->requested_bytes, kind, grown - size);
	counter_add(&c->occupied_bytes[by], added);
	if (UNLIKELY(counter_get(&c->pending.current)))
		account_active_peaks_locked(h);
}

static inline void account_free(trz_heap *h, enum holder by, enum kind kind, uint64_t size, uint64_t occupied)
{
	HEAP_LOCKED(h);
	assert(size <= occupied && occupied <= counter_get(&h->counters.occupied_bytes[by]));
	struct counters *c = &h->counters;
	flow_sub(&c->allocation, kind, 1);
	flow_sub(&c->allocated_bytes, kind, account_rounded(size));
	flow_sub(&c->requested_bytes, kind, size);
	counter_add(&c->occupied_bytes[by], (uint64_t)0 - occupied);
}

/* Out of line, so that a history that is off costs the hot path one test. */
void account_note_locked(trz_heap *h, unsigned event, const struct lane *l, trz_addr address, uint64_t size);

/* Notes that the calling thread's operation has mapped, unmapped, or moved memory from another address. */
static inline void account_mapping_locked(trz_heap *h, unsigned event, trz_addr from, trz_addr address, uint64_t size,
                                          uint32_t pool)
{
	HEAP_LOCKED(h);
	history_note(&h->history, event, .address = address, .from = from, .size = size, .frames = heap_thread_frames,
	             .pool = pool, .tag = heap_tag_locked(h));
}

#define ACCOUNT_NOTE(h, event, l, address, size) \
	do { \
		if (UNLIKELY((h)->notes)) \
			account_note_locked(h, event, l, address, size); \
	} while (0)

#endif
