/* SPDX-License-Identifier: Apache-2.0
 *
 * All lives and all ranges of addresses, as packed columns of numbers: from them the page draws its map at any scale,
 * and tells which allocation lies under the pointer. For a million events they take a few megabytes.
 *
 * Numbers have 32 bits, little-endian. Addresses and times are differences from the row before; they and sizes take
 * two columns, low and high. Of lives: address, size, begin, released - begin, end - released, site, tag, stream. Of
 * ranges, including those without memory: address, size, begin, end, kind (enum page_range_kind). Then the times of
 * states 0 .. count + 1 in microseconds, if there are times.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "bits.h"
#include "error.h"
#include "page.h"

enum { LIFE_COLUMNS = 10, RANGE_COLUMNS = 7, TIME_COLUMNS = 2 };

struct columns {
	unsigned char *bytes;
	size_t used;
};

static void put(struct columns *c, uint64_t value)
{
	for (int i = 0; i < 4; i++)
		c->bytes[c->used++] = (unsigned char)(value >> 8 * i);
}

/* ---- lives ------------------------------------------------------------------------------------------------ */

static uint64_t of_life(const struct page_history *h, size_t i, int column)
{
	const struct page_life *l = &h->lives[i];
	uint64_t step = l->address - (i ? l[-1].address : 0);
	const uint64_t row[LIFE_COLUMNS] = { step, step >> 32, l->size, l->size >> 32, l->begin, l->released - l->begin,
		                                 l->end - l->released, h->site_of[l->stack], l->tag, l->stream };
	return row[column];
}

/* ---- ranges ----------------------------------------------------------------------------------------------- */

static bool comes_first(const struct page_range *a, const struct page_range *b)
{
	return a->address < b->address || (a->address == b->address && a->begin < b->begin);
}

/* Ranges and gaps in one, by address and time. */
static const struct page_range **merge(const struct page_history *h)
{
	size_t count = h->range_count + h->gap_count, a = 0, b = 0;
	const struct page_range **rows = calloc(count + 1, sizeof *rows);
	for (size_t i = 0; rows && i < count; i++) {
		bool gap = a == h->range_count || (b < h->gap_count && comes_first(&h->gaps[b], &h->ranges[a]));
		rows[i] = gap ? &h->gaps[b++] : &h->ranges[a++];
	}
	return rows;
}

static uint64_t of_range(const struct page_range *const *rows, size_t i, int column)
{
	const struct page_range *r = rows[i];
	uint64_t step = r->address - (i ? rows[i - 1]->address : 0);
	const uint64_t row[RANGE_COLUMNS] = { step, step >> 32, r->size, r->size >> 32, r->begin, r->end, r->kind };
	return row[column];
}

/* ---- times ------------------------------------------------------------------------------------------------ */

/* The time of a state; the last is when the last state ends. */
static uint64_t of_time(const struct page_history *h, size_t i, int column)
{
	uint64_t now = (uint64_t)(h->place[i] * 1e6 + 0.5), before = i ? (uint64_t)(h->place[i - 1] * 1e6 + 0.5) : 0;
	return (now - before) >> 32 * column;
}

/* ---- writing ---------------------------------------------------------------------------------------------- */

static trz_status fill(struct columns *c, const struct page_history *h, size_t times)
{
	const struct page_range **rows = merge(h);
	if (!rows)
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "no host memory for a map");
	for (int column = 0; column < LIFE_COLUMNS; column++)
		for (size_t i = 0; i < h->life_count; i++)
			put(c, of_life(h, i, column));
	for (int column = 0; column < RANGE_COLUMNS; column++)
		for (size_t i = 0; i < h->range_count + h->gap_count; i++)
			put(c, of_range(rows, i, column));
	for (int column = 0; column < TIME_COLUMNS; column++)
		for (size_t i = 0; i < times; i++)
			put(c, of_time(h, i, column));
	free(rows);
	return TRZ_OK;
}

/* Packs by zlib, quickly rather than well; browsers unpack it. */
static trz_status put_packed(struct jsonw *j, const char *key, const struct columns *c)
{
	uLongf size = compressBound(c->used);
	unsigned char *packed = malloc(size);
	if (!packed || compress2(packed, &size, c->bytes, c->used, 1) != Z_OK) {
		free(packed);
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "no host memory to pack %zu bytes", c->used);
	}
	page_put_bytes(j, key, packed, size);
	free(packed);
	return TRZ_OK;
}

static void put_texts(struct jsonw *j, const char *key, const char *const *texts, size_t count)
{
	jsonw_key(j, key);
	jsonw_open(j, '[');
	for (size_t i = 0; i < count; i++)
		jsonw_string(j, texts[i]);
	jsonw_close(j, ']');
}

static void put_streams(struct jsonw *j, const struct page_history *h)
{
	char text[32];
	jsonw_key(j, "streams");
	jsonw_open(j, '[');
	for (uint32_t i = 0; i < h->stream_count; i++) {
		snprintf(text, sizeof text, "%#llx", (unsigned long long)h->streams[i]);
		jsonw_string(j, text);
	}
	jsonw_close(j, ']');
}

static void put_window(struct jsonw *j, const struct dump_window *w)
{
	jsonw_open(j, '[');
	jsonw_number(j, w->address);
	jsonw_number(j, w->reserved);
	jsonw_number(j, w->laid);
	jsonw_number(j, w->pool);
	jsonw_string(j, w->kind);
	jsonw_string(j, w->small ? "small" : "large");
	jsonw_close(j, ']');
}

/* Reserved addresses; for PyTorch's allocator its segments. */
static void put_windows(struct jsonw *j, const struct page_history *h)
{
	const struct dump *d = h->dump;
	jsonw_key(j, "windows");
	jsonw_open(j, '[');
	for (size_t i = 0; i < d->window_count; i++)
		put_window(j, &d->windows[i]);
	for (size_t i = 0; i < d->segment_count && !d->window_count; i++) {
		const struct dump_segment *s = &d->segments[i];
		struct dump_window w = { .address = s->address, .reserved = s->size, .laid = s->size, .pool = s->pool,
			                     .small = s->small, .kind = s->expandable ? "expandable segment" : "segment" };
		if (s->device == h->device)
			put_window(j, &w);
	}
	jsonw_close(j, ']');
}

trz_status page_put_lives(struct jsonw *j, const struct page_history *h)
{
	size_t ranges = h->range_count + h->gap_count, times = h->timed ? (size_t)h->count + 2 : 0;
	struct columns c = { 0 };
	c.bytes = malloc(4 * (LIFE_COLUMNS * h->life_count + RANGE_COLUMNS * ranges + TIME_COLUMNS * times) + 1);
	trz_status status = c.bytes ? fill(&c, h, times) : trz_fail(TRZ_ERROR_HOST_MEMORY, "no host memory for a map");
	jsonw_key(j, "lived");
	jsonw_open(j, '{');
	jsonw_put_number(j, "lives", h->life_count);
	jsonw_put_number(j, "ranges", ranges);
	jsonw_put_number(j, "times", times);
	if (status == TRZ_OK)
		status = put_packed(j, "packed", &c);
	jsonw_close(j, '}');
	put_texts(j, "sites", (const char *const *)h->sites, h->site_count);
	put_texts(j, "tags", h->tags, h->tag_count);
	put_streams(j, h);
	put_windows(j, h);
	jsonw_put_word(j, "tiled", h->dump->window_count ? "true" : "false");
	free(c.bytes);
	return status;
}
