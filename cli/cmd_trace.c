/* SPDX-License-Identifier: Apache-2.0
 *
 * terrazzo trace: a history in the JSON that Perfetto and chrome://tracing open. Levels are counters, failures and
 * waits are instants, the allocations that took most memory for longest are slices.
 */
#include <argp.h>
#include <stdlib.h>

#include "bits.h"
#include "cli.h"
#include "dump_sites.h"
#include "error.h"
#include "page.h"

enum { OPTION_SLICES = PAGE_OPTIONS, SLICES = 1000, TAGS_MOST = 32 };

/* Tracks of the trace: processes and threads, as its readers call them. */
enum { LEVELS = 1, ALLOCATIONS = 2 };

static const struct argp_option options[] = {
	{ "output", 'o', "FILE", 0, "where to write the trace (required); '-': standard output", 0 },
	{ "device", PAGE_DEVICE, "N", 0, "the device to show (the one with the longest history)", 0 },
	{ "slices", OPTION_SLICES, "N", 0,
	  "show N allocations as slices, those that took the most memory for the longest (1000)", 0 },
	{ 0 }
};

struct trace_command {
	struct page_files files;
	size_t slices;
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct trace_command *c = state->input;
	switch (key) {
	case OPTION_SLICES:
		c->slices = option_number(state, "slices", arg, 0, 1000000);
		return 0;
	default:
		return page_option(key, arg, state, &c->files);
	}
}

/* ---- events ----------------------------------------------------------------------------------------------- */

/* In microseconds; if the history has no times, in events. */
static double time_of(const struct page_history *h, uint32_t state)
{
	return h->timed ? h->place[state] * 1e6 : h->place[state];
}

static void begin(struct jsonw *j, const char *phase, const char *name, unsigned process, double time)
{
	jsonw_open_line(j);
	jsonw_put_string(j, "ph", phase);
	jsonw_put_string(j, "name", name);
	jsonw_put_number(j, "pid", process);
	jsonw_put_number(j, "tid", 0);
	jsonw_key(j, "ts");
	char text[40];
	snprintf(text, sizeof text, "%.3f", time);
	jsonw_word(j, text);
}

static void open_args(struct jsonw *j)
{
	jsonw_key(j, "args");
	jsonw_open(j, '{');
}

static void end_with_args(struct jsonw *j)
{
	jsonw_close(j, '}');
	jsonw_close(j, '}');
}

static void name_process(struct jsonw *j, unsigned process, const char *name)
{
	begin(j, "M", "process_name", process, 0);
	open_args(j);
	jsonw_put_string(j, "name", name);
	end_with_args(j);
}

/* ---- counters ------------------------------------------------------------------------------------------------ */

static void put_counter(struct jsonw *j, const struct page_history *h, const char *name, const int64_t *change)
{
	int64_t level = 0;
	bool changes = true;
	for (uint32_t i = 0; i <= h->count; i++) {
		level += change[i];
		changes |= change[i] || i == h->count;
		if (!changes || (i < h->count && time_of(h, i + 1) <= time_of(h, i)))
			continue;  /* only the last level of a moment is told */
		changes = false;
		begin(j, "C", name, LEVELS, time_of(h, i));
		open_args(j);
		jsonw_put_number(j, "bytes", level > 0 ? (uint64_t)level : 0);
		end_with_args(j);
	}
}

/* Which lives a counter counts. */
struct choice {
	const unsigned char *categories;  /* of stacks; NULL: all */
	unsigned category;
	unsigned tag;              /* 0: all */
};

static bool chosen(const struct choice *c, const struct page_life *l)
{
	return (!c->categories || c->categories[l->stack] == c->category) && (!c->tag || l->tag == c->tag);
}

static void clear(const struct page_history *h, int64_t *change)
{
	memset(change, 0, ((size_t)h->count + 2) * sizeof *change);
}

static void put_held(struct jsonw *j, const struct page_history *h, int64_t *change, struct choice choice,
                     const char *name)
{
	bool any = false;
	clear(h, change);
	for (size_t i = 0; i < h->life_count; i++) {
		const struct page_life *l = &h->lives[i];
		if (!chosen(&choice, l))
			continue;
		change[l->begin] += (int64_t)l->size;
		change[l->released] -= (int64_t)l->size;
		any = true;
	}
	if (any)
		put_counter(j, h, name, change);
}

