/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of the look-alike libcudart that return an error and are counted. runtime_missing.def names those that
 * it lacks; runtime_code.c has those that only the compiler calls.
 */
#ifndef RUNTIME_SYMBOLS_H
#define RUNTIME_SYMBOLS_H

#include "lookalike/driver/driver_abi.h"
#include "runtime_abi.h"
#include "runtime_array_symbols.h"
#include "runtime_graph_symbols.h"

typedef int cuda_error;
typedef void rt_host_function(void *);

/* X(name, parameters) */
#define LOOKALIKE_RUNTIME_SYMBOLS(X)                                                                        \
	/* devices */                                                                                           \
	X(cudaGetDeviceCount, (int *))                                                                          \
	X(cudaGetDevice, (int *))                                                                               \
	X(cudaSetDevice, (int))                                                                                 \
	X(cudaInitDevice, (int, unsigned, unsigned))                                                            \
	X(cudaSetDeviceFlags, (unsigned))                                                                       \
	X(cudaGetDeviceFlags, (unsigned *))                                                                     \
	X(cudaGetDeviceProperties, (struct rt_properties *, int))                                               \
	X(cudaDeviceGetAttribute, (int *, int, int))                                                            \
	X(cudaDeviceGetPCIBusId, (char *, int, int))                                                            \
	X(cudaDeviceGetByPCIBusId, (int *, const char *))                                                       \
	X(cudaDeviceCanAccessPeer, (int *, int, int))                                                           \
	X(cudaDeviceGetP2PAttribute, (int *, int, int, int))                                                    \
	X(cudaDeviceEnablePeerAccess, (int, unsigned))                                                          \
	X(cudaDeviceDisablePeerAccess, (int))                                                                   \
	X(cudaDeviceSynchronize, (void))                                                                        \
	X(cudaDeviceReset, (void))                                                                              \
	X(cudaDeviceGetSharedMemConfig, (int *))                                                                \
	X(cudaDeviceSetSharedMemConfig, (int))                                                                  \
	X(cudaCtxResetPersistingL2Cache, (void))                                                                \
	X(cudaChooseDevice, (int *, const struct rt_properties *))                                              \
	X(cudaDeviceGetLimit, (size_t *, int))                                                                  \
	X(cudaDeviceSetLimit, (int, size_t))                                                                    \
	X(cudaDeviceGetCacheConfig, (int *))                                                                    \
	X(cudaDeviceSetCacheConfig, (int))                                                                      \
	X(cudaDeviceGetStreamPriorityRange, (int *, int *))                                                     \
	X(cudaDriverGetVersion, (int *))                                                                        \
	X(cudaRuntimeGetVersion, (int *))                                                                       \
	X(cudaGetDriverEntryPointByVersion, (const char *, void **, unsigned, unsigned long long, int *))       \
	X(cudaProfilerStart, (void))                                                                            \
	X(cudaProfilerStop, (void))                                                                             \
	X(cudaGetLastError, (void))                                                                             \
	X(cudaPeekAtLastError, (void))                                                                          \
	/* memory */                                                                                            \
	X(cudaMalloc, (void **, size_t))                                                                        \
	X(cudaMallocManaged, (void **, size_t, unsigned))                                                       \
	X(cudaMallocPitch, (void **, size_t *, size_t, size_t))                                                 \
	X(cudaMalloc3D, (struct rt_pitched *, struct rt_extent))                                                \
	X(cudaFree, (void *))                                                                                   \
	X(cudaMemGetInfo, (size_t *, size_t *))                                                                 \
	X(cudaMallocHost, (void **, size_t))                                                                    \
	X(cudaHostAlloc, (void **, size_t, unsigned))                                                           \
	X(cudaFreeHost, (void *))                                                                               \
	X(cudaHostRegister, (void *, size_t, unsigned))                                                         \
	X(cudaHostUnregister, (void *))                                                                         \
	X(cudaHostGetDevicePointer, (void **, void *, unsigned))                                                \
	X(cudaHostGetFlags, (unsigned *, void *))                                                               \
	X(cudaPointerGetAttributes, (struct rt_pointer *, const void *))                                        \
	X(cudaMallocAsync, (void **, size_t, void *))                                                           \
	X(cudaMallocFromPoolAsync, (void **, size_t, void *, void *))                                           \
	X(cudaFreeAsync, (void *, void *))                                                                      \
	X(cudaIpcGetMemHandle, (struct cuda_ipc *, void *))                                                     \
	X(cudaIpcOpenMemHandle, (void **, struct cuda_ipc, unsigned))                                           \
	X(cudaIpcCloseMemHandle, (void *))                                                                      \
	X(cudaIpcGetEventHandle, (struct cuda_ipc *, void *))                                                   \
	X(cudaIpcOpenEventHandle, (void **, struct cuda_ipc))                                                   \
	X(cudaMemPoolCreate, (void **, const struct cuda_pool_props *))                                         \
	X(cudaMemPoolDestroy, (void *))                                                                         \
	X(cudaMemPoolTrimTo, (void *, size_t))                                                                  \
	X(cudaMemPoolSetAttribute, (void *, int, void *))                                                       \
	X(cudaMemPoolGetAttribute, (void *, int, void *))                                                       \
	X(cudaMemPoolSetAccess, (void *, const struct cuda_mem_access *, size_t))                               \
	X(cudaMemPoolGetAccess, (int *, void *, struct cuda_mem_location *))                                    \
	X(cudaMemPoolExportToShareableHandle, (void *, void *, int, unsigned))                                  \
	X(cudaMemPoolImportFromShareableHandle, (void **, void *, int, unsigned))                               \
	X(cudaMemGetDefaultMemPool, (void **, const struct cuda_mem_location *, int))                           \
	X(cudaMemGetMemPool, (void **, const struct cuda_mem_location *, int))                                  \
	X(cudaMemSetMemPool, (const struct cuda_mem_location *, int, void *))                                   \
	X(cudaMemPoolExportPointer, (struct cuda_ipc *, void *))                                                \
	X(cudaMemPoolImportPointer, (void **, void *, const struct cuda_ipc *))                                 \
	X(cudaMemRangeGetAttribute, (void *, size_t, int, const void *, size_t))                                \
	X(cudaMemRangeGetAttributes, (void **, size_t *, int *, size_t, const void *, size_t))                  \
	X(cudaDeviceGetDefaultMemPool, (void **, int))                                                          \
	X(cudaDeviceGetMemPool, (void **, int))                                                                 \
	X(cudaDeviceSetMemPool, (int, void *))                                                                  \
	X(cudaDeviceGetGraphMemAttribute, (int, int, void *))                                                   \
	X(cudaDeviceSetGraphMemAttribute, (int, int, void *))                                                   \
	X(cudaDeviceGraphMemTrim, (int))                                                                        \
	/* copies and fills */                                                                                  \
	X(cudaMemcpy, (void *, const void *, size_t, int))                                                      \
	X(cudaMemcpyAsync, (void *, const void *, size_t, int, void *))                                         \
	X(cudaMemcpyPeer, (void *, int, const void *, int, size_t))                                             \
	X(cudaMemcpyPeerAsync, (void *, int, const void *, int, size_t, void *))                                \
	X(cudaMemcpy2D, (void *, size_t, const void *, size_t, size_t, size_t, int))                            \
	X(cudaMemcpy2DAsync, (void *, size_t, const void *, size_t, size_t, size_t, int, void *))               \
	X(cudaMemcpy3D, (const struct rt_copy_3d *))                                                            \
	X(cudaMemcpy3DAsync, (const struct rt_copy_3d *, void *))                                               \
	X(cudaMemcpyToSymbol, (const void *, const void *, size_t, size_t, int))                                \
	X(cudaMemcpyToSymbolAsync, (const void *, const void *, size_t, size_t, int, void *))                   \
	X(cudaMemcpyFromSymbol, (void *, const void *, size_t, size_t, int))                                    \
	X(cudaMemcpyFromSymbolAsync, (void *, const void *, size_t, size_t, int, void *))                       \
	X(cudaMemset, (void *, int, size_t))                                                                    \
	X(cudaMemsetAsync, (void *, int, size_t, void *))                                                       \
	X(cudaMemset2D, (void *, size_t, int, size_t, size_t))                                                  \
	X(cudaMemset3D, (struct rt_pitched, int, struct rt_extent))                                             \
	X(cudaMemset3DAsync, (struct rt_pitched, int, struct rt_extent, void *))                                \
	X(cudaMemset2DAsync, (void *, size_t, int, size_t, size_t, void *))                                     \
	X(cudaGetSymbolAddress, (void **, const void *))                                                        \
	X(cudaGetSymbolSize, (size_t *, const void *))                                                          \
	/* streams and events */                                                                                \
	X(cudaStreamCreate, (void **))                                                                          \
	X(cudaStreamCreateWithFlags, (void **, unsigned))                                                       \
	X(cudaStreamCreateWithPriority, (void **, unsigned, int))                                               \
	X(cudaStreamDestroy, (void *))                                                                          \
	X(cudaStreamQuery, (void *))                                                                            \
	X(cudaStreamSynchronize, (void *))                                                                      \
	X(cudaStreamWaitEvent, (void *, void *, unsigned))                                                      \
	X(cudaStreamGetPriority, (void *, int *))                                                               \
	X(cudaStreamGetFlags, (void *, unsigned *))                                                             \
	X(cudaStreamGetId, (void *, unsigned long long *))                                                      \
	X(cudaStreamGetDevice, (void *, int *))                                                                 \
	X(cudaStreamAttachMemAsync, (void *, void *, size_t, unsigned))                                         \
	X(cudaStreamAddCallback, (void *, void (*)(void *, int, void *), void *, unsigned))                     \
	X(cudaLaunchHostFunc, (void *, rt_host_function *, void *))                                             \
	X(cudaEventCreate, (void **))                                                                           \
	X(cudaEventCreateWithFlags, (void **, unsigned))                                                        \
	X(cudaEventDestroy, (void *))                                                                           \
	X(cudaEventRecord, (void *, void *))                                                                    \
	X(cudaEventRecordWithFlags, (void *, void *, unsigned))                                                 \
	X(cudaEventQuery, (void *))                                                                             \
	X(cudaEventSynchronize, (void *))                                                                       \
	X(cudaEventElapsedTime, (float *, void *, void *))                                                      \
	/* captures and graphs */                                                                               \
	X(cudaStreamBeginCapture, (void *, int))                                                                \
	X(cudaStreamEndCapture, (void *, void **))                                                              \
	X(cudaStreamIsCapturing, (void *, int *))                                                               \
	X(cudaThreadExchangeStreamCaptureMode, (int *))                                                         \
	X(cudaGraphInstantiateWithFlags, (void **, void *, unsigned long long))                                 \
	X(cudaGraphInstantiateWithParams, (void **, void *, struct cuda_instantiate *))                         \
	X(cudaGraphUpload, (void *, void *))                                                                    \
	X(cudaGraphLaunch, (void *, void *))                                                                    \
	X(cudaGraphDestroy, (void *))                                                                           \
	X(cudaGraphExecDestroy, (void *))                                                                       \
	X(cudaGraphGetNodes, (void *, void **, size_t *))                                                       \
	X(cudaGraphGetRootNodes, (void *, void **, size_t *))                                                   \
	X(cudaGraphNodeGetType, (void *, int *))                                                                \
	X(cudaUserObjectCreate, (void **, void *, rt_host_function *, unsigned, unsigned))                      \
	X(cudaUserObjectRetain, (void *, unsigned))                                                             \
	X(cudaUserObjectRelease, (void *, unsigned))                                                            \
	X(cudaGraphRetainUserObject, (void *, void *, unsigned, unsigned))                                      \
	X(cudaGraphReleaseUserObject, (void *, void *, unsigned))                                               \
	/* code and launches */                                                                                 \
	X(cudaLaunchKernel, (const void *, struct rt_dim3, struct rt_dim3, void **, size_t, void *))            \
	X(cudaLaunchKernelExC, (const struct rt_launch *, const void *, void **))                               \
	X(cudaLaunchCooperativeKernel, (const void *, struct rt_dim3, struct rt_dim3, void **, size_t, void *)) \
	X(cudaFuncGetAttributes, (struct rt_function *, const void *))                                          \
	X(cudaFuncSetAttribute, (const void *, int, int))                                                       \
	X(cudaFuncSetCacheConfig, (const void *, int))                                                          \
	X(cudaFuncSetSharedMemConfig, (const void *, int))                                                      \
	X(cudaFuncGetName, (const char **, const void *))                                                       \
	X(cudaFuncGetParamInfo, (const void *, size_t, size_t *, size_t *))                                     \
	X(cudaGetFuncBySymbol, (void **, const void *))                                                         \
	X(cudaGetKernel, (void **, const void *))                                                               \
	X(cudaKernelSetAttributeForDevice, (void *, int, int, int))                                             \
	X(cudaOccupancyMaxActiveBlocksPerMultiprocessor, (int *, const void *, int, size_t))                    \
	X(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, (int *, const void *, int, size_t, unsigned)) \
	X(cudaOccupancyAvailableDynamicSMemPerBlock, (size_t *, const void *, int, int))                        \
	X(cudaOccupancyMaxActiveClusters, (int *, const void *, const struct rt_launch *))                      \
	X(cudaOccupancyMaxPotentialClusterSize, (int *, const void *, const struct rt_launch *))                \
	X(cudaLibraryLoadData, (void **, const void *, int *, void **, unsigned, int *, void **, unsigned))     \
	X(cudaLibraryLoadFromFile, (void **, const char *, int *, void **, unsigned, int *, void **, unsigned)) \
	X(cudaLibraryUnload, (void *))                                                                          \
	X(cudaLibraryGetKernel, (void **, void *, const char *))                                                \
	X(cudaLibraryGetKernelCount, (unsigned *, void *))                                                      \
	X(cudaLibraryEnumerateKernels, (void **, unsigned, void *))                                             \
	X(cudaLibraryGetGlobal, (void **, size_t *, void *, const char *))                                      \
	X(cudaLibraryGetManaged, (void **, size_t *, void *, const char *))                                     \
	LOOKALIKE_RUNTIME_ARRAYS(X)                                                                             \
	LOOKALIKE_RUNTIME_GRAPHS(X)                                                                             \
	LOOKALIKE_RUNTIME_OF_11(X)                                                                              \
	LOOKALIKE_RUNTIME_VERSIONED(X)

