/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of the CUDA driver's binary interface that terrazzo calls: types, constants, structs, symbols.
 * Nothing here needs a toolkit; tests/abi compares every line with a real cuda.h where one is installed.
 * A name and version never change their meaning, so this file serves every driver.
 *
 * Own names: a constant is TRZ_ and its CUDA name, a type is cuda_ and its purpose, so that both headers can
 * be included together. Handles (contexts, streams, events) are plain pointers.
 */
#ifndef TRZ_CUDA_ABI_H
#define TRZ_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef int cuda_result;              /* CUresult */
typedef int cuda_device;              /* CUdevice */
typedef unsigned long long cuda_addr; /* CUdeviceptr */
typedef unsigned long long cuda_mem;  /* CUmemGenericAllocationHandle */

/* CUresult: the values that terrazzo distinguishes. X(name, value). */
#define CUDA_ABI_RESULTS(X)                                                                                 \
	X(CUDA_SUCCESS, 0) X(CUDA_ERROR_INVALID_VALUE, 1) X(CUDA_ERROR_OUT_OF_MEMORY, 2)                    \
	X(CUDA_ERROR_NOT_INITIALIZED, 3) X(CUDA_ERROR_DEINITIALIZED, 4) X(CUDA_ERROR_STUB_LIBRARY, 34)      \
	X(CUDA_ERROR_NO_DEVICE, 100) X(CUDA_ERROR_INVALID_DEVICE, 101) X(CUDA_ERROR_INVALID_CONTEXT, 201)   \
	X(CUDA_ERROR_ECC_UNCORRECTABLE, 214) X(CUDA_ERROR_NVLINK_UNCORRECTABLE, 220)                        \
	X(CUDA_ERROR_CONTAINED, 226) X(CUDA_ERROR_OPERATING_SYSTEM, 304) X(CUDA_ERROR_INVALID_HANDLE, 400)  \
	X(CUDA_ERROR_ILLEGAL_STATE, 401) X(CUDA_ERROR_NOT_FOUND, 500) X(CUDA_ERROR_NOT_READY, 600)         \
	X(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, 217) X(CUDA_ERROR_TOO_MANY_PEERS, 711)                        \
	X(CUDA_ERROR_ILLEGAL_ADDRESS, 700)                                                                  \
	X(CUDA_ERROR_LAUNCH_TIMEOUT, 702) X(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709) X(CUDA_ERROR_ASSERT, 710) \
	X(CUDA_ERROR_HARDWARE_STACK_ERROR, 714) X(CUDA_ERROR_ILLEGAL_INSTRUCTION, 715)                      \
	X(CUDA_ERROR_MISALIGNED_ADDRESS, 716) X(CUDA_ERROR_INVALID_ADDRESS_SPACE, 717)                      \
	X(CUDA_ERROR_INVALID_PC, 718) X(CUDA_ERROR_LAUNCH_FAILED, 719) X(CUDA_ERROR_TENSOR_MEMORY_LEAK, 721) \
	X(CUDA_ERROR_NOT_PERMITTED, 800) X(CUDA_ERROR_NOT_SUPPORTED, 801)                                   \
	X(CUDA_ERROR_MPS_CLIENT_TERMINATED, 810) X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900)              \
	X(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, 901) X(CUDA_ERROR_STREAM_CAPTURE_MERGE, 902)               \
	X(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, 903) X(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, 904)              \
	X(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, 905) X(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, 906)              \
	X(CUDA_ERROR_CAPTURED_EVENT, 907) X(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, 908)                    \
	X(CUDA_ERROR_EXTERNAL_DEVICE, 911) X(CUDA_ERROR_UNKNOWN, 999)

/* All other constants that calls take. X(name, value). */
#define CUDA_ABI_CONSTANTS(X)                                                                               \
	X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)                                                 \
	X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)                                                 \
	X(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 102)                                     \
	X(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 103)                             \
	X(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 110)                                 \
	X(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 128)                                            \
	X(CU_MEM_HANDLE_TYPE_NONE, 0)                                                                       \
	X(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1)                                                      \
	X(CU_MEM_HANDLE_TYPE_FABRIC, 8)                                                                     \
	X(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 3)                                                            \
	X(CU_MEM_LOCATION_TYPE_DEVICE, 1)                                                                   \
	X(CU_MEM_ALLOCATION_TYPE_PINNED, 1)                                                                 \
	X(CU_MEM_ALLOC_GRANULARITY_MINIMUM, 0)                                                              \
	X(CU_EVENT_DISABLE_TIMING, 2)                                                                       \
	X(CU_STREAM_CAPTURE_STATUS_NONE, 0)                                                                 \
	X(CU_STREAM_CAPTURE_STATUS_ACTIVE, 1)                                                               \
	X(CU_STREAM_CAPTURE_STATUS_INVALIDATED, 2)                                                          \
	X(CU_STREAM_CAPTURE_MODE_GLOBAL, 0)                                                                 \
	X(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, 1)                                                           \
	X(CU_STREAM_CAPTURE_MODE_RELAXED, 2)                                                                \
	X(CU_GET_PROC_ADDRESS_LEGACY_STREAM, 1)

enum {
#define CUDA_ABI_ENUM(name, value) TRZ_##name = value,
	CUDA_ABI_RESULTS(CUDA_ABI_ENUM)
	CUDA_ABI_CONSTANTS(CUDA_ABI_ENUM)
#undef CUDA_ABI_ENUM
};

/* CUmemLocation */
struct cuda_mem_location {
	int type;
	int id;
};

