/* SPDX-License-Identifier: Apache-2.0
 *
 * Facts about a pointer: device memory, pinned host memory, or unknown.
 */
#include "driver_lookalike.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* An allocation whose synchronous copies are always to wait, as the program has asked; by generation. */
struct waiting {
	struct waiting *next;
	uint64_t generation;
};
static _Atomic(struct waiting *) waiting;

static bool waits(const struct sim_place *p)
{
	const struct waiting *w = waiting;
	while (w && w->generation != p->generation)
		w = w->next;
	return w != NULL;
}

/* Values that are true or false take an int; memory of pools belongs to no context. Both seen on an H200, driver
 * 580.159.04. */
static cuda_result device_attribute(void *data, int attribute, cuda_addr address, const struct sim_place *p,
                                    void *pool)
{
	switch (attribute) {
	case TRZ_CU_POINTER_ATTRIBUTE_CONTEXT:
		*(void **)data = NULL;
		if (p->plain && !pool)
			*(void **)data = sim_plain_context(look.sim, address);
		return TRZ_CUDA_SUCCESS;
	case TRZ_CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned *)data = TRZ_CU_MEMORYTYPE_DEVICE;
		return TRZ_CUDA_SUCCESS;
	case TRZ_CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*(cuda_addr *)data = address;
		return TRZ_CUDA_SUCCESS;
	case TRZ_CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case TRZ_CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		*(unsigned long long *)data = p->generation;
		return TRZ_CUDA_SUCCESS;
	case TRZ_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = p->device;
		return TRZ_CUDA_SUCCESS;
	case TRZ_CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		*(int *)data = p->plain && !pool;
		return TRZ_CUDA_SUCCESS;
	case TRZ_CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(int *)data = look_managed(address);
		return TRZ_CUDA_SUCCESS;
	case TRZ_CU_POINTER_ATTRIBUTE_HOST_POINTER:
		LOOK_NEED(look_managed(address), INVALID_VALUE);
		*(cuda_addr *)data = address;
		return TRZ_CUDA_SUCCESS;
	case TRZ_CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		*(int *)data = waits(p);
		return TRZ_CUDA_SUCCESS;
	case TRZ_CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case TRZ_CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		*(cuda_addr *)data = p->address;
		return TRZ_CUDA_SUCCESS;
	case TRZ_CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case TRZ_CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		*(size_t *)data = p->size;
		return TRZ_CUDA_SUCCESS;
	case TRZ_CU_POINTER_ATTRIBUTE_MAPPED:
	case TRZ_CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
		*(int *)data = true;
		return TRZ_CUDA_SUCCESS;
	case TRZ_CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		*(uint64_t *)data = p->export_kinds;
		return TRZ_CUDA_SUCCESS;
	case TRZ_CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		*(int *)data = TRZ_CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
		return TRZ_CUDA_SUCCESS;
	case TRZ_CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		*(void **)data = pool;
		return TRZ_CUDA_SUCCESS;
	default:
		return TRZ_CUDA_ERROR_INVALID_VALUE;
	}
}

static cuda_result host_attribute(void *data, int attribute, cuda_addr address, uint64_t start, uint64_t size)
{
	switch (attribute) {
	case TRZ_CU_POINTER_ATTRIBUTE_CONTEXT:
		*(void **)data = look_context();
		return TRZ_CUDA_SUCCESS;
	case TRZ_CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned *)data = TRZ_CU_MEMORYTYPE_HOST;
		return TRZ_CUDA_SUCCESS;
	case TRZ_CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
	case TRZ_CU_POINTER_ATTRIBUTE_HOST_POINTER:
		*(cuda_addr *)data = address;
		return TRZ_CUDA_SUCCESS;
	case TRZ_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = 0;
		return cuCtxGetDevice(data);
	case TRZ_CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(int *)data = false;
		return TRZ_CUDA_SUCCESS;
	case TRZ_CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(cuda_addr *)data = start;
		return TRZ_CUDA_SUCCESS;
	case TRZ_CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)data = size;
		return TRZ_CUDA_SUCCESS;
	case TRZ_CU_POINTER_ATTRIBUTE_MAPPED:
		*(int *)data = true;
		return TRZ_CUDA_SUCCESS;
	default:
		return TRZ_CUDA_ERROR_INVALID_VALUE;
	}
}

cuda_result cuPointerGetAttribute(void *data, int attribute, cuda_addr address)
{
	struct sim_place place;
	void *pool;
	uint64_t start, size;
	unsigned flags;
	LOOK_ENTER(cuPointerGetAttribute);
	LOOK_NEED(data, INVALID_VALUE);
	if (look_place_at(address, &place, &pool))
		return device_attribute(data, attribute, address, &place, pool);
	LOOK_NEED(look_pinned((void *)address, &start, &size, &flags), INVALID_VALUE);
	return host_attribute(data, attribute, address, start, size);
}

/* Facts that are not known are zero, in their type's width, and no failure. */
cuda_result cuPointerGetAttributes(unsigned count, int *attributes, void **data, cuda_addr address)
{
	LOOK_ENTER(cuPointerGetAttributes);
	LOOK_NEED(count > 0 && attributes && data, INVALID_VALUE);
	for (unsigned i = 0; i < count; i++)
		LOOK_NEED(data[i], INVALID_VALUE);
	for (unsigned i = 0; i < count; i++) {
		if (cuPointerGetAttribute(data[i], attributes[i], address) == TRZ_CUDA_SUCCESS)
			continue;
		switch (attributes[i]) {
		case TRZ_CU_POINTER_ATTRIBUTE_IS_MANAGED:
		case TRZ_CU_POINTER_ATTRIBUTE_MAPPED:
		case TRZ_CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		case TRZ_CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
			*(int *)data[i] = false;
			break;
		case TRZ_CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		case TRZ_CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
			*(unsigned *)data[i] = 0;
			break;
		case TRZ_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
			*(int *)data[i] = -2;
			break;
		default:
			*(uint64_t *)data[i] = 0;
		}
	}
	return TRZ_CUDA_SUCCESS;
}

/* Mapped memory does not take the attribute; measured on an H200, driver 580.159.04. */
cuda_result cuPointerSetAttribute(const void *value, int attribute, cuda_addr address)
{
	struct sim_place place;
	void *pool;
	LOOK_ENTER(cuPointerSetAttribute);
	LOOK_NEED(value && attribute == TRZ_CU_POINTER_ATTRIBUTE_SYNC_MEMOPS && look_place_at(address, &place, &pool),
	          INVALID_VALUE);
	LOOK_NEED(place.plain, NOT_SUPPORTED);
	struct waiting *w = *(const int *)value && !waits(&place) ? malloc(sizeof *w) : NULL;
	if (w) {
		w->generation = place.generation;
		w->next = waiting;
		while (!atomic_compare_exchange_weak(&waiting, &w->next, w))
			continue;
	}
	return TRZ_CUDA_SUCCESS;
}
