/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams and events: their handles, the queues, default streams, and the work that an event covers.
 *
 * An event is a place in a stream's queue, so a record costs no item and an event may be destroyed at any
 * time. Wait items order the legacy default stream and the blocking streams of its context: one is inserted when a
 * stream gets work while the other has some left.
 */
#include "sim_machine.h"

#include <stdlib.h>

/* ---- queues --------------------------------------------------------------------------------------- */

static bool grow_ring(struct sim_stream *st)
{
	uint64_t room = st->room ? st->room * 2 : 16;
	struct sim_work *items = malloc(room * sizeof *items);
	if (!items)
		return false;
	for (uint64_t n = st->completed; n < st->enqueued; n++)
		items[n & (room - 1)] = st->items[n & (st->room - 1)];
	free(st->items);
	st->items = items;
	st->room = room;
	return true;
}

static bool activate(sim *s, struct sim_stream *st)
{
	if (s->active_count == s->active_room) {
		size_t room = s->active_room ? s->active_room * 2 : 16;
		struct sim_stream **active = realloc(s->active, room * sizeof *active);
		if (!active)
			return false;
		s->active = active;
		s->active_room = room;
	}
	st->active_index = s->active_count;
	s->active[s->active_count++] = st;
	return true;
}

/* The default stream and blocking ones need no wait for each other's completed work, but start after it in virtual
 * time. */
static uint64_t time_of_default(const struct sim_stream *st)
{
	const struct sim_stream *legacy = st->context->legacy;
	return st == legacy ? st->context->blocking_ns : legacy && st->blocking ? legacy->now_ns : 0;
}

trz_status sim_push(sim *s, struct sim_stream *st, struct sim_work work)
{
	bool idle = st->enqueued == st->completed;
	if ((st->enqueued - st->completed == st->room && !grow_ring(st)) || (idle && !activate(s, st))) {
		sim_work_drop(&work);
		return sim_refuse(s, TRZ_ERROR_DRIVER, "no host memory for an item of work");
	}
	work.tick = s->tick;
	work.issued_ns = max_u64(sim_now_ns(s), time_of_default(st));
	work.order = st->last_order = s->order++;
	if (!work.generation)  /* a graph's node has its capture's */
		work.generation = s->generation;
	st->items[st->enqueued++ & (st->room - 1)] = work;
	s->unfinished++;
	return TRZ_OK;
}

trz_status sim_push_wait(sim *s, struct sim_stream *st, struct sim_stream *other, uint64_t sequence)
{
	struct sim_work wait = {.kind = SIM_WORK_WAIT, .other = other, .sequence = sequence};
	return sim_push(s, st, wait);
}

/* Orders `st`'s next work after what the other kind of stream has been given so far. */
static trz_status join_default(sim *s, struct sim_stream *st)
{
	struct sim_stream *legacy = st->context->legacy;
	trz_status status = TRZ_OK;
	if (!legacy)
		return TRZ_OK;
	if (st != legacy) {
		if (!st->blocking || legacy->enqueued <= st->seen_legacy || sim_passed(legacy, legacy->enqueued))
			return TRZ_OK;
		st->seen_legacy = legacy->enqueued;
		return sim_push_wait(s, st, legacy, legacy->enqueued);
	}
	for (size_t i = 0; i < s->active_count; i++) {
		struct sim_stream *other = s->active[i];
		bool known = other->context != st->context || other->seen_by_legacy == other->enqueued;
		if (!other->blocking || other == legacy || known)
			continue;
		other->seen_by_legacy = other->enqueued;
		status = sim_push_wait(s, st, other, other->enqueued);
		if (status != TRZ_OK)
			break;
	}
	return status;
}

trz_status sim_stream_prepare(sim *s, struct sim_stream *st)
{
	trz_status status = LIST_EMPTY(&s->captures) ? TRZ_OK : sim_capture_touch(s, st);
	return status == TRZ_OK && !st->capture ? join_default(s, st) : status;
}

