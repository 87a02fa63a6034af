/* SPDX-License-Identifier: Apache-2.0
 *
 * What is held over time, divided by what holds it. Each column of the page has the mean over its time; the groups that
 * held most at the peak have names, the rest is one group.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "dump_sites.h"
#include "error.h"
#include "page.h"

enum { COLUMNS = 480, SHOWN = 9, NAME_BYTES = DUMP_SITE_BYTES };

struct group {
	char name[NAME_BYTES];
	double weight;             /* bytes at the peak, and a little of the mean */
	uint32_t number;           /* in the division */
};

/* A way to divide. `of` gives a life's number, below `count`. */
struct division {
	const struct page_history *h;
	const uint32_t *numbers;   /* of stacks; NULL: not by stack */
	uint32_t (*of)(const struct division *d, const struct page_life *l);
	uint32_t count;
	void (*name)(const struct division *d, uint32_t number, char name[NAME_BYTES]);
};

/* ---- ways to divide --------------------------------------------------------------------------------------- */

static uint32_t tag_of(const struct division *d, const struct page_life *l)
{
	(void)d;
	return l->tag;
}

static void name_tag(const struct division *d, uint32_t number, char name[NAME_BYTES])
{
	snprintf(name, NAME_BYTES, "%s", number ? d->h->tags[number] : "no tag");
}

static uint32_t stream_of(const struct division *d, const struct page_life *l)
{
	(void)d;
	return l->stream;
}

static void name_stream(const struct division *d, uint32_t number, char name[NAME_BYTES])
{
	uint64_t stream = d->h->streams[number];
	if (stream)
		snprintf(name, NAME_BYTES, "stream %#llx", (unsigned long long)stream);
	else
		snprintf(name, NAME_BYTES, "default stream");
}

static uint32_t size_of(const struct division *d, const struct page_life *l)
{
	(void)d;
	uint32_t mib = l->size < MIB(1) ? 0 : 1 + (63 - (uint32_t)__builtin_clzll(l->size >> 20)) / 2;
	return (uint32_t)min_u64(mib, d->count - 1);
}

static void name_size(const struct division *d, uint32_t number, char name[NAME_BYTES])
{
	static const char *const names[] = { "below 1 MiB", "1 to 4 MiB", "4 to 16 MiB", "16 to 64 MiB", "64 to 256 MiB",
		                                 "256 MiB to 1 GiB", "1 to 4 GiB", "4 GiB and more" };
	(void)d;
	snprintf(name, NAME_BYTES, "%s", names[number]);
}

static uint32_t by_stack(const struct division *d, const struct page_life *l)
{
	return d->numbers[l->stack];
}

static void name_site(const struct division *d, uint32_t number, char name[NAME_BYTES])
{
	snprintf(name, NAME_BYTES, "%s", number ? d->h->sites[number] : "no call stack");
}

static void name_category(const struct division *d, uint32_t number, char name[NAME_BYTES])
{
	(void)d;
	snprintf(name, NAME_BYTES, "%s", number ? evidence_category_text((enum evidence_category)number) : "not known");
}

/* ---- one division ------------------------------------------------------------------------------------------- */

static int heaviest_first(const void *a, const void *b)
{
	double x = ((const struct group *)a)->weight, y = ((const struct group *)b)->weight;
	return (x < y) - (x > y);
}

static void weigh(const struct division *d, struct group *groups)
{
	for (size_t i = 0; i < d->h->life_count; i++) {
		const struct page_life *l = &d->h->lives[i];
		double span = page_column(d->h, l->released, 1) - page_column(d->h, l->begin, 1);
		groups[d->of(d, l)].weight += (double)l->size * ((page_holds(l, d->h->peak) ? 1 : 0) + 0.05 * span);
	}
}

/* Adds `bytes` in columns [from, to): whole columns by their borders in `steps`, the ends by their share. */
static void spread(double *steps, double *parts, double from, double to, double bytes)
{
	unsigned first = (unsigned)min_u64((uint64_t)from, COLUMNS - 1);
	unsigned last = (unsigned)min_u64((uint64_t)to, COLUMNS - 1);
	if (first == last) {
		parts[first] += (to - from) * bytes;
		return;
	}
	parts[first] += (first + 1 - from) * bytes;
	parts[last] += (to - last) * bytes;
	steps[first + 1] += bytes;
	steps[last] -= bytes;
}

