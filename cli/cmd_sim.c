/* SPDX-License-Identifier: Apache-2.0
 *
 * terrazzo sim
 */
#include <argp.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bits.h"
#include "cli.h"
#include "error.h"
#include "program.h"
#include "replay.h"
#include "sim.h"
#include "sim_profile.h"

enum {
	OPTION_DEVICE = 256, OPTION_MEMORY, OPTION_DEVICES, OPTION_WORK, OPTION_SEED, OPTION_SCHEDULE, OPTION_COSTS,
	OPTION_ENV, OPTION_ALLOCATOR, OPTION_HOLDERS, OPTION_JSON, OPTION_FIT, OPTION_SWEEP, OPTION_JOBS, OPTION_SETUP,
	OPTION_COMPILE, OPTION_TORCH, OPTION_WITH, OPTION_SCALARS, OPTION_COLLECTIVE_BYTES, OPTION_TIMEOUT,
	OPTION_NCCL_MEMORY, OPTION_WORLD_SIZE, OPTION_RANKS, OPTION_NODES, OPTION_RECORD, OPTION_REPORT
};

static const struct argp_option options[] = {
	{ "device", OPTION_DEVICE, "NAME", 0,
	  "a profile (h100); 'list' prints all, or with --fit finds the smallest that is enough", 0 },
	{ "memory", OPTION_MEMORY, "SIZE", 0, "memory of each device; a context takes none of it", 0 },
	{ "devices", OPTION_DEVICES, "N", 0, "number of devices (1)", 0 },
	{ "nodes", OPTION_NODES, "N", 0,
	  "run the command once on each of N nodes at the same time, with '{node}' replaced; each node has --devices of "
	  "its own", 0 },
	{ "allocator", OPTION_ALLOCATOR, "NAME,...", 0, "native (PyTorch's own), expandable (the same with expandable "
	  "segments) or terrazzo; of several the runs are compared", 0 },
	{ "env", OPTION_ENV, "DIR", 0, "run in this virtual environment, which --setup made", 0 },
	{ "holders", OPTION_HOLDERS, NULL, 0,
	  "report which lines held the most memory at the peak, or when it ran out; for that PyTorch keeps a history, "
	  "which costs time and host memory", 0 },
	{ "record", OPTION_RECORD, "FILE", 0,
	  "write a compact trace of the command's requests for memory, its events and waits, for terrazzo replay; "
	  "several processes write one each, with the rank's number in its name", 0 },
	{ "report", OPTION_REPORT, "FILE", 0,
	  "make a page of PyTorch's memory over time (docs/report.md), for which PyTorch keeps a history; several "
	  "processes make one each, with the rank's number in its name", 0 },
	{ "json", OPTION_JSON, "FILE", 0, "write the report as JSON, too; '-': standard output", 0 },
	{ "fit", OPTION_FIT, NULL, 0,
	  "search, in steps of 64MiB, for the smallest memory with which the command completes", 0 },
	{ "sweep", OPTION_SWEEP, "NAME=VALUE,...", 0,
	  "run the command once for each VALUE, which replaces '{NAME}' in it, several runs at a time; print the largest "
	  "that fits", 0 },
	{ "jobs", OPTION_JOBS, "N", 0, "how many runs of --sweep at a time (the number of cores)", 0 },
	{ "work", OPTION_WORK, "WHEN", 0, "work on streams completes now (the default), or late, in an order by seed",
	  0 },
	{ "seed", OPTION_SEED, "N", 0, "seed of the order of late work (0)", 0 },
	{ "schedule", OPTION_SCHEDULE, "NAME", 0, "which stream runs next: random (the default), fifo, lifo, starve", 0 },
	{ "costs", OPTION_COSTS, "TABLE", 0,
	  "cost table of driver calls: a shipped one or a file (" SIM_DEFAULT_COSTS ")", 0 },
	{ "scalars", OPTION_SCALARS, "WHAT", 0, "short reads from the device give what PyTorch makes of what the "
	  "host has sent, computed on the host (the default), zero, or real bytes", 0 },
	{ "collective-bytes", OPTION_COLLECTIVE_BYTES, "SIZE", 0,
	  "collectives of up to this many bytes a rank move real bytes (1MiB)", 0 },
	{ "nccl-memory", OPTION_NCCL_MEMORY, "WHETHER", 0,
	  "count the device memory that NCCL's communicators take: yes (the default) or no", 0 },
	{ "timeout", OPTION_TIMEOUT, "SECONDS", 0, "how long a rank may wait for others (for ever)", 0 },
	{ "world-size", OPTION_WORLD_SIZE, "N", 0,
	  "run the command, without a launcher, as --ranks of a world of N, each by itself, as if the others did what it "
	  "does; --devices, here 8 by default, is the size of a node", 0 },
	{ "ranks", OPTION_RANKS, "R,R,...", 0, "with --world-size: the ranks that run (0)", 0 },
	{ "setup", OPTION_SETUP, "DIR", 0, "set up a virtual environment with PyTorch in DIR, and do nothing else", 1 },
	{ "torch", OPTION_TORCH, "VERSION", 0, "with --setup: the version of PyTorch", 1 },
	{ "compile", OPTION_COMPILE, NULL, 0, "with --setup: install triton too, for torch.compile", 1 },
	{ "with", OPTION_WITH, "PACKAGE", 0, "with --setup: also install this package, for example transformers", 1 },
	{ 0 }
};

