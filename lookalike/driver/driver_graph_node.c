/* SPDX-License-Identifier: Apache-2.0
 *
 * Nodes of graphs, what they keep, and lists of them.
 */
#include "driver_graph.h"

#include <stdlib.h>
#include <string.h>

/* ---- lists ------------------------------------------------------------ */

bool look_list_add(struct look_list *list, struct look_node *n)
{
	if (list->count == list->room) {
		size_t room = list->room ? list->room * 2 : 16;
		struct look_node **nodes = realloc(list->nodes, room * sizeof(struct look_node *));
		if (!nodes)
			return false;
		list->nodes = nodes;
		list->room = room;
	}
	list->nodes[list->count++] = n;
	return true;
}

void look_list_free(struct look_list *list)
{
	for (size_t i = 0; i < list->count; i++)
		look_node_free(list->nodes[i]);
	free(list->nodes);
	*list = (struct look_list){0};
}

/* Takes, again and again, each node whose predecessors have all been taken. */
bool look_list_sort(struct look_list *list)
{
	size_t *missing = calloc(list->count + 1, sizeof *missing), done = 0;
	struct look_node **sorted = malloc((list->count + 1) * sizeof(struct look_node *));
	bool progress = missing && sorted;
	for (size_t i = 0; progress && i < list->count; i++) {
		list->nodes[i]->at = i;
		missing[i] = 1;
	}
	while (progress && done < list->count) {
		progress = false;
		for (size_t i = 0; i < list->count; i++) {
			const struct look_node *n = list->nodes[i];
			bool ready = missing[i];
			for (size_t k = 0; ready && k < n->before_count; k++)
				ready = !missing[n->before[k]->at];
			if (!ready)
				continue;
			missing[i] = 0;
			sorted[done++] = list->nodes[i];
			progress = true;
		}
	}
	bool complete = progress || list->count == 0;
	if (complete && list->count)
		memcpy(list->nodes, sorted, done * sizeof(struct look_node *));
	for (size_t i = 0; complete && i < list->count; i++)
		list->nodes[i]->at = i;
	free(missing);
	free(sorted);
	return complete;
}

/* ---- what a node keeps ------------------------------------------------------------ */

struct look_node *look_node_new(void)
{
	struct look_node *n = calloc(1, sizeof *n);
	if (n)
		n->single = true;
	return n;
}

/* Frees the graphs that belong to a node: a child, or the bodies of a conditional node. */
static void free_inner(struct look_node *n)
{
	const struct cuda_conditional_node *c = &n->is.of.conditional;
	if (n->is.type == TRZ_CU_GRAPH_NODE_TYPE_GRAPH && n->is.of.child.graph)
		look_graph_free(n->is.of.child.graph);
	for (unsigned i = 0; n->is.type == TRZ_CU_GRAPH_NODE_TYPE_CONDITIONAL && c->graphs && i < c->size; i++)
		look_graph_free(c->graphs[i]);
}

void look_node_free(struct look_node *n)
{
	free_inner(n);
	look_block_drop(n);
	look_attributes_forget(n);
	if (n->source)
		look_source_drop(n->source);
	free(n->before);
	free(n->kept);
	if (n->single)
		free(n);
	else
		*n = (struct look_node){.graph = n->graph, .number = n->number};
}

static void *copied(const void *from, size_t size)
{
	void *to = malloc(size + 1);
	return to && size ? memcpy(to, from, size) : to;
}

/* Makes a graph that belongs to a node: a copy of another, or an empty one. */
static cuda_result inner_graph(const struct look_graph *like, struct look_graph **out)
{
	struct look_graph *g = look_graph_new();
	LOOK_NEED(g, OUT_OF_MEMORY);
	g->belongs = true;
	g->settled = g->changed = true;
	cuda_result result = like ? look_list_copy(&like->list, g, &g->list) : TRZ_CUDA_SUCCESS;
	if (result == TRZ_CUDA_SUCCESS)
		*out = g;
	else
		look_graph_free(g);
	return result;
}

static cuda_result keep_child(struct cuda_child_node *child)
{
	struct look_graph *given = child->graph, *own;
	LOOK_NEED(given && !given->belongs && look_graph_settle(given), INVALID_VALUE);
	if (child->ownership == TRZ_CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE) {
		given->belongs = given->changed = true;
		return TRZ_CUDA_SUCCESS;
	}
	LOOK_NEED(!given->has_memory, NOT_SUPPORTED);
	cuda_result result = inner_graph(given, &own);
	child->graph = own;
	return result;
}

/* Copies the bodies, if there are any yet. */
static cuda_result keep_bodies(struct cuda_conditional_node *c, void **kept)
{
	unsigned most = c->type == TRZ_CU_GRAPH_COND_TYPE_WHILE ? 1 : c->type == TRZ_CU_GRAPH_COND_TYPE_IF ? 2 : UINT16_MAX;
	LOOK_NEED(c->handle && c->size > 0 && c->size <= most, INVALID_VALUE);
	struct look_graph **bodies = calloc(c->size, sizeof(struct look_graph *));
	LOOK_NEED(bodies, OUT_OF_MEMORY);
	cuda_result result = TRZ_CUDA_SUCCESS;
	for (unsigned i = 0; i < c->size && result == TRZ_CUDA_SUCCESS; i++)
		result = inner_graph(c->graphs ? c->graphs[i] : NULL, &bodies[i]);
	*kept = bodies;
	c->graphs = (void **)bodies;
	return result;
}

static cuda_result check_fill(const struct cuda_fill_node *f)
{
	bool unit = f->unit == 1 || f->unit == 2 || f->unit == 4;
	LOOK_NEED(unit && f->width > 0 && f->height > 0 && f->address % f->unit == 0, INVALID_VALUE);
	LOOK_NEED(f->height == 1 || f->pitch >= f->width * f->unit, INVALID_VALUE);
	return TRZ_CUDA_SUCCESS;
}

