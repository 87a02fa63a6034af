/* SPDX-License-Identifier: Apache-2.0
 *
 * terrazzo report: one page of a memory snapshot or a trace.
 */
#include <argp.h>
#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "cli.h"
#include "dump_evidence.h"
#include "error.h"
#include "oom_report.h"
#include "page_write.h"
#include "trace.h"

enum { OPTION_DEVICE = 256, OPTION_BY };

static const struct argp_option options[] = {
	{ "output", 'o', "FILE", 0, "the page (needed)", 0 },
	{ "device", OPTION_DEVICE, "N", 0, "the device to show (the one with the longest history)", 0 },
	{ "by", OPTION_BY, "AXIS", 0, "time (the default, where the history has it), or events", 0 },
	{ 0 }
};

struct report_command {
	const char *file, *output;
	int device;
	bool by_events;
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	static const char *const axes[] = { "time", "events", NULL };
	struct report_command *c = state->input;
	switch (key) {
	case 'o':
		c->output = arg;
		return 0;
	case OPTION_DEVICE:
		c->device = (int)option_number(state, "device", arg, 0, 1023);
		return 0;
	case OPTION_BY:
		c->by_events = option_choice(state, "by", arg, axes) == 1;
		return 0;
	case ARGP_KEY_ARG:
		if (c->file)
			argp_error(state, "one file at a time");
		c->file = arg;
		return 0;
	case ARGP_KEY_END:
		if (!c->file || !c->output)
			argp_error(state, !c->file ? "a snapshot or a trace is missing" : "-o FILE is missing");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* ---- traces ----------------------------------------------------------------------------------------------- */

/* A trace's allocations have numbers instead of addresses, and streams and pools too. */
static trz_status dump_of_trace(const struct trace *t, struct dump *d)
{
	d->events = calloc(t->count + 1, sizeof *d->events);
	d->traces = calloc(t->device + 1, sizeof *d->traces);
	d->stacks = calloc(1, sizeof *d->stacks);
	uint64_t *sizes = calloc(t->allocs + 1, sizeof *sizes);
	bool ok = d->events && d->traces && d->stacks && sizes;
	for (size_t i = 0; ok && i < t->count; i++) {
		const struct trace_event *e = &t->events[i];
		if (e->kind != TRACE_ALLOC && e->kind != TRACE_FREE)
			continue;
		if (e->kind == TRACE_ALLOC)
			sizes[e->id] = e->size;
		struct dump_event *event = &d->events[d->event_count++];
		*event = (struct dump_event){ .action = e->kind == TRACE_ALLOC ? DUMP_ALLOC : DUMP_FREE_COMPLETED,
			                          .address = (uint64_t)e->id + 1,
			                          .size = sizes[e->id],
			                          .stream = e->stream,
			                          .pool = e->pool,
			                          .tag = "" };
	}
	free(sizes);
	d->stack_count = 1;
	d->trace_count = t->device + 1;
	if (ok)
		d->traces[t->device] = (struct dump_trace){ 0, d->event_count };
	return ok ? TRZ_OK : trz_fail(TRZ_ERROR_HOST_MEMORY, "no host memory for %zu events", t->count);
}

/* What is no snapshot may be a trace; if it is neither, the snapshot's error says more. */
trz_status page_load(const char *file, struct dump *d, const char **kind)
{
	char reason[ERROR_TEXT_BYTES];
	struct trace trace;
	trz_status status = dump_load(file, d);
	*kind = d->terrazzo ? "a snapshot of terrazzo" : "a snapshot of PyTorch's allocator";
	if (status != TRZ_ERROR_BAD_INPUT || strcmp(file, "-") == 0)
		return status;
	snprintf(reason, sizeof reason, "%s", trz_last_error());
	if (trace_load(file, TRACE_ANY_DEVICE, &trace) != TRZ_OK)
		return trz_fail(status, "%s", reason);
	*kind = "a trace of requests";
	*d = (struct dump){ 0 };
	status = dump_of_trace(&trace, d);
	trace_free(&trace);
	return status;
}

/* ---- the verdict ------------------------------------------------------------------------------------------- */

static bool add_text(void *owner, const char *bytes, size_t size)
{
	FILE *to = owner;
	return fwrite(bytes, 1, size, to) == size;
}

/* The report of the newest failure, or of the end; NULL: none, for lack of figures or of host memory. To be freed. */
static char *find_verdict(const struct dump *d, const char *file, int device)
{
	struct evidence *e = calloc(1, sizeof *e);
	struct verdict v;
	char *text = NULL;
	size_t size;
	if (e && dump_evidence(d, file, device, e) == TRZ_OK) {
		FILE *to = open_memstream(&text, &size);
		if (to) {
			verdict_find(e, &v);
			oom_report_text(e, &v, add_text, to);
			fclose(to);
		}
	}
	free(e);
	return text;
}

trz_status report_page(const char *file, const char *title, int device, bool by_events, const char *output)
{
	struct dump d;
	struct page_history h;
	struct page_source from = { .title = title, .by_events = by_events };
	trz_status status = page_load(file, &d, &from.kind);
	if (status != TRZ_OK)
		return status;
	status = page_read(&d, device, &h);
	if (status == TRZ_OK) {
		char *verdict = d.segment_count ? find_verdict(&d, file, h.device) : NULL;
		from.verdict = verdict;
		status = page_write(&h, &from, output);
		page_free(&h);
		free(verdict);
	}
	dump_free(&d);
	return status;
}

int cli_report(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = parse_option,
		.args_doc = "FILE",
		.doc = "Makes one page, which needs no network, of a memory snapshot (terrazzo's, or PyTorch's pickle) or of a "
		       "trace: memory over time, addresses over time, call stacks, categories, fragmentation.\v"
		       "docs/report.md says what the page shows.",
	};
	struct report_command c = { .device = -1 };
	argp_parse(&argp, argc, argv, 0, NULL, &c);
	const char *base = strrchr(c.file, '/');
	trz_status status = report_page(c.file, base ? base + 1 : c.file, c.device, c.by_events, c.output);
	return status == TRZ_OK ? CLI_OK : cli_fail(status);
}
