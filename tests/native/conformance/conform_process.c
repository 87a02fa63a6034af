/* SPDX-License-Identifier: Apache-2.0
 *
 * Host memory, and what surrounds allocations: threads, devices, a device's reset, fork.
 */
#include "conformance.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void registered(void)
{
	enum { PAGE = 4096 };
	char *host = aligned_alloc(PAGE, 4 * PAGE);
	void *device = NULL;
	unsigned flags;
	is("host/unregistered_unregister", cudaHostUnregister(host), NOT_REGISTERED);
	is("host/unregistered_flags", cudaHostGetFlags(&flags, host), INVALID_VALUE);
	is("host/unregistered_device_pointer", cudaHostGetDevicePointer(&device, host, 0), INVALID_VALUE);
	is("host/registered_null", cudaHostRegister(NULL, PAGE, 0), INVALID_VALUE);
	is("host/registered_nothing", cudaHostRegister(host, 0, 0), INVALID_VALUE);
	is("host/registered", cudaHostRegister(host, 4 * PAGE, 0), SUCCESS);
	is("host/registered_twice", cudaHostRegister(host, 4 * PAGE, 0), ALREADY_REGISTERED);
	is("host/registered_device_pointer", cudaHostGetDevicePointer(&device, host, 0), SUCCESS);
	is("host/registered_freed", cudaFreeHost(host), INVALID_VALUE);
	is("host/unregistered", cudaHostUnregister(host), SUCCESS);
	is("host/unregistered_twice", cudaHostUnregister(host), NOT_REGISTERED);
	cudaGetLastError();
	free(host);
}

void check_host(void)
{
	struct pointer_attributes about;
	char *pinned = NULL, *other = malloc(100);
	void *device = NULL, *memory = NULL;
	unsigned flags = 99;
	address base = 0;
	size_t length = 0;
	is("host/pinned", cudaMallocHost((void **)&pinned, 10000), SUCCESS);
	memset(pinned, 5, 10000);
	must("cudaPointerGetAttributes", cudaPointerGetAttributes(&about, pinned));
	is("host/type", about.type, HOST);
	holds("host/host_pointer", about.host_pointer == pinned);
	is("host/device_pointer", cudaHostGetDevicePointer(&device, pinned, 0), SUCCESS);
	holds("host/device_pointer_is_the_same", device == pinned);
	is("host/device_pointer_with_flags", cudaHostGetDevicePointer(&device, pinned, 1), INVALID_VALUE);
	is("host/flags", cudaHostGetFlags(&flags, pinned), SUCCESS);
	is("host/range", cuMemGetAddressRange_v2(&base, &length, (address)(uintptr_t)pinned + 100), SUCCESS);
	holds("host/range_is_all_of_it", base == (uintptr_t)pinned && length >= 10000);
	must("cudaMalloc", cudaMalloc(&memory, 10000));
	is("host/copied_in", cudaMemcpy(memory, pinned, 10000, TO_DEVICE), SUCCESS);
	memset(pinned, 0, 10000);
	is("host/copied_out", cudaMemcpy(pinned, memory, 10000, TO_HOST), SUCCESS);
	holds("host/content", pinned[0] == 5 && pinned[9999] == 5);
	is("host/device_memory_freed", cudaFreeHost(memory), INVALID_VALUE);
	is("host/ordinary_memory_freed", cudaFreeHost(other), INVALID_VALUE);
	is("host/freed", cudaFreeHost(pinned), SUCCESS);
	is("host/freed_twice", cudaFreeHost(pinned), INVALID_VALUE);
	is("host/null_freed", cudaFreeHost(NULL), SUCCESS);
	is("host/nowhere_to_put_it", cudaMallocHost(NULL, 64), INVALID_VALUE);
	is("host/unknown_flags", cudaHostAlloc((void **)&pinned, 64, 0x100), INVALID_VALUE);
	is("host/portable", cudaHostAlloc((void **)&pinned, 64, 1), SUCCESS);
	is("host/portable_freed", cudaFreeHost(pinned), SUCCESS);
	is("host/mapped", cudaHostAlloc((void **)&pinned, 64, 2), SUCCESS);
	is("host/mapped_freed", cudaFreeHost(pinned), SUCCESS);
	cudaGetLastError();
	is("host/by_the_driver", cuMemAllocHost_v2((void **)&pinned, 64), SUCCESS);
	is("host/by_the_driver_freed", cuMemFreeHost(pinned), SUCCESS);
	is("host/by_the_driver_freed_twice", cuMemFreeHost(pinned), INVALID_VALUE);
	is("host/by_the_driver_with_flags", cuMemHostAlloc((void **)&pinned, 64, 4), SUCCESS);
	is("host/by_the_driver_flags", cuMemHostGetFlags(&flags, pinned), SUCCESS);
	is("host/write_combined", flags & 4, 4);
	is("host/freed_by_the_runtime", cudaFreeHost(pinned), SUCCESS);
	registered();
	cudaFree(memory);
	free(other);
}

