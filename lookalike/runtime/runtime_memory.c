/* SPDX-License-Identifier: Apache-2.0
 *
 * Device memory and host memory, pools, and pointers.
 */
#include "runtime_lookalike.h"

#include <string.h>

/* ---- allocation ------------------------------------------------------------ */

/* An allocation of no bytes gives NULL. */
cuda_error cudaMalloc(void **address, size_t size)
{
	cuda_addr made = 0;
	RT_ENTER(cudaMalloc);
	if (!address)
		return rt_result(RT_INVALID_VALUE);
	int result = size ? cuMemAlloc_v2(&made, size) : RT_SUCCESS;
	if (result == RT_SUCCESS)
		*address = (void *)made;
	return rt_result(result);
}

cuda_error cudaMallocManaged(void **address, size_t size, unsigned flags)
{
	cuda_addr made = 0;
	RT_ENTER(cudaMallocManaged);
	if (!address)
		return rt_result(RT_INVALID_VALUE);
	int result = size ? cuMemAllocManaged(&made, size, flags) : RT_SUCCESS;  /* a GPU's runtime gives none for none */
	if (result == RT_SUCCESS)
		*address = (void *)made;
	return rt_result(result);
}

cuda_error cudaMallocPitch(void **address, size_t *pitch, size_t width, size_t height)
{
	cuda_addr made = 0;
	RT_ENTER(cudaMallocPitch);
	int result = address ? cuMemAllocPitch_v2(&made, pitch, width, height, 16) : RT_INVALID_VALUE;
	if (result == RT_SUCCESS)
		*address = (void *)made;
	return rt_result(result);
}

cuda_error cudaMalloc3D(struct rt_pitched *pitched, struct rt_extent extent)
{
	size_t rows;
	RT_COUNT(cudaMalloc3D);
	if (!pitched)
		return rt_result(RT_INVALID_VALUE);
	if (__builtin_mul_overflow(extent.height, extent.depth, &rows))
		return rt_result(RT_MEMORY_ALLOCATION);
	pitched->width = extent.width;
	pitched->height = extent.height;
	return cudaMallocPitch(&pitched->address, &pitched->pitch, extent.width, rows);
}

cuda_error cudaFree(void *address)
{
	RT_ENTER(cudaFree);
	return rt_result(cuMemFree_v2((uintptr_t)address));
}

cuda_error cudaMemGetInfo(size_t *unused, size_t *total)
{
	RT_ENTER(cudaMemGetInfo);
	return rt_result(cuMemGetInfo_v2(unused, total));
}

/* ---- other processes' memory ------------------------------------------------------------ */

cuda_error cudaIpcGetMemHandle(struct cuda_ipc *handle, void *address)
{
	RT_ENTER(cudaIpcGetMemHandle);
	return rt_result(cuIpcGetMemHandle(handle, (uintptr_t)address));
}

cuda_error cudaIpcOpenMemHandle(void **address, struct cuda_ipc handle, unsigned flags)
{
	cuda_addr found = 0;
	RT_ENTER(cudaIpcOpenMemHandle);
	if (!address)
		return rt_result(RT_INVALID_VALUE);
	int result = cuIpcOpenMemHandle_v2(&found, handle, flags);
	*address = (void *)found;
	return rt_result(result);
}

cuda_error cudaIpcCloseMemHandle(void *address)
{
	RT_ENTER(cudaIpcCloseMemHandle);
	return rt_result(cuIpcCloseMemHandle((uintptr_t)address));
}

cuda_error cudaIpcGetEventHandle(struct cuda_ipc *handle, void *event)
{
	RT_ENTER(cudaIpcGetEventHandle);
	return rt_result(cuIpcGetEventHandle(handle, event));
}

cuda_error cudaIpcOpenEventHandle(void **event, struct cuda_ipc handle)
{
	RT_ENTER(cudaIpcOpenEventHandle);
	return rt_result(cuIpcOpenEventHandle(event, handle));
}

/* ---- host memory ------------------------------------------------------------ */

cuda_error cudaHostAlloc(void **address, size_t size, unsigned flags)
{
	RT_ENTER(cudaHostAlloc);
	if (!address)
		return rt_result(RT_INVALID_VALUE);
	*address = NULL;
	return rt_result(size ? cuMemHostAlloc(address, size, flags) : RT_SUCCESS);
}

cuda_error cudaMallocHost(void **address, size_t size)
{
	RT_COUNT(cudaMallocHost);
	return cudaHostAlloc(address, size, 0);
}

cuda_error cudaFreeHost(void *address)
{
	RT_ENTER(cudaFreeHost);
	return rt_result(address ? cuMemFreeHost(address) : RT_SUCCESS);
}

cuda_error cudaHostRegister(void *address, size_t size, unsigned flags)
{
	RT_ENTER(cudaHostRegister);
	return rt_result(cuMemHostRegister_v2(address, size, flags));
}

