/* SPDX-License-Identifier: Apache-2.0
 *
 * zstd input, through libzstd, which passes from one frame to the next by itself.
 */
#include <stdlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "trace_unpack.h"

static void *zstd_open(void)
{
	return ZSTD_createDStream();
}

static void zstd_close(void *state)
{
	ZSTD_freeDStream(state);
}

static const char *zstd_wrong(size_t code)
{
	switch (ZSTD_getErrorCode(code)) {
	case ZSTD_error_no_error:
		return NULL;
	case ZSTD_error_frameParameter_windowTooLarge:
		return "needs more than 128 MiB to unpack; pack it again with a smaller window "
		       "(zstd --long=27 at most)";
	case ZSTD_error_memory_allocation:
		return "cannot be unpacked: no host memory";
	case ZSTD_error_dictionary_wrong:
		return "was packed with a dictionary, which is not read; pack it again without";
	default:
		return UNPACK_DAMAGED;
	}
}

static const char *zstd_step(void *state, struct codec_io *io, bool last, bool *boundary)
{
	/* After a frame the decoder would wait for another: without input left there is none. */
	if (*boundary && last)
		return NULL;
	ZSTD_inBuffer in = { io->from, io->from_size, 0 };
	ZSTD_outBuffer out = { io->to, io->room, 0 };
	size_t code = ZSTD_decompressStream(state, &out, &in);
	*io = (struct codec_io){ io->from + in.pos, io->from_size - in.pos, io->to + out.pos,
	                         io->room - out.pos };
	*boundary = code == 0;
	return zstd_wrong(code);
}

const struct codec codec_zstd = { "zstd", zstd_open, zstd_close, zstd_step };
