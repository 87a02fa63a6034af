/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams, events, captures, graphs.
 */
#include "runtime_lookalike.h"

/* ---- streams ------------------------------------------------------------ */

cuda_error cudaStreamCreateWithPriority(void **stream, unsigned flags, int priority)
{
	RT_ENTER(cudaStreamCreateWithPriority);
	return rt_result(cuStreamCreateWithPriority(stream, flags, priority));
}

cuda_error cudaStreamCreateWithFlags(void **stream, unsigned flags)
{
	RT_ENTER(cudaStreamCreateWithFlags);
	return rt_result(cuStreamCreate(stream, flags));
}

cuda_error cudaStreamCreate(void **stream)
{
	RT_ENTER(cudaStreamCreate);
	return rt_result(cuStreamCreate(stream, 0));
}

cuda_error cudaStreamDestroy(void *stream)
{
	RT_ENTER(cudaStreamDestroy);
	return rt_result(cuStreamDestroy_v2(stream));
}

cuda_error cudaStreamQuery(void *stream)
{
	RT_ENTER(cudaStreamQuery);
	return rt_result(cuStreamQuery(stream));
}

cuda_error cudaStreamSynchronize(void *stream)
{
	RT_ENTER(cudaStreamSynchronize);
	return rt_result(cuStreamSynchronize(stream));
}

cuda_error cudaStreamWaitEvent(void *stream, void *event, unsigned flags)
{
	RT_ENTER(cudaStreamWaitEvent);
	return rt_result(cuStreamWaitEvent(stream, event, flags));
}

cuda_error cudaStreamGetPriority(void *stream, int *priority)
{
	RT_ENTER(cudaStreamGetPriority);
	return rt_result(cuStreamGetPriority(stream, priority));
}

cuda_error cudaStreamGetFlags(void *stream, unsigned *flags)
{
	RT_ENTER(cudaStreamGetFlags);
	return rt_result(cuStreamGetFlags(stream, flags));
}

cuda_error cudaStreamGetId(void *stream, unsigned long long *id)
{
	uint64_t found = 0;
	RT_ENTER(cudaStreamGetId);
	if (!id)
		return rt_result(RT_INVALID_VALUE);
	int result = cuStreamGetId(stream, &found);
	*id = found;
	return rt_result(result);
}

cuda_error cudaStreamGetDevice(void *stream, int *device)
{
	RT_ENTER(cudaStreamGetDevice);
	return rt_result(cuStreamGetDevice(stream, device));
}

cuda_error cudaStreamAddCallback(void *stream, void (*function)(void *, int, void *), void *argument, unsigned flags)
{
	RT_ENTER(cudaStreamAddCallback);
	return rt_result(cuStreamAddCallback(stream, function, argument, flags));
}

cuda_error cudaLaunchHostFunc(void *stream, rt_host_function *function, void *argument)
{
	RT_ENTER(cudaLaunchHostFunc);
	return rt_result(cuLaunchHostFunc(stream, function, argument));
}

/* ---- events ------------------------------------------------------------ */

cuda_error cudaEventCreateWithFlags(void **event, unsigned flags)
{
	RT_ENTER(cudaEventCreateWithFlags);
	return rt_result(cuEventCreate(event, flags));
}

cuda_error cudaEventCreate(void **event)
{
	RT_ENTER(cudaEventCreate);
	return rt_result(cuEventCreate(event, 0));
}

cuda_error cudaEventDestroy(void *event)
{
	RT_ENTER(cudaEventDestroy);
	return rt_result(cuEventDestroy_v2(event));
}

cuda_error cudaEventRecord(void *event, void *stream)
{
	RT_ENTER(cudaEventRecord);
	return rt_result(cuEventRecord(event, stream));
}

cuda_error cudaEventRecordWithFlags(void *event, void *stream, unsigned flags)
{
	RT_ENTER(cudaEventRecordWithFlags);
	return rt_result(cuEventRecordWithFlags(event, stream, flags));
}