static void put_pending(struct jsonw *j, const struct page_history *h, int64_t *change)
{
	bool any = false;
	clear(h, change);
	for (size_t i = 0; i < h->life_count; i++) {
		const struct page_life *l = &h->lives[i];
		change[l->released] += (int64_t)l->size;
		change[l->end] -= (int64_t)l->size;
		any |= l->released < l->end;
	}
	if (any)
		put_counter(j, h, "pending", change);
}

static void put_reserved(struct jsonw *j, const struct page_history *h, int64_t *change)
{
	clear(h, change);
	for (size_t i = 0; i < h->range_count; i++) {
		change[h->ranges[i].begin] += (int64_t)h->ranges[i].size;
		change[h->ranges[i].end] -= (int64_t)h->ranges[i].size;
	}
	if (h->range_count)
		put_counter(j, h, "reserved", change);
}

static trz_status put_counters(struct jsonw *j, const struct page_history *h)
{
	char name[256];
	int64_t *change = calloc((size_t)h->count + 2, sizeof *change);
	unsigned char *categories = calloc(h->dump->stack_count + 1, 1);
	if (!change || !categories) {
		free(change);
		free(categories);
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "no host memory for %u events", h->count);
	}
	for (uint32_t i = 1; i < h->dump->stack_count; i++)
		categories[i] = (unsigned char)dump_category(h->dump, i);
	put_held(j, h, change, (struct choice){ 0 }, "held");
	put_reserved(j, h, change);
	put_pending(j, h, change);
	for (unsigned i = CATEGORY_UNKNOWN + 1; i < CATEGORY_COUNT; i++) {
		snprintf(name, sizeof name, "held: %s", evidence_category_text((enum evidence_category)i));
		put_held(j, h, change, (struct choice){ .categories = categories, .category = i }, name);
	}
	for (unsigned i = 1; i < h->tag_count && i <= TAGS_MOST; i++) {
		snprintf(name, sizeof name, "tag: %s", h->tags[i]);
		put_held(j, h, change, (struct choice){ .tag = i }, name);
	}
	free(change);
	free(categories);
	return TRZ_OK;
}

/* ---- instants --------------------------------------------------------------------------------------------------- */

static void put_failures(struct jsonw *j, const struct page_history *h)
{
	for (uint32_t i = 0; i < h->count; i++) {
		const struct dump_event *e = &h->events[i];
		if (e->action != DUMP_OOM)
			continue;
		begin(j, "i", "out of memory", LEVELS, time_of(h, i + 1));
		jsonw_put_string(j, "s", "g");
		open_args(j);
		jsonw_put_number(j, "requested", e->size);
		jsonw_put_number(j, "device_free", e->address);
		end_with_args(j);
	}
}

static void put_waits(struct jsonw *j, const struct page_history *h)
{
	for (size_t i = 0; h->timed && i < h->dump->wait_count; i++) {
		const struct dump_wait *w = &h->dump->waits[i];
		begin(j, "i", "wait for another stream", LEVELS, (double)w->time_us - (double)h->events[0].time_us);
		jsonw_put_string(j, "s", "p");
		open_args(j);
		jsonw_put_number(j, "stream", w->stream);
		jsonw_put_number(j, "awaited", w->awaited);
		jsonw_put_number(j, "stalled_ns", w->stalled_ns);
		end_with_args(j);
	}
}

/* ---- slices ------------------------------------------------------------------------------------------------------ */

struct slice {
	double weight;             /* bytes times duration */
	const struct page_life *life;
};

static int heaviest_first(const void *a, const void *b)
{
	double x = ((const struct slice *)a)->weight, y = ((const struct slice *)b)->weight;
	return (x < y) - (x > y);
}

