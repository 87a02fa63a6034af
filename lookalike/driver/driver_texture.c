/* SPDX-License-Identifier: Apache-2.0
 *
 * Texture and surface objects. Kernels compute nothing, so nothing is read through an object: it only keeps what it was
 * made of, and checks whether that exists.
 */
#include "driver_lookalike.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/queue.h>

/* The program holds the object's number, and passes it to kernels. */
struct look_object {
	LIST_ENTRY(look_object) link;
	uint64_t number;
	bool surface, has_view;
	struct cuda_resource resource;
	struct cuda_texture texture;
	struct cuda_view view;
};

static struct {
	pthread_mutex_t lock;
	LIST_HEAD(, look_object) all;
	uint64_t numbers;
} objects = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool is_there(const struct cuda_resource *r, bool surface)
{
	struct sim_place place;
	if (r->type == TRZ_CU_RESOURCE_TYPE_ARRAY)
		return look_array_find(r->of.array);
	if (surface)
		return false;
	if (r->type == TRZ_CU_RESOURCE_TYPE_MIPMAPPED_ARRAY)
		return look_is_mipmap(r->of.array);
	bool linear = r->type == TRZ_CU_RESOURCE_TYPE_LINEAR || r->type == TRZ_CU_RESOURCE_TYPE_PITCH2D;
	return linear && (sim_place_at(look.sim, r->of.address, &place) || !sim_is_device(look.sim, r->of.address));
}

static cuda_result create(uint64_t *object, const struct look_object *like)
{
	LOOK_NEED(look_context(), INVALID_CONTEXT);
	LOOK_NEED(is_there(&like->resource, like->surface), INVALID_VALUE);
	struct look_object *o = malloc(sizeof *o);
	LOOK_NEED(o, OUT_OF_MEMORY);
	*o = *like;
	pthread_mutex_lock(&objects.lock);
	*object = o->number = ++objects.numbers;
	LIST_INSERT_HEAD(&objects.all, o, link);
	pthread_mutex_unlock(&objects.lock);
	return TRZ_CUDA_SUCCESS;
}

/* Copies the object; `take`: removes it from the list. */
static bool find(uint64_t number, bool surface, bool take, struct look_object *out)
{
	struct look_object *o;
	pthread_mutex_lock(&objects.lock);
	LIST_FOREACH(o, &objects.all, link)
		if (o->number == number && o->surface == surface)
			break;
	if (o)
		*out = *o;
	if (o && take)
		LIST_REMOVE(o, link);
	pthread_mutex_unlock(&objects.lock);
	if (o && take)
		free(o);
	return o != NULL;
}

cuda_result cuTexObjectCreate(uint64_t *object, const struct cuda_resource *resource,
                              const struct cuda_texture *texture, const struct cuda_view *view)
{
	LOOK_ENTER(cuTexObjectCreate);
	LOOK_NEED(object && resource && texture, INVALID_VALUE);
	struct look_object like = {.resource = *resource, .texture = *texture, .has_view = view};
	if (view)
		like.view = *view;
	return create(object, &like);
}

cuda_result cuTexObjectDestroy(uint64_t object)
{
	struct look_object gone;
	LOOK_ENTER(cuTexObjectDestroy);
	LOOK_NEED(find(object, false, true, &gone), INVALID_VALUE);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuTexObjectGetResourceDesc(struct cuda_resource *resource, uint64_t object)
{
	struct look_object found;
	LOOK_ENTER(cuTexObjectGetResourceDesc);
	LOOK_NEED(find(object, false, false, &found), INVALID_VALUE);
	*resource = found.resource;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuTexObjectGetTextureDesc(struct cuda_texture *texture, uint64_t object)
{
	struct look_object found;
	LOOK_ENTER(cuTexObjectGetTextureDesc);
	LOOK_NEED(find(object, false, false, &found), INVALID_VALUE);
	*texture = found.texture;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuTexObjectGetResourceViewDesc(struct cuda_view *view, uint64_t object)
{
	struct look_object found;
	LOOK_ENTER(cuTexObjectGetResourceViewDesc);
	LOOK_NEED(find(object, false, false, &found) && found.has_view, INVALID_VALUE);
	*view = found.view;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuSurfObjectCreate(uint64_t *object, const struct cuda_resource *resource)
{
	LOOK_ENTER(cuSurfObjectCreate);
	LOOK_NEED(object && resource, INVALID_VALUE);
	const struct look_object like = {.resource = *resource, .surface = true};
	return create(object, &like);
}

cuda_result cuSurfObjectDestroy(uint64_t object)
{
	struct look_object gone;
	LOOK_ENTER(cuSurfObjectDestroy);
	LOOK_NEED(find(object, true, true, &gone), INVALID_VALUE);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuSurfObjectGetResourceDesc(struct cuda_resource *resource, uint64_t object)
{
	struct look_object found;
	LOOK_ENTER(cuSurfObjectGetResourceDesc);
	LOOK_NEED(find(object, true, false, &found), INVALID_VALUE);
	*resource = found.resource;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuDeviceGetTexture1DLinearMaxWidth(size_t *width, int format, unsigned channels, cuda_device device)
{
	enum { MOST_ELEMENTS = 1 << 28 };
	LOOK_ENTER(cuDeviceGetTexture1DLinearMaxWidth);
	LOOK_NEED(device >= 0 && device < look.devices, INVALID_DEVICE);
	LOOK_NEED(width && look_channel_bytes(format) && channels > 0, INVALID_VALUE);
	*width = MOST_ELEMENTS;
	return TRZ_CUDA_SUCCESS;
}
