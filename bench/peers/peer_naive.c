/* SPDX-License-Identifier: Apache-2.0
 *
 * No cache: cuMemAlloc for each request; a wait for the device and cuMemFree for each free.
 */
#include "bench_peer.h"

extern int cuMemAlloc_v2(uint64_t *address, size_t size);
extern int cuMemFree_v2(uint64_t address);
extern int cuCtxSynchronize(void);

static int ready(const char *options)
{
	(void)options;
	return 0;
}

static void done(void)
{
}

static void *take(size_t size, void *stream)
{
	uint64_t address = 0;
	(void)stream;
	return cuMemAlloc_v2(&address, size) == 0 ? (void *)(uintptr_t)address : NULL;
}

static void give(void *pointer, size_t size, void *own, void *last)
{
	(void)size;
	(void)own;
	(void)last;
	cuCtxSynchronize();  /* cuMemFree need not wait */
	cuMemFree_v2((uintptr_t)pointer);
}

const struct peer bench_peer = {.open = ready, .close = done, .alloc = take, .free = give};
