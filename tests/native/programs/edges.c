/* SPDX-License-Identifier: Apache-2.0
 *
 * The edges of a program's life: what it does before main, at its end, in children, on several devices and in several
 * processes. Its argument names the case.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_calls.h"

int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuCtxSetCurrent(void *context);
int cuCtxCreate_v2(void **context, unsigned flags, int device);
int cuCtxDestroy_v2(void *context);
int cuCtxAttach(void **context, unsigned flags);
int cuCtxDetach(void *context);
int cuCtxGetCurrent(void **context);
struct share {
	int type, reserved[35];
};
int cuDeviceGetDevResource(int device, struct share *share, int type);
int cuDevResourceGenerateDesc(void **made, const struct share *shares, unsigned count);
int cuGreenCtxCreate(void **made, void *description, int device, unsigned flags);
int cuGreenCtxDestroy(void *green);
int cuCtxFromGreenCtx(void **context, void *green);
int cuGreenCtxStreamCreate(void **stream, void *green, unsigned flags, int priority);
int cuMemGetInfo_v2(size_t *free_bytes, size_t *total);
int cuMemAlloc_v2(device_pointer *ptr, size_t size);
int cuMemFree_v2(device_pointer ptr);
int cuMemPoolCreate(void **pool, const void *props);
int cuMemPoolDestroy(void *pool);
int cuMemSetMemPool(const int location[2], int type, void *pool);
int cuMemPoolGetAttribute(void *pool, int attribute, void *value);
int cuMemPoolTrimTo(void *pool, size_t keep);
int cuMemAllocAsync(device_pointer *ptr, size_t size, void *stream);
int cuMemFreeAsync(device_pointer ptr, void *stream);
int cuCtxSynchronize(void);
int cuPointerGetAttribute(void *value, int attribute, device_pointer ptr);
int cudaMallocAsync(void **ptr, size_t size, void *stream);
int cudaFreeAsync(void *ptr, void *stream);
int cudaMallocAsync_ptsz(void **ptr, size_t size, void *stream);
int cudaFreeAsync_ptsz(void *ptr, void *stream);
int cudaDeviceEnablePeerAccess(int device, unsigned flags);
int cudaDeviceDisablePeerAccess(int device);
int cudaEventCreate(void **event);
int cudaEventRecord(void *event, void *stream);
int cudaStreamWaitEvent(void *stream, void *event, unsigned flags);
int cudaMemcpyPeer(void *to, int device, const void *from, int source, size_t size);

static void check_filled(const void *ptr, size_t size, int value)
{
	unsigned char *host = malloc(size);
	CHECK(host);
	MUST(cudaMemcpy(host, ptr, size, TO_HOST));
	for (size_t i = 0; i < size; i++)
		CHECK(host[i] == (unsigned char)value);
	free(host);
}

static void use(int value)
{
	void *p, *q;
	MUST(cudaMalloc(&p, 3 * MIB));
	MUST(cudaMallocAsync(&q, MIB, NULL));
	MUST(cudaMemset(p, value, 3 * MIB));
	check_filled(p, 3 * MIB, value);
	MUST(cudaFreeAsync(q, NULL));
	MUST(cudaFree(p));
}

/* ---- before main ---- */

static device_pointer early;

__attribute__((constructor)) static void allocate_early(void)
{
	void *context;
	void *(*find)(void *, const char *) = dlsym;
	CHECK(find(RTLD_DEFAULT, "malloc") && !find(RTLD_DEFAULT, "no_such_function") && dlerror());
	MUST(cuInit(0));
	MUST(cuDevicePrimaryCtxRetain(&context, 0));
	MUST(cuCtxSetCurrent(context));
	MUST(cuMemAlloc_v2(&early, MIB));
}

/* The other device's primary context, and what it holds, is not this program's business. */
static void begin(void)
{
	check_filled((void *)early, 0, 0);
	MUST(cuMemFree_v2(early));
	use(1);
}

/* ---- at the end ---- */

static void *kept[3];

static void free_at_exit(void)
{
	cudaFree(kept[0]);
}

__attribute__((destructor)) static void free_last(void)
{
	cudaFree(kept[1]);
}

static void *go_on(void *unused)
{
	for (;;) {
		void *p;
		if (cudaMalloc(&p, MIB) == SUCCESS)
			cudaFree(p);
	}
	return unused;
}

