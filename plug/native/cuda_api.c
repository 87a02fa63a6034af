/* SPDX-License-Identifier: Apache-2.0
 *
 * terrazzo_cuda.h: the rules of the CUDA runtime over the driver's calls. All results that these calls return have the
 * same numbers as errors of the runtime and as results of the driver.
 */
#define TRZ_CUDA_NO_TOOLKIT
#include "terrazzo_cuda.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>

#include "native.h"

/* cudaStreamPerThread */
#define PER_THREAD ((trz_cudaStream_t)2)

static _Thread_local int last_error;

static int keep(cuda_result result)
{
	if (result != TRZ_CUDA_SUCCESS)
		last_error = result;
	return result;
}

trz_cudaError_t trz_cudaLastError(int clear)
{
	int error = last_error;
	if (clear)
		last_error = 0;
	return error;
}

/* ---- the context --------------------------------------------------------------------------------------------- */

/* The first call of a thread gives it a context, as the runtime's would. If the program has loaded the runtime, that
 * knows which device the thread has chosen; else it is the first. */
static cuda_result bind(void)
{
	void *context = NULL;
	if (!native_load())
		return TRZ_CUDA_ERROR_NO_DEVICE;
	cuda_result result = native_driver.cuCtxGetCurrent(&context);
	if (result == TRZ_CUDA_SUCCESS && context)
		return result;
	int (*free_nothing)(void *) = (int (*)(void *))dlsym(RTLD_DEFAULT, "cudaFree");
	if (free_nothing)
		return free_nothing(NULL);
	result = native_driver.cuInit(0);
	if (result == TRZ_CUDA_SUCCESS)
		result = native_driver.cuDevicePrimaryCtxRetain(&context, 0);
	return result == TRZ_CUDA_SUCCESS ? native_driver.cuCtxSetCurrent(context) : result;
}

/* Loads the driver: a preloaded library only looks for one that is in the process already, and perhaps nothing but
 * these calls needs it. */
static void need_driver(void)
{
	static atomic_bool asked;
	if (atomic_load_explicit(&asked, memory_order_relaxed))
		return;
	dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	atomic_store_explicit(&asked, true, memory_order_relaxed);
}

static bool is_bound(void)
{
	void *context = NULL;
	need_driver();
	return native_load() && native_driver.cuCtxGetCurrent(&context) == TRZ_CUDA_SUCCESS && context;
}

/* Begins each call. */
#define ENTER()                                      \
	do {                                             \
		cuda_result bound = is_bound() ? 0 : bind(); \
		if (bound != TRZ_CUDA_SUCCESS)               \
			return keep(bound);                      \
	} while (0)

/* ---- memory of all streams ------------------------------------------------------------------------------------ */

trz_cudaError_t trz_cudaMalloc(void **ptr, size_t size)
{
	cuda_addr made = 0;
	ENTER();
	if (!ptr)
		return keep(TRZ_CUDA_ERROR_INVALID_VALUE);
	native_caller = NATIVE_CALLER;
	cuda_result result = size ? native_alloc(&made, size) : TRZ_CUDA_SUCCESS;
	if (result == TRZ_CUDA_SUCCESS)
		*ptr = (void *)made;
	return keep(result);
}

static trz_cudaError_t alloc_pitch(void **ptr, size_t *pitch, size_t width, size_t height, const void *caller)
{
	enum { ELEMENT = 16 };
	cuda_addr made = 0;
	ENTER();
	if (!ptr || !pitch)
		return keep(TRZ_CUDA_ERROR_INVALID_VALUE);
	native_caller = caller;
	cuda_result result = native_alloc_pitch(&made, pitch, width, height, ELEMENT);
	if (result == TRZ_CUDA_SUCCESS)
		*ptr = (void *)made;
	return keep(result);
}

trz_cudaError_t trz_cudaMallocPitch(void **ptr, size_t *pitch, size_t width, size_t height)
{
	return alloc_pitch(ptr, pitch, width, height, NATIVE_CALLER);
}

trz_cudaError_t trz_cudaMalloc3D(trz_cudaPitchedPtr *pitched, trz_cudaExtent extent)
{
	size_t rows;
	if (!pitched || __builtin_mul_overflow(extent.height, extent.depth, &rows))
		return keep(pitched ? TRZ_CUDA_ERROR_OUT_OF_MEMORY : TRZ_CUDA_ERROR_INVALID_VALUE);
	int error = alloc_pitch(&pitched->ptr, &pitched->pitch, extent.width, rows, NATIVE_CALLER);
	if (error == TRZ_CUDA_SUCCESS) {
		pitched->xsize = extent.width;
		pitched->ysize = extent.height;
	}
	return error;
}

trz_cudaError_t trz_cudaFree(void *ptr)
{
	ENTER();
	return keep(native_free((uintptr_t)ptr));
}

trz_cudaError_t trz_cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
	size_t unused = 0, total = 0;
	ENTER();
	cuda_result result = native_mem_info(&unused, &total);
	if (result == TRZ_CUDA_SUCCESS && free_bytes)
		*free_bytes = unused;
	if (result == TRZ_CUDA_SUCCESS && total_bytes)
		*total_bytes = total;
	return keep(result);
}

/* ---- in the order of a stream -------------------------------------------------------------------------------- */

static trz_cudaError_t alloc_async(void **ptr, size_t size, trz_cudaStream_t stream, const void *caller)
{
	cuda_addr made = 0;
	ENTER();
	if (!ptr)
		return keep(TRZ_CUDA_ERROR_INVALID_VALUE);
	native_caller = caller;
	cuda_result result = size ? native_alloc_async(&made, size, stream) : TRZ_CUDA_SUCCESS;
	if (result == TRZ_CUDA_SUCCESS)
		*ptr = (void *)made;
	return keep(result);
}

