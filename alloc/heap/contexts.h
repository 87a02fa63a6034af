/* SPDX-License-Identifier: Apache-2.0
 *
 * Events of whole contexts. Growth lock held throughout.
 */
#ifndef TRZ_ALLOC_CONTEXTS_H
#define TRZ_ALLOC_CONTEXTS_H

#include "heap/heap.h"

/* Whether some stream of the context is being captured, or soon will be, as far as that can be known: where a
 * diversion has announced it, on blocking streams, on streams that the heap knows. Without `handles_live` none of those
 * is asked but the legacy one: what its last operation saw counts. Growth lock held, as below. */
bool heap_may_be_captured(trz_heap *h, bool handles_live);

/* An event of all streams of a context, recorded now. NOT_SUPPORTED: the driver has none. It breaks captures. */
trz_status heap_record_context(trz_heap *h, struct event_pool *p, trz_event *event);

/* The same, as the context's `whole`: it tells of the newest tickets of its streams that are out of reach, or of all.
 * TRZ_OK without one: there is no need of it. */
trz_status heap_cover_context(trz_heap *h, struct event_pool *p, bool all);

/* Asks the events of contexts that are under way; and one of them has passed. */
void heap_collect_contexts(trz_heap *h);
void heap_end_cover(trz_heap *h, struct event_pool *p);

#endif
