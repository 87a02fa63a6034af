/* SPDX-License-Identifier: Apache-2.0
 *
 * Captures and the graphs that they make. A program that asks for the graph of a capture under way, and may add to it,
 * gets the graph that the capture's end will fill.
 */
#include "driver_graph.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TAILS = 64 };

static pthread_mutex_t graphs_lock = PTHREAD_MUTEX_INITIALIZER;
static struct look_graph *under_way;

void look_graphs_lock(void)
{
	pthread_mutex_lock(&graphs_lock);
}

void look_graphs_unlock(void)
{
	pthread_mutex_unlock(&graphs_lock);
}

/* ---- what a capture made ------------------------------------------------------------ */

struct look_source *look_source_hold(struct look_source *s)
{
	__atomic_fetch_add(&s->references, 1, __ATOMIC_RELAXED);
	return s;
}

/* If the source's context has ended, its graph has, too. */
void look_source_drop(struct look_source *s)
{
	if (__atomic_sub_fetch(&s->references, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	if (s->graph && sim_context_device(look.sim, s->context) >= 0)
		sim_graph_destroy(look.sim, s->context, s->graph);
	look_pools_end_graph(s->capture);
	free(s);
}

/* ---- handles of captured nodes ------------------------------------------------------------ */

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
	struct look_node *chunk = calloc(LOOK_NODE_CHUNK, sizeof *chunk);
	for (size_t i = 0; chunk && i < LOOK_NODE_CHUNK; i++)
		chunk[i] = (struct look_node){.graph = g, .number = index * LOOK_NODE_CHUNK + i};
	g->chunks[index] = chunk;
	return chunk != NULL;
}

/* The node that the program added at this place of the capture; NULL: none. */
static struct look_node *placed_at(const struct look_graph *g, size_t number)
{
	for (size_t i = 0; i < g->waiting.count; i++)
		if (g->waiting.nodes[i]->placed && g->waiting.nodes[i]->number == number)
			return g->waiting.nodes[i];
	return NULL;
}

/* A node's handle, which never changes; NULL: no host memory. */
static struct look_node *node_value(struct look_graph *g, size_t number)
{
	pthread_mutex_lock(&graphs_lock);
	struct look_node *value = placed_at(g, number);
	size_t chunk = number / LOOK_NODE_CHUNK;
	if (!value && make_chunk(g, chunk))
		value = &g->chunks[chunk][number % LOOK_NODE_CHUNK];
	pthread_mutex_unlock(&graphs_lock);
	return value;
}

/* ---- lists of captured nodes ------------------------------------------------------------ */

static int type_of(sim_node_kind kind)
{
	static const int types[] = {
		[SIM_NODE_KERNEL] = TRZ_CU_GRAPH_NODE_TYPE_KERNEL, [SIM_NODE_COPY] = TRZ_CU_GRAPH_NODE_TYPE_MEMCPY,
		[SIM_NODE_FILL] = TRZ_CU_GRAPH_NODE_TYPE_MEMSET, [SIM_NODE_HOST] = TRZ_CU_GRAPH_NODE_TYPE_HOST,
		[SIM_NODE_AWAIT] = TRZ_CU_GRAPH_NODE_TYPE_WAIT_EVENT, [SIM_NODE_RECORD] = TRZ_CU_GRAPH_NODE_TYPE_EVENT_RECORD,
	};
	return types[kind];
}

/* The numbers of all nodes, which the caller frees; NULL: no host memory. */
static size_t *list_numbers(sim_graph graph, uint64_t capture, size_t *count)
{
	*count = sim_graph_nodes(look.sim, graph, capture, NULL, 0);
	size_t *numbers = malloc((*count + 1) * sizeof *numbers);
	if (numbers)
		*count = sim_graph_nodes(look.sim, graph, capture, numbers, *count);
	return numbers;
}

/* Finds a node of the list, which is sorted by number. */
static struct look_node *with_number(const struct look_list *list, size_t number)
{
	size_t low = 0, high = list->count;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (list->nodes[middle]->number < number)
			low = middle + 1;
		else
			high = middle;
	}
	return list->nodes[low];
}

