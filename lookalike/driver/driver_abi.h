/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of the driver's binary interface that only the look-alike needs, in addition to base/cuda_abi.h.
 * tests/abi compares it with a real cuda.h where one is installed.
 */
#ifndef DRIVER_ABI_H
#define DRIVER_ABI_H

#include <stddef.h>

#include "driver_array_abi.h"

/* CUresult: values that base/cuda_abi.h does not distinguish. X(name, value). */
#define DRIVER_ABI_RESULTS(X)                                                                               \
	X(CUDA_ERROR_INVALID_IMAGE, 200) X(CUDA_ERROR_ALREADY_MAPPED, 208) X(CUDA_ERROR_UNSUPPORTED_LIMIT, 215) \
	X(CUDA_ERROR_INVALID_PTX, 218) X(CUDA_ERROR_FILE_NOT_FOUND, 301)                                        \
	X(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, 704)                                                          \
	X(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, 705) X(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712)            \
	X(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, 713) X(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, 910)             \
	X(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 701) X(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, 720)             \
	X(CUDA_ERROR_INVALID_RESOURCE_TYPE, 914) X(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, 915)

/* All other constants that calls take. X(name, value). */
#define DRIVER_ABI_CONSTANTS(X)                                                                             \
	X(CU_STREAM_NON_BLOCKING, 1) X(CU_MEM_LOCATION_TYPE_HOST, 2) X(CU_MEM_ACCESS_FLAGS_PROT_NONE, 0)        \
	X(CU_EVENT_BLOCKING_SYNC, 1) X(CU_EVENT_INTERPROCESS, 4)                                                \
	X(CU_MEM_ACCESS_FLAGS_PROT_READ, 1) X(CU_MEMORYTYPE_HOST, 1) X(CU_MEMORYTYPE_DEVICE, 2)                 \
	X(CU_MEMORYTYPE_ARRAY, 3) X(CU_MEMORYTYPE_UNIFIED, 4)                                                   \
	X(CU_MEMHOSTREGISTER_DEVICEMAP, 2) X(CU_EVENT_RECORD_EXTERNAL, 1) X(CU_EVENT_WAIT_EXTERNAL, 1)       \
	X(CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, 2)                                                     \
	X(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 0) X(CU_FUNC_ATTRIBUTE_NUM_REGS, 4)                          \
	X(CU_FUNC_ATTRIBUTE_PTX_VERSION, 5) X(CU_FUNC_ATTRIBUTE_BINARY_VERSION, 6)                              \
	X(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 8) X(CU_FUNC_ATTRIBUTE_MAX, 16)                      \
	X(CU_POINTER_ATTRIBUTE_CONTEXT, 1) X(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 2)                               \
	X(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, 3) X(CU_POINTER_ATTRIBUTE_HOST_POINTER, 4)                       \
	X(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 6) X(CU_POINTER_ATTRIBUTE_BUFFER_ID, 7)                             \
	X(CU_POINTER_ATTRIBUTE_IS_MANAGED, 8) X(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 9)                         \
	X(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, 10) X(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, 11)     \
	X(CU_POINTER_ATTRIBUTE_RANGE_SIZE, 12) X(CU_POINTER_ATTRIBUTE_MAPPED, 13)                               \
	X(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, 14)                                                        \
	X(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, 15) X(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, 16)         \
	X(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, 17) X(CU_POINTER_ATTRIBUTE_MAPPING_SIZE, 18)                     \
	X(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, 19) X(CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, 20)               \
	X(CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, 1)                                                   \
	X(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 4) X(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, 5)                      \
	X(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 6) X(CU_MEMPOOL_ATTR_USED_MEM_CURRENT, 7)                          \
	X(CU_MEMPOOL_ATTR_USED_MEM_HIGH, 8)                                                                     \
	X(CU_LIMIT_STACK_SIZE, 0) X(CU_LIMIT_PRINTF_FIFO_SIZE, 1) X(CU_LIMIT_MALLOC_HEAP_SIZE, 2)               \
	X(CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, 3) X(CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, 4)

