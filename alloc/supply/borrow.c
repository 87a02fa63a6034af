/* SPDX-License-Identifier: Apache-2.0
 *
 * Changing the home of free blocks.
 */
#include "supply/borrow.h"

#include "heap/carve.h"
#include "heap/events.h"
#include "heap/pending.h"
#include "heap/poll.h"
#include "heap/streams.h"
#include "supply/policy.h"

static void rehome_locked(trz_heap *h, struct block *b, struct lane *l, uint64_t sequence)
{
	HEAP_LOCKED(h);
	assert(b->home != l && b->home->pool == l->pool && b->home->dedicated == l->dedicated);
	fit_remove(heap_index_of(b), b);
	b->home = l;
	heap_free_block_locked(h, b, sequence);
}

/* Whether a lane is another one of the borrower's pool and sort. */
static bool is_lender(const struct lane *of, const struct lane *l)
{
	return of != l && of->pool == l->pool && of->dedicated == l->dedicated;
}

/* The first lender at or after `l`. */
static struct lane *lender_from(struct lane *l, const struct lane *borrower)
{
	while (l && !is_lender(l, borrower))
		l = l->next;
	return l;
}

#define FOR_LENDERS(h, other, borrower)                                                                        \
	for (struct lane *other = lender_from((h)->streams.lanes.first, borrower); other;                      \
	     other = lender_from(other->next, borrower))

static uint64_t lendable(const struct lane *lender, const struct lane *to, enum kind kind, bool apart)
{
	return kind == LARGE ? stream_lendable(lender, to, apart) : UINT64_MAX;
}

/* A free block, noted by its place in an index, since another thread may take it while the lock is given up. */
struct finding {
	struct lane *lane;           /* NULL: nothing has been found */
	unsigned part;
	uint64_t size;
	trz_addr address;
};

static struct finding find_again(struct lane *l, const struct block *b)
{
	return (struct finding){l, window_part(b->window), b->size, b->address};
}

/* The block, if it is there still; NULL: none. */
static struct block *found_locked(const struct finding *f)
{
	struct block *b = f->lane ? fit_from(&f->lane->fit[f->part], f->size, f->address) : NULL;
	return b && b->size == f->size && b->address == f->address ? b : NULL;
}

/* The next block of a walk; may give the lock up. */
static struct block *next_locked(trz_heap *h, const struct fit *f, const struct block *b, unsigned *steps)
{
	HEAP_LOCKED(h);
	uint64_t size = b->size;
	trz_addr address = b->address;
	return heap_rest(h, steps, 1) ? fit_from(f, size, address + 1) : fit_next(f, b);
}

/* Whether the lane's stream follows the last use of another lane's free block, so that it can have the block; or the
 * lane serves captures, and the stream's captures alone have used the block. */
static bool is_ordered(const struct lane *l, const struct block *b)
{
	bool clean = l->captured && b->home->stream == l->stream && heap_block_is_clean(b);
	return clean || stream_follows(l->stream, b->home->stream, b->sequence);
}

/* The ticket of such a block in its new home: 0 if its old one has passed; its own if the stream is the same. Else a
 * new one, which comes after what the stream follows, so that once it has passed, that has, too. */
static uint64_t ticket_of_ordered_locked(struct lane *l, const struct block *b)
{
	if (heap_block_passed(b))
		return 0;
	return b->home->stream == l->stream ? b->sequence : ticket_take(&l->stream->tickets);
}

/* The best fit among the other lanes' free blocks whose last use the lane's stream follows. */
static struct block *best_ordered_locked(trz_heap *h, const struct lane *l, enum kind kind, uint64_t bytes)
{
	HEAP_GROWTH_LOCKED(h);
	HEAP_LOCKED(h);
	struct finding best = {.lane = NULL};
	bool apart = kind == LARGE && policy_peaks_are_apart(h, l);
	unsigned steps = 0;
	FOR_LENDERS(h, other, l) {
		uint64_t most = lendable(other, l, kind, apart);
		const struct fit *f = &other->fit[kind];
		struct block *b = fit_find(f, bytes);
		while (b && !is_ordered(l, b))
			b = next_locked(h, f, b, &steps);
		if (b && b->size <= most && (!best.lane || b->size < best.size))
			best = find_again(other, b);
	}
	struct block *b = found_locked(&best);
	return b && is_ordered(l, b) ? b : NULL;
}

