/* SPDX-License-Identifier: Apache-2.0
 *
 * terrazzo replay
 */
#include <argp.h>
#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "cli.h"
#include "error.h"
#include "sim.h"

enum {
	OPTION_CAPACITY = 256, OPTION_POLICY, OPTION_CONF, OPTION_LAG, OPTION_REPEAT, OPTION_TIMINGS, OPTION_CHECK,
	OPTION_SEED, OPTION_COSTS, OPTION_SCHEDULE, OPTION_JSON, OPTION_SAVE, OPTION_DEVICE, OPTION_FIT, OPTION_BOUND,
	OPTION_SNAPSHOT, OPTION_HISTORY
};

enum { HISTORY_EVENTS = 1000000, HISTORY_EVENTS_MAX = 1 << 24 };

static const struct argp_option options[] = {
	{ "capacity", OPTION_CAPACITY, "SIZE", 0, "memory of the simulated device (80GiB)", 0 },
	{ "policy", OPTION_POLICY, "NAME", 0,
	  "terrazzo (the default), or naive: one driver allocation per request", 0 },
	{ "conf", OPTION_CONF, "KEY:VALUE,...", 0, "configuration of the heap, as in TERRAZZO_CONF", 0 },
	{ "lag", OPTION_LAG, "N[-M]", 0,
	  "work on a stream completes N events of the trace later (0); with -M, N to M: how many varies", 0 },
	{ "repeat", OPTION_REPEAT, "N", 0, "replay the trace N times in one heap (1)", 0 },
	{ "timings", OPTION_TIMINGS, "N", 0,
	  "replay N times and keep each operation's shortest time, which removes the host's interrupts (1)", 0 },
	{ "check", OPTION_CHECK, NULL, 0, "check the whole heap every 64 events", 0 },
	{ "seed", OPTION_SEED, "N", 0, "seed of the device's schedule (0)", 0 },
	{ "schedule", OPTION_SCHEDULE, "NAME", 0,
	  "which stream runs next: random (the default), fifo, lifo, starve", 0 },
	{ "costs", OPTION_COSTS, "TABLE", 0,
	  "cost table of driver calls: a shipped one or a file (" SIM_DEFAULT_COSTS ")", 0 },
	{ "fit", OPTION_FIT, NULL, 0,
	  "search, in steps of 64MiB up to the capacity, for the smallest device on which the trace completes", 0 },
	{ "bound", OPTION_BOUND, NULL, 0,
	  "work out what the trace needs with any allocator: without fragmentation, by the program's own order and "
	  "the lag", 0 },
	{ "json", OPTION_JSON, "FILE", 0,
	  "write a JSON object, one line, for each trace; '-': standard output, tables to standard error",
	  0 },
	{ "save", OPTION_SAVE, "FILE", 0, "write the trace in the compact format too", 0 },
	{ "snapshot", OPTION_SNAPSHOT, "FILE", 0,
	  "write the heap's memory and history, for PyTorch's viewer: as they are after the last event, or when "
	  "the first request gets no memory", 0 },
	{ "history", OPTION_HISTORY, "N", 0, "the most events that --snapshot has (1000000)", 0 },
	{ "device", OPTION_DEVICE, "N", 0, "replay the history of device N (the one with the most events)", 0 },
	{ 0 }
};

struct replay_command {
	struct replay_params params;
	int device;
	bool fit;
	bool bound;
	const char *json;
	const char *save;
	char **files;
	size_t file_count;
	bool reported;             /* a trace has been replayed, and is in the JSON file */
};

static uint64_t parse_capacity(struct argp_state *state, const char *text)
{
	uint64_t bytes;
	if (!size_parse(text, &bytes))
		argp_error(state, "--capacity: '%s' is not a size; write 80GiB, 512MiB, 1.5TiB or a number of bytes",
		           text);
	else if (bytes < MIB(2))
		argp_error(state, "--capacity: '%s' is too small; a device has at least 2MiB", text);
	else
		return bytes;
	return 0;
}

/* N, or N-M. */
static void parse_lag(struct argp_state *state, struct replay_params *p, char *text)
{
	char *most = strchr(text, '-');
	bool varies = most && most > text;
	if (varies && !most[1])
		argp_error(state, "--lag: '%s': the second number is missing", text);
	if (varies)
		*most++ = '\0';
	p->lag = option_number(state, "lag", text, 0, UINT32_MAX);
	p->lag_most = varies ? option_number(state, "lag", most, 0, UINT32_MAX) : p->lag;
	if (varies && p->lag_most <= p->lag)
		argp_error(state, "--lag: %llu-%llu: the second must be the larger", (unsigned long long)p->lag,
		           (unsigned long long)p->lag_most);
}

