/* SPDX-License-Identifier: Apache-2.0
 *
 * What held the memory of a run's processes (--holders), from the snapshots that they left (python/terrazzo/pages.py):
 * at the newest failure, or else at the peak, as `terrazzo explain` tells it; without a history, at the end.
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "dump_evidence.h"
#include "error.h"
#include "json_text.h"
#include "oom_report.h"
#include "program.h"

/* PyTorch's newest request that found no memory; NULL: none. */
static const json_t *newest_failure(const json_t *process)
{
	const json_t *ooms = json_object_get(json_object_get(process, "pytorch"), "ooms");
	return json_array_get(ooms, json_array_size(ooms) - 1);
}

/* The process's own number of the device to look at: where it failed last, else the fullest, as PyTorch or the driver
 * tells. */
static int device_of(const json_t *process)
{
	const json_t *failure = newest_failure(process);
	const json_t *figures = json_object_get(json_object_get(process, "pytorch"), "devices");
	if (failure)
		return (int)program_number(failure, "device");
	if (json_array_size(figures))
		return (int)program_number(json_array_get(figures, program_largest(figures, "peak_reserved_bytes")), "device");
	return (int)program_largest(json_object_get(process, "devices"), "peak_bytes");
}

/* ---- the snapshot -------------------------------------------------------------------------------------------- */

/* RANK-PROCESS.pickle, or RANK-PROCESS-DEVICE.json. */
static bool is_snapshot_of(const char *name, uint64_t pid, int device)
{
	const char *dash = strchr(name, '-');
	char *end;
	if (!dash || strtoull(dash + 1, &end, 10) != pid)
		return false;
	return strcmp(end, ".pickle") == 0 || (*end == '-' && strtol(end + 1, &end, 10) == device &&
	                                       strcmp(end, ".json") == 0);
}

/* False: the process has left none of that device. */
static bool find_snapshot(const char *folder, uint64_t pid, int device, char path[CLI_PATH_SIZE])
{
	DIR *directory = opendir(folder);
	bool found = false;
	for (struct dirent *entry; directory && !found && (entry = readdir(directory));) {
		found = is_snapshot_of(entry->d_name, pid, device);
		snprintf(path, CLI_PATH_SIZE, "%s/%s", folder, entry->d_name);
	}
	if (directory)
		closedir(directory);
	return found;
}

/* ---- what the run knows, and a snapshot does not --------------------------------------------------------------- */

/* Whether no other process has used that device of the machine. */
static bool is_alone(const json_t *processes, const json_t *process, const json_t *device)
{
	size_t i, k;
	json_t *other, *used;
	json_array_foreach(processes, i, other)
		json_array_foreach(json_object_get(other, "devices"), k, used)
			if (other != process && program_number(used, "number") == program_number(device, "number") &&
			    program_number(other, "node") == program_number(process, "node") &&
			    program_number(used, "peak_bytes"))
				return false;
	return true;
}

/* Adds the device and the program's own limit to what is known of a failure. */
static void add_device(struct evidence *e, const json_t *processes, const json_t *process)
{
	const json_t *failure = newest_failure(process);
	const json_t *device = json_array_get(json_object_get(process, "devices"), e->device > 0 ? (size_t)e->device : 0);
	if (!device || evidence_known(e->device_total))
		return;
	e->device_total = program_number(device, "capacity_bytes");
	e->too_large = false;  /* it was inferred for lack of the total */
	if (json_object_get(failure, "limit_bytes")) {
		e->limit = program_number(failure, "limit_bytes");
		e->limit_inferred = false;
	}
	uint64_t told = evidence_or_zero(e->device_free) + evidence_or_zero(e->reserved);
	if (!is_alone(processes, process, device) || told > e->device_total)
		return;
	e->other_processes = 0;
	if (evidence_known(e->device_free))
		e->context = e->device_total - told;
}

/* ---- the explanation ------------------------------------------------------------------------------------------ */

static json_t *list_holders(const struct evidence *e)
{
	enum { MOST = 10 };
	json_t *list = json_array();
	for (unsigned i = 0; i < e->holder_count && i < MOST; i++) {
		const struct evidence_holder *h = &e->holders[i];
		json_array_append_new(list, json_pack("{s:o, s:s, s:I, s:I}", "place", json_text(h->site ? h->site : ""),
		                                      "category", evidence_category_text(h->category),
		                                      "bytes", (json_int_t)h->bytes, "blocks", (json_int_t)h->count));
	}
	return list;
}

/* The object of `terrazzo explain --json`, with its text. */
static json_t *describe(const struct evidence *e)
{
	struct verdict v;
	verdict_find(e, &v);
	char *object = output_report(oom_report_json, e, &v), *text = output_report(oom_report_text, e, &v);
	json_t *described = object && text ? json_loads(object, 0, NULL) : NULL;
	if (described)
		json_object_set_new(described, "text", json_text(text));
	free(object);
	free(text);
	return described;
}

/* Of a snapshot's newest failure, else of its peak. */
static trz_status find_evidence(const struct dump *d, const json_t *processes, const json_t *process,
                                const char *name, struct evidence *e)
{
	int device = device_of(process);
	bool may_have_failed = d->report || dump_newest_oom(d, device) != SIZE_MAX;
	trz_status status = may_have_failed ? dump_evidence(d, name, device, e, NULL) : TRZ_OK;
	if (status == TRZ_OK && !(may_have_failed && e->failed))
		status = dump_evidence_at_peak(d, name, device, e);
	bool failed = e->failed || json_object_size(json_object_get(json_object_get(process, "pytorch"), "uncaught")) > 0;
	if (status == TRZ_OK && failed && !e->peak)
		add_device(e, processes, process);
	if (json_object_get(process, "rank"))
		e->rank = (int)program_number(process, "rank");
	return status;
}

static trz_status explain(const char *path, const json_t *processes, json_t *process)
{
	struct dump d;
	char name[40];
	snprintf(name, sizeof name, "process %llu", (unsigned long long)program_number(process, "pid"));
	struct evidence *e = malloc(sizeof *e);
	if (!e)
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "no memory to tell the holders of %s", name);
	trz_status status = dump_load(path, &d);
	if (status == TRZ_OK) {
		status = find_evidence(&d, processes, process, name, e);
		dump_free(&d);
	}
	if (status == TRZ_OK) {
		json_object_set_new(process, "holders_at", json_string(e->failed ? "failure" : e->peak ? "peak" : "end"));
		json_object_set_new(process, "holders", list_holders(e));
		json_object_set_new(process, "explanation", describe(e));
	}
	free(e);
	return status;
}

void program_explain(const char *folder, json_t *processes)
{
	size_t i;
	json_t *process;
	char path[CLI_PATH_SIZE];
	json_array_foreach(processes, i, process) {
		if (!find_snapshot(folder, program_number(process, "pid"), device_of(process), path))
			continue;
		trz_status status = explain(path, processes, process);
		if (status != TRZ_OK && status != TRZ_ERROR_NOT_FOUND)
			cli_fail(status);
	}
}
