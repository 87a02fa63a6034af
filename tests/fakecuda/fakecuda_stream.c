/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams, events, and the work that streams are given.
 */
#include "fakecuda.h"

enum { STREAM_NON_BLOCKING = 1 };

/* ---- events ------------------------------------------------------------ */

cuda_result cuEventCreate(void **event, unsigned flags)
{
	(void)flags; /* time is never measured here */
	return FAKE_SLOT_HERE(event_create, event);
}

cuda_result cuEventDestroy_v2(void *event)
{
	return FAKE_SLOT_HERE(event_destroy, event);
}

cuda_result cuEventRecord(void *event, void *stream)
{
	return FAKE_SLOT_HERE(event_record, event, stream);
}

cuda_result cuEventQuery(void *event)
{
	return FAKE_SLOT_HERE(event_query, event);
}

cuda_result cuEventSynchronize(void *event)
{
	return FAKE_SLOT_HERE(event_sync, event);
}

/* ---- streams ------------------------------------------------------------ */

cuda_result cuStreamCreate(void **stream, unsigned flags)
{
	return FAKE_SIM_HERE(sim_stream_create, (flags & STREAM_NON_BLOCKING) == 0, stream);
}

cuda_result cuStreamDestroy_v2(void *stream)
{
	return FAKE_SIM_HERE(sim_stream_destroy, stream);
}

cuda_result cuStreamSynchronize(void *stream)
{
	return FAKE_SIM_HERE(sim_stream_sync, stream);
}

cuda_result cuStreamWaitEvent(void *stream, void *event, unsigned flags)
{
	return flags == 0 ? FAKE_SLOT_HERE(stream_wait, stream, event) : TRZ_CUDA_ERROR_INVALID_VALUE;
}

cuda_result cuStreamGetId(void *stream, uint64_t *id)
{
	return FAKE_SLOT_HERE(stream_id, stream, id);
}

cuda_result cuStreamGetCaptureInfo(void *stream, int *capturing, uint64_t *id)
{
	trz_capture_status status = TRZ_CAPTURE_NONE;
	uint64_t capture = 0;
	cuda_result result = FAKE_SLOT_HERE(stream_capture, stream, &status, &capture);
	if (result != TRZ_CUDA_SUCCESS)
		return result;
	*capturing = (int)status;
	if (id)
		*id = capture;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuStreamIsCapturing(void *stream, int *capturing)
{
	return cuStreamGetCaptureInfo(stream, capturing, NULL);
}

cuda_result cuThreadExchangeStreamCaptureMode(int *mode)
{
	trz_capture_mode exchanged = (trz_capture_mode)*mode;
	cuda_result result = FAKE_SLOT(capture_mode, &exchanged);
	if (result == TRZ_CUDA_SUCCESS)
		*mode = (int)exchanged;
	return result;
}

/* ---- work ------------------------------------------------------------ */

cuda_result cuMemsetD8Async(cuda_addr address, unsigned char value, size_t size, void *stream)
{
	return FAKE_SIM_HERE(sim_fill, stream, address, size, value);
}

cuda_result cuMemcpyDtoHAsync_v2(void *to, cuda_addr from, size_t size, void *stream)
{
	return FAKE_SIM_HERE(sim_copy, stream, (uintptr_t)to, from, size);
}

cuda_result cuMemcpyHtoDAsync_v2(cuda_addr to, const void *from, size_t size, void *stream)
{
	return FAKE_SIM_HERE(sim_copy, stream, to, (uintptr_t)from, size);
}

cuda_result cuLaunchHostFunc(void *stream, void (*function)(void *), void *argument)
{
	return FAKE_SIM_HERE(sim_host, stream, function, argument);
}
