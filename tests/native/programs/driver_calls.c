/* SPDX-License-Identifier: Apache-2.0
 *
 * A program of the CUDA driver that finds functions in the way that its argument names, allocates in all ways that they
 * offer, copies, and checks what comes back. It does not mention terrazzo, and runs with and without it.
 */
#include <dlfcn.h>
#include <string.h>

#include "cuda_calls.h"

/* X(name, exported name, its per-thread form, CUDA version, parameters) */
#define FUNCTIONS(X)                                                                                           \
	X(cuInit, cuInit, cuInit, 2000, (unsigned))                                                                \
	X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, (void **, int))      \
	X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease_v2, 11000, (int))     \
	X(cuCtxDestroy, cuCtxDestroy_v2, cuCtxDestroy_v2, 4000, (void *))                                          \
	X(cuCtxSetCurrent, cuCtxSetCurrent, cuCtxSetCurrent, 4000, (void *))                                       \
	X(cuCtxSynchronize, cuCtxSynchronize, cuCtxSynchronize, 2000, (void))                                      \
	X(cuMemAlloc, cuMemAlloc_v2, cuMemAlloc_v2, 3020, (device_pointer *, size_t))                              \
	X(cuMemAllocPitch, cuMemAllocPitch_v2, cuMemAllocPitch_v2, 3020,                                           \
	  (device_pointer *, size_t *, size_t, size_t, unsigned))                                                  \
	X(cuMemFree, cuMemFree_v2, cuMemFree_v2, 3020, (device_pointer))                                           \
	X(cuMemGetInfo, cuMemGetInfo_v2, cuMemGetInfo_v2, 3020, (size_t *, size_t *))                              \
	X(cuMemGetAddressRange, cuMemGetAddressRange_v2, cuMemGetAddressRange_v2, 3020,                            \
	  (device_pointer *, size_t *, device_pointer))                                                            \
	X(cuPointerGetAttribute, cuPointerGetAttribute, cuPointerGetAttribute, 4000, (void *, int, device_pointer)) \
	X(cuPointerGetAttributes, cuPointerGetAttributes, cuPointerGetAttributes, 7000,                            \
	  (unsigned, int *, void **, device_pointer))                                                              \
	X(cuMemAllocAsync, cuMemAllocAsync, cuMemAllocAsync_ptsz, 11020, (device_pointer *, size_t, void *))       \
	X(cuMemFreeAsync, cuMemFreeAsync, cuMemFreeAsync_ptsz, 11020, (device_pointer, void *))                    \
	X(cuMemcpyDtoH, cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds, 3020, (void *, device_pointer, size_t))             \
	X(cuMemsetD8Async, cuMemsetD8Async, cuMemsetD8Async_ptsz, 3020,                                            \
	  (device_pointer, unsigned char, size_t, void *))                                                         \
	X(cuStreamCreate, cuStreamCreate, cuStreamCreate, 2000, (void **, unsigned))                               \
	X(cuStreamDestroy, cuStreamDestroy_v2, cuStreamDestroy_v2, 4000, (void *))                                 \
	X(cuStreamSynchronize, cuStreamSynchronize, cuStreamSynchronize_ptsz, 2000, (void *))                      \
	X(cuStreamWaitEvent, cuStreamWaitEvent, cuStreamWaitEvent_ptsz, 3020, (void *, void *, unsigned))          \
	X(cuEventCreate, cuEventCreate, cuEventCreate, 2000, (void **, unsigned))                                  \
	X(cuEventRecord, cuEventRecord, cuEventRecord_ptsz, 2000, (void *, void *))                                \
	X(cuEventDestroy, cuEventDestroy_v2, cuEventDestroy_v2, 4000, (void *))

#define DECLARE(name, exported, thread, version, parameters) \
	int exported parameters;                                  \
	static int(*use_##name) parameters;
FUNCTIONS(DECLARE)

/* ---- ways to find them ---- */

typedef void function(void);

struct wanted {
	const char *name, *exported, *of_thread;
	int version;
	function *linked;
};

int cuCtxCreate_v2(void **context, unsigned flags, int device);
int cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags, int *why);
int cudaGetDriverEntryPoint(const char *name, void **found, unsigned long long flags, int *why);
int cudaGetDriverEntryPointByVersion(const char *name, void **found, unsigned version, unsigned long long flags,
                                     int *why);

enum { DEFAULT_FLAGS = 0, PER_THREAD_FLAGS = 2 };

