/* SPDX-License-Identifier: Apache-2.0
 *
 * Making plans, and serving requests by them.
 *
 * The diary (memory/diary.h) is kept once memory has had to move for a while. When it has to move again, and the
 * program has just repeated a whole period, that period is packed (memory/pack.h) into the plan's window: what was
 * freed within the period has a place there, what lived on has none. Nothing is laid there beforehand: each place gets
 * memory with the first request that it serves, from what is free elsewhere.
 *
 * Requests keep the places of those that they match. A tile that another request has taken from the plan comes back, by
 * a flip, when its place is wanted and it is free. The second plan, a period after the first, adds what the first could
 * not know; a further one is made only if the program has become another.
 */
#include "supply/plan.h"

#include <assert.h>

#include "heap/carve.h"
#include "heap/poll.h"
#include "heap/pools.h"
#include "heap/streams.h"
#include "memory/diary.h"
#include "memory/pack.h"
#include "supply/extend.h"
#include "supply/flip.h"
#include "supply/policy.h"
#include "supply/reclaim.h"

enum {
	PERIOD_MOST = 1 << 14,       /* requests: packing takes the square of that */
	PIECES_MOST = PERIOD_MOST + 4096,
	OBSTACLES_MOST = 4096,       /* of them */
	RUN_LEAST = 64,              /* requests in a row that match, before places are trusted */
	WAIT_PERIODS = 16,           /* before a third plan */
	RESTS = 4,                   /* requests without an attempt to prepare after one in vain */
	PEAK_EIGHTHS = 7,            /* a period worth a plan reaches so much of the heap's peak, ... */
	FALL_QUARTERS = 1            /* ... and falls by so much of its own */
};

/* Guarded by the heap lock; pool and window change under the growth lock, too. */
struct plan {
	struct diary diary;
	struct pool *pool;
	struct window *window;       /* NULL: no plan has been made yet */
	uint32_t ticks;              /* how long its period took */
	uint32_t made, wait;         /* the next plan is made `wait` requests after request `made` at the earliest */
	uint32_t rest;               /* so many requests are not prepared for */
};

/* ---- places ---- */

static struct lane *lane_locked(trz_heap *h, struct stream *s)
{
	HEAP_LOCKED(h);
	if (!s->planned && (s->planned = heap_lane_locked(h, s, h->plan->pool, 0)))
		s->planned->window[LARGE] = h->plan->window;  /* it is in use */
	return s->planned;
}

/* Whether the program has repeated itself for long enough to be placed by that: the same stretch of layers, or of
 * parameters, can come elsewhere. */
static bool is_trusted(const struct diary *d)
{
	return d->run >= RUN_LEAST;
}

static void find_place_locked(trz_heap *h, struct demand *d)
{
	HEAP_LOCKED(h);
	struct plan *plan = h->plan;
	uint32_t place = diary_entry(&plan->diary, d->number)->place;
	d->planned = place && is_trusted(&plan->diary) ? plan->window->base + (uint64_t)(place - 1) * UNIT : 0;
	if (d->planned % d->alignment)
		d->planned = 0;
}

void plan_note_request_locked(trz_heap *h, struct demand *d)
{
	HEAP_LOCKED(h);
	if (d->kind != LARGE || d->lane->pool || d->lane->dedicated)
		return;
	d->noted = true;
	d->number = diary_begin(&h->plan->diary, d->occupied, d->lane->stream->id,
	                        flow_all(&h->counters.allocated_bytes), h->plan->ticks);
	find_place_locked(h, d);
}

static struct block *block_at_locked(const trz_heap *h, const struct window *w, trz_addr address)
{
	HEAP_LOCKED(h);
	struct block *b = pagemap_block_before(&h->pagemap, address);
	if (!b || b->window != w || b->address > address)
		b = w->blocks.first;
	while (block_end(b) <= address)
		b = b->next;
	return b;
}

/* Whether nothing has ever been laid at an address of a hole. */
static bool is_bare(const struct block *hole, trz_addr address)
{
	return !window_at(hole->window, address);
}

