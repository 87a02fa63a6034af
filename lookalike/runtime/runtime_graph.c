/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs that programs build: the driver's graphs, with the program's names for kernels and variables.
 */
#include "runtime_lookalike.h"

#include <string.h>

/* ---- what nodes do, as the driver says it ------------------------------------------------------------ */

/* Turns the program's name for a kernel into the driver's function. */
static int kernel_of(struct cuda_kernel_node *to, const struct rt_kernel_node *from)
{
	*to = (struct cuda_kernel_node){.function = NULL};
	memcpy(to, from, sizeof *from);
	to->function = rt_function(from->symbol);
	return to->function ? RT_SUCCESS : RT_INVALID_FUNCTION;
}

static struct cuda_copy_3d line(void *to, const void *from, size_t size)
{
	return (struct cuda_copy_3d){
		.from_type = TRZ_CU_MEMORYTYPE_UNIFIED, .from_device = (uintptr_t)from, .to_type = TRZ_CU_MEMORYTYPE_UNIFIED,
		.to_device = (uintptr_t)to, .width = size, .height = 1, .depth = 1,
	};
}

/* The address of a part of a variable. */
static int part_of(const void *symbol, size_t offset, size_t size, void **address)
{
	cuda_addr start = 0;
	size_t all = 0;
	int result = rt_variable(symbol, &start, &all);
	if (result == RT_SUCCESS && (offset > all || size > all - offset))
		result = RT_INVALID_VALUE;
	*address = (void *)(start + offset);
	return result;
}

static int node_of(struct cuda_node *to, const struct rt_node *from)
{
	*to = (struct cuda_node){.type = from->type};
	switch (from->type) {
	case TRZ_CU_GRAPH_NODE_TYPE_KERNEL:
		return kernel_of(&to->of.kernel, &from->of.kernel);
	case TRZ_CU_GRAPH_NODE_TYPE_MEMCPY:
		to->of.copy.copy = rt_copy_of(&from->of.copy.copy);
		return RT_SUCCESS;
	case TRZ_CU_GRAPH_NODE_TYPE_MEMSET:
		memcpy(&to->of.fill, &from->of.fill, CUDA_FILL_NODE_V1);
		return RT_SUCCESS;
	default:
		memcpy(&to->of, &from->of, sizeof from->of);
		return RT_SUCCESS;
	}
}

/* ---- adding nodes ------------------------------------------------------------ */

cuda_error cudaGraphCreate(void **graph, unsigned flags)
{
	RT_ENTER(cudaGraphCreate);
	return rt_result(cuGraphCreate(graph, flags));
}

