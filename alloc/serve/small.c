/* SPDX-License-Identifier: Apache-2.0
 *
 * Taking slots of slabs that are open already, where possible under the lock of their stream's slots alone.
 */
#include "serve/small.h"

#include "observe/account.h"
#include "observe/holders.h"

trz_addr small_take_locked(trz_heap *h, struct lane *l, unsigned size_class, uint64_t size)
{
	SLOTS_IN(h, l->stream);
	struct slab *s = l->bins[size_class].first;
	trz_addr address = bin_take_slot(&l->bins[size_class], s, size);
	account_slot_alloc(h, l->stream, size, size_classes[size_class].slot_size);
	holders_take_slot_locked(h, s, size_class_slot(&size_classes[size_class], address - s->base));
	ACCOUNT_NOTE(h, HISTORY_ALLOC, l, address, size);
	heap_let_out_locked(h, l->stream);
	return address;
}

static inline trz_addr take_alone(struct lane *l, unsigned size_class, uint64_t size)
{
	struct slots *o = &l->stream->slots;
	if (UNLIKELY(!slots_take(o)))
		return 0;
	trz_addr address = small_take_open(o, &l->bins[size_class], size);
	spinlock_give(&o->lock);
	return address;
}

trz_addr small_take(struct lane *l, unsigned size_class, uint64_t size)
{
	return take_alone(l, size_class, size);
}

static FLAT NOINLINE trz_addr take_open_slot(trz_heap *h, struct lane *l, unsigned size_class, uint64_t size)
{
	heap_lock(h);
	heap_call_in_locked(h, l->stream);
	bool open = l->bins[size_class].first && !slots_are_due(&l->stream->slots, size);
	trz_addr address = open ? small_take_locked(h, l, size_class, size) : 0;
	heap_unlock(h);
	return address;
}

trz_addr small_alloc(trz_heap *h, struct lane *l, uint64_t size)
{
	unsigned c = size_class_of(size);
	trz_addr address = take_alone(l, c, size);
	return LIKELY(address) ? address : take_open_slot(h, l, c, size);
}

/* Counts what the driver was asked for slots, taken under the slots' lock or the heap's. */
static inline void count_questions(struct slots *o, uint64_t id, unsigned slots)
{
	counter_add(&o->asked, slots);
	counter_add(&o->named, id & STREAM_ID_OF_THREAD ? 0 : slots);
}

static NOINLINE trz_addr take_open_slot_of(trz_heap *h, struct stream *s, uint64_t id, unsigned size_class,
                                           uint64_t size)
{
	trz_addr address = 0;
	heap_lock(h);
	if (s->id == id && !atomic_load_explicit(&s->retired, memory_order_relaxed)) {
		heap_call_in_locked(h, s);
		if (s->lane.bins[size_class].first && !slots_are_due(&s->slots, size)) {
			address = small_take_locked(h, &s->lane, size_class, size);
			count_questions(&s->slots, id, address != 0);
		}
		heap_let_out_locked(h, s);
	}
	heap_unlock(h);
	return address;
}

trz_addr small_alloc_of(trz_heap *h, struct stream *s, uint64_t id, uint64_t size)
{
	struct slots *o = &s->slots;
	unsigned c = size_class_of(size);
	struct bin *bin = &s->lane.bins[c];
	trz_addr address = 0;
	if (LIKELY(slots_take(o))) {
		address = LIKELY(s->id == id) ? small_take_open(o, bin, size) : 0;
		count_questions(o, id, address != 0);
		spinlock_give(&o->lock);
	}
	return LIKELY(address) ? address : take_open_slot_of(h, s, id, c, size);
}
