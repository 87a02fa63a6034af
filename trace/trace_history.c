/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers a history's memory, streams and pools.
 */
#include "trace_history.h"

#include "error.h"

/* The dense index of a key: a new key gets the next one. */
static trz_status dense(struct trace_map *map, uint64_t key, uint32_t *index)
{
	if (map_get(map, key, index))
		return TRZ_OK;
	*index = (uint32_t)map->count;
	return map_set(map, key, *index);
}

trz_status history_stream(struct history *h, uint64_t key, uint16_t *stream)
{
	uint32_t index;
	trz_status status = dense(&h->streams, key, &index);
	if (status != TRZ_OK)
		return status;
	if (index >= TRACE_STREAMS_MAX)
		return trz_fail(TRZ_ERROR_BAD_INPUT, "%s: has more than %d streams", h->name, TRACE_STREAMS_MAX);
	*stream = (uint16_t)index;
	return TRZ_OK;
}

trz_status history_pool(struct history *h, uint64_t key, uint32_t *pool)
{
	return dense(&h->pools, key, pool);
}

trz_status history_begin(struct history *h, const char *name, struct trace *trace)
{
	uint32_t index;
	*h = (struct history){ .name = name, .trace = trace };
	trz_status status = dense(&h->streams, 0, &index);
	return status == TRZ_OK ? dense(&h->pools, 0, &index) : status;
}

void history_end(struct history *h)
{
	map_free(&h->live);
	map_free(&h->streams);
	map_free(&h->pools);
}

static trz_status add_free(struct history *h, uint64_t address, uint32_t alloc, uint16_t stream)
{
	struct trace_event event = { .kind = TRACE_FREE, .id = h->trace->events[alloc].id, .stream = stream };
	map_remove(&h->live, address);
	return trace_add(h->trace, &event);
}

trz_status history_alloc(struct history *h, uint64_t address, uint64_t size, uint64_t stream, uint64_t pool)
{
	struct trace *trace = h->trace;
	struct trace_event event = { .kind = TRACE_ALLOC, .id = trace->allocs, .size = size };
	trz_status status = history_stream(h, stream, &event.stream);
	if (status == TRZ_OK)
		status = history_pool(h, pool, &event.pool);
	uint32_t lost;
	if (status == TRZ_OK && map_get(&h->live, address, &lost)) {
		trace->implied_frees++;
		status = add_free(h, address, lost, trace->events[lost].stream);
	}
	if (status == TRZ_OK && trace->count == UINT32_MAX)
		status = trz_fail(TRZ_ERROR_BAD_INPUT, "%s: has more than 2^32 - 1 events", h->name);
	if (status == TRZ_OK)
		status = map_set(&h->live, address, (uint32_t)trace->count);
	return status == TRZ_OK ? trace_add(trace, &event) : status;
}

trz_status history_free(struct history *h, uint64_t address, uint64_t stream)
{
	uint32_t alloc;
	uint16_t index = 0;
	if (!map_get(&h->live, address, &alloc)) {
		h->trace->unknown_frees++;
		return TRZ_OK;
	}
	trz_status status = history_stream(h, stream, &index);
	return status == TRZ_OK ? add_free(h, address, alloc, index) : status;
}

trz_status history_marker(struct history *h, uint32_t id)
{
	h->marker = id;
	return trace_add(h->trace, &(struct trace_event){ .kind = TRACE_MARKER, .id = id });
}

trz_status history_free_own(struct history *h, uint64_t address)
{
	uint32_t alloc;
	if (map_get(&h->live, address, &alloc))
		return add_free(h, address, alloc, h->trace->events[alloc].stream);
	h->trace->unknown_frees++;
	return TRZ_OK;
}

trz_status history_use(struct history *h, uint64_t address, uint64_t stream)
{
	uint32_t alloc;
	struct trace_event event = { .kind = TRACE_RECORD_STREAM };
	if (!map_get(&h->live, address, &alloc))
		return TRZ_OK;
	event.id = h->trace->events[alloc].id;
	trz_status status = history_stream(h, stream, &event.stream);
	return status == TRZ_OK ? trace_add(h->trace, &event) : status;
}
