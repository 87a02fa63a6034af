/* SPDX-License-Identifier: Apache-2.0
 *
 * The life of private pools. When the last reference has gone, work of the pool's graphs may still be under way, on
 * whatever stream they were launched. The pool then waits, asking at every poll, for an event of the whole context, or
 * where the driver has none for tickets of all streams that the heap knows; after that its memory becomes the default
 * pool's, each lane's that of the same stream.
 */
#include "heap.h"

#include <assert.h>

#include "error.h"

trz_status heap_pool_create(trz_heap *h, struct pool **out)
{
	struct pool *p = meta_alloc(&h->meta, sizeof *p);
	if (!p)
		return meta_exhausted();
	p->heap = h;
	p->users = 1;
	heap_lock(h);
	p->id = ++h->pool_ids;
	p->next = h->pools;
	h->pools = p;
	heap_unlock(h);
	*out = p;
	return TRZ_OK;
}

/* ---- the end ---- */

enum { REHOMED_AT_ONCE = 256 };

/* The lane of the default pool that inherits: that of the same stream for what this one holds, else this one, which
 * then is the pool's no more. */
static struct lane *heir_locked(struct pool *p, struct lane *l)
{
	struct stream *s = l->stream;
	struct lane *to = l->apart ? lane_find(s->apart, s, l->apart) : &s->lane;
	if (to)
		return to;
	struct lane **link = &p->lanes;
	while (*link != l)
		link = &(*link)->pool_next;
	*link = l->pool_next;
	l->pool = NULL;
	l->pool_next = s->apart;
	s->apart = l;
	return l;
}

/* A slab that is wholly free can only be the last of its bin. */
static void rehome_slab_locked(trz_heap *h, struct slab *s, struct lane *from, struct lane *to)
{
	s->home = to;
	if (!s->free)
		return;
	bin_unlink(&from->bins[s->size_class], s);
	bin_push(&to->bins[s->size_class], s);
	if (s->free == slab_all_slots(s))
		heap_retire_slab_locked(h, s);
}

static void rehome_block_locked(trz_heap *h, struct block *b, struct lane *to)
{
	struct lane *from = b->home;
	b->home = to;
	switch ((enum block_state)b->state) {
	case BLOCK_FREE:
		fit_remove(&from->fit[b->kind], b);
		heap_free_block_locked(h, b, b->sequence);
		break;
	case BLOCK_LIVE:
		from->held -= b->size;
		to->held += b->size;
		to->held_peak = max_u64(to->held_peak, to->held);
		break;
	case BLOCK_SLAB:
		rehome_slab_locked(h, b->slab, from, to);
		break;
	case BLOCK_PENDING:
	case BLOCK_ENDED:
	case BLOCK_BUSY:  /* a free that is recording its event */
	case BLOCK_HOLE:
		break;
	}
}

/* Gives the heap lock back for a moment. Of a window's blocks other threads let none vanish but such as join, and busy
 * ones do not. */
static void rest_locked(trz_heap *h, struct block *b)
{
	fit_remove(&b->home->fit[b->kind], b);
	b->state = BLOCK_BUSY;
	level_add(&h->counters.idle_bytes, b->size);
	heap_unlock(h);
	heap_lock(h);
	level_sub(&h->counters.idle_bytes, b->size);
	b->state = BLOCK_FREE;
	fit_insert(&b->home->fit[b->kind], b);
}

static void open_window_to_all(trz_heap *h, struct pool *p, struct window *w)
{
	unsigned done = 0;
	heap_lock(h);
	for (struct block *b = w->blocks.first, *next; b; b = next) {
		if (++done > REHOMED_AT_ONCE && b->state == BLOCK_FREE) {
			rest_locked(h, b);
			done = 0;
		}
		next = b->next;
		if (b->home && b->home->pool == p)
			rehome_block_locked(h, b, heir_locked(p, b->home));
	}
	w->pool = NULL;
	heap_unlock(h);
}

/* With no memory left nobody comes upon the lanes any more. */
static void drop_lanes(trz_heap *h, struct pool *p)
{
	for (struct lane *l; (l = p->lanes);) {
		heap_lock(h);
		p->lanes = l->pool_next;
		lane_remove(&h->streams.lanes, l);
		heap_unlock(h);
		meta_free(&h->meta, l);
	}
}

/* Gives all memory of a pool to the default one. */
static void dissolve(trz_heap *h, struct pool *p)
{
	for (int kind = 0; kind < KINDS; kind++)
		for (struct window *w = h->windows[kind]; w; w = w->next)
			if (w->pool == p)
				open_window_to_all(h, p, w);
	drop_lanes(h, p);
	heap_lock(h);
	struct pool **link = &h->pools;
	while (*link != p)
		link = &(*link)->next;
	*link = p->next;
	heap_unlock(h);
	meta_free(&h->meta, p->awaited);
	meta_free(&h->meta, p);
}

/* A stream on which only another thread could record events, which may be gone for good. */
static bool is_out_of_reach(const struct stream *s)
{
	return s->thread_bound && !atomic_load_explicit(&s->retired, memory_order_relaxed);
}

/* Tickets of all streams, taken now. What has been captured in a pool that is not pinned is nothing, so that its
 * blocks' own tickets say enough. Without host memory the next poll tries again. */
