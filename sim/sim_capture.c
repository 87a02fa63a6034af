/* SPDX-License-Identifier: Apache-2.0
 *
 * Stream captures: which streams belong to one, what they collect, what a capture forbids, and what invalidates it.
 *
 * Each captured stream is a lane. A stream that waits for an event of a capture joins it, and the wait becomes a
 * node of its lane: so the lanes' orders and these waits are all the edges that the graph has.
 */
#include "sim_machine.h"

#include <stdlib.h>

#include "bits.h"

static struct sim_capture *find(const sim *s, uint64_t id)
{
	struct sim_capture *c;
	LIST_FOREACH(c, &s->captures, link)
		if (c->id == id)
			break;
	return c;
}

void sim_capture_invalidate(struct sim_capture *c)
{
	c->invalidated = true;
}

void sim_capture_detach(struct sim_capture *c)
{
	for (unsigned i = 0; i < c->lane_count; i++)
		c->lane[i].stream->capture = NULL;
	LIST_REMOVE(c, link);
}

void sim_capture_free(struct sim_capture *c)
{
	for (unsigned i = 0; i < c->lane_count; i++) {
		for (uint64_t n = 0; n < c->lane[i].count; n++)
			sim_work_drop(&c->lane[i].nodes[n]);
		free(c->lane[i].nodes);
	}
	free(c->place);
	free(c);
}

/* A lane of the capture whose stream is of the context or, if that is NULL, of the device; `blocking`: a blocking
 * stream. NULL: none. */
static const struct sim_lane *lane_on(const struct sim_capture *c, int device, const struct sim_context *context,
                                      bool blocking)
{
	for (unsigned i = 0; i < c->lane_count; i++) {
		const struct sim_stream *st = c->lane[i].stream;
		bool here = context ? st->context == context : st->context->device == device;
		if (here && (st->blocking || !blocking))
			return &c->lane[i];
	}
	return NULL;
}

void sim_captures_forget(sim *s, int device, const struct sim_context *context)
{
	struct sim_capture *c, *next;
	for (c = LIST_FIRST(&s->captures); c; c = next) {
		next = LIST_NEXT(c, link);
		if (!lane_on(c, device, context, false))
			continue;
		sim_capture_detach(c);
		sim_capture_free(c);
	}
}

/* ---- what is forbidden ---------------------------------------------------------------------------------- */

/* Both the capture's mode and the thread's own decide; if either is relaxed, everything is allowed. */
static bool forbids(const struct sim_capture *c, const struct sim_thread *t)
{
	if (c->mode == TRZ_CAPTURE_RELAXED || t->capture_mode == TRZ_CAPTURE_RELAXED)
		return false;
	return c->thread == t->number ||
	       (c->mode == TRZ_CAPTURE_GLOBAL && t->capture_mode == TRZ_CAPTURE_GLOBAL);
}

/* Invalidates the captures that forbid the thread a call; CAPTURE: there is one. */
static trz_status refuse_unsafe(sim *s, const struct sim_thread *t, const char *name)
{
	const struct sim_capture *hit = NULL;
	struct sim_capture *c;
	LIST_FOREACH(c, &s->captures, link)
		if (forbids(c, t)) {
			sim_capture_invalidate(c);
			hit = c;
		}
	if (!hit)
		return TRZ_OK;
	return sim_misuse(s, TRZ_ERROR_CAPTURE, TRZ_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
	                  "%s while %s captures stream %llu in %s mode, outside the relaxed mode of the thread",
	                  name, hit->thread == t->number ? "the same thread" : "another thread",
	                  (unsigned long long)hit->lane[0].stream->id,
	                  hit->mode == TRZ_CAPTURE_GLOBAL ? "global" : "thread-local");
}

trz_status sim_capture_guard(sim *s, const struct sim_thread *t, sim_slot slot)
{
	const uint64_t created = 1ull << SIM_SLOT_create | 1ull << SIM_SLOT_release | 1ull << SIM_SLOT_map |
	                         1ull << SIM_SLOT_unmap | 1ull << SIM_SLOT_set_access;
	const uint64_t plain = 1ull << SIM_SLOT_mem_alloc | 1ull << SIM_SLOT_mem_free | 1ull << SIM_SLOT_event_query |
	                       1ull << SIM_SLOT_event_sync;
	bool unsafe = (created >> slot & 1 && sim_enforces(s, SIM_RULE_CREATE_IN_CAPTURE)) ||
	              (plain >> slot & 1 && sim_enforces(s, SIM_RULE_PLAIN_IN_CAPTURE));
	return unsafe ? refuse_unsafe(s, t, sim_slot_name(slot)) : TRZ_OK;
}

