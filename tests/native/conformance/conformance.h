/* SPDX-License-Identifier: Apache-2.0
 *
 * The conformance suite: checks what CUDA documents of its allocation calls, in the libraries that a program finds.
 * Declares CUDA's functions without the toolkit's headers, and functions that check and print an answer.
 */
#ifndef CONFORMANCE_H
#define CONFORMANCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

enum {
	SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, INVALID_PITCH = 12, INVALID_DEVICE = 101,
	INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600, ALREADY_REGISTERED = 712,
	NOT_REGISTERED = 713, NOT_SUPPORTED = 801, CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901
};
enum { TO_DEVICE = 1, TO_HOST = 2, ON_DEVICE = 3 };
enum { UNREGISTERED = 0, HOST = 1, DEVICE = 2, MANAGED = 3 };
enum { CAPTURE_GLOBAL = 0, CAPTURE_THREAD_LOCAL = 1, CAPTURE_RELAXED = 2 };
/* Attributes of memory pools. */
enum {
	FOLLOW_EVENTS = 1, OPPORTUNISTIC = 2, INTERNAL_DEPENDENCIES = 3, THRESHOLD = 4, RESERVED = 5, RESERVED_HIGH = 6,
	USED = 7, USED_HIGH = 8
};
/* Attributes of pointers. */
enum {
	OF_CONTEXT = 1, OF_MEMORY_TYPE = 2, OF_DEVICE_POINTER = 3, OF_HOST_POINTER = 4, OF_SYNC_MEMOPS = 6,
	OF_BUFFER_ID = 7, OF_MANAGED = 8, OF_DEVICE_ORDINAL = 9, OF_LEGACY_IPC = 10, OF_RANGE_START = 11,
	OF_RANGE_SIZE = 12, OF_MAPPED = 13, OF_HANDLE_TYPES = 14, OF_POOL = 17
};

typedef unsigned long long address;
typedef int status;

struct location {
	int type, id;
};
struct pointer_attributes {
	int type, device;
	void *device_pointer, *host_pointer;
	long reserved[8];
};
struct pitched {
	void *ptr;
	size_t pitch, width, height;
};
struct extent {
	size_t width, height, depth;
};
struct pool_props {
	int type, handle_types;
	struct location location;
	void *security;
	size_t max_size;
	unsigned char reserved[56];
};
struct access {
	struct location location;
	int flags;
};
struct memory_props {
	int type, handle_types;
	struct location location;
	void *metadata;
	unsigned char flags[8];
};
struct ipc_handle {
	char bytes[64];
};

/* ---- the runtime ---- */

status cudaMalloc(void **ptr, size_t size);
status cudaFree(void *ptr);
status cudaMallocPitch(void **ptr, size_t *pitch, size_t width, size_t height);
status cudaMalloc3D(struct pitched *pitched, struct extent extent);
status cudaMallocManaged(void **ptr, size_t size, unsigned flags);
status cudaMallocHost(void **ptr, size_t size);
status cudaHostAlloc(void **ptr, size_t size, unsigned flags);
status cudaFreeHost(void *ptr);
status cudaHostRegister(void *ptr, size_t size, unsigned flags);
status cudaHostUnregister(void *ptr);
status cudaHostGetDevicePointer(void **device, void *host, unsigned flags);
status cudaHostGetFlags(unsigned *flags, void *host);
status cudaMallocAsync(void **ptr, size_t size, void *stream);
status cudaMallocFromPoolAsync(void **ptr, size_t size, void *pool, void *stream);
status cudaFreeAsync(void *ptr, void *stream);
status cudaMemcpy(void *to, const void *from, size_t size, int kind);
status cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream);
status cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                    int kind);
status cudaMemset(void *to, int value, size_t size);
status cudaMemsetAsync(void *to, int value, size_t size, void *stream);
status cudaMemGetInfo(size_t *unused, size_t *total);
status cudaPointerGetAttributes(struct pointer_attributes *attributes, const void *ptr);
status cudaDeviceGetAttribute(int *value, int attribute, int device);
status cudaGetDeviceCount(int *count);
status cudaSetDevice(int device);
status cudaDeviceSynchronize(void);
status cudaDeviceReset(void);
status cudaGetLastError(void);
status cudaPeekAtLastError(void);
status cudaStreamCreateWithFlags(void **stream, unsigned flags);
status cudaStreamDestroy(void *stream);
status cudaStreamSynchronize(void *stream);
status cudaStreamQuery(void *stream);
status cudaLaunchHostFunc(void *stream, void (*function)(void *), void *argument);
status cudaStreamWaitEvent(void *stream, void *event, unsigned flags);
status cudaStreamBeginCapture(void *stream, int mode);
status cudaStreamEndCapture(void *stream, void **graph);
status cudaEventCreateWithFlags(void **event, unsigned flags);
status cudaEventRecord(void *event, void *stream);
status cudaEventSynchronize(void *event);
status cudaEventQuery(void *event);
status cudaGraphInstantiate(void **executable, void *graph, unsigned long long flags);
status cudaGraphLaunch(void *executable, void *stream);
status cudaDeviceGetDefaultMemPool(void **pool, int device);
status cudaDeviceGetMemPool(void **pool, int device);
status cudaDeviceSetMemPool(int device, void *pool);
status cudaMemPoolCreate(void **pool, const struct pool_props *props);
status cudaMemPoolDestroy(void *pool);
status cudaMemPoolTrimTo(void *pool, size_t keep);
status cudaMemPoolGetAttribute(void *pool, int attribute, void *value);
status cudaMemPoolSetAttribute(void *pool, int attribute, void *value);
status cudaMemPoolGetAccess(int *flags, void *pool, struct location *location);
status cudaMemPoolSetAccess(void *pool, const struct access *list, size_t count);
status cudaIpcGetMemHandle(struct ipc_handle *handle, void *ptr);

