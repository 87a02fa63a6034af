/* SPDX-License-Identifier: Apache-2.0
 *
 * Instances of graphs: what a launch runs, and changes to it. An instance of an unchanged captured graph has no nodes
 * of its own until the program changes one.
 */
#include "driver_graph.h"

#include <stdlib.h>
#include <string.h>

/* ---- making and ending ------------------------------------------------------------ */

static void free_exec(struct look_exec *e)
{
	if (e->instances)
		e->instances->count--;
	if (e->instances && --e->instances->holders == 0)
		free(e->instances);
	if (e->made && sim_context_device(look.sim, e->context) >= 0)
		sim_graph_destroy(look.sim, e->context, e->made);
	look_list_free(&e->list);
	if (e->source)
		look_source_drop(e->source);
	look_objects_drop_after(&e->objects, e->launched_in, e->launched);
	free(e);
}

/* Gives the instance a graph's work: copies of its nodes, or what it captured. */
static cuda_result take_nodes(struct look_exec *e, struct look_graph *g)
{
	if (g->source)
		e->source = look_source_hold(g->source);
	e->listed = g->changed;
	return g->changed ? look_list_copy(&g->list, NULL, &e->list) : TRZ_CUDA_SUCCESS;
}

static cuda_result check_order(struct look_list *list)
{
	LOOK_NEED(look_list_sort(list), INVALID_VALUE);
	return TRZ_CUDA_SUCCESS;
}

/* Counts an instance of a graph with memory, which may have one at a time; false: no host memory. */
static bool count_memory(struct look_exec *e, struct look_graph *g)
{
	e->has_memory = g->has_memory;
	if (!g->has_memory)
		return true;
	if (!g->instances && (g->instances = calloc(1, sizeof *g->instances)))
		g->instances->holders = 1;
	if (!g->instances)
		return false;
	g->instances->count++;
	g->instances->holders++;
	e->instances = g->instances;
	return true;
}

static cuda_result instantiate(void **instance, void *graph, unsigned long long flags)
{
	struct look_graph *g = graph;
	LOOK_NEED(instance && g && !g->belongs && !look_graph_under_way(g), INVALID_VALUE);
	LOOK_NEED(!g->has_memory || !g->instances || g->instances->count == 0, NOT_SUPPORTED);
	LOOK_NEED(!g->changed || look_graph_settle(g), OUT_OF_MEMORY);
	struct look_exec *e = calloc(1, sizeof *e);
	LOOK_NEED(e, OUT_OF_MEMORY);
	e->flags = flags;
	cuda_result result = take_nodes(e, g);
	if (result == TRZ_CUDA_SUCCESS)
		result = check_order(&e->list);
	if (result != TRZ_CUDA_SUCCESS) {
		free_exec(e);
		return result;
	}
	if (!count_memory(e, g) || !look_objects_copy(&e->objects, &g->objects)) {
		free_exec(e);
		return TRZ_CUDA_ERROR_OUT_OF_MEMORY;
	}
	*instance = e;
	return TRZ_CUDA_SUCCESS;
}

/* Only the flag about allocations makes a difference; the others are for launches by the device, and priorities. */
cuda_result cuGraphInstantiateWithFlags(void **instance, void *graph, unsigned long long flags)
{
	LOOK_ENTER(cuGraphInstantiateWithFlags);
	return instantiate(instance, graph, flags);
}

cuda_result cuGraphInstantiate_v2(void **instance, void *graph, void **node, char *log, size_t size)
{
	LOOK_ENTER(cuGraphInstantiate_v2);
	if (node)
		*node = NULL;
	if (log && size)
		*log = '\0';
	return instantiate(instance, graph, 0);
}

cuda_result cuGraphInstantiateWithParams(void **instance, void *graph, struct cuda_instantiate *params)
{
	enum { CU_GRAPH_INSTANTIATE_ERROR = 1 };
	LOOK_ENTER(cuGraphInstantiateWithParams);
	LOOK_NEED(instance && graph && params, INVALID_VALUE);
	params->error_node = NULL;
	cuda_result result = instantiate(instance, graph, params->flags);
	params->result = result == TRZ_CUDA_SUCCESS ? 0 : CU_GRAPH_INSTANTIATE_ERROR;
	return result;
}

