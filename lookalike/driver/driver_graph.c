/* SPDX-License-Identifier: Apache-2.0
 *
 * Captures and graphs. A graph of the simulator can be launched as it is, so an instance is the graph once more
 * and both live until the last of them has been destroyed. A program may ask for the graph of a capture under way;
 * it gets the one that the capture's end will fill.
 */
#include "driver_lookalike.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_OBJECTS = 8, NODE_CHUNK = 1024, MOST_TAILS = 64 };

/* A program's object that lives as long as a graph. */
struct user_object {
	void *object;
	cuda_function *destroy;
	unsigned references;         /* under the lock below */
};

/* A graph and its instances, as a program holds them. All under the lock below. */
struct look_graph {
	struct look_graph *next;     /* of the captures in progress */
	sim_graph graph;             /* 0: the capture has not ended */
	uint64_t capture;
	trz_context context;
	int holders;
	struct user_object *objects[MOST_OBJECTS];
	unsigned object_count;
	struct look_node **chunks;   /* what node handles point to, made where one is first asked for */
	size_t chunk_count;
};

/* `number` is the simulator's. */
struct look_node {
	struct look_graph *graph;
	size_t number;
};

static pthread_mutex_t graphs_lock = PTHREAD_MUTEX_INITIALIZER;
static struct look_graph *under_way;

/* Under the lock; false: no host memory. */
static bool make_chunk(struct look_graph *g, size_t index)
{
	if (index >= g->chunk_count) {
		struct look_node **chunks = realloc(g->chunks, (index + 1) * sizeof(struct look_node *));
		if (!chunks)
			return false;
		memset(chunks + g->chunk_count, 0, (index + 1 - g->chunk_count) * sizeof(struct look_node *));
		g->chunks = chunks;
		g->chunk_count = index + 1;
	}
	if (g->chunks[index])
		return true;
	struct look_node *chunk = malloc(NODE_CHUNK * sizeof *chunk);
	for (size_t i = 0; chunk && i < NODE_CHUNK; i++)
		chunk[i] = (struct look_node){g, index * NODE_CHUNK + i};
	g->chunks[index] = chunk;
	return chunk != NULL;
}

/* The handle of a node, which never changes; NULL: no host memory. */
static void *node_value(struct look_graph *g, size_t number)
{
	pthread_mutex_lock(&graphs_lock);
	void *value = make_chunk(g, number / NODE_CHUNK) ? &g->chunks[number / NODE_CHUNK][number % NODE_CHUNK] : NULL;
	pthread_mutex_unlock(&graphs_lock);
	return value;
}

/* Writes the handles of up to `room` of the nodes. */
static bool node_values(struct look_graph *g, const size_t *numbers, size_t count, void **values, size_t room)
{
	bool made = true;
	for (size_t i = 0; i < room; i++) {
		values[i] = i < count ? node_value(g, numbers[i]) : NULL;
		made = made && (values[i] || i >= count);
	}
	return made;
}

static void free_graph(struct look_graph *g)
{
	look_pools_end_graph(g->capture);
	for (size_t i = 0; i < g->chunk_count; i++)
		free(g->chunks[i]);
	free(g->chunks);
	free(g);
}

/* ---- capturing ------------------------------------------------------------ */

cuda_result cuStreamBeginCapture_v2(void *stream, int mode)
{
	LOOK_ENTER(cuStreamBeginCapture_v2);
	trz_context context = look_stream_context(stream);
	LOOK_NEED(context, INVALID_CONTEXT);
	bool begun = look_note_begin();
	cuda_result result = look_result(sim_capture_begin(look.sim, context, stream, (trz_capture_mode)mode));
	bool happened = begun && result == TRZ_CUDA_SUCCESS;
	uint64_t capture = happened ? sim_capture_of(look.sim, context, stream) : 0;
	look_note_end(begun, happened, SIM_RECORDED_CAPTURE_BEGIN, context, stream, capture);
	return result;
}

