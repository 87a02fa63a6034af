/* SPDX-License-Identifier: Apache-2.0
 *
 * Device memory: plain allocation, and virtual memory management.
 */
#include "driver_graph.h"

#include <string.h>

#include "bits.h"

/* ---- plain memory ------------------------------------------------------------ */

cuda_result cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
	uint64_t unused = 0, total = 0;
	LOOK_ENTER(cuMemGetInfo_v2);
	LOOK_NEED(look_context(), INVALID_CONTEXT);
	cuda_result result = LOOK_SLOT(mem_info, look_context(), &unused, &total);
	if (result == TRZ_CUDA_SUCCESS && free_bytes)
		*free_bytes = unused;
	if (result == TRZ_CUDA_SUCCESS && total_bytes)
		*total_bytes = total;
	return result;
}

cuda_result look_plain_alloc(const char *call, uint64_t size, cuda_addr *address)
{
	trz_addr made = 0;
	trz_context context = look_context();
	LOOK_NEED(context, INVALID_CONTEXT);
	LOOK_NEED(address && size > 0, INVALID_VALUE);
	int device = sim_context_device(look.sim, context);
	cuda_result result = LOOK_SLOT(mem_alloc, context, size, &made);
	if (result == TRZ_CUDA_ERROR_OUT_OF_MEMORY && look_pools_trim(device, true))
		result = LOOK_SLOT(mem_alloc, context, size, &made);
	look_answered(call, size, device, result);
	if (result == TRZ_CUDA_SUCCESS) {
		*address = made;
		look_note_request(SIM_RECORDED_ALLOC, device, context, NULL, made, size);
	}
	return result;
}

cuda_result cuMemAlloc_v2(cuda_addr *address, size_t size)
{
	LOOK_ENTER(cuMemAlloc_v2);
	return look_plain_alloc("cuMemAlloc", size, address);
}

cuda_result cuMemAllocPitch_v2(cuda_addr *address, size_t *pitch, size_t width, size_t height, unsigned element)
{
	cuda_addr made = 0;
	LOOK_NEED(address && pitch && (element == 4 || element == 8 || element == 16), INVALID_VALUE);
	uint64_t row = align_up(width, 512), bytes = 0;
	LOOK_NEED(row >= width && !__builtin_mul_overflow(row, height, &bytes), OUT_OF_MEMORY);
	cuda_result result = cuMemAlloc_v2(&made, bytes);
	if (result == TRZ_CUDA_SUCCESS) {
		*address = made;
		*pitch = row;
	}
	return result;
}

/* Frees in the context that the address belongs to, whichever is current in the thread, if any. */
static cuda_result free_plain(cuda_addr address)
{
	struct sim_place place;
	trz_context home = sim_plain_context(look.sim, address);
	trz_context context = home ? home : look_context();
	LOOK_NEED(context, INVALID_CONTEXT);
	if (look.free_waits && sim_place_at(look.sim, address, &place) && place.plain &&
	    !sim_is_captured(look.sim, place.device))
		sim_device_sync(look.sim, place.device);
	return LOOK_SLOT(mem_free, context, address);
}

/* Freeing NULL does nothing. A free is noted before it happens, since the address may be another thread's right after;
 * if the free fails, the recording does not know the memory. */
cuda_result cuMemFree_v2(cuda_addr address)
{
	struct sim_place place;
	void *pool;
	cuda_result result = TRZ_CUDA_SUCCESS;
	LOOK_ENTER(cuMemFree_v2);
	if (address == 0)
		return result;
	if (look_place_at(address, &place, &pool) && place.plain && place.address == address) {
		look_note_request(SIM_RECORDED_DEVICE_SYNC, place.device, NULL, NULL, 0, 0);
		look_note_request(SIM_RECORDED_FREE, place.device, NULL, NULL, address, 0);
	}
	if (look_pool_free(address, &result) || look_ipc_close(address, true, &result))
		return result;
	look_managed_forget(address);
	return look_block_free(address, look_context(), NULL, &result) ? result : free_plain(address);
}

