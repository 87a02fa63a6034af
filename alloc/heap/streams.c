/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams by id, each with its events and its lanes.
 */
#include "heap/streams.h"

#include "error.h"
#include "heap/events.h"
#include "heap/ledger.h"

/* The pool of events for a context's streams, made if it is new. NULL: no host memory. */
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

struct stream *heap_seen_stream_locked(trz_heap *h, trz_stream handle, uint64_t id)
{
	HEAP_LOCKED(h);
	struct stream *s = stream_find(&h->streams, id);
	if (s)
		return s;
	heap_call_all_in_locked(h);
	return stream_name(&h->streams, handle, id);
}

/* An entry for a stream that has none. No work on it uses the heap's memory. All slots are in. */
static struct stream *enter_new_locked(trz_heap *h, trz_stream handle, uint64_t id, struct event_pool *events,
                                       bool growing)
{
	HEAP_LOCKED(h);
	stream_bury(&h->streams, handle);
	struct stream *s = stream_recycle(&h->streams, id, handle, events, growing);
	if (!s) {
		s = stream_add(&h->streams, id, handle, events);
		if (s)
			counter_set(&s->slots.sample_at, h->sites.on ? sites_draw(&h->sites) : UINT64_MAX);
	}
	if (s)
		s->announced = (struct announcement){h->announcements, s->tickets.newest};
	return s;
}

static struct stream *add_locked(trz_heap *h, trz_stream handle, uint64_t id, trz_context context, bool growing)
{
	HEAP_LOCKED(h);
	struct stream *s = heap_seen_stream_locked(h, handle, id);
	struct event_pool *events = s ? NULL : events_of_locked(h, context);
	if (events)
		s = enter_new_locked(h, handle, id, events, growing);
	if (s)
		atomic_fetch_add_explicit(&s->entered, 1, memory_order_relaxed);
	return s;
}

COLD trz_status heap_stream_not_asked(trz_stream handle, trz_status status)
{
	switch (status) {
	case TRZ_ERROR_INVALID_ARGUMENT:
		return trz_fail(status, "the driver does not know stream %p: %s", handle, trz_driver_last_error());
	case TRZ_ERROR_CONTEXT_DEAD:
		return trz_fail(status, "the context of stream %p has failed (%s): the process must create a new one", handle,
		                trz_driver_last_error());
	case TRZ_ERROR_NOT_PERMITTED:
		return trz_fail(status, "stream %p was named in a host function of a stream, where CUDA permits no call, and "
		                "the heap cannot ask about it: call before the function is launched, or after it has returned",
		                handle);
	default:
		return trz_fail(status, "asking the driver about stream %p failed: %s", handle, trz_driver_last_error());
	}
}

/* A new stream: the heap asks for its context while it is alive. */
static trz_status add_stream(trz_heap *h, trz_stream handle, uint64_t id, bool growing, struct stream **out)
{
	trz_context context;
	trz_status status = driver_stream_context(&h->driver, handle, &context);
	if (status != TRZ_OK)
		return heap_stream_not_asked(handle, status);
	heap_lock(h);
	struct stream *s = add_locked(h, handle, id, context, growing);
	heap_unlock(h);
	if (!s && !growing)
		return TRZ_ERROR_NO_ROOM;
	if (!s)
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "no room for another stream: %d streams hold memory or have "
		                "work under way (synchronise, and call trz_stream_retire before destroying one), or the host "
		                "has no memory left", STREAMS_MAX);
	*out = s;
	return TRZ_OK;
}

/* Lets the next operation find it without the heap lock. */
static void note_recent_locked(trz_heap *h, struct stream *s)
{
	HEAP_LOCKED(h);
	if (s->events != &h->events)
		return;
	stream_note_recent(&h->streams, s);
	heap_let_out_locked(h, s);
}

/* Enters it if it is a recent one. */
static struct stream *enter_recent(trz_heap *h, uint64_t id)
{
	struct stream *s = stream_recent(&h->streams, id);
	if (!s || !slots_take(&s->slots))
		return NULL;
	bool entered = s->id == id;
	if (entered)
		atomic_fetch_add_explicit(&s->entered, 1, memory_order_relaxed);
	spinlock_give(&s->slots.lock);
	return entered ? s : NULL;
}

trz_status heap_ask_stream(trz_heap *h, trz_stream handle, struct asked *out)
{
	*out = (struct asked){.id = stream_default_id(handle)};
	if (out->id)
		return TRZ_OK;
	struct capture *c = &out->capture;
	trz_status status = driver_stream_capture(&h->driver, h->driver.context, handle, &c->status, &c->id);
	out->has_capture = true;
	if (status == TRZ_OK && c->status == TRZ_CAPTURE_NONE)
		status = driver_stream_id(&h->driver, handle, &out->id);
	return status == TRZ_OK ? TRZ_OK : heap_stream_not_asked(handle, status);
}

/* The stream that a captured handle means: the one that had it last. One that is new gets a number in place of the id
 * that the driver will tell after the capture. */
static struct stream *find_captured_locked(trz_heap *h, trz_stream handle, uint64_t *id)
{
	HEAP_LOCKED(h);
	struct stream *s = stream_find_handle(&h->streams, handle);
	if (s && !stream_is_gone(s)) {
		*id = s->id;
		return s;
	}
	*id = STREAM_ID_UNKNOWN | ++h->unknown_streams;
	return NULL;
}

trz_status heap_find_stream(trz_heap *h, trz_stream handle, const struct asked *asked, bool growing,
                            struct stream **out)
{
	if (growing)
		HEAP_GROWTH_LOCKED(h);
	trz_status status = TRZ_OK;
	uint64_t id = asked->id;
	*out = id ? enter_recent(h, id) : NULL;
	if (*out)
		return TRZ_OK;
	heap_lock(h);
	*out = id ? stream_find(&h->streams, id) : find_captured_locked(h, handle, &id);
	if (*out) {
		atomic_fetch_add_explicit(&(*out)->entered, 1, memory_order_relaxed);
		note_recent_locked(h, *out);
	}
	heap_unlock(h);
	if (!*out)
		status = add_stream(h, is_legacy(handle) ? NULL : handle, id, growing, out);
	if (status == TRZ_OK && is_legacy(handle))
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
