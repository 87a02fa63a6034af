/* SPDX-License-Identifier: Apache-2.0
 *
 * A histogram of durations with buckets of constant relative width.
 */
#include "latency.h"

#include <stdlib.h>

#include "bits.h"
#include "error.h"

/* A duration x >= 2^10 goes by its highest 10 bits: the leading one and MANTISSA_BITS below it. */
enum {
	MANTISSA_BITS = 9,
	EXACT = 2 << MANTISSA_BITS,
	BUCKETS = EXACT + ((63 - MANTISSA_BITS) << MANTISSA_BITS)
};

static size_t bucket_of(uint64_t ns)
{
	if (ns < EXACT)
		return ns;
	unsigned shift = log2_floor(ns) - MANTISSA_BITS;
	return ((size_t)shift << MANTISSA_BITS) + (ns >> shift);
}

static uint64_t bucket_start(size_t bucket)
{
	if (bucket < EXACT)
		return bucket;
	unsigned shift = (unsigned)(bucket >> MANTISSA_BITS) - 1;
	return (bucket - ((size_t)shift << MANTISSA_BITS)) << shift;
}

trz_status latency_init(struct latency *latency, unsigned rounds)
{
	*latency = (struct latency){ .buckets = calloc(BUCKETS, sizeof *latency->buckets) };
	if (!latency->buckets)
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "no memory for a histogram");
	struct ticks ticks;
	ticks_init(&ticks);
	ticks_calibrate(&ticks);
	for (int i = 0; i < 10000; i++) {
		uint64_t start = ticks_read_in_order(&ticks);
		latency_add(latency, ticks_to_ns(&ticks, ticks_read_in_order(&ticks) - start));
	}
	uint64_t overhead = latency_quantile(latency, 0.5);
	for (size_t i = 0; i < BUCKETS; i++)
		latency->buckets[i] = 0;
	*latency = (struct latency){ .ticks = ticks, .buckets = latency->buckets, .overhead_ns = overhead,
	                             .rounds = rounds };
	return TRZ_OK;
}

void latency_free(struct latency *latency)
{
	free(latency->buckets);
	free(latency->least);
	*latency = (struct latency){ 0 };
}

static void count(struct latency *latency, uint64_t ns)
{
	latency->buckets[bucket_of(ns)]++;
	latency->count++;
	latency->sum_ns += ns;
}

static bool reserve_call(struct latency *latency)
{
	if (latency->call < latency->capacity)
		return true;
	size_t capacity = max_u64(1 << 16, 2 * latency->capacity);
	uint32_t *least = realloc(latency->least, capacity * sizeof *least);
	if (!least)
		return false;
	latency->least = least;
	latency->capacity = capacity;
	return true;
}

static void keep(struct latency *latency, uint32_t ns)
{
	if (latency->round <= 1 && reserve_call(latency)) {
		latency->least[latency->call++] = ns;
		latency->calls = latency->call;
	} else if (latency->round <= 1) {
		latency->lost = true;
	} else if (latency->call < latency->calls) {
		uint32_t *least = &latency->least[latency->call++];
		*least = ns < *least ? ns : *least;
	} else {
		latency->uneven = true;
	}
}

void latency_add(struct latency *latency, uint64_t ns)
{
	ns = ns > latency->overhead_ns ? ns - latency->overhead_ns : 0;
	if (latency->rounds > 1)
		keep(latency, (uint32_t)min_u64(ns, UINT32_MAX));
	else
		count(latency, ns);
}

static void end_round(struct latency *latency)
{
	latency->uneven |= latency->round > 0 && latency->call != latency->calls;
	latency->call = 0;
}

void latency_begin_round(struct latency *latency)
{
	end_round(latency);
	latency->round++;
}

trz_status latency_settle(struct latency *latency)
{
	if (latency->rounds <= 1)
		return TRZ_OK;
	end_round(latency);
	if (latency->lost)
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "no memory for the times of %zu operations", latency->calls + 1);
	if (latency->uneven)
		return trz_fail(TRZ_ERROR_CORRUPT, "a replay did not make the operations of the one before");
	for (size_t i = 0; i < latency->calls; i++)
		count(latency, latency->least[i]);
	return TRZ_OK;
}

double latency_mean(const struct latency *latency)
{
	return latency->count ? (double)latency->sum_ns / (double)latency->count : 0;
}

uint64_t latency_quantile(const struct latency *latency, double quantile)
{
	uint64_t rank = (uint64_t)((double)latency->count * quantile);
	uint64_t below = 0;
	for (size_t i = 0; i < BUCKETS; i++) {
		below += latency->buckets[i];
		if (below > rank)
			return bucket_start(i);
	}
	return 0;
}
