/* SPDX-License-Identifier: Apache-2.0
 *
 * A program linked with libterrazzo_cuda: checks each call's result, and whether terrazzo or the driver served it.
 */
#define TRZ_CUDA_NO_TOOLKIT
#include "terrazzo_cuda.h"

#include <string.h>

#include "cuda_calls.h"
#include "terrazzo.h"

int cudaMemPoolCreate(void **pool, const void *props);
int cudaMemPoolDestroy(void *pool);
int cudaGetDeviceCount(int *count);
int cudaDeviceEnablePeerAccess(int device, unsigned flags);
int cudaDeviceDisablePeerAccess(int device);
int cuMemGetAccess(unsigned long long *flags, const void *location, device_pointer address);

static size_t allocated(void)
{
	uint64_t bytes;
	CHECK(trz_stat(trz_cudaHeap(), "allocated_bytes.all.current", &bytes) == TRZ_OK);
	return bytes;
}

static void check_content(void *ptr, size_t size, int value)
{
	unsigned char *host = malloc(size);
	MUST(cudaMemset(ptr, value, size));
	MUST(cudaMemcpy(host, ptr, size, TO_HOST));
	for (size_t i = 0; i < size; i++)
		CHECK(host[i] == value);
	free(host);
}

static void check_plain(void)
{
	void *a, *b, *null = &a;
	MUST(trz_cudaMalloc(&a, 3 * MIB));
	MUST(trz_cudaMalloc(&b, 100));
	CHECK((uintptr_t)a % 256 == 0 && (uintptr_t)b % 256 == 0 && allocated() >= 3 * MIB + 100);
	check_content(a, 3 * MIB, 7);
	check_content(b, 100, 8);
	MUST(trz_cudaFree(a));
	GIVES(INVALID_VALUE, trz_cudaFree(a));
	GIVES(INVALID_VALUE, trz_cudaLastError(1));
	GIVES(SUCCESS, trz_cudaLastError(0));
	GIVES(INVALID_VALUE, trz_cudaFree((char *)b + 4));
	MUST(trz_cudaFree(b));
	MUST(trz_cudaFree(NULL));
	CHECK(allocated() == 0);
	MUST(trz_cudaMalloc(&null, 0));
	CHECK(!null);
	GIVES(INVALID_VALUE, trz_cudaMalloc(NULL, 5));
	GIVES(OUT_OF_MEMORY, trz_cudaMalloc(&a, (size_t)1 << 46));
	GIVES(OUT_OF_MEMORY, trz_cudaLastError(1));
}

static void check_pitched(void)
{
	void *a;
	size_t pitch = 0;
	trz_cudaPitchedPtr cube;
	MUST(trz_cudaMallocPitch(&a, &pitch, 1000, 30));
	CHECK(pitch == 1024 && allocated() >= 30 * pitch);
	MUST(trz_cudaFree(a));
	MUST(trz_cudaMalloc3D(&cube, (trz_cudaExtent){.width = 600, .height = 4, .depth = 5}));
	CHECK(cube.pitch == 1024 && cube.xsize == 600 && cube.ysize == 4 && allocated() >= 20 * cube.pitch);
	MUST(trz_cudaFree(cube.ptr));
	GIVES(OUT_OF_MEMORY, trz_cudaMalloc3D(&cube, (trz_cudaExtent){.width = 600, .height = SIZE_MAX, .depth = 5}));
	trz_cudaLastError(1);
}

static void check_streams(void)
{
	void *s, *t, *a, *b, *kernel = touching_kernel();
	MUST(cudaStreamCreateWithFlags(&s, NON_BLOCKING));
	MUST(cudaStreamCreateWithFlags(&t, NON_BLOCKING));
	MUST(trz_cudaMallocAsync(&a, 4 * MIB, s));
	touch(kernel, a, s);
	MUST(trz_cudaFreeAsync(a, s));
	MUST(trz_cudaMallocAsync(&b, 4 * MIB, s));
	CHECK(a == b);                                 /* in the stream's order, at once */
	touch(kernel, b, s);
	MUST(cudaStreamSynchronize(s));
	MUST(trz_cudaFreeAsync(b, t));                 /* by another stream, which comes after */
	GIVES(INVALID_VALUE, trz_cudaFreeAsync(b, t));
	trz_cudaLastError(1);
	MUST(trz_cudaMalloc(&a, MIB));
	touch(kernel, a, s);
	MUST(trz_cudaFreeAsync(a, s));
	MUST(trz_cudaMallocAsync_ptsz(&a, MIB, NULL));
	MUST(trz_cudaFreeAsync_ptsz(a, NULL));
	MUST(trz_cudaMallocAsync(&a, MIB, NULL));
	touch(kernel, a, NULL);
	MUST(trz_cudaFree(a));
	MUST(trz_cudaMallocAsync(&a, 0, s));
	CHECK(!a);
	MUST(trz_cudaFreeAsync(NULL, s));
	CHECK(allocated() == 0);
	MUST(trz_cudaStreamDestroy(s));
	MUST(trz_cudaStreamDestroy(t));
}

