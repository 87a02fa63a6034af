/* SPDX-License-Identifier: Apache-2.0
 *
 * Which free memory to return unasked.
 *
 * Decay divides a period into steps and keeps, for each, the least that was free at any moment in it. The least of them
 * all was not needed in the whole period, whichever blocks it consisted of. The age of a block would say nothing, since
 * best fit does not use blocks in turn.
 */
#include "supply/upkeep.h"

#include "heap/carve.h"
#include "heap/poll.h"
#include "supply/import.h"
#include "supply/reclaim.h"

enum { NS_PER_MS = 1000000 };

static uint64_t cached_bytes(const trz_heap *h)
{
	return counter_get(&h->counters.cached_bytes.current);
}

static uint64_t over_threshold(const trz_heap *h)
{
	uint64_t most = h->config.trim_threshold, cached = cached_bytes(h);
	return most && cached > most ? cached - most : 0;
}

/* The least that was free since the step began; a new step begins. */
static uint64_t take_least(trz_heap *h)
{
	heap_lock(h);
	heap_note_least_locked(h);
	uint64_t least = h->cached_least;
	h->cached_least = cached_bytes(h);
	heap_unlock(h);
	return least;
}

/* Ends the steps that are over. Returns the bytes that were free for a whole period. */
static uint64_t unused(trz_heap *h)
{
	struct decay *d = &h->decay;
	uint64_t step = h->config.decay_ms * NS_PER_MS / DECAY_STEPS;
	uint64_t now = step ? driver_clock(&h->driver) : 0;
	if (!step || now < d->step_end)
		return 0;
	uint64_t ended = d->step_end ? (now - d->step_end) / step + 1 : 0, least = take_least(h);
	d->step_end = d->step_end ? d->step_end + ended * step : now + step;
	for (uint64_t i = 0; i < min_u64(ended, DECAY_STEPS); i++) {  /* one least for all: nobody looked in between */
		d->least[d->next] = least;
		d->next = (d->next + 1) % DECAY_STEPS;
	}
	least = UINT64_MAX;
	for (int i = 0; i < DECAY_STEPS; i++)
		least = min_u64(least, d->least[i]);
	heap_retire_empty_slabs(h);  /* they are free memory from now on */
	return least;
}

void upkeep_return_free(trz_heap *h)
{
	HEAP_GROWTH_LOCKED(h);
	if (h->dedicates)
		reclaim_spent(h);
	uint64_t surplus = max_u64(over_threshold(h), unused(h)), reserved = heap_reserved(h), released;
	if (!surplus)
		return;
	reclaim_trim(h, reserved > surplus ? reserved - surplus : 0, &released);
	counter_add(&h->counters.bytes_decayed, released);
	for (int i = 0; i < DECAY_STEPS; i++)
		h->decay.least[i] -= min_u64(h->decay.least[i], released);
	heap_lock(h);
	heap_note_least_locked(h);
	h->trim_again = over_threshold(h) ? flow_freed(&h->counters.allocated_bytes) + cached_bytes(h) : 0;
	heap_unlock(h);
}

void upkeep(trz_heap *h)
{
	HEAP_GROWTH_LOCKED(h);
	heap_poll(h);
	import_sweep(h);
	upkeep_return_free(h);
}

void upkeep_if_wanted(trz_heap *h)
{
	if (!atomic_load_explicit(&h->poll_wanted, memory_order_relaxed) || !heap_try_growth(h))
		return;
	upkeep(h);
	heap_unlock_growth(h);
}
