/* SPDX-License-Identifier: Apache-2.0
 *
 * The compact trace format, version 1.3. Pack it with xz to keep it: the readers unpack it.
 *
 *   bytes    what
 *   8        magic: 89 54 52 5A 0D 0A 1A 0A
 *   1        major version, 1: a reader refuses others
 *   1        minor version, 3: a reader takes any; 2 added launches of graphs, 3 what the host waits for, blocking
 *            streams and work on the default stream
 *   2        H, little-endian: bytes of header that follow
 *   H        device: varint; streams: varint; unknown frees: varint; implied frees: varint; since
 *            1.1: failed allocations: varint; what a newer minor version appends is passed over
 *   ...      records, each:
 *              N: varint, the bytes of the record that follow, 1 to 4096
 *              kind: 1 byte, enum trace_kind; of a newer minor version one of another kind is passed over
 *              fields: up to four varints; fields of value 0 at the end are left out; what a newer minor
 *              version appends is passed over
 *   10 + ... the end record: N, kind 0, then
 *              8 bytes, little-endian: CRC-64 (as in xz) of all bytes before the end record
 *              the number of records before it: varint
 *            and nothing after it.
 *
 * A varint is little-endian base 128: 7 bits a byte, the top bit set on all but the last; at most 10 bytes.
 *
 * Fields by kind:
 *   ALLOC                        stream, size, pool. Its id is the number of ALLOC records before it.
 *   FREE, FREE_COMPLETED,        stream, distance, size, pool. The distance is the number of allocations made
 *   RECORD_STREAM                since the one that is meant: 0 means the newest.
 *   all others                   stream, id, size, pool
 */
#include <errno.h>
#include <lzma.h>
#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "error.h"
#include "trace_format.h"

enum {
	COMPACT_MAJOR = 1,
	COMPACT_MINOR = 3,
	KIND_END = 0,
	VARINT_BYTES_MAX = 10,
	HEADER_FIELDS = 5,
	RECORD_FIELDS = 4,
	RECORD_BYTES_MAX = 4096
};

static bool names_allocation(uint8_t kind)
{
	return kind == TRACE_FREE || kind == TRACE_FREE_COMPLETED || kind == TRACE_RECORD_STREAM;
}

/* -- writing ------------------------------------------------------------------------------------------ */

struct writer {
	FILE *to;
	uint64_t crc;
};

static size_t put_varint(uint8_t *to, uint64_t x)
{
	size_t n = 0;
	for (; x >= 0x80; x >>= 7)
		to[n++] = (uint8_t)x | 0x80;
	to[n++] = (uint8_t)x;
	return n;
}

static void put_le(uint8_t *to, uint64_t x, size_t size)
{
	for (size_t i = 0; i < size; i++)
		to[i] = (uint8_t)(x >> (8 * i));
}

static trz_status put(struct writer *w, const uint8_t *bytes, size_t size)
{
	w->crc = lzma_crc64(bytes, size, w->crc);
	if (fwrite(bytes, 1, size, w->to) != size)
		return trz_fail(TRZ_ERROR_IO, "the trace cannot be written: %s", strerror(errno));
	return TRZ_OK;
}

static trz_status put_header(struct writer *w, const struct trace *trace)
{
	const uint64_t fields[HEADER_FIELDS] = { trace->device, trace->streams, trace->unknown_frees,
	                                         trace->implied_frees, trace->failed_allocs };
	uint8_t bytes[COMPACT_MAGIC_SIZE + 4 + HEADER_FIELDS * VARINT_BYTES_MAX];
	memcpy(bytes, COMPACT_MAGIC, COMPACT_MAGIC_SIZE);
	bytes[8] = COMPACT_MAJOR;
	bytes[9] = COMPACT_MINOR;
	size_t n = 12;
	for (size_t i = 0; i < HEADER_FIELDS; i++)
		n += put_varint(bytes + n, fields[i]);
	put_le(bytes + 10, n - 12, 2);
	return put(w, bytes, n);
}

static trz_status put_event(struct writer *w, const struct trace_event *e, uint32_t allocs)
{
	uint64_t fields[RECORD_FIELDS] = { e->stream, e->id, e->size, e->pool };
	size_t used = RECORD_FIELDS;
	if (e->kind == TRACE_ALLOC) {
		memcpy(fields, (uint64_t[RECORD_FIELDS]){ e->stream, e->size, e->pool, 0 }, sizeof fields);
	} else if (names_allocation(e->kind)) {
		fields[1] = allocs - 1 - e->id;
	}
	while (used > 0 && fields[used - 1] == 0)
		used--;
	uint8_t bytes[2 + RECORD_FIELDS * VARINT_BYTES_MAX];
	size_t n = 2;
	for (size_t i = 0; i < used; i++)
		n += put_varint(bytes + n, fields[i]);
	bytes[0] = (uint8_t)(n - 1);
	bytes[1] = e->kind;
	return put(w, bytes, n);
}

