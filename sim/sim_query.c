/* SPDX-License-Identifier: Apache-2.0
 *
 * Queries about addresses, handles, contexts and graphs. Only sim_handle_at, which makes a handle, changes the machine.
 */
#include "sim_machine.h"

#include "bits.h"

bool sim_is_device(const sim *s, trz_addr address)
{
	return sim_in_window(s, address);
}

bool sim_place_at(sim *s, trz_addr address, struct sim_place *out)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	const struct sim_mapping *m = sim_mapping_at(s, address);
	bool found = m != NULL;
	if (found) {
		*out = (struct sim_place){
			.address = m->address,
			.size = m->phys->size,
			.device = m->phys->device,
			.plain = m->chunk != NULL,
			.generation = m->generation,
			.export_kinds = m->phys->export_kinds,
			.access = m->access,
		};
		found = !m->chunk || sim_plain_query(s, out, address);
	}
	sim_leave(&call);
	return found;
}

trz_status sim_handle_at(sim *s, trz_addr address, trz_handle *out)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	const struct sim_mapping *m = sim_mapping_at(s, address);
	struct sim_phys *p = m && !m->chunk ? m->phys : NULL;
	/* The handle that it was mapped with, while that lives. */
	bool same = p && m->handle && sim_registry_get(&s->memory, m->handle) == p &&
	            (p->retains == 0 || p->retained == m->handle);
	uint64_t value = same ? m->handle : p ? sim_registry_add(&s->memory, p) : 0;
	if (same) {
		p->retained = value;
		p->retains++;
		s->live_handles++;
		*out = value;
	} else if (value) {
		p->handles++;
		s->live_handles++;
		*out = value;
	} else {
		call.status = sim_refuse(s, TRZ_ERROR_INVALID_ARGUMENT, "no created memory is mapped at %#llx",
		                         (unsigned long long)address);
	}
	return sim_leave(&call);
}

trz_status sim_handle_props(sim *s, trz_handle handle, trz_tile_props *props, uint64_t *size)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	const struct sim_phys *p = sim_registry_get(&s->memory, handle);
	if (p) {
		*props = (trz_tile_props){.device = p->device, .export_kinds = p->export_kinds};
		*size = p->size;
	} else {
		call.status = sim_refuse(s, TRZ_ERROR_INVALID_ARGUMENT, "handle %#llx is dead or was never made",
		                         (unsigned long long)handle);
	}
	return sim_leave(&call);
}

trz_context sim_stream_context(sim *s, trz_stream stream)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	const struct sim_stream *st = (uint64_t)stream > 2 ? sim_registry_get(&s->streams, (uint64_t)stream) : NULL;
	trz_context context = st ? (trz_context)st->context->value : NULL;
	sim_leave(&call);
	return context;
}

trz_context sim_event_context(sim *s, trz_event event)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	const struct sim_event *e = sim_registry_get(&s->events, (uint64_t)event);
	trz_context context = e ? (trz_context)e->context->value : NULL;
	sim_leave(&call);
	return context;
}

int sim_context_device(sim *s, trz_context context)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	const struct sim_context *c = sim_registry_get(&s->contexts, (uint64_t)context);
	int device = c && !c->destroyed ? c->device : -1;
	sim_leave(&call);
	return device;
}

/* ---- nodes of graphs ------------------------------------------------------------------------------ */

/* The graph, or the capture under way; NULL: there is none. */
static const struct sim_capture *find(const sim *s, sim_graph graph, uint64_t capture)
{
	const struct sim_capture *c;
	if (graph)
		return sim_registry_get(&s->graphs, graph);
	LIST_FOREACH(c, &s->captures, link)
		if (c->id == capture)
			break;
	return c;
}

/* NULL: the node is a wait between lanes. */
static const struct sim_work *node_at(const struct sim_capture *c, size_t number)
{
	struct sim_node_place place = c->place[number];
	const struct sim_work *w = &c->lane[place.lane].nodes[place.at];
	return w->kind == SIM_WORK_WAIT ? NULL : w;
}

size_t sim_graph_nodes(sim *s, sim_graph graph, uint64_t capture, size_t *nodes, size_t room)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	const struct sim_capture *c = find(s, graph, capture);
	size_t count = 0;
	for (size_t i = 0; c && i < c->count; i++)
		if (node_at(c, i) && count++ < room)
			nodes[count - 1] = i;
	sim_leave(&call);
	return count;
}

static sim_node_kind kind_of(const struct sim_work *w)
{
	switch (w->kind) {
	case SIM_WORK_COPY:
		return SIM_NODE_COPY;
	case SIM_WORK_FILL:
		return SIM_NODE_FILL;
	case SIM_WORK_HOST:
		return SIM_NODE_HOST;
	case SIM_WORK_AWAIT:
		return SIM_NODE_AWAIT;
	case SIM_WORK_MARK:
		return SIM_NODE_RECORD;
	default:
		return SIM_NODE_KERNEL;
	}
}

/* For what comes at place `at` of a lane: the newest node of each lane that it follows; `ends` counts up to that, 0:
 * none. A wait leads back to where its event was recorded. */
static void find_ends(const struct sim_capture *c, unsigned lane, uint64_t at, uint64_t *seen, uint64_t *ends)
{
	if (at <= seen[lane])
		return;
	seen[lane] = at;
	const struct sim_work *nodes = c->lane[lane].nodes;
	for (; at > 0 && nodes[at - 1].kind == SIM_WORK_WAIT; at--)
		find_ends(c, (unsigned)nodes[at - 1].tag, nodes[at - 1].sequence, seen, ends);
	ends[lane] = max_u64(ends[lane], at);
}

static size_t list_ends(const struct sim_capture *c, unsigned lane, uint64_t at, size_t *before, size_t room)
{
	uint64_t seen[SIM_MAX_LANES] = {0}, ends[SIM_MAX_LANES] = {0};
	size_t count = 0;
	find_ends(c, lane, at, seen, ends);
	for (unsigned i = 0; i < c->lane_count; i++)
		if (ends[i] && count++ < room)
			before[count - 1] = c->lane[i].nodes[ends[i] - 1].order;
	return count;
}

size_t sim_graph_node(sim *s, sim_graph graph, uint64_t capture, size_t node, sim_node_kind *kind, size_t *before,
                      size_t room)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	const struct sim_capture *c = find(s, graph, capture);
	const struct sim_work *w = c && node < c->count ? node_at(c, node) : NULL;
	size_t count = 0;
	if (w) {
		*kind = kind_of(w);
		count = list_ends(c, c->place[node].lane, c->place[node].at, before, room);
	}
	sim_leave(&call);
	return count;
}

trz_context sim_graph_context(sim *s, sim_graph graph, size_t node)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	const struct sim_capture *c = find(s, graph, 0);
	uint64_t value = c && node < c->count ? c->lane[c->place[node].lane].runner->context->value : 0;
	sim_leave(&call);
	return (trz_context)value;
}

size_t sim_stream_tail(sim *s, trz_context context, trz_stream stream, size_t *before, size_t room)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	struct sim_stream *st = NULL;
	size_t count = 0;
	call.status = sim_stream_find_any(s, context, stream, &st);
	if (call.status == TRZ_OK && st->capture)
		count = list_ends(st->capture, st->lane, st->capture->lane[st->lane].count, before, room);
	sim_leave(&call);
	return count;
}
