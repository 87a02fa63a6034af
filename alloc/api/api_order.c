/* SPDX-License-Identifier: Apache-2.0
 *
 * The public functions by which the program reports its events, to one heap or to all that are open. A heap learns
 * nothing that is not certain, so these functions have no errors.
 */
#include "api/init.h"
#include "heap/lookup.h"
#include "heap/streams.h"

/* What one call reports to each heap. */
struct report {
	bool all;                    /* it is for all open heaps */
	trz_event event;
	trz_stream stream;
	trz_context context;
	uint64_t version;            /* of the record that begins or ends, or that is waited for */
	bool succeeded;
};

typedef void report_to(trz_heap *h, void *report);

static void tell(trz_heap *h, report_to *function, struct report *r)
{
	r->all = !h;
	if (!h)
		init_each_heap(function, r);
	else if (!heap_is_inherited(h))
		function(h, r);
}

/* Whether the stream's handle means the same to the heap as to the caller. That of a default stream, in a report to all
 * heaps, is of the context that is current, which is another heap's or nobody's. It is asked before the program's call
 * and after it: the runtime may make a context current only in that. */
static bool is_meant(trz_heap *h, const struct report *r)
{
	return !r->all || (uintptr_t)r->stream > (uintptr_t)STREAM_PER_THREAD || driver_is_current(&h->driver);
}

/* ---- records ---- */

/* A stream that the heap has not seen tells it nothing, nor does one that is being captured. */
static void begin_record(trz_heap *h, void *report)
{
	const struct report *r = report;
	bool meant = is_meant(h, r);
	struct stream *s = meant ? heap_known_stream(h, r->stream) : NULL;
	struct asked asked = {.id = 0};
	if (meant && !is_legacy(r->stream))
		heap_ask_stream(h, r->stream, &asked);
	heap_lock(h);
	if (asked.id)
		s = stream_find(&h->streams, asked.id);
	clock_begin_record(&h->clocks, &h->streams, r->event, s);
	heap_unlock(h);
}

static bool is_captured(trz_heap *h, trz_context context, trz_stream stream)
{
	trz_capture_status capture;
	return driver_stream_capture(&h->driver, context, stream, &capture, NULL) != TRZ_OK || capture != TRZ_CAPTURE_NONE;
}

/* An event that has become part of a capture tells nothing. Nor does one whose stream is being captured by now, even if
 * another thread has begun that capture since the record. */
static void end_record(trz_heap *h, void *report)
{
	const struct report *r = report;
	bool valid = r->succeeded && is_meant(h, r);
	trz_context context;
	heap_lock(h);
	if (valid && !is_legacy(r->stream) && clock_tells(&h->clocks, r->event, &context)) {
		heap_unlock(h);
		valid = !is_captured(h, context, r->stream);
		heap_lock(h);
	}
	clock_end_record(&h->clocks, r->event, r->version, valid);
	heap_unlock(h);
}

uint64_t trz_event_record_begin(trz_heap *heap, trz_event event, trz_stream stream)
{
	struct report r = {.event = event, .stream = stream, .version = clock_new_version()};
	tell(heap, begin_record, &r);
	return r.version;
}

void trz_event_record_end(trz_heap *heap, trz_event event, trz_stream stream, uint64_t token, int succeeded)
{
	tell(heap, end_record, &(struct report){.event = event, .stream = stream, .version = token,
	                                        .succeeded = succeeded != 0});
}

static void forget(trz_heap *h, void *report)
{
	const struct report *r = report;
	heap_lock(h);
	if (r->event)
		clock_forget(&h->clocks, r->event);
	else
		clock_forget_all(&h->clocks);
	heap_unlock(h);
}

void trz_event_forget(trz_heap *heap, trz_event event)
{
	tell(heap, forget, &(struct report){.event = event});
}

/* ---- waits ---- */

static void find_version(trz_heap *h, void *report)
{
	struct report *r = report;
	heap_lock(h);
	uint64_t version = clock_version(&h->clocks, r->event);
	heap_unlock(h);
	if (version)
		r->version = version;
}

static uint64_t version_of(trz_heap *heap, trz_event event)
{
	struct report r = {.event = event};
	tell(heap, find_version, &r);
	return r.version;
}

uint64_t trz_stream_wait_begin(trz_heap *heap, trz_stream stream, trz_event event)
{
	(void)stream;
	return version_of(heap, event);
}

/* A stream that the heap has not seen may pass on what it learns here, so the heap adds it. */
static void end_wait(trz_heap *h, void *report)
{
	const struct report *r = report;
	struct stream *s;
	struct asked asked;
	heap_lock(h);
	bool tells = clock_version(&h->clocks, r->event) == r->version;
	heap_unlock(h);
	if (!tells || !is_meant(h, r) || heap_ask_stream(h, r->stream, &asked) != TRZ_OK ||
	    heap_find_stream(h, r->stream, &asked, false, &s) != TRZ_OK)
		return;
	heap_lock(h);
	clock_teach(&h->clocks, &h->streams, r->event, r->version, s);
	heap_unlock(h);
	heap_leave_stream(s, r->stream);
}

void trz_stream_wait_end(trz_heap *heap, trz_stream stream, trz_event event, uint64_t token, int succeeded)
{
	if (token && succeeded)
		tell(heap, end_wait, &(struct report){.event = event, .stream = stream, .version = token});
}

/* ---- waits by the host ---- */

static void pass(trz_heap *h, void *report)
{
	const struct report *r = report;
	heap_lock(h);
	clock_pass(&h->clocks, &h->streams, r->event, r->version);
	heap_unlock(h);
}

uint64_t trz_event_sync_begin(trz_heap *heap, trz_event event)
{
	return version_of(heap, event);
}

void trz_event_sync_end(trz_heap *heap, trz_event event, uint64_t token, int succeeded)
{
	if (token && succeeded)
		tell(heap, pass, &(struct report){.event = event, .version = token});
}

/* A thread's wait for a stream counts as a wait for an event of the thread's own, recorded when the wait begins. */
static _Thread_local char own_event;
static _Thread_local trz_stream awaited;

/* In place of that stream, where a context is waited for. */
#define ALL_STREAMS ((trz_stream)UINTPTR_MAX)

uint64_t trz_stream_sync_begin(trz_heap *heap, trz_stream stream)
{
	awaited = stream;
	return trz_event_record_begin(heap, &own_event, stream);
}

static void begin_all(trz_heap *h, void *report)
{
	const struct report *r = report;
	heap_lock(h);
	clock_begin_all(&h->clocks, &h->streams, r->event, r->context);
	heap_unlock(h);
}

uint64_t trz_context_sync_begin(trz_heap *heap, trz_context context)
{
	struct report r = {.event = &own_event, .context = context, .version = clock_new_version()};
	awaited = ALL_STREAMS;
	tell(heap, begin_all, &r);
	return r.version;
}

static void end_sync(trz_heap *h, void *report)
{
	const struct report *r = report;
	bool valid = r->succeeded && is_meant(h, r);
	heap_lock(h);
	clock_end_record(&h->clocks, r->event, r->version, valid);
	clock_pass(&h->clocks, &h->streams, r->event, r->version);
	clock_forget(&h->clocks, r->event);
	heap_unlock(h);
}

void trz_sync_end(trz_heap *heap, uint64_t token, int succeeded)
{
	tell(heap, end_sync, &(struct report){.event = &own_event, .stream = awaited, .version = token,
	                                      .succeeded = succeeded != 0});
}