/* Functions whose parameters differ between the majors: between 11 and 12, and between 12 and 13. */
#if RUNTIME_MAJOR < 12
#define LOOKALIKE_RUNTIME_OF_11(X)                                                                          \
	X(cudaGetDriverEntryPoint, (const char *, void **, unsigned long long))                                 \
	X(cudaGraphInstantiate, (void **, void *, void **, char *, size_t))                                     \
	X(cudaGraphExecUpdate, (void *, void *, void **, int *))
#else
#define LOOKALIKE_RUNTIME_OF_11(X)                                                                          \
	X(cudaGetDriverEntryPoint, (const char *, void **, unsigned long long, int *))                          \
	X(cudaGraphInstantiate, (void **, void *, unsigned long long))                                          \
	X(cudaGraphExecUpdate, (void *, void *, struct cuda_update *))
#endif
#if RUNTIME_MAJOR < 13
#define LOOKALIKE_RUNTIME_VERSIONED(X)                                                                      \
	X(cudaGetDeviceProperties_v2, (struct rt_properties *, int))                                            \
	X(cudaThreadExit, (void))                                                                               \
	X(cudaThreadSynchronize, (void))                                                                        \
	X(cudaThreadGetLimit, (size_t *, int))                                                                  \
	X(cudaThreadSetLimit, (int, size_t))                                                                    \
	X(cudaThreadGetCacheConfig, (int *))                                                                    \
	X(cudaThreadSetCacheConfig, (int))                                                                      \
	X(cudaSetDoubleForDevice, (double *))                                                                   \
	X(cudaSetDoubleForHost, (double *))                                                                     \
	X(cudaEventElapsedTime_v2, (float *, void *, void *))                                                   \
	X(cudaMemAdvise_v2, (const void *, size_t, int, struct cuda_mem_location))                              \
	X(cudaMemPrefetchAsync_v2, (const void *, size_t, struct cuda_mem_location, unsigned, void *))          \
	X(cudaMemcpyBatchAsync,                                                                                 \
	  (void **, void **, size_t *, size_t, const void *, size_t *, size_t, size_t *, void *))               \
	X(cudaMemAdvise, (const void *, size_t, int, int))                                                      \
	X(cudaMemPrefetchAsync, (const void *, size_t, int, void *))                                            \
	X(cudaGraphNodeGetDependencies, (void *, void **, size_t *))                                            \
	X(cudaGraphNodeGetDependencies_v2, (void *, void **, struct cuda_edge *, size_t *))                     \
	X(cudaStreamGetCaptureInfo, (void *, int *, unsigned long long *))                                      \
	X(cudaStreamGetCaptureInfo_v2,                                                                          \
	  (void *, int *, unsigned long long *, void **, void *const **, size_t *))                             \
	X(cudaStreamGetCaptureInfo_v3,                                                                          \
	  (void *, int *, unsigned long long *, void **, void *const **, const struct cuda_edge **, size_t *))
#else
#define LOOKALIKE_RUNTIME_VERSIONED(X)                                                                      \
	X(cudaMemcpyBatchAsync,                                                                                 \
	  (void *const *, const void *const *, const size_t *, size_t, const void *, const size_t *, size_t, void *)) \
	X(cudaMemAdvise, (const void *, size_t, int, struct cuda_mem_location))                                 \
	X(cudaMemPrefetchAsync, (const void *, size_t, struct cuda_mem_location, unsigned, void *))             \
	X(cudaGraphNodeGetDependencies, (void *, void **, struct cuda_edge *, size_t *))                        \
	X(cudaStreamGetCaptureInfo,                                                                             \
	  (void *, int *, unsigned long long *, void **, void *const **, const struct cuda_edge **, size_t *))
#endif

#define RUNTIME_PROTOTYPE(name, parameters) __attribute__((visibility("default"))) cuda_error name parameters;
LOOKALIKE_RUNTIME_SYMBOLS(RUNTIME_PROTOTYPE)
#undef RUNTIME_PROTOTYPE

#endif
