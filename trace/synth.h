/* SPDX-License-Identifier: Apache-2.0
 *
 * Synthetic traces of programs that use several streams, made from a seed. An event and a wait order each
 * handover of memory from one stream to another, so that every trace, and every beginning of one, is a legal
 * program.
 */
#ifndef TRZ_TRACE_SYNTH_H
#define TRZ_TRACE_SYNTH_H

#include "trace.h"

enum synth_shape {
	SYNTH_RING,   /* stage i fills buffers for stage i + 1; one stream a stage; buffers are freed in turn */
	SYNTH_FSDP,   /* sharded training: stream 0 computes, 1 gathers, 2 reduces, others copy out */
	SYNTH_GRAPHS, /* captures into a pool, launched in turn beside ordinary work, some of it in a pool of its own */
	SYNTH_RANDOM  /* sizes over five orders of magnitude, random lives, a quarter of all blocks shared */
};

struct synth_params {
	enum synth_shape shape;
	uint32_t streams;    /* 1 .. TRACE_STREAMS_MAX */
	uint64_t events;     /* exactly so many; what is live at the end is not freed */
	uint64_t seed;
	/* Shared memory is freed in the order of its own stream, after a TRACE_RECORD_STREAM for each other user.
	 * False: in the order of its last user. */
	bool record_stream;
};

/* Makes a trace; trace_free() it. Errors: HOST_MEMORY; *out is then empty. */
trz_status synth_trace(const struct synth_params *params, struct trace *out);

#endif