struct block *plan_take_locked(trz_heap *h, const struct demand *d, bool *later)
{
	HEAP_LOCKED(h);
	struct plan *plan = h->plan;
	trz_addr end = d->planned + d->occupied;
	bool resting = plan->rest && plan->rest--;
	struct block *first = block_at_locked(h, plan->window, d->planned), *b = first;
	for (trz_addr at = d->planned; at < end; b = b->next) {
		bool ordered = b->state == BLOCK_FREE && (b->home->stream == d->lane->stream ||
		                                          ticket_passed(&b->home->stream->tickets, b->sequence));
		if (!ordered) {
			*later = !resting && (b->state == BLOCK_FREE || b->state == BLOCK_HOLE);
			return NULL;
		}
		at = block_end(b);
	}
	if (!lane_locked(h, d->lane->stream))
		return NULL;
	counter_add(&h->counters.path_plan, 1);
	return heap_carve_locked(h, first, d->planned, d->occupied);
}

void plan_end_request_locked(trz_heap *h, struct block *b)
{
	HEAP_LOCKED(h);
	b->noted = false;
	diary_end(&h->plan->diary, b->priority);
}

/* ---- laying ---- */

/* The first hole in [*from, end), which then begins at *from; NULL: there is none. */
static struct block *hole_locked(const trz_heap *h, trz_addr *from, trz_addr end)
{
	HEAP_LOCKED(h);
	for (struct block *b = block_at_locked(h, h->plan->window, *from);; b = b->next) {
		*from = max_u64(*from, b->address);
		if (*from >= end || b->state == BLOCK_HOLE)
			return *from < end ? b : NULL;
		if (block_end(b) >= end)
			return NULL;
	}
}

/* Where bare granules end. */
static trz_addr bare_end(const struct block *b, trz_addr at)
{
	while (at < block_end(b) && is_bare(b, at))
		at += GRANULE;
	return at;
}

/* Whether the tile of a place that it has left is free elsewhere, and can come back. */
static bool can_return(const trz_heap *h, const struct place *p, size_t n)
{
	return p && p->accessible && p->tile->places->window != p->window && reclaim_candidate(h, p->tile, n);
}

/* The first whole places from an address on that can be filled again, up to *end, and their hole; NULL: there are
 * none. */
static struct block *returnable_locked(const trz_heap *h, trz_addr *from, trz_addr *end, size_t n)
{
	HEAP_LOCKED(h);
	const struct window *w = h->plan->window;
	for (struct block *b = *from < w->top ? block_at_locked(h, w, *from) : NULL; b; b = b->next) {
		trz_addr at = max_u64(*from, b->address);
		if (b->state != BLOCK_HOLE)
			continue;
		for (; at < block_end(b) && !can_return(h, window_at(w, at), n); at = window_next(w, at))
			SPINLOCK_STEP();
		if (at >= block_end(b))
			continue;
		for (*from = at; at < block_end(b) && can_return(h, window_at(w, at), n); at = window_next(w, at))
			SPINLOCK_STEP();
		*end = at;
		return b;
	}
	return NULL;
}

/* Brings back all tiles that have left the plan's window and are free now: so a period that departed from the plan
 * does no harm to the next one. */
static void bring_back(trz_heap *h, struct lane *l)
{
	trz_addr from = h->plan->window->base, end;
	struct block *b;
	do {
		bool poll_helps;
		heap_lock(h);
		size_t n = reclaim_find_locked(h, l, LARGE, 0, FIND_SPARE | FIND_PASSED, &poll_helps);
		b = n != SIZE_MAX ? returnable_locked(h, &from, &end, n) : NULL;
		if (b)
			flip_back_locked(h, l, b, from, end, n);
		heap_unlock(h);
		from = b ? end : from;
	} while (b);
}

