/* SPDX-License-Identifier: Apache-2.0
 *
 * terrazzo, as a CUDA program uses it: libterrazzo.so over the machine's driver.
 */
#include "bench_peer.h"

#include <stdio.h>

#include "terrazzo.h"

static trz_heap *heap;

static int open_heap(const char *options)
{
	const trz_open_params params = {.config = *options ? options : NULL};
	if (trz_open(&params, &heap) == TRZ_OK) {
		trz_hold_reports(1);
		return 0;
	}
	fprintf(stderr, "terrazzo: %s\n", trz_last_error());
	return -1;
}

static void close_heap(void)
{
	trz_close(heap);
}

static void *take(size_t size, void *stream)
{
	void *pointer;
	return trz_alloc(heap, size, 0, stream, &pointer) == TRZ_OK ? pointer : NULL;
}

static void give(void *pointer, size_t size, void *own, void *last)
{
	(void)size;
	if (own == last)
		trz_free(heap, pointer);
	else
		trz_free_on(heap, pointer, last);
}

static void record_stream(void *pointer, void *stream)
{
	trz_record_stream(heap, pointer, stream);
}

static void empty_cache(void)
{
	size_t returned;
	trz_trim(heap, 0, &returned);
}

static uint64_t record_begin(void *event, void *stream)
{
	return trz_event_record_begin(heap, event, stream);
}

static void record_end(void *event, void *stream, uint64_t token, int done)
{
	trz_event_record_end(heap, event, stream, token, done);
}

static uint64_t wait_begin(void *stream, void *event)
{
	return trz_stream_wait_begin(heap, stream, event);
}

static void wait_end(void *stream, void *event, uint64_t token, int done)
{
	trz_stream_wait_end(heap, stream, event, token, done);
}

static uint64_t metadata(void)
{
	uint64_t bytes = 0;
	trz_stat(heap, "metadata_bytes", &bytes);
	return bytes;
}

const struct peer bench_peer = {
	.open = open_heap,
	.close = close_heap,
	.alloc = take,
	.free = give,
	.record_stream = record_stream,
	.empty_cache = empty_cache,
	.record_begin = record_begin,
	.record_end = record_end,
	.wait_begin = wait_begin,
	.wait_end = wait_end,
	.metadata = metadata,
};
