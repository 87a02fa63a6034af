/* SPDX-License-Identifier: Apache-2.0
 *
 * cudaMalloc and its kin: sizes, alignment, failure, contents, frees, pitched memory, and what pointers tell.
 */
#include "conformance.h"

#include <stdlib.h>
#include <string.h>

static bool aligned(const void *ptr, size_t alignment)
{
	return ptr && (uintptr_t)ptr % alignment == 0;
}

static void *allocate(size_t size)
{
	void *ptr = NULL;
	must("cudaMalloc", cudaMalloc(&ptr, size));
	return ptr;
}

static void contents(void)
{
	static unsigned char in[256 * 1024], out[sizeof in];
	void *one = allocate(sizeof in), *two = allocate(sizeof in), *others[32];
	for (size_t i = 0; i < sizeof in; i++)
		in[i] = (unsigned char)(i * 7 + i / 251);
	is("malloc/copy_in", cudaMemcpy(one, in, sizeof in, TO_DEVICE), SUCCESS);
	is("malloc/copy_over", cudaMemcpy(two, one, sizeof in, ON_DEVICE), SUCCESS);
	for (int i = 0; i < 32; i++)
		others[i] = allocate(sizeof in);
	for (int i = 0; i < 32; i++)
		cudaMemset(others[i], 0xee, sizeof in);
	is("malloc/copy_out", cudaMemcpy(out, two, sizeof in, TO_HOST), SUCCESS);
	holds("malloc/content_arrives", memcmp(in, out, sizeof in) == 0);
	for (int i = 0; i < 32; i += 2)
		cudaFree(others[i]);
	memset(out, 0, sizeof out);
	cudaMemcpy(out, one, sizeof in, TO_HOST);
	holds("malloc/content_outlives_neighbours", memcmp(in, out, sizeof in) == 0);
	is("malloc/set", cudaMemset(one, 0x5a, sizeof in), SUCCESS);
	cudaMemcpy(out, one, sizeof in, TO_HOST);
	holds("malloc/set_arrives", out[0] == 0x5a && out[sizeof out - 1] == 0x5a);
	cudaMemcpy(out, two, sizeof in, TO_HOST);
	holds("malloc/set_stays_within", memcmp(in, out, sizeof in) == 0);
	is("malloc/set_of_nothing", cudaMemset(one, 1, 0), SUCCESS);
	is("malloc/set_of_null", cudaMemset(NULL, 1, 64), INVALID_VALUE);
	for (int i = 1; i < 32; i += 2)
		cudaFree(others[i]);
	cudaFree(one);
	cudaFree(two);
	cudaGetLastError();
}

static void overlaps(void)
{
	enum { COUNT = 200 };
	char *list[COUNT];
	size_t sizes[COUNT];
	bool apart = true, all_aligned = true;
	for (int i = 0; i < COUNT; i++) {
		sizes[i] = 1 + (size_t)i * i * 37;
		list[i] = allocate(sizes[i]);
		all_aligned = all_aligned && aligned(list[i], 256);
		for (int j = 0; j < i; j++)
			apart = apart && (list[i] + sizes[i] <= list[j] || list[j] + sizes[j] <= list[i]);
	}
	holds("malloc/apart", apart);
	holds("malloc/many_aligned", all_aligned);
	for (int i = 0; i < COUNT; i++)
		cudaFree(list[i]);
}

static void too_large(size_t total)
{
	void *ptr = NULL;
	is("malloc/more_than_there_is", cudaMalloc(&ptr, 2 * total), OUT_OF_MEMORY);
	is("malloc/failure_can_be_peeked_at", cudaPeekAtLastError(), OUT_OF_MEMORY);
	is("malloc/failure_is_the_last_error", cudaGetLastError(), OUT_OF_MEMORY);
	is("malloc/last_error_is_told_once", cudaGetLastError(), SUCCESS);
	is("malloc/largest_number", cudaMalloc(&ptr, SIZE_MAX), OUT_OF_MEMORY);
	is("malloc/works_after_failure", cudaMalloc(&ptr, 64), SUCCESS);
	is("malloc/success_keeps_last_error", cudaPeekAtLastError(), OUT_OF_MEMORY);
	cudaGetLastError();
	cudaFree(ptr);
	is("malloc/half_of_it", cudaMalloc(&ptr, total / 2), SUCCESS);
	is("malloc/half_of_it_freed", cudaFree(ptr), SUCCESS);
}

