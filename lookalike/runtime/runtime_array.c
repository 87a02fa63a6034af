/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays, textures and surfaces, and copies to and from arrays. The driver's texture objects keep the runtime's
 * descriptions as they are: the memory or array is at the same place in both libraries' structures.
 */
#include "runtime_lookalike.h"

#include <string.h>

/* ---- arrays ------------------------------------------------------------ */

/* cudaChannelFormatKind: how the first bits of an element are read. */
static int format_of(const struct rt_channel *c)
{
	enum { SIGNED, UNSIGNED, FLOATING };
	int eighth = c->x == 8, quarter = c->x == 16, half = c->x == 32;
	switch (c->kind) {
	case SIGNED:
		return eighth ? TRZ_CU_AD_FORMAT_SIGNED_INT8 : quarter ? TRZ_CU_AD_FORMAT_SIGNED_INT16
		                                             : half ? TRZ_CU_AD_FORMAT_SIGNED_INT32 : 0;
	case UNSIGNED:
		return eighth ? TRZ_CU_AD_FORMAT_UNSIGNED_INT8 : quarter ? TRZ_CU_AD_FORMAT_UNSIGNED_INT16
		                                               : half ? TRZ_CU_AD_FORMAT_UNSIGNED_INT32 : 0;
	case FLOATING:
		return quarter ? TRZ_CU_AD_FORMAT_HALF : half ? TRZ_CU_AD_FORMAT_FLOAT : 0;
	default:
		return 0;
	}
}

static struct rt_channel channel_of(const struct cuda_array_3d *d)
{
	static const struct {
		int format, bits, kind;
	} kinds[] = {
		{TRZ_CU_AD_FORMAT_SIGNED_INT8, 8, 0}, {TRZ_CU_AD_FORMAT_SIGNED_INT16, 16, 0},
		{TRZ_CU_AD_FORMAT_SIGNED_INT32, 32, 0}, {TRZ_CU_AD_FORMAT_UNSIGNED_INT8, 8, 1},
		{TRZ_CU_AD_FORMAT_UNSIGNED_INT16, 16, 1}, {TRZ_CU_AD_FORMAT_UNSIGNED_INT32, 32, 1},
		{TRZ_CU_AD_FORMAT_HALF, 16, 2}, {TRZ_CU_AD_FORMAT_FLOAT, 32, 2},
	};
	struct rt_channel c = {0};
	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
		int bits = kinds[i].bits;
		if (kinds[i].format == d->format)
			c = (struct rt_channel){
				bits, d->channels > 1 ? bits : 0, d->channels > 2 ? bits : 0, d->channels > 3 ? bits : 0, kinds[i].kind,
			};
	}
	return c;
}

static struct cuda_array_3d shape(const struct rt_channel *c, struct rt_extent extent, unsigned flags)
{
	return (struct cuda_array_3d){
		.width = extent.width, .height = extent.height, .depth = extent.depth,
		.format = format_of(c), .channels = 1u + (c->y > 0) + (c->z > 0) + (c->w > 0), .flags = flags,
	};
}

cuda_error cudaMalloc3DArray(void **array, const struct rt_channel *channel, struct rt_extent extent, unsigned flags)
{
	RT_ENTER(cudaMalloc3DArray);
	if (!array || !channel)
		return rt_result(RT_INVALID_VALUE);
	const struct cuda_array_3d d = shape(channel, extent, flags);
	return rt_result(cuArray3DCreate_v2(array, &d));
}

cuda_error cudaMallocArray(void **array, const struct rt_channel *channel, size_t width, size_t height, unsigned flags)
{
	RT_COUNT(cudaMallocArray);
	return cudaMalloc3DArray(array, channel, (struct rt_extent){width, height, 0}, flags);
}

cuda_error cudaFreeArray(void *array)
{
	RT_ENTER(cudaFreeArray);
	return rt_result(array ? cuArrayDestroy(array) : RT_SUCCESS);
}

