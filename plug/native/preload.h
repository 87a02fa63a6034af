/* SPDX-License-Identifier: Apache-2.0
 *
 * libterrazzo_preload.so: functions that stand before the driver's own. Whatever a program does ends in the driver: its
 * own calls, and those of a CUDA runtime, shared or linked statically. They find the driver's functions by the dynamic
 * linker, by dlsym or by cuGetProcAddress; each of these gives them the functions here (preload_lookup.c).
 */
#ifndef TRZ_PRELOAD_H
#define TRZ_PRELOAD_H

#include "native_driver.h"

/* CUipcMemHandle, CUipcEventHandle */
struct preload_ipc {
	char bytes[64];
};

/* CUDA_ARRAY_DESCRIPTOR */
struct preload_array_2d {
	size_t width, height;
	int format;
	unsigned channels;
};

/* CUDA_ARRAY3D_DESCRIPTOR */
struct preload_array_3d {
	size_t width, height, depth;
	int format;
	unsigned channels, flags;
};

/* CUDA_MEM_ALLOC_NODE_PARAMS */
struct preload_alloc_node {
	char pool[88];
	const void *access;
	size_t access_count, size;
	cuda_addr address;
};

struct event_order_node;
struct preload_launch;

/* X(name, exported name, first CUDA version, whether stream 0 is the thread's, parameters) */
#define PRELOAD_CALLS(X)                                                                                           \
	X(cuGetProcAddress, cuGetProcAddress, 11030, 0, (const char *, void **, int, uint64_t))                        \
	X(cuGetProcAddress, cuGetProcAddress_v2, 12000, 0, (const char *, void **, int, uint64_t, int *))              \
	/* memory */                                                                                                   \
	X(cuMemAlloc, cuMemAlloc_v2, 3020, 0, (cuda_addr *, size_t))                                                   \
	X(cuMemAllocPitch, cuMemAllocPitch_v2, 3020, 0, (cuda_addr *, size_t *, size_t, size_t, unsigned))             \
	X(cuMemFree, cuMemFree_v2, 3020, 0, (cuda_addr))                                                               \
	X(cuMemGetInfo, cuMemGetInfo_v2, 3020, 0, (size_t *, size_t *))                                                \
	X(cuMemAllocAsync, cuMemAllocAsync, 11020, 0, (cuda_addr *, size_t, void *))                                   \
	X(cuMemAllocAsync, cuMemAllocAsync_ptsz, 11020, 1, (cuda_addr *, size_t, void *))                              \
	X(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020, 0, (cuda_addr *, size_t, void *, void *))           \
	X(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync_ptsz, 11020, 1, (cuda_addr *, size_t, void *, void *))      \
	X(cuMemFreeAsync, cuMemFreeAsync, 11020, 0, (cuda_addr, void *))                                               \
	X(cuMemFreeAsync, cuMemFreeAsync_ptsz, 11020, 1, (cuda_addr, void *))                                          \
	X(cuMemGetAddressRange, cuMemGetAddressRange_v2, 3020, 0, (cuda_addr *, size_t *, cuda_addr))                  \
	X(cuPointerGetAttribute, cuPointerGetAttribute, 4000, 0, (void *, int, cuda_addr))                             \
	X(cuPointerGetAttributes, cuPointerGetAttributes, 7000, 0, (unsigned, int *, void **, cuda_addr))              \
	X(cuPointerSetAttribute, cuPointerSetAttribute, 6000, 0, (const void *, int, cuda_addr))                       \
	X(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010, 0, (struct preload_ipc *, cuda_addr))                            \
	X(cuMemPoolTrimTo, cuMemPoolTrimTo, 11020, 0, (void *, size_t))                                                \
	X(cuMemPoolGetAttribute, cuMemPoolGetAttribute, 11020, 0, (void *, int, void *))                               \
	X(cuMemPoolSetAttribute, cuMemPoolSetAttribute, 11020, 0, (void *, int, void *))                               \
	X(cuMemPoolSetAccess, cuMemPoolSetAccess, 11020, 0, (void *, const struct cuda_mem_access *, size_t))          \
	X(cuDeviceSetMemPool, cuDeviceSetMemPool, 11020, 0, (cuda_device, void *))                                     \
	X(cuMemSetMemPool, cuMemSetMemPool, 13000, 0, (const struct cuda_mem_location *, int, void *))                 \
	X(cuMemSetAccess, cuMemSetAccess, 10020, 0, (cuda_addr, size_t, const struct cuda_mem_access *, size_t))       \
	/* contexts and streams */                                                                                     \
	X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, 0, (void **, cuda_device))                         \
	X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease, 7000, 0, (cuda_device))                                \
	X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, 11000, 0, (cuda_device))                            \
	X(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset, 7000, 0, (cuda_device))                                    \
	X(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, 11000, 0, (cuda_device))                                \
	X(cuCtxAttach, cuCtxAttach, 2000, 0, (void **, unsigned))                                                      \
	X(cuCtxDetach, cuCtxDetach, 2000, 0, (void *))                                                                 \
	X(cuCtxDestroy, cuCtxDestroy, 2000, 0, (void *))                                                               \
	X(cuCtxDestroy, cuCtxDestroy_v2, 4000, 0, (void *))                                                            \
	X(cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, 4000, 0, (void *, unsigned))                                   \
	X(cuStreamDestroy, cuStreamDestroy, 2000, 0, (void *))                                                         \
	X(cuStreamDestroy, cuStreamDestroy_v2, 4000, 0, (void *))                                                      \
	X(cuStreamBeginCapture, cuStreamBeginCapture, 10000, 0, (void *))                                              \
	X(cuStreamBeginCapture, cuStreamBeginCapture_ptsz, 10000, 1, (void *))                                         \
	X(cuStreamBeginCapture, cuStreamBeginCapture_v2, 10010, 0, (void *, int))                                      \
	X(cuStreamBeginCapture, cuStreamBeginCapture_v2_ptsz, 10010, 1, (void *, int))                                 \
	X(cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph, 12030, 0,                                          \
	  (void *, void *, const void *, const void *, size_t, int))                                                   \
	X(cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph_ptsz, 12030, 1,                                     \
	  (void *, void *, const void *, const void *, size_t, int))                                                   \
	X(cuStreamBeginRecaptureToGraph, cuStreamBeginRecaptureToGraph, 13030, 0,                                      \
	  (void *, int, void *, void *, void *))                                                                       \
	X(cuStreamBeginRecaptureToGraph, cuStreamBeginRecaptureToGraph_ptsz, 13030, 1,                                 \
	  (void *, int, void *, void *, void *))                                                                       \
	X(cuStreamEndCapture, cuStreamEndCapture, 10000, 0, (void *, void **))                                         \
	X(cuStreamEndCapture, cuStreamEndCapture_ptsz, 10000, 1, (void *, void **))                                    \
	/* events */                                                                                                   \
	X(cuEventCreate, cuEventCreate, 2000, 0, (void **, unsigned))                                                  \
	X(cuEventDestroy, cuEventDestroy, 2000, 0, (void *))                                                           \
	X(cuEventDestroy, cuEventDestroy_v2, 4000, 0, (void *))                                                        \
	X(cuIpcOpenEventHandle, cuIpcOpenEventHandle, 4010, 0, (void **, struct preload_ipc))                          \
	X(cuEventRecord, cuEventRecord, 2000, 0, (void *, void *))                                                     \
	X(cuEventRecord, cuEventRecord_ptsz, 2000, 1, (void *, void *))                                                \
	X(cuEventRecordWithFlags, cuEventRecordWithFlags, 11010, 0, (void *, void *, unsigned))                        \
	X(cuEventRecordWithFlags, cuEventRecordWithFlags_ptsz, 11010, 1, (void *, void *, unsigned))                   \
	X(cuCtxRecordEvent, cuCtxRecordEvent, 12050, 0, (void *, void *))                                              \
	X(cuGreenCtxRecordEvent, cuGreenCtxRecordEvent, 12040, 0, (void *, void *))                                    \
	X(cuStreamWaitEvent, cuStreamWaitEvent, 3020, 0, (void *, void *, unsigned))                                   \
	X(cuStreamWaitEvent, cuStreamWaitEvent_ptsz, 3020, 1, (void *, void *, unsigned))                              \
	X(cuEventQuery, cuEventQuery, 2000, 0, (void *))                                                               \
	X(cuEventSynchronize, cuEventSynchronize, 2000, 0, (void *))                                                   \
	X(cuStreamQuery, cuStreamQuery, 2000, 0, (void *))                                                             \
	X(cuStreamQuery, cuStreamQuery_ptsz, 2000, 1, (void *))                                                        \
	X(cuStreamSynchronize, cuStreamSynchronize, 2000, 0, (void *))                                                 \
	X(cuStreamSynchronize, cuStreamSynchronize_ptsz, 2000, 1, (void *))                                            \
	X(cuCtxSynchronize, cuCtxSynchronize, 2000, 0, (void))                                                         \
	X(cuCtxSynchronize, cuCtxSynchronize_v2, 13000, 0, (void *))                                                   \
	X(cuGraphAddEventRecordNode, cuGraphAddEventRecordNode, 11010, 0,                                              \
	  (void **, void *, const void *, size_t, void *))                                                             \
	X(cuGraphEventRecordNodeSetEvent, cuGraphEventRecordNodeSetEvent, 11010, 0, (void *, void *))                  \
	X(cuGraphExecEventRecordNodeSetEvent, cuGraphExecEventRecordNodeSetEvent, 11010, 0, (void *, void *, void *))  \
	X(cuGraphAddNode, cuGraphAddNode, 12020, 0, (void *, void *, void *, size_t, struct event_order_node *))       \
	X(cuGraphAddNode, cuGraphAddNode_v2, 12030, 0,                                                                 \
	  (void *, void *, void *, void *, size_t, struct event_order_node *))                                         \
	X(cuGraphNodeSetParams, cuGraphNodeSetParams, 12020, 0, (void *, struct event_order_node *))                   \
	X(cuGraphExecNodeSetParams, cuGraphExecNodeSetParams, 12020, 0, (void *, void *, struct event_order_node *))   \
	/* what only a limit looks at */                                                                                \
	X(cuMemAllocManaged, cuMemAllocManaged, 6000, 0, (cuda_addr *, size_t, unsigned))                              \
	X(cuMemCreate, cuMemCreate, 10020, 0, (cuda_mem *, size_t, const struct cuda_mem_prop *, uint64_t))            \
	X(cuMemRelease, cuMemRelease, 10020, 0, (cuda_mem))                                                            \
	X(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000, 0, (cuda_mem *, void *))                    \
	X(cuMemMap, cuMemMap, 10020, 0, (cuda_addr, size_t, size_t, cuda_mem, uint64_t))                               \
	X(cuMemUnmap, cuMemUnmap, 10020, 0, (cuda_addr, size_t))                                                       \
	X(cuMemPoolDestroy, cuMemPoolDestroy, 11020, 0, (void *))                                                      \
	X(cuIpcOpenMemHandle, cuIpcOpenMemHandle, 4010, 0, (cuda_addr *, struct preload_ipc, unsigned))                \
	X(cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2, 11000, 0, (cuda_addr *, struct preload_ipc, unsigned))            \
	X(cuIpcCloseMemHandle, cuIpcCloseMemHandle, 4010, 0, (cuda_addr))                                              \
	X(cuArrayCreate, cuArrayCreate_v2, 3020, 0, (void **, const struct preload_array_2d *))                        \
	X(cuArray3DCreate, cuArray3DCreate_v2, 3020, 0, (void **, const struct preload_array_3d *))                    \
	X(cuArrayDestroy, cuArrayDestroy, 2000, 0, (void *))                                                           \
	X(cuMipmappedArrayCreate, cuMipmappedArrayCreate, 5000, 0,                                                     \
	  (void **, const struct preload_array_3d *, unsigned))                                                        \
	X(cuMipmappedArrayDestroy, cuMipmappedArrayDestroy, 5000, 0, (void *))                                         \
	X(cuGraphAddMemAllocNode, cuGraphAddMemAllocNode, 11040, 0,                                                    \
	  (void **, void *, const void *, size_t, struct preload_alloc_node *))                                        \
	X(cuGraphAddMemFreeNode, cuGraphAddMemFreeNode, 11040, 0, (void **, void *, const void *, size_t, cuda_addr))  \
	X(cuGraphInstantiate, cuGraphInstantiate, 10000, 0, (void **, void *, void **, char *, size_t))                \
	X(cuGraphInstantiate, cuGraphInstantiate_v2, 11000, 0, (void **, void *, void **, char *, size_t))             \
	X(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, 11040, 0, (void **, void *, unsigned long long))   \
	X(cuGraphInstantiateWithParams, cuGraphInstantiateWithParams, 12000, 0, (void **, void *, void *))             \
	X(cuGraphInstantiateWithParams, cuGraphInstantiateWithParams_ptsz, 12000, 1, (void **, void *, void *))        \
	X(cuGraphDestroy, cuGraphDestroy, 10000, 0, (void *))                                                          \
	X(cuGraphExecDestroy, cuGraphExecDestroy, 10000, 0, (void *))                                                  \
	/* what takes memory of the driver's own: contexts, their limits, code */                                      \
	X(cuCtxCreate, cuCtxCreate, 2000, 0, (void **, unsigned, cuda_device))                                         \
	X(cuCtxCreate, cuCtxCreate_v2, 3020, 0, (void **, unsigned, cuda_device))                                      \
	X(cuCtxCreate, cuCtxCreate_v3, 11040, 0, (void **, void *, int, unsigned, cuda_device))                        \
	X(cuCtxCreate, cuCtxCreate_v4, 12050, 0, (void **, void *, unsigned, cuda_device))                             \
	X(cuCtxSetLimit, cuCtxSetLimit, 3010, 0, (int, size_t))                                                        \
	X(cuModuleLoad, cuModuleLoad, 2000, 0, (void **, const char *))                                                \
	X(cuModuleLoadData, cuModuleLoadData, 2000, 0, (void **, const void *))                                        \
	X(cuModuleLoadDataEx, cuModuleLoadDataEx, 2010, 0, (void **, const void *, unsigned, int *, void **))          \
	X(cuModuleLoadFatBinary, cuModuleLoadFatBinary, 2000, 0, (void **, const void *))                              \
	X(cuLaunchKernelEx, cuLaunchKernelEx, 11060, 0, (const struct preload_launch *, void *, void **, void **))     \
	X(cuLaunchKernelEx, cuLaunchKernelEx_ptsz, 11060, 1, (const struct preload_launch *, void *, void **, void **))