trz_status sim_enqueue(sim *s, struct sim_stream *st, struct sim_work work)
{
	trz_status status = sim_stream_prepare(s, st);
	if (status != TRZ_OK) {
		sim_work_drop(&work);
		return status;
	}
	if (st->capture)
		return sim_capture_node(s, st, work);
	work.sequence = st->settled;
	return sim_push(s, st, work);
}

/* ---- streams -------------------------------------------------------------------------------------- */

struct sim_stream *sim_stream_new(sim *s, struct sim_context *c, bool blocking, uint64_t thread)
{
	struct sim_stream *st = calloc(1, sizeof *st);
	if (!st) {
		sim_refuse(s, TRZ_ERROR_DRIVER, "no host memory for a stream");
		return NULL;
	}
	st->context = c;
	st->id = ++s->stream_ids;
	st->thread = thread;
	st->blocking = blocking;
	LIST_INSERT_HEAD(&s->all_streams, st, link);
	LIST_INSERT_HEAD(&c->streams, st, in_context);
	return st;
}

static struct sim_stream *thread_stream(sim *s, struct sim_context *c)
{
	uint64_t thread = sim_thread_here(s)->number;
	struct sim_stream *st;
	LIST_FOREACH(st, &c->streams, in_context)
		if (st->thread == thread)
			return st;
	return sim_stream_new(s, c, true, thread);
}

static struct sim_stream *legacy_stream(sim *s, struct sim_context *c)
{
	if (!c->legacy)
		c->legacy = sim_stream_new(s, c, false, 0);
	return c->legacy;
}

trz_status sim_stream_find_any(sim *s, trz_context context, trz_stream stream, struct sim_stream **out)
{
	struct sim_context *c = NULL;
	trz_status status = sim_context_find(s, context, &c);
	if (status != TRZ_OK)
		return status;
	uint64_t value = (uint64_t)stream;
	if (value <= 2) {
		*out = value == 2 ? thread_stream(s, c) : legacy_stream(s, c);
		return *out ? TRZ_OK : TRZ_ERROR_DRIVER;
	}
	*out = sim_registry_get(&s->streams, value);
	if (!*out)
		return sim_violate(s, TRZ_ERROR_INVALID_ARGUMENT, "use of stream %p, which is dead or was never made",
		                   stream);
	return sim_device_check(s, (*out)->context->device);
}

trz_status sim_stream_find(sim *s, trz_context context, trz_stream stream, struct sim_stream **out)
{
	trz_status status = sim_stream_find_any(s, context, stream, out);
	if (status == TRZ_OK && (*out)->context->value != (uint64_t)context)
		return sim_misuse(s, TRZ_ERROR_INVALID_ARGUMENT, TRZ_CUDA_ERROR_INVALID_HANDLE,
		                  "use of stream %p of context %p with context %p",
		                   stream, (void *)(*out)->context->value, context);
	return status;
}

trz_status sim_stream_create(sim *s, trz_context context, bool blocking, trz_stream *out)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	struct sim_context *c = NULL;
	call.status = sim_context_find(s, context, &c);
	struct sim_stream *st = call.status == TRZ_OK ? sim_stream_new(s, c, blocking, 0) : NULL;
	if (st) {
		st->value = sim_registry_add(&s->streams, st);
		*out = (trz_stream)st->value;
	}
	if (call.status == TRZ_OK && (!st || !st->value))
		call.status = sim_refuse(s, TRZ_ERROR_DRIVER, "no host memory for a stream");
	return sim_leave(&call);
}

static void free_queue(struct sim_stream *st)
{
	for (uint64_t n = st->completed; n < st->enqueued; n++)
		sim_work_drop(&st->items[n & (st->room - 1)]);
	free(st->items);
	free(st->residents);
	st->items = NULL;
	st->residents = NULL;
	st->room = st->resident_room = st->resident_count = 0;
}

/* Events and waits may still point to the stream: it is freed with the machine. */
static void leave(sim *s, struct sim_stream *st)
{
	LIST_REMOVE(st, in_context);
	LIST_REMOVE(st, link);
	LIST_INSERT_HEAD(&s->dead_streams, st, link);
	free_queue(st);
}

