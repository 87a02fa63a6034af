/* SPDX-License-Identifier: Apache-2.0
 *
 * Slots of slabs that are open: what most operations of most programs are.
 */
#ifndef TRZ_ALLOC_SMALL_H
#define TRZ_ALLOC_SMALL_H

#include "heap/heap.h"

/* Takes a slot of a bin; 0: no slab is open, this may be a new peak, or the slot would be of the sample. The caller
 * holds the lock of the stream's slots. */
static inline trz_addr small_take_open(struct slots *o, struct bin *bin, uint64_t size)
{
	struct slab *s = bin->first;
	return LIKELY(s && slots_count_taken(o, size, slab_class(s)->slot_size)) ? bin_take_slot(bin, s, size) : 0;
}

/* The hot path: takes a slot for a small request from the stream's lane of the default pool, with one lock, that of its
 * slots, and no call. 0: there is more to do, if only to wait for the lock. */
static inline trz_addr small_try(struct stream *s, uint64_t size)
{
	struct bin *bin = &s->lane.bins[size_class_of(size)];
	if (UNLIKELY(!spinlock_try(&s->slots.lock)))
		return 0;
	trz_addr address = small_take_open(&s->slots, bin, size);
	spinlock_give(&s->slots.lock);
	return address;
}

/* Does all that can be done for a small request without a search. 0: no slab is open, or the slot would be of the
 * sample. */
trz_addr small_alloc(trz_heap *h, struct lane *l, uint64_t size);

/* The same for a stream that was found by its id without the heap lock; the driver has been asked for the id and the
 * capture. 0 also if the entry is another stream's by now. */
trz_addr small_alloc_of(trz_heap *h, struct stream *s, uint64_t id, uint64_t size);

/* Takes a slot of a class under the lock of the slots alone; 0: the slots are in, or small_take_open takes none. */
trz_addr small_take(struct lane *l, unsigned size_class, uint64_t size);

/* Takes a slot of an open slab. The slots are in, and are let out if they may be. */
trz_addr small_take_locked(trz_heap *h, struct lane *l, unsigned size_class, uint64_t size);

/* Whether a slot is held, and a free need only give it back to its bin. */
static inline bool small_goes_back(const struct slab *s, unsigned slot)
{
	if (slot == SLAB_SLOTS_MAX || (s->free | s->pending | s->sampled) >> slot & 1 || s->uses)
		return false;
	bool empty = (s->free | (uint64_t)1 << slot) == slab_all_slots(s);
	return !(empty && s->home->bins[s->size_class].length > 1);
}

/* Gives a slot back in its home's order. The caller holds the lock of the slots of `home`. false: there is no such slot
 * any more, or more has to be done; nothing has changed. `entry` was read at `at` before the lock was taken, so it may
 * be out of date, and the slab another one; under the lock it does not change, since the entry of a stream's slab
 * changes only while that stream's slots are in. */
static inline bool small_give(const _Atomic pagemap_entry *at, pagemap_entry entry, trz_addr address,
                              struct stream *home)
{
	struct slab *s = pagemap_slab(entry);
	if (UNLIKELY(pagemap_read(at) != entry || atomic_load_explicit(&s->stream, memory_order_relaxed) != home))
		return false;
	unsigned slot = slab_slot_at(s, address);
	if (UNLIKELY(!small_goes_back(s, slot)))
		return false;
	uint64_t occupied = slab_class(s)->slot_size;
	slots_count_given(&home->slots, occupied - s->unused[slot], occupied);
	ticket_owe(&home->tickets);
	bin_give_slot(&s->home->bins[s->size_class], s, slot);
	return true;
}

/* The hot path of a free: gives a slot back in its home's order, with one lock, that of its stream's slots. If another
 * thread has the lock, it waits for it only if `waits`. `at`: where the address's entry is; `on`: the stream in
 * whose order the slot is freed; NULL: its home. false: it is no slot, the slots are in, or more has to be done;
 * nothing has changed. */
static inline bool small_free(const _Atomic pagemap_entry *at, trz_addr address, const struct stream *on, bool waits)
{
	pagemap_entry entry = pagemap_read(at);
	if (!pagemap_is_slab(entry))
		return false;
	struct stream *home = atomic_load_explicit(&pagemap_slab(entry)->stream, memory_order_relaxed);
	struct slots *o = &home->slots;
	if (UNLIKELY((on && on != home) || !(waits ? slots_take(o) : spinlock_try(&o->lock))))
		return false;
	bool done = small_give(at, entry, address, home);
	spinlock_give(&o->lock);
	return done;
}

#endif
