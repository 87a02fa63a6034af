/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads what the processes of a run wrote, <pid>.json of the look-alike driver and <pid>.torch.json of the hook
 * in PyTorch, and sums it up.
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bits.h"
#include "error.h"
#include "program.h"

static uint64_t number(const json_t *object, const char *key)
{
	json_int_t value = json_integer_value(json_object_get(object, key));
	return value > 0 ? (uint64_t)value : 0;
}

uint64_t program_number(const json_t *result, const char *key)
{
	return number(result, key);
}

static void set_number(json_t *object, const char *key, uint64_t value)
{
	json_object_set_new(object, key, json_integer((json_int_t)value));
}

static void copy(json_t *to, const json_t *from, const char *key)
{
	if (json_object_get(from, key))
		json_object_set(to, key, json_object_get(from, key));
}

/* ---- files ------------------------------------------------------------------------------------------------ */

static bool ends_with(const char *text, const char *end)
{
	size_t length = strlen(text), of_end = strlen(end);
	return length >= of_end && strcmp(text + length - of_end, end) == 0;
}

/* The entry of a process in `processes`, made when its first file is read. */
static json_t *process_of(json_t *processes, json_int_t pid)
{
	size_t i;
	json_t *process;
	json_array_foreach(processes, i, process)
		if (json_integer_value(json_object_get(process, "pid")) == pid)
			return process;
	process = json_pack("{s:I}", "pid", pid);
	json_array_append_new(processes, process);
	return process;
}

static trz_status read_file(const char *folder, const char *name, json_t *processes)
{
	char path[4096];
	json_error_t error;
	snprintf(path, sizeof path, "%s/%s", folder, name);
	json_t *report = json_load_file(path, 0, &error);
	if (!report)
		return trz_fail(TRZ_ERROR_BAD_INPUT, "%s: the report of a process cannot be read: %s", name, error.text);
	json_t *process = process_of(processes, json_integer_value(json_object_get(report, "pid")));
	if (ends_with(name, ".torch.json"))
		json_object_set(process, "pytorch", report);
	else
		json_object_update(process, report);
	json_decref(report);
	return TRZ_OK;
}

/* Sets the entry at a path, for example "devices/0/peak_bytes". Calls of a function's forms add up. */
static void set_figure(json_t *process, const char *path, uint64_t value)
{
	char part[96];
	json_t *in = process;
	bool is_call = strncmp(path, "calls/", 6) == 0;
	if (is_call && !value)
		return;
	for (const char *slash; (slash = strchr(path, '/')); path = slash + 1) {
		snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
		in = json_is_array(in) ? json_array_get(in, strtoul(part, NULL, 10)) : json_object_get(in, part);
	}
	set_number(in, path, value + (is_call ? number(in, path) : 0));
}

/* Reads the figures that a process keeps in a file, since it may have ended without a report. */
static void read_figures(const char *folder, json_t *process)
{
	char path[4096];
	size_t i;
	json_t *place;
	uint64_t value;
	snprintf(path, sizeof path, "%s/%" JSON_INTEGER_FORMAT ".live", folder,
	         json_integer_value(json_object_get(process, "pid")));
	FILE *f = fopen(path, "re");
	if (f && json_object_get(process, "live"))
		json_object_set_new(process, "calls", json_object());
	json_array_foreach(json_object_get(process, "live"), i, place)
		if (f && fseek(f, (long)json_integer_value(json_array_get(place, 1)), SEEK_SET) == 0 &&
		    fread(&value, sizeof value, 1, f) == 1)
			set_figure(process, json_string_value(json_array_get(place, 0)), value);
	json_object_del(process, "live");
	if (f)
		fclose(f);
}