static trz_cudaError_t alloc_from_pool(void **ptr, size_t size, trz_cudaMemPool_t pool, trz_cudaStream_t stream,
                                       const void *caller)
{
	cuda_addr made = 0;
	ENTER();
	if (!ptr)
		return keep(TRZ_CUDA_ERROR_INVALID_VALUE);
	native_caller = caller;
	cuda_result result = size ? native_alloc_from_pool(&made, size, pool, stream) : TRZ_CUDA_SUCCESS;
	if (result == TRZ_CUDA_SUCCESS)
		*ptr = (void *)made;
	return keep(result);
}

trz_cudaError_t trz_cudaMallocAsync(void **ptr, size_t size, trz_cudaStream_t stream)
{
	return alloc_async(ptr, size, stream, NATIVE_CALLER);
}

trz_cudaError_t trz_cudaMallocFromPoolAsync(void **ptr, size_t size, trz_cudaMemPool_t pool, trz_cudaStream_t stream)
{
	return alloc_from_pool(ptr, size, pool, stream, NATIVE_CALLER);
}

trz_cudaError_t trz_cudaFreeAsync(void *ptr, trz_cudaStream_t stream)
{
	ENTER();
	return keep(ptr ? native_free_async((uintptr_t)ptr, stream) : TRZ_CUDA_SUCCESS);
}

static trz_cudaStream_t of_thread(trz_cudaStream_t stream)
{
	return stream ? stream : PER_THREAD;
}

trz_cudaError_t trz_cudaMallocAsync_ptsz(void **ptr, size_t size, trz_cudaStream_t stream)
{
	return alloc_async(ptr, size, of_thread(stream), NATIVE_CALLER);
}

trz_cudaError_t trz_cudaMallocFromPoolAsync_ptsz(void **ptr, size_t size, trz_cudaMemPool_t pool,
                                                 trz_cudaStream_t stream)
{
	return alloc_from_pool(ptr, size, pool, of_thread(stream), NATIVE_CALLER);
}

trz_cudaError_t trz_cudaFreeAsync_ptsz(void *ptr, trz_cudaStream_t stream)
{
	return trz_cudaFreeAsync(ptr, of_thread(stream));
}

/* ---- pools: the heap is the default one ------------------------------------------------------------------------ */

trz_cudaError_t trz_cudaMemPoolTrimTo(trz_cudaMemPool_t pool, size_t keep_bytes)
{
	ENTER();
	cuda_result result = native_driver.cuMemPoolTrimTo(pool, keep_bytes);
	if (result == TRZ_CUDA_SUCCESS)
		native_pool_trim(pool, keep_bytes);
	return keep(result);
}

trz_cudaError_t trz_cudaMemPoolGetAttribute(trz_cudaMemPool_t pool, trz_cudaMemPoolAttr attribute, void *value)
{
	ENTER();
	cuda_result result = native_driver.cuMemPoolGetAttribute(pool, (int)attribute, value);
	if (result == TRZ_CUDA_SUCCESS)
		native_pool_add(pool, (int)attribute, value);
	return keep(result);
}

trz_cudaError_t trz_cudaMemPoolSetAttribute(trz_cudaMemPool_t pool, trz_cudaMemPoolAttr attribute, void *value)
{
	ENTER();
	cuda_result result = native_driver.cuMemPoolSetAttribute(pool, (int)attribute, value);
	if (result == TRZ_CUDA_SUCCESS)
		native_pool_reset(pool, (int)attribute);
	return keep(result);
}

/* cudaMemAccessDesc has the driver's layout and numbers. */
trz_cudaError_t trz_cudaMemPoolSetAccess(trz_cudaMemPool_t pool, const trz_cudaMemAccessDesc *access, size_t count)
{
	const struct cuda_mem_access *same = (const struct cuda_mem_access *)(const void *)access;
	ENTER();
	cuda_result result = native_driver.cuMemPoolSetAccess(pool, same, count);
	if (result == TRZ_CUDA_SUCCESS)
		native_pool_open(pool, same, count);
	return keep(result);
}

/* ---- other processes -------------------------------------------------------------------------------------------- */

trz_cudaError_t trz_cudaMayExport(const void *ptr)
{
	ENTER();
	return keep(native_may_export((uintptr_t)ptr));
}

/* ---- streams ---------------------------------------------------------------------------------------------------- */

trz_cudaError_t trz_cudaStreamDestroy(trz_cudaStream_t stream)
{
	ENTER();
	return keep(native_stream_destroy(stream));
}

/* ---- heaps ------------------------------------------------------------------------------------------------------ */

void trz_cudaEnd(void)
{
	void *context = NULL;
	if (!native_load() || native_driver.cuCtxGetCurrent(&context) != TRZ_CUDA_SUCCESS || !context)
		return;
	native_end_context(context);
	native_ended();
}

void trz_cudaOpenHeap(int device, int on)
{
	void *context = NULL;
	if (!on || !is_bound() || native_driver.cuDevicePrimaryCtxRetain(&context, device) != TRZ_CUDA_SUCCESS)
		return;
	native_open_to_current(context);
	native_driver.cuDevicePrimaryCtxRelease_v2(device);
}

struct trz_heap *trz_cudaHeap(void)
{
	native_enter();
	struct native_heap *h = native_current();
	struct trz_heap *heap = h ? h->heap : NULL;
	native_leave();
	return heap;
}
