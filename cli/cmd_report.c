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

enum { OPTION_BY = PAGE_OPTIONS };

static const struct argp_option options[] = {
	{ "output", 'o', "FILE", 0, "where to write the page (required); '-': standard output", 0 },
	{ "device", PAGE_DEVICE, "N", 0, "the device to show (the one with the longest history)", 0 },
	{ "by", OPTION_BY, "AXIS", 0, "the page's axis: time (the default, where the history has it), or events", 0 },
	{ 0 }
};

struct report_command {
	struct page_files files;
	bool by_events;
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	static const char *const axes[] = { "time", "events", NULL };
	struct report_command *c = state->input;
	switch (key) {
	case OPTION_BY:
		c->by_events = option_choice(state, "by", arg, axes) == 1;
		return 0;
	default:
		return page_option(key, arg, state, &c->files);
	}
}

/* ---- the verdict ------------------------------------------------------------------------------------------- */

/* The report of the newest failure, or of the end; NULL: none, for lack of figures or of host memory. To be freed. */
static char *find_verdict(const struct dump *d, const char *file, int device)
{
	struct evidence *e = calloc(1, sizeof *e);
	struct verdict v;
	char *text = NULL;
	if (e && dump_evidence(d, file, device, e, NULL) == TRZ_OK) {
		verdict_find(e, &v);
		text = output_report(oom_report_text, e, &v);
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
	status = page_read(&d, file, device, &h);
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
	struct report_command c = { .files.device = -1 };
	argp_parse(&argp, argc, argv, 0, NULL, &c);
	const struct page_files *files = &c.files;
	const char *base = strrchr(files->in, '/');
	trz_status status = report_page(files->in, base ? base + 1 : files->in, files->device, c.by_events, files->out);
	return status == TRZ_OK ? CLI_OK : cli_fail(status);
}
