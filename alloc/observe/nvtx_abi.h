/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of the binary interface of NVTX 3's memory extension that terrazzo uses. NVTX has no library: a program
 * loads the tool that the environment names and hands it an array of function slots, which the tool fills. Nothing
 * here needs the headers; tests/abi compares it with a real nvToolsExtMem.h where one is installed.
 */
#ifndef TRZ_NVTX_ABI_H
#define TRZ_NVTX_ABI_H

#include <stddef.h>
#include <stdint.h>

/* The function that the tool's library exports. */
#define NVTX_ABI_INITIALIZE "InitializeInjectionNvtxExtension"

enum {
	NVTX_ABI_VERSION = 3,                /* NVTX_VERSION */
	NVTX_ABI_MODULE_MEM = 1,             /* NVTX_EXT_MODULEID_MEM */
	NVTX_ABI_COMPAT_MEM = 0x0102,        /* NVTX_EXT_COMPATID_MEM */
	NVTX_ABI_SLOTS = 63,                 /* NVTX_EXT_MEM_SLOT_COUNT */
	NVTX_ABI_HEAP_SUB_ALLOCATOR = 1,     /* NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR */
	NVTX_ABI_TYPE_ADDRESS = 1,           /* NVTX_MEM_TYPE_VIRTUAL_ADDRESS */
	NVTX_ABI_REF_POINTER = 1,            /* NVTX_MEM_REGION_REF_TYPE_POINTER */
	NVTX_ABI_MESSAGE_ASCII = 1           /* NVTX_MESSAGE_TYPE_ASCII */
};

/* Indices of function slots. */
enum {
	NVTX_ABI_HEAP_REGISTER = 0,
	NVTX_ABI_HEAP_UNREGISTER = 1,
	NVTX_ABI_REGIONS_REGISTER = 3,
	NVTX_ABI_REGIONS_UNREGISTER = 5
};

/* nvtxExtModuleSegment_t */
struct nvtx_segment {
	size_t id, slot_count;
	intptr_t *slots;
};

/* nvtxExtModuleInfo_t */
struct nvtx_module {
	uint16_t version, size, module, compat;
	size_t segment_count;
	struct nvtx_segment *segments;
	intptr_t (*get_export)(uint32_t id);
	const void *info;
};

/* 0: the tool refuses. */
typedef int nvtx_initialize(struct nvtx_module *module);

/* nvtxMemVirtualRangeDesc_t */
struct nvtx_range {
	size_t size;
	const void *address;
};

/* nvtxMemHeapDesc_t */
struct nvtx_heap_desc {
	uint16_t compat, size;
	uint32_t reserved;
	uint32_t usage, type;
	size_t range_size;
	const void *range;
	uint32_t category, message_type;
	const char *message;
};

/* nvtxMemRegionsRegisterBatch_t */
struct nvtx_regions {
	uint16_t compat, size;
	uint32_t type;
	void *heap;
	size_t count, element_size;
	const void *elements;
	void **handles;
};

/* nvtxMemRegionsUnregisterBatch_t; an element is a pointer. */
struct nvtx_region_refs {
	uint16_t compat, size;
	uint32_t type;
	size_t count, element_size;
	const void *elements;
};

typedef void *nvtx_heap_register(void *domain, const struct nvtx_heap_desc *desc);
typedef void nvtx_heap_unregister(void *domain, void *heap);
typedef void nvtx_regions_register(void *domain, const struct nvtx_regions *regions);
typedef void nvtx_regions_unregister(void *domain, const struct nvtx_region_refs *refs);

#endif
