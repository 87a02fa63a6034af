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

/* The site of which every allocation has to go past here; 0: none; PERIOD_ALL: each. */
enum { PERIOD_ALL = UINT32_MAX };

static inline uint32_t period_wants(const struct period *p)
{
	return p->state == PERIOD_WATCHES ? (uint32_t)PERIOD_ALL : p->state == PERIOD_FOUND ? p->marker_site : 0;
}

/* The heap has grown: what has not been found before may show now. */
void period_grown(trz_heap *h);

/* The program tells its steps, from now on. */
void period_told(trz_heap *h);

/* A step has ended, and is to be noted before the next allocation: once for each. */
static inline bool period_is_due(const trz_heap *h)
{
	return atomic_load_explicit(&h->period.due, memory_order_relaxed);
}

#endif
