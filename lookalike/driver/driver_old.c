/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches as before CUDA 4: the program sets shape, shared memory and parameters one by one, and they stay with the
 * function until they are set again. And contexts whose uses are counted.
 */
#include "driver_lookalike.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

enum { MOST_PARAMETERS = 4096 };

/* ---- launches ------------------------------------------------------------ */

struct look_old_launch {
	unsigned block[3], shared_bytes;
	size_t size;
	char parameters[MOST_PARAMETERS];
};

static struct look_old_launch *launch_of(void *function)
{
	struct look_old_launch **place = look_function_old(function);
	if (!*place)
		*place = calloc(1, sizeof **place);
	return *place;
}

cuda_result cuFuncSetBlockShape(void *function, int x, int y, int z)
{
	LOOK_ENTER(cuFuncSetBlockShape);
	LOOK_NEED(function, INVALID_HANDLE);
	LOOK_NEED(x > 0 && y > 0 && z > 0, INVALID_VALUE);
	struct look_old_launch *l = launch_of(function);
	LOOK_NEED(l, OUT_OF_MEMORY);
	l->block[0] = (unsigned)x;
	l->block[1] = (unsigned)y;
	l->block[2] = (unsigned)z;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuFuncSetSharedSize(void *function, unsigned bytes)
{
	LOOK_ENTER(cuFuncSetSharedSize);
	LOOK_NEED(function, INVALID_HANDLE);
	struct look_old_launch *l = launch_of(function);
	LOOK_NEED(l, OUT_OF_MEMORY);
	l->shared_bytes = bytes;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuParamSetSize(void *function, unsigned size)
{
	LOOK_ENTER(cuParamSetSize);
	LOOK_NEED(function, INVALID_HANDLE);
	LOOK_NEED(size <= MOST_PARAMETERS, INVALID_VALUE);
	struct look_old_launch *l = launch_of(function);
	LOOK_NEED(l, OUT_OF_MEMORY);
	l->size = size;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuParamSetv(void *function, int offset, void *value, unsigned size)
{
	LOOK_ENTER(cuParamSetv);
	LOOK_NEED(function, INVALID_HANDLE);
	LOOK_NEED(value && offset >= 0 && size <= MOST_PARAMETERS && (unsigned)offset <= MOST_PARAMETERS - size,
	          INVALID_VALUE);
	struct look_old_launch *l = launch_of(function);
	LOOK_NEED(l, OUT_OF_MEMORY);
	memcpy(l->parameters + offset, value, size);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuParamSeti(void *function, int offset, unsigned value)
{
	return cuParamSetv(function, offset, &value, sizeof value);
}

cuda_result cuParamSetf(void *function, int offset, float value)
{
	return cuParamSetv(function, offset, &value, sizeof value);
}

cuda_result cuLaunchGridAsync(void *function, int width, int height, void *stream)
{
	LOOK_ENTER(cuLaunchGridAsync);
	LOOK_NEED(function, INVALID_HANDLE);
	LOOK_NEED(width > 0 && height > 0, INVALID_VALUE);
	struct look_old_launch *l = launch_of(function);
	LOOK_NEED(l, OUT_OF_MEMORY);
	void *extra[] = {(void *)1, l->parameters, (void *)2, &l->size, NULL};
	return cuLaunchKernel(function, (unsigned)width, (unsigned)height, 1, l->block[0], l->block[1], l->block[2],
	                      l->shared_bytes, stream, NULL, extra);
}

cuda_result cuLaunchGrid(void *function, int width, int height)
{
	return cuLaunchGridAsync(function, width, height, NULL);
}

cuda_result cuLaunch(void *function)
{
	return cuLaunchGridAsync(function, 1, 1, NULL);
}

/* ---- contexts ------------------------------------------------------------ */

/* A use beyond the first. The simulator never uses a context's value again. */
struct use {
	SLIST_ENTRY(use) link;
	trz_context context;
};

static struct {
	pthread_mutex_t lock;
	SLIST_HEAD(, use) all;
} uses = {.lock = PTHREAD_MUTEX_INITIALIZER};

cuda_result cuCtxAttach(void **context, unsigned flags)
{
	LOOK_ENTER(cuCtxAttach);
	LOOK_NEED(context && flags == 0, INVALID_VALUE);
	trz_context current = look_context();
	LOOK_NEED(current, INVALID_CONTEXT);
	struct use *u = malloc(sizeof *u);
	LOOK_NEED(u, OUT_OF_MEMORY);
	u->context = *context = current;
	pthread_mutex_lock(&uses.lock);
	SLIST_INSERT_HEAD(&uses.all, u, link);
	pthread_mutex_unlock(&uses.lock);
	return TRZ_CUDA_SUCCESS;
}

/* The last use destroys the context. */
cuda_result cuCtxDetach(void *context)
{
	struct use *u;
	LOOK_ENTER(cuCtxDetach);
	LOOK_NEED(context && context == look_context(), INVALID_CONTEXT);
	pthread_mutex_lock(&uses.lock);
	SLIST_FOREACH(u, &uses.all, link)
		if (u->context == context)
			break;
	if (u)
		SLIST_REMOVE(&uses.all, u, use, link);
	pthread_mutex_unlock(&uses.lock);
	if (!u)
		return cuCtxDestroy_v2(context);
	free(u);
	return TRZ_CUDA_SUCCESS;
}
