/* SPDX-License-Identifier: Apache-2.0
 *
 * Durations of very many short calls: their mean and quantiles, in bounded memory. Private to trace/.
 */
#ifndef TRZ_TRACE_LATENCY_H
#define TRZ_TRACE_LATENCY_H

#include <stdint.h>

#include "terrazzo.h"
#include "ticks.h"

struct latency {
	struct ticks ticks;    /* the clock for durations, calibrated */
	uint64_t *buckets;     /* exact below 1024 ns, 512 to each doubling above */
	uint64_t count;
	uint64_t sum_ns;
	uint64_t overhead_ns;  /* of one pair of clock readings; taken off each duration */
};

/* Measures the clock's own cost. Errors: HOST_MEMORY. */
trz_status latency_init(struct latency *latency);
void latency_free(struct latency *latency);

void latency_add(struct latency *latency, uint64_t ns);
double latency_mean(const struct latency *latency);

/* The duration that a share `quantile` of all stays at or below, to 0.2 %. */
uint64_t latency_quantile(const struct latency *latency, double quantile);

#endif
