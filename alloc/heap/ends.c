/* SPDX-License-Identifier: Apache-2.0
 *
 * The ends of private pools. When the last reference has gone, launches of the pool's graphs may still be running, on
 * any stream. Polls then wait for a deputy of all streams, or where the driver has none, for tickets of the streams
 * that the heap knows. After that the pool's memory becomes the default pool's. Each lane's goes to the same stream,
 * except that all free memory of a window that has passed goes to one stream.
 */
#include "heap/ends.h"

#include "heap/carve.h"
#include "heap/contexts.h"
#include "heap/events.h"
#include "heap/streams.h"

enum { REHOMED_AT_ONCE = 256 };

/* Names each lane's heir in the default pool: its stream's lane for the same sort of memory. If there is none, the lane
 * itself leaves the pool and becomes that. */
static void name_heirs_locked(struct pool *p)
{
	for (struct lane **link = &p->lanes, *l; (l = *link);) {
		struct stream *s = l->stream;
		l->heir = l->dedicated ? lane_find(s->dedicated, s, l->dedicated, false) : &s->lane;
		if (l->heir) {
			link = &l->pool_next;
			continue;
		}
		*link = l->pool_next;
		l->pool = NULL;
		l->captured = false;
		l->pool_next = s->dedicated;
		s->dedicated = l;
	}
}

/* A slab that is wholly free can only be the last of its bin. */
static void rehome_slab_locked(trz_heap *h, struct slab *s, struct lane *from, struct lane *to)
{
	HEAP_LOCKED(h);
	heap_call_in_locked(h, from->stream);
	s->home = to;
	from->slabs--;
	to->slabs++;
	if (!s->free)
		return;
	bin_unlink(&from->bins[s->size_class], s);
	bin_push(&to->bins[s->size_class], s);
	if (s->free == slab_all_slots(s))
		heap_retire_slab_locked(h, s);
}

