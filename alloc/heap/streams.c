/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams by id, each with its events and its lanes.
 */
#include "heap/streams.h"

#include "error.h"
#include "heap/events.h"

/* The events of a context: those of its streams. NULL: no host memory. */
static struct event_pool *events_of_locked(trz_heap *h, trz_context context)
{
	HEAP_LOCKED(h);
	struct event_pool *p = &h->events;
	while (p && (p->context != context || heap_has_lost(p)))
		p = p->next;
	if (p || !(p = meta_alloc(&h->meta, sizeof *p)))
		return p;
	p->meta = &h->meta;
	p->context = context;
	p->next = h->events.next;
	h->events.next = p;
	return p;
}

static struct stream *add_locked(trz_heap *h, trz_stream handle, uint64_t id, trz_context context, bool growing)
{
	HEAP_LOCKED(h);
	struct stream *s = stream_find(&h->streams, id);
	struct event_pool *events = s ? NULL : events_of_locked(h, context);
	if (events) {
		stream_bury(&h->streams, handle);
		s = stream_recycle(&h->streams, id, handle, events, growing);
		if (!s)
			s = stream_add(&h->streams, id, handle, events);
		if (s)  /* no work on it uses the heap's memory */
			s->announced = (struct announcement){h->announcements, s->tickets.newest};
	}
	if (s)
		s->entered++;
	return s;
}

/* A new stream: the heap asks for its context while it is alive. */
static trz_status add_stream(trz_heap *h, trz_stream handle, uint64_t id, bool growing, struct stream **out)
{
	trz_context context;
	trz_status status = driver_stream_context(&h->driver, handle, &context);
	if (status != TRZ_OK)
		return trz_fail(status, "reading the context of stream %p failed: %s", handle, trz_driver_last_error());
	heap_lock(h);
	struct stream *s = add_locked(h, handle, id, context, growing);
	heap_unlock(h);
	if (!s && !growing)
		return TRZ_ERROR_NO_ROOM;
	if (!s)
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "no room for another stream: %d streams hold memory "
		                "(call trz_stream_retire before destroying one), or the host has no memory left", STREAMS_MAX);
	*out = s;
	return TRZ_OK;
}

trz_status heap_find_stream(trz_heap *h, trz_stream handle, bool growing, struct stream **out)
{
	if (growing)
		HEAP_GROWTH_LOCKED(h);
	bool legacy = is_legacy(handle);
	if (legacy)
		handle = NULL;
	uint64_t id;
	trz_status status = driver_stream_id(&h->driver, handle, &id);
	if (status != TRZ_OK)
		return trz_fail(status, "the driver does not know stream %p: %s", handle, trz_driver_last_error());
	heap_lock(h);
	*out = stream_find(&h->streams, id);
	if (*out)
		(*out)->entered++;
	heap_unlock(h);
	if (!*out)
		status = add_stream(h, handle, id, growing, out);
	if (status == TRZ_OK && legacy)
		atomic_store_explicit(&h->legacy, *out, memory_order_release);
	return status;
}

struct lane *heap_make_lane_locked(trz_heap *h, struct stream *s, struct pool *p, unsigned dedicated, bool captured)
{
	HEAP_LOCKED(h);
	struct lane **list = p ? &p->lanes : &s->dedicated;
	struct lane *l = lane_find(*list, s, dedicated, captured);
	if (l)
		return l;
	l = meta_alloc(&h->meta, sizeof *l);
	if (!l)
		return NULL;
	l->dedicated = (uint8_t)dedicated;
	l->captured = captured;
	lane_add(&h->streams.lanes, l, s, p, &h->counters.cached_bytes);
	l->pool_next = *list;
	*list = l;
	return l;
}

struct lane *heap_lane_locked(trz_heap *h, struct stream *s, struct pool *p, unsigned dedicated)
{
	return !p && !dedicated ? &s->lane : heap_make_lane_locked(h, s, p, dedicated, false);
}
