/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads traces from memory.
 */
#include "load_copy.h"

#include <stdlib.h>

#include "testing.h"

trz_status load_copy(const void *bytes, size_t size, int device, struct trace *trace)
{
	uint8_t *copy = malloc(size ? size : 1);
	memcpy(copy, bytes, size);
	trz_status status = trace_load_memory("test", copy, size, device, trace);
	free(copy);
	return status;
}

void assert_refused(const void *bytes, size_t size, const char *text)
{
	struct trace trace;
	assert_error(load_copy(bytes, size, TRACE_ANY_DEVICE, &trace), TRZ_ERROR_BAD_INPUT, text);
	assert_null(trace.events);
}