/* By pid, so that the order is the same each time. */
static void sort(json_t *processes)
{
	for (size_t i = 1; i < json_array_size(processes); i++) {
		size_t at = i;
		json_t *process = json_incref(json_array_get(processes, i));
		while (at > 0 && number(json_array_get(processes, at - 1), "pid") > number(process, "pid"))
			at--;
		json_array_remove(processes, i);
		json_array_insert_new(processes, at, process);
	}
}

static trz_status read_folder(const char *folder, json_t *processes)
{
	DIR *directory = opendir(folder);
	if (!directory)
		return trz_fail(TRZ_ERROR_IO, "%s: cannot be read: %s", folder, strerror(errno));
	trz_status status = TRZ_OK;
	for (struct dirent *entry; status == TRZ_OK && (entry = readdir(directory));)
		if (ends_with(entry->d_name, ".json") && !strchr(entry->d_name, '-'))  /* else it is a snapshot */
			status = read_file(folder, entry->d_name, processes);
	closedir(directory);
	sort(processes);
	size_t i;
	json_t *process;
	json_array_foreach(processes, i, process)
		read_figures(folder, process);
	return status;
}

void program_remove(const char *folder)
{
	DIR *directory = opendir(folder);
	for (struct dirent *entry; directory && (entry = readdir(directory));)
		if (entry->d_name[0] != '.')
			unlinkat(dirfd(directory), entry->d_name, 0);
	if (directory)
		closedir(directory);
	rmdir(folder);
}

/* ---- sums ------------------------------------------------------------------------------------------------- */

size_t program_largest(const json_t *list, const char *key)
{
	size_t i, largest = 0;
	json_t *entry;
	json_array_foreach(list, i, entry)
		if (number(entry, key) > number(json_array_get(list, largest), key))
			largest = i;
	return largest;
}

/* The device of a list that has the most of something; NULL: none has any. */
static json_t *largest_device(const json_t *devices, const char *key)
{
	json_t *largest = json_array_get(devices, program_largest(devices, key));
	return number(largest, key) ? largest : NULL;
}

/* The memory that a process held at its peak on its fullest device, without its context, as PyTorch or else the driver
 * tells. */
static void sum_up_process(json_t *process)
{
	const json_t *told = json_object_get(process, "pytorch");
	bool lost = told && !json_is_true(json_object_get(told, "ended"));
	json_t *torch = lost ? NULL : largest_device(json_object_get(told, "devices"), "peak_reserved_bytes");
	json_t *device = largest_device(json_object_get(process, "devices"), "peak_bytes");
	uint64_t driver = number(device, "peak_bytes"), context = number(device, "overhead_bytes");
	set_number(process, "device_peak_bytes", driver);
	driver -= min_u64(driver, context);
	set_number(process, "peak_allocated_bytes", torch ? number(torch, "peak_allocated_bytes") : driver);
	set_number(process, "peak_reserved_bytes", torch ? number(torch, "peak_reserved_bytes") : driver);
	set_number(process, "retries", number(torch, "retries"));
	size_t i;
	json_t *other;
	json_array_foreach(json_object_get(process, "devices"), i, other)
		if (torch ? number(torch, "device") == i : other == device)
			set_number(process, "figures_device", number(other, "number"));
	json_object_set_new(process, "figures_of", json_string(torch ? "pytorch" : "driver"));
	json_object_set_new(process, "figures_lost", json_boolean(lost));
	copy(process, told, "allocator");
	copy(process, told, "allocator_reason");
	copy(process, told, "first_blank_read");
	copy(process, told, "categories");
}

/* For a rank: what its device held beside the allocator's memory, what was left, and the collectives that it called. */
static void sum_up_rank(json_t *process)
{
	if (!json_object_get(process, "rank"))
		return;
	uint64_t peak = number(process, "device_peak_bytes"), reserved = number(process, "peak_reserved_bytes");
	uint64_t capacity = number(json_array_get(json_object_get(process, "devices"), 0), "capacity_bytes");
	set_number(process, "outside_bytes", peak - min_u64(peak, reserved));
	set_number(process, "free_at_peak_bytes", capacity - min_u64(capacity, peak));
	json_t *kinds = json_object_get(process, "collectives"), *kind;
	const char *name;
	void *next;
	json_object_foreach_safe(kinds, next, name, kind)
		if (!number(kind, "calls"))
			json_object_del(kinds, name);
}

