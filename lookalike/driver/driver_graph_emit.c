/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes nodes into a graph of the simulator: captures them on streams of our own. Each stream takes nodes that follow
 * one another, so that only the edges and the number of streams order them.
 */
#include "driver_graph.h"

#include <stdlib.h>

enum { MOST_LANES = 24 };

struct lane {
	trz_context context;
	void *stream;
	uint64_t newest;             /* the number of the point behind its last item */
	bool borrowed;               /* the stream is the caller's */
};

/* An event recorded on a lane behind an item. */
struct point {
	uint64_t number;
	unsigned lane;
	trz_event event;
};

struct emission {
	struct lane lane[MOST_LANES];
	unsigned lanes, next;        /* `next`: the lane for an item that fits none */
	bool one_lane;
	struct point *points;        /* all points so far */
	size_t count, room;
};

/* ---- lanes and points ------------------------------------------------------------ */

/* Records where a lane is, as a new point; they are numbered from 1. */
static trz_status mark(struct emission *e, unsigned lane, uint64_t *number)
{
	if (e->count == e->room) {
		size_t room = e->room ? e->room * 2 : 64;
		struct point *points = realloc(e->points, room * sizeof *points);
		if (!points)
			return TRZ_ERROR_HOST_MEMORY;
		e->points = points;
		e->room = room;
	}
	const struct lane *l = &e->lane[lane];
	struct point p = {.number = e->count + 1, .lane = lane};
	trz_status status = look.table->event_create(look.table->self, l->context, &p.event);
	if (status != TRZ_OK)
		return status;
	e->points[e->count++] = p;
	*number = e->lane[lane].newest = p.number;
	return look.table->event_record(look.table->self, l->context, p.event, l->stream);
}

static trz_status await(struct emission *e, unsigned lane, uint64_t number)
{
	const struct point *p = &e->points[number - 1];
	if (p->lane == lane)
		return TRZ_OK;
	return look.table->stream_wait(look.table->self, e->lane[lane].context, e->lane[lane].stream, p->event);
}

/* Opens another lane, which joins the capture where that begins. */
static trz_status open_lane(struct emission *e, trz_context context, unsigned *lane)
{
	struct lane *l = &e->lane[e->lanes];
	*l = (struct lane){.context = context};
	trz_status status = sim_stream_create(look.sim, context, false, &l->stream);
	if (status != TRZ_OK)
		return status;
	*lane = e->lanes++;
	return await(e, *lane, 1);
}

/* Chooses the lane for an item that follows the given points: a lane that ends with one of them, a new one, or any. */
static trz_status choose(struct emission *e, trz_context context, const uint64_t *after, size_t count, unsigned *lane)
{
	for (size_t i = 0; i < count; i++) {
		*lane = e->points[after[i] - 1].lane;
		if (e->lane[*lane].context == context && e->lane[*lane].newest == after[i])
			return TRZ_OK;
	}
	bool new = !e->one_lane && e->lanes < MOST_LANES;
	for (unsigned i = 0; !new && i < e->lanes; i++) {
		*lane = e->next++ % e->lanes;
		if (e->lane[*lane].context == context)
			return TRZ_OK;
	}
	return e->lanes < MOST_LANES ? open_lane(e, context, lane) : TRZ_ERROR_NOT_SUPPORTED;
}

/* ---- nodes ------------------------------------------------------------ */

static trz_status emit_list(struct emission *e, struct look_list *list, uint64_t start, trz_context context,
                            uint64_t *end);

/* The body that the condition's default chooses; a loop's runs once, since no kernel ends it. NULL: none. */
static struct look_graph *body_of(const struct cuda_conditional_node *c)
{
	uint64_t value = c->handle >> 1;
	unsigned at = c->type == TRZ_CU_GRAPH_COND_TYPE_SWITCH ? (unsigned)value : value == 0;
	return at < c->size ? c->graphs[at] : NULL;
}

static trz_status emit_inner(struct emission *e, struct look_graph *g, unsigned lane)
{
	uint64_t start, end;
	trz_status status = g && look_graph_settle(g) ? mark(e, lane, &start) : TRZ_OK;
	if (!g || status != TRZ_OK)
		return status;
	status = emit_list(e, &g->list, start, e->lane[lane].context, &end);
	return status == TRZ_OK ? await(e, lane, end) : status;
}

static trz_status status_of(cuda_result result)
{
	return result == TRZ_CUDA_SUCCESS ? TRZ_OK : result == TRZ_CUDA_ERROR_INVALID_VALUE ? TRZ_ERROR_INVALID_ARGUMENT
	                                                                                  : TRZ_ERROR_DRIVER;
}

