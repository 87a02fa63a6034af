/* SPDX-License-Identifier: Apache-2.0
 *
 * Calling slots in and letting them out, limits and peaks, and sums over all streams.
 */
#include "heap/ledger.h"

enum { POOLS = 3, ALL = 2 };  /* small, large, all: as in struct flow */

/* The most that a stream is granted beyond what it holds; it comes back for more. */
static const uint64_t grant_most[MEASURES] = {256, (uint64_t)2 << 20, (uint64_t)2 << 20};

static const struct flow *flow_of(const struct counters *c, enum measure m)
{
	return m == ALLOCATION ? &c->allocation : m == ALLOCATED_BYTES ? &c->allocated_bytes : &c->requested_bytes;
}

/* What counts pending memory in the same measure; NULL: nothing does. */
static const struct active *active_of(const struct counters *c, enum measure m)
{
	return m == ALLOCATION ? &c->active : m == ALLOCATED_BYTES ? &c->active_bytes : NULL;
}

/* Of one measure: the sums of the limits, and how much they may grow before a peak rises; < 0: how far they exceed
 * it. */
struct room {
	uint64_t sum[POOLS];
	int64_t left[POOLS];
};

static uint64_t pending(const struct active *a, int pool)
{
	return pool == ALL ? counter_get(&a->pending[SMALL]) + counter_get(&a->pending[LARGE])
	                   : counter_get(&a->pending[pool]);
}

/* What is pending counts towards the peaks of active memory. */
static NOINLINE void limit_to_active(const struct active *a, const struct flow *f, struct room *r)
{
	for (int pool = 0; pool < POOLS; pool++) {
		int64_t left = (int64_t)(active_peak(a, f, pool) - r->sum[pool] - pending(a, pool));
		r->left[pool] = left < r->left[pool] ? left : r->left[pool];
	}
}

static inline struct room room_of(const trz_heap *h, enum measure m)
{
	const struct flow *f = flow_of(&h->counters, m);
	const struct active *a = active_of(&h->counters, m);
	uint64_t small = h->limits[m] + h->block_limit[SMALL][m], large = h->block_limit[LARGE][m];
	struct room r = {.sum = {small, large, small + large}};
	for (int pool = 0; pool < POOLS; pool++)
		r.left[pool] = (int64_t)(counter_get(&f->peak[pool]) - r.sum[pool]);
	if (UNLIKELY(a && counter_get(&h->counters.pending.current)))
		limit_to_active(a, f, &r);
	return r;
}

/* Half of what is left for memory of this kind. */
static inline uint64_t half_of(const struct room *r, enum kind kind)
{
	int64_t least = r->left[kind] < r->left[ALL] ? r->left[kind] : r->left[ALL];
	return least > 0 ? (uint64_t)least / 2 : 0;
}

static inline void grant_stream_locked(trz_heap *h, struct slots *o, enum measure m)
{
	HEAP_LOCKED(h);
	struct room r = room_of(h, m);
	uint64_t more = min_u64(half_of(&r, SMALL), grant_most[m]);
	h->limits[m] += more;
	o->limit[m] += more;
}

static inline void grant_blocks_locked(trz_heap *h, enum measure m, struct room *r)
{
	HEAP_LOCKED(h);
	uint64_t more = half_of(r, SMALL);
	h->block_limit[SMALL][m] += more;
	r->left[ALL] -= (int64_t)more;
	h->block_limit[LARGE][m] += half_of(r, LARGE);
}

static inline void lower_blocks_locked(trz_heap *h, enum measure m)
{
	HEAP_LOCKED(h);
	for (int kind = 0; kind < KINDS; kind++)
		h->block_limit[kind][m] = flow_current(flow_of(&h->counters, m), kind);
}

static void lower_stream_locked(trz_heap *h, struct slots *o)
{
	HEAP_LOCKED(h);
	for (enum measure m = 0; m < MEASURES; m++) {
		uint64_t held = slots_held(o, m);
		assert(held <= o->limit[m] && h->limits[m] >= o->limit[m]);
		h->limits[m] -= o->limit[m] - held;
		o->limit[m] = held;
	}
}

void heap_call_in_slow_locked(struct stream *s)
{
	SPINLOCK_STEP();
	spinlock_keep(&s->slots.lock);
}

void heap_call_all_in_locked(trz_heap *h)
{
	HEAP_LOCKED(h);
	while (h->listed) {
		struct slots *o = &h->listed->slots;
		heap_call_in_locked(h, h->listed);
		lower_stream_locked(h, o);
		h->listed = o->next_listed;
		o->link_listed = NULL;
	}
}

void heap_let_out_locked(trz_heap *h, struct stream *s)
{
	HEAP_LOCKED(h);
	struct slots *o = &s->slots;
	if (slots_are_out(o) || s->thread_bound || h->notes || atomic_load_explicit(&s->retired, memory_order_relaxed))
		return;
	heap_list_locked(h, s);
	spinlock_let_go(&o->lock);
}

static const struct slots *slots_at(const trz_heap *h, unsigned i)
{
	return &atomic_load_explicit(&h->streams.list[i], memory_order_relaxed)->slots;
}

