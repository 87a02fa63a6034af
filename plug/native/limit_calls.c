/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver's functions that allocate device memory, called once the limit has granted it. What the limit refuses is
 * "out of memory", as on a device that is full.
 */
#include "limit.h"
#include "limit_held.h"
#include "preload.h"

#include <pthread.h>

enum {
	RESERVED = 5, USED = 7,           /* CU_MEMPOOL_ATTR_..._MEM_CURRENT */
	POOL_CHUNK = 32 << 20,            /* what pools reserve at a time */
	PITCH = 512, SMALLEST_MAPPING = 64 << 10,
	NO_MEMORY_OF_ITS_OWN = 0x40 | 0x80, /* CUDA_ARRAY3D_SPARSE, CUDA_ARRAY3D_DEFERRED_MAPPING */
	LAYERS = 0x1 | 0x4                /* CUDA_ARRAY3D_LAYERED, CUDA_ARRAY3D_CUBEMAP */
};

/* ---- pools: they keep what they have reserved ------------------------------------------------------------------ */

static uint64_t attribute_of(uint64_t pool, int attribute)
{
	uint64_t bytes = 0;
	return DRIVER(cuMemPoolGetAttribute)((void *)pool, attribute, &bytes) == TRZ_CUDA_SUCCESS ? bytes : 0;
}

static uint64_t reserved_by(uint64_t pool)
{
	return attribute_of(pool, RESERVED);
}

static uint64_t reserved_after_trim(uint64_t pool)
{
	DRIVER(cuMemPoolTrimTo)((void *)pool, 0);
	return reserved_by(pool);
}

static void trim_pools(void)
{
	limit_measure_all(LIMIT_POOL, reserved_after_trim);
}

/* Takes memory from the limit; if that refuses, once more after the pools have returned what they keep for later. */
static struct limit_memory *take(uint64_t bytes)
{
	struct limit_memory *memory = limit_memory_take(bytes);
	if (memory)
		return memory;
	trim_pools();
	return limit_memory_take(bytes);
}

/* Takes what a pool may reserve for a request: whole chunks, as seen on an H200, unless it has as much in pieces. */
static struct limit_memory *take_for_pool(uint64_t size, uint64_t pool)
{
	uint64_t whole;
	if (__builtin_add_overflow(size, POOL_CHUNK - 1, &whole))
		return NULL;
	whole = whole / POOL_CHUNK * POOL_CHUNK;
	struct limit_memory *memory = limit_memory_take(whole);
	if (memory)
		return memory;
	trim_pools();
	bool room = reserved_by(pool) >= attribute_of(pool, USED) + size;
	return limit_memory_take(room ? size : whole);
}

static bool is_capturing(void *stream)
{
	int capturing = 0;
	return (uintptr_t)stream > 1 && native_load() &&
	       native_driver.cuStreamIsCapturing(stream, &capturing) == TRZ_CUDA_SUCCESS && capturing;
}

/* The address becomes a name of the pool's memory. */
static cuda_result from_pool(cuda_addr *address, size_t size, void *pool, void *stream)
{
	bool captured = is_capturing(stream);
	struct limit_memory *memory = captured ? take(size) : take_for_pool(size, (uintptr_t)pool);
	if (!memory)
		return TRZ_CUDA_ERROR_OUT_OF_MEMORY;
	cuda_result result = DRIVER(cuMemAllocFromPoolAsync)(address, size, pool, stream);
	if (result != TRZ_CUDA_SUCCESS)
		limit_memory_drop(memory);
	else if (captured)
		limit_graph_captured(memory, *address);
	else
		limit_name(LIMIT_ADDRESS, *address, 0,
		           limit_measure_name(LIMIT_POOL, (uintptr_t)pool, memory, reserved_by));
	return result;
}

cuda_result limit_cuMemAllocFromPoolAsync(cuda_addr *address, size_t size, void *pool, void *stream)
{
	return from_pool(address, size, pool, stream);
}

cuda_result limit_cuMemAllocFromPoolAsync_ptsz(cuda_addr *address, size_t size, void *pool, void *stream)
{
	return from_pool(address, size, pool, preload_of_thread(stream));
}

/* The driver would choose the current pool of the stream's device; this does, too, and names it. */
cuda_result limit_cuMemAllocAsync(cuda_addr *address, size_t size, void *stream)
{
	void *context = NULL, *current = NULL, *popped, *pool = NULL;
	cuda_device device;
	if (!native_load())
		return TRZ_CUDA_ERROR_NOT_SUPPORTED;
	if ((uintptr_t)stream > 2)
		native_driver.cuStreamGetCtx(stream, &context);
	native_driver.cuCtxGetCurrent(&current);
	bool pushed = context && context != current && native_driver.cuCtxPushCurrent_v2(context) == TRZ_CUDA_SUCCESS;
	bool found = native_driver.cuCtxGetDevice(&device) == TRZ_CUDA_SUCCESS &&
	             native_driver.cuDeviceGetMemPool(&pool, device) == TRZ_CUDA_SUCCESS;
	if (pushed)
		native_driver.cuCtxPopCurrent_v2(&popped);
	return found ? from_pool(address, size, pool, stream) : DRIVER(cuMemAllocAsync)(address, size, stream);
}

