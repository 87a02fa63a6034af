/* SPDX-License-Identifier: Apache-2.0
 *
 * The smallest device on which a command completes: runs of it, by the search that replays use.
 */
#include <string.h>

#include "bisect.h"
#include "bits.h"
#include "error.h"
#include "program.h"
#include "sim_profile.h"

#define FIT_STEP MIB(64)

struct fit_search {
	struct program_params params;
	FILE *to;
};

static trz_status failed(const json_t *result, const char *command)
{
	return trz_fail(TRZ_ERROR_BAD_INPUT, "%s: ends with status %d for another reason than memory, so that no size "
	                "can be found; its output tells why without --fit", command, program_exit_status(result));
}

static trz_status try_once(struct fit_search *f, bool *is_enough)
{
	json_t *result;
	trz_status status = program_run(&f->params, &result);
	if (status != TRZ_OK)
		return status;
	enum program_outcome outcome = program_outcome(result);
	*is_enough = outcome == PROGRAM_FITS;
	if (outcome == PROGRAM_FAILED)
		status = failed(result, f->params.command[0]);
	else
		fprintf(f->to, "%s\n", *is_enough ? "enough" : "out of memory");
	json_decref(result);
	return status;
}

static trz_status completes(void *arg, uint64_t size, bool *is_enough)
{
	struct fit_search *f = arg;
	f->params.memory_bytes = size;
	fprintf(f->to, "%9.4f GiB: ", (double)size / (double)GIB(1));
	return try_once(f, is_enough);
}

/* Sizes, without context, up to that of the first run, which completed. */
static trz_status search_sizes(struct fit_search *f, json_t *result)
{
	struct bisect b = {
		.low = program_number(result, "peak_allocated_bytes"),
		.high = program_number(result, "capacity_bytes") - program_number(result, "overhead_bytes"),
		.step = FIT_STEP,
		.enough = completes, .arg = f
	};
	struct bisect_result found;
	trz_status status = bisect_run(&b, &found);
	json_object_set_new(result, "fit", json_pack("{s:I, s:i, s:b}", "memory_bytes", (json_int_t)found.size, "runs",
	                                             (int)found.runs, "verified", (int)found.verified));
	return status;
}

static trz_status try_profiles(struct fit_search *f, json_t *result)
{
	const struct sim_profile *profile = NULL, *last = NULL;
	bool is_enough = false;
	int runs = 0;
	f->params.memory_bytes = 0;
	uint64_t least = program_number(result, "peak_allocated_bytes");
	for (size_t i = 0; !is_enough && (profile = sim_profile_at(i)); i++) {
		last = profile;
		if (profile->memory_bytes < least)
			continue;
		f->params.device = profile->name;
		fprintf(f->to, "%s, %.2f GiB: ", profile->name, (double)profile->memory_bytes / (double)GIB(1));
		trz_status status = try_once(f, &is_enough);
		if (status != TRZ_OK)
			return status;
		runs++;
	}
	json_t *fit = json_pack("{s:I, s:i, s:s}", "memory_bytes", is_enough ? (json_int_t)profile->memory_bytes : 0,
	                        "runs", runs, "tried", last ? last->name : "");
	if (is_enough)
		json_object_set_new(fit, "device", json_string(profile->name));
	json_object_set_new(result, "fit", fit);
	return TRZ_OK;
}

/* The first run shows what the command needs, on the device that was asked for, or on the largest there is. */
trz_status program_fit(const struct program_params *params, bool list, json_t **result, FILE *to)
{
	struct fit_search f = { .params = *params, .to = to };
	for (size_t i = 0; list && sim_profile_at(i); i++)
		f.params.device = sim_profile_at(i)->name;
	trz_status status = program_run(&f.params, result);
	if (status != TRZ_OK)
		return status;
	enum program_outcome outcome = program_outcome(*result);
	if (outcome == PROGRAM_FAILED) {
		status = failed(*result, params->command[0]);
	} else {
		f.params.silent = true;
		f.params.holders = false;
		if (list)
			status = try_profiles(&f, *result);
		else if (outcome == PROGRAM_FITS)
			status = search_sizes(&f, *result);
		else
			json_object_set_new(*result, "fit", json_pack("{s:i, s:s}", "memory_bytes", 0, "tried", params->device));
	}
	if (status != TRZ_OK) {
		json_decref(*result);
		*result = NULL;
	}
	return status;
}
