/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory: plain allocation, and virtual memory management.
 */
#include "fakecuda.h"

enum { MOST_DEVICES = 16 };

cuda_result cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
	uint64_t unused = 0, total = 0;
	cuda_result result = FAKE_SLOT_HERE(mem_info, &unused, &total);
	if (result == TRZ_CUDA_SUCCESS) {
		*free_bytes = unused;
		*total_bytes = total;
	}
	return result;
}

cuda_result cuMemAlloc_v2(cuda_addr *address, size_t size)
{
	trz_addr made = 0;
	if (size == 0)
		return TRZ_CUDA_ERROR_INVALID_VALUE;
	cuda_result result = FAKE_SLOT_HERE(mem_alloc, size, &made);
	if (result == TRZ_CUDA_SUCCESS)
		*address = made;
	return result;
}

cuda_result cuMemFree_v2(cuda_addr address)
{
	return FAKE_SLOT_HERE(mem_free, address);
}

cuda_result cuMemCreate(cuda_mem *handle, size_t size, const struct cuda_mem_prop *prop, uint64_t flags)
{
	trz_handle made = 0;
	if (flags != 0 || prop->type != TRZ_CU_MEM_ALLOCATION_TYPE_PINNED ||
	    prop->location.type != TRZ_CU_MEM_LOCATION_TYPE_DEVICE)
		return TRZ_CUDA_ERROR_INVALID_VALUE;
	const trz_tile_props props = {
		.device = prop->location.id,
		.export_kinds = (unsigned)prop->handle_types,
		.rdma = prop->flags.rdma != 0,
	};
	cuda_result result = FAKE_SLOT(create, &props, size, &made);
	if (result == TRZ_CUDA_SUCCESS)
		*handle = made;
	return result;
}

cuda_result cuMemRelease(cuda_mem handle)
{
	return FAKE_SLOT(release, handle);
}

cuda_result cuMemAddressReserve(cuda_addr *address, size_t size, size_t alignment, cuda_addr hint,
                                uint64_t flags)
{
	trz_addr made = 0;
	if (flags != 0)
		return TRZ_CUDA_ERROR_INVALID_VALUE;
	cuda_result result = FAKE_SLOT(reserve, size, alignment, hint, &made);
	if (result == TRZ_CUDA_SUCCESS)
		*address = made;
	return result;
}

cuda_result cuMemAddressFree(cuda_addr address, size_t size)
{
	return FAKE_SLOT(unreserve, address, size);
}

cuda_result cuMemMap(cuda_addr address, size_t size, size_t offset, cuda_mem handle, uint64_t flags)
{
	if (offset != 0 || flags != 0)
		return TRZ_CUDA_ERROR_INVALID_VALUE;
	return FAKE_SLOT(map, address, size, handle);
}

cuda_result cuMemUnmap(cuda_addr address, size_t size)
{
	return FAKE_SLOT(unmap, address, size);
}

/* The simulator knows reading and writing together only. */
cuda_result cuMemSetAccess(cuda_addr address, size_t size, const struct cuda_mem_access *access, size_t count)
{
	int devices[MOST_DEVICES];
	if (count == 0 || count > MOST_DEVICES)
		return TRZ_CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		if (access[i].location.type != TRZ_CU_MEM_LOCATION_TYPE_DEVICE ||
		    access[i].flags != TRZ_CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			return TRZ_CUDA_ERROR_NOT_SUPPORTED;
		devices[i] = access[i].location.id;
	}
	return FAKE_SLOT(set_access, address, size, devices, (int)count);
}

cuda_result cuMemGetAllocationGranularity(size_t *granularity, const struct cuda_mem_prop *prop, int option)
{
	trz_device_info info;
	(void)option; /* the recommended granularity is the smallest one */
	cuda_result result = FAKE_SLOT(device_info, prop->location.id, &info);
	if (result == TRZ_CUDA_SUCCESS)
		*granularity = info.granularity;
	return result;
}

cuda_result cuMemExportToShareableHandle(void *shareable, cuda_mem handle, int kind, uint64_t flags)
{
	return flags == 0 ? FAKE_SLOT(export_handle, handle, (unsigned)kind, shareable)
	                  : TRZ_CUDA_ERROR_INVALID_VALUE;
}

/* A descriptor arrives in the pointer itself. */
cuda_result cuMemImportFromShareableHandle(cuda_mem *handle, void *source, int kind)
{
	const int descriptor = (int)(intptr_t)source;
	const void *shareable = kind == TRZ_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ? &descriptor : source;
	trz_handle made = 0;
	cuda_result result = FAKE_SLOT(import_handle, (unsigned)kind, shareable, &made);
	if (result == TRZ_CUDA_SUCCESS)
		*handle = made;
	return result;
}