cuda_error cudaEventQuery(void *event)
{
	RT_INIT(cudaEventQuery);  /* gives no context to a thread that has chosen no device */
	return rt_result(cuEventQuery(event));
}

cuda_error cudaEventSynchronize(void *event)
{
	RT_ENTER(cudaEventSynchronize);
	return rt_result(cuEventSynchronize(event));
}

cuda_error cudaEventElapsedTime(float *milliseconds, void *start, void *end)
{
	RT_ENTER(cudaEventElapsedTime);
	return rt_result(cuEventElapsedTime(milliseconds, start, end));
}

/* ---- captures ------------------------------------------------------------ */

cuda_error cudaStreamBeginCapture(void *stream, int mode)
{
	RT_ENTER(cudaStreamBeginCapture);
	return rt_result(cuStreamBeginCapture_v2(stream, mode));
}

cuda_error cudaStreamEndCapture(void *stream, void **graph)
{
	RT_ENTER(cudaStreamEndCapture);
	return rt_result(cuStreamEndCapture(stream, graph));
}

cuda_error cudaStreamIsCapturing(void *stream, int *status)
{
	RT_ENTER(cudaStreamIsCapturing);
	return rt_result(cuStreamIsCapturing(stream, status));
}

static int capture_info(void *stream, int *status, unsigned long long *id, void **graph, void *const **before,
                        const struct cuda_edge **edges, size_t *count)
{
	uint64_t found = 0;
	int result = cuStreamGetCaptureInfo_v3(stream, status, &found, graph, before, edges, count);
	if (id)
		*id = found;
	return result;
}

#if RUNTIME_MAJOR < 13
cuda_error cudaStreamGetCaptureInfo(void *stream, int *status, unsigned long long *id)
{
	RT_ENTER(cudaStreamGetCaptureInfo);
	return rt_result(capture_info(stream, status, id, NULL, NULL, NULL, NULL));
}

cuda_error cudaStreamGetCaptureInfo_v2(void *stream, int *status, unsigned long long *id, void **graph,
                                       void *const **before, size_t *count)
{
	RT_ENTER(cudaStreamGetCaptureInfo_v2);
	return rt_result(capture_info(stream, status, id, graph, before, NULL, count));
}

cuda_error cudaStreamGetCaptureInfo_v3(void *stream, int *status, unsigned long long *id, void **graph,
                                       void *const **before, const struct cuda_edge **edges, size_t *count)
{
	RT_ENTER(cudaStreamGetCaptureInfo_v3);
	return rt_result(capture_info(stream, status, id, graph, before, edges, count));
}
#else
cuda_error cudaStreamGetCaptureInfo(void *stream, int *status, unsigned long long *id, void **graph,
                                    void *const **before, const struct cuda_edge **edges, size_t *count)
{
	RT_ENTER(cudaStreamGetCaptureInfo);
	return rt_result(capture_info(stream, status, id, graph, before, edges, count));
}
#endif

cuda_error cudaThreadExchangeStreamCaptureMode(int *mode)
{
	RT_ENTER(cudaThreadExchangeStreamCaptureMode);
	return rt_result(cuThreadExchangeStreamCaptureMode(mode));
}

/* ---- graphs ------------------------------------------------------------ */

cuda_error cudaGraphInstantiateWithFlags(void **instance, void *graph, unsigned long long flags)
{
	RT_ENTER(cudaGraphInstantiateWithFlags);
	return rt_result(cuGraphInstantiateWithFlags(instance, graph, flags));
}

#if RUNTIME_MAJOR < 12
cuda_error cudaGraphInstantiate(void **instance, void *graph, void **node, char *log, size_t size)
{
	RT_ENTER(cudaGraphInstantiate);
	return rt_result(cuGraphInstantiate_v2(instance, graph, node, log, size));
}
#else
cuda_error cudaGraphInstantiate(void **instance, void *graph, unsigned long long flags)
{
	RT_ENTER(cudaGraphInstantiate);
	return rt_result(cuGraphInstantiateWithFlags(instance, graph, flags));
}
#endif

