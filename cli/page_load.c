/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads what `terrazzo report` and `terrazzo trace` are given: a snapshot, or a trace as if it were one.
 */
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "error.h"
#include "page.h"
#include "trace.h"

error_t page_option(int key, char *arg, struct argp_state *state, struct page_files *files)
{
	switch (key) {
	case 'o':
		files->out = arg;
		return 0;
	case PAGE_DEVICE:
		files->device = option_device(state, arg);
		return 0;
	case ARGP_KEY_ARG:
		if (files->in)
			argp_error(state, "one file at a time");
		files->in = arg;
		return 0;
	case ARGP_KEY_END:
		if (!files->in || !files->out)
			argp_error(state, !files->in ? "a snapshot or a trace is missing" : "-o FILE is missing");
		else
			option_not_input(state, "-o", files->out, files->in);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* A trace has numbers in place of addresses, streams and pools. */
static trz_status dump_of_trace(const struct trace *t, struct dump *d)
{
	d->events = calloc(t->count + 1, sizeof *d->events);
	d->traces = calloc(t->device + 1, sizeof *d->traces);
	d->stacks = calloc(1, sizeof *d->stacks);
	d->sites = calloc(1, sizeof *d->sites);
	uint64_t *sizes = calloc(t->allocs + 1, sizeof *sizes);
	bool ok = d->events && d->traces && d->stacks && d->sites && sizes;
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

/* What is no snapshot may be a trace. If it is neither, the error is that of what it begins as. */
trz_status page_load(const char *file, struct dump *d, const char **kind)
{
	char reason[ERROR_TEXT_BYTES];
	struct trace trace;
	trz_status status = dump_load(file, d);
	*kind = d->terrazzo ? "a snapshot of terrazzo" : "a snapshot of PyTorch's allocator";
	if (status != TRZ_ERROR_BAD_INPUT || strcmp(file, "-") == 0)
		return status;
	snprintf(reason, sizeof reason, "%s", trz_last_error());
	status = trace_load(file, TRACE_ANY_DEVICE, &trace);
	if (status != TRZ_OK)
		return dump_may_be(file) ? trz_fail(status, "%s", reason) : status;
	*kind = "a trace of requests";
	*d = (struct dump){ 0 };
	status = dump_of_trace(&trace, d);
	trace_free(&trace);
	if (status != TRZ_OK)
		dump_free(d);
	return status;
}