trz_status sim_capture_check(sim *s, const char *call_name)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	if (sim_enforces(s, SIM_RULE_PLAIN_IN_CAPTURE))
		call.status = refuse_unsafe(s, call.thread, call_name);
	return sim_leave(&call);
}

bool sim_is_captured(sim *s, int device)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	const struct sim_capture *c;
	bool captured = false;
	LIST_FOREACH(c, &s->captures, link)
		captured |= lane_on(c, device, NULL, false) != NULL;
	sim_leave(&call);
	return captured;
}

/* Invalidates the captures that a context's streams, or its blocking ones, are part of; returns one of those lanes,
 * NULL: there is none. */
static const struct sim_lane *break_captures(sim *s, const struct sim_context *context, bool blocking)
{
	const struct sim_lane *hit = NULL;
	struct sim_capture *c;
	LIST_FOREACH(c, &s->captures, link) {
		const struct sim_lane *lane = lane_on(c, 0, context, blocking);
		if (!lane)
			continue;
		sim_capture_invalidate(c);
		hit = lane;
	}
	return hit;
}

trz_status sim_capture_touch(sim *s, const struct sim_stream *st)
{
	if (st->capture && st->capture->invalidated)
		return sim_answer(s, TRZ_ERROR_CAPTURE, TRZ_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
		                  "the capture of stream %llu has been invalidated", (unsigned long long)st->id);
	if (st != st->context->legacy)
		return TRZ_OK;
	const struct sim_lane *hit = break_captures(s, st->context, true);
	if (!hit)
		return TRZ_OK;
	return sim_misuse(s, TRZ_ERROR_CAPTURE, TRZ_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
	                  "use of the legacy stream while blocking stream %llu of its context is captured",
	                   (unsigned long long)hit->stream->id);
}

trz_status sim_capture_question(sim *s, const struct sim_stream *st)
{
	if (!st->capture || st->capture->invalidated)
		return sim_capture_touch(s, st);
	sim_capture_invalidate(st->capture);
	return sim_misuse(s, TRZ_ERROR_CAPTURE, TRZ_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
	                  "a question about stream %llu, which is captured, that ends the capture in any mode",
	                  (unsigned long long)st->id);
}

trz_status sim_capture_sync(sim *s, int device, const struct sim_stream *st)
{
	if (st && !st->capture)
		return sim_capture_touch(s, st);
	const struct sim_capture *hit = NULL;
	struct sim_capture *c;
	LIST_FOREACH(c, &s->captures, link)
		if (st ? st->capture == c : lane_on(c, device, NULL, false) != NULL) {
			sim_capture_invalidate(c);
			hit = c;
		}
	if (!hit)
		return TRZ_OK;
	return sim_misuse(s, TRZ_ERROR_CAPTURE, TRZ_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
	                  "the host waits for a %s while stream %llu is captured",
	                   st ? "stream" : "device", (unsigned long long)hit->lane[0].stream->id);
}

trz_status sim_capture_record_all(sim *s, const struct sim_context *context)
{
	const struct sim_lane *hit = break_captures(s, context, false);
	if (!hit)
		return TRZ_OK;
	return sim_misuse(s, TRZ_ERROR_CAPTURE, TRZ_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
	                  "record of an event of a context of which stream %llu is captured",
	                   (unsigned long long)hit->stream->id);
}

trz_status sim_capture_status(sim *s, const struct sim_stream *st, trz_capture_status *status, uint64_t *id)
{
	const struct sim_capture *c;
	if (st == st->context->legacy)
		LIST_FOREACH(c, &s->captures, link)
			if (lane_on(c, 0, st->context, true))
				return sim_answer(s, TRZ_ERROR_CAPTURE, TRZ_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
				                  "the legacy stream cannot be asked while a blocking stream of its "
				                  "context is captured");
	c = st->capture;
	bool active = c && !c->invalidated;
	*status = active ? TRZ_CAPTURE_ACTIVE : c ? TRZ_CAPTURE_INVALIDATED : TRZ_CAPTURE_NONE;
	*id = active ? c->id : 0;
	return TRZ_OK;
}