/* Blocks of a hundredth of the memory, but at least 16 MiB, until there is no more, twice. */
static void fill(size_t total)
{
	void *list[128];
	size_t counts[2] = {0, 0}, block = total / 100 < 16 * MIB ? 16 * MIB : total / 100;
	for (int round = 0; round < 2; round++) {
		size_t *count = &counts[round];
		while (*count < 128 && cudaMalloc(&list[*count], block) == SUCCESS)
			++*count;
		is(round ? "malloc/full_again" : "malloc/full", cudaGetLastError(), OUT_OF_MEMORY);
		for (size_t i = 0; i < *count; i++)
			cudaFree(list[i]);
	}
	holds("malloc/most_can_be_had", counts[0] * block > total / 2);
	is("malloc/freed_memory_comes_back", (long long)counts[1], (long long)counts[0]);
}

void check_malloc(void)
{
	static const size_t sizes[] = {1, 3, 255, 257, 4097, 100000, 1048577, 33554433};
	static const char *const names[] = {"malloc/aligned_1", "malloc/aligned_3", "malloc/aligned_255",
		"malloc/aligned_257", "malloc/aligned_4097", "malloc/aligned_100000", "malloc/aligned_1M",
		"malloc/aligned_32M"};
	void *ptr = NULL;
	size_t unused, total, before;
	is("malloc/one_byte", cudaMalloc(&ptr, 1), SUCCESS);
	is("malloc/one_byte_freed", cudaFree(ptr), SUCCESS);
	for (int i = 0; i < 8; i++) {
		ptr = allocate(sizes[i]);
		holds(names[i], aligned(ptr, 256));
		cudaFree(ptr);
	}
	is("malloc/nowhere_to_put_it", cudaMalloc(NULL, 64), INVALID_VALUE);
	cudaGetLastError();
	ptr = NULL;
	is("malloc/zero", cudaMalloc(&ptr, 0), SUCCESS);
	holds("malloc/zero_is_null", ptr == NULL);
	is("malloc/zero_freed", cudaFree(ptr), SUCCESS);
	is("info/asked", cudaMemGetInfo(&unused, &total), SUCCESS);
	holds("info/free_is_of_total", unused <= total && unused > 0);
	before = unused;
	ptr = allocate(256 * MIB);
	holds("info/falls", free_bytes() <= before - 256 * MIB + 2 * MIB);
	cudaFree(ptr);
	holds("info/rises_again", free_bytes() + 4 * MIB >= before);
	contents();
	overlaps();
	too_large(total);
	fill(total);
}

void check_free(void)
{
	char *ptr = allocate(1000), *other, *host = malloc(4096), *large = allocate(40 * MIB);
	int on_stack;
	void *pinned = NULL;
	is("free/null", cudaFree(NULL), SUCCESS);
	is("free/inside", cudaFree(ptr + 256), INVALID_VALUE);
	is("free/inside_large", cudaFree(large + 2 * MIB), INVALID_VALUE);
	is("free/last_error", cudaGetLastError(), INVALID_VALUE);
	is("free/host_memory", cudaFree(host), INVALID_VALUE);
	is("free/stack", cudaFree(&on_stack), INVALID_VALUE);
	is("free/no_memory_at_all", cudaFree((void *)0x7000), INVALID_VALUE);
	is("free/still_there", cudaMemset(ptr, 1, 1000), SUCCESS);
	is("free/once", cudaFree(ptr), SUCCESS);
	is("free/twice", cudaFree(ptr), INVALID_VALUE);
	is("free/large", cudaFree(large), SUCCESS);
	is("free/large_twice", cudaFree(large), INVALID_VALUE);
	must("cudaMallocHost", cudaMallocHost(&pinned, 4096));
	is("free/pinned_memory", cudaFree(pinned), INVALID_VALUE);
	is("free/pinned_memory_as_such", cudaFreeHost(pinned), SUCCESS);
	cudaGetLastError();
	other = allocate(1000);
	is("free/works_after_failures", cudaFree(other), SUCCESS);
	is("free/leaves_no_error", cudaGetLastError(), SUCCESS);
	free(host);
}

