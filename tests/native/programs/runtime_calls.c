/* SPDX-License-Identifier: Apache-2.0
 *
 * A program of the CUDA runtime that allocates in all ways that the runtime offers, copies, and checks what comes back.
 * It does not mention terrazzo, and runs with and without it.
 */
#include <pthread.h>
#include <string.h>

#include "cuda_calls.h"

struct pitched {
	void *ptr;
	size_t pitch, width, height;
};

struct extent {
	size_t width, height, depth;
};

int cudaMallocPitch(void **ptr, size_t *pitch, size_t width, size_t height);
int cudaMalloc3D(struct pitched *made, struct extent extent);
int cudaMallocAsync(void **ptr, size_t size, void *stream);
int cudaFreeAsync(void *ptr, void *stream);
int cudaMallocAsync_ptsz(void **ptr, size_t size, void *stream);
int cudaFreeAsync_ptsz(void *ptr, void *stream);
int cudaMemsetAsync_ptsz(void *to, int value, size_t size, void *stream);
int cudaStreamSynchronize_ptsz(void *stream);
int cudaMallocFromPoolAsync(void **ptr, size_t size, void *pool, void *stream);
int cudaMallocManaged(void **ptr, size_t size, unsigned flags);
int cudaMallocHost(void **ptr, size_t size);
int cudaFreeHost(void *ptr);
int cudaEventCreateWithFlags(void **event, unsigned flags);
int cudaEventRecord(void *event, void *stream);
int cudaEventDestroy(void *event);
int cudaStreamWaitEvent(void *stream, void *event, unsigned flags);
int cudaStreamCreate(void **stream);
int cudaMemPoolTrimTo(void *pool, size_t keep);
int cudaMemPoolGetAttribute(void *pool, int attribute, void *value);
int cudaMemPoolSetAttribute(void *pool, int attribute, void *value);
int cudaMemPoolTrimTo(void *pool, size_t keep);

static void check_filled(const void *ptr, size_t size, int value)
{
	unsigned char *host = malloc(size);
	CHECK(host);
	MUST(cudaMemcpy(host, ptr, size, TO_HOST));
	for (size_t i = 0; i < size; i++)
		CHECK(host[i] == (unsigned char)value);
	free(host);
}

static void check_plain(void)
{
	enum { COUNT = 100 };
	void *blocks[COUNT];
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < COUNT; i++) {
			MUST(cudaMalloc(&blocks[i], (size_t)100 << i % 16));
			CHECK((uintptr_t)blocks[i] % 256 == 0);
			MUST(cudaMemset(blocks[i], i + round, (size_t)100 << i % 16));
		}
		for (int i = 0; i < COUNT; i++) {
			check_filled(blocks[i], (size_t)100 << i % 16, i + round);
			MUST(cudaFree(blocks[i]));
		}
	}
}

static void check_errors(void)
{
	void *p = NULL;
	MUST(cudaMalloc(&p, 0));
	CHECK(!p);
	MUST(cudaFree(NULL));
	GIVES(OUT_OF_MEMORY, cudaMalloc(&p, (size_t)1 << 46));
	GIVES(OUT_OF_MEMORY, cudaGetLastError());
	GIVES(SUCCESS, cudaGetLastError());
	MUST(cudaMalloc(&p, MIB));
	GIVES(INVALID_VALUE, cudaFree((char *)p + 512));
	MUST(cudaFree(p));
	GIVES(INVALID_VALUE, cudaFree(p));
	GIVES(INVALID_VALUE, cudaFree(&p));
	cudaGetLastError();
}

static void check_pitched(void)
{
	void *p;
	size_t pitch;
	struct pitched cube;
	MUST(cudaMallocPitch(&p, &pitch, 1000, 20));
	CHECK(pitch >= 1000 && pitch % 512 == 0);
	MUST(cudaMemset(p, 5, pitch * 20));
	check_filled(p, pitch * 20, 5);
	MUST(cudaFree(p));
	MUST(cudaMalloc3D(&cube, (struct extent){100, 20, 3}));
	CHECK(cube.width == 100 && cube.height == 20 && cube.pitch >= 100);
	MUST(cudaMemset(cube.ptr, 6, cube.pitch * 60));
	check_filled(cube.ptr, cube.pitch * 60, 6);
	MUST(cudaFree(cube.ptr));
}

