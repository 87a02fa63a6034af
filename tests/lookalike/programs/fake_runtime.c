/* SPDX-License-Identifier: Apache-2.0
 *
 * Stands for NVIDIA's runtime, linked statically, where there is no toolkit: functions of its names, each of which
 * gives NOT_REDIRECTED. FAKE_MAJOR chooses which functions it has, 10 and 0 are runtimes that nobody redirects.
 */
#include <stdio.h>
#include <stdlib.h>

enum { NOT_REDIRECTED = -1 };

/* The compiler must expect anything of them. */
#if defined(__clang__)
#define HIDDEN __attribute__((visibility("hidden"), noinline, optnone))
#else
#define HIDDEN __attribute__((visibility("hidden"), noipa))
#endif

/* Long enough that a jump fits, and no two are equal. */
#define FAKE(name, parameters)                          \
	HIDDEN int name parameters;                         \
	int name parameters                                 \
	{                                                   \
		static volatile int calls;                      \
		calls++;                                        \
		return calls > 0 ? NOT_REDIRECTED : (int)sizeof(#name); \
	}

FAKE(cudaMalloc, (void **p, size_t bytes))
FAKE(cudaFree, (void *p))
FAKE(cudaRuntimeGetVersion, (int *version))
FAKE(cudaHostAlloc, (void **p, size_t bytes, unsigned flags))
FAKE(cudaLaunchKernelNoSuchForm, (float a, double b))
#if FAKE_MAJOR > 10
FAKE(cudaStreamSetAttribute, (void *stream, int attribute, const void *value))
#endif
#if FAKE_MAJOR == 11
FAKE(cudaBindTexture, (size_t *offset))
#endif
#if FAKE_MAJOR == 12
FAKE(cudaGetDeviceProperties, (void *properties, int device))
FAKE(cudaGetDeviceProperties_v2, (void *properties, int device))
#endif
#if FAKE_MAJOR > 0
FAKE(__cudaRegisterFatBinary, (void *image))
#endif

static int use(const char *who)
{
	int version = 0, failed = cudaRuntimeGetVersion(&version);
	void *p = NULL;
	if (!failed)
		failed = cudaMalloc(&p, 1 << 20);
	printf("%s: %d, version %d, %s\n", who, failed, version / 1000, p ? "memory" : "none");
	fflush(stdout);
	return failed ? failed : cudaFree(p);
}

int use_runtime(const char *who);

int use_runtime(const char *who)
{
	return use(who);
}

#ifdef FAKE_IN_LIBRARY
__attribute__((constructor)) static void begin(void)
{
	use("constructor");
}
#endif
