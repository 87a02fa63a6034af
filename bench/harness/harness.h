/* SPDX-License-Identifier: Apache-2.0
 *
 * One run of one workload by one allocator (bench/peers/), on a simulated device that the environment configures
 * (lookalike/README.md). Private to bench/harness/, which is linked into a libcuda.so.1 of its own, so that it reaches
 * the machine behind the allocator's CUDA.
 */
#ifndef TRZ_BENCH_HARNESS_H
#define TRZ_BENCH_HARNESS_H

#include <jansson.h>

#include "../peers/bench_peer.h"
#include "sim.h"

struct harness {
	const struct peer *peer;
	sim *sim;                /* NULL: the allocator gives host memory, and no work is done */
	trz_context context;
	uint64_t capacity;
	json_t *row;             /* what the run has found */
};

/* Prints why, and ends the process with status 2. */
_Noreturn void harness_fail(const char *what, const char *why);

/* Makes a stream of the program's. */
trz_status harness_stream(bool blocking, trz_stream *out);

/* Makes the primary context current in the calling thread. */
void harness_enter(const struct harness *h);

/* Adds the peak of reserved memory, the driver's calls and its virtual time. */
void harness_add_driver(struct harness *h);

void harness_replay(struct harness *h, const char *trace, uint64_t lag);

/* What an offline planner needs for the trace; takes about so many steps, some tens of millions a second. */
void harness_plan(struct harness *h, const char *trace, uint64_t most_steps);

/* Runs a micro by its name; NULL: prints all names. false: no micro has this name. */
bool harness_micro(struct harness *h, const char *name, unsigned divisor);

#endif
