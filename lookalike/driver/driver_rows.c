/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies and fills of rows, also to and from arrays, and copies of many pieces in one call.
 */
#include "driver_lookalike.h"

/* One side of a copy of rows: where row y of slice z begins. */
struct rows {
	uint64_t start, pitch, slice;
};

/* The part of an array that a copy names. */
static cuda_result side_of_array(struct rows *r, const void *array, const size_t at[3], const struct cuda_copy_3d *c)
{
	const struct look_array *a = look_array_find(array);
	LOOK_NEED(a, INVALID_HANDLE);
	uint64_t bytes = a->is.width * a->element;
	LOOK_NEED(at[0] <= bytes && c->width <= bytes - at[0], INVALID_VALUE);
	LOOK_NEED(at[1] <= a->rows && c->height <= a->rows - at[1], INVALID_VALUE);
	LOOK_NEED(at[2] <= a->slices && c->depth <= a->slices - at[2], INVALID_VALUE);
	*r = (struct rows){a->address + at[0] + at[1] * a->pitch + at[2] * a->slice, a->pitch, a->slice};
	return TRZ_CUDA_SUCCESS;
}

static void side_of_memory(struct rows *r, uint64_t address, size_t pitch, size_t height, const size_t at[3],
                           const struct cuda_copy_3d *c)
{
	r->pitch = pitch ? pitch : c->width;
	r->slice = r->pitch * (height ? height : c->height);
	r->start = address + at[0] + at[1] * r->pitch + at[2] * r->slice;
}

static cuda_result find_sides(const struct cuda_copy_3d *c, struct rows *to, struct rows *from)
{
	const size_t to_at[] = {c->to_x, c->to_y, c->to_z}, from_at[] = {c->from_x, c->from_y, c->from_z};
	cuda_result result = TRZ_CUDA_SUCCESS;
	if (c->to_type == TRZ_CU_MEMORYTYPE_ARRAY)
		result = side_of_array(to, c->to_array, to_at, c);
	else
		side_of_memory(to, c->to_type == TRZ_CU_MEMORYTYPE_HOST ? (uintptr_t)c->to_host : c->to_device, c->to_pitch,
		               c->to_height, to_at, c);
	if (result != TRZ_CUDA_SUCCESS)
		return result;
	if (c->from_type == TRZ_CU_MEMORYTYPE_ARRAY)
		return side_of_array(from, c->from_array, from_at, c);
	side_of_memory(from, c->from_type == TRZ_CU_MEMORYTYPE_HOST ? (uintptr_t)c->from_host : c->from_device,
	               c->from_pitch, c->from_height, from_at, c);
	return TRZ_CUDA_SUCCESS;
}

cuda_result look_copy_rows(const struct cuda_copy_3d *c, bool peer, void *stream, bool wait)
{
	struct rows to, from;
	cuda_result result = find_sides(c, &to, &from);
	if (result != TRZ_CUDA_SUCCESS)
		return result;
	LOOK_NEED(c->height <= 1 || (to.pitch >= c->width && from.pitch >= c->width), INVALID_VALUE);
	bool joined = to.pitch == c->width && from.pitch == c->width;
	size_t rows = joined && c->height ? 1 : c->height, width = joined ? c->width * c->height : c->width;
	for (size_t z = 0; z < c->depth; z++)
		for (size_t y = 0; y < rows; y++) {
			bool last = z + 1 == c->depth && y + 1 == rows;
			const struct look_piece row = {
				.to = to.start + z * to.slice + y * to.pitch, .from = from.start + z * from.slice + y * from.pitch,
				.size = width, .whole = c->width * c->height * c->depth, .peer = peer,
				.to_device = c->to_type == TRZ_CU_MEMORYTYPE_DEVICE,
				.from_device = c->from_type == TRZ_CU_MEMORYTYPE_DEVICE,
			};
			result = look_copy_piece(&row, stream, wait && last);
			if (result != TRZ_CUDA_SUCCESS)
				return result;
		}
	return TRZ_CUDA_SUCCESS;
}

static cuda_result copy_plane(const struct cuda_copy_2d *c, void *stream, bool wait)
{
	const struct cuda_copy_3d whole = {
		.from_x = c->from_x, .from_y = c->from_y, .from_type = c->from_type, .from_host = c->from_host,
		.from_device = c->from_device, .from_array = c->from_array, .from_pitch = c->from_pitch,
		.to_x = c->to_x, .to_y = c->to_y, .to_type = c->to_type, .to_host = c->to_host,
		.to_device = c->to_device, .to_array = c->to_array, .to_pitch = c->to_pitch,
		.width = c->width, .height = c->height, .depth = 1,
	};
	return look_copy_rows(&whole, false, stream, wait);
}

cuda_result cuMemcpy2D_v2(const struct cuda_copy_2d *c)
{
	LOOK_ENTER(cuMemcpy2D_v2);
	LOOK_NEED(c, INVALID_VALUE);
	return copy_plane(c, NULL, true);
}