/* Looks for a context's ended streams that have become idle, but only when as many have ended since as it must look
 * at. */
static void leave_late(sim *s, struct sim_context *c)
{
	if (++c->ended_since < c->look_after)
		return;
	struct sim_stream *st, *next;
	c->ended_since = 0;
	c->look_after = 16;
	for (st = LIST_FIRST(&c->streams); st; st = next, c->look_after++) {
		next = LIST_NEXT(st, in_context);
		if (st->ended && sim_passed(st, st->enqueued))
			leave(s, st);
	}
}

/* A busy stream stays in its context's list, since the legacy stream has to wait for it. */
void sim_stream_retire(sim *s, struct sim_stream *st)
{
	if (st->value)
		sim_registry_remove(&s->streams, st->value);
	st->value = 0;
	st->ended = true;
	if (sim_passed(st, st->enqueued))
		leave(s, st);
	else
		leave_late(s, st->context);
}

trz_status sim_stream_destroy(sim *s, trz_context context, trz_stream stream)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	struct sim_stream *st = NULL;
	call.status = sim_stream_find(s, context, stream, &st);
	if (call.status == TRZ_OK && (uint64_t)stream <= 2)
		call.status = sim_misuse(s, TRZ_ERROR_INVALID_ARGUMENT, TRZ_CUDA_ERROR_INVALID_HANDLE,
		                         "end of a default stream");
	/* A stream that only joined a capture may end: what it was given stays in the capture. */
	if (call.status == TRZ_OK && st->capture && st->capture->lane[0].stream == st) {
		sim_capture_invalidate(st->capture);
		call.status = sim_misuse(s, TRZ_ERROR_CAPTURE, TRZ_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
		                         "end of stream %p, which is being captured", stream);
	}
	if (call.status == TRZ_OK)
		sim_stream_retire(s, st);
	return sim_leave(&call);
}

/* Forgets what is queued, as if it had completed. */
static void forget_queue(sim *s, struct sim_stream *st)
{
	while (!sim_passed(st, st->enqueued))
		sim_complete(s, st);
}

void sim_streams_forget(sim *s, int device)
{
	for (size_t i = s->active_count; i-- > 0;)
		if (s->active[i]->context->device == device)
			forget_queue(s, s->active[i]);
}

void sim_streams_end_context(sim *s, struct sim_context *c)
{
	struct sim_stream *st;
	LIST_FOREACH(st, &c->streams, in_context)
		sim_block(s, st, st->enqueued);
	sim_captures_forget(s, c->device, c);
	sim_graphs_end(s, c);
	while ((st = LIST_FIRST(&c->streams))) {
		forget_queue(s, st);
		sim_stream_retire(s, st);
	}
	for (uint32_t i = 0; i < s->events.count; i++) {
		struct sim_event *e = s->events.objects[i];
		if (!e || e->context != c)
			continue;
		sim_registry_remove(&s->events, e->value);
		s->live_events--;
		free(e);
	}
}

void sim_streams_close(sim *s)
{
	struct sim_stream *st;
	while ((st = LIST_FIRST(&s->all_streams)) || (st = LIST_FIRST(&s->dead_streams))) {
		LIST_REMOVE(st, link);
		free_queue(st);
		free(st->known);  /* kept until now: events of a dead stream still use it */
		free(st);
	}
	for (uint32_t i = 0; i < s->events.count; i++)
		free(s->events.objects[i]);
	sim_registry_free(&s->events);
	sim_registry_free(&s->streams);
	free(s->active);
}

/* ---- events --------------------------------------------------------------------------------------- */

trz_status sim_event_new(sim *s, trz_context context, trz_event *out)
{
	struct sim_context *c = NULL;
	trz_status status = sim_context_find(s, context, &c);
	if (status != TRZ_OK)
		return status;
	struct sim_event *e = calloc(1, sizeof *e);
	if (!e || !(e->value = sim_registry_add(&s->events, e))) {
		free(e);
		return sim_refuse(s, TRZ_ERROR_DRIVER, "no host memory for an event");
	}
	e->context = c;
	e->number = ++s->event_numbers;
	s->live_events++;
	*out = (trz_event)e->value;
	return TRZ_OK;
}