trz_status sim_capture_info(sim *s, trz_context context, trz_stream stream, trz_capture_status *status, uint64_t *id)
{
	struct sim_call call = sim_enter(s, SIM_SLOT_stream_capture);
	struct sim_stream *st = NULL;
	if (call.status == TRZ_OK)
		call.status = sim_stream_find_any(s, context, stream, &st);
	if (call.status == TRZ_OK && st == st->context->legacy && sim_enforces(s, SIM_RULE_INFO_OF_LEGACY))
		call.status = sim_capture_touch(s, st);
	if (call.status == TRZ_OK)
		call.status = sim_capture_status(s, st, status, id);
	return sim_leave(&call);
}

uint64_t sim_capture_of(sim *s, trz_context context, trz_stream stream)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	struct sim_stream *st = NULL;
	call.status = sim_stream_find_any(s, context, stream, &st);
	uint64_t id = call.status == TRZ_OK && st->capture ? st->capture->id : 0;
	sim_leave(&call);
	return id;
}

/* ---- what is collected ---------------------------------------------------------------------------------- */

static trz_status join(sim *s, struct sim_capture *c, struct sim_stream *st)
{
	if (c->lane_count == SIM_MAX_LANES)
		return sim_refuse(s, TRZ_ERROR_DRIVER, "a simulated capture takes %d streams at most", SIM_MAX_LANES);
	st->capture = c;
	st->lane = c->lane_count;
	c->lane[c->lane_count++] = (struct sim_lane){.stream = st};
	return TRZ_OK;
}

/* Room for one more node; false: the host has no memory. */
static bool make_room(struct sim_capture *c, struct sim_lane *lane)
{
	if (lane->count == lane->room) {
		uint64_t room = lane->room ? lane->room * 2 : 16;
		struct sim_work *nodes = realloc(lane->nodes, room * sizeof *nodes);
		if (!nodes)
			return false;
		lane->nodes = nodes;
		lane->room = room;
	}
	if (c->count == c->room) {
		uint64_t room = c->room ? c->room * 2 : 16;
		struct sim_node_place *place = realloc(c->place, room * sizeof *place);
		if (!place)
			return false;
		c->place = place;
		c->room = room;
	}
	return true;
}

static trz_status add_node(sim *s, struct sim_capture *c, unsigned lane_index, struct sim_work work)
{
	struct sim_lane *lane = &c->lane[lane_index];
	if (!make_room(c, lane)) {
		sim_work_drop(&work);
		return sim_refuse(s, TRZ_ERROR_DRIVER, "no host memory for a node of a graph");
	}
	work.generation = s->generation;
	work.order = c->count;
	c->place[c->count++] = (struct sim_node_place){lane_index, lane->count};
	lane->nodes[lane->count++] = work;
	return TRZ_OK;
}

trz_status sim_capture_node(sim *s, struct sim_stream *st, struct sim_work work)
{
	return add_node(s, st->capture, st->lane, work);
}

void sim_capture_record(struct sim_stream *st, struct sim_event *e)
{
	struct sim_lane *lane = &st->capture->lane[st->lane];
	e->stream = NULL;
	e->capture = st->capture->id;
	e->lane = st->lane;
	e->sequence = lane->count;
}

trz_status sim_capture_await(sim *s, struct sim_stream *st, const struct sim_event *e)
{
	struct sim_capture *into = st->capture, *from = find(s, e->capture);
	if (!e->capture && !e->stream)
		return TRZ_OK;
	if (!from || (into && into != from) || st == st->context->legacy) {
		if (into)
			sim_capture_invalidate(into);
		if (from)
			sim_capture_invalidate(from);
		int result = into ? from ? TRZ_CUDA_ERROR_STREAM_CAPTURE_MERGE : TRZ_CUDA_ERROR_STREAM_CAPTURE_ISOLATION
		                  : from ? TRZ_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : TRZ_CUDA_ERROR_CAPTURED_EVENT;
		return sim_misuse(s, TRZ_ERROR_CAPTURE, result,
		                  "wait of stream %llu for event %p across the border of a capture",
		                  (unsigned long long)st->id, (void *)e->value);
	}
	if (from->invalidated)
		return sim_answer(s, TRZ_ERROR_CAPTURE, TRZ_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
		                  "the capture of event %p has been invalidated", (void *)e->value);
	trz_status status = into ? TRZ_OK : join(s, from, st);
	if (status != TRZ_OK)
		return status;
	if (e->lane == st->lane)
		return TRZ_OK;
	struct sim_work wait = {.kind = SIM_WORK_WAIT, .tag = e->lane, .sequence = e->sequence};
	return add_node(s, from, st->lane, wait);
}

