/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests of the line-by-line logs.
 */
#include "trace_log.h"

#include "error.h"

/* CU_STREAM_LEGACY: another name of the default stream. CU_STREAM_PER_THREAD: each thread's own. */
enum { STREAM_LEGACY = 1, STREAM_PER_THREAD = 2 };

/* Keys of threads' own streams: no stream is at such an address. */
#define OF_THREAD ((uint64_t)1 << 63)

struct request {
	uint64_t address;
	uint64_t size;
	uint64_t stream;
};

static trz_status read_request(const struct log_reader *r, struct text pointer, struct text size,
                               struct text stream, struct request *out)
{
	if (!text_pointer(pointer, &out->address))
		return text_bad(&r->line, "its pointer is not an address");
	if (!text_decimal(size, &out->size) || out->size > TRACE_SIZE_MAX)
		return text_bad(&r->line, "its size is not a number from 0 to 2^56");
	if (!text_pointer(stream, &out->stream))
		return text_bad(&r->line, "its stream is not an address");
	if (out->stream == STREAM_LEGACY)
		out->stream = 0;
	if (out->stream == STREAM_PER_THREAD)
		out->stream = OF_THREAD | r->thread;
	return TRZ_OK;
}

trz_status log_alloc(struct log_reader *r, struct text pointer, struct text size, struct text stream)
{
	struct request q;
	trz_status status = read_request(r, pointer, size, stream, &q);
	if (status != TRZ_OK)
		return status;
	if (q.address == 0)
		return q.size == 0 ? TRZ_OK : text_bad(&r->line, "an allocation has no address");
	return history_alloc(&r->history, q.address, q.size, q.stream, 0);
}

trz_status log_free(struct log_reader *r, struct text pointer, struct text size, struct text stream)
{
	struct request q;
	trz_status status = read_request(r, pointer, size, stream, &q);
	if (status != TRZ_OK || q.address == 0)
		return status;
	return history_free(&r->history, q.address, q.stream);
}

trz_status log_failure(struct log_reader *r, struct text pointer, struct text size, struct text stream)
{
	struct request q;
	trz_status status = read_request(r, pointer, size, stream, &q);
	r->history.trace->failed_allocs += status == TRZ_OK;
	return status;
}

trz_status log_read(struct trace_input *in, struct trace *out, trz_status (*read_line)(struct log_reader *r))
{
	struct log_reader r = { .line = { .in = in } };
	bool more = true;
	trz_status status = history_begin(&r.history, in->name, out);
	while (status == TRZ_OK && more) {
		status = text_line(&r.line, &more);
		if (status == TRZ_OK && more)
			status = read_line(&r);
	}
	history_end(&r.history);
	if (status == TRZ_OK && out->allocs == 0)
		status = trz_fail(TRZ_ERROR_BAD_INPUT, "%s: the log holds no allocation", in->name);
	return status;
}