cuda_result limit_cuMemAllocAsync_ptsz(cuda_addr *address, size_t size, void *stream)
{
	return limit_cuMemAllocAsync(address, size, preload_of_thread(stream));
}

/* What the program has not freed outlives the pool, in whole chunks, and counts until the last of it is freed. The
 * pool's name is removed before the call, since another thread may get the handle at once. */
cuda_result limit_cuMemPoolDestroy(void *pool)
{
	struct limit_memory *memory = limit_unname(LIMIT_POOL, (uintptr_t)pool, NULL);
	uint64_t left = memory ? reserved_after_trim((uintptr_t)pool) : 0;
	cuda_result result = DRIVER(cuMemPoolDestroy)(pool);
	if (memory && result == TRZ_CUDA_SUCCESS) {
		limit_memory_resize(memory, left);
		limit_memory_drop(memory);
	} else if (memory) {
		limit_name(LIMIT_POOL, (uintptr_t)pool, 0, memory);
	}
	return result;
}

/* ---- addresses ------------------------------------------------------------------------------------------------- */

/* Ends the memory of an address that has been freed. Its name was removed before the free, since another thread may get
 * the address at once; if the free failed it is put back. */
static cuda_result freed(cuda_result result, cuda_addr address, struct limit_memory *memory)
{
	if (memory && result == TRZ_CUDA_SUCCESS)
		limit_memory_drop(memory);
	else if (memory)
		limit_name(LIMIT_ADDRESS, address, 0, memory);
	return result;
}

static cuda_result allocated(cuda_result result, const cuda_addr *address, struct limit_memory *memory)
{
	if (result == TRZ_CUDA_SUCCESS)
		limit_name(LIMIT_ADDRESS, *address, 0, memory);
	else
		limit_memory_drop(memory);
	return result;
}

cuda_result limit_cuMemAlloc_v2(cuda_addr *address, size_t size)
{
	struct limit_memory *memory = take(size);
	if (!memory)
		return TRZ_CUDA_ERROR_OUT_OF_MEMORY;
	return allocated(DRIVER(cuMemAlloc_v2)(address, size), address, memory);
}

cuda_result limit_cuMemAllocManaged(cuda_addr *address, size_t size, unsigned flags)
{
	struct limit_memory *memory = take(size);
	if (!memory)
		return TRZ_CUDA_ERROR_OUT_OF_MEMORY;
	return allocated(DRIVER(cuMemAllocManaged)(address, size, flags), address, memory);
}

cuda_result limit_cuMemAllocPitch_v2(cuda_addr *address, size_t *pitch, size_t width, size_t height, unsigned element)
{
	size_t row, size;
	bool overflows = __builtin_add_overflow(width, PITCH - 1, &row) ||
	                 __builtin_mul_overflow(row / PITCH * PITCH, height, &size);
	struct limit_memory *memory = overflows ? NULL : take(size);
	if (!memory)
		return TRZ_CUDA_ERROR_OUT_OF_MEMORY;
	return allocated(DRIVER(cuMemAllocPitch_v2)(address, pitch, width, height, element), address, memory);
}

cuda_result limit_cuMemFree_v2(cuda_addr address)
{
	struct limit_memory *memory = limit_unname(LIMIT_ADDRESS, address, NULL);
	return freed(DRIVER(cuMemFree_v2)(address), address, memory);
}

cuda_result limit_cuMemFreeAsync(cuda_addr address, void *stream)
{
	struct limit_memory *memory = limit_unname(LIMIT_ADDRESS, address, NULL);
	return freed(DRIVER(cuMemFreeAsync)(address, stream), address, memory);
}

cuda_result limit_cuMemFreeAsync_ptsz(cuda_addr address, void *stream)
{
	return limit_cuMemFreeAsync(address, preload_of_thread(stream));
}

cuda_result limit_cuMemGetInfo_v2(size_t *unused, size_t *total)
{
	cuda_result result = DRIVER(cuMemGetInfo_v2)(unused, total);
	if (result != TRZ_CUDA_SUCCESS)
		return result;
	uint64_t left = limit_left();
	if (unused && *unused > left)
		*unused = left;
	if (total && *total > limit_bytes)
		*total = limit_bytes;
	return result;
}

