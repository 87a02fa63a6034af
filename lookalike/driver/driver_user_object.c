/* SPDX-License-Identifier: Apache-2.0
 *
 * Objects of the program's that graphs and their instances keep alive.
 */
#include "driver_graph.h"

#include <stdlib.h>

struct look_object {
	void *object;
	cuda_function *destroy;
	unsigned references;         /* under the graphs' lock */
};

cuda_result cuUserObjectCreate(void **object, void *pointer, cuda_function *destroy, unsigned references,
                               unsigned flags)
{
	LOOK_ENTER(cuUserObjectCreate);
	LOOK_NEED(object && destroy && references, INVALID_VALUE);
	(void)flags;
	struct look_object *o = malloc(sizeof *o);
	LOOK_NEED(o, OUT_OF_MEMORY);
	*o = (struct look_object){pointer, destroy, references};
	*object = o;
	return TRZ_CUDA_SUCCESS;
}

static void release(struct look_object *o, unsigned references)
{
	look_graphs_lock();
	o->references -= references < o->references ? references : o->references;
	bool last = o->references == 0;
	look_graphs_unlock();
	if (!last)
		return;
	o->destroy(o->object);
	free(o);
}

static void retain(struct look_object *o, unsigned references)
{
	look_graphs_lock();
	o->references += references;
	look_graphs_unlock();
}

cuda_result cuUserObjectRetain(void *object, unsigned references)
{
	LOOK_ENTER(cuUserObjectRetain);
	LOOK_NEED(object && references, INVALID_VALUE);
	retain(object, references);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuUserObjectRelease(void *object, unsigned references)
{
	LOOK_ENTER(cuUserObjectRelease);
	LOOK_NEED(object && references, INVALID_VALUE);
	release(object, references);
	return TRZ_CUDA_SUCCESS;
}

/* The graph takes one reference, whatever number the caller passes; with `flags` 1 it takes over the caller's. */
cuda_result cuGraphRetainUserObject(void *graph, void *object, unsigned references, unsigned flags)
{
	struct look_graph *g = graph;
	LOOK_ENTER(cuGraphRetainUserObject);
	LOOK_NEED(g && object && references, INVALID_VALUE);
	LOOK_NEED(g->objects.count < LOOK_MOST_OBJECTS, NOT_SUPPORTED);
	if (flags & 1)
		references--;
	else
		retain(object, 1);
	g->objects.object[g->objects.count++] = object;
	if (flags & 1 && references > 0)
		release(object, references);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuGraphReleaseUserObject(void *graph, void *object, unsigned references)
{
	LOOK_ENTER(cuGraphReleaseUserObject);
	LOOK_NEED(graph && object && references, INVALID_VALUE);
	struct look_objects *held = &((struct look_graph *)graph)->objects;
	(void)references;
	for (unsigned i = 0; i < held->count; i++) {
		if (held->object[i] != object)
			continue;
		held->object[i] = held->object[--held->count];
		release(object, 1);
		return TRZ_CUDA_SUCCESS;
	}
	return TRZ_CUDA_ERROR_INVALID_VALUE;
}

void look_objects_copy(struct look_objects *to, const struct look_objects *from)
{
	*to = *from;
	for (unsigned i = 0; i < to->count; i++)
		retain(to->object[i], 1);
}

void look_objects_drop(struct look_objects *objects)
{
	for (unsigned i = 0; i < objects->count; i++)
		release(objects->object[i], 1);
	objects->count = 0;
}
