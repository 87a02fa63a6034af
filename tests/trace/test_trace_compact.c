/* SPDX-License-Identifier: Apache-2.0
 *
 * Unit tests of the compact trace format: round trip, damage, other minor versions.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>
#include <lzma.h>

#include "load_copy.h"
#include "prng.h"
#include "trace.h"

struct image {
	char *bytes;
	size_t size;
};

static struct image write_image(const struct trace *trace)
{
	struct image image;
	FILE *to = open_memstream(&image.bytes, &image.size);
	assert_non_null(to);
	assert_int_equal(trace_write(trace, to), TRZ_OK);
	assert_int_equal(fclose(to), 0);
	return image;
}

static void add(struct trace *trace, struct trace_event event)
{
	assert_int_equal(trace_add(trace, &event), TRZ_OK);
}

/* One event of every kind. */
static struct trace every_kind(void)
{
	struct trace t = { .device = 3, .streams = 1, .unknown_frees = 5, .implied_frees = 300,
	                   .failed_allocs = 77 };
	add(&t, (struct trace_event){ .kind = TRACE_POOL_BEGIN, .pool = 2, .stream = 1 });
	add(&t, (struct trace_event){ .kind = TRACE_ALLOC, .id = 0, .size = 1 << 30, .pool = 2, .stream = 1 });
	add(&t, (struct trace_event){ .kind = TRACE_POOL_END, .pool = 2, .stream = 1 });
	add(&t, (struct trace_event){ .kind = TRACE_ALLOC, .id = 1, .size = 0 });
	add(&t, (struct trace_event){ .kind = TRACE_RECORD_STREAM, .id = 0, .stream = 4000 });
	add(&t, (struct trace_event){ .kind = TRACE_EVENT_RECORD, .id = 7, .stream = 1 });
	add(&t, (struct trace_event){ .kind = TRACE_STREAM_WAIT, .id = 7, .stream = 2 });
	add(&t, (struct trace_event){ .kind = TRACE_CAPTURE_BEGIN, .id = 1, .stream = 2, .pool = 2 });
	add(&t, (struct trace_event){ .kind = TRACE_CAPTURE_END, .id = 1, .stream = 2 });
	add(&t, (struct trace_event){ .kind = TRACE_FREE, .id = 0, .stream = 1 });
	add(&t, (struct trace_event){ .kind = TRACE_FREE_COMPLETED, .id = 0, .stream = 1 });
	add(&t, (struct trace_event){ .kind = TRACE_POOL_RELEASE, .pool = 2 });
	add(&t, (struct trace_event){ .kind = TRACE_MARKER, .id = UINT32_MAX });
	add(&t, (struct trace_event){ .kind = TRACE_GRAPH_LAUNCH, .id = 1 });
	add(&t, (struct trace_event){ .kind = TRACE_STREAM_BLOCKING, .stream = 3 });
	add(&t, (struct trace_event){ .kind = TRACE_DEFAULT_WORK });
	add(&t, (struct trace_event){ .kind = TRACE_STREAM_SYNC, .stream = 3 });
	add(&t, (struct trace_event){ .kind = TRACE_EVENT_SYNC, .id = 7 });
	add(&t, (struct trace_event){ .kind = TRACE_DEVICE_SYNC });
	return t;
}

static void assert_same(const struct trace *a, const struct trace *b)
{
	assert_int_equal(a->count, b->count);
	assert_int_equal(a->allocs, b->allocs);
	assert_int_equal(a->streams, b->streams);
	assert_int_equal(a->device, b->device);
	assert_int_equal(a->unknown_frees, b->unknown_frees);
	assert_int_equal(a->implied_frees, b->implied_frees);
	assert_int_equal(a->failed_allocs, b->failed_allocs);
	for (size_t i = 0; i < a->count; i++) {
		assert_int_equal(a->events[i].kind, b->events[i].kind);
		assert_int_equal(a->events[i].id, b->events[i].id);
		assert_int_equal(a->events[i].size, b->events[i].size);
		assert_int_equal(a->events[i].stream, b->events[i].stream);
		assert_int_equal(a->events[i].pool, b->events[i].pool);
	}
}

static void assert_round_trip(struct trace *trace)
{
	struct image image = write_image(trace);
	struct trace again;
	assert_int_equal(load_copy(image.bytes, image.size, TRACE_ANY_DEVICE, &again), TRZ_OK);
	assert_same(trace, &again);
	trace_free(&again);
	free(image.bytes);
}

static void every_kind_round_trips(void **state)
{
	(void)state;
	struct trace trace = every_kind();
	assert_round_trip(&trace);
	trace_free(&trace);
	struct trace empty = { .streams = 1 };
	assert_round_trip(&empty);
}