static void leave_while_threads_run(void)
{
	pthread_t thread;
	for (int i = 0; i < 3; i++)
		MUST(cudaMalloc(&kept[i], MIB));
	atexit(free_at_exit);
	CHECK(pthread_create(&thread, NULL, go_on, NULL) == 0);
	usleep(10000);
}

static pthread_key_t key;

/* By now CUDA may have taken the thread's context away. */
static void free_at_thread_exit(void *ptr)
{
	int result = cudaFreeAsync_ptsz(ptr, NULL);
	CHECK(result == SUCCESS || result == INVALID_CONTEXT);
}

static void *end_thread(void *unused)
{
	void *p, *q;
	MUST(cudaSetDevice(0));
	MUST(cudaMallocAsync_ptsz(&p, MIB, NULL));
	MUST(cudaMalloc(&q, 4096));
	pthread_setspecific(key, p);
	MUST(cudaFreeAsync_ptsz(q, NULL));
	return unused;
}

static void end_threads(void)
{
	pthread_t thread;
	CHECK(pthread_key_create(&key, free_at_thread_exit) == 0);
	for (int i = 0; i < 50; i++) {
		CHECK(pthread_create(&thread, NULL, end_thread, NULL) == 0);
		CHECK(pthread_join(thread, NULL) == 0);
	}
	use(2);
}

/* ---- children ---- */

