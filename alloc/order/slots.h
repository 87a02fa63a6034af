/* SPDX-License-Identifier: Apache-2.0
 *
 * A stream's slots: the slabs and bins of all its lanes, and what callers hold of them. Taking or giving a slot touches
 * no neighbouring block, so streams that keep to themselves share nothing here.
 *
 * Two locks take turns at guarding them. While the slots are *out*, it is `lock`, the stream's own: a thread that takes
 * a slot or gives one back takes that lock and no other. While they are *in*, it is the heap lock: a thread that wants
 * anything else of them, such as to open a slab, to look at another stream's, or to add all up, holds the heap lock and
 * calls them in (heap/ledger.h). Calling in takes the stream's lock, too, and keeps it, so no other thread is in the
 * middle of taking or giving a slot; threads that then find the lock kept go to the heap lock. Letting out takes the
 * heap lock alone, and may bias the lock to its thread. No thread that holds a stream's lock takes another.
 *
 * What callers hold is counted here, by sums that only grow, each guarded as the slots are and read without a lock.
 * The heap keeps the peaks (heap/ledger.h). Of each measure the stream may hold up to `limit` without asking: the heap
 * has counted that much as held, for this stream, and found no new peak.
 */
#ifndef TRZ_ALLOC_SLOTS_H
#define TRZ_ALLOC_SLOTS_H

#include "counters.h"
#include "ground/types.h"
#include "lock.h"

/* What is counted of what callers hold, in the order of the flows of the same names (stats/counters.def). */
enum measure { ALLOCATION, ALLOCATED_BYTES, REQUESTED_BYTES, MEASURES };

/* Invariants: given <= taken; taken - given <= limit, and equal to it for a stream that is not in the ledger's list; a
 * stream whose slots are out is in that list. */
struct slots {
	struct spinlock lock;                /* kept: the slots are in; that changes under the heap lock */
	counter taken[MEASURES], given[MEASURES];
	counter occupied;                    /* bytes of the slots that callers hold */
	uint64_t limit[MEASURES];            /* changes under the heap lock, while the slots are in */
	counter sample_at;                   /* changes as limit does; a slot that takes taken[REQUESTED_BYTES] beyond this
	                                      * is of the sample */
	counter asked;                       /* slots for which the driver was asked for the stream's capture ... */
	counter named;                       /* ... and for its id */
	struct stream *next_listed, **link_listed;  /* in the ledger's list; link NULL: not in it */
};

/* The slots are in at first. */
static inline void slots_init(struct slots *o)
{
	atomic_init(&o->lock.state, SPINLOCK_KEPT);
}

static inline bool slots_are_out(const struct slots *o)
{
	return !spinlock_is_kept(&o->lock);
}

/* Takes their lock, after a wait if need be; false: they are in. The sums stand in for the lock's own count of takes,
 * since nearly every take of it counts a slot. */
static inline bool slots_take(struct slots *o)
{
	if (__builtin_expect(spinlock_try(&o->lock), 1))
		return true;
	if (!slots_are_out(o))
		return false;
	uint64_t counted = counter_get(&o->taken[ALLOCATION]) + counter_get(&o->given[ALLOCATION]);
	return spinlock_wait(&o->lock, (unsigned)counted);
}

static inline uint64_t slots_held(const struct slots *o, enum measure m)
{
	uint64_t given = counter_get(&o->given[m]);
	return counter_get(&o->taken[m]) - given;
}

/* Whether another slot of this size would be of the sample (stats/sites.h). */
static inline bool slots_are_due(const struct slots *o, uint64_t size)
{
	return counter_get(&o->taken[REQUESTED_BYTES]) + size > counter_get(&o->sample_at);
}

/* Counts a slot as taken; the caller holds the lock that guards the slots. false: this would exceed the limit, or the
 * slot would be of the sample; nothing has changed. */
static inline bool slots_count_taken(struct slots *o, uint64_t size, uint64_t occupied)
{
	uint64_t rounded = (size + UNIT - 1) & ~(uint64_t)(UNIT - 1);
	if (__builtin_expect(slots_held(o, ALLOCATION) + 1 > o->limit[ALLOCATION] ||
	                     slots_held(o, ALLOCATED_BYTES) + rounded > o->limit[ALLOCATED_BYTES] ||
	                     slots_held(o, REQUESTED_BYTES) + size > o->limit[REQUESTED_BYTES] ||
	                     slots_are_due(o, size), 0))
		return false;
	counter_add(&o->taken[ALLOCATION], 1);
	counter_add(&o->taken[ALLOCATED_BYTES], rounded);
	counter_add(&o->taken[REQUESTED_BYTES], size);
	counter_add(&o->occupied, occupied);
	return true;
}

static inline void slots_count_given(struct slots *o, uint64_t size, uint64_t occupied)
{
	counter_add(&o->given[ALLOCATION], 1);
	counter_add(&o->given[ALLOCATED_BYTES], (size + UNIT - 1) & ~(uint64_t)(UNIT - 1));
	counter_add(&o->given[REQUESTED_BYTES], size);
	counter_add(&o->occupied, (uint64_t)0 - occupied);
}

#endif