enum { MOST_PACKAGES = 32, NODE_DEVICES = 8 };

enum { MOST_ALLOCATORS = 3 };

struct sim_command {
	struct program_params params;
	const char *allocators[MOST_ALLOCATORS + 1];  /* to compare; at most one: params.allocator serves */
	const char *json;
	const char *report;
	const char *sweep;
	unsigned jobs;
	bool fit, list;
	const char *setup, *torch;
	bool compile;
	const char *packages[MOST_PACKAGES];
	size_t package_count;
};

static void check_command(const struct sim_command *c, struct argp_state *state)
{
	bool has_command = c->params.command && c->params.command[0];
	if (c->setup && has_command)
		argp_error(state, "--setup takes no command such as '%s'; for several packages write --with A --with B",
		           c->params.command[0]);
	if (!c->setup && (c->torch || c->compile || c->package_count))
		argp_error(state, "--torch, --compile and --with are for --setup DIR, which is missing");
	if (!c->setup && !has_command && !c->list)
		argp_error(state, "a command is missing");
	if (c->list && has_command && !c->fit)
		argp_error(state, "--device list takes a command only with --fit");
	if (c->list && c->params.memory_bytes)
		argp_error(state, "--memory and --device list do not go together");
	const char *terrazzo = getenv("TERRAZZO");
	bool native = c->allocators[1] || (c->allocators[0] && strcmp(c->allocators[0], PROGRAM_ON_TERRAZZO) != 0);
	if (native && terrazzo && strcmp(terrazzo, "1") == 0)
		argp_error(state, "--allocator asks for PyTorch's own allocator, but TERRAZZO=1 puts terrazzo in its place: "
		                  "leave one of the two out");
	if (c->params.nodes && c->params.world)
		argp_error(state, "--nodes and --world-size do not go together: in a world of absent ranks --devices is the "
		                  "size of a node");
	if (c->params.nodes * (c->params.devices ? c->params.devices : 1) > PROGRAM_MOST_RANKS)
		argp_error(state, "--nodes: more than %d devices on all nodes together", PROGRAM_MOST_RANKS);
	if (c->params.rank_count && !c->params.world)
		argp_error(state, "--ranks needs --world-size");
	for (size_t i = 0; i < c->params.rank_count; i++)
		if (c->params.ranks[i] >= c->params.world)
			argp_error(state, "--ranks: there is no rank %u of %u", c->params.ranks[i], c->params.world);
	if (c->params.record && (c->fit || c->sweep))
		argp_error(state, "--record takes one run; --fit and --sweep make several");
	if (c->report && (c->fit || c->sweep))
		argp_error(state, "--report takes one run; --fit and --sweep make several");
	if (c->params.record && terrazzo && strcmp(terrazzo, "1") == 0)
		argp_error(state, "--record writes what the command asks of PyTorch's own allocator, and TERRAZZO=1 puts "
		                  "terrazzo in its place: leave one of the two out");
	bool compares = c->allocators[0] && c->allocators[1];
	if (compares && (c->sweep || c->list || c->params.record || c->report))
		argp_error(state, "--allocator: to compare several, leave out --sweep, --device list, --record and --report");
	if (c->jobs && !c->sweep && !compares)
		argp_error(state, "--jobs is for --sweep or several of --allocator, which are missing");
	if (c->fit && c->sweep)
		argp_error(state, "--fit and --sweep do not go together");
	option_not_twice(state, "--json", c->json, "--report", c->report);
	option_not_twice(state, "--json", c->json, "--record", c->params.record);
	option_not_twice(state, "--report", c->report, "--record", c->params.record);
	option_not_in_command(state, "--json", c->json, c->params.command);
	option_not_in_command(state, "--report", c->report, c->params.command);
	option_not_in_command(state, "--record", c->params.record, c->params.command);
}

