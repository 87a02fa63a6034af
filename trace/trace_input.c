/* SPDX-License-Identifier: Apache-2.0
 *
 * Input of the trace readers: opens, sniffs the compression, keeps the window filled.
 */
#include "trace_input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bits.h"
#include "error.h"
#include "trace_unpack.h"

trz_status input_read_raw(const struct trace_input *in, uint8_t *to, size_t size, size_t *got)
{
	size_t have = 0;
	while (have < size) {
		ssize_t n = read(in->fd, to + have, size - have);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return trz_fail(TRZ_ERROR_IO, "%s: cannot be read: %s", in->name, strerror(errno));
		if (n == 0)
			break;
		have += (size_t)n;
	}
	*got = have;
	return TRZ_OK;
}

/* The window's first bytes decide; they then belong to the decoder. */
static trz_status sniff_compression(struct trace_input *in)
{
	trz_status status = input_fill(in, 8);
	if (status != TRZ_OK)
		return status;
	size_t have = (size_t)(in->end - in->at);
	const struct codec *codec;
	status = unpack_sniff(in->name, in->at, have, &codec);
	if (status != TRZ_OK || !codec)
		return status;
	status = unpack_open(codec, in->at, have, &in->unpacker);
	in->at = in->end = in->window;
	in->end_offset = 0;
	return status;
}

trz_status input_open(struct trace_input *in, const char *path)
{
	bool standard = strcmp(path, "-") == 0;
	*in = (struct trace_input){ .name = standard ? "standard input" : *path ? path : "''", .fd = -1 };
	in->fd = standard ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
	if (in->fd < 0)
		return trz_fail(TRZ_ERROR_IO, "%s: cannot be opened: %s", in->name, strerror(errno));
	in->window = malloc(INPUT_WINDOW);
	in->at = in->end = in->window;
	trz_status status = in->window ? sniff_compression(in)
	                               : trz_fail(TRZ_ERROR_HOST_MEMORY, "%s: no memory to read it", in->name);
	if (status != TRZ_OK)
		input_close(in);
	return status;
}

void input_open_memory(struct trace_input *in, const char *name, const void *data, size_t size)
{
	const uint8_t *bytes = data;
	*in = (struct trace_input){ .name = name, .at = bytes, .end = bytes, .fd = -1 };
	if (size > 0)
		in->end += size;
	in->end_offset = size;
}

void input_close(struct trace_input *in)
{
	if (in->fd >= 0)
		close(in->fd);
	unpack_close(in->unpacker);
	free(in->window);
	*in = (struct trace_input){ .fd = -1 };
}

trz_status input_fill(struct trace_input *in, size_t size)
{
	size_t have = (size_t)(in->end - in->at);
	if (have >= size || !in->window)
		return TRZ_OK;
	if (have > 0)
		memmove(in->window, in->at, have);
	size_t got = 0;
	uint8_t *to = in->window + have;
	trz_status status = in->unpacker ? unpack_read(in->unpacker, in, to, INPUT_WINDOW - have, &got)
	                                 : input_read_raw(in, to, INPUT_WINDOW - have, &got);
	in->at = in->window;
	in->end = to + got;
	in->end_offset += got;
	return status;
}

static trz_status fail_truncated(const struct trace_input *in, uint64_t at, uint64_t needed, uint64_t left)
{
	return trz_fail(TRZ_ERROR_BAD_INPUT,
	                "%s: byte %llu: truncated: %llu bytes are needed, %llu are left; copy or record it again",
	                in->name, (unsigned long long)at, (unsigned long long)needed, (unsigned long long)left);
}

trz_status input_need_slow(struct trace_input *in, size_t size)
{
	trz_status status = input_fill(in, size);
	if (status != TRZ_OK)
		return status;
	if ((size_t)(in->end - in->at) < size)
		return fail_truncated(in, input_offset(in), size, (size_t)(in->end - in->at));
	return TRZ_OK;
}

trz_status input_skip(struct trace_input *in, uint64_t size)
{
	uint64_t start = input_offset(in);
	uint64_t left = size;
	while (left > 0) {
		trz_status status = input_fill(in, 1);
		if (status != TRZ_OK)
			return status;
		uint64_t step = min_u64(left, (uint64_t)(in->end - in->at));
		if (step == 0)
			return fail_truncated(in, start, size, size - left);
		in->at += step;
		left -= step;
	}
	return TRZ_OK;
}