static void check_ordered(void)
{
	void *s, *p, *q, *kernel = touching_kernel();
	MUST(cudaStreamCreateWithFlags(&s, NON_BLOCKING));
	for (int i = 0; i < 50; i++) {
		MUST(cudaMallocAsync(&p, (1 + i % 5) * MIB, s));
		MUST(cudaMallocAsync(&q, 4096, s));
		MUST(cudaMemsetAsync(p, i, MIB, s));
		touch(kernel, p, s);
		touch(kernel, q, s);
		MUST(cudaFreeAsync(q, s));
		MUST(cudaMemsetAsync(p, i + 1, MIB, s));
		MUST(cudaStreamSynchronize(s));
		check_filled(p, MIB, i + 1);
		MUST(cudaFreeAsync(p, s));
	}
	MUST(cudaMallocAsync(&p, MIB, s));
	touch(kernel, p, s);
	MUST(cudaStreamDestroy(s));
	MUST(cudaFree(p));
	MUST(cudaMalloc(&p, MIB));
	MUST(cudaFreeAsync(p, NULL));
	MUST(cudaMallocAsync_ptsz(&p, MIB, NULL));
	MUST(cudaMemsetAsync_ptsz(p, 3, MIB, NULL));
	MUST(cudaStreamSynchronize_ptsz(NULL));
	check_filled(p, MIB, 3);
	MUST(cudaFreeAsync_ptsz(p, NULL));
}

/* A producer and a consumer, in the order of an event. */
static void check_events(void)
{
	void *s, *t, *event, *p, *kernel = touching_kernel();
	MUST(cudaStreamCreate(&s));
	MUST(cudaStreamCreateWithFlags(&t, NON_BLOCKING));
	MUST(cudaEventCreateWithFlags(&event, 2));
	for (int i = 0; i < 50; i++) {
		MUST(cudaMallocAsync(&p, 2 * MIB, s));
		MUST(cudaMemsetAsync(p, i, 2 * MIB, s));
		MUST(cudaEventRecord(event, s));
		MUST(cudaStreamWaitEvent(t, event, 0));
		touch(kernel, p, t);
		MUST(cudaFreeAsync(p, t));
		MUST(cudaEventRecord(event, t));
		MUST(cudaStreamWaitEvent(s, event, 0));
	}
	MUST(cudaEventDestroy(event));
	MUST(cudaDeviceSynchronize());
	MUST(cudaStreamDestroy(s));
	MUST(cudaStreamDestroy(t));
}

/* Memory of cudaMalloc may be used on every stream, and cudaFree ends its use on all of them. */
static void check_streams(void)
{
	enum { STREAMS = 4 };
	void *streams[STREAMS], *kernel = touching_kernel();
	for (int i = 0; i < STREAMS; i++)
		MUST(cudaStreamCreateWithFlags(&streams[i], NON_BLOCKING));
	for (int i = 0; i < 200; i++) {
		void *a, *b;
		size_t size = (size_t)1 << (10 + i % 12);
		MUST(cudaMalloc(&a, size));
		MUST(cudaMallocAsync(&b, 2 * size, streams[i % STREAMS]));
		MUST(cudaMemsetAsync(a, i, size, streams[(i + 1) % STREAMS]));
		touch(kernel, b, streams[i % STREAMS]);
		touch(kernel, a, streams[(i + 1) % STREAMS]);
		MUST(cudaFreeAsync(b, streams[i % STREAMS]));
		MUST(cudaFree(a));
	}
	for (int i = 0; i < STREAMS; i++)
		MUST(cudaStreamDestroy(streams[i]));
}

/* Pinned and managed memory are not the device's. */
static void check_other_memory(void)
{
	void *pinned, *managed, *p;
	MUST(cudaMallocHost(&pinned, MIB));
	MUST(cudaMallocManaged(&managed, MIB, 1));
	MUST(cudaMalloc(&p, MIB));
	memset(pinned, 9, MIB);
	MUST(cudaMemcpy(p, pinned, MIB, TO_DEVICE));
	MUST(cudaMemcpy(managed, p, MIB, DEVICE_TO_DEVICE));
	check_filled(managed, MIB, 9);
	MUST(cudaFree(p));
	MUST(cudaFree(managed));
	MUST(cudaFreeHost(pinned));
}

/* A graph allocates and frees its own memory. */
static void check_graph(void)
{
	void *s, *p, *graph;
	MUST(cudaStreamCreateWithFlags(&s, NON_BLOCKING));
	MUST(cudaStreamBeginCapture(s, CAPTURE_RELAXED));
	MUST(cudaMallocAsync(&p, MIB, s));
	MUST(cudaMemsetAsync(p, 1, MIB, s));
	MUST(cudaFreeAsync(p, s));
	MUST(cudaStreamEndCapture(s, &graph));
	MUST(cudaGraphDestroy(graph));
	MUST(cudaMallocAsync(&p, MIB, s));
	MUST(cudaFreeAsync(p, s));
	MUST(cudaStreamDestroy(s));
}