static function *linked(const struct wanted *w)
{
	return w->linked;
}

static void *library(void)
{
	static void *found;
	if (!found)
		found = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	CHECK(found);
	return found;
}

static function *by_dlsym(const struct wanted *w)
{
	return (function *)dlsym(library(), w->exported);
}

static function *by_dlsym_of_thread(const struct wanted *w)
{
	return (function *)dlsym(library(), w->of_thread);
}

static function *by_address(const struct wanted *w)
{
	void *found = NULL;
	int (*look_up)(const char *, void **, int, uint64_t, int *) =
	    (int (*)(const char *, void **, int, uint64_t, int *))dlsym(library(), "cuGetProcAddress_v2");
	MUST(look_up(w->name, &found, w->version, DEFAULT_FLAGS, NULL));
	return (function *)found;
}

static function *by_address_of_thread(const struct wanted *w)
{
	void *found = NULL;
	MUST(cuGetProcAddress_v2(w->name, &found, w->version, PER_THREAD_FLAGS, NULL));
	return (function *)found;
}

/* The first form of cuGetProcAddress, found by itself. */
static function *by_first_address(const struct wanted *w)
{
	void *look_up = NULL, *found = NULL;
	MUST(cuGetProcAddress_v2("cuGetProcAddress", &look_up, 11030, DEFAULT_FLAGS, NULL));
	MUST(((int (*)(const char *, void **, int, uint64_t))look_up)(w->name, &found, w->version, DEFAULT_FLAGS));
	return (function *)found;
}

static function *by_entry_point(const struct wanted *w)
{
	void *found = NULL;
	MUST(cudaGetDriverEntryPoint(w->name, &found, DEFAULT_FLAGS, NULL));
	return (function *)found;
}

static function *by_entry_point_of_version(const struct wanted *w)
{
	void *found = NULL;
	MUST(cudaGetDriverEntryPointByVersion(w->name, &found, (unsigned)w->version, PER_THREAD_FLAGS, NULL));
	return (function *)found;
}

static const struct {
	const char *name;
	function *(*find)(const struct wanted *w);
} ways[] = {
	{"linked", linked},
	{"dlsym", by_dlsym},
	{"dlsym_ptsz", by_dlsym_of_thread},
	{"address", by_address},
	{"address_ptsz", by_address_of_thread},
	{"address_v1", by_first_address},
	{"entry_point", by_entry_point},
	{"entry_point_version", by_entry_point_of_version},
};