trz_status sim_event_find(sim *s, trz_context context, trz_event event, struct sim_event **out)
{
	struct sim_context *c = NULL;
	trz_status status = sim_context_find(s, context, &c);
	if (status != TRZ_OK)
		return status;
	struct sim_event *e = sim_registry_get(&s->events, (uint64_t)event);
	if (!e)
		return sim_violate(s, TRZ_ERROR_INVALID_ARGUMENT, "use of event %p, which is dead or was never made",
		                   event);
	*out = e;
	return sim_device_check(s, e->context->device);
}

trz_status sim_event_end(sim *s, trz_context context, trz_event event)
{
	struct sim_event *e = NULL;
	trz_status status = sim_event_find(s, context, event, &e);
	if (status != TRZ_OK)
		return status;
	sim_registry_remove(&s->events, (uint64_t)event);
	s->live_events--;
	free(e);
	return TRZ_OK;
}

struct sim_event *sim_event_of(const sim *s, const struct sim_work *node)
{
	struct sim_event *e = sim_registry_get(&s->events, node->address);
	return e && e->number == node->from ? e : NULL;
}

trz_status sim_event_place(sim *s, struct sim_event *e, struct sim_stream *st)
{
	struct sim_work mark = {.kind = SIM_WORK_MARK, .address = e->value, .from = e->number, .tag = ++e->records};
	e->marked = false;
	trz_status status = sim_push(s, st, mark);
	if (status != TRZ_OK)
		return status;
	e->stream = st;
	e->sequence = st->enqueued;
	e->capture = 0;
	return TRZ_OK;
}

/* An event that keeps no time only needs a place in the queue. */
static trz_status record(sim *s, struct sim_event *e, struct sim_stream *st)
{
	if (e->timed)
		return sim_event_place(s, e, st);
	e->stream = st;
	e->sequence = st->enqueued;
	e->capture = 0;
	return TRZ_OK;
}

trz_status sim_event_mark(sim *s, trz_context context, trz_event event, trz_stream stream)
{
	struct sim_event *e = NULL;
	struct sim_stream *st = NULL;
	trz_status status = sim_event_find(s, context, event, &e);
	if (status == TRZ_OK)
		status = sim_stream_find_any(s, context, stream, &st);
	if (status == TRZ_OK && e->context != st->context)
		return sim_answer(s, TRZ_ERROR_INVALID_ARGUMENT, TRZ_CUDA_ERROR_INVALID_HANDLE,
		                  "event %p of context %p recorded on stream %p of context %p", event,
		                  (void *)e->context->value, stream, (void *)st->context->value);
	if (status == TRZ_OK)
		status = sim_stream_prepare(s, st);
	if (status != TRZ_OK)
		return status;
	if (st->capture) {
		sim_capture_record(st, e);
		return TRZ_OK;
	}
	return record(s, e, st);
}

/* The event's place is in the collector's queue, after a wait for each stream that has work left, including graphs'
 * runners and streams whose handles are dead. */
trz_status sim_event_mark_all(sim *s, trz_context context, trz_event event)
{
	struct sim_event *e = NULL;
	struct sim_stream *st;
	trz_status status = sim_event_find(s, context, event, &e);
	if (status == TRZ_OK && e->context->value != (uint64_t)context)
		return sim_answer(s, TRZ_ERROR_INVALID_ARGUMENT, TRZ_CUDA_ERROR_INVALID_HANDLE,
		                  "event %p of context %p recorded for context %p", event, (void *)e->context->value, context);
	if (status == TRZ_OK)
		status = sim_capture_record_all(s, e->context);
	if (status != TRZ_OK)
		return status;
	struct sim_context *c = e->context;
	if (!c->collector)
		c->collector = sim_stream_new(s, c, false, 0);
	if (!c->collector)
		return TRZ_ERROR_DRIVER;
	LIST_FOREACH(st, &c->streams, in_context)
		if (status == TRZ_OK && st != c->collector && !sim_passed(st, st->enqueued))
			status = sim_push_wait(s, c->collector, st, st->enqueued);
	return status == TRZ_OK ? record(s, e, c->collector) : status;
}

