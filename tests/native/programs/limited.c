/* SPDX-License-Identifier: Apache-2.0
 *
 * Tries to get past a limit of 1 GiB in each way to allocate device memory, and prints how much each way got. It
 * allocates pieces until one is refused, looks at what the refusal says, and frees them. Its argument names one way, or
 * is "all", "beside others", "threads", "opened", "ended", "forked" or "ticking".
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_calls.h"

enum { MOST = 64 };

/* A piece, which no way makes smaller. */
#define PIECE (48 * MIB)

typedef unsigned long long memory_handle;

struct location {
	int type, id;
};

struct create_props {
	int type, handles;
	struct location location;
	void *win32;
	uint64_t flags;
};

struct access {
	struct location location;
	int flags;
};

struct pool_props {
	int type, handles;
	struct location location;
	void *win32;
	size_t most;
	unsigned short usage;
	unsigned char reserved[54];
};

struct alloc_node {
	struct pool_props pool;
	const struct access *access;
	size_t access_count, size;
	device_pointer address;
};

struct node_params {
	int type, reserved[3];
	struct alloc_node alloc;
	long long padding[32];
};

struct array_2d {
	size_t width, height;
	int format;
	unsigned channels;
};

struct array_3d {
	size_t width, height, depth;
	int format;
	unsigned channels, flags;
};

struct pitched {
	void *ptr;
	size_t pitch, width, height;
};

struct ipc {
	char bytes[64];
};

struct extent {
	size_t width, height, depth;
};

struct channels {
	int x, y, z, w, kind;
};

int cudaMallocPitch(void **ptr, size_t *pitch, size_t width, size_t height);
int cudaMalloc3D(struct pitched *made, struct extent extent);
int cudaMallocAsync(void **ptr, size_t size, void *stream);
int cudaMallocAsync_ptsz(void **ptr, size_t size, void *stream);
int cudaFreeAsync(void *ptr, void *stream);
int cudaMallocFromPoolAsync(void **ptr, size_t size, void *pool, void *stream);
int cudaMallocFromPoolAsync_ptsz(void **ptr, size_t size, void *pool, void *stream);
int cudaMallocManaged(void **ptr, size_t size, unsigned flags);
int cudaMallocArray(void **array, const struct channels *channels, size_t width, size_t height, unsigned flags);
int cudaMalloc3DArray(void **array, const struct channels *channels, struct extent extent, unsigned flags);
int cudaFreeArray(void *array);
int cudaMallocMipmappedArray(void **array, const struct channels *channels, struct extent extent, unsigned levels,
                             unsigned flags);
int cudaFreeMipmappedArray(void *array);
int cuMemAlloc_v2(device_pointer *ptr, size_t size);
int cuMemAllocPitch_v2(device_pointer *ptr, size_t *pitch, size_t width, size_t height, unsigned element);
int cuMemAllocManaged(device_pointer *ptr, size_t size, unsigned flags);
int cuMemFree_v2(device_pointer ptr);
int cudaIpcOpenMemHandle(void **ptr, struct ipc handle, unsigned flags);
int cudaIpcCloseMemHandle(void *ptr);
int cuMemAllocAsync(device_pointer *ptr, size_t size, void *stream);
int cuMemAllocAsync_ptsz(device_pointer *ptr, size_t size, void *stream);
int cuMemAllocFromPoolAsync(device_pointer *ptr, size_t size, void *pool, void *stream);
int cuMemFreeAsync(device_pointer ptr, void *stream);
int cuMemPoolCreate(void **pool, const struct pool_props *props);
int cuMemPoolDestroy(void *pool);
int cuDeviceSetMemPool(int device, void *pool);
int cuMemCreate(memory_handle *handle, size_t size, const struct create_props *props, unsigned long long flags);
int cuMemRelease(memory_handle handle);
int cuMemAddressReserve(device_pointer *ptr, size_t size, size_t alignment, device_pointer hint,
                        unsigned long long flags);
