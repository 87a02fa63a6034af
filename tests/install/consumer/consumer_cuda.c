/* SPDX-License-Identifier: Apache-2.0
 *
 * The smallest program that uses CUDA's calls over an installed terrazzo: prints the version, and the results of an
 * allocation and its free.
 */
#define TRZ_CUDA_NO_TOOLKIT
#include <stdio.h>
#include <terrazzo.h>
#include <terrazzo_cuda.h>

int main(void)
{
	void *memory = NULL;
	int error = trz_cudaMalloc(&memory, 1000);
	if (error == 0)
		error = trz_cudaFree(memory);
	printf("%s TRZ_%s\n", trz_version(), error == 0 && trz_cudaHeap() != NULL ? "OK" : "ERROR_NO_DRIVER");
	return 0;
}
