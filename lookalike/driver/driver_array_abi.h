/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver's binary interface of arrays, textures and surfaces. tests/abi compares it with a real cuda.h.
 */
#ifndef DRIVER_ARRAY_ABI_H
#define DRIVER_ARRAY_ABI_H

#include "base/cuda_abi.h"

/* CUarray_format: the plain ones, whose channels have one size. X(name, value, bytes of a channel). */
#define DRIVER_ARRAY_FORMATS(X)                                                                     \
	X(UNSIGNED_INT8, 1, 1) X(UNSIGNED_INT16, 2, 2) X(UNSIGNED_INT32, 3, 4) X(SIGNED_INT8, 8, 1)     \
	X(SIGNED_INT16, 9, 2) X(SIGNED_INT32, 10, 4) X(HALF, 16, 2) X(FLOAT, 32, 4)

/* X(name, value) */
#define DRIVER_ARRAY_CONSTANTS(X)                                                                   \
	X(CUDA_ARRAY3D_LAYERED, 1) X(CUDA_ARRAY3D_SURFACE_LDST, 2) X(CUDA_ARRAY3D_CUBEMAP, 4)           \
	X(CUDA_ARRAY3D_SPARSE, 64) X(CUDA_ARRAY3D_DEFERRED_MAPPING, 128)                                \
	X(CU_RESOURCE_TYPE_ARRAY, 0) X(CU_RESOURCE_TYPE_MIPMAPPED_ARRAY, 1)                             \
	X(CU_RESOURCE_TYPE_LINEAR, 2) X(CU_RESOURCE_TYPE_PITCH2D, 3)

enum {
#define DRIVER_ARRAY_ENUM(name, value, bytes) TRZ_CU_AD_FORMAT_##name = value,
	DRIVER_ARRAY_FORMATS(DRIVER_ARRAY_ENUM)
#undef DRIVER_ARRAY_ENUM
#define DRIVER_ARRAY_ENUM(name, value) TRZ_##name = value,
	DRIVER_ARRAY_CONSTANTS(DRIVER_ARRAY_ENUM)
#undef DRIVER_ARRAY_ENUM
};

/* CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR */
struct cuda_array_2d {
	size_t width, height;
	int format;
	unsigned channels;
};
struct cuda_array_3d {
	size_t width, height, depth;
	int format;
	unsigned channels, flags;
};

/* CUDA_ARRAY_MEMORY_REQUIREMENTS */
struct cuda_array_need {
	size_t size, alignment;
	unsigned reserved[4];
};

/* CUDA_RESOURCE_DESC */
struct cuda_resource {
	int type;
	union {
		void *array;
		cuda_addr address;
		int reserved[32];
	} of;
	unsigned flags;
};

/* CUDA_TEXTURE_DESC, CUDA_RESOURCE_VIEW_DESC: nothing here reads them. */
struct cuda_texture {
	int words[26];
};
struct cuda_view {
	uint64_t words[14];
};

#endif
