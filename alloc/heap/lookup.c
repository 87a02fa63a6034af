/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding a stream, and making room for it when the table is full.
 */
#include "heap/lookup.h"

#include "error.h"
#include "heap/carve.h"
#include "heap/poll.h"
#include "heap/streams.h"

/* Whether another stream can have the entry: the stream has no work in progress and no live memory, imports and pools
 * included. */
static bool is_idle_locked(const trz_heap *h, struct stream *s)
{
	HEAP_LOCKED(h);
	if (s == atomic_load_explicit(&h->legacy, memory_order_relaxed) || s->tickets.closed || !stream_is_idle(s))
		return false;
	for (const struct pool *p = h->pools; p; p = p->next)
		for (const struct lane *l = p->lanes; l; l = l->pool_next)
			if (l->stream == s)
				return false;
	for (const struct window *w = h->imports; w; w = w->next)
		if (w->blocks.first && w->blocks.first->home->stream == s)
			return false;
	return true;
}

enum { ENTRIES_AT_ONCE = 64 };

/* The table is full: gives up the entries of some streams that hold nothing and have no work in progress, as if they
 * had been retired. A stream that comes again gets another entry. Growth lock held. */
static void make_room(trz_heap *h)
{
	HEAP_GROWTH_LOCKED(h);
	unsigned streams = atomic_load_explicit(&h->streams.count, memory_order_acquire), found = 0;
	heap_poll_all(h);
	heap_retire_empty_slabs(h);
	for (unsigned i = 0; i < streams && found < ENTRIES_AT_ONCE; i++) {
		struct stream *s = atomic_load_explicit(&h->streams.list[i], memory_order_relaxed);
		heap_lock(h);
		heap_call_in_locked(h, s);
		if (is_idle_locked(h, s)) {
			s->tickets.closed = true;
			atomic_store_explicit(&s->retired, true, memory_order_relaxed);
			found++;
		}
		heap_unlock(h);
	}
}

trz_status heap_stream(trz_heap *h, trz_stream handle, struct stream **out)
{
	struct asked asked;
	trz_status status = heap_ask_stream(h, handle, &asked);
	return status == TRZ_OK ? heap_stream_asked(h, handle, &asked, out) : status;
}

trz_status heap_stream_asked(trz_heap *h, trz_stream handle, const struct asked *asked, struct stream **out)
{
	*out = heap_known_stream(h, handle);
	if (*out)
		return TRZ_OK;
	trz_status status = heap_find_stream(h, handle, asked, false, out);
	if (status != TRZ_ERROR_NO_ROOM)
		return status;
	if (!heap_lock_growth(h))
		return trz_fail(TRZ_ERROR_NOT_PERMITTED, "stream %p is new to the heap, which cannot add it in a host "
		                "function: allocate on it once before", handle);
	make_room(h);
	status = heap_find_stream(h, handle, asked, true, out);
	heap_unlock_growth(h);
	return status;
}

/* The handle may belong to another stream by now, unannounced: the ticket is covered nevertheless, since the event that
 * covers it will be recorded on the handle. */
static trz_status enter_unasked(trz_heap *h, trz_stream handle, trz_status status, struct stream **out)
{
	heap_lock(h);
	struct stream *known = stream_find_handle(&h->streams, handle);
	if (known)
		atomic_fetch_add_explicit(&known->entered, 1, memory_order_relaxed);
	heap_unlock(h);
	if (!known)
		return trz_fail(status, "stream %p is new to the heap, and a host function cannot ask the driver about it: "
		                "allocate on it once before, or use trz_free", handle);
	*out = known;
	return TRZ_OK;
}

static trz_status enter_user(trz_heap *h, trz_stream handle, struct asked *asked, struct stream **out)
{
	trz_status status = heap_ask_stream(h, handle, asked);
	if (status == TRZ_OK)
		status = heap_stream_asked(h, handle, asked, out);
	return status == TRZ_ERROR_NOT_PERMITTED ? enter_unasked(h, handle, status, out) : status;
}

trz_status heap_stream_of_user(trz_heap *h, trz_stream handle, struct stream **out)
{
	struct asked asked;
	return enter_user(h, handle, &asked, out);
}

trz_status heap_stream_of_freer(trz_heap *h, trz_stream handle, struct stream **out, struct capture *capture)
{
	struct asked asked;
	trz_status status = enter_user(h, handle, &asked, out);
	if (status != TRZ_OK)
		return status;
	status = heap_capture_asked(h, *out, handle, &asked, capture);
	if (status == TRZ_OK)
		return TRZ_OK;
	*capture = (struct capture){.status = TRZ_CAPTURE_NONE};
	if (status == TRZ_ERROR_NOT_PERMITTED)
		return TRZ_OK;  /* a host function: the stream is in no capture */
	heap_leave_stream(*out, handle);
	*out = NULL;
	return heap_stream_not_asked(handle, status);
}
