/* SPDX-License-Identifier: Apache-2.0
 *
 * The report of a process: DIR/<pid>.json, written when it ends and, in case it ends without a word, each time
 * that memory runs out.
 */
#include "driver_lookalike.h"

#include <jansson.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_OOMS = 64, MOST_TABLES = 8 };

struct look_oom_event {
	char call[64];
	uint64_t bytes, free_bytes, total_bytes;
};

static struct {
	pthread_mutex_t lock;
	pid_t pid;                   /* of the process that opened the machine; a fork of it reports nothing */
	struct look_oom_event oom[MOST_OOMS];
	size_t ooms;                 /* may exceed the room */
	const struct lookalike_calls *tables[MOST_TABLES];
	size_t table_count;
} report = {.lock = PTHREAD_MUTEX_INITIALIZER};

void look_report_open(void)
{
	report.pid = getpid();
	atexit(look_report_write);
}

void trz_lookalike_calls(const struct lookalike_calls *calls)
{
	pthread_mutex_lock(&report.lock);
	if (report.table_count < MOST_TABLES)
		report.tables[report.table_count++] = calls;
	pthread_mutex_unlock(&report.lock);
}

void look_oom(const char *call, uint64_t bytes, int device)
{
	uint64_t used = device >= 0 ? sim_device_used(look.sim, device) : 0;
	pthread_mutex_lock(&report.lock);
	if (report.ooms < MOST_OOMS) {
		struct look_oom_event *e = &report.oom[report.ooms];
		*e = (struct look_oom_event){.bytes = bytes, .free_bytes = look.capacity_bytes - used,
		                             .total_bytes = look.capacity_bytes};
		snprintf(e->call, sizeof e->call, "%s", call);
	}
	report.ooms++;
	pthread_mutex_unlock(&report.lock);
	look_report_write();
}

void trz_lookalike_oom(const char *call, uint64_t bytes)
{
	trz_context context = look_context();
	look_oom(call, bytes, context ? sim_context_device(look.sim, context) : -1);
}

/* ---- writing ------------------------------------------------------------ */

static json_t *program(void)
{
	char text[4096];
	json_t *words = json_array();
	FILE *f = fopen("/proc/self/cmdline", "r");
	size_t size = f ? fread(text, 1, sizeof text - 1, f) : 0;
	if (f)
		fclose(f);
	text[size] = '\0';
	for (size_t at = 0; at < size; at += strlen(text + at) + 1)
		json_array_append_new(words, json_stringn_nocheck(text + at, strlen(text + at)));
	return words;
}

static json_t *devices(void)
{
	json_t *list = json_array();
	for (int i = 0; i < look.devices; i++)
		json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:I, s:I, s:I}", "name", look.profile->title,
		                                      "capacity_bytes", (json_int_t)look.capacity_bytes,
		                                      "overhead_bytes", (json_int_t)look.overhead_bytes,
		                                      "peak_bytes", (json_int_t)sim_process_peak(look.sim, i),
		                                      "machine_peak_bytes", (json_int_t)sim_device_peak(look.sim, i),
		                                      "used_bytes", (json_int_t)sim_device_used(look.sim, i)));
	return list;
}

/* Calls that were made, by name; the forms of a function count together. */
static json_t *calls(void)
{
	json_t *list = json_object();
	for (int i = 0; i < LOOK_CALLS; i++) {
		const char *name = look_name((enum look_call)i);
		json_int_t before = json_integer_value(json_object_get(list, name));
		if (look_calls[i])
			json_object_set_new(list, name, json_integer(before + (json_int_t)look_calls[i]));
	}
	for (size_t t = 0; t < report.table_count; t++)
		for (size_t i = 0; i < report.tables[t]->count; i++)
			if (report.tables[t]->counts[i])
				json_object_set_new(list, report.tables[t]->names[i],
				                    json_integer((json_int_t)report.tables[t]->counts[i]));
	return list;
}

static json_t *ooms(void)
{
	json_t *list = json_array();
	for (size_t i = 0; i < report.ooms && i < MOST_OOMS; i++) {
		const struct look_oom_event *e = &report.oom[i];
		json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:I}", "call", e->call, "bytes", (json_int_t)e->bytes,
		                                      "free_bytes", (json_int_t)e->free_bytes,
		                                      "total_bytes", (json_int_t)e->total_bytes));
	}
	return list;
}

static json_t *everything(void)
{
	const char *violation = sim_first_violation(look.sim);
	return json_pack("{s:I, s:o, s:s, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:s?, s:I, s:o}",
	                 "pid", (json_int_t)report.pid, "program", program(), "profile", look.profile->name,
	                 "devices", devices(), "calls", calls(),
	                 "driver_time_ns", (json_int_t)sim_driver_time_ns(look.sim),
	                 "kernels", (json_int_t)look.kernels, "library_calls", (json_int_t)look.library_calls,
	                 "graph_launches", (json_int_t)look.graph_launches,
	                 "copies_bytes", (json_int_t)look.copied_bytes,
	                 "violations", (json_int_t)sim_violations(look.sim), "first_violation", violation,
	                 "oom_events", (json_int_t)report.ooms, "oom", ooms());
}

/* Under a name of its own first, so that a reader never sees half of it. */
void look_report_write(void)
{
	char path[PATH_MAX], made[PATH_MAX];
	if (!look.sim || !look.report || report.pid != getpid())
		return;
	pthread_mutex_lock(&report.lock);
	int wanted = snprintf(path, sizeof path, "%s/%d.json", look.report, (int)report.pid);
	int length = snprintf(made, sizeof made, "%s/%d.json.new", look.report, (int)report.pid);
	json_t *root = everything();
	bool written = wanted < PATH_MAX && length < PATH_MAX && root &&
	               json_dump_file(root, made, JSON_INDENT(1) | JSON_SORT_KEYS) == 0 && rename(made, path) == 0;
	if (!written)
		fprintf(stderr, "terrazzo: no report can be written into %s\n", look.report);
	json_decref(root);
	pthread_mutex_unlock(&report.lock);
}