/* Slices of one track may overlap as they like: each has a number of its own. */
static void put_slice(struct jsonw *j, const struct page_history *h, const struct page_life *l, uint64_t number)
{
	char name[DUMP_SITE_BYTES];
	if (!dump_site_text(h->dump, l->stack, name))
		snprintf(name, sizeof name, "%s", l->tag ? h->tags[l->tag] : "allocation");
	for (int end = 0; end < 2; end++) {
		begin(j, end ? "e" : "b", name, ALLOCATIONS, time_of(h, end ? l->released : l->begin));
		jsonw_put_string(j, "cat", "allocation");
		jsonw_put_number(j, "id", number);
		open_args(j);
		if (!end) {
			jsonw_put_number(j, "bytes", l->size);
			if (h->addressed)
				jsonw_put_number(j, "address", l->address);
			jsonw_put_string(j, "tag", h->tags[l->tag]);
		}
		end_with_args(j);
	}
}

static trz_status put_slices(struct jsonw *j, const struct page_history *h, size_t most)
{
	struct slice *slices = calloc(h->life_count + 1, sizeof *slices);
	if (!slices)
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "no host memory for %zu allocations", h->life_count);
	for (size_t i = 0; i < h->life_count; i++) {
		const struct page_life *l = &h->lives[i];
		slices[i] = (struct slice){ (double)l->size * (time_of(h, l->released) - time_of(h, l->begin)), l };
	}
	qsort(slices, h->life_count, sizeof *slices, heaviest_first);
	for (size_t i = 0; i < h->life_count && i < most && slices[i].weight > 0; i++)
		put_slice(j, h, slices[i].life, i + 1);
	free(slices);
	return TRZ_OK;
}

/* ---- the file ------------------------------------------------------------------------------------------ */

static trz_status put_all(struct jsonw *j, const struct page_history *h, const struct trace_command *c)
{
	char name[64];
	jsonw_open(j, '{');
	jsonw_put_string(j, "displayTimeUnit", "ms");
	jsonw_key(j, "otherData");
	jsonw_open(j, '{');
	jsonw_put_string(j, "source", c->files.in);
	jsonw_put_string(j, "time", h->timed ? "microseconds" : "events");
	jsonw_put_number(j, "start_us", h->timed ? h->events[0].time_us : 0);
	jsonw_close(j, '}');
	jsonw_key(j, "traceEvents");
	jsonw_open(j, '[');
	snprintf(name, sizeof name, "memory of device %d", h->device);
	name_process(j, LEVELS, name);
	trz_status status = put_counters(j, h);
	put_failures(j, h);
	put_waits(j, h);
	if (c->slices) {
		name_process(j, ALLOCATIONS, "largest allocations");
		status = status == TRZ_OK ? put_slices(j, h, c->slices) : status;
	}
	jsonw_close(j, ']');
	jsonw_close(j, '}');
	jsonw_byte(j, '\n');
	jsonw_flush(j);
	return status;
}

static trz_status write_trace(const struct page_history *h, const struct trace_command *c)
{
	struct output o;
	char buffer[JSONW_BUFFER];
	trz_status status = output_begin(&o, c->files.out);
	if (status != TRZ_OK)
		return status;
	struct jsonw j = {.sink = output_sink, .owner = o.to, .buffer = buffer, .room = sizeof buffer};
	return output_end(&o, put_all(&j, h, c));
}

int cli_trace(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = parse_option,
		.args_doc = "FILE",
		.doc = "Writes the history of a memory snapshot (terrazzo's, or PyTorch's pickle) or of a trace as JSON that "
		       "Perfetto (ui.perfetto.dev) and chrome://tracing open.\v"
		       "Counters: held, reserved and pending bytes, and what is held by category and tag. Instants: failures "
		       "and waits. Slices: the allocations that took the most memory for the longest. docs/report.md says "
		       "more.",
	};
	struct trace_command c = { .files.device = -1, .slices = SLICES };
	struct dump d;
	struct page_history h;
	const char *kind;
	argp_parse(&argp, argc, argv, 0, NULL, &c);
	trz_status status = page_load(c.files.in, &d, &kind);
	if (status != TRZ_OK)
		return cli_fail(status);
	status = page_read(&d, c.files.in, c.files.device, &h);
	if (status == TRZ_OK) {
		status = h.count ? write_trace(&h, &c)
		                 : trz_fail(TRZ_ERROR_BAD_INPUT, "%s: has no history, so there is nothing to show", c.files.in);
		page_free(&h);
	}
	dump_free(&d);
	return status == TRZ_OK ? CLI_OK : cli_fail(status);
}