cuda_error cudaArrayGetInfo(struct rt_channel *channel, struct rt_extent *extent, unsigned *flags, void *array)
{
	struct cuda_array_3d d;
	RT_ENTER(cudaArrayGetInfo);
	int result = cuArray3DGetDescriptor_v2(&d, array);
	if (result != RT_SUCCESS)
		return rt_result(result);
	if (channel)
		*channel = channel_of(&d);
	if (extent)
		*extent = (struct rt_extent){d.width, d.height, d.depth};
	if (flags)
		*flags = d.flags;
	return RT_SUCCESS;
}

cuda_error cudaGetChannelDesc(struct rt_channel *channel, void *array)
{
	RT_COUNT(cudaGetChannelDesc);
	return cudaArrayGetInfo(channel, NULL, NULL, array);
}

cuda_error cudaArrayGetMemoryRequirements(struct cuda_array_need *need, void *array, int device)
{
	RT_ENTER(cudaArrayGetMemoryRequirements);
	return rt_result(cuArrayGetMemoryRequirements(need, array, device));
}

cuda_error cudaMallocMipmappedArray(void **mipmap, const struct rt_channel *channel, struct rt_extent extent,
                                    unsigned levels, unsigned flags)
{
	RT_ENTER(cudaMallocMipmappedArray);
	if (!mipmap || !channel)
		return rt_result(RT_INVALID_VALUE);
	const struct cuda_array_3d d = shape(channel, extent, flags);
	return rt_result(cuMipmappedArrayCreate(mipmap, &d, levels));
}

cuda_error cudaFreeMipmappedArray(void *mipmap)
{
	RT_ENTER(cudaFreeMipmappedArray);
	return rt_result(mipmap ? cuMipmappedArrayDestroy(mipmap) : RT_SUCCESS);
}

cuda_error cudaGetMipmappedArrayLevel(void **array, void *mipmap, unsigned level)
{
	RT_ENTER(cudaGetMipmappedArrayLevel);
	return rt_result(cuMipmappedArrayGetLevel(array, mipmap, level));
}

cuda_error cudaMipmappedArrayGetMemoryRequirements(struct cuda_array_need *need, void *mipmap, int device)
{
	RT_ENTER(cudaMipmappedArrayGetMemoryRequirements);
	return rt_result(cuMipmappedArrayGetMemoryRequirements(need, mipmap, device));
}

cuda_error cudaDeviceGetTexture1DLinearMaxWidth(size_t *width, const struct rt_channel *channel, int device)
{
	RT_ENTER(cudaDeviceGetTexture1DLinearMaxWidth);
	if (!channel)
		return rt_result(RT_INVALID_VALUE);
	const struct cuda_array_3d d = shape(channel, (struct rt_extent){1, 0, 0}, 0);
	return rt_result(cuDeviceGetTexture1DLinearMaxWidth(width, d.format, d.channels, device));
}

/* ---- textures and surfaces ------------------------------------------------------------ */

cuda_error cudaCreateTextureObject(uint64_t *object, const struct cuda_resource *resource,
                                   const struct rt_texture *texture, const struct rt_view *view)
{
	struct cuda_texture kept = {{0}};
	struct cuda_view kept_view = {{0}};
	RT_ENTER(cudaCreateTextureObject);
	if (!texture)
		return rt_result(RT_INVALID_VALUE);
	memcpy(&kept, texture, sizeof *texture);
	if (view)
		memcpy(&kept_view, view, sizeof *view);
	return rt_result(cuTexObjectCreate(object, resource, &kept, view ? &kept_view : NULL));
}

cuda_error cudaDestroyTextureObject(uint64_t object)
{
	RT_ENTER(cudaDestroyTextureObject);
	return rt_result(object ? cuTexObjectDestroy(object) : RT_SUCCESS);
}

cuda_error cudaGetTextureObjectResourceDesc(struct cuda_resource *resource, uint64_t object)
{
	RT_ENTER(cudaGetTextureObjectResourceDesc);
	return rt_result(cuTexObjectGetResourceDesc(resource, object));
}

cuda_error cudaGetTextureObjectTextureDesc(struct rt_texture *texture, uint64_t object)
{
	struct cuda_texture kept;
	RT_ENTER(cudaGetTextureObjectTextureDesc);
	int result = cuTexObjectGetTextureDesc(&kept, object);
	if (result == RT_SUCCESS)
		memcpy(texture, &kept, sizeof *texture);
	return rt_result(result);
}

