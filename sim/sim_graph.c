/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs: captured nodes, and their launches. Each lane of a graph has a stream of its own, the runner, which users do
 * not see; a launch puts the lane's nodes there, after a wait for the launching stream, which then waits for them. So
 * the schedule mixes the lanes of a graph as it mixes streams, and launches of one graph follow one another.
 */
#include "sim_machine.h"

#include <stdlib.h>

static void retire_runners(sim *s, struct sim_capture *g)
{
	for (unsigned i = 0; i < g->lane_count; i++)
		if (g->lane[i].runner)
			sim_stream_retire(s, g->lane[i].runner);
}

trz_status sim_graph_new(sim *s, struct sim_capture *c, sim_graph *out)
{
	uint64_t value = sim_registry_add(&s->graphs, c);
	bool complete = value != 0;
	for (unsigned i = 0; complete && i < c->lane_count; i++) {
		struct sim_stream *runner = sim_stream_new(s, c->lane[i].stream->context, false, 0);
		complete = runner != NULL;
		if (runner)
			runner->graph = c->id;
		c->lane[i].runner = runner;
	}
	if (complete) {
		*out = value;
		return TRZ_OK;
	}
	retire_runners(s, c);
	if (value)
		sim_registry_remove(&s->graphs, value);
	return sim_refuse(s, TRZ_ERROR_DRIVER, "no host memory for a graph");
}

static void end_graph(sim *s, sim_graph graph)
{
	struct sim_capture *g = sim_registry_get(&s->graphs, graph);
	retire_runners(s, g);
	sim_registry_remove(&s->graphs, graph);
	sim_capture_free(g);
}

static bool uses_context(const struct sim_capture *g, const struct sim_context *context)
{
	for (unsigned i = 0; i < g->lane_count; i++)
		if (g->lane[i].runner->context == context)
			return true;
	return false;
}

void sim_graphs_end(sim *s, const struct sim_context *context)
{
	for (uint32_t i = 0; i < s->graphs.count; i++) {
		const struct sim_capture *g = s->graphs.objects[i];
		if (g && uses_context(g, context))
			end_graph(s, sim_registry_value(&s->graphs, i));
	}
}

void sim_graphs_close(sim *s)
{
	while (!LIST_EMPTY(&s->captures)) {
		struct sim_capture *c = LIST_FIRST(&s->captures);
		sim_capture_detach(c);
		sim_capture_free(c);
	}
	for (uint32_t i = 0; i < s->graphs.count; i++)
		if (s->graphs.objects[i])
			sim_capture_free(s->graphs.objects[i]);
	sim_registry_free(&s->graphs);
}

/* Puts a node into its runner's queue as one item; base[lane] is the number of the lane's first item in this launch. */
static trz_status push_node(sim *s, const struct sim_capture *g, struct sim_node_place place, const uint64_t *base)
{
	struct sim_stream *runner = g->lane[place.lane].runner;
	struct sim_work work = g->lane[place.lane].nodes[place.at];
	struct sim_event *e = work.kind == SIM_WORK_MARK || work.kind == SIM_WORK_AWAIT ? sim_event_of(s, &work) : NULL;
	if (work.kind == SIM_WORK_WAIT)
		return sim_push_wait(s, runner, g->lane[work.tag].runner, work.sequence + base[work.tag]);
	if (work.kind == SIM_WORK_AWAIT)
		return e && e->stream ? sim_push_wait(s, runner, e->stream, e->sequence) : sim_push_wait(s, runner, runner, 0);
	if (e)
		return sim_event_place(s, e, runner);
	work.sequence += base[place.lane];
	if (work.touched)
		work.touched->references++;
	trz_status status = work.attendance ? sim_meet_again(s, &work) : TRZ_OK;
	return status == TRZ_OK ? sim_push(s, runner, work) : status;
}

static trz_status launch(sim *s, struct sim_capture *g, struct sim_stream *st)
{
	uint64_t base[SIM_MAX_LANES];
	struct sim_stream *first = g->lane[0].runner;
	trz_status status = sim_push_wait(s, first, st, st->enqueued);
	base[0] = first->enqueued;
	for (unsigned i = 1; i < g->lane_count && status == TRZ_OK; i++) {
		status = sim_push_wait(s, g->lane[i].runner, first, base[0]);
		base[i] = g->lane[i].runner->enqueued;
	}
	for (uint64_t n = 0; n < g->count && status == TRZ_OK; n++)
		if (g->place[n].at < g->lane[g->place[n].lane].count)  /* else it is a wait that nothing followed */
			status = push_node(s, g, g->place[n], base);
	return status == TRZ_OK ? sim_push_wait(s, st, first, first->enqueued) : status;
}

static trz_status find(sim *s, trz_context context, sim_graph graph, struct sim_capture **out)
{
	struct sim_context *c = NULL;
	trz_status status = sim_context_find(s, context, &c);
	if (status != TRZ_OK)
		return status;
	*out = sim_registry_get(&s->graphs, graph);
	if (*out)
		return TRZ_OK;
	return sim_violate(s, TRZ_ERROR_INVALID_ARGUMENT, "use of graph %#llx, which is dead or was never made",
	                   (unsigned long long)graph);
}

trz_status sim_graph_launch(sim *s, trz_context context, sim_graph graph, trz_stream stream)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	struct sim_capture *g = NULL;
	struct sim_stream *st = NULL;
	call.status = find(s, context, graph, &g);
	if (call.status == TRZ_OK)
		call.status = sim_stream_find(s, context, stream, &st);
	if (call.status == TRZ_OK)
		call.status = sim_stream_prepare(s, st);
	if (call.status == TRZ_OK && st->capture)
		call.status = sim_refuse(s, TRZ_ERROR_NOT_SUPPORTED, "a launch of a graph cannot be captured here");
	if (call.status == TRZ_OK)
		call.status = launch(s, g, st);
	return sim_leave(&call);
}

trz_status sim_graph_destroy(sim *s, trz_context context, sim_graph graph)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	struct sim_capture *g = NULL;
	call.status = find(s, context, graph, &g);
	if (call.status == TRZ_OK)
		end_graph(s, graph);
	return sim_leave(&call);
}