trz_status sim_event_create_timed(sim *s, trz_context context, trz_event *out)
{
	struct sim_call call = sim_enter(s, SIM_SLOT_event_create);
	struct sim_event *e = NULL;
	if (call.status == TRZ_OK)
		call.status = sim_event_new(s, context, out);
	if (call.status == TRZ_OK)
		call.status = sim_event_find(s, context, *out, &e);
	if (call.status == TRZ_OK)
		e->timed = true;
	return sim_leave(&call);
}

/* Events of one device may be of two contexts. */
trz_status sim_event_elapsed(sim *s, trz_event from, trz_event to, int64_t *ns)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	struct sim_event *a = sim_registry_get(&s->events, (uint64_t)from);
	struct sim_event *b = sim_registry_get(&s->events, (uint64_t)to);
	bool captured = a && b && (a->capture || b->capture);
	bool timed = a && b && a->timed && b->timed && a->stream && b->stream && a->context->device == b->context->device;
	if (captured)
		call.status = sim_answer(s, TRZ_ERROR_CAPTURE, TRZ_CUDA_ERROR_CAPTURED_EVENT,
		                         "one of the events was recorded in a capture");
	else if (!timed)
		call.status = sim_answer(s, TRZ_ERROR_INVALID_ARGUMENT, TRZ_CUDA_ERROR_INVALID_HANDLE,
		                         "one of the events keeps no time or has no record, or they are of two devices");
	else if (!a->marked || !b->marked)
		call.status = TRZ_NOT_READY;
	else
		*ns = (int64_t)b->time_ns - (int64_t)a->time_ns;
	return sim_leave(&call);
}

uint64_t sim_stream_id(sim *s, trz_context context, trz_stream stream)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	struct sim_stream *st = NULL;
	call.status = sim_stream_find_any(s, context, stream, &st);
	uint64_t id = call.status == TRZ_OK ? st->id : 0;
	sim_leave(&call);
	return id;
}

trz_status sim_stream_ask(sim *s, trz_context context, trz_stream stream)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	struct sim_stream *st = NULL;
	call.status = sim_stream_find(s, context, stream, &st);
	if (call.status == TRZ_OK)
		call.status = sim_capture_question(s, st);
	return sim_leave(&call);
}

trz_status sim_stream_idle(sim *s, trz_context context, trz_stream stream)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	struct sim_stream *st = NULL;
	call.status = sim_stream_find(s, context, stream, &st);
	if (call.status == TRZ_OK)
		call.status = sim_capture_sync(s, st->context->device, st);
	if (call.status == TRZ_OK && !sim_passed(st, st->enqueued)) {
		sim_doze(s, st);
		call.status = TRZ_NOT_READY;
	}
	return sim_leave(&call);
}

/* Work that the host has seen complete is a completion edge for all work enqueued from here on. */
static void note_edge(struct sim_stream *st, uint64_t sequence)
{
	struct sim_context *c = st->context;
	if (st != c->collector)
		sim_overlap_seen(st, sequence);
	else
		LIST_FOREACH(st, &c->streams, in_context)
			sim_overlap_edge(st, st->completed);
}

trz_status sim_event_passed(sim *s, trz_context context, trz_event event)
{
	struct sim_event *e = NULL;
	trz_status status = sim_event_find(s, context, event, &e);
	if (status != TRZ_OK)
		return status;
	if (e->capture)
		return sim_capture_ask(s, e);
	if (!e->stream)
		return TRZ_OK;
	if (!sim_passed(e->stream, e->sequence)) {
		sim_doze(s, e->stream);
		return TRZ_NOT_READY;
	}
	note_edge(e->stream, e->sequence);
	return TRZ_OK;
}