void check_managed(void)
{
	struct pointer_attributes about;
	char *ptr = NULL, out[100];
	address by_driver = 0;
	is("managed/allocated", cudaMallocManaged((void **)&ptr, 10000, 1), SUCCESS);
	must("cudaPointerGetAttributes", cudaPointerGetAttributes(&about, ptr));
	is("managed/type", about.type, MANAGED);
	is("managed/set", cudaMemset(ptr, 9, 10000), SUCCESS);
	must("cudaDeviceSynchronize", cudaDeviceSynchronize());
	is("managed/read_by_the_host", ptr[9999], 9);
	memset(ptr, 8, 10000);
	is("managed/copied", cudaMemcpy(out, ptr, 100, TO_HOST), SUCCESS);
	is("managed/written_by_the_host", out[99], 8);
	is("managed/freed", cudaFree(ptr), SUCCESS);
	is("managed/freed_twice", cudaFree(ptr), INVALID_VALUE);
	is("managed/zero", cudaMallocManaged((void **)&ptr, 0, 1), SUCCESS);
	is("managed/no_flags", cudaMallocManaged((void **)&ptr, 64, 0), INVALID_VALUE);
	is("managed/unknown_flags", cudaMallocManaged((void **)&ptr, 64, 8), INVALID_VALUE);
	is("managed/nowhere_to_put_it", cudaMallocManaged(NULL, 64, 1), INVALID_VALUE);
	is("managed/for_the_host", cudaMallocManaged((void **)&ptr, 64, 2), SUCCESS);
	is("managed/for_the_host_freed", cudaFree(ptr), SUCCESS);
	cudaGetLastError();
	is("managed/by_the_driver", cuMemAllocManaged(&by_driver, 4096, 1), SUCCESS);
	int managed = 0;
	must("cuPointerGetAttribute", cuPointerGetAttribute(&managed, OF_MANAGED, by_driver));
	is("managed/attribute", managed, 1);
	is("managed/by_the_driver_freed", cuMemFree_v2(by_driver), SUCCESS);
	is("managed/by_the_driver_zero", cuMemAllocManaged(&by_driver, 0, 1), INVALID_VALUE);
}

struct there {
	void *ptr, *async;
	status result, async_result;
};

static void allocate_there(void *argument)
{
	struct there *there = argument;
	there->result = cudaMalloc(&there->ptr, 7000);
	there->async_result = cudaMallocAsync(&there->async, 7000, (void *)2);
	cudaMemset(there->ptr, 0x41, 7000);
	cudaMemset(there->async, 0x42, 7000);
}

static void free_there(void *argument)
{
	struct there *there = argument;
	there->result = cudaFree(there->ptr);
	there->async_result = cudaFreeAsync(there->async, NULL);
}