cuda_error cudaHostUnregister(void *address)
{
	RT_ENTER(cudaHostUnregister);
	return rt_result(cuMemHostUnregister(address));
}

cuda_error cudaHostGetDevicePointer(void **device, void *address, unsigned flags)
{
	cuda_addr found = 0;
	RT_ENTER(cudaHostGetDevicePointer);
	if (!device)
		return rt_result(RT_INVALID_VALUE);
	int result = cuMemHostGetDevicePointer_v2(&found, address, flags);
	*device = (void *)found;
	return rt_result(result);
}

cuda_error cudaHostGetFlags(unsigned *flags, void *address)
{
	RT_ENTER(cudaHostGetFlags);
	return rt_result(cuMemHostGetFlags(flags, address));
}

cuda_error cudaPointerGetAttributes(struct rt_pointer *out, const void *address)
{
	unsigned type = 0;
	RT_ENTER(cudaPointerGetAttributes);
	if (!out)
		return rt_result(RT_INVALID_VALUE);
	memset(out, 0, sizeof *out);
	if (cuPointerGetAttribute(&type, TRZ_CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)address) != RT_SUCCESS) {
		out->type = RT_MEMORY_UNREGISTERED;
		out->device = -2;
		out->on_host = (void *)address;
		return RT_SUCCESS;
	}
	bool host = type == TRZ_CU_MEMORYTYPE_HOST;
	int managed = 0;
	cuPointerGetAttribute(&managed, TRZ_CU_POINTER_ATTRIBUTE_IS_MANAGED, (uintptr_t)address);
	out->type = host ? RT_MEMORY_HOST : managed ? RT_MEMORY_MANAGED : RT_MEMORY_DEVICE;
	cuPointerGetAttribute(&out->device, TRZ_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, (uintptr_t)address);
	out->on_device = (void *)address;
	out->on_host = host || managed ? (void *)address : NULL;
	return RT_SUCCESS;
}

/* ---- pools ------------------------------------------------------------ */

cuda_error cudaMallocAsync(void **address, size_t size, void *stream)
{
	cuda_addr made = 0;
	RT_ENTER(cudaMallocAsync);
	if (!address)
		return rt_result(RT_INVALID_VALUE);
	int result = size ? cuMemAllocAsync(&made, size, stream) : RT_SUCCESS;
	*address = (void *)made;
	return rt_result(result);
}

cuda_error cudaMallocFromPoolAsync(void **address, size_t size, void *pool, void *stream)
{
	cuda_addr made = 0;
	RT_ENTER(cudaMallocFromPoolAsync);
	if (!address)
		return rt_result(RT_INVALID_VALUE);
	int result = size || !pool ? cuMemAllocFromPoolAsync(&made, size, pool, stream) : RT_SUCCESS;
	*address = (void *)made;
	return rt_result(result);
}

cuda_error cudaFreeAsync(void *address, void *stream)
{
	RT_ENTER(cudaFreeAsync);
	return rt_result(address ? cuMemFreeAsync((uintptr_t)address, stream) : RT_SUCCESS);
}

cuda_error cudaMemPoolCreate(void **pool, const struct cuda_pool_props *props)
{
	RT_ENTER(cudaMemPoolCreate);
	return rt_result(cuMemPoolCreate(pool, props));
}

cuda_error cudaMemPoolDestroy(void *pool)
{
	RT_ENTER(cudaMemPoolDestroy);
	return rt_result(cuMemPoolDestroy(pool));
}

cuda_error cudaMemPoolTrimTo(void *pool, size_t keep)
{
	RT_ENTER(cudaMemPoolTrimTo);
	return rt_result(cuMemPoolTrimTo(pool, keep));
}

cuda_error cudaMemPoolSetAttribute(void *pool, int attribute, void *value)
{
	RT_ENTER(cudaMemPoolSetAttribute);
	return rt_result(cuMemPoolSetAttribute(pool, attribute, value));
}

cuda_error cudaMemPoolGetAttribute(void *pool, int attribute, void *value)
{
	RT_ENTER(cudaMemPoolGetAttribute);
	return rt_result(cuMemPoolGetAttribute(pool, attribute, value));
}

cuda_error cudaMemPoolSetAccess(void *pool, const struct cuda_mem_access *access, size_t count)
{
	RT_ENTER(cudaMemPoolSetAccess);
	return rt_result(cuMemPoolSetAccess(pool, access, count));
}

cuda_error cudaMemPoolGetAccess(int *flags, void *pool, struct cuda_mem_location *location)
{
	RT_ENTER(cudaMemPoolGetAccess);
	return rt_result(cuMemPoolGetAccess(flags, pool, location));
}

cuda_error cudaMemPoolExportToShareableHandle(void *handle, void *pool, int kind, unsigned flags)
{
	RT_ENTER(cudaMemPoolExportToShareableHandle);
	return rt_result(cuMemPoolExportToShareableHandle(handle, pool, kind, flags));
}

