/* SPDX-License-Identifier: Apache-2.0
 *
 * Captures into private pools. A graph can be launched on any stream as soon as it exists, so a capture takes no memory
 * that work outside it may still be using. The capture itself orders the memory that it frees.
 *
 * That is simple if the stream has settled: it had passed all of its earlier work when the capture began. Then no work
 * outside uses memory that its lane has or gets, and the capture can take freed memory at once, wherever it was
 * allocated, since all new work of the stream is captured. To learn this takes an event from before the capture: the
 * announcement of the capture records it, and from then until it is captured the stream gets no work that uses the
 * pool's memory. If the pool serves the stream meanwhile, the announcement does not count for it: what is gathered for
 * it then, or comes from another stream, need not have passed.
 *
 * If the stream has yet to pass that point, or no capture was announced, a lane of its own serves the capture, which
 * borrows memory that has passed. When the capture has ended, the stream's other lane gets its memory, with its
 * tickets. What is free for any capture stays until the pool serves the stream outside of captures.
 *
 * That is what has passed, and what is clean: since it last passed, captures alone have used it. The program orders the
 * launches of a pool's graphs, so the next capture can have it however late the stream is. To know it, a free asks the
 * driver whether the capture that its lane has served goes on; if so, its ticket, and all before it, are clean. A free
 * outside of captures takes a later ticket, which is that of all memory that it joins; so is the stream's newest, which
 * stands for the last use of memory that is gathered.
 */
#include "heap/capture.h"

#include "heap/ends.h"
#include "heap/events.h"
#include "heap/poll.h"
#include "heap/streams.h"

static bool is_any_announced_locked(const trz_heap *h)
{
	HEAP_LOCKED(h);
	const struct pool *p = h->pools;
	while (p && !p->announced)
		p = p->next;
	return p != NULL;
}

/* Begins an announcement on all streams. A stream that a pool has served since an earlier announcement, which still
 * stands, may work on that memory until it is captured: no ticket taken now covers that. */
static void begin_announcements_locked(trz_heap *h, struct pool *announcer, unsigned streams)
{
	HEAP_LOCKED(h);
	bool another = is_any_announced_locked(h);
	announcer->announcers++;
	announcer->announced = ++h->announcements;
	for (unsigned i = 0; i < streams; i++) {
		struct announcement *a = &atomic_load_explicit(&h->streams.list[i], memory_order_relaxed)->announced;
		bool served = another && a->sequence == NEVER_SETTLES;
		*a = (struct announcement){.number = h->announcements, .sequence = served ? NEVER_SETTLES : 0};
	}
}

/* Streams without memory of the pool take no ticket, so nothing is recorded on them: their handles may have died
 * unannounced. */
static void take_tickets_locked(trz_heap *h)
{
	HEAP_LOCKED(h);
	for (const struct pool *p = h->pools; p; p = p->next)
		for (const struct lane *l = p->announced ? p->lanes : NULL; l; l = l->pool_next)
			if (!l->stream->announced.sequence)
				l->stream->announced.sequence = ticket_take(&l->stream->tickets);
}

/* A thread that holds the growth lock now has seen the caller's earlier changes, or finishes before this begins. */
bool heap_announce_capture(trz_heap *h, struct pool *p)
{
	if (!heap_lock_growth(h))
		return false;
	heap_lock(h);
	unsigned streams = atomic_load_explicit(&h->streams.count, memory_order_relaxed);
	begin_announcements_locked(h, p, streams);
	take_tickets_locked(h);
	heap_unlock(h);
	for (unsigned i = 0; i < streams; i++) {
		struct stream *s = atomic_load_explicit(&h->streams.list[i], memory_order_relaxed);
		heap_lock(h);
		uint64_t sequence = s->announced.sequence;
		bool asked = sequence && sequence != NEVER_SETTLES && !heap_has_lost(s->events);
		heap_unlock(h);
		if (asked)
			heap_record_late(h, s);
	}
	heap_unlock_growth(h);
	return true;
}

void heap_end_announcement(trz_heap *h, struct pool *p)
{
	heap_lock(h);
	assert(p->announcers > 0);
	if (--p->announcers == 0)
		p->announced = 0;
	heap_unlock(h);
}

/* Whether the stream has settled since its last announcement, if that is for the pool: then its other lanes serve the
 * capture that it announced. */