static void fail_there(void *argument)
{
	struct there *there = argument;
	void *ptr;
	cudaMalloc(&ptr, SIZE_MAX);
	there->result = cudaPeekAtLastError();
}

static void come_and_go(void *argument)
{
	struct there *there = argument;
	there->result = SUCCESS;
	for (int i = 0; i < 200; i++) {
		void *ptr = NULL;
		status result = cudaMalloc(&ptr, (size_t)(i % 9 + 1) * 40000);
		there->result |= result ? result : cudaFree(ptr);
	}
}

void check_threads(void)
{
	struct there there = {0};
	unsigned char out[2] = {0};
	in_thread(allocate_there, &there);
	is("threads/allocated", there.result, SUCCESS);
	is("threads/allocated_async", there.async_result, SUCCESS);
	cudaMemcpy(&out[0], (char *)there.ptr + 6999, 1, TO_HOST);
	cudaMemcpy(&out[1], (char *)there.async + 6999, 1, TO_HOST);
	holds("threads/memory_outlives_the_thread", out[0] == 0x41 && out[1] == 0x42);
	is("threads/freed_here", cudaFree(there.ptr), SUCCESS);
	is("threads/freed_here_async", cudaFreeAsync(there.async, NULL), SUCCESS);
	must("cudaMalloc", cudaMalloc(&there.ptr, 7000));
	must("cudaMallocAsync", cudaMallocAsync(&there.async, 7000, NULL));
	in_thread(free_there, &there);
	is("threads/freed_there", there.result, SUCCESS);
	is("threads/freed_there_async", there.async_result, SUCCESS);
	is("threads/and_gone_here", cudaFree(there.ptr), INVALID_VALUE);
	cudaGetLastError();
	in_thread(fail_there, &there);
	is("threads/failed_there", there.result, OUT_OF_MEMORY);
	is("threads/last_error_is_the_threads", cudaGetLastError(), SUCCESS);
	in_thread(come_and_go, &there);
	is("threads/many_in_a_row", there.result, SUCCESS);
	is("threads/nothing_failed_behind", cudaDeviceSynchronize(), SUCCESS);
}

void check_devices(void)
{
	struct pointer_attributes about;
	void *first = NULL, *second = NULL, *async = NULL;
	int count = 0;
	must("cudaGetDeviceCount", cudaGetDeviceCount(&count));
	is("devices/no_such", cudaSetDevice(count), INVALID_DEVICE);
	cudaGetLastError();
	if (count < 2)
		return;
	must("cudaMalloc", cudaMalloc(&first, 5 * MIB));
	must("cudaMallocAsync", cudaMallocAsync(&async, 5 * MIB, NULL));
	must("cudaDeviceSynchronize", cudaDeviceSynchronize());
	size_t before = free_bytes();
	must("cudaSetDevice", cudaSetDevice(1));
	size_t before_second = free_bytes();
	is("devices/allocated_on_the_second", cudaMalloc(&second, 64 * MIB), SUCCESS);
	holds("devices/taken_from_the_second", free_bytes() + 62 * MIB <= before_second);
	must("cudaPointerGetAttributes", cudaPointerGetAttributes(&about, second));
	is("devices/second", about.device, 1);
	must("cudaPointerGetAttributes", cudaPointerGetAttributes(&about, first));
	is("devices/first", about.device, 0);
	is("devices/freed_from_the_other", cudaFree(first), SUCCESS);
	is("devices/freed_from_the_other_twice", cudaFree(first), INVALID_VALUE);
	is("devices/async_freed_from_the_other", cudaFree(async), SUCCESS);
	must("cudaSetDevice", cudaSetDevice(0));
	holds("devices/first_lost_nothing", free_bytes() + 4 * MIB >= before);
	is("devices/second_freed", cudaFree(second), SUCCESS);
	cudaGetLastError();
}

