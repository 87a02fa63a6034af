/* SPDX-License-Identifier: Apache-2.0
 *
 * Durations of very many short calls: their mean and quantiles, in bounded memory. If the calls are repeated in several
 * rounds, each counts once, by its least duration, which leaves out the host's interrupts. Private to trace/.
 */
#ifndef TRZ_TRACE_LATENCY_H
#define TRZ_TRACE_LATENCY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "terrazzo.h"
#include "ticks.h"

struct latency {
	struct ticks ticks;    /* the clock for durations, calibrated */
	uint64_t *buckets;     /* exact below 1024 ns, 512 to each doubling above */
	uint64_t count;
	uint64_t sum_ns;
	uint64_t overhead_ns;  /* of one pair of clock readings; taken off each duration */
	unsigned rounds;       /* in all; 0, 1: durations are not kept one by one */
	unsigned round;        /* the current one, from 1 */
	uint32_t *least;       /* ns of each call, in the rounds so far */
	size_t calls;          /* in the first round */
	size_t call;           /* the next in this round */
	size_t capacity;
	bool lost;             /* there was no memory for a duration */
	bool uneven;           /* a round had more calls than another */
};

/* Measures the clock's own cost. Errors: HOST_MEMORY. */
trz_status latency_init(struct latency *latency, unsigned rounds);

/* Call it before the first call of each round. */
void latency_begin_round(struct latency *latency);

/* Call it after the last round, before mean and quantiles. Errors: HOST_MEMORY (a duration could not be kept), CORRUPT
 * (one round had more calls than another). */
trz_status latency_settle(struct latency *latency);
void latency_free(struct latency *latency);

void latency_add(struct latency *latency, uint64_t ns);
double latency_mean(const struct latency *latency);

/* The duration that a share `quantile` of all does not exceed, to 0.2 %. */
uint64_t latency_quantile(const struct latency *latency, double quantile);

#endif
