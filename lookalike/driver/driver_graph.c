/* SPDX-License-Identifier: Apache-2.0
 *
 * Captures and graphs. A graph of the simulator can be launched as it is, so an instance is the graph once more
 * and both live until the last of them has been destroyed. A program may ask for the graph of a capture under way;
 * it gets the one that the capture's end will fill.
 */
#include "driver_lookalike.h"

#include <pthread.h>
#include <stdlib.h>

enum { MOST_OBJECTS = 8, MOST_NODES = 0xffff };

/* What a program wants to live as long as a graph. */
struct user_object {
	void *object;
	cuda_function *destroy;
	unsigned references;         /* under the lock below */
};

/* What a program holds as graph and as its instances. All under the lock below. */
struct look_graph {
	struct look_graph *next;     /* of the captures under way */
	sim_graph graph;             /* 0: the capture has not ended */
	uint64_t capture;
	trz_context context;
	int holders;
	struct user_object *objects[MOST_OBJECTS];
	unsigned object_count;
};

static pthread_mutex_t graphs_lock = PTHREAD_MUTEX_INITIALIZER;
static struct look_graph *under_way;

/* A node is its graph's address, of 48 bits, and its place above that: a node's value needs no memory. */
struct look_node {
	struct look_graph *graph;
	size_t index;
};

static void *node_value(const struct look_graph *g, size_t index)
{
	return (void *)((uintptr_t)g | (uint64_t)(index + 1) << 48);
}

static struct look_node node_of(void *value)
{
	uint64_t bits = (uintptr_t)value;
	return (struct look_node){(struct look_graph *)(bits & ((1ull << 48) - 1)), (size_t)(bits >> 48) - 1};
}

/* ---- capturing ------------------------------------------------------------ */

cuda_result cuStreamBeginCapture_v2(void *stream, int mode)
{
	LOOK_ENTER(cuStreamBeginCapture_v2);
	trz_context context = look_stream_context(stream);
	LOOK_NEED(context, INVALID_CONTEXT);
	return look_result(sim_capture_begin(look.sim, context, stream, (trz_capture_mode)mode));
}

/* The graph of a capture under way, made where there is none yet; NULL: no host memory. */
static struct look_graph *graph_of(uint64_t capture, trz_context context)
{
	struct look_graph *g;
	pthread_mutex_lock(&graphs_lock);
	for (g = under_way; g && g->capture != capture;)
		g = g->next;
	if (!g && (g = calloc(1, sizeof *g))) {
		g->capture = capture;
		g->context = context;
		g->holders = 1;
		g->next = under_way;
		under_way = g;
	}
	pthread_mutex_unlock(&graphs_lock);
	return g;
}

static void no_longer_under_way(const struct look_graph *g)
{
	struct look_graph **at;
	pthread_mutex_lock(&graphs_lock);
	for (at = &under_way; *at && *at != g;)
		at = &(*at)->next;
	if (*at)
		*at = g->next;
	pthread_mutex_unlock(&graphs_lock);
}