enum { REHOME_STEPS = 4 };  /* out of one index, into another, with two neighbours */

/* Takes the blocks that the stream follows out of one index, up to `most` bytes. */
static bool take_index_locked(trz_heap *h, struct lane *l, const struct fit *f, uint64_t most, unsigned *steps)
{
	HEAP_LOCKED(h);
	bool any = false;
	struct block *b = fit_find(f, UNIT);
	while (b) {
		uint64_t size = b->size;
		trz_addr address = b->address;
		bool takes = size <= most && is_ordered(l, b);
		if (takes) {
			most -= most == UINT64_MAX ? 0 : size;
			rehome_locked(h, b, l, ticket_of_ordered_locked(l, b));
			any = true;
		}
		heap_rest(h, steps, takes ? REHOME_STEPS : 1);
		b = fit_from(f, size, address + 1);
	}
	return any;
}

/* Takes all blocks that the stream follows; with `spare`, only as much as each lane can lend, and no free views, whose
 * tiles return. The lock is given up now and then: the walk may miss blocks that other threads free meanwhile. */
static bool take_ordered_locked(trz_heap *h, struct lane *l, enum kind kind, bool spare)
{
	HEAP_GROWTH_LOCKED(h);
	HEAP_LOCKED(h);
	bool any = false, apart = spare && kind == LARGE && policy_peaks_are_apart(h, l);
	unsigned steps = 0;
	FOR_LENDERS(h, other, l) {
		uint64_t most = spare ? lendable(other, l, kind, apart) : UINT64_MAX;
		FOR_PARTS(part, kind)
			if (!spare || part != VIEWS)
				any |= take_index_locked(h, l, &other->fit[part], most, &steps);
	}
	return any;
}

/* ---- neighbours ---- */

/* Free blocks side by side that would be one if all were the lane's. `first` is NULL: there are none. */
struct run {
	struct block *first;
	trz_addr end;
};

enum {
	RUN_PART = 4,                /* one block of a run is at least such a part of what is asked for */
	RUN_MOST = 8                 /* the most blocks beside that one, on both sides together */
};

static bool is_own(const struct lane *l, const struct block *b)
{
	return b->state == BLOCK_FREE && b->home == l;
}

static bool is_part(const struct lane *l, const struct block *b)
{
	return b && b->state == BLOCK_FREE && (b->home == l || (is_lender(b->home, l) && is_ordered(l, b)));
}

static bool is_enough(const struct run *r, uint64_t bytes)
{
	return r->end - r->first->address >= bytes;
}

/* The shortest run that begins with this block; if that is too short, with blocks before it as well. */
static struct run run_around(const struct lane *l, struct block *middle, uint64_t bytes, unsigned *steps)
{
	struct run r = {middle, block_end(middle)};
	unsigned count = 0;
	for (struct block *b = middle->next; !is_enough(&r, bytes) && count < RUN_MOST && is_part(l, b); b = b->next) {
		r.end = block_end(b);
		count++;
	}
	for (struct block *b = middle->prev; !is_enough(&r, bytes) && count < RUN_MOST && is_part(l, b); b = b->prev) {
		r.first = b;
		count++;
	}
	*steps += count;
	return is_enough(&r, bytes) ? r : (struct run){.first = NULL};
}

/* The first run around a block of one index. */
static struct run find_run_locked(trz_heap *h, const struct lane *l, const struct fit *f, uint64_t bytes,
                                  unsigned *steps)
{
	HEAP_LOCKED(h);
	struct run r = {.first = NULL};
	struct block *b = fit_find(f, bytes / RUN_PART);
	while (b) {
		if (is_part(l, b))
			r = run_around(l, b, bytes, steps);
		if (r.first)
			break;
		b = next_locked(h, f, b, steps);
	}
	return r;
}

