/* SPDX-License-Identifier: Apache-2.0
 *
 * A program whose CUDA calls are replaced by terrazzo's. With an argument it exports memory to other processes.
 */
#define TRZ_CUDA_REPLACE
#include "terrazzo_cuda.h"

#include <cstdio>

__global__ void set(int *to)
{
	to[threadIdx.x] = threadIdx.x;
}

#define MUST(call)                                                                   \
	do {                                                                             \
		cudaError_t error = (call);                                                  \
		if (error != cudaSuccess) {                                                  \
			std::printf("line %d: %s\n", __LINE__, cudaGetErrorString(error));       \
			return 1;                                                                \
		}                                                                            \
	} while (0)

/* The first handle is refused, since the memory is a heap's; later memory is the driver's. */
static int share()
{
	cudaIpcMemHandle_t handle;
	int *a, *b;
	MUST(cudaMalloc(&a, 4096));
	if (cudaIpcGetMemHandle(&handle, a) != cudaErrorNotSupported || cudaGetLastError() != cudaErrorNotSupported ||
	    cudaIpcGetMemHandle(&handle, a) != cudaErrorNotSupported || cudaGetLastError() != cudaErrorNotSupported)
		return 5;
	MUST(cudaMalloc(&b, 4096));
	MUST(cudaIpcGetMemHandle(&handle, b));
	MUST(cudaFree(a));
	MUST(cudaFree(b));
	std::puts("all right");
	return 0;
}

int main(int count, char **)
{
	if (count > 1)
		return share();
	int *a, *b, *c;
	size_t pitch, unused, total;
	cudaStream_t stream;
	cudaMemPool_t pool;
	MUST(cudaStreamCreate(&stream));
	MUST(cudaMalloc(&a, 4096));
	MUST(cudaMallocPitch(&b, &pitch, 100, 10));
	MUST(cudaMallocAsync(&c, 1 << 20, stream));
	set<<<1, 32, 0, stream>>>(c);
	MUST(cudaFreeAsync(c, stream));
	MUST(cudaDeviceGetDefaultMemPool(&pool, 0));
	MUST(cudaMallocAsync(&c, 1 << 20, pool, stream));
	MUST(cudaFreeAsync(c, stream));
	MUST(cudaMallocFromPoolAsync((void **)&c, 1 << 20, pool, stream));
	MUST(cudaFree(c));
	unsigned long long bytes = 0;
	MUST(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &bytes));
	MUST(cudaMemPoolTrimTo(pool, 0));
	MUST(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &bytes));
	cudaMemAccessDesc access = {};
	access.location.type = cudaMemLocationTypeDevice;
	access.flags = cudaMemAccessFlagsProtReadWrite;
	MUST(cudaMemPoolSetAccess(pool, &access, 1));
	if (cudaDeviceEnablePeerAccess(0, 0) == cudaSuccess || cudaGetLastError() == cudaSuccess ||
	    cudaDeviceDisablePeerAccess(0) == cudaSuccess || cudaGetLastError() == cudaSuccess)
		return 4;
	MUST(cudaMemGetInfo(&unused, &total));
	MUST(cudaFree(a));
	MUST(cudaFree(b));
	if (cudaFree(b) != cudaErrorInvalidValue || cudaPeekAtLastError() != cudaErrorInvalidValue ||
	    cudaGetLastError() != cudaErrorInvalidValue || cudaGetLastError() != cudaSuccess)
		return 2;
	MUST(cudaStreamDestroy(stream));
	if (!trz_cudaHeap())
		return 3;
	MUST(cudaDeviceReset());
	std::puts("all right");
	return 0;
}
