/* SPDX-License-Identifier: Apache-2.0
 *
 * Deputies: events that answer for streams on which none can be recorded. Growth lock held throughout.
 */
#ifndef TRZ_ALLOC_CONTEXTS_H
#define TRZ_ALLOC_CONTEXTS_H

#include "heap/heap.h"

/* Whether some stream of the context is being captured, or soon will be, as far as the heap can know: diversions
 * announce captures, the legacy stream answers for blocking streams, and each stream that the heap knows is asked; not
 * by a heap that is closing, since the program may have destroyed its streams. */
bool heap_may_be_captured(trz_heap *h);

/* The streams of a context that a deputy answers for. */
enum cover {
	COVER_UNREACHED,             /* those out of reach, by an event of the whole context, which breaks captures */
	COVER_ALL,                   /* every one, in the same way: also those that the heap has never seen */
	COVER_THREADS                /* thread-bound ones, by an event of the legacy default stream, which waits for them:
	                              * for drivers without events of contexts, and while there are captures. Later work of
	                              * blocking streams waits for it, so only ends use it */
};

/* Records a deputy, which answers for the newest tickets of the streams that `cover` names. A context has one deputy at
 * a time, so none may be outstanding. NOT_SUPPORTED: the driver has no events of contexts. CAPTURE: the legacy default
 * stream cannot be used. */
trz_status heap_record_deputy(trz_heap *h, struct event_pool *p, enum cover cover);

/* Records one if it would answer for any ticket and none is outstanding; else TRZ_OK. */
trz_status heap_cover_context(trz_heap *h, struct event_pool *p, enum cover cover);

/* Whether a deputy has passed, by its number. */
static inline bool heap_deputy_passed(const struct event_pool *p, uint64_t number)
{
	return number < p->deputies || !p->deputy;
}

/* heap_collect_contexts asks the driver about all outstanding deputies; heap_end_cover notes that one has passed. */
void heap_collect_contexts(trz_heap *h);
void heap_end_cover(trz_heap *h, struct event_pool *p);

#endif
