/* SPDX-License-Identifier: Apache-2.0
 *
 * Files as input: plain and xz, larger than the reader's window, damaged, of a compression that is not read.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <lzma.h>

#include "prng.h"
#include "trace.h"
#include "trace_input.h"

enum { ALLOCS = 30000 };

static char path[] = "/tmp/trace_inputXXXXXX";

static void write_file(const void *bytes, size_t size)
{
	FILE *to = fopen(path, "wb");
	assert_non_null(to);
	assert_int_equal(fwrite(bytes, 1, size, to), size);
	assert_int_equal(fclose(to), 0);
}

/* A compact trace of some 200 KiB, sizes at random. */
static size_t write_trace(uint8_t **bytes)
{
	struct trace trace = { .streams = 1 };
	uint64_t rng = 1;
	for (uint32_t i = 0; i < ALLOCS; i++) {
		struct trace_event event = { .kind = TRACE_ALLOC, .id = i, .size = prng_below(&rng, 1 << 30) };
		assert_int_equal(trace_add(&trace, &event), TRZ_OK);
	}
	char *image;
	size_t size;
	FILE *to = open_memstream(&image, &size);
	assert_int_equal(trace_write(&trace, to), TRZ_OK);
	assert_int_equal(fclose(to), 0);
	trace_free(&trace);
	*bytes = (uint8_t *)image;
	return size;
}

static size_t compress(const uint8_t *bytes, size_t size, uint8_t **packed)
{
	size_t used = 0, room = lzma_stream_buffer_bound(size);
	*packed = malloc(room);
	assert_int_equal(lzma_easy_buffer_encode(0, LZMA_CHECK_CRC32, NULL, bytes, size, *packed, &used, room),
	                 LZMA_OK);
	return used;
}

static void assert_loads(void)
{
	struct trace trace;
	assert_int_equal(trace_load(path, TRACE_ANY_DEVICE, &trace), TRZ_OK);
	assert_int_equal(trace.allocs, ALLOCS);
	trace_free(&trace);
}

static void assert_refused(const char *text)
{
	struct trace trace;
	assert_int_equal(trace_load(path, TRACE_ANY_DEVICE, &trace), TRZ_ERROR_BAD_INPUT);
	if (!strstr(trz_last_error(), text))
		fail_msg("'%s' does not say '%s'", trz_last_error(), text);
}

static void plain_and_xz(void **state)
{
	(void)state;
	uint8_t *bytes, *packed;
	size_t size = write_trace(&bytes);
	assert_true(size > 2 * INPUT_WINDOW);
	write_file(bytes, size);
	assert_loads();
	size_t packed_size = compress(bytes, size, &packed);
	write_file(packed, packed_size);
	assert_loads();

	/* Two xz streams one after the other are one input. */
	uint8_t *second;
	free(packed);
	size_t half = compress(bytes, size / 2, &packed);
	size_t rest = compress(bytes + size / 2, size - size / 2, &second);
	uint8_t *both = malloc(half + rest);
	memcpy(both, packed, half);
	memcpy(both + half, second, rest);
	write_file(both, half + rest);
	assert_loads();
	free(both);
	free(second);
	free(packed);
	free(bytes);
}

static void damaged_xz(void **state)
{
	(void)state;
	uint8_t *bytes, *packed;
	size_t plain_size = write_trace(&bytes);
	size_t size = compress(bytes, plain_size, &packed);
	for (size_t cut = 8; cut < size; cut += size / 50) {
		write_file(packed, cut);
		assert_refused("xz stream is truncated");
	}
	packed[size / 2] ^= 1;
	write_file(packed, size);
	assert_refused("xz stream is damaged");
	free(packed);
	free(bytes);
}

static void other_compressions(void **state)
{
	(void)state;
	write_file("\x1f\x8b\x08\x00\x00\x00\x00\x00", 8);
	assert_refused("gzip -d");
	write_file("\x28\xb5\x2f\xfd\x00\x00\x00\x00", 8);
	assert_refused("zstd -d");
	write_file("", 0);
	assert_refused("is empty");
}

static void skips_and_offsets(void **state)
{
	(void)state;
	struct trace_input in;
	uint8_t *bytes;
	size_t size = write_trace(&bytes);
	write_file(bytes, size);
	assert_int_equal(input_open(&in, path), TRZ_OK);
	for (uint64_t at = 0; at + INPUT_WINDOW < size; at += 12345) {
		assert_int_equal(input_offset(&in), at);
		assert_int_equal(input_need(&in, 1000), TRZ_OK);
		assert_memory_equal(in.at, bytes + at, 1000);
		assert_int_equal(input_skip(&in, 12345), TRZ_OK);
	}
	assert_int_equal(input_skip(&in, UINT64_MAX), TRZ_ERROR_BAD_INPUT);
	input_close(&in);
	free(bytes);
}

static int make_file(void **state)
{
	(void)state;
	int fd = mkstemp(path);
	return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state)
{
	(void)state;
	return unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plain_and_xz),
		cmocka_unit_test(damaged_xz),
		cmocka_unit_test(other_compressions),
		cmocka_unit_test(skips_and_offsets),
	};
	return cmocka_run_group_tests(tests, make_file, remove_file);
}
