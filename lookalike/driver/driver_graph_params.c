/* SPDX-License-Identifier: Apache-2.0
 *
 * Asking what the nodes of a graph do, and changing it.
 */
#include "driver_graph.h"

#include <string.h>

static cuda_result set_params(void *node, const struct cuda_node *is)
{
	struct look_node *n = node;
	LOOK_NEED(n && is, INVALID_VALUE);
	LOOK_NEED(look_graph_settle(n->graph), OUT_OF_MEMORY);
	LOOK_NEED(n->is.type == is->type, INVALID_VALUE);
	bool fixed = is->type == TRZ_CU_GRAPH_NODE_TYPE_MEM_ALLOC || is->type == TRZ_CU_GRAPH_NODE_TYPE_MEM_FREE ||
	             is->type == TRZ_CU_GRAPH_NODE_TYPE_CONDITIONAL || is->type == TRZ_CU_GRAPH_NODE_TYPE_GRAPH;
	LOOK_NEED(!fixed, NOT_SUPPORTED);
	n->graph->changed = true;
	return look_node_set(n, is);
}

/* What a node does, if the program has said so or has been told; of captured nodes this is not known in these terms. */
static cuda_result get_params(void *node, int type, struct cuda_node *is)
{
	const struct look_node *n = node;
	LOOK_NEED(n && is, INVALID_VALUE);
	LOOK_NEED(look_graph_settle(n->graph), OUT_OF_MEMORY);
	LOOK_NEED(n->is.type == type || type < 0, INVALID_VALUE);
	LOOK_NEED(!n->source, NOT_SUPPORTED);
	*is = n->is;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuGraphNodeSetParams(void *node, const struct cuda_node *is)
{
	LOOK_ENTER(cuGraphNodeSetParams);
	return set_params(node, is);
}

cuda_result cuGraphNodeGetParams(void *node, struct cuda_node *is)
{
	LOOK_ENTER(cuGraphNodeGetParams);
	return get_params(node, -1, is);
}

cuda_result cuGraphKernelNodeSetParams_v2(void *node, const struct cuda_kernel_node *kernel)
{
	LOOK_ENTER(cuGraphKernelNodeSetParams_v2);
	LOOK_NEED(kernel, INVALID_VALUE);
	const struct cuda_node is = {.type = TRZ_CU_GRAPH_NODE_TYPE_KERNEL, .of.kernel = *kernel};
	return set_params(node, &is);
}

cuda_result cuGraphKernelNodeSetParams(void *node, const struct cuda_kernel_node *kernel)
{
	struct cuda_kernel_node whole = {0};
	LOOK_NEED(kernel, INVALID_VALUE);
	memcpy(&whole, kernel, CUDA_KERNEL_NODE_V1);
	return cuGraphKernelNodeSetParams_v2(node, &whole);
}

cuda_result cuGraphKernelNodeGetParams_v2(void *node, struct cuda_kernel_node *kernel)
{
	struct cuda_node is;
	LOOK_ENTER(cuGraphKernelNodeGetParams_v2);
	cuda_result result = get_params(node, TRZ_CU_GRAPH_NODE_TYPE_KERNEL, &is);
	if (result == TRZ_CUDA_SUCCESS)
		*kernel = is.of.kernel;
	return result;
}

cuda_result cuGraphKernelNodeGetParams(void *node, struct cuda_kernel_node *kernel)
{
	struct cuda_kernel_node whole;
	cuda_result result = cuGraphKernelNodeGetParams_v2(node, &whole);
	if (result == TRZ_CUDA_SUCCESS)
		memcpy(kernel, &whole, CUDA_KERNEL_NODE_V1);
	return result;
}

cuda_result cuGraphMemcpyNodeSetParams(void *node, const struct cuda_copy_3d *copy)
{
	LOOK_ENTER(cuGraphMemcpyNodeSetParams);
	LOOK_NEED(copy, INVALID_VALUE);
	const struct cuda_node is = {.type = TRZ_CU_GRAPH_NODE_TYPE_MEMCPY, .of.copy.copy = *copy};
	return set_params(node, &is);
}

cuda_result cuGraphMemcpyNodeGetParams(void *node, struct cuda_copy_3d *copy)
{
	struct cuda_node is;
	LOOK_ENTER(cuGraphMemcpyNodeGetParams);
	cuda_result result = get_params(node, TRZ_CU_GRAPH_NODE_TYPE_MEMCPY, &is);
	if (result == TRZ_CUDA_SUCCESS)
		*copy = is.of.copy.copy;
	return result;
}

cuda_result cuGraphMemsetNodeSetParams(void *node, const struct cuda_fill_node *fill)
{
	LOOK_ENTER(cuGraphMemsetNodeSetParams);
	LOOK_NEED(fill, INVALID_VALUE);
	struct cuda_node is = {.type = TRZ_CU_GRAPH_NODE_TYPE_MEMSET};
	memcpy(&is.of.fill, fill, CUDA_FILL_NODE_V1);
	return set_params(node, &is);
}

cuda_result cuGraphMemsetNodeGetParams(void *node, struct cuda_fill_node *fill)
{
	struct cuda_node is;
	LOOK_ENTER(cuGraphMemsetNodeGetParams);
	cuda_result result = get_params(node, TRZ_CU_GRAPH_NODE_TYPE_MEMSET, &is);
	if (result == TRZ_CUDA_SUCCESS)
		memcpy(fill, &is.of.fill, CUDA_FILL_NODE_V1);
	return result;
}

cuda_result cuGraphHostNodeSetParams(void *node, const struct cuda_host_node *host)
{
	LOOK_ENTER(cuGraphHostNodeSetParams);
	LOOK_NEED(host, INVALID_VALUE);
	const struct cuda_node is = {.type = TRZ_CU_GRAPH_NODE_TYPE_HOST, .of.host = *host};
	return set_params(node, &is);
}

cuda_result cuGraphHostNodeGetParams(void *node, struct cuda_host_node *host)
{
	struct cuda_node is;
	LOOK_ENTER(cuGraphHostNodeGetParams);
	cuda_result result = get_params(node, TRZ_CU_GRAPH_NODE_TYPE_HOST, &is);
	if (result == TRZ_CUDA_SUCCESS)
		*host = is.of.host;
	return result;
}

static cuda_result set_event(void *node, int type, void *event)
{
	const struct cuda_node is = {.type = type, .of.event = event};
	return set_params(node, &is);
}

static cuda_result get_event(void *node, int type, void **event)
{
	struct cuda_node is;
	cuda_result result = get_params(node, type, &is);
	if (result == TRZ_CUDA_SUCCESS)
		*event = is.of.event;
	return result;
}

cuda_result cuGraphEventRecordNodeSetEvent(void *node, void *event)
{
	LOOK_ENTER(cuGraphEventRecordNodeSetEvent);
	return set_event(node, TRZ_CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
}

cuda_result cuGraphEventRecordNodeGetEvent(void *node, void **event)
{
	LOOK_ENTER(cuGraphEventRecordNodeGetEvent);
	return get_event(node, TRZ_CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
}

cuda_result cuGraphEventWaitNodeSetEvent(void *node, void *event)
{
	LOOK_ENTER(cuGraphEventWaitNodeSetEvent);
	return set_event(node, TRZ_CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
}

cuda_result cuGraphEventWaitNodeGetEvent(void *node, void **event)
{
	LOOK_ENTER(cuGraphEventWaitNodeGetEvent);
	return get_event(node, TRZ_CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
}

cuda_result cuGraphChildGraphNodeGetGraph(void *node, void **graph)
{
	struct cuda_node is;
	LOOK_ENTER(cuGraphChildGraphNodeGetGraph);
	cuda_result result = get_params(node, TRZ_CU_GRAPH_NODE_TYPE_GRAPH, &is);
	if (result == TRZ_CUDA_SUCCESS)
		*graph = is.of.child.graph;
	return result;
}

cuda_result cuGraphMemAllocNodeGetParams(void *node, struct cuda_alloc_node *alloc)
{
	struct cuda_node is;
	LOOK_ENTER(cuGraphMemAllocNodeGetParams);
	cuda_result result = get_params(node, TRZ_CU_GRAPH_NODE_TYPE_MEM_ALLOC, &is);
	if (result == TRZ_CUDA_SUCCESS)
		*alloc = is.of.alloc;
	return result;
}

cuda_result cuGraphMemFreeNodeGetParams(void *node, cuda_addr *address)
{
	struct cuda_node is;
	LOOK_ENTER(cuGraphMemFreeNodeGetParams);
	cuda_result result = get_params(node, TRZ_CU_GRAPH_NODE_TYPE_MEM_FREE, &is);
	if (result == TRZ_CUDA_SUCCESS)
		*address = is.of.address;
	return result;
}

cuda_result cuGraphKernelNodeSetAttribute(void *node, int attribute, const void *value)
{
	LOOK_ENTER(cuGraphKernelNodeSetAttribute);
	LOOK_NEED(node && value, INVALID_VALUE);
	return look_attribute_set(node, attribute, value);
}

cuda_result cuGraphKernelNodeGetAttribute(void *node, int attribute, void *value)
{
	LOOK_ENTER(cuGraphKernelNodeGetAttribute);
	LOOK_NEED(node && value, INVALID_VALUE);
	return look_attribute_get(node, attribute, value);
}

cuda_result cuGraphKernelNodeCopyAttributes(void *to, void *from)
{
	LOOK_ENTER(cuGraphKernelNodeCopyAttributes);
	LOOK_NEED(to && from, INVALID_VALUE);
	return look_attributes_copy(to, from);
}