int cuMemAddressFree(device_pointer ptr, size_t size);
int cuMemMap(device_pointer ptr, size_t size, size_t offset, memory_handle handle, unsigned long long flags);
int cuMemUnmap(device_pointer ptr, size_t size);
int cuMemRetainAllocationHandle(memory_handle *handle, void *ptr);
int cuMemExportToShareableHandle(void *shareable, memory_handle handle, int kind, unsigned long long flags);
int cuMemImportFromShareableHandle(memory_handle *handle, void *shareable, int kind);
int cuArrayCreate_v2(void **array, const struct array_2d *description);
int cuArray3DCreate_v2(void **array, const struct array_3d *description);
int cuArrayDestroy(void *array);
int cuMipmappedArrayCreate(void **array, const struct array_3d *description, unsigned levels);
int cuMipmappedArrayDestroy(void *array);
int cuGraphCreate(void **graph, unsigned flags);
int cuGraphAddMemAllocNode(void **node, void *graph, void *const *after, size_t count, struct alloc_node *params);
int cuGraphAddMemFreeNode(void **node, void *graph, void *const *after, size_t count, device_pointer ptr);
int cuGraphLaunch(void *exec, void *stream);
int cuGraphAddNode_v2(void **node, void *graph, void *const *after, const void *edges, size_t count,
                      struct node_params *params);
int cuGraphDestroy(void *graph);
int cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags);
int cuGraphExecDestroy(void *exec);
int cuCtxCreate_v2(void **context, unsigned flags, int device);
int cuCtxDestroy_v2(void *context);
int cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags, int *why);
int cudaGetDriverEntryPoint(const char *name, void **found, unsigned long long flags, int *why);

/* ---- pieces ---- */

struct piece {
	void *ptr;
	memory_handle handle;
	void *extra;
};

static void *stream;

/* Each gets one piece, and returns CUDA's result; each gives one back. */
typedef int get_function(struct piece *p);
typedef void give_function(struct piece *p);

static void give_ptr(struct piece *p)
{
	MUST(cudaFree(p->ptr));
}

static void give_ordered(struct piece *p)
{
	MUST(cudaFreeAsync(p->ptr, stream));
}

static int get_malloc(struct piece *p)
{
	return cudaMalloc(&p->ptr, PIECE);
}

static int get_small(struct piece *p)
{
	void *small[PIECE / MIB];
	for (size_t i = 0; i < PIECE / MIB; i++) {
		int result = cudaMalloc(&small[i], MIB);
		if (result != SUCCESS) {
			while (i > 0)
				MUST(cudaFree(small[--i]));
			return result;
		}
	}
	p->ptr = malloc(sizeof small);
	memcpy(p->ptr, small, sizeof small);
	return SUCCESS;
}

static void give_small(struct piece *p)
{
	for (size_t i = 0; i < PIECE / MIB; i++)
		MUST(cudaFree(((void **)p->ptr)[i]));
	free(p->ptr);
}

static int get_pitch(struct piece *p)
{
	size_t pitch;
	return cudaMallocPitch(&p->ptr, &pitch, 1024, PIECE / 1024);
}

static int get_3d(struct piece *p)
{
	struct pitched made = {0};
	int result = cudaMalloc3D(&made, (struct extent){1024, 1024, PIECE / MIB});
	p->ptr = made.ptr;
	return result;
}

static int get_async(struct piece *p)
{
	return cudaMallocAsync(&p->ptr, PIECE, stream);
}

static int get_async_legacy(struct piece *p)
{
	return cudaMallocAsync(&p->ptr, PIECE, NULL);
}

static int get_async_thread(struct piece *p)
{
	return cudaMallocAsync_ptsz(&p->ptr, PIECE, NULL);
}

static void *default_pool(void)
{
	void *pool;
	MUST(cudaDeviceGetDefaultMemPool(&pool, 0));
	return pool;
}

static int get_default_pool(struct piece *p)
{
	return cudaMallocFromPoolAsync(&p->ptr, PIECE, default_pool(), stream);
}

static int get_default_pool_thread(struct piece *p)
{
	return cudaMallocFromPoolAsync_ptsz(&p->ptr, PIECE, default_pool(), NULL);
}

static void *own_pool(void)
{
	static void *pool;
	const struct pool_props props = {.type = 1, .location = {1, 0}};
	if (!pool)
		MUST(cuMemPoolCreate(&pool, &props));
	return pool;
}

static int get_own_pool(struct piece *p)
{
	return cudaMallocFromPoolAsync(&p->ptr, PIECE, own_pool(), stream);
}

static int get_own_pool_driver(struct piece *p)
{
	device_pointer made = 0;
	int result = cuMemAllocFromPoolAsync(&made, PIECE, own_pool(), NULL);
	p->ptr = (void *)made;
	return result;
}

