/* SPDX-License-Identifier: Apache-2.0
 *
 * Events and waits of the replayed program.
 */
#include "replay_program.h"

#include <stdlib.h>

#include "error.h"

/* Keys that no id of a trace equals: ids have 32 bits. */
#define HAND_OVER_KEY ((uint64_t)1 << 32)
#define WORK_KEY (HAND_OVER_KEY + 1)

trz_status program_result(trz_status status)
{
	return status == TRZ_OK ? status : trz_fail(status, "%s", trz_driver_last_error());
}

static trz_status make_event(struct replay_program *p, uint64_t key, trz_event *event)
{
	const trz_driver *d = sim_driver(p->sim);
	trz_event *events = realloc(p->events, (p->event_count + 1) * sizeof *events);
	if (!events)
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "no memory for %zu events of the trace", p->event_count + 1);
	p->events = events;
	trz_status status = map_set(&p->index, key, (uint32_t)p->event_count);
	sim_leave_out(p->sim, true);
	if (status == TRZ_OK)
		status = program_result(d->event_create(d->self, p->context, event));
	sim_leave_out(p->sim, false);
	if (status == TRZ_OK)
		p->events[p->event_count++] = *event;
	return status;
}

/* ---- what the allocator is told ---- */

static uint64_t tell_record(const struct replay_program *p, trz_event event, trz_stream stream)
{
	if (p->peer && p->peer->record_begin)
		return p->peer->record_begin(p->peer->self, event, stream);
	return p->heap ? trz_event_record_begin(p->heap, event, stream) : 0;
}

static void tell_recorded(const struct replay_program *p, trz_event event, trz_stream stream, uint64_t token, bool done)
{
	if (p->peer && p->peer->record_end)
		p->peer->record_end(p->peer->self, event, stream, token, done);
	else if (p->heap)
		trz_event_record_end(p->heap, event, stream, token, done);
}

static uint64_t tell_wait(const struct replay_program *p, trz_stream stream, trz_event event)
{
	if (p->peer && p->peer->wait_begin)
		return p->peer->wait_begin(p->peer->self, stream, event);
	return p->heap ? trz_stream_wait_begin(p->heap, stream, event) : 0;
}

static void tell_waited(const struct replay_program *p, trz_stream stream, trz_event event, uint64_t token, bool done)
{
	if (p->peer && p->peer->wait_end)
		p->peer->wait_end(p->peer->self, stream, event, token, done);
	else if (p->heap)
		trz_stream_wait_end(p->heap, stream, event, token, done);
}

/* ---- the calls ---- */

static trz_status record(struct replay_program *p, uint64_t key, trz_stream stream)
{
	const trz_driver *d = sim_driver(p->sim);
	trz_event event;
	uint32_t index;
	trz_status status = TRZ_OK;
	if (map_get(&p->index, key, &index))
		event = p->events[index];
	else
		status = make_event(p, key, &event);
	if (status != TRZ_OK)
		return status;
	uint64_t token = tell_record(p, event, stream);
	sim_leave_out(p->sim, true);
	status = program_result(d->event_record(d->self, p->context, event, stream));
	sim_leave_out(p->sim, false);
	tell_recorded(p, event, stream, token, status == TRZ_OK);
	return status;
}

static trz_status wait(struct replay_program *p, uint64_t key, trz_stream stream)
{
	const trz_driver *d = sim_driver(p->sim);
	uint32_t index;
	if (!map_get(&p->index, key, &index))
		return TRZ_OK;
	trz_event event = p->events[index];
	uint64_t token = tell_wait(p, stream, event);
	sim_leave_out(p->sim, true);
	trz_status status = program_result(d->stream_wait(d->self, p->context, stream, event));
	sim_leave_out(p->sim, false);
	tell_waited(p, stream, event, token, status == TRZ_OK);
	return status;
}

trz_status program_record(struct replay_program *p, uint32_t id, trz_stream stream)
{
	return record(p, id, stream);
}

trz_status program_wait(struct replay_program *p, uint32_t id, trz_stream stream)
{
	return wait(p, id, stream);
}

trz_status program_event_sync(struct replay_program *p, uint32_t id)
{
	const trz_driver *d = sim_driver(p->sim);
	uint32_t index;
	if (!map_get(&p->index, id, &index))
		return TRZ_OK;
	sim_leave_out(p->sim, true);
	trz_status status = program_result(d->event_sync(d->self, p->context, p->events[index]));
	sim_leave_out(p->sim, false);
	return status;
}

trz_status program_work(struct replay_program *p, trz_stream stream)
{
	return record(p, WORK_KEY, stream);
}

trz_status program_hand_over(struct replay_program *p, trz_stream from, trz_stream to)
{
	if (p->orders_streams)
		return TRZ_OK;
	trz_status status = record(p, HAND_OVER_KEY, from);
	return status == TRZ_OK ? wait(p, HAND_OVER_KEY, to) : status;
}

void program_close(struct replay_program *p)
{
	const trz_driver *d = sim_driver(p->sim);
	for (size_t i = 0; i < p->event_count; i++)
		d->event_destroy(d->self, p->context, p->events[i]);
	free(p->events);
	map_free(&p->index);
}
