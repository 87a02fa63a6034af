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

/* The flag, which says that no call can wait for the destruction, is required. */
cuda_result cuUserObjectCreate(void **object, void *pointer, cuda_function *destroy, unsigned references,
                               unsigned flags)
{
	enum { NO_DESTRUCTOR_SYNC = 1 };
	LOOK_ENTER(cuUserObjectCreate);
	LOOK_NEED(object && destroy && references && flags == NO_DESTRUCTOR_SYNC, INVALID_VALUE);
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

/* ---- what graphs hold ------------------------------------------------------------ */

/* Where the object is held, or the list's end. */
static unsigned place_of(const struct look_objects *held, const void *object)
{
	unsigned i = 0;
	while (i < held->count && held->held[i].object != object)
		i++;
	return i;
}

/* The graph takes so many references, with MOVE the caller's own. */
cuda_result cuGraphRetainUserObject(void *graph, void *object, unsigned references, unsigned flags)
{
	enum { MOVE = 1 };
	LOOK_ENTER(cuGraphRetainUserObject);
	LOOK_NEED(graph && object && references && !(flags & ~(unsigned)MOVE), INVALID_VALUE);
	struct look_objects *objects = &((struct look_graph *)graph)->objects;
	unsigned i = place_of(objects, object);
	if (i == objects->count) {
		struct look_held *held = realloc(objects->held, (i + 1) * sizeof *held);
		LOOK_NEED(held, OUT_OF_MEMORY);
		held[i] = (struct look_held){object, 0};
		*objects = (struct look_objects){held, i + 1};
	}
	objects->held[i].references += references;
	if (!(flags & MOVE))
		retain(object, references);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuGraphReleaseUserObject(void *graph, void *object, unsigned references)
{
	LOOK_ENTER(cuGraphReleaseUserObject);
	LOOK_NEED(graph && object && references, INVALID_VALUE);
	struct look_objects *objects = &((struct look_graph *)graph)->objects;
	unsigned i = place_of(objects, object);
	LOOK_NEED(i < objects->count && references <= objects->held[i].references, INVALID_VALUE);
	objects->held[i].references -= references;
	if (objects->held[i].references == 0)
		objects->held[i] = objects->held[--objects->count];
	release(object, references);
	return TRZ_CUDA_SUCCESS;
}

bool look_objects_copy(struct look_objects *to, const struct look_objects *from)
{
	*to = (struct look_objects){from->count ? malloc(from->count * sizeof *to->held) : NULL, 0};
	for (; to->held && to->count < from->count; to->count++) {
		to->held[to->count] = (struct look_held){from->held[to->count].object, 1};
		retain(to->held[to->count].object, 1);
	}
	return to->count == from->count;
}

void look_objects_drop(struct look_objects *objects)
{
	for (unsigned i = 0; i < objects->count; i++)
		release(objects->held[i].object, objects->held[i].references);
	free(objects->held);
	*objects = (struct look_objects){0};
}

/* ---- launches that outlive their instance ------------------------------------------------------------ */

static void drop_kept(void *objects)
{
	look_objects_drop(objects);
	free(objects);
}

/* Has a stream of its own wait for the event and drop them; false: no host memory. */
static bool drop_later(struct look_objects *kept, trz_context context, trz_event event)
{
	trz_stream stream;
	if (sim_stream_create(look.sim, context, false, &stream) != TRZ_OK)
		return false;
	trz_status status = look.table->stream_wait(look.table->self, context, stream, event);
	if (status == TRZ_OK)
		status = sim_host(look.sim, context, stream, drop_kept, kept);
	sim_stream_destroy(look.sim, context, stream);
	return status == TRZ_OK;
}

void look_objects_drop_after(struct look_objects *objects, trz_context context, trz_event event)
{
	bool lives = event && sim_context_device(look.sim, context) >= 0;
	struct look_objects *kept = objects->count && lives ? malloc(sizeof *kept) : NULL;
	if (kept) {
		*kept = *objects;
		if (drop_later(kept, context, event))
			*objects = (struct look_objects){0};
		else
			free(kept);
	}
	if (lives)
		look.table->event_destroy(look.table->self, context, event);
	look_objects_drop(objects);
	look_progress();
}
