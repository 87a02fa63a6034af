/* SPDX-License-Identifier: Apache-2.0
 *
 * A libcuda.so.1 over the simulated device, for tests. Every exported function is a thin translation onto the
 * simulator's driver table or sim.h; the one list of them is FAKECUDA_SYMBOLS.
 *
 * The environment describes the machine, read once by cuInit:
 *   TRZ_FAKECUDA_DEVICES   number of devices (1; 0: cuInit finds none)
 *   TRZ_FAKECUDA_MEMORY    bytes per device, with an optional suffix K, M or G (the simulator's default)
 *   TRZ_FAKECUDA_NO_VMM    set: the devices lack virtual memory management
 *   TRZ_FAKECUDA_CONTINUE  set: a broken rule is an error code instead of the end of the process
 *   TRZ_FAKECUDA_SEED      the schedule's seed (0)
 *   TRZ_FAKECUDA_VERSION   what cuDriverGetVersion says (13000); newer functions are then not to be had
 *
 * Work that is enqueued runs when the program blocks on it, never while it merely asks.
 */
#ifndef FAKECUDA_H
#define FAKECUDA_H

#include "alloc/cuda_abi.h"
#include "sim/sim.h"

/* X(name, exported name, first CUDA version, parameters): all functions of the library. */
#define FAKECUDA_SYMBOLS(X)                                                                                 \
	/* the driver */                                                                                    \
	X(cuInit, cuInit, 2000, (unsigned))                                                                 \
	X(cuDriverGetVersion, cuDriverGetVersion, 2020, (int *))                                            \
	X(cuGetErrorName, cuGetErrorName, 6000, (cuda_result, const char **))                               \
	X(cuGetProcAddress, cuGetProcAddress, 11030, (const char *, void **, int, uint64_t))                \
	X(cuGetProcAddress, cuGetProcAddress_v2, 12000, (const char *, void **, int, uint64_t, int *))      \
	/* devices and contexts */                                                                          \
	X(cuDeviceGetCount, cuDeviceGetCount, 2000, (int *))                                                \
	X(cuDeviceGet, cuDeviceGet, 2000, (cuda_device *, int))                                             \
	X(cuDeviceGetName, cuDeviceGetName, 2000, (char *, int, cuda_device))                               \
	X(cuDeviceTotalMem, cuDeviceTotalMem_v2, 3020, (size_t *, cuda_device))                             \
	X(cuDeviceGetAttribute, cuDeviceGetAttribute, 2000, (int *, int, cuda_device))                      \
	X(cuDeviceCanAccessPeer, cuDeviceCanAccessPeer, 4000, (int *, cuda_device, cuda_device))            \
	X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, (void **, cuda_device))                 \
	X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, 11000, (cuda_device))                    \
	X(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState, 7000, (cuda_device, unsigned *, int *))   \
	X(cuCtxCreate, cuCtxCreate_v2, 3020, (void **, unsigned, cuda_device))                              \
	X(cuCtxDestroy, cuCtxDestroy_v2, 4000, (void *))                                                    \
	X(cuCtxGetCurrent, cuCtxGetCurrent, 4000, (void **))                                                \
	X(cuCtxSetCurrent, cuCtxSetCurrent, 4000, (void *))                                                 \
	X(cuCtxPushCurrent, cuCtxPushCurrent_v2, 4000, (void *))                                            \
	X(cuCtxPopCurrent, cuCtxPopCurrent_v2, 4000, (void **))                                             \
	X(cuCtxGetDevice, cuCtxGetDevice, 2000, (cuda_device *))                                            \
	X(cuCtxSynchronize, cuCtxSynchronize, 2000, (void))                                                 \
	/* memory */                                                                                        \
	X(cuMemGetInfo, cuMemGetInfo_v2, 3020, (size_t *, size_t *))                                        \
	X(cuMemAlloc, cuMemAlloc_v2, 3020, (cuda_addr *, size_t))                                           \
	X(cuMemFree, cuMemFree_v2, 3020, (cuda_addr))                                                       \
	X(cuMemCreate, cuMemCreate, 10020, (cuda_mem *, size_t, const struct cuda_mem_prop *, uint64_t))    \
	X(cuMemRelease, cuMemRelease, 10020, (cuda_mem))                                                    \
	X(cuMemAddressReserve, cuMemAddressReserve, 10020,                                                  \
	  (cuda_addr *, size_t, size_t, cuda_addr, uint64_t))                                               \
	X(cuMemAddressFree, cuMemAddressFree, 10020, (cuda_addr, size_t))                                   \
	X(cuMemMap, cuMemMap, 10020, (cuda_addr, size_t, size_t, cuda_mem, uint64_t))                       \
	X(cuMemUnmap, cuMemUnmap, 10020, (cuda_addr, size_t))                                               \
	X(cuMemSetAccess, cuMemSetAccess, 10020,                                                            \
	  (cuda_addr, size_t, const struct cuda_mem_access *, size_t))                                      \
	X(cuMemGetAllocationGranularity, cuMemGetAllocationGranularity, 10020,                              \
	  (size_t *, const struct cuda_mem_prop *, int))                                                    \
	X(cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020,                                \
	  (void *, cuda_mem, int, uint64_t))                                                                \
	X(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020, (cuda_mem *, void *, int)) \
	/* streams, events, work */                                                                         \
	X(cuEventCreate, cuEventCreate, 2000, (void **, unsigned))                                          \
	X(cuEventDestroy, cuEventDestroy_v2, 4000, (void *))                                                \
	X(cuEventRecord, cuEventRecord, 2000, (void *, void *))                                             \
	X(cuEventQuery, cuEventQuery, 2000, (void *))                                                       \
	X(cuEventSynchronize, cuEventSynchronize, 2000, (void *))                                           \
	X(cuStreamCreate, cuStreamCreate, 2000, (void **, unsigned))                                        \
	X(cuStreamDestroy, cuStreamDestroy_v2, 4000, (void *))                                              \
	X(cuStreamSynchronize, cuStreamSynchronize, 2000, (void *))                                         \
	X(cuStreamWaitEvent, cuStreamWaitEvent, 3020, (void *, void *, unsigned))                           \
	X(cuStreamGetId, cuStreamGetId, 12000, (void *, uint64_t *))                                        \
	X(cuStreamGetCaptureInfo, cuStreamGetCaptureInfo, 10010, (void *, int *, uint64_t *))               \
	X(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, 10010, (int *))             \
	X(cuStreamBeginCapture, cuStreamBeginCapture_v2, 10010, (void *, int))                              \
	X(cuStreamEndCapture, cuStreamEndCapture, 10000, (void *, void **))                                 \
	X(cuStreamIsCapturing, cuStreamIsCapturing, 10000, (void *, int *))                                 \
	X(cuGraphInstantiate, cuGraphInstantiateWithFlags, 11040, (void **, void *, unsigned long long))    \
	X(cuGraphLaunch, cuGraphLaunch, 10000, (void *, void *))                                            \
	X(cuGraphExecDestroy, cuGraphExecDestroy, 10000, (void *))                                          \
	X(cuGraphDestroy, cuGraphDestroy, 10000, (void *))                                                  \
	X(cuMemsetD8Async, cuMemsetD8Async, 3020, (cuda_addr, unsigned char, size_t, void *))               \
	X(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, 3020, (void *, cuda_addr, size_t, void *))               \
	X(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, 3020, (cuda_addr, const void *, size_t, void *))         \
	X(cuLaunchHostFunc, cuLaunchHostFunc, 10000, (void *, void (*)(void *), void *))