cuda_result cuMemcpy2DUnaligned_v2(const struct cuda_copy_2d *c)
{
	LOOK_ENTER(cuMemcpy2DUnaligned_v2);
	LOOK_NEED(c, INVALID_VALUE);
	return copy_plane(c, NULL, true);
}

cuda_result cuMemcpy2DAsync_v2(const struct cuda_copy_2d *c, void *stream)
{
	LOOK_ENTER(cuMemcpy2DAsync_v2);
	LOOK_NEED(c, INVALID_VALUE);
	return copy_plane(c, stream, false);
}

cuda_result cuMemcpy3D_v2(const struct cuda_copy_3d *c)
{
	LOOK_ENTER(cuMemcpy3D_v2);
	LOOK_NEED(c, INVALID_VALUE);
	return look_copy_rows(c, false, NULL, true);
}

cuda_result cuMemcpy3DAsync_v2(const struct cuda_copy_3d *c, void *stream)
{
	LOOK_ENTER(cuMemcpy3DAsync_v2);
	LOOK_NEED(c, INVALID_VALUE);
	return look_copy_rows(c, false, stream, false);
}

cuda_result cuMemcpy3DPeer(const struct cuda_copy_3d *c)
{
	LOOK_ENTER(cuMemcpy3DPeer);
	LOOK_NEED(c, INVALID_VALUE);
	return look_copy_rows(c, true, NULL, true);
}

cuda_result cuMemcpy3DPeerAsync(const struct cuda_copy_3d *c, void *stream)
{
	LOOK_ENTER(cuMemcpy3DPeerAsync);
	LOOK_NEED(c, INVALID_VALUE);
	return look_copy_rows(c, true, stream, false);
}

/* ---- bytes of an array ------------------------------------------------------------ */

/* The address at an offset into a one-slice array's rows; returns how many bytes its row has from there. */
static size_t span_of(const struct look_array *a, uint64_t offset, uint64_t *address)
{
	uint64_t bytes = a->is.width * a->element, y = offset / bytes, x = offset % bytes;
	*address = a->address + y * a->pitch + x;
	return bytes - x;
}

static bool holds(const struct look_array *a, uint64_t offset, size_t size)
{
	uint64_t all = a ? a->is.width * a->element * a->rows : UINT64_MAX;
	return offset <= all && size <= all - offset;
}

/* One side of a copy: at an offset of an array, or (NULL) at an address. */
struct stretch {
	const struct look_array *array;
	uint64_t at;
};

static size_t span(const struct stretch *s, uint64_t done, uint64_t *address)
{
	*address = s->at + done;
	return s->array ? span_of(s->array, s->at + done, address) : SIZE_MAX;
}

static cuda_result copy_bytes(struct stretch to, struct stretch from, size_t size, void *stream, bool wait)
{
	uint64_t to_address, from_address;
	LOOK_NEED(holds(to.array, to.at, size) && holds(from.array, from.at, size), INVALID_VALUE);
	for (size_t done = 0; done < size;) {
		size_t most = span(&to, done, &to_address), other = span(&from, done, &from_address);
		most = other < most ? other : most;
		bool last = most >= size - done;
		const struct look_piece p = {
			.to = to_address, .from = from_address, .size = last ? size - done : most, .whole = size,
		};
		cuda_result result = look_copy_piece(&p, stream, wait && last);
		if (result != TRZ_CUDA_SUCCESS)
			return result;
		done += p.size;
	}
	return TRZ_CUDA_SUCCESS;
}

#define IN_ARRAY(array, offset) ((struct stretch){look_array_find(array), offset})
#define AT(address) ((struct stretch){NULL, address})

cuda_result cuMemcpyAtoA_v2(void *to, size_t to_offset, void *from, size_t from_offset, size_t size)
{
	LOOK_ENTER(cuMemcpyAtoA_v2);
	LOOK_NEED(look_array_find(to) && look_array_find(from), INVALID_HANDLE);
	return copy_bytes(IN_ARRAY(to, to_offset), IN_ARRAY(from, from_offset), size, NULL, true);
}

cuda_result cuMemcpyAtoD_v2(cuda_addr to, void *from, size_t offset, size_t size)
{
	LOOK_ENTER(cuMemcpyAtoD_v2);
	LOOK_NEED(look_array_find(from), INVALID_HANDLE);
	return copy_bytes(AT(to), IN_ARRAY(from, offset), size, NULL, true);
}

cuda_result cuMemcpyDtoA_v2(void *to, size_t offset, cuda_addr from, size_t size)
{
	LOOK_ENTER(cuMemcpyDtoA_v2);
	LOOK_NEED(look_array_find(to), INVALID_HANDLE);
	return copy_bytes(IN_ARRAY(to, offset), AT(from), size, NULL, true);
}

cuda_result cuMemcpyAtoHAsync_v2(void *to, void *from, size_t offset, size_t size, void *stream)
{
	LOOK_ENTER(cuMemcpyAtoHAsync_v2);
	LOOK_NEED(look_array_find(from), INVALID_HANDLE);
	return copy_bytes(AT((uintptr_t)to), IN_ARRAY(from, offset), size, stream, false);
}

