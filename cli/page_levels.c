/* SPDX-License-Identifier: Apache-2.0
 *
 * Levels over time. A level changes at events; of the many events of one column of the page, the first, the least, the
 * most and the last level are kept, which is all that a line of that width can show.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "error.h"
#include "page.h"

enum { COLUMNS = 2000, MOMENTS = 240, MOMENTS_LEAST = 24, LIVES_LOOKED_AT = 60000000 };

/* ---- writing ------------------------------------------------------------------------------------------ */

void page_put_bytes(struct jsonw *j, const char *key, const void *bytes, size_t size)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const unsigned char *p = bytes;
	jsonw_key(j, key);
	jsonw_byte(j, '"');
	for (size_t i = 0; i < size; i += 3) {
		size_t left = size - i;
		uint32_t three = (uint32_t)p[i] << 16 | (left > 1 ? (uint32_t)p[i + 1] << 8 : 0) | (left > 2 ? p[i + 2] : 0);
		char four[] = { digits[three >> 18], digits[three >> 12 & 63], left > 1 ? digits[three >> 6 & 63] : '=',
			            left > 2 ? digits[three & 63] : '=' };
		jsonw_bytes(j, four, sizeof four);
	}
	jsonw_byte(j, '"');
	j->separate = true;
}

void page_put_real(struct jsonw *j, double value)
{
	char text[40];
	snprintf(text, sizeof text, "%.9g", isfinite(value) ? value : 0);
	jsonw_word(j, text);
}

/* ---- lines -------------------------------------------------------------------------------------------- */

struct line {
	double *x, *y;
	size_t count, x_room, y_room;
	trz_status status;
};

static void add_point(struct line *l, double x, double y)
{
	if (l->status == TRZ_OK)
		l->status = page_room(&l->x, l->count, &l->x_room, sizeof *l->x);
	if (l->status == TRZ_OK)
		l->status = page_room(&l->y, l->count, &l->y_room, sizeof *l->y);
	if (l->status != TRZ_OK)
		return;
	l->x[l->count] = x;
	l->y[l->count++] = y;
}

/* One column's levels: those of states first .. last. */
struct column {
	uint32_t first, least, most, last;
	int64_t levels[4];         /* at these states */
	bool begun;
};

static void add_column(struct line *l, const struct page_history *h, const struct column *c)
{
	bool falls = c->most < c->least;
	uint32_t states[] = { c->first, falls ? c->most : c->least, falls ? c->least : c->most, c->last };
	int64_t levels[] = { c->levels[0], c->levels[falls ? 2 : 1], c->levels[falls ? 1 : 2], c->levels[3] };
	for (int i = 0; i < 4; i++)
		if (i == 0 || states[i] != states[i - 1])
			add_point(l, h->place[states[i]], (double)levels[i]);
}

static void take_level(struct column *c, uint32_t state, int64_t level)
{
	if (!c->begun)
		*c = (struct column){ state, state, state, state, { level, level, level, level }, true };
	if (level < c->levels[1]) {
		c->least = state;
		c->levels[1] = level;
	}
	if (level > c->levels[2]) {
		c->most = state;
		c->levels[2] = level;
	}
	c->last = state;
	c->levels[3] = level;
}

static trz_status put_line(struct jsonw *j, const char *key, const struct page_history *h, const int64_t *change)
{
	struct line l = { 0 };
	struct column c = { 0 };
	unsigned at = 0;
	int64_t level = 0;
	for (uint32_t i = 0; i <= h->count; i++) {
		unsigned column = (unsigned)page_column(h, i, COLUMNS);
		if (c.begun && column != at && change[i]) {
			add_column(&l, h, &c);
			c.begun = false;
		}
		level += change[i];
		if (change[i] || i == 0) {
			take_level(&c, i, level);
			at = column;
		}
	}
	if (c.begun)
		add_column(&l, h, &c);
	add_point(&l, h->place[h->count + 1], (double)level);
	if (l.status == TRZ_OK) {
		jsonw_key(j, key);
		jsonw_open(j, '{');
		page_put_bytes(j, "x", l.x, l.count * sizeof *l.x);
		page_put_bytes(j, "y", l.y, l.count * sizeof *l.y);
		jsonw_close(j, '}');
	}
	free(l.x);
	free(l.y);
	return l.status;
}

static void change_by_lives(const struct page_history *h, int64_t *held, int64_t *pending)
{
	for (size_t i = 0; i < h->life_count; i++) {
		const struct page_life *l = &h->lives[i];
		held[l->begin] += (int64_t)l->size;
		held[l->released] -= (int64_t)l->size;
		pending[l->released] += (int64_t)l->size;
		pending[l->end] -= (int64_t)l->size;
	}
}

