/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory map over time: a picture whose columns are time and whose rows are addresses that ever had memory, end to
 * end. Each cell has the share of its bytes and its time that had memory, was held and was pending, and the allocation
 * that took most of it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "dump_sites.h"
#include "error.h"
#include "page.h"

enum { COLUMNS = 800, ROWS_MOST = 300, CELLS = COLUMNS * ROWS_MOST, OBJECTS_MOST = 40000 };

/* Addresses in a row that ever had memory, and where they begin on the axis. */
struct stretch {
	uint64_t address, size, at;
};

/* Of one kind of use: what changes from column to column, and the ends of lives. */
struct layer {
	float steps[ROWS_MOST][COLUMNS + 1], parts[ROWS_MOST][COLUMNS];
};

enum layer_kind { LAID, HELD, PENDING, LAYERS };

struct picture {
	const struct page_history *h;
	struct stretch *stretches;
	size_t count, room;
	uint64_t total;            /* bytes on the axis of addresses */
	uint64_t row;              /* bytes of a row */
	unsigned rows;
	struct layer *layers;      /* LAYERS of them */
	uint32_t *owner;           /* of a cell: 1 + the index of a life; 0: none */
	float *most;               /* how much of the cell that life takes */
};

/* ---- addresses -------------------------------------------------------------------------------------------- */

static trz_status find_stretches(struct picture *p)
{
	for (size_t i = 0; i < p->h->range_count; i++) {
		const struct page_range *r = &p->h->ranges[i];
		struct stretch *last = p->count ? &p->stretches[p->count - 1] : NULL;
		uint64_t end = r->address + r->size;
		if (last && r->address <= last->address + last->size) {
			uint64_t grown = max_u64(last->address + last->size, end) - last->address;
			p->total += grown - last->size;
			last->size = grown;
			continue;
		}
		trz_status status = page_room(&p->stretches, p->count, &p->room, sizeof *p->stretches);
		if (status != TRZ_OK)
			return status;
		p->stretches[p->count++] = (struct stretch){ r->address, r->size, p->total };
		p->total += r->size;
	}
	return TRZ_OK;
}

/* Where an address is on the axis; false: it never had memory. */
static bool place_of(const struct picture *p, uint64_t address, uint64_t *at)
{
	size_t low = 0, high = p->count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (p->stretches[middle].address <= address)
			low = middle + 1;
		else
			high = middle;
	}
	const struct stretch *s = low ? &p->stretches[low - 1] : NULL;
	if (!s || address - s->address >= s->size)
		return false;
	*at = s->at + (address - s->address);
	return true;
}

/* ---- painting --------------------------------------------------------------------------------------------- */

struct box {
	double from, to;           /* columns */
	uint64_t begin, end;       /* bytes of the axis of addresses */
};

static void paint_row(struct layer *l, unsigned row, double from, double to, float bytes)
{
	unsigned first = (unsigned)min_u64((uint64_t)from, COLUMNS - 1);
	unsigned last = (unsigned)min_u64((uint64_t)to, COLUMNS - 1);
	if (first == last) {
		l->parts[row][first] += (float)(to - from) * bytes;
		return;
	}
	l->parts[row][first] += (float)(first + 1 - from) * bytes;
	l->parts[row][last] += (float)(to - last) * bytes;
	l->steps[row][first + 1] += bytes;
	l->steps[row][last] -= bytes;
}

static uint64_t bytes_in_row(const struct picture *p, unsigned row, const struct box *b)
{
	uint64_t from = max_u64(b->begin, row * p->row), to = min_u64(b->end, (row + 1) * p->row);
	return to > from ? to - from : 0;
}

static void paint(struct picture *p, enum layer_kind kind, const struct box *b)
{
	unsigned last = (unsigned)((b->end - 1) / p->row);
	for (unsigned row = (unsigned)(b->begin / p->row); b->from < b->to && row <= last; row++)
		paint_row(&p->layers[kind], row, b->from, b->to, (float)bytes_in_row(p, row, b));
}

