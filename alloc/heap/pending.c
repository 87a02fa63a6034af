/* SPDX-License-Identifier: Apache-2.0
 *
 * Freed memory that waits for tickets, and the end of its wait.
 */
#include "heap/pending.h"

#include "heap/carve.h"

void heap_push_pending_locked(struct stream *s, struct pending *p, uint64_t sequence)
{
	p->sequence = sequence;
	stream_push_pending(s, p);
}

/* Counts and notes memory whose wait is over: `e` has its address, requested size and stack. */
static void count_end_locked(trz_heap *h, const struct lane *home, enum kind kind, struct history_event e,
                             uint64_t size)
{
	HEAP_LOCKED(h);
	history_note(&h->history, HISTORY_FREE_COMPLETED, .address = e.address, .size = e.size, .frames = e.frames,
	             .stream = (uint64_t)home->stream->handle, .pool = pool_id(home->pool));
	level_sub(&h->counters.pending_bytes, size);
	level_sub(&h->counters.pending, 1);
	counter_add(&h->counters.active_bytes.pending[kind], (uint64_t)0 - size);
	counter_add(&h->counters.active.pending[kind], (uint64_t)0 - 1);
}

void heap_end_block_locked(trz_heap *h, struct block *b, uint64_t sequence)
{
	HEAP_LOCKED(h);
	assert(b->state == BLOCK_PENDING || b->state == BLOCK_ENDED);
	struct history_event e = {.address = b->address, .size = b->requested, .frames = b->frames};
	if (b->exports || b->window->foreign) {
		b->state = BLOCK_ENDED;
		b->ended_sequence = sequence;
		return;
	}
	count_end_locked(h, b->home, (enum kind)b->kind, e, b->size);
	heap_free_block_locked(h, b, sequence);
}

static void end_slot_locked(trz_heap *h, const struct pending *p)
{
	HEAP_LOCKED(h);
	struct slab *s = p->slab;
	uint64_t size = slab_class(s)->slot_size;
	heap_call_in_locked(h, s->home->stream);
	assert(s->pending >> p->slot & 1);
	count_end_locked(h, s->home, SMALL,
	                 (struct history_event){.address = slab_slot_address(s, p->slot),
	                                        .size = size - s->unused[p->slot],
	                                        .frames = slot_frames(s, p->slot)},
	                 size);
	s->pending &= ~((uint64_t)1 << p->slot);
	counter_add(&h->counters.pending_slot_bytes, (uint64_t)0 - size);
	if (bin_give_slot(&s->home->bins[s->size_class], s, p->slot))
		heap_retire_slab_locked(h, s);
}

void heap_end_pending_locked(trz_heap *h, struct pending *p)
{
	HEAP_LOCKED(h);
	assert(!p->uses);
	if (p->slab)
		end_slot_locked(h, p);
	else
		heap_end_block_locked(h, p->block, p->home_sequence);
	node_pool_give(&h->pendings, p);
}

void heap_drop_use_locked(trz_heap *h, struct use *u)
{
	HEAP_LOCKED(h);
	assert(u->stream->uses > 0);
	u->stream->uses--;
	node_pool_give(&h->uses, u);
}

/* The awaited stream has passed. true: another one is to be awaited. */
static bool await_next_use_locked(trz_heap *h, struct pending *p)
{
	HEAP_LOCKED(h);
	struct use *use;
	while ((use = p->uses)) {
		struct stream *s = use->stream;
		uint64_t sequence = use->sequence;
		p->uses = use->next;
		heap_drop_use_locked(h, use);
		if (!ticket_passed(&s->tickets, sequence)) {
			heap_push_pending_locked(s, p, sequence);
			return true;
		}
	}
	return false;
}

enum { DRAIN_STEPS = 4 }; /* an entry's block joins with two others */

void heap_drain_pending_locked(trz_heap *h, struct stream *s)
{
	HEAP_GROWTH_LOCKED(h);
	HEAP_LOCKED(h);
	for (unsigned steps = 0; s->pending_first && ticket_passed(&s->tickets, s->pending_first->sequence);
	     heap_rest(h, &steps, DRAIN_STEPS)) {
		struct pending *p = s->pending_first;
		SPINLOCK_STEP();
		s->pending_first = p->next;
		if (!s->pending_first)
			s->pending_last = &s->pending_first;
		if (!await_next_use_locked(h, p))
			heap_end_pending_locked(h, p);
	}
}

/* ---- by known order ---- */

/* Whether an entry's memory goes back to `s` once it waits for nothing else. A captured lane's serves graphs; what
 * other processes use, or own, does not become free. */
static bool is_ours(const struct pending *p, const struct stream *s)
{
	const struct lane *home = p->slab ? p->slab->home : p->block->home;
	bool shared = p->block && (p->block->exports || p->block->window->foreign);
	return home->stream == s && !home->captured && !shared;
}

static bool follows_all(const struct stream *s, const struct stream *awaited, const struct pending *p)
{
	bool follows = stream_follows(s, awaited, p->sequence);
	for (const struct use *u = p->uses; u && follows; u = u->next)
		follows = stream_follows(s, u->stream, u->sequence);
	return follows;
}

static void end_known_locked(trz_heap *h, struct stream *s, struct stream *awaited, unsigned *steps)
{
	HEAP_LOCKED(h);
	uint64_t most = s->known[awaited->index];
	struct pending **link = &awaited->pending_first;
	while (*link && (*link)->sequence <= most) {
		struct pending *p = *link;
		heap_rest(h, steps, 1);  /* others only append */
		SPINLOCK_STEP();
		if (!is_ours(p, s) || !follows_all(s, awaited, p)) {
			link = &p->next;
			continue;
		}
		stream_unlink_pending(awaited, link);
		for (struct use *u; (u = p->uses);) {
			p->uses = u->next;
			heap_drop_use_locked(h, u);
		}
		p->home_sequence = ticket_take(&s->tickets);  /* after what s follows: once it has passed, so has that */
		heap_end_pending_locked(h, p);
	}
}

void heap_end_known_locked(trz_heap *h, struct stream *s)
{
	HEAP_GROWTH_LOCKED(h);
	HEAP_LOCKED(h);
	unsigned steps = 0;
	for (unsigned i = 0; i < s->known_count; i++) {
		struct stream *awaited = s->known[i] ? h->streams.list[i] : NULL;
		if (awaited && awaited->pending_first && !ticket_passed(&awaited->tickets, s->known[i]))
			end_known_locked(h, s, awaited, &steps);
	}
}
