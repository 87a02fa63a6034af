/* SPDX-License-Identifier: Apache-2.0
 *
 * The tool in place of compute-sanitizer, called by NVTX's own client code, if its headers are installed: that code
 * meets everything that the tool demands of us. Skipped elsewhere.
 */
#if __has_include(<nvtx3/nvToolsExtMem.h>)
#include <nvtx3/nvToolsExtMem.h>
#endif

#ifdef NVTX_EXT_MODULEID_MEM

#include <dlfcn.h>
#include <stdlib.h>

#include "fake_tool.h"
#include "testing.h"

static void test_the_headers_own_client(void **state)
{
	(void)state;
	const char *path = getenv("NVTX_INJECTION64_PATH");
	assert_non_null(path);
	void *library = dlopen(path, RTLD_NOW);
	assert_non_null(library);
	struct fake_tool *tool = dlsym(library, "fake_tool");
	assert_non_null(tool);
	static char memory[4096];
	nvtxMemVirtualRangeDesc_t range = {sizeof memory, memory}, part = {100, memory + 512};
	nvtxMemHeapDesc_t heap = {.extCompatID = NVTX_EXT_COMPATID_MEM,
	                          .structSize = sizeof heap,
	                          .usage = NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR,
	                          .type = NVTX_MEM_TYPE_VIRTUAL_ADDRESS,
	                          .typeSpecificDescSize = sizeof range,
	                          .typeSpecificDesc = &range,
	                          .messageType = NVTX_MESSAGE_TYPE_ASCII,
	                          .message.ascii = "client"};
	nvtxMemHeapHandle_t handle = nvtxMemHeapRegister(NULL, &heap);
	assert_int_equal(tool->initialized, 1);
	assert_string_equal(tool->name, "client");
	nvtxMemRegionsRegisterBatch_t regions = {.extCompatID = NVTX_EXT_COMPATID_MEM,
	                                         .structSize = sizeof regions,
	                                         .regionType = NVTX_MEM_TYPE_VIRTUAL_ADDRESS,
	                                         .heap = handle,
	                                         .regionCount = 1,
	                                         .regionDescElementSize = sizeof part,
	                                         .regionDescElements = &part};
	nvtxMemRegionsRegister(NULL, &regions);
	assert_int_equal(tool->region_count, 1);
	nvtxMemRegionRef_t ref = {.pointer = part.ptr};
	nvtxMemRegionsUnregisterBatch_t refs = {.extCompatID = NVTX_EXT_COMPATID_MEM,
	                                        .structSize = sizeof refs,
	                                        .refType = NVTX_MEM_REGION_REF_TYPE_POINTER,
	                                        .refCount = 1,
	                                        .refElementSize = sizeof ref,
	                                        .refElements = &ref};
	nvtxMemRegionsUnregister(NULL, &refs);
	assert_int_equal(tool->region_count, 0);
	nvtxMemHeapUnregister(NULL, handle);
	assert_int_equal(tool->heap_count, 0);
	assert_string_equal(tool->wrong, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_headers_own_client),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
	return 77;
}

#endif
