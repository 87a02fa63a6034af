/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies and fills. Addresses say which side is the device; the kind that a caller gives has to agree.
 */
#include "runtime_lookalike.h"

enum { HOST_TO_DEVICE = 1, DEVICE_TO_HOST, DEVICE_TO_DEVICE, KINDS = 5 };

static bool to_device(int kind)
{
	return kind == HOST_TO_DEVICE || kind == DEVICE_TO_DEVICE;
}

static bool from_device(int kind)
{
	return kind == DEVICE_TO_HOST || kind == DEVICE_TO_DEVICE;
}

static int check_kind(int kind, const void *to, const void *from, size_t size)
{
	if (kind < 0 || kind >= KINDS)
		return RT_INVALID_MEMCPY_DIRECTION;
	bool wrong = (to_device(kind) && !trz_lookalike_is_known_to_device((uintptr_t)to)) ||
	             (from_device(kind) && !trz_lookalike_is_known_to_device((uintptr_t)from));
	return wrong && size ? RT_INVALID_VALUE : RT_SUCCESS;
}

cuda_error cudaMemcpy(void *to, const void *from, size_t size, int kind)
{
	RT_ENTER(cudaMemcpy);
	int result = check_kind(kind, to, from, size);
	return rt_result(result ? result : cuMemcpy((uintptr_t)to, (uintptr_t)from, size));
}

cuda_error cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream)
{
	RT_ENTER(cudaMemcpyAsync);
	int result = check_kind(kind, to, from, size);
	return rt_result(result ? result : cuMemcpyAsync((uintptr_t)to, (uintptr_t)from, size, stream));
}

cuda_error cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t size)
{
	RT_ENTER(cudaMemcpyPeer);
	(void)to_device, (void)from_device;
	return rt_result(cuMemcpyPeer((uintptr_t)to, NULL, (uintptr_t)from, NULL, size));
}

cuda_error cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t size, void *stream)
{
	RT_ENTER(cudaMemcpyPeerAsync);
	(void)to_device, (void)from_device;
	return rt_result(cuMemcpyPeerAsync((uintptr_t)to, NULL, (uintptr_t)from, NULL, size, stream));
}

#if RUNTIME_MAJOR < 13
cuda_error cudaMemcpyBatchAsync(void **to, void **from, size_t *sizes, size_t count, const void *attributes,
                                size_t *firsts, size_t attribute_count, size_t *failed, void *stream)
{
	RT_ENTER(cudaMemcpyBatchAsync);
	return rt_result(cuMemcpyBatchAsync((const cuda_addr *)to, (const cuda_addr *)from, sizes, count, attributes,
	                                    firsts, attribute_count, failed, stream));
}
#else
cuda_error cudaMemcpyBatchAsync(void *const *to, const void *const *from, const size_t *sizes, size_t count,
                                const void *attributes, const size_t *firsts, size_t attribute_count, void *stream)
{
	RT_ENTER(cudaMemcpyBatchAsync);
	return rt_result(cuMemcpyBatchAsync_v2((const cuda_addr *)to, (const cuda_addr *)from, sizes, count, attributes,
	                                       firsts, attribute_count, stream));
}
#endif

static struct cuda_copy_2d plane(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                                 size_t height)
{
	return (struct cuda_copy_2d){
		.from_type = TRZ_CU_MEMORYTYPE_UNIFIED, .from_device = (uintptr_t)from, .from_pitch = from_pitch,
		.to_type = TRZ_CU_MEMORYTYPE_UNIFIED, .to_device = (uintptr_t)to, .to_pitch = to_pitch,
		.width = width, .height = height,
	};
}

/* A row must fit into the pitch of either side. */
static int check_pitch(const struct cuda_copy_2d *c)
{
	return c->width > c->to_pitch || c->width > c->from_pitch ? RT_INVALID_PITCH : RT_SUCCESS;
}

cuda_error cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                        int kind)
{
	RT_ENTER(cudaMemcpy2D);
	const struct cuda_copy_2d c = plane(to, to_pitch, from, from_pitch, width, height);
	int result = check_kind(kind, to, from, width * height);
	result = result ? result : check_pitch(&c);
	return rt_result(result ? result : cuMemcpy2D_v2(&c));
}

