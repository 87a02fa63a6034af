/* SPDX-License-Identifier: Apache-2.0
 *
 * A program that makes handles of its memory for other processes, in CUDA's older way, and prints the result of each
 * attempt.
 */
#include "cuda_calls.h"

struct handle {
	char bytes[64];
};

int cudaIpcGetMemHandle(struct handle *handle, void *ptr);

int main(void)
{
	struct handle handle;
	void *p;
	for (int i = 0; i < 2; i++) {
		MUST(cudaMalloc(&p, 4 * MIB));
		printf("%d ", cudaIpcGetMemHandle(&handle, p));
		cudaGetLastError();
		MUST(cudaFree(p));
	}
	puts("all right");
	return 0;
}
