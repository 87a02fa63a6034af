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

static const struct {
	cuda_result result;
	const char *name, *text;
} errors[] = {
#define BOTH(value, driver, runtime, text) {value, #driver, text},
#define DRIVER(value, driver, text) {value, #driver, text},
#define RUNTIME(value, runtime, text)
#include "lookalike/lookalike_errors.def"
#undef BOTH
#undef DRIVER
#undef RUNTIME
};

/* The place of a result in the list, or its end. */
static size_t place_of(cuda_result result)
{
	size_t i = 0;
	while (i < sizeof errors / sizeof errors[0] && errors[i].result != result)
		i++;
	return i;
}

cuda_result cuGetErrorName(cuda_result result, const char **name)
{
	LOOK_COUNT(cuGetErrorName);
	LOOK_NEED(name, INVALID_VALUE);
	size_t i = place_of(result);
	*name = i < sizeof errors / sizeof errors[0] ? errors[i].name : NULL;
	return *name ? TRZ_CUDA_SUCCESS : TRZ_CUDA_ERROR_INVALID_VALUE;
}

cuda_result cuGetErrorString(cuda_result result, const char **text)
{
	LOOK_COUNT(cuGetErrorString);
	LOOK_NEED(text, INVALID_VALUE);
	size_t i = place_of(result);
	*text = i < sizeof errors / sizeof errors[0] ? errors[i].text : NULL;
	return *text ? TRZ_CUDA_SUCCESS : TRZ_CUDA_ERROR_INVALID_VALUE;
}
