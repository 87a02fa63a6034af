/* SPDX-License-Identifier: Apache-2.0
 *
 * Statistics of a heap.
 */
#include "inspect.h"

static uint64_t largest_free(const trz_heap *h)
{
	unsigned streams = atomic_load_explicit(&h->streams.count, memory_order_acquire);
	uint64_t largest = 0;
	for (unsigned i = 0; i < streams; i++) {
		const struct stream *s = atomic_load_explicit(&h->streams.list[i], memory_order_relaxed);
		for (int pool = 0; pool < POOL_KINDS; pool++)
			largest = max_u64(largest, counter_get(&s->fit[pool].largest));
	}
	return largest;
}

void inspect_stats(const trz_heap *h, trz_stat_value *values, size_t capacity, size_t *count)
{
	struct counter_view view = {
	    .metadata_bytes = atomic_load_explicit(&h->meta.bytes, memory_order_relaxed),
	    .largest_free_bytes = largest_free(h),
	    .active_bytes_peak = counter_get(&h->active_bytes_peak),
	    .active_peak = counter_get(&h->active_peak),
	};
	counters_read(&h->counters, &view, values, capacity, count);
}

void inspect_reset_peaks(trz_heap *h)
{
	pthread_mutex_lock(&h->growth_lock);
	heap_lock(h);
	counters_reset_peaks(&h->counters);
	counter_set(&h->active_bytes_peak,
	            flow_all(&h->counters.allocated_bytes) + counter_get(&h->counters.pending_bytes.current));
	counter_set(&h->active_peak,
	            flow_all(&h->counters.allocation) + counter_get(&h->counters.pending.current));
	heap_unlock(h);
	pthread_mutex_unlock(&h->growth_lock);
}