cuda_error cudaGetTextureObjectResourceViewDesc(struct rt_view *view, uint64_t object)
{
	struct cuda_view kept;
	RT_ENTER(cudaGetTextureObjectResourceViewDesc);
	int result = cuTexObjectGetResourceViewDesc(&kept, object);
	if (result == RT_SUCCESS)
		memcpy(view, &kept, sizeof *view);
	return rt_result(result);
}

cuda_error cudaCreateSurfaceObject(uint64_t *object, const struct cuda_resource *resource)
{
	RT_ENTER(cudaCreateSurfaceObject);
	return rt_result(cuSurfObjectCreate(object, resource));
}

cuda_error cudaDestroySurfaceObject(uint64_t object)
{
	RT_ENTER(cudaDestroySurfaceObject);
	return rt_result(object ? cuSurfObjectDestroy(object) : RT_SUCCESS);
}

cuda_error cudaGetSurfaceObjectResourceDesc(struct cuda_resource *resource, uint64_t object)
{
	RT_ENTER(cudaGetSurfaceObjectResourceDesc);
	return rt_result(cuSurfObjectGetResourceDesc(resource, object));
}

/* ---- copies ------------------------------------------------------------ */

/* The offset of byte x of row y among the bytes of an array's rows. */
static int place_in(void *array, size_t x, size_t y, size_t *offset)
{
	struct cuda_array_3d d;
	int result = cuArray3DGetDescriptor_v2(&d, array);
	if (result == RT_SUCCESS)
		*offset = x + y * d.width * rt_element_bytes(array);
	return result;
}

cuda_error cudaMemcpyToArrayAsync(void *to, size_t x, size_t y, const void *from, size_t size, int kind, void *stream)
{
	size_t offset = 0;
	RT_ENTER(cudaMemcpyToArrayAsync);
	(void)kind;
	int result = place_in(to, x, y, &offset);
	return rt_result(result ? result : cuMemcpyHtoAAsync_v2(to, offset, from, size, stream));
}

cuda_error cudaMemcpyToArray(void *to, size_t x, size_t y, const void *from, size_t size, int kind)
{
	size_t offset = 0;
	RT_ENTER(cudaMemcpyToArray);
	(void)kind;
	int result = place_in(to, x, y, &offset);
	return rt_result(result ? result : cuMemcpyHtoA_v2(to, offset, from, size));
}

cuda_error cudaMemcpyFromArrayAsync(void *to, void *from, size_t x, size_t y, size_t size, int kind, void *stream)
{
	size_t offset = 0;
	RT_ENTER(cudaMemcpyFromArrayAsync);
	(void)kind;
	int result = place_in(from, x, y, &offset);
	return rt_result(result ? result : cuMemcpyAtoHAsync_v2(to, from, offset, size, stream));
}

cuda_error cudaMemcpyFromArray(void *to, void *from, size_t x, size_t y, size_t size, int kind)
{
	size_t offset = 0;
	RT_ENTER(cudaMemcpyFromArray);
	(void)kind;
	int result = place_in(from, x, y, &offset);
	return rt_result(result ? result : cuMemcpyAtoH_v2(to, from, offset, size));
}

cuda_error cudaMemcpyArrayToArray(void *to, size_t to_x, size_t to_y, void *from, size_t from_x, size_t from_y,
                                  size_t size, int kind)
{
	size_t to_offset = 0, from_offset = 0;
	RT_ENTER(cudaMemcpyArrayToArray);
	(void)kind;
	int result = place_in(to, to_x, to_y, &to_offset);
	if (result == RT_SUCCESS)
		result = place_in(from, from_x, from_y, &from_offset);
	return rt_result(result ? result : cuMemcpyAtoA_v2(to, to_offset, from, from_offset, size));
}

static struct cuda_copy_2d to_array(void *to, size_t x, size_t y, const void *from, size_t pitch, size_t width,
                                    size_t height)
{
	return (struct cuda_copy_2d){
		.from_type = TRZ_CU_MEMORYTYPE_UNIFIED, .from_device = (uintptr_t)from, .from_pitch = pitch,
		.to_type = TRZ_CU_MEMORYTYPE_ARRAY, .to_array = to, .to_x = x, .to_y = y, .width = width, .height = height,
	};
}