static void add_number(json_t *result, const json_t *process, const char *key)
{
	set_number(result, key, number(result, key) + number(process, key));
}

/* Calls of the runtime library count by name; those that it makes of the driver make the total. */
static void add_calls(json_t *result, const json_t *process)
{
	json_t *all = json_object_get(result, "driver_calls");
	const char *name;
	json_t *count;
	json_object_foreach(json_object_get(process, "calls"), name, count) {
		set_number(all, name, number(all, name) + (uint64_t)json_integer_value(count));
		if (strncmp(name, "cuda", 4) != 0)
			set_number(result, "driver_calls_total", number(result, "driver_calls_total")
			           + (uint64_t)json_integer_value(count));
	}
}

/* PyTorch reports requests that failed for good; the driver also those after which PyTorch got its memory in another
 * way. If PyTorch has no hook to report them, there may be the exception that ended the program. */
static void add_ooms(json_t *result, const json_t *process)
{
	const json_t *torch = json_object_get(process, "pytorch");
	json_t *ooms = json_object_get(torch, "ooms"), *uncaught = json_object_get(torch, "uncaught");
	json_t *all = json_object_get(result, "ooms"), *oom;
	size_t i;
	if (!ooms)
		ooms = json_object_get(process, "oom");
	if (json_object_size(uncaught) > 0 && json_array_size(ooms) == 0)
		json_array_append(ooms, uncaught);
	else if (json_object_size(uncaught) > 0)
		json_object_update_missing(json_array_get(ooms, json_array_size(ooms) - 1), uncaught);
	json_array_foreach(ooms, i, oom) {
		json_object_set(oom, "pid", json_object_get(process, "pid"));
		json_array_append(all, oom);
	}
}

static void add_process(json_t *result, json_t *process)
{
	static const char *const sums[] = { "driver_time_ns", "kernels", "library_calls", "graph_launches",
		                                "copies_bytes", "blank_reads", "violations", "misuses", "suspicions" };
	static const char *const texts[] = { "first_blank_read", "first_violation", "first_misuse", "first_suspicion" };
	sum_up_process(process);
	sum_up_rank(process);
	for (size_t i = 0; i < sizeof sums / sizeof sums[0]; i++)
		add_number(result, process, sums[i]);
	add_calls(result, process);
	add_ooms(result, process);
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		json_t *first = json_object_get(process, texts[i]);
		if (json_is_string(first) && !json_object_get(result, texts[i]))
			json_object_set(result, texts[i], first);
	}
}

/* Of equal ones the older, so that the choice repeats. */
static bool is_larger(const json_t *process, const json_t *other)
{
	uint64_t a = number(process, "device_peak_bytes"), b = number(other, "device_peak_bytes");
	return a > b || (a == b && number(process, "pid") < number(other, "pid"));
}

/* The process that represents the run: the one with the most memory. */
static void copy_main(json_t *result, const json_t *process)
{
	static const char *const keys[] = { "peak_allocated_bytes", "peak_reserved_bytes", "retries", "figures_of",
		                                "figures_lost", "figures_device", "allocator", "allocator_reason", "holders",
		                                "holders_at", "explanation" };
	for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
		copy(result, process, keys[i]);
	uint64_t reserved = number(process, "peak_reserved_bytes");
	double used = (double)number(process, "peak_allocated_bytes");
	json_object_set_new(result, "fragmentation", json_real(reserved ? 1 - used / (double)reserved : 0));
	const json_t *device = json_array_get(json_object_get(process, "devices"), 0);
	set_number(result, "capacity_bytes", number(device, "capacity_bytes"));
	set_number(result, "overhead_bytes", number(device, "overhead_bytes"));
	json_object_set(result, "device_name", json_object_get(device, "name"));
}