/* Sees to it that there is memory at the demand's place. false: there is none for a part of it. */
static bool lay_place(trz_heap *h, const struct demand *d)
{
	trz_addr from = align_down(d->planned, h->driver.granule);
	trz_addr end = align_up(d->planned + d->occupied, h->driver.granule);
	bool ok = true, brought = false;
	heap_lock(h);
	struct lane *l = lane_locked(h, d->lane->stream);
	struct block *b;
	while (ok && l && (b = hole_locked(h, &from, end))) {
		if (!is_bare(b, from)) {
			heap_unlock(h);
			if (!brought)
				bring_back(h, l);
			ok = !brought;
			brought = true;
			heap_lock(h);
			continue;
		}
		trz_addr most = bare_end(b, from);
		heap_unlock(h);
		ok = extend_over(h, l, b, from, min_u64(end, most) - from, most - from);
		heap_lock(h);
	}
	heap_unlock(h);
	return ok && l;
}

static bool make_for(trz_heap *h, struct demand *d);

void plan_prepare(trz_heap *h, struct demand *d)
{
	HEAP_GROWTH_LOCKED(h);
	heap_poll(h);
	if (counter_get(&h->counters.plans) == 1)
		make_for(h, d);
	bool laid = lay_place(h, d);
	heap_lock(h);
	h->plan->rest = laid ? 0 : RESTS;
	heap_unlock(h);
}

/* ---- making ---- */

static void start(trz_heap *h)
{
	struct plan *plan = meta_alloc(&h->meta, sizeof *plan);
	if (!plan)
		return;
	diary_open(&plan->diary);
	heap_lock(h);
	h->plan = plan;
	heap_unlock(h);
}

/* Whether places that streams have in turn can be had when they are wanted: what one has freed must pass at once. */
static bool passes_at_once_locked(const trz_heap *h)
{
	HEAP_LOCKED(h);
	unsigned streams = atomic_load_explicit(&h->streams.count, memory_order_relaxed);
	for (unsigned i = 0; i < streams && streams > 1; i++)
		if (atomic_load_explicit(&h->streams.list[i], memory_order_relaxed)->late)
			return false;
	return true;
}

/* Whether the period up to a request is worth a plan: it makes the heap as large as it is, and most of its memory comes
 * and goes. Repetitions inside a step, as of layers, do not. */
static bool is_worth_it_locked(trz_heap *h, uint32_t number, uint32_t period)
{
	HEAP_LOCKED(h);
	uint32_t most = 0, least = UINT32_MAX, placed = 0;
	uint64_t peak = counter_get(&h->counters.allocated_bytes.peak[2]) >> 20;
	for (uint32_t i = 0; i < period; i++) {
		SPINLOCK_STEP();
		const struct diary_entry *e = diary_entry(&h->plan->diary, number - i);
		most = e->level > most ? e->level : most;
		least = e->level < least ? e->level : least;
		placed += e->place != 0;
	}
	if (counter_get(&h->counters.plans) > 1 && placed > period / 2)
		return false;  /* it has a plan that does */
	return 8 * (uint64_t)most >= PEAK_EIGHTHS * peak && 4 * (uint64_t)(most - least) >= FALL_QUARTERS * (uint64_t)most;
}

struct making {
	trz_heap *heap;
	struct plan *plan;
	uint32_t number, period;     /* the request, and so many before it */
	uint32_t begun, ticks;       /* when the first of them was made, and the time since */
	struct piece *pieces;
	size_t fixed, count;
};

static void add_piece(struct making *m, uint64_t size, uint64_t place, uint32_t begun, uint32_t life, uint32_t name)
{
	m->pieces[m->count++] = (struct piece){
	    .size = size, .place = place, .begin = (begun - m->begun) % m->ticks, .life = life, .name = name};
}

/* The parts of a hole that tiles have left: nothing can lie there any more. */
static void add_left_locked(struct making *m, const struct block *hole)
{
	HEAP_LOCKED(m->heap);
	const struct window *w = hole->window;
	for (trz_addr at = hole->address; at < block_end(hole) && m->count < OBSTACLES_MOST;) {
		trz_addr from = at;
		while (at < block_end(hole) && window_at(w, at))
			at = min_u64(window_next(w, at), block_end(hole));
		if (at > from)
			add_piece(m, at - from, from - w->base, m->begun, m->ticks, m->number);
		else
			at += GRANULE;
	}
}

