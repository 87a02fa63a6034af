/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA's own allocation calls, served by terrazzo: the CUDA runtime's names with the prefix trz_, its parameters, its
 * results. Link libterrazzo_cuda. Behind them is one heap for each context, opened at the first request; TERRAZZO_CONF
 * configures it. docs/native.md says what differs from CUDA.
 *
 * If TRZ_CUDA_REPLACE is defined before the header is included, the CUDA names themselves mean these functions from
 * here on, in this file; nothing else of the program changes. These functions also free the CUDA runtime's memory, but
 * the CUDA runtime's own functions cannot free theirs; so define it in all files that free.
 *
 * If the toolkit's headers are available, cudaError_t and the other types are the toolkit's. Otherwise, or with
 * TRZ_CUDA_NO_TOOLKIT defined, they are types of the same layout, and TRZ_CUDA_REPLACE is not possible.
 */
#ifndef TERRAZZO_CUDA_H
#define TERRAZZO_CUDA_H

#include <stddef.h>

#if !defined(TRZ_CUDA_NO_TOOLKIT) && defined(__has_include)
#if __has_include(<cuda_runtime.h>)
#define TRZ_CUDA_TOOLKIT 1
#endif
#endif

#ifdef TRZ_CUDA_TOOLKIT
#ifdef __cplusplus
#include <cuda_runtime.h>
#else
#include <cuda_runtime_api.h>
#endif
typedef cudaError_t trz_cudaError_t;
typedef cudaStream_t trz_cudaStream_t;
typedef cudaMemPool_t trz_cudaMemPool_t;
typedef struct cudaPitchedPtr trz_cudaPitchedPtr;
typedef struct cudaExtent trz_cudaExtent;
typedef enum cudaMemPoolAttr trz_cudaMemPoolAttr;
typedef struct cudaMemAccessDesc trz_cudaMemAccessDesc;
#else
typedef int trz_cudaError_t;                         /* cudaError_t */
typedef struct CUstream_st *trz_cudaStream_t;        /* cudaStream_t */
typedef struct CUmemPoolHandle_st *trz_cudaMemPool_t; /* cudaMemPool_t */
typedef struct trz_cudaPitchedPtr {                  /* struct cudaPitchedPtr */
	void *ptr;
	size_t pitch, xsize, ysize;
} trz_cudaPitchedPtr;
typedef struct trz_cudaExtent {                      /* struct cudaExtent */
	size_t width, height, depth;
} trz_cudaExtent;
typedef int trz_cudaMemPoolAttr;                     /* enum cudaMemPoolAttr */
typedef struct trz_cudaMemAccessDesc {               /* struct cudaMemAccessDesc */
	struct {
		int type, id;
	} location;
	int flags;
} trz_cudaMemAccessDesc;
#endif

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TRZ_CUDA_API __attribute__((visibility("default")))
#else
#define TRZ_CUDA_API
#endif

/* ---- the CUDA runtime's calls ------------------------------------------------------------------------- */

/* Allocate memory that may be used on all streams at once. The driver allocates what the heap cannot serve. */
TRZ_CUDA_API trz_cudaError_t trz_cudaMalloc(void **ptr, size_t size);
TRZ_CUDA_API trz_cudaError_t trz_cudaMallocPitch(void **ptr, size_t *pitch, size_t width, size_t height);
TRZ_CUDA_API trz_cudaError_t trz_cudaMalloc3D(trz_cudaPitchedPtr *pitched, trz_cudaExtent extent);

/* Frees memory from any of the calls here, and any that cudaFree frees. Waits for all work of the context, as cudaFree
 * does. With TERRAZZO_NATIVE=free:order it waits for nothing, and the memory is reused when all work enqueued before
 * the call has completed. */
TRZ_CUDA_API trz_cudaError_t trz_cudaFree(void *ptr);

/* Allocate and free in the order of the stream. On a stream that is being captured the driver serves the call, as a
 * node of the graph. */
TRZ_CUDA_API trz_cudaError_t trz_cudaMallocAsync(void **ptr, size_t size, trz_cudaStream_t stream);
TRZ_CUDA_API trz_cudaError_t trz_cudaFreeAsync(void *ptr, trz_cudaStream_t stream);

