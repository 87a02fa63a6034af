/* SPDX-License-Identifier: Apache-2.0
 *
 * Settings that change nothing here, and names that old programs still call.
 */
#include "runtime_lookalike.h"

LOOKALIKE_API struct rt_channel cudaCreateChannelDesc(int x, int y, int z, int w, int kind);

struct rt_channel cudaCreateChannelDesc(int x, int y, int z, int w, int kind)
{
	return (struct rt_channel){x, y, z, w, kind};
}

/* 0: the driver chooses the width of banks. */
cuda_error cudaDeviceGetSharedMemConfig(int *config)
{
	RT_ENTER(cudaDeviceGetSharedMemConfig);
	if (!config)
		return rt_result(RT_INVALID_VALUE);
	*config = 0;
	return RT_SUCCESS;
}

cuda_error cudaDeviceSetSharedMemConfig(int config)
{
	RT_ENTER(cudaDeviceSetSharedMemConfig);
	(void)config;
	return RT_SUCCESS;
}

cuda_error cudaFuncSetSharedMemConfig(const void *symbol, int config)
{
	RT_ENTER(cudaFuncSetSharedMemConfig);
	(void)config;
	return rt_result(rt_function(symbol) ? RT_SUCCESS : RT_INVALID_FUNCTION);
}

cuda_error cudaCtxResetPersistingL2Cache(void)
{
	RT_ENTER(cudaCtxResetPersistingL2Cache);
	return RT_SUCCESS;
}

/* All devices are alike. */
cuda_error cudaChooseDevice(int *chosen, const struct rt_properties *wanted)
{
	RT_INIT(cudaChooseDevice);
	if (!chosen)
		return rt_result(RT_INVALID_VALUE);
	(void)wanted;
	*chosen = 0;
	return RT_SUCCESS;
}

/* Managed memory is plain memory. */
cuda_error cudaStreamAttachMemAsync(void *stream, void *address, size_t size, unsigned flags)
{
	RT_ENTER(cudaStreamAttachMemAsync);
	return rt_result(cuStreamAttachMemAsync(stream, (uintptr_t)address, size, flags));
}

#if RUNTIME_MAJOR < 13
cuda_error cudaThreadExit(void)
{
	RT_COUNT(cudaThreadExit);
	return cudaDeviceReset();
}

cuda_error cudaThreadSynchronize(void)
{
	RT_COUNT(cudaThreadSynchronize);
	return cudaDeviceSynchronize();
}

cuda_error cudaThreadGetLimit(size_t *value, int limit)
{
	RT_COUNT(cudaThreadGetLimit);
	return cudaDeviceGetLimit(value, limit);
}

cuda_error cudaThreadSetLimit(int limit, size_t value)
{
	RT_COUNT(cudaThreadSetLimit);
	return cudaDeviceSetLimit(limit, value);
}

cuda_error cudaThreadGetCacheConfig(int *config)
{
	RT_COUNT(cudaThreadGetCacheConfig);
	return cudaDeviceGetCacheConfig(config);
}

cuda_error cudaThreadSetCacheConfig(int config)
{
	RT_COUNT(cudaThreadSetCacheConfig);
	return cudaDeviceSetCacheConfig(config);
}

/* Does nothing: devices have long had doubles. */
cuda_error cudaSetDoubleForDevice(double *value)
{
	RT_COUNT(cudaSetDoubleForDevice);
	(void)value;
	return RT_SUCCESS;
}

cuda_error cudaSetDoubleForHost(double *value)
{
	RT_COUNT(cudaSetDoubleForHost);
	(void)value;
	return RT_SUCCESS;
}

cuda_error cudaEventElapsedTime_v2(float *milliseconds, void *start, void *end)
{
	RT_COUNT(cudaEventElapsedTime_v2);
	return cudaEventElapsedTime(milliseconds, start, end);
}

cuda_error cudaMemAdvise_v2(const void *address, size_t size, int advice, struct cuda_mem_location location)
{
	RT_ENTER(cudaMemAdvise_v2);
	return rt_result(cuMemAdvise_v2((uintptr_t)address, size, advice, location));
}

cuda_error cudaMemPrefetchAsync_v2(const void *address, size_t size, struct cuda_mem_location location, unsigned flags,
                                   void *stream)
{
	RT_ENTER(cudaMemPrefetchAsync_v2);
	return rt_result(cuMemPrefetchAsync_v2((uintptr_t)address, size, location, flags, stream));
}
#endif
