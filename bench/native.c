/* SPDX-License-Identifier: Apache-2.0
 *
 * What an allocation and its free cost a native program, in nanoseconds of the processor, over the simulated device:
 * linked with libterrazzo_cuda, and by the driver's own names, with or without libterrazzo_preload. Both make the same
 * calls of the simulated driver, and the figures include them.
 *
 *     LD_LIBRARY_PATH=lib/sim bench/native [PAIRS]
 *     LD_LIBRARY_PATH=lib/sim LD_PRELOAD=lib/libterrazzo_preload.so bench/native [PAIRS]
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TRZ_CUDA_NO_TOOLKIT
#include "terrazzo_cuda.h"

typedef unsigned long long device_pointer;

int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuStreamCreate(void **stream, unsigned flags);
int cuMemAlloc_v2(device_pointer *ptr, size_t size);
int cuMemFree_v2(device_pointer ptr);
int cuMemAllocAsync(device_pointer *ptr, size_t size, void *stream);
int cuMemFreeAsync(device_pointer ptr, void *stream);

enum { REPEATS = 5 };

static void *stream;
static size_t size;

static void must(int result)
{
	if (result == 0)
		return;
	fprintf(stderr, "native: a call gave %d\n", result);
	exit(1);
}

static void linked_plain(void)
{
	void *p;
	must(trz_cudaMalloc(&p, size));
	must(trz_cudaFree(p));
}

static void linked_async(void)
{
	void *p;
	must(trz_cudaMallocAsync(&p, size, stream));
	must(trz_cudaFreeAsync(p, stream));
}

static void driver_plain(void)
{
	device_pointer p;
	must(cuMemAlloc_v2(&p, size));
	must(cuMemFree_v2(p));
}

static void driver_async(void)
{
	device_pointer p;
	must(cuMemAllocAsync(&p, size, stream));
	must(cuMemFreeAsync(p, stream));
}

static uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The best of some repetitions. */
static double measure(void (*pair)(void), long pairs)
{
	double best = 0;
	for (int i = 0; i < REPEATS; i++) {
		uint64_t start = now();
		for (long n = 0; n < pairs; n++)
			pair();
		double each = (double)(now() - start) / (double)pairs;
		best = i == 0 || each < best ? each : best;
	}
	return best;
}

int main(int count, char **arguments)
{
	static const struct {
		const char *name;
		void (*linked)(void), (*driver)(void);
	} ways[] = {{"cudaMalloc", linked_plain, driver_plain}, {"cudaMallocAsync", linked_async, driver_async}};
	static const size_t sizes[] = {1 << 10, 1 << 18, 20 << 20};
	const long pairs = count > 1 ? atol(arguments[1]) : 200000;
	const char *preload = getenv("LD_PRELOAD");
	const int preloaded = preload && strstr(preload, "libterrazzo_preload") != NULL;
	void *context;
	must(cuInit(0));
	must(cuDevicePrimaryCtxRetain(&context, 0));
	must(cuCtxSetCurrent(context));
	must(cuStreamCreate(&stream, 1));
	printf("%-16s %10s %12s %12s\n", "pair", "bytes", "trz_ ns", preloaded ? "preload ns" : "driver ns");
	for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++)
		for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
			size = sizes[i];
			double linked = measure(ways[w].linked, pairs), driver = measure(ways[w].driver, pairs);
			printf("%-16s %10zu %12.1f %12.1f\n", ways[w].name, size, linked, driver);
		}
	return 0;
}
