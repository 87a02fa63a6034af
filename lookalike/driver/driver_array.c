/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays and mipmapped arrays: plain device memory, row after row and slice after slice. A real array has an order of
 * its own, which no program sees, since it reaches the bytes only by copies.
 */
#include "driver_lookalike.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "bits.h"

enum { ROW_ALIGNMENT = 64, ARRAY_ALIGNMENT = 512, MOST_LEVELS = 32 };

/* A mipmapped array. It owns its levels, which are arrays. */
struct look_mipmap {
	LIST_ENTRY(look_mipmap) link;
	trz_context context;
	cuda_addr address;
	uint64_t size;
	unsigned count;
	struct look_array *level[MOST_LEVELS];
};

static struct {
	pthread_mutex_t lock;
	LIST_HEAD(, look_array) arrays;
	LIST_HEAD(, look_mipmap) mipmaps;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

unsigned look_channel_bytes(int format)
{
	switch (format) {
#define FORMAT_BYTES(name, value, bytes) \
	case TRZ_CU_AD_FORMAT_##name:        \
		return bytes;
		DRIVER_ARRAY_FORMATS(FORMAT_BYTES)
#undef FORMAT_BYTES
	default:
		return 0;
	}
}

struct look_array *look_array_find(const void *handle)
{
	struct look_array *a;
	pthread_mutex_lock(&all.lock);
	LIST_FOREACH(a, &all.arrays, link)
		if (a == handle)
			break;
	pthread_mutex_unlock(&all.lock);
	return a;
}

static struct look_mipmap *find_mipmap(const void *handle)
{
	struct look_mipmap *m;
	pthread_mutex_lock(&all.lock);
	LIST_FOREACH(m, &all.mipmaps, link)
		if (m == handle)
			break;
	pthread_mutex_unlock(&all.lock);
	return m;
}

bool look_is_mipmap(const void *handle)
{
	return find_mipmap(handle) != NULL;
}

/* Works out what an array takes: fills in all fields except address and context. */
static cuda_result shape(struct look_array *a, const struct cuda_array_3d *d)
{
	unsigned channel = look_channel_bytes(d->format);
	bool fits = d->channels == 1 || d->channels == 2 || d->channels == 4;
	bool sparse = d->flags & (TRZ_CUDA_ARRAY3D_SPARSE | TRZ_CUDA_ARRAY3D_DEFERRED_MAPPING);
	bool cube = d->flags & TRZ_CUDA_ARRAY3D_CUBEMAP;
	LOOK_NEED(channel && fits && d->width > 0, INVALID_VALUE);
	LOOK_NEED(!sparse, NOT_SUPPORTED);
	LOOK_NEED(!cube || (d->width == d->height && d->depth && d->depth % 6 == 0), INVALID_VALUE);
	*a = (struct look_array){.is = *d, .element = channel * d->channels};
	a->rows = d->height ? d->height : 1;
	a->slices = d->depth ? d->depth : 1;
	a->pitch = align_up(d->width * a->element, ROW_ALIGNMENT);
	a->slice = a->pitch * a->rows;
	a->size = align_up(a->slice * a->slices, ARRAY_ALIGNMENT);
	bool counted = a->pitch / a->element >= d->width && a->slice / a->rows == a->pitch &&
	               a->size / a->slices >= a->slice;
	LOOK_NEED(counted, OUT_OF_MEMORY);
	return TRZ_CUDA_SUCCESS;
}

static struct look_array *enlist(const struct look_array *made)
{
	struct look_array *a = malloc(sizeof *a);
	if (!a)
		return NULL;
	*a = *made;
	pthread_mutex_lock(&all.lock);
	LIST_INSERT_HEAD(&all.arrays, a, link);
	pthread_mutex_unlock(&all.lock);
	return a;
}

static void delist(struct look_array *a)
{
	pthread_mutex_lock(&all.lock);
	LIST_REMOVE(a, link);
	pthread_mutex_unlock(&all.lock);
	free(a);
}

cuda_result cuArray3DCreate_v2(void **array, const struct cuda_array_3d *d)
{
	struct look_array made;
	LOOK_ENTER(cuArray3DCreate_v2);
	LOOK_NEED(array && d, INVALID_VALUE);
	cuda_result result = shape(&made, d);
	if (result == TRZ_CUDA_SUCCESS)
		result = look_plain_alloc("cuArrayCreate", made.size, &made.address);
	if (result != TRZ_CUDA_SUCCESS)
		return result;
	made.context = look_context();
	*array = enlist(&made);
	if (!*array)
		look_plain_free(made.context, made.address);
	LOOK_NEED(*array, OUT_OF_MEMORY);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuArrayCreate_v2(void **array, const struct cuda_array_2d *d)
{
	LOOK_COUNT(cuArrayCreate_v2);
	LOOK_NEED(d, INVALID_VALUE);
	const struct cuda_array_3d deep = {
		.width = d->width, .height = d->height, .format = d->format, .channels = d->channels,
	};
	return cuArray3DCreate_v2(array, &deep);
}

cuda_result cuArrayDestroy(void *array)
{
	LOOK_ENTER(cuArrayDestroy);
	struct look_array *a = look_array_find(array);
	LOOK_NEED(a, INVALID_HANDLE);
	LOOK_NEED(!a->is_level, INVALID_VALUE);
	cuda_result result = look_plain_free(a->context, a->address);
	delist(a);
	return result;
}

cuda_result cuArray3DGetDescriptor_v2(struct cuda_array_3d *d, void *array)
{
	LOOK_ENTER(cuArray3DGetDescriptor_v2);
	const struct look_array *a = look_array_find(array);
	LOOK_NEED(a, INVALID_HANDLE);
	*d = a->is;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuArrayGetDescriptor_v2(struct cuda_array_2d *d, void *array)
{
	LOOK_ENTER(cuArrayGetDescriptor_v2);
	const struct look_array *a = look_array_find(array);
	LOOK_NEED(a, INVALID_HANDLE);
	*d = (struct cuda_array_2d){a->is.width, a->is.height, a->is.format, a->is.channels};
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuArrayGetMemoryRequirements(struct cuda_array_need *need, void *array, cuda_device device)
{
	LOOK_ENTER(cuArrayGetMemoryRequirements);
	(void)device;
	const struct look_array *a = look_array_find(array);
	LOOK_NEED(a, INVALID_HANDLE);
	*need = (struct cuda_array_need){.size = a->size, .alignment = ARRAY_ALIGNMENT};
	return TRZ_CUDA_SUCCESS;
}

/* ---- levels ------------------------------------------------------------ */

static size_t half(size_t extent, unsigned level)
{
	size_t shrunk = extent >> level;
	return extent && !shrunk ? 1 : shrunk;
}

static struct cuda_array_3d level_of(const struct cuda_array_3d *d, unsigned level)
{
	bool layers = d->flags & (TRZ_CUDA_ARRAY3D_LAYERED | TRZ_CUDA_ARRAY3D_CUBEMAP);
	struct cuda_array_3d shrunk = *d;
	shrunk.width = half(d->width, level);
	shrunk.height = half(d->height, level);
	shrunk.depth = layers ? d->depth : half(d->depth, level);
	return shrunk;
}

static unsigned most_levels(const struct cuda_array_3d *d)
{
	size_t longest = d->width > d->height ? d->width : d->height;
	bool layers = d->flags & (TRZ_CUDA_ARRAY3D_LAYERED | TRZ_CUDA_ARRAY3D_CUBEMAP);
	unsigned levels = 1;
	longest = !layers && d->depth > longest ? d->depth : longest;
	while (longest >>= 1)
		levels++;
	return levels;
}

static void end_mipmap(struct look_mipmap *m)
{
	for (unsigned i = 0; i < m->count; i++)
		if (m->level[i])
			delist(m->level[i]);
	free(m);
}

/* Lays the levels one after the other. */
static cuda_result make_levels(struct look_mipmap *m, const struct cuda_array_3d *d)
{
	struct look_array shapes[MOST_LEVELS];
	for (unsigned i = 0; i < m->count; i++) {
		const struct cuda_array_3d level = level_of(d, i);
		cuda_result result = shape(&shapes[i], &level);
		if (result != TRZ_CUDA_SUCCESS)
			return result;
		shapes[i].address = m->size;
		m->size += shapes[i].size;
	}
	cuda_result result = look_plain_alloc("cuMipmappedArrayCreate", m->size, &m->address);
	for (unsigned i = 0; i < m->count && result == TRZ_CUDA_SUCCESS; i++) {
		shapes[i].address += m->address;
		shapes[i].context = m->context;
		shapes[i].is_level = true;
		m->level[i] = enlist(&shapes[i]);
		result = m->level[i] ? TRZ_CUDA_SUCCESS : TRZ_CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (result != TRZ_CUDA_SUCCESS && m->address)
		look_plain_free(m->context, m->address);
	return result;
}

cuda_result cuMipmappedArrayCreate(void **mipmap, const struct cuda_array_3d *d, unsigned levels)
{
	LOOK_ENTER(cuMipmappedArrayCreate);
	LOOK_NEED(mipmap && d && d->width > 0 && levels > 0, INVALID_VALUE);
	struct look_mipmap *m = calloc(1, sizeof *m);
	LOOK_NEED(m, OUT_OF_MEMORY);
	unsigned most = most_levels(d);
	m->count = levels < most ? levels : most;
	m->count = m->count < MOST_LEVELS ? m->count : MOST_LEVELS;
	m->context = look_context();
	cuda_result result = make_levels(m, d);
	if (result != TRZ_CUDA_SUCCESS) {
		end_mipmap(m);
		return result;
	}
	pthread_mutex_lock(&all.lock);
	LIST_INSERT_HEAD(&all.mipmaps, m, link);
	pthread_mutex_unlock(&all.lock);
	*mipmap = m;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuMipmappedArrayDestroy(void *mipmap)
{
	LOOK_ENTER(cuMipmappedArrayDestroy);
	struct look_mipmap *m = find_mipmap(mipmap);
	LOOK_NEED(m, INVALID_HANDLE);
	pthread_mutex_lock(&all.lock);
	LIST_REMOVE(m, link);
	pthread_mutex_unlock(&all.lock);
	cuda_result result = look_plain_free(m->context, m->address);
	end_mipmap(m);
	return result;
}

cuda_result cuMipmappedArrayGetLevel(void **array, void *mipmap, unsigned level)
{
	LOOK_ENTER(cuMipmappedArrayGetLevel);
	const struct look_mipmap *m = find_mipmap(mipmap);
	LOOK_NEED(m, INVALID_HANDLE);
	LOOK_NEED(level < m->count, INVALID_VALUE);
	*array = m->level[level];
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuMipmappedArrayGetMemoryRequirements(struct cuda_array_need *need, void *mipmap, cuda_device device)
{
	LOOK_ENTER(cuMipmappedArrayGetMemoryRequirements);
	(void)device;
	const struct look_mipmap *m = find_mipmap(mipmap);
	LOOK_NEED(m, INVALID_HANDLE);
	*need = (struct cuda_array_need){.size = m->size, .alignment = ARRAY_ALIGNMENT};
	return TRZ_CUDA_SUCCESS;
}