static int get_chosen_pool(struct piece *p)
{
	MUST(cuDeviceSetMemPool(0, own_pool()));
	int result = cudaMallocAsync(&p->ptr, PIECE, stream);
	MUST(cuDeviceSetMemPool(0, default_pool()));
	return result;
}

static int get_new_pool(struct piece *p)
{
	const struct pool_props props = {.type = 1, .location = {1, 0}};
	device_pointer made = 0;
	MUST(cuMemPoolCreate(&p->extra, &props));
	int result = cuMemAllocFromPoolAsync(&made, PIECE, p->extra, stream);
	if (result != SUCCESS)
		MUST(cuMemPoolDestroy(p->extra));
	p->ptr = (void *)made;
	return result;
}

static void give_new_pool(struct piece *p)
{
	MUST(cudaFree(p->ptr));
	MUST(cuMemPoolDestroy(p->extra));
}

/* Its pool goes before it does. */
static int get_orphan(struct piece *p)
{
	int result = get_new_pool(p);
	if (result == SUCCESS)
		MUST(cuMemPoolDestroy(p->extra));
	return result;
}

static int get_managed(struct piece *p)
{
	return cudaMallocManaged(&p->ptr, PIECE, 1);
}

static int get_driver(struct piece *p)
{
	device_pointer made = 0;
	int result = cuMemAlloc_v2(&made, PIECE);
	p->ptr = (void *)made;
	return result;
}

static int get_driver_pitch(struct piece *p)
{
	device_pointer made = 0;
	size_t pitch;
	int result = cuMemAllocPitch_v2(&made, &pitch, 1024, PIECE / 1024, 4);
	p->ptr = (void *)made;
	return result;
}

static int get_driver_pitch_wide(struct piece *p)
{
	device_pointer made = 0;
	size_t pitch;
	int result = cuMemAllocPitch_v2(&made, &pitch, 1024, PIECE / 1024, 16);
	p->ptr = (void *)made;
	return result;
}

static int get_driver_managed(struct piece *p)
{
	device_pointer made = 0;
	int result = cuMemAllocManaged(&made, PIECE, 1);
	p->ptr = (void *)made;
	return result;
}

static int get_driver_async(struct piece *p)
{
	device_pointer made = 0;
	int result = cuMemAllocAsync(&made, PIECE, stream);
	p->ptr = (void *)made;
	return result;
}

static int get_driver_async_thread(struct piece *p)
{
	device_pointer made = 0;
	int result = cuMemAllocAsync_ptsz(&made, PIECE, NULL);
	p->ptr = (void *)made;
	return result;
}

static int find_and_get(struct piece *p, int (*allocate)(device_pointer *, size_t))
{
	device_pointer made = 0;
	int result = allocate(&made, PIECE);
	p->ptr = (void *)made;
	return result;
}

static int get_by_address(struct piece *p)
{
	void *found;
	MUST(cuGetProcAddress_v2("cuMemAlloc", &found, 12000, 0, NULL));
	return find_and_get(p, (int (*)(device_pointer *, size_t))found);
}

static int get_by_entry_point(struct piece *p)
{
	void *found;
	MUST(cudaGetDriverEntryPoint("cuMemAlloc", &found, 0, NULL));
	return find_and_get(p, (int (*)(device_pointer *, size_t))found);
}

/* ---- physical memory and its mappings ---- */

static const struct create_props device_memory = {.type = 1, .location = {1, 0}};
static const struct create_props shared_memory = {.type = 1, .handles = 1, .location = {1, 0}};

static int get_created(struct piece *p)
{
	return cuMemCreate(&p->handle, PIECE, &device_memory, 0);
}

static void give_created(struct piece *p)
{
	MUST(cuMemRelease(p->handle));
}

static int get_created_by_address(struct piece *p)
{
	void *found;
	MUST(cuGetProcAddress_v2("cuMemCreate", &found, 12000, 0, NULL));
	return ((int (*)(memory_handle *, size_t, const struct create_props *, unsigned long long))found)(
	    &p->handle, PIECE, &device_memory, 0);
}

static void map_piece(struct piece *p)
{
	device_pointer address;
	MUST(cuMemAddressReserve(&address, PIECE, 0, 0, 0));
	MUST(cuMemMap(address, PIECE, 0, p->handle, 0));
	p->ptr = (void *)address;
}