static trz_status put_end(struct writer *w, size_t records)
{
	uint8_t bytes[2 + 8 + VARINT_BYTES_MAX];
	bytes[1] = KIND_END;
	put_le(bytes + 2, w->crc, 8);
	size_t n = 10 + put_varint(bytes + 10, records);
	bytes[0] = (uint8_t)(n - 1);
	return put(w, bytes, n);
}

trz_status trace_write(const struct trace *trace, FILE *to)
{
	struct writer w = { .to = to };
	uint32_t allocs = 0;
	trz_status status = put_header(&w, trace);
	for (size_t i = 0; status == TRZ_OK && i < trace->count; i++) {
		status = put_event(&w, &trace->events[i], allocs);
		allocs += trace->events[i].kind == TRACE_ALLOC;
	}
	if (status == TRZ_OK)
		status = put_end(&w, trace->count);
	if (status == TRZ_OK && fflush(to) != 0)
		status = trz_fail(TRZ_ERROR_IO, "the trace cannot be written: %s", strerror(errno));
	return status;
}

/* -- reading ------------------------------------------------------------------------------------------ */

/* The bytes of a record that have not been read. */
struct span {
	const uint8_t *at;
	const uint8_t *end;
};

struct reader {
	struct trace_input *in;
	struct trace *trace;
	uint64_t crc;
	uint64_t records;
	uint32_t streams;   /* by the header */
	uint8_t minor;
	uint64_t *freed;    /* one bit per allocation */
	size_t freed_words;
};

static trz_status bad(const struct reader *r, const char *what)
{
	return trz_fail(TRZ_ERROR_BAD_INPUT, "%s: byte %llu: %s", r->in->name,
	                (unsigned long long)input_offset(r->in), what);
}

/* An absent field is 0. False: the varint exceeds its record, or 64 bits. */
static bool get_varint(struct span *s, uint64_t *x)
{
	*x = 0;
	if (s->at == s->end)
		return true;
	for (unsigned shift = 0; s->at < s->end && shift < 64; shift += 7) {
		uint8_t byte = *s->at++;
		if (shift == 63 && byte > 1)
			return false;
		*x |= (uint64_t)(byte & 0x7f) << shift;
		if (byte < 0x80)
			return true;
	}
	return false;
}

static trz_status get_fields(const struct reader *r, struct span *s, uint64_t *fields, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (!get_varint(s, &fields[i]))
			return bad(r, "a number does not end inside its record");
	}
	return TRZ_OK;
}

/* Reads `size` bytes and adds them to the checksum. */
static trz_status take(struct reader *r, size_t size, const uint8_t **bytes)
{
	trz_status status = input_need(r->in, size);
	if (status != TRZ_OK)
		return status;
	*bytes = r->in->at;
	r->crc = lzma_crc64(r->in->at, size, r->crc);
	r->in->at += size;
	return TRZ_OK;
}

static trz_status get_header(struct reader *r)
{
	const uint8_t *bytes;
	trz_status status = take(r, COMPACT_MAGIC_SIZE + 4, &bytes);
	if (status != TRZ_OK)
		return status;
	if (bytes[8] != COMPACT_MAJOR) {
		return trz_fail(TRZ_ERROR_BAD_INPUT, "%s: is a compact trace of version %u.%u; only 1.x is read",
		                r->in->name, bytes[8], bytes[9]);
	}
	r->minor = bytes[9];
	size_t size = load_le(bytes + 10, 2);
	status = take(r, size, &bytes);
	if (status != TRZ_OK)
		return status;
	struct span s = { bytes, bytes + size };
	uint64_t fields[HEADER_FIELDS];
	status = get_fields(r, &s, fields, HEADER_FIELDS);
	if (status != TRZ_OK)
		return status;
	if (fields[0] >= TRACE_DEVICES_MAX || fields[1] == 0 || fields[1] > TRACE_STREAMS_MAX)
		return bad(r, "the header names an impossible device, or not 1 to 4096 streams");
	r->trace->device = (uint32_t)fields[0];
	r->streams = (uint32_t)fields[1];
	r->trace->unknown_frees = fields[2];
	r->trace->implied_frees = fields[3];
	r->trace->failed_allocs = fields[4];
	return TRZ_OK;
}

