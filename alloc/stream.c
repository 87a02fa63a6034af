/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding and adding streams.
 */
#include "stream.h"

#include "prng.h"

/* So many polls in a row must find all passed until a stream that was late counts as prompt again. One alone proves
 * nothing: between two bursts of frees every stream looks prompt. */
enum { LATE_POLLS = 64 };

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

static void link_hash(struct streams *all, struct stream *s)
{
	struct stream **bucket = &all->hash[hash_of(s->id)];
	s->next = *bucket;
	*bucket = s;
}

struct stream *stream_add(struct streams *all, uint64_t id, trz_stream handle)
{
	unsigned count = atomic_load_explicit(&all->count, memory_order_relaxed);
	if (count == STREAMS_MAX)
		return NULL;
	struct stream *s = meta_alloc(all->meta, sizeof *s);
	if (!s)
		return NULL;
	s->id = id;
	s->handle = handle;
	s->thread_bound = handle == STREAM_PER_THREAD;
	s->pending_last = &s->pending_first;
	lane_add(&all->lanes, &s->lane, s, NULL, &all->counters->cached_bytes);
	link_hash(all, s);
	atomic_store_explicit(&all->list[count], s, memory_order_relaxed);
	atomic_store_explicit(&all->count, count + 1, memory_order_release);
	level_add(&all->counters->stream, 1);
	return s;
}

static void unlink_hash(struct streams *all, const struct stream *s)
{
	struct stream **link = &all->hash[hash_of(s->id)];
	while (*link != s)
		link = &(*link)->next;
	*link = s->next;
}

static bool is_over(const struct stream *s)
{
	return atomic_load_explicit(&s->retired, memory_order_relaxed) && s->tickets.passed == s->tickets.newest &&
	       !s->recorders && !s->pending_first;
}

struct stream *stream_recycle(struct streams *all, uint64_t id, trz_stream handle)
{
	unsigned count = atomic_load_explicit(&all->count, memory_order_relaxed);
	for (unsigned i = 0; i < count; i++) {
		struct stream *s = atomic_load_explicit(&all->list[i], memory_order_relaxed);
		if (!is_over(s) || s->thread_bound != (handle == STREAM_PER_THREAD))
			continue;
		unlink_hash(all, s);
		s->id = id;
		s->handle = handle;
		s->tickets.closed = false;
		link_hash(all, s);
		atomic_store_explicit(&s->retired, false, memory_order_release);
		return s;
	}
	return NULL;
}

uint64_t stream_lendable(const struct lane *lender, const struct lane *to)
{
	if (!to->stream->late || atomic_load_explicit(&lender->stream->retired, memory_order_relaxed))
		return UINT64_MAX;
	uint64_t has = lender->held + lender->fit[LARGE].bytes;
	return has > lender->held_peak ? has - lender->held_peak : 0;
}

void stream_note_poll(struct stream *s)
{
	if (s->tickets.passed < s->tickets.newest)
		s->late = LATE_POLLS;
	else if (s->late)
		s->late--;
}

void stream_push_pending(struct stream *s, struct pending *p)
{
	p->next = NULL;
	*s->pending_last = p;
	s->pending_last = &p->next;
}