cuda_result cuStreamEndCapture(void *stream, void **graph)
{
	sim_graph captured = 0;
	trz_capture_status status = TRZ_CAPTURE_NONE;
	uint64_t id = 0;
	LOOK_ENTER(cuStreamEndCapture);
	*graph = NULL;
	trz_context context = look_stream_context(stream);
	LOOK_NEED(context, INVALID_CONTEXT);
	look.table->stream_capture(look.table->self, context, stream, &status, &id);
	struct look_graph *g = graph_of(id, context);
	LOOK_NEED(g, OUT_OF_MEMORY);
	no_longer_under_way(g);
	cuda_result result = look_result(sim_capture_end(look.sim, context, stream, &captured));
	if (result != TRZ_CUDA_SUCCESS) {
		free(g);
		return status == TRZ_CAPTURE_INVALIDATED ? TRZ_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : result;
	}
	g->graph = captured;
	*graph = g;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuStreamGetCaptureInfo_v3(void *stream, int *capturing, uint64_t *id, void **graph, void *const **before,
                                      const struct cuda_edge **edges, size_t *count)
{
	static _Thread_local void *last_node;
	trz_capture_status status = TRZ_CAPTURE_NONE;
	uint64_t capture = 0;
	LOOK_ENTER(cuStreamGetCaptureInfo_v3);
	trz_context context = look_stream_context(stream);
	LOOK_NEED(context, INVALID_CONTEXT);
	trz_status failed = look.table->stream_capture(look.table->self, context, stream, &status, &capture);
	LOOK_NEED(failed != TRZ_ERROR_CAPTURE, STREAM_CAPTURE_IMPLICIT);
	if (failed != TRZ_OK)
		return look_result(failed);
	*capturing = (int)status;
	if (id)
		*id = capture;
	struct look_graph *g = status == TRZ_CAPTURE_ACTIVE && (graph || before) ? graph_of(capture, context) : NULL;
	size_t nodes = g ? sim_capture_nodes(look.sim, capture) : 0;
	last_node = nodes ? node_value(g, nodes - 1) : NULL;
	if (graph)
		*graph = g;
	if (before)
		*before = nodes ? &last_node : NULL;
	if (edges)
		*edges = NULL;
	if (count)
		*count = nodes > 0;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuStreamGetCaptureInfo_v2(void *stream, int *capturing, uint64_t *id, void **graph, void *const **before,
                                      size_t *count)
{
	return cuStreamGetCaptureInfo_v3(stream, capturing, id, graph, before, NULL, count);
}

cuda_result cuStreamGetCaptureInfo(void *stream, int *capturing, uint64_t *id)
{
	return cuStreamGetCaptureInfo_v3(stream, capturing, id, NULL, NULL, NULL, NULL);
}

cuda_result cuStreamIsCapturing(void *stream, int *capturing)
{
	LOOK_COUNT(cuStreamIsCapturing);
	return cuStreamGetCaptureInfo_v3(stream, capturing, NULL, NULL, NULL, NULL, NULL);
}

cuda_result cuThreadExchangeStreamCaptureMode(int *mode)
{
	LOOK_ENTER(cuThreadExchangeStreamCaptureMode);
	trz_capture_mode exchanged = (trz_capture_mode)*mode;
	cuda_result result = LOOK_SLOT(capture_mode, &exchanged);
	if (result == TRZ_CUDA_SUCCESS)
		*mode = (int)exchanged;
	return result;
}

/* ---- user objects ------------------------------------------------------------ */

cuda_result cuUserObjectCreate(void **object, void *pointer, cuda_function *destroy, unsigned references,
                               unsigned flags)
{
	LOOK_ENTER(cuUserObjectCreate);
	(void)flags;
	struct user_object *o = malloc(sizeof *o);
	LOOK_NEED(o, OUT_OF_MEMORY);
	*o = (struct user_object){pointer, destroy, references};
	*object = o;
	return TRZ_CUDA_SUCCESS;
}

static void release_object(struct user_object *o, unsigned references)
{
	pthread_mutex_lock(&graphs_lock);
	o->references -= references < o->references ? references : o->references;
	bool last = o->references == 0;
	pthread_mutex_unlock(&graphs_lock);
	if (!last)
		return;
	o->destroy(o->object);
	free(o);
}

cuda_result cuUserObjectRetain(void *object, unsigned references)
{
	LOOK_ENTER(cuUserObjectRetain);
	pthread_mutex_lock(&graphs_lock);
	((struct user_object *)object)->references += references;
	pthread_mutex_unlock(&graphs_lock);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuUserObjectRelease(void *object, unsigned references)
{
	LOOK_ENTER(cuUserObjectRelease);
	release_object(object, references);
	return TRZ_CUDA_SUCCESS;
}

/* The graph holds one reference, whatever the number given to it; `flags` 1 moves the caller's. */
cuda_result cuGraphRetainUserObject(void *graph, void *object, unsigned references, unsigned flags)
{
	struct look_graph *g = graph;
	LOOK_ENTER(cuGraphRetainUserObject);
	LOOK_NEED(g->object_count < MOST_OBJECTS, NOT_SUPPORTED);
	if (flags & 1)
		references--;
	cuUserObjectRetain(object, flags & 1 ? 0 : 1);
	g->objects[g->object_count++] = object;
	if (flags & 1 && references > 0)
		release_object(object, references);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuGraphReleaseUserObject(void *graph, void *object, unsigned references)
{
	struct look_graph *g = graph;
	LOOK_ENTER(cuGraphReleaseUserObject);
	(void)references;
	for (unsigned i = 0; i < g->object_count; i++) {
		if (g->objects[i] != object)
			continue;
		g->objects[i] = g->objects[--g->object_count];
		release_object(object, 1);
		return TRZ_CUDA_SUCCESS;
	}
	return TRZ_CUDA_ERROR_INVALID_VALUE;
}

/* ---- graphs ------------------------------------------------------------ */

static cuda_result instantiate(void **instance, void *graph)
{
	struct look_graph *g = graph;
	LOOK_NEED(g && g->graph, INVALID_VALUE);
	pthread_mutex_lock(&graphs_lock);
	g->holders++;
	pthread_mutex_unlock(&graphs_lock);
	*instance = g;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuGraphInstantiateWithFlags(void **instance, void *graph, unsigned long long flags)
{
	LOOK_ENTER(cuGraphInstantiateWithFlags);
	(void)flags; /* they concern memory nodes, launches by the device, and priorities */
	return instantiate(instance, graph);
}

cuda_result cuGraphInstantiate_v2(void **instance, void *graph, void **node, char *log, size_t size)
{
	LOOK_ENTER(cuGraphInstantiate_v2);
	if (node)
		*node = NULL;
	if (log && size)
		*log = '\0';
	return instantiate(instance, graph);
}

cuda_result cuGraphInstantiateWithParams(void **instance, void *graph, struct cuda_instantiate *params)
{
	LOOK_ENTER(cuGraphInstantiateWithParams);
	params->result = 0;
	params->error_node = NULL;
	return instantiate(instance, graph);
}

cuda_result cuGraphUpload(void *instance, void *stream)
{
	LOOK_ENTER(cuGraphUpload);
	(void)instance, (void)stream;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuGraphLaunch(void *instance, void *stream)
{
	const struct look_graph *g = instance;
	LOOK_ENTER(cuGraphLaunch);
	trz_context context = look_stream_context(stream);
	LOOK_NEED(context, INVALID_CONTEXT);
	__atomic_fetch_add(&look.graph_launches, 1, __ATOMIC_RELAXED);
	return look_enqueued(sim_graph_launch(look.sim, context, g->graph, stream));
}

static cuda_result drop(struct look_graph *g)
{
	LOOK_NEED(g, INVALID_VALUE);
	pthread_mutex_lock(&graphs_lock);
	bool last = --g->holders == 0;
	pthread_mutex_unlock(&graphs_lock);
	if (!last)
		return TRZ_CUDA_SUCCESS;
	/* An end of its context has ended the graph. */
	bool alive = sim_context_device(look.sim, g->context) >= 0;
	cuda_result result = alive ? look_result(sim_graph_destroy(look.sim, g->context, g->graph)) : TRZ_CUDA_SUCCESS;
	for (unsigned i = 0; i < g->object_count; i++)
		release_object(g->objects[i], 1);
	free(g);
	return result;
}

cuda_result cuGraphDestroy(void *graph)
{
	LOOK_ENTER(cuGraphDestroy);
	return drop(graph);
}

cuda_result cuGraphExecDestroy(void *instance)
{
	LOOK_ENTER(cuGraphExecDestroy);
	return drop(instance);
}

/* ---- nodes ------------------------------------------------------------ */

static size_t node_count(const struct look_graph *g)
{
	return g->graph ? sim_graph_nodes(look.sim, g->graph) : sim_capture_nodes(look.sim, g->capture);
}

cuda_result cuGraphGetNodes(void *graph, void **nodes, size_t *count)
{
	LOOK_ENTER(cuGraphGetNodes);
	size_t all = node_count(graph), room = nodes ? *count : 0;
	LOOK_NEED(!nodes || all < MOST_NODES, NOT_SUPPORTED);
	for (size_t i = 0; i < room; i++)
		nodes[i] = i < all ? node_value(graph, i) : NULL;
	*count = nodes && room < all ? room : all;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuGraphGetRootNodes(void *graph, void **nodes, size_t *count)
{
	const struct look_graph *g = graph;
	sim_node_kind kind;
	LOOK_ENTER(cuGraphGetRootNodes);
	size_t all = node_count(g), found = 0;
	for (size_t i = 0; i < all; i++) {
		if (sim_graph_node(look.sim, g->graph, i, &kind, NULL, 0) > 0)
			continue;
		if (nodes && found < *count)
			nodes[found] = node_value(g, i);
		found++;
	}
	*count = nodes && *count < found ? *count : found;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuGraphNodeGetType(void *node, int *type)
{
	static const int types[] = {
		[SIM_NODE_KERNEL] = TRZ_CU_GRAPH_NODE_TYPE_KERNEL, [SIM_NODE_COPY] = TRZ_CU_GRAPH_NODE_TYPE_MEMCPY,
		[SIM_NODE_FILL] = TRZ_CU_GRAPH_NODE_TYPE_MEMSET, [SIM_NODE_HOST] = TRZ_CU_GRAPH_NODE_TYPE_HOST,
	};
	sim_node_kind kind = SIM_NODE_KERNEL;
	LOOK_ENTER(cuGraphNodeGetType);
	struct look_node n = node_of(node);
	LOOK_NEED(n.graph && n.index < node_count(n.graph), INVALID_VALUE);
	sim_graph_node(look.sim, n.graph->graph, n.index, &kind, NULL, 0);
	*type = types[kind];
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuGraphNodeGetDependencies_v2(void *node, void **before, struct cuda_edge *edges, size_t *count)
{
	enum { MOST = 64 };
	size_t found[MOST];
	sim_node_kind kind;
	LOOK_ENTER(cuGraphNodeGetDependencies_v2);
	struct look_node n = node_of(node);
	LOOK_NEED(n.graph && n.index < node_count(n.graph), INVALID_VALUE);
	size_t all = sim_graph_node(look.sim, n.graph->graph, n.index, &kind, found, MOST);
	size_t room = before ? *count : all;
	for (size_t i = 0; before && i < room; i++)
		before[i] = i < all && i < MOST ? node_value(n.graph, found[i]) : NULL;
	for (size_t i = 0; edges && i < room; i++)
		edges[i] = (struct cuda_edge){0};
	*count = room < all ? room : all;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuGraphNodeGetDependencies(void *node, void **before, size_t *count)
{
	return cuGraphNodeGetDependencies_v2(node, before, NULL, count);
}