/* Checks that an allocation is live, and frees it if `free_it`. */
static trz_status use_live(struct reader *r, uint32_t id, bool free_it)
{
	size_t word = id / 64;
	uint64_t bit = (uint64_t)1 << (id % 64);
	if (word >= r->freed_words) {
		size_t words = max_u64(64, 2 * word);
		uint64_t *freed = realloc(r->freed, words * sizeof *freed);
		if (!freed)
			return trz_fail(TRZ_ERROR_HOST_MEMORY, "%s: no memory to read it", r->in->name);
		memset(freed + r->freed_words, 0, (words - r->freed_words) * sizeof *freed);
		r->freed = freed;
		r->freed_words = words;
	}
	if (r->freed[word] & bit)
		return bad(r, "the record names an allocation that has been freed before");
	if (free_it)
		r->freed[word] |= bit;
	return TRZ_OK;
}

static trz_status add_event(struct reader *r, uint8_t kind, struct span *s)
{
	uint64_t f[RECORD_FIELDS];
	trz_status status = get_fields(r, s, f, RECORD_FIELDS);
	if (status != TRZ_OK)
		return status;
	if (kind == TRACE_ALLOC)
		memcpy(f, (uint64_t[RECORD_FIELDS]){ f[0], r->trace->allocs, f[1], f[2] }, sizeof f);
	if (names_allocation(kind)) {
		if (f[1] >= r->trace->allocs)
			return bad(r, "the record names an allocation from before the first");
		f[1] = r->trace->allocs - 1 - f[1];
	}
	if (f[0] >= r->streams || f[1] > UINT32_MAX || f[3] > UINT32_MAX)
		return bad(r, "the record's stream, id or pool is out of range");
	if (kind == TRACE_ALLOC && f[2] > TRACE_SIZE_MAX)
		return bad(r, "an allocation is larger than 2^56 bytes");
	struct trace_event event = { .kind = kind, .stream = (uint16_t)f[0], .id = (uint32_t)f[1], .size = f[2],
	                             .pool = (uint32_t)f[3] };
	if (kind == TRACE_FREE || kind == TRACE_RECORD_STREAM)
		status = use_live(r, event.id, kind == TRACE_FREE);
	return status == TRZ_OK ? trace_add(r->trace, &event) : status;
}

static trz_status check_end(struct reader *r, struct span *s, uint64_t crc)
{
	uint64_t records;
	if (s->end - s->at < 8)
		return bad(r, "the end record is too short");
	uint64_t expected = load_le(s->at, 8);
	s->at += 8;
	trz_status status = get_fields(r, s, &records, 1);
	if (status != TRZ_OK)
		return status;
	if (records != r->records || expected != crc)
		return bad(r, "the checksum or the number of records does not match: the trace is damaged");
	status = input_fill(r->in, 1);
	if (status == TRZ_OK && r->in->at != r->in->end)
		status = bad(r, "data follows the end record");
	return status;
}

/* The length before each record: one byte, or two. */
static trz_status get_length(struct reader *r, size_t *length)
{
	const uint8_t *byte;
	*length = 0;
	for (unsigned shift = 0; shift <= 7; shift += 7) {
		trz_status status = take(r, 1, &byte);
		if (status != TRZ_OK)
			return status;
		*length |= (size_t)(*byte & 0x7f) << shift;
		if (*byte < 0x80)
			break;
	}
	if (*byte >= 0x80 || *length == 0 || *length > RECORD_BYTES_MAX)
		return bad(r, "the length of a record is not 1 to 4096");
	return TRZ_OK;
}

static trz_status get_record(struct reader *r, bool *ended)
{
	const uint8_t *bytes;
	size_t length;
	uint64_t crc = r->crc;
	trz_status status = get_length(r, &length);
	if (status == TRZ_OK)
		status = take(r, length, &bytes);
	if (status != TRZ_OK)
		return status;
	struct span s = { bytes + 1, bytes + length };
	*ended = bytes[0] == KIND_END;
	if (*ended)
		return check_end(r, &s, crc);
	r->records++;
	if (bytes[0] >= TRACE_KINDS && r->minor > COMPACT_MINOR)
		return TRZ_OK;
	return bytes[0] < TRACE_KINDS ? add_event(r, bytes[0], &s) : bad(r, "the record's kind does not exist");
}

trz_status trace_read_compact(struct trace_input *in, struct trace *out)
{
	struct reader r = { .in = in, .trace = out };
	bool ended = false;
	trz_status status = get_header(&r);
	while (status == TRZ_OK && !ended)
		status = get_record(&r, &ended);
	out->streams = r.streams;
	free(r.freed);
	return status;
}
