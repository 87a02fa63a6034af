/* SPDX-License-Identifier: Apache-2.0
 *
 * The true order of a traced program's work: what its own events, waits and captures order, and what is complete, by
 * the lag or because the host has waited. Each event of the trace is a point in time, from 1 on; a ticket is such a
 * point in a stream's order, and stands for all work that the stream was given until then. Private to trace/.
 */
#ifndef TRZ_TRACE_REPLAY_ORDER_H
#define TRZ_TRACE_REPLAY_ORDER_H

#include "trace.h"
#include "trace_map.h"

struct order_event;

struct replay_order {
	uint32_t streams;
	uint64_t lag;
	uint64_t now;           /* events so far: the newest point in time */
	uint64_t *known;        /* by stream, then by other stream: the newest ticket that its future work follows */
	uint64_t *inner;        /* the same within the capture that the stream is in */
	uint64_t *passed;       /* by stream: the newest ticket that the host knows to be complete */
	uint32_t *captures;     /* by stream: the capture that it is in, + 1 */
	bool *blocking;         /* by stream: ordered with the default stream's work */
	struct trace_map index; /* from a traced event to its index in `events` */
	struct order_event *events;
	size_t event_count;
};

/* order_close() it, also after an error. Errors: HOST_MEMORY. */
trz_status order_open(struct replay_order *o, const struct trace *trace, uint64_t lag);
void order_close(struct replay_order *o);

/* Takes in the trace's next event. Errors: HOST_MEMORY. */
trz_status order_step(struct replay_order *o, const struct trace_event *event);

/* Whether the ticket's work is complete. */
bool order_has_passed(const struct replay_order *o, uint16_t of, uint64_t ticket);

/* Whether the ticket's work is complete before any work that `stream` is given from now on; in a capture, by the
 * capture's own events alone. */
bool order_follows(const struct replay_order *o, uint16_t stream, uint16_t of, uint64_t ticket);

#endif
