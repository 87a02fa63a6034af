/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns a history that names memory by address into a trace that numbers it: addresses become allocation
 * numbers, streams and pools dense indices. Shared by the readers of foreign formats. Private to trace/.
 *
 * A free of an address that is not live frees memory allocated before the recording began: it is counted and
 * left out. An allocation at a live address means that the recording lost a free: one is put in before it, in
 * the order of the stream that the old allocation was made on, and counted.
 */
#ifndef TRZ_TRACE_HISTORY_H
#define TRZ_TRACE_HISTORY_H

#include "trace.h"
#include "trace_map.h"

struct history {
	const char *name;          /* of the input, for messages */
	struct trace *trace;
	struct trace_map live;     /* address -> index of its TRACE_ALLOC event */
	struct trace_map streams;
	struct trace_map pools;
	uint32_t marker;           /* id of the newest marker; 0: none yet */
};

/* The default stream and the default pool (keys 0) get index 0, used or not. Errors: HOST_MEMORY. */
trz_status history_begin(struct history *h, const char *name, struct trace *trace);
void history_end(struct history *h);

/* One request. The caller has checked size <= TRACE_SIZE_MAX. Errors: HOST_MEMORY, BAD_INPUT (more streams
 * than TRACE_STREAMS_MAX). */
trz_status history_alloc(struct history *h, uint64_t address, uint64_t size, uint64_t stream, uint64_t pool);
trz_status history_free(struct history *h, uint64_t address, uint64_t stream);
trz_status history_marker(struct history *h, uint32_t id);

/* A use of memory on another stream; left out if the memory is not live. */
trz_status history_use(struct history *h, uint64_t address, uint64_t stream);
/* Frees in the order of the stream that the memory was allocated on. */
trz_status history_free_own(struct history *h, uint64_t address);
/* The indices of a stream and of a pool, by the same keys as above. */
trz_status history_stream(struct history *h, uint64_t key, uint16_t *stream);
trz_status history_pool(struct history *h, uint64_t key, uint32_t *pool);

#endif