static void await(pid_t child)
{
	int status;
	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* CUDA does not work in the child of a process that has used it; but the child may go on without it. */
static void fork_after_use(void)
{
	void *p, *q;
	MUST(cudaMalloc(&p, MIB));
	pid_t child = fork();
	if (child == 0) {
		CHECK(cudaMalloc(&q, MIB) != SUCCESS);
		CHECK(cudaFree(p) != SUCCESS);
		CHECK(cudaMallocAsync(&q, MIB, NULL) != SUCCESS);
		_exit(0);
	}
	await(child);
	check_filled(p, 0, 0);
	MUST(cudaFree(p));
	use(3);
}

static void run_another(const char *program)
{
	pid_t child = fork();
	if (child == 0) {
		execl(program, program, "plain", (char *)NULL);
		_exit(1);
	}
	await(child);
}

/* ---- libraries that come and go ---- */

static void load_and_unload(void)
{
	for (int i = 0; i < 20; i++) {
		void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *runtime = dlopen("libcudart.so.12", RTLD_NOW);
		CHECK(library && runtime);
		int (*allocate)(device_pointer *, size_t) = (int (*)(device_pointer *, size_t))dlsym(library, "cuMemAlloc_v2");
		int (*set)(int) = (int (*)(int))dlsym(runtime, "cudaSetDevice");
		device_pointer p;
		CHECK(allocate && set && !dlsym(library, "cuNoSuchFunction"));
		MUST(set(0));
		MUST(allocate(&p, MIB));
		MUST(cuMemFree_v2(p));
		dlclose(runtime);
		dlclose(library);
	}
	use(4);
}

/* ---- devices ---- */

/* Copies between devices, and by a device of what is on the other, which need no peer access. */
static void copy_among(void *a, void *b, size_t size)
{
	for (int device = 0; device < 2; device++) {
		MUST(cudaSetDevice(device));
		MUST(cudaMemset(device ? b : a, 20 + device, size));
		MUST(cudaDeviceSynchronize());
		MUST(cudaSetDevice(!device));
		check_filled(device ? b : a, size, 20 + device);
		MUST(cudaMemcpy(device ? a : b, device ? b : a, size, DEVICE_TO_DEVICE));
		check_filled(device ? a : b, size, 20 + device);
		MUST(cudaMemcpyAsync(device ? b : a, device ? a : b, size, DEVICE_TO_DEVICE, NULL));
		MUST(cudaDeviceSynchronize());
	}
}

static void use_apart(void)
{
	void *a, *b;
	MUST(cudaSetDevice(1));
	MUST(cudaFree(NULL));
	MUST(cudaMalloc(&b, 4 * MIB));
	MUST(cudaSetDevice(0));
	MUST(cudaFree(NULL));
	MUST(cudaMalloc(&a, 4 * MIB));
	MUST(cudaFree(b));
	MUST(cudaMalloc(&b, 4 * MIB));
	MUST(cudaFree(b));
	MUST(cudaSetDevice(1));
	MUST(cudaMalloc(&b, 4 * MIB));
	copy_among(a, b, 4 * MIB);
	MUST(cudaFree(a));
	MUST(cudaFree(b));
	use(14);
}

static void use_peers(void)
{
	void *a, *b, *kernel;
	MUST(cudaSetDevice(0));
	MUST(cudaMalloc(&a, 4 * MIB));
	MUST(cudaMemset(a, 9, 4 * MIB));
	MUST(cudaDeviceSynchronize());
	MUST(cudaSetDevice(1));
	check_filled(a, 4 * MIB, 9);            /* by a device that has no memory yet */
	MUST(cudaMalloc(&b, 4 * MIB));
	copy_among(a, b, 4 * MIB);
	MUST(cudaFree(a));
	MUST(cudaFree(b));
	MUST(cudaSetDevice(0));
	MUST(cudaMalloc(&a, 4 * MIB));
	MUST(cudaMemset(a, 5, 4 * MIB));
	MUST(cudaSetDevice(1));
	MUST(cudaMalloc(&b, 4 * MIB));
	kernel = touching_kernel();
	MUST(cudaMemcpyPeer(b, 1, a, 0, 4 * MIB));
	check_filled(b, 4 * MIB, 5);
	MUST(cudaDeviceEnablePeerAccess(0, 0));
	touch(kernel, a, NULL);                 /* device 1 reads memory of device 0 */
	MUST(cudaDeviceSynchronize());
	MUST(cudaSetDevice(0));
	MUST(cudaFree(a));
	MUST(cudaMalloc(&a, 40 * MIB));         /* so it does memory that came later */
	MUST(cudaSetDevice(1));
	touch(kernel, a, NULL);
	MUST(cudaDeviceSynchronize());
	MUST(cudaFree(a));                      /* while the other device is current */
	MUST(cudaDeviceDisablePeerAccess(0));
	MUST(cudaMalloc(&a, 60 * MIB));
	MUST(cudaSetDevice(0));
	MUST(cudaMemcpy(b, a, 4 * MIB, DEVICE_TO_DEVICE));
	MUST(cudaFree(b));
	MUST(cudaFree(a));
	use(6);
}

/* What is allocated in a green context is the primary context's, and outlives the green one. */
static void use_green_contexts(void)
{
	enum { CONTEXT = 1, MULTIPROCESSORS = 1 };
	void *green, *context, *primary, *stream, *owner, *description, *p;
	struct share all;
	device_pointer q;
	MUST(cudaSetDevice(0));
	MUST(cudaFree(NULL));
	MUST(cuCtxGetCurrent(&primary));
	MUST(cuDeviceGetDevResource(0, &all, MULTIPROCESSORS));
	MUST(cuDevResourceGenerateDesc(&description, &all, 1));
	for (int round = 0; round < 3; round++) {
		MUST(cuGreenCtxCreate(&green, description, 0, 1));
		MUST(cuCtxFromGreenCtx(&context, green));
		MUST(cuGreenCtxStreamCreate(&stream, green, NON_BLOCKING, 0));
		MUST(cudaMallocAsync(&p, MIB, stream));
		MUST(cudaMemsetAsync(p, 8 + round, MIB, stream));
		MUST(cuCtxSetCurrent(context));
		MUST(cuMemAlloc_v2(&q, MIB));
		MUST(cuPointerGetAttribute(&owner, CONTEXT, q));
		CHECK(owner == primary);
		MUST(cudaMemsetAsync((void *)q, 9 + round, MIB, stream));
		MUST(cudaStreamSynchronize(stream));
		MUST(cuCtxSetCurrent(primary));
		check_filled(p, MIB, 8 + round);
		MUST(cudaFreeAsync(p, stream));
		MUST(cudaStreamDestroy(stream));
		MUST(cuGreenCtxDestroy(green));
		check_filled((void *)q, MIB, 9 + round);
		MUST(cuMemFree_v2(q));
	}
	use(16);
}

/* What is freed twice is nobody's; least of all may the driver be asked to free what lies there. */
static void free_twice(void)
{
	enum { COUNT = 3 };
	void *list[COUNT], *other;
	for (int device = 1; device >= 0; device--) {
		MUST(cudaSetDevice(device));
		MUST(cudaMalloc(&other, MIB));
	}
	for (int i = 0; i < COUNT; i++)
		MUST(cudaMalloc(&list[i], 20 * MIB));
	for (int i = 0; i < COUNT; i++) {
		MUST(cudaFree(list[i]));
		GIVES(INVALID_VALUE, cudaFree(list[i]));
		GIVES(INVALID_VALUE, cudaFreeAsync(list[i], NULL));
	}
	for (int i = 0; i < COUNT; i++) {
		MUST(cudaMalloc(&list[i], 20 * MIB));
		MUST(cudaMemset(list[i], i, 20 * MIB));
		check_filled(list[i], 20 * MIB, i);
	}
	use(15);
}

/* ---- resets ---- */

static atomic_bool over;

static void *keep_allocating(void *context)
{
	device_pointer p;
	while (!atomic_load(&over))
		if (cuCtxSetCurrent(context) == SUCCESS && cuMemAlloc_v2(&p, 4096) == SUCCESS)
			cuMemFree_v2(p);
	return NULL;
}

/* One thread ends the primary context, while others are in it. */
static void reset_under_threads(void)
{
	pthread_t threads[3];
	for (int round = 0; round < 10; round++) {
		void *context;
		atomic_store(&over, false);
		MUST(cuDevicePrimaryCtxRetain(&context, 0));
		for (int i = 0; i < 3; i++)
			CHECK(pthread_create(&threads[i], NULL, keep_allocating, context) == 0);
		usleep(3000);
		cudaSetDevice(0);
		cudaDeviceReset();
		atomic_store(&over, true);
		for (int i = 0; i < 3; i++)
			CHECK(pthread_join(threads[i], NULL) == 0);
	}
	MUST(cudaSetDevice(0));
	use(7);
}

/* Kernels may still be using the memory. */
static void reset_during_work(void)
{
	void *a, *b, *context, *stream;
	for (int round = 0; round < 2; round++) {
		MUST(cudaSetDevice(0));
		MUST(cudaMalloc(&a, 4 * MIB));
		MUST(cudaStreamCreateWithFlags(&stream, NON_BLOCKING));
		MUST(cudaMallocAsync(&b, 4 * MIB, stream));
		touch(touching_kernel(), a, stream);
		touch(touching_kernel(), b, stream);
		MUST(cudaDeviceReset());
		GIVES(INVALID_VALUE, cudaFree(a));
	}
	MUST(cuCtxCreate_v2(&context, 0, 0));
	device_pointer p;
	MUST(cuMemAlloc_v2(&p, 4 * MIB));
	touch(touching_kernel(), (void *)(uintptr_t)p, NULL);
	MUST(cuCtxDestroy_v2(context));
	use(9);
}

static void *make_contexts(void *unused)
{
	void *context;
	device_pointer p;
	while (!atomic_load(&over)) {
		MUST(cuCtxCreate_v2(&context, 0, 0));
		MUST(cuMemAlloc_v2(&p, MIB));
		MUST(cuCtxDestroy_v2(context));
	}
	return unused;
}

/* Children that are made while other threads open heaps wait for none of these. */
static void fork_beside_threads(void)
{
	enum { FORKS = 100, LONGEST = 60 };
	pthread_t threads[2];
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&threads[i], NULL, make_contexts, NULL) == 0);
	for (int i = 0; i < FORKS; i++) {
		pid_t child = fork();
		if (child == 0) {
			alarm(LONGEST);
			cudaDeviceReset();
			_exit(0);
		}
		await(child);
	}
	atomic_store(&over, true);
	for (int i = 0; i < 2; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	use(20);
}

