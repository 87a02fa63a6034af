/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of graphs under a limit. The driver reserves it when a graph is launched, too late to refuse it. So nodes
 * that allocate count from when they are made, as if no node could use what another one has freed, until their graph
 * and all that was made from it are gone. What an instantiated graph allocates and does not free itself outlives the
 * graph: then all of its memory counts until the program has freed that.
 */
#include "event_order.h"
#include "limit.h"
#include "limit_held.h"
#include "preload.h"

#include <pthread.h>

enum { NODE_ALLOC = 10, NODE_FREE = 11 };  /* CU_GRAPH_NODE_TYPE_MEM_* */

/* What captures that are under way have allocated; the first one whose graph is whole gets all of it. */
static struct limit_memory *captured;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Makes one piece of two; `whole` may be NULL. */
static struct limit_memory *joined(struct limit_memory *whole, struct limit_memory *part)
{
	if (!whole)
		return part;
	limit_memory_join(whole, part);
	return whole;
}

void limit_graph_captured(struct limit_memory *memory, cuda_addr address)
{
	pthread_mutex_lock(&lock);
	captured = joined(captured, memory);
	limit_name(LIMIT_ADDRESS, address, 0, limit_memory_hold(captured));
	pthread_mutex_unlock(&lock);
}

/* `address`: that of the node's memory; 0: its addresses have names already. */
static void add_to_graph(void *graph, struct limit_memory *memory, cuda_addr address)
{
	struct limit_memory *known = limit_find(LIMIT_GRAPH, (uintptr_t)graph, NULL);
	if (!known)
		limit_name(LIMIT_GRAPH, (uintptr_t)graph, 0, limit_memory_hold(memory));
	memory = joined(known, memory);
	if (address)
		limit_name(LIMIT_ADDRESS, address, 0, limit_memory_hold(memory));
	limit_memory_drop(memory);
}

static struct limit_memory *take_captured(void)
{
	pthread_mutex_lock(&lock);
	struct limit_memory *memory = captured;
	captured = NULL;
	pthread_mutex_unlock(&lock);
	return memory;
}

static cuda_result ended(cuda_result result, void *const *graph)
{
	struct limit_memory *memory = result == TRZ_CUDA_SUCCESS && *graph ? take_captured() : NULL;
	if (memory)
		add_to_graph(*graph, memory, 0);
	return result;
}

void limit_captures_over(void)
{
	struct limit_memory *memory = take_captured();
	if (!memory)
		return;
	limit_end_all(LIMIT_ADDRESS, memory);
	limit_memory_drop(memory);
}

void limit_forget_captured(void)
{
	pthread_mutex_init(&lock, NULL);
	captured = NULL;
}

cuda_result limit_cuStreamEndCapture(void *stream, void **graph)
{
	return ended(DRIVER(cuStreamEndCapture)(stream, graph), graph);
}

cuda_result limit_cuStreamEndCapture_ptsz(void *stream, void **graph)
{
	return ended(DRIVER(cuStreamEndCapture_ptsz)(stream, graph), graph);
}

/* ---- nodes ------------------------------------------------------------------------------------------------------ */

static cuda_result added(cuda_result result, void *graph, struct limit_memory *memory,
                         const struct preload_alloc_node *params)
{
	if (memory && result == TRZ_CUDA_SUCCESS)
		add_to_graph(graph, memory, params->address);
	else if (memory)
		limit_memory_drop(memory);
	return result;
}

cuda_result limit_cuGraphAddMemAllocNode(void **node, void *graph, const void *dependencies, size_t count,
                                         struct preload_alloc_node *params)
{
	struct limit_memory *memory = params ? limit_memory_take(params->size) : NULL;
	if (params && !memory)
		return TRZ_CUDA_ERROR_OUT_OF_MEMORY;
	return added(DRIVER(cuGraphAddMemAllocNode)(node, graph, dependencies, count, params), graph, memory, params);
}

cuda_result limit_cuGraphAddMemFreeNode(void **node, void *graph, const void *dependencies, size_t count,
                                        cuda_addr address)
{
	cuda_result result = DRIVER(cuGraphAddMemFreeNode)(node, graph, dependencies, count, address);
	if (result == TRZ_CUDA_SUCCESS)
		limit_end(LIMIT_ADDRESS, address);
	return result;
}

static const struct preload_alloc_node *params_of(const struct event_order_node *node)
{
	return (const struct preload_alloc_node *)(const void *)&node->event;
}