/* Fills in what a captured node does and follows. A node that the program added keeps what it does. */
static bool describe(struct look_node *n, struct look_source *s, const struct look_list *list)
{
	size_t numbers[MOST_TAILS];
	sim_node_kind kind = SIM_NODE_KERNEL;
	size_t count = sim_graph_node(look.sim, s->graph, s->capture, n->number, &kind, numbers, MOST_TAILS);
	n->before = malloc((count + 1) * sizeof(struct look_node *));
	if (!n->before)
		return false;
	n->before_count = count;
	for (size_t i = 0; i < count; i++)
		n->before[i] = with_number(list, numbers[i]);
	if (!n->placed) {
		n->is.type = type_of(kind);
		n->source = look_source_hold(s);
		n->context = sim_graph_context(look.sim, s->graph, n->number);
	}
	return true;
}

/* Lists a capture's nodes. Its own graph's have the handles that the program may know; for others they are new. */
static bool list_source(struct look_source *s, struct look_graph *g, struct look_list *out)
{
	size_t count, first = out->count;
	size_t *numbers = list_numbers(s->graph, s->capture, &count);
	struct look_list captured = {0};
	bool made = numbers != NULL;
	for (size_t i = 0; made && i < count; i++) {
		struct look_node *n = g && g->source == s ? node_value(g, numbers[i]) : look_node_new();
		made = n && look_list_add(out, n) && look_list_add(&captured, n);
		if (n)
			n->number = numbers[i];
	}
	for (size_t i = 0; made && i < count; i++)
		made = describe(out->nodes[first + i], s, &captured);
	free(captured.nodes);
	free(numbers);
	return made;
}

bool look_source_list(struct look_source *s, struct look_list *out)
{
	return list_source(s, NULL, out);
}

bool look_graph_settle(struct look_graph *g)
{
	if (g->settled || !g->source)
		return true;
	g->settled = list_source(g->source, g, &g->list);
	return g->settled;
}

/* ---- graphs ------------------------------------------------------------ */

struct look_graph *look_graph_new(void)
{
	return calloc(1, sizeof(struct look_graph));
}

void look_graph_free(struct look_graph *g)
{
	if (g->instances && --g->instances->holders == 0)
		free(g->instances);
	for (size_t i = 0; i < g->waiting.count; i++) /* placed ones are in the list */
		if (!g->waiting.nodes[i]->placed || !g->settled)
			look_node_free(g->waiting.nodes[i]);
	free(g->waiting.nodes);
	look_list_free(&g->list);
	for (size_t i = 0; i < g->chunk_count; i++)
		free(g->chunks[i]);
	free(g->chunks);
	free(g->after.nodes);
	if (g->source)
		look_source_drop(g->source);
	look_objects_drop(&g->objects);
	free(g);
}

