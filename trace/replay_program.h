/* SPDX-License-Identifier: Apache-2.0
 *
 * The replayed program's own driver calls: events and waits between its streams, which the heap is told of. The
 * device's figures leave them out. Private to trace/.
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
	const struct replay_peer *peer;  /* likewise */
	bool orders_streams;        /* the trace has the waits that its program made */
	struct trace_map index;     /* id in the trace -> index in `events` */
	trz_event *events;
	size_t event_count;
};

/* The result of a driver call; a failure's text becomes the last error. */
trz_status program_result(trz_status status);

/* Records the program's event `id`, and makes it first if need be. Errors: HOST_MEMORY, the driver's. */
trz_status program_record(struct replay_program *p, uint32_t id, trz_stream stream);

/* Makes the stream's later work wait for the event, if that has been recorded. */
trz_status program_wait(struct replay_program *p, uint32_t id, trz_stream stream);

/* The host waits for the event, if that has been recorded. */
trz_status program_event_sync(struct replay_program *p, uint32_t id);

/* Gives the stream some work: work on the default stream orders the blocking ones. */
trz_status program_work(struct replay_program *p, trz_stream stream);

/* Orders `to`'s later work after `from`'s work so far. Does nothing if the trace orders its streams itself. */
trz_status program_hand_over(struct replay_program *p, trz_stream from, trz_stream to);

/* Destroys the events. */
void program_close(struct replay_program *p);

#endif