cuda_error cudaMemcpy2DToArray(void *to, size_t x, size_t y, const void *from, size_t pitch, size_t width,
                               size_t height, int kind)
{
	RT_ENTER(cudaMemcpy2DToArray);
	(void)kind;
	const struct cuda_copy_2d c = to_array(to, x, y, from, pitch, width, height);
	return rt_result(cuMemcpy2D_v2(&c));
}

cuda_error cudaMemcpy2DToArrayAsync(void *to, size_t x, size_t y, const void *from, size_t pitch, size_t width,
                                    size_t height, int kind, void *stream)
{
	RT_ENTER(cudaMemcpy2DToArrayAsync);
	(void)kind;
	const struct cuda_copy_2d c = to_array(to, x, y, from, pitch, width, height);
	return rt_result(cuMemcpy2DAsync_v2(&c, stream));
}

static struct cuda_copy_2d from_array(void *to, size_t pitch, void *from, size_t x, size_t y, size_t width,
                                      size_t height)
{
	return (struct cuda_copy_2d){
		.from_type = TRZ_CU_MEMORYTYPE_ARRAY, .from_array = from, .from_x = x, .from_y = y,
		.to_type = TRZ_CU_MEMORYTYPE_UNIFIED, .to_device = (uintptr_t)to, .to_pitch = pitch, .width = width,
		.height = height,
	};
}

cuda_error cudaMemcpy2DFromArray(void *to, size_t pitch, void *from, size_t x, size_t y, size_t width, size_t height,
                                 int kind)
{
	RT_ENTER(cudaMemcpy2DFromArray);
	(void)kind;
	const struct cuda_copy_2d c = from_array(to, pitch, from, x, y, width, height);
	return rt_result(cuMemcpy2D_v2(&c));
}

cuda_error cudaMemcpy2DFromArrayAsync(void *to, size_t pitch, void *from, size_t x, size_t y, size_t width,
                                      size_t height, int kind, void *stream)
{
	RT_ENTER(cudaMemcpy2DFromArrayAsync);
	(void)kind;
	const struct cuda_copy_2d c = from_array(to, pitch, from, x, y, width, height);
	return rt_result(cuMemcpy2DAsync_v2(&c, stream));
}

cuda_error cudaMemcpy2DArrayToArray(void *to, size_t to_x, size_t to_y, void *from, size_t from_x, size_t from_y,
                                    size_t width, size_t height, int kind)
{
	RT_ENTER(cudaMemcpy2DArrayToArray);
	(void)kind;
	const struct cuda_copy_2d c = {
		.from_type = TRZ_CU_MEMORYTYPE_ARRAY, .from_array = from, .from_x = from_x, .from_y = from_y,
		.to_type = TRZ_CU_MEMORYTYPE_ARRAY, .to_array = to, .to_x = to_x, .to_y = to_y, .width = width,
		.height = height,
	};
	return rt_result(cuMemcpy2D_v2(&c));
}

static struct cuda_copy_3d between(const struct rt_copy_peer *p)
{
	const struct rt_copy_3d here = {
		.from_array = p->from_array, .from_place = p->from_place, .from = p->from, .to_array = p->to_array,
		.to_place = p->to_place, .to = p->to, .extent = p->extent,
	};
	return rt_copy_of(&here);
}

cuda_error cudaMemcpy3DPeer(const struct rt_copy_peer *p)
{
	RT_ENTER(cudaMemcpy3DPeer);
	if (!p)
		return rt_result(RT_INVALID_VALUE);
	const struct cuda_copy_3d c = between(p);
	return rt_result(cuMemcpy3DPeer(&c));
}

cuda_error cudaMemcpy3DPeerAsync(const struct rt_copy_peer *p, void *stream)
{
	RT_ENTER(cudaMemcpy3DPeerAsync);
	if (!p)
		return rt_result(RT_INVALID_VALUE);
	const struct cuda_copy_3d c = between(p);
	return rt_result(cuMemcpy3DPeerAsync(&c, stream));
}