void heap_rehome_block_locked(trz_heap *h, struct block *b, struct lane *to)
{
	HEAP_LOCKED(h);
	struct lane *from = b->home;
	assert(to != from && (to->stream == from->stream || b->state == BLOCK_FREE) && to->dedicated == from->dedicated);
	b->home = to;
	switch ((enum block_state)b->state) {
	case BLOCK_FREE:
		fit_remove(&from->fit[window_part(b->window)], b);
		heap_free_block_locked(h, b, to->stream == from->stream ? b->sequence : 0);
		break;
	case BLOCK_LIVE:
		assert(from->held >= b->size);
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

/* Gives the heap lock back for a moment. The block is busy meanwhile: else it could vanish, since other threads join
 * free blocks. Returns the block, joined with what was freed beside it meanwhile. */
static struct block *rest_locked(trz_heap *h, struct block *b)
{
	HEAP_LOCKED(h);
	fit_remove(heap_index_of(b), b);
	b->state = BLOCK_BUSY;
	level_add(&h->counters.idle_bytes, b->size);
	spinlock_rest(&h->lock);
	level_sub(&h->counters.idle_bytes, b->size);
	return heap_free_block_locked(h, b, b->sequence);
}

/* Which memory goes to the heirs. */
enum handing {
	HAND_POOL,                   /* all of the pool, which ends */
	HAND_LANES,                  /* all of the lanes that have heirs */
	HAND_USED                    /* the same, except what is free for any capture */
};

/* The heir of a block. Of a pool that ends, all free blocks that have passed go to the same heir, the first that gets
 * one: a tile of which several streams had parts then lies in one free block, and can move to another pool. */
static struct lane *heir_of(const struct block *b, enum handing how, struct lane **one)
{
	struct lane *heir = b->home ? b->home->heir : NULL;
	if (!heir || (how == HAND_USED && b->state == BLOCK_FREE && (heap_block_passed(b) || heap_block_is_clean(b))))
		return NULL;
	if (how != HAND_POOL || heir->dedicated || b->state != BLOCK_FREE || !heap_block_passed(b))
		return heir;
	if (!*one)
		*one = heir;
	return *one;
}

/* Gives the lanes' memory in a window to their heirs. */
static void hand_over(trz_heap *h, struct window *w, enum handing how)
{
	HEAP_GROWTH_LOCKED(h);
	struct lane *one = NULL;
	unsigned done = 0;
	heap_lock(h);
	for (struct block *b = w->blocks.first, *next; b; b = next) {
		if (++done > REHOMED_AT_ONCE && b->state == BLOCK_FREE) {
			b = rest_locked(h, b);
			done = 0;
		}
		struct lane *to = heir_of(b, how, &one);
		next = b->next;
		if (to && next && next->state == BLOCK_FREE && next->home == to)
			next = next->next;  /* that one may join with this */
		if (to)
			heap_rehome_block_locked(h, b, to);
	}
	heap_unlock(h);
}

/* Removes a pool's lanes: they have no memory, so nothing leads to them any more. */
static void drop_lanes(trz_heap *h, struct pool *p)
{
	for (struct lane *l; (l = p->lanes);) {
		for (int part = 0; part < PARTS; part++)
			if (l->window[part])
				l->window[part]->grows = false;
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
	HEAP_GROWTH_LOCKED(h);
	assert(!p->users && !p->announcers);
	heap_lock(h);
	name_heirs_locked(p);
	heap_unlock(h);
	for (int kind = 0; kind < KINDS; kind++)
		for (struct window *w = h->windows[kind]; w; w = w->next)
			if (w->pool == p) {
				hand_over(h, w, HAND_POOL);
				w->pool = NULL;
			}
	drop_lanes(h, p);
	h->moved_for_ended += p->moved_bytes;
	heap_lock(h);
	struct pool **link = &h->pools;
	while (*link != p)
		link = &(*link)->next;
	*link = p->next;
	heap_unlock(h);
	meta_free(&h->meta, p->awaited);
	meta_free(&h->meta, p);
}

/* Names the heirs of a stream's captured lanes in a pool; false: it has none. */
static bool name_captured_lanes_heirs_locked(struct pool *p, const struct stream *s)
{
	bool any = false;
	for (struct lane *l = p->lanes; l; l = l->pool_next)
		if (l->captured && l->stream == s) {
			l->heir = lane_find(p->lanes, s, l->dedicated, false);
			any = true;
		}
	return any;
}

static void forget_heirs_locked(struct pool *p)
{
	for (struct lane *l = p->lanes; l; l = l->pool_next)
		l->heir = NULL;
}

void heap_merge_captured_lanes(trz_heap *h, struct pool *p, const struct stream *s, bool all)
{
	HEAP_GROWTH_LOCKED(h);
	heap_lock(h);
	bool any = name_captured_lanes_heirs_locked(p, s);
	heap_unlock(h);
	for (int kind = 0; kind < KINDS && any; kind++)
		for (struct window *w = h->windows[kind]; w; w = w->next)
			if (w->pool == p)
				hand_over(h, w, all ? HAND_LANES : HAND_USED);
	heap_lock(h);
	forget_heirs_locked(p);
	heap_unlock(h);
}

/* Takes tickets of all streams except those that the pool's deputy answers for. Nothing has been captured in a pool
 * that is not pinned, so its blocks' own tickets suffice. Without host memory the next poll tries again. */
static void await_streams(trz_heap *h, struct pool *p, enum cover cover)
{
	bool any = p->pinned && !(p->deputy && cover == COVER_ALL && !h->events.next);
	unsigned streams = any ? atomic_load_explicit(&h->streams.count, memory_order_acquire) : 0, n = 0;
	struct awaited *awaited = streams ? meta_alloc(&h->meta, streams * sizeof *awaited) : NULL;
	if (streams && !awaited)
		return;
	heap_lock(h);
	for (unsigned i = 0; i < streams; i++) {
		struct stream *s = atomic_load_explicit(&h->streams.list[i], memory_order_relaxed);
		if (p->deputy && s->events == &h->events && (cover == COVER_ALL || s->thread_bound))
			continue;
		awaited[n++] = (struct awaited){s, ticket_take(&s->tickets)};
	}
	p->awaited = awaited;
	p->awaited_count = n;
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

/* Whether the heap knows a per-thread stream, whose thread may have gone. */
static bool knows_threads(const trz_heap *h)
{
	unsigned streams = atomic_load_explicit(&h->streams.count, memory_order_acquire);
	bool any = false;
	for (unsigned i = 0; i < streams && !any; i++)
		any = atomic_load_explicit(&h->streams.list[i], memory_order_relaxed)->thread_bound;
	return any;
}

/* Records a deputy of all streams, which also answers for launches on streams that the heap has never seen; where the
 * driver has no events of contexts, one of thread-bound streams. false: none can be recorded now, or an older one is
 * outstanding. */
static bool cover_launches(trz_heap *h, enum cover *cover)
{
	if (h->events.deputy || heap_may_be_captured(h))
		return false;
	*cover = COVER_ALL;
	trz_status status = heap_record_deputy(h, &h->events, COVER_ALL);
	if (status != TRZ_ERROR_NOT_SUPPORTED)
		return status == TRZ_OK;
	*cover = COVER_THREADS;
	return !knows_threads(h) || heap_record_deputy(h, &h->events, COVER_THREADS) == TRZ_OK;
}

/* If a deputy cannot be recorded now, the next poll tries again. */
void heap_end_pools(trz_heap *h)
{
	HEAP_GROWTH_LOCKED(h);
	enum cover cover = COVER_ALL;
	bool covered = false;
	for (struct pool *p = heap_first_pool(h); (p = next_ended(h, p)); p = p->next) {
		if (p->pinned && !covered && !(covered = cover_launches(h, &cover)))
			continue;
		p->deputy = p->pinned && h->events.deputy ? h->events.deputies : 0;
		await_streams(h, p, cover);
	}
	if (covered)
		heap_collect_contexts(h);  /* on an idle device it has passed already */
}

static bool may_dissolve(const trz_heap *h, const struct pool *p)
{
	if (p->users || !p->awaits || !heap_deputy_passed(&h->events, p->deputy))
		return false;
	for (unsigned i = 0; i < p->awaited_count; i++)
		if (!ticket_passed(&p->awaited[i].stream->tickets, p->awaited[i].sequence))
			return false;
	return true;
}

void heap_dissolve_pools(trz_heap *h)
{
	HEAP_GROWTH_LOCKED(h);
	for (struct pool *p = heap_first_pool(h), *next; p; p = next) {
		next = p->next;
		heap_lock(h);
		bool may = may_dissolve(h, p);
		heap_unlock(h);
		if (may)
			dissolve(h, p);
	}
}
