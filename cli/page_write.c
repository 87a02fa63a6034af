/* SPDX-License-Identifier: Apache-2.0
 *
 * The page as a file: styles, script and data in one, with plotly.js, so that it needs no network.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "error.h"
#include "page.h"
#include "page_write.h"
#include "verdict.h"

__asm__(".pushsection .rodata\n"
        ".globl cli_page_html\n"
        ".hidden cli_page_html\n"
        "cli_page_html: .incbin \"page.html\"\n"
        ".byte 0\n"
        ".globl cli_page_css\n"
        ".hidden cli_page_css\n"
        "cli_page_css: .incbin \"page.css\"\n"
        ".byte 0\n"
        ".globl cli_page_js\n"
        ".hidden cli_page_js\n"
        "cli_page_js: .incbin \"page.js\"\n"
        ".byte 0\n"
        ".popsection\n");

#pragma GCC visibility push(hidden)
extern const char cli_page_html[], cli_page_css[], cli_page_js[];
#pragma GCC visibility pop

/* ---- data -------------------------------------------------------------------------------------------------- */

/* A text of the snapshot must not end the script that the data is in. JSON has "<" only in texts. */
static bool sink_to_page(void *owner, const char *bytes, size_t size)
{
	FILE *to = owner;
	while (size) {
		const char *less = memchr(bytes, '<', size);
		size_t part = less ? (size_t)(less - bytes) : size;
		if (fwrite(bytes, 1, part, to) != part || (less && fputs("\\u003c", to) < 0))
			return false;
		part += less != NULL;
		bytes += part;
		size -= part;
	}
	return true;
}

static uint64_t count_of(const struct page_history *h, enum dump_action action)
{
	uint64_t count = 0;
	for (uint32_t i = 0; i < h->count; i++)
		count += h->events[i].action == action;
	return count;
}

/* The newest hundred failures in the history: place, bytes requested, bytes free. */
static void put_failures(struct jsonw *j, const struct page_history *h)
{
	uint64_t all = count_of(h, DUMP_OOM), seen = 0;
	jsonw_key(j, "failures");
	jsonw_open(j, '[');
	for (uint32_t i = 0; i < h->count; i++) {
		if (h->events[i].action != DUMP_OOM || ++seen + 100 <= all)
			continue;
		jsonw_open(j, '[');
		page_put_real(j, h->place[i + 1]);
		jsonw_number(j, h->events[i].size);
		jsonw_number(j, h->events[i].address);
		jsonw_close(j, ']');
	}
	jsonw_close(j, ']');
}

static void put_span(struct jsonw *j, const struct page_history *h)
{
	jsonw_put_word(j, "timed", h->timed ? "true" : "false");
	jsonw_key(j, "span");
	jsonw_open(j, '[');
	page_put_real(j, h->place[0]);
	page_put_real(j, h->place[h->count + 1]);
	page_put_real(j, h->place[h->peak]);
	jsonw_close(j, ']');
}

/* What depends on the axis. */
static trz_status put_view(struct jsonw *j, const char *key, struct page_history *h, bool by_time)
{
	page_place(h, by_time);
	jsonw_key(j, key);
	jsonw_open(j, '{');
	put_span(j, h);
	put_failures(j, h);
	trz_status status = page_put_levels(j, h);
	if (status == TRZ_OK)
		status = page_put_fragmentation(j, h);
	if (status == TRZ_OK)
		status = page_put_groups(j, h);
	jsonw_close(j, '}');
	return status;
}

/* By time, if there are times, and by events. */
static trz_status put_views(struct jsonw *j, struct page_history *h, bool by_events)
{
	bool timed = h->timed;
	jsonw_put_string(j, "axis", timed && !by_events ? "time" : "events");
	jsonw_key(j, "views");
	jsonw_open(j, '{');
	trz_status status = timed ? put_view(j, "time", h, true) : TRZ_OK;
	if (status == TRZ_OK)
		status = put_view(j, "events", h, false);
	jsonw_close(j, '}');
	page_place(h, true);
	return status;
}