/* Allocates from a pool, in stream order. The heap serves the device's default pool, the driver all others. */
TRZ_CUDA_API trz_cudaError_t trz_cudaMallocFromPoolAsync(void **ptr, size_t size, trz_cudaMemPool_t pool,
                                                         trz_cudaStream_t stream);

/* The same calls for programs whose default stream is the calling thread's (nvcc --default-stream per-thread). */
TRZ_CUDA_API trz_cudaError_t trz_cudaMallocAsync_ptsz(void **ptr, size_t size, trz_cudaStream_t stream);
TRZ_CUDA_API trz_cudaError_t trz_cudaFreeAsync_ptsz(void *ptr, trz_cudaStream_t stream);
TRZ_CUDA_API trz_cudaError_t trz_cudaMallocFromPoolAsync_ptsz(void **ptr, size_t size, trz_cudaMemPool_t pool,
                                                              trz_cudaStream_t stream);

/* Trim a pool, read and set its attributes, and set other devices' access to it. For the device's default pool these
 * include the heap: they count and trim what it holds for streams and keeps, and open it to other devices. All other
 * pools are the driver's; to make, destroy, export or choose one, use CUDA's own functions. */
TRZ_CUDA_API trz_cudaError_t trz_cudaMemPoolTrimTo(trz_cudaMemPool_t pool, size_t keep_bytes);
TRZ_CUDA_API trz_cudaError_t trz_cudaMemPoolGetAttribute(trz_cudaMemPool_t pool, trz_cudaMemPoolAttr attribute,
                                                         void *value);
TRZ_CUDA_API trz_cudaError_t trz_cudaMemPoolSetAttribute(trz_cudaMemPool_t pool, trz_cudaMemPoolAttr attribute,
                                                         void *value);
TRZ_CUDA_API trz_cudaError_t trz_cudaMemPoolSetAccess(trz_cudaMemPool_t pool, const trz_cudaMemAccessDesc *access,
                                                      size_t count);

/* Reports free and total memory. What the heap keeps for later requests counts as free. */
TRZ_CUDA_API trz_cudaError_t trz_cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);

/* Destroys a stream on which memory was allocated or freed: its memory then serves other streams. Use this call for all
 * such streams. */
TRZ_CUDA_API trz_cudaError_t trz_cudaStreamDestroy(trz_cudaStream_t stream);

/* ---- what the runtime has no name for ------------------------------------------------------------------ */

/* The thread's newest failure of a call above; 0: none. `clear` forgets it. The CUDA runtime knows nothing of it. */
TRZ_CUDA_API trz_cudaError_t trz_cudaLastError(int clear);

/* Closes the heap of the current context: call it before cudaDeviceReset or cuCtxDestroy. Live allocations are released
 * with it. No other thread may be inside one of these calls. */
TRZ_CUDA_API void trz_cudaEnd(void);

/* Lets the current device reach the memory of `device`'s heap, too. Call it after cudaDeviceEnablePeerAccess(device),
 * with `on` not 0; with TRZ_CUDA_REPLACE this is done for you. Two devices that both have a heap reach each other's
 * memory anyway, since CUDA copies between them; so nothing is closed after cudaDeviceDisablePeerAccess. */
TRZ_CUDA_API void trz_cudaOpenHeap(int device, int on);

/* Call it before cudaIpcGetMemHandle; with TRZ_CUDA_REPLACE this is done for you. cudaErrorNotSupported: the memory is
 * terrazzo's, which other processes cannot open. A line on standard error names the remedy, and from here on
 * trz_cudaMalloc passes on to the driver. */
TRZ_CUDA_API trz_cudaError_t trz_cudaMayExport(const void *ptr);

/* The heap of the current context, for the functions of terrazzo.h; opens it if need be. NULL: the driver serves this
 * context, or there is no context. Do not close the heap. */
struct trz_heap;
TRZ_CUDA_API struct trz_heap *trz_cudaHeap(void);

#ifdef __cplusplus
}
#endif

#ifdef TRZ_CUDA_REPLACE
#ifndef TRZ_CUDA_TOOLKIT
#error "TRZ_CUDA_REPLACE: the headers of the CUDA toolkit (cuda_runtime.h) are not found"
#endif