static void change_by_ranges(const struct page_history *h, int64_t *reserved)
{
	for (size_t i = 0; i < h->range_count; i++) {
		reserved[h->ranges[i].begin] += (int64_t)h->ranges[i].size;
		reserved[h->ranges[i].end] -= (int64_t)h->ranges[i].size;
	}
}

trz_status page_put_levels(struct jsonw *j, const struct page_history *h)
{
	size_t states = (size_t)h->count + 2;
	int64_t *changes = calloc(3 * states, sizeof *changes);
	if (!changes)
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "no host memory for %u events", h->count);
	change_by_lives(h, changes, changes + states);
	change_by_ranges(h, changes + 2 * states);
	jsonw_key(j, "levels");
	jsonw_open(j, '{');
	trz_status status = put_line(j, "held", h, changes);
	if (status == TRZ_OK)
		status = put_line(j, "pending", h, changes + states);
	if (status == TRZ_OK && h->range_count)
		status = put_line(j, "reserved", h, changes + 2 * states);
	jsonw_close(j, '}');
	free(changes);
	return status;
}

/* ---- fragmentation ---------------------------------------------------------------------------------------- */

struct free_space {
	uint64_t reserved, taken, free, largest;
};

/* Walks ranges and lives of one state side by side, both by address. */
struct walk {
	const struct page_history *h;
	uint32_t state;
	size_t life;
	uint64_t gap;              /* free bytes in a row so far */
	uint64_t taken_to;         /* where the last allocation ends */
	struct free_space out;
};

static void end_gap(struct walk *w)
{
	w->out.largest = max_u64(w->out.largest, w->gap);
	w->gap = 0;
}

static void add_gap(struct walk *w, uint64_t bytes)
{
	w->out.free += bytes;
	w->gap += bytes;
}

static void walk_range(struct walk *w, uint64_t from, uint64_t to)
{
	uint64_t at = min_u64(max_u64(from, w->taken_to), to);
	w->out.taken += at - from;
	if (at > from)
		end_gap(w);
	for (; w->life < w->h->life_count && w->h->lives[w->life].address < to; w->life++) {
		const struct page_life *l = &w->h->lives[w->life];
		if (l->begin > w->state || w->state >= l->end || l->address < at)
			continue;
		add_gap(w, l->address - at);
		end_gap(w);
		w->taken_to = l->address + l->size;
		at = min_u64(w->taken_to, to);
		w->out.taken += at - l->address;
	}
	add_gap(w, to - at);
}

static struct free_space space_in(const struct page_history *h, uint32_t state)
{
	struct walk w = { .h = h, .state = state };
	uint64_t end = 0;
	for (size_t i = 0; i < h->range_count; i++) {
		const struct page_range *r = &h->ranges[i];
		if (r->begin > state || state >= r->end)
			continue;
		if (r->address != end)
			end_gap(&w);
		end = r->address + r->size;
		w.out.reserved += r->size;
		walk_range(&w, r->address, end);
	}
	end_gap(&w);
	return w.out;
}

/* The newest state at a place. */
static uint32_t state_at(const struct page_history *h, double place)
{
	uint32_t low = 0, high = h->count;
	while (low < high) {
		uint32_t middle = low + (high - low + 1) / 2;
		if (h->place[middle] <= place)
			low = middle;
		else
			high = middle - 1;
	}
	return low;
}

trz_status page_put_fragmentation(struct jsonw *j, const struct page_history *h)
{
	size_t work = h->life_count + h->range_count + 1;
	size_t moments = max_u64(MOMENTS_LEAST, min_u64(MOMENTS, LIVES_LOOKED_AT / work));
	double from = h->place[0], to = h->place[h->count + 1];
	double numbers[4][MOMENTS + 1];
	static const char *const keys[] = { "x", "reserved", "free", "largest" };
	if (!h->range_count || !h->addressed)
		return TRZ_OK;
	for (size_t i = 0; i <= moments; i++) {
		double place = from + (to - from) * (double)i / (double)moments;
		struct free_space s = space_in(h, state_at(h, place));
		numbers[0][i] = place;
		numbers[1][i] = (double)s.reserved;
		numbers[2][i] = (double)s.free;
		numbers[3][i] = (double)s.largest;
	}
	jsonw_key(j, "fragmentation");
	jsonw_open(j, '{');
	for (int k = 0; k < 4; k++)
		page_put_bytes(j, keys[k], numbers[k], (moments + 1) * sizeof **numbers);
	jsonw_close(j, '}');
	return TRZ_OK;
}