static void put_summary(struct jsonw *j, const struct page_history *h, const struct page_source *from)
{
	uint64_t allocated = 0;
	for (size_t i = 0; i < h->dump->segment_count; i++)
		for (size_t k = 0; h->dump->segments[i].device == h->device && k < h->dump->segments[i].count; k++)
			if (h->dump->blocks[h->dump->segments[i].first + k].state == DUMP_HELD)
				allocated += h->dump->blocks[h->dump->segments[i].first + k].size;
	jsonw_put_string(j, "title", from->title);
	jsonw_put_string(j, "source", from->kind);
	jsonw_put_string(j, "version", trz_version());
	jsonw_put_number(j, "device", (uint64_t)h->device);
	jsonw_put_word(j, "addressed", h->addressed ? "true" : "false");
	jsonw_put_number(j, "events", h->count);
	jsonw_put_number(j, "events_noted", h->dump->events_noted);
	jsonw_put_number(j, "start_us", h->timed ? h->events[0].time_us : 0);
	jsonw_put_number(j, "held_peak", h->held_peak);
	jsonw_put_number(j, "held_end", h->held_end);
	jsonw_put_number(j, "reserved_peak", h->reserved_peak);
	jsonw_put_number(j, "reserved_end", h->reserved_end);
	jsonw_put_number(j, "allocated_end", allocated);
	jsonw_put_number(j, "lives", h->life_count);
}

static void put_categories(struct jsonw *j)
{
	jsonw_key(j, "categories");
	jsonw_open(j, '[');
	for (int i = 0; i < CATEGORY_COUNT; i++)
		jsonw_string(j, evidence_category_text((enum evidence_category)i));
	jsonw_close(j, ']');
}

static trz_status put_data(FILE *to, struct page_history *h, const struct page_source *from)
{
	char buffer[JSONW_BUFFER];
	struct jsonw json = {.sink = sink_to_page, .owner = to, .buffer = buffer, .room = sizeof buffer}, *j = &json;
	jsonw_open(j, '{');
	put_summary(j, h, from);
	jsonw_put_number(j, "failure_count", count_of(h, DUMP_OOM));
	put_categories(j);
	if (from->verdict)
		jsonw_put_string(j, "verdict", from->verdict);
	trz_status status = put_views(j, h, from->by_events);
	if (status == TRZ_OK)
		status = page_put_lives(j, h);
	if (status == TRZ_OK)
		status = page_put_stacks(j, h);
	jsonw_close(j, '}');
	jsonw_flush(j);
	return status;
}

/* ---- the file ---------------------------------------------------------------------------------------------- */

static trz_status open_library(FILE **library)
{
	static const char *const places[] = { "../share/terrazzo", "../share", NULL };
	char folder[CLI_PATH_SIZE], path[CLI_PATH_SIZE + 32];
	if (!cli_first_of(places, "plotly.min.js", folder))
		return trz_fail(TRZ_ERROR_NOT_FOUND, "plotly.min.js is missing, which draws the pages: it is not in "
		                "../share/terrazzo, relative to this program. Build terrazzo again where pip can fetch "
		                "packages, or with -DTRZ_PLOTLY=<plotly.min.js>");
	snprintf(path, sizeof path, "%s/plotly.min.js", folder);
	*library = fopen(path, "rbe");
	return *library ? TRZ_OK : trz_fail(TRZ_ERROR_IO, "%s: cannot be opened: %s", path, strerror(errno));
}

static void copy_file(FILE *from, FILE *to)
{
	char buffer[65536];
	for (size_t got; (got = fread(buffer, 1, sizeof buffer, from)) > 0;)
		fwrite(buffer, 1, got, to);
}

/* The parts take the places of the template's "@@NAME@@". */
static trz_status fill(FILE *to, FILE *library, struct page_history *h, const struct page_source *from)
{
	trz_status status = TRZ_OK;
	for (const char *p = cli_page_html, *mark; status == TRZ_OK && *p; p = mark) {
		mark = strstr(p, "@@");
		mark = mark ? mark : p + strlen(p);
		fwrite(p, 1, (size_t)(mark - p), to);
		if (strncmp(mark, "@@CSS@@", 7) == 0) {
			fputs(cli_page_css, to);
		} else if (strncmp(mark, "@@LIB@@", 7) == 0) {
			copy_file(library, to);
		} else if (strncmp(mark, "@@DAT@@", 7) == 0) {
			status = put_data(to, h, from);
		} else if (strncmp(mark, "@@APP@@", 7) == 0) {
			fputs(cli_page_js, to);
		}
		mark += *mark ? 7 : 0;
	}
	return status;
}

trz_status report_can_draw(void)
{
	FILE *library;
	trz_status status = open_library(&library);
	if (status == TRZ_OK)
		fclose(library);
	return status;
}

trz_status page_write(struct page_history *h, const struct page_source *from, const char *path)
{
	FILE *library;
	struct output o;
	trz_status status = open_library(&library);
	if (status != TRZ_OK)
		return status;
	status = output_begin(&o, path);
	if (status == TRZ_OK)
		status = output_end(&o, fill(o.to, library, h, from));
	fclose(library);
	return status;
}
