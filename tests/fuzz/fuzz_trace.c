/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz harness: any bytes as a trace. A trace that loads must survive being written and read again.
 */
#include "corpus_main.h"

#include <stdlib.h>

#include "trace.h"

static void require(bool condition)
{
	if (!condition)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct trace trace, again;
	if (trace_load_memory("input", data, size, TRACE_ANY_DEVICE, &trace) != TRZ_OK) {
		require(trace.events == NULL);
		return 0;
	}
	char *bytes;
	size_t length;
	FILE *to = open_memstream(&bytes, &length);
	require(to && trace_write(&trace, to) == TRZ_OK && fclose(to) == 0);
	require(trace_load_memory("again", bytes, length, TRACE_ANY_DEVICE, &again) == TRZ_OK);
	require(again.count == trace.count && again.allocs == trace.allocs && again.streams == trace.streams);
	trace_free(&again);
	trace_free(&trace);
	free(bytes);
	return 0;
}
