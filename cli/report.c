/* SPDX-License-Identifier: Apache-2.0
 *
 * The results of replays, as tables and as JSON.
 */
#include <jansson.h>
#include <string.h>

#include "bits.h"
#include "cli.h"
#include "error.h"
#include "json_text.h"

static double gib(uint64_t bytes)
{
	return (double)bytes / (double)GIB(1);
}

static double fragmentation(const struct replay_result *r)
{
	return r->peak_reserved_bytes ? 1 - (double)r->peak_allocated_bytes / (double)r->peak_reserved_bytes : 0;
}

static uint64_t all_calls(const struct replay_result *r)
{
	uint64_t calls = 0;
	for (int slot = 0; slot < SIM_SLOTS; slot++)
		calls += r->driver_calls[slot];
	return calls;
}

static const char *policy_name(const struct report *report)
{
	return report->params->policy == REPLAY_NAIVE ? "naive" : "terrazzo";
}

/* -- for people --------------------------------------------------------------------------------------- */

static int name_width(const struct report *report)
{
	int width = 5;
	for (size_t i = 0; i < report->count; i++) {
		int length = (int)strlen(report->rows[i].name);
		width = length > width ? length : width;
	}
	return width;
}

static void print_row(const struct report *report, const struct report_row *row, int width, FILE *to)
{
	const struct replay_result *r = &row->result;
	double allocated = gib(r->peak_allocated_bytes);
	double reserved = gib(r->peak_reserved_bytes);
	fprintf(to, "%-*s  %8llu  %9.2f  %8.2f  ", width, row->name, (unsigned long long)r->events, allocated,
	        reserved);
	if (r->peak_allocated_bytes)
		fprintf(to, "%5.3f", reserved / allocated);
	else
		fprintf(to, "%5s", "-");
	fprintf(to, "  %8.2f  %7llu  %8llu  %4llu  %10llu", (double)r->driver_time_ns / 1e6,
	        (unsigned long long)all_calls(r), (unsigned long long)r->driver_calls_last_quarter,
	        (unsigned long long)r->ooms, (unsigned long long)r->violations);
	if (r->heap_valid)
		fprintf(to, "  %5.0f  %6llu", r->host_ns_per_op, (unsigned long long)r->host_ns_p999);
	else
		fprintf(to, "  %5s  %6s", "-", "-");
	if (report->fit && row->fit.bytes)
		fprintf(to, "  %8.4f", gib(row->fit.bytes));
	else if (report->fit)
		fprintf(to, "  %8s", "-");
	fputc('\n', to);
}

/* The last head is that of --fit. */
static void print_heads(const char *const *heads, bool fit, int width, FILE *to)
{
	static const int widths[] = { 8, 9, 8, 5, 8, 7, 8, 4, 10, 5, 6, 8 };
	fprintf(to, "%-*s", width, heads[0]);
	for (size_t i = 0; i < sizeof widths / sizeof widths[0] - !fit; i++)
		fprintf(to, "  %*s", widths[i], heads[i + 1]);
	fputc('\n', to);
}

static void print_fit_notes(const struct report_row *row, FILE *to)
{
	const struct replay_fit *fit = &row->fit;
	if (fit->problem[0])
		fprintf(to, "%s: on a smaller device: %s\n", row->name, fit->problem);
	if (!fit->bytes) {
		fprintf(to, "%s: does not fit in the capacity, rounded down to 64 MiB\n", row->name);
	} else if (!fit->verified) {
		fprintf(to, "%s: the smallest size is uncertain: 64 MiB less was enough too, or a second run with "
		        "this size failed\n", row->name);
	}
}

static void print_bound(const struct report_row *row, FILE *to)
{
	const struct replay_bound *bound = &row->bound;
	fprintf(to, "%s: needs %.2f GiB, whoever serves it", row->name, gib(bound->bytes));
	if (bound->peak_allocated_bytes)
		fprintf(to, ", %.3f of the peak allocated", (double)bound->bytes / (double)bound->peak_allocated_bytes);
	fprintf(to, "; %llu frees, %llu batches of 64 or of 64 MiB\n", (unsigned long long)bound->frees,
	        (unsigned long long)bound->batches);
}