static void unmap_piece(struct piece *p)
{
	MUST(cuMemUnmap((uintptr_t)p->ptr, PIECE));
	MUST(cuMemAddressFree((uintptr_t)p->ptr, PIECE));
}

/* A mapping keeps memory whose handle has been released. */
static int get_mapped(struct piece *p)
{
	int result = cuMemCreate(&p->handle, PIECE, &device_memory, 0);
	if (result != SUCCESS)
		return result;
	map_piece(p);
	MUST(cuMemRelease(p->handle));
	return SUCCESS;
}

/* So does a handle that was found by an address that is unmapped. */
static int get_retained(struct piece *p)
{
	int result = get_mapped(p);
	if (result != SUCCESS)
		return result;
	MUST(cuMemRetainAllocationHandle(&p->handle, p->ptr));
	unmap_piece(p);
	return SUCCESS;
}

/* Memory that comes back through a descriptor, after its own handle has gone. */
static int get_imported(struct piece *p)
{
	int descriptor;
	int result = cuMemCreate(&p->handle, PIECE, &shared_memory, 0);
	if (result != SUCCESS)
		return result;
	map_piece(p);
	MUST(cuMemExportToShareableHandle(&descriptor, p->handle, 1, 0));
	MUST(cuMemRelease(p->handle));
	MUST(cuMemImportFromShareableHandle(&p->handle, (void *)(intptr_t)descriptor, 1));
	close(descriptor);
	return SUCCESS;
}

static void give_imported(struct piece *p)
{
	unmap_piece(p);
	MUST(cuMemRelease(p->handle));
}

/* ---- arrays ---- */

enum { FLOATS = 0x20, BYTES = 1 };

static int get_array(struct piece *p)
{
	const struct channels floats = {32, 0, 0, 0, 2};
	return cudaMallocArray(&p->ptr, &floats, 1024, PIECE / 4096, 0);
}

static void give_array(struct piece *p)
{
	MUST(cudaFreeArray(p->ptr));
}

static int get_array_3d(struct piece *p)
{
	const struct channels floats = {32, 0, 0, 0, 2};
	return cudaMalloc3DArray(&p->ptr, &floats, (struct extent){512, 512, PIECE / MIB}, 0);
}

static int get_mipmapped(struct piece *p)
{
	const struct channels floats = {32, 0, 0, 0, 2};
	return cudaMallocMipmappedArray(&p->ptr, &floats, (struct extent){1024, PIECE / 4096, 0}, 2, 0);
}

static void give_mipmapped(struct piece *p)
{
	MUST(cudaFreeMipmappedArray(p->ptr));
}

static int get_driver_array(struct piece *p)
{
	return cuArrayCreate_v2(&p->ptr, &(struct array_2d){1024, PIECE / 16384, FLOATS, 4});
}

static void give_driver_array(struct piece *p)
{
	MUST(cuArrayDestroy(p->ptr));
}

static int get_driver_array_3d(struct piece *p)
{
	return cuArray3DCreate_v2(&p->ptr, &(struct array_3d){1024, 1024, PIECE / MIB, BYTES, 1, 0});
}

static int get_driver_mipmapped(struct piece *p)
{
	return cuMipmappedArrayCreate(&p->ptr, &(struct array_3d){1024, PIECE / 4096, 0, FLOATS, 1, 0}, 3);
}

/* The driver makes as many levels as there can be. */
static int get_all_levels(struct piece *p)
{
	return cuMipmappedArrayCreate(&p->ptr, &(struct array_3d){1024, PIECE / 4096, 0, FLOATS, 1, 0}, UINT_MAX);
}

/* Each level has all layers. */
static int get_layers(struct piece *p)
{
	enum { LAYERED = 1 };
	return cuMipmappedArrayCreate(&p->ptr, &(struct array_3d){1024, 1024, PIECE / MIB, BYTES, 1, LAYERED}, 2);
}

static void give_driver_mipmapped(struct piece *p)
{
	MUST(cuMipmappedArrayDestroy(p->ptr));
}

/* ---- graphs ---- */

