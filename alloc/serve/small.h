/* SPDX-License-Identifier: Apache-2.0
 *
 * Slots of slabs that are open: what most operations of most programs are.
 */
#ifndef TRZ_ALLOC_SMALL_H
#define TRZ_ALLOC_SMALL_H

#include "heap/heap.h"

/* The hot path: a slot for a small request on the lane's stream; 0: no slab is open, or the slot would be of the
 * sample. One lock, that of the stream's slots, unless they are in or it may be a new peak; no call. */
trz_addr small_alloc(trz_heap *h, struct lane *l, uint64_t size);

/* The same for a stream that was found by its id without the heap lock; the driver has been asked for the id and for
 * the capture. 0 also: it is another stream by now. */
trz_addr small_alloc_of(trz_heap *h, struct stream *s, uint64_t id, uint64_t size);

/* Takes a slot of a class under the lock of the slots alone; 0: no slab is open, the slots are in, or it may be a new
 * peak. */
trz_addr small_take(struct lane *l, unsigned size_class, uint64_t size);

/* Takes a slot of an open slab. The slots are in; they go out, if they may. */
trz_addr small_take_locked(trz_heap *h, struct lane *l, unsigned size_class, uint64_t size);

/* Whether a slab's slot that begins at an address, and is held, can go back to its bin, and that is all. */
static inline bool small_goes_back(const struct slab *s, unsigned slot)
{
	if (slot == SLAB_SLOTS_MAX || (s->free | s->pending | s->sampled) >> slot & 1 || s->uses)
		return false;
	bool empty = (s->free | (uint64_t)1 << slot) == slab_all_slots(s);
	return !(empty && s->home->bins[s->size_class].length > 1);
}

/* Frees a slot in its home's order under the lock of its stream's slots alone. `entry` has been read at `at`. false:
 * there is no such slot, the slots are in, or more has to be done; nothing has changed. Until the lock is held the
 * entry may be old, and the slab another one: an entry of a stream's slab changes only while that stream's slots are
 * in. */
static inline bool small_free(const _Atomic pagemap_entry *at, pagemap_entry entry, trz_addr address,
                              const struct stream *on)
{
	struct slab *s = pagemap_slab(entry);
	struct stream *home = atomic_load_explicit(&s->stream, memory_order_relaxed);
	bool done = false;
	if (UNLIKELY((on && on != home) || !slots_are_out(&home->slots)))
		return false;
	spinlock_take(&home->slots.lock);
	if (LIKELY(slots_are_out(&home->slots) && pagemap_read(at) == entry &&
	           atomic_load_explicit(&s->stream, memory_order_relaxed) == home)) {
		unsigned slot = slab_slot_at(s, address);
		done = small_goes_back(s, slot);
		if (LIKELY(done)) {
			uint64_t occupied = slab_class(s)->slot_size;
			slots_count_given(&home->slots, occupied - s->unused[slot], occupied);
			ticket_owe(&home->tickets);
			bin_give_slot(&s->home->bins[s->size_class], s, slot);
		}
	}
	spinlock_give(&home->slots.lock);
	return done;
}

#endif