/* Gives all of a run to the lane; each block joins what the lane has beside it. */
static void take_run_locked(trz_heap *h, struct lane *l, const struct run *r)
{
	HEAP_LOCKED(h);
	for (struct block *b = r->first; b && b->address < r->end; b = b->next) {
		if (is_own(l, b))
			continue;
		struct block *joined = b->prev && is_own(l, b->prev) ? b->prev : b;
		rehome_locked(h, b, l, ticket_of_ordered_locked(l, b));
		b = joined;
	}
}

/* Takes free blocks of several lanes, side by side, that are large enough together. */
static bool take_neighbours_locked(trz_heap *h, const struct demand *d)
{
	HEAP_GROWTH_LOCKED(h);
	HEAP_LOCKED(h);
	struct lane *l = d->lane;
	unsigned steps = 0;
	struct run r = find_run_locked(h, l, &l->fit[d->kind], d->bytes, &steps);
	FOR_LENDERS(h, other, l)
		if (!r.first)
			r = find_run_locked(h, l, &other->fit[d->kind], d->bytes, &steps);
	if (r.first)
		take_run_locked(h, l, &r);
	return r.first && fit_find(&l->fit[d->kind], d->bytes);  /* dedicated tiles that are kept do not join */
}

/* ---- what a demand is served from ---- */

/* Finds the lane one block that is large enough: its own, if pending memory has just become free, else another
 * lane's. */
static bool take_one_locked(trz_heap *h, const struct demand *d)
{
	struct lane *l = d->lane;
	heap_end_known_locked(h, l->stream);
	if (fit_find(&l->fit[d->kind], d->bytes))
		return true;
	struct block *b = best_ordered_locked(h, l, d->kind, d->bytes);
	if (b)
		rehome_locked(h, b, l, ticket_of_ordered_locked(l, b));
	return b != NULL;
}

/* Large memory is taken in pieces only for a stream whose frees pass at once: lanes lend it all, since they get it
 * back. For a view, memory stays with its streams. */
static bool takes_pieces(const struct demand *d)
{
	return d->kind == SMALL || (!d->view && !d->lane->stream->late);
}

static bool take_enough_locked(trz_heap *h, const struct demand *d)
{
	return take_one_locked(h, d) || (takes_pieces(d) && take_neighbours_locked(h, d));
}

/* Takes all large memory that can be lent: what joins may be enough; if not, it may at least be whole tiles. */
static bool take_large_locked(trz_heap *h, const struct demand *d)
{
	return d->kind == LARGE && !d->view && take_ordered_locked(h, d->lane, LARGE, true) &&
	       fit_find(&d->lane->fit[LARGE], d->bytes);
}

/* The first attempt goes by what is known already, without a question to the driver. */
bool borrow(trz_heap *h, const struct demand *d)
{
	HEAP_GROWTH_LOCKED(h);
	struct lane *l = d->lane;
	bool given = atomic_load_explicit(&h->given_count, memory_order_relaxed) > 0;
	if (atomic_load_explicit(&h->streams.count, memory_order_acquire) < 2 && !given && !l->captured)
		return false;
	heap_lock(h);
	bool found = take_enough_locked(h, d);
	heap_unlock(h);
	if (found)
		return true;
	heap_poll(h);
	heap_lock(h);
	found = take_enough_locked(h, d) || take_large_locked(h, d);
	heap_unlock(h);
	return found;
}

void borrow_join_all_locked(trz_heap *h, struct lane *l, enum kind kind)
{
	take_ordered_locked(h, l, kind, false);
}

/* Some lane of the default pool that holds memory of this sort; NULL: none does. */
static struct lane *any_lane(const trz_heap *h, unsigned sort)
{
	struct lane *l = h->streams.lanes.first;
	while (l && (l->pool || l->dedicated != sort))
		l = l->next;
	return l;
}

static void join_sort_locked(trz_heap *h, enum kind kind, unsigned sort)
{
	HEAP_LOCKED(h);
	struct lane *l = any_lane(h, sort);
	if (l)
		take_ordered_locked(h, l, kind, false);
	for (const struct pool *p = h->pools; p; p = p->next)
		if ((l = lane_find(p->lanes, NULL, sort, false)) && !p->pinned)
			take_ordered_locked(h, l, kind, false);
}

