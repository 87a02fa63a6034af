/* SPDX-License-Identifier: Apache-2.0
 *
 * All functions of the look-alike libcuda.so.1; driver_missing.def names those that it lacks.
 */
#ifndef DRIVER_SYMBOLS_H
#define DRIVER_SYMBOLS_H

#include "driver_abi.h"
#include "driver_array_symbols.h"
#include "driver_graph_symbols.h"

typedef void cuda_function(void *);

/* X(name, exported name, first CUDA version, parameters). A name with several rows has several forms; a request by
 * version gets the newest form that the version has. */
#define LOOKALIKE_DRIVER_SYMBOLS(X)                                                                         \
	/* the driver */                                                                                        \
	X(cuInit, cuInit, 2000, (unsigned))                                                                     \
	X(cuDriverGetVersion, cuDriverGetVersion, 2020, (int *))                                                \
	X(cuGetErrorName, cuGetErrorName, 6000, (cuda_result, const char **))                                   \
	X(cuGetErrorString, cuGetErrorString, 6000, (cuda_result, const char **))                               \
	X(cuGetProcAddress, cuGetProcAddress, 11030, (const char *, void **, int, uint64_t))                    \
	X(cuGetProcAddress, cuGetProcAddress_v2, 12000, (const char *, void **, int, uint64_t, int *))          \
	X(cuGetExportTable, cuGetExportTable, 3000, (const void **, const void *))                              \
	X(cuLogsRegisterCallback, cuLogsRegisterCallback, 12090, (void *, void *, void **))                     \
	X(cuLogsUnregisterCallback, cuLogsUnregisterCallback, 12090, (void *))                                  \
	X(cuProfilerStart, cuProfilerStart, 4000, (void))                                                       \
	X(cuProfilerStop, cuProfilerStop, 4000, (void))                                                         \
	/* devices and contexts */                                                                              \
	X(cuDeviceGetCount, cuDeviceGetCount, 2000, (int *))                                                    \
	X(cuDeviceGet, cuDeviceGet, 2000, (cuda_device *, int))                                                 \
	X(cuDeviceGetName, cuDeviceGetName, 2000, (char *, int, cuda_device))                                   \
	X(cuDeviceGetUuid, cuDeviceGetUuid, 9020, (struct cuda_uuid *, cuda_device))                            \
	X(cuDeviceGetUuid, cuDeviceGetUuid_v2, 11040, (struct cuda_uuid *, cuda_device))                        \
	X(cuDeviceTotalMem, cuDeviceTotalMem_v2, 3020, (size_t *, cuda_device))                                 \
	X(cuDeviceGetAttribute, cuDeviceGetAttribute, 2000, (int *, int, cuda_device))                          \
	X(cuDeviceComputeCapability, cuDeviceComputeCapability, 2000, (int *, int *, cuda_device))              \
	X(cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, 4010, (char *, int, cuda_device))                           \
	X(cuDeviceGetByPCIBusId, cuDeviceGetByPCIBusId, 4010, (cuda_device *, const char *))                    \
	X(cuDeviceCanAccessPeer, cuDeviceCanAccessPeer, 4000, (int *, cuda_device, cuda_device))                \
	X(cuDeviceGetP2PAttribute, cuDeviceGetP2PAttribute, 8000, (int *, int, cuda_device, cuda_device))       \
	X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, (void **, cuda_device))                     \
	X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, 11000, (cuda_device))                        \
	X(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, 11000, (cuda_device))                            \
	X(cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2, 11000, (cuda_device, unsigned))            \
	X(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState, 7000, (cuda_device, unsigned *, int *))       \
	X(cuCtxCreate, cuCtxCreate_v2, 3020, (void **, unsigned, cuda_device))                                  \
	X(cuCtxCreate, cuCtxCreate_v3, 11040, (void **, void *, int, unsigned, cuda_device))                    \
	X(cuCtxCreate, cuCtxCreate_v4, 12050,                                                                   \
	  (void **, const struct cuda_context_params *, unsigned, cuda_device))                                 \
	X(cuCtxDestroy, cuCtxDestroy_v2, 4000, (void *))                                                        \
	X(cuCtxAttach, cuCtxAttach, 2000, (void **, unsigned))                                                 \
	X(cuCtxDetach, cuCtxDetach, 2000, (void *))                                                            \
	X(cuCtxGetCurrent, cuCtxGetCurrent, 4000, (void **))                                                    \
	X(cuCtxSetCurrent, cuCtxSetCurrent, 4000, (void *))                                                     \
	X(cuCtxPushCurrent, cuCtxPushCurrent_v2, 4000, (void *))                                                \
	X(cuCtxPopCurrent, cuCtxPopCurrent_v2, 4000, (void **))                                                 \
	X(cuCtxGetDevice, cuCtxGetDevice, 2000, (cuda_device *))                                                \
	X(cuCtxGetDevice, cuCtxGetDevice_v2, 13000, (cuda_device *, void *))                                    \
	X(cuCtxGetFlags, cuCtxGetFlags, 7000, (unsigned *))                                                     \
	X(cuCtxSetFlags, cuCtxSetFlags, 12010, (unsigned))                                                      \
	X(cuCtxRecordEvent, cuCtxRecordEvent, 12050, (void *, void *))                                          \
	X(cuCtxGetId, cuCtxGetId, 12000, (void *, unsigned long long *))                                        \
	X(cuCtxGetApiVersion, cuCtxGetApiVersion, 3020, (void *, unsigned *))                                   \
	X(cuCtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange, 5050, (int *, int *))                       \
	X(cuCtxGetLimit, cuCtxGetLimit, 3010, (size_t *, int))                                                  \
	X(cuCtxSetLimit, cuCtxSetLimit, 3010, (int, size_t))                                                    \
	X(cuCtxGetCacheConfig, cuCtxGetCacheConfig, 3020, (int *))                                              \
	X(cuCtxSetCacheConfig, cuCtxSetCacheConfig, 3020, (int))                                                \
	X(cuCtxSynchronize, cuCtxSynchronize, 2000, (void))                                                     \
	X(cuCtxSynchronize, cuCtxSynchronize_v2, 13000, (void *))                                               \
	X(cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, 4000, (void *, unsigned))                               \
	X(cuCtxDisablePeerAccess, cuCtxDisablePeerAccess, 4000, (void *))                                       \
	/* memory */                                                                                            \
	X(cuMemGetInfo, cuMemGetInfo_v2, 3020, (size_t *, size_t *))                                            \
	X(cuMemAlloc, cuMemAlloc_v2, 3020, (cuda_addr *, size_t))                                               \
	X(cuMemAllocPitch, cuMemAllocPitch_v2, 3020, (cuda_addr *, size_t *, size_t, size_t, unsigned))         \
	X(cuMemAllocManaged, cuMemAllocManaged, 6000, (cuda_addr *, size_t, unsigned))                          \
	X(cuMemFree, cuMemFree_v2, 3020, (cuda_addr))                                                           \
	X(cuMemGetAddressRange, cuMemGetAddressRange_v2, 3020, (cuda_addr *, size_t *, cuda_addr))              \
	X(cuMemCreate, cuMemCreate, 10020, (cuda_mem *, size_t, const struct cuda_mem_prop *, uint64_t))        \
	X(cuMemRelease, cuMemRelease, 10020, (cuda_mem))                                                        \
	X(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000, (cuda_mem *, void *))                \
	X(cuMemGetAllocationPropertiesFromHandle, cuMemGetAllocationPropertiesFromHandle, 10020,                \
	  (struct cuda_mem_prop *, cuda_mem))                                                                   \
	X(cuMemAddressReserve, cuMemAddressReserve, 10020, (cuda_addr *, size_t, size_t, cuda_addr, uint64_t))  \
	X(cuMemAddressFree, cuMemAddressFree, 10020, (cuda_addr, size_t))                                       \
	X(cuMemMap, cuMemMap, 10020, (cuda_addr, size_t, size_t, cuda_mem, uint64_t))                           \
	X(cuMemUnmap, cuMemUnmap, 10020, (cuda_addr, size_t))                                                   \
	X(cuMemSetAccess, cuMemSetAccess, 10020, (cuda_addr, size_t, const struct cuda_mem_access *, size_t))   \
	X(cuMemGetAccess, cuMemGetAccess, 10020,                                                                \
	  (unsigned long long *, const struct cuda_mem_location *, cuda_addr))                                  \
	X(cuMemGetAllocationGranularity, cuMemGetAllocationGranularity, 10020,                                  \
	  (size_t *, const struct cuda_mem_prop *, int))                                                        \
	X(cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020, (void *, cuda_mem, int, uint64_t)) \
	X(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020, (cuda_mem *, void *, int))     \
	X(cuMemHostAlloc, cuMemHostAlloc, 2020, (void **, size_t, unsigned))                                    \
	X(cuMemAllocHost, cuMemAllocHost_v2, 3020, (void **, size_t))                                           \
	X(cuMemFreeHost, cuMemFreeHost, 2000, (void *))                                                         \
	X(cuMemHostRegister, cuMemHostRegister_v2, 6050, (void *, size_t, unsigned))                            \
	X(cuMemHostUnregister, cuMemHostUnregister, 4000, (void *))                                             \
	X(cuMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2, 3020, (cuda_addr *, void *, unsigned))       \
	X(cuMemHostGetFlags, cuMemHostGetFlags, 2030, (unsigned *, void *))                                     \
	X(cuPointerGetAttribute, cuPointerGetAttribute, 4000, (void *, int, cuda_addr))                         \
	X(cuPointerGetAttributes, cuPointerGetAttributes, 7000, (unsigned, int *, void **, cuda_addr))          \
	X(cuPointerSetAttribute, cuPointerSetAttribute, 6000, (const void *, int, cuda_addr))                   \
	X(cuMemAdvise, cuMemAdvise, 8000, (cuda_addr, size_t, int, cuda_device))                                \
	X(cuMemAdvise, cuMemAdvise_v2, 12020, (cuda_addr, size_t, int, struct cuda_mem_location))               \
	X(cuMemPrefetchAsync, cuMemPrefetchAsync, 8000, (cuda_addr, size_t, cuda_device, void *))               \
	X(cuMemPrefetchAsync, cuMemPrefetchAsync_v2, 12020,                                                     \
	  (cuda_addr, size_t, struct cuda_mem_location, unsigned, void *))                                      \
	X(cuMemRangeGetAttribute, cuMemRangeGetAttribute, 8000, (void *, size_t, int, cuda_addr, size_t))       \
	X(cuMemRangeGetAttributes, cuMemRangeGetAttributes, 8000,                                               \
	  (void **, size_t *, int *, size_t, cuda_addr, size_t))                                                \
	X(cuStreamAttachMemAsync, cuStreamAttachMemAsync, 6000, (void *, cuda_addr, size_t, unsigned))          \
	X(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010, (struct cuda_ipc *, cuda_addr))                           \
	X(cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2, 11000, (cuda_addr *, struct cuda_ipc, unsigned))            \
	X(cuIpcCloseMemHandle, cuIpcCloseMemHandle, 4010, (cuda_addr))                                          \
	X(cuIpcGetEventHandle, cuIpcGetEventHandle, 4010, (struct cuda_ipc *, void *))                          \
	X(cuIpcOpenEventHandle, cuIpcOpenEventHandle, 4010, (void **, struct cuda_ipc))                         \
	/* pools */                                                                                             \
	X(cuMemAllocAsync, cuMemAllocAsync, 11020, (cuda_addr *, size_t, void *))                               \
	X(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020, (cuda_addr *, size_t, void *, void *))       \
	X(cuMemFreeAsync, cuMemFreeAsync, 11020, (cuda_addr, void *))                                           \
	X(cuMemPoolCreate, cuMemPoolCreate, 11020, (void **, const struct cuda_pool_props *))                   \
	X(cuMemPoolDestroy, cuMemPoolDestroy, 11020, (void *))                                                  \
	X(cuMemPoolTrimTo, cuMemPoolTrimTo, 11020, (void *, size_t))                                            \
	X(cuMemPoolSetAttribute, cuMemPoolSetAttribute, 11020, (void *, int, void *))                           \
	X(cuMemPoolGetAttribute, cuMemPoolGetAttribute, 11020, (void *, int, void *))                           \
	X(cuMemPoolSetAccess, cuMemPoolSetAccess, 11020, (void *, const struct cuda_mem_access *, size_t))      \
	X(cuMemPoolGetAccess, cuMemPoolGetAccess, 11020, (int *, void *, struct cuda_mem_location *))           \
	X(cuMemPoolExportToShareableHandle, cuMemPoolExportToShareableHandle, 11020, (void *, void *, int, uint64_t)) \
	X(cuMemPoolImportFromShareableHandle, cuMemPoolImportFromShareableHandle, 11020,                        \
	  (void **, void *, int, uint64_t))                                                                     \
	X(cuMemPoolExportPointer, cuMemPoolExportPointer, 11020, (struct cuda_ipc *, cuda_addr))                \
	X(cuMemPoolImportPointer, cuMemPoolImportPointer, 11020, (cuda_addr *, void *, const struct cuda_ipc *)) \
	X(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, 11020, (void **, cuda_device))                  \
	X(cuDeviceGetMemPool, cuDeviceGetMemPool, 11020, (void **, cuda_device))                                \
	X(cuMemGetDefaultMemPool, cuMemGetDefaultMemPool, 13000, (void **, const struct cuda_mem_location *, int)) \
	X(cuMemGetMemPool, cuMemGetMemPool, 13000, (void **, const struct cuda_mem_location *, int))            \
	X(cuMemSetMemPool, cuMemSetMemPool, 13000, (const struct cuda_mem_location *, int, void *))             \
	X(cuDeviceSetMemPool, cuDeviceSetMemPool, 11020, (cuda_device, void *))                                 \
	/* streams and events */                                                                                \
	X(cuEventCreate, cuEventCreate, 2000, (void **, unsigned))                                              \
	X(cuEventDestroy, cuEventDestroy_v2, 4000, (void *))                                                    \
	X(cuEventRecord, cuEventRecord, 2000, (void *, void *))                                                 \
	X(cuEventRecordWithFlags, cuEventRecordWithFlags, 11010, (void *, void *, unsigned))                    \
	X(cuEventQuery, cuEventQuery, 2000, (void *))                                                           \
	X(cuEventSynchronize, cuEventSynchronize, 2000, (void *))                                               \
	X(cuEventElapsedTime, cuEventElapsedTime, 2000, (float *, void *, void *))                              \
	X(cuEventElapsedTime, cuEventElapsedTime_v2, 12080, (float *, void *, void *))                          \
	X(cuStreamCreate, cuStreamCreate, 2000, (void **, unsigned))                                            \
	X(cuStreamCreateWithPriority, cuStreamCreateWithPriority, 5050, (void **, unsigned, int))               \
	X(cuStreamDestroy, cuStreamDestroy_v2, 4000, (void *))                                                  \
	X(cuStreamQuery, cuStreamQuery, 2000, (void *))                                                         \
	X(cuStreamSynchronize, cuStreamSynchronize, 2000, (void *))                                             \
	X(cuStreamWaitEvent, cuStreamWaitEvent, 3020, (void *, void *, unsigned))                               \
	X(cuStreamGetId, cuStreamGetId, 12000, (void *, uint64_t *))                                            \
	X(cuStreamGetCtx, cuStreamGetCtx, 9020, (void *, void **))                                              \
	X(cuStreamGetCtx, cuStreamGetCtx_v2, 12050, (void *, void **, void **))                                 \
	X(cuStreamGetDevice, cuStreamGetDevice, 12080, (void *, cuda_device *))                                 \
	X(cuGreenCtxCreate, cuGreenCtxCreate, 12040, (void **, void *, cuda_device, unsigned))                  \
	X(cuGreenCtxDestroy, cuGreenCtxDestroy, 12040, (void *))                                                \
	X(cuCtxFromGreenCtx, cuCtxFromGreenCtx, 12040, (void **, void *))                                       \
	X(cuGreenCtxStreamCreate, cuGreenCtxStreamCreate, 12050, (void **, void *, unsigned, int))              \
	X(cuStreamGetGreenCtx, cuStreamGetGreenCtx, 12040, (void *, void **))                                   \
	X(cuDeviceGetDevResource, cuDeviceGetDevResource, 12040, (cuda_device, struct cuda_share *, int))       \
	X(cuCtxGetDevResource, cuCtxGetDevResource, 12040, (void *, struct cuda_share *, int))                  \
	X(cuGreenCtxGetDevResource, cuGreenCtxGetDevResource, 12040, (void *, struct cuda_share *, int))        \
	X(cuDevSmResourceSplitByCount, cuDevSmResourceSplitByCount, 12040,                                      \
	  (struct cuda_share *, unsigned *, const struct cuda_share *, struct cuda_share *, unsigned, unsigned)) \
	X(cuDevResourceGenerateDesc, cuDevResourceGenerateDesc, 12040, (void **, const struct cuda_share *, unsigned)) \
	X(cuStreamGetFlags, cuStreamGetFlags, 5050, (void *, unsigned *))                                       \
	X(cuStreamGetPriority, cuStreamGetPriority, 5050, (void *, int *))                                      \
	X(cuStreamBatchMemOp, cuStreamBatchMemOp_v2, 11070,                                                     \
	  (void *, unsigned, const struct cuda_mem_op *, unsigned))                                             \
	X(cuStreamWaitValue32, cuStreamWaitValue32_v2, 11070, (void *, cuda_addr, uint32_t, unsigned))          \
	X(cuStreamWaitValue64, cuStreamWaitValue64_v2, 11070, (void *, cuda_addr, uint64_t, unsigned))          \
	X(cuStreamWriteValue32, cuStreamWriteValue32_v2, 11070, (void *, cuda_addr, uint32_t, unsigned))        \
	X(cuStreamWriteValue64, cuStreamWriteValue64_v2, 11070, (void *, cuda_addr, uint64_t, unsigned))        \
	X(cuLaunchHostFunc, cuLaunchHostFunc, 10000, (void *, cuda_function *, void *))                         \
	X(cuStreamAddCallback, cuStreamAddCallback, 5000,                                                       \
	  (void *, void (*)(void *, cuda_result, void *), void *, unsigned))                                    \
	/* captures and graphs */                                                                               \
	/* copies and fills */                                                                                  \
	X(cuMemcpy, cuMemcpy, 4000, (cuda_addr, cuda_addr, size_t))                                             \
	X(cuMemcpyAsync, cuMemcpyAsync, 4000, (cuda_addr, cuda_addr, size_t, void *))                           \
	X(cuMemcpyHtoD, cuMemcpyHtoD_v2, 3020, (cuda_addr, const void *, size_t))                               \
	X(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, 3020, (cuda_addr, const void *, size_t, void *))             \
	X(cuMemcpyDtoH, cuMemcpyDtoH_v2, 3020, (void *, cuda_addr, size_t))                                     \
	X(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, 3020, (void *, cuda_addr, size_t, void *))                   \
	X(cuMemcpyDtoD, cuMemcpyDtoD_v2, 3020, (cuda_addr, cuda_addr, size_t))                                  \
	X(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, 3020, (cuda_addr, cuda_addr, size_t, void *))                \
	X(cuMemcpyPeer, cuMemcpyPeer, 4000, (cuda_addr, void *, cuda_addr, void *, size_t))                     \
	X(cuMemcpyPeerAsync, cuMemcpyPeerAsync, 4000, (cuda_addr, void *, cuda_addr, void *, size_t, void *))   \
	X(cuMemsetD8, cuMemsetD8_v2, 3020, (cuda_addr, unsigned char, size_t))                                  \
	X(cuMemsetD16, cuMemsetD16_v2, 3020, (cuda_addr, unsigned short, size_t))                               \
	X(cuMemsetD32, cuMemsetD32_v2, 3020, (cuda_addr, unsigned, size_t))                                     \
	X(cuMemsetD8Async, cuMemsetD8Async, 3020, (cuda_addr, unsigned char, size_t, void *))                   \
	X(cuMemsetD16Async, cuMemsetD16Async, 3020, (cuda_addr, unsigned short, size_t, void *))                \
	X(cuMemsetD32Async, cuMemsetD32Async, 3020, (cuda_addr, unsigned, size_t, void *))                      \
	/* code and launches */                                                                                 \
	X(cuModuleLoad, cuModuleLoad, 2000, (void **, const char *))                                            \
	X(cuModuleLoadData, cuModuleLoadData, 2000, (void **, const void *))                                    \
	X(cuModuleLoadDataEx, cuModuleLoadDataEx, 2010, (void **, const void *, unsigned, int *, void **))      \
	X(cuModuleLoadFatBinary, cuModuleLoadFatBinary, 2000, (void **, const void *))                          \
	X(cuModuleUnload, cuModuleUnload, 2000, (void *))                                                       \
	X(cuModuleGetLoadingMode, cuModuleGetLoadingMode, 11070, (int *))                                       \
	X(cuModuleGetGlobal, cuModuleGetGlobal_v2, 3020, (cuda_addr *, size_t *, void *, const char *))         \
	X(cuLibraryGetGlobal, cuLibraryGetGlobal, 12000, (cuda_addr *, size_t *, void *, const char *))         \
	X(cuLibraryGetManaged, cuLibraryGetManaged, 12000, (cuda_addr *, size_t *, void *, const char *))       \
	X(cuLibraryGetKernelCount, cuLibraryGetKernelCount, 12040, (unsigned *, void *))                        \
	X(cuLibraryEnumerateKernels, cuLibraryEnumerateKernels, 12040, (void **, unsigned, void *))             \
	X(cuModuleGetFunctionCount, cuModuleGetFunctionCount, 12040, (unsigned *, void *))                      \
	X(cuModuleEnumerateFunctions, cuModuleEnumerateFunctions, 12040, (void **, unsigned, void *))           \
	X(cuKernelGetLibrary, cuKernelGetLibrary, 12050, (void **, void *))                                     \
	X(cuModuleGetFunction, cuModuleGetFunction, 2000, (void **, void *, const char *))                      \
	X(cuLibraryLoadData, cuLibraryLoadData, 12000,                                                          \
	  (void **, const void *, int *, void **, unsigned, int *, void **, unsigned))                          \
	X(cuLibraryLoadFromFile, cuLibraryLoadFromFile, 12000,                                                  \
	  (void **, const char *, int *, void **, unsigned, int *, void **, unsigned))                          \
	X(cuLibraryUnload, cuLibraryUnload, 12000, (void *))                                                    \
	X(cuLinkCreate, cuLinkCreate_v2, 6050, (unsigned, int *, void **, void **))                             \
	X(cuLinkAddData, cuLinkAddData_v2, 6050,                                                                \
	  (void *, int, const void *, size_t, const char *, unsigned, int *, void **))                          \
	X(cuLinkAddFile, cuLinkAddFile_v2, 6050, (void *, int, const char *, unsigned, int *, void **))         \
	X(cuLinkComplete, cuLinkComplete, 5050, (void *, void **, size_t *))                                    \
	X(cuLinkDestroy, cuLinkDestroy, 5050, (void *))                                                         \
	X(cuLibraryGetKernel, cuLibraryGetKernel, 12000, (void **, void *, const char *))                       \
	X(cuLibraryGetModule, cuLibraryGetModule, 12000, (void **, void *))                                     \
	X(cuKernelGetFunction, cuKernelGetFunction, 12000, (void **, void *))                                   \
	X(cuKernelGetName, cuKernelGetName, 12030, (const char **, void *))                                     \
	X(cuKernelGetAttribute, cuKernelGetAttribute, 12000, (int *, int, void *, cuda_device))                 \
	X(cuKernelSetAttribute, cuKernelSetAttribute, 12000, (int, int, void *, cuda_device))                   \
	X(cuKernelSetCacheConfig, cuKernelSetCacheConfig, 12000, (void *, int, cuda_device))                    \
	X(cuKernelGetParamInfo, cuKernelGetParamInfo, 12040, (void *, size_t, size_t *, size_t *))              \
	X(cuKernelGetParamCount, cuKernelGetParamCount, 13020, (void *, size_t *))                              \
	X(cuFuncGetName, cuFuncGetName, 12030, (const char **, void *))                                         \
	X(cuFuncGetModule, cuFuncGetModule, 11000, (void **, void *))                                           \
	X(cuFuncGetAttribute, cuFuncGetAttribute, 2020, (int *, int, void *))                                   \
	X(cuFuncSetAttribute, cuFuncSetAttribute, 9000, (void *, int, int))                                     \
	X(cuFuncSetCacheConfig, cuFuncSetCacheConfig, 3000, (void *, int))                                      \
	X(cuFuncSetBlockShape, cuFuncSetBlockShape, 2000, (void *, int, int, int))                             \
	X(cuFuncSetSharedSize, cuFuncSetSharedSize, 2000, (void *, unsigned))                                  \
	X(cuParamSetSize, cuParamSetSize, 2000, (void *, unsigned))                                            \
	X(cuParamSeti, cuParamSeti, 2000, (void *, int, unsigned))                                             \
	X(cuParamSetf, cuParamSetf, 2000, (void *, int, float))                                                \
	X(cuParamSetv, cuParamSetv, 2000, (void *, int, void *, unsigned))                                     \
	X(cuLaunch, cuLaunch, 2000, (void *))                                                                  \
	X(cuLaunchGrid, cuLaunchGrid, 2000, (void *, int, int))                                                \
	X(cuLaunchGridAsync, cuLaunchGridAsync, 2000, (void *, int, int, void *))                              \
	X(cuFuncGetParamInfo, cuFuncGetParamInfo, 12040, (void *, size_t, size_t *, size_t *))                  \
	X(cuFuncGetParamCount, cuFuncGetParamCount, 13020, (void *, size_t *))                                  \
	X(cuFuncLoad, cuFuncLoad, 12040, (void *))                                                              \
	X(cuFuncIsLoaded, cuFuncIsLoaded, 12040, (int *, void *))                                               \
	X(cuLaunchKernel, cuLaunchKernel, 4000,                                                                 \
	  (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **)) \
	X(cuLaunchKernelEx, cuLaunchKernelEx, 11060, (const struct cuda_launch *, void *, void **, void **))    \
	X(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel, 9000,                                           \
	  (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **))      \
	X(cuOccupancyMaxActiveBlocksPerMultiprocessor, cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050,       \
	  (int *, void *, int, size_t))                                                                         \
	X(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,                                                 \
	  cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 7000, (int *, void *, int, size_t, unsigned))   \
	X(cuOccupancyMaxPotentialBlockSize, cuOccupancyMaxPotentialBlockSize, 6050,                             \
	  (int *, int *, void *, size_t (*)(int), size_t, int))                                                 \
	X(cuOccupancyMaxPotentialBlockSizeWithFlags, cuOccupancyMaxPotentialBlockSizeWithFlags, 7000,           \
	  (int *, int *, void *, size_t (*)(int), size_t, int, unsigned))                                       \
	X(cuOccupancyAvailableDynamicSMemPerBlock, cuOccupancyAvailableDynamicSMemPerBlock, 10020,              \
	  (size_t *, void *, int, int))                                                                         \
	X(cuOccupancyMaxActiveClusters, cuOccupancyMaxActiveClusters, 11070,                                    \
	  (int *, void *, const struct cuda_launch *))                                                          \
	X(cuOccupancyMaxPotentialClusterSize, cuOccupancyMaxPotentialClusterSize, 11070,                        \
	  (int *, void *, const struct cuda_launch *))                                                          \
	X(cuTensorMapEncodeTiled, cuTensorMapEncodeTiled, 12000,                                                \
	  (void *, int, uint32_t, void *, const uint64_t *, const uint64_t *, const uint32_t *, const uint32_t *, \
	   int, int, int, int))                                                                                 \
	X(cuTensorMapEncodeIm2col, cuTensorMapEncodeIm2col, 12000,                                              \
	  (void *, int, uint32_t, void *, const uint64_t *, const uint64_t *, const int *, const int *, uint32_t, \
	   uint32_t, const uint32_t *, int, int, int, int))                                                     \
	X(cuTensorMapReplaceAddress, cuTensorMapReplaceAddress, 12000, (void *, void *))                        \
	LOOKALIKE_DRIVER_ARRAYS(X)                                                                                 \
	LOOKALIKE_DRIVER_GRAPHS(X)

