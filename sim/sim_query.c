/* SPDX-License-Identifier: Apache-2.0
 *
 * What a program may ask about addresses, handles, contexts and graphs; nothing here changes the machine but
 * sim_handle_at, which makes a handle.
 */
#include "sim_machine.h"

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
		found = !m->chunk || sim_plain_at(s, address, &out->address, &out->size);
	}
	sim_leave(&call);
	return found;
}

trz_status sim_handle_at(sim *s, trz_addr address, trz_handle *out)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	const struct sim_mapping *m = sim_mapping_at(s, address);
	uint64_t value = m && !m->chunk ? sim_registry_add(&s->memory, m->phys) : 0;
	if (value) {
		m->phys->handles++;
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

bool sim_reservation_at(sim *s, trz_addr address, trz_addr *start, uint64_t *size)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	bool found = false;
	for (size_t i = 0; i < s->reservation_count && !found; i++) {
		found = address - s->reservations[i].address < s->reservations[i].size;
		*start = s->reservations[i].address;
		*size = s->reservations[i].size;
	}
	sim_leave(&call);
	return found;
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

static size_t lane_nodes(const struct sim_lane *lane, uint64_t below)
{
	size_t nodes = 0;
	for (uint64_t n = 0; n < below; n++)
		nodes += lane->nodes[n].kind != SIM_WORK_WAIT;
	return nodes;
}

static size_t all_nodes(const struct sim_capture *c, unsigned lanes)
{
	size_t nodes = 0;
	for (unsigned i = 0; i < lanes; i++)
		nodes += lane_nodes(&c->lane[i], c->lane[i].count);
	return nodes;
}

size_t sim_graph_nodes(sim *s, sim_graph graph)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	const struct sim_capture *g = sim_registry_get(&s->graphs, graph);
	size_t nodes = g ? all_nodes(g, g->lane_count) : 0;
	sim_leave(&call);
	return nodes;
}

size_t sim_capture_nodes(sim *s, uint64_t id)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	const struct sim_capture *c;
	size_t nodes = 0;
	LIST_FOREACH(c, &s->captures, link)
		if (c->id == id)
			nodes = all_nodes(c, c->lane_count);
	sim_leave(&call);
	return nodes;
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
	default:
		return SIM_NODE_KERNEL;
	}
}

/* The node of a lane at or before place `n`, among all nodes of the graph; SIZE_MAX: none. */
static size_t node_before(const struct sim_capture *g, unsigned lane, uint64_t n)
{
	size_t inside = lane_nodes(&g->lane[lane], n);
	return inside ? all_nodes(g, lane) + inside - 1 : SIZE_MAX;
}

static size_t edges(const struct sim_capture *g, unsigned lane, uint64_t at, size_t *before, size_t room)
{
	size_t count = 0, node = node_before(g, lane, at);
	const struct sim_work *nodes = g->lane[lane].nodes;
	if (node != SIZE_MAX && ++count <= room)
		before[count - 1] = node;
	while (at-- > 0 && nodes[at].kind == SIM_WORK_WAIT) {
		node = node_before(g, (unsigned)nodes[at].tag, nodes[at].sequence);
		if (node != SIZE_MAX && ++count <= room)
			before[count - 1] = node;
	}
	return count;
}

size_t sim_graph_node(sim *s, sim_graph graph, size_t index, sim_node_kind *kind, size_t *before, size_t room)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	const struct sim_capture *g = sim_registry_get(&s->graphs, graph);
	size_t count = 0, seen = 0;
	for (unsigned i = 0; g && i < g->lane_count; i++)
		for (uint64_t n = 0; n < g->lane[i].count; n++) {
			if (g->lane[i].nodes[n].kind == SIM_WORK_WAIT || seen++ != index)
				continue;
			*kind = kind_of(&g->lane[i].nodes[n]);
			count = edges(g, i, n, before, room);
		}
	sim_leave(&call);
	return count;
}