/* Copies what `is` points to into `kept`, which the caller frees even if this fails. */
static cuda_result keep(struct cuda_node *is, void **kept)
{
	const struct cuda_fill_node *f = &is->of.fill;
	switch (is->type) {
	case TRZ_CU_GRAPH_NODE_TYPE_KERNEL:
		if (!is->of.kernel.function)
			is->of.kernel.function = is->of.kernel.kernel;
		return look_kernel_keep(&is->of.kernel, kept);
	case TRZ_CU_GRAPH_NODE_TYPE_MEMSET:
		return check_fill(f);
	case TRZ_CU_GRAPH_NODE_TYPE_HOST:
		LOOK_NEED(is->of.host.function, INVALID_VALUE);
		return TRZ_CUDA_SUCCESS;
	case TRZ_CU_GRAPH_NODE_TYPE_GRAPH:
		return keep_child(&is->of.child);
	case TRZ_CU_GRAPH_NODE_TYPE_WAIT_EVENT:
	case TRZ_CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		LOOK_NEED(is->of.event, INVALID_VALUE);
		return TRZ_CUDA_SUCCESS;
	case TRZ_CU_GRAPH_NODE_TYPE_CONDITIONAL:
		return keep_bodies(&is->of.conditional, kept);
	case TRZ_CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		*kept = copied(is->of.alloc.access, is->of.alloc.access_count * sizeof *is->of.alloc.access);
		is->of.alloc.access = *kept;
		LOOK_NEED(*kept, OUT_OF_MEMORY);
		return TRZ_CUDA_SUCCESS;
	case TRZ_CU_GRAPH_NODE_TYPE_MEMCPY:
	case TRZ_CU_GRAPH_NODE_TYPE_EMPTY:
	case TRZ_CU_GRAPH_NODE_TYPE_MEM_FREE:
		return TRZ_CUDA_SUCCESS;
	default:
		return TRZ_CUDA_ERROR_NOT_SUPPORTED;
	}
}

/* The context that the work runs in: the given one, or the current one. */
static trz_context context_of(const struct cuda_node *is)
{
	trz_context given = NULL;
	if (is->type == TRZ_CU_GRAPH_NODE_TYPE_KERNEL)
		given = is->of.kernel.context;
	else if (is->type == TRZ_CU_GRAPH_NODE_TYPE_MEMCPY)
		given = is->of.copy.context;
	else if (is->type == TRZ_CU_GRAPH_NODE_TYPE_MEMSET)
		given = is->of.fill.context;
	else if (is->type == TRZ_CU_GRAPH_NODE_TYPE_EVENT_RECORD)
		given = look_event_context(is->of.event);
	return given ? given : look_context();
}

cuda_result look_node_set(struct look_node *n, const struct cuda_node *is)
{
	struct cuda_node own = *is;
	void *kept = NULL;
	cuda_result result = keep(&own, &kept);
	if (result != TRZ_CUDA_SUCCESS) {
		free(kept);
		return result;
	}
	free_inner(n);
	free(n->kept);
	n->kept = kept;
	n->is = own;
	n->context = context_of(is);
	if (n->source)
		look_source_drop(n->source);
	n->source = NULL;
	return TRZ_CUDA_SUCCESS;
}

/* ---- copies ------------------------------------------------------------ */

static cuda_result copy_node(const struct look_node *from, struct look_graph *owner, struct look_node **out)
{
	struct look_node *n = look_node_new();
	LOOK_NEED(n, OUT_OF_MEMORY);
	*out = n;
	n->is.type = TRZ_CU_GRAPH_NODE_TYPE_EMPTY;
	if (from->source) {
		n->source = look_source_hold(from->source);
		n->is = from->is;
	} else if (from->is.type == TRZ_CU_GRAPH_NODE_TYPE_GRAPH) {
		struct look_graph *inner = NULL;
		cuda_result result = inner_graph(from->is.of.child.graph, &inner);
		if (result != TRZ_CUDA_SUCCESS)
			return result;
		n->is = from->is;
		n->is.of.child.graph = inner;
	} else {
		cuda_result result = look_node_set(n, &from->is);
		if (result != TRZ_CUDA_SUCCESS)
			return result;
	}
	n->number = from->number;
	n->graph = owner;
	n->origin = from;
	n->context = from->context;
	n->disabled = from->disabled;
	n->block = from->block;
	if (n->block)
		look_block_hold(n->block);
	look_attributes_copy(n, from);
	return TRZ_CUDA_SUCCESS;
}

cuda_result look_list_copy(const struct look_list *from, struct look_graph *owner, struct look_list *to)
{
	for (size_t i = 0; i < from->count; i++) {
		struct look_node *n = NULL;
		from->nodes[i]->at = i;
		cuda_result result = copy_node(from->nodes[i], owner, &n);
		if (n && !look_list_add(to, n)) {
			look_node_free(n);
			result = TRZ_CUDA_ERROR_OUT_OF_MEMORY;
		}
		if (result != TRZ_CUDA_SUCCESS)
			return result;
	}
	for (size_t i = 0; i < from->count; i++) {
		const struct look_node *old = from->nodes[i];
		struct look_node *n = to->nodes[i];
		n->before = malloc((old->before_count + 1) * sizeof(struct look_node *));
		LOOK_NEED(n->before, OUT_OF_MEMORY);
		n->before_count = old->before_count;
		for (size_t k = 0; k < n->before_count; k++)
			n->before[k] = to->nodes[old->before[k]->at];
	}
	return TRZ_CUDA_SUCCESS;
}
