/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver's functions for captures, graphs, and attributes of streams. The lists have the form of those in
 * driver_symbols.h and driver_per_thread.h.
 */
#ifndef DRIVER_GRAPH_SYMBOLS_H
#define DRIVER_GRAPH_SYMBOLS_H

#define LOOKALIKE_DRIVER_GRAPHS(X)                                                                          \
	X(cuGraphCreate, cuGraphCreate, 10000, (void **, unsigned))                                             \
	X(cuGraphDestroy, cuGraphDestroy, 10000, (void *))                                                      \
	X(cuStreamBeginCapture, cuStreamBeginCapture_v2, 10010, (void *, int))                                  \
	X(cuStreamEndCapture, cuStreamEndCapture, 10000, (void *, void **))                                     \
	X(cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph, 12030,                                      \
	  (void *, void *, void *const *, const struct cuda_edge *, size_t, int))                               \
	X(cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_v3, 12030,                                             \
	  (void *, int *, uint64_t *, void **, void *const **, const struct cuda_edge **, size_t *))            \
	X(cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_v2, 11030,                                             \
	  (void *, int *, uint64_t *, void **, void *const **, size_t *))                                       \
	X(cuStreamGetCaptureInfo, cuStreamGetCaptureInfo, 10010, (void *, int *, uint64_t *))                   \
	X(cuStreamIsCapturing, cuStreamIsCapturing, 10000, (void *, int *))                                     \
	X(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, 10010, (int *))                 \
	X(cuStreamUpdateCaptureDependencies, cuStreamUpdateCaptureDependencies_v2, 12030,                       \
	  (void *, void *const *, const struct cuda_edge *, size_t, unsigned))                                  \
	X(cuStreamUpdateCaptureDependencies, cuStreamUpdateCaptureDependencies, 11030,                          \
	  (void *, void *const *, size_t, unsigned))                                                            \
	X(cuGraphGetNodes, cuGraphGetNodes, 10000, (void *, void **, size_t *))                                 \
	X(cuGraphGetRootNodes, cuGraphGetRootNodes, 10000, (void *, void **, size_t *))                         \
	X(cuGraphNodeGetType, cuGraphNodeGetType, 10000, (void *, int *))                                       \
	X(cuGraphNodeGetDependencies, cuGraphNodeGetDependencies_v2, 12030,                                     \
	  (void *, void **, struct cuda_edge *, size_t *))                                                      \
	X(cuGraphNodeGetDependencies, cuGraphNodeGetDependencies, 10000, (void *, void **, size_t *))           \
	X(cuUserObjectCreate, cuUserObjectCreate, 11030,                                                        \
	  (void **, void *, cuda_function *, unsigned, unsigned))                                               \
	X(cuUserObjectRetain, cuUserObjectRetain, 11030, (void *, unsigned))                                    \
	X(cuUserObjectRelease, cuUserObjectRelease, 11030, (void *, unsigned))                                  \
	X(cuGraphRetainUserObject, cuGraphRetainUserObject, 11030, (void *, void *, unsigned, unsigned))        \
	X(cuGraphReleaseUserObject, cuGraphReleaseUserObject, 11030, (void *, void *, unsigned))                \
	X(cuGraphAddNode, cuGraphAddNode_v2, 12030,                                                             \
	  (void **, void *, void *const *, const struct cuda_edge *, size_t, struct cuda_node *))               \
	X(cuGraphAddNode, cuGraphAddNode, 12020, (void **, void *, void *const *, size_t, struct cuda_node *))  \
	X(cuGraphAddKernelNode, cuGraphAddKernelNode_v2, 12000,                                                 \
	  (void **, void *, void *const *, size_t, const struct cuda_kernel_node *))                            \
	X(cuGraphAddKernelNode, cuGraphAddKernelNode, 10000,                                                    \
	  (void **, void *, void *const *, size_t, const struct cuda_kernel_node *))                            \
	X(cuGraphAddMemcpyNode, cuGraphAddMemcpyNode, 10000,                                                    \
	  (void **, void *, void *const *, size_t, const struct cuda_copy_3d *, void *))                        \
	X(cuGraphAddMemsetNode, cuGraphAddMemsetNode, 10000,                                                    \
	  (void **, void *, void *const *, size_t, const struct cuda_fill_node *, void *))                      \
	X(cuGraphAddHostNode, cuGraphAddHostNode, 10000,                                                        \
	  (void **, void *, void *const *, size_t, const struct cuda_host_node *))                              \
	X(cuGraphAddChildGraphNode, cuGraphAddChildGraphNode, 10000,                                            \
	  (void **, void *, void *const *, size_t, void *))                                                     \
	X(cuGraphAddEmptyNode, cuGraphAddEmptyNode, 10000, (void **, void *, void *const *, size_t))            \
	X(cuGraphAddEventRecordNode, cuGraphAddEventRecordNode, 11010,                                          \
	  (void **, void *, void *const *, size_t, void *))                                                     \
	X(cuGraphAddEventWaitNode, cuGraphAddEventWaitNode, 11010,                                              \
	  (void **, void *, void *const *, size_t, void *))                                                     \
	X(cuGraphAddMemAllocNode, cuGraphAddMemAllocNode, 11040,                                                \
	  (void **, void *, void *const *, size_t, struct cuda_alloc_node *))                                   \
	X(cuGraphAddMemFreeNode, cuGraphAddMemFreeNode, 11040,                                                  \
	  (void **, void *, void *const *, size_t, cuda_addr))                                                  \
	X(cuGraphConditionalHandleCreate, cuGraphConditionalHandleCreate, 12030,                                \
	  (uint64_t *, void *, void *, unsigned, unsigned))                                                     \
	X(cuGraphNodeSetParams, cuGraphNodeSetParams, 12020, (void *, const struct cuda_node *))                \
	X(cuGraphNodeGetParams, cuGraphNodeGetParams, 13020, (void *, struct cuda_node *))                      \
	X(cuGraphKernelNodeSetParams, cuGraphKernelNodeSetParams_v2, 12000,                                     \
	  (void *, const struct cuda_kernel_node *))                                                            \
	X(cuGraphKernelNodeSetParams, cuGraphKernelNodeSetParams, 10000,                                        \
	  (void *, const struct cuda_kernel_node *))                                                            \
	X(cuGraphKernelNodeGetParams, cuGraphKernelNodeGetParams_v2, 12000,                                     \
	  (void *, struct cuda_kernel_node *))                                                                  \
	X(cuGraphKernelNodeGetParams, cuGraphKernelNodeGetParams, 10000, (void *, struct cuda_kernel_node *))   \
	X(cuGraphMemcpyNodeSetParams, cuGraphMemcpyNodeSetParams, 10000,                                        \
	  (void *, const struct cuda_copy_3d *))                                                                \
	X(cuGraphMemcpyNodeGetParams, cuGraphMemcpyNodeGetParams, 10000, (void *, struct cuda_copy_3d *))       \
	X(cuGraphMemsetNodeSetParams, cuGraphMemsetNodeSetParams, 10000,                                        \
	  (void *, const struct cuda_fill_node *))                                                              \
	X(cuGraphMemsetNodeGetParams, cuGraphMemsetNodeGetParams, 10000, (void *, struct cuda_fill_node *))     \
	X(cuGraphHostNodeSetParams, cuGraphHostNodeSetParams, 10000, (void *, const struct cuda_host_node *))   \
	X(cuGraphHostNodeGetParams, cuGraphHostNodeGetParams, 10000, (void *, struct cuda_host_node *))         \
	X(cuGraphEventRecordNodeSetEvent, cuGraphEventRecordNodeSetEvent, 11010, (void *, void *))              \
	X(cuGraphEventRecordNodeGetEvent, cuGraphEventRecordNodeGetEvent, 11010, (void *, void **))             \
	X(cuGraphEventWaitNodeSetEvent, cuGraphEventWaitNodeSetEvent, 11010, (void *, void *))                  \
	X(cuGraphEventWaitNodeGetEvent, cuGraphEventWaitNodeGetEvent, 11010, (void *, void **))                 \
	X(cuGraphChildGraphNodeGetGraph, cuGraphChildGraphNodeGetGraph, 10000, (void *, void **))               \
	X(cuGraphMemAllocNodeGetParams, cuGraphMemAllocNodeGetParams, 11040,                                    \
	  (void *, struct cuda_alloc_node *))                                                                   \
	X(cuGraphMemFreeNodeGetParams, cuGraphMemFreeNodeGetParams, 11040, (void *, cuda_addr *))               \
	X(cuGraphKernelNodeSetAttribute, cuGraphKernelNodeSetAttribute, 11000, (void *, int, const void *))     \
	X(cuGraphKernelNodeGetAttribute, cuGraphKernelNodeGetAttribute, 11000, (void *, int, void *))           \
	X(cuGraphKernelNodeCopyAttributes, cuGraphKernelNodeCopyAttributes, 11000, (void *, void *))            \
	X(cuGraphAddDependencies, cuGraphAddDependencies_v2, 12030,                                             \
	  (void *, void *const *, void *const *, const struct cuda_edge *, size_t))                             \
	X(cuGraphAddDependencies, cuGraphAddDependencies, 10000,                                                \
	  (void *, void *const *, void *const *, size_t))                                                       \
	X(cuGraphRemoveDependencies, cuGraphRemoveDependencies_v2, 12030,                                       \
	  (void *, void *const *, void *const *, const struct cuda_edge *, size_t))                             \
	X(cuGraphRemoveDependencies, cuGraphRemoveDependencies, 10000,                                          \
	  (void *, void *const *, void *const *, size_t))                                                       \
	X(cuGraphGetEdges, cuGraphGetEdges_v2, 12030,                                                           \
	  (void *, void **, void **, struct cuda_edge *, size_t *))                                             \
	X(cuGraphGetEdges, cuGraphGetEdges, 10000, (void *, void **, void **, size_t *))                        \
	X(cuGraphNodeGetDependentNodes, cuGraphNodeGetDependentNodes_v2, 12030,                                 \
	  (void *, void **, struct cuda_edge *, size_t *))                                                      \
	X(cuGraphNodeGetDependentNodes, cuGraphNodeGetDependentNodes, 10000, (void *, void **, size_t *))       \
	X(cuGraphDestroyNode, cuGraphDestroyNode, 10000, (void *))                                              \
	X(cuGraphClone, cuGraphClone, 10000, (void **, void *))                                                 \
	X(cuGraphNodeFindInClone, cuGraphNodeFindInClone, 10000, (void **, void *, void *))                     \
	X(cuGraphNodeGetContainingGraph, cuGraphNodeGetContainingGraph, 13010, (void *, void **))               \
	X(cuGraphNodeGetLocalId, cuGraphNodeGetLocalId, 13010, (void *, unsigned *))                            \
	X(cuGraphDebugDotPrint, cuGraphDebugDotPrint, 11030, (void *, const char *, unsigned))                  \
	X(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, 11040,                                      \
	  (void **, void *, unsigned long long))                                                                \
	X(cuGraphInstantiate, cuGraphInstantiate_v2, 11000, (void **, void *, void **, char *, size_t))         \
	X(cuGraphInstantiateWithParams, cuGraphInstantiateWithParams, 12000,                                    \
	  (void **, void *, struct cuda_instantiate *))                                                         \
	X(cuGraphExecDestroy, cuGraphExecDestroy, 10000, (void *))                                              \
	X(cuGraphExecGetFlags, cuGraphExecGetFlags, 12000, (void *, unsigned long long *))                      \
	X(cuGraphUpload, cuGraphUpload, 11010, (void *, void *))                                                \
	X(cuGraphLaunch, cuGraphLaunch, 10000, (void *, void *))                                                \
	X(cuGraphExecNodeSetParams, cuGraphExecNodeSetParams, 12020,                                            \
	  (void *, void *, const struct cuda_node *))                                                           \
	X(cuGraphExecKernelNodeSetParams, cuGraphExecKernelNodeSetParams_v2, 12000,                             \
	  (void *, void *, const struct cuda_kernel_node *))                                                    \
	X(cuGraphExecKernelNodeSetParams, cuGraphExecKernelNodeSetParams, 10010,                                \
	  (void *, void *, const struct cuda_kernel_node *))                                                    \
	X(cuGraphExecMemcpyNodeSetParams, cuGraphExecMemcpyNodeSetParams, 10020,                                \
	  (void *, void *, const struct cuda_copy_3d *, void *))                                                \
	X(cuGraphExecMemsetNodeSetParams, cuGraphExecMemsetNodeSetParams, 10020,                                \
	  (void *, void *, const struct cuda_fill_node *, void *))                                              \
	X(cuGraphExecHostNodeSetParams, cuGraphExecHostNodeSetParams, 10020,                                    \
	  (void *, void *, const struct cuda_host_node *))                                                      \
	X(cuGraphExecChildGraphNodeSetParams, cuGraphExecChildGraphNodeSetParams, 11010,                        \
	  (void *, void *, void *))                                                                             \
	X(cuGraphExecEventRecordNodeSetEvent, cuGraphExecEventRecordNodeSetEvent, 11010,                        \
	  (void *, void *, void *))                                                                             \
	X(cuGraphExecEventWaitNodeSetEvent, cuGraphExecEventWaitNodeSetEvent, 11010, (void *, void *, void *))  \
	X(cuGraphNodeSetEnabled, cuGraphNodeSetEnabled, 11060, (void *, void *, unsigned))                      \
	X(cuGraphNodeGetEnabled, cuGraphNodeGetEnabled, 11060, (void *, void *, unsigned *))                    \
	X(cuGraphExecUpdate, cuGraphExecUpdate_v2, 12000, (void *, void *, struct cuda_update *))               \
	X(cuGraphExecUpdate, cuGraphExecUpdate, 10020, (void *, void *, void **, int *))                        \
	X(cuDeviceGraphMemTrim, cuDeviceGraphMemTrim, 11040, (cuda_device))                                     \
	X(cuDeviceGetGraphMemAttribute, cuDeviceGetGraphMemAttribute, 11040, (cuda_device, int, void *))        \
	X(cuDeviceSetGraphMemAttribute, cuDeviceSetGraphMemAttribute, 11040, (cuda_device, int, void *))        \
	X(cuStreamSetAttribute, cuStreamSetAttribute, 11000, (void *, int, const void *))                       \
	X(cuStreamGetAttribute, cuStreamGetAttribute, 11000, (void *, int, void *))                             \
	X(cuStreamCopyAttributes, cuStreamCopyAttributes, 11000, (void *, void *))

#define PER_THREAD_GRAPHS(X)                                                                                    \
	X(cuStreamBeginCaptureToGraph,                                                                              \
	  (void *s, void *a, void *const *b, const struct cuda_edge *c, size_t d, int e), (of_thread(s), a, b, c, d, e)) \
	X(cuStreamUpdateCaptureDependencies, (void *s, void *const *a, size_t b, unsigned c), (of_thread(s), a, b, c)) \
	X(cuStreamUpdateCaptureDependencies_v2,                                                                     \
	  (void *s, void *const *a, const struct cuda_edge *b, size_t c, unsigned d), (of_thread(s), a, b, c, d))   \
	X(cuStreamSetAttribute, (void *s, int a, const void *b), (of_thread(s), a, b))                              \
	X(cuStreamGetAttribute, (void *s, int a, void *b), (of_thread(s), a, b))                                    \
	X(cuStreamCopyAttributes, (void *s, void *t), (of_thread(s), of_thread(t)))                                 \
	X(cuStreamAttachMemAsync, (void *s, cuda_addr a, size_t b, unsigned c), (of_thread(s), a, b, c))

#endif
