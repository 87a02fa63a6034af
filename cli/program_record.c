/* SPDX-License-Identifier: Apache-2.0
 *
 * Traces of what a run's processes asked for (--record): a file for each process that asked for memory.
 */
#include <string.h>
#include <unistd.h>

#include "bits.h"
#include "cli.h"
#include "error.h"
#include "json_text.h"
#include "program.h"
#include "trace.h"

static void recording_of(char *path, const char *folder, const json_t *process)
{
	snprintf(path, CLI_PATH_SIZE, "%s/%llu.recording", folder, (unsigned long long)program_number(process, "pid"));
}

/* The file with the process's rank, or else its pid, before the last dot of its name. */
static void name_of(char *path, const char *file, const json_t *process, bool alone)
{
	const char *slash = strrchr(file, '/'), *dot = strrchr(slash ? slash : file, '.');
	size_t length = dot && dot != (slash ? slash + 1 : file) ? (size_t)(dot - file) : strlen(file);
	uint64_t number = program_number(process, json_object_get(process, "rank") ? "rank" : "pid");
	if (alone)
		snprintf(path, CLI_PATH_SIZE, "%s", file);
	else
		snprintf(path, CLI_PATH_SIZE, "%.*s.%llu%s", (int)length, file, (unsigned long long)number, file + length);
}

/* Writes one process's trace, if it made any requests. */
static trz_status record(const char *folder, const char *file, json_t *process, bool alone)
{
	char from[CLI_PATH_SIZE], to[CLI_PATH_SIZE];
	struct trace trace;
	recording_of(from, folder, process);
	trz_status status = trace_load_recording(from, &trace);
	if (status != TRZ_OK)
		return status;
	name_of(to, file, process, alone);
	if (trace.allocs)
		status = trace_save(&trace, to);
	if (trace.allocs && status == TRZ_OK)
		json_object_set_new(process, "trace", json_pack("{s:o, s:I, s:I, s:I}", "file", json_text(to),
		                                                "events", (json_int_t)trace.count,
		                                                "allocations", (json_int_t)trace.allocs,
		                                                "streams", (json_int_t)trace.streams));
	trace_free(&trace);
	return status;
}

trz_status program_record_traces(const char *folder, const char *file, json_t *result)
{
	char path[CLI_PATH_SIZE];
	const json_t *processes = json_object_get(result, "processes");
	size_t i, recorded = 0;
	json_t *process;
	json_array_foreach(processes, i, process) {
		recording_of(path, folder, process);
		recorded += access(path, R_OK) == 0 && program_number(process, "device_peak_bytes") > 0;
	}
	trz_status status = TRZ_OK;
	json_array_foreach(processes, i, process) {
		recording_of(path, folder, process);
		if (status == TRZ_OK && access(path, R_OK) == 0)
			status = record(folder, file, process, recorded < 2);
	}
	return status;
}