/* CUdevice_attribute: those with an answer other than 0. X(name, value). */
#define DRIVER_ABI_ATTRIBUTES(X)                                                                            \
	X(MAX_THREADS_PER_BLOCK, 1) X(MAX_BLOCK_DIM_X, 2) X(MAX_BLOCK_DIM_Y, 3) X(MAX_BLOCK_DIM_Z, 4)           \
	X(MAX_GRID_DIM_X, 5) X(MAX_GRID_DIM_Y, 6) X(MAX_GRID_DIM_Z, 7) X(MAX_SHARED_MEMORY_PER_BLOCK, 8)        \
	X(TOTAL_CONSTANT_MEMORY, 9) X(WARP_SIZE, 10) X(MAX_PITCH, 11) X(MAX_REGISTERS_PER_BLOCK, 12)            \
	X(CLOCK_RATE, 13) X(TEXTURE_ALIGNMENT, 14) X(GPU_OVERLAP, 15) X(MULTIPROCESSOR_COUNT, 16)               \
	X(CAN_MAP_HOST_MEMORY, 19) X(SURFACE_ALIGNMENT, 30) X(CONCURRENT_KERNELS, 31) X(ECC_ENABLED, 32)        \
	X(PCI_BUS_ID, 33) X(MEMORY_CLOCK_RATE, 36) X(GLOBAL_MEMORY_BUS_WIDTH, 37) X(L2_CACHE_SIZE, 38)          \
	X(MAX_THREADS_PER_MULTIPROCESSOR, 39) X(ASYNC_ENGINE_COUNT, 40) X(UNIFIED_ADDRESSING, 41)               \
	X(TEXTURE_PITCH_ALIGNMENT, 51) X(STREAM_PRIORITIES_SUPPORTED, 78) X(GLOBAL_L1_CACHE_SUPPORTED, 79)      \
	X(LOCAL_L1_CACHE_SUPPORTED, 80) X(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 81)                             \
	X(MAX_REGISTERS_PER_MULTIPROCESSOR, 82) X(MANAGED_MEMORY, 83) X(CONCURRENT_MANAGED_ACCESS, 89)          \
	X(COMPUTE_PREEMPTION_SUPPORTED, 90) X(CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 91)                      \
	X(CAN_USE_STREAM_MEM_OPS_V1, 92) X(CAN_USE_64_BIT_STREAM_MEM_OPS_V1, 93)                                \
	X(CAN_USE_STREAM_WAIT_VALUE_NOR_V1, 94) X(CAN_FLUSH_REMOTE_WRITES, 98)                                  \
	X(CAN_USE_64_BIT_STREAM_MEM_OPS, 122) X(CAN_USE_STREAM_WAIT_VALUE_NOR, 123)                             \
	X(COOPERATIVE_LAUNCH, 95) X(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 97) X(HOST_REGISTER_SUPPORTED, 99)       \
	X(MAX_BLOCKS_PER_MULTIPROCESSOR, 106) X(RESERVED_SHARED_MEMORY_PER_BLOCK, 111)                          \
	X(MEMORY_POOLS_SUPPORTED, 115) X(MEMPOOL_SUPPORTED_HANDLE_TYPES, 119) X(CLUSTER_LAUNCH, 120)            \
	X(TENSOR_MAP_ACCESS_SUPPORTED, 127)                                                                     \
	X(IPC_EVENT_SUPPORTED, 125) X(UNIFIED_FUNCTION_POINTERS, 129)

/* CUdevice_attribute: the largest textures and surfaces, as the programming guide has them for all devices from compute
 * capability 7 on. X(name, value, extent). */
#define DRIVER_ABI_EXTENTS(X)                                                                               \
	X(MAXIMUM_TEXTURE1D_WIDTH, 21, 131072) X(MAXIMUM_TEXTURE2D_WIDTH, 22, 131072)                           \
	X(MAXIMUM_TEXTURE2D_HEIGHT, 23, 65536) X(MAXIMUM_TEXTURE3D_WIDTH, 24, 16384)                            \
	X(MAXIMUM_TEXTURE3D_HEIGHT, 25, 16384) X(MAXIMUM_TEXTURE3D_DEPTH, 26, 16384)                            \
	X(MAXIMUM_TEXTURE2D_LAYERED_WIDTH, 27, 32768) X(MAXIMUM_TEXTURE2D_LAYERED_HEIGHT, 28, 32768)            \
	X(MAXIMUM_TEXTURE2D_LAYERED_LAYERS, 29, 2048) X(MAXIMUM_TEXTURE1D_LAYERED_WIDTH, 42, 32768)             \
	X(MAXIMUM_TEXTURE1D_LAYERED_LAYERS, 43, 2048) X(MAXIMUM_TEXTURE2D_GATHER_WIDTH, 45, 32768)              \
	X(MAXIMUM_TEXTURE2D_GATHER_HEIGHT, 46, 32768) X(MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE, 47, 8192)            \
	X(MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE, 48, 8192) X(MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE, 49, 32768)         \
	X(MAXIMUM_TEXTURECUBEMAP_WIDTH, 52, 32768) X(MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH, 53, 32768)           \
	X(MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS, 54, 2046) X(MAXIMUM_SURFACE1D_WIDTH, 55, 32768)                \
	X(MAXIMUM_SURFACE2D_WIDTH, 56, 131072) X(MAXIMUM_SURFACE2D_HEIGHT, 57, 65536)                           \
	X(MAXIMUM_SURFACE3D_WIDTH, 58, 16384) X(MAXIMUM_SURFACE3D_HEIGHT, 59, 16384)                            \
	X(MAXIMUM_SURFACE3D_DEPTH, 60, 16384) X(MAXIMUM_SURFACE1D_LAYERED_WIDTH, 61, 32768)                     \
	X(MAXIMUM_SURFACE1D_LAYERED_LAYERS, 62, 2048) X(MAXIMUM_SURFACE2D_LAYERED_WIDTH, 63, 32768)             \
	X(MAXIMUM_SURFACE2D_LAYERED_HEIGHT, 64, 32768) X(MAXIMUM_SURFACE2D_LAYERED_LAYERS, 65, 2048)            \
	X(MAXIMUM_SURFACECUBEMAP_WIDTH, 66, 32768) X(MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH, 67, 32768)           \
	X(MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS, 68, 2046) X(MAXIMUM_TEXTURE1D_LINEAR_WIDTH, 69, 268435456)     \
	X(MAXIMUM_TEXTURE2D_LINEAR_WIDTH, 70, 131072) X(MAXIMUM_TEXTURE2D_LINEAR_HEIGHT, 71, 65000)             \
	X(MAXIMUM_TEXTURE2D_LINEAR_PITCH, 72, 2097120) X(MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH, 73, 32768)          \
	X(MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT, 74, 32768) X(MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH, 77, 32768)

