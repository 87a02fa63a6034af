/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver's binary interface of graphs' nodes. tests/abi compares it with a real cuda.h.
 */
#ifndef DRIVER_GRAPH_ABI_H
#define DRIVER_GRAPH_ABI_H

#include <stdbool.h>

#include "base/cuda_abi.h"

/* X(name, value) */
#define DRIVER_GRAPH_CONSTANTS(X)                                                                           \
	X(CU_GRAPH_NODE_TYPE_KERNEL, 0) X(CU_GRAPH_NODE_TYPE_MEMCPY, 1) X(CU_GRAPH_NODE_TYPE_MEMSET, 2)         \
	X(CU_GRAPH_NODE_TYPE_HOST, 3) X(CU_GRAPH_NODE_TYPE_GRAPH, 4) X(CU_GRAPH_NODE_TYPE_EMPTY, 5)             \
	X(CU_GRAPH_NODE_TYPE_WAIT_EVENT, 6) X(CU_GRAPH_NODE_TYPE_EVENT_RECORD, 7)                               \
	X(CU_GRAPH_NODE_TYPE_MEM_ALLOC, 10) X(CU_GRAPH_NODE_TYPE_MEM_FREE, 11)                                  \
	X(CU_GRAPH_NODE_TYPE_CONDITIONAL, 13)                                                                   \
	X(CU_GRAPH_COND_TYPE_IF, 0) X(CU_GRAPH_COND_TYPE_WHILE, 1) X(CU_GRAPH_COND_TYPE_SWITCH, 2)              \
	X(CU_GRAPH_COND_ASSIGN_DEFAULT, 1) X(CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE, 1)                            \
	X(CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH, 1)                                                   \
	X(CU_GRAPH_EXEC_UPDATE_SUCCESS, 0) X(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, 2)                    \
	X(CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, 3) X(CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED, 6)       \
	X(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, 0) X(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, 1)                          \
	X(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, 2) X(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, 3)

enum {
#define DRIVER_GRAPH_ENUM(name, value) TRZ_##name = value,
	DRIVER_GRAPH_CONSTANTS(DRIVER_GRAPH_ENUM)
#undef DRIVER_GRAPH_ENUM
};

/* CUDA_KERNEL_NODE_PARAMS_v2; its first form, and those of the runtime, end before `kernel`. */
struct cuda_kernel_node {
	void *function;
	unsigned grid[3], block[3], shared_bytes;
	void **params, **extra;
	void *kernel, *context;
};
enum { CUDA_KERNEL_NODE_V1 = offsetof(struct cuda_kernel_node, kernel) };

/* CUDA_MEMCPY_NODE_PARAMS */
struct cuda_copy_node {
	int flags, reserved;
	void *context;
	struct cuda_copy_3d copy;
};

/* CUDA_MEMSET_NODE_PARAMS_v2; its first form, and that of the runtime, end before `context`. */
struct cuda_fill_node {
	cuda_addr address;
	size_t pitch;
	unsigned value, unit;
	size_t width, height;
	void *context;
};
enum { CUDA_FILL_NODE_V1 = offsetof(struct cuda_fill_node, context) };

/* CUDA_HOST_NODE_PARAMS */
struct cuda_host_node {
	void (*function)(void *);
	void *argument;
};

/* CUDA_CHILD_GRAPH_NODE_PARAMS */
struct cuda_child_node {
	void *graph;
	int ownership;
};

/* CUDA_MEM_ALLOC_NODE_PARAMS */
struct cuda_alloc_node {
	struct cuda_pool_props pool;
	const struct cuda_mem_access *access;
	size_t access_count, size;
	cuda_addr address;
};

/* CUDA_CONDITIONAL_NODE_PARAMS */
struct cuda_conditional_node {
	uint64_t handle;
	int type;
	unsigned size;
	void **graphs;
	void *context;
};

/* CUgraphNodeParams */
struct cuda_node {
	int type, reserved0[3];
	union {
		long long reserved1[29];
		struct cuda_kernel_node kernel;
		struct cuda_copy_node copy;
		struct cuda_fill_node fill;
		struct cuda_host_node host;
		struct cuda_child_node child;
		void *event;
		struct cuda_alloc_node alloc;
		cuda_addr address;       /* to be freed */
		struct cuda_conditional_node conditional;
	} of;
	long long reserved2;
};

/* CUgraphExecUpdateResultInfo */
struct cuda_update {
	int result;
	void *node, *from;
};

#endif
