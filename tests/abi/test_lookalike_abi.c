/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares the look-alikes' declarations with the real headers, if a toolkit of version 13 or newer is installed:
 * values, sizes and offsets. Skipped elsewhere.
 */
#include "lookalike/driver/driver_abi.h"
#include "lookalike/runtime/runtime_abi.h"

#if __has_include(<cuda.h>) && __has_include(<cuda_runtime_api.h>)
#include <cuda.h>
#include <cuda_runtime_api.h>
#endif

#if defined(CUDA_VERSION) && CUDA_VERSION >= 13000

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void constants_are_equal(void **state)
{
	(void)state;
#define CHECK_VALUE(name, value) assert_int_equal(TRZ_##name, name);
	DRIVER_ABI_RESULTS(CHECK_VALUE)
	DRIVER_ABI_CONSTANTS(CHECK_VALUE)
	DRIVER_ARRAY_CONSTANTS(CHECK_VALUE)
	DRIVER_GRAPH_CONSTANTS(CHECK_VALUE)
#undef CHECK_VALUE
#define CHECK_VALUE(name, value) assert_int_equal(TRZ_CU_DEVICE_ATTRIBUTE_##name, CU_DEVICE_ATTRIBUTE_##name);
	DRIVER_ABI_ATTRIBUTES(CHECK_VALUE)
#undef CHECK_VALUE
#define CHECK_VALUE(name, value, extent) assert_int_equal(value, CU_DEVICE_ATTRIBUTE_##name);
	DRIVER_ABI_EXTENTS(CHECK_VALUE)
#undef CHECK_VALUE
#define CHECK_VALUE(name, value, bytes) assert_int_equal(TRZ_CU_AD_FORMAT_##name, CU_AD_FORMAT_##name);
	DRIVER_ARRAY_FORMATS(CHECK_VALUE)
#undef CHECK_VALUE
}

static void errors_are_equal(void **state)
{
	(void)state;
#if CUDA_VERSION < 13020  /* which lacks some of them */
#define CUDA_ERROR_KEY_ROTATION 916
#define CUDA_ERROR_STREAM_DETACHED 917
#define cudaErrorStreamDetached 917
#endif
#define BOTH(value, driver, runtime, text) assert_true(driver == value && runtime == value);
#define DRIVER(value, driver, text) assert_true(driver == value);
#define RUNTIME(value, runtime, text) assert_true(runtime == value);
#include "lookalike/lookalike_errors.def"
#undef BOTH
#undef DRIVER
#undef RUNTIME
}

#define SAME_SIZE(ours, theirs) assert_int_equal(sizeof(ours), sizeof(theirs))
#define SAME_PLACE(ours, our_field, theirs, their_field) \
	assert_int_equal(offsetof(ours, our_field), offsetof(theirs, their_field))

static void driver_structures_are_equal(void **state)
{
	(void)state;
	SAME_SIZE(struct cuda_uuid, CUuuid);
	SAME_SIZE(struct cuda_copy_2d, CUDA_MEMCPY2D);
	SAME_PLACE(struct cuda_copy_2d, to_device, CUDA_MEMCPY2D, dstDevice);
	SAME_SIZE(struct cuda_copy_3d, CUDA_MEMCPY3D);
	SAME_PLACE(struct cuda_copy_3d, to_height, CUDA_MEMCPY3D, dstHeight);
	SAME_SIZE(struct cuda_launch, CUlaunchConfig);
	SAME_SIZE(struct cuda_mem_op, CUstreamBatchMemOpParams);
	SAME_PLACE(struct cuda_mem_op, value, CUstreamBatchMemOpParams, waitValue.value64);
	SAME_PLACE(struct cuda_mem_op, flags, CUstreamBatchMemOpParams, writeValue.flags);
	SAME_PLACE(struct cuda_launch, stream, CUlaunchConfig, hStream);
	SAME_SIZE(struct cuda_pool_props, CUmemPoolProps);
	SAME_PLACE(struct cuda_pool_props, location, CUmemPoolProps, location);
	SAME_SIZE(struct cuda_context_params, CUctxCreateParams);
	SAME_PLACE(struct cuda_context_params, graphics, CUctxCreateParams, cigParams);
	SAME_PLACE(struct cuda_pool_props, most_bytes, CUmemPoolProps, maxSize);
	SAME_SIZE(struct cuda_array_2d, CUDA_ARRAY_DESCRIPTOR);
	SAME_SIZE(struct cuda_array_3d, CUDA_ARRAY3D_DESCRIPTOR);
	SAME_PLACE(struct cuda_array_3d, flags, CUDA_ARRAY3D_DESCRIPTOR, Flags);
	SAME_SIZE(struct cuda_array_need, CUDA_ARRAY_MEMORY_REQUIREMENTS);
	SAME_SIZE(struct cuda_resource, CUDA_RESOURCE_DESC);
	SAME_PLACE(struct cuda_resource, of, CUDA_RESOURCE_DESC, res);
	SAME_SIZE(struct cuda_texture, CUDA_TEXTURE_DESC);
	SAME_SIZE(struct cuda_view, CUDA_RESOURCE_VIEW_DESC);
	SAME_SIZE(struct cuda_copy_3d, CUDA_MEMCPY3D_PEER);
	SAME_SIZE(struct cuda_edge, CUgraphEdgeData);
	SAME_SIZE(struct cuda_instantiate, CUDA_GRAPH_INSTANTIATE_PARAMS);
	SAME_SIZE(struct cuda_kernel_node, CUDA_KERNEL_NODE_PARAMS);
	assert_int_equal(CUDA_KERNEL_NODE_V1, sizeof(CUDA_KERNEL_NODE_PARAMS_v1));
	SAME_SIZE(struct cuda_copy_node, CUDA_MEMCPY_NODE_PARAMS);
	SAME_SIZE(struct cuda_fill_node, CUDA_MEMSET_NODE_PARAMS_v2);
	assert_int_equal(CUDA_FILL_NODE_V1, sizeof(CUDA_MEMSET_NODE_PARAMS_v1));
	SAME_SIZE(struct cuda_host_node, CUDA_HOST_NODE_PARAMS);
	SAME_SIZE(struct cuda_child_node, CUDA_CHILD_GRAPH_NODE_PARAMS);
	SAME_SIZE(struct cuda_alloc_node, CUDA_MEM_ALLOC_NODE_PARAMS);
	SAME_PLACE(struct cuda_alloc_node, address, CUDA_MEM_ALLOC_NODE_PARAMS, dptr);
	SAME_SIZE(struct cuda_conditional_node, CUDA_CONDITIONAL_NODE_PARAMS);
	SAME_SIZE(struct cuda_node, CUgraphNodeParams);
	SAME_PLACE(struct cuda_node, of, CUgraphNodeParams, kernel);
	SAME_SIZE(struct cuda_update, CUgraphExecUpdateResultInfo);
}