cuda_result look_plain_free(trz_context context, cuda_addr address)
{
	int device = sim_context_device(look.sim, context);
	if (device < 0)
		return TRZ_CUDA_SUCCESS; /* the memory has gone with its context */
	look_note_request(SIM_RECORDED_DEVICE_SYNC, device, NULL, NULL, 0, 0);
	look_note_request(SIM_RECORDED_FREE, device, NULL, NULL, address, 0);
	return LOOK_SLOT(mem_free, context, address);
}

cuda_result cuMemGetAddressRange_v2(cuda_addr *start, size_t *size, cuda_addr address)
{
	struct sim_place place;
	void *pool;
	unsigned flags;
	LOOK_ENTER(cuMemGetAddressRange_v2);
	if (!look_place_at(address, &place, &pool))
		LOOK_NEED(look_pinned((const void *)address, &place.address, &place.size, &flags), NOT_FOUND);
	if (start)
		*start = place.address;
	if (size)
		*size = place.size;
	return TRZ_CUDA_SUCCESS;
}

/* ---- virtual memory management ------------------------------------------------------------ */

/* Whether a real driver requires a current context here has not been seen on any GPU yet. */
static bool may_make_memory(void)
{
	return !look.memory_needs_context || look_context();
}

cuda_result cuMemCreate(cuda_mem *handle, size_t size, const struct cuda_mem_prop *prop, uint64_t flags)
{
	trz_handle made = 0;
	LOOK_ENTER(cuMemCreate);
	LOOK_NEED(may_make_memory(), INVALID_CONTEXT);
	LOOK_NEED(handle && prop && flags == 0 && prop->type == TRZ_CU_MEM_ALLOCATION_TYPE_PINNED, INVALID_VALUE);
	LOOK_NEED(prop->location.type == TRZ_CU_MEM_LOCATION_TYPE_DEVICE, NOT_SUPPORTED);
	const trz_tile_props props = {
		.device = prop->location.id,
		.export_kinds = (unsigned)prop->handle_types,
		.rdma = prop->flags.rdma != 0,
	};
	cuda_result result = LOOK_SLOT(create, &props, size, &made);
	if (result == TRZ_CUDA_ERROR_OUT_OF_MEMORY && look_pools_trim(props.device, true))
		result = LOOK_SLOT(create, &props, size, &made);
	look_answered("cuMemCreate", size, props.device, result);
	if (result == TRZ_CUDA_SUCCESS)
		*handle = made;
	return result;
}

cuda_result cuMemRelease(cuda_mem handle)
{
	LOOK_ENTER(cuMemRelease);
	LOOK_NEED(may_make_memory(), INVALID_CONTEXT);
	return LOOK_SLOT(release, handle);
}

cuda_result cuMemRetainAllocationHandle(cuda_mem *handle, void *address)
{
	trz_handle made = 0;
	LOOK_ENTER(cuMemRetainAllocationHandle);
	LOOK_NEED(handle, INVALID_VALUE);
	cuda_result result = look_result(sim_handle_at(look.sim, (uintptr_t)address, &made));
	if (result == TRZ_CUDA_SUCCESS)
		*handle = made;
	return result;
}