static int get_node(struct piece *p)
{
	struct alloc_node params = {.pool = {.type = 1, .location = {1, 0}}, .size = PIECE};
	void *node = NULL;
	MUST(cuGraphCreate(&p->extra, 0));
	int result = cuGraphAddMemAllocNode(&node, p->extra, NULL, 0, &params);
	if (result != SUCCESS)
		MUST(cuGraphDestroy(p->extra));
	p->ptr = node;
	p->handle = params.address;
	return result;
}

static void give_graph(struct piece *p)
{
	MUST(cuGraphDestroy(p->extra));
}

static int get_any_node(struct piece *p)
{
	struct node_params params = {
	    .type = 10, .alloc = {.pool = {.type = 1, .location = {1, 0}}, .size = PIECE}};
	void *node;
	MUST(cuGraphCreate(&p->extra, 0));
	int result = cuGraphAddNode_v2(&node, p->extra, NULL, NULL, 0, &params);
	if (result != SUCCESS)
		MUST(cuGraphDestroy(p->extra));
	return result;
}

static int get_captured(struct piece *p)
{
	MUST(cudaStreamBeginCapture(stream, CAPTURE_RELAXED));
	int result = cudaMallocAsync(&p->ptr, PIECE, stream);
	if (result == SUCCESS)
		MUST(cudaFreeAsync(p->ptr, stream));
	MUST(cudaStreamEndCapture(stream, &p->extra));
	if (result != SUCCESS)
		MUST(cudaGraphDestroy(p->extra));
	return result;
}

/* Nothing is left of what a capture that is broken has allocated. */
static int get_after_broken_capture(struct piece *p)
{
	void *graph, *captured;
	MUST(cudaStreamBeginCapture(stream, CAPTURE_RELAXED));
	cudaMallocAsync(&captured, PIECE, stream);
	CHECK(cudaStreamSynchronize(stream) != SUCCESS);
	CHECK(cudaStreamEndCapture(stream, &graph) != SUCCESS);
	return get_malloc(p);
}

/* What is made from a graph keeps its memory when the graph itself has gone. */
static int get_instantiated(struct piece *p)
{
	void *graph, *node;
	int result = get_node(p);
	if (result != SUCCESS)
		return result;
	graph = p->extra;
	MUST(cuGraphAddMemFreeNode(&node, graph, &p->ptr, 1, p->handle));
	MUST(cuGraphInstantiateWithFlags(&p->extra, graph, 0));
	MUST(cuGraphDestroy(graph));
	MUST(cuGraphLaunch(p->extra, stream));
	return SUCCESS;
}

static void give_instantiated(struct piece *p)
{
	MUST(cuGraphExecDestroy(p->extra));
}

/* ---- processes ---- */

static const char *program;

/* A child that holds a piece until it is told to end, or is killed. */
static int get_in_child(struct piece *p)
{
	int up[2], down[2], result = -1;
	CHECK(pipe2(up, O_CLOEXEC) == 0 && pipe2(down, O_CLOEXEC) == 0);
	pid_t child = fork();
	if (child == 0) {
		dup2(down[0], 0);
		dup2(up[1], 1);
		close(down[1]);
		execl(program, program, "hold", (char *)NULL);
		_exit(1);
	}
	close(up[1]);
	close(down[0]);
	CHECK(child > 0 && read(up[0], &result, sizeof result) == sizeof result);
	close(up[0]);
	p->handle = (memory_handle)child;
	p->extra = (void *)(intptr_t)down[1];
	if (result != SUCCESS) {
		close(down[1]);
		CHECK(waitpid(child, NULL, 0) == child);
	}
	return result;
}

static void end_child(struct piece *p)
{
	close((int)(intptr_t)p->extra);
	CHECK(waitpid((pid_t)p->handle, NULL, 0) == (pid_t)p->handle);
}

static void kill_child(struct piece *p)
{
	CHECK(kill((pid_t)p->handle, SIGKILL) == 0);
	end_child(p);
}

static void hold(void)
{
	char byte;
	void *p;
	int result = cudaMalloc(&p, PIECE);
	CHECK(write(1, &result, sizeof result) == sizeof result);
	while (result == SUCCESS && read(0, &byte, 1) > 0) {}
}

/* The program does not import the function, which would leave all of its memory to the driver. */
static void offer(void)
{
	int (*export)(struct ipc *, void *) = (int (*)(struct ipc *, void *))dlsym(RTLD_DEFAULT, "cudaIpcGetMemHandle");
	char byte;
	struct ipc handle;
	void *p;
	MUST(cudaMalloc(&p, PIECE));
	CHECK(export);
	MUST(export(&handle, p));
	CHECK(write(1, &handle, sizeof handle) == sizeof handle);
	while (read(0, &byte, 1) > 0) {}
}

