/* SPDX-License-Identifier: Apache-2.0
 *
 * Compressed input: which formats there are, and the loop around their decoders. Private to trace/.
 */
#ifndef TRZ_TRACE_UNPACK_H
#define TRZ_TRACE_UNPACK_H

#include <stddef.h>
#include <stdint.h>

#include "terrazzo.h"

struct trace_input;

/* A decoder's input and output; the decoder advances both. */
struct codec_io {
	const uint8_t *from;
	size_t from_size;
	uint8_t *to;
	size_t room;
};

/* One compressed format. A file may hold several compressed streams, one after the other. */
struct codec {
	const char *name;
	void *(*open)(void);  /* NULL: no host memory */
	void (*close)(void *state);
	/* Decodes a part. `last`: nothing comes after io->from. *boundary: the input may end here. Returns NULL, or what is
	 * wrong with the input, as the rest of a sentence about it. */
	const char *(*step)(void *state, struct codec_io *io, bool last, bool *boundary);
};

/* Texts that decoders share. */
#define UNPACK_TRUNCATED "is truncated; copy or pack it again"
#define UNPACK_DAMAGED "is damaged; copy or pack it again"

extern const struct codec codec_xz;    /* trace_xz.c, through liblzma */
extern const struct codec codec_gzip;  /* trace_gzip.c, through zlib */
extern const struct codec codec_zstd;  /* trace_zstd.c, through libzstd */

/* Finds out whether input that starts with the bytes `seen` is compressed: *codec is NULL if not. Errors:
 * BAD_INPUT (a compression without a decoder). */
trz_status unpack_sniff(const char *name, const uint8_t *seen, size_t size, const struct codec **codec);

struct unpacker;

/* A decoder whose first compressed bytes are `seen`. Errors: HOST_MEMORY. */
trz_status unpack_open(const struct codec *codec, const uint8_t *seen, size_t size, struct unpacker **out);
void unpack_close(struct unpacker *u);

/* Decodes up to `room` bytes; fewer only at the end. Errors: BAD_INPUT (damaged, truncated), IO. */
trz_status unpack_read(struct unpacker *u, const struct trace_input *in, uint8_t *to, size_t room,
                       size_t *got);

#endif