static void await_streams(trz_heap *h, struct pool *p, struct stream *deputy)
{
	unsigned streams = p->pinned ? atomic_load_explicit(&h->streams.count, memory_order_acquire) : 0;
	struct awaited *awaited = streams ? meta_alloc(&h->meta, streams * sizeof *awaited) : NULL;
	if (streams && !awaited)
		return;
	heap_lock(h);
	for (unsigned i = 0; i < streams; i++) {
		struct stream *s = atomic_load_explicit(&h->streams.list[i], memory_order_relaxed);
		if (deputy && is_out_of_reach(s))
			s = deputy;
		awaited[i] = (struct awaited){s, ticket_take(&s->tickets)};
	}
	p->awaited = awaited;
	p->awaited_count = streams;
	p->awaits = true;
	heap_unlock(h);
}

/* A pool that has ended and awaits nothing yet; NULL: there is none. */
static struct pool *next_ended(trz_heap *h, struct pool *p)
{
	heap_lock(h);
	while (p && (p->users || p->awaits))
		p = p->next;
	heap_unlock(h);
	return p;
}

/* The stream whose tickets answer for what is out of reach: the legacy default stream waits for
 * every per-thread one. NULL: there is no need of it, or it cannot be had now, which *ok tells. */
static struct stream *find_deputy(trz_heap *h, bool *ok)
{
	struct stream *legacy = NULL;
	unsigned streams = atomic_load_explicit(&h->streams.count, memory_order_acquire);
	*ok = true;
	for (unsigned i = 0; i < streams && !legacy && *ok; i++)
		if (is_out_of_reach(atomic_load_explicit(&h->streams.list[i], memory_order_relaxed)))
			*ok = heap_stream(h, NULL, &legacy) == TRZ_OK;
	return legacy;
}

static void await_known_streams(trz_heap *h, struct pool *p)
{
	bool ok;
	struct stream *deputy = find_deputy(h, &ok);
	if (ok)
		await_streams(h, p, deputy);
}

/* Whether the stream is being captured; of what this thread cannot ask the legacy default stream tells. */
static bool is_known_captured(trz_heap *h, const struct stream *s)
{
	return !s->thread_bound && !atomic_load_explicit(&s->retired, memory_order_acquire) &&
	       heap_is_captured(h, s->handle);
}

/* Whether some stream of the context is being captured, or soon will be, as far as that can be known: where a
 * diversion has announced it, on blocking streams, on streams that the heap knows. */
static bool may_be_captured(trz_heap *h)
{
	unsigned streams = atomic_load_explicit(&h->streams.count, memory_order_acquire);
	bool captured = atomic_load(&h->capturing) || heap_is_captured(h, NULL);
	for (unsigned i = 0; i < streams && !captured; i++)
		captured = is_known_captured(h, atomic_load_explicit(&h->streams.list[i], memory_order_relaxed));
	return captured;
}

/* An event of the whole context covers launches on streams that the heap has never seen. What cannot be had now is
 * tried again at the next poll. */
static void await_context(trz_heap *h, struct pool *p)
{
	trz_event event;
	if (may_be_captured(h) || heap_take_event(h, &event) != TRZ_OK)
		return;
	trz_status status = driver_context_record(&h->driver, event);
	if (status == TRZ_OK) {
		heap_lock(h);
		p->event = event;
		p->awaits = true;
		heap_unlock(h);
		return;
	}
	heap_return_event(h, event);
	if (status == TRZ_ERROR_NOT_SUPPORTED)
		await_known_streams(h, p);
}

/* Whether the pool's event has passed, or it has none. */
static void collect_event(trz_heap *h, struct pool *p)
{
	trz_event event = p->event;
	if (!event || driver_event_query(&h->driver, event) != TRZ_OK)
		return;
	p->event = NULL;
	heap_return_event(h, event);
}

static struct pool *first_pool(trz_heap *h)
{
	heap_lock(h);
	struct pool *p = h->pools;
	heap_unlock(h);
	return p;
}

void heap_end_pools(trz_heap *h)
{
	struct pool *p = first_pool(h);
	while ((p = next_ended(h, p))) {
		if (p->pinned)
			await_context(h, p);
		else
			await_streams(h, p, NULL);
		p = p->next;
	}
	for (p = first_pool(h); p; p = p->next)
		collect_event(h, p);
}

static bool may_dissolve(const struct pool *p)
{
	if (p->users || !p->awaits || p->event)
		return false;
	for (unsigned i = 0; i < p->awaited_count; i++)
		if (!ticket_passed(&p->awaited[i].stream->tickets, p->awaited[i].sequence))
			return false;
	return true;
}

void heap_dissolve_pools(trz_heap *h)
{
	for (struct pool *p = first_pool(h), *next; p; p = next) {
		next = p->next;
		heap_lock(h);
		bool may = may_dissolve(p);
		heap_unlock(h);
		if (may)
			dissolve(h, p);
	}
}

void heap_pool_release(trz_heap *h, struct pool *p)
{
	heap_lock(h);
	bool last = --p->users == 0;
	heap_unlock(h);
	if (!last)
		return;
	trz_capture_mode mode = heap_lock_growth(h);
	heap_poll(h);
	heap_unlock_growth(h, mode);
}