cuda_result cuGraphExecDestroy(void *instance)
{
	LOOK_ENTER(cuGraphExecDestroy);
	LOOK_NEED(instance, INVALID_VALUE);
	free_exec(instance);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuGraphExecGetFlags(void *instance, unsigned long long *flags)
{
	LOOK_ENTER(cuGraphExecGetFlags);
	LOOK_NEED(instance && flags, INVALID_VALUE);
	*flags = ((struct look_exec *)instance)->flags;
	return TRZ_CUDA_SUCCESS;
}

/* ---- launching ------------------------------------------------------------ */

static void unmake(struct look_exec *e)
{
	if (e->made && sim_context_device(look.sim, e->context) >= 0)
		sim_graph_destroy(look.sim, e->context, e->made);
	e->made = 0;
}

/* Gives the instance memory for its allocations, and the simulator's graph that names this memory. */
static cuda_result make_ready(struct look_exec *e, trz_context context, void *stream)
{
	bool moved = false;
	cuda_result result = look_blocks_lay(e, context, stream, &moved);
	if (result != TRZ_CUDA_SUCCESS)
		return result;
	if (moved)
		unmake(e);
	if (!e->listed || e->made)
		return TRZ_CUDA_SUCCESS;
	trz_lookalike_stop_recording("a graph that was not just captured");
	e->context = context;
	return look_list_make(&e->list, context, &e->made);
}

cuda_result cuGraphUpload(void *instance, void *stream)
{
	LOOK_ENTER(cuGraphUpload);
	trz_context context = look_stream_context(stream);
	LOOK_NEED(context, INVALID_CONTEXT);
	LOOK_NEED(instance, INVALID_VALUE);
	return make_ready(instance, context, stream);
}

/* The capture of node `i` of the list, if it is not that of the node before; at the list's end the instance's own; 0:
 * none. */
static uint64_t next_capture(const struct look_exec *e, size_t i)
{
	const struct look_source *s = i < e->list.count ? e->list.nodes[i]->source : e->source;
	const struct look_source *last = i > 0 && i < e->list.count ? e->list.nodes[i - 1]->source : NULL;
	return s && s != last ? s->capture : 0;
}

/* Whether the pools' memory that the launch allocates is not allocated now, or the launch frees it first. */
static bool pools_allow(const struct look_exec *e)
{
	uint64_t capture;
	if (!e->has_memory || e->flags & TRZ_CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH)
		return true;
	for (size_t i = 0; i <= e->list.count; i++)
		if ((capture = next_capture(e, i)) && !look_pools_may_launch(capture))
			return false;
	return true;
}

static void tell_pools(const struct look_exec *e, trz_context context, void *stream)
{
	uint64_t capture;
	for (size_t i = 0; e->has_memory && i <= e->list.count; i++)
		if ((capture = next_capture(e, i)))
			look_pools_launched(capture, context, stream);
}

static bool list_it(struct look_exec *e)
{
	if (!e->listed && e->source)
		e->listed = look_source_list(e->source, &e->list);
	return e->listed;
}

/* A launch in a capture adds the instance's nodes to the capture. */
static cuda_result launch_captured(struct look_exec *e, trz_context context, void *stream)
{
	bool moved;
	LOOK_NEED(list_it(e), OUT_OF_MEMORY);
	cuda_result result = look_blocks_lay(e, context, stream, &moved);
	return result == TRZ_CUDA_SUCCESS ? look_list_capture(&e->list, context, stream) : result;
}

/* Notes until when the launch may use what the instance holds for the program. */
static void note_launched(struct look_exec *e, trz_context context, void *stream)
{
	if (!e->objects.count)
		return;
	if (e->launched && sim_context_device(look.sim, e->launched_in) < 0)
		e->launched = NULL;  /* it has ended with its context */
	look_mark(&e->launched_in, &e->launched, context, stream);
}

cuda_result cuGraphLaunch(void *instance, void *stream)
{
	struct look_exec *e = instance;
	LOOK_ENTER(cuGraphLaunch);
	trz_context context = look_stream_context(stream);
	LOOK_NEED(context, INVALID_CONTEXT);
	LOOK_NEED(e, INVALID_VALUE);
	if (sim_capture_of(look.sim, context, stream))
		return launch_captured(e, context, stream);
	LOOK_NEED(pools_allow(e), INVALID_VALUE);
	cuda_result result = make_ready(e, context, stream);
	if (result != TRZ_CUDA_SUCCESS)
		return result;
	__atomic_fetch_add(&look_live.graph_launches, 1, __ATOMIC_RELAXED);
	bool begun = look_note_begin();
	trz_status status = sim_graph_launch(look.sim, context, e->listed ? e->made : e->source->graph, stream);
	look_note_end(begun, status == TRZ_OK, SIM_RECORDED_LAUNCH, context, stream, e->source ? e->source->capture : 0);
	if (status == TRZ_OK) {
		tell_pools(e, context, stream);
		look_blocks_launched(e, context, stream);
		note_launched(e, context, stream);
	}
	return look_enqueued(status);
}

/* ---- changes ------------------------------------------------------------ */

/* The instance's copy of a node of the graph that it was made of; NULL: it has none. */
static struct look_node *own_node(struct look_exec *e, const struct look_node *n)
{
	if (!n || !list_it(e))
		return NULL;
	for (size_t i = 0; i < e->list.count; i++) {
		struct look_node *own = e->list.nodes[i];
		bool captured = !n->single && n->graph->source == e->source && own->number == n->number;
		if (own->origin == n || (!own->origin && captured))
			return own;
	}
	return NULL;
}

static cuda_result set_params(void *instance, void *node, const struct cuda_node *is)
{
	struct look_exec *e = instance;
	LOOK_NEED(e && node && is, INVALID_VALUE);
	struct look_node *own = own_node(e, node);
	LOOK_NEED(own && own->is.type == is->type, INVALID_VALUE);
	bool fixed = is->type == TRZ_CU_GRAPH_NODE_TYPE_MEM_ALLOC || is->type == TRZ_CU_GRAPH_NODE_TYPE_MEM_FREE ||
	             is->type == TRZ_CU_GRAPH_NODE_TYPE_CONDITIONAL;
	LOOK_NEED(!fixed, NOT_SUPPORTED);
	cuda_result result = look_node_set(own, is);
	if (result == TRZ_CUDA_SUCCESS)
		unmake(e);
	return result;
}

cuda_result cuGraphExecNodeSetParams(void *instance, void *node, const struct cuda_node *is)
{
	LOOK_ENTER(cuGraphExecNodeSetParams);
	return set_params(instance, node, is);
}

cuda_result cuGraphExecKernelNodeSetParams_v2(void *instance, void *node, const struct cuda_kernel_node *kernel)
{
	LOOK_ENTER(cuGraphExecKernelNodeSetParams_v2);
	LOOK_NEED(kernel, INVALID_VALUE);
	const struct cuda_node is = {.type = TRZ_CU_GRAPH_NODE_TYPE_KERNEL, .of.kernel = *kernel};
	return set_params(instance, node, &is);
}

cuda_result cuGraphExecKernelNodeSetParams(void *instance, void *node, const struct cuda_kernel_node *kernel)
{
	struct cuda_kernel_node whole = {0};
	LOOK_NEED(kernel, INVALID_VALUE);
	memcpy(&whole, kernel, CUDA_KERNEL_NODE_V1);
	return cuGraphExecKernelNodeSetParams_v2(instance, node, &whole);
}

cuda_result cuGraphExecMemcpyNodeSetParams(void *instance, void *node, const struct cuda_copy_3d *copy, void *context)
{
	LOOK_ENTER(cuGraphExecMemcpyNodeSetParams);
	LOOK_NEED(copy, INVALID_VALUE);
	const struct cuda_node is = {
		.type = TRZ_CU_GRAPH_NODE_TYPE_MEMCPY, .of.copy = {.context = context, .copy = *copy},
	};
	return set_params(instance, node, &is);
}

cuda_result cuGraphExecMemsetNodeSetParams(void *instance, void *node, const struct cuda_fill_node *fill, void *context)
{
	LOOK_ENTER(cuGraphExecMemsetNodeSetParams);
	LOOK_NEED(fill, INVALID_VALUE);
	struct cuda_node is = {.type = TRZ_CU_GRAPH_NODE_TYPE_MEMSET};
	memcpy(&is.of.fill, fill, CUDA_FILL_NODE_V1);
	is.of.fill.context = context;
	return set_params(instance, node, &is);
}

cuda_result cuGraphExecHostNodeSetParams(void *instance, void *node, const struct cuda_host_node *host)
{
	LOOK_ENTER(cuGraphExecHostNodeSetParams);
	LOOK_NEED(host, INVALID_VALUE);
	const struct cuda_node is = {.type = TRZ_CU_GRAPH_NODE_TYPE_HOST, .of.host = *host};
	return set_params(instance, node, &is);
}

cuda_result cuGraphExecChildGraphNodeSetParams(void *instance, void *node, void *child)
{
	LOOK_ENTER(cuGraphExecChildGraphNodeSetParams);
	LOOK_NEED(child, INVALID_VALUE);
	const struct cuda_node is = {.type = TRZ_CU_GRAPH_NODE_TYPE_GRAPH, .of.child = {.graph = child}};
	return set_params(instance, node, &is);
}

cuda_result cuGraphExecEventRecordNodeSetEvent(void *instance, void *node, void *event)
{
	LOOK_ENTER(cuGraphExecEventRecordNodeSetEvent);
	const struct cuda_node is = {.type = TRZ_CU_GRAPH_NODE_TYPE_EVENT_RECORD, .of.event = event};
	return set_params(instance, node, &is);
}

cuda_result cuGraphExecEventWaitNodeSetEvent(void *instance, void *node, void *event)
{
	LOOK_ENTER(cuGraphExecEventWaitNodeSetEvent);
	const struct cuda_node is = {.type = TRZ_CU_GRAPH_NODE_TYPE_WAIT_EVENT, .of.event = event};
	return set_params(instance, node, &is);
}

cuda_result cuGraphNodeSetEnabled(void *instance, void *node, unsigned enabled)
{
	LOOK_ENTER(cuGraphNodeSetEnabled);
	LOOK_NEED(instance && node, INVALID_VALUE);
	struct look_node *own = own_node(instance, node);
	LOOK_NEED(own && own->is.type <= TRZ_CU_GRAPH_NODE_TYPE_MEMSET, INVALID_VALUE);
	own->disabled = !enabled;
	unmake(instance);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuGraphNodeGetEnabled(void *instance, void *node, unsigned *enabled)
{
	LOOK_ENTER(cuGraphNodeGetEnabled);
	LOOK_NEED(instance && node && enabled, INVALID_VALUE);
	const struct look_node *own = own_node(instance, node);
	LOOK_NEED(own && own->is.type <= TRZ_CU_GRAPH_NODE_TYPE_MEMSET, INVALID_VALUE);
	*enabled = !own->disabled;
	return TRZ_CUDA_SUCCESS;
}

/* ---- the nodes of another graph ------------------------------------------------------------ */

/* The node of the graph that one of the copies stands for. */
static struct look_node *original(const struct look_graph *g, const struct look_node *copy)
{
	size_t i = 0;
	while (i < g->list.count && g->list.nodes[i] != copy->origin)
		i++;
	return i < g->list.count ? g->list.nodes[i] : NULL;
}

/* Whether copies of a graph's nodes, sorted like the instance's, may take their places; else `u` says why not. */
static bool fits(const struct look_exec *e, const struct look_list *new, const struct look_graph *g,
                 struct cuda_update *u)
{
	u->result = TRZ_CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
	if (e->list.count != new->count)
		return false;
	for (size_t i = 0; i < e->list.count; i++)
		e->list.nodes[i]->at = i;
	for (size_t i = 0; i < e->list.count; i++) {
		const struct look_node *own = e->list.nodes[i], *n = new->nodes[i];
		u->node = original(g, n);
		if (own->before_count != n->before_count)
			return false;
		for (size_t k = 0; k < n->before_count; k++) {
			u->from = original(g, n->before[k]);
			if (own->before[k]->at != n->before[k]->at)
				return false;
		}
		u->from = NULL;
		u->result = TRZ_CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
		if (own->is.type != n->is.type)
			return false;
		u->result = TRZ_CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
	}
	*u = (struct cuda_update){.result = TRZ_CU_GRAPH_EXEC_UPDATE_SUCCESS};
	return true;
}

/* Takes another graph's nodes. The program may still name them by the graph that the instance was first made of. */
static cuda_result replace_nodes(struct look_exec *e, struct look_graph *g, struct cuda_update *u)
{
	struct look_list new = {0};
	cuda_result result = look_list_copy(&g->list, NULL, &new);
	if (result == TRZ_CUDA_SUCCESS && (!look_list_sort(&new) || !fits(e, &new, g, u)))
		result = TRZ_CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
	if (result != TRZ_CUDA_SUCCESS) {
		look_list_free(&new);
		return result;
	}
	for (size_t i = 0; i < new.count; i++) {
		new.nodes[i]->origin = e->list.nodes[i]->origin;
		new.nodes[i]->number = new.nodes[i]->source ? new.nodes[i]->number : e->list.nodes[i]->number;
	}
	look_list_free(&e->list);
	e->list = new;
	e->listed = true;
	unmake(e);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuGraphExecUpdate_v2(void *instance, void *graph, struct cuda_update *u)
{
	struct look_exec *e = instance;
	struct look_graph *g = graph;
	struct cuda_update own;
	LOOK_ENTER(cuGraphExecUpdate_v2);
	u = u ? u : &own;
	*u = (struct cuda_update){.result = TRZ_CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED};
	LOOK_NEED(e && g && !g->belongs, INVALID_VALUE);
	LOOK_NEED(!e->has_memory && !g->has_memory, GRAPH_EXEC_UPDATE_FAILURE);
	LOOK_NEED(list_it(e) && look_graph_settle(g), OUT_OF_MEMORY);
	return replace_nodes(e, g, u);
}

cuda_result cuGraphExecUpdate(void *instance, void *graph, void **node, int *why)
{
	struct cuda_update u = {0};
	cuda_result result = cuGraphExecUpdate_v2(instance, graph, &u);
	if (node)
		*node = u.node;
	if (why)
		*why = u.result;
	return result;
}
