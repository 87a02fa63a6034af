/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA driver's functions that plug/native calls: the driver's own, not those that stand before them.
 */
#ifndef TRZ_NATIVE_DRIVER_H
#define TRZ_NATIVE_DRIVER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/cuda_abi.h"

/* X(exported name, parameters) */
#define NATIVE_DRIVER_CALLS(X)                                                            \
	X(cuInit, (unsigned))                                                                 \
	X(cuCtxGetCurrent, (void **))                                                         \
	X(cuCtxSetCurrent, (void *))                                                          \
	X(cuCtxPushCurrent_v2, (void *))                                                      \
	X(cuCtxPopCurrent_v2, (void **))                                                      \
	X(cuCtxGetDevice, (cuda_device *))                                                    \
	X(cuCtxSynchronize, (void))                                                           \
	X(cuDevicePrimaryCtxRetain, (void **, cuda_device))                                   \
	X(cuDevicePrimaryCtxRelease_v2, (cuda_device))                                        \
	X(cuDevicePrimaryCtxGetState, (cuda_device, unsigned *, int *))                       \
	X(cuMemAlloc_v2, (cuda_addr *, size_t))                                               \
	X(cuMemAllocPitch_v2, (cuda_addr *, size_t *, size_t, size_t, unsigned))              \
	X(cuMemFree_v2, (cuda_addr))                                                          \
	X(cuMemGetInfo_v2, (size_t *, size_t *))                                              \
	X(cuMemAllocAsync, (cuda_addr *, size_t, void *))                                     \
	X(cuMemAllocFromPoolAsync, (cuda_addr *, size_t, void *, void *))                     \
	X(cuMemFreeAsync, (cuda_addr, void *))                                                \
	X(cuDeviceGetDefaultMemPool, (void **, cuda_device))                                  \
	X(cuDeviceGetMemPool, (void **, cuda_device))                                         \
	X(cuMemPoolTrimTo, (void *, size_t))                                                  \
	X(cuMemPoolGetAttribute, (void *, int, void *))                                       \
	X(cuMemPoolSetAttribute, (void *, int, void *))                                       \
	X(cuMemPoolSetAccess, (void *, const struct cuda_mem_access *, size_t))               \
	X(cuDeviceGraphMemTrim, (cuda_device))                                                \
	X(cuDeviceCanAccessPeer, (int *, cuda_device, cuda_device))                           \
	X(cuStreamCreate, (void **, unsigned))                                                \
	X(cuStreamDestroy_v2, (void *))                                                       \
	X(cuStreamSynchronize, (void *))                                                      \
	X(cuStreamGetCtx, (void *, void **))                                                  \
	X(cuStreamIsCapturing, (void *, int *))

/* A member is NULL if the driver lacks the function. */
struct native_driver {
#define NATIVE_FIELD(name, parameters) cuda_result(*name) parameters;
	NATIVE_DRIVER_CALLS(NATIVE_FIELD)
#undef NATIVE_FIELD
	cuda_result (*cuStreamGetCtx_v2)(void *stream, void **context, void **green);  /* from CUDA 12.5 on */
};

/* Valid once native_load() has returned true. */
extern struct native_driver native_driver;

/* Finds the functions, once. false: there is no driver, or it is older than CUDA 11.4. */
bool native_load(void);

/* The driver's own function of this exported name, or NULL. Each library that has plug/native finds it in its own
 * way. */
void *native_symbol(const char *exported);

#endif