/* What a kernel still uses on one stream, freed for all, serves another only afterwards. The simulated device would
 * end the program. */
static void check_order(void)
{
	void *streams[4], *kernel = touching_kernel();
	for (int i = 0; i < 4; i++)
		MUST(cudaStreamCreateWithFlags(&streams[i], NON_BLOCKING));
	for (int i = 0; i < 400; i++) {
		void *a, *b, *stream = streams[i * 7 % 4], *other = streams[(i * 5 + 1) % 4];
		MUST(trz_cudaMalloc(&a, MIB * (1 + i % 5)));
		MUST(trz_cudaMallocAsync(&b, MIB * (1 + i % 3), stream));
		MUST(cudaMemsetAsync(a, i, MIB, other));
		touch(kernel, a, other);
		touch(kernel, b, stream);
		MUST(trz_cudaFree(a));
		MUST(trz_cudaFreeAsync(b, stream));
	}
	for (int i = 0; i < 4; i++)
		MUST(trz_cudaStreamDestroy(streams[i]));
}

static void check_pool(void)
{
	void *pool, *a;
	MUST(cudaDeviceGetDefaultMemPool(&pool, 0));
	MUST(trz_cudaMallocFromPoolAsync(&a, MIB, pool, NULL));
	CHECK(allocated() >= MIB);
	MUST(trz_cudaFreeAsync(a, NULL));
	MUST(trz_cudaMallocFromPoolAsync_ptsz(&a, MIB, pool, NULL));
	MUST(trz_cudaFreeAsync_ptsz(a, NULL));
	CHECK(allocated() == 0);
}

static size_t attribute(void *pool, int which)
{
	uint64_t bytes = 0;
	MUST(trz_cudaMemPoolGetAttribute(pool, which, &bytes));
	return bytes;
}

/* The default pool tells of the heap. A pool of the program's own is the driver's, with any of the calls. */
static void check_pool_attributes(void)
{
	enum { RESERVED = 5, USED = 7, USED_MOST = 8 };  /* cudaMemPoolAttr* */
	struct {
		int type, handles;
		int location_type, device;
		char rest[72];
	} props = {1, 0, 1, 0, {0}};
	void *standard, *own, *a, *b;
	uint64_t none = 0, threshold = UINT64_MAX;
	MUST(cudaDeviceGetDefaultMemPool(&standard, 0));
	MUST(trz_cudaMallocAsync(&a, 32 * MIB, NULL));
	CHECK(attribute(standard, USED) == 32 * MIB && attribute(standard, RESERVED) >= 32 * MIB);
	MUST(trz_cudaFreeAsync(a, NULL));
	MUST(cudaDeviceSynchronize());
	CHECK(attribute(standard, USED) == 0 && attribute(standard, USED_MOST) >= 32 * MIB);
	MUST(trz_cudaMemPoolSetAttribute(standard, USED_MOST, &none));
	CHECK(attribute(standard, USED_MOST) == 0 && attribute(standard, RESERVED) >= 32 * MIB);
	MUST(trz_cudaMemPoolTrimTo(standard, 0));
	CHECK(attribute(standard, RESERVED) == 0);

	MUST(cudaMemPoolCreate(&own, &props));
	MUST(trz_cudaMemPoolSetAttribute(own, 4, &threshold));  /* cudaMemPoolAttrReleaseThreshold */
	MUST(trz_cudaMallocFromPoolAsync(&b, MIB, own, NULL));
	CHECK(attribute(own, USED) == MIB && attribute(standard, USED) == 0 && allocated() == 0);
	MUST(trz_cudaFreeAsync(b, NULL));
	MUST(cudaDeviceSynchronize());
	CHECK(attribute(own, USED) == 0 && attribute(own, RESERVED) > 0);
	MUST(trz_cudaMemPoolTrimTo(own, 0));
	CHECK(attribute(own, RESERVED) == 0);
	MUST(cudaMemPoolDestroy(own));
	GIVES(INVALID_VALUE, trz_cudaMemPoolGetAttribute(own, USED, &none));
	GIVES(INVALID_VALUE, trz_cudaMemPoolTrimTo(NULL, 0));
	GIVES(INVALID_VALUE, trz_cudaMemPoolSetAttribute(standard, 99, &none));
	GIVES(INVALID_VALUE, trz_cudaLastError(1));
}