/* Dedicated tiles that are kept are left out: each is one block already. */
void borrow_join_everywhere_locked(trz_heap *h, enum kind kind)
{
	HEAP_GROWTH_LOCKED(h);
	HEAP_LOCKED(h);
	join_sort_locked(h, kind, 0);
	for (unsigned sort = DEDICATED_ONCE; h->dedicates && sort < 2 * DEDICATED_ONCE; sort++)
		join_sort_locked(h, kind, sort);
}

/* ---- with waits ---- */

/* The exact event of the batch that a ticket is in; NULL: it has none, or it has completed. */
static trz_event exact_event_locked(const struct tickets *t, uint64_t sequence)
{
	unsigned low = 0, high = t->count;
	while (low < high) {
		unsigned middle = (low + high) / 2;
		if (t->queue[(t->head + middle) % TICKET_QUEUE].sequence < sequence)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < t->count; low++) {
		const struct ticket_event *e = &t->queue[(t->head + low) % TICKET_QUEUE];
		if (e->first)
			return e->first <= sequence ? e->event : NULL;
	}
	return NULL;
}

static void note_wait_locked(trz_heap *h, const struct stream *s, const struct stream *awaited, struct waits *waits)
{
	HEAP_LOCKED(h);
	unsigned i = 0;
	while (i < waits->streams && waits->awaited[i] != awaited)
		i++;
	if (i == waits->streams && i < TRZ_OOM_AWAITED)
		waits->awaited[waits->streams++] = awaited;
	waits->count++;
	counter_add(&h->counters.waits_inserted, 1);
	history_note(&h->history, HISTORY_WAIT, .stream = (uint64_t)s->handle, .awaited = (uint64_t)awaited->handle);
}

/* Whether a wait may take memory of lane `of`: from its own pool, as blocks; or with `elsewhere` from any pool, in
 * tiles that growth then moves. */
static bool is_source(const struct lane *of, const struct lane *l, bool elsewhere)
{
	if (elsewhere)
		return of->stream != l->stream && !of->dedicated && !lane_is_pinned(of);
	return is_lender(of, l);
}

/* The lane of the demand's stream that gets what is taken of lane `of`; NULL: no host memory. */
static struct lane *taker_locked(trz_heap *h, struct lane *l, const struct lane *of, bool elsewhere)
{
	return elsewhere ? heap_lane_locked(h, l->stream, of->pool, 0) : l;
}

/* Makes the lane's stream wait for the free of a busy block, which then becomes a free block of the lane. The event
 * stays queued while the growth lock is held. */
static bool wait_for_block(trz_heap *h, struct lane *l, struct block *b, trz_event event, struct waits *waits)
{
	struct stream *s = l->stream;
	const struct stream *other = b->home->stream;
	assert(b->state == BLOCK_BUSY && event);
	trz_status status = driver_stream_wait(&h->driver, s->events->context, s->handle, event);
	heap_lock(h);
	level_sub(&h->counters.idle_bytes, b->size);
	if (status == TRZ_OK) {
		b->home = l;
		b->sequence = ticket_take(&s->tickets);  /* s's later work comes after the free */
		note_wait_locked(h, s, other, waits);
	}
	heap_free_block_locked(h, b, b->sequence);
	heap_unlock(h);
	return status == TRZ_OK;
}

/* The best of one index's blocks that can be waited for, or what was found before if that is better: the smallest block
 * of at least `bytes`, else the largest. */
static struct finding better_waitable_locked(trz_heap *h, struct lane *of, unsigned part, uint64_t least,
                                             uint64_t bytes, struct finding best, unsigned *steps)
{
	HEAP_LOCKED(h);
	const struct fit *f = &of->fit[part];
	for (struct block *b = fit_find(f, least); b; b = next_locked(h, f, b, steps)) {
		bool better = !best.lane || (best.size < bytes ? b->size > best.size
		                                               : b->size >= bytes && b->size < best.size);
		if (better && exact_event_locked(&of->stream->tickets, b->sequence))
			best = find_again(of, b);
	}
	return best;
}