/* ---- captures ---- */

enum { CAPTURE_GLOBAL = 0 };

static void join(void *stream, void *to)
{
	void *event;
	MUST(cudaEventCreate(&event));
	MUST(cudaEventRecord(event, to));
	MUST(cudaStreamWaitEvent(stream, event, 0));
}

/* A capture goes on, whatever becomes of streams that it has not begun on. */
static void capture_beside_others(void)
{
	void *stream, *other, *graph, *p;
	for (int round = 0; round < 2; round++) {
		MUST(cudaStreamCreateWithFlags(&stream, NON_BLOCKING));
		MUST(cudaStreamCreateWithFlags(&other, NON_BLOCKING));
		MUST(cudaStreamBeginCapture(stream, CAPTURE_GLOBAL));
		if (round == 0) {
			GIVES(ILLEGAL_STATE, cudaStreamEndCapture(other, &graph));
		} else {
			join(other, stream);
			join(stream, other);
		}
		MUST(cudaStreamDestroy(other));
		GIVES(CAPTURE_UNSUPPORTED, cudaMalloc(&p, MIB));
		GIVES(CAPTURE_INVALIDATED, cudaStreamEndCapture(stream, &graph));
	}
	use(10);
}

static size_t unused_after_rounds(int rounds)
{
	size_t unused, total;
	void *p;
	for (int i = 0; i < rounds; i++) {
		MUST(cudaMallocAsync(&p, 100 * MIB, NULL));
		MUST(cudaFree(p));
	}
	MUST(cudaMemGetInfo(&unused, &total));
	return unused;
}

