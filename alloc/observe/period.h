/* SPDX-License-Identifier: Apache-2.0
 *
 * Recognises the steps of a program that does not tell them, by the period of its allocations. For a bounded number of
 * allocations every block is looked at here; slots never are. A place of the program that allocates regularly, with
 * about as much held each time, becomes the marker, and each of its allocations ends a step. From then on all other
 * places take the heap's shortest way again.
 */
#ifndef TRZ_ALLOC_PERIOD_H
#define TRZ_ALLOC_PERIOD_H

#include "heap/heap.h"

void period_init(struct period *p);

/* A block of `size` bytes has been allocated at a site, and counted. */
void period_see_locked(trz_heap *h, unsigned site, uint64_t size);

/* A loop that keeps what it makes has no marker, since each of its steps ends with more held than the one before. It
 * may be a loop over steps that keep a model's graphs, or one over layers: call stacks tell. So a place that allocates
 * regularly in it is proposed; once it is accepted, its allocations end the steps of that loop, which reports of
 * failures judge. The same is done in a loop that follows one whose steps the program has told. */

struct period_proposal {
	uint32_t key, site;
	uint64_t usual;              /* blocks from one of its allocations to the next */
	uint64_t row;                /* so many of its intervals are one step, since each is short */
	uint64_t stack;
	bool last;                   /* when the place has been judged the heap rests, unless it lies in a model */
	size_t inner;                /* how many of an interval's newest blocks follow: their stacks and sizes */
	uint64_t stacks[PERIOD_NEWEST], sizes[PERIOD_NEWEST];
};

/* Takes the newest proposal; false: there is none. */
bool period_proposed(trz_heap *h, struct period_proposal *out);

/* The marker, and the newest blocks of the intervals that it was found by; false: there is none now. */
bool period_marked(trz_heap *h, struct period_proposal *out);

/* Refuses a place: it is not proposed again during this watch. `in_model`: it lies in a model. */
void period_refuse(trz_heap *h, const struct period_proposal *proposal, bool in_model);

/* Accepts a place: its allocations end steps from now on. */
void period_accept(trz_heap *h, const struct period_proposal *proposal);

/* How many of the loop's own steps are noted as one; 0: the loop is over, or there is none. */
uint64_t period_keeps(trz_heap *h);

/* The site whose allocations must all be looked at here; 0: none; PERIOD_ALL: every site. */
enum { PERIOD_ALL = UINT32_MAX };

static inline uint32_t period_wants(const struct period *p)
{
	return p->state == PERIOD_WATCHES ? (uint32_t)PERIOD_ALL : p->state == PERIOD_FOUND ? p->marker_site :
	       p->keeper_site;
}

/* The heap has grown: a period that was not found before may show now. */
void period_grown(trz_heap *h);

/* The program has told a step. true: since the step before it has made several times a step's allocations, so it has
 * done something else, too, such as evaluate. */
bool period_told(trz_heap *h);

/* Whether something is to be done before the next allocation. */
static inline bool period_is_due(const trz_heap *h)
{
	return atomic_load_explicit(&h->period.due, memory_order_relaxed) != 0;
}

#endif