/* The best free block of another stream that can be waited for. The lock is given up now and then. */
static struct finding find_waitable_locked(trz_heap *h, const struct demand *d, bool elsewhere, uint64_t bytes)
{
	HEAP_GROWTH_LOCKED(h);
	HEAP_LOCKED(h);
	struct finding best = {.lane = NULL};
	unsigned steps = 0;
	for (struct lane *of = h->streams.lanes.first; of; of = of->next) {
		if (!is_source(of, d->lane, elsewhere))
			continue;
		for (unsigned part = 0; part < PARTS; part++) {
			enum kind kind = part == SMALL ? SMALL : LARGE;
			uint64_t least = elsewhere ? h->tile_least[kind] : UNIT;
			if (elsewhere || kind == d->kind)
				best = better_waitable_locked(h, of, part, least, bytes, best, &steps);
		}
	}
	return best;
}

static struct block *waitable_locked(trz_heap *h, const struct demand *d, bool elsewhere, uint64_t bytes,
                                     trz_event *event)
{
	HEAP_LOCKED(h);
	struct finding best;
	struct block *b;
	do {
		best = find_waitable_locked(h, d, elsewhere, bytes);
		b = found_locked(&best);
		*event = b ? exact_event_locked(&best.lane->stream->tickets, b->sequence) : NULL;
	} while (best.lane && !*event);  /* another thread has taken it meanwhile */
	return b;
}

/* Waits for free blocks of other streams until they add up to `bytes`; returns how much that was. */
static uint64_t wait_for_free_blocks(trz_heap *h, const struct demand *d, bool elsewhere, uint64_t bytes,
                                     struct waits *waits)
{
	uint64_t taken = 0;
	while (taken < bytes) {
		trz_event event;
		heap_lock(h);
		struct block *b = waitable_locked(h, d, elsewhere, bytes - taken, &event);
		struct lane *to = b ? taker_locked(h, d->lane, b->home, elsewhere) : NULL;
		if (to) {
			fit_remove(heap_index_of(b), b);
			b->state = BLOCK_BUSY;
			level_add(&h->counters.idle_bytes, b->size);
		}
		heap_unlock(h);
		uint64_t size = to ? b->size : 0;
		if (!to || !wait_for_block(h, to, b, event, waits))
			break;
		taken += size;
	}
	return taken;
}

/* ---- pending blocks ---- */

enum { AWAITED_MOST = 8 };

/* The events to wait for before a pending block is free for a stream. */
struct awaited_uses {
	const struct stream *streams[AWAITED_MOST];
	trz_event events[AWAITED_MOST];
	unsigned count;
};

/* Adds the event of a ticket, if `to` has to wait for it. false: there is no event that it may wait for. */
static bool add_awaited_locked(struct awaited_uses *a, const struct stream *to, const struct stream *s,
                               uint64_t sequence)
{
	if (s == to || stream_follows(to, s, sequence))
		return true;
	trz_event event = exact_event_locked(&s->tickets, sequence);
	if (!event || a->count == AWAITED_MOST)
		return false;
	a->streams[a->count] = s;
	a->events[a->count++] = event;
	return true;
}

static bool find_awaited_locked(struct awaited_uses *a, const struct stream *to, const struct stream *s,
                                const struct pending *p)
{
	a->count = 0;
	bool ok = add_awaited_locked(a, to, s, p->sequence) &&
	          add_awaited_locked(a, to, p->block->home->stream, p->home_sequence);
	for (const struct use *u = p->uses; u && ok; u = u->next)
		ok = add_awaited_locked(a, to, u->stream, u->sequence);
	return ok;
}

/* Whether a pending block can become the lane's: it is of the lane's sort and pool, and no other process uses or owns
 * it. */
static bool could_be(const struct block *b, const struct lane *l, enum kind kind)
{
	return b->kind == kind && b->home->pool == l->pool && b->window->dedicated == l->dedicated && !b->exports &&
	       !b->window->foreign;
}