static void find_functions(const char *way)
{
	size_t i = 0;
	while (i < sizeof ways / sizeof ways[0] && strcmp(ways[i].name, way) != 0)
		i++;
	CHECK(i < sizeof ways / sizeof ways[0]);
#define FIND(called, exported_name, thread, since, parameters)                                                  \
	{                                                                                                           \
		const struct wanted w = {#called, #exported_name, #thread, since, (function *)exported_name};           \
		use_##called = (int(*) parameters)ways[i].find(&w);                                                     \
		CHECK(use_##called);                                                                                    \
	}
	FUNCTIONS(FIND)
}

/* ---- what the program does ---- */

static void check_filled(device_pointer ptr, size_t size, int value)
{
	unsigned char *host = malloc(size);
	CHECK(host);
	MUST(use_cuMemcpyDtoH(host, ptr, size));
	for (size_t i = 0; i < size; i++)
		CHECK(host[i] == value);
	free(host);
}

static void check_plain(void)
{
	device_pointer p, q;
	size_t pitch;
	for (int i = 1; i < 100; i++) {
		size_t size = (size_t)i * i * 1000;
		MUST(use_cuMemAlloc(&p, size));
		CHECK(p % 256 == 0);
		MUST(use_cuMemsetD8Async(p, (unsigned char)i, size, NULL));
		MUST(use_cuStreamSynchronize(NULL));
		check_filled(p, size, i);
		MUST(use_cuMemFree(p));
	}
	GIVES(INVALID_VALUE, use_cuMemFree(p));
	GIVES(INVALID_VALUE, use_cuMemAlloc(&p, 0));
	GIVES(OUT_OF_MEMORY, use_cuMemAlloc(&p, (size_t)1 << 46));
	MUST(use_cuMemFree(0));
	MUST(use_cuMemAllocPitch(&q, &pitch, 100, 10, 16));
	CHECK(pitch >= 100);
	MUST(use_cuMemFree(q));
}

static void check_ordered(void)
{
	void *s, *t, *event;
	device_pointer p;
	MUST(use_cuStreamCreate(&s, NON_BLOCKING));
	MUST(use_cuStreamCreate(&t, NON_BLOCKING));
	MUST(use_cuEventCreate(&event, 2));
	for (int i = 0; i < 50; i++) {
		MUST(use_cuMemAllocAsync(&p, 3 * MIB, s));
		MUST(use_cuMemsetD8Async(p, 1, MIB, s));
		MUST(use_cuEventRecord(event, s));
		MUST(use_cuStreamWaitEvent(t, event, 0));
		MUST(use_cuMemsetD8Async(p, (unsigned char)i, 3 * MIB, t));
		if (i % 10 == 0) {
			MUST(use_cuStreamSynchronize(t));
			check_filled(p, 3 * MIB, i);
		}
		MUST(use_cuMemFreeAsync(p, t));
		MUST(use_cuMemAllocAsync(&p, 64 * KIB, NULL));
		MUST(use_cuMemsetD8Async(p, 2, 64 * KIB, NULL));
		MUST(use_cuMemFreeAsync(p, NULL));
	}
	MUST(use_cuEventDestroy(event));
	MUST(use_cuStreamDestroy(s));
	MUST(use_cuStreamDestroy(t));
}

static void check_facts(void *context)
{
	enum { CONTEXT = 1, MEMORY_TYPE = 2, RANGE_START = 11, RANGE_SIZE = 12, MAPPING_SIZE = 18, MAPPING_BASE = 19 };
	enum { DEVICE_MEMORY = 2 };
	device_pointer p, start;
	size_t size, unused, total;
	void *found;
	unsigned type = 0;
	int attributes[] = {MEMORY_TYPE, RANGE_START, RANGE_SIZE};
	void *values[] = {&type, &start, &size};
	MUST(use_cuMemAlloc(&p, 5 * MIB));
	MUST(use_cuMemGetAddressRange(&start, &size, p + MIB));
	CHECK(start == p && size >= 5 * MIB && size <= 6 * MIB);
	MUST(use_cuPointerGetAttribute(&found, CONTEXT, p));
	CHECK(found == context);
	start = size = 0;
	MUST(use_cuPointerGetAttributes(3, attributes, values, p + 3 * MIB));
	CHECK(type == DEVICE_MEMORY && start == p && size >= 5 * MIB && size <= 6 * MIB);
	MUST(use_cuPointerGetAttribute(&size, MAPPING_SIZE, p + 3 * MIB));  /* all of it, not a tile */
	MUST(use_cuPointerGetAttribute(&start, MAPPING_BASE, p + 3 * MIB));
	CHECK(start <= p && start + size >= p + 5 * MIB);
	MUST(use_cuMemGetInfo(&unused, &total));
	CHECK(unused < total);
	MUST(use_cuMemFree(p));
	CHECK(use_cuMemGetAddressRange(&start, &size, p) != SUCCESS);
	GIVES(INVALID_VALUE, use_cuPointerGetAttribute(&found, CONTEXT, p));
}

/* A context of its own ends with its memory; that of others stays. */
static void check_contexts(void *primary)
{
	void *second;
	device_pointer p, q;
	MUST(use_cuMemAlloc(&p, MIB));
	MUST(cuCtxCreate_v2(&second, 0, 0));
	MUST(use_cuMemAlloc(&q, MIB));
	MUST(use_cuMemsetD8Async(q, 4, MIB, NULL));
	MUST(use_cuCtxSynchronize());
	check_filled(q, MIB, 4);
	MUST(use_cuCtxDestroy(second));
	MUST(use_cuCtxSetCurrent(primary));
	GIVES(INVALID_VALUE, use_cuMemFree(q));
	MUST(use_cuMemFree(p));
}

int main(int count, char **arguments)
{
	void *context;
	device_pointer p;
	CHECK(count == 2);
	find_functions(arguments[1]);
	MUST(use_cuInit(0));
	GIVES(INVALID_CONTEXT, use_cuMemAlloc(&p, MIB));
	MUST(use_cuDevicePrimaryCtxRetain(&context, 0));
	MUST(use_cuCtxSetCurrent(context));
	check_plain();
	check_ordered();
	check_facts(context);
	check_contexts(context);
	MUST(use_cuDevicePrimaryCtxRelease(0));
	puts("all right");
	return 0;
}
