/* SPDX-License-Identifier: Apache-2.0
 *
 * Deputies: events that answer for streams on which none can be recorded. Growth lock held throughout.
 */
#ifndef TRZ_ALLOC_CONTEXTS_H
#define TRZ_ALLOC_CONTEXTS_H

#include "heap/heap.h"

/* Whether some stream of the context is being captured, or soon will be, as far as that can be known: where a
 * diversion has announced it, on blocking streams, on streams that the heap knows. Without `handles_live` none of those
 * is asked but the legacy one: what its last operation saw counts. Growth lock held, as below. */
bool heap_may_be_captured(trz_heap *h, bool handles_live);

/* Of which streams of a context a deputy tells. */
enum cover {
	COVER_UNREACHED,             /* those out of reach, by an event of the whole context: it breaks captures */
	COVER_ALL,                   /* every one, the same way: also those that the heap has never seen */
	COVER_THREADS                /* thread-bound ones, by an event of the legacy default stream, which waits for them:
	                              * for drivers without events of contexts, and beside captures. What blocking streams
	                              * are given later waits for it, so it is for ends alone */
};

/* Records a deputy, which tells of the newest tickets of those streams. A context has one at a time, so none may be
 * under way. NOT_SUPPORTED: the driver has no events of contexts. CAPTURE: the legacy default stream cannot be used. */
trz_status heap_record_deputy(trz_heap *h, struct event_pool *p, enum cover cover);

/* The same where it would tell of anything and none is under way; else TRZ_OK. */
trz_status heap_cover_context(trz_heap *h, struct event_pool *p, enum cover cover);

/* Whether a deputy has passed, by its number. */
static inline bool heap_deputy_passed(const struct event_pool *p, uint64_t number)
{
	return number < p->deputies || !p->deputy;
}

/* Asks the deputies of contexts that are under way; and one of them has passed. */
void heap_collect_contexts(trz_heap *h);
void heap_end_cover(trz_heap *h, struct event_pool *p);

#endif