static void random_traces_round_trip(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 20; seed++) {
		uint64_t rng = seed;
		struct trace trace = { .streams = 1 };
		uint32_t live[1000], count = 0;
		for (int i = 0; i < 2000; i++) {
			uint16_t stream = (uint16_t)prng_below(&rng, 5);
			if (count > 0 && (count == 1000 || prng_below(&rng, 2) == 0)) {
				uint32_t which = (uint32_t)prng_below(&rng, count);
				add(&trace, (struct trace_event){ .kind = TRACE_FREE, .id = live[which], .stream = stream });
				live[which] = live[--count];
			} else {
				live[count++] = trace.allocs;
				add(&trace, (struct trace_event){ .kind = TRACE_ALLOC, .id = trace.allocs, .stream = stream,
				                                  .size = prng_below(&rng, TRACE_SIZE_MAX) >> prng_below(&rng, 57) });
			}
		}
		assert_round_trip(&trace);
		trace_free(&trace);
	}
}

/* The bytes that the head of trace_compact.c documents. */
static void bytes_are_as_documented(void **state)
{
	(void)state;
	struct trace trace = { .streams = 1 };
	add(&trace, (struct trace_event){ .kind = TRACE_ALLOC, .size = 300 });
	add(&trace, (struct trace_event){ .kind = TRACE_FREE });
	static const uint8_t expected[] = { 0x89, 'T', 'R', 'Z', '\r', '\n', 0x1a, '\n', 1, 3, 5, 0, 0, 1, 0, 0,
	                                    0, 4, TRACE_ALLOC, 0, 0xac, 2, 1, TRACE_FREE };
	struct image image = write_image(&trace);
	assert_int_equal(image.size, sizeof expected + 11);
	assert_memory_equal(image.bytes, expected, sizeof expected);
	const uint8_t *end = (const uint8_t *)image.bytes + sizeof expected;
	assert_int_equal(end[0], 10);
	assert_int_equal(end[1], 0);
	uint64_t crc = lzma_crc64(expected, sizeof expected, 0);
	for (int i = 0; i < 8; i++)
		assert_int_equal(end[2 + i], (crc >> (8 * i)) & 255);
	assert_int_equal(end[10], 2);
	free(image.bytes);
	trace_free(&trace);
}

static void every_truncation_is_noticed(void **state)
{
	(void)state;
	struct trace trace = every_kind();
	struct image image = write_image(&trace);
	for (size_t size = 1; size < image.size; size++)
		assert_refused(image.bytes, size, "truncated");
	free(image.bytes);
	trace_free(&trace);
}

static void every_flipped_bit_is_noticed(void **state)
{
	(void)state;
	struct trace trace = every_kind();
	struct image image = write_image(&trace);
	/* A newer minor version is no error: the byte at 9 is left out. */
	for (size_t bit = 0; bit < 8 * image.size; bit++) {
		if (bit / 8 == 9)
			continue;
		image.bytes[bit / 8] = (char)(image.bytes[bit / 8] ^ 1 << (bit % 8));
		assert_refused(image.bytes, image.size, "test: ");
		image.bytes[bit / 8] = (char)(image.bytes[bit / 8] ^ 1 << (bit % 8));
	}
	free(image.bytes);
	trace_free(&trace);
}

/* Completes hand-made records with their end record. */
static size_t seal(uint8_t *bytes, size_t size, uint8_t records)
{
	uint64_t crc = lzma_crc64(bytes, size, 0);
	bytes[size] = 10;
	bytes[size + 1] = 0;
	for (int i = 0; i < 8; i++)
		bytes[size + 2 + (size_t)i] = (uint8_t)(crc >> (8 * i));
	bytes[size + 10] = records;
	return size + 11;
}

#define HEADER "\x89TRZ\r\n\x1a\n\x01\x00\x04\x00\x00\x02\x00\x00"

static void newer_minor_versions_are_read(void **state)
{
	(void)state;
	static const char records[] = "\x89TRZ\r\n\x1a\n\x01\x07\x06\x00\x00\x02\x00\x00\x63\x63"
	                              "\x07\x01\x00\x05\x00\x00\x63\x63" /* ALLOC with unknown fields */
	                              "\x04\x63zzz"                      /* an unknown kind */
	                              "\x81\x00\x02";                    /* FREE, its length in two bytes */
	uint8_t bytes[128];
	memcpy(bytes, records, sizeof records - 1);
	size_t size = seal(bytes, sizeof records - 1, 3);
	struct trace trace;
	assert_int_equal(load_copy(bytes, size, TRACE_ANY_DEVICE, &trace), TRZ_OK);
	assert_int_equal(trace.count, 2);
	assert_int_equal(trace.events[0].size, 5);
	assert_int_equal(trace.events[1].kind, TRACE_FREE);
	assert_int_equal(trace.failed_allocs, 0x63);
	trace_free(&trace);
	bytes[8] = 2;
	assert_refused(bytes, size, "version 2.7; only 1.x");
}