cuda_error cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                             size_t height, int kind, void *stream)
{
	RT_ENTER(cudaMemcpy2DAsync);
	const struct cuda_copy_2d c = plane(to, to_pitch, from, from_pitch, width, height);
	int result = check_kind(kind, to, from, width * height);
	result = result ? result : check_pitch(&c);
	return rt_result(result ? result : cuMemcpy2DAsync_v2(&c, stream));
}

size_t rt_element_bytes(void *array)
{
	struct cuda_array_3d d;
	if (!array || cuArray3DGetDescriptor_v2(&d, array) != RT_SUCCESS)
		return 1;
	unsigned bits = d.format == TRZ_CU_AD_FORMAT_UNSIGNED_INT8 || d.format == TRZ_CU_AD_FORMAT_SIGNED_INT8 ? 8
	                : d.format == TRZ_CU_AD_FORMAT_FLOAT || d.format == TRZ_CU_AD_FORMAT_UNSIGNED_INT32 ||
	                  d.format == TRZ_CU_AD_FORMAT_SIGNED_INT32 ? 32 : 16;
	return (size_t)bits / 8 * d.channels;
}

/* Along the first axis arrays count in elements, other memory in bytes: the place on each side by that side, the width
 * in elements if either side is an array. */
struct cuda_copy_3d rt_copy_of(const struct rt_copy_3d *p)
{
	size_t from_element = rt_element_bytes(p->from_array), to_element = rt_element_bytes(p->to_array);
	return (struct cuda_copy_3d){
		.from_x = p->from_place.x * from_element, .from_y = p->from_place.y, .from_z = p->from_place.z,
		.from_type = p->from_array ? TRZ_CU_MEMORYTYPE_ARRAY : TRZ_CU_MEMORYTYPE_UNIFIED,
		.from_device = (uintptr_t)p->from.address, .from_array = p->from_array, .from_pitch = p->from.pitch,
		.from_height = p->from.height,
		.to_x = p->to_place.x * to_element, .to_y = p->to_place.y, .to_z = p->to_place.z,
		.to_type = p->to_array ? TRZ_CU_MEMORYTYPE_ARRAY : TRZ_CU_MEMORYTYPE_UNIFIED,
		.to_device = (uintptr_t)p->to.address, .to_array = p->to_array, .to_pitch = p->to.pitch,
		.to_height = p->to.height, .width = p->extent.width * (p->from_array ? from_element : to_element),
		.height = p->extent.height, .depth = p->extent.depth,
	};
}

/* The kind becomes `cudaMemcpyDefault`: addresses show the real one. */
struct rt_copy_3d rt_copy_back(const struct cuda_copy_3d *c)
{
	enum { DEFAULT = 4 };
	size_t from_element = rt_element_bytes(c->from_array), to_element = rt_element_bytes(c->to_array);
	return (struct rt_copy_3d){
		.from_array = c->from_array, .from_place = {c->from_x / from_element, c->from_y, c->from_z},
		.from = {(void *)c->from_device, c->from_pitch, c->from_pitch, c->from_height},
		.to_array = c->to_array, .to_place = {c->to_x / to_element, c->to_y, c->to_z},
		.to = {(void *)c->to_device, c->to_pitch, c->to_pitch, c->to_height},
		.extent = {c->width / (c->from_array ? from_element : to_element), c->height, c->depth}, .kind = DEFAULT,
	};
}

cuda_error cudaMemcpy3D(const struct rt_copy_3d *p)
{
	RT_ENTER(cudaMemcpy3D);
	if (!p)
		return rt_result(RT_INVALID_VALUE);
	const struct cuda_copy_3d c = rt_copy_of(p);
	return rt_result(cuMemcpy3D_v2(&c));
}

cuda_error cudaMemcpy3DAsync(const struct rt_copy_3d *p, void *stream)
{
	RT_ENTER(cudaMemcpy3DAsync);
	if (!p)
		return rt_result(RT_INVALID_VALUE);
	const struct cuda_copy_3d c = rt_copy_of(p);
	return rt_result(cuMemcpy3DAsync_v2(&c, stream));
}

/* ---- variables of the program ------------------------------------------------------------ */

cuda_error cudaGetSymbolAddress(void **address, const void *symbol)
{
	cuda_addr found = 0;
	size_t size;
	RT_ENTER(cudaGetSymbolAddress);
	if (!address)
		return rt_result(RT_INVALID_VALUE);
	int result = rt_variable(symbol, &found, &size);
	*address = (void *)found;
	return rt_result(result);
}

