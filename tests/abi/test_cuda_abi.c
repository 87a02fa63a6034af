/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares base/cuda_abi.h with the real cuda.h, if a toolkit of version 13 or newer is installed: sizes, offsets,
 * values, and that each symbol exists in the version that we ask for. Skipped elsewhere.
 */
#include "cuda_abi.h"

#if __has_include(<cuda.h>) && __has_include(<cudaTypedefs.h>)
#include <cuda.h>
#include <cudaTypedefs.h>
#endif

#if defined(CUDA_VERSION) && CUDA_VERSION >= 13000

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void constants_are_equal(void **state)
{
	(void)state;
#define CHECK_VALUE(name, value) assert_int_equal(TRZ_##name, name);
	CUDA_ABI_RESULTS(CHECK_VALUE)
	CUDA_ABI_CONSTANTS(CHECK_VALUE)
#undef CHECK_VALUE
}

static void scalars_have_equal_size(void **state)
{
	(void)state;
	assert_int_equal(sizeof(cuda_result), sizeof(CUresult));
	assert_int_equal(sizeof(cuda_device), sizeof(CUdevice));
	assert_int_equal(sizeof(cuda_addr), sizeof(CUdeviceptr));
	assert_int_equal(sizeof(cuda_mem), sizeof(CUmemGenericAllocationHandle));
	assert_int_equal(sizeof(uint64_t), sizeof(cuuint64_t));
	assert_int_equal(sizeof(void *), sizeof(CUcontext));
	assert_int_equal(sizeof(void *), sizeof(CUstream));
	assert_int_equal(sizeof(void *), sizeof(CUevent));
	assert_int_equal(sizeof(int), sizeof(CUdevice_attribute));
	assert_int_equal(sizeof(int), sizeof(CUstreamCaptureStatus));
	assert_int_equal(sizeof(int), sizeof(CUstreamCaptureMode));
	assert_int_equal(sizeof(int), sizeof(CUmemAllocationHandleType));
	assert_int_equal(sizeof(int), sizeof(CUdriverProcAddressQueryResult));
}

#define CHECK_OFFSET(mine, my_field, theirs, their_field) \
	assert_int_equal(offsetof(struct mine, my_field), offsetof(theirs, their_field))

static void structs_have_equal_layout(void **state)
{
	(void)state;
	assert_int_equal(sizeof(struct cuda_mem_location), sizeof(CUmemLocation));
	CHECK_OFFSET(cuda_mem_location, type, CUmemLocation, type);
	CHECK_OFFSET(cuda_mem_location, id, CUmemLocation, id);
	assert_int_equal(sizeof(struct cuda_mem_access), sizeof(CUmemAccessDesc));
	CHECK_OFFSET(cuda_mem_access, location, CUmemAccessDesc, location);
	CHECK_OFFSET(cuda_mem_access, flags, CUmemAccessDesc, flags);
	assert_int_equal(sizeof(struct cuda_mem_prop), sizeof(CUmemAllocationProp));
	CHECK_OFFSET(cuda_mem_prop, type, CUmemAllocationProp, type);
	CHECK_OFFSET(cuda_mem_prop, handle_types, CUmemAllocationProp, requestedHandleTypes);
	CHECK_OFFSET(cuda_mem_prop, location, CUmemAllocationProp, location);
	CHECK_OFFSET(cuda_mem_prop, win32_metadata, CUmemAllocationProp, win32HandleMetaData);
	CHECK_OFFSET(cuda_mem_prop, flags, CUmemAllocationProp, allocFlags);
	CHECK_OFFSET(cuda_mem_prop, flags.compression, CUmemAllocationProp, allocFlags.compressionType);
	CHECK_OFFSET(cuda_mem_prop, flags.rdma, CUmemAllocationProp, allocFlags.gpuDirectRDMACapable);
	CHECK_OFFSET(cuda_mem_prop, flags.usage, CUmemAllocationProp, allocFlags.usage);
}

/* What cuda.h makes of a name: its newest version. */
#define NEWEST(name) NEWEST_STRING(name)
#define NEWEST_STRING(name) #name

/* A row whose version does not exist under that name does not compile: its type is missing. cuda.h renames a
 * function to its newest version, which is the one asked for, save that capture info is read in its first. */
static void symbols_exist_in_their_version(void **state)
{
	(void)state;
#define CHECK_SYMBOL(need, name, suffix, version, parameters)                                               \
	assert_int_equal(sizeof(PFN_##name##_v##version), sizeof(void (*)(void)));                          \
	if (strcmp(#name, "cuStreamGetCaptureInfo") != 0)                                                   \
		assert_string_equal(#name suffix, NEWEST(name));
	CUDA_ABI_SYMBOLS(CHECK_SYMBOL)
#undef CHECK_SYMBOL
#define CHECK_SYMBOL(own, need, name, suffix, version, parameters) \
	assert_int_equal(sizeof(PFN_##name##_v##version), sizeof(void (*)(void)));
	CUDA_ABI_YOUNGER(CHECK_SYMBOL)
#undef CHECK_SYMBOL
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(constants_are_equal),
		cmocka_unit_test(scalars_have_equal_size),
		cmocka_unit_test(structs_have_equal_layout),
		cmocka_unit_test(symbols_exist_in_their_version),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

#include <stdio.h>

int main(void)
{
	puts("skipped: no cuda.h of version 13 or newer to compare with");
	return 77;
}

#endif
