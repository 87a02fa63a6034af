/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run found, for people.
 */
#include <string.h>

#include "bits.h"
#include "program.h"

static double gib(const json_t *object, const char *key)
{
	return (double)program_number(object, key) / (double)GIB(1);
}

static const char *text(const json_t *object, const char *key)
{
	const char *value = json_string_value(json_object_get(object, key));
	return value ? value : "";
}

static void line(FILE *to, const char *name)
{
	fprintf(to, "  %-22s", name);
}

static void print_memory(const json_t *result, FILE *to)
{
	bool torch = strcmp(text(result, "figures_of"), "pytorch") == 0;
	line(to, "peak allocated");
	fprintf(to, "%8.2f GiB%s\n", gib(result, "peak_allocated_bytes"), torch ? "  (PyTorch)" : "  (driver)");
	if (torch) {
		line(to, "peak reserved");
		fprintf(to, "%8.2f GiB  (PyTorch)\n", gib(result, "peak_reserved_bytes"));
		line(to, "fragmentation");
		fprintf(to, "%8.1f %%    of what was reserved at the peak\n",
		        100 * json_real_value(json_object_get(result, "fragmentation")));
		line(to, "device used, peak");
		fprintf(to, "%8.2f GiB  of %.2f, context of %.2f included\n", gib(result, "device_peak_bytes"),
		        gib(result, "capacity_bytes"), gib(result, "overhead_bytes"));
	}
	if (program_number(result, "retries")) {
		line(to, "cache emptied");
		fprintf(to, "%8llu times, to serve a request\n", (unsigned long long)program_number(result, "retries"));
	}
}

static void print_ooms(const json_t *result, FILE *to)
{
	enum { MOST = 5, STACK = 6 };
	const json_t *ooms = json_object_get(result, "ooms");
	for (size_t i = 0; i < json_array_size(ooms) && i < MOST; i++) {
		const json_t *oom = json_array_get(ooms, i), *stack = json_object_get(oom, "stack");
		uint64_t wanted = program_number(oom, stack ? "requested_bytes" : "bytes");
		uint64_t left = program_number(oom, stack ? "device_free_bytes" : "free_bytes");
		fprintf(to, "\nout of memory: %.2f GiB asked for, %.2f free on the device", (double)wanted / (double)GIB(1),
		        (double)left / (double)GIB(1));
		if (stack)
			fprintf(to, ", %.2f allocated of %.2f reserved", gib(oom, "allocated_bytes"), gib(oom, "reserved_bytes"));
		else
			fprintf(to, ", in %s", text(oom, "call"));
		fprintf(to, "\n");
		size_t depth = json_array_size(stack);
		if (depth > 0)
			fprintf(to, "  at %s\n", text(oom, "place"));
		for (size_t j = depth > STACK ? depth - STACK : 0; j < depth; j++)
			fprintf(to, "     %s\n", json_string_value(json_array_get(stack, j)));
	}
	if (json_array_size(ooms) > MOST)
		fprintf(to, "\n... and %zu more times\n", json_array_size(ooms) - MOST);
}

static void print_holders(const json_t *result, FILE *to)
{
	size_t i;
	json_t *holder;
	const json_t *holders = json_object_get(result, "holders");
	if (json_array_size(holders) == 0)
		return;
	fprintf(to, "\nlargest holders at the %s\n", text(result, "holders_at"));
	json_array_foreach(holders, i, holder)
		fprintf(to, "  %8.2f GiB in %6llu blocks  %s\n", gib(holder, "bytes"),
		        (unsigned long long)program_number(holder, "blocks"), text(holder, "place"));
}

