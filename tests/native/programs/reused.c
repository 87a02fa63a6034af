/* SPDX-License-Identifier: Apache-2.0
 *
 * Handles of graphs that the driver reuses at once, under a limit. When the simulated driver frees what a handle points
 * to, the program's own free() makes the next graph, as another thread might, and its calloc() makes sure that this
 * graph has the same handle.
 */
#include <malloc.h>
#include <string.h>

#include "cuda_calls.h"

#define OLD_SIZE (64 * MIB)
#define NEW_SIZE (96 * MIB)

struct alloc_node {
	struct {
		int type, handle_types;
		struct {
			int type, id;
		} location;
		char padding[72];
	} pool;
	const void *access;
	size_t access_count, size;
	device_pointer address;
};

int cuGraphCreate(void **graph, unsigned flags);
int cuGraphAddMemAllocNode(void **node, void *graph, void *const *after, size_t count, struct alloc_node *params);
int cuGraphAddMemFreeNode(void **node, void *graph, void *const *after, size_t count, device_pointer ptr);
int cuGraphDestroy(void *graph);
int cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags);
int cuGraphExecDestroy(void *exec);
void __libc_free(void *ptr);
void *__libc_calloc(size_t count, size_t size);

static void *awaited;             /* the handle that the driver is about to give back */
static void *given_back;          /* that handle, until the next one is made */
static void (*make_next)(void);

__attribute__((visibility("default"))) void free(void *ptr)
{
	if (!ptr || ptr != awaited) {
		__libc_free(ptr);
		return;
	}
	awaited = NULL;
	given_back = ptr;
	make_next();
}

__attribute__((visibility("default"))) void *calloc(size_t count, size_t size)
{
	size_t room = given_back ? malloc_usable_size(given_back) : 0;
	/* the C library leaves up to 31 bytes with a piece that it does not cut */
	if (count != 1 || size > room || size + 32 <= room)
		return __libc_calloc(count, size);
	void *made = memset(given_back, 0, room);
	given_back = NULL;
	return made;
}

static size_t unused(void)
{
	size_t bytes, total;
	MUST(cudaMemGetInfo(&bytes, &total));
	return bytes;
}

static void add_memory(void *graph, size_t size)
{
	struct alloc_node params = {.pool = {.type = 1, .location = {1, 0}}, .size = size};
	void *node, *end;
	MUST(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params));
	MUST(cuGraphAddMemFreeNode(&end, graph, &node, 1, params.address));
}

static void *next, *source;

static void make_graph(void)
{
	MUST(cuGraphCreate(&next, 0));
	add_memory(next, NEW_SIZE);
}

static void instantiate(void)
{
	MUST(cuGraphInstantiateWithFlags(&next, source, 0));
}

static void reuse_graph(void)
{
	void *graph;
	size_t before = unused();
	MUST(cuGraphCreate(&graph, 0));
	add_memory(graph, OLD_SIZE);
	CHECK(before - unused() == OLD_SIZE);
	make_next = make_graph;
	awaited = graph;
	MUST(cuGraphDestroy(graph));
	CHECK(next == graph);
	CHECK(before - unused() == NEW_SIZE);
	MUST(cuGraphDestroy(next));
	CHECK(unused() == before);
}

static void reuse_instance(void)
{
	void *graph, *instance;
	size_t before = unused();
	MUST(cuGraphCreate(&graph, 0));
	add_memory(graph, OLD_SIZE);
	MUST(cuGraphInstantiateWithFlags(&instance, graph, 0));
	MUST(cuGraphDestroy(graph));
	MUST(cuGraphCreate(&source, 0));
	add_memory(source, NEW_SIZE);
	make_next = instantiate;
	awaited = instance;
	MUST(cuGraphExecDestroy(instance));
	CHECK(next == instance);
	MUST(cuGraphDestroy(source));
	CHECK(before - unused() == NEW_SIZE);
	MUST(cuGraphExecDestroy(next));
	CHECK(unused() == before);
}

int main(void)
{
	MUST(cudaFree(NULL));
	reuse_graph();
	reuse_instance();
	puts("all right");
	return 0;
}