static int add(void **node, void *graph, void *const *after, const struct cuda_edge *edges, size_t count,
               struct rt_node *is)
{
	struct cuda_node own;
	int result = is ? node_of(&own, is) : RT_INVALID_VALUE;
	if (result == RT_SUCCESS)
		result = cuGraphAddNode_v2(node, graph, after, edges, count, &own);
	if (result == RT_SUCCESS && is->type == TRZ_CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		is->of.alloc.address = own.of.alloc.address;
	if (result == RT_SUCCESS && is->type == TRZ_CU_GRAPH_NODE_TYPE_CONDITIONAL)
		is->of.conditional.graphs = own.of.conditional.graphs;
	return result;
}

#if RUNTIME_MAJOR < 13
cuda_error cudaGraphAddNode(void **node, void *graph, void *const *after, size_t count, struct rt_node *is)
{
	RT_ENTER(cudaGraphAddNode);
	return rt_result(add(node, graph, after, NULL, count, is));
}

cuda_error cudaGraphAddNode_v2(void **node, void *graph, void *const *after, const struct cuda_edge *edges,
                               size_t count, struct rt_node *is)
{
	RT_ENTER(cudaGraphAddNode_v2);
	return rt_result(add(node, graph, after, edges, count, is));
}
#else
cuda_error cudaGraphAddNode(void **node, void *graph, void *const *after, const struct cuda_edge *edges, size_t count,
                            struct rt_node *is)
{
	RT_ENTER(cudaGraphAddNode);
	return rt_result(add(node, graph, after, edges, count, is));
}
#endif

cuda_error cudaGraphAddKernelNode(void **node, void *graph, void *const *after, size_t count,
                                  const struct rt_kernel_node *kernel)
{
	struct cuda_kernel_node own;
	RT_ENTER(cudaGraphAddKernelNode);
	int result = kernel ? kernel_of(&own, kernel) : RT_INVALID_VALUE;
	return rt_result(result ? result : cuGraphAddKernelNode_v2(node, graph, after, count, &own));
}

static int add_copy(void **node, void *graph, void *const *after, size_t count, const struct cuda_copy_3d *copy)
{
	return cuGraphAddMemcpyNode(node, graph, after, count, copy, NULL);
}

cuda_error cudaGraphAddMemcpyNode(void **node, void *graph, void *const *after, size_t count,
                                  const struct rt_copy_3d *copy)
{
	RT_ENTER(cudaGraphAddMemcpyNode);
	if (!copy)
		return rt_result(RT_INVALID_VALUE);
	const struct cuda_copy_3d c = rt_copy_of(copy);
	return rt_result(add_copy(node, graph, after, count, &c));
}

cuda_error cudaGraphAddMemcpyNode1D(void **node, void *graph, void *const *after, size_t count, void *to,
                                    const void *from, size_t size, int kind)
{
	RT_ENTER(cudaGraphAddMemcpyNode1D);
	(void)kind;
	const struct cuda_copy_3d c = line(to, from, size);
	return rt_result(add_copy(node, graph, after, count, &c));
}

cuda_error cudaGraphAddMemcpyNodeToSymbol(void **node, void *graph, void *const *after, size_t count,
                                          const void *symbol, const void *from, size_t size, size_t offset, int kind)
{
	void *to;
	RT_ENTER(cudaGraphAddMemcpyNodeToSymbol);
	(void)kind;
	int result = part_of(symbol, offset, size, &to);
	const struct cuda_copy_3d c = line(to, from, size);
	return rt_result(result ? result : add_copy(node, graph, after, count, &c));
}

cuda_error cudaGraphAddMemcpyNodeFromSymbol(void **node, void *graph, void *const *after, size_t count, void *to,
                                            const void *symbol, size_t size, size_t offset, int kind)
{
	void *from;
	RT_ENTER(cudaGraphAddMemcpyNodeFromSymbol);
	(void)kind;
	int result = part_of(symbol, offset, size, &from);
	const struct cuda_copy_3d c = line(to, from, size);
	return rt_result(result ? result : add_copy(node, graph, after, count, &c));
}

cuda_error cudaGraphAddMemsetNode(void **node, void *graph, void *const *after, size_t count,
                                  const struct cuda_fill_node *fill)
{
	RT_ENTER(cudaGraphAddMemsetNode);
	return rt_result(cuGraphAddMemsetNode(node, graph, after, count, fill, NULL));
}

cuda_error cudaGraphAddHostNode(void **node, void *graph, void *const *after, size_t count,
                                const struct cuda_host_node *host)
{
	RT_ENTER(cudaGraphAddHostNode);
	return rt_result(cuGraphAddHostNode(node, graph, after, count, host));
}

cuda_error cudaGraphAddChildGraphNode(void **node, void *graph, void *const *after, size_t count, void *child)
{
	RT_ENTER(cudaGraphAddChildGraphNode);
	return rt_result(cuGraphAddChildGraphNode(node, graph, after, count, child));
}

cuda_error cudaGraphAddEmptyNode(void **node, void *graph, void *const *after, size_t count)
{
	RT_ENTER(cudaGraphAddEmptyNode);
	return rt_result(cuGraphAddEmptyNode(node, graph, after, count));
}

cuda_error cudaGraphAddEventRecordNode(void **node, void *graph, void *const *after, size_t count, void *event)
{
	RT_ENTER(cudaGraphAddEventRecordNode);
	return rt_result(cuGraphAddEventRecordNode(node, graph, after, count, event));
}

cuda_error cudaGraphAddEventWaitNode(void **node, void *graph, void *const *after, size_t count, void *event)
{
	RT_ENTER(cudaGraphAddEventWaitNode);
	return rt_result(cuGraphAddEventWaitNode(node, graph, after, count, event));
}

cuda_error cudaGraphAddMemAllocNode(void **node, void *graph, void *const *after, size_t count,
                                    struct cuda_alloc_node *alloc)
{
	RT_ENTER(cudaGraphAddMemAllocNode);
	return rt_result(cuGraphAddMemAllocNode(node, graph, after, count, alloc));
}

cuda_error cudaGraphAddMemFreeNode(void **node, void *graph, void *const *after, size_t count, void *address)
{
	RT_ENTER(cudaGraphAddMemFreeNode);
	return rt_result(cuGraphAddMemFreeNode(node, graph, after, count, (uintptr_t)address));
}

cuda_error cudaGraphConditionalHandleCreate(uint64_t *handle, void *graph, unsigned value, unsigned flags)
{
	RT_ENTER(cudaGraphConditionalHandleCreate);
	return rt_result(cuGraphConditionalHandleCreate(handle, graph, NULL, value, flags));
}

/* ---- their parameters ------------------------------------------------------------ */

cuda_error cudaGraphNodeSetParams(void *node, const struct rt_node *is)
{
	struct cuda_node own;
	RT_ENTER(cudaGraphNodeSetParams);
	int result = is ? node_of(&own, is) : RT_INVALID_VALUE;
	return rt_result(result ? result : cuGraphNodeSetParams(node, &own));
}

cuda_error cudaGraphKernelNodeGetParams(void *node, struct rt_kernel_node *kernel)
{
	struct cuda_kernel_node own;
	RT_ENTER(cudaGraphKernelNodeGetParams);
	int result = cuGraphKernelNodeGetParams_v2(node, &own);
	if (result != RT_SUCCESS)
		return rt_result(result);
	memcpy(kernel, &own, sizeof *kernel);
	kernel->symbol = rt_symbol(own.function);
	return RT_SUCCESS;
}

cuda_error cudaGraphKernelNodeSetParams(void *node, const struct rt_kernel_node *kernel)
{
	struct cuda_kernel_node own;
	RT_ENTER(cudaGraphKernelNodeSetParams);
	int result = kernel ? kernel_of(&own, kernel) : RT_INVALID_VALUE;
	return rt_result(result ? result : cuGraphKernelNodeSetParams_v2(node, &own));
}

cuda_error cudaGraphKernelNodeSetAttribute(void *node, int attribute, const void *value)
{
	RT_ENTER(cudaGraphKernelNodeSetAttribute);
	return rt_result(cuGraphKernelNodeSetAttribute(node, attribute, value));
}

cuda_error cudaGraphKernelNodeGetAttribute(void *node, int attribute, void *value)
{
	RT_ENTER(cudaGraphKernelNodeGetAttribute);
	return rt_result(cuGraphKernelNodeGetAttribute(node, attribute, value));
}

cuda_error cudaGraphKernelNodeCopyAttributes(void *to, void *from)
{
	RT_ENTER(cudaGraphKernelNodeCopyAttributes);
	return rt_result(cuGraphKernelNodeCopyAttributes(to, from));
}

cuda_error cudaGraphMemcpyNodeGetParams(void *node, struct rt_copy_3d *copy)
{
	struct cuda_copy_3d c;
	RT_ENTER(cudaGraphMemcpyNodeGetParams);
	int result = cuGraphMemcpyNodeGetParams(node, &c);
	if (result == RT_SUCCESS)
		*copy = rt_copy_back(&c);
	return rt_result(result);
}

cuda_error cudaGraphMemcpyNodeSetParams(void *node, const struct rt_copy_3d *copy)
{
	RT_ENTER(cudaGraphMemcpyNodeSetParams);
	if (!copy)
		return rt_result(RT_INVALID_VALUE);
	const struct cuda_copy_3d c = rt_copy_of(copy);
	return rt_result(cuGraphMemcpyNodeSetParams(node, &c));
}

cuda_error cudaGraphMemcpyNodeSetParams1D(void *node, void *to, const void *from, size_t size, int kind)
{
	RT_ENTER(cudaGraphMemcpyNodeSetParams1D);
	(void)kind;
	const struct cuda_copy_3d c = line(to, from, size);
	return rt_result(cuGraphMemcpyNodeSetParams(node, &c));
}

cuda_error cudaGraphMemcpyNodeSetParamsToSymbol(void *node, const void *symbol, const void *from, size_t size,
                                                size_t offset, int kind)
{
	void *to;
	RT_ENTER(cudaGraphMemcpyNodeSetParamsToSymbol);
	(void)kind;
	int result = part_of(symbol, offset, size, &to);
	const struct cuda_copy_3d c = line(to, from, size);
	return rt_result(result ? result : cuGraphMemcpyNodeSetParams(node, &c));
}

cuda_error cudaGraphMemcpyNodeSetParamsFromSymbol(void *node, void *to, const void *symbol, size_t size, size_t offset,
                                                  int kind)
{
	void *from;
	RT_ENTER(cudaGraphMemcpyNodeSetParamsFromSymbol);
	(void)kind;
	int result = part_of(symbol, offset, size, &from);
	const struct cuda_copy_3d c = line(to, from, size);
	return rt_result(result ? result : cuGraphMemcpyNodeSetParams(node, &c));
}

cuda_error cudaGraphMemsetNodeGetParams(void *node, struct cuda_fill_node *fill)
{
	RT_ENTER(cudaGraphMemsetNodeGetParams);
	return rt_result(cuGraphMemsetNodeGetParams(node, fill));
}

cuda_error cudaGraphMemsetNodeSetParams(void *node, const struct cuda_fill_node *fill)
{
	RT_ENTER(cudaGraphMemsetNodeSetParams);
	return rt_result(cuGraphMemsetNodeSetParams(node, fill));
}

cuda_error cudaGraphHostNodeGetParams(void *node, struct cuda_host_node *host)
{
	RT_ENTER(cudaGraphHostNodeGetParams);
	return rt_result(cuGraphHostNodeGetParams(node, host));
}

cuda_error cudaGraphHostNodeSetParams(void *node, const struct cuda_host_node *host)
{
	RT_ENTER(cudaGraphHostNodeSetParams);
	return rt_result(cuGraphHostNodeSetParams(node, host));
}

cuda_error cudaGraphChildGraphNodeGetGraph(void *node, void **graph)
{
	RT_ENTER(cudaGraphChildGraphNodeGetGraph);
	return rt_result(cuGraphChildGraphNodeGetGraph(node, graph));
}

cuda_error cudaGraphEventRecordNodeGetEvent(void *node, void **event)
{
	RT_ENTER(cudaGraphEventRecordNodeGetEvent);
	return rt_result(cuGraphEventRecordNodeGetEvent(node, event));
}

cuda_error cudaGraphEventRecordNodeSetEvent(void *node, void *event)
{
	RT_ENTER(cudaGraphEventRecordNodeSetEvent);
	return rt_result(cuGraphEventRecordNodeSetEvent(node, event));
}

cuda_error cudaGraphEventWaitNodeGetEvent(void *node, void **event)
{
	RT_ENTER(cudaGraphEventWaitNodeGetEvent);
	return rt_result(cuGraphEventWaitNodeGetEvent(node, event));
}

cuda_error cudaGraphEventWaitNodeSetEvent(void *node, void *event)
{
	RT_ENTER(cudaGraphEventWaitNodeSetEvent);
	return rt_result(cuGraphEventWaitNodeSetEvent(node, event));
}

cuda_error cudaGraphMemAllocNodeGetParams(void *node, struct cuda_alloc_node *alloc)
{
	RT_ENTER(cudaGraphMemAllocNodeGetParams);
	return rt_result(cuGraphMemAllocNodeGetParams(node, alloc));
}

cuda_error cudaGraphMemFreeNodeGetParams(void *node, void *address)
{
	RT_ENTER(cudaGraphMemFreeNodeGetParams);
	return rt_result(cuGraphMemFreeNodeGetParams(node, address));
}

/* ---- edges, copies ------------------------------------------------------------ */

#if RUNTIME_MAJOR < 13
cuda_error cudaGraphAddDependencies(void *graph, void *const *from, void *const *to, size_t count)
{
	RT_ENTER(cudaGraphAddDependencies);
	return rt_result(cuGraphAddDependencies(graph, from, to, count));
}

cuda_error cudaGraphAddDependencies_v2(void *graph, void *const *from, void *const *to, const struct cuda_edge *edges,
                                       size_t count)
{
	RT_ENTER(cudaGraphAddDependencies_v2);
	return rt_result(cuGraphAddDependencies_v2(graph, from, to, edges, count));
}

cuda_error cudaGraphRemoveDependencies(void *graph, void *const *from, void *const *to, size_t count)
{
	RT_ENTER(cudaGraphRemoveDependencies);
	return rt_result(cuGraphRemoveDependencies(graph, from, to, count));
}

cuda_error cudaGraphRemoveDependencies_v2(void *graph, void *const *from, void *const *to,
                                          const struct cuda_edge *edges, size_t count)
{
	RT_ENTER(cudaGraphRemoveDependencies_v2);
	return rt_result(cuGraphRemoveDependencies_v2(graph, from, to, edges, count));
}

cuda_error cudaGraphGetEdges(void *graph, void **from, void **to, size_t *count)
{
	RT_ENTER(cudaGraphGetEdges);
	return rt_result(cuGraphGetEdges(graph, from, to, count));
}

cuda_error cudaGraphGetEdges_v2(void *graph, void **from, void **to, struct cuda_edge *edges, size_t *count)
{
	RT_ENTER(cudaGraphGetEdges_v2);
	return rt_result(cuGraphGetEdges_v2(graph, from, to, edges, count));
}

cuda_error cudaGraphNodeGetDependentNodes(void *node, void **after, size_t *count)
{
	RT_ENTER(cudaGraphNodeGetDependentNodes);
	return rt_result(cuGraphNodeGetDependentNodes(node, after, count));
}

cuda_error cudaGraphNodeGetDependentNodes_v2(void *node, void **after, struct cuda_edge *edges, size_t *count)
{
	RT_ENTER(cudaGraphNodeGetDependentNodes_v2);
	return rt_result(cuGraphNodeGetDependentNodes_v2(node, after, edges, count));
}
#else
cuda_error cudaGraphAddDependencies(void *graph, void *const *from, void *const *to, const struct cuda_edge *edges,
                                    size_t count)
{
	RT_ENTER(cudaGraphAddDependencies);
	return rt_result(cuGraphAddDependencies_v2(graph, from, to, edges, count));
}

cuda_error cudaGraphRemoveDependencies(void *graph, void *const *from, void *const *to, const struct cuda_edge *edges,
                                       size_t count)
{
	RT_ENTER(cudaGraphRemoveDependencies);
	return rt_result(cuGraphRemoveDependencies_v2(graph, from, to, edges, count));
}

cuda_error cudaGraphGetEdges(void *graph, void **from, void **to, struct cuda_edge *edges, size_t *count)
{
	RT_ENTER(cudaGraphGetEdges);
	return rt_result(cuGraphGetEdges_v2(graph, from, to, edges, count));
}

cuda_error cudaGraphNodeGetDependentNodes(void *node, void **after, struct cuda_edge *edges, size_t *count)
{
	RT_ENTER(cudaGraphNodeGetDependentNodes);
	return rt_result(cuGraphNodeGetDependentNodes_v2(node, after, edges, count));
}
#endif

cuda_error cudaGraphDestroyNode(void *node)
{
	RT_ENTER(cudaGraphDestroyNode);
	return rt_result(cuGraphDestroyNode(node));
}

cuda_error cudaGraphClone(void **clone, void *graph)
{
	RT_ENTER(cudaGraphClone);
	return rt_result(cuGraphClone(clone, graph));
}

cuda_error cudaGraphNodeFindInClone(void **node, void *original, void *clone)
{
	RT_ENTER(cudaGraphNodeFindInClone);
	return rt_result(cuGraphNodeFindInClone(node, original, clone));
}

cuda_error cudaGraphDebugDotPrint(void *graph, const char *path, unsigned flags)
{
	RT_ENTER(cudaGraphDebugDotPrint);
	return rt_result(cuGraphDebugDotPrint(graph, path, flags));
}

/* ---- instances ------------------------------------------------------------ */

#if RUNTIME_MAJOR < 12
cuda_error cudaGraphExecUpdate(void *instance, void *graph, void **node, int *why)
{
	RT_ENTER(cudaGraphExecUpdate);
	return rt_result(cuGraphExecUpdate(instance, graph, node, why));
}
#else
cuda_error cudaGraphExecUpdate(void *instance, void *graph, struct cuda_update *update)
{
	RT_ENTER(cudaGraphExecUpdate);
	return rt_result(cuGraphExecUpdate_v2(instance, graph, update));
}
#endif

cuda_error cudaGraphExecGetFlags(void *instance, unsigned long long *flags)
{
	RT_ENTER(cudaGraphExecGetFlags);
	return rt_result(cuGraphExecGetFlags(instance, flags));
}

cuda_error cudaGraphExecNodeSetParams(void *instance, void *node, const struct rt_node *is)
{
	struct cuda_node own;
	RT_ENTER(cudaGraphExecNodeSetParams);
	int result = is ? node_of(&own, is) : RT_INVALID_VALUE;
	return rt_result(result ? result : cuGraphExecNodeSetParams(instance, node, &own));
}

cuda_error cudaGraphExecKernelNodeSetParams(void *instance, void *node, const struct rt_kernel_node *kernel)
{
	struct cuda_kernel_node own;
	RT_ENTER(cudaGraphExecKernelNodeSetParams);
	int result = kernel ? kernel_of(&own, kernel) : RT_INVALID_VALUE;
	return rt_result(result ? result : cuGraphExecKernelNodeSetParams_v2(instance, node, &own));
}

cuda_error cudaGraphExecMemcpyNodeSetParams(void *instance, void *node, const struct rt_copy_3d *copy)
{
	RT_ENTER(cudaGraphExecMemcpyNodeSetParams);
	if (!copy)
		return rt_result(RT_INVALID_VALUE);
	const struct cuda_copy_3d c = rt_copy_of(copy);
	return rt_result(cuGraphExecMemcpyNodeSetParams(instance, node, &c, NULL));
}

cuda_error cudaGraphExecMemcpyNodeSetParams1D(void *instance, void *node, void *to, const void *from, size_t size,
                                              int kind)
{
	RT_ENTER(cudaGraphExecMemcpyNodeSetParams1D);
	(void)kind;
	const struct cuda_copy_3d c = line(to, from, size);
	return rt_result(cuGraphExecMemcpyNodeSetParams(instance, node, &c, NULL));
}

cuda_error cudaGraphExecMemcpyNodeSetParamsToSymbol(void *instance, void *node, const void *symbol, const void *from,
                                                    size_t size, size_t offset, int kind)
{
	void *to;
	RT_ENTER(cudaGraphExecMemcpyNodeSetParamsToSymbol);
	(void)kind;
	int result = part_of(symbol, offset, size, &to);
	const struct cuda_copy_3d c = line(to, from, size);
	return rt_result(result ? result : cuGraphExecMemcpyNodeSetParams(instance, node, &c, NULL));
}

cuda_error cudaGraphExecMemcpyNodeSetParamsFromSymbol(void *instance, void *node, void *to, const void *symbol,
                                                      size_t size, size_t offset, int kind)
{
	void *from;
	RT_ENTER(cudaGraphExecMemcpyNodeSetParamsFromSymbol);
	(void)kind;
	int result = part_of(symbol, offset, size, &from);
	const struct cuda_copy_3d c = line(to, from, size);
	return rt_result(result ? result : cuGraphExecMemcpyNodeSetParams(instance, node, &c, NULL));
}

cuda_error cudaGraphExecMemsetNodeSetParams(void *instance, void *node, const struct cuda_fill_node *fill)
{
	RT_ENTER(cudaGraphExecMemsetNodeSetParams);
	return rt_result(cuGraphExecMemsetNodeSetParams(instance, node, fill, NULL));
}

cuda_error cudaGraphExecHostNodeSetParams(void *instance, void *node, const struct cuda_host_node *host)
{
	RT_ENTER(cudaGraphExecHostNodeSetParams);
	return rt_result(cuGraphExecHostNodeSetParams(instance, node, host));
}

cuda_error cudaGraphExecChildGraphNodeSetParams(void *instance, void *node, void *child)
{
	RT_ENTER(cudaGraphExecChildGraphNodeSetParams);
	return rt_result(cuGraphExecChildGraphNodeSetParams(instance, node, child));
}

cuda_error cudaGraphExecEventRecordNodeSetEvent(void *instance, void *node, void *event)
{
	RT_ENTER(cudaGraphExecEventRecordNodeSetEvent);
	return rt_result(cuGraphExecEventRecordNodeSetEvent(instance, node, event));
}

cuda_error cudaGraphExecEventWaitNodeSetEvent(void *instance, void *node, void *event)
{
	RT_ENTER(cudaGraphExecEventWaitNodeSetEvent);
	return rt_result(cuGraphExecEventWaitNodeSetEvent(instance, node, event));
}

cuda_error cudaGraphNodeSetEnabled(void *instance, void *node, unsigned enabled)
{
	RT_ENTER(cudaGraphNodeSetEnabled);
	return rt_result(cuGraphNodeSetEnabled(instance, node, enabled));
}

cuda_error cudaGraphNodeGetEnabled(void *instance, void *node, unsigned *enabled)
{
	RT_ENTER(cudaGraphNodeGetEnabled);
	return rt_result(cuGraphNodeGetEnabled(instance, node, enabled));
}

/* ---- captures, streams ------------------------------------------------------------ */

cuda_error cudaStreamBeginCaptureToGraph(void *stream, void *graph, void *const *after, const struct cuda_edge *edges,
                                         size_t count, int mode)
{
	RT_ENTER(cudaStreamBeginCaptureToGraph);
	return rt_result(cuStreamBeginCaptureToGraph(stream, graph, after, edges, count, mode));
}

#if RUNTIME_MAJOR < 13
cuda_error cudaStreamUpdateCaptureDependencies(void *stream, void *const *nodes, size_t count, unsigned flags)
{
	RT_ENTER(cudaStreamUpdateCaptureDependencies);
	return rt_result(cuStreamUpdateCaptureDependencies(stream, nodes, count, flags));
}

cuda_error cudaStreamUpdateCaptureDependencies_v2(void *stream, void *const *nodes, const struct cuda_edge *edges,
                                                  size_t count, unsigned flags)
{
	RT_ENTER(cudaStreamUpdateCaptureDependencies_v2);
	return rt_result(cuStreamUpdateCaptureDependencies_v2(stream, nodes, edges, count, flags));
}
#else
cuda_error cudaStreamUpdateCaptureDependencies(void *stream, void *const *nodes, const struct cuda_edge *edges,
                                               size_t count, unsigned flags)
{
	RT_ENTER(cudaStreamUpdateCaptureDependencies);
	return rt_result(cuStreamUpdateCaptureDependencies_v2(stream, nodes, edges, count, flags));
}
#endif

cuda_error cudaStreamSetAttribute(void *stream, int attribute, const void *value)
{
	RT_ENTER(cudaStreamSetAttribute);
	return rt_result(cuStreamSetAttribute(stream, attribute, value));
}

cuda_error cudaStreamGetAttribute(void *stream, int attribute, void *value)
{
	RT_ENTER(cudaStreamGetAttribute);
	return rt_result(cuStreamGetAttribute(stream, attribute, value));
}

cuda_error cudaStreamCopyAttributes(void *to, void *from)
{
	RT_ENTER(cudaStreamCopyAttributes);
	return rt_result(cuStreamCopyAttributes(to, from));
}
