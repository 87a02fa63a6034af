/* SPDX-License-Identifier: Apache-2.0
 *
 * The structures of the CUDA runtime that the look-alike fills or reads, for major versions 11, 12 and 13
 * (RUNTIME_MAJOR). tests/abi compares those of 13 with a real header if one is installed.
 */
#ifndef RUNTIME_ABI_H
#define RUNTIME_ABI_H

#include <stddef.h>
#include <stdint.h>

#include "lookalike/driver/driver_abi.h"

#ifndef RUNTIME_MAJOR
#define RUNTIME_MAJOR 13
#endif

enum {
	RT_SUCCESS = 0, RT_INVALID_VALUE = 1, RT_MEMORY_ALLOCATION = 2, RT_INVALID_CONFIGURATION = 9,
	RT_INVALID_PITCH = 12, RT_INVALID_SYMBOL = 13, RT_INVALID_MEMCPY_DIRECTION = 21, RT_INVALID_FUNCTION = 98,
	RT_NO_DEVICE = 100, RT_INVALID_DEVICE = 101, RT_NOT_READY = 600, RT_NOT_PERMITTED = 800, RT_NOT_SUPPORTED = 801,
};

/* cudaMemoryType */
enum { RT_MEMORY_UNREGISTERED, RT_MEMORY_HOST, RT_MEMORY_DEVICE, RT_MEMORY_MANAGED };

/* dim3 */
struct rt_dim3 {
	unsigned x, y, z;
};

/* cudaDeviceProp */
struct rt_properties {
	char name[256];
	unsigned char uuid[16];
	char luid[8];
	unsigned luid_mask;
	size_t memory, shared_per_block;
	int registers_per_block, warp;
	size_t pitch;
	int threads_per_block, block[3], grid[3];
#if RUNTIME_MAJOR < 13
	int clock_khz;
#endif
	size_t constant_memory;
	int major, minor;
	size_t texture_alignment, texture_pitch_alignment;
#if RUNTIME_MAJOR < 13
	int overlap;
#endif
	int multiprocessors;
#if RUNTIME_MAJOR < 13
	int timeout;
#endif
	int integrated, maps_host_memory;
#if RUNTIME_MAJOR < 13
	int compute_mode;
#endif
	int texture_1d[2];
#if RUNTIME_MAJOR < 13
	int texture_1d_linear;
#endif
	int textures[23], surfaces[14];
	size_t surface_alignment;
	int concurrent_kernels, ecc, pci_bus, pci_device, pci_domain, tcc, copy_engines, unified_addressing;
#if RUNTIME_MAJOR < 13
	int memory_khz;
#endif
	int bus_bits, l2_bytes, persisting_l2_bytes, threads_per_multiprocessor, stream_priorities, global_l1, local_l1;
	size_t shared_per_multiprocessor;
	int registers_per_multiprocessor, managed, multi_gpu_board, board_group, host_atomics;
#if RUNTIME_MAJOR < 13
	int double_ratio;
#endif
	int pageable, concurrent_managed, preemption, host_pointer_for_registered, cooperative;
#if RUNTIME_MAJOR < 13
	int cooperative_multi_device;
#endif
	size_t shared_per_block_optin;
	int pageable_page_tables, direct_managed, blocks_per_multiprocessor, window_bytes;
	size_t reserved_shared_per_block;
#if RUNTIME_MAJOR >= 12
	int host_register, sparse_arrays, host_register_read_only, timeline_semaphores, pools, rdma;
	unsigned rdma_flush;
	int rdma_ordering;
	unsigned pool_handle_types;
	int deferred_arrays, ipc_events, clusters, unified_functions;
#endif
#if RUNTIME_MAJOR == 12
	int reserved[63];
#elif RUNTIME_MAJOR >= 13
	int numa_config, numa, mps, host_numa;
	unsigned pci_id, pci_subsystem;
	int host_numa_ipc, reserved[56];
#endif
};

/* cudaPointerAttributes; `reserved` came with 13. */
struct rt_pointer {
	int type, device;
	void *on_device, *on_host;
#if RUNTIME_MAJOR >= 13
	long reserved[8];
#endif
};

/* cudaFuncAttributes */
struct rt_function {
	size_t shared_bytes, constant_bytes, local_bytes;
	int threads, registers, ptx, binary, cache, dynamic_shared_bytes, carveout;
#if RUNTIME_MAJOR >= 12
	int cluster_set, cluster[3], cluster_policy, cluster_any_size, reserved[16];
#endif
};

/* cudaLaunchConfig_t */
struct rt_launch {
	struct rt_dim3 grid, block;
	size_t shared_bytes;
	void *stream, *attributes;
	unsigned attribute_count;
};

/* cudaPitchedPtr, cudaPos, cudaExtent, cudaMemcpy3DParms */
struct rt_pitched {
	void *address;
	size_t pitch, width, height;
};
struct rt_place {
	size_t x, y, z;
};
struct rt_extent {
	size_t width, height, depth;
};
struct rt_copy_3d {
	void *from_array;
	struct rt_place from_place;
	struct rt_pitched from;
	void *to_array;
	struct rt_place to_place;
	struct rt_pitched to;
	struct rt_extent extent;
	int kind;
};

/* cudaMemcpy3DPeerParms */
struct rt_copy_peer {
	void *from_array;
	struct rt_place from_place;
	struct rt_pitched from;
	int from_device;
	void *to_array;
	struct rt_place to_place;
	struct rt_pitched to;
	int to_device;
	struct rt_extent extent;
};

/* cudaChannelFormatDesc */
struct rt_channel {
	int x, y, z, w, kind;
};

/* cudaTextureDesc, cudaResourceViewDesc: nothing here reads them; `reserved` came with 13. cudaResourceDesc begins as
 * the driver's does. */
struct rt_texture {
	int words[RUNTIME_MAJOR < 12 ? 17 : 18];
};
struct rt_view {
	int format;
	size_t width, height, depth;
	unsigned first_level, last_level, first_layer, last_layer;
#if RUNTIME_MAJOR >= 13
	unsigned reserved[16];
#endif
};

/* cudaKernelNodeParams, cudaGraphNodeParams */
struct rt_kernel_node {
	const void *symbol;
	unsigned grid[3], block[3], shared_bytes;
	void **params, **extra;
};
struct rt_copy_node {
	int flags, reserved[3];
	struct rt_copy_3d copy;
};
struct rt_node {
	int type, reserved0[3];
	union {
		long long reserved1[29];
		struct rt_kernel_node kernel;
		struct rt_copy_node copy;
		struct cuda_fill_node fill;
		struct cuda_alloc_node alloc;
		struct cuda_conditional_node conditional;
	} of;
	long long reserved2;
};

#endif