static inline cudaError_t trz_cudaDeviceReset(void)
{
	trz_cudaEnd();
	return cudaDeviceReset();
}

static inline cudaError_t trz_cudaDeviceEnablePeerAccess(int device, unsigned flags)
{
	cudaError_t error = cudaDeviceEnablePeerAccess(device, flags);
	if (error == cudaSuccess)
		trz_cudaOpenHeap(device, 1);
	return error;
}

static inline cudaError_t trz_cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *ptr)
{
	cudaError_t error = trz_cudaMayExport(ptr);
	return error == cudaSuccess ? cudaIpcGetMemHandle(handle, ptr) : error;
}

static inline cudaError_t trz_cudaGetLastError(void)
{
	cudaError_t own = trz_cudaLastError(1), other = cudaGetLastError();
	return own != cudaSuccess ? own : other;
}

static inline cudaError_t trz_cudaPeekAtLastError(void)
{
	cudaError_t own = trz_cudaLastError(0);
	return own != cudaSuccess ? own : cudaPeekAtLastError();
}

#ifdef __cplusplus
/* As the templates of cuda_runtime.h. */
template <class T> static inline cudaError_t trz_cudaMalloc(T **ptr, size_t size)
{
	return trz_cudaMalloc((void **)(void *)ptr, size);
}

template <class T> static inline cudaError_t trz_cudaMallocPitch(T **ptr, size_t *pitch, size_t width, size_t height)
{
	return trz_cudaMallocPitch((void **)(void *)ptr, pitch, width, height);
}
#endif

#undef cudaMallocAsync
#undef cudaFreeAsync
#undef cudaMallocFromPoolAsync
#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM) || defined(__CUDA_API_PER_THREAD_DEFAULT_STREAM)
#define cudaMallocAsync trz_cudaMallocAsync_ptsz
#define cudaFreeAsync trz_cudaFreeAsync_ptsz
#define cudaMallocFromPoolAsync trz_cudaMallocFromPoolAsync_ptsz
#else
#define cudaMallocAsync trz_cudaMallocAsync
#define cudaFreeAsync trz_cudaFreeAsync
#define cudaMallocFromPoolAsync trz_cudaMallocFromPoolAsync
#endif

#ifdef __cplusplus
template <class T> static inline cudaError_t cudaMallocFromPoolAsync(T **ptr, size_t size, cudaMemPool_t pool,
                                                                     cudaStream_t stream)
{
	return cudaMallocFromPoolAsync((void **)(void *)ptr, size, pool, stream);
}

template <class T> static inline cudaError_t cudaMallocAsync(T **ptr, size_t size, cudaStream_t stream)
{
	return cudaMallocAsync((void **)(void *)ptr, size, stream);
}

template <class T> static inline cudaError_t cudaMallocAsync(T **ptr, size_t size, cudaMemPool_t pool,
                                                             cudaStream_t stream)
{
	return cudaMallocFromPoolAsync((void **)(void *)ptr, size, pool, stream);
}
#endif

#define cudaMalloc trz_cudaMalloc
#define cudaMallocPitch trz_cudaMallocPitch
#define cudaMalloc3D trz_cudaMalloc3D
#define cudaFree trz_cudaFree
#define cudaMemGetInfo trz_cudaMemGetInfo
#define cudaStreamDestroy trz_cudaStreamDestroy
#define cudaMemPoolTrimTo trz_cudaMemPoolTrimTo
#define cudaMemPoolGetAttribute trz_cudaMemPoolGetAttribute
#define cudaMemPoolSetAttribute trz_cudaMemPoolSetAttribute
#define cudaMemPoolSetAccess trz_cudaMemPoolSetAccess
#define cudaDeviceEnablePeerAccess trz_cudaDeviceEnablePeerAccess
#define cudaDeviceReset trz_cudaDeviceReset
#define cudaIpcGetMemHandle trz_cudaIpcGetMemHandle
#define cudaGetLastError trz_cudaGetLastError
#define cudaPeekAtLastError trz_cudaPeekAtLastError
#endif

#endif