/* Another thread may end the event meanwhile. */
trz_status sim_event_wait(sim *s, trz_context context, trz_event event)
{
	struct sim_event *e = NULL;
	trz_status status = sim_event_find(s, context, event, &e);
	if (status != TRZ_OK)
		return status;
	if (e->capture)
		return sim_capture_ask(s, e);
	struct sim_stream *st = e->stream;
	uint64_t sequence = e->sequence;
	if (!st)
		return TRZ_OK;
	status = sim_block(s, st, sequence);
	if (status == TRZ_OK)
		note_edge(st, sequence);
	return status;
}

trz_status sim_stream_await(sim *s, trz_context context, trz_stream stream, trz_event event)
{
	struct sim_event *e = NULL;
	struct sim_stream *st = NULL;
	trz_status status = sim_event_find(s, context, event, &e);
	if (status == TRZ_OK)
		status = sim_stream_find_any(s, context, stream, &st);
	if (status == TRZ_OK && !LIST_EMPTY(&s->captures))
		status = sim_capture_touch(s, st);
	if (status != TRZ_OK)
		return status;
	if (st->capture || e->capture)
		return sim_capture_await(s, st, e);
	if (!e->stream)
		return TRZ_OK;
	/* Like any action on the legacy stream, it waits for all blocking streams, and their next work waits for it. */
	if (st == st->context->legacy && (status = join_default(s, st)) != TRZ_OK)
		return status;
	if (e->stream == st)
		return TRZ_OK;
	if (!sim_enforces(s, SIM_RULE_WAIT_NO_EDGE))
		sim_overlap_edge(st, st->enqueued);
	if (sim_passed(e->stream, e->sequence)) {
		sim_overlap_waited(st, e->stream, e->sequence);
		if (e->marked)
			st->now_ns = max_u64(st->now_ns, e->time_ns);
		return TRZ_OK;
	}
	return sim_push_wait(s, st, e->stream, e->sequence);
}

/* ---- order ------------------------------------------------------------------------------------------ */

/* Whether one of the stream's first `end` items comes after the first `sequence` items of `of`, which have not all
 * completed: so every wait on the way is still in its queue. */
static bool follows(const sim *s, struct sim_stream *st, uint64_t end, const struct sim_stream *of, uint64_t sequence)
{
	uint64_t from = st->search == s->searches ? max_u64(st->searched, st->completed) : st->completed;
	if (st == of && end >= sequence)
		return true;
	st->search = s->searches;
	st->searched = max_u64(from, end);
	for (uint64_t n = from; n < end; n++) {
		const struct sim_work *w = &st->items[n & (st->room - 1)];
		if (w->kind == SIM_WORK_WAIT && follows(s, w->other, w->sequence, of, sequence))
			return true;
	}
	return false;
}

/* Finds both; false: one does not exist, the stream is captured, or the event has no record outside captures. */
static bool find_pair(sim *s, trz_context context, trz_stream stream, trz_event event, struct sim_stream **st,
                      struct sim_event **e)
{
	*e = sim_registry_get(&s->events, (uint64_t)event);
	return *e && (*e)->stream && sim_stream_find_any(s, context, stream, st) == TRZ_OK && !(*st)->capture;
}

bool sim_event_is_on(sim *s, trz_context context, trz_stream stream, trz_event event)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	struct sim_stream *st = NULL;
	struct sim_event *e = NULL;
	bool on = find_pair(s, context, stream, event, &st, &e) && e->stream == st;
	sim_leave(&call);
	return on;
}

bool sim_stream_follows(sim *s, trz_context context, trz_stream stream, trz_event event)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	struct sim_stream *st = NULL;
	struct sim_event *e = NULL;
	bool found = find_pair(s, context, stream, event, &st, &e) && join_default(s, st) == TRZ_OK;
	s->searches++;
	if (found && sim_passed(e->stream, e->sequence))
		found = e->stream == st || sim_overlap_knows(st, e->stream, e->sequence);
	else if (found)
		found = follows(s, st, st->enqueued, e->stream, e->sequence);
	sim_leave(&call);
	return found;
}