cuda_result cuMemcpyAtoH_v2(void *to, void *from, size_t offset, size_t size)
{
	LOOK_ENTER(cuMemcpyAtoH_v2);
	LOOK_NEED(look_array_find(from), INVALID_HANDLE);
	return copy_bytes(AT((uintptr_t)to), IN_ARRAY(from, offset), size, NULL, true);
}

cuda_result cuMemcpyHtoAAsync_v2(void *to, size_t offset, const void *from, size_t size, void *stream)
{
	LOOK_ENTER(cuMemcpyHtoAAsync_v2);
	LOOK_NEED(look_array_find(to), INVALID_HANDLE);
	return copy_bytes(IN_ARRAY(to, offset), AT((uintptr_t)from), size, stream, false);
}

cuda_result cuMemcpyHtoA_v2(void *to, size_t offset, const void *from, size_t size)
{
	LOOK_ENTER(cuMemcpyHtoA_v2);
	LOOK_NEED(look_array_find(to), INVALID_HANDLE);
	return copy_bytes(IN_ARRAY(to, offset), AT((uintptr_t)from), size, NULL, true);
}

/* ---- many pieces ------------------------------------------------------------ */

/* The pieces' attributes, when sources are read and where they lie, make no difference here. */
cuda_result cuMemcpyBatchAsync_v2(const cuda_addr *to, const cuda_addr *from, const size_t *sizes, size_t count,
                                  const void *attributes, const size_t *firsts, size_t attribute_count, void *stream)
{
	LOOK_ENTER(cuMemcpyBatchAsync_v2);
	LOOK_NEED(to && from && sizes && count > 0 && stream && attributes && firsts && attribute_count > 0 &&
	          attribute_count <= count && firsts[0] == 0, INVALID_VALUE);
	for (size_t i = 0; i < count; i++) {
		const struct look_piece p = {.to = to[i], .from = from[i], .size = sizes[i], .whole = sizes[i]};
		cuda_result result = look_copy_piece(&p, stream, false);
		if (result != TRZ_CUDA_SUCCESS)
			return result;
	}
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuMemcpyBatchAsync(const cuda_addr *to, const cuda_addr *from, const size_t *sizes, size_t count,
                               const void *attributes, const size_t *firsts, size_t attribute_count, size_t *failed,
                               void *stream)
{
	cuda_result result =
		cuMemcpyBatchAsync_v2(to, from, sizes, count, attributes, firsts, attribute_count, stream);
	if (result != TRZ_CUDA_SUCCESS && failed)
		*failed = SIZE_MAX;
	return result;
}

/* ---- fills ------------------------------------------------------------ */

cuda_result look_fill_rows(cuda_addr address, size_t pitch, uint32_t pattern, unsigned unit, size_t width,
                           size_t height, void *stream, bool wait)
{
	LOOK_NEED(height <= 1 || pitch % unit == 0, INVALID_VALUE);
	cuda_result result = TRZ_CUDA_SUCCESS;
	for (size_t y = 0; y < height && result == TRZ_CUDA_SUCCESS; y++)
		result = look_fill(address + y * pitch, pattern, unit, width, stream, wait && y + 1 == height);
	return result;
}

cuda_result cuMemsetD2D8_v2(cuda_addr address, size_t pitch, unsigned char value, size_t width, size_t height)
{
	LOOK_ENTER(cuMemsetD2D8_v2);
	return look_fill_rows(address, pitch, value, 1, width, height, NULL, true);
}

cuda_result cuMemsetD2D16_v2(cuda_addr address, size_t pitch, unsigned short value, size_t width, size_t height)
{
	LOOK_ENTER(cuMemsetD2D16_v2);
	return look_fill_rows(address, pitch, value, 2, width, height, NULL, true);
}

cuda_result cuMemsetD2D32_v2(cuda_addr address, size_t pitch, unsigned value, size_t width, size_t height)
{
	LOOK_ENTER(cuMemsetD2D32_v2);
	return look_fill_rows(address, pitch, value, 4, width, height, NULL, true);
}

cuda_result cuMemsetD2D8Async(cuda_addr address, size_t pitch, unsigned char value, size_t width, size_t height,
                              void *stream)
{
	LOOK_ENTER(cuMemsetD2D8Async);
	return look_fill_rows(address, pitch, value, 1, width, height, stream, false);
}

cuda_result cuMemsetD2D16Async(cuda_addr address, size_t pitch, unsigned short value, size_t width, size_t height,
                               void *stream)
{
	LOOK_ENTER(cuMemsetD2D16Async);
	return look_fill_rows(address, pitch, value, 2, width, height, stream, false);
}

cuda_result cuMemsetD2D32Async(cuda_addr address, size_t pitch, unsigned value, size_t width, size_t height,
                               void *stream)
{
	LOOK_ENTER(cuMemsetD2D32Async);
	return look_fill_rows(address, pitch, value, 4, width, height, stream, false);
}
