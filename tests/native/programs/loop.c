/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocates and frees a buffer again and again: loop COUNT MIB WAY, where WAY is plain, kernel (one is pending when the
 * buffer is freed), or async.
 */
#include <string.h>

#include "cuda_calls.h"

int cudaMallocAsync(void **ptr, size_t size, void *stream);
int cudaFreeAsync(void *ptr, void *stream);

int main(int count, char **arguments)
{
	CHECK(count == 4);
	const long rounds = atol(arguments[1]);
	const size_t size = (size_t)atol(arguments[2]) * MIB;
	const int async = strcmp(arguments[3], "async") == 0, busy = strcmp(arguments[3], "plain") != 0;
	void *p, *stream, *kernel;
	MUST(cudaFree(NULL));
	MUST(cudaStreamCreateWithFlags(&stream, NON_BLOCKING));
	kernel = touching_kernel();
	for (long i = 0; i < rounds; i++) {
		MUST(async ? cudaMallocAsync(&p, size, stream) : cudaMalloc(&p, size));
		if (busy)
			touch(kernel, p, stream);
		MUST(async ? cudaFreeAsync(p, stream) : cudaFree(p));
	}
	MUST(cudaStreamDestroy(stream));
	puts("all right");
	return 0;
}