static void print_notes(const struct report_row *row, FILE *to)
{
	if (row->failed_allocs) {
		fprintf(to, "%s: left out %llu requests that had failed when they were recorded\n", row->name,
		        (unsigned long long)row->failed_allocs);
	}
	if (row->result.pools) {
		fprintf(to, "%s: %u private pools, %u captures, %llu launches; at the end pools hold %.2f GiB\n",
		        row->name, row->result.pools, row->result.captures, (unsigned long long)row->result.launches,
		        gib(row->result.pool_reserved_bytes));
	}
	if (row->result.skipped_events) {
		fprintf(to, "%s: left out %llu inconsistent events of captures and pools\n", row->name,
		        (unsigned long long)row->result.skipped_events);
	}
	if (row->unknown_frees) {
		fprintf(to, "%s: left out %llu frees of memory allocated before the trace began\n",
		        row->name, (unsigned long long)row->unknown_frees);
	}
	if (row->implied_frees) {
		fprintf(to, "%s: added %llu frees that the recording had lost\n", row->name,
		        (unsigned long long)row->implied_frees);
	}
	if (row->result.ooms) {
		fprintf(to, "%s: %llu requests got no memory, the first after %llu events: %s\n", row->name,
		        (unsigned long long)row->result.ooms, (unsigned long long)row->result.events_before_oom,
		        row->result.oom);
	}
	if (row->result.violations)
		fprintf(to, "%s: first violation: %s\n", row->name, row->result.problem);
	else if (row->result.leaks)
		fprintf(to, "%s: left behind on the device: %s\n", row->name, row->result.problem);
}

static void print_calls(const struct report *report, FILE *to)
{
	fprintf(to, "\n%-15s", "driver calls");
	for (size_t i = 0; i < report->count; i++)
		fprintf(to, "  %14.14s", report->rows[i].name);
	fputc('\n', to);
	for (int slot = 0; slot < SIM_SLOTS; slot++) {
		uint64_t sum = 0;
		for (size_t i = 0; i < report->count; i++)
			sum += report->rows[i].result.driver_calls[slot];
		if (sum == 0)
			continue;
		fprintf(to, "%-15s", sim_slot_name((sim_slot)slot));
		for (size_t i = 0; i < report->count; i++)
			fprintf(to, "  %14llu", (unsigned long long)report->rows[i].result.driver_calls[slot]);
		fputc('\n', to);
	}
}

void report_print(const struct report *report, FILE *to)
{
	static const char *const upper[] = { "", "", "allocated", "reserved", "", "driver", "driver", "calls in",
	                                     "", "", "host", "99.9 %", "fits in" };
	static const char *const lower[] = { "trace", "events", "peak, GiB", "GiB", "ratio", "time, ms", "calls",
	                                     "last 1/4", "ooms", "violations", "ns/op", "ns", "GiB" };
	int width = name_width(report);
	uint64_t capacity = report->params->capacity;
	bool small = capacity < GIB(1);
	fprintf(to, "policy %s, device of %.2f %s, lag %llu", policy_name(report), (small ? 1024 : 1) * gib(capacity),
	        small ? "MiB" : "GiB", (unsigned long long)report->params->lag);
	if (report->params->lag_most > report->params->lag)
		fprintf(to, " to %llu", (unsigned long long)report->params->lag_most);
	fputs("\n\n", to);
	print_heads(upper, report->fit, width, to);
	print_heads(lower, report->fit, width, to);
	for (size_t i = 0; i < report->count; i++)
		print_row(report, &report->rows[i], width, to);
	print_calls(report, to);
	for (size_t i = 0; i < report->count; i++) {
		print_notes(&report->rows[i], to);
		if (report->fit)
			print_fit_notes(&report->rows[i], to);
		if (report->bound)
			print_bound(&report->rows[i], to);
	}
}

/* -- JSON --------------------------------------------------------------------------------------------- */

static void set_count(json_t *object, const char *key, uint64_t value)
{
	json_object_set_new(object, key, json_integer((json_int_t)value));
}

/* null for a policy without a heap, which has no such figure. */
static void set_heap_count(json_t *object, const char *key, const struct replay_result *r, uint64_t value)
{
	json_object_set_new(object, key, r->heap_valid ? json_integer((json_int_t)value) : json_null());
}

static json_t *calls_by_name(const uint64_t counts[SIM_SLOTS])
{
	json_t *calls = json_object();
	for (int slot = 0; slot < SIM_SLOTS; slot++) {
		if (counts[slot])
			set_count(calls, sim_slot_name((sim_slot)slot), counts[slot]);
	}
	return calls;
}