/* What is in the window and will not go, or only later. */
static void add_obstacles_locked(struct making *m)
{
	HEAP_LOCKED(m->heap);
	struct diary *diary = &m->plan->diary;
	const struct window *w = m->plan->window;
	for (const struct block *b = w->blocks.first; b && m->count < OBSTACLES_MOST; b = b->next) {
		SPINLOCK_STEP();
		if (b->state != BLOCK_LIVE && b->state != BLOCK_HOLE)
			continue;
		if (b->state == BLOCK_HOLE) {
			add_left_locked(m, b);
			continue;
		}
		bool known = b->noted && diary->next - b->priority <= m->period;
		uint32_t life = known ? diary_life(diary, b->priority) : 0;
		known = life && life < m->ticks;
		add_piece(m, b->size, b->address - w->base, known ? diary_entry(diary, b->priority)->begun : m->begun,
		          known ? life : m->ticks, known ? b->priority : m->number);
	}
	m->fixed = m->count;
}

/* Whether a request of the period is live in the window. */
static bool is_obstacle(const struct making *m, uint32_t number)
{
	for (size_t i = 0; i < m->fixed; i++)
		if (m->pieces[i].name == number)
			return true;
	return false;
}

/* The requests of the period that were freed within one. */
static void add_requests_locked(struct making *m)
{
	HEAP_LOCKED(m->heap);
	struct diary *diary = &m->plan->diary;
	for (uint32_t i = m->period; i > 0 && m->count < PIECES_MOST; i--) {
		const struct diary_entry *e = diary_entry(diary, m->number - i);
		uint32_t life = diary_life(diary, m->number - i);
		SPINLOCK_STEP();
		if (life && life < m->ticks && !is_obstacle(m, m->number - i))
			add_piece(m, (uint64_t)e->units * UNIT, e->place ? (uint64_t)(e->place - 1) * UNIT : PACK_NOWHERE,
			          e->begun, life, m->number - i);
	}
}

static void gather_locked(struct making *m)
{
	HEAP_LOCKED(m->heap);
	struct diary *diary = &m->plan->diary;
	m->begun = diary_entry(diary, m->number - m->period)->begun;
	m->ticks = diary_entry(diary, m->number)->begun - m->begun;
	if (m->plan->window)
		add_obstacles_locked(m);
	add_requests_locked(m);
}

/* The window, as long as the device has memory: places may lie at any height of it. */
static bool open_window(trz_heap *h, struct plan *plan)
{
	uint64_t size = align_up(h->driver.info.total_bytes, h->driver.granule);
	struct window *w;
	if (plan->window)
		return true;
	if ((!plan->pool && heap_pool_create(h, &plan->pool) != TRZ_OK) ||
	    window_open(&h->meta, &h->driver, LARGE, size, size, &w) != TRZ_OK)
		return false;
	plan->pool->planned = true;
	w->pool = plan->pool;
	w->next = h->windows[LARGE];
	h->windows[LARGE] = w;
	heap_lock(h);
	plan->window = w;
	heap_unlock(h);
	return true;
}

/* Lets the window reach up to where its places do. What is new of it is a hole. */
static bool raise_top(trz_heap *h, struct plan *plan, struct stream *s, uint64_t height)
{
	struct window *w = plan->window;
	uint64_t bytes = height - (w->top - w->base);
	if (height <= w->top - w->base)
		return true;
	struct block *node = heap_take_node(h, w, bytes);
	heap_lock(h);
	struct lane *l = node ? lane_locked(h, s) : NULL;
	if (l) {
		heap_make_hole_locked(h, heap_append_block_locked(node, w, l, bytes));
		w->top += bytes;
	}
	heap_unlock(h);
	if (!l)
		heap_give_node(h, node);
	return l != NULL;
}

