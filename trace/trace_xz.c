/* SPDX-License-Identifier: Apache-2.0
 *
 * xz input, through liblzma.
 */
#include <lzma.h>
#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "error.h"
#include "trace_input.h"

/* Enough for `xz -9`, which needs 65 MiB. */
#define XZ_MEMORY_MAX MIB(256)

struct xz_decoder {
	lzma_stream stream;
	bool done;
	uint8_t raw[INPUT_WINDOW];  /* compressed bytes; stream.next_in points into it */
};

trz_status xz_open(const uint8_t *seen, size_t size, struct xz_decoder **out)
{
	struct xz_decoder *xz = calloc(1, sizeof *xz);
	if (!xz)
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "no memory for the xz decoder");
	xz->stream = (lzma_stream)LZMA_STREAM_INIT;
	if (lzma_stream_decoder(&xz->stream, XZ_MEMORY_MAX, LZMA_CONCATENATED) != LZMA_OK) {
		free(xz);
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "no memory for the xz decoder");
	}
	memcpy(xz->raw, seen, size);
	xz->stream.next_in = xz->raw;
	xz->stream.avail_in = size;
	*out = xz;
	return TRZ_OK;
}

void xz_close(struct xz_decoder *xz)
{
	if (!xz)
		return;
	lzma_end(&xz->stream);
	free(xz);
}

static const char *xz_reason(lzma_ret code)
{
	switch (code) {
	case LZMA_BUF_ERROR:
		return "is truncated";
	case LZMA_MEMLIMIT_ERROR:
		return "needs more than 256 MiB to unpack; pack it again with a smaller dictionary (xz -9 at most)";
	case LZMA_MEM_ERROR:
		return "cannot be unpacked: no host memory";
	case LZMA_OPTIONS_ERROR:
		return "uses an xz filter that liblzma does not have";
	default:
		return "is damaged";
	}
}

trz_status xz_read(struct xz_decoder *xz, const struct trace_input *in, uint8_t *to, size_t room, size_t *got)
{
	lzma_stream *s = &xz->stream;
	s->next_out = to;
	s->avail_out = room;
	while (s->avail_out > 0 && !xz->done) {
		if (s->avail_in == 0) {
			size_t have = 0;
			trz_status status = input_read_raw(in, xz->raw, sizeof xz->raw, &have);
			if (status != TRZ_OK)
				return status;
			s->next_in = xz->raw;
			s->avail_in = have;
		}
		lzma_ret code = lzma_code(s, s->avail_in == 0 ? LZMA_FINISH : LZMA_RUN);
		xz->done = code == LZMA_STREAM_END;
		if (code != LZMA_OK && code != LZMA_STREAM_END) {
			return trz_fail(TRZ_ERROR_BAD_INPUT, "%s: the xz stream %s (at byte %llu of it)", in->name,
			                xz_reason(code), (unsigned long long)s->total_in);
		}
	}
	*got = room - s->avail_out;
	return TRZ_OK;
}
