/* SPDX-License-Identifier: Apache-2.0
 *
 * cuBLAS: its handle, and its copies. The functions for products are generated.
 */
#include <stdlib.h>

#include "standin.h"

STANDIN_HANDLE(cublasCreate_v2, cublasDestroy_v2)
STANDIN_HANDLE(cublasXtCreate, cublasXtDestroy)

int cublasSetStream_v2(void *handle, void *stream)
{
	standin_set_stream(handle, stream);
	return 0;
}

int cublasGetStream_v2(void *handle, void **stream)
{
	*stream = standin_stream(handle);
	return 0;
}

/* Our handles are always in the default modes: setting one changes nothing. */
int cublasGetMathMode(void *handle, int *mode)
{
	(void)handle;
	*mode = 0;
	return 0;
}

int cublasGetPointerMode_v2(void *handle, int *mode)
{
	(void)handle;
	*mode = 0;
	return 0;
}

int cublasGetVersion_v2(void *handle, int *version)
{
	(void)handle;
	*version = 130200;
	return 0;
}

const char *cublasGetStatusString(int status)
{
	return status ? "refused by terrazzo's stand-in for cuBLAS" : "success";
}

/* ---- copies between host and device ------------------------------------------------------------ */

/* CUDA_MEMCPY2D */
struct side {
	size_t x, y;
	int type;
	const void *host;
	const void *address;
	void *array;
	size_t pitch;
};
struct rows {
	struct side from, to;
	size_t width, height;
};
int cuMemcpy2D_v2(const struct rows *);
int cuMemcpy2DAsync_v2(const struct rows *, void *);

/* Copies rows of `width` bytes between host or device addresses. */
static int copy(const void *from, size_t from_pitch, void *to, size_t to_pitch, size_t width, size_t height,
                void *stream, int waits)
{
	enum { UNIFIED = 4, MAPPING_ERROR = 11 };
	const struct rows r = {
		{.type = UNIFIED, .address = from, .pitch = from_pitch}, {.type = UNIFIED, .address = to, .pitch = to_pitch},
		width, height,
	};
	int failed = waits ? cuMemcpy2D_v2(&r) : cuMemcpy2DAsync_v2(&r, stream);
	return failed ? MAPPING_ERROR : 0;
}

/* Copies a vector: its elements as rows, unless they lie side by side. */
static int copy_vector(size_t n, size_t element, const void *from, size_t from_step, void *to, size_t to_step,
                       void *stream, int waits)
{
	if (from_step == 1 && to_step == 1)
		return copy(from, n * element, to, n * element, n * element, n > 0, stream, waits);
	return copy(from, from_step * element, to, to_step * element, element, n, stream, waits);
}

#define VECTORS(name, number)                                                                                   \
	int name(number n, number element, const void *from, number from_step, void *to, number to_step)            \
	{                                                                                                           \
		return copy_vector(n, element, from, from_step, to, to_step, NULL, 1);                                  \
	}
#define VECTORS_ASYNC(name, number)                                                                             \
	int name(number n, number element, const void *from, number from_step, void *to, number to_step, void *s)   \
	{                                                                                                           \
		return copy_vector(n, element, from, from_step, to, to_step, s, 0);                                     \
	}
#define MATRICES(name, number)                                                                                  \
	int name(number m, number n, number element, const void *from, number from_lead, void *to, number to_lead)  \
	{                                                                                                           \
		return copy(from, (size_t)from_lead * element, to, (size_t)to_lead * element, (size_t)m * element, n, NULL, \
		            1);                                                                                         \
	}
#define MATRICES_ASYNC(name, number)                                                                            \
	int name(number m, number n, number element, const void *from, number from_lead, void *to, number to_lead,  \
	         void *s)                                                                                           \
	{                                                                                                           \
		return copy(from, (size_t)from_lead * element, to, (size_t)to_lead * element, (size_t)m * element, n, s, \
		            0);                                                                                         \
	}

VECTORS(cublasSetVector, int)
VECTORS(cublasGetVector, int)
VECTORS(cublasSetVector_64, int64_t)
VECTORS(cublasGetVector_64, int64_t)
VECTORS_ASYNC(cublasSetVectorAsync, int)
VECTORS_ASYNC(cublasGetVectorAsync, int)
VECTORS_ASYNC(cublasSetVectorAsync_64, int64_t)
VECTORS_ASYNC(cublasGetVectorAsync_64, int64_t)
MATRICES(cublasSetMatrix, int)
MATRICES(cublasGetMatrix, int)
MATRICES(cublasSetMatrix_64, int64_t)
MATRICES(cublasGetMatrix_64, int64_t)
MATRICES_ASYNC(cublasSetMatrixAsync, int)
MATRICES_ASYNC(cublasGetMatrixAsync, int)
MATRICES_ASYNC(cublasSetMatrixAsync_64, int64_t)
MATRICES_ASYNC(cublasGetMatrixAsync_64, int64_t)