/* The height that the places take. */
static uint64_t height_of(const struct making *m)
{
	uint64_t height = 0;
	for (size_t i = m->fixed; i < m->count; i++)
		if (m->pieces[i].place != PACK_NOWHERE)
			height = max_u64(height, m->pieces[i].place + m->pieces[i].size);
	return align_up(height, m->heap->driver.granule);
}

/* Gives the entries their places. Those that have been dropped from the diary meanwhile are not in it to be named. */
static void write_places_locked(struct making *m)
{
	HEAP_LOCKED(m->heap);
	struct diary *diary = &m->plan->diary;
	for (uint32_t i = 0; i < DIARY; i++)
		diary->entry[i].place = 0;
	for (size_t i = 0; i < m->count; i++) {
		const struct piece *p = &m->pieces[i];
		SPINLOCK_STEP();
		if (p->place == PACK_NOWHERE || p->name == m->number || diary->next - p->name - 1 >= DIARY)
			continue;
		diary_entry(diary, p->name)->place = (uint32_t)(p->place / UNIT) + 1;
	}
}

static void forget(struct making *m, struct piece *scratch)
{
	meta_free(&m->heap->meta, m->pieces);
	meta_free(&m->heap->meta, scratch);
}

static bool make(trz_heap *h, struct stream *s, uint32_t number, uint32_t period)
{
	struct making m = {.heap = h, .plan = h->plan, .number = number, .period = period};
	if (!open_window(h, m.plan))
		return false;
	m.pieces = meta_alloc(&h->meta, PIECES_MOST * sizeof *m.pieces);
	struct piece *scratch = meta_alloc(&h->meta, PIECES_MOST * sizeof *scratch);
	if (!m.pieces || !scratch) {
		forget(&m, scratch);
		return false;
	}
	heap_lock(h);
	gather_locked(&m);
	heap_unlock(h);
	uint64_t limit = m.plan->window->size;
	pack(m.pieces, m.fixed, m.count, m.ticks, limit, scratch);
	bool raised = raise_top(h, m.plan, s, height_of(&m));
	heap_lock(h);
	if (raised)
		write_places_locked(&m);
	heap_unlock(h);
	m.plan->ticks = m.ticks;
	forget(&m, scratch);
	counter_add(&h->counters.plans, 1);
	return true;
}

bool plan_make(trz_heap *h, struct demand *d)
{
	HEAP_GROWTH_LOCKED(h);
	if (!h->config.plan || !h->driver.vmm || d->kind != LARGE || d->lane->pool || d->lane->dedicated)
		return false;
	if (!h->plan && h->gathered_bytes >= counter_get(&h->counters.allocated_bytes.peak[2]) / 8)
		start(h);
	return d->noted && make_for(h, d);
}

static bool make_for(trz_heap *h, struct demand *d)
{
	struct plan *plan = h->plan;
	heap_lock(h);
	bool newest = plan->diary.next - d->number == 1;  /* no other thread has gone on meanwhile */
	uint32_t period = newest && diary_has_match(&plan->diary, d->number) ? diary_period(&plan->diary) : 0;
	bool again = plan->window != NULL;  /* another plan is for what has repeated itself whole since */
	bool due = !again || d->number - plan->made >= plan->wait;
	bool repeated = period && period <= PERIOD_MOST && plan->diary.run >= period;
	bool wanted = repeated && due && passes_at_once_locked(h) && is_worth_it_locked(h, d->number, period);
	heap_unlock(h);
	if (!wanted || !make(h, d->lane->stream, d->number, period))
		return false;
	heap_lock(h);
	plan->made = d->number;
	uint64_t wait = again ? max_u64((uint64_t)WAIT_PERIODS * period, 2 * (uint64_t)plan->wait) : period;
	plan->wait = (uint32_t)min_u64(wait, UINT32_MAX / 4);
	struct diary_entry *e = diary_entry(&plan->diary, d->number);
	e->place = diary_entry(&plan->diary, e->match)->place;
	find_place_locked(h, d);
	heap_unlock(h);
	return true;
}