#define PRELOAD_DECLARE(name, exported, version, thread, parameters)                \
	typedef cuda_result preload_type_##exported parameters;                         \
	__attribute__((visibility("default"))) cuda_result exported parameters;
PRELOAD_CALLS(PRELOAD_DECLARE)
#undef PRELOAD_DECLARE

enum {
#define PRELOAD_INDEX(name, exported, version, thread, parameters) PRELOAD_AT_##exported,
	PRELOAD_CALLS(PRELOAD_INDEX)
#undef PRELOAD_INDEX
	PRELOAD_COUNT
};

typedef void preload_function(void);

struct preload_call {
	const char *name, *exported;
	int version;
	bool of_thread;
	preload_function *hook;
	preload_function *real, *next; /* the driver's, NULL if it lacks the function; and what the hook calls: that, or
	                                 * with a limit limit_NAME. Both valid once loaded */
};
extern struct preload_call preload_calls[PRELOAD_COUNT];

/* Finds the driver's functions, if the driver is in the process. false: it is not. */
bool preload_load(void);

/* Whether this is a process of PyTorch's, which the plug serves. */
bool preload_in_pytorch(void);

/* Makes a new heap count its memory by the program's stacks. */
struct native_heap;
void preload_tell_sites(struct native_heap *heap);

