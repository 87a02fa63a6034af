/* SPDX-License-Identifier: Apache-2.0
 *
 * terrazzo: entry point and choice of the subcommand.
 */
#include <argp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "error.h"
#include "output_file.h"

static const struct command {
	const char *name;
	int (*run)(int argc, char **argv);
} commands[] = {
	{ "sim", cli_sim },
	{ "estimate", cli_estimate },
	{ "replay", cli_replay },
	{ "synth", cli_synth },
	{ "config", cli_config },
	{ "costs", cli_costs },
	{ "run", cli_run },
	{ "explain", cli_explain },
	{ "diff", cli_diff },
	{ "report", cli_report },
	{ "trace", cli_trace },
};

#define COMMANDS "sim, estimate, run, explain, diff, report, trace, replay, synth, config, costs"

int cli_worse(int a, int b)
{
	static const int rank[] = { [CLI_OK] = 0, [CLI_OUT_OF_MEMORY] = 1, [CLI_BAD_INPUT] = 2, [CLI_FAILURE] = 3,
	                            [CLI_VIOLATION] = 4 };
	return rank[a] > rank[b] ? a : b;
}

int cli_fail(trz_status status)
{
	fprintf(stderr, "terrazzo: %s\n", trz_last_error());
	switch (status) {
	case TRZ_ERROR_BAD_INPUT:
	case TRZ_ERROR_IO:
	case TRZ_ERROR_INVALID_ARGUMENT:
	case TRZ_ERROR_CONFIG_KEY:
	case TRZ_ERROR_CONFIG_VALUE:
	case TRZ_ERROR_NOT_FOUND:
		return CLI_BAD_INPUT;
	case TRZ_ERROR_CORRUPT:
		return CLI_VIOLATION;
	default:
		return CLI_FAILURE;
	}
}

static void print_version(FILE *to, struct argp_state *state)
{
	(void)state;
	fprintf(to, "terrazzo %s\n", trz_version());
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	int *status = state->input;
	if (key == ARGP_KEY_NO_ARGS)
		argp_error(state, "a command is missing: " COMMANDS);
	if (key != ARGP_KEY_ARG)
		return ARGP_ERR_UNKNOWN;
	for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
		if (strcmp(arg, commands[i].name) != 0)
			continue;
		/* The following arguments belong to the command. */
		int first = state->next - 1;
		char name[32];
		snprintf(name, sizeof name, "terrazzo %s", commands[i].name);
		state->argv[first] = name;
		*status = commands[i].run(state->argc - first, state->argv + first);
		state->next = state->argc;
		return 0;
	}
	argp_error(state, "unknown command '%s'; commands: " COMMANDS, arg);
	return 0;
}

static trz_status flush_stdout(void)
{
	return fflush(stdout) == 0 && !ferror(stdout) ? TRZ_OK
	                                              : trz_fail(TRZ_ERROR_IO, "standard output cannot be written");
}

/* argp ends the process itself after --help, --usage and --version. */
static bool returned;

static void check_help(void)
{
	if (!returned && flush_stdout() != TRZ_OK)
		_exit(cli_fail(TRZ_ERROR_IO));
}

static void end_by_signal(int number)
{
	output_remove_unfinished();
	signal(number, SIG_DFL);
	raise(number);
}

/* The command that runs programs has handlers of its own. */
static void handle_ends(void)
{
	static const int ends[] = { SIGINT, SIGTERM, SIGHUP };
	const struct sigaction action = { .sa_handler = end_by_signal };
	struct sigaction old;
	for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
		if (sigaction(ends[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL)
			sigaction(ends[i], &action, NULL);
}

int main(int argc, char **argv)
{
	static const struct argp argp = {
		.parser = parse,
		.args_doc = "COMMAND [ARGUMENT...]",
		.doc =
			"Tools of terrazzo, a caching allocator of GPU memory: run a program with it or on a simulated GPU, and "
			"see where memory goes.\v"
			"Commands:\n"
			"  sim -- COMMAND    run a CUDA program on a simulated device\n"
			"  estimate          estimate by formula the memory that training takes\n"
			"  replay TRACE...   replay allocation histories on a simulated device\n"
			"  synth             make an allocation history with several streams\n"
			"  config            list the options of TERRAZZO_CONF\n"
			"  costs             print what making memory costs by a cost table\n"
			"  run COMMAND       run a program with terrazzo in place of its allocator\n"
			"  explain FILE      say why memory ran out, from a snapshot or a log\n"
			"  diff A B          say what grew between two snapshots\n"
			"  report FILE       make a page of a snapshot or a trace\n"
			"  trace FILE        write a history for Perfetto and chrome://tracing\n\n"
			"'terrazzo COMMAND --help' says more. Exit status: 0 success; 1 failure; 2 bad input or usage; "
			"3 a request got no memory; 4 a violation: wrong bytes, or a broken rule.",
	};
	argp_program_version_hook = print_version;
	argp_err_exit_status = CLI_BAD_INPUT;
	int status = CLI_FAILURE;
	atexit(check_help);
	handle_ends();
	argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &status);
	returned = true;
	/* A command that could not write, or read, a file has said so: that may have been standard output. */
	if (status != CLI_BAD_INPUT && flush_stdout() != TRZ_OK)
		status = cli_worse(status, cli_fail(TRZ_ERROR_IO));
	return status;
}