static void runtime_structures_are_equal(void **state)
{
	(void)state;
	SAME_SIZE(struct rt_properties, struct cudaDeviceProp);
	SAME_PLACE(struct rt_properties, major, struct cudaDeviceProp, major);
	SAME_PLACE(struct rt_properties, textures, struct cudaDeviceProp, maxTexture2D);
	SAME_PLACE(struct rt_properties, surfaces, struct cudaDeviceProp, maxSurface1D);
	SAME_PLACE(struct rt_properties, surface_alignment, struct cudaDeviceProp, surfaceAlignment);
	SAME_PLACE(struct rt_properties, pci_bus, struct cudaDeviceProp, pciBusID);
	SAME_PLACE(struct rt_properties, shared_per_block_optin, struct cudaDeviceProp, sharedMemPerBlockOptin);
	SAME_PLACE(struct rt_properties, pools, struct cudaDeviceProp, memoryPoolsSupported);
	SAME_PLACE(struct rt_properties, clusters, struct cudaDeviceProp, clusterLaunch);
	SAME_SIZE(struct rt_pointer, struct cudaPointerAttributes);
	SAME_SIZE(struct rt_function, struct cudaFuncAttributes);
	SAME_PLACE(struct rt_function, cluster_any_size, struct cudaFuncAttributes, nonPortableClusterSizeAllowed);
	SAME_SIZE(struct rt_launch, cudaLaunchConfig_t);
	SAME_SIZE(struct rt_copy_3d, struct cudaMemcpy3DParms);
	SAME_PLACE(struct rt_copy_3d, extent, struct cudaMemcpy3DParms, extent);
	SAME_SIZE(struct rt_kernel_node, struct cudaKernelNodeParams);
	SAME_PLACE(struct rt_kernel_node, params, struct cudaKernelNodeParams, kernelParams);
	SAME_SIZE(struct rt_copy_node, struct cudaMemcpyNodeParams);
	SAME_SIZE(struct rt_node, struct cudaGraphNodeParams);
	SAME_PLACE(struct rt_node, of, struct cudaGraphNodeParams, kernel);
	SAME_SIZE(struct cuda_alloc_node, struct cudaMemAllocNodeParams);
	SAME_SIZE(struct rt_copy_peer, struct cudaMemcpy3DPeerParms);
	SAME_PLACE(struct rt_copy_peer, extent, struct cudaMemcpy3DPeerParms, extent);
	SAME_SIZE(struct rt_channel, struct cudaChannelFormatDesc);
	SAME_SIZE(struct rt_texture, struct cudaTextureDesc);
	SAME_SIZE(struct rt_view, struct cudaResourceViewDesc);
	SAME_SIZE(struct cuda_resource, struct cudaResourceDesc);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(constants_are_equal),
		cmocka_unit_test(errors_are_equal),
		cmocka_unit_test(driver_structures_are_equal),
		cmocka_unit_test(runtime_structures_are_equal),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

#include <stdio.h>

int main(void)
{
	puts("skipped: no CUDA toolkit of version 13 or newer");
	return 77;
}

#endif
