/* SPDX-License-Identifier: Apache-2.0
 *
 * The captures that are under way, by the streams that they have begun on: while there are any, the driver serves what
 * is not stream-ordered (native_memory.c). What becomes of a stream that has only joined a capture says nothing about
 * the capture. The captures of a context end with it.
 */
#include <pthread.h>
#include <stdlib.h>

#include "limit.h"
#include "native.h"
#include "preload.h"

struct capture {
	struct capture *next;
	void *stream, *context;
	pthread_t thread;      /* whose own stream it is, if the stream is per-thread */
};

static struct capture *captures;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  /* guards the list */

/* The context of a stream. To be asked before the capture begins: during one the driver permits fewer questions. */
static void *context_of(void *stream)
{
	void *context = NULL;
	if (!native_load())
		return NULL;
	if ((uintptr_t)stream > 2)
		native_driver.cuStreamGetCtx(stream, &context);
	else
		native_driver.cuCtxGetCurrent(&context);
	return context;
}

/* Notes a capture that has begun. Without host memory it counts until the process ends. */
static cuda_result begun(cuda_result result, void *stream, void *context)
{
	if (result != TRZ_CUDA_SUCCESS)
		return result;
	struct capture *c = malloc(sizeof *c);
	atomic_fetch_add(&native_captures, 1);
	if (!c)
		return result;
	*c = (struct capture){.stream = stream, .context = context, .thread = pthread_self()};
	pthread_mutex_lock(&lock);
	c->next = captures;
	captures = c;
	pthread_mutex_unlock(&lock);
	return result;
}

static bool is_on(const struct capture *c, const void *stream)
{
	return c->stream == stream && (stream != PRELOAD_PER_THREAD || pthread_equal(c->thread, pthread_self()));
}

static void forget(bool (*matches)(const struct capture *c, const void *what), const void *what)
{
	if (!atomic_load(&native_captures))
		return;
	pthread_mutex_lock(&lock);
	for (struct capture **link = &captures, *c; (c = *link);) {
		if (!matches(c, what)) {
			link = &c->next;
			continue;
		}
		*link = c->next;
		free(c);
		atomic_fetch_sub(&native_captures, 1);
	}
	if (!atomic_load(&native_captures))
		limit_captures_over();
	pthread_mutex_unlock(&lock);
}

void preload_forget_parents_captures(void)
{
	pthread_mutex_init(&lock, NULL);
	captures = NULL;
	atomic_store(&native_captures, 0);
}

static bool is_in(const struct capture *c, const void *context)
{
	return context && c->context == context;
}

void preload_forget_captures(const void *context)
{
	forget(is_in, context);
}

/* Notes the end of a capture, unless the call failed and the capture goes on. */
static cuda_result ended(cuda_result result, void *stream)
{
	int capturing = 0;
	if (result == TRZ_CUDA_SUCCESS || !native_load() ||
	    (native_driver.cuStreamIsCapturing(stream, &capturing) == TRZ_CUDA_SUCCESS && !capturing))
		forget(is_on, stream);
	return result;
}

/* ---- the calls --------------------------------------------------------------------------------------------------- */

cuda_result cuStreamDestroy_v2(void *stream)
{
	ENTER(cuStreamDestroy_v2);
	if (!native_load())
		return REAL(cuStreamDestroy_v2)(stream);
	cuda_result result = native_stream_destroy(stream);
	if (result == TRZ_CUDA_SUCCESS)
		forget(is_on, stream);
	return result;
}

cuda_result cuStreamDestroy(void *stream)
{
	ENTER(cuStreamDestroy);
	return cuStreamDestroy_v2(stream);
}

cuda_result cuStreamBeginCapture(void *stream)
{
	ENTER(cuStreamBeginCapture);
	void *context = context_of(stream);
	return begun(REAL(cuStreamBeginCapture)(stream), stream, context);
}

cuda_result cuStreamBeginCapture_ptsz(void *stream)
{
	ENTER(cuStreamBeginCapture_ptsz);
	void *own = preload_of_thread(stream), *context = context_of(own);
	return begun(REAL(cuStreamBeginCapture_ptsz)(stream), own, context);
}

cuda_result cuStreamBeginCapture_v2(void *stream, int mode)
{
	ENTER(cuStreamBeginCapture_v2);
	void *context = context_of(stream);
	return begun(REAL(cuStreamBeginCapture_v2)(stream, mode), stream, context);
}

cuda_result cuStreamBeginCapture_v2_ptsz(void *stream, int mode)
{
	ENTER(cuStreamBeginCapture_v2_ptsz);
	void *own = preload_of_thread(stream), *context = context_of(own);
	return begun(REAL(cuStreamBeginCapture_v2_ptsz)(stream, mode), own, context);
}

cuda_result cuStreamBeginCaptureToGraph(void *stream, void *graph, const void *dependencies, const void *edges,
                                        size_t count, int mode)
{
	ENTER(cuStreamBeginCaptureToGraph);
	void *context = context_of(stream);
	return begun(REAL(cuStreamBeginCaptureToGraph)(stream, graph, dependencies, edges, count, mode), stream, context);
}

cuda_result cuStreamBeginCaptureToGraph_ptsz(void *stream, void *graph, const void *dependencies, const void *edges,
                                             size_t count, int mode)
{
	ENTER(cuStreamBeginCaptureToGraph_ptsz);
	void *own = preload_of_thread(stream), *context = context_of(own);
	return begun(REAL(cuStreamBeginCaptureToGraph_ptsz)(stream, graph, dependencies, edges, count, mode), own, context);
}

cuda_result cuStreamBeginRecaptureToGraph(void *stream, int mode, void *graph, void *callback, void *user)
{
	ENTER(cuStreamBeginRecaptureToGraph);
	void *context = context_of(stream);
	return begun(REAL(cuStreamBeginRecaptureToGraph)(stream, mode, graph, callback, user), stream, context);
}

cuda_result cuStreamBeginRecaptureToGraph_ptsz(void *stream, int mode, void *graph, void *callback, void *user)
{
	ENTER(cuStreamBeginRecaptureToGraph_ptsz);
	void *own = preload_of_thread(stream), *context = context_of(own);
	return begun(REAL(cuStreamBeginRecaptureToGraph_ptsz)(stream, mode, graph, callback, user), own, context);
}

cuda_result cuStreamEndCapture(void *stream, void **graph)
{
	ENTER(cuStreamEndCapture);
	return ended(REAL(cuStreamEndCapture)(stream, graph), stream);
}

cuda_result cuStreamEndCapture_ptsz(void *stream, void **graph)
{
	ENTER(cuStreamEndCapture_ptsz);
	return ended(REAL(cuStreamEndCapture_ptsz)(stream, graph), preload_of_thread(stream));
}
