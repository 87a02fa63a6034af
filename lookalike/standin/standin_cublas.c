/* SPDX-License-Identifier: Apache-2.0
 *
 * cuBLAS: its handle with its modes, and its copies. The functions for products are generated.
 */
#include <stdlib.h>

#include "standin.h"
#include "standin_driver.h"

enum { ALLOC_FAILED = 3 };
enum { ATOMICS_MODE = STANDIN_POINTER_MODE + 1, MATH_MODE, SM_COUNT };

int cuMemAlloc_v2(uint64_t *, size_t);
int cuMemFree_v2(uint64_t);
int cuCtxGetDevice(int *);
int cuCtxSynchronize(void);
int cuDeviceGetAttribute(int *, int, int);

/* ---- the handle ------------------------------------------------------------------------------------ */

/* What CUBLAS_WORKSPACE_CONFIG says, `:KiB:count` once or twice. */
static size_t configured(const char *text)
{
	size_t bytes = 0;
	char *end;
	while (*text == ':') {
		size_t kib = strtoul(text + 1, &end, 10);
		if (*end != ':')
			break;
		bytes += (kib << 10) * strtoul(end + 1, &end, 10);
		text = end;
	}
	return bytes;
}

/* A context of cuBLAS allocates a workspace: by NVIDIA's documentation 32 MiB for Hopper and the large Blackwell, 12
 * MiB for the small one, and for others what :4096:8, which takes 24 MiB more, exceeds. */
static size_t workspace_bytes(void)
{
	enum { MAJOR = 75 };
	const char *text = getenv("CUBLAS_WORKSPACE_CONFIG");
	int device = 0, major = 0;
	if (!trz_lookalike_counts_contexts || !trz_lookalike_counts_contexts())
		return 0;
	if (text && *text == ':')
		return configured(text);
	if (cuCtxGetDevice(&device) == 0)
		cuDeviceGetAttribute(&major, MAJOR, device);
	return major == 9 || major == 10 ? 32 << 20 : major > 10 ? 12 << 20 : (2 * 4096 + 8 * 16) << 10;
}

int cublasCreate_v2(void **handle)
{
	uint64_t area = 0;
	if (!handle)
		return STANDIN_INVALID_VALUE;
	*handle = NULL;
	if (trz_lookalike_bind && trz_lookalike_bind() != 0)
		return STANDIN_NOT_INITIALIZED;
	size_t bytes = workspace_bytes();
	if (bytes && cuMemAlloc_v2(&area, bytes) != 0)
		return ALLOC_FAILED;
	*handle = standin_handle();
	*standin_memory(*handle) = area;
	return 0;
}

int cublasDestroy_v2(void *handle)
{
	if (!standin_is_handle(handle))
		return STANDIN_NOT_INITIALIZED;
	cuCtxSynchronize();
	if (*standin_memory(handle))
		cuMemFree_v2(*standin_memory(handle));
	standin_drop(handle);
	return 0;
}

STANDIN_STREAM(cublasSetStream_v2, cublasGetStream_v2)
STANDIN_HANDLE(cublasXtCreate, cublasXtDestroy)

STANDIN_MODE(cublasSetPointerMode_v2, cublasGetPointerMode_v2, STANDIN_POINTER_MODE, 1)
STANDIN_MODE(cublasSetAtomicsMode, cublasGetAtomicsMode, ATOMICS_MODE, 1)
STANDIN_MODE(cublasSetMathMode, cublasGetMathMode, MATH_MODE, INT32_MAX)
STANDIN_MODE(cublasSetSmCountTarget, cublasGetSmCountTarget, SM_COUNT, INT32_MAX)

/* The program's own workspace. */
int cublasSetWorkspace_v2(void *handle, const void *workspace, size_t bytes)
{
	(void)bytes;
	if (!standin_is_handle(handle))
		return STANDIN_NOT_INITIALIZED;
	return (uintptr_t)workspace % 256 ? STANDIN_INVALID_VALUE : 0;
}

/* From version 12 on, the major number counts ten thousands. */
int cublasGetVersion_v2(void *handle, int *version)
{
	(void)handle;
	int failed = standin_tell_version(version);
	if (!failed && STANDIN_MAJOR > 11)
		*version += STANDIN_MAJOR * 9000;
	return failed;
}

STANDIN_PROPERTY(cublasGetProperty)

size_t cublasGetCudartVersion(void)
{
	return STANDIN_CUDA_MAJOR * 1000 + STANDIN_CUDA_MINOR * 10;
}

const char *cublasGetStatusName(int status)
{
	static const char *const names[] = {
		"CUBLAS_STATUS_SUCCESS", "CUBLAS_STATUS_NOT_INITIALIZED", [3] = "CUBLAS_STATUS_ALLOC_FAILED",
		[7] = "CUBLAS_STATUS_INVALID_VALUE", "CUBLAS_STATUS_ARCH_MISMATCH", [11] = "CUBLAS_STATUS_MAPPING_ERROR",
		[13] = "CUBLAS_STATUS_EXECUTION_FAILED", "CUBLAS_STATUS_INTERNAL_ERROR", "CUBLAS_STATUS_NOT_SUPPORTED",
		"CUBLAS_STATUS_LICENSE_ERROR",
	};
	const char *name = status >= 0 && (size_t)status < sizeof names / sizeof names[0] ? names[status] : NULL;
	return name ? name : "unknown cuBLAS status";
}

const char *cublasGetStatusString(int status)
{
	enum { NOT_SUPPORTED = 15 };
	if (status == NOT_SUPPORTED)
		return "not supported by terrazzo's stand-in for cuBLAS";
	return status ? cublasGetStatusName(status) : "success";
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
	if (trz_lookalike_bind && trz_lookalike_bind() != 0)
		return STANDIN_NOT_INITIALIZED;
	const struct rows r = {
		{.type = UNIFIED, .address = from, .pitch = from_pitch}, {.type = UNIFIED, .address = to, .pitch = to_pitch},
		width, height,
	};
	int failed = waits ? cuMemcpy2D_v2(&r) : cuMemcpy2DAsync_v2(&r, stream);
	return failed ? MAPPING_ERROR : 0;
}

/* Copies a vector: its elements as rows, unless they lie side by side. */
static int copy_vector(int64_t n, int64_t element, const void *from, int64_t from_step, void *to, int64_t to_step,
                       void *stream, int waits)
{
	if (n < 0 || element <= 0 || from_step <= 0 || to_step <= 0)
		return STANDIN_INVALID_VALUE;
	if (from_step == 1 && to_step == 1)
		return copy(from, n * element, to, n * element, n * element, n > 0, stream, waits);
	return copy(from, from_step * element, to, to_step * element, element, n, stream, waits);
}

static int copy_matrix(int64_t m, int64_t n, int64_t element, const void *from, int64_t from_lead, void *to,
                       int64_t to_lead, void *stream, int waits)
{
	if (m < 0 || n < 0 || element <= 0 || from_lead <= 0 || to_lead <= 0)
		return STANDIN_INVALID_VALUE;
	return copy(from, from_lead * element, to, to_lead * element, m * element, n, stream, waits);
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
		return copy_matrix(m, n, element, from, from_lead, to, to_lead, NULL, 1);                               \
	}
#define MATRICES_ASYNC(name, number)                                                                            \
	int name(number m, number n, number element, const void *from, number from_lead, void *to, number to_lead,  \
	         void *s)                                                                                           \
	{                                                                                                           \
		return copy_matrix(m, n, element, from, from_lead, to, to_lead, s, 0);                                  \
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