/* A reset ends captures, too: frees are frees again. */
static void reset_during_capture(void)
{
	void *stream, *context;
	MUST(cudaStreamCreateWithFlags(&stream, NON_BLOCKING));
	MUST(cudaStreamBeginCapture(stream, CAPTURE_RELAXED));
	MUST(cudaDeviceReset());
	MUST(cudaSetDevice(0));
	CHECK(unused_after_rounds(1) == unused_after_rounds(10));
	MUST(cuCtxCreate_v2(&context, 0, 0));
	MUST(cudaStreamCreateWithFlags(&stream, NON_BLOCKING));
	MUST(cudaStreamBeginCapture(stream, CAPTURE_RELAXED));
	MUST(cuCtxDestroy_v2(context));
	MUST(cudaSetDevice(0));
	CHECK(unused_after_rounds(1) == unused_after_rounds(10));
	use(11);
}

/* The last use of a context ends it, and what is allocated there; no other one does. */
static void detach(void)
{
	void *context, *again, *stream, *primary;
	device_pointer p, q;
	size_t before, after, total;
	MUST(cudaSetDevice(0));
	MUST(cudaStreamCreateWithFlags(&stream, NON_BLOCKING));
	MUST(cuCtxGetCurrent(&primary));
	MUST(cuMemGetInfo_v2(&before, &total));
	for (int round = 0; round < 3; round++) {
		MUST(cuCtxCreate_v2(&context, 0, 0));
		MUST(cuMemAlloc_v2(&p, 40 * MIB));
		MUST(cuCtxAttach(&again, 0));
		CHECK(again == context);
		MUST(cuCtxDetach(context));
		MUST(cuMemAlloc_v2(&q, 40 * MIB));
		touch(touching_kernel(), (void *)(uintptr_t)p, NULL);
		MUST(cuMemFree_v2(q));
		CHECK(cuCtxDetach(primary) != SUCCESS);
		MUST(cuCtxDetach(context));
		MUST(cuCtxSetCurrent(primary));
		GIVES(INVALID_VALUE, cuMemFree_v2(p));
	}
	MUST(cuMemGetInfo_v2(&after, &total));
	CHECK(after + 4 * MIB >= before);
	MUST(cudaStreamDestroy(stream));        /* with contexts behind us that are gone */
	MUST(cuCtxGetCurrent(&again));
	CHECK(again == primary);
	use(12);
}

/* What has been freed is there for a context, too. */
static void fill(void)
{
	device_pointer p[200];
	void *context, *primary;
	int count = 0;
	MUST(cudaSetDevice(0));
	MUST(cuCtxGetCurrent(&primary));
	while (count < 200 && cuMemAlloc_v2(&p[count], 512 * MIB) == SUCCESS)
		count++;
	CHECK(count > 10 && count < 200);
	for (int i = 0; i < count; i++)
		MUST(cuMemFree_v2(p[i]));
	MUST(cuCtxCreate_v2(&context, 0, 0));
	MUST(cuCtxDestroy_v2(context));
	MUST(cuCtxSetCurrent(primary));
	use(13);
}