/* In a program of Python other than PyTorch's: asks its main thread to make stacks the lines of Python. */
void preload_ask_python(void);

/* What makes heaps leave snapshots for `terrazzo run --report`; NULL: no page is wanted. */
const char *preload_pages(void);

/* The context is about to end, and its captures with it. */
void preload_forget_captures(const void *context);

/* In the child of a fork: the parent's captures go on there. */
void preload_forget_parents_captures(void);

/* REAL is what a function here calls: limit_NAME if there is a limit, else the driver's own. DRIVER is the driver's
 * own. */
#define REAL(exported) ((preload_type_##exported *)preload_calls[PRELOAD_AT_##exported].next)
#define DRIVER(exported) ((preload_type_##exported *)preload_calls[PRELOAD_AT_##exported].real)

/* Functions that count what they allocate: limit_NAME, in limit_calls.c and limit_graphs.c. */
#define LIMITED_CALLS(X)                                                                                          \
	X(cuMemAlloc_v2) X(cuMemAllocPitch_v2) X(cuMemAllocManaged) X(cuMemFree_v2) X(cuMemGetInfo_v2)                \
	X(cuMemAllocAsync) X(cuMemAllocAsync_ptsz) X(cuMemAllocFromPoolAsync) X(cuMemAllocFromPoolAsync_ptsz)         \
	X(cuMemFreeAsync) X(cuMemFreeAsync_ptsz) X(cuMemPoolDestroy) X(cuMemCreate) X(cuMemRelease)                   \
	X(cuMemRetainAllocationHandle) X(cuMemMap) X(cuMemUnmap) X(cuIpcOpenMemHandle) X(cuIpcOpenMemHandle_v2)       \
	X(cuIpcCloseMemHandle) X(cuArrayCreate_v2) X(cuArray3DCreate_v2) X(cuArrayDestroy) X(cuMipmappedArrayCreate)  \
	X(cuMipmappedArrayDestroy) X(cuGraphAddMemAllocNode) X(cuGraphAddNode) X(cuGraphAddNode_v2)                   \
	X(cuGraphInstantiate) X(cuGraphInstantiate_v2) X(cuGraphInstantiateWithFlags) X(cuGraphInstantiateWithParams) \
	X(cuGraphInstantiateWithParams_ptsz) X(cuGraphDestroy) X(cuGraphExecDestroy) X(cuStreamEndCapture)            \
	X(cuStreamEndCapture_ptsz) X(cuGraphAddMemFreeNode)

#define LIMIT_DECLARE(exported) preload_type_##exported limit_##exported;
LIMITED_CALLS(LIMIT_DECLARE)
#undef LIMIT_DECLARE

/* Begins each function. */
#define ENTER(exported)                                  \
	do {                                                 \
		if (!preload_load())                             \
			return TRZ_CUDA_ERROR_NOT_INITIALIZED;       \
		if (!REAL(exported))                             \
			return TRZ_CUDA_ERROR_NOT_SUPPORTED;         \
	} while (0)

#define PRELOAD_PER_THREAD ((void *)2)

static inline void *preload_of_thread(void *stream)
{
	return stream ? stream : PRELOAD_PER_THREAD;
}

#endif
