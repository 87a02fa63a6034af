/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of compressed formats, and the loop that feeds a decoder.
 */
#include "trace_unpack.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "trace_input.h"

/* Formats by their first bytes; those without a decoder have a remedy for the user instead. */
static const struct compression {
	const char *magic;
	size_t size;
	const struct codec *codec;
	const char *remedy;
} compressions[] = {
	{ "\xfd" "7zXZ\0", 6, &codec_xz, NULL },
	{ "\x1f\x8b", 2, &codec_gzip, NULL },
	{ "\x28\xb5\x2f\xfd", 4, &codec_zstd, NULL },
	{ "BZh", 3, NULL, "compressed by bzip2, which is not read; unpack it first (bzip2 -d)" },
	{ "PK\x03\x04", 4, NULL, "a zip archive, which is not read; unpack it first (unzip)" },
};

struct unpacker {
	const struct codec *codec;
	void *state;
	const uint8_t *next;     /* [next, next + size) of `raw` has not been decoded */
	size_t size;
	uint64_t taken;          /* compressed bytes decoded so far */
	bool ended;              /* there is nothing more to read */
	bool boundary;
	uint8_t raw[INPUT_WINDOW];
};

trz_status unpack_sniff(const char *name, const uint8_t *seen, size_t size, const struct codec **codec)
{
	*codec = NULL;
	for (size_t i = 0; i < sizeof compressions / sizeof compressions[0]; i++) {
		const struct compression *c = &compressions[i];
		if (size < c->size || memcmp(seen, c->magic, c->size) != 0)
			continue;
		if (c->remedy)
			return trz_fail(TRZ_ERROR_BAD_INPUT, "%s: is %s", name, c->remedy);
		*codec = c->codec;
		break;
	}
	return TRZ_OK;
}

trz_status unpack_open(const struct codec *codec, const uint8_t *seen, size_t size, struct unpacker **out)
{
	struct unpacker *u = calloc(1, sizeof *u);
	void *state = u ? codec->open() : NULL;
	if (!state) {
		free(u);
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "no memory for the %s decoder", codec->name);
	}
	memcpy(u->raw, seen, size);
	u->codec = codec;
	u->state = state;
	u->next = u->raw;
	u->size = size;
	*out = u;
	return TRZ_OK;
}

void unpack_close(struct unpacker *u)
{
	if (!u)
		return;
	u->codec->close(u->state);
	free(u);
}

static trz_status refill(struct unpacker *u, const struct trace_input *in)
{
	trz_status status = input_read_raw(in, u->raw, sizeof u->raw, &u->size);
	u->next = u->raw;
	u->ended = u->size == 0;
	return status;
}

/* One step of the decoder; *stuck: it consumed and produced nothing. */
static const char *step(struct unpacker *u, struct codec_io *io, bool *stuck)
{
	struct codec_io before = *io;
	const char *wrong = u->codec->step(u->state, io, u->ended, &u->boundary);
	u->next = io->from;
	u->size = io->from_size;
	u->taken += before.from_size - io->from_size;
	*stuck = before.from_size == io->from_size && before.room == io->room;
	return wrong;
}

trz_status unpack_read(struct unpacker *u, const struct trace_input *in, uint8_t *to, size_t room,
                       size_t *got)
{
	struct codec_io io = { .to = to, .room = room };
	bool stuck = false;
	while (io.room > 0 && !(u->ended && u->boundary)) {
		trz_status status = u->size == 0 && !u->ended ? refill(u, in) : TRZ_OK;
		if (status != TRZ_OK)
			return status;
		io.from = u->next;
		io.from_size = u->size;
		const char *wrong = step(u, &io, &stuck);
		if (!wrong && u->ended && stuck && !u->boundary)
			wrong = UNPACK_TRUNCATED;
		if (wrong) {
			return trz_fail(TRZ_ERROR_BAD_INPUT, "%s: at byte %llu the %s stream %s", in->name,
			                (unsigned long long)u->taken, u->codec->name, wrong);
		}
	}
	*got = room - io.room;
	return TRZ_OK;
}