/* Memory of the pool that the program has chosen is that pool's. */
static void choose_a_pool(void)
{
	enum { DEVICE = 1, PINNED = 1, OF_POOL = 17 };
	struct {
		int type, handles, location, device;
		char rest[72];
	} props = {PINNED, 0, DEVICE, 0, {0}};
	const int location[2] = {DEVICE, 0};
	void *pool, *p, *found;
	use(15);
	MUST(cuMemPoolCreate(&pool, &props));
	MUST(cuMemSetMemPool(location, PINNED, pool));
	MUST(cudaMallocAsync(&p, MIB, NULL));
	MUST(cuPointerGetAttribute(&found, OF_POOL, (uintptr_t)p));
	CHECK(found == pool);
	MUST(cudaFreeAsync(p, NULL));
	MUST(cudaDeviceSynchronize());
	MUST(cuMemPoolDestroy(pool));
	use(16);
}

static uint64_t of_pool(void *pool, int attribute)
{
	uint64_t value = 0;
	MUST(cuMemPoolGetAttribute(pool, attribute, &value));
	return value;
}

/* The pool is the device's, whichever context its memory is allocated in. */
static void share_a_pool(void)
{
	enum { RESERVED = 5, USED = 7 };
	void *context, *primary, *pool, *p;
	device_pointer q;
	size_t before, after, total;
	use(18);
	MUST(cuCtxGetCurrent(&primary));
	MUST(cudaDeviceGetDefaultMemPool(&pool, 0));
	MUST(cudaMallocAsync(&p, 24 * MIB, NULL));
	MUST(cuCtxCreate_v2(&context, 0, 0));
	MUST(cuMemAllocAsync(&q, 40 * MIB, NULL));
	CHECK(of_pool(pool, USED) == 64 * MIB && of_pool(pool, RESERVED) >= 64 * MIB);
	MUST(cuCtxSetCurrent(primary));
	MUST(cuMemGetInfo_v2(&before, &total));
	MUST(cuCtxSetCurrent(context));
	MUST(cuMemFreeAsync(q, NULL));
	MUST(cuCtxSynchronize());
	CHECK(of_pool(pool, USED) == 24 * MIB);
	MUST(cuCtxSetCurrent(primary));
	MUST(cuMemGetInfo_v2(&after, &total));
	CHECK(after >= before + 40 * MIB && after <= total);
	MUST(cudaFreeAsync(p, NULL));
	MUST(cudaDeviceSynchronize());
	CHECK(of_pool(pool, USED) == 0);
	MUST(cuMemPoolTrimTo(pool, 0));
	CHECK(of_pool(pool, RESERVED) == 0);
	MUST(cuCtxDestroy_v2(context));
	MUST(cuCtxSetCurrent(primary));
	use(19);
}

static void *do_nothing(void *argument)
{
	return argument;
}

/* What the loaded libraries keep for each thread lies on its stack. */
static void make_threads_with_small_stacks(void)
{
	enum { SMALLEST = 16384 };  /* PTHREAD_STACK_MIN of most systems */
	pthread_attr_t attributes;
	pthread_t thread;
	use(17);
	CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, SMALLEST) == 0);
	CHECK(pthread_create(&thread, &attributes, do_nothing, NULL) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
}

static void use_plainly(void)
{
	use(8);
}

static void end_quickly(void)
{
	use(8);
	puts("all right");
	fflush(stdout);
	quick_exit(0);
}

int main(int count, char **arguments)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = {
		{"plain", use_plainly}, {"exit", leave_while_threads_run}, {"threads", end_threads}, {"fork", fork_after_use},
		{"fork beside threads", fork_beside_threads}, {"dlclose", load_and_unload}, {"peers", use_peers},
		{"apart", use_apart}, {"reset", reset_under_threads}, {"reset during work", reset_during_work},
		{"captures", capture_beside_others}, {"reset during a capture", reset_during_capture}, {"detach", detach},
		{"fill", fill}, {"a pool chosen", choose_a_pool}, {"a pool shared", share_a_pool},
		{"small stacks", make_threads_with_small_stacks}, {"freed twice", free_twice}, {"green", use_green_contexts},
		{"quick exit", end_quickly},
	};
	CHECK(count == 2);
	begin();
	size_t i = 0;
	while (i < sizeof cases / sizeof cases[0] && strcmp(cases[i].name, arguments[1]) != 0)
		i++;
	if (i < sizeof cases / sizeof cases[0])
		cases[i].run();
	else
		run_another(arguments[0]);
	puts("all right");
	return 0;
}