trz_status sim_capture_follow(sim *s, trz_context context, trz_stream stream, const size_t *after, size_t count,
                              size_t *node)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	struct sim_stream *st = NULL;
	call.status = sim_stream_find_any(s, context, stream, &st);
	struct sim_capture *c = call.status == TRZ_OK ? st->capture : NULL;
	if (call.status == TRZ_OK && !c)
		call.status = sim_misuse(s, TRZ_ERROR_INVALID_ARGUMENT, TRZ_CUDA_ERROR_ILLEGAL_STATE,
		                         "stream %llu is not captured", (unsigned long long)st->id);
	for (size_t i = 0; c && i < count && call.status == TRZ_OK; i++) {
		if (after[i] >= c->count)
			call.status = sim_refuse(s, TRZ_ERROR_INVALID_ARGUMENT, "the capture has no node %zu", after[i]);
		else if (c->place[after[i]].lane != st->lane)
			call.status = add_node(s, c, st->lane, (struct sim_work){
				.kind = SIM_WORK_WAIT, .tag = c->place[after[i]].lane, .sequence = c->place[after[i]].at + 1,
			});
	}
	if (c && node && call.status == TRZ_OK) {
		*node = c->count;
		call.status = sim_capture_node(s, st, (struct sim_work){.kind = SIM_WORK_TOUCH});
	}
	return sim_leave(&call);
}

static trz_status copy_node(sim *s, struct sim_stream *st, sim_graph graph, size_t node)
{
	const struct sim_capture *g = sim_registry_get(&s->graphs, graph);
	if (!st->capture || !g || node >= g->count)
		return sim_refuse(s, TRZ_ERROR_INVALID_ARGUMENT, "no node %zu to be copied into a capture", node);
	struct sim_work work = g->lane[g->place[node].lane].nodes[g->place[node].at];
	if (work.kind == SIM_WORK_MEET)
		return sim_refuse(s, TRZ_ERROR_NOT_SUPPORTED, "a collective of a graph cannot be copied into another");
	if (work.touched)
		work.touched->references++;
	uint64_t generation = work.generation;
	trz_status status = sim_capture_node(s, st, work);
	struct sim_lane *lane = &st->capture->lane[st->lane];
	if (status == TRZ_OK)
		lane->nodes[lane->count - 1].generation = generation;
	return status;
}

trz_status sim_capture_copy(sim *s, trz_context context, trz_stream stream, sim_graph graph, size_t node)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	struct sim_stream *st = NULL;
	call.status = sim_stream_find_any(s, context, stream, &st);
	if (call.status == TRZ_OK)
		call.status = copy_node(s, st, graph, node);
	return sim_leave(&call);
}

static trz_status add_external(sim *s, trz_context context, trz_event event, trz_stream stream,
                               enum sim_work_kind kind)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	struct sim_event *e = NULL;
	struct sim_stream *st = NULL;
	call.status = sim_event_find(s, context, event, &e);
	if (call.status == TRZ_OK)
		call.status = sim_stream_find_any(s, context, stream, &st);
	if (call.status == TRZ_OK)
		call.status = sim_capture_touch(s, st);
	if (call.status == TRZ_OK && !st->capture)
		call.status = sim_misuse(s, TRZ_ERROR_INVALID_ARGUMENT, 0, "external use of event %p outside captures", event);
	else if (call.status == TRZ_OK && kind == SIM_WORK_MARK && e->context != st->context)
		call.status = sim_misuse(s, TRZ_ERROR_INVALID_ARGUMENT, TRZ_CUDA_ERROR_INVALID_HANDLE,
		                         "event %p recorded on a stream of another context", event);
	if (call.status == TRZ_OK) {
		struct sim_work node = {.kind = kind, .address = e->value, .from = e->number};
		call.status = sim_capture_node(s, st, node);
	}
	return sim_leave(&call);
}

trz_status sim_event_record_external(sim *s, trz_context context, trz_event event, trz_stream stream)
{
	return add_external(s, context, event, stream, SIM_WORK_MARK);
}

trz_status sim_stream_wait_external(sim *s, trz_context context, trz_stream stream, trz_event event)
{
	return add_external(s, context, event, stream, SIM_WORK_AWAIT);
}

trz_status sim_capture_ask(sim *s, const struct sim_event *e)
{
	struct sim_capture *c = find(s, e->capture);
	if (!sim_enforces(s, SIM_RULE_CAPTURED_EVENT))
		return sim_answer(s, TRZ_ERROR_CAPTURE, TRZ_CUDA_ERROR_CAPTURED_EVENT, "event %p was recorded in a capture",
		                  (void *)e->value);
	if (c)
		sim_capture_invalidate(c);
	return sim_misuse(s, TRZ_ERROR_CAPTURE, TRZ_CUDA_ERROR_CAPTURED_EVENT,
	                  "query of or wait for event %p, which was recorded in a capture",
	                   (void *)e->value);
}