cuda_error cudaMemPoolImportFromShareableHandle(void **pool, void *handle, int kind, unsigned flags)
{
	RT_ENTER(cudaMemPoolImportFromShareableHandle);
	return rt_result(cuMemPoolImportFromShareableHandle(pool, handle, kind, flags));
}

cuda_error cudaMemPoolExportPointer(struct cuda_ipc *share, void *address)
{
	RT_ENTER(cudaMemPoolExportPointer);
	return rt_result(cuMemPoolExportPointer(share, (uintptr_t)address));
}

cuda_error cudaMemPoolImportPointer(void **address, void *pool, const struct cuda_ipc *share)
{
	cuda_addr found = 0;
	RT_ENTER(cudaMemPoolImportPointer);
	int result = cuMemPoolImportPointer(&found, pool, share);
	if (result == RT_SUCCESS)
		*address = (void *)found;
	return rt_result(result);
}

cuda_error cudaDeviceGetDefaultMemPool(void **pool, int device)
{
	RT_ENTER(cudaDeviceGetDefaultMemPool);
	return rt_result(cuDeviceGetDefaultMemPool(pool, device));
}

cuda_error cudaMemGetDefaultMemPool(void **pool, const struct cuda_mem_location *location, int type)
{
	RT_ENTER(cudaMemGetDefaultMemPool);
	return rt_result(cuMemGetDefaultMemPool(pool, location, type));
}

cuda_error cudaMemGetMemPool(void **pool, const struct cuda_mem_location *location, int type)
{
	RT_ENTER(cudaMemGetMemPool);
	return rt_result(cuMemGetMemPool(pool, location, type));
}

cuda_error cudaMemSetMemPool(const struct cuda_mem_location *location, int type, void *pool)
{
	RT_ENTER(cudaMemSetMemPool);
	return rt_result(cuMemSetMemPool(location, type, pool));
}

cuda_error cudaDeviceGetMemPool(void **pool, int device)
{
	RT_ENTER(cudaDeviceGetMemPool);
	return rt_result(cuDeviceGetMemPool(pool, device));
}

cuda_error cudaDeviceSetMemPool(int device, void *pool)
{
	RT_ENTER(cudaDeviceSetMemPool);
	return rt_result(cuDeviceSetMemPool(device, pool));
}

cuda_error cudaDeviceGetGraphMemAttribute(int device, int attribute, void *value)
{
	RT_ENTER(cudaDeviceGetGraphMemAttribute);
	return rt_result(cuDeviceGetGraphMemAttribute(device, attribute, value));
}

cuda_error cudaDeviceSetGraphMemAttribute(int device, int attribute, void *value)
{
	RT_ENTER(cudaDeviceSetGraphMemAttribute);
	return rt_result(cuDeviceSetGraphMemAttribute(device, attribute, value));
}

cuda_error cudaDeviceGraphMemTrim(int device)
{
	RT_ENTER(cudaDeviceGraphMemTrim);
	return rt_result(cuDeviceGraphMemTrim(device));
}

cuda_error cudaMemRangeGetAttribute(void *data, size_t data_size, int attribute, const void *address, size_t size)
{
	RT_ENTER(cudaMemRangeGetAttribute);
	return rt_result(cuMemRangeGetAttribute(data, data_size, attribute, (uintptr_t)address, size));
}

cuda_error cudaMemRangeGetAttributes(void **data, size_t *data_sizes, int *attributes, size_t count,
                                     const void *address, size_t size)
{
	RT_ENTER(cudaMemRangeGetAttributes);
	return rt_result(cuMemRangeGetAttributes(data, data_sizes, attributes, count, (uintptr_t)address, size));
}

#if RUNTIME_MAJOR < 13
cuda_error cudaMemAdvise(const void *address, size_t size, int advice, int device)
{
	RT_ENTER(cudaMemAdvise);
	return rt_result(cuMemAdvise((uintptr_t)address, size, advice, device));
}

cuda_error cudaMemPrefetchAsync(const void *address, size_t size, int device, void *stream)
{
	RT_ENTER(cudaMemPrefetchAsync);
	return rt_result(cuMemPrefetchAsync((uintptr_t)address, size, device, stream));
}
#else
cuda_error cudaMemAdvise(const void *address, size_t size, int advice, struct cuda_mem_location location)
{
	RT_ENTER(cudaMemAdvise);
	return rt_result(cuMemAdvise_v2((uintptr_t)address, size, advice, location));
}

cuda_error cudaMemPrefetchAsync(const void *address, size_t size, struct cuda_mem_location location, unsigned flags,
                                void *stream)
{
	RT_ENTER(cudaMemPrefetchAsync);
	return rt_result(cuMemPrefetchAsync_v2((uintptr_t)address, size, location, flags, stream));
}
#endif
