/* SPDX-License-Identifier: Apache-2.0
 *
 * Counters and history of allocations, frees, mappings and unmappings. Inline, since this is most of the hot path's
 * work.
 */
#ifndef TRZ_ALLOC_ACCOUNT_H
#define TRZ_ALLOC_ACCOUNT_H

#include "heap/ledger.h"

/* A request as it is counted: rounded up as PyTorch does. */
static inline uint64_t account_rounded(uint64_t size)
{
	return align_up(size, UNIT);
}

/* Callers hold another block. */
static inline void account_alloc(trz_heap *h, enum kind kind, uint64_t size, uint64_t occupied)
{
	HEAP_LOCKED(h);
	assert(size > 0 && size <= occupied);
	struct counters *c = &h->counters;
	const uint64_t *limit = h->block_limit[kind];
	bool above = flow_add_to(&c->allocation, kind, 1, limit[ALLOCATION]);
	above |= flow_add_to(&c->allocated_bytes, kind, account_rounded(size), limit[ALLOCATED_BYTES]);
	above |= flow_add_to(&c->requested_bytes, kind, size, limit[REQUESTED_BYTES]);
	counter_add(&c->occupied_bytes, occupied);
	if (UNLIKELY(above))
		heap_raise_peaks_locked(h);
}

/* A block of `size` bytes is one of `grown` bytes now, and occupies `added` bytes more. */
static inline void account_grow(trz_heap *h, enum kind kind, uint64_t size, uint64_t grown, uint64_t added)
{
	HEAP_LOCKED(h);
	assert(size < grown);
	struct counters *c = &h->counters;
	counter_add(&c->allocated_bytes.allocated[kind], account_rounded(grown) - account_rounded(size));
	counter_add(&c->requested_bytes.allocated[kind], grown - size);
	counter_add(&c->occupied_bytes, added);
	heap_raise_peaks_locked(h);
}

static inline void account_free(trz_heap *h, enum kind kind, uint64_t size, uint64_t occupied)
{
	HEAP_LOCKED(h);
	assert(size <= occupied && occupied <= counter_get(&h->counters.occupied_bytes));
	struct counters *c = &h->counters;
	flow_sub(&c->allocation, kind, 1);
	flow_sub(&c->allocated_bytes, kind, account_rounded(size));
	flow_sub(&c->requested_bytes, kind, size);
	counter_add(&c->occupied_bytes, (uint64_t)0 - occupied);
}

/* The same for slots, of a stream whose slots are in. */
static inline void account_slot_alloc(trz_heap *h, struct stream *s, uint64_t size, uint64_t occupied)
{
	SLOTS_IN(h, s);
	assert(size > 0 && size <= occupied);
	const uint64_t more[MEASURES] = {1, account_rounded(size), size};
	if (LIKELY(slots_count_taken(&s->slots, size, occupied)))
		return;
	counter_add(&s->slots.occupied, occupied);
	heap_take_beyond_limit_locked(h, s, more);
}

static inline void account_slot_free(trz_heap *h, struct stream *s, uint64_t size, uint64_t occupied)
{
	SLOTS_IN(h, s);
	assert(size <= occupied && occupied <= counter_get(&s->slots.occupied));
	slots_count_given(&s->slots, size, occupied);
	heap_list_locked(h, s);
}

void account_slot_grow(trz_heap *h, struct stream *s, uint64_t size, uint64_t grown);

/* Counts a slot that becomes pending. It still counts towards the peaks of active memory, so the stream cannot take as
 * much again without asking. */
void account_slot_pend(trz_heap *h, struct stream *s, uint64_t size, uint64_t occupied);

/* Out of line, so that a history that is off costs the hot path one test. */
void account_note_locked(trz_heap *h, unsigned event, const struct lane *l, trz_addr address, uint64_t size);

/* Notes that the calling thread's operation has mapped, unmapped, or moved memory from another address. */
static inline void account_mapping_locked(trz_heap *h, unsigned event, trz_addr from, trz_addr address, uint64_t size,
                                          uint32_t pool)
{
	HEAP_LOCKED(h);
	history_note(&h->history, event, .address = address, .from = from, .size = size, .frames = heap_thread.frames,
	             .pool = pool, .tag = heap_tag_locked(h));
}

#define ACCOUNT_NOTE(h, event, l, address, size) \
	do { \
		if (UNLIKELY((h)->notes)) \
			account_note_locked(h, event, l, address, size); \
	} while (0)

#endif
