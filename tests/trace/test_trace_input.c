/* SPDX-License-Identifier: Apache-2.0
 *
 * Files as input: plain and packed, larger than the reader's window, damaged, or of a compression that it does not
 * read.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

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

static size_t pack_xz(const uint8_t *bytes, size_t size, uint8_t **packed)
{
	size_t used = 0, room = lzma_stream_buffer_bound(size);
	*packed = malloc(room);
	assert_int_equal(lzma_easy_buffer_encode(0, LZMA_CHECK_CRC32, NULL, bytes, size, *packed, &used, room),
	                 LZMA_OK);
	return used;
}

static size_t pack_gzip(const uint8_t *bytes, size_t size, uint8_t **packed)
{
	z_stream s = { 0 };
	assert_int_equal(deflateInit2(&s, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
	size_t room = deflateBound(&s, size);
	*packed = malloc(room);
	s.next_in = (Bytef *)(uintptr_t)bytes;
	s.avail_in = (uInt)size;
	s.next_out = *packed;
	s.avail_out = (uInt)room;
	assert_int_equal(deflate(&s, Z_FINISH), Z_STREAM_END);
	size_t used = s.total_out;
	deflateEnd(&s);
	return used;
}

static size_t pack_zstd(const uint8_t *bytes, size_t size, uint8_t **packed)
{
	ZSTD_CCtx *c = ZSTD_createCCtx();
	size_t room = ZSTD_compressBound(size);
	*packed = malloc(room);
	ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1);
	size_t used = ZSTD_compress2(c, *packed, room, bytes, size);
	assert_false(ZSTD_isError(used));
	ZSTD_freeCCtx(c);
	return used;
}

static const struct packer {
	const char *name;
	size_t (*pack)(const uint8_t *bytes, size_t size, uint8_t **packed);
} packers[] = { { "xz", pack_xz }, { "gzip", pack_gzip }, { "zstd", pack_zstd } };
enum { PACKERS = sizeof packers / sizeof packers[0] };

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

static void plain_and_packed(void **state)
{
	(void)state;
	uint8_t *bytes, *packed;
	size_t size = write_trace(&bytes);
	assert_true(size > 2 * INPUT_WINDOW);
	write_file(bytes, size);
	assert_loads();
	for (int i = 0; i < PACKERS; i++) {
		size_t packed_size = packers[i].pack(bytes, size, &packed);
		write_file(packed, packed_size);
		assert_loads();
		free(packed);
	}
	free(bytes);
}

/* Two packed streams one after the other are one input. */
static void packed_in_parts(void **state)
{
	(void)state;
	uint8_t *bytes;
	size_t size = write_trace(&bytes);
	for (int i = 0; i < PACKERS; i++) {
		uint8_t *first, *second;
		size_t half = packers[i].pack(bytes, size / 2, &first);
		size_t rest = packers[i].pack(bytes + size / 2, size - size / 2, &second);
		uint8_t *both = malloc(half + rest);
		memcpy(both, first, half);
		memcpy(both + half, second, rest);
		write_file(both, half + rest);
		assert_loads();
		write_file(both, half);
		assert_refused("truncated");
		both[half] ^= 0x55;
		write_file(both, half + rest);
		assert_refused("stream is damaged");
		free(both);
		free(second);
		free(first);
	}
	free(bytes);
}

static void gzip_padding(void **state)
{
	(void)state;
	uint8_t *bytes, *packed;
	size_t size = write_trace(&bytes);
	size_t packed_size = pack_gzip(bytes, size, &packed);
	uint8_t *padded = calloc(1, packed_size + INPUT_WINDOW);
	memcpy(padded, packed, packed_size);
	write_file(padded, packed_size + INPUT_WINDOW);
	assert_loads();
	free(padded);
	free(packed);
	free(bytes);
}

static void damaged(void **state)
{
	(void)state;
	uint8_t *bytes, *packed;
	size_t plain_size = write_trace(&bytes);
	for (int i = 0; i < PACKERS; i++) {
		char text[64];
		size_t size = packers[i].pack(bytes, plain_size, &packed);
		snprintf(text, sizeof text, "%s stream is truncated", packers[i].name);
		for (size_t cut = 8; cut < size; cut += size / 50) {
			write_file(packed, cut);
			assert_refused(text);
		}
		packed[size / 2] ^= 1;
		write_file(packed, size);
		assert_int_not_equal(trace_load(path, TRACE_ANY_DEVICE, &(struct trace){ 0 }), TRZ_OK);
		free(packed);
	}
	free(bytes);
}

/* What would take too much memory to unpack has a remedy. */
static void too_large_a_window(void **state)
{
	(void)state;
	uint8_t packed[256];
	ZSTD_CCtx *c = ZSTD_createCCtx();
	ZSTD_CCtx_setParameter(c, ZSTD_c_windowLog, 28);
	ZSTD_outBuffer out = { packed, sizeof packed, 0 };
	ZSTD_inBuffer in = { "some text", 9, 0 };
	ZSTD_compressStream2(c, &out, &in, ZSTD_e_flush);
	assert_int_equal(ZSTD_compressStream2(c, &out, &in, ZSTD_e_end), 0);
	ZSTD_freeCCtx(c);
	write_file(packed, out.pos);
	assert_refused("zstd --long=27");
}

static void other_compressions(void **state)
{
	(void)state;
	write_file("BZh9\x31\x41\x59\x26", 8);
	assert_refused("bzip2 -d");
	write_file("PK\x03\x04\x14\x00\x00\x00", 8);
	assert_refused("unzip");
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
		cmocka_unit_test(plain_and_packed),
		cmocka_unit_test(packed_in_parts),
		cmocka_unit_test(gzip_padding),
		cmocka_unit_test(damaged),
		cmocka_unit_test(too_large_a_window),
		cmocka_unit_test(other_compressions),
		cmocka_unit_test(skips_and_offsets),
	};
	return cmocka_run_group_tests(tests, make_file, remove_file);
}