cuda_error cudaGraphInstantiateWithParams(void **instance, void *graph, struct cuda_instantiate *params)
{
	RT_ENTER(cudaGraphInstantiateWithParams);
	return rt_result(cuGraphInstantiateWithParams(instance, graph, params));
}

cuda_error cudaGraphUpload(void *instance, void *stream)
{
	RT_ENTER(cudaGraphUpload);
	return rt_result(cuGraphUpload(instance, stream));
}

cuda_error cudaGraphLaunch(void *instance, void *stream)
{
	RT_ENTER(cudaGraphLaunch);
	return rt_result(cuGraphLaunch(instance, stream));
}

cuda_error cudaGraphDestroy(void *graph)
{
	RT_ENTER(cudaGraphDestroy);
	return rt_result(cuGraphDestroy(graph));
}

cuda_error cudaGraphExecDestroy(void *instance)
{
	RT_ENTER(cudaGraphExecDestroy);
	return rt_result(cuGraphExecDestroy(instance));
}

cuda_error cudaGraphGetNodes(void *graph, void **nodes, size_t *count)
{
	RT_ENTER(cudaGraphGetNodes);
	return rt_result(cuGraphGetNodes(graph, nodes, count));
}

cuda_error cudaGraphGetRootNodes(void *graph, void **nodes, size_t *count)
{
	RT_ENTER(cudaGraphGetRootNodes);
	return rt_result(cuGraphGetRootNodes(graph, nodes, count));
}

cuda_error cudaGraphNodeGetType(void *node, int *type)
{
	RT_ENTER(cudaGraphNodeGetType);
	return rt_result(cuGraphNodeGetType(node, type));
}

#if RUNTIME_MAJOR < 13
cuda_error cudaGraphNodeGetDependencies(void *node, void **before, size_t *count)
{
	RT_ENTER(cudaGraphNodeGetDependencies);
	return rt_result(cuGraphNodeGetDependencies(node, before, count));
}

cuda_error cudaGraphNodeGetDependencies_v2(void *node, void **before, struct cuda_edge *edges, size_t *count)
{
	RT_ENTER(cudaGraphNodeGetDependencies_v2);
	return rt_result(cuGraphNodeGetDependencies_v2(node, before, edges, count));
}
#else
cuda_error cudaGraphNodeGetDependencies(void *node, void **before, struct cuda_edge *edges, size_t *count)
{
	RT_ENTER(cudaGraphNodeGetDependencies);
	return rt_result(cuGraphNodeGetDependencies_v2(node, before, edges, count));
}
#endif

cuda_error cudaUserObjectCreate(void **object, void *pointer, rt_host_function *destroy, unsigned references,
                                unsigned flags)
{
	RT_ENTER(cudaUserObjectCreate);
	return rt_result(cuUserObjectCreate(object, pointer, destroy, references, flags));
}

cuda_error cudaUserObjectRetain(void *object, unsigned references)
{
	RT_ENTER(cudaUserObjectRetain);
	return rt_result(cuUserObjectRetain(object, references));
}

cuda_error cudaUserObjectRelease(void *object, unsigned references)
{
	RT_ENTER(cudaUserObjectRelease);
	return rt_result(cuUserObjectRelease(object, references));
}

cuda_error cudaGraphRetainUserObject(void *graph, void *object, unsigned references, unsigned flags)
{
	RT_ENTER(cudaGraphRetainUserObject);
	return rt_result(cuGraphRetainUserObject(graph, object, references, flags));
}

cuda_error cudaGraphReleaseUserObject(void *graph, void *object, unsigned references)
{
	RT_ENTER(cudaGraphReleaseUserObject);
	return rt_result(cuGraphReleaseUserObject(graph, object, references));
}
