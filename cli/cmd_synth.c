/* SPDX-License-Identifier: Apache-2.0
 *
 * terrazzo synth
 */
#include <argp.h>
#include <string.h>

#include "cli.h"
#include "synth.h"

enum { OPTION_STREAMS = 256, OPTION_EVENTS, OPTION_SEED, OPTION_SHAPE, OPTION_RECORD_STREAM, OPTION_SAVE };

/* Traces are made in memory, 24 bytes an event. */
enum { EVENTS_MAX = 100000000 };

static const struct argp_option options[] = {
	{ "streams", OPTION_STREAMS, "N", 0, "streams of the program (4)", 0 },
	{ "events", OPTION_EVENTS, "N", 0, "length of the trace (20000)", 0 },
	{ "seed", OPTION_SEED, "N", 0, "seed of sizes and lifetimes (0)", 0 },
	{ "shape", OPTION_SHAPE, "NAME", 0,
	  "ring: each stream fills buffers for the next; fsdp: training with sharded parameters; "
	  "graphs: captures into a pool, launched again and again; random (the default)", 0 },
	{ "record-stream", OPTION_RECORD_STREAM, NULL, 0,
	  "free shared memory on its own stream after record_stream, not on its last user's", 0 },
	{ "save", OPTION_SAVE, "FILE", 0, "where to write the trace, in the compact format; '-': standard output", 0 },
	{ 0 }
};

struct synth_command {
	struct synth_params params;
	const char *save;
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	static const char *const shapes[] = { "ring", "fsdp", "graphs", "random", NULL };
	struct synth_command *c = state->input;
	struct synth_params *p = &c->params;
	switch (key) {
	case OPTION_STREAMS:
		p->streams = (uint32_t)option_number(state, "streams", arg, 1, TRACE_STREAMS_MAX);
		return 0;
	case OPTION_EVENTS:
		p->events = option_number(state, "events", arg, 1, EVENTS_MAX);
		return 0;
	case OPTION_SEED:
		p->seed = option_number(state, "seed", arg, 0, INT64_MAX);
		return 0;
	case OPTION_SHAPE:
		p->shape = (enum synth_shape)option_choice(state, "shape", arg, shapes);
		return 0;
	case OPTION_RECORD_STREAM:
		p->record_stream = true;
		return 0;
	case OPTION_SAVE:
		c->save = arg;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "unexpected argument '%s'", arg);
		return 0;
	case ARGP_KEY_END:
		if (!c->save)
			argp_error(state, "--save FILE is missing");
		if (p->shape == SYNTH_GRAPHS && p->streams < 2)
			argp_error(state, "--shape graphs: needs --streams 2 or more: the default stream cannot be captured");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

int cli_synth(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = parse_option,
		.doc = "Makes a trace of a program that uses several streams, for 'terrazzo replay'.\v"
		       "An event and a wait order memory that one stream hands to another, so that the trace is a "
		       "legal program. Equal options give equal traces.",
	};
	struct synth_command c = { .params = { .shape = SYNTH_RANDOM, .streams = 4, .events = 20000 } };
	argp_parse(&argp, argc, argv, 0, NULL, &c);
	struct trace trace;
	trz_status status = synth_trace(&c.params, &trace);
	if (status == TRZ_OK)
		status = trace_save(&trace, c.save);
	if (status == TRZ_OK && strcmp(c.save, "-") != 0) {
		printf("%s: %zu events, %u allocations, %u streams\n", c.save, trace.count, trace.allocs,
		       trace.streams);
	}
	trace_free(&trace);
	return status == TRZ_OK ? CLI_OK : cli_fail(status);
}