/* The rank that has most (sign 1) or least (-1) by the first key, and among those by the second. */
static const json_t *extreme_rank(const json_t *processes, int sign, const char *key, const char *second)
{
	size_t i;
	json_t *process;
	const json_t *best = NULL;
	json_array_foreach(processes, i, process) {
		int64_t more = sign * (int64_t)(number(process, key) - number(best, key));
		int64_t then = sign * (int64_t)(number(process, second) - number(best, second));
		bool is_rank = json_object_get(process, "rank") && number(process, "device_peak_bytes");
		if (is_rank && (!best || more > 0 || (more == 0 && then > 0)))
			best = process;
	}
	return best;
}

static bool ran_out(const json_t *result, const json_t *process)
{
	size_t i;
	json_t *oom;
	json_array_foreach(json_object_get(result, "ooms"), i, oom)
		if (number(oom, "pid") == number(process, "pid"))
			return true;
	return false;
}

/* How many ranks there were, which of them is the first that a smaller device would be too small for, and how far apart
 * they are. Devices that are full to the brim with cached memory are told apart by what is allocated. */
static void sum_up_ranks(json_t *result, const json_t *processes)
{
	static const char used[] = "device_peak_bytes", allocated[] = "peak_allocated_bytes";
	const json_t *fullest = extreme_rank(processes, 1, used, allocated);
	const json_t *emptiest = extreme_rank(processes, -1, used, allocated);
	const json_t *most = extreme_rank(processes, 1, allocated, used);
	json_t *out = json_array(), *process;
	json_int_t count = 0;
	size_t i;
	json_array_foreach(processes, i, process) {
		if (!json_object_get(process, "rank") || !number(process, used))
			continue;
		count++;
		if (ran_out(result, process))
			json_array_append(out, json_object_get(process, "rank"));
	}
	if (!fullest) {
		json_decref(out);
		return;
	}
	json_t *ranks = json_pack("{s:I, s:o}", "count", count, "ran_out", out);
	json_object_set(ranks, "fullest", json_object_get(fullest, "rank"));
	set_number(ranks, "most_bytes", number(fullest, used));
	json_object_set(ranks, "emptiest", json_object_get(emptiest, "rank"));
	set_number(ranks, "least_bytes", number(emptiest, used));
	json_object_set(ranks, "most_allocated", json_object_get(most, "rank"));
	set_number(ranks, "most_allocated_bytes", number(most, allocated));
	json_object_set_new(result, "ranks", ranks);
}

trz_status program_collect(const char *folder, const char *snapshots, json_t *result)
{
	json_t *processes = json_array();
	json_object_set_new(result, "driver_calls", json_object());
	json_object_set_new(result, "ooms", json_array());
	json_object_set_new(result, "processes", processes);
	trz_status status = read_folder(folder, processes);
	if (status != TRZ_OK)
		return status;
	if (snapshots)
		program_explain(snapshots, processes);
	size_t i;
	json_t *process, *main_process = NULL;
	json_array_foreach(processes, i, process) {
		add_process(result, process);
		if (!main_process || is_larger(process, main_process))
			main_process = process;
	}
	sum_up_ranks(result, processes);
	if (main_process)
		copy_main(result, main_process);
	return TRZ_OK;
}

int program_exit_status(const json_t *result)
{
	return (int)json_integer_value(json_object_get(result, "exit_status"));
}

enum program_outcome program_outcome(const json_t *result)
{
	if (json_array_size(json_object_get(result, "ooms")) > 0)
		return PROGRAM_OUT_OF_MEMORY;
	if (program_exit_status(result) != 0)
		return PROGRAM_FAILED;
	return json_array_size(json_object_get(result, "processes")) ? PROGRAM_FITS : PROGRAM_NO_DEVICE;
}