static unsigned stream_count(const trz_heap *h)
{
	return atomic_load_explicit(&h->streams.count, memory_order_acquire);
}

uint64_t heap_held(const trz_heap *h, enum measure m)
{
	uint64_t held = flow_all(flow_of(&h->counters, m));
	for (unsigned i = 0, n = stream_count(h); i < n; i++)
		held += slots_held(slots_at(h, i), m);
	return held;
}

uint64_t heap_given_out(const trz_heap *h, enum measure m)
{
	uint64_t taken = flow_allocated(flow_of(&h->counters, m));
	for (unsigned i = 0, n = stream_count(h); i < n; i++)
		taken += counter_get(&slots_at(h, i)->taken[m]);
	return taken;
}

/* ---- peaks ---- */

static inline bool is_exceeded(const struct room *r)
{
	return (r->left[SMALL] | r->left[LARGE] | r->left[ALL]) < 0;
}

/* No limit can be lowered any further: where nothing is left, the sum is what callers hold. */
static void raise_locked(trz_heap *h, enum measure m, struct room *r)
{
	HEAP_LOCKED(h);
	struct flow *f = (struct flow *)flow_of(&h->counters, m);
	struct active *a = (struct active *)active_of(&h->counters, m);
	for (int pool = 0; pool < POOLS; pool++) {
		if (r->left[pool] >= 0)
			continue;
		counter_raise(&f->peak[pool], r->sum[pool]);
		if (a && UNLIKELY(counter_get(&h->counters.pending.current)))
			counter_raise(&a->peak[pool], r->sum[pool] + pending(a, pool));
		r->left[pool] = 0;
	}
}

/* The caller passes constants for m, so that inlining makes three short pieces of code instead of one long one. */
static inline void settle_locked(trz_heap *h, enum measure m)
{
	HEAP_LOCKED(h);
	lower_blocks_locked(h, m);
	struct room r = room_of(h, m);
	if (UNLIKELY(is_exceeded(&r) && h->listed)) {
		heap_call_all_in_locked(h);
		r = room_of(h, m);
	}
	if (is_exceeded(&r))
		raise_locked(h, m, &r);
	grant_blocks_locked(h, m, &r);
}

NOINLINE void heap_raise_peaks_locked(trz_heap *h)
{
	HEAP_LOCKED(h);
	settle_locked(h, ALLOCATION);
	settle_locked(h, ALLOCATED_BYTES);
	settle_locked(h, REQUESTED_BYTES);
}

void heap_take_beyond_limit_locked(trz_heap *h, struct stream *s, const uint64_t more[MEASURES])
{
	SLOTS_IN(h, s);
	struct slots *o = &s->slots;
	lower_stream_locked(h, o);
	for (enum measure m = 0; m < MEASURES; m++) {
		counter_add(&o->taken[m], more[m]);
		h->limits[m] += more[m];
		o->limit[m] += more[m];
	}
	heap_raise_peaks_locked(h);
	grant_stream_locked(h, o, ALLOCATION);
	grant_stream_locked(h, o, ALLOCATED_BYTES);
	grant_stream_locked(h, o, REQUESTED_BYTES);
	heap_list_locked(h, s);
}

void heap_reset_peaks_locked(trz_heap *h)
{
	HEAP_GROWTH_LOCKED(h);
	HEAP_LOCKED(h);
	heap_call_all_in_locked(h);
	h->peak_before = max_u64(h->peak_before, counter_get(&h->counters.allocated_bytes.peak[ALL]));
	counters_reset_peaks(&h->counters);  /* to what blocks hold */
	sites_reset_peaks(&h->sites);
	heap_raise_peaks_locked(h);
}

/* ---- reading ---- */

/* Reads `given` before `taken`, so that no reader sees more given than taken. */
void heap_read_counters(const trz_heap *h, struct counters *out)
{
	uint64_t taken[MEASURES] = {0}, given[MEASURES] = {0}, occupied = 0, asked = 0, named = 0;
	for (unsigned i = 0, n = stream_count(h); i < n; i++) {
		const struct slots *o = slots_at(h, i);
		for (enum measure m = 0; m < MEASURES; m++) {
			given[m] += counter_get(&o->given[m]);
			taken[m] += counter_get(&o->taken[m]);
		}
		occupied += counter_get(&o->occupied);
		asked += counter_get(&o->asked);
		named += counter_get(&o->named);
	}
	counters_copy(out, &h->counters);
	for (enum measure m = 0; m < MEASURES; m++) {
		struct flow *f = (struct flow *)flow_of(out, m);
		counter_add(&f->freed[SMALL], given[m]);
		counter_add(&f->allocated[SMALL], taken[m]);
	}
	counter_add(&out->occupied_bytes, occupied);
	counter_add(&out->occupied_slot_bytes, occupied);
	counter_add(&out->slots_taken, taken[ALLOCATION]);
	counter_add(&out->driver_calls[DRIVER_SLOT_stream_id], named);
	counter_add(&out->driver_calls[DRIVER_SLOT_stream_capture], asked);
}
