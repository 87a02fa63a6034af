/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA's functions as the test programs call them, without the toolkit's headers; and what all programs need.
 */
#ifndef CUDA_CALLS_H
#define CUDA_CALLS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define MIB ((size_t)1 << 20)
#define KIB ((size_t)1 << 10)

enum {
	SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201, INVALID_HANDLE = 400, ILLEGAL_STATE = 401,
	NOT_READY = 600, CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901
};
enum { TO_DEVICE = 1, TO_HOST = 2, DEVICE_TO_DEVICE = 3, NON_BLOCKING = 1, CAPTURE_RELAXED = 2 };

typedef unsigned long long device_pointer;

/* ---- the runtime ---- */

int cudaFree(void *ptr);
int cudaMalloc(void **ptr, size_t size);
int cudaMemcpy(void *to, const void *from, size_t size, int kind);
int cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream);
int cudaMemset(void *to, int value, size_t size);
int cudaMemsetAsync(void *to, int value, size_t size, void *stream);
int cudaMemGetInfo(size_t *unused, size_t *total);
int cudaStreamCreateWithFlags(void **stream, unsigned flags);
int cudaStreamDestroy(void *stream);
int cudaStreamSynchronize(void *stream);
int cudaStreamBeginCapture(void *stream, int mode);
int cudaStreamEndCapture(void *stream, void **graph);
int cudaGraphDestroy(void *graph);
int cudaDeviceSynchronize(void);
int cudaDeviceReset(void);
int cudaSetDevice(int device);
int cudaGetDevice(int *device);
int cudaGetLastError(void);
int cudaDeviceGetDefaultMemPool(void **pool, int device);

/* ---- the driver ---- */

int cuModuleLoadData(void **module, const void *image);
int cuModuleGetFunction(void **function, void *module, const char *name);
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **arguments, void **extra);

/* ---- checks ---- */

/* Ends the program where the condition does not hold. */
#define CHECK(condition)                                                          \
	do {                                                                          \
		if (!(condition)) {                                                       \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
			exit(1);                                                              \
		}                                                                         \
	} while (0)

/* The call gives this result. */
#define GIVES(result, call)                                                                             \
	do {                                                                                                \
		int given = (int)(call);                                                                        \
		if (given != (result)) {                                                                        \
			fprintf(stderr, "%s:%d: %s: %d instead of %d\n", __FILE__, __LINE__, #call, given, result); \
			exit(1);                                                                                    \
		}                                                                                               \
	} while (0)

#define MUST(call) GIVES(SUCCESS, call)

/* A kernel with one pointer as its parameter, in the current context. */
static inline void *touching_kernel(void)
{
	static const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
	                          ".visible .entry touch_it(.param .u64 p)\n{\nret;\n}\n";
	void *module, *function;
	MUST(cuModuleLoadData(&module, ptx));
	MUST(cuModuleGetFunction(&function, module, "touch_it"));
	return function;
}

static inline void touch(void *function, const void *ptr, void *stream)
{
	void *arguments[] = {&ptr};
	MUST(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, arguments, NULL));
}

#endif