/* Whoever takes most of a cell owns it. */
static void claim(struct picture *p, const struct box *b, uint32_t owner)
{
	unsigned first = (unsigned)min_u64((uint64_t)b->from, COLUMNS - 1);
	unsigned end = (unsigned)min_u64((uint64_t)b->to, COLUMNS - 1), last = (unsigned)((b->end - 1) / p->row);
	for (unsigned row = (unsigned)(b->begin / p->row); row <= last; row++) {
		double bytes = (double)bytes_in_row(p, row, b);
		for (unsigned c = first; c <= end; c++) {
			double from = b->from > c ? b->from : c, to = b->to < c + 1 ? b->to : c + 1;
			float part = (float)((to - from) * bytes);
			if (to <= from || part <= p->most[row * COLUMNS + c])
				continue;
			p->most[row * COLUMNS + c] = part;
			p->owner[row * COLUMNS + c] = owner;
		}
	}
}

static void paint_life(struct picture *p, size_t index)
{
	const struct page_life *l = &p->h->lives[index];
	struct box held = { page_column(p->h, l->begin, COLUMNS), page_column(p->h, l->released, COLUMNS), 0, 0 };
	if (!l->size || !place_of(p, l->address, &held.begin))
		return;
	held.end = min_u64(held.begin + l->size, p->total);
	struct box pending = { held.to, page_column(p->h, l->end, COLUMNS), held.begin, held.end };
	struct box both = { held.from, pending.to, held.begin, held.end };
	paint(p, HELD, &held);
	paint(p, PENDING, &pending);
	claim(p, &both, (uint32_t)index + 1);
}

static void paint_all(struct picture *p)
{
	for (size_t i = 0; i < p->h->range_count; i++) {
		const struct page_range *r = &p->h->ranges[i];
		struct box b = { page_column(p->h, r->begin, COLUMNS), page_column(p->h, r->end, COLUMNS), 0, 0 };
		if (place_of(p, r->address, &b.begin)) {
			b.end = b.begin + r->size;
			paint(p, LAID, &b);
		}
	}
	for (size_t i = 0; i < p->h->life_count; i++)
		paint_life(p, i);
}

/* ---- writing ---------------------------------------------------------------------------------------------- */

/* Shares of a cell from 0 to 255. */
static trz_status put_layer(struct jsonw *j, const char *key, const struct picture *p, const struct layer *l)
{
	unsigned char *shares = malloc((size_t)p->rows * COLUMNS);
	if (!shares)
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "no host memory for a picture");
	for (unsigned row = 0; row < p->rows; row++) {
		double level = 0;
		for (unsigned c = 0; c < COLUMNS; c++) {
			level += l->steps[row][c];
			double share = (level + l->parts[row][c]) / (double)p->row;
			double bounded = share < 0 ? 0 : share > 1 ? 1 : share;
			shares[row * COLUMNS + c] = (unsigned char)(bounded * 255 + 0.5);
		}
	}
	page_put_bytes(j, key, shares, (size_t)p->rows * COLUMNS);
	free(shares);
	return TRZ_OK;
}

/* The allocations that own cells become objects with numbers of their own; the smallest are nobody's if there are too
 * many. */
static uint32_t number_owners(struct picture *p, uint32_t *objects)
{
	uint32_t *number = calloc(p->h->life_count + 1, sizeof *number), count = 0;
	for (size_t i = 0; number && i < (size_t)p->rows * COLUMNS; i++) {
		uint32_t owner = p->owner[i];
		if (owner && !number[owner] && count < OBJECTS_MOST) {
			objects[count++] = owner - 1;
			number[owner] = count;
		}
		p->owner[i] = owner ? number[owner] : 0;
	}
	free(number);
	return count;
}

static void put_object(struct jsonw *j, const struct page_history *h, const struct page_life *l)
{
	jsonw_open(j, '[');
	jsonw_number(j, l->address);
	jsonw_number(j, l->size);
	page_put_real(j, h->place[l->begin]);
	page_put_real(j, h->place[l->released]);
	page_put_real(j, h->place[l->end]);
	jsonw_number(j, l->stack);
	jsonw_number(j, l->tag);
	jsonw_number(j, l->stream);
	jsonw_number(j, (l->begin > 0 ? 1 : 0) + (l->released <= h->count ? 2 : 0) + (l->end <= h->count ? 4 : 0));
	jsonw_close(j, ']');
}

