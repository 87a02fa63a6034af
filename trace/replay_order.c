/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of a traced program's streams, by vector clocks.
 */
#include "replay_order.h"

#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "error.h"

struct order_entry {
	uint32_t stream;
	uint64_t ticket;
};

/* The clock of an event, as of its newest record. */
struct order_event {
	struct order_entry *entries;
	uint32_t count;
	uint32_t capture;   /* it was recorded in, + 1 */
};

trz_status order_open(struct replay_order *o, const struct trace *trace, uint64_t lag)
{
	size_t n = trace->streams;
	*o = (struct replay_order){.streams = trace->streams, .lag = lag};
	o->known = calloc(n * n, sizeof *o->known);
	o->inner = calloc(n * n, sizeof *o->inner);
	o->passed = calloc(n, sizeof *o->passed);
	o->captures = calloc(n, sizeof *o->captures);
	o->blocking = calloc(n, sizeof *o->blocking);
	if (!o->known || !o->inner || !o->passed || !o->captures || !o->blocking)
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "no memory for the order of %u streams", trace->streams);
	return TRZ_OK;
}

void order_close(struct replay_order *o)
{
	for (size_t i = 0; i < o->event_count; i++)
		free(o->events[i].entries);
	free(o->events);
	map_free(&o->index);
	free(o->known);
	free(o->inner);
	free(o->passed);
	free(o->captures);
	free(o->blocking);
}

static uint64_t *clock_of(const struct replay_order *o, uint16_t stream)
{
	return (o->captures[stream] ? o->inner : o->known) + (size_t)stream * o->streams;
}

static void learn(uint64_t *clock, uint32_t of, uint64_t ticket)
{
	clock[of] = max_u64(clock[of], ticket);
}

/* ---- events ---- */

static trz_status event_of(struct replay_order *o, uint32_t id, struct order_event **out)
{
	uint32_t index;
	if (!map_get(&o->index, id, &index)) {
		struct order_event *grown = realloc(o->events, (o->event_count + 1) * sizeof *grown);
		if (grown)
			o->events = grown;
		index = (uint32_t)o->event_count;
		if (!grown || map_set(&o->index, id, index) != TRZ_OK)
			return trz_fail(TRZ_ERROR_HOST_MEMORY, "no memory for %u events of the trace", index + 1);
		o->events[o->event_count++] = (struct order_event){0};
	}
	*out = &o->events[index];
	return TRZ_OK;
}

static trz_status record(struct replay_order *o, const struct trace_event *e)
{
	const uint64_t *clock = clock_of(o, e->stream);
	struct order_event *event = NULL;
	trz_status status = event_of(o, e->id, &event);
	if (status != TRZ_OK)
		return status;
	uint32_t count = 1;
	for (uint32_t i = 0; i < o->streams; i++)
		count += clock[i] != 0 && i != e->stream;
	struct order_entry *entries = realloc(event->entries, count * sizeof *entries);
	if (!entries)
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "no memory for the clock of an event");
	*event = (struct order_event){.entries = entries, .capture = o->captures[e->stream]};
	entries[event->count++] = (struct order_entry){e->stream, o->now};
	for (uint32_t i = 0; i < o->streams; i++)
		if (clock[i] && i != e->stream)
			entries[event->count++] = (struct order_entry){i, clock[i]};
	return TRZ_OK;
}

static const struct order_event *find(const struct replay_order *o, uint32_t id)
{
	uint32_t index;
	return map_get(&o->index, id, &index) ? &o->events[index] : NULL;
}

static void enter_capture(struct replay_order *o, uint16_t stream, uint32_t capture)
{
	o->captures[stream] = capture;
	memset(clock_of(o, stream), 0, o->streams * sizeof *o->inner);
}

/* A stream that waits for a capture's event joins the capture. */
static void wait(struct replay_order *o, const struct trace_event *e)
{
	const struct order_event *event = find(o, e->id);
	if (!event)
		return;
	if (event->capture && !o->captures[e->stream])
		enter_capture(o, e->stream, event->capture);
	if (event->capture != o->captures[e->stream])
		return;
	for (uint32_t i = 0; i < event->count; i++)
		learn(clock_of(o, e->stream), event->entries[i].stream, event->entries[i].ticket);
}

static void end_capture(struct replay_order *o, uint32_t capture)
{
	for (uint32_t i = 0; i < o->streams; i++)
		if (o->captures[i] == capture)
			o->captures[i] = 0;
}

/* ---- the host, and the default stream ---- */

static void pass_stream(struct replay_order *o, uint16_t stream)
{
	const uint64_t *clock = o->known + (size_t)stream * o->streams;
	for (uint32_t i = 0; i < o->streams; i++)
		learn(o->passed, i, clock[i]);
	learn(o->passed, stream, o->now);
}

static void pass_event(struct replay_order *o, uint32_t id)
{
	const struct order_event *event = find(o, id);
	if (!event || event->capture)
		return;
	for (uint32_t i = 0; i < event->count; i++)
		learn(o->passed, event->entries[i].stream, event->entries[i].ticket);
}

/* What `stream` is given from now on follows all that `of` has been given so far. */
static void follow(struct replay_order *o, uint32_t stream, uint32_t of)
{
	uint64_t *clock = o->known + (size_t)stream * o->streams;
	const uint64_t *other = o->known + (size_t)of * o->streams;
	for (uint32_t i = 0; i < o->streams; i++)
		learn(clock, i, other[i]);
	learn(clock, of, o->now);
}

/* Work on the default stream follows what the blocking streams were given before, and their later work follows it. */
static void default_work(struct replay_order *o)
{
	for (uint32_t i = 1; i < o->streams; i++)
		if (o->blocking[i])
			follow(o, 0, i);
	for (uint32_t i = 1; i < o->streams; i++)
		if (o->blocking[i])
			follow(o, i, 0);
}

trz_status order_step(struct replay_order *o, const struct trace_event *e)
{
	o->now++;
	switch ((enum trace_kind)e->kind) {
	case TRACE_EVENT_RECORD:
		return record(o, e);
	case TRACE_STREAM_WAIT:
		wait(o, e);
		break;
	case TRACE_CAPTURE_BEGIN:
		enter_capture(o, e->stream, e->id + 1);
		break;
	case TRACE_CAPTURE_END:
		end_capture(o, e->id + 1);
		break;
	case TRACE_STREAM_SYNC:
		pass_stream(o, e->stream);
		break;
	case TRACE_EVENT_SYNC:
		pass_event(o, e->id);
		break;
	case TRACE_DEVICE_SYNC:
		for (uint32_t i = 0; i < o->streams; i++)
			o->passed[i] = o->now;
		break;
	case TRACE_STREAM_BLOCKING:
		o->blocking[e->stream] = true;
		break;
	case TRACE_DEFAULT_WORK:
		default_work(o);
		break;
	default:
		break;
	}
	return TRZ_OK;
}

/* ---- questions ---- */

bool order_has_passed(const struct replay_order *o, uint16_t of, uint64_t ticket)
{
	return ticket <= o->passed[of] || o->now - ticket > o->lag;
}

bool order_follows(const struct replay_order *o, uint16_t stream, uint16_t of, uint64_t ticket)
{
	bool ordered = stream == of || ticket <= clock_of(o, stream)[of];
	return ordered || (!o->captures[stream] && order_has_passed(o, of, ticket));
}
