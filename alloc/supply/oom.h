/* SPDX-License-Identifier: Apache-2.0
 *
 * The out-of-memory ladder: the attempts, in order of cost, when the heap cannot grow.
 */
#ifndef TRZ_ALLOC_OOM_H
#define TRZ_ALLOC_OOM_H

#include "supply/demand.h"
#include "supply/facts.h"
#include "verdict.h"

/* Whether more memory, or address space, would have helped. */
bool oom_is_want_of_memory(trz_status status);

/* Whether a status means that the device, or the limit, has no more memory. */
static inline bool oom_is_full(trz_status status)
{
	return status == TRZ_ERROR_OUT_OF_MEMORY || status == TRZ_ERROR_LIMIT;
}

/* Whether nothing that is freed or returned could ever serve the request: it is larger than the device, or than both
 * the limit and what is reserved. *status says which; else it is left as it is. */
bool oom_is_hopeless(const trz_heap *h, uint64_t bytes, trz_status *status);

/* Climbs the ladder for a demand that neither the lane's free blocks nor growth by the policy can serve: after each
 * rung it searches again, and after some it tries growth with all effort. `refused`: the status that growth ended with.
 * Growth lock held, heap lock not. On TRZ_OK *out is a busy block as from extend(). Else it returns the status of the
 * last attempt, and the error text is set. */
trz_status oom_ladder(trz_heap *h, struct demand *d, trz_status refused, struct block **out);

/* Keeps the facts of a failed demand for trz_last_oom and sets the error text. Returns the status. */
trz_status oom_report(trz_heap *h, const struct demand *d, trz_status status);

/* The error of the thread's newest failure tells of the reason, and what helps, that the sums suggest. This puts the
 * words of a verdict in their place, if the thread's error is still that one. `missing`: bytes; `kept`: what other
 * processes or pools have, rounding takes, or leaks. */
void oom_reword(enum verdict_kind kind, uint64_t missing, uint64_t kept);

/* Counts a request that has failed for good, in the statistics and in the history. */
void oom_count(trz_heap *h, const struct demand *d);

/* The facts of the calling thread's newest failure; info.requested 0: none of its requests has failed. */
const struct facts *oom_thread_facts(void);

/* The facts of the heap at this moment, as for its oldest stream's lane; `f` is zeroed. Growth lock held. */
void oom_facts_now(trz_heap *h, struct facts *f);

/* Completes the facts of a failure by who asked, and asks the user's callback, with no lock held, whether to try once
 * more. The thread's error text stays that of the failure. A failure inside the callback does not call it again. */
bool oom_ask(trz_heap *h, trz_status status);

#endif