/* Whether the mapping of the address is open to the device, for reading and writing. */
static bool reaches(int device, const void *ptr)
{
	const int location[2] = {1, device};
	unsigned long long flags = 0;
	MUST(cuMemGetAccess(&flags, location, (uintptr_t)ptr));
	return flags == 3;
}

/* Devices that both have a heap reach each other's memory, since CUDA copies between them at the call of either. */
static void check_peers(void)
{
	const struct {
		int type, device, flags;
	} to_first = {1, 0, 3};
	void *pool, *a, *b, *c;
	int count;
	MUST(cudaGetDeviceCount(&count));
	if (count < 2)
		return;
	MUST(trz_cudaMalloc(&a, MIB));
	MUST(cudaSetDevice(1));
	CHECK(!reaches(1, a));
	MUST(trz_cudaMallocAsync(&b, MIB, NULL));
	CHECK(reaches(1, a) && reaches(0, b));
	MUST(cudaDeviceEnablePeerAccess(0, 0));
	trz_cudaOpenHeap(0, 1);
	MUST(cudaDeviceGetDefaultMemPool(&pool, 1));
	MUST(trz_cudaMemPoolSetAccess(pool, (const trz_cudaMemAccessDesc *)&to_first, 1));
	MUST(cudaDeviceDisablePeerAccess(0));
	trz_cudaOpenHeap(0, 0);
	MUST(trz_cudaMalloc(&c, 100 * MIB));
	CHECK(reaches(1, a) && reaches(0, b) && reaches(0, c));
	MUST(cudaMemcpy(c, a, MIB, DEVICE_TO_DEVICE));
	MUST(trz_cudaFree(c));
	MUST(trz_cudaFreeAsync(b, NULL));
	MUST(cudaDeviceSynchronize());
	MUST(cudaSetDevice(0));
	MUST(trz_cudaFree(a));
}

/* A graph's memory is the driver's; other memory cannot be freed in a capture. */
static void check_capture(void)
{
	void *s, *a, *b, *graph;
	MUST(cudaStreamCreateWithFlags(&s, NON_BLOCKING));
	MUST(trz_cudaMalloc(&a, MIB));
	size_t before = allocated();
	MUST(cudaStreamBeginCapture(s, CAPTURE_RELAXED));
	MUST(trz_cudaMallocAsync(&b, MIB, s));
	CHECK(trz_cudaFreeAsync(a, s) != SUCCESS);
	trz_cudaLastError(1);
	CHECK(allocated() == before);
	MUST(trz_cudaFreeAsync(b, s));
	MUST(cudaStreamEndCapture(s, &graph));
	MUST(cudaGraphDestroy(graph));
	MUST(trz_cudaFree(a));
	MUST(trz_cudaStreamDestroy(s));
}

static void check_info(void)
{
	size_t unused, total, later;
	void *a;
	MUST(trz_cudaMemGetInfo(&unused, &total));
	MUST(trz_cudaMalloc(&a, 64 * MIB));
	MUST(trz_cudaMemGetInfo(&later, &total));
	CHECK(later <= unused - 64 * MIB && later > unused - 96 * MIB);
	MUST(trz_cudaFree(a));
	MUST(trz_cudaMemGetInfo(&later, NULL));
	CHECK(later + 2 * MIB >= unused && later <= total);
	GIVES(SUCCESS, trz_cudaLastError(0));
}

/* Memory dies with its context; the next one has a heap of its own. */
static void check_reset(void)
{
	void *a;
	MUST(trz_cudaMalloc(&a, MIB));
	touch(touching_kernel(), a, NULL);  /* which may still run */
	trz_cudaEnd();
	MUST(cudaDeviceReset());
	GIVES(INVALID_VALUE, trz_cudaFree(a));
	MUST(trz_cudaMalloc(&a, MIB));
	check_content(a, MIB, 9);
	MUST(trz_cudaFree(a));
}

int main(void)
{
	check_plain();
	check_pitched();
	check_streams();
	check_order();
	check_pool();
	check_pool_attributes();
	check_peers();
	check_capture();
	check_info();
	check_reset();
	puts("all right");
	return 0;
}