enum {
#define DRIVER_ABI_ENUM(name, value) TRZ_##name = value,
	DRIVER_ABI_RESULTS(DRIVER_ABI_ENUM)
	DRIVER_ABI_CONSTANTS(DRIVER_ABI_ENUM)
#undef DRIVER_ABI_ENUM
#define DRIVER_ABI_ENUM(name, value) TRZ_CU_DEVICE_ATTRIBUTE_##name = value,
	DRIVER_ABI_ATTRIBUTES(DRIVER_ABI_ENUM)
#undef DRIVER_ABI_ENUM
#define DRIVER_ABI_ENUM(name, value, extent) TRZ_CU_DEVICE_ATTRIBUTE_##name = value,
	DRIVER_ABI_EXTENTS(DRIVER_ABI_ENUM)
#undef DRIVER_ABI_ENUM
};

/* CUctxCreateParams */
struct cuda_context_params {
	void *affinity;
	int affinity_count;
	void *graphics;
};

/* CUuuid */
struct cuda_uuid {
	unsigned char bytes[16];
};

/* CUipcMemHandle, CUipcEventHandle */
struct cuda_ipc {
	char reserved[64];
};

/* CUstreamBatchMemOpParams: a value of 32 bits is the first half of `value`. */
struct cuda_mem_op {
	int operation;
	cuda_addr address;
	uint64_t value;
	unsigned flags;
	uint64_t rest[2];
};

/* CUDA_MEMCPY2D */
struct cuda_copy_2d {
	size_t from_x, from_y;
	int from_type;
	const void *from_host;
	cuda_addr from_device;
	void *from_array;
	size_t from_pitch;
	size_t to_x, to_y;
	int to_type;
	void *to_host;
	cuda_addr to_device;
	void *to_array;
	size_t to_pitch;
	size_t width, height;
};

/* CUDA_MEMCPY3D */
struct cuda_copy_3d {
	size_t from_x, from_y, from_z, from_lod;
	int from_type;
	const void *from_host;
	cuda_addr from_device;
	void *from_array, *reserved0;
	size_t from_pitch, from_height;
	size_t to_x, to_y, to_z, to_lod;
	int to_type;
	void *to_host;
	cuda_addr to_device;
	void *to_array, *reserved1;
	size_t to_pitch, to_height;
	size_t width, height, depth;
};

/* CUlaunchConfig */
struct cuda_launch {
	unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
	void *stream;
	void *attributes;
	unsigned attribute_count;
};

/* CUmemPoolProps */
struct cuda_pool_props {
	int type, handle_types;
	struct cuda_mem_location location;
	void *win32_attributes;
	size_t most_bytes;
	unsigned short usage;
	unsigned char reserved[54];
};

/* CUdevResource, of multiprocessors; `device` is the driver's own. */
struct cuda_share {
	int type, device;
	char padding[88];
	unsigned count, least, step;
	char reserved[36];
};

/* CUgraphEdgeData */
struct cuda_edge {
	unsigned char from_port, to_port, type, reserved[5];
};

/* CUgraphInstantiateParams (CUDA_GRAPH_INSTANTIATE_PARAMS) */
struct cuda_instantiate {
	uint64_t flags;
	void *upload_stream;
	void *error_node;
	int result;
};

#include "driver_graph_abi.h"

#endif