/* ---- the driver ---- */

status cuInit(unsigned flags);
status cuDeviceTotalMem_v2(size_t *bytes, int device);
status cuDeviceGetAttribute(int *value, int attribute, int device);
status cuDevicePrimaryCtxRetain(void **context, int device);
status cuCtxCreate_v2(void **context, unsigned flags, int device);
status cuCtxDestroy_v2(void *context);
status cuCtxSetCurrent(void *context);
status cuCtxGetCurrent(void **context);
status cuMemAlloc_v2(address *ptr, size_t size);
status cuMemFree_v2(address ptr);
status cuMemAllocPitch_v2(address *ptr, size_t *pitch, size_t width, size_t height, unsigned element);
status cuMemAllocManaged(address *ptr, size_t size, unsigned flags);
status cuMemAllocHost_v2(void **ptr, size_t size);
status cuMemHostAlloc(void **ptr, size_t size, unsigned flags);
status cuMemFreeHost(void *ptr);
status cuMemHostGetDevicePointer_v2(address *device, void *host, unsigned flags);
status cuMemHostGetFlags(unsigned *flags, void *host);
status cuMemAllocAsync(address *ptr, size_t size, void *stream);
status cuMemFreeAsync(address ptr, void *stream);
status cuMemGetInfo_v2(size_t *unused, size_t *total);
status cuMemGetAddressRange_v2(address *base, size_t *size, address ptr);
status cuPointerGetAttribute(void *value, int attribute, address ptr);
status cuPointerGetAttributes(unsigned count, int *attributes, void **values, address ptr);
status cuPointerSetAttribute(const void *value, int attribute, address ptr);
status cuMemsetD8_v2(address to, unsigned char value, size_t size);
status cuMemcpyDtoH_v2(void *to, address from, size_t size);
status cuMemGetAllocationGranularity(size_t *bytes, const struct memory_props *props, int option);
status cuMemCreate(uint64_t *handle, size_t size, const struct memory_props *props, unsigned long long flags);
status cuMemRelease(uint64_t handle);
status cuMemAddressReserve(address *ptr, size_t size, size_t alignment, address wanted, unsigned long long flags);
status cuMemAddressFree(address ptr, size_t size);
status cuMemMap(address ptr, size_t size, size_t offset, uint64_t handle, unsigned long long flags);
status cuMemUnmap(address ptr, size_t size);
status cuMemSetAccess(address ptr, size_t size, const struct access *list, size_t count);
status cuMemGetAccess(unsigned long long *flags, const struct location *location, address ptr);
status cuMemRetainAllocationHandle(uint64_t *handle, void *ptr);
status cuMemGetAllocationPropertiesFromHandle(struct memory_props *props, uint64_t handle);

/* ---- answers ---- */

/* One check: what came, and what CUDA documents. */
void is(const char *name, long long got, long long documented);

/* What CUDA documents as true. */
void holds(const char *name, bool got);

/* An answer that CUDA does not document: told, so that two runs can be compared. */
void says(const char *name, long long got);

/* What a check rests on; ends the program. */
void must(const char *what, status result);

/* Runs a function in a thread of its own, to the end. */
void in_thread(void (*function)(void *), void *argument);

/* Free bytes of the current device. */
size_t free_bytes(void);

/* ---- groups: each runs in a process of its own ---- */

void check_malloc(void);
void check_free(void);
void check_pitch(void);
void check_pointers(void);
void check_async(void);
void check_order(void);
void check_pools(void);
void check_ended(void);
void check_capture(void);
void check_driver(void);
void check_driver_pointers(void);
void check_callback(void);
void check_early(void);
void check_contexts(void);
void check_virtual(void);
void check_host(void);
void check_managed(void);
void check_threads(void);
void check_devices(void);
void check_reset(void);
void check_fork(void);
void check_fork_before(void);
void check_ipc(void);

#endif