static void set_setting(json_t *object, const struct report *report, const struct report_row *row)
{
	const struct replay_params *p = report->params;
	json_object_set_new(object, "trace", json_text(row->name));
	json_object_set_new(object, "file", json_text(row->file));
	set_count(object, "device", row->device);
	json_object_set_new(object, "policy", json_string(policy_name(report)));
	json_object_set_new(object, "conf", p->conf ? json_text(p->conf) : json_null());
	json_object_set_new(object, "costs", json_text(p->costs));
	set_count(object, "capacity_bytes", p->capacity);
	set_count(object, "lag", p->lag);
	set_count(object, "lag_most", max_u64(p->lag, p->lag_most));
	set_count(object, "seed", p->seed);
	json_object_set_new(object, "schedule", json_string(option_schedules[p->schedule]));
	set_count(object, "repeat", p->repeat);
	set_count(object, "timings", p->timings);
}

static void set_result(json_t *object, const struct report_row *row)
{
	const struct replay_result *r = &row->result;
	set_count(object, "events", r->events);
	set_count(object, "streams", r->streams);
	set_count(object, "operations", r->operations);
	set_count(object, "unknown_frees", row->unknown_frees);
	set_count(object, "implied_frees", row->implied_frees);
	set_count(object, "failed_allocs", row->failed_allocs);
	set_count(object, "skipped_events", r->skipped_events);
	set_count(object, "pools", r->pools);
	set_count(object, "captures", r->captures);
	set_count(object, "launches", r->launches);
	set_heap_count(object, "pool_reserved_bytes", r, r->pool_reserved_bytes);
	set_count(object, "peak_allocated_bytes", r->peak_allocated_bytes);
	set_count(object, "peak_requested_bytes", r->peak_requested_bytes);
	set_count(object, "peak_reserved_bytes", r->peak_reserved_bytes);
	set_count(object, "end_reserved_bytes", r->end_reserved_bytes);
	json_object_set_new(object, "fragmentation", json_real(fragmentation(r)));
	json_object_set_new(object, "external_fragmentation",
	                    r->heap_valid ? json_real(r->external_fragmentation) : json_null());
	json_object_set_new(object, "driver_calls", calls_by_name(r->driver_calls));
	json_object_set_new(object, "driver_calls_in_frees", calls_by_name(r->driver_calls_in_frees));
	set_count(object, "driver_calls_last_quarter", r->driver_calls_last_quarter);
	set_count(object, "driver_time_ns", r->driver_time_ns);
	set_count(object, "max_driver_time_per_alloc_ns", r->max_driver_time_per_alloc_ns);
	json_object_set_new(object, "max_times_tiles", json_real(r->max_times_tiles));
	set_heap_count(object, "waits_inserted", r, r->waits_inserted);
	json_object_set_new(object, "host_ns_per_op", r->heap_valid ? json_real(r->host_ns_per_op) : json_null());
	set_heap_count(object, "host_ns_median", r, r->host_ns_median);
	set_heap_count(object, "host_ns_p999", r, r->host_ns_p999);
	set_count(object, "ooms", r->ooms);
	set_heap_count(object, "retries", r, r->retries);
	set_heap_count(object, "metadata_bytes", r, r->metadata_bytes);
	set_count(object, "violations", r->violations);
	set_count(object, "leaks", r->leaks);
	json_object_set_new(object, "problem", r->problem[0] ? json_text(r->problem) : json_null());
}

/* null if the trace does not fit. */
static void set_fit(json_t *object, const struct replay_fit *fit)
{
	bool fits = fit->bytes != 0;
	json_object_set_new(object, "fit_bytes", fits ? json_integer((json_int_t)fit->bytes) : json_null());
	json_object_set_new(object, "fit_driver_time_ns",
	                    fits ? json_integer((json_int_t)fit->driver_time_ns) : json_null());
	json_object_set_new(object, "fit_verified", fits ? json_boolean(fit->verified) : json_null());
	set_count(object, "fit_runs", fit->runs);
	set_count(object, "fit_violations", fit->violations + fit->leaks);
}

static void set_bound(json_t *object, const struct replay_bound *bound)
{
	set_count(object, "bound_bytes", bound->bytes);
	set_count(object, "frees", bound->frees);
	set_count(object, "free_batches", bound->batches);
}

bool report_json(const struct report *report, const struct report_row *row, FILE *to)
{
	json_t *object = json_object();
	set_setting(object, report, row);
	set_result(object, row);
	if (report->fit)
		set_fit(object, &row->fit);
	if (report->bound)
		set_bound(object, &row->bound);
	int error = json_dumpf(object, to, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(6));
	json_decref(object);
	return error == 0 && fputc('\n', to) != EOF && fflush(to) == 0;
}
