/* SPDX-License-Identifier: Apache-2.0
 *
 * terrazzo diff
 */
#include <argp.h>
#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "cli.h"
#include "dump_evidence.h"
#include "dump_holdings.h"
#include "error.h"
#include "jsonw.h"

enum { OPTION_JSON = 256, OPTION_DEVICE, ROWS_SHOWN = 30 };

static const struct argp_option options[] = {
	{ "json", OPTION_JSON, "FILE", 0, "write an object with all rows; '-': to standard output, in place of the table",
	  0 },
	{ "device", OPTION_DEVICE, "N", 0, "the device of snapshots that have several; else the one of AFTER that failed "
	  "last, or its fullest", 0 },
	{ 0 }
};

enum { BEFORE, AFTER, SIDES };

/* What one call site, with its tag and category, holds in the two snapshots. */
struct row {
	enum evidence_category category;
	char site[DUMP_SITE_BYTES];
	char tag[64];
	uint64_t bytes[SIDES], count[SIDES];
};

struct diff_command {
	const char *paths[SIDES], *json;
	int path_count, device;
	bool found;                /* one of the snapshots has the device */
	struct row *rows;
	size_t count;
	uint64_t allocated[SIDES], reserved[SIDES];
	bool failed[SIDES];        /* the snapshot is compared as it was at a failure */
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct diff_command *c = state->input;
	switch (key) {
	case OPTION_JSON:
		c->json = arg;
		return 0;
	case OPTION_DEVICE:
		c->device = option_device(state, arg);
		return 0;
	case ARGP_KEY_ARG:
		if (c->path_count == SIDES)
			argp_error(state, "unexpected argument '%s'", arg);
		c->paths[c->path_count++] = arg;
		return 0;
	case ARGP_KEY_END:
		if (c->path_count < SIDES)
			argp_error(state, "diff takes two snapshots");
		for (int i = 0; i < c->path_count; i++)
			option_not_input(state, "--json", c->json, c->paths[i]);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* ---- rows ------------------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
	const struct row *x = a, *y = b;
	int order = strcmp(x->site, y->site);
	order = order ? order : strcmp(x->tag, y->tag);
	return order ? order : (int)x->category - (int)y->category;
}

static int64_t grown(const struct row *r)
{
	return (int64_t)r->bytes[AFTER] - (int64_t)r->bytes[BEFORE];
}

static int most_growth_first(const void *a, const void *b)
{
	int64_t x = grown(a), y = grown(b);
	return x != y ? (x > y ? -1 : 1) : by_name(a, b);
}

static trz_status add_rows(struct diff_command *c, const struct dump *d, const struct dump_moment *m, int side)
{
	struct dump_holding *list;
	size_t count;
	trz_status status = dump_holdings(d, m, &list, &count);
	struct row *rows = status == TRZ_OK ? realloc(c->rows, (c->count + count + 1) * sizeof *rows) : NULL;
	c->rows = rows ? rows : c->rows;
	for (size_t i = 0; rows && i < count; i++) {
		struct row *r = &rows[c->count++];
		*r = (struct row){ .category = list[i].category };
		dump_holding_text(d, &list[i], r->site);
		snprintf(r->tag, sizeof r->tag, "%s", list[i].tag ? list[i].tag : "");
		r->bytes[side] = list[i].bytes;
		r->count[side] = list[i].count;
	}
	free(list);
	return status != TRZ_OK || rows ? status : trz_fail(TRZ_ERROR_HOST_MEMORY, "no memory to compare snapshots");
}

/* Joins rows of one site, tag and category. */
static void join_rows(struct diff_command *c)
{
	size_t count = 0;
	if (c->count)
		qsort(c->rows, c->count, sizeof *c->rows, by_name);
	for (size_t i = 0; i < c->count; i++) {
		if (count == 0 || by_name(&c->rows[count - 1], &c->rows[i]) != 0) {
			c->rows[count++] = c->rows[i];
			continue;
		}
		for (int side = 0; side < SIDES; side++) {
			c->rows[count - 1].bytes[side] += c->rows[i].bytes[side];
			c->rows[count - 1].count[side] += c->rows[i].count[side];
		}
	}
	c->count = count;
	if (count)
		qsort(c->rows, count, sizeof *c->rows, most_growth_first);
}

/* If no device is told, the first side that has any decides for both. */
static trz_status read_side(struct diff_command *c, int side)
{
	struct dump d;
	struct dump_moment m;
	trz_status status = dump_load(c->paths[side], &d);
	if (status != TRZ_OK)
		return status;
	c->device = c->device == DUMP_ANY_DEVICE ? dump_fullest(&d) : c->device;
	c->found |= dump_has_device(&d, c->device);
	size_t failure = dump_newest_oom(&d, c->device);
	c->failed[side] = failure != SIZE_MAX;
	status = dump_moment(&d, c->device, failure, &m);
	for (size_t i = 0; status == TRZ_OK && i < m.segment_count; i++)
		c->reserved[side] += m.segments[i].size;
	for (size_t i = 0; status == TRZ_OK && i < m.block_count; i++)
		c->allocated[side] += m.blocks[i].state == DUMP_HELD ? m.blocks[i].size : 0;
	if (status == TRZ_OK) {
		status = add_rows(c, &d, &m, side);
		dump_moment_free(&m);
	}
	dump_free(&d);
	return status;
}

/* ---- output ----------------------------------------------------------------------------------------- */

static const char *change_text(uint64_t before, uint64_t after, char text[SIZE_TEXT_BYTES + 1])
{
	char size[SIZE_TEXT_BYTES];
	snprintf(text, SIZE_TEXT_BYTES + 1, "%c%.30s", after > before ? '+' : after < before ? '-' : ' ',
	         size_text(after > before ? after - before : before - after, size));
	return text;
}

static void print_line(const char *name, uint64_t before, uint64_t after)
{
	char a[SIZE_TEXT_BYTES], b[SIZE_TEXT_BYTES], change[SIZE_TEXT_BYTES + 1];
	printf("%15s %14s %14s  %s\n", change_text(before, after, change), size_text(before, a), size_text(after, b), name);
}

static void print_row(const struct row *r)
{
	char name[DUMP_SITE_BYTES + 160];
	snprintf(name, sizeof name, "%s%s%s%s%s (%llu -> %llu live)", r->site, *r->tag ? ", tag " : "", r->tag,
	         r->category == CATEGORY_UNKNOWN ? "" : ", ",
	         r->category == CATEGORY_UNKNOWN ? "" : evidence_category_text(r->category),
	         (unsigned long long)r->count[BEFORE], (unsigned long long)r->count[AFTER]);
	print_line(name, r->bytes[BEFORE], r->bytes[AFTER]);
}

static void print_table(const struct diff_command *c)
{
	size_t shown = 0, changed = 0;
	printf("%15s %14s %14s  of device %d\n", "change", "before", "after", c->device);
	print_line(c->failed[BEFORE] || c->failed[AFTER] ? "allocated, at the failure where there was one" : "allocated",
	           c->allocated[BEFORE], c->allocated[AFTER]);
	print_line("reserved", c->reserved[BEFORE], c->reserved[AFTER]);
	printf("by call site\n");
	for (size_t i = 0; i < c->count; i++) {
		changed += grown(&c->rows[i]) != 0;
		if (grown(&c->rows[i]) != 0 && shown < ROWS_SHOWN && ++shown)
			print_row(&c->rows[i]);
	}
	if (changed > shown)
		printf("%15s and %zu more\n", "", changed - shown);
	if (changed == 0)
		printf("%15s nothing has changed\n", "");
}

static void put_sides(struct jsonw *j, const char *key, const uint64_t sides[SIDES])
{
	jsonw_key(j, key);
	jsonw_open(j, '[');
	jsonw_number(j, sides[BEFORE]);
	jsonw_number(j, sides[AFTER]);
	jsonw_close(j, ']');
}

/* Each pair is before and after. */
static void put_rows(struct jsonw *j, const struct diff_command *c)
{
	jsonw_open(j, '{');
	jsonw_put_number(j, "device", (uint64_t)c->device);
	put_sides(j, "allocated", c->allocated);
	put_sides(j, "reserved", c->reserved);
	jsonw_key(j, "sites");
	jsonw_open(j, '[');
	for (size_t i = 0; i < c->count; i++) {
		const struct row *r = &c->rows[i];
		jsonw_open_line(j);
		jsonw_put_string(j, "site", r->site);
		jsonw_put_string(j, "tag", r->tag);
		jsonw_put_string(j, "category", evidence_category_text(r->category));
		put_sides(j, "bytes", r->bytes);
		put_sides(j, "count", r->count);
		jsonw_close(j, '}');
	}
	jsonw_close(j, ']');
	jsonw_close(j, '}');
	jsonw_byte(j, '\n');
}

static trz_status write_json(const struct diff_command *c)
{
	struct output o;
	trz_status status = output_begin(&o, c->json);
	if (status != TRZ_OK)
		return status;
	char buffer[JSONW_BUFFER];
	struct jsonw j = { .sink = output_sink, .owner = o.to, .buffer = buffer, .room = sizeof buffer };
	put_rows(&j, c);
	jsonw_flush(&j);
	return output_end(&o, j.failed ? output_failed(c->json) : TRZ_OK);
}

int cli_diff(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = parse_option,
		.args_doc = "BEFORE AFTER",
		.doc = "Says what grew between two memory snapshots, of terrazzo or of PyTorch, by call site, tag and "
		       "category, the most growth first.",
	};
	struct diff_command c = { .device = DUMP_ANY_DEVICE };
	argp_parse(&argp, argc, argv, 0, NULL, &c);
	trz_status status = read_side(&c, AFTER);
	if (status == TRZ_OK)
		status = read_side(&c, BEFORE);
	if (status == TRZ_OK && !c.found)
		status = trz_fail(TRZ_ERROR_NOT_FOUND, "neither snapshot holds memory or a history of %s",
		                  c.device < 0 ? "any device" : "that device");
	if (status == TRZ_OK) {
		join_rows(&c);
		if (!c.json || strcmp(c.json, "-") != 0)
			print_table(&c);
		if (c.json)
			status = write_json(&c);
	}
	free(c.rows);
	return status == TRZ_OK ? CLI_OK : cli_fail(status);
}