static bool settles_for(trz_heap *h, const struct stream *s, const struct pool *p)
{
	heap_lock(h);
	const struct announcement *a = &s->announced;
	bool settles = p->announced && p->announced <= a->number && ticket_passed(&s->tickets, a->sequence);
	heap_unlock(h);
	return settles;
}

/* Gives the memory of the stream's captured lanes to its other lanes: all of it, since these serve the capture from now
 * on. */
static void end_detours(trz_heap *h, const struct stream *s)
{
	for (struct pool *p = heap_first_pool(h); p; p = p->next)
		heap_merge_captured_lanes(h, p, s, true);
}

/* The same when a capture has ended. What captures alone have used stays, for one that begins before the stream has
 * settled. */
static void leave_detours(trz_heap *h, const struct stream *s, uint64_t next)
{
	for (struct pool *p = heap_first_pool(h); p; p = p->next)
		heap_merge_captured_lanes(h, p, s, next && settles_for(h, s, p));
}

bool heap_captures_left_locked(const struct pool *p, const struct stream *s)
{
	bool any = false;
	for (const struct lane *l = p->lanes; l && !any; l = l->pool_next)
		any = l->captured && l->stream == s && (lane_free_bytes(l) || l->held || l->slabs);
	return any;
}

void heap_leave_captures(trz_heap *h, struct pool *p, const struct stream *s)
{
	if (!heap_lock_growth(h))
		return;
	heap_merge_captured_lanes(h, p, s, true);
	heap_unlock_growth(h);
}

static bool has_settled_locked(const struct stream *s)
{
	return ticket_passed(&s->tickets, s->begun.sequence);
}

static void begin(trz_heap *h, struct stream *s, uint64_t capture)
{
	heap_lock(h);
	if (capture) {
		s->begun = s->announced;
		s->announced = (struct announcement){0};
	}
	atomic_store_explicit(&s->unsettled, capture && !has_settled_locked(s), memory_order_relaxed);
	atomic_store_explicit(&s->capture, capture, memory_order_relaxed);
	heap_unlock(h);
}

/* The driver has just answered about the capture, so this is not a host function. */
void heap_note_capture(trz_heap *h, struct stream *s, uint64_t capture)
{
	if (!heap_lock_growth(h))
		return;
	if (atomic_load_explicit(&s->capture, memory_order_relaxed) != capture) {
		leave_detours(h, s, capture);
		begin(h, s, capture);
	}
	if (atomic_load_explicit(&s->unsettled, memory_order_relaxed) && s->begun.sequence != NEVER_SETTLES) {
		heap_poll(h);
		heap_lock(h);
		bool settled = has_settled_locked(s);
		heap_unlock(h);
		if (settled) {
			end_detours(h, s);
			atomic_store_explicit(&s->unsettled, false, memory_order_relaxed);
		}
	}
	heap_unlock_growth(h);
}

/* The stream's ticket must not be older than the announcement for the pool. */
bool heap_serves_captures_locked(const struct lane *l)
{
	const struct pool *p = l->pool;
	const struct stream *s = l->stream;
	if (l->captured)
		return true;
	return p && p->announced && p->announced <= s->begun.number &&
	       !atomic_load_explicit(&s->unsettled, memory_order_relaxed);
}

/* The stream's other lane is made as well: later it gets the captured lane's memory. A capture without an id cannot be
 * told from another. */
struct lane *heap_capture_lane_locked(trz_heap *h, struct stream *s, struct pool *p, unsigned dedicated)
{
	HEAP_LOCKED(h);
	uint64_t capture = atomic_load_explicit(&s->capture, memory_order_relaxed);
	struct lane *l = heap_make_lane_locked(h, s, p, dedicated, false);
	if (l && !heap_serves_captures_locked(l))
		l = heap_make_lane_locked(h, s, p, dedicated, true);
	if (l)
		l->serving = capture != UINT64_MAX ? capture : 0;
	return l;
}

bool heap_is_in_capture(trz_heap *h, const struct stream *s, uint64_t capture)
{
	struct capture is;
	if (!heap_is_threads_own(s) || heap_has_lost(s->events))
		return false;
	trz_status status = driver_stream_capture(&h->driver, s->events->context, s->handle, &is.status, &is.id);
	return heap_note_loss(h, s->events, status) == TRZ_OK && is.status != TRZ_CAPTURE_NONE && is.id == capture;
}