/* Forms that differ from another only in their arguments. X(name, exported name, first CUDA version, parameters, the
 * equivalent call). */
#define LOOKALIKE_DRIVER_FORMS(X)                                                                               \
	X(cuCtxCreate, cuCtxCreate, 2000, (void **a, unsigned b, cuda_device c), cuCtxCreate_v2(a, b, c))           \
	X(cuCtxDestroy, cuCtxDestroy, 2000, (void *a), cuCtxDestroy_v2(a))                                          \
	X(cuCtxPopCurrent, cuCtxPopCurrent, 2000, (void **a), cuCtxPopCurrent_v2(a))                                \
	X(cuCtxPushCurrent, cuCtxPushCurrent, 2000, (void *a), cuCtxPushCurrent_v2(a))                              \
	X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease, 7000, (cuda_device a),                              \
	  cuDevicePrimaryCtxRelease_v2(a))                                                                          \
	X(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset, 7000, (cuda_device a), cuDevicePrimaryCtxReset_v2(a))   \
	X(cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags, 7000, (cuda_device a, unsigned b),                \
	  cuDevicePrimaryCtxSetFlags_v2(a, b))                                                                      \
	X(cuMemAllocHost, cuMemAllocHost, 2000, (void **a, unsigned b), cuMemAllocHost_v2(a, b))                    \
	X(cuMemHostRegister, cuMemHostRegister, 4000, (void *a, size_t b, unsigned c),                              \
	  cuMemHostRegister_v2(a, b, c))                                                                            \
	X(cuIpcOpenMemHandle, cuIpcOpenMemHandle, 4010, (cuda_addr *a, struct cuda_ipc b, unsigned c),              \
	  cuIpcOpenMemHandle_v2(a, b, c))                                                                           \
	X(cuLinkCreate, cuLinkCreate, 5050, (unsigned a, int *b, void **c, void **d), cuLinkCreate_v2(a, b, c, d))  \
	X(cuLinkAddData, cuLinkAddData, 5050,                                                                       \
	  (void *a, int b, const void *c, size_t d, const char *e, unsigned f, int *g, void **h),                   \
	  cuLinkAddData_v2(a, b, c, d, e, f, g, h))                                                                 \
	X(cuLinkAddFile, cuLinkAddFile, 5050, (void *a, int b, const char *c, unsigned d, int *e, void **f),        \
	  cuLinkAddFile_v2(a, b, c, d, e, f))                                                                       \
	X(cuEventDestroy, cuEventDestroy, 2000, (void *a), cuEventDestroy_v2(a))                                    \
	X(cuStreamDestroy, cuStreamDestroy, 2000, (void *a), cuStreamDestroy_v2(a))                                 \
	X(cuStreamBatchMemOp, cuStreamBatchMemOp, 8000,                                                             \
	  (void *a, unsigned b, const struct cuda_mem_op *c, unsigned d), cuStreamBatchMemOp_v2(a, b, c, d))        \
	X(cuStreamWaitValue32, cuStreamWaitValue32, 8000, (void *a, cuda_addr b, uint32_t c, unsigned d),           \
	  cuStreamWaitValue32_v2(a, b, c, d))                                                                       \
	X(cuStreamWaitValue64, cuStreamWaitValue64, 9000, (void *a, cuda_addr b, uint64_t c, unsigned d),           \
	  cuStreamWaitValue64_v2(a, b, c, d))                                                                       \
	X(cuStreamWriteValue32, cuStreamWriteValue32, 8000, (void *a, cuda_addr b, uint32_t c, unsigned d),         \
	  cuStreamWriteValue32_v2(a, b, c, d))                                                                      \
	X(cuStreamWriteValue64, cuStreamWriteValue64, 9000, (void *a, cuda_addr b, uint64_t c, unsigned d),         \
	  cuStreamWriteValue64_v2(a, b, c, d))                                                                      \
	X(cuStreamBeginCapture, cuStreamBeginCapture, 10000, (void *a), cuStreamBeginCapture_v2(a, 0))              \
	X(cuGraphInstantiate, cuGraphInstantiate, 10000, (void **a, void *b, void **c, char *d, size_t e),          \
	  cuGraphInstantiate_v2(a, b, c, d, e))                                                                     \
	X(cuLaunchHostFunc, cuLaunchHostFunc_v2, 13010, (void *a, cuda_function *b, void *c, unsigned d),           \
	  d <= 1 ? cuLaunchHostFunc(a, b, c) : TRZ_CUDA_ERROR_INVALID_VALUE)

/* Names that from some version on mean another function. X(name, exported name, that version). */
#define LOOKALIKE_DRIVER_ALIASES(X) X(cuGraphInstantiate, cuGraphInstantiateWithFlags, 12000)

#define DRIVER_PROTOTYPE(name, exported, version, parameters) \
	__attribute__((visibility("default"))) cuda_result exported parameters;
LOOKALIKE_DRIVER_SYMBOLS(DRIVER_PROTOTYPE)
#undef DRIVER_PROTOTYPE
#define DRIVER_PROTOTYPE(name, exported, version, parameters, call) \
	__attribute__((visibility("default"))) cuda_result exported parameters;
LOOKALIKE_DRIVER_FORMS(DRIVER_PROTOTYPE)
#undef DRIVER_PROTOTYPE

#define X(name, exported) __attribute__((visibility("default"))) cuda_result exported(void);
#include "driver_missing.def"
#undef X

#endif