/* The parameters of a node that frees are the address to free. */
static cuda_result added_any(cuda_result result, void *graph, struct limit_memory *memory,
                             const struct event_order_node *node)
{
	if (result == TRZ_CUDA_SUCCESS && node->type == NODE_FREE)
		limit_end(LIMIT_ADDRESS, (uintptr_t)node->event);
	return added(result, graph, memory, params_of(node));
}

/* Takes the memory of a node from the limit; *memory: NULL if the node allocates nothing. false: the limit refuses. */
static bool take_node(const struct event_order_node *node, struct limit_memory **memory)
{
	*memory = NULL;
	if (!node || node->type != NODE_ALLOC)
		return true;
	*memory = limit_memory_take(params_of(node)->size);
	return *memory;
}

cuda_result limit_cuGraphAddNode(void *made, void *graph, void *dependencies, size_t count,
                                 struct event_order_node *node)
{
	struct limit_memory *memory;
	if (!take_node(node, &memory))
		return TRZ_CUDA_ERROR_OUT_OF_MEMORY;
	return added_any(DRIVER(cuGraphAddNode)(made, graph, dependencies, count, node), graph, memory, node);
}

cuda_result limit_cuGraphAddNode_v2(void *made, void *graph, void *dependencies, void *edges, size_t count,
                                    struct event_order_node *node)
{
	struct limit_memory *memory;
	if (!take_node(node, &memory))
		return TRZ_CUDA_ERROR_OUT_OF_MEMORY;
	return added_any(DRIVER(cuGraphAddNode_v2)(made, graph, dependencies, edges, count, node), graph, memory, node);
}

/* ---- what is made from graphs ----------------------------------------------------------------------------------- */

static cuda_result instantiated(cuda_result result, void *const *exec, void *graph)
{
	struct limit_memory *memory =
	    result == TRZ_CUDA_SUCCESS ? limit_find(LIMIT_GRAPH, (uintptr_t)graph, NULL) : NULL;
	if (memory)
		limit_memory_mark(memory);
	if (memory)
		limit_name(LIMIT_EXEC, (uintptr_t)*exec, 0, memory);
	return result;
}

cuda_result limit_cuGraphInstantiate(void **exec, void *graph, void **node, char *log, size_t size)
{
	return instantiated(DRIVER(cuGraphInstantiate)(exec, graph, node, log, size), exec, graph);
}

cuda_result limit_cuGraphInstantiate_v2(void **exec, void *graph, void **node, char *log, size_t size)
{
	return instantiated(DRIVER(cuGraphInstantiate_v2)(exec, graph, node, log, size), exec, graph);
}

cuda_result limit_cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags)
{
	return instantiated(DRIVER(cuGraphInstantiateWithFlags)(exec, graph, flags), exec, graph);
}

cuda_result limit_cuGraphInstantiateWithParams(void **exec, void *graph, void *params)
{
	return instantiated(DRIVER(cuGraphInstantiateWithParams)(exec, graph, params), exec, graph);
}

cuda_result limit_cuGraphInstantiateWithParams_ptsz(void **exec, void *graph, void *params)
{
	return instantiated(DRIVER(cuGraphInstantiateWithParams_ptsz)(exec, graph, params), exec, graph);
}

/* Gives up a graph's memory. The driver keeps what launched graphs have reserved until it is told to give it back. */
static void give_back(struct limit_memory *memory)
{
	cuda_device device;
	if (!limit_memory_is_marked(memory))
		limit_end_all(LIMIT_ADDRESS, memory);
	else if (native_load() && native_driver.cuCtxGetDevice(&device) == TRZ_CUDA_SUCCESS)
		native_driver.cuDeviceGraphMemTrim(device);
	limit_memory_drop(memory);
}

/* Ends a graph's memory. Its name was removed before the call, since another thread may get the handle at once; if the
 * call failed it is put back. */
static cuda_result destroyed(cuda_result result, enum limit_kind kind, void *graph, struct limit_memory *memory)
{
	if (memory && result == TRZ_CUDA_SUCCESS)
		give_back(memory);
	else if (memory)
		limit_name(kind, (uintptr_t)graph, 0, memory);
	return result;
}

cuda_result limit_cuGraphDestroy(void *graph)
{
	struct limit_memory *memory = limit_unname(LIMIT_GRAPH, (uintptr_t)graph, NULL);
	return destroyed(DRIVER(cuGraphDestroy)(graph), LIMIT_GRAPH, graph, memory);
}

cuda_result limit_cuGraphExecDestroy(void *exec)
{
	struct limit_memory *memory = limit_unname(LIMIT_EXEC, (uintptr_t)exec, NULL);
	return destroyed(DRIVER(cuGraphExecDestroy)(exec), LIMIT_EXEC, exec, memory);
}