/* A child's memory, which is opened twice, is held once; closed as often, it is not. */
static void attempt_opened(void)
{
	enum { TIMES = 2 };
	int up[2], down[2];
	struct ipc handle;
	void *p[TIMES];
	size_t before, now, total;
	CHECK(pipe2(up, O_CLOEXEC) == 0 && pipe2(down, O_CLOEXEC) == 0);
	pid_t child = fork();
	if (child == 0) {
		dup2(down[0], 0);
		dup2(up[1], 1);
		setenv("TERRAZZO_NATIVE", "ipc:classic", 1);
		execl(program, program, "offer", (char *)NULL);
		_exit(1);
	}
	CHECK(read(up[0], &handle, sizeof handle) == sizeof handle);
	MUST(cudaMemGetInfo(&before, &total));
	for (int i = 0; i < TIMES; i++) {
		MUST(cudaIpcOpenMemHandle(&p[i], handle, 1));
		MUST(cudaMemGetInfo(&now, &total));
		CHECK(p[i] == p[0] && now == before - PIECE);
	}
	for (int i = 0; i < TIMES; i++) {
		MUST(cudaMemGetInfo(&now, &total));
		CHECK(now == before - PIECE);
		MUST(cudaIpcCloseMemHandle(p[i]));
	}
	MUST(cudaMemGetInfo(&now, &total));
	CHECK(now == before);
	close(down[1]);
	CHECK(waitpid(child, NULL, 0) == child);
}

/* All there is, beside children that hold some of it. */
static void attempt_beside_others(void)
{
	enum { OTHERS = 4 };
	struct piece others[OTHERS] = {0};
	void *p;
	for (int i = 0; i < OTHERS; i++)
		MUST(get_in_child(&others[i]));
	while (cudaMalloc(&p, PIECE) == SUCCESS) {}
	cudaGetLastError();
	for (int i = 0; i < OTHERS; i++)
		end_child(&others[i]);
}

/* Becomes another program while it holds all there is, of which that holds nothing. */
static void become_another(void)
{
	void *p;
	while (cudaMalloc(&p, PIECE) == SUCCESS) {}
	fflush(stdout);
	execl(program, program, "told", (char *)NULL);
	CHECK(false);
}

/* ---- threads ---- */

static void *use_pool(void *pool)
{
	void *own;
	device_pointer p;
	MUST(cudaSetDevice(0));
	MUST(cudaStreamCreateWithFlags(&own, NON_BLOCKING));
	for (size_t i = 0; i < 2000; i++) {
		MUST(cuMemAllocFromPoolAsync(&p, (1 + i % 7) * MIB, pool, own));
		MUST(cuMemFreeAsync(p, own));
		if (i % 5 == 0)
			MUST(cudaStreamSynchronize(own));
	}
	MUST(cudaStreamDestroy(own));
	return NULL;
}

/* Several threads change what one pool holds: when it has gone, as much is left as before. */
static void attempt_in_threads(void)
{
	enum { THREADS = 4, ROUNDS = 10 };
	const struct pool_props props = {.type = 1, .location = {1, 0}};
	pthread_t threads[THREADS];
	size_t before, after, total;
	void *pool;
	MUST(cudaMemGetInfo(&before, &total));
	for (int round = 0; round < ROUNDS; round++) {
		MUST(cuMemPoolCreate(&pool, &props));
		for (int i = 0; i < THREADS; i++)
			CHECK(pthread_create(&threads[i], NULL, use_pool, pool) == 0);
		for (int i = 0; i < THREADS; i++)
			CHECK(pthread_join(threads[i], NULL) == 0);
		MUST(cudaDeviceSynchronize());
		MUST(cuMemPoolDestroy(pool));
		MUST(cudaMemGetInfo(&after, &total));
		CHECK(after == before);
	}
}

static atomic_bool over;

static void *keep_allocating(void *unused)
{
	void *p;
	MUST(cudaSetDevice(0));
	while (!atomic_load(&over)) {
		MUST(cudaMallocManaged(&p, MIB, 1));
		MUST(cudaFree(p));
	}
	return unused;
}