cuda_error cudaGetSymbolSize(size_t *size, const void *symbol)
{
	cuda_addr found;
	RT_ENTER(cudaGetSymbolSize);
	return rt_result(rt_variable(symbol, &found, size));
}

/* The address of the part of a variable that a copy names. */
static int part_of(const void *symbol, size_t offset, size_t size, cuda_addr *address)
{
	size_t all = 0;
	int result = rt_variable(symbol, address, &all);
	if (result == RT_SUCCESS && (offset > all || size > all - offset))
		return RT_INVALID_VALUE;
	*address += offset;
	return result;
}

cuda_error cudaMemcpyToSymbol(const void *symbol, const void *from, size_t size, size_t offset, int kind)
{
	cuda_addr to = 0;
	RT_ENTER(cudaMemcpyToSymbol);
	(void)kind;
	int result = part_of(symbol, offset, size, &to);
	return rt_result(result == RT_SUCCESS ? cuMemcpy(to, (uintptr_t)from, size) : result);
}

cuda_error cudaMemcpyToSymbolAsync(const void *symbol, const void *from, size_t size, size_t offset, int kind,
                                   void *stream)
{
	cuda_addr to = 0;
	RT_ENTER(cudaMemcpyToSymbolAsync);
	(void)kind;
	int result = part_of(symbol, offset, size, &to);
	return rt_result(result == RT_SUCCESS ? cuMemcpyAsync(to, (uintptr_t)from, size, stream) : result);
}

cuda_error cudaMemcpyFromSymbol(void *to, const void *symbol, size_t size, size_t offset, int kind)
{
	cuda_addr from = 0;
	RT_ENTER(cudaMemcpyFromSymbol);
	(void)kind;
	int result = part_of(symbol, offset, size, &from);
	return rt_result(result == RT_SUCCESS ? cuMemcpy((uintptr_t)to, from, size) : result);
}

cuda_error cudaMemcpyFromSymbolAsync(void *to, const void *symbol, size_t size, size_t offset, int kind, void *stream)
{
	cuda_addr from = 0;
	RT_ENTER(cudaMemcpyFromSymbolAsync);
	(void)kind;
	int result = part_of(symbol, offset, size, &from);
	return rt_result(result == RT_SUCCESS ? cuMemcpyAsync((uintptr_t)to, from, size, stream) : result);
}

/* ---- fills ------------------------------------------------------------ */

cuda_error cudaMemset(void *to, int value, size_t size)
{
	RT_ENTER(cudaMemset);
	return rt_result(cuMemsetD8_v2((uintptr_t)to, (unsigned char)value, size));
}

cuda_error cudaMemsetAsync(void *to, int value, size_t size, void *stream)
{
	RT_ENTER(cudaMemsetAsync);
	return rt_result(cuMemsetD8Async((uintptr_t)to, (unsigned char)value, size, stream));
}

cuda_error cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height, void *stream)
{
	RT_ENTER(cudaMemset2DAsync);
	return rt_result(cuMemsetD2D8Async((uintptr_t)to, pitch, (unsigned char)value, width, height, stream));
}

cuda_error cudaMemset2D(void *to, size_t pitch, int value, size_t width, size_t height)
{
	RT_COUNT(cudaMemset2D);
	cuda_error error = cudaMemset2DAsync(to, pitch, value, width, height, NULL);
	return error == RT_SUCCESS ? rt_result(cuStreamSynchronize(NULL)) : error;
}

cuda_error cudaMemset3DAsync(struct rt_pitched to, int value, struct rt_extent extent, void *stream)
{
	RT_ENTER(cudaMemset3DAsync);
	int result = RT_SUCCESS;
	for (size_t z = 0; z < extent.depth && result == RT_SUCCESS; z++)
		result = cuMemsetD2D8Async((uintptr_t)to.address + z * to.pitch * to.height, to.pitch, (unsigned char)value,
		                           extent.width, extent.height, stream);
	return rt_result(result);
}

cuda_error cudaMemset3D(struct rt_pitched to, int value, struct rt_extent extent)
{
	RT_COUNT(cudaMemset3D);
	cuda_error error = cudaMemset3DAsync(to, value, extent, NULL);
	return error == RT_SUCCESS ? rt_result(cuStreamSynchronize(NULL)) : error;
}
