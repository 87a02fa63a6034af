/* SPDX-License-Identifier: Apache-2.0
 *
 * A program written for CUDA's own calls runs on terrazzo with one definition and one header: from there on, cudaMalloc
 * and its siblings are terrazzo's.
 */
#define TRZ_CUDA_REPLACE
#include <terrazzo_cuda.h>

#include <stdio.h>
#include <string.h>

int main(void)
{
	char text[] = "through device memory", back[sizeof text] = "";
	for (int i = 0; i < 1000; i++) {
		void *one, *two;
		if (cudaMalloc(&one, 20 << 20) || cudaMallocAsync(&two, sizeof text, NULL))
			return 1;
		if (cudaMemcpy(one, text, sizeof text, cudaMemcpyHostToDevice) ||
		    cudaMemcpy(two, one, sizeof text, cudaMemcpyDeviceToDevice) ||
		    cudaMemcpy(back, two, sizeof text, cudaMemcpyDeviceToHost))
			return 2;
		if (cudaFreeAsync(two, NULL) || cudaFree(one))
			return 3;
	}
	printf("%s\n", strcmp(text, back) == 0 ? "all right" : "WRONG");
	return strcmp(text, back) != 0;
}
