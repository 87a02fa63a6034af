/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver's calls: cuMemAlloc and its kin, address ranges, attributes of pointers, contexts, handles for other
 * processes, virtual memory management.
 */
#include "conformance.h"

#include <stdlib.h>
#include <string.h>

static void *start(void)
{
	void *context = NULL;
	must("cuInit", cuInit(0));
	must("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&context, 0));
	must("cuCtxSetCurrent", cuCtxSetCurrent(context));
	return context;
}

static address allocate(size_t size)
{
	address ptr = 0;
	must("cuMemAlloc", cuMemAlloc_v2(&ptr, size));
	return ptr;
}

static status attribute_of(address ptr, int attribute, uint64_t *value)
{
	*value = 0;
	return cuPointerGetAttribute(value, attribute, ptr);
}

static uint64_t value_of(address ptr, int attribute)
{
	uint64_t value;
	must("cuPointerGetAttribute", attribute_of(ptr, attribute, &value));
	return value;
}

static void pitched_memory(void)
{
	static const unsigned wrong[] = {0, 3, 32}, right[] = {4, 8, 16};
	static const char *const wrong_names[] = {"driver/pitch_of_elements_of_0", "driver/pitch_of_elements_of_3",
		"driver/pitch_of_elements_of_32"};
	static const char *const right_names[] = {"driver/pitch_of_elements_of_4", "driver/pitch_of_elements_of_8",
		"driver/pitch_of_elements_of_16"};
	static const char *const row_names[] = {"driver/row_of_elements_of_4", "driver/row_of_elements_of_8",
		"driver/row_of_elements_of_16"};
	address ptr;
	size_t pitch;
	for (int i = 0; i < 3; i++) {
		is(wrong_names[i], cuMemAllocPitch_v2(&ptr, &pitch, 100, 10, wrong[i]), INVALID_VALUE);
		pitch = 0;
		is(right_names[i], cuMemAllocPitch_v2(&ptr, &pitch, 100, 10, right[i]), SUCCESS);
		holds(row_names[i], pitch >= 100 && pitch % right[i] == 0);
		must("cuMemFree", cuMemFree_v2(ptr));
	}
}

void check_driver(void)
{
	address ptr = 0, other;
	size_t unused, total, all = 0;
	char *host = malloc(100), out[64];
	start();
	is("driver/info", cuMemGetInfo_v2(&unused, &total), SUCCESS);
	is("driver/total", cuDeviceTotalMem_v2(&all, 0), SUCCESS);
	is("driver/totals_agree", (long long)total, (long long)all);
	is("driver/nowhere_to_put_it", cuMemAlloc_v2(NULL, 64), INVALID_VALUE);
	is("driver/zero", cuMemAlloc_v2(&ptr, 0), INVALID_VALUE);
	is("driver/one_byte", cuMemAlloc_v2(&ptr, 1), SUCCESS);
	is("driver/aligned", (long long)(ptr % 256), 0);
	is("driver/freed", cuMemFree_v2(ptr), SUCCESS);
	is("driver/freed_twice", cuMemFree_v2(ptr), INVALID_VALUE);
	is("driver/more_than_there_is", cuMemAlloc_v2(&ptr, 2 * total), OUT_OF_MEMORY);
	is("driver/largest_number", cuMemAlloc_v2(&ptr, SIZE_MAX), OUT_OF_MEMORY);
	ptr = allocate(9 * MIB);
	other = allocate(100);
	is("driver/inside", cuMemFree_v2(ptr + 512), INVALID_VALUE);
	is("driver/host_memory", cuMemFree_v2((address)(uintptr_t)host), INVALID_VALUE);
	is("driver/no_memory_at_all", cuMemFree_v2(0x7000), INVALID_VALUE);
	is("driver/set", cuMemsetD8_v2(ptr, 0x21, 9 * MIB), SUCCESS);
	is("driver/set_other", cuMemsetD8_v2(other, 0x22, 100), SUCCESS);
	is("driver/copied", cuMemcpyDtoH_v2(out, ptr + 9 * MIB - 64, 64), SUCCESS);
	holds("driver/content", out[0] == 0x21 && out[63] == 0x21);
	is("driver/freed_large", cuMemFree_v2(ptr), SUCCESS);
	is("driver/freed_large_twice", cuMemFree_v2(ptr), INVALID_VALUE);
	is("driver/freed_other", cuMemFree_v2(other), SUCCESS);
	says("driver/null_freed", cuMemFree_v2(0));
	is("driver/async", cuMemAllocAsync(&ptr, 100, NULL), SUCCESS);
	is("driver/async_freed", cuMemFreeAsync(ptr, NULL), SUCCESS);
	is("driver/async_freed_twice", cuMemFreeAsync(ptr, NULL), INVALID_VALUE);
	is("driver/async_nowhere_to_put_it", cuMemAllocAsync(NULL, 100, NULL), INVALID_VALUE);
	is("driver/async_more_than_there_is", cuMemAllocAsync(&ptr, 2 * total, NULL), OUT_OF_MEMORY);
	pitched_memory();
	free(host);
}

static void ranges(address ptr, size_t size)
{
	address base = 0;
	size_t length = 0;
	is("range/asked", cuMemGetAddressRange_v2(&base, &length, ptr), SUCCESS);
	holds("range/base", base == ptr);
	is("range/size", (long long)length, (long long)size);
	base = 0;
	is("range/inside", cuMemGetAddressRange_v2(&base, NULL, ptr + size - 1), SUCCESS);
	holds("range/inside_base", base == ptr);
	length = 0;
	is("range/without_base", cuMemGetAddressRange_v2(NULL, &length, ptr), SUCCESS);
	is("range/without_base_size", (long long)length, (long long)size);
	is("range/unknown", cuMemGetAddressRange_v2(&base, &length, 0x7000), NOT_FOUND);
}

static void several_attributes(address ptr)
{
	int list[] = {OF_MEMORY_TYPE, OF_DEVICE_ORDINAL, OF_BUFFER_ID};
	unsigned type = 9;
	int ordinal = 9;
	uint64_t id = 9;
	void *values[] = {&type, &ordinal, &id};
	is("attributes/several", cuPointerGetAttributes(3, list, values, ptr), SUCCESS);
	holds("attributes/several_values", type == 2 && ordinal == 0 && id == value_of(ptr, OF_BUFFER_ID));
	is("attributes/several_of_none", cuPointerGetAttributes(3, list, values, 0x7000), SUCCESS);
	is("attributes/several_of_none_type", type, 0);
}

void check_driver_pointers(void)
{
	void *context = start(), *pool = NULL;
	uint64_t value;
	address ptr = allocate(100000), other = allocate(100000), async = 0, start_of_none;
	size_t size_of_none;
	int on = 1;
	ranges(ptr, 100000);
	is("attributes/type", (long long)value_of(ptr, OF_MEMORY_TYPE), 2);
	is("attributes/inside_type", (long long)value_of(ptr + 5000, OF_MEMORY_TYPE), 2);
	holds("attributes/context", value_of(ptr, OF_CONTEXT) == (uint64_t)(uintptr_t)context);
	holds("attributes/device_pointer", value_of(ptr + 5, OF_DEVICE_POINTER) == ptr + 5);
	is("attributes/host_pointer", attribute_of(ptr, OF_HOST_POINTER, &value), INVALID_VALUE);
	holds("attributes/ids_differ", value_of(ptr, OF_BUFFER_ID) != value_of(other, OF_BUFFER_ID));
	holds("attributes/id_of_the_allocation", value_of(ptr, OF_BUFFER_ID) == value_of(ptr + 99999, OF_BUFFER_ID));
	is("attributes/managed", (long long)value_of(ptr, OF_MANAGED), 0);
	is("attributes/ordinal", (long long)value_of(ptr, OF_DEVICE_ORDINAL), 0);
	holds("attributes/start", value_of(ptr + 5000, OF_RANGE_START) == ptr);
	is("attributes/size", (long long)value_of(ptr + 5000, OF_RANGE_SIZE), 100000);
	is("attributes/mapped", (long long)value_of(ptr, OF_MAPPED), 1);
	value = UINT64_MAX;
	must("cuPointerGetAttribute", cuPointerGetAttribute(&value, OF_MAPPED, ptr));
	is("attributes/truth_takes_an_int", (long long)(uint32_t)value, 1);
	value = UINT64_MAX;
	must("cuPointerGetAttribute", cuPointerGetAttribute(&value, OF_SYNC_MEMOPS, ptr));
	is("attributes/sync_takes_an_int", (long long)(uint32_t)value, 0);
	is("attributes/handle_types", (long long)value_of(ptr, OF_HANDLE_TYPES), 0);
	is("attributes/pool", (long long)value_of(ptr, OF_POOL), 0);
	is("attributes/legacy_ipc", (long long)value_of(ptr, OF_LEGACY_IPC), 1);
	is("attributes/sync_set", cuPointerSetAttribute(&on, OF_SYNC_MEMOPS, ptr), SUCCESS);
	is("attributes/sync", (long long)value_of(ptr, OF_SYNC_MEMOPS), 1);
	is("attributes/unknown", attribute_of(0x7000, OF_MEMORY_TYPE, &value), INVALID_VALUE);
	several_attributes(ptr);
	must("cuMemFree", cuMemFree_v2(ptr));
	is("attributes/freed", attribute_of(ptr, OF_MEMORY_TYPE, &value), INVALID_VALUE);
	is("range/freed", cuMemGetAddressRange_v2(&start_of_none, &size_of_none, ptr), NOT_FOUND);
	says("range/freed_nothing_asked", cuMemGetAddressRange_v2(NULL, NULL, ptr));
	must("cuMemAllocAsync", cuMemAllocAsync(&async, 100000, NULL));
	must("cudaDeviceGetDefaultMemPool", cudaDeviceGetDefaultMemPool(&pool, 0));
	is("attributes/async_type", (long long)value_of(async, OF_MEMORY_TYPE), 2);
	holds("attributes/async_pool", value_of(async, OF_POOL) == (uint64_t)(uintptr_t)pool);
	is("attributes/async_context", (long long)value_of(async, OF_CONTEXT), 0);
	is("attributes/async_legacy_ipc", (long long)value_of(async, OF_LEGACY_IPC), 0);
	must("cuMemFreeAsync", cuMemFreeAsync(async, NULL));
	must("cuMemFree", cuMemFree_v2(other));
}

/* What a callback of a stream asks about. */
struct asked {
	address live, freed, async;
	void *pool, *stream;
	status freed_async;
};

static void ask_inside(void *argument)
{
	struct asked *a = argument;
	address base = 0, made = 0;
	size_t size = 0, total;
	uint64_t value = 0;
	unsigned type;
	int list[] = {OF_MEMORY_TYPE}, on = 1;
	void *values[] = {&type};
	says("callback/range", cuMemGetAddressRange_v2(&base, &size, a->live));
	says("callback/range_of_stream_ordered", cuMemGetAddressRange_v2(&base, &size, a->async));
	says("callback/range_freed", cuMemGetAddressRange_v2(&base, &size, a->freed));
	says("callback/range_told", base != 0 || size != 0);
	says("callback/attribute", attribute_of(a->live, OF_RANGE_START, &value));
	says("callback/attribute_of_the_driver", attribute_of(a->live, OF_MEMORY_TYPE, &value));
	says("callback/attribute_freed", attribute_of(a->freed, OF_RANGE_START, &value));
	says("callback/attribute_told", value != 0);
	says("callback/attributes", cuPointerGetAttributes(1, list, values, a->live));
	says("callback/attribute_set", cuPointerSetAttribute(&on, OF_SYNC_MEMOPS, a->live));
	says("callback/info", cuMemGetInfo_v2(&size, &total));
	says("callback/allocated", cuMemAlloc_v2(&made, 100));
	says("callback/freed", cuMemFree_v2(a->live));
	says("callback/allocated_async", cuMemAllocAsync(&made, 100, a->stream));
	a->freed_async = cuMemFreeAsync(a->async, a->stream);
	says("callback/freed_async", a->freed_async);
	says("callback/pool_used", cudaMemPoolGetAttribute(a->pool, USED, &value));
	says("callback/pool_trimmed", cudaMemPoolTrimTo(a->pool, 0));
}

/* CUDA may refuse any call that a callback makes, and programs learn from it that they are inside one: libgomp then
 * frees memory later. */
void check_callback(void)
{
	struct asked a = {0};
	start();
	a.live = allocate(100000);
	a.freed = allocate(100000);
	must("cudaStreamCreateWithFlags", cudaStreamCreateWithFlags(&a.stream, 1));
	must("cudaDeviceGetDefaultMemPool", cudaDeviceGetDefaultMemPool(&a.pool, 0));
	must("cuMemAllocAsync", cuMemAllocAsync(&a.async, 100000, a.stream));
	must("cuMemFree", cuMemFree_v2(a.freed));
	must("cudaLaunchHostFunc", cudaLaunchHostFunc(a.stream, ask_inside, &a));
	must("cudaStreamSynchronize", cudaStreamSynchronize(a.stream));
	is("callback/freed_afterwards", cuMemFree_v2(a.live), SUCCESS);
	is("callback/freed_async_once", a.freed_async ? cuMemFreeAsync(a.async, a.stream) : SUCCESS, SUCCESS);
	is("callback/freed_async_twice", cuMemFreeAsync(a.async, a.stream), INVALID_VALUE);
	is("callback/stream_ends", cudaStreamDestroy(a.stream), SUCCESS);
}

void check_early(void)
{
	address ptr = 0;
	size_t unused, total;
	is("early/before_cuInit", cuMemAlloc_v2(&ptr, 64), NOT_INITIALIZED);
	is("early/info_before_cuInit", cuMemGetInfo_v2(&unused, &total), NOT_INITIALIZED);
	must("cuInit", cuInit(0));
	is("early/without_a_context", cuMemAlloc_v2(&ptr, 64), INVALID_CONTEXT);
	is("early/async_without_a_context", cuMemAllocAsync(&ptr, 64, NULL), INVALID_CONTEXT);
	is("early/info_without_a_context", cuMemGetInfo_v2(&unused, &total), INVALID_CONTEXT);
	start();
	is("early/with_one", cuMemAlloc_v2(&ptr, 64), SUCCESS);
	is("early/freed", cuMemFree_v2(ptr), SUCCESS);
}

static void free_there(void *argument)
{
	*(status *)argument = cuMemFree_v2(*(address *)((char *)argument + sizeof(uint64_t)));
}

void check_contexts(void)
{
	void *primary = start(), *second = NULL, *found = NULL;
	address ptr, other;
	uint64_t value;
	must("cuCtxCreate", cuCtxCreate_v2(&second, 0, 0));
	must("cuCtxGetCurrent", cuCtxGetCurrent(&found));
	holds("contexts/new_one_is_current", found == second);
	size_t before = free_bytes();
	ptr = allocate(64 * MIB);
	holds("contexts/memory_is_its_own", value_of(ptr, OF_CONTEXT) == (uint64_t)(uintptr_t)second);
	is("contexts/usable", cuMemsetD8_v2(ptr, 1, 64 * MIB), SUCCESS);
	must("cuCtxSetCurrent", cuCtxSetCurrent(primary));
	other = allocate(1000);
	holds("contexts/primary_has_its_own", value_of(other, OF_CONTEXT) == (uint64_t)(uintptr_t)primary);
	is("contexts/attributes_from_another", (long long)value_of(ptr, OF_MEMORY_TYPE), 2);
	is("contexts/freed_from_another", cuMemFree_v2(ptr), SUCCESS);
	must("cuCtxSetCurrent", cuCtxSetCurrent(second));
	ptr = allocate(64 * MIB);
	struct {
		uint64_t result;
		address ptr;
	} there = {99, allocate(1000)};
	in_thread(free_there, &there);
	is("contexts/freed_without_a_context", (int)there.result, SUCCESS);
	is("contexts/destroyed", cuCtxDestroy_v2(second), SUCCESS);
	must("cuCtxSetCurrent", cuCtxSetCurrent(primary));
	is("contexts/memory_went_with_it", attribute_of(ptr, OF_MEMORY_TYPE, &value), INVALID_VALUE);
	holds("contexts/and_came_back", free_bytes() + 4 * MIB >= before);
	is("contexts/primary_goes_on", cuMemsetD8_v2(other, 1, 1000), SUCCESS);
	is("contexts/freed", cuMemFree_v2(other), SUCCESS);
}

void check_ipc(void)
{
	struct ipc_handle one = {""}, same = {""}, next = {""};
	void *ptr = NULL, *async = NULL, *pinned = NULL;
	must("cudaMalloc", cudaMalloc(&ptr, 5 * MIB));
	must("cudaMallocAsync", cudaMallocAsync(&async, 5 * MIB, NULL));
	must("cudaMallocHost", cudaMallocHost(&pinned, 4096));
	is("ipc/handle", cudaIpcGetMemHandle(&one, ptr), SUCCESS);
	is("ipc/again", cudaIpcGetMemHandle(&same, ptr), SUCCESS);
	is("ipc/async", cudaIpcGetMemHandle(&next, async), INVALID_VALUE);
	is("ipc/pinned", cudaIpcGetMemHandle(&next, pinned), INVALID_VALUE);
	cudaGetLastError();
	is("ipc/freed", cudaFree(ptr), SUCCESS);
	is("ipc/freed_handle", cudaIpcGetMemHandle(&next, ptr), INVALID_VALUE);
	cudaGetLastError();
	must("cudaMalloc", cudaMalloc(&ptr, 5 * MIB));
	is("ipc/next", cudaIpcGetMemHandle(&next, ptr), SUCCESS);
	holds("ipc/next_is_another", memcmp(&one, &next, sizeof one) != 0);
	cudaFree(ptr);
	cudaFreeAsync(async, NULL);
	cudaFreeHost(pinned);
	cudaDeviceSynchronize();
}

static const struct memory_props on_device = {.type = 1, .location = {1, 0}};
static const struct access read_write = {{1, 0}, 3};

static void reservations(size_t unit)
{
	address range = 0;
	is("virtual/reserved", cuMemAddressReserve(&range, 8 * unit, 0, 0, 0), SUCCESS);
	is("virtual/reserved_aligned", (long long)(range % unit), 0);
	is("virtual/freed_in_part", cuMemAddressFree(range, 4 * unit), INVALID_VALUE);
	is("virtual/freed_elsewhere", cuMemAddressFree(range + unit, 7 * unit), INVALID_VALUE);
	is("virtual/freed", cuMemAddressFree(range, 8 * unit), SUCCESS);
	is("virtual/freed_twice", cuMemAddressFree(range, 8 * unit), INVALID_VALUE);
	is("virtual/nothing_reserved", cuMemAddressReserve(&range, 0, 0, 0, 0), INVALID_VALUE);
	is("virtual/half_a_page", cuMemAddressReserve(&range, 100, 0, 0, 0), INVALID_VALUE);
	is("virtual/alignment_of_three", cuMemAddressReserve(&range, unit, 3, 0, 0), INVALID_VALUE);
	is("virtual/flags", cuMemAddressReserve(&range, unit, 0, 0, 1), INVALID_VALUE);
	is("virtual/reservation_nowhere_to_put_it", cuMemAddressReserve(NULL, unit, 0, 0, 0), INVALID_VALUE);
	is("virtual/reserved_by_alignment", cuMemAddressReserve(&range, unit, 64 * unit, 0, 0), SUCCESS);
	is("virtual/is_aligned", (long long)(range % (64 * unit)), 0);
	must("cuMemAddressFree", cuMemAddressFree(range, unit));
}

static void handles(size_t unit)
{
	uint64_t handle = 0;
	struct memory_props props = {0};
	is("virtual/created", cuMemCreate(&handle, unit, &on_device, 0), SUCCESS);
	is("virtual/properties", cuMemGetAllocationPropertiesFromHandle(&props, handle), SUCCESS);
	holds("virtual/properties_are_right", props.type == 1 && props.location.type == 1 && props.location.id == 0);
	is("virtual/released", cuMemRelease(handle), SUCCESS);
	is("virtual/created_odd", cuMemCreate(&handle, unit + 1, &on_device, 0), INVALID_VALUE);
	is("virtual/created_empty", cuMemCreate(&handle, 0, &on_device, 0), INVALID_VALUE);
	is("virtual/created_with_flags", cuMemCreate(&handle, unit, &on_device, 1), INVALID_VALUE);
	is("virtual/created_too_large", cuMemCreate(&handle, (size_t)1 << 46, &on_device, 0), OUT_OF_MEMORY);
	is("virtual/created_nowhere_to_put_it", cuMemCreate(NULL, unit, &on_device, 0), INVALID_VALUE);
}

static void mappings(size_t unit)
{
	address range = 0;
	uint64_t handle = 0, other = 0, found = 0;
	unsigned long long flags = 9;
	char out[64];
	must("cuMemAddressReserve", cuMemAddressReserve(&range, 4 * unit, 0, 0, 0));
	must("cuMemCreate", cuMemCreate(&handle, 2 * unit, &on_device, 0));
	must("cuMemCreate", cuMemCreate(&other, unit, &on_device, 0));
	is("virtual/mapped_by_half_a_unit", cuMemMap(range, unit / 2, 0, handle, 0), NOT_SUPPORTED);
	is("virtual/mapped_in_part", cuMemMap(range, unit, 0, handle, 0), NOT_SUPPORTED);
	is("virtual/mapped_with_offset", cuMemMap(range, unit, unit, handle, 0), NOT_SUPPORTED);
	int outside = cuMemMap(range + 3 * unit, 2 * unit, 0, handle, 0);
	says("virtual/mapped_outside", outside);  /* an H200's driver maps it */
	if (outside == SUCCESS)
		must("cuMemUnmap", cuMemUnmap(range + 3 * unit, 2 * unit));
	is("virtual/mapped_with_flags", cuMemMap(range, 2 * unit, 0, handle, 1), INVALID_VALUE);
	is("virtual/mapped", cuMemMap(range, 2 * unit, 0, handle, 0), SUCCESS);
	is("virtual/mapped_over", cuMemMap(range + unit, unit, 0, other, 0), INVALID_VALUE);
	is("virtual/access_of_unmapped", cuMemSetAccess(range + 2 * unit, unit, &read_write, 1), INVALID_VALUE);
	is("virtual/access_set", cuMemSetAccess(range, 2 * unit, &read_write, 1), SUCCESS);
	is("virtual/access_asked", cuMemGetAccess(&flags, &read_write.location, range), SUCCESS);
	is("virtual/access", (long long)flags, 3);
	is("virtual/retained", cuMemRetainAllocationHandle(&found, (void *)(uintptr_t)(range + unit)), SUCCESS);
	holds("virtual/retained_the_same", found == handle);
	is("virtual/retained_released", cuMemRelease(found), SUCCESS);
	is("virtual/released_while_mapped", cuMemRelease(handle), SUCCESS);
	is("virtual/set", cuMemsetD8_v2(range, 0x6b, 2 * unit), SUCCESS);
	is("virtual/copied", cuMemcpyDtoH_v2(out, range + 2 * unit - 64, 64), SUCCESS);
	holds("virtual/content", out[0] == 0x6b && out[63] == 0x6b);
	is("virtual/type", (long long)value_of(range, OF_MEMORY_TYPE), 2);
	is("virtual/by_cuMemFree", cuMemFree_v2(range), INVALID_VALUE);
	is("virtual/reservation_freed_while_mapped", cuMemAddressFree(range, 4 * unit), INVALID_VALUE);
	is("virtual/unmapped_in_part", cuMemUnmap(range, unit), INVALID_VALUE);
	is("virtual/unmapped", cuMemUnmap(range, 2 * unit), SUCCESS);
	says("virtual/unmapped_twice", cuMemUnmap(range, 2 * unit));  /* an H200's driver: 0; holes do not matter */
	is("virtual/nothing_to_retain", cuMemRetainAllocationHandle(&found, (void *)(uintptr_t)range), INVALID_VALUE);
	is("virtual/mapped_again", cuMemMap(range + unit, unit, 0, other, 0), SUCCESS);
	flags = 9;
	is("virtual/access_begins_anew", cuMemGetAccess(&flags, &read_write.location, range + unit), SUCCESS);
	is("virtual/no_access_yet", (long long)flags, 0);
	is("virtual/unmapped_last", cuMemUnmap(range + unit, unit), SUCCESS);
	must("cuMemRelease", cuMemRelease(other));
	must("cuMemAddressFree", cuMemAddressFree(range, 4 * unit));
}

/* Memory that the driver has mapped itself is no program's to unmap. */
static void others(size_t unit)
{
	address ptr = allocate(2 * unit), at = (ptr + unit - 1) / unit * unit;
	uint64_t found = 0;
	is("virtual/plain_retained", cuMemRetainAllocationHandle(&found, (void *)(uintptr_t)ptr), INVALID_VALUE);
	is("virtual/plain_unmapped", cuMemUnmap(at, unit), INVALID_VALUE);
	is("virtual/plain_access_set", cuMemSetAccess(at, unit, &read_write, 1), INVALID_VALUE);
	is("virtual/plain_is_there", cuMemsetD8_v2(ptr, 1, 2 * unit), SUCCESS);
	must("cuMemFree", cuMemFree_v2(ptr));
}

void check_virtual(void)
{
	size_t unit = 0, recommended = 0, before;
	int supported = 0;
	start();
	must("cuDeviceGetAttribute", cuDeviceGetAttribute(&supported, 102, 0));
	if (!supported)
		return;
	is("virtual/granularity", cuMemGetAllocationGranularity(&unit, &on_device, 0), SUCCESS);
	is("virtual/recommended", cuMemGetAllocationGranularity(&recommended, &on_device, 1), SUCCESS);
	holds("virtual/granularities", unit && (unit & (unit - 1)) == 0 && recommended % unit == 0);
	before = free_bytes();
	reservations(unit);
	handles(unit);
	mappings(unit);
	others(unit);
	holds("virtual/all_is_returned", free_bytes() + 4 * MIB >= before);
}
