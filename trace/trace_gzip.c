/* SPDX-License-Identifier: Apache-2.0
 *
 * gzip input, through zlib. A file may hold several members; zeros after the last are padding, as for gzip.
 */
#define ZLIB_CONST
#include <stdlib.h>
#include <zlib.h>

#include "bits.h"
#include "trace_unpack.h"

enum { GZIP_WINDOW = 15 + 16 };  /* the largest window; + 16: with gzip's header, not zlib's own */

struct gzip {
	z_stream stream;
	bool between;  /* no member is open, and at least one has been read */
};

static void *gzip_open(void)
{
	struct gzip *g = calloc(1, sizeof *g);
	if (g && inflateInit2(&g->stream, GZIP_WINDOW) == Z_OK)
		return g;
	free(g);
	return NULL;
}

static void gzip_close(void *state)
{
	struct gzip *g = state;
	inflateEnd(&g->stream);
	free(g);
}

static const char *gzip_wrong(int code)
{
	switch (code) {
	case Z_OK:
	case Z_STREAM_END:
	case Z_BUF_ERROR:  /* zlib could do nothing, which the caller sees */
		return NULL;
	case Z_MEM_ERROR:
		return "cannot be unpacked: no host memory";
	default:
		return UNPACK_DAMAGED;
	}
}

/* Opens the next member if there is one. */
static bool next_member(struct gzip *g, struct codec_io *io)
{
	for (; io->from_size > 0 && *io->from == 0; io->from_size--)
		io->from++;
	if (io->from_size == 0)
		return false;
	g->between = false;
	return inflateReset(&g->stream) == Z_OK;
}

static const char *gzip_step(void *state, struct codec_io *io, bool last, bool *boundary)
{
	(void)last;
	struct gzip *g = state;
	if (g->between && !next_member(g, io))
		return NULL;
	z_stream *s = &g->stream;
	size_t room = min_u64(io->room, UINT32_MAX);
	s->next_in = io->from;
	s->avail_in = (uInt)io->from_size;
	s->next_out = io->to;
	s->avail_out = (uInt)room;
	int code = inflate(s, Z_NO_FLUSH);
	*io = (struct codec_io){ s->next_in, s->avail_in, s->next_out, io->room - (room - s->avail_out) };
	g->between = *boundary = code == Z_STREAM_END;
	return gzip_wrong(code);
}

const struct codec codec_gzip = { "gzip", gzip_open, gzip_close, gzip_step };