/* ---- other processes' memory ----
 *
 * It counts here as well, since its process may not share the limit. If memory is opened again, the driver returns the
 * same address, and closes it only when it has been closed as often: so it counts once, and has several names. The lock
 * is held from the driver's call until the name is there. */

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

void limit_forget_opening(void)
{
	pthread_mutex_init(&opening, NULL);
}

static struct limit_memory *take_opened(cuda_addr address)
{
	size_t size = 0;
	struct limit_memory *memory = limit_find(LIMIT_ADDRESS, address, NULL);
	if (!memory && DRIVER(cuMemGetAddressRange_v2)(NULL, &size, address) == TRZ_CUDA_SUCCESS)
		memory = take(size);
	return memory;
}

static cuda_result open_counted(preload_type_cuIpcOpenMemHandle *open, cuda_addr *address, struct preload_ipc handle,
                                unsigned flags)
{
	pthread_mutex_lock(&opening);
	cuda_result result = open(address, handle, flags);
	struct limit_memory *memory = result == TRZ_CUDA_SUCCESS ? take_opened(*address) : NULL;
	if (memory) {
		limit_name(LIMIT_ADDRESS, *address, 0, memory);
	} else if (result == TRZ_CUDA_SUCCESS) {
		DRIVER(cuIpcCloseMemHandle)(*address);
		result = TRZ_CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_unlock(&opening);
	return result;
}

cuda_result limit_cuIpcOpenMemHandle_v2(cuda_addr *address, struct preload_ipc handle, unsigned flags)
{
	return open_counted(DRIVER(cuIpcOpenMemHandle_v2), address, handle, flags);
}

cuda_result limit_cuIpcOpenMemHandle(cuda_addr *address, struct preload_ipc handle, unsigned flags)
{
	return open_counted(DRIVER(cuIpcOpenMemHandle), address, handle, flags);
}

cuda_result limit_cuIpcCloseMemHandle(cuda_addr address)
{
	pthread_mutex_lock(&opening);
	struct limit_memory *memory = limit_unname(LIMIT_ADDRESS, address, NULL);
	cuda_result result = freed(DRIVER(cuIpcCloseMemHandle)(address), address, memory);
	pthread_mutex_unlock(&opening);
	return result;
}

/* ---- handles and mappings: either keeps the memory --------------------------------------------------------------- */

cuda_result limit_cuMemCreate(cuda_mem *handle, size_t size, const struct cuda_mem_prop *prop, uint64_t flags)
{
	if (!prop || prop->location.type != TRZ_CU_MEM_LOCATION_TYPE_DEVICE)
		return DRIVER(cuMemCreate)(handle, size, prop, flags);
	struct limit_memory *memory = take(size);
	if (!memory)
		return TRZ_CUDA_ERROR_OUT_OF_MEMORY;
	cuda_result result = DRIVER(cuMemCreate)(handle, size, prop, flags);
	if (result == TRZ_CUDA_SUCCESS)
		limit_name(LIMIT_HANDLE, *handle, size, memory);
	else
		limit_memory_drop(memory);
	return result;
}

cuda_result limit_cuMemRelease(cuda_mem handle)
{
	uint64_t size = 0;
	struct limit_memory *memory = limit_unname(LIMIT_HANDLE, handle, &size);
	cuda_result result = DRIVER(cuMemRelease)(handle);
	if (memory && result == TRZ_CUDA_SUCCESS)
		limit_memory_drop(memory);
	else if (memory)
		limit_name(LIMIT_HANDLE, handle, size, memory);
	return result;
}

cuda_result limit_cuMemRetainAllocationHandle(cuda_mem *handle, void *address)
{
	uint64_t size = 0;
	cuda_result result = DRIVER(cuMemRetainAllocationHandle)(handle, address);
	if (result != TRZ_CUDA_SUCCESS)
		return result;
	struct limit_memory *memory = limit_find(LIMIT_HANDLE, *handle, &size);
	if (!memory)
		memory = limit_find(LIMIT_MAPPING, (uintptr_t)address, &size);
	if (memory)
		limit_name(LIMIT_HANDLE, *handle, size, memory);
	return result;
}

/* An unknown handle was imported: its memory counts while it is mapped. */
cuda_result limit_cuMemMap(cuda_addr address, size_t size, size_t offset, cuda_mem handle, uint64_t flags)
{
	struct limit_memory *memory = limit_find(LIMIT_HANDLE, handle, NULL);
	if (!memory)
		memory = take(size);
	if (!memory)
		return TRZ_CUDA_ERROR_OUT_OF_MEMORY;
	cuda_result result = DRIVER(cuMemMap)(address, size, offset, handle, flags);
	if (result == TRZ_CUDA_SUCCESS)
		limit_name(LIMIT_MAPPING, address, size, memory);
	else
		limit_memory_drop(memory);
	return result;
}

cuda_result limit_cuMemUnmap(cuda_addr address, size_t size)
{
	cuda_result result = DRIVER(cuMemUnmap)(address, size);
	for (cuda_addr a = address; result == TRZ_CUDA_SUCCESS && a < address + size;) {
		uint64_t length = SMALLEST_MAPPING;
		struct limit_memory *memory = limit_unname(LIMIT_MAPPING, a, &length);
		if (memory)
			limit_memory_drop(memory);
		a += length;
	}
	return result;
}

/* ---- arrays ---------------------------------------------------------------------------------------------------- */

static uint64_t bytes_of(int format)
{
	switch (format) {
	case 0x01: case 0x08:              /* 8 bits */
		return 1;
	case 0x02: case 0x09: case 0x10:   /* 16 */
		return 2;
	case 0x03: case 0x0a: case 0x20:   /* 32 */
		return 4;
	default:                           /* the largest */
		return 8;
	}
}

/* The bytes of an array; UINT64_MAX: too many for any device. */
static uint64_t array_bytes(const struct preload_array_3d *a)
{
	uint64_t bytes;
	if (__builtin_mul_overflow(a->width, a->height ? a->height : 1, &bytes) ||
	    __builtin_mul_overflow(bytes, a->depth ? a->depth : 1, &bytes) ||
	    __builtin_mul_overflow(bytes, a->channels * bytes_of(a->format), &bytes))
		return UINT64_MAX;
	return bytes;
}

static size_t half(size_t extent)
{
	return extent > 1 ? extent / 2 : extent;
}

/* Takes an array with its levels. Whatever it is asked for, the driver makes at least one level, and none beyond that
 * of a single element. Each level has all layers. */
static struct limit_memory *take_array(const struct preload_array_3d *a, unsigned levels)
{
	struct preload_array_3d level = *a;
	uint64_t sum = 0;
	bool deep = !(a->flags & LAYERS);
	bool more = !(a->flags & NO_MEMORY_OF_ITS_OWN);
	for (unsigned i = 0; more && (i == 0 || i < levels); i++) {
		if (__builtin_add_overflow(sum, array_bytes(&level), &sum))
			return NULL;
		more = level.width > 1 || level.height > 1 || (deep && level.depth > 1);
		level.width = half(level.width);
		level.height = half(level.height);
		level.depth = deep ? half(level.depth) : level.depth;
	}
	return take(sum);
}

static cuda_result made(cuda_result result, void *const *array, struct limit_memory *memory)
{
	if (result == TRZ_CUDA_SUCCESS)
		limit_name(LIMIT_ARRAY, (uintptr_t)*array, 0, memory);
	else
		limit_memory_drop(memory);
	return result;
}

cuda_result limit_cuArrayCreate_v2(void **array, const struct preload_array_2d *a)
{
	if (!a)
		return DRIVER(cuArrayCreate_v2)(array, a);
	const struct preload_array_3d same = {a->width, a->height, 0, a->format, a->channels, 0};
	struct limit_memory *memory = take_array(&same, 1);
	return memory ? made(DRIVER(cuArrayCreate_v2)(array, a), array, memory) : TRZ_CUDA_ERROR_OUT_OF_MEMORY;
}

cuda_result limit_cuArray3DCreate_v2(void **array, const struct preload_array_3d *a)
{
	if (!a)
		return DRIVER(cuArray3DCreate_v2)(array, a);
	struct limit_memory *memory = take_array(a, 1);
	return memory ? made(DRIVER(cuArray3DCreate_v2)(array, a), array, memory) : TRZ_CUDA_ERROR_OUT_OF_MEMORY;
}

cuda_result limit_cuMipmappedArrayCreate(void **array, const struct preload_array_3d *a, unsigned levels)
{
	if (!a)
		return DRIVER(cuMipmappedArrayCreate)(array, a, levels);
	struct limit_memory *memory = take_array(a, levels);
	if (!memory)
		return TRZ_CUDA_ERROR_OUT_OF_MEMORY;
	return made(DRIVER(cuMipmappedArrayCreate)(array, a, levels), array, memory);
}

static cuda_result destroyed(preload_type_cuArrayDestroy *destroy, void *array)
{
	struct limit_memory *memory = limit_unname(LIMIT_ARRAY, (uintptr_t)array, NULL);
	cuda_result result = destroy(array);
	if (memory && result == TRZ_CUDA_SUCCESS)
		limit_memory_drop(memory);
	else if (memory)
		limit_name(LIMIT_ARRAY, (uintptr_t)array, 0, memory);
	return result;
}

cuda_result limit_cuArrayDestroy(void *array)
{
	return destroyed(DRIVER(cuArrayDestroy), array);
}

cuda_result limit_cuMipmappedArrayDestroy(void *array)
{
	return destroyed(DRIVER(cuMipmappedArrayDestroy), array);
}
