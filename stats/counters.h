/* SPDX-License-Identifier: Apache-2.0
 *
 * The counters of a heap. Each is written under one lock: the growth lock if it counts tiles, windows, aliases or
 * operations that only growth makes, else the heap lock. So an update is a load and a store. Streams count for
 * themselves what they hold in slots; a copy for readers adds that. Readers take no lock and see figures of slightly
 * different moments. Driver calls about memory are counted under the growth lock, those that frees make as well
 * atomically, without a lock.
 */
#ifndef TRZ_STATS_COUNTERS_H
#define TRZ_STATS_COUNTERS_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "terrazzo_driver.h"

typedef _Atomic uint64_t counter;

/* The current value is allocated - freed; a reader loads freed first, so that the difference is never negative. */
struct flow {
	counter allocated[2], freed[2];  /* since the heap was opened; [small, large] */
	counter peak[3];                 /* small, large, all */
};

struct level {
	counter current, peak;
};

/* Of held and pending memory: the pending part, and the peak of the whole while some was pending. */
struct active {
	counter pending[2];              /* small, large */
	counter peak[3];                 /* small, large, all */
};

enum driver_slot {
#define SLOT_ENUM(slot) DRIVER_SLOT_##slot,
	TRZ_DRIVER_SLOTS(SLOT_ENUM)
#undef SLOT_ENUM
	DRIVER_SLOTS
};

struct counters {
#define FLOW(id, unit, help) struct flow id;
#define LEVEL(id, unit, help) struct level id;
#define COUNT(id, help) counter id;
#define SUM(name, unit, help, expression)
#include "counters.def"
#undef FLOW
#undef LEVEL
#undef COUNT
#undef SUM
	counter occupied_bytes;      /* what live allocations occupy: in a heap's own counters blocks, in a copy all, ... */
	counter occupied_slot_bytes; /* ... and how much of that is slots */
	counter slots_taken;         /* in a copy: how many slots callers have ever been given */
	counter slab_bytes;          /* bytes of all slabs */
	counter pending_slot_bytes;  /* how much of pending_bytes is slots */
	struct active active_bytes, active;
	counter driver_calls[DRIVER_SLOTS];
};

static inline uint64_t counter_get(const counter *c)
{
	return atomic_load_explicit(c, memory_order_relaxed);
}

static inline void counter_set(counter *c, uint64_t value)
{
	atomic_store_explicit(c, value, memory_order_relaxed);
}

static inline uint64_t counter_add(counter *c, uint64_t n)
{
	uint64_t value = counter_get(c) + n;
	counter_set(c, value);
	return value;
}

static inline void counter_raise(counter *peak, uint64_t value)
{
	if (value > counter_get(peak))
		counter_set(peak, value);
}

static inline uint64_t flow_current(const struct flow *f, int pool)
{
	uint64_t freed = counter_get(&f->freed[pool]);
	return counter_get(&f->allocated[pool]) - freed;
}

/* Both since the heap was opened. */
static inline uint64_t flow_allocated(const struct flow *f)
{
	return counter_get(&f->allocated[0]) + counter_get(&f->allocated[1]);
}

static inline uint64_t flow_freed(const struct flow *f)
{
	return counter_get(&f->freed[0]) + counter_get(&f->freed[1]);
}

static inline uint64_t flow_all(const struct flow *f)
{
	return flow_current(f, 0) + flow_current(f, 1);
}

static inline void flow_add(struct flow *f, int pool, uint64_t n)
{
	uint64_t current = counter_add(&f->allocated[pool], n) - counter_get(&f->freed[pool]);
	counter_raise(&f->peak[pool], current);
	counter_raise(&f->peak[2], current + flow_current(f, !pool));
}

/* flow_add without the peaks. true: the current value is above a limit. */
static inline bool flow_add_to(struct flow *f, int pool, uint64_t n, uint64_t limit)
{
	return counter_add(&f->allocated[pool], n) - counter_get(&f->freed[pool]) > limit;
}

static inline void flow_sub(struct flow *f, int pool, uint64_t n)
{
	assert(n <= flow_current(f, pool));
	counter_add(&f->freed[pool], n);
}

static inline void level_add(struct level *l, uint64_t n)
{
	counter_raise(&l->peak, counter_add(&l->current, n));
}

static inline void level_sub(struct level *l, uint64_t n)
{
	assert(n <= counter_get(&l->current));
	counter_add(&l->current, (uint64_t)0 - n);
}

static inline void level_set(struct level *l, uint64_t value)
{
	counter_set(&l->current, value);
	counter_raise(&l->peak, value);
}

/* What is left of a whole without a part; 0 if a reader sees the part of a later moment, when it was larger. */
static inline uint64_t counters_rest(uint64_t whole, uint64_t part)
{
	return whole > part ? whole - part : 0;
}

static inline uint64_t counters_rounding(const struct counters *c)
{
	return counters_rest(counter_get(&c->occupied_bytes), flow_all(&c->requested_bytes));
}

static inline uint64_t counters_free_slots(const struct counters *c)
{
	uint64_t taken = counter_get(&c->occupied_slot_bytes) + counter_get(&c->pending_slot_bytes);
	return counters_rest(counter_get(&c->slab_bytes), taken);
}

/* Of small, large, or (2) all. */
static inline uint64_t active_current(const struct active *a, const struct flow *held, int pool)
{
	if (pool == 2)
		return flow_all(held) + counter_get(&a->pending[0]) + counter_get(&a->pending[1]);
	return flow_current(held, pool) + counter_get(&a->pending[pool]);
}

/* While nothing is pending, the peaks of `held` are those of active memory. */
static inline uint64_t active_peak(const struct active *a, const struct flow *held, int pool)
{
	uint64_t peak = counter_get(&a->peak[pool]), most = counter_get(&held->peak[pool]);
	return peak > most ? peak : most;
}

static inline void active_raise(struct active *a, const struct flow *held)
{
	for (int pool = 0; pool < 3; pool++)
		counter_raise(&a->peak[pool], active_current(a, held, pool));
}

/* Figures for readers that the counters do not have. */
struct counter_view {
	uint64_t metadata_bytes;
	uint64_t largest_free_bytes;
};

/* Copies the counters; in the copy no flow has more freed than allocated. */
void counters_copy(struct counters *out, const struct counters *c);

/* The statistics as trz_stats() documents them. */
void counters_read(const struct counters *c, const struct counter_view *view, trz_stat_value *values,
                   size_t capacity, size_t *count);
/* false: none has that name. */
bool counters_find(const struct counters *c, const struct counter_view *view, const char *name, trz_stat_value *value);

/* Sets every peak to the current value. The caller holds the heap lock. */
void counters_reset_peaks(struct counters *c);

#endif