/* "native", "native,expandable,terrazzo" */
static void parse_allocators(struct argp_state *state, struct sim_command *c, const char *text)
{
	static const char *const names[] = { "native", "expandable", PROGRAM_ON_TERRAZZO, NULL };
	char name[32];
	size_t count = 0;
	for (const char *at = text; at; at = *at ? at + 1 : NULL) {
		size_t length = strcspn(at, ",");
		snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name), at);
		const char *chosen = names[option_choice(state, "allocator", name, names)];
		for (size_t i = 0; i < count; i++)
			if (c->allocators[i] == chosen)
				argp_error(state, "--allocator: %s is named twice", chosen);
		c->allocators[count++] = chosen;
		at += length;
	}
	c->allocators[count] = NULL;
}

static uint64_t parse_memory(struct argp_state *state, const char *text)
{
	uint64_t bytes = 0;
	if (!size_parse(text, &bytes))
		argp_error(state, "--memory: '%s' is not a size; write 40GiB, 512MiB, 1.5TiB or a number of bytes", text);
	else if (bytes < MIB(2) || bytes > GIB(4096))
		argp_error(state, "--memory: '%s' is not from 2MiB to 4TiB", text);
	return bytes / MIB(2) * MIB(2);
}

static uint64_t parse_collective_bytes(struct argp_state *state, const char *text)
{
	uint64_t bytes = 0;
	if (!size_parse(text, &bytes))
		argp_error(state, "--collective-bytes: '%s' is not a size; write 64KiB, 4MiB or a number of bytes", text);
	else if (bytes > MIB(64))
		argp_error(state, "--collective-bytes: '%s' is above 64MiB", text);
	return bytes;
}

static const char *parse_device(struct argp_state *state, struct sim_command *c, const char *name)
{
	c->list = strcmp(name, "list") == 0;
	const struct sim_profile *profile = sim_profile_find(c->list ? "h100" : name);
	if (!profile)
		argp_error(state, "--device: unknown profile '%s'; --device list prints them", name);
	return profile ? profile->name : name;
}

