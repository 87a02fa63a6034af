/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding and adding streams.
 */
#include "order/stream.h"

#include <assert.h>

#include "prng.h"

/* A stream that was late counts as prompt again after this many polls in a row have found everything passed. One poll
 * proves nothing: between two bursts of frees every stream looks prompt. */
enum { LATE_POLLS = 64 };

uint64_t stream_this_thread(void)
{
	static _Atomic uint64_t given;
	static _Thread_local uint64_t number;
	if (!number)
		number = 1 + atomic_fetch_add_explicit(&given, 1, memory_order_relaxed);
	return number;
}

static unsigned hash_of(uint64_t id)
{
	return (unsigned)(prng_mix(id) % STREAM_HASH);
}

struct stream *stream_find(const struct streams *all, uint64_t id)
{
	struct stream *s = all->hash[hash_of(id)];
	while (s && (s->id != id || s->tickets.closed))
		s = s->next;
	return s;
}

void stream_note_recent(struct streams *all, struct stream *s)
{
	struct recent *r = &all->recent[s->id % RECENT_STREAMS];
	if (atomic_load_explicit(&r->stream, memory_order_relaxed) == s &&
	    atomic_load_explicit(&r->id, memory_order_relaxed) == s->id)
		return;
	atomic_store_explicit(&r->stream, s, memory_order_release);
	atomic_store_explicit(&r->id, s->id, memory_order_relaxed);
}

struct stream *stream_find_handle(const struct streams *all, trz_stream handle)
{
	unsigned count = atomic_load_explicit(&all->count, memory_order_relaxed);
	struct stream *newest = NULL;
	for (unsigned i = 0; i < count; i++) {
		struct stream *s = atomic_load_explicit(&all->list[i], memory_order_relaxed);
		bool known = s->handle == handle && !s->thread_bound && !s->tickets.closed;
		if (known && (!newest || s->id > newest->id))
			newest = s;
	}
	return newest;
}

static void link_hash(struct streams *all, struct stream *s)
{
	struct stream **bucket = &all->hash[hash_of(s->id)];
	s->next = *bucket;
	*bucket = s;
}

static void unlink_hash(struct streams *all, const struct stream *s)
{
	struct stream **link = &all->hash[hash_of(s->id)];
	while (*link != s)
		link = &(*link)->next;
	*link = s->next;
}

struct stream *stream_name(struct streams *all, trz_stream handle, uint64_t id)
{
	struct stream *s = stream_find_handle(all, handle);
	if (!s || !(s->id & STREAM_ID_UNKNOWN) || s->id == STREAM_ID_LEGACY || stream_is_gone(s))
		return NULL;
	unlink_hash(all, s);
	s->id = id;
	link_hash(all, s);
	return s;
}

void stream_bury(struct streams *all, trz_stream handle)
{
	unsigned count = atomic_load_explicit(&all->count, memory_order_relaxed);
	for (unsigned i = 0; i < count; i++) {
		struct stream *s = atomic_load_explicit(&all->list[i], memory_order_relaxed);
		if (s->handle != handle || s->thread_bound || atomic_load_explicit(&s->retired, memory_order_relaxed))
			continue;
		ticket_take(&s->tickets);
		atomic_store_explicit(&s->retired, true, memory_order_release);
	}
}

struct stream *stream_add(struct streams *all, uint64_t id, trz_stream handle, struct event_pool *events)
{
	unsigned count = atomic_load_explicit(&all->count, memory_order_relaxed);
	if (count == STREAMS_MAX)
		return NULL;
	struct stream *s = meta_alloc(all->meta, sizeof *s);
	if (!s)
		return NULL;
	slots_init(&s->slots);
	s->id = id;
	s->index = count;
	s->handle = handle;
	s->events = events;
	s->thread_bound = handle == STREAM_PER_THREAD;
	s->pending_last = &s->pending_first;
	lane_add(&all->lanes, &s->lane, s, NULL, &all->counters->cached_bytes);
	link_hash(all, s);
	atomic_store_explicit(&all->list[count], s, memory_order_relaxed);
	atomic_store_explicit(&all->count, count + 1, memory_order_release);
	level_add(&all->counters->stream, 1);
	return s;
}

static bool is_over(struct stream *s)
{
	return atomic_load_explicit(&s->retired, memory_order_relaxed) && s->tickets.passed == ticket_newest(&s->tickets) &&
	       !s->tickets.count && !s->recorders && !s->pending_first;
}

bool stream_is_idle(struct stream *s)
{
	struct tickets *t = &s->tickets;
	uint64_t entered = atomic_load_explicit(&s->entered, memory_order_relaxed);
	assert(!slots_are_out(&s->slots));
	bool named = entered != atomic_load_explicit(&s->left, memory_order_acquire) || s->uses;
	if (named || t->passed < ticket_newest(t) || t->count || t->waiters || s->recorders || s->pending_first)
		return false;
	for (const struct lane *l = s->dedicated; l; l = l->pool_next)
		if (l->held)
			return false;
	return !s->lane.held && !s->lane.slabs;
}

struct stream *stream_recycle(struct streams *all, uint64_t id, trz_stream handle, struct event_pool *events,
                              bool growing)
{
	unsigned count = atomic_load_explicit(&all->count, memory_order_relaxed);
	for (unsigned i = 0; i < count; i++) {
		struct stream *s = atomic_load_explicit(&all->list[i], memory_order_relaxed);
		if (!is_over(s) || (!growing && s->thread_bound != (handle == STREAM_PER_THREAD)))
			continue;
		unlink_hash(all, s);
		s->id = id;
		s->handle = handle;
		s->events = events;
		if (growing)
			s->thread_bound = handle == STREAM_PER_THREAD;
		s->tickets.closed = false;
		atomic_store_explicit(&s->tickets.owed, false, memory_order_relaxed);
		for (unsigned k = 0; k < s->known_count; k++)
			s->known[k] = 0;
		link_hash(all, s);
		atomic_store_explicit(&s->retired, false, memory_order_release);
		return s;
	}
	return NULL;
}

/* Whether the program has made `s` wait for `other`: what `other` frees then comes back to `s` in order. */
static bool waits_for(const struct stream *s, const struct stream *other)
{
	return other->index < s->known_count && s->known[other->index];
}

static uint64_t beyond(uint64_t has, uint64_t keeps)
{
	return has > keeps ? has - keeps : 0;
}

uint64_t stream_lendable(const struct lane *lender, const struct lane *to, bool apart)
{
	const struct stream *s = lender->stream;
	uint64_t has = lender->fit[LARGE].bytes + lender->fit[VIEWS].bytes;
	if (s == to->stream || !to->stream->late || atomic_load_explicit(&s->retired, memory_order_relaxed))
		return UINT64_MAX;
	if (waits_for(s, to->stream))
		return beyond(has, lender->kept);
	return apart ? UINT64_MAX : beyond(lender->held + has, lender->held_peak);
}

void stream_note_poll(struct stream *s)
{
	if (s->tickets.passed < ticket_newest(&s->tickets))
		s->late = LATE_POLLS;
	else if (s->late)
		s->late--;
}

void stream_push_pending(struct stream *s, struct pending *p)
{
	assert(p->sequence <= s->tickets.newest && !p->event);
	p->next = NULL;
	*s->pending_last = p;
	s->pending_last = &p->next;
}

void stream_unlink_pending(struct stream *s, struct pending **link)
{
	struct pending *p = *link;
	*link = p->next;
	if (s->pending_last == &p->next)
		s->pending_last = link;
}
