/* SPDX-License-Identifier: Apache-2.0
 *
 * A program run on a simulated device: declarations that the files of `terrazzo sim` share. The look-alike libraries
 * and the hook in PyTorch write reports per process into a folder of the run's own; every table and JSON about a run
 * comes from one JSON object made of them.
 */
#ifndef TRZ_CLI_PROGRAM_H
#define TRZ_CLI_PROGRAM_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "terrazzo.h"

enum { PROGRAM_MOST_RANKS = 64 };  /* that can meet, on all nodes together */

struct program_params {
	char **command;          /* ends with NULL */
	const char *device;      /* name of a profile */
	uint64_t memory_bytes;   /* 0: the profile's */
	unsigned devices;        /* of each node */
	unsigned nodes;          /* the command runs once on each, all at the same time; 0: there are no nodes */
	const char *work;        /* NULL: the look-alike's own choice, as for the next four */
	const char *seed;
	const char *schedule;
	const char *costs;
	const char *scalars;
	const char *timeout;     /* seconds, after which a rank waits no longer for others; NULL: for ever */
	unsigned world;          /* ranks, of which only `ranks` run, each by itself; 0: the command starts them */
	unsigned *ranks;
	size_t rank_count;
	const char *nccl_memory; /* "yes" or "no"; NULL: yes */
	bool has_collective_bytes;
	uint64_t collective_bytes;
	const char *env;         /* a virtual environment; NULL: none */
	const char *allocator;   /* PyTorch's: "native" or "expandable"; NULL: as the environment says */
	const char *record;      /* where traces of the requests go; NULL: none */
	const char *pages;       /* a folder for snapshots of processes that use PyTorch's GPU memory; NULL: none */
	bool holders;
	bool silent;             /* the command's output goes nowhere */
};

/* Whether a run fits in memory, or why it does not complete. */
enum program_outcome {
	PROGRAM_FITS,
	PROGRAM_OUT_OF_MEMORY,
	PROGRAM_FAILED,    /* for another reason: see its exit status */
	PROGRAM_NO_DEVICE  /* completes, and uses no simulated device */
};

/* Runs the command to its end. *result is the object described in docs/sim.md, which the caller frees by json_decref;
 * its "exit_status" is the command's, 128 + the number of the signal that ended it, or 127 if it could not be started.
 * Errors: IO, NOT_FOUND (no look-alikes, no such environment), BAD_INPUT (a process's report), HOST_MEMORY. */
trz_status program_run(const struct program_params *params, json_t **result);

/* From here on a signal to this process ends the commands that it runs, and their report is still made. */
void program_pass_signals_on(void);

enum program_outcome program_outcome(const json_t *result);
int program_exit_status(const json_t *result);

/* Reads what the processes of a run left in `folder` into `result`, and explains the snapshots in `snapshots`, unless
 * NULL (program_collect.c). */
trz_status program_collect(const char *folder, const char *snapshots, json_t *result);

/* Adds what held the memory, "explanation", "holders" and "holders_at", to the processes that have left a snapshot
 * (program_holders.c). Says on standard error which cannot be read. */
void program_explain(const char *folder, json_t *processes);

/* Writes traces of what the processes asked for, and adds "trace" to their entries (program_record.c). Errors: those of
 * reading and writing traces. */
trz_status program_record_traces(const char *folder, const char *file, json_t *result);

/* Removes the folder with its files. */
void program_remove(const char *folder);

/* A number in the result, or in an object that it contains; 0 if there is none. */
uint64_t program_number(const json_t *result, const char *key);

/* The index of the entry of a list that has the most of something; 0 if none has any. */
size_t program_largest(const json_t *list, const char *key);

/* The words with each "{name}" replaced, which the caller frees by program_free_words; NULL: no memory. *times grows by
 * how often there was one (program_words.c). */
char **program_words(char *const *words, const char *name, const char *value, size_t *times);
void program_free_words(char **words);

/* Becomes the command, found as a shell finds it; returns only if it cannot be run, after saying why on standard error.
 * Allocates nothing, so that a forked child may call it (program_words.c). */
void program_become(char *const *command);

/* The table for people (program_report.c). */
void program_print(const json_t *result, FILE *to);
/* Its part about ranks; nothing if there are none. */
void program_print_ranks(const json_t *result, FILE *to);

/* The folders of the look-alike libraries and of the Python part; NULL, with the error set: not found. */
const char *program_libraries(void);
const char *program_python(void);

/* Finds the smallest memory, in steps of 64 MiB, or with `list` the first profile, with which the command completes
 * (program_fit.c). Adds "fit" to *result, which is that of a run with what was found, or of one that ran out of memory
 * if none is enough. */
trz_status program_fit(const struct program_params *params, bool list, json_t **result, FILE *to);

/* "batch=1,2,4": runs the command with {batch} replaced by each value in turn, `jobs` runs at a time
 * (program_sweep.c). */
trz_status program_sweep(const struct program_params *params, const char *text, unsigned jobs, json_t **result,
                         FILE *to);

/* Runs the command once with each allocator of the list, which ends with NULL, or with `fit` finds the smallest device
 * for each; the same file. */
trz_status program_compare(const struct program_params *params, const char *const *allocators, bool fit, unsigned jobs,
                           json_t **result, FILE *to);

/* Lets an allocator serve the command: PyTorch's "native" or "expandable", or terrazzo, for which params->command
 * becomes a new list, to be freed by program_free_words (program_words.c). Errors: HOST_MEMORY. */
#define PROGRAM_ON_TERRAZZO "terrazzo"
trz_status program_choose_allocator(struct program_params *params, const char *allocator);

#endif
