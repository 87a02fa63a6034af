/* SPDX-License-Identifier: Apache-2.0
 *
 * The runtime's functions for graphs that programs build, and for attributes of streams. The lists have the form of
 * those in runtime_symbols.h and runtime_thread.c.
 */
#ifndef RUNTIME_GRAPH_SYMBOLS_H
#define RUNTIME_GRAPH_SYMBOLS_H

#define LOOKALIKE_RUNTIME_GRAPHS(X)                                                                         \
	X(cudaGraphCreate, (void **, unsigned))                                                                 \
	X(cudaGraphAddKernelNode, (void **, void *, void *const *, size_t, const struct rt_kernel_node *))      \
	X(cudaGraphAddMemcpyNode, (void **, void *, void *const *, size_t, const struct rt_copy_3d *))          \
	X(cudaGraphAddMemcpyNode1D,                                                                             \
	  (void **, void *, void *const *, size_t, void *, const void *, size_t, int))                          \
	X(cudaGraphAddMemcpyNodeToSymbol,                                                                       \
	  (void **, void *, void *const *, size_t, const void *, const void *, size_t, size_t, int))            \
	X(cudaGraphAddMemcpyNodeFromSymbol,                                                                     \
	  (void **, void *, void *const *, size_t, void *, const void *, size_t, size_t, int))                  \
	X(cudaGraphAddMemsetNode, (void **, void *, void *const *, size_t, const struct cuda_fill_node *))      \
	X(cudaGraphAddHostNode, (void **, void *, void *const *, size_t, const struct cuda_host_node *))        \
	X(cudaGraphAddChildGraphNode, (void **, void *, void *const *, size_t, void *))                         \
	X(cudaGraphAddEmptyNode, (void **, void *, void *const *, size_t))                                      \
	X(cudaGraphAddEventRecordNode, (void **, void *, void *const *, size_t, void *))                        \
	X(cudaGraphAddEventWaitNode, (void **, void *, void *const *, size_t, void *))                          \
	X(cudaGraphAddMemAllocNode, (void **, void *, void *const *, size_t, struct cuda_alloc_node *))         \
	X(cudaGraphAddMemFreeNode, (void **, void *, void *const *, size_t, void *))                            \
	X(cudaGraphConditionalHandleCreate, (uint64_t *, void *, unsigned, unsigned))                           \
	X(cudaGraphNodeSetParams, (void *, const struct rt_node *))                                             \
	X(cudaGraphKernelNodeGetParams, (void *, struct rt_kernel_node *))                                      \
	X(cudaGraphKernelNodeSetParams, (void *, const struct rt_kernel_node *))                                \
	X(cudaGraphKernelNodeSetAttribute, (void *, int, const void *))                                         \
	X(cudaGraphKernelNodeGetAttribute, (void *, int, void *))                                               \
	X(cudaGraphKernelNodeCopyAttributes, (void *, void *))                                                  \
	X(cudaGraphMemcpyNodeGetParams, (void *, struct rt_copy_3d *))                                          \
	X(cudaGraphMemcpyNodeSetParams, (void *, const struct rt_copy_3d *))                                    \
	X(cudaGraphMemcpyNodeSetParams1D, (void *, void *, const void *, size_t, int))                          \
	X(cudaGraphMemcpyNodeSetParamsToSymbol, (void *, const void *, const void *, size_t, size_t, int))      \
	X(cudaGraphMemcpyNodeSetParamsFromSymbol, (void *, void *, const void *, size_t, size_t, int))          \
	X(cudaGraphMemsetNodeGetParams, (void *, struct cuda_fill_node *))                                      \
	X(cudaGraphMemsetNodeSetParams, (void *, const struct cuda_fill_node *))                                \
	X(cudaGraphHostNodeGetParams, (void *, struct cuda_host_node *))                                        \
	X(cudaGraphHostNodeSetParams, (void *, const struct cuda_host_node *))                                  \
	X(cudaGraphChildGraphNodeGetGraph, (void *, void **))                                                   \
	X(cudaGraphEventRecordNodeGetEvent, (void *, void **))                                                  \
	X(cudaGraphEventRecordNodeSetEvent, (void *, void *))                                                   \
	X(cudaGraphEventWaitNodeGetEvent, (void *, void **))                                                    \
	X(cudaGraphEventWaitNodeSetEvent, (void *, void *))                                                     \
	X(cudaGraphMemAllocNodeGetParams, (void *, struct cuda_alloc_node *))                                   \
	X(cudaGraphMemFreeNodeGetParams, (void *, void *))                                                      \
	X(cudaGraphDestroyNode, (void *))                                                                       \
	X(cudaGraphClone, (void **, void *))                                                                    \
	X(cudaGraphNodeFindInClone, (void **, void *, void *))                                                  \
	X(cudaGraphDebugDotPrint, (void *, const char *, unsigned))                                             \
	X(cudaGraphExecGetFlags, (void *, unsigned long long *))                                                \
	X(cudaGraphExecNodeSetParams, (void *, void *, const struct rt_node *))                                 \
	X(cudaGraphExecKernelNodeSetParams, (void *, void *, const struct rt_kernel_node *))                    \
	X(cudaGraphExecMemcpyNodeSetParams, (void *, void *, const struct rt_copy_3d *))                        \
	X(cudaGraphExecMemcpyNodeSetParams1D, (void *, void *, void *, const void *, size_t, int))              \
	X(cudaGraphExecMemcpyNodeSetParamsToSymbol,                                                             \
	  (void *, void *, const void *, const void *, size_t, size_t, int))                                    \
	X(cudaGraphExecMemcpyNodeSetParamsFromSymbol,                                                           \
	  (void *, void *, void *, const void *, size_t, size_t, int))                                          \
	X(cudaGraphExecMemsetNodeSetParams, (void *, void *, const struct cuda_fill_node *))                    \
	X(cudaGraphExecHostNodeSetParams, (void *, void *, const struct cuda_host_node *))                      \
	X(cudaGraphExecChildGraphNodeSetParams, (void *, void *, void *))                                       \
	X(cudaGraphExecEventRecordNodeSetEvent, (void *, void *, void *))                                       \
	X(cudaGraphExecEventWaitNodeSetEvent, (void *, void *, void *))                                         \
	X(cudaGraphNodeSetEnabled, (void *, void *, unsigned))                                                  \
	X(cudaGraphNodeGetEnabled, (void *, void *, unsigned *))                                                \
	X(cudaStreamBeginCaptureToGraph,                                                                        \
	  (void *, void *, void *const *, const struct cuda_edge *, size_t, int))                               \
	X(cudaStreamSetAttribute, (void *, int, const void *))                                                  \
	X(cudaStreamGetAttribute, (void *, int, void *))                                                        \
	X(cudaStreamCopyAttributes, (void *, void *))                                                           \
	LOOKALIKE_RUNTIME_GRAPHS_VERSIONED(X)

