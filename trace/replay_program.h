/* SPDX-License-Identifier: Apache-2.0
 *
 * The replayed program's own calls of the driver: events and waits between its streams, of which the heap is told.
 * They are counted separately from the allocator's. Private to trace/.
 */
#ifndef TRZ_TRACE_REPLAY_PROGRAM_H
#define TRZ_TRACE_REPLAY_PROGRAM_H

#include "replay.h"
#include "sim.h"
#include "trace_map.h"

struct replay_program {
	sim *sim;
	trz_context context;
	trz_heap *heap;             /* is told of the events; NULL: there is none */
	const struct replay_peer *peer;  /* the same */
	bool orders_streams;        /* the trace has the waits that its program made */
	struct trace_map index;     /* id in the trace -> index in `events` */
	trz_event *events;
	size_t event_count;
	uint64_t driver_ns;         /* virtual time of the program's calls */
	uint64_t calls[SIM_SLOTS];
};

/* A call of the driver's table, whose text becomes the last error where it failed. */
trz_status program_result(trz_status status);

/* Records the program's event `id`, which is made when it is recorded first. Errors: HOST_MEMORY, the
 * driver's. */
trz_status program_record(struct replay_program *p, uint32_t id, trz_stream stream);

/* Makes later work of the stream wait for it; an event that has not been recorded is not waited for. */
trz_status program_wait(struct replay_program *p, uint32_t id, trz_stream stream);

/* The host waits for it; for an event that has not been recorded it does not. */
trz_status program_event_sync(struct replay_program *p, uint32_t id);

/* Work of the program's on the stream, by which the default stream orders the blocking ones. */
trz_status program_work(struct replay_program *p, trz_stream stream);

/* Orders `to`'s later work after `from`'s present work. Does nothing if the trace orders its streams itself. */
trz_status program_hand_over(struct replay_program *p, trz_stream from, trz_stream to);

/* Destroys the events. */
void program_close(struct replay_program *p);

#endif