/* CUmemAllocationProp */
struct cuda_mem_prop {
	int type;
	int handle_types;
	struct cuda_mem_location location;
	void *win32_metadata;
	struct {
		unsigned char compression;
		unsigned char rdma;
		unsigned short usage;
		unsigned char reserved[4];
	} flags;
};

/* CUmemAccessDesc */
struct cuda_mem_access {
	struct cuda_mem_location location;
	int flags;
};

/* Every function that driver_cuda.c calls, save those that load the others.
 * X(need, name, suffix, version, parameters).
 *  - need: REQUIRED; VMM: without it no virtual memory management; OPTIONAL: only its slot is missing.
 *  - suffix: the end of the exported name, behind `name`, for drivers without cuGetProcAddress. Names without
 *    _ptsz are those whose stream NULL is the legacy stream.
 *  - version: the CUDA version that brought the function in this form; cuGetProcAddress is asked for it. */
#define CUDA_ABI_SYMBOLS(X)                                                                                 \
	X(REQUIRED, cuGetErrorName, "", 6000, (cuda_result, const char **))                                 \
	X(REQUIRED, cuDeviceGetCount, "", 2000, (int *))                                                    \
	X(REQUIRED, cuDeviceGet, "", 2000, (cuda_device *, int))                                            \
	X(REQUIRED, cuDeviceGetName, "", 2000, (char *, int, cuda_device))                                  \
	X(REQUIRED, cuDeviceTotalMem, "_v2", 3020, (size_t *, cuda_device))                                 \
	X(REQUIRED, cuDeviceGetAttribute, "", 2000, (int *, int, cuda_device))                              \
	X(REQUIRED, cuDeviceCanAccessPeer, "", 4000, (int *, cuda_device, cuda_device))                     \
	X(REQUIRED, cuDevicePrimaryCtxRetain, "", 7000, (void **, cuda_device))                             \
	X(REQUIRED, cuDevicePrimaryCtxRelease, "_v2", 11000, (cuda_device))                                 \
	X(REQUIRED, cuDevicePrimaryCtxGetState, "", 7000, (cuda_device, unsigned *, int *))                 \
	X(REQUIRED, cuCtxGetCurrent, "", 4000, (void **))                                                   \
	X(REQUIRED, cuCtxPushCurrent, "_v2", 4000, (void *))                                                \
	X(REQUIRED, cuCtxPopCurrent, "_v2", 4000, (void **))                                                \
	X(REQUIRED, cuCtxGetDevice, "", 2000, (cuda_device *))                                              \
	X(REQUIRED, cuMemGetInfo, "_v2", 3020, (size_t *, size_t *))                                        \
	X(REQUIRED, cuMemAlloc, "_v2", 3020, (cuda_addr *, size_t))                                         \
	X(REQUIRED, cuMemFree, "_v2", 3020, (cuda_addr))                                                    \
	X(REQUIRED, cuEventCreate, "", 2000, (void **, unsigned))                                           \
	X(REQUIRED, cuEventDestroy, "_v2", 4000, (void *))                                                  \
	X(REQUIRED, cuEventRecord, "", 2000, (void *, void *))                                              \
	X(REQUIRED, cuEventQuery, "", 2000, (void *))                                                       \
	X(REQUIRED, cuEventSynchronize, "", 2000, (void *))                                                 \
	X(REQUIRED, cuStreamWaitEvent, "", 3020, (void *, void *, unsigned))                                \
	X(REQUIRED, cuStreamIsCapturing, "", 10000, (void *, int *))                                        \
	X(REQUIRED, cuStreamGetCaptureInfo, "", 10010, (void *, int *, uint64_t *))                         \
	X(REQUIRED, cuThreadExchangeStreamCaptureMode, "", 10010, (int *))                                  \
	X(REQUIRED, cuStreamGetCtx, "", 9020, (void *, void **))                                            \
	X(OPTIONAL, cuStreamGetId, "", 12000, (void *, uint64_t *))                                         \
	X(OPTIONAL, cuCtxRecordEvent, "", 12050, (void *, void *))                                          \
	X(VMM, cuMemCreate, "", 10020, (cuda_mem *, size_t, const struct cuda_mem_prop *, uint64_t))        \
	X(VMM, cuMemRelease, "", 10020, (cuda_mem))                                                         \
	X(VMM, cuMemAddressReserve, "", 10020, (cuda_addr *, size_t, size_t, cuda_addr, uint64_t))          \
	X(VMM, cuMemAddressFree, "", 10020, (cuda_addr, size_t))                                            \
	X(VMM, cuMemMap, "", 10020, (cuda_addr, size_t, size_t, cuda_mem, uint64_t))                        \
	X(VMM, cuMemUnmap, "", 10020, (cuda_addr, size_t))                                                  \
	X(VMM, cuMemSetAccess, "", 10020, (cuda_addr, size_t, const struct cuda_mem_access *, size_t))      \
	X(VMM, cuMemGetAllocationGranularity, "", 10020, (size_t *, const struct cuda_mem_prop *, int))     \
	X(OPTIONAL, cuMemExportToShareableHandle, "", 10020, (void *, cuda_mem, int, uint64_t))             \
	X(OPTIONAL, cuMemImportFromShareableHandle, "", 10020, (cuda_mem *, void *, int))

/* The newer form of functions that are called in two forms, under our own name. X(own name, need, name, ...). */
#define CUDA_ABI_YOUNGER(X)                                                                                 \
	X(stream_contexts, OPTIONAL, cuStreamGetCtx, "_v2", 12050, (void *, void **, void **))

#endif
