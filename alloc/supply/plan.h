/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan: a place for each large request that the program makes once in every period. Its memory is a pool's whose
 * lanes serve those requests where the plan puts them, and otherwise what the streams' own lanes cannot. What departs
 * from the plan is served as without. A heap whose memory never had to move has none (docs/decisions/0016-plan.md).
 */
#ifndef TRZ_ALLOC_PLAN_H
#define TRZ_ALLOC_PLAN_H

#include "supply/demand.h"

/* Notes a large request that is about to be served, and finds its place. */
void plan_note_request_locked(trz_heap *h, struct demand *d);

static inline void plan_note_locked(trz_heap *h, struct demand *d)
{
	if (UNLIKELY(h->plan != NULL))
		plan_note_request_locked(h, d);
}

/* The busy block at the demand's place, in whose size and lane it is; NULL: it is not free there. *later: it may be
 * after plan_prepare. Nodes have been reserved. */
struct block *plan_take_locked(trz_heap *h, const struct demand *d, bool *later);

/* A live block serves a request. */
static inline void plan_serve_locked(const struct demand *d, struct block *b)
{
	b->noted = d->noted;
	b->priority = d->number;
}

/* A live block is freed. */
void plan_end_request_locked(trz_heap *h, struct block *b);

static inline void plan_end_locked(trz_heap *h, struct block *b)
{
	if (UNLIKELY(b->noted))
		plan_end_request_locked(h, b);
}

/* Asks how far the streams are, and lays a part of the plan's memory that is not laid yet. Growth lock held. */
void plan_prepare(trz_heap *h, struct demand *d);

/* Memory would have to move for a request: makes a plan for what the program repeats, or begins to note its requests.
 * true: there is a new plan. Growth lock held. */
bool plan_make(trz_heap *h, struct demand *d);

#endif