#define FAKECUDA_PROTOTYPE(name, exported, version, parameters)                                             \
	__attribute__((visibility("default"))) cuda_result exported parameters;
FAKECUDA_SYMBOLS(FAKECUDA_PROTOTYPE)
#undef FAKECUDA_PROTOTYPE

#pragma GCC visibility push(hidden)

/* The machine; all zero until cuInit has succeeded. */
struct fake_machine {
	sim *sim;
	const trz_driver *table;
};
extern struct fake_machine fake;

/* The one place where a status becomes a driver's result. */
cuda_result fake_result(trz_status status);

/* The calling thread's current context, NULL without one. */
trz_context fake_context(void);

#pragma GCC visibility pop

/* Calls a slot of the simulator's table, or a function of sim.h that takes the simulator first. */
#define FAKE_SLOT(slot, ...)                                                                                \
	(fake.table ? fake_result(fake.table->slot(fake.table->self, __VA_ARGS__))                          \
	            : TRZ_CUDA_ERROR_NOT_INITIALIZED)
#define FAKE_SIM(function, ...)                                                                             \
	(fake.sim ? fake_result(function(fake.sim, __VA_ARGS__)) : TRZ_CUDA_ERROR_NOT_INITIALIZED)

/* The same with the current context as the first argument. */
#define FAKE_SLOT_HERE(slot, ...)                                                                           \
	(fake_context() ? FAKE_SLOT(slot, fake_context(), __VA_ARGS__) : TRZ_CUDA_ERROR_INVALID_CONTEXT)
#define FAKE_SIM_HERE(function, ...)                                                                        \
	(fake_context() ? FAKE_SIM(function, fake_context(), __VA_ARGS__) : TRZ_CUDA_ERROR_INVALID_CONTEXT)

#endif
