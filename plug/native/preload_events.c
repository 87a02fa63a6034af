/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver's calls that concern events, with reports to the heaps around them. All records come through here, except
 * those that graphs and launches make, whose events are foreign (event_order.h).
 */
#include "event_order.h"
#include "native.h"
#include "preload.h"

enum { INTERPROCESS = 4 };  /* CU_EVENT_INTERPROCESS */

/* CUlaunchConfig */
struct preload_launch {
	unsigned grid[3], block[3], shared;
	void *stream;
	const struct event_order_attribute *attributes;
	unsigned attribute_count;
};

cuda_result cuEventCreate(void **event, unsigned flags)
{
	ENTER(cuEventCreate);
	cuda_result result = REAL(cuEventCreate)(event, flags);
	if (result == TRZ_CUDA_SUCCESS)
		event_order_forget(*event);
	if (result == TRZ_CUDA_SUCCESS && flags & INTERPROCESS)
		event_order_make_foreign(*event);
	return result;
}

cuda_result cuIpcOpenEventHandle(void **event, struct preload_ipc handle)
{
	ENTER(cuIpcOpenEventHandle);
	cuda_result result = REAL(cuIpcOpenEventHandle)(event, handle);
	if (result == TRZ_CUDA_SUCCESS)
		event_order_make_foreign(*event);
	return result;
}

cuda_result cuEventDestroy(void *event)
{
	ENTER(cuEventDestroy);
	event_order_forget(event);
	return REAL(cuEventDestroy)(event);
}

cuda_result cuEventDestroy_v2(void *event)
{
	ENTER(cuEventDestroy_v2);
	event_order_forget(event);
	return REAL(cuEventDestroy_v2)(event);
}

cuda_result cuEventRecord(void *event, void *stream)
{
	ENTER(cuEventRecord);
	return event_order_record(REAL(cuEventRecord), event, stream, stream);
}

cuda_result cuEventRecord_ptsz(void *event, void *stream)
{
	ENTER(cuEventRecord_ptsz);
	return event_order_record(REAL(cuEventRecord_ptsz), event, stream, preload_of_thread(stream));
}

cuda_result cuEventRecordWithFlags(void *event, void *stream, unsigned flags)
{
	ENTER(cuEventRecordWithFlags);
	return event_order_record_with(REAL(cuEventRecordWithFlags), event, stream, flags, stream);
}

cuda_result cuEventRecordWithFlags_ptsz(void *event, void *stream, unsigned flags)
{
	ENTER(cuEventRecordWithFlags_ptsz);
	return event_order_record_with(REAL(cuEventRecordWithFlags_ptsz), event, stream, flags, preload_of_thread(stream));
}

/* These events stand for all streams of a context, which the heaps cannot use. */
cuda_result cuCtxRecordEvent(void *context, void *event)
{
	ENTER(cuCtxRecordEvent);
	event_order_make_foreign(event);
	return REAL(cuCtxRecordEvent)(context, event);
}

cuda_result cuGreenCtxRecordEvent(void *context, void *event)
{
	ENTER(cuGreenCtxRecordEvent);
	event_order_make_foreign(event);
	return REAL(cuGreenCtxRecordEvent)(context, event);
}

cuda_result cuStreamWaitEvent(void *stream, void *event, unsigned flags)
{
	ENTER(cuStreamWaitEvent);
	return event_order_wait(REAL(cuStreamWaitEvent), stream, event, flags, stream, NULL);
}

cuda_result cuStreamWaitEvent_ptsz(void *stream, void *event, unsigned flags)
{
	ENTER(cuStreamWaitEvent_ptsz);
	return event_order_wait(REAL(cuStreamWaitEvent_ptsz), stream, event, flags, preload_of_thread(stream), NULL);
}

/* ---- waits by the host ---- */

cuda_result cuEventQuery(void *event)
{
	ENTER(cuEventQuery);
	return event_order_finish(REAL(cuEventQuery), event, NULL);
}

cuda_result cuEventSynchronize(void *event)
{
	ENTER(cuEventSynchronize);
	return event_order_finish(REAL(cuEventSynchronize), event, NULL);
}