static void check_pool(void)
{
	enum { USED = 7, USED_MOST = 8 };
	void *pool, *p;
	uint64_t before, used, most = 0;
	MUST(cudaDeviceGetDefaultMemPool(&pool, 0));
	MUST(cudaMemPoolGetAttribute(pool, USED, &before));
	MUST(cudaMallocFromPoolAsync(&p, 3 * MIB, pool, NULL));
	MUST(cudaMemPoolGetAttribute(pool, USED, &used));
	CHECK(used >= before + 3 * MIB);
	MUST(cudaFreeAsync(p, NULL));
	MUST(cudaDeviceSynchronize());
	MUST(cudaMemPoolGetAttribute(pool, USED, &used));
	MUST(cudaMemPoolGetAttribute(pool, USED_MOST, &most));
	CHECK(used == before && most >= 3 * MIB);
	MUST(cudaMemPoolTrimTo(pool, 0));
}

/* Each of the two peaks is set back by itself. What is reserved and free again is reserved once. */
static void check_pool_peaks(void)
{
	enum { RESERVED = 5, RESERVED_MOST = 6, USED_MOST = 8 };
	uint64_t reserved, reserved_most, used_most, none = 0;
	void *pool, *p;
	MUST(cudaDeviceGetDefaultMemPool(&pool, 0));
	MUST(cudaMemPoolTrimTo(pool, 0));
	MUST(cudaMemPoolSetAttribute(pool, RESERVED_MOST, &none));
	MUST(cudaMallocAsync(&p, 300 * MIB, NULL));
	MUST(cudaFreeAsync(p, NULL));
	MUST(cudaDeviceSynchronize());
	MUST(cudaMemPoolGetAttribute(pool, RESERVED_MOST, &reserved_most));
	CHECK(reserved_most >= 300 * MIB && reserved_most < 400 * MIB);
	MUST(cudaMemPoolTrimTo(pool, 0));
	MUST(cudaMemPoolSetAttribute(pool, RESERVED_MOST, &none));
	MUST(cudaMemPoolGetAttribute(pool, RESERVED, &reserved));
	MUST(cudaMemPoolGetAttribute(pool, RESERVED_MOST, &reserved_most));
	MUST(cudaMemPoolGetAttribute(pool, USED_MOST, &used_most));
	CHECK(reserved_most == reserved && reserved < 300 * MIB && used_most >= 300 * MIB);
	MUST(cudaMemPoolSetAttribute(pool, USED_MOST, &none));
	MUST(cudaMemPoolGetAttribute(pool, USED_MOST, &used_most));
	CHECK(used_most == 0);
}

static void check_info(void)
{
	size_t before, after, total;
	void *p;
	MUST(cudaMemGetInfo(&before, &total));
	MUST(cudaMalloc(&p, 100 * MIB));
	MUST(cudaMemGetInfo(&after, &total));
	CHECK(after + 100 * MIB <= before && after + 104 * MIB >= before);
	MUST(cudaFree(p));
	MUST(cudaMemGetInfo(&after, &total));
	CHECK(after + 4 * MIB >= before && after <= total);
}

static void *work(void *number)
{
	void *stream, *kernel, *p, *q;
	MUST(cudaSetDevice(0));
	MUST(cudaFree(NULL));
	kernel = touching_kernel();
	MUST(cudaStreamCreateWithFlags(&stream, NON_BLOCKING));
	for (int i = 0; i < 200; i++) {
		MUST(cudaMallocAsync(&p, 4096 << i % 8, stream));
		MUST(cudaMalloc(&q, 64 << i % 16));
		touch(kernel, p, stream);
		touch(kernel, q, stream);
		MUST(cudaFreeAsync(p, stream));
		MUST(i % 2 ? cudaFree(q) : cudaFreeAsync(q, stream));
	}
	MUST(cudaStreamDestroy(stream));
	return number;
}

static void check_threads(void)
{
	enum { THREADS = 4 };
	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, work, NULL) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
}

static void check_reset(void)
{
	void *p;
	MUST(cudaMalloc(&p, MIB));
	MUST(cudaDeviceReset());
	GIVES(INVALID_VALUE, cudaFree(p));
	cudaGetLastError();
	MUST(cudaMalloc(&p, MIB));
	MUST(cudaMemset(p, 1, MIB));
	check_filled(p, MIB, 1);
	MUST(cudaFree(p));
}

int main(void)
{
	check_plain();
	check_errors();
	check_pitched();
	check_ordered();
	check_events();
	check_streams();
	check_other_memory();
	check_graph();
	check_pool();
	check_pool_peaks();
	check_info();
	check_threads();
	check_reset();
	puts("all right");
	return 0;
}