/* The graph of a capture in progress, made if there is none yet; NULL: no host memory. */
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
	LOOK_ENTER(cuStreamEndCapture);
	*graph = NULL;
	trz_context context = look_stream_context(stream);
	LOOK_NEED(context, INVALID_CONTEXT);
	struct look_graph *g = graph_of(sim_capture_of(look.sim, context, stream), context);
	LOOK_NEED(g, OUT_OF_MEMORY);
	bool begun = look_note_begin();
	cuda_result result = look_result(sim_capture_end(look.sim, context, stream, &captured));
	/* On a wrong stream, or in a wrong thread, it goes on. */
	bool goes_on = result == TRZ_CUDA_ERROR_STREAM_CAPTURE_UNMATCHED ||
	               result == TRZ_CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	look_note_end(begun, !goes_on, SIM_RECORDED_CAPTURE_END, context, stream, g->capture);
	if (!goes_on)
		no_longer_under_way(g);
	if (result != TRZ_CUDA_SUCCESS) {
		if (!goes_on)
			free_graph(g);
		return result;
	}
	g->graph = captured;
	*graph = g;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuStreamGetCaptureInfo_v3(void *stream, int *capturing, uint64_t *id, void **graph, void *const **before,
                                      const struct cuda_edge **edges, size_t *count)
{
	static _Thread_local void *tail[MOST_TAILS];
	size_t numbers[MOST_TAILS];
	trz_capture_status status = TRZ_CAPTURE_NONE;
	uint64_t capture = 0;
	LOOK_ENTER(cuStreamGetCaptureInfo_v3);
	trz_context context = look_stream_context(stream);
	LOOK_NEED(context, INVALID_CONTEXT);
	trz_status failed = sim_capture_info(look.sim, context, stream, &status, &capture);
	if (failed != TRZ_OK)
		return look_result(failed);
	*capturing = (int)status;
	if (id)
		*id = capture;
	struct look_graph *g = status == TRZ_CAPTURE_ACTIVE && (graph || before) ? graph_of(capture, context) : NULL;
	size_t nodes = g ? sim_stream_tail(look.sim, context, stream, numbers, MOST_TAILS) : 0;
	LOOK_NEED(node_values(g, numbers, nodes, tail, nodes), OUT_OF_MEMORY);
	if (graph)
		*graph = g;
	if (before)
		*before = nodes ? tail : NULL;
	if (edges)
		*edges = NULL;
	if (count)
		*count = nodes;
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
	trz_capture_status status = TRZ_CAPTURE_NONE;
	uint64_t capture = 0;
	LOOK_ENTER(cuStreamIsCapturing);
	trz_context context = look_stream_context(stream);
	LOOK_NEED(context, INVALID_CONTEXT);
	cuda_result result = LOOK_SLOT(stream_capture, context, stream, &status, &capture);
	if (result == TRZ_CUDA_SUCCESS)
		*capturing = (int)status;
	return result;
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

/* The graph holds one reference, whatever number the caller passes; `flags` 1 moves the caller's. */
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
	__atomic_fetch_add(&look_live.graph_launches, 1, __ATOMIC_RELAXED);
	bool begun = look_note_begin();
	trz_status status = sim_graph_launch(look.sim, context, g->graph, stream);
	look_note_end(begun, status == TRZ_OK, SIM_RECORDED_LAUNCH, context, stream, g->capture);
	if (status == TRZ_OK)
		look_pools_launched(g->capture, context, stream);
	return look_enqueued(status);
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
	free_graph(g);
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

/* The numbers of all nodes, to be freed; NULL: no host memory. */
static size_t *list_nodes(const struct look_graph *g, size_t *count)
{
	*count = sim_graph_nodes(look.sim, g->graph, g->capture, NULL, 0);
	size_t *numbers = malloc((*count + 1) * sizeof *numbers);
	if (numbers)
		*count = sim_graph_nodes(look.sim, g->graph, g->capture, numbers, *count);
	return numbers;
}

/* All nodes, or those that follow on no other. */
static cuda_result give_nodes(struct look_graph *g, bool roots, void **nodes, size_t *count)
{
	sim_node_kind kind;
	size_t all, found = 0;
	size_t *numbers = list_nodes(g, &all);
	LOOK_NEED(numbers, OUT_OF_MEMORY);
	for (size_t i = 0; i < all; i++)
		if (!roots || sim_graph_node(look.sim, g->graph, g->capture, numbers[i], &kind, NULL, 0) == 0)
			numbers[found++] = numbers[i];
	size_t room = nodes ? *count : found;
	bool made = !nodes || node_values(g, numbers, found, nodes, room);
	*count = room < found ? room : found;
	free(numbers);
	return made ? TRZ_CUDA_SUCCESS : TRZ_CUDA_ERROR_OUT_OF_MEMORY;
}

cuda_result cuGraphGetNodes(void *graph, void **nodes, size_t *count)
{
	LOOK_ENTER(cuGraphGetNodes);
	return give_nodes(graph, false, nodes, count);
}

cuda_result cuGraphGetRootNodes(void *graph, void **nodes, size_t *count)
{
	LOOK_ENTER(cuGraphGetRootNodes);
	return give_nodes(graph, true, nodes, count);
}

cuda_result cuGraphNodeGetType(void *node, int *type)
{
	static const int types[] = {
		[SIM_NODE_KERNEL] = TRZ_CU_GRAPH_NODE_TYPE_KERNEL, [SIM_NODE_COPY] = TRZ_CU_GRAPH_NODE_TYPE_MEMCPY,
		[SIM_NODE_FILL] = TRZ_CU_GRAPH_NODE_TYPE_MEMSET, [SIM_NODE_HOST] = TRZ_CU_GRAPH_NODE_TYPE_HOST,
		[SIM_NODE_AWAIT] = TRZ_CU_GRAPH_NODE_TYPE_WAIT_EVENT, [SIM_NODE_RECORD] = TRZ_CU_GRAPH_NODE_TYPE_EVENT_RECORD,
	};
	sim_node_kind kind = SIM_NODE_KERNEL;
	const struct look_node *n = node;
	LOOK_ENTER(cuGraphNodeGetType);
	LOOK_NEED(n, INVALID_VALUE);
	sim_graph_node(look.sim, n->graph->graph, n->graph->capture, n->number, &kind, NULL, 0);
	*type = types[kind];
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuGraphNodeGetDependencies_v2(void *node, void **before, struct cuda_edge *edges, size_t *count)
{
	size_t numbers[MOST_TAILS];
	sim_node_kind kind;
	const struct look_node *n = node;
	LOOK_ENTER(cuGraphNodeGetDependencies_v2);
	LOOK_NEED(n, INVALID_VALUE);
	struct look_graph *g = n->graph;
	size_t all = sim_graph_node(look.sim, g->graph, g->capture, n->number, &kind, numbers, MOST_TAILS);
	size_t room = before ? *count : all;
	LOOK_NEED(!before || node_values(g, numbers, all, before, room), OUT_OF_MEMORY);
	for (size_t i = 0; edges && i < room; i++)
		edges[i] = (struct cuda_edge){0};
	*count = room < all ? room : all;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuGraphNodeGetDependencies(void *node, void **before, size_t *count)
{
	return cuGraphNodeGetDependencies_v2(node, before, NULL, count);
}