static trz_status emit(struct emission *e, const struct look_node *n, unsigned lane)
{
	trz_context context = e->lane[lane].context;
	void *stream = e->lane[lane].stream;
	const struct cuda_fill_node *f = &n->is.of.fill;
	if (n->disabled)
		return TRZ_OK;
	if (n->source)
		return sim_capture_copy(look.sim, context, stream, n->source->graph, n->number);
	switch (n->is.type) {
	case TRZ_CU_GRAPH_NODE_TYPE_KERNEL:
		return look_kernel_enqueue(&n->is.of.kernel, context, stream);
	case TRZ_CU_GRAPH_NODE_TYPE_MEMCPY:
		return status_of(look_copy_rows(&n->is.of.copy.copy, true, stream, false));
	case TRZ_CU_GRAPH_NODE_TYPE_MEMSET:
		return status_of(look_fill_rows(f->address, f->pitch, f->value, f->unit, f->width, f->height, stream, false));
	case TRZ_CU_GRAPH_NODE_TYPE_HOST:
		return sim_host(look.sim, context, stream, n->is.of.host.function, n->is.of.host.argument);
	case TRZ_CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return sim_stream_wait_external(look.sim, context, stream, n->is.of.event);
	case TRZ_CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return sim_event_record_external(look.sim, context, n->is.of.event, stream);
	case TRZ_CU_GRAPH_NODE_TYPE_GRAPH:
		return emit_inner(e, n->is.of.child.graph, lane);
	case TRZ_CU_GRAPH_NODE_TYPE_CONDITIONAL:
		return emit_inner(e, body_of(&n->is.of.conditional), lane);
	default:
		return TRZ_OK;
	}
}

/* Emits a node behind all that it follows; `done` has the points behind the earlier nodes. */
static trz_status emit_after(struct emission *e, const struct look_node *n, uint64_t start, trz_context context,
                             uint64_t *done)
{
	unsigned lane = 0;
	uint64_t *after = malloc((n->before_count + 1) * sizeof *after);
	if (!after)
		return TRZ_ERROR_HOST_MEMORY;
	size_t count = n->before_count ? n->before_count : 1;
	after[0] = start;
	for (size_t i = 0; i < n->before_count; i++)
		after[i] = done[n->before[i]->at];
	trz_status status = choose(e, n->context ? n->context : context, after, count, &lane);
	for (size_t i = 0; i < count && status == TRZ_OK; i++)
		status = await(e, lane, after[i]);
	if (status == TRZ_OK)
		status = emit(e, n, lane);
	if (status == TRZ_OK)
		status = mark(e, lane, &done[n->at]);
	free(after);
	return status;
}

/* Makes a lane wait for the nodes that no other node follows. */
static trz_status await_ends(struct emission *e, const struct look_list *list, unsigned lane, const uint64_t *done)
{
	bool *followed = calloc(list->count + 1, sizeof *followed);
	trz_status status = followed ? TRZ_OK : TRZ_ERROR_HOST_MEMORY;
	for (size_t i = 0; followed && i < list->count; i++)
		for (size_t k = 0; k < list->nodes[i]->before_count; k++)
			followed[list->nodes[i]->before[k]->at] = true;
	for (size_t i = 0; i < list->count && status == TRZ_OK; i++)
		if (!followed[i])
			status = await(e, lane, done[i]);
	free(followed);
	return status;
}

/* Emits the nodes of a list behind a point; `end`: the point behind all of them. */
static trz_status emit_list(struct emission *e, struct look_list *list, uint64_t start, trz_context context,
                            uint64_t *end)
{
	uint64_t *done = calloc(list->count + 1, sizeof *done);
	bool sorted = done && look_list_sort(list);
	trz_status status = sorted ? TRZ_OK : done ? TRZ_ERROR_INVALID_ARGUMENT : TRZ_ERROR_HOST_MEMORY;
	for (size_t i = 0; i < list->count && status == TRZ_OK; i++)
		status = emit_after(e, list->nodes[i], start, context, done);
	unsigned lane = e->points[start - 1].lane;
	if (status == TRZ_OK)
		status = await_ends(e, list, lane, done);
	if (status == TRZ_OK)
		status = mark(e, lane, end);
	free(done);
	return status;
}

/* ---- whole graphs ------------------------------------------------------------ */

static void close_emission(struct emission *e)
{
	for (size_t i = 0; i < e->count; i++)
		look.table->event_destroy(look.table->self, e->lane[e->points[i].lane].context, e->points[i].event);
	for (unsigned i = 0; i < e->lanes; i++)
		if (!e->lane[i].borrowed && e->lane[i].stream)
			sim_stream_destroy(look.sim, e->lane[i].context, e->lane[i].stream);
	free(e->points);
}

static trz_status emit_all(struct emission *e, struct look_list *list)
{
	uint64_t start, end;
	trz_status status = mark(e, 0, &start);
	return status == TRZ_OK ? emit_list(e, list, start, e->lane[0].context, &end) : status;
}

cuda_result look_list_make(struct look_list *list, trz_context context, sim_graph *out)
{
	struct emission e = {.lanes = 1, .lane[0] = {.context = context}};
	struct lane *first = &e.lane[0];
	sim_graph made = 0;
	trz_status status = sim_stream_create(look.sim, context, false, &first->stream);
	if (status == TRZ_OK)
		status = sim_capture_begin(look.sim, context, first->stream, TRZ_CAPTURE_RELAXED);
	if (status == TRZ_OK) {
		status = emit_all(&e, list);
		trz_status ended = sim_capture_end(look.sim, context, first->stream, &made);
		status = status == TRZ_OK ? ended : status;
	}
	close_emission(&e);
	if (status == TRZ_OK)
		*out = made;
	else if (made)
		sim_graph_destroy(look.sim, context, made);
	return look_result(status);
}

cuda_result look_list_capture(struct look_list *list, trz_context context, void *stream)
{
	struct emission e = {
		.lanes = 1, .one_lane = true, .lane[0] = {.context = context, .stream = stream, .borrowed = true},
	};
	trz_status status = emit_all(&e, list);
	close_emission(&e);
	return look_result(status);
}