cuda_result cuGraphCreate(void **graph, unsigned flags)
{
	LOOK_ENTER(cuGraphCreate);
	LOOK_NEED(graph && flags == 0, INVALID_VALUE);
	struct look_graph *g = look_graph_new();
	LOOK_NEED(g, OUT_OF_MEMORY);
	g->settled = g->changed = true;
	*graph = g;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuGraphDestroy(void *graph)
{
	struct look_graph *g = graph;
	LOOK_ENTER(cuGraphDestroy);
	LOOK_NEED(g && !g->belongs, INVALID_VALUE);
	look_graph_free(g);
	return TRZ_CUDA_SUCCESS;
}

/* ---- capturing ------------------------------------------------------------ */

cuda_result cuStreamBeginCapture_v2(void *stream, int mode)
{
	LOOK_ENTER(cuStreamBeginCapture_v2);
	trz_context context = look_stream_context(stream);
	LOOK_NEED(context, INVALID_CONTEXT);
	bool begun = look_note_begin();
	__atomic_store_n(&look.has_captured, true, __ATOMIC_RELAXED);
	cuda_result result = look_result(sim_capture_begin(look.sim, context, stream, (trz_capture_mode)mode));
	bool happened = begun && result == TRZ_CUDA_SUCCESS;
	uint64_t capture = happened ? sim_capture_of(look.sim, context, stream) : 0;
	look_note_end(begun, happened, SIM_RECORDED_CAPTURE_BEGIN, context, stream, capture);
	return result;
}

static struct look_graph *find_under_way(uint64_t capture)
{
	struct look_graph *g = under_way;
	while (g && g->source->capture != capture)
		g = g->next;
	return g;
}

bool look_graph_under_way(const struct look_graph *graph)
{
	pthread_mutex_lock(&graphs_lock);
	const struct look_graph *g = under_way;
	while (g && g != graph)
		g = g->next;
	pthread_mutex_unlock(&graphs_lock);
	return g != NULL;
}

/* The graph of a capture in progress; makes it if there is none yet. NULL: no host memory. */
static struct look_graph *graph_of(uint64_t capture, trz_context context)
{
	pthread_mutex_lock(&graphs_lock);
	struct look_graph *g = find_under_way(capture);
	struct look_source *s = g ? NULL : calloc(1, sizeof *s);
	if (!g && s && (g = look_graph_new())) {
		*s = (struct look_source){.capture = capture, .context = context, .references = 1};
		g->source = s;
		g->next = under_way;
		under_way = g;
	} else if (!g) {
		free(s);
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

/* Makes what was captured into a graph a part of it, behind the nodes that the program has named. */
static cuda_result join(struct look_graph *g)
{
	struct look_graph *into = g->into;
	size_t first = into->list.count;
	LOOK_NEED(list_source(g->source, into, &into->list), OUT_OF_MEMORY);
	for (size_t i = first; i < into->list.count; i++) {
		struct look_node *n = into->list.nodes[i];
		n->graph = into;
		if (n->before_count || !g->after.count)
			continue;
		struct look_node **before = malloc(g->after.count * sizeof(struct look_node *));
		LOOK_NEED(before, OUT_OF_MEMORY);
		memcpy(before, g->after.nodes, g->after.count * sizeof(struct look_node *));
		free(n->before);
		n->before = before;
		n->before_count = g->after.count;
	}
	into->changed = true;
	into->has_memory |= g->has_memory;
	look_graph_free(g);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuStreamEndCapture(void *stream, void **graph)
{
	sim_graph captured = 0;
	LOOK_ENTER(cuStreamEndCapture);
	if (graph)
		*graph = NULL;
	trz_context context = look_stream_context(stream);
	LOOK_NEED(context, INVALID_CONTEXT);
	struct look_graph *g = graph_of(sim_capture_of(look.sim, context, stream), context);
	LOOK_NEED(g, OUT_OF_MEMORY);
	bool begun = look_note_begin();
	cuda_result result = look_result(sim_capture_end(look.sim, context, stream, &captured));
	/* The capture goes on if the stream or the thread was the wrong one. */
	bool goes_on = result == TRZ_CUDA_ERROR_STREAM_CAPTURE_UNMATCHED ||
	               result == TRZ_CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	look_note_end(begun, !goes_on, SIM_RECORDED_CAPTURE_END, context, stream, g->source->capture);
	if (!goes_on)
		no_longer_under_way(g);
	if (result != TRZ_CUDA_SUCCESS) {
		if (!goes_on)
			look_graph_free(g);
		return result;
	}
	g->source->graph = captured;
	if (graph)
		*graph = g->into ? g->into : g;
	if (g->into)
		return join(g);
	if (!graph)
		look_graph_free(g);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuStreamBeginCaptureToGraph(void *stream, void *graph, void *const *after, const struct cuda_edge *edges,
                                        size_t count, int mode)
{
	struct look_graph *into = graph;
	LOOK_COUNT(cuStreamBeginCaptureToGraph);
	LOOK_NEED(into && (after || !count), INVALID_VALUE);
	LOOK_NEED(look_graph_settle(into), OUT_OF_MEMORY);
	(void)edges;
	cuda_result result = cuStreamBeginCapture_v2(stream, mode);
	if (result != TRZ_CUDA_SUCCESS)
		return result;
	trz_context context = look_stream_context(stream);
	struct look_graph *g = graph_of(sim_capture_of(look.sim, context, stream), context);
	LOOK_NEED(g, OUT_OF_MEMORY);
	g->into = into;
	for (size_t i = 0; i < count; i++)
		LOOK_NEED(look_list_add(&g->after, after[i]), OUT_OF_MEMORY);
	return TRZ_CUDA_SUCCESS;
}

/* ---- asking about captures ------------------------------------------------------------ */

cuda_result cuStreamGetCaptureInfo_v3(void *stream, int *capturing, uint64_t *id, void **graph, void *const **before,
                                      const struct cuda_edge **edges, size_t *count)
{
	static _Thread_local void *tail[MOST_TAILS];
	size_t numbers[MOST_TAILS];
	trz_capture_status status = TRZ_CAPTURE_NONE;
	uint64_t capture = 0;
	LOOK_ENTER(cuStreamGetCaptureInfo_v3);
	LOOK_NEED(capturing, INVALID_VALUE);
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
	for (size_t i = 0; i < nodes; i++) {
		tail[i] = node_value(g, numbers[i]);
		LOOK_NEED(tail[i], OUT_OF_MEMORY);
	}
	if (graph)
		*graph = g && g->into ? g->into : g;
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
	LOOK_NEED(capturing, INVALID_VALUE);
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
	LOOK_NEED(mode, INVALID_VALUE);
	trz_capture_mode exchanged = (trz_capture_mode)*mode;
	cuda_result result = LOOK_SLOT(capture_mode, &exchanged);
	if (result == TRZ_CUDA_SUCCESS)
		*mode = (int)exchanged;
	return result;
}

/* ---- what a program adds to a capture ------------------------------------------------------------ */

void look_graph_place(trz_context context, void *stream, const struct cuda_node *is)
{
	struct look_graph *g = graph_of(sim_capture_of(look.sim, context, stream), context);
	struct look_node *n = g ? look_node_new() : NULL;
	if (!n)
		return;
	n->graph = g;
	n->is = *is;
	n->placed = true;
	g->has_memory = true;
	if (sim_capture_follow(look.sim, context, stream, NULL, 0, &n->number) != TRZ_OK || !look_list_add(&g->waiting, n))
		look_node_free(n);
}

/* Gives a node that the program has added to the capture's graph a place on the stream. */
static trz_status place(struct look_graph *g, struct look_node *n, trz_context context, void *stream)
{
	size_t *after = malloc((n->before_count + 1) * sizeof *after);
	if (!after)
		return TRZ_ERROR_HOST_MEMORY;
	for (size_t i = 0; i < n->before_count; i++)
		after[i] = n->before[i]->number;
	trz_status status = sim_capture_follow(look.sim, context, stream, after, n->before_count, &n->number);
	free(after);
	if (status != TRZ_OK)
		return status;
	free(n->before);
	n->before = NULL;
	n->before_count = 0;
	n->placed = true;
	g->changed = true;
	return TRZ_OK;
}

/* From here on the stream's work follows these nodes; and still those that it followed before, even if the program
 * replaces them. */
cuda_result cuStreamUpdateCaptureDependencies_v2(void *stream, void *const *nodes, const struct cuda_edge *edges,
                                                 size_t count, unsigned flags)
{
	LOOK_ENTER(cuStreamUpdateCaptureDependencies_v2);
	(void)edges;
	trz_context context = look_stream_context(stream);
	LOOK_NEED(context, INVALID_CONTEXT);
	uint64_t capture = sim_capture_of(look.sim, context, stream);
	LOOK_NEED(capture, ILLEGAL_STATE);
	LOOK_NEED(flags <= 1 && (nodes || !count), INVALID_VALUE);
	struct look_graph *g = graph_of(capture, context);
	LOOK_NEED(g, OUT_OF_MEMORY);
	trz_status status = TRZ_OK;
	for (size_t i = 0; i < count && status == TRZ_OK; i++) {
		struct look_node *n = nodes[i];
		LOOK_NEED(n && n->graph == g, INVALID_VALUE);
		bool added = n->single && !n->placed;
		status = added ? place(g, n, context, stream)
		               : sim_capture_follow(look.sim, context, stream, &n->number, 1, NULL);
	}
	return look_result(status);
}

cuda_result cuStreamUpdateCaptureDependencies(void *stream, void *const *nodes, size_t count, unsigned flags)
{
	return cuStreamUpdateCaptureDependencies_v2(stream, nodes, NULL, count, flags);
}

/* ---- asking about nodes ------------------------------------------------------------ */

/* Gives all nodes, or those that follow no other. */
static cuda_result give_nodes(struct look_graph *g, bool roots, void **nodes, size_t *count)
{
	LOOK_NEED(g && count, INVALID_VALUE);
	const struct look_list *list = &g->list;
	size_t all = 0, found = 0, room = *count;
	size_t *numbers = g->settled ? NULL : list_numbers(g->source->graph, g->source->capture, &all);
	for (size_t i = 0; i < (g->settled ? list->count : all); i++) {
		sim_node_kind kind;
		bool root = g->settled ? !list->nodes[i]->before_count
		                       : sim_graph_node(look.sim, g->source->graph, g->source->capture, numbers[i], &kind, NULL,
		                                        0) == 0;
		if ((roots && !root) || (found++ >= room && nodes))
			continue;
		if (nodes)
			nodes[found - 1] = g->settled ? list->nodes[i] : node_value(g, numbers[i]);
	}
	for (size_t i = found; nodes && i < room; i++)
		nodes[i] = NULL;
	*count = nodes && room < found ? room : found;
	free(numbers);
	return TRZ_CUDA_SUCCESS;
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

/* Whether the node itself says what it is; a captured node of no list does not, and the simulator is asked. */
static bool is_listed(const struct look_node *n)
{
	return n->single || n->graph->settled;
}

cuda_result cuGraphNodeGetType(void *node, int *type)
{
	sim_node_kind kind = SIM_NODE_KERNEL;
	const struct look_node *n = node;
	LOOK_ENTER(cuGraphNodeGetType);
	LOOK_NEED(n && type, INVALID_VALUE);
	if (!is_listed(n))
		sim_graph_node(look.sim, n->graph->source->graph, n->graph->source->capture, n->number, &kind, NULL, 0);
	*type = is_listed(n) ? n->is.type : type_of(kind);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuGraphNodeGetDependencies_v2(void *node, void **before, struct cuda_edge *edges, size_t *count)
{
	size_t numbers[MOST_TAILS], all;
	sim_node_kind kind;
	const struct look_node *n = node;
	LOOK_ENTER(cuGraphNodeGetDependencies_v2);
	LOOK_NEED(n && count, INVALID_VALUE);
	struct look_graph *g = n->graph;
	bool listed = g->settled || (n->single && !n->placed);
	if (listed)
		all = n->before_count;
	else
		all = sim_graph_node(look.sim, g->source->graph, g->source->capture, n->number, &kind, numbers, MOST_TAILS);
	size_t room = before ? *count : all;
	for (size_t i = 0; before && i < room; i++)
		before[i] = i >= all ? NULL : listed ? n->before[i] : node_value(g, numbers[i]);
	for (size_t i = 0; edges && i < room; i++)
		edges[i] = (struct cuda_edge){0};
	*count = room < all ? room : all;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuGraphNodeGetDependencies(void *node, void **before, size_t *count)
{
	return cuGraphNodeGetDependencies_v2(node, before, NULL, count);
}