cuda_result cuMemGetAllocationPropertiesFromHandle(struct cuda_mem_prop *prop, cuda_mem handle)
{
	trz_tile_props props;
	uint64_t size;
	LOOK_ENTER(cuMemGetAllocationPropertiesFromHandle);
	LOOK_NEED(prop, INVALID_VALUE);
	cuda_result result = look_result(sim_handle_props(look.sim, handle, &props, &size));
	if (result != TRZ_CUDA_SUCCESS)
		return result;
	*prop = (struct cuda_mem_prop){
		.type = TRZ_CU_MEM_ALLOCATION_TYPE_PINNED,
		.handle_types = (int)props.export_kinds,
		.location = {TRZ_CU_MEM_LOCATION_TYPE_DEVICE, props.device},
	};
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuMemAddressReserve(cuda_addr *address, size_t size, size_t alignment, cuda_addr hint, uint64_t flags)
{
	trz_addr made = 0;
	LOOK_ENTER(cuMemAddressReserve);
	LOOK_NEED(may_make_memory(), INVALID_CONTEXT);
	LOOK_NEED(address && flags == 0, INVALID_VALUE);
	cuda_result result = LOOK_SLOT(reserve, size, alignment, hint, &made);
	if (result == TRZ_CUDA_SUCCESS)
		*address = made;
	return result;
}

cuda_result cuMemAddressFree(cuda_addr address, size_t size)
{
	LOOK_ENTER(cuMemAddressFree);
	LOOK_NEED(may_make_memory(), INVALID_CONTEXT);
	return LOOK_SLOT(unreserve, address, size);
}

cuda_result cuMemMap(cuda_addr address, size_t size, size_t offset, cuda_mem handle, uint64_t flags)
{
	LOOK_ENTER(cuMemMap);
	LOOK_NEED(may_make_memory(), INVALID_CONTEXT);
	LOOK_NEED(flags == 0, INVALID_VALUE);
	LOOK_NEED(offset == 0, NOT_SUPPORTED);
	return LOOK_SLOT(map, address, size, handle);
}

cuda_result cuMemUnmap(cuda_addr address, size_t size)
{
	LOOK_ENTER(cuMemUnmap);
	LOOK_NEED(may_make_memory(), INVALID_CONTEXT);
	return LOOK_SLOT(unmap, address, size);
}

/* The simulator knows only access to both read and write. */
cuda_result cuMemSetAccess(cuda_addr address, size_t size, const struct cuda_mem_access *access, size_t count)
{
	int devices[LOOK_DEVICES];
	LOOK_ENTER(cuMemSetAccess);
	LOOK_NEED(may_make_memory(), INVALID_CONTEXT);
	LOOK_NEED(access && count > 0 && count <= LOOK_DEVICES, INVALID_VALUE);
	for (size_t i = 0; i < count; i++) {
		LOOK_NEED(access[i].location.type == TRZ_CU_MEM_LOCATION_TYPE_DEVICE &&
		          access[i].flags == TRZ_CU_MEM_ACCESS_FLAGS_PROT_READWRITE, NOT_SUPPORTED);
		devices[i] = access[i].location.id;
	}
	return LOOK_SLOT(set_access, address, size, devices, (int)count);
}

cuda_result cuMemGetAccess(unsigned long long *flags, const struct cuda_mem_location *location, cuda_addr address)
{
	struct sim_place place;
	LOOK_ENTER(cuMemGetAccess);
	LOOK_NEED(flags && location && location->type == TRZ_CU_MEM_LOCATION_TYPE_DEVICE, INVALID_VALUE);
	LOOK_NEED(location->id >= 0 && location->id < look.devices, INVALID_DEVICE);
	LOOK_NEED(sim_place_at(look.sim, address, &place), INVALID_VALUE);
	bool reached = place.access >> location->id & 1;
	*flags = reached ? TRZ_CU_MEM_ACCESS_FLAGS_PROT_READWRITE : TRZ_CU_MEM_ACCESS_FLAGS_PROT_NONE;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuMemGetAllocationGranularity(size_t *granularity, const struct cuda_mem_prop *prop, int option)
{
	trz_device_info info;
	LOOK_ENTER(cuMemGetAllocationGranularity);
	LOOK_NEED(granularity && prop, INVALID_VALUE);
	(void)option; /* the recommended granularity is the smallest one */
	cuda_result result = LOOK_SLOT(device_info, prop->location.id, &info);
	if (result == TRZ_CUDA_SUCCESS)
		*granularity = info.granularity;
	return result;
}

cuda_result cuMemExportToShareableHandle(void *shareable, cuda_mem handle, int kind, uint64_t flags)
{
	LOOK_ENTER(cuMemExportToShareableHandle);
	LOOK_NEED(shareable && flags == 0, INVALID_VALUE);
	return LOOK_SLOT(export_handle, handle, (unsigned)kind, shareable);
}

/* `source` itself holds the descriptor. */
cuda_result cuMemImportFromShareableHandle(cuda_mem *handle, void *source, int kind)
{
	LOOK_ENTER(cuMemImportFromShareableHandle);
	const int descriptor = (int)(intptr_t)source;
	const void *shareable = kind == TRZ_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ? &descriptor : source;
	trz_handle made = 0;
	cuda_result result = LOOK_SLOT(import_handle, (unsigned)kind, shareable, &made);
	if (result == TRZ_CUDA_SUCCESS)
		*handle = made;
	return result;
}
