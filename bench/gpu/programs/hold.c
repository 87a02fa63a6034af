/* SPDX-License-Identifier: Apache-2.0
 *
 * Holds memory by cudaMalloc and cudaMallocAsync, some of it freed again, until its input ends: a process to look at
 * from outside.
 */
#include <cuda_runtime_api.h>
#include <stdio.h>

static void must(cudaError_t result)
{
	if (result == cudaSuccess)
		return;
	fprintf(stderr, "hold: %s\n", cudaGetErrorString(result));
	_Exit(1);
}

__attribute__((noinline)) static void *hold_weights(size_t size)
{
	void *p;
	must(cudaMalloc(&p, size));
	must(cudaMemset(p, 1, size));
	return p;
}

__attribute__((noinline)) static void *hold_activations(size_t size, cudaStream_t stream)
{
	void *p;
	must(cudaMallocAsync(&p, size, stream));
	must(cudaMemsetAsync(p, 2, size, stream));
	return p;
}

int main(void)
{
	cudaStream_t stream;
	void *freed;
	must(cudaStreamCreate(&stream));
	for (int i = 0; i < 10; i++)
		hold_weights((size_t)100 << 20);
	freed = hold_activations((size_t)300 << 20, stream);
	hold_activations((size_t)200 << 20, stream);
	must(cudaFreeAsync(freed, stream));
	must(cudaDeviceSynchronize());
	printf("ready\n");
	fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
}