/* The calls that make and give back memory; the JSON has all. */
static void print_calls(const json_t *result, FILE *to)
{
	static const char *const names[] = { "cudaMalloc", "cudaFree", "cuMemAlloc", "cuMemFree", "cuMemCreate",
		                                 "cuMemRelease", "cuMemMap", "cuMemUnmap", "cuMemSetAccess" };
	const json_t *calls = json_object_get(result, "driver_calls");
	line(to, "driver calls");
	fprintf(to, "%8llu     ", (unsigned long long)program_number(result, "driver_calls_total"));
	/* A program's cudaMalloc is the look-alike runtime's cuMemAlloc. */
	size_t first = program_number(calls, "cudaMalloc") ? 0 : 2;
	for (size_t i = first; i < sizeof names / sizeof names[0]; i += i == 1 ? 3 : 1)
		if (program_number(calls, names[i]))
			fprintf(to, " %s %llu", names[i], (unsigned long long)program_number(calls, names[i]));
	fprintf(to, "\n");
	line(to, "work");
	fprintf(to, "%8llu      kernels, %llu library calls, %llu graph launches\n",
	        (unsigned long long)program_number(result, "kernels"),
	        (unsigned long long)program_number(result, "library_calls"),
	        (unsigned long long)program_number(result, "graph_launches"));
}

/* The words of a process's command line. */
static void print_words(const json_t *words, FILE *to)
{
	enum { MOST_COLUMNS = 60 };
	size_t i;
	int columns = 0;
	json_t *word;
	json_array_foreach(words, i, word) {
		if (columns > MOST_COLUMNS) {
			fprintf(to, " ...");
			return;
		}
		columns += fprintf(to, " %.40s", json_string_value(word));
	}
}

static void print_processes(const json_t *result, FILE *to)
{
	size_t i;
	json_t *process;
	const json_t *processes = json_object_get(result, "processes");
	size_t with_memory = 0;
	json_array_foreach(processes, i, process)
		with_memory += program_number(process, "device_peak_bytes") > 0;
	if (with_memory < 2)
		return;
	fprintf(to, "\nprocess    allocated  reserved  device used, peak, GiB\n");
	json_array_foreach(processes, i, process) {
		if (program_number(process, "device_peak_bytes") == 0)
			continue;
		fprintf(to, "%-9llu  %9.2f  %8.2f  %11.2f ", (unsigned long long)program_number(process, "pid"),
		        gib(process, "peak_allocated_bytes"), gib(process, "peak_reserved_bytes"),
		        gib(process, "device_peak_bytes"));
		print_words(json_object_get(process, "program"), to);
		fputc('\n', to);
	}
}

static void print_fit(const json_t *result, FILE *to)
{
	const json_t *fit = json_object_get(result, "fit");
	if (!fit)
		return;
	uint64_t bytes = program_number(fit, "memory_bytes");
	if (!bytes)
		fprintf(to, "\nfits on none: not even %s is enough\n", text(fit, "tried"));
	else if (json_object_get(fit, "device"))
		fprintf(to, "\nfits on %s, %.2f GiB: the smallest profile, found in %llu runs\n", text(fit, "device"),
		        (double)bytes / (double)GIB(1), (unsigned long long)program_number(fit, "runs"));
	else
		fprintf(to, "\nfits in %.4f GiB (--memory %lluMiB): the smallest multiple of 64 MiB, found in %llu runs%s\n",
		        (double)bytes / (double)GIB(1), (unsigned long long)(bytes / MIB(1)),
		        (unsigned long long)program_number(fit, "runs"),
		        json_is_true(json_object_get(fit, "verified")) ? "" : "; more memory is not always enough here");
}

void program_print(const json_t *result, FILE *to)
{
	int exit_status = program_exit_status(result);
	if (json_array_size(json_object_get(result, "processes")) == 0) {
		fprintf(to, "terrazzo: the command used no simulated device (exit status %d)\n", exit_status);
		return;
	}
	fprintf(to, "\nterrazzo: %s, %.2f GiB, simulated", text(result, "device_name"), gib(result, "capacity_bytes"));
	if (exit_status)
		fprintf(to, "; exit status %d", exit_status);
	fprintf(to, "\n");
	print_memory(result, to);
	print_calls(result, to);
	if (program_number(result, "violations")) {
		line(to, "violations");
		fprintf(to, "%8llu      %s\n", (unsigned long long)program_number(result, "violations"),
		        text(result, "first_violation"));
	}
	print_processes(result, to);
	print_ooms(result, to);
	print_holders(result, to);
	print_fit(result, to);
}
