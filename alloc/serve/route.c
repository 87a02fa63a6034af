/* SPDX-License-Identifier: Apache-2.0
 *
 * From a request to its lane.
 */
#include "serve/route.h"

#include "error.h"
#include "heap/capture.h"
#include "heap/pools.h"
#include "heap/streams.h"
#include "observe/holders.h"
#include "serve/dedicated.h"
#include "serve/exact.h"
#include "serve/pool_divert.h"
#include "serve/serve.h"
#include "serve/small.h"
#include "supply/upkeep.h"

/* Which capture a request's stream is in. The legacy default stream cannot be captured, so it is not asked about. */
static trz_status ask_capture(trz_heap *h, struct stream *s, trz_stream stream, const struct asked *asked,
                              struct capture *capture)
{
	trz_status status = heap_capture_asked(h, s, stream, asked, capture);
	if (status != TRZ_OK)
		return heap_stream_not_asked(stream, status);
	if (!is_legacy(stream))
		heap_see_capture(h, s, capture);
	return TRZ_OK;
}

/* Asks the driver for capture and id, as heap_ask_stream does, before it takes any lock. Under the lock of the stream's
 * slots, small_alloc_of then sees whether the stream still has this id. */
static trz_status ask_for_slot(trz_heap *h, const struct request *r, struct asked *a, trz_addr *out)
{
	trz_status status = driver_ask_capture(&h->driver, r->stream, &a->capture.status, &a->capture.id);
	a->has_capture = true;
	a->id = stream_default_id(r->stream);
	if (status == TRZ_OK && !a->id && a->capture.status == TRZ_CAPTURE_NONE)
		status = driver_ask_id(&h->driver, r->stream, &a->id);
	if (UNLIKELY(status != TRZ_OK))
		return heap_stream_not_asked(r->stream, status);
	struct stream *s = a->capture.status == TRZ_CAPTURE_NONE ? stream_recent(&h->streams, a->id) : NULL;
	if (s && !atomic_load_explicit(&s->capture, memory_order_relaxed))
		*out = small_alloc_of(h, s, a->id, r->size);
	return TRZ_OK;
}

trz_status route_slot(trz_heap *h, const struct request *r, struct asked *asked, trz_addr *out)
{
	*out = 0;
	trz_status status = ask_for_slot(h, r, asked, out);
	if (UNLIKELY(!*out)) {
		driver_count(&h->driver, DRIVER_SLOT_stream_capture);
		if (asked->id && !stream_default_id(r->stream))
			driver_count(&h->driver, DRIVER_SLOT_stream_id);
	}
	return status;
}

/* The lane of a pool (NULL: the default one) that serves a stream, or its current capture. A capture pins the pool,
 * since its graph keeps the addresses. NULL: no host memory. */
static struct lane *find_lane(trz_heap *h, struct stream *s, struct pool *p, unsigned dedicated, bool captured)
{
	if (LIKELY(!p && !dedicated))
		return &s->lane;
	heap_lock(h);
	if (UNLIKELY(p && !captured && heap_captures_left_locked(p, s))) {
		heap_unlock(h);
		heap_leave_captures(h, p, s);
		heap_lock(h);
	}
	if (p)
		p->pinned |= captured;
	if (!captured)
		heap_void_announcement_locked(h, p, s);
	struct lane *l = UNLIKELY(captured) ? heap_capture_lane_locked(h, s, p, dedicated)
	                                    : heap_lane_locked(h, s, p, dedicated);
	heap_unlock(h);
	return l;
}

static trz_status alloc_of(trz_heap *h, struct lane *l, const struct request *r, unsigned dedicated, bool captured,
                           trz_addr *out)
{
	if (UNLIKELY(r->address || dedicated))
		holders_prepare(h);
	if (UNLIKELY(r->address)) {
		*out = r->address;
		return exact_alloc(h, l, r->address, r->size, captured);
	}
	return UNLIKELY(dedicated) ? dedicated_alloc(h, l, r->size, r->alignment, out)
	                           : serve_alloc(h, l, r->size, r->alignment, out);
}

/* Another thread may announce a capture into the pool meanwhile. */
static void void_announcement(trz_heap *h, const struct pool *p, struct stream *s)
{
	heap_lock(h);
	heap_void_announcement_locked(h, p, s);
	heap_unlock(h);
}

static trz_status alloc_from(trz_heap *h, struct pool *p, const struct request *r, struct stream *s, bool captured,
                             trz_addr *out)
{
	unsigned dedicated = r->dedicated;
	if (UNLIKELY(h->dedicates) && !r->address)
		dedicated |= dedicated ? DEDICATED_ONCE : serve_sort(h, r->size, r->alignment);
	struct lane *l = find_lane(h, s, p, dedicated, captured);
	if (!l)
		return meta_exhausted();
	trz_status status = alloc_of(h, l, r, dedicated, captured, out);
	if (UNLIKELY(p != NULL) && !captured)
		void_announcement(h, p, s);
	return status;
}

/* Memory that a graph uses must keep its contents from launch to launch, so only private pools serve a capture: blocks
 * of the default pool would serve other requests in between. */
trz_status route_alloc(trz_heap *h, const struct request *r, struct stream *s, const struct asked *asked,
                       trz_addr *out)
{
	struct capture capture;
	trz_status status = ask_capture(h, s, r->stream, asked, &capture);
	if (status != TRZ_OK)
		return status;
	bool captured = capture.status != TRZ_CAPTURE_NONE;
	struct pool *p = r->pool, *diverted = NULL;
	if (!p && pool_diverting(h) && (status = pool_divert(h, r->stream, &capture, &diverted)) != TRZ_OK)
		return status;
	if (captured && !p && !diverted)
		return TRZ_ERROR_CAPTURE;
	upkeep_if_wanted(h);
	status = alloc_from(h, p ? p : diverted, r, s, captured, out);
	if (diverted)
		heap_pool_release(h, diverted);
	return status;
}
