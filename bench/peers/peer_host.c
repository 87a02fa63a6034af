/* SPDX-License-Identifier: Apache-2.0
 *
 * An allocator of host memory, jemalloc or mimalloc from the distribution's packages: for its time per request.
 */
#include "bench_peer.h"

#include <dlfcn.h>
#include <stdio.h>

static void *(*host_malloc)(size_t size);
static void (*host_free)(void *pointer);

/* Finds a function by mimalloc's own name, if the library has that, else by C's. */
static void *find(void *library, const char *own, const char *name)
{
	void *found = dlsym(library, own);
	return found ? found : dlsym(library, name);
}

/* `options`: the library's file. */
static int load(const char *options)
{
	void *library = dlopen(options, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		fprintf(stderr, "%s: %s\n", options, dlerror());
		return -1;
	}
	*(void **)&host_malloc = find(library, "mi_malloc", "malloc");
	*(void **)&host_free = find(library, "mi_free", "free");
	return host_malloc && host_free ? 0 : -1;
}

static void done(void)
{
}

static void *take(size_t size, void *stream)
{
	(void)stream;
	return host_malloc(size);
}

static void give(void *pointer, size_t size, void *own, void *last)
{
	(void)size;
	(void)own;
	(void)last;
	host_free(pointer);
}

const struct peer bench_peer = {.on_host = 1, .open = load, .close = done, .alloc = take, .free = give};
