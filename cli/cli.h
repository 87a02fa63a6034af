/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line program: declarations that its files share. A subcommand is a function from its own argv (argv[0] is
 * "terrazzo NAME") to an exit code.
 */
#ifndef TRZ_CLI_H
#define TRZ_CLI_H

#include <argp.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "oom_report.h"
#include "output_file.h"
#include "replay.h"
#include "size_text.h"

/* Exit codes, mildest first; cli_worse() keeps the graver of two. */
enum cli_exit {
	CLI_OK = 0,
	CLI_OUT_OF_MEMORY = 3,  /* a replayed request got no memory */
	CLI_BAD_INPUT = 2,      /* usage, configuration, a file */
	CLI_FAILURE = 1,        /* anything else */
	CLI_VIOLATION = 4       /* wrong bytes, a broken rule of the driver, a leak, a heap check that failed */
};

enum { CLI_PATH_SIZE = 4096 };

int cli_worse(int a, int b);

/* The exit code for a failure, after printing "terrazzo: <last error>". */
int cli_fail(trz_status status);

int cli_sim(int argc, char **argv);
int cli_estimate(int argc, char **argv);
int cli_replay(int argc, char **argv);
int cli_synth(int argc, char **argv);
int cli_config(int argc, char **argv);
int cli_costs(int argc, char **argv);
int cli_run(int argc, char **argv);
int cli_explain(int argc, char **argv);
int cli_diff(int argc, char **argv);
int cli_report(int argc, char **argv);
int cli_trace(int argc, char **argv);

/* -- values of options (options.c): usage errors end the program ------------------------------------- */

uint64_t option_number(struct argp_state *state, const char *option, const char *text, uint64_t least,
                       uint64_t most);

/* Names of sim_schedule's values, in their order; ends with NULL. */
extern const char *const option_schedules[];

/* The index of `text` among `names`, which ends with NULL. */
int option_choice(struct argp_state *state, const char *option, const char *text, const char *const *names);

/* The number of a device, 0 .. 1023. */
int option_device(struct argp_state *state, const char *text);

/* An output that is one of the command's inputs is a usage error. `option`: "--json". */
void option_not_input(struct argp_state *state, const char *option, const char *out, const char *in);

/* So is an output that is a file among the words of the command to run: its program, or what that may read. */
void option_not_in_command(struct argp_state *state, const char *option, const char *out, char *const *command);

/* The file of an output that cannot go to standard output, since the command or its program writes text there: '-' is a
 * usage error. */
const char *option_file(struct argp_state *state, const char *option, const char *out);

/* Two outputs in one file are a usage error, since one would be lost. */
void option_not_twice(struct argp_state *state, const char *option, const char *out, const char *other,
                      const char *other_out);

/* -- output (output.c) -------------------------------------------------------------------------------- */

/* Checks before a run that its result can be written to this file. Errors: IO. */
trz_status output_check(const char *path);

/* Writes an object to the file that an option names; "-" is standard output, where a line ends after it. Errors: IO,
 * HOST_MEMORY. */
trz_status output_json(const char *path, const json_t *object, size_t flags);

/* A sink of texts (jsonw.h, oom_report.h) into a FILE. */
bool output_sink(void *file, const char *bytes, size_t size);

/* What a report (oom_report.h) writes, to be freed; NULL: no host memory. */
typedef bool output_writer(const struct evidence *e, const struct verdict *v, oom_report_sink *sink, void *owner);
char *output_report(output_writer *report, const struct evidence *e, const struct verdict *v);

/* -- sizes (sizes.c) ---------------------------------------------------------------------------------- */

/* "80GiB", "1.5 MiB", "4096": bytes, with an optional suffix B, KiB, MiB, GiB, TiB. False: not a size, or not below
 * 2^63. */
bool size_parse(const char *text, uint64_t *bytes);

/* -- progress (progress.c) ---------------------------------------------------------------------------- */

/* A bar on standard error, if that is a terminal and the work takes longer than a second. */
struct progress {
	const char *label;
	uint64_t start_ns;
	uint64_t drawn_ns;  /* when it was drawn last; 0: never */
	bool terminal;
};

void progress_start(struct progress *progress, const char *label);
void progress_step(void *progress, uint64_t done, uint64_t total);
void progress_end(struct progress *progress);

/* -- reports (report.c) ------------------------------------------------------------------------------- */

struct report_row {
	char name[64];  /* of the trace: its file's name up to the first dot */
	const char *file;
	uint32_t device;
	uint64_t unknown_frees;
	uint64_t implied_frees;
	uint64_t failed_allocs;
	struct replay_result result;
	struct replay_fit fit;
	struct replay_bound bound;
};

/* All rows, and the parameters that were given for them. */
struct report {
	const struct replay_params *params;
	bool fit;    /* the smallest device was searched for */
	bool bound;  /* what the trace needs was worked out */
	struct report_row *rows;
	size_t count;
};

/* Tables for people: a row for each trace, then the driver's calls by name. */
void report_print(const struct report *report, FILE *to);

/* Writes a row as one JSON object in one line. false: it cannot be written, errno says why. */
bool report_json(const struct report *report, const struct report_row *row, FILE *to);

/* page_write.c: checks that the library that draws pages is there. Errors: NOT_FOUND, IO. */
trz_status report_can_draw(void);

/* cmd_report.c: writes the page of a snapshot or a trace. `device`: -1 is the one with the longest history. */
trz_status report_page(const char *file, const char *title, int device, bool by_events, const char *output);

/* report_pages.c: writes pages of the snapshots that a run's processes have left in a folder, which report_make_folder
 * makes if pages can be drawn at all. If there are several, each has a number before the last dot of its name: its rank
 * if all have ranks. Errors: NOT_FOUND (no process has left any), those of report_page. */
trz_status report_make_folder(char folder[CLI_PATH_SIZE]);
trz_status report_pages(const char *folder, char **command, const char *output);

/* This program's file, whatever links lead to it, to be freed; if /proc is not mounted, the name that it was started by
 * tells. NULL: unknown. */
char *cli_own_file(void);

/* place.c: the first of `places`, folders relative to this program's and ended by NULL, that has the file `probe`;
 * NULL: none has it. */
const char *cli_first_of(const char *const *places, const char *probe, char out[CLI_PATH_SIZE]);

/* The value of TERRAZZO_LIBRARIES for programs that this one starts: the libraries of its own build, since several
 * builds share one Python part. NULL: the user has set it, or the libraries are elsewhere. */
const char *cli_plug_libraries(char out[CLI_PATH_SIZE]);

#endif