void check_pitch(void)
{
	static char in[100][333], out[100][333];
	void *ptr = NULL;
	size_t pitch = 0, total, unused;
	int alignment = 0;
	must("cudaMemGetInfo", cudaMemGetInfo(&unused, &total));
	must("attribute", cudaDeviceGetAttribute(&alignment, 51, 0));
	is("pitch/allocated", cudaMallocPitch(&ptr, &pitch, 333, 100), SUCCESS);
	holds("pitch/holds_a_row", pitch >= 333);
	holds("pitch/is_aligned", alignment > 0 && pitch % (size_t)alignment == 0);
	holds("pitch/address_is_aligned", aligned(ptr, 256));
	for (int i = 0; i < 100; i++)
		memset(in[i], i + 1, sizeof in[i]);
	is("pitch/rows_in", cudaMemcpy2D(ptr, pitch, in, 333, 333, 100, TO_DEVICE), SUCCESS);
	is("pitch/rows_out", cudaMemcpy2D(out, 333, ptr, pitch, 333, 100, TO_HOST), SUCCESS);
	holds("pitch/rows_arrive", memcmp(in, out, sizeof in) == 0);
	is("pitch/row_longer_than_pitch", cudaMemcpy2D(ptr, 100, in, 333, 333, 100, TO_DEVICE), INVALID_PITCH);
	cudaGetLastError();
	is("pitch/freed", cudaFree(ptr), SUCCESS);
	is("pitch/freed_twice", cudaFree(ptr), INVALID_VALUE);
	is("pitch/too_large", cudaMallocPitch(&ptr, &pitch, total, 2), OUT_OF_MEMORY);
	is("pitch/nowhere_to_put_it", cudaMallocPitch(NULL, &pitch, 64, 64), INVALID_VALUE);
	cudaGetLastError();
	struct pitched cube = {0};
	is("3d/allocated", cudaMalloc3D(&cube, (struct extent){100, 20, 3}), SUCCESS);
	is("3d/width", (long long)cube.width, 100);
	is("3d/height", (long long)cube.height, 20);
	holds("3d/pitch", cube.pitch >= 100 && cube.pitch % (size_t)alignment == 0);
	holds("3d/aligned", aligned(cube.ptr, 256));
	is("3d/all_of_it_can_be_set", cudaMemset(cube.ptr, 3, cube.pitch * 20 * 3), SUCCESS);
	is("3d/freed", cudaFree(cube.ptr), SUCCESS);
	is("3d/too_large", cudaMalloc3D(&cube, (struct extent){total, 2, 2}), OUT_OF_MEMORY);
}

void check_pointers(void)
{
	struct pointer_attributes about = {.type = -1};
	char *ptr = allocate(3000), *host = malloc(100);
	is("pointers/asked", cudaPointerGetAttributes(&about, ptr), SUCCESS);
	is("pointers/type", about.type, DEVICE);
	is("pointers/device", about.device, 0);
	holds("pointers/device_pointer", about.device_pointer == ptr);
	holds("pointers/host_pointer", about.host_pointer == NULL);
	is("pointers/inside", cudaPointerGetAttributes(&about, ptr + 100), SUCCESS);
	holds("pointers/inside_device_pointer", about.device_pointer == ptr + 100);
	is("pointers/host_memory", cudaPointerGetAttributes(&about, host), SUCCESS);
	is("pointers/host_memory_type", about.type, UNREGISTERED);
	is("pointers/nowhere_to_put_it", cudaPointerGetAttributes(NULL, ptr), INVALID_VALUE);
	cudaFree(ptr);
	is("pointers/freed", cudaPointerGetAttributes(&about, ptr), SUCCESS);
	is("pointers/freed_type", about.type, UNREGISTERED);
	must("cudaMallocAsync", cudaMallocAsync((void **)&ptr, 3000, NULL));
	is("pointers/async", cudaPointerGetAttributes(&about, ptr), SUCCESS);
	is("pointers/async_type", about.type, DEVICE);
	is("pointers/async_device", about.device, 0);
	cudaFreeAsync(ptr, NULL);
	cudaGetLastError();
	free(host);
}
