/* SPDX-License-Identifier: Apache-2.0
 *
 * cuBLASLt: one algorithm for every product, without a workspace of its own.
 */
#include <stdlib.h>
#include <string.h>

#include "standin.h"

/* cublasLtMatmulHeuristicResult_t, a part of the library's binary interface. */
struct heuristic {
	uint64_t algorithm[8];
	size_t workspace_bytes;
	int status;
	float waves;
	int reserved[4];
};

STANDIN_HANDLE(cublasLtCreate, cublasLtDestroy)

size_t cublasLtGetVersion(void)
{
	return STANDIN_MAJOR * (STANDIN_MAJOR > 11 ? 10000 : 1000) + STANDIN_MINOR * 100 + STANDIN_PATCH;
}

size_t cublasLtGetCudartVersion(void)
{
	return STANDIN_CUDA_MAJOR * 1000 + STANDIN_CUDA_MINOR * 10;
}

STANDIN_PROPERTY(cublasLtGetProperty)

int cublasLtMatmulDescCreate(void **made, int compute, int scale)
{
	(void)compute, (void)scale;
	*made = standin_descriptor(64);
	return 0;
}

int cublasLtMatrixLayoutCreate(void **made, int type, uint64_t rows, uint64_t columns, int64_t lead)
{
	(void)type, (void)rows, (void)columns, (void)lead;
	*made = standin_descriptor(64);
	return 0;
}

int cublasLtMatmulPreferenceCreate(void **made)
{
	*made = standin_descriptor(64);
	return 0;
}

int cublasLtMatmulDescDestroy(void *made)
{
	free(made);
	return 0;
}

int cublasLtMatrixLayoutDestroy(void *made)
{
	free(made);
	return 0;
}

int cublasLtMatmulPreferenceDestroy(void *made)
{
	free(made);
	return 0;
}

int cublasLtMatmulAlgoGetHeuristic(void *handle, void *operation, void *a, void *b, void *c, void *d,
                                   void *preference, int wanted, struct heuristic *results, int *found)
{
	(void)handle, (void)operation, (void)a, (void)b, (void)c, (void)d, (void)preference;
	*found = wanted > 0;
	if (*found)
		*results = (struct heuristic){ .waves = 1 };
	return 0;
}

int cublasLtMatmul(void *handle, void *operation, void *alpha, void *a, void *a_layout, void *b, void *b_layout,
                   void *beta, void *c, void *c_layout, void *d, void *d_layout, void *algorithm,
                   void *workspace, size_t workspace_bytes, void *stream)
{
	(void)handle, (void)operation, (void)alpha, (void)a_layout, (void)b_layout, (void)beta, (void)c_layout;
	(void)d_layout, (void)algorithm;
	const uint64_t words[] = { (uintptr_t)a, (uintptr_t)b, (uintptr_t)c, (uintptr_t)d,
		                       workspace_bytes ? (uintptr_t)workspace : 0 };
	return standin_work("cublasLtMatmul", stream, words, sizeof words / sizeof words[0]);
}
