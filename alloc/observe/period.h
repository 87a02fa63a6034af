/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps of a program that does not tell them: recognised by the period of what it allocates. For a bounded number of
 * allocations every block goes past here; a place of the program that comes regularly, while the heap holds about the
 * same, becomes the marker, and each of its allocations ends a step. Then the heap's shortest way is open again to all
 * other places. Slots are not looked at.
 */
#ifndef TRZ_ALLOC_PERIOD_H
#define TRZ_ALLOC_PERIOD_H

#include "heap/heap.h"

void period_init(struct period *p);

/* A block of `size` bytes has been allocated at a site, and counted. */
void period_see_locked(trz_heap *h, unsigned site, uint64_t size);

/* Of a loop that keeps what it makes no marker is found, since each step ends higher than the one before. It may be one
 * over steps that a model's graphs are kept in, or over layers: call stacks tell. So a place that comes regularly in it
 * is proposed, and once it is accepted its allocations end the steps of that loop, which reports of failures judge.
 * So it is with a loop that comes after one whose steps the program has told. */

struct period_proposal {
	uint32_t key, site;
	uint64_t usual;              /* blocks from one of its allocations to the next */
	uint64_t row;                /* of them are a step, since they come in a short time */
	uint64_t stack;
	bool last;                   /* the heap rests then, unless it is of a model */
	size_t inner;                /* the newest blocks of one of the intervals: where they come from, and their size */
	uint64_t stacks[PERIOD_NEWEST], sizes[PERIOD_NEWEST];
};

/* The newest, which is proposed no more; false: there is none. */
bool period_proposed(trz_heap *h, struct period_proposal *out);

/* The marker, and the newest blocks of the intervals that it was found by; false: there is none now. */
bool period_marked(trz_heap *h, struct period_proposal *out);

/* It is proposed no more while the heap watches. */
void period_refuse(trz_heap *h, const struct period_proposal *proposal, bool in_model);

/* Its allocations end steps from now on. */
void period_accept(trz_heap *h, const struct period_proposal *proposal);

/* How many of the loop's own steps are one that has been noted; 0: the loop is over, or there is none. */
uint64_t period_keeps(trz_heap *h);

/* The site of which every allocation has to go past here; 0: none; PERIOD_ALL: each. */
enum { PERIOD_ALL = UINT32_MAX };

static inline uint32_t period_wants(const struct period *p)
{
	return p->state == PERIOD_WATCHES ? (uint32_t)PERIOD_ALL : p->state == PERIOD_FOUND ? p->marker_site :
	       p->keeper_site;
}

/* The heap has grown: what has not been found before may show now. */
void period_grown(trz_heap *h);

/* The program tells its steps, from now on. Returns whether several times as much as in one of them was allocated since
 * the one before: it has done something else, too, such as evaluate. */
bool period_told(trz_heap *h);

/* Something is to be done before the next allocation: once for each. */
static inline bool period_is_due(const trz_heap *h)
{
	return atomic_load_explicit(&h->period.due, memory_order_relaxed) != 0;
}

#endif
