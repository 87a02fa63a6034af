/* SPDX-License-Identifier: Apache-2.0
 *
 * Private pools, captures and graphs of a replayed program. Private to trace/.
 *
 * A pool is made when it is first named and lives until the trace releases it. A capture diverts what its streams
 * allocate to its pool (one of its own if the trace names none); its graph lives until its pool is released or its
 * number is captured again.
 */
#ifndef TRZ_TRACE_REPLAY_POOLS_H
#define TRZ_TRACE_REPLAY_POOLS_H

#include "sim.h"
#include "trace.h"

struct replay_capture;
struct replay_pool;

struct replay_pools {
	sim *sim;
	trz_context context;
	trz_heap *heap;
	const trz_stream *streams;
	uint32_t stream_count;
	struct replay_pool *pools;         /* by number; number 0 is none */
	uint32_t pool_count;
	struct replay_capture *captures;   /* by number */
	uint32_t capture_count;
	uint32_t made, captured;           /* so far */
	uint64_t launches, skipped;
	uint32_t under_way;                /* captures */
};

/* Room for what the trace names. Errors: HOST_MEMORY. */
trz_status pools_open(struct replay_pools *p, const struct trace *trace);

/* Ends captures and releases everything: between passes, and before the heap is closed. */
trz_status pools_reset(struct replay_pools *p);
void pools_close(struct replay_pools *p);

/* Allocates from the pool; 0: from none, or from the one that the stream is diverted to. */
trz_status pools_alloc(struct replay_pools *p, uint32_t pool, uint64_t size, uint16_t stream, void **out);

/* Replays an event of captures or pools. Impossible ones, for example a capture of the default stream, are skipped and
 * counted. */
trz_status pools_event(struct replay_pools *p, const struct trace_event *event);

/* The capture that a stream is part of, + 1; 0: none. */
uint32_t pools_capture_of(struct replay_pools *p, uint16_t stream);

/* Whether what a capture (+ 1; 0: none) wrote to its memory is there: its graph has been launched, and since then none
 * that was captured into the pool before it. */
bool pools_has_content(const struct replay_pools *p, uint32_t capture);

/* The stream that a capture's (+ 1) graph was last launched on; it has been launched. */
uint16_t pools_launched_on(const struct replay_pools *p, uint32_t capture);

/* Bytes reserved in the pools that exist. */
uint64_t pools_reserved(const struct replay_pools *p);

#endif
