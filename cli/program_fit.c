/* SPDX-License-Identifier: Apache-2.0
 *
 * The smallest device on which a command completes: runs of it, by the search that replays use.
 */
#include <string.h>

#include "bisect.h"
#include "bits.h"
#include "cli.h"
#include "error.h"
#include "program.h"
#include "sim_profile.h"

#define FIT_STEP MIB(64)

struct fit_search {
	struct program_params params;
	json_t *last;  /* the report of the newest run; NULL: none yet */
	FILE *to;
};

static trz_status failed(const json_t *result, const char *command)
{
	return trz_fail(TRZ_ERROR_BAD_INPUT, "%s: ends with status %d for a reason other than memory, so no size can be "
	                "found; run it without --fit to see why", command, program_exit_status(result));
}

/* A run that says nothing about memory is a failure. */
static trz_status run_once(struct fit_search *f, enum program_outcome *outcome)
{
	json_decref(f->last);
	f->last = NULL;
	trz_status status = program_run(&f->params, &f->last);
	if (status != TRZ_OK)
		return status;
	*outcome = program_outcome(f->last);
	if (*outcome == PROGRAM_NO_DEVICE)
		return trz_fail(TRZ_ERROR_BAD_INPUT, "%s: used no simulated device, so no size can be found",
		                f->params.command[0]);
	return *outcome == PROGRAM_FAILED ? failed(f->last, f->params.command[0]) : TRZ_OK;
}

static trz_status try_once(struct fit_search *f, bool *is_enough)
{
	enum program_outcome outcome;
	trz_status status = run_once(f, &outcome);
	if (status != TRZ_OK)
		return status;
	*is_enough = outcome == PROGRAM_FITS;
	fprintf(f->to, "%s\n", *is_enough ? "enough" : "out of memory");
	return TRZ_OK;
}

static trz_status completes(void *arg, uint64_t size, bool *is_enough)
{
	struct fit_search *f = arg;
	f->params.memory_bytes = size;
	fprintf(f->to, "%9.4f GiB: ", (double)size / (double)GIB(1));
	return try_once(f, is_enough);
}

static uint64_t size_without_context(const json_t *result)
{
	return program_number(result, "capacity_bytes") - program_number(result, "overhead_bytes");
}

/* Searches sizes, without context, up to the first run's, which completed. The last run is that of the size found. */
static trz_status search_sizes(struct fit_search *f, json_t **fit)
{
	struct bisect b = {
		.low = program_number(f->last, "peak_allocated_bytes"),
		.high = size_without_context(f->last),
		.step = FIT_STEP,
		.enough = completes, .arg = f
	};
	char tried[SIZE_TEXT_BYTES];
	size_text(b.high / b.step * b.step, tried);
	struct bisect_result found;
	trz_status status = bisect_run(&b, &found);
	*fit = json_pack("{s:I, s:i, s:b}", "memory_bytes", (json_int_t)found.size, "runs", (int)found.runs, "verified",
	                 (int)found.verified);
	if (!found.size)
		json_object_set_new(*fit, "tried", json_string(tried));
	return status;
}

static trz_status try_profiles(struct fit_search *f, json_t **fit)
{
	const struct sim_profile *profile = NULL, *last = NULL;
	bool is_enough = false;
	int runs = 0;
	f->params.memory_bytes = 0;
	uint64_t least = program_number(f->last, "peak_allocated_bytes");
	for (size_t i = 0; !is_enough && (profile = sim_profile_at(i)); i++) {
		if (profile->memory_bytes < least)
			continue;
		last = profile;
		f->params.device = profile->name;
		fprintf(f->to, "%s, %.2f GiB: ", profile->name, (double)profile->memory_bytes / (double)GIB(1));
		trz_status status = try_once(f, &is_enough);
		if (status != TRZ_OK)
			return status;
		runs++;
	}
	*fit = json_pack("{s:I, s:i, s:s}", "memory_bytes", is_enough ? (json_int_t)profile->memory_bytes : 0, "runs",
	                 runs, "tried", last ? last->name : "");
	if (is_enough)
		json_object_set_new(*fit, "device", json_string(profile->name));
	return TRZ_OK;
}

/* The first run shows what the command needs, on the device that was asked for, or on the largest there is. */
static trz_status search(struct fit_search *f, bool list, json_t **fit)
{
	enum program_outcome outcome;
	trz_status status = run_once(f, &outcome);
	if (status != TRZ_OK)
		return status;
	f->params.silent = true;
	f->params.holders = false;
	if (list)
		return try_profiles(f, fit);
	if (outcome == PROGRAM_FITS)
		return search_sizes(f, fit);
	char tried[SIZE_TEXT_BYTES];
	*fit = json_pack("{s:i, s:s}", "memory_bytes", 0, "tried", size_text(size_without_context(f->last), tried));
	return TRZ_OK;
}

trz_status program_fit(const struct program_params *params, bool list, json_t **result, FILE *to)
{
	struct fit_search f = { .params = *params, .to = to };
	json_t *fit = NULL;
	for (size_t i = 0; list && sim_profile_at(i); i++)
		f.params.device = sim_profile_at(i)->name;
	trz_status status = search(&f, list, &fit);
	if (status == TRZ_OK && params->holders && program_number(fit, "memory_bytes")) {
		enum program_outcome outcome;
		f.params.holders = true;
		status = run_once(&f, &outcome);
	}
	if (status != TRZ_OK) {
		json_decref(fit);
		json_decref(f.last);
		*result = NULL;
		return status;
	}
	json_object_set_new(f.last, "fit", fit);
	*result = f.last;
	return TRZ_OK;
}
