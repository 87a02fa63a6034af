/* SPDX-License-Identifier: Apache-2.0
 *
 * Which memory of private pools captures may use.
 */
#ifndef TRZ_ALLOC_CAPTURE_H
#define TRZ_ALLOC_CAPTURE_H

#include "heap/heap.h"

/* Announces that a capture into a pool is about to begin, and records events for it (false: in a host function); and
 * takes an announcement back. */
bool heap_announce_capture(trz_heap *h, struct pool *p);
void heap_end_announcement(trz_heap *h, struct pool *p);

/* A pool (NULL: the default one) is about to serve a stream, or to grow memory of it, outside of a capture. If a
 * capture into the pool is announced, what the stream gets may be in use by work that is younger than the
 * announcement's ticket, so that ticket no longer tells that the stream has settled. */
static inline void heap_void_announcement_locked(trz_heap *h, const struct pool *p, struct stream *s)
{
	(void)h;
	HEAP_LOCKED(h);
	if (UNLIKELY(p && p->announced))
		s->announced.sequence = NEVER_SETTLES;
}

/* Notes the capture (a number > 0) that an operation finds its stream in; 0: none. */
void heap_note_capture(trz_heap *h, struct stream *s, uint64_t capture);

/* Notes the driver's answer, if that changes anything. */
static inline void heap_see_capture(trz_heap *h, struct stream *s, const struct capture *c)
{
	uint64_t capture = c->status == TRZ_CAPTURE_NONE ? 0 : c->id ? c->id : UINT64_MAX;
	if (UNLIKELY(capture != atomic_load_explicit(&s->capture, memory_order_relaxed) ||
	             atomic_load_explicit(&s->unsettled, memory_order_relaxed)))
		heap_note_capture(h, s, capture);
}

/* Asks whether a free in the stream's order is part of a capture. The caller counts as one of its recorders. */
bool heap_is_in_capture(trz_heap *h, const struct stream *s, uint64_t capture);

/* Notes the answer for the free with this ticket: what captures free, later captures may have. */
static inline void heap_note_in_capture_locked(struct lane *l, uint64_t capture, bool is_in, uint64_t sequence)
{
	if (l->serving != capture)
		return;
	if (is_in)
		l->clean = max_u64(l->clean, sequence);
	else
		l->serving = 0;
}

/* Whether captures have left memory in the stream's captured lanes of a pool; and gives that to its other lanes, which
 * are about to serve it outside of captures. */
bool heap_captures_left_locked(const struct pool *p, const struct stream *s);
void heap_leave_captures(trz_heap *h, struct pool *p, const struct stream *s);

/* The lane that serves what the present capture of a stream allocates from a pool. NULL: no host memory. */
struct lane *heap_capture_lane_locked(trz_heap *h, struct stream *s, struct pool *p, unsigned dedicated);

/* Whether the free memory of a pool's lane may be used by the present capture of its stream. */
bool heap_serves_captures_locked(const struct lane *l);

#endif
