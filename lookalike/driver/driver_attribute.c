/* SPDX-License-Identifier: Apache-2.0
 *
 * Attributes of streams and kernel nodes: the program can read back what it has set; nothing else depends on them.
 */
#include "driver_graph.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { VALUE_BYTES = 64 };   /* CUlaunchAttributeValue */

struct attribute {
	LIST_ENTRY(attribute) link;
	const void *owner;
	int id;
	char value[VALUE_BYTES];
};

static struct {
	pthread_mutex_t lock;
	LIST_HEAD(, attribute) all;
	size_t count;                /* read without the lock where 0 means nothing to do */
} attributes = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* With the lock. */
static struct attribute *find(const void *owner, int id)
{
	struct attribute *a;
	LIST_FOREACH(a, &attributes.all, link)
		if (a->owner == owner && a->id == id)
			break;
	return a;
}

/* With the lock; false: no host memory. */
static bool set(const void *owner, int id, const void *value)
{
	struct attribute *a = find(owner, id);
	if (!a && (a = malloc(sizeof *a))) {
		a->owner = owner;
		a->id = id;
		LIST_INSERT_HEAD(&attributes.all, a, link);
		attributes.count++;
	}
	if (a)
		memcpy(a->value, value, VALUE_BYTES);
	return a != NULL;
}

cuda_result look_attribute_set(const void *owner, int id, const void *value)
{
	pthread_mutex_lock(&attributes.lock);
	bool done = set(owner, id, value);
	pthread_mutex_unlock(&attributes.lock);
	return done ? TRZ_CUDA_SUCCESS : TRZ_CUDA_ERROR_OUT_OF_MEMORY;
}

/* An attribute that was never set is zero. */
cuda_result look_attribute_get(const void *owner, int id, void *value)
{
	memset(value, 0, VALUE_BYTES);
	pthread_mutex_lock(&attributes.lock);
	const struct attribute *a = find(owner, id);
	if (a)
		memcpy(value, a->value, VALUE_BYTES);
	pthread_mutex_unlock(&attributes.lock);
	return TRZ_CUDA_SUCCESS;
}

cuda_result look_attributes_copy(const void *to, const void *from)
{
	const struct attribute *a;
	bool done = true;
	if (__atomic_load_n(&attributes.count, __ATOMIC_RELAXED) == 0)
		return TRZ_CUDA_SUCCESS;
	pthread_mutex_lock(&attributes.lock);
	LIST_FOREACH(a, &attributes.all, link)
		if (a->owner == from)
			done = set(to, a->id, a->value) && done;
	pthread_mutex_unlock(&attributes.lock);
	return done ? TRZ_CUDA_SUCCESS : TRZ_CUDA_ERROR_OUT_OF_MEMORY;
}

void look_attributes_forget(const void *owner)
{
	struct attribute *a, *next;
	if (__atomic_load_n(&attributes.count, __ATOMIC_RELAXED) == 0)
		return;
	pthread_mutex_lock(&attributes.lock);
	for (a = LIST_FIRST(&attributes.all); a; a = next) {
		next = LIST_NEXT(a, link);
		if (a->owner != owner)
			continue;
		LIST_REMOVE(a, link);
		attributes.count--;
		free(a);
	}
	pthread_mutex_unlock(&attributes.lock);
}

/* ---- streams' attributes ------------------------------------------------------------ */

cuda_result cuStreamSetAttribute(void *stream, int attribute, const void *value)
{
	LOOK_ENTER(cuStreamSetAttribute);
	LOOK_NEED(look_stream_context(stream), INVALID_CONTEXT);
	LOOK_NEED(value && attribute > 0, INVALID_VALUE);
	return look_attribute_set(stream, attribute, value);
}

cuda_result cuStreamGetAttribute(void *stream, int attribute, void *value)
{
	LOOK_ENTER(cuStreamGetAttribute);
	LOOK_NEED(look_stream_context(stream), INVALID_CONTEXT);
	LOOK_NEED(value && attribute > 0, INVALID_VALUE);
	return look_attribute_get(stream, attribute, value);
}

cuda_result cuStreamCopyAttributes(void *to, void *from)
{
	LOOK_ENTER(cuStreamCopyAttributes);
	LOOK_NEED(look_stream_context(to), INVALID_CONTEXT);
	return look_attributes_copy(to, from);
}
