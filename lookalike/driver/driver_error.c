/* SPDX-License-Identifier: Apache-2.0
 *
 * Results: which result a status of the simulator becomes, and the names and texts of results.
 */
#include "driver_lookalike.h"

#include <stdio.h>
#include <stdlib.h>

cuda_result look_result(trz_status status)
{
	if (__atomic_load_n(&look.violated, __ATOMIC_RELAXED) && look.abort_on_violation) {
		look_report_write(true);
		abort();
	}
	if (status == TRZ_OK)
		return TRZ_CUDA_SUCCESS;
	if (status == TRZ_NOT_READY)
		return TRZ_CUDA_ERROR_NOT_READY;
	if (sim_result(look.sim))
		return sim_result(look.sim);
	switch (status) {
	case TRZ_ERROR_OUT_OF_MEMORY:
	case TRZ_ERROR_HOST_MEMORY:
	case TRZ_ERROR_ADDRESS_SPACE:
		return TRZ_CUDA_ERROR_OUT_OF_MEMORY;
	case TRZ_ERROR_INVALID_ARGUMENT:
	case TRZ_ERROR_ALIGNMENT:
	case TRZ_ERROR_IN_USE:
	case TRZ_ERROR_WRONG_DEVICE:
		return TRZ_CUDA_ERROR_INVALID_VALUE;
	case TRZ_ERROR_NO_DEVICE:
		return TRZ_CUDA_ERROR_INVALID_DEVICE;
	case TRZ_ERROR_NOT_SUPPORTED:
		return TRZ_CUDA_ERROR_NOT_SUPPORTED;
	case TRZ_ERROR_CONTEXT_DEAD:
		return TRZ_CUDA_ERROR_ILLEGAL_ADDRESS;
	case TRZ_ERROR_CAPTURE:
		return TRZ_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	case TRZ_ERROR_NOT_PERMITTED:
		return TRZ_CUDA_ERROR_NOT_PERMITTED;
	case TRZ_ERROR_SHUTDOWN:
		return TRZ_CUDA_ERROR_DEINITIALIZED;
	default:
		return TRZ_CUDA_ERROR_UNKNOWN;
	}
}

cuda_result cuGetErrorName(cuda_result result, const char **name)
{
	LOOK_COUNT(cuGetErrorName);
	LOOK_NEED(name, INVALID_VALUE);
	switch (result) {
#define RESULT_NAME(constant, value) \
	case TRZ_##constant:             \
		*name = #constant;           \
		return TRZ_CUDA_SUCCESS;
		CUDA_ABI_RESULTS(RESULT_NAME)
		DRIVER_ABI_RESULTS(RESULT_NAME)
#undef RESULT_NAME
	default:
		*name = NULL;
		return TRZ_CUDA_ERROR_INVALID_VALUE;
	}
}

/* The driver's own text for results whose text programs look for; for others the name. */
cuda_result cuGetErrorString(cuda_result result, const char **text)
{
	static const struct {
		cuda_result result;
		const char *text;
	} texts[] = {
		{TRZ_CUDA_SUCCESS, "no error"},
		{TRZ_CUDA_ERROR_INVALID_VALUE, "invalid argument"},
		{TRZ_CUDA_ERROR_OUT_OF_MEMORY, "out of memory"},
		{TRZ_CUDA_ERROR_NOT_INITIALIZED, "initialization error"},
		{TRZ_CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"},
		{TRZ_CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"},
		{TRZ_CUDA_ERROR_INVALID_CONTEXT, "invalid device context"},
		{TRZ_CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"},
		{TRZ_CUDA_ERROR_NOT_FOUND, "named symbol not found"},
		{TRZ_CUDA_ERROR_NOT_READY, "device not ready"},
		{TRZ_CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"},
		{TRZ_CUDA_ERROR_NOT_SUPPORTED, "operation not supported"},
		{TRZ_CUDA_ERROR_NOT_PERMITTED, "operation not permitted"},
		{TRZ_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"},
		{TRZ_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture"},
		{TRZ_CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled"},
		{TRZ_CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access has not been enabled"},
		{TRZ_CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "part or all of the requested memory range is already mapped"},
		{TRZ_CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "pointer does not correspond to a registered memory region"},
		{TRZ_CUDA_ERROR_UNKNOWN, "unknown error"},
	};
	LOOK_COUNT(cuGetErrorString);
	LOOK_NEED(text, INVALID_VALUE);
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
		if (texts[i].result == result) {
			*text = texts[i].text;
			return TRZ_CUDA_SUCCESS;
		}
	return cuGetErrorName(result, text);
}