#if RUNTIME_MAJOR < 13
#define LOOKALIKE_RUNTIME_GRAPHS_VERSIONED(X)                                                               \
	X(cudaGraphAddNode, (void **, void *, void *const *, size_t, struct rt_node *))                         \
	X(cudaGraphAddNode_v2,                                                                                  \
	  (void **, void *, void *const *, const struct cuda_edge *, size_t, struct rt_node *))                 \
	X(cudaGraphAddDependencies, (void *, void *const *, void *const *, size_t))                             \
	X(cudaGraphAddDependencies_v2,                                                                          \
	  (void *, void *const *, void *const *, const struct cuda_edge *, size_t))                             \
	X(cudaGraphRemoveDependencies, (void *, void *const *, void *const *, size_t))                          \
	X(cudaGraphRemoveDependencies_v2,                                                                       \
	  (void *, void *const *, void *const *, const struct cuda_edge *, size_t))                             \
	X(cudaGraphGetEdges, (void *, void **, void **, size_t *))                                              \
	X(cudaGraphGetEdges_v2, (void *, void **, void **, struct cuda_edge *, size_t *))                       \
	X(cudaGraphNodeGetDependentNodes, (void *, void **, size_t *))                                          \
	X(cudaGraphNodeGetDependentNodes_v2, (void *, void **, struct cuda_edge *, size_t *))                   \
	X(cudaStreamUpdateCaptureDependencies, (void *, void *const *, size_t, unsigned))                       \
	X(cudaStreamUpdateCaptureDependencies_v2,                                                               \
	  (void *, void *const *, const struct cuda_edge *, size_t, unsigned))
#else
#define LOOKALIKE_RUNTIME_GRAPHS_VERSIONED(X)                                                               \
	X(cudaGraphAddNode,                                                                                     \
	  (void **, void *, void *const *, const struct cuda_edge *, size_t, struct rt_node *))                 \
	X(cudaGraphAddDependencies, (void *, void *const *, void *const *, const struct cuda_edge *, size_t))   \
	X(cudaGraphRemoveDependencies,                                                                          \
	  (void *, void *const *, void *const *, const struct cuda_edge *, size_t))                             \
	X(cudaGraphGetEdges, (void *, void **, void **, struct cuda_edge *, size_t *))                          \
	X(cudaGraphNodeGetDependentNodes, (void *, void **, struct cuda_edge *, size_t *))                      \
	X(cudaStreamUpdateCaptureDependencies,                                                                  \
	  (void *, void *const *, const struct cuda_edge *, size_t, unsigned))
#endif

#define RT_THREAD_GRAPHS(X)                                                                                 \
	X(cudaStreamBeginCaptureToGraph_ptsz,                                                                   \
	  (void *s, void *g, void *const *a, const struct cuda_edge *e, size_t n, int m),                       \
	  cudaStreamBeginCaptureToGraph(per_thread(s), g, a, e, n, m))                                          \
	X(cudaStreamSetAttribute_ptsz, (void *s, int a, const void *v), cudaStreamSetAttribute(per_thread(s), a, v)) \
	X(cudaStreamGetAttribute_ptsz, (void *s, int a, void *v), cudaStreamGetAttribute(per_thread(s), a, v))  \
	X(cudaStreamCopyAttributes_ptsz, (void *s, void *f), cudaStreamCopyAttributes(per_thread(s), per_thread(f))) \
	RT_THREAD_GRAPHS_VERSIONED(X)

#if RUNTIME_MAJOR < 13
#define RT_THREAD_GRAPHS_VERSIONED(X)                                                                       \
	X(cudaStreamUpdateCaptureDependencies_ptsz, (void *s, void *const *a, size_t n, unsigned f),            \
	  cudaStreamUpdateCaptureDependencies(per_thread(s), a, n, f))                                          \
	X(cudaStreamUpdateCaptureDependencies_v2_ptsz,                                                          \
	  (void *s, void *const *a, const struct cuda_edge *e, size_t n, unsigned f),                           \
	  cudaStreamUpdateCaptureDependencies_v2(per_thread(s), a, e, n, f))
#else
#define RT_THREAD_GRAPHS_VERSIONED(X)                                                                       \
	X(cudaStreamUpdateCaptureDependencies_ptsz,                                                             \
	  (void *s, void *const *a, const struct cuda_edge *e, size_t n, unsigned f),                           \
	  cudaStreamUpdateCaptureDependencies(per_thread(s), a, e, n, f))
#endif

#endif