/* Checks of options against each other. */
static void check_command(struct replay_command *c, struct argp_state *state)
{
	struct replay_params *p = &c->params;
	if (c->save && c->file_count > 1)
		argp_error(state, "--save takes one trace, not %zu", c->file_count);
	if (p->snapshot && c->file_count > 1)
		argp_error(state, "--snapshot takes one trace, not %zu", c->file_count);
	if (p->snapshot && p->policy == REPLAY_NAIVE)
		argp_error(state, "--snapshot: the policy naive has no heap to write; use terrazzo");
	if (p->policy == REPLAY_NAIVE && (p->conf || p->check))
		argp_error(state, "%s: the policy naive has no heap; use terrazzo", p->conf ? "--conf" : "--check");
	if (p->history && !p->snapshot)
		argp_error(state, "--history is for --snapshot FILE, which is missing");
	if (p->snapshot && !p->history)
		p->history = HISTORY_EVENTS;
	option_not_twice(state, "--save", c->save, "--json", c->json);
	option_not_twice(state, "--save", c->save, "--snapshot", p->snapshot);
	option_not_twice(state, "--snapshot", p->snapshot, "--json", c->json);
	for (size_t i = 0; i < c->file_count; i++) {
		option_not_input(state, "--save", c->save, c->files[i]);
		option_not_input(state, "--snapshot", p->snapshot, c->files[i]);
		option_not_input(state, "--json", c->json, c->files[i]);
	}
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	static const char *const policies[] = { "terrazzo", "naive", NULL };
	struct replay_command *c = state->input;
	struct replay_params *p = &c->params;
	switch (key) {
	case OPTION_CAPACITY:
		p->capacity = parse_capacity(state, arg);
		return 0;
	case OPTION_POLICY:
		p->policy = (enum replay_policy)option_choice(state, "policy", arg, policies);
		return 0;
	case OPTION_CONF:
		p->conf = arg;
		return 0;
	case OPTION_LAG:
		parse_lag(state, p, arg);
		return 0;
	case OPTION_REPEAT:
		p->repeat = (unsigned)option_number(state, "repeat", arg, 1, 1000000);
		return 0;
	case OPTION_TIMINGS:
		p->timings = (unsigned)option_number(state, "timings", arg, 1, 1000);
		return 0;
	case OPTION_CHECK:
		p->check = true;
		return 0;
	case OPTION_SEED:
		p->seed = option_number(state, "seed", arg, 0, INT64_MAX);
		return 0;
	case OPTION_SCHEDULE:
		p->schedule = (sim_schedule)option_choice(state, "schedule", arg, option_schedules);
		return 0;
	case OPTION_COSTS:
		p->costs = arg;
		return 0;
	case OPTION_FIT:
	case OPTION_BOUND:
		*(key == OPTION_FIT ? &c->fit : &c->bound) = true;
		return 0;
	case OPTION_JSON:
		c->json = arg;
		return 0;
	case OPTION_SAVE:
		c->save = option_file(state, "--save", arg);
		return 0;
	case OPTION_SNAPSHOT:
		p->snapshot = option_file(state, "--snapshot", arg);
		return 0;
	case OPTION_HISTORY:
		p->history = option_number(state, "history", arg, 1, HISTORY_EVENTS_MAX);
		return 0;
	case OPTION_DEVICE:
		c->device = (int)option_number(state, "device", arg, 0, INT32_MAX);
		return 0;
	case ARGP_KEY_ARGS:
		c->files = state->argv + state->next;
		c->file_count = (size_t)(state->argc - state->next);
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "a trace is missing");
		return 0;
	case ARGP_KEY_END:
		check_command(c, state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* The file's name up to its first dot. */
static void set_name(struct report_row *row, const char *file)
{
	const char *slash = strrchr(file, '/');
	const char *start = slash ? slash + 1 : file;
	if (strcmp(file, "-") == 0)
		start = "stdin";
	size_t length = strcspn(start, ".");
	if (length == 0)
		length = strlen(start);
	snprintf(row->name, sizeof row->name, "%.*s", (int)min_u64(length, sizeof row->name - 1), start);
	row->file = file;
}

static trz_status replay_loaded(struct replay_command *c, const struct trace *trace, struct report_row *row)
{
	row->device = trace->device;
	row->unknown_frees = trace->unknown_frees;
	row->implied_frees = trace->implied_frees;
	row->failed_allocs = trace->failed_allocs;
	if (c->save) {
		trz_status status = trace_save(trace, c->save);
		if (status != TRZ_OK)
			return status;
	}
	struct progress progress;
	progress_start(&progress, row->name);
	c->params.progress = progress_step;
	c->params.progress_arg = &progress;
	trz_status status = replay_run(trace, &c->params, &row->result);
	/* A trace that does not fit in the whole capacity fits in no smaller device. */
	if (status == TRZ_OK && c->fit && row->result.ooms == 0)
		status = replay_fit(trace, &c->params, row->result.peak_allocated_bytes, &row->fit);
	if (status == TRZ_OK && c->bound)
		status = replay_bound(trace, max_u64(c->params.lag, c->params.lag_most), &row->bound);
	progress_end(&progress);
	return status;
}

static int exit_code_of(const struct report_row *row)
{
	const struct replay_result *r = &row->result;
	if (r->violations || r->leaks || row->fit.violations || row->fit.leaks)
		return CLI_VIOLATION;
	return r->ooms ? CLI_OUT_OF_MEMORY : CLI_OK;
}

/* As cli_fail, for a failure whose text does not name the trace. */
static int fail_of(const char *file, trz_status status)
{
	char text[512];
	snprintf(text, sizeof text, "%s", trz_last_error());
	return cli_fail(trz_fail(status, "%s: cannot be replayed: %s", file, text));
}

/* Replays one file into the report's next row. */
static int replay_file(struct replay_command *c, const char *file, struct report *report, FILE *json)
{
	struct trace trace;
	trz_status status = trace_load(file, c->device, &trace);
	if (status != TRZ_OK)
		return cli_fail(status);
	struct report_row *row = &report->rows[report->count];
	set_name(row, file);
	status = replay_loaded(c, &trace, row);
	trace_free(&trace);
	if (status != TRZ_OK)
		return fail_of(file, status);
	if (json && !report_json(report, row, json))
		return cli_fail(output_failed(c->json));
	report->count++;
	c->reported = true;
	return exit_code_of(row);
}

static int replay_files(struct replay_command *c, FILE *json)
{
	struct report report = { .params = &c->params, .fit = c->fit, .bound = c->bound };
	report.rows = calloc(c->file_count, sizeof *report.rows);
	if (!report.rows)
		return cli_fail(trz_fail(TRZ_ERROR_HOST_MEMORY, "no memory for %zu traces", c->file_count));
	int code = CLI_OK;
	for (size_t i = 0; i < c->file_count; i++)
		code = cli_worse(code, replay_file(c, c->files[i], &report, json));
	if (report.count > 0)
		report_print(&report, json == stdout ? stderr : stdout);
	free(report.rows);
	return code;
}

int cli_replay(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = parse_option,
		.args_doc = "TRACE...",
		.doc = "Replays allocation histories through the allocator on a simulated device, and prints "
		       "what they cost.\v"
		       "A TRACE is a PyTorch memory snapshot (pickle), a log of RMM (CSV) or STAlloc, or a compact "
		       "trace, plain or packed by xz, gzip or zstd; '-' is standard input. Every allocation is "
		       "written to, and checked when it is freed. Driver time is virtual, by the cost table.",
	};
	struct replay_command c = { .device = TRACE_ANY_DEVICE,
		                        .params = { .capacity = GIB(80), .costs = SIM_DEFAULT_COSTS, .timings = 1,
		                                    .repeat = 1 } };
	argp_parse(&argp, argc, argv, 0, NULL, &c);
	trz_status status = trz_config_check(c.params.conf);
	if (status != TRZ_OK)
		return cli_fail(status);
	if (!c.json)
		return replay_files(&c, NULL);
	struct output o;
	status = output_begin(&o, c.json);
	if (status != TRZ_OK)
		return cli_fail(status);
	int code = replay_files(&c, o.to);
	bool none = code != CLI_OK && !c.reported;
	status = output_end(&o, none ? TRZ_ERROR_BAD_INPUT : TRZ_OK);
	return none || status == TRZ_OK ? code : cli_worse(code, cli_fail(status));
}