/* ---- beginning and end ---------------------------------------------------------------------------------- */

static trz_status begin(sim *s, struct sim_stream *st, trz_capture_mode mode, uint64_t thread)
{
	if (mode > TRZ_CAPTURE_RELAXED)
		return sim_refuse(s, TRZ_ERROR_INVALID_ARGUMENT, "there is no mode %d of captures", (int)mode);
	if (st == st->context->legacy)
		return sim_refuse(s, TRZ_ERROR_CAPTURE, "the legacy stream cannot be captured");
	if (st->capture)
		return sim_misuse(s, TRZ_ERROR_INVALID_ARGUMENT, TRZ_CUDA_ERROR_ILLEGAL_STATE,
		                  "stream %llu is being captured already",
		                   (unsigned long long)st->id);
	struct sim_capture *c = calloc(1, sizeof *c);
	if (!c)
		return sim_refuse(s, TRZ_ERROR_DRIVER, "no host memory for a capture");
	c->id = ++s->capture_ids;
	c->mode = mode;
	c->thread = thread;
	LIST_INSERT_HEAD(&s->captures, c, link);
	return join(s, c, st);
}

trz_status sim_capture_begin(sim *s, trz_context context, trz_stream stream, trz_capture_mode mode)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	struct sim_stream *st = NULL;
	call.status = sim_stream_find(s, context, stream, &st);
	if (call.status == TRZ_OK)
		call.status = begin(s, st, mode, call.thread->number);
	return sim_leave(&call);
}

/* Whether the end of lane 0 comes after every node, found by following the waits back from there. Waits at the end
 * of a lane that nothing follows are dropped: their stream joined but was given nothing since. */
static bool join_back(struct sim_capture *c)
{
	uint64_t covered[SIM_MAX_LANES] = {c->lane[0].count}, seen[SIM_MAX_LANES] = {0};
	for (bool grown = true; grown;) {
		grown = false;
		for (unsigned i = 0; i < c->lane_count; i++)
			for (; seen[i] < covered[i]; seen[i]++) {
				const struct sim_work *w = &c->lane[i].nodes[seen[i]];
				if (w->kind != SIM_WORK_WAIT || covered[w->tag] >= w->sequence)
					continue;
				covered[w->tag] = w->sequence;
				grown = true;
			}
	}
	for (unsigned i = 0; i < c->lane_count; i++) {
		for (uint64_t n = covered[i]; n < c->lane[i].count; n++)
			if (c->lane[i].nodes[n].kind != SIM_WORK_WAIT)
				return false;
		c->lane[i].count = covered[i];
	}
	return true;
}

static trz_status end(sim *s, struct sim_stream *st, uint64_t thread, sim_graph *out)
{
	struct sim_capture *c = st->capture;
	if (!c)
		return sim_misuse(s, TRZ_ERROR_INVALID_ARGUMENT, TRZ_CUDA_ERROR_ILLEGAL_STATE,
		                  "end of a capture of stream %llu, which is not captured",
		                   (unsigned long long)st->id);
	if (c->lane[0].stream != st)
		return sim_misuse(s, TRZ_ERROR_CAPTURE, TRZ_CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
		                  "end of a capture on stream %llu, which only joined it",
		                   (unsigned long long)st->id);
	if (c->mode != TRZ_CAPTURE_RELAXED && c->thread != thread)
		return sim_misuse(s, TRZ_ERROR_CAPTURE, TRZ_CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
		                  "end of a capture in another thread than it began in");
	sim_capture_detach(c);
	trz_status status;
	if (c->invalidated)
		status = sim_answer(s, TRZ_ERROR_CAPTURE, TRZ_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
		                    "the capture has been invalidated");
	else if (!join_back(c))
		status = sim_misuse(s, TRZ_ERROR_CAPTURE, TRZ_CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
		                    "end of a capture before a stream that joined it joined back");
	else
		status = sim_graph_new(s, c, out);
	if (status != TRZ_OK)
		sim_capture_free(c);
	return status;
}

trz_status sim_capture_end(sim *s, trz_context context, trz_stream stream, sim_graph *out)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	struct sim_stream *st = NULL;
	call.status = sim_stream_find(s, context, stream, &st);
	if (call.status == TRZ_OK)
		call.status = end(s, st, call.thread->number, out);
	return sim_leave(&call);
}
