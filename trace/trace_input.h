/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the trace readers get their bytes: a file, standard input or memory, decoded if compressed, through a
 * window of bounded size, so that a large trace is never held whole.
 */
#ifndef TRZ_TRACE_INPUT_H
#define TRZ_TRACE_INPUT_H

#include <stddef.h>
#include <stdint.h>

#include "terrazzo.h"

/* The most bytes that a reader can ask for at a time. */
enum { INPUT_WINDOW = 1 << 16 };

struct unpacker;

/* Invariant: at <= end; [at, end) are the decoded bytes that have not been taken yet. */
struct trace_input {
	const char *name;
	const uint8_t *at;
	const uint8_t *end;
	uint64_t end_offset;        /* offset of `end` from the start of the decoded bytes */
	int fd;                     /* -1: memory */
	uint8_t *window;            /* INPUT_WINDOW bytes; NULL: memory */
	struct unpacker *unpacker;  /* NULL: the input is not compressed */
};

/* Opens `path` ("-": standard input) and finds out whether it is compressed. Errors: IO, BAD_INPUT (a compression
 * without a decoder), HOST_MEMORY. */
trz_status input_open(struct trace_input *in, const char *path);
void input_open_memory(struct trace_input *in, const char *name, const void *data, size_t size);
void input_close(struct trace_input *in);

/* Tries to have `size` <= INPUT_WINDOW bytes at in->at; fewer are there only at the end. */
trz_status input_fill(struct trace_input *in, size_t size);

/* The slow side of input_need: fills, and fails with BAD_INPUT if the input ends before. */
trz_status input_need_slow(struct trace_input *in, size_t size);

/* Skips `size` bytes. Errors: as input_need. */
trz_status input_skip(struct trace_input *in, uint64_t size);

/* Makes sure of `size` <= INPUT_WINDOW bytes at in->at. Errors: BAD_INPUT (truncated), IO. */
static inline trz_status input_need(struct trace_input *in, size_t size)
{
	if ((size_t)(in->end - in->at) >= size)
		return TRZ_OK;
	return input_need_slow(in, size);
}

static inline uint64_t input_offset(const struct trace_input *in)
{
	return in->end_offset - (uint64_t)(in->end - in->at);
}

/* Little-endian numbers of `size` <= 8 bytes. */
static inline uint64_t load_le(const uint8_t *bytes, size_t size)
{
	uint64_t x = 0;
	for (size_t i = 0; i < size; i++)
		x |= (uint64_t)bytes[i] << (8 * i);
	return x;
}

/* read(2) until `size` bytes are there or the file ends. Errors: IO. */
trz_status input_read_raw(const struct trace_input *in, uint8_t *to, size_t size, size_t *got);

#endif