/* Version 1.0 had a shorter header. */
static void older_minor_versions_are_read(void **state)
{
	(void)state;
	uint8_t bytes[128] = HEADER "\x03\x01\x01\x05";
	size_t size = seal(bytes, sizeof HEADER - 1 + 4, 1);
	struct trace trace;
	assert_int_equal(load_copy(bytes, size, TRACE_ANY_DEVICE, &trace), TRZ_OK);
	assert_int_equal(trace.count, 1);
	assert_int_equal(trace.events[0].size, 5);
	assert_int_equal(trace.streams, 2);
	assert_int_equal(trace.failed_allocs, 0);
	trace_free(&trace);
}

static void impossible_records_are_refused(void **state)
{
	(void)state;
#define CASE(literal, count, text) { HEADER literal, sizeof(HEADER literal) - 1, count, text }
	static const struct {
		const char *bytes;
		size_t size;
		uint8_t records;
		const char *text;
	} cases[] = {
		CASE("\x01\x02", 1, "from before the first"),
		CASE("\x01\x01\x03\x02\x00\x01", 2, "from before the first"),
		CASE("\x01\x01\x01\x02\x01\x02", 3, "has been freed before"),
		CASE("\x01\x01\x01\x02\x01\x04", 3, "has been freed before"),
		CASE("\x02\x01\x02", 1, "stream, id or pool is out of range"),
		CASE("\x09\x0c\x00\xff\xff\xff\xff\xff\xff\xff", 1, "does not end inside its record"),
		CASE("\x0c\x01\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 1, "does not end inside its record"),
		CASE("\x0b\x01\x00\x81\x80\x80\x80\x80\x80\x80\x80\x01", 1, "larger than 2^56 bytes"),
		CASE("\x01\x13", 1, "kind does not exist"),
		CASE("\x01\xff", 1, "kind does not exist"),
		CASE("\x00", 0, "length of a record"),
		CASE("\x81\x20", 0, "length of a record"),
		CASE("\xff\xff\x01", 0, "length of a record"),
		CASE("\x02\x00\x00", 0, "end record is too short"),
		CASE("", 1, "does not match"),
	};
#undef CASE
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		uint8_t bytes[128];
		memcpy(bytes, cases[i].bytes, cases[i].size);
		assert_refused(bytes, seal(bytes, cases[i].size, cases[i].records), cases[i].text);
	}
	uint8_t bytes[128] = HEADER;
	size_t size = seal(bytes, sizeof HEADER - 1, 0);
	bytes[size] = 'x';
	assert_refused(bytes, size + 1, "follows the end record");
	memcpy(bytes + 12, "\x00\x00", 2);
	assert_refused(bytes, size, "impossible device, or not 1 to 4096 streams");
	memcpy(bytes + 12, "\x80\x08\x01", 3);  /* device 1024 */
	assert_refused(bytes, size, "impossible device, or not 1 to 4096 streams");
}

/* A file may grow no further here, as on a full disk: what was there stays. */
static void assert_no_room(const struct trace *trace, const char *path)
{
	struct rlimit before, none;
	struct trace again;
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	none = (struct rlimit){ 8, before.rlim_max };
	void (*usual)(int) = signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
	assert_int_equal(trace_save(trace, path), TRZ_ERROR_IO);
	assert_non_null(strstr(trz_last_error(), "cannot be written: File too large"));
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	signal(SIGXFSZ, usual);
	assert_int_equal(trace_load(path, TRACE_ANY_DEVICE, &again), TRZ_OK);
	assert_same(trace, &again);
	trace_free(&again);
}

static void files(void **state)
{
	(void)state;
	char folder[] = "/tmp/trace_compactXXXXXX";
	assert_non_null(mkdtemp(folder));
	char path[64];
	snprintf(path, sizeof path, "%s/a.trace", folder);
	struct trace trace = every_kind(), again;
	assert_int_equal(trace_save(&trace, path), TRZ_OK);
	assert_int_equal(trace_load(path, TRACE_ANY_DEVICE, &again), TRZ_OK);
	assert_same(&trace, &again);
	trace_free(&again);
	assert_int_equal(trace_load(path, 3, &again), TRZ_OK);
	trace_free(&again);
	assert_int_equal(trace_load(path, 0, &again), TRZ_ERROR_INVALID_ARGUMENT);
	assert_no_room(&trace, path);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(trace_load(path, TRACE_ANY_DEVICE, &again), TRZ_ERROR_IO);
	assert_int_equal(rmdir(folder), 0);
	assert_int_equal(trace_save(&trace, path), TRZ_ERROR_IO);
	assert_int_equal(trace_save(&trace, "/dev/full"), TRZ_ERROR_IO);
	assert_int_equal(access("/dev/full", F_OK), 0);
	trace_free(&trace);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_kind_round_trips),
		cmocka_unit_test(random_traces_round_trip),
		cmocka_unit_test(bytes_are_as_documented),
		cmocka_unit_test(every_truncation_is_noticed),
		cmocka_unit_test(every_flipped_bit_is_noticed),
		cmocka_unit_test(newer_minor_versions_are_read),
		cmocka_unit_test(older_minor_versions_are_read),
		cmocka_unit_test(impossible_records_are_refused),
		cmocka_unit_test(files),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
