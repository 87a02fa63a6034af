/* SPDX-License-Identifier: Apache-2.0
 *
 * The trace in memory, and loading it in the format that the first bytes show.
 */
#include "trace.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "output_file.h"
#include "trace_format.h"

_Static_assert(sizeof(struct trace_event) <= 32, "traces of millions of events are held in memory");

enum {
	PICKLE_PROTO = 0x80,
	SNIFF_BYTES = 512  /* enough for the whole first line of a log */
};

trz_status trace_add(struct trace *trace, const struct trace_event *event)
{
	if (trace->count == trace->capacity) {
		size_t capacity = trace->capacity ? 2 * trace->capacity : 1024;
		struct trace_event *events = realloc(trace->events, capacity * sizeof *events);
		if (!events)
			return trz_fail(TRZ_ERROR_HOST_MEMORY, "no memory for a trace of %zu events", capacity);
		trace->events = events;
		trace->capacity = capacity;
	}
	trace->events[trace->count++] = *event;
	trace->allocs += event->kind == TRACE_ALLOC;
	if (event->stream >= trace->streams)
		trace->streams = event->stream + 1u;
	return TRZ_OK;
}

void trace_free(struct trace *trace)
{
	free(trace->events);
	*trace = (struct trace){ 0 };
}

static trz_status read_any(struct trace_input *in, int device, struct trace *out)
{
	trz_status status = input_fill(in, SNIFF_BYTES);
	if (status != TRZ_OK)
		return status;
	size_t have = (size_t)(in->end - in->at);
	if (have == 0)
		return trz_fail(TRZ_ERROR_BAD_INPUT, "%s: is empty; let the recording finish, or name another file", in->name);
	size_t compare = have < COMPACT_MAGIC_SIZE ? have : COMPACT_MAGIC_SIZE;
	if (memcmp(in->at, COMPACT_MAGIC, compare) == 0)
		return trace_read_compact(in, out);
	if (in->at[0] == PICKLE_PROTO)
		return trace_read_pytorch(in, device, out);
	if (trace_is_rmm((const char *)in->at, have))
		return trace_read_rmm(in, out);
	if (trace_is_stalloc((const char *)in->at, have))
		return trace_read_stalloc(in, out);
	return trz_fail(TRZ_ERROR_BAD_INPUT,
	                "%s: not a trace: it starts neither as a pickle of protocol 2 to 5 (a PyTorch memory "
	                "snapshot), nor as a compact trace, nor as a log of RMM or STAlloc", in->name);
}

static trz_status load(struct trace_input *in, int device, struct trace *out)
{
	*out = (struct trace){ .streams = 1 };
	trz_status status = read_any(in, device, out);
	if (status == TRZ_OK && device != TRACE_ANY_DEVICE && out->device != (uint32_t)device) {
		status = trz_fail(TRZ_ERROR_INVALID_ARGUMENT, "%s: was recorded on device %u, not on device %d",
		                  in->name, out->device, device);
	}
	if (status != TRZ_OK)
		trace_free(out);
	input_close(in);
	return status;
}

trz_status trace_load(const char *path, int device, struct trace *out)
{
	struct trace_input in;
	*out = (struct trace){ 0 };
	trz_status status = input_open(&in, path);
	return status == TRZ_OK ? load(&in, device, out) : status;
}

trz_status trace_load_memory(const char *name, const void *data, size_t size, int device, struct trace *out)
{
	struct trace_input in;
	input_open_memory(&in, name, data, size);
	return load(&in, device, out);
}

trz_status trace_save(const struct trace *trace, const char *path)
{
	struct output o;
	trz_status status = output_begin(&o, path);
	if (status != TRZ_OK)
		return status;
	status = trace_write(trace, o.to);
	return output_end(&o, status == TRZ_ERROR_IO ? TRZ_OK : status);  /* the file knows of that, and has a name */
}