static error_t parse_setup(int key, char *arg, struct argp_state *state)
{
	struct sim_command *c = state->input;
	switch (key) {
	case OPTION_SETUP:
		if (!*arg)
			argp_error(state, "--setup: a folder needs a name");
		c->setup = arg;
		return 0;
	case OPTION_TORCH:
		c->torch = arg;
		return 0;
	case OPTION_COMPILE:
		c->compile = true;
		return 0;
	case OPTION_WITH:
		if (c->package_count == MOST_PACKAGES)
			argp_error(state, "--with: more than %d packages", MOST_PACKAGES);
		else
			c->packages[c->package_count++] = arg;
		return 0;
	case ARGP_KEY_ARGS:
		c->params.command = state->argv + state->next;
		return 0;
	case ARGP_KEY_END:
		check_command(c, state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* "0,7,63" */
static void parse_ranks(struct argp_state *state, struct program_params *p, const char *text)
{
	enum { MOST_RUN = 64 };
	static unsigned ranks[MOST_RUN];
	p->ranks = ranks;
	p->rank_count = 0;
	for (bool more = true; more;) {
		char *end;
		unsigned long rank = strtoul(text, &end, 10);
		if (*text < '0' || *text > '9' || (*end && *end != ',') || rank > 1000000 || p->rank_count == MOST_RUN)
			argp_error(state, "--ranks: '%s' is not a list of up to %d ranks such as 0,7,63", text, MOST_RUN);
		for (size_t i = 0; i < p->rank_count; i++)
			if (ranks[i] == rank)
				argp_error(state, "--ranks: rank %lu is named twice", rank);
		ranks[p->rank_count++] = (unsigned)rank;
		more = *end == ',';
		text = end + 1;
	}
}

static error_t parse_rank_option(int key, char *arg, struct argp_state *state)
{
	static const char *const answers[] = { "yes", "no", NULL };
	struct program_params *p = &((struct sim_command *)state->input)->params;
	switch (key) {
	case OPTION_WORLD_SIZE:
		p->world = (unsigned)option_number(state, "world-size", arg, 2, 1000000);
		return 0;
	case OPTION_NODES:
		p->nodes = (unsigned)option_number(state, "nodes", arg, 1, PROGRAM_MOST_RANKS);
		return 0;
	case OPTION_RANKS:
		parse_ranks(state, p, arg);
		return 0;
	case OPTION_COLLECTIVE_BYTES:
		p->has_collective_bytes = true;
		p->collective_bytes = parse_collective_bytes(state, arg);
		return 0;
	case OPTION_NCCL_MEMORY:
		p->nccl_memory = answers[option_choice(state, "nccl-memory", arg, answers)];
		return 0;
	case OPTION_TIMEOUT:
		option_number(state, "timeout", arg, 1, 1000000);
		p->timeout = arg;
		return 0;
	default:
		return parse_setup(key, arg, state);
	}
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	static const char *const scalars[] = { "computed", "zero", "real", NULL };
	static const char *const works[] = { "now", "late", NULL };
	struct sim_command *c = state->input;
	struct program_params *p = &c->params;
	switch (key) {
	case OPTION_DEVICE:
		p->device = parse_device(state, c, arg);
		return 0;
	case OPTION_MEMORY:
		p->memory_bytes = parse_memory(state, arg);
		return 0;
	case OPTION_DEVICES:
		p->devices = (unsigned)option_number(state, "devices", arg, 1, 16);
		return 0;
	case OPTION_ALLOCATOR:
		parse_allocators(state, c, arg);
		return 0;
	case OPTION_WORK:
		p->work = works[option_choice(state, "work", arg, works)];
		return 0;
	case OPTION_SCHEDULE:
		p->schedule = option_schedules[option_choice(state, "schedule", arg, option_schedules)];
		return 0;
	case OPTION_SEED:
		option_number(state, "seed", arg, 0, INT64_MAX);
		p->seed = arg;
		return 0;
	case OPTION_COSTS:
		p->costs = arg;
		return 0;
	case OPTION_SCALARS:
		p->scalars = scalars[option_choice(state, "scalars", arg, scalars)];
		return 0;
	case OPTION_ENV:
		if (!*arg)
			argp_error(state, "--env: a folder needs a name");
		p->env = arg;
		return 0;
	case OPTION_HOLDERS:
		p->holders = true;
		return 0;
	case OPTION_RECORD:
		p->record = option_file(state, "--record", arg);
		return 0;
	case OPTION_JSON:
		c->json = arg;
		return 0;
	case OPTION_REPORT:
		c->report = option_file(state, "--report", arg);
		return 0;
	case OPTION_FIT:
		c->fit = true;
		return 0;
	case OPTION_SWEEP:
		c->sweep = arg;
		return 0;
	case OPTION_JOBS:
		c->jobs = (unsigned)option_number(state, "jobs", arg, 1, 64);
		return 0;
	default:
		return parse_rank_option(key, arg, state);
	}
}

/* The Python part sets the environment up. */
static int run_setup(const struct sim_command *c)
{
	const char *python = program_python(), *libraries = program_libraries();
	if (!python || !libraries)
		return cli_fail(TRZ_ERROR_NOT_FOUND);
	const char *argv[12 + 2 * MOST_PACKAGES] = { "python3", python, "setup", c->setup, "--libraries", libraries };
	int n = 6;
	if (c->torch) {
		argv[n++] = "--torch";
		argv[n++] = c->torch;
	}
	if (c->compile)
		argv[n++] = "--compile";
	for (size_t i = 0; i < c->package_count; i++) {
		argv[n++] = "--with";
		argv[n++] = c->packages[i];
	}
	execvp(argv[0], (char **)argv);
	return cli_fail(trz_fail(TRZ_ERROR_IO, "python3 cannot be run: %s; install Python 3.10 or newer",
	                         strerror(errno)));
}

static int list_devices(void)
{
	printf("%-12s  %9s  %12s  %7s\n", "device", "GiB", "context, GiB", "compute");
	for (size_t i = 0; sim_profile_at(i); i++) {
		const struct sim_profile *p = sim_profile_at(i);
		printf("%-12s  %9.2f  %12.2f  %5u.%u  %s\n", p->name, (double)p->memory_bytes / (double)GIB(1),
		       (double)p->overhead_bytes / (double)GIB(1), p->compute_major, p->compute_minor, p->title);
	}
	return CLI_OK;
}

static trz_status write_json(const json_t *result, const char *file)
{
	size_t flags = JSON_COMPACT | JSON_REAL_PRECISION(6);
	return output_json(file, result, flags);
}

/* Says why --holders tells nothing. */
static void check_explained(const json_t *result)
{
	if (json_array_size(json_object_get(result, "processes")) && !json_object_get(result, "explanation"))
		fprintf(stderr, "\nterrazzo: --holders: no history was kept: PyTorch's own allocator keeps one, and so does "
		        "what runs under `terrazzo run`\n");
}

/* Says that --record has written nothing, unless the command has failed, which may be why. */
static int check_recorded(const json_t *result, const char *file, int code)
{
	size_t i;
	const json_t *process, *processes = json_object_get(result, "processes");
	json_array_foreach(processes, i, process)
		if (json_object_get(process, "trace"))
			return code;
	if (code != CLI_OK)
		return code;
	return cli_fail(trz_fail(TRZ_ERROR_NOT_FOUND, "%s: there is no trace: no process of the command asked for device "
	                         "memory, or none could be recorded", file));
}

static int run_command(struct sim_command *c)
{
	json_t *result = NULL;
	trz_status status;
	if (c->allocators[1])
		status = program_compare(&c->params, c->allocators, c->fit, c->jobs, &result, stderr);
	else if (c->sweep)
		status = program_sweep(&c->params, c->sweep, c->jobs, &result, stderr);
	else if (c->fit)
		status = program_fit(&c->params, c->list, &result, stderr);
	else
		status = program_run(&c->params, &result);
	int code = status == TRZ_OK ? CLI_OK : cli_fail(status);
	if (!result)
		return code;
	if (!c->sweep && !c->allocators[1]) {
		program_print(result, stderr);
		if (c->params.holders)
			check_explained(result);
		if (code == CLI_OK && !c->fit)
			code = program_exit_status(result);
		else if (code == CLI_OK && !program_number(json_object_get(result, "fit"), "memory_bytes"))
			code = CLI_OUT_OF_MEMORY;
	}
	if (c->params.record)
		code = check_recorded(result, c->params.record, code);
	if (c->json && (status = write_json(result, c->json)) != TRZ_OK)
		code = cli_worse(code > CLI_VIOLATION ? CLI_FAILURE : code, cli_fail(status));
	json_decref(result);
	return code;
}

/* Returns the command's exit status, unless a page cannot be made. */
static int run_with_pages(struct sim_command *c)
{
	char folder[CLI_PATH_SIZE];
	trz_status status = report_make_folder(folder);
	if (status != TRZ_OK)
		return cli_fail(status);
	c->params.pages = folder;
	int code = run_command(c);
	status = report_pages(folder, c->params.command, c->report);
	program_remove(folder);
	if (status != TRZ_OK)
		code = cli_worse(code > CLI_VIOLATION ? CLI_FAILURE : code, cli_fail(status));
	return code;
}

/* A run may take hours, so this checks beforehand that its results can be written. */
static trz_status check_outputs(const struct sim_command *c)
{
	const char *const outputs[] = { c->json, c->report, c->params.record };
	trz_status status = TRZ_OK;
	for (size_t i = 0; i < sizeof outputs / sizeof outputs[0] && status == TRZ_OK; i++)
		status = outputs[i] ? output_check(outputs[i]) : TRZ_OK;
	return status;
}

static bool is_shipped(const char *costs)
{
	const char *const *table = sim_cost_tables();
	while (*table && strcmp(*table, costs) != 0)
		table++;
	return *table != NULL;
}

/* A cost table in a file: the command's processes read it wherever they are. */
static trz_status check_costs(struct program_params *p)
{
	static char path[PATH_MAX];
	struct replay_tile_cost cost;
	trz_status status = p->costs ? replay_tile_cost(p->costs, MIB(2), &cost) : TRZ_OK;
	if (status == TRZ_OK && p->costs && !is_shipped(p->costs) && realpath(p->costs, path))
		p->costs = path;
	return status;
}

int cli_sim(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = parse_option,
		.args_doc = "COMMAND...\n--setup DIR\n--device list",
		.doc = "Runs a CUDA program, such as a PyTorch script, on a simulated device, and prints where its memory "
		       "went.\v"
		       "Kernels and library calls compute nothing; copies, fills and everything about memory are real. "
		       "The exit status is the command's. docs/sim.md says what is and is not true of such a run.",
	};
	struct sim_command c = { .params = { .device = "h100" } };
	argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &c);
	if (c.setup)
		return run_setup(&c);
	static unsigned first[] = { 0 };
	if (!c.jobs)
		c.jobs = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
	if (!c.params.devices)
		c.params.devices = c.params.world ? NODE_DEVICES : 1;
	if (c.params.world && !c.params.rank_count) {
		c.params.ranks = first;
		c.params.rank_count = 1;
	}
	if (c.list && !c.fit)
		return list_devices();
	trz_status status = check_outputs(&c);
	if (status == TRZ_OK)
		status = check_costs(&c.params);
	if (status == TRZ_OK && c.allocators[0] && !c.allocators[1])
		status = program_choose_allocator(&c.params, c.allocators[0]);
	if (status != TRZ_OK)
		return cli_fail(status);
	program_pass_signals_on();
	return c.report ? run_with_pages(&c) : run_command(&c);
}
