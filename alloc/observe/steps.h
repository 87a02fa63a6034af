/* SPDX-License-Identifier: Apache-2.0
 *
 * The program's steps: what call sites hold at the end of each, who leaks, when memory will run out, and the warnings
 * that the program has asked for. Costs nothing before the first step, and until a callback for warnings is set.
 */
#ifndef TRZ_ALLOC_STEPS_H
#define TRZ_ALLOC_STEPS_H

#include "heap/heap.h"
#include "observe/period.h"

/* A step has ended. No lock is held: the callback may run. Errors: HOST_MEMORY. */
trz_status steps_end(trz_heap *h);

/* Does what h->period says is due, unless another thread has: ends a step that was recognised, or judges a place that
 * may begin steps. No lock is held. */
void steps_end_recognised(trz_heap *h);

struct kept_loop {
	size_t sites;                /* sites that have been listed */
	uint64_t steps;              /* of the loop, so far */
	double allocations;          /* the most that a step adds to one of them */
	bool calls_models;           /* most of what its steps allocate, freed or not, is allocated in models */
};

/* Lists the sites that grow in a loop that keeps what it makes (observe/period.h), after a failure. A list that is
 * filled and emptied again and again is left out, or is no suspect if it holds more than before. Takes the lock of the
 * steps and the heap lock, and asks for texts with none held. */
struct kept_loop steps_kept(trz_heap *h, trz_growth_info *out, size_t capacity);

/* The sites that grow, suspects first; `failed`: memory has run out, so growth over few steps is judged, too. Returns
 * how many. Takes the lock of the steps and the heap lock. */
size_t steps_growth(trz_heap *h, bool failed, trz_growth_info *out, size_t capacity);

/* How many steps have ended. */
uint64_t steps_told(trz_heap *h);

/* The same, but 0 if the program tells its steps. *allocations: the most that a step adds to one suspect, judged as
 * when memory has run out. */
uint64_t steps_recognised(trz_heap *h, double *allocations);

/* Whether the recognised steps may be turns of a loop within one pass through a model, over a sequence, say: such a
 * loop allocates nothing outside the model. */
bool steps_may_be_within_a_model(trz_heap *h);

/* false: nothing grows steadily. */
bool steps_forecast(trz_heap *h, trz_forecast_info *out);

void steps_set_callback(trz_heap *h, trz_warning_callback *callback, void *user);

/* Warns if memory nears its end; with `busy`, when more was needed than was free, also if what is free lies in pieces.
 * No lock is held. */
void steps_warn_of_state(trz_heap *h, bool busy);

static inline bool steps_are_watched(const trz_heap *h)
{
	return atomic_load_explicit(&h->steps.watched, memory_order_relaxed);
}

/* For the end of an allocation that the cache could not serve; returns its status. */
static inline trz_status steps_after_growth(trz_heap *h, trz_status status)
{
	if (status == TRZ_OK)
		period_grown(h);
	if (UNLIKELY(status == TRZ_OK && steps_are_watched(h)))
		steps_warn_of_state(h, true);
	return status;
}

#endif
