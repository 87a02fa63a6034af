/* SPDX-License-Identifier: Apache-2.0
 *
 * The facts of a failed request, or of a heap at a moment: where its memory is, and what the ladder's rungs gave.
 */
#ifndef TRZ_ALLOC_FACTS_H
#define TRZ_ALLOC_FACTS_H

#include "heap/heap.h"

enum { FACTS_RUNGS = 6 };

/* What one rung of the ladder did for a request. */
struct facts_rung {
	const char *name;
	uint64_t tries;              /* of this heap, so far */
	uint64_t gave;               /* bytes that the request's lane had free after it, or the driver, and not before */
};

struct facts {
	trz_oom_info info;           /* info.requested 0: no request has failed */
	trz_shared_limit shared;     /* limit 0: there is none */
	uint64_t heap;               /* the serial */
	uint64_t site;               /* the stack of the request's call site */
	unsigned category;           /* of the request; so is the next */
	uint32_t pool;
	uint64_t needed;             /* what the request takes */
	uint64_t live_requested;
	uint64_t free_slots;         /* not part of info.cached */
	uint64_t free_own, free_streams, free_pools;           /* of both: for the lane; of other lanes of its pool; of
	                                                        * pools that graphs rely on */
	uint64_t largest_own, largest_streams, largest_pools;  /* blocks of those */
	uint64_t whole, whole_pools; /* of both: tiles without a live byte, outside those pools and in them */
	uint64_t peak_allocated, peak_reserved;
	struct facts_rung rungs[FACTS_RUNGS];
	unsigned rung_count;
};

/* Fills all but `info`, `needed` and the rungs, for a lane. Growth lock held. */
void facts_gather(trz_heap *h, const struct lane *l, struct facts *f);

#endif
