/* SPDX-License-Identifier: Apache-2.0
 *
 * What bench/gpu/ calls of the CUDA driver, found when a program starts: of whichever libcuda.so.1 comes first, a GPU's
 * or the look-alike.
 */
#ifndef TRZ_BENCH_GPU_DRIVER_H
#define TRZ_BENCH_GPU_DRIVER_H

#include <stddef.h>
#include <stdint.h>

/* CUDA_MEMCPY2D: a memory type of 1 is the host's, 2 the device's. */
struct copy_2d {
	size_t from_x, from_y;
	int from_type;
	const void *from_host;
	uint64_t from_device;
	void *from_array;
	size_t from_pitch, to_x, to_y;
	int to_type;
	void *to_host;
	uint64_t to_device;
	void *to_array;
	size_t to_pitch, width, height;
};

enum { HOST_MEMORY = 1, DEVICE_MEMORY = 2 };

/* X(member, symbol, parameters) */
#define GPU_CALLS(X)                                                                      \
	X(init, "cuInit", (unsigned))                                                     \
	X(version, "cuDriverGetVersion", (int *))                                         \
	X(name, "cuDeviceGetName", (char *, int, int))                                    \
	X(retain, "cuDevicePrimaryCtxRetain", (void **, int))                             \
	X(set_current, "cuCtxSetCurrent", (void *))                                       \
	X(synchronize, "cuCtxSynchronize", (void))                                        \
	X(info, "cuMemGetInfo_v2", (size_t *, size_t *))                                  \
	X(stream_create, "cuStreamCreate", (void **, unsigned))                           \
	X(stream_synchronize, "cuStreamSynchronize", (void *))                            \
	X(stream_wait, "cuStreamWaitEvent", (void *, void *, unsigned))                   \
	X(event_create, "cuEventCreate", (void **, unsigned))                             \
	X(event_record, "cuEventRecord", (void *, void *))                                \
	X(event_synchronize, "cuEventSynchronize", (void *))                              \
	X(host_alloc, "cuMemHostAlloc", (void **, size_t, unsigned))                      \
	X(mem_alloc, "cuMemAlloc_v2", (uint64_t *, size_t))                               \
	X(mem_free, "cuMemFree_v2", (uint64_t))                                           \
	X(fill, "cuMemsetD32Async", (uint64_t, unsigned, size_t, void *))                 \
	X(fill_2d, "cuMemsetD2D32Async", (uint64_t, size_t, unsigned, size_t, size_t, void *)) \
	X(copy, "cuMemcpyDtoHAsync_v2", (void *, uint64_t, size_t, void *))                \
	X(copy_2d, "cuMemcpy2DAsync_v2", (const struct copy_2d *, void *))

struct gpu {
#define GPU_MEMBER(member, symbol, parameters) int (*member) parameters;
	GPU_CALLS(GPU_MEMBER)
#undef GPU_MEMBER
};

#endif