static void sum_up(double *steps, double *parts)
{
	double level = 0;
	for (unsigned i = 0; i < COLUMNS; i++) {
		level += steps[i];
		parts[i] += level;
	}
}

static void put_group(struct jsonw *j, const char *name, double *steps, double *parts)
{
	float levels[COLUMNS];
	sum_up(steps, parts);
	for (unsigned i = 0; i < COLUMNS; i++)
		levels[i] = (float)parts[i];
	jsonw_open(j, '{');
	jsonw_put_string(j, "name", name);
	page_put_bytes(j, "y", levels, sizeof levels);
	jsonw_close(j, '}');
}

/* row: number -> the group's row, SHOWN for the rest. */
static void fill(const struct division *d, const uint32_t *row, double (*steps)[COLUMNS + 1], double (*parts)[COLUMNS])
{
	for (size_t i = 0; i < d->h->life_count; i++) {
		const struct page_life *l = &d->h->lives[i];
		uint32_t k = row[d->of(d, l)];
		spread(steps[k], parts[k], page_column(d->h, l->begin, COLUMNS), page_column(d->h, l->released, COLUMNS),
		       (double)l->size);
	}
}

static trz_status put_division(struct jsonw *j, const char *key, const struct division *d)
{
	struct group *groups = calloc(d->count, sizeof *groups);
	uint32_t *row = calloc(d->count, sizeof *row), shown = (uint32_t)min_u64(SHOWN, d->count);
	double(*steps)[COLUMNS + 1] = calloc(SHOWN + 1, sizeof *steps);
	double(*parts)[COLUMNS] = calloc(SHOWN + 1, sizeof *parts);
	bool ok = groups && row && steps && parts;
	for (uint32_t i = 0; ok && i < d->count; i++)
		groups[i].number = i;
	if (ok) {
		weigh(d, groups);
		qsort(groups, d->count, sizeof *groups, heaviest_first);
		for (uint32_t i = 0; i < d->count; i++)
			row[groups[i].number] = i < shown ? i : SHOWN;
		fill(d, row, steps, parts);
		jsonw_key(j, key);
		jsonw_open(j, '[');
		for (uint32_t i = 0; i < shown && groups[i].weight > 0; i++) {
			d->name(d, groups[i].number, groups[i].name);
			put_group(j, groups[i].name, steps[i], parts[i]);
		}
		if (d->count > SHOWN && groups[SHOWN].weight > 0)
			put_group(j, "all others", steps[SHOWN], parts[SHOWN]);
		jsonw_close(j, ']');
	}
	free(groups);
	free(row);
	free(steps);
	free(parts);
	return ok ? TRZ_OK : trz_fail(TRZ_ERROR_HOST_MEMORY, "no host memory for %u groups", d->count);
}

/* ---- all ------------------------------------------------------------------------------------------------------ */

trz_status page_put_groups(struct jsonw *j, const struct page_history *h)
{
	const struct dump *d = h->dump;
	uint32_t *kinds = calloc(d->stack_count + 1, sizeof *kinds);
	trz_status status = kinds ? TRZ_OK : trz_fail(TRZ_ERROR_HOST_MEMORY, "no host memory for call stacks");
	bool known = false;
	for (uint32_t i = 1; status == TRZ_OK && i < d->stack_count; i++) {
		kinds[i] = (uint32_t)dump_category(d, i);
		known |= kinds[i] != CATEGORY_UNKNOWN;
	}
	jsonw_key(j, "groups");
	jsonw_open(j, '{');
	if (status == TRZ_OK && known)
		status = put_division(j, "category", &(struct division){ h, kinds, by_stack, CATEGORY_COUNT, name_category });
	if (status == TRZ_OK && h->tag_count > 1)
		status = put_division(j, "tag", &(struct division){ h, NULL, tag_of, h->tag_count, name_tag });
	if (status == TRZ_OK && d->stack_count > 1)
		status = put_division(j, "call site",
		                      &(struct division){ h, h->site_of, by_stack, h->site_count, name_site });
	if (status == TRZ_OK && h->stream_count > 1)
		status = put_division(j, "stream", &(struct division){ h, NULL, stream_of, h->stream_count, name_stream });
	if (status == TRZ_OK)
		status = put_division(j, "size", &(struct division){ h, NULL, size_of, 8, name_size });
	jsonw_put_number(j, "columns", COLUMNS);
	jsonw_close(j, '}');
	free(kinds);
	return status;
}