/* Children that are made while other threads allocate are refused, as without a limit; none waits for those threads. */
static void attempt_in_forks(void)
{
	enum { THREADS = 2, FORKS = 200, LONGEST = 60 };
	pthread_t threads[THREADS];
	int status;
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, keep_allocating, NULL) == 0);
	for (int i = 0; i < FORKS; i++) {
		void *p;
		pid_t child = fork();
		if (child == 0) {
			alarm(LONGEST);
			_exit(cudaMalloc(&p, MIB) == SUCCESS);
		}
		CHECK(waitpid(child, &status, 0) == child && status == 0);
	}
	atomic_store(&over, true);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
}

/* ---- all ways ---- */

static const struct way {
	const char *name;
	get_function *get;
	give_function *give;
} ways[] = {
	{"cudaMalloc", get_malloc, give_ptr},
	{"cudaMalloc, small", get_small, give_small},
	{"cudaMalloc, freed in order", get_malloc, give_ordered},
	{"cudaMallocPitch", get_pitch, give_ptr},
	{"cudaMalloc3D", get_3d, give_ptr},
	{"cudaMallocAsync", get_async, give_ordered},
	{"cudaMallocAsync, freed by cudaFree", get_async, give_ptr},
	{"cudaMallocAsync, legacy stream", get_async_legacy, give_ptr},
	{"cudaMallocAsync, thread's stream", get_async_thread, give_ptr},
	{"cudaMallocFromPoolAsync, default pool", get_default_pool, give_ordered},
	{"cudaMallocFromPoolAsync, default pool, thread's stream", get_default_pool_thread, give_ptr},
	{"cudaMallocFromPoolAsync, own pool", get_own_pool, give_ordered},
	{"cudaMallocAsync, own pool chosen", get_chosen_pool, give_ordered},
	{"cudaMallocManaged", get_managed, give_ptr},
	{"cuMemAlloc", get_driver, give_ptr},
	{"cuMemAlloc by cuGetProcAddress", get_by_address, give_ptr},
	{"cuMemAlloc by cudaGetDriverEntryPoint", get_by_entry_point, give_ptr},
	{"cuMemAllocPitch", get_driver_pitch, give_ptr},
	{"cuMemAllocPitch, wide elements", get_driver_pitch_wide, give_ptr},
	{"cuMemAllocManaged", get_driver_managed, give_ptr},
	{"cuMemAllocAsync", get_driver_async, give_ordered},
	{"cuMemAllocAsync, thread's stream", get_driver_async_thread, give_ptr},
	{"cuMemAllocFromPoolAsync, own pool", get_own_pool_driver, give_ptr},
	{"cuMemAllocFromPoolAsync, a pool for each", get_new_pool, give_new_pool},
	{"cuMemAllocFromPoolAsync, the pool destroyed", get_orphan, give_ordered},
	{"cuMemCreate", get_created, give_created},
	{"cuMemCreate by cuGetProcAddress", get_created_by_address, give_created},
	{"cuMemCreate, mapped and released", get_mapped, unmap_piece},
	{"cuMemCreate, retained and unmapped", get_retained, give_created},
	{"cuMemCreate, exported and imported", get_imported, give_imported},
	{"cudaMallocArray", get_array, give_array},
	{"cudaMalloc3DArray", get_array_3d, give_array},
	{"cudaMallocMipmappedArray", get_mipmapped, give_mipmapped},
	{"cuArrayCreate", get_driver_array, give_driver_array},
	{"cuArray3DCreate", get_driver_array_3d, give_driver_array},
	{"cuMipmappedArrayCreate", get_driver_mipmapped, give_driver_mipmapped},
	{"cuMipmappedArrayCreate, all levels", get_all_levels, give_driver_mipmapped},
	{"cuMipmappedArrayCreate, layers", get_layers, give_driver_mipmapped},
	{"cuGraphAddMemAllocNode", get_node, give_graph},
	{"cuGraphAddNode", get_any_node, give_graph},
	{"cudaMallocAsync in a capture", get_captured, give_graph},
	{"a graph that is instantiated and destroyed", get_instantiated, give_instantiated},
	{"child processes", get_in_child, end_child},
	{"child processes that are killed", get_in_child, kill_child},
};

