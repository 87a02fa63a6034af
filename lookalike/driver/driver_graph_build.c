/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs that programs build and change: nodes, the edges between them, copies.
 */
#include "driver_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- adding nodes ------------------------------------------------------------ */

static bool is_in(const struct look_graph *g, const struct look_node *n)
{
	return n && n->graph == g;
}

static cuda_result follow(struct look_node *n, void *const *after, size_t count)
{
	LOOK_NEED(after || !count, INVALID_VALUE);
	n->before = malloc((count + 1) * sizeof(struct look_node *));
	LOOK_NEED(n->before, OUT_OF_MEMORY);
	for (size_t i = 0; i < count; i++) {
		LOOK_NEED(is_in(n->graph, after[i]), INVALID_VALUE);
		for (size_t k = 0; k < i; k++)
			LOOK_NEED(after[k] != after[i], INVALID_VALUE);
		n->before[n->before_count++] = after[i];
	}
	return TRZ_CUDA_SUCCESS;
}

/* Finds or makes the block that a node is about; writes the address of an allocation to `is`. */
static cuda_result take_memory(struct look_node *n, struct cuda_node *is)
{
	cuda_result result = TRZ_CUDA_SUCCESS;
	if (is->type == TRZ_CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		result = look_block_make(n, &is->of.alloc);
	else if (is->type == TRZ_CU_GRAPH_NODE_TYPE_MEM_FREE)
		result = look_block_free_node(n, is->of.address);
	else if (is->type == TRZ_CU_GRAPH_NODE_TYPE_GRAPH)
		n->graph->has_memory |= is->of.child.graph && ((struct look_graph *)is->of.child.graph)->has_memory;
	return result;
}

static cuda_result add(struct look_node *n, struct cuda_node *is, void *const *after, size_t count)
{
	struct look_graph *g = n->graph;
	cuda_result result = follow(n, after, count);
	if (result == TRZ_CUDA_SUCCESS)
		result = take_memory(n, is);
	if (result == TRZ_CUDA_SUCCESS)
		result = look_node_set(n, is);
	if (result != TRZ_CUDA_SUCCESS)
		return result;
	bool waits = look_graph_under_way(g);
	LOOK_NEED(waits || look_graph_settle(g), OUT_OF_MEMORY);
	LOOK_NEED(look_list_add(waits ? &g->waiting : &g->list, n), OUT_OF_MEMORY);
	g->changed = g->changed || !waits;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuGraphAddNode_v2(void **node, void *graph, void *const *after, const struct cuda_edge *edges, size_t count,
                              struct cuda_node *is)
{
	LOOK_ENTER(cuGraphAddNode_v2);
	(void)edges; /* they only describe dependent launches and nodes' ports */
	LOOK_NEED(node && graph && is, INVALID_VALUE);
	struct look_node *n = look_node_new();
	LOOK_NEED(n, OUT_OF_MEMORY);
	n->graph = graph;
	n->is.type = TRZ_CU_GRAPH_NODE_TYPE_EMPTY;
	cuda_result result = add(n, is, after, count);
	if (result != TRZ_CUDA_SUCCESS) {
		look_node_free(n);
		return result;
	}
	if (is->type == TRZ_CU_GRAPH_NODE_TYPE_CONDITIONAL)
		is->of.conditional.graphs = n->is.of.conditional.graphs;
	*node = n;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuGraphAddNode(void **node, void *graph, void *const *after, size_t count, struct cuda_node *is)
{
	return cuGraphAddNode_v2(node, graph, after, NULL, count, is);
}

cuda_result cuGraphAddKernelNode_v2(void **node, void *graph, void *const *after, size_t count,
                                    const struct cuda_kernel_node *kernel)
{
	LOOK_COUNT(cuGraphAddKernelNode_v2);
	LOOK_NEED(kernel, INVALID_VALUE);
	struct cuda_node is = {.type = TRZ_CU_GRAPH_NODE_TYPE_KERNEL, .of.kernel = *kernel};
	return cuGraphAddNode_v2(node, graph, after, NULL, count, &is);
}

cuda_result cuGraphAddKernelNode(void **node, void *graph, void *const *after, size_t count,
                                 const struct cuda_kernel_node *kernel)
{
	struct cuda_kernel_node whole = {0};
	LOOK_NEED(kernel, INVALID_VALUE);
	memcpy(&whole, kernel, CUDA_KERNEL_NODE_V1);
	return cuGraphAddKernelNode_v2(node, graph, after, count, &whole);
}

cuda_result cuGraphAddMemcpyNode(void **node, void *graph, void *const *after, size_t count,
                                 const struct cuda_copy_3d *copy, void *context)
{
	LOOK_COUNT(cuGraphAddMemcpyNode);
	LOOK_NEED(copy, INVALID_VALUE);
	struct cuda_node is = {.type = TRZ_CU_GRAPH_NODE_TYPE_MEMCPY, .of.copy = {.context = context, .copy = *copy}};
	return cuGraphAddNode_v2(node, graph, after, NULL, count, &is);
}

cuda_result cuGraphAddMemsetNode(void **node, void *graph, void *const *after, size_t count,
                                 const struct cuda_fill_node *fill, void *context)
{
	LOOK_COUNT(cuGraphAddMemsetNode);
	LOOK_NEED(fill, INVALID_VALUE);
	struct cuda_node is = {.type = TRZ_CU_GRAPH_NODE_TYPE_MEMSET};
	memcpy(&is.of.fill, fill, CUDA_FILL_NODE_V1);
	is.of.fill.context = context;
	return cuGraphAddNode_v2(node, graph, after, NULL, count, &is);
}

cuda_result cuGraphAddHostNode(void **node, void *graph, void *const *after, size_t count,
                               const struct cuda_host_node *host)
{
	LOOK_COUNT(cuGraphAddHostNode);
	LOOK_NEED(host, INVALID_VALUE);
	struct cuda_node is = {.type = TRZ_CU_GRAPH_NODE_TYPE_HOST, .of.host = *host};
	return cuGraphAddNode_v2(node, graph, after, NULL, count, &is);
}

cuda_result cuGraphAddChildGraphNode(void **node, void *graph, void *const *after, size_t count, void *child)
{
	LOOK_COUNT(cuGraphAddChildGraphNode);
	struct cuda_node is = {.type = TRZ_CU_GRAPH_NODE_TYPE_GRAPH, .of.child = {.graph = child}};
	return cuGraphAddNode_v2(node, graph, after, NULL, count, &is);
}

cuda_result cuGraphAddEmptyNode(void **node, void *graph, void *const *after, size_t count)
{
	LOOK_COUNT(cuGraphAddEmptyNode);
	struct cuda_node is = {.type = TRZ_CU_GRAPH_NODE_TYPE_EMPTY};
	return cuGraphAddNode_v2(node, graph, after, NULL, count, &is);
}

cuda_result cuGraphAddEventRecordNode(void **node, void *graph, void *const *after, size_t count, void *event)
{
	LOOK_COUNT(cuGraphAddEventRecordNode);
	struct cuda_node is = {.type = TRZ_CU_GRAPH_NODE_TYPE_EVENT_RECORD, .of.event = event};
	return cuGraphAddNode_v2(node, graph, after, NULL, count, &is);
}

cuda_result cuGraphAddEventWaitNode(void **node, void *graph, void *const *after, size_t count, void *event)
{
	LOOK_COUNT(cuGraphAddEventWaitNode);
	struct cuda_node is = {.type = TRZ_CU_GRAPH_NODE_TYPE_WAIT_EVENT, .of.event = event};
	return cuGraphAddNode_v2(node, graph, after, NULL, count, &is);
}

cuda_result cuGraphAddMemAllocNode(void **node, void *graph, void *const *after, size_t count,
                                   struct cuda_alloc_node *alloc)
{
	LOOK_COUNT(cuGraphAddMemAllocNode);
	LOOK_NEED(alloc, INVALID_VALUE);
	struct cuda_node is = {.type = TRZ_CU_GRAPH_NODE_TYPE_MEM_ALLOC, .of.alloc = *alloc};
	cuda_result result = cuGraphAddNode_v2(node, graph, after, NULL, count, &is);
	if (result == TRZ_CUDA_SUCCESS)
		alloc->address = is.of.alloc.address;
	return result;
}

cuda_result cuGraphAddMemFreeNode(void **node, void *graph, void *const *after, size_t count, cuda_addr address)
{
	LOOK_COUNT(cuGraphAddMemFreeNode);
	struct cuda_node is = {.type = TRZ_CU_GRAPH_NODE_TYPE_MEM_FREE, .of.address = address};
	return cuGraphAddNode_v2(node, graph, after, NULL, count, &is);
}

/* Makes the condition of a node. It keeps its default, since kernels set none. */
cuda_result cuGraphConditionalHandleCreate(uint64_t *handle, void *graph, void *context, unsigned value, unsigned flags)
{
	LOOK_ENTER(cuGraphConditionalHandleCreate);
	(void)context;
	LOOK_NEED(handle && graph && flags <= TRZ_CU_GRAPH_COND_ASSIGN_DEFAULT, INVALID_VALUE);
	uint64_t starts = flags ? value : 0;
	*handle = starts << 1 | 1;
	return TRZ_CUDA_SUCCESS;
}

/* ---- edges ------------------------------------------------------------ */

static size_t edge_to(const struct look_node *n, const struct look_node *before)
{
	size_t i = 0;
	while (i < n->before_count && n->before[i] != before)
		i++;
	return i;
}

cuda_result cuGraphAddDependencies_v2(void *graph, void *const *from, void *const *to, const struct cuda_edge *edges,
                                      size_t count)
{
	struct look_graph *g = graph;
	LOOK_ENTER(cuGraphAddDependencies_v2);
	(void)edges;
	LOOK_NEED(g && (!count || (from && to)), INVALID_VALUE);
	LOOK_NEED(look_graph_settle(g), OUT_OF_MEMORY);
	for (size_t i = 0; i < count; i++) {
		struct look_node *n = to[i], *before = from[i];
		LOOK_NEED(is_in(g, n) && is_in(g, before) && n != before, INVALID_VALUE);
		LOOK_NEED(edge_to(n, before) == n->before_count, INVALID_VALUE);
		struct look_node **more = realloc(n->before, (n->before_count + 1) * sizeof(struct look_node *));
		LOOK_NEED(more, OUT_OF_MEMORY);
		n->before = more;
		n->before[n->before_count++] = before;
		g->changed = true;
	}
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuGraphAddDependencies(void *graph, void *const *from, void *const *to, size_t count)
{
	return cuGraphAddDependencies_v2(graph, from, to, NULL, count);
}

cuda_result cuGraphRemoveDependencies_v2(void *graph, void *const *from, void *const *to, const struct cuda_edge *edges,
                                         size_t count)
{
	struct look_graph *g = graph;
	LOOK_ENTER(cuGraphRemoveDependencies_v2);
	(void)edges;
	LOOK_NEED(g && (!count || (from && to)), INVALID_VALUE);
	LOOK_NEED(!g->has_memory, NOT_SUPPORTED);
	LOOK_NEED(look_graph_settle(g), OUT_OF_MEMORY);
	for (size_t i = 0; i < count; i++) {
		struct look_node *n = to[i];
		LOOK_NEED(is_in(g, n) && is_in(g, from[i]), INVALID_VALUE);
		size_t at = edge_to(n, from[i]);
		LOOK_NEED(at < n->before_count, INVALID_VALUE);
		n->before[at] = n->before[--n->before_count];
		g->changed = true;
	}
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuGraphRemoveDependencies(void *graph, void *const *from, void *const *to, size_t count)
{
	return cuGraphRemoveDependencies_v2(graph, from, to, NULL, count);
}

cuda_result cuGraphGetEdges_v2(void *graph, void **from, void **to, struct cuda_edge *edges, size_t *count)
{
	struct look_graph *g = graph;
	LOOK_ENTER(cuGraphGetEdges_v2);
	LOOK_NEED(g && count, INVALID_VALUE);
	LOOK_NEED(look_graph_settle(g), OUT_OF_MEMORY);
	size_t found = 0, room = from && to ? *count : 0;
	for (size_t i = 0; i < g->list.count; i++)
		for (size_t k = 0; k < g->list.nodes[i]->before_count; k++, found++) {
			if (found >= room)
				continue;
			from[found] = g->list.nodes[i]->before[k];
			to[found] = g->list.nodes[i];
			if (edges)
				edges[found] = (struct cuda_edge){0};
		}
	for (size_t i = found; i < room; i++)
		from[i] = to[i] = NULL;
	*count = room && room < found ? room : found;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuGraphGetEdges(void *graph, void **from, void **to, size_t *count)
{
	return cuGraphGetEdges_v2(graph, from, to, NULL, count);
}

cuda_result cuGraphNodeGetDependentNodes_v2(void *node, void **after, struct cuda_edge *edges, size_t *count)
{
	const struct look_node *n = node;
	LOOK_ENTER(cuGraphNodeGetDependentNodes_v2);
	LOOK_NEED(n && count, INVALID_VALUE);
	LOOK_NEED(look_graph_settle(n->graph), OUT_OF_MEMORY);
	const struct look_list *list = &n->graph->list;
	size_t found = 0, room = after ? *count : 0;
	for (size_t i = 0; i < list->count; i++) {
		if (edge_to(list->nodes[i], n) == list->nodes[i]->before_count || found++ >= room)
			continue;
		after[found - 1] = list->nodes[i];
		if (edges)
			edges[found - 1] = (struct cuda_edge){0};
	}
	for (size_t i = found; i < room; i++)
		after[i] = NULL;
	*count = room && room < found ? room : found;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuGraphNodeGetDependentNodes(void *node, void **after, size_t *count)
{
	return cuGraphNodeGetDependentNodes_v2(node, after, NULL, count);
}

/* The nodes that followed it do not follow those before it afterwards. */
cuda_result cuGraphDestroyNode(void *node)
{
	struct look_node *n = node;
	LOOK_ENTER(cuGraphDestroyNode);
	LOOK_NEED(n, INVALID_VALUE);
	struct look_graph *g = n->graph;
	LOOK_NEED(!g->has_memory, NOT_SUPPORTED);
	LOOK_NEED(look_graph_settle(g), OUT_OF_MEMORY);
	size_t at = 0;
	for (size_t i = 0; i < g->list.count; i++) {
		struct look_node *other = g->list.nodes[i];
		size_t edge = edge_to(other, n);
		if (edge < other->before_count)
			other->before[edge] = other->before[--other->before_count];
		if (other != n)
			g->list.nodes[at++] = other;
	}
	g->list.count = at;
	g->changed = true;
	look_node_free(n);
	return TRZ_CUDA_SUCCESS;
}

/* ---- copies and names ------------------------------------------------------------ */

cuda_result cuGraphClone(void **clone, void *graph)
{
	struct look_graph *from = graph;
	LOOK_ENTER(cuGraphClone);
	LOOK_NEED(clone && from && look_graph_settle(from), INVALID_VALUE);
	LOOK_NEED(!from->has_memory, NOT_SUPPORTED);
	for (size_t i = 0; i < from->list.count; i++)
		LOOK_NEED(from->list.nodes[i]->is.type != TRZ_CU_GRAPH_NODE_TYPE_CONDITIONAL, NOT_SUPPORTED);
	struct look_graph *g = look_graph_new();
	LOOK_NEED(g, OUT_OF_MEMORY);
	g->settled = g->changed = true;
	cuda_result result = look_list_copy(&from->list, g, &g->list);
	if (result == TRZ_CUDA_SUCCESS && !look_objects_copy(&g->objects, &from->objects))
		result = TRZ_CUDA_ERROR_OUT_OF_MEMORY;
	if (result != TRZ_CUDA_SUCCESS) {
		look_graph_free(g);
		return result;
	}
	*clone = g;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuGraphNodeFindInClone(void **node, void *original, void *clone)
{
	const struct look_graph *g = clone;
	LOOK_ENTER(cuGraphNodeFindInClone);
	LOOK_NEED(node && original && g, INVALID_VALUE);
	for (size_t i = 0; i < g->list.count; i++) {
		if (g->list.nodes[i]->origin != original)
			continue;
		*node = g->list.nodes[i];
		return TRZ_CUDA_SUCCESS;
	}
	return TRZ_CUDA_ERROR_INVALID_VALUE;
}

cuda_result cuGraphNodeGetContainingGraph(void *node, void **graph)
{
	LOOK_ENTER(cuGraphNodeGetContainingGraph);
	LOOK_NEED(node && graph, INVALID_VALUE);
	*graph = ((struct look_node *)node)->graph;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuGraphNodeGetLocalId(void *node, unsigned *id)
{
	const struct look_node *n = node;
	LOOK_ENTER(cuGraphNodeGetLocalId);
	LOOK_NEED(n && id && look_graph_settle(n->graph), INVALID_VALUE);
	for (*id = 0; *id < n->graph->list.count && n->graph->list.nodes[*id] != n;)
		++*id;
	return TRZ_CUDA_SUCCESS;
}

static const char *title(int type)
{
	static const char *const titles[] = {
		"KERNEL", "MEMCPY", "MEMSET", "HOST", "GRAPH", "EMPTY", "WAIT_EVENT", "EVENT_RECORD", "", "", "MEM_ALLOC",
		"MEM_FREE", "", "CONDITIONAL",
	};
	return titles[type];
}

cuda_result cuGraphDebugDotPrint(void *graph, const char *path, unsigned flags)
{
	struct look_graph *g = graph;
	LOOK_ENTER(cuGraphDebugDotPrint);
	(void)flags;
	LOOK_NEED(g && path && look_graph_settle(g), INVALID_VALUE);
	FILE *file = fopen(path, "w");
	LOOK_NEED(file, OPERATING_SYSTEM);
	fprintf(file, "digraph dot {\n");
	for (size_t i = 0; i < g->list.count; i++) {
		struct look_node *n = g->list.nodes[i];
		n->at = i;
		fprintf(file, "\tnode%zu [label=\"%zu %s\"];\n", i, i, title(n->is.type));
	}
	for (size_t i = 0; i < g->list.count; i++)
		for (size_t k = 0; k < g->list.nodes[i]->before_count; k++)
			fprintf(file, "\tnode%zu -> node%zu;\n", g->list.nodes[i]->before[k]->at, i);
	fprintf(file, "}\n");
	return fclose(file) == 0 ? TRZ_CUDA_SUCCESS : TRZ_CUDA_ERROR_OPERATING_SYSTEM;
}