/* The texts of the stacks that objects name, by number. */
static void put_sites(struct jsonw *j, const struct page_history *h, const uint32_t *objects, uint32_t count)
{
	bool *named = calloc(h->dump->stack_count + 1, sizeof *named);
	char text[DUMP_SITE_BYTES], key[16];
	jsonw_key(j, "sites");
	jsonw_open(j, '{');
	for (uint32_t i = 0; named && i < count; i++) {
		uint32_t stack = h->lives[objects[i]].stack;
		if (named[stack] || !dump_site_text(h->dump, stack, text))
			continue;
		named[stack] = true;
		snprintf(key, sizeof key, "%u", stack);
		jsonw_put_string(j, key, text);
	}
	jsonw_close(j, '}');
	free(named);
}

static trz_status put_objects(struct jsonw *j, struct picture *p)
{
	const struct page_history *h = p->h;
	uint32_t *objects = calloc(OBJECTS_MOST, sizeof *objects);
	if (!objects)
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "no host memory for a picture");
	uint32_t count = number_owners(p, objects);
	page_put_bytes(j, "owner", p->owner, (size_t)p->rows * COLUMNS * sizeof *p->owner);
	jsonw_key(j, "objects");
	jsonw_open(j, '[');
	for (uint32_t i = 0; i < count; i++)
		put_object(j, h, &h->lives[objects[i]]);
	jsonw_close(j, ']');
	put_sites(j, h, objects, count);
	free(objects);
	return TRZ_OK;
}

static void put_names(struct jsonw *j, const struct page_history *h)
{
	char text[32];
	jsonw_key(j, "tags");
	jsonw_open(j, '[');
	for (uint32_t i = 0; i < h->tag_count; i++)
		jsonw_string(j, h->tags[i]);
	jsonw_close(j, ']');
	jsonw_key(j, "streams");
	jsonw_open(j, '[');
	for (uint32_t i = 0; i < h->stream_count; i++) {
		snprintf(text, sizeof text, "%#llx", (unsigned long long)h->streams[i]);
		jsonw_string(j, text);
	}
	jsonw_close(j, ']');
}

static trz_status put_picture(struct jsonw *j, struct picture *p)
{
	jsonw_key(j, "map");
	jsonw_open(j, '{');
	jsonw_put_number(j, "columns", COLUMNS);
	jsonw_put_number(j, "rows", p->rows);
	jsonw_put_number(j, "row_bytes", p->row);
	jsonw_put_number(j, "total", p->total);
	jsonw_key(j, "stretches");
	jsonw_open(j, '[');
	for (size_t i = 0; i < p->count; i++) {
		jsonw_open(j, '[');
		jsonw_number(j, p->stretches[i].address);
		jsonw_number(j, p->stretches[i].size);
		jsonw_number(j, p->stretches[i].at);
		jsonw_close(j, ']');
	}
	jsonw_close(j, ']');
	put_names(j, p->h);
	trz_status status = put_layer(j, "laid", p, &p->layers[LAID]);
	if (status == TRZ_OK)
		status = put_layer(j, "held", p, &p->layers[HELD]);
	if (status == TRZ_OK)
		status = put_layer(j, "pending", p, &p->layers[PENDING]);
	if (status == TRZ_OK)
		status = put_objects(j, p);
	jsonw_close(j, '}');
	return status;
}

trz_status page_put_map(struct jsonw *j, const struct page_history *h)
{
	struct picture p = { .h = h };
	if (!h->addressed || !h->range_count)
		return TRZ_OK;
	trz_status status = find_stretches(&p);
	p.row = align_up(max_u64(512, (p.total + ROWS_MOST - 1) / ROWS_MOST), 512);
	p.rows = (unsigned)((p.total + p.row - 1) / p.row);
	p.layers = calloc(LAYERS, sizeof *p.layers);
	p.owner = calloc(CELLS, sizeof *p.owner);
	p.most = calloc(CELLS, sizeof *p.most);
	if (status == TRZ_OK && !(p.layers && p.owner && p.most))
		status = trz_fail(TRZ_ERROR_HOST_MEMORY, "no host memory for a picture");
	if (status == TRZ_OK) {
		paint_all(&p);
		status = put_picture(j, &p);
	}
	free(p.stretches);
	free(p.layers);
	free(p.owner);
	free(p.most);
	return status;
}