/* Gets as many pieces as it can. */
static int get_all(const struct way *w, struct piece *pieces)
{
	int count = 0, result = SUCCESS;
	while (count < MOST && (result = w->get(&pieces[count])) == SUCCESS)
		count++;
	cudaGetLastError();
	printf("%s: %zu MiB, then %d\n", w->name, (size_t)count * PIECE / MIB, result);
	fflush(stdout);
	return count;
}

/* Twice: what has been given back can be had again. */
static void attempt(const struct way *w)
{
	static struct piece pieces[MOST];
	int counts[2];
	for (int round = 0; round < 2; round++) {
		memset(pieces, 0, sizeof pieces);
		counts[round] = get_all(w, pieces);
		for (int i = 0; i < counts[round]; i++)
			w->give(&pieces[i]);
		MUST(cudaDeviceSynchronize());
	}
	CHECK(counts[0] == counts[1]);
}

/* Not one of the ways: the simulated device keeps what broken captures have allocated. */
static void attempt_after_broken_captures(void)
{
	attempt(&(struct way){"cudaMalloc after a broken capture", get_after_broken_capture, give_ptr});
}

/* A context that ends takes its memory along, whoever has not freed it; what has no context stays. */
static void attempt_in_contexts_that_end(void)
{
	static const struct way left[] = {
		{"cudaMalloc", get_malloc, NULL},
		{"cudaMallocManaged", get_managed, NULL},
		{"cudaMallocArray", get_array, NULL},
		{"cuMipmappedArrayCreate", get_driver_mipmapped, NULL},
		{"a graph that is instantiated and destroyed", get_instantiated, NULL},
	};
	static struct piece pieces[MOST];
	size_t before, after, total;
	MUST(cudaMemGetInfo(&before, &total));
	for (size_t i = 0; i < sizeof left / sizeof left[0]; i++) {
		CHECK(get_all(&left[i], pieces) >= 14);
		MUST(cudaDeviceReset());
		MUST(cudaMemGetInfo(&after, &total));
		CHECK(after == before);
		MUST(cudaStreamCreateWithFlags(&stream, NON_BLOCKING));
	}
	void *context;
	struct piece own = {0}, other = {0};
	MUST(get_driver_array(&own));
	MUST(cuCtxCreate_v2(&context, 0, 0));
	MUST(get_driver_array(&other));
	MUST(cuCtxDestroy_v2(context));
	MUST(cudaSetDevice(0));
	MUST(cudaMemGetInfo(&after, &total));
	CHECK(after == before - PIECE);
	give_driver_array(&own);
	MUST(cudaMemGetInfo(&after, &total));
	CHECK(after == before);
}

static void note_tick(int number)
{
	(void)number;
}

/* Handles a signal each millisecond, which interrupts calls. */
static void tick(void)
{
	const struct sigaction action = {.sa_handler = note_tick};
	const struct itimerval every = {{0, 1000}, {0, 1000}};
	CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &every, NULL) == 0);
}

int main(int count, char **arguments)
{
	size_t unused, total;
	CHECK(count == 2);
	program = arguments[0];
	if (strcmp(arguments[1], "ticking") == 0)
		tick();
	MUST(cudaFree(NULL));
	if (strcmp(arguments[1], "hold") == 0) {
		hold();
		return 0;
	}
	if (strcmp(arguments[1], "offer") == 0) {
		offer();
		return 0;
	}
	MUST(cudaStreamCreateWithFlags(&stream, NON_BLOCKING));
	MUST(cudaMemGetInfo(&unused, &total));
	printf("told: %zu of %zu MiB\n", unused / MIB, total / MIB);
	if (strcmp(arguments[1], "beside others") == 0)
		attempt_beside_others();
	if (strcmp(arguments[1], "exec") == 0)
		become_another();
	if (strcmp(arguments[1], "threads") == 0)
		attempt_in_threads();
	if (strcmp(arguments[1], "opened") == 0)
		attempt_opened();
	if (strcmp(arguments[1], "forked") == 0)
		attempt_in_forks();
	if (strcmp(arguments[1], "ended") == 0)
		attempt_in_contexts_that_end();
	if (strcmp(arguments[1], "broken captures") == 0)
		attempt_after_broken_captures();
	for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
		if (strcmp(arguments[1], "all") == 0 || strcmp(arguments[1], ways[i].name) == 0)
			attempt(&ways[i]);
	puts("all right");
	return 0;
}