cuda_result cuStreamQuery(void *stream)
{
	ENTER(cuStreamQuery);
	return event_order_finish_stream(REAL(cuStreamQuery), stream, stream);
}

cuda_result cuStreamQuery_ptsz(void *stream)
{
	ENTER(cuStreamQuery_ptsz);
	return event_order_finish_stream(REAL(cuStreamQuery_ptsz), stream, preload_of_thread(stream));
}

cuda_result cuStreamSynchronize(void *stream)
{
	ENTER(cuStreamSynchronize);
	return event_order_finish_stream(REAL(cuStreamSynchronize), stream, stream);
}

cuda_result cuStreamSynchronize_ptsz(void *stream)
{
	ENTER(cuStreamSynchronize_ptsz);
	return event_order_finish_stream(REAL(cuStreamSynchronize_ptsz), stream, preload_of_thread(stream));
}

static void *current_context(void)
{
	void *context = NULL;
	if (!event_order_is_reporting() || native_driver.cuCtxGetCurrent(&context) != TRZ_CUDA_SUCCESS)
		return NULL;
	return context;
}

cuda_result cuCtxSynchronize(void)
{
	ENTER(cuCtxSynchronize);
	return event_order_finish_all(REAL(cuCtxSynchronize), current_context());
}

cuda_result cuCtxSynchronize_v2(void *context)
{
	ENTER(cuCtxSynchronize_v2);
	return REAL(cuCtxSynchronize_v2)(context);
}

/* ---- what else records events ---- */

cuda_result cuGraphAddEventRecordNode(void **node, void *graph, const void *dependencies, size_t count, void *event)
{
	ENTER(cuGraphAddEventRecordNode);
	event_order_make_foreign(event);
	return REAL(cuGraphAddEventRecordNode)(node, graph, dependencies, count, event);
}

cuda_result cuGraphEventRecordNodeSetEvent(void *node, void *event)
{
	ENTER(cuGraphEventRecordNodeSetEvent);
	event_order_make_foreign(event);
	return REAL(cuGraphEventRecordNodeSetEvent)(node, event);
}

cuda_result cuGraphExecEventRecordNodeSetEvent(void *exec, void *node, void *event)
{
	ENTER(cuGraphExecEventRecordNodeSetEvent);
	event_order_make_foreign(event);
	return REAL(cuGraphExecEventRecordNodeSetEvent)(exec, node, event);
}

cuda_result cuGraphAddNode(void *made, void *graph, void *dependencies, size_t count, struct event_order_node *node)
{
	ENTER(cuGraphAddNode);
	event_order_note_node(node);
	return REAL(cuGraphAddNode)(made, graph, dependencies, count, node);
}

cuda_result cuGraphAddNode_v2(void *made, void *graph, void *dependencies, void *edges, size_t count,
                              struct event_order_node *node)
{
	ENTER(cuGraphAddNode_v2);
	event_order_note_node(node);
	return REAL(cuGraphAddNode_v2)(made, graph, dependencies, edges, count, node);
}

cuda_result cuGraphNodeSetParams(void *made, struct event_order_node *node)
{
	ENTER(cuGraphNodeSetParams);
	event_order_note_node(node);
	return REAL(cuGraphNodeSetParams)(made, node);
}

cuda_result cuGraphExecNodeSetParams(void *exec, void *made, struct event_order_node *node)
{
	ENTER(cuGraphExecNodeSetParams);
	event_order_note_node(node);
	return REAL(cuGraphExecNodeSetParams)(exec, made, node);
}

cuda_result cuLaunchKernelEx(const struct preload_launch *launch, void *function, void **parameters, void **extra)
{
	ENTER(cuLaunchKernelEx);
	if (launch)
		event_order_note_attributes(launch->attributes, launch->attribute_count);
	return REAL(cuLaunchKernelEx)(launch, function, parameters, extra);
}

cuda_result cuLaunchKernelEx_ptsz(const struct preload_launch *launch, void *function, void **parameters, void **extra)
{
	ENTER(cuLaunchKernelEx_ptsz);
	if (launch)
		event_order_note_attributes(launch->attributes, launch->attribute_count);
	return REAL(cuLaunchKernelEx_ptsz)(launch, function, parameters, extra);
}
