/* SPDX-License-Identifier: Apache-2.0
 *
 * xz input, through liblzma.
 */
#include <lzma.h>
#include <stdlib.h>

#include "bits.h"
#include "trace_unpack.h"

/* Enough for `xz -9`, which needs 65 MiB. */
#define XZ_MEMORY_MAX MIB(256)

static void *xz_open(void)
{
	lzma_stream *s = malloc(sizeof *s);
	if (!s)
		return NULL;
	*s = (lzma_stream)LZMA_STREAM_INIT;
	if (lzma_stream_decoder(s, XZ_MEMORY_MAX, LZMA_CONCATENATED) == LZMA_OK)
		return s;
	free(s);
	return NULL;
}

static void xz_close(void *state)
{
	lzma_end(state);
	free(state);
}

static const char *xz_wrong(lzma_ret code)
{
	switch (code) {
	case LZMA_OK:
	case LZMA_STREAM_END:
		return NULL;
	case LZMA_BUF_ERROR:
		return UNPACK_TRUNCATED;
	case LZMA_MEMLIMIT_ERROR:
		return "needs more than 256 MiB to unpack; pack it again with a smaller dictionary (xz -9 at most)";
	case LZMA_MEM_ERROR:
		return "cannot be unpacked: no host memory";
	case LZMA_OPTIONS_ERROR:
		return "uses an xz filter that liblzma does not have";
	default:
		return UNPACK_DAMAGED;
	}
}

static const char *xz_step(void *state, struct codec_io *io, bool last, bool *boundary)
{
	lzma_stream *s = state;
	s->next_in = io->from;
	s->avail_in = io->from_size;
	s->next_out = io->to;
	s->avail_out = io->room;
	lzma_ret code = lzma_code(s, last ? LZMA_FINISH : LZMA_RUN);
	*io = (struct codec_io){ s->next_in, s->avail_in, s->next_out, s->avail_out };
	*boundary = code == LZMA_STREAM_END;
	return xz_wrong(code);
}

const struct codec codec_xz = { "xz", xz_open, xz_close, xz_step };