/* Takes the first pending block that the lane can get by waits out of its list; NULL: there is none. */
static struct pending *take_pending_locked(trz_heap *h, const struct lane *l, enum kind kind, struct stream **from,
                                           struct awaited_uses *a)
{
	HEAP_GROWTH_LOCKED(h);
	HEAP_LOCKED(h);
	unsigned streams = atomic_load_explicit(&h->streams.count, memory_order_relaxed), steps = 0;
	for (unsigned i = 0; i < streams; i++) {
		struct stream *s = atomic_load_explicit(&h->streams.list[i], memory_order_relaxed);
		for (struct pending **link = &s->pending_first; *link; link = &(*link)->next) {
			struct pending *p = *link;
			heap_rest(h, &steps, 1);  /* others only append */
			SPINLOCK_STEP();
			if (!p->block || !could_be(p->block, l, kind) || !find_awaited_locked(a, l->stream, s, p))
				continue;
			stream_unlink_pending(s, link);
			*from = s;
			return p;
		}
	}
	return NULL;
}

static void finish_pending_locked(trz_heap *h, struct lane *l, struct pending *p, const struct awaited_uses *a,
                                  struct waits *waits)
{
	HEAP_LOCKED(h);
	for (unsigned i = 0; i < a->count; i++)
		note_wait_locked(h, l->stream, a->streams[i], waits);
	for (struct use *u; (u = p->uses);) {
		p->uses = u->next;
		heap_drop_use_locked(h, u);
	}
	assert(p->block->state == BLOCK_PENDING);
	p->block->home = l;
	p->home_sequence = ticket_take(&l->stream->tickets);
	heap_end_pending_locked(h, p);
}

/* Waits for other streams' work on freed blocks until those add up to `bytes`; returns how much that was. */
static uint64_t wait_for_pending_blocks(trz_heap *h, struct lane *l, enum kind kind, uint64_t bytes,
                                        struct waits *waits)
{
	uint64_t taken = 0;
	while (taken < bytes) {
		struct awaited_uses a;
		struct stream *from;
		heap_lock(h);
		struct pending *p = take_pending_locked(h, l, kind, &from, &a);
		heap_unlock(h);
		if (!p)
			break;
		uint64_t size = p->block->size;
		trz_status status = TRZ_OK;
		const struct stream *s = l->stream;
		for (unsigned i = 0; i < a.count && status == TRZ_OK; i++)
			status = driver_stream_wait(&h->driver, s->events->context, s->handle, a.events[i]);
		heap_lock(h);
		if (status == TRZ_OK)
			finish_pending_locked(h, l, p, &a, waits);
		else
			heap_push_pending_locked(from, p, p->sequence);
		heap_unlock(h);
		if (status != TRZ_OK)
			break;
		taken += size;
	}
	return taken;
}

/* What the stream got by waits counts as freed by it after them. Records an exact event for that, since other streams
 * may have to wait for what this demand leaves. `first`: the first ticket of these waits. */
static void cover_waits(trz_heap *h, struct stream *s, uint64_t first)
{
	heap_lock(h);
	uint64_t newest = s->tickets.newest;
	heap_unlock(h);
	trz_event event = newest >= first ? heap_record_event(h, s) : NULL;
	if (!event)
		return;
	heap_lock(h);
	event = ticket_note(&s->tickets, newest, event, first);
	heap_unlock(h);
	if (event)
		heap_return_event(h, s->events, event);
}

void borrow_with_waits(trz_heap *h, const struct demand *d, struct waits *waits)
{
	HEAP_GROWTH_LOCKED(h);
	struct stream *s = d->lane->stream;
	if (atomic_load_explicit(&h->streams.count, memory_order_acquire) < 2 || heap_is_captured(h, s))
		return;
	heap_lock(h);
	uint64_t first = ticket_newest(&s->tickets) + 1;
	heap_unlock(h);
	uint64_t taken = wait_for_free_blocks(h, d, false, d->bytes, waits);
	if (taken < d->bytes)
		taken += wait_for_pending_blocks(h, d->lane, d->kind, d->bytes - taken, waits);
	if (taken < d->bytes)
		wait_for_free_blocks(h, d, true, d->bytes - taken, waits);
	cover_waits(h, s, first);
}
