/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares alloc/observe/nvtx_abi.h with the real nvToolsExtMem.h, if a toolkit is installed: sizes, offsets, values.
 * Skipped elsewhere.
 */
#include "observe/nvtx_abi.h"

#define NVTX_NO_IMPL
#if __has_include(<nvtx3/nvToolsExtMem.h>)
#include <nvtx3/nvToolsExtMem.h>
#endif

#ifdef NVTX_EXT_MODULEID_MEM

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void constants_are_equal(void **state)
{
	(void)state;
	assert_int_equal(NVTX_ABI_VERSION, NVTX_VERSION);
	assert_int_equal(NVTX_ABI_MODULE_MEM, NVTX_EXT_MODULEID_MEM);
	assert_int_equal(NVTX_ABI_COMPAT_MEM, NVTX_EXT_COMPATID_MEM);
	assert_int_equal(NVTX_ABI_HEAP_SUB_ALLOCATOR, NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR);
	assert_int_equal(NVTX_ABI_TYPE_ADDRESS, NVTX_MEM_TYPE_VIRTUAL_ADDRESS);
	assert_int_equal(NVTX_ABI_REF_POINTER, NVTX_MEM_REGION_REF_TYPE_POINTER);
	assert_int_equal(NVTX_ABI_MESSAGE_ASCII, NVTX_MESSAGE_TYPE_ASCII);
	assert_int_equal(NVTX_ABI_HEAP_REGISTER, NVTX3EXT_CBID_nvtxMemHeapRegister);
	assert_int_equal(NVTX_ABI_HEAP_UNREGISTER, NVTX3EXT_CBID_nvtxMemHeapUnregister);
	assert_int_equal(NVTX_ABI_REGIONS_REGISTER, NVTX3EXT_CBID_nvtxMemRegionsRegister);
	assert_int_equal(NVTX_ABI_REGIONS_UNREGISTER, NVTX3EXT_CBID_nvtxMemRegionsUnregister);
}

#define SAME_SIZE(mine, theirs) assert_int_equal(sizeof(struct mine), sizeof(theirs))
#define SAME(mine, field, theirs, their_field) \
	assert_int_equal(offsetof(struct mine, field), offsetof(theirs, their_field))

static void structs_have_equal_layout(void **state)
{
	(void)state;
	SAME_SIZE(nvtx_segment, nvtxExtModuleSegment_t);
	SAME(nvtx_segment, slot_count, nvtxExtModuleSegment_t, slotCount);
	SAME(nvtx_segment, slots, nvtxExtModuleSegment_t, functionSlots);
	SAME_SIZE(nvtx_module, nvtxExtModuleInfo_t);
	SAME(nvtx_module, size, nvtxExtModuleInfo_t, structSize);
	SAME(nvtx_module, module, nvtxExtModuleInfo_t, moduleId);
	SAME(nvtx_module, compat, nvtxExtModuleInfo_t, compatId);
	SAME(nvtx_module, segment_count, nvtxExtModuleInfo_t, segmentsCount);
	SAME(nvtx_module, segments, nvtxExtModuleInfo_t, segments);
	SAME(nvtx_module, get_export, nvtxExtModuleInfo_t, getExportFunction);
	SAME_SIZE(nvtx_range, nvtxMemVirtualRangeDesc_t);
	SAME(nvtx_range, address, nvtxMemVirtualRangeDesc_t, ptr);
	SAME_SIZE(nvtx_heap_desc, nvtxMemHeapDesc_t);
	SAME(nvtx_heap_desc, size, nvtxMemHeapDesc_t, structSize);
	SAME(nvtx_heap_desc, usage, nvtxMemHeapDesc_t, usage);
	SAME(nvtx_heap_desc, type, nvtxMemHeapDesc_t, type);
	SAME(nvtx_heap_desc, range_size, nvtxMemHeapDesc_t, typeSpecificDescSize);
	SAME(nvtx_heap_desc, range, nvtxMemHeapDesc_t, typeSpecificDesc);
	SAME(nvtx_heap_desc, message_type, nvtxMemHeapDesc_t, messageType);
	SAME(nvtx_heap_desc, message, nvtxMemHeapDesc_t, message);
	SAME_SIZE(nvtx_regions, nvtxMemRegionsRegisterBatch_t);
	SAME(nvtx_regions, type, nvtxMemRegionsRegisterBatch_t, regionType);
	SAME(nvtx_regions, heap, nvtxMemRegionsRegisterBatch_t, heap);
	SAME(nvtx_regions, count, nvtxMemRegionsRegisterBatch_t, regionCount);
	SAME(nvtx_regions, element_size, nvtxMemRegionsRegisterBatch_t, regionDescElementSize);
	SAME(nvtx_regions, elements, nvtxMemRegionsRegisterBatch_t, regionDescElements);
	SAME(nvtx_regions, handles, nvtxMemRegionsRegisterBatch_t, regionHandleElementsOut);
	SAME_SIZE(nvtx_region_refs, nvtxMemRegionsUnregisterBatch_t);
	SAME(nvtx_region_refs, type, nvtxMemRegionsUnregisterBatch_t, refType);
	SAME(nvtx_region_refs, count, nvtxMemRegionsUnregisterBatch_t, refCount);
	SAME(nvtx_region_refs, element_size, nvtxMemRegionsUnregisterBatch_t, refElementSize);
	SAME(nvtx_region_refs, elements, nvtxMemRegionsUnregisterBatch_t, refElements);
	assert_int_equal(sizeof(nvtxMemRegionRef_t), sizeof(void *));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(constants_are_equal),
		cmocka_unit_test(structs_have_equal_layout),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
	return 77;
}

#endif