static void after_reset(void *argument)
{
	struct there *there = argument;
	there->result = cudaMalloc(&there->ptr, 1000);
	there->async_result = cudaMemset(there->ptr, 1, 1000);
	cudaFree(there->ptr);
}

void check_reset(void)
{
	struct pointer_attributes about;
	struct there there = {0};
	void *ptr = NULL, *small = NULL;
	must("cudaFree", cudaFree(NULL));
	size_t before = free_bytes();
	must("cudaMalloc", cudaMalloc(&ptr, 100 * MIB));
	must("cudaMalloc", cudaMalloc(&small, 100));
	is("reset/done", cudaDeviceReset(), SUCCESS);
	holds("reset/memory_came_back", free_bytes() + 4 * MIB >= before);
	is("reset/pointer_asked", cudaPointerGetAttributes(&about, ptr), SUCCESS);
	is("reset/pointer_is_none", about.type, UNREGISTERED);
	is("reset/pointer_freed", cudaFree(ptr), INVALID_VALUE);
	is("reset/small_pointer_freed", cudaFree(small), INVALID_VALUE);
	cudaGetLastError();
	is("reset/allocated", cudaMalloc(&ptr, 100 * MIB), SUCCESS);
	is("reset/usable", cudaMemset(ptr, 1, 100 * MIB), SUCCESS);
	in_thread(after_reset, &there);
	is("reset/another_thread_allocates", there.result, SUCCESS);
	is("reset/another_thread_uses", there.async_result, SUCCESS);
	is("reset/async", cudaMallocAsync(&small, 100, NULL), SUCCESS);
	is("reset/async_freed", cudaFreeAsync(small, NULL), SUCCESS);
	is("reset/freed", cudaFree(ptr), SUCCESS);
	is("reset/again", cudaDeviceReset(), SUCCESS);
	is("reset/allocated_again", cudaMalloc(&ptr, 1 * MIB), SUCCESS);
	is("reset/freed_again", cudaFree(ptr), SUCCESS);
}

/* What a child's first call answers, 255 if the child did not come to its end. */
static int in_child(status (*call)(void))
{
	int how = 0;
	pid_t child = fork();
	if (child == 0)
		_exit(call());
	if (child < 0 || waitpid(child, &how, 0) != child || !WIFEXITED(how))
		return 255;
	return WEXITSTATUS(how);
}

static status malloc_in_child(void)
{
	void *ptr = NULL;
	status result = cudaMalloc(&ptr, 1000);
	if (result == SUCCESS)
		result = cudaFree(ptr);
	return result;
}

static status malloc_async_in_child(void)
{
	void *ptr = NULL;
	return cudaMallocAsync(&ptr, 1000, NULL);
}

static status info_in_child(void)
{
	size_t unused, total;
	return cudaMemGetInfo(&unused, &total);
}

void check_fork(void)
{
	void *ptr = NULL;
	must("cudaMalloc", cudaMalloc(&ptr, 3 * MIB));
	is("fork/malloc_in_the_child", in_child(malloc_in_child), NOT_INITIALIZED);
	is("fork/async_in_the_child", in_child(malloc_async_in_child), NOT_INITIALIZED);
	is("fork/info_in_the_child", in_child(info_in_child), NOT_INITIALIZED);
	is("fork/parent_goes_on", cudaMemset(ptr, 1, 3 * MIB), SUCCESS);
	is("fork/parent_frees", cudaFree(ptr), SUCCESS);
	is("fork/parent_allocates", cudaMalloc(&ptr, 3 * MIB), SUCCESS);
}

void check_fork_before(void)
{
	void *ptr = NULL;
	is("fork_before/child_allocates", in_child(malloc_in_child), SUCCESS);
	is("fork_before/child_asks", in_child(info_in_child), SUCCESS);
	is("fork_before/parent_allocates", cudaMalloc(&ptr, 3 * MIB), SUCCESS);
	is("fork_before/parent_frees", cudaFree(ptr), SUCCESS);
}
