/* SPDX-License-Identifier: Apache-2.0
 *
 * The report of a run, as text.
 */
#include <string.h>

#include "bits.h"
#include "cli.h"
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

static bool is(const json_t *object, const char *key, const char *value)
{
	return strcmp(text(object, key), value) == 0;
}

/* The allocator in use, and why it is not the one that the user wanted. */
static void print_allocator(const json_t *result, FILE *to)
{
	static const char *const names[][2] = {
		{"native", "PyTorch's native one"}, {"expandable", "PyTorch's native one, with expandable segments"},
		{"cudaMallocAsync", "the driver's pools (cudaMallocAsync)"}, {"pluggable", "one of the program's own"},
	};
	const char *served = text(result, "allocator"), *name = served;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (strcmp(served, names[i][0]) == 0)
			name = names[i][1];
	if (!*served)
		return;
	line(to, "allocator");
	fprintf(to, "%s\n", name);
	if (json_object_get(result, "allocator_reason")) {
		line(to, "");
		fprintf(to, "%s\n", text(result, "allocator_reason"));
	}
	if (json_object_get(result, "allocator_asked") && !is(result, "allocator_asked", served)) {
		line(to, "");
		fprintf(to, "--allocator %s had no effect: the program chooses another\n", text(result, "allocator_asked"));
	}
}

static void print_memory(const json_t *result, FILE *to)
{
	bool torch = is(result, "figures_of", "pytorch");
	char whose[48];
	snprintf(whose, sizeof whose, "%s", torch ? "PyTorch" : "driver");
	if (program_number(result, "devices") > 1)
		snprintf(whose, sizeof whose, "%s, device %llu, the fullest", torch ? "PyTorch" : "driver",
		         (unsigned long long)program_number(result, "figures_device"));
	line(to, "peak allocated");
	fprintf(to, "%8.2f GiB  (%s)\n", gib(result, "peak_allocated_bytes"), whose);
	if (json_is_true(json_object_get(result, "figures_lost"))) {
		line(to, "");
		fprintf(to, "the process ended by a signal or _exit: PyTorch's own figures went with it\n");
	}
	if (torch) {
		line(to, "peak reserved");
		fprintf(to, "%8.2f GiB  (%s)\n", gib(result, "peak_reserved_bytes"), whose);
		line(to, "fragmentation");
		fprintf(to, "%8.1f %%    of reserved memory at the peak\n",
		        100 * json_real_value(json_object_get(result, "fragmentation")));
	}
	line(to, "device used, peak");
	fprintf(to, "%8.2f GiB  of %.2f, context of %.2f included\n", gib(result, "device_peak_bytes"),
	        gib(result, "capacity_bytes"), gib(result, "overhead_bytes"));
	if (program_number(result, "retries")) {
		line(to, "cache emptied");
		fprintf(to, "%8llu      times, after requests that found no memory\n",
		        (unsigned long long)program_number(result, "retries"));
	}
}

/* The request and what refused it: the program's own limit, or the device. */
static void print_request(const json_t *result, const json_t *oom, FILE *to)
{
	bool torch = json_object_get(oom, "requested_bytes") != NULL;
	char wanted[SIZE_TEXT_BYTES], left[SIZE_TEXT_BYTES], limit[SIZE_TEXT_BYTES], device[32] = "the device";
	size_text(program_number(oom, torch ? "requested_bytes" : "bytes"), wanted);
	size_text(program_number(oom, torch ? "device_free_bytes" : "free_bytes"), left);
	size_text(program_number(oom, "limit_bytes"), limit);
	if (program_number(result, "devices") > 1)
		snprintf(device, sizeof device, "device %llu", (unsigned long long)program_number(oom, "device"));
	if (!json_object_get(oom, torch ? "requested_bytes" : "bytes")) {
		fprintf(to, "\nout of memory: %s\n", text(oom, "text"));
		return;
	}
	fprintf(to, "\nout of memory: %s requested", wanted);
	if (json_object_get(oom, "limit_bytes"))
		fprintf(to, " under the program's own limit of %s (%s free on %s)", limit, left, device);
	else
		fprintf(to, ", %s free on %s", left, device);
	if (torch)
		fprintf(to, "; %.2f GiB allocated of %.2f reserved\n", gib(oom, "allocated_bytes"), gib(oom, "reserved_bytes"));
	else
		fprintf(to, ", in %s\n", text(oom, "call"));
}

static void print_frames(const json_t *frames, size_t first, FILE *to)
{
	for (size_t i = first; i < json_array_size(frames); i++)
		fprintf(to, "     %s\n", json_string_value(json_array_get(frames, i)));
}

/* The program's own frames, the innermost of which is the place, and those from which the request came. */
static void print_stack(const json_t *oom, FILE *to)
{
	enum { OWN = 5, LIBRARY = 4 };
	const json_t *own = json_object_get(oom, "own"), *stack = json_object_get(oom, "stack");
	size_t owned = json_array_size(own), depth = json_array_size(stack), below = depth;
	if (json_object_get(oom, "place"))
		fprintf(to, "  at %s\n", text(oom, "place"));
	print_frames(own, owned > OWN ? owned - OWN : 0, to);
	while (below > 0 && strcmp(json_string_value(json_array_get(stack, below - 1)), text(oom, "place")) != 0)
		below--;
	if (depth - below > LIBRARY + 1) {
		fprintf(to, "     ... %zu more\n", depth - below - LIBRARY);
		below = depth - LIBRARY;
	}
	print_frames(stack, below, to);
}

static void print_ooms(const json_t *result, FILE *to)
{
	enum { MOST = 5 };
	const json_t *ooms = json_object_get(result, "ooms");
	for (size_t i = 0; i < json_array_size(ooms) && i < MOST; i++) {
		print_request(result, json_array_get(ooms, i), to);
		print_stack(json_array_get(ooms, i), to);
	}
	if (json_array_size(ooms) > MOST)
		fprintf(to, "\n... and %zu more times\n", json_array_size(ooms) - MOST);
	if (json_array_size(ooms) && is(result, "figures_of", "pytorch") && !json_object_get(result, "explanation"))
		fprintf(to, "  --holders tells why, what held the memory, and what would help\n");
}

/* What held the memory, at the failure or the peak. */
static void print_explanation(const json_t *result, FILE *to)
{
	const json_t *explanation = json_object_get(result, "explanation");
	uint64_t peak = program_number(result, "peak_allocated_bytes");
	if (!explanation)
		return;
	fprintf(to, "\n%s", text(explanation, "text"));
	if (is(result, "holders_at", "peak") &&
	    program_number(json_object_get(explanation, "figures"), "allocated") < peak - peak / 64)
		fprintf(to, "the peak of %.2f GiB is not in the history, whose events begin later\n",
		        gib(result, "peak_allocated_bytes"));
}

/* The calls that make and give back memory; the JSON has all. */
static void print_calls(const json_t *result, FILE *to)
{
	static const char *const names[] = { "cudaMalloc", "cudaFree", "cuMemAlloc", "cuMemFree", "cuMemAllocAsync",
		                                 "cuMemFreeAsync", "cuMemCreate", "cuMemRelease", "cuMemMap", "cuMemUnmap",
		                                 "cuMemSetAccess" };
	const json_t *calls = json_object_get(result, "driver_calls");
	line(to, "driver calls");
	fprintf(to, "%8llu    ", (unsigned long long)program_number(result, "driver_calls_total"));
	/* A program's cudaMalloc is the look-alike runtime's cuMemAlloc. */
	size_t first = program_number(calls, "cudaMalloc") ? 0 : 2;
	for (size_t i = first; i < sizeof names / sizeof names[0]; i += i == 1 ? 3 : 1)
		if (program_number(calls, names[i]))
			fprintf(to, "  %s %llu", names[i], (unsigned long long)program_number(calls, names[i]));
	fprintf(to, "\n");
	line(to, "driver time");
	fprintf(to, "%8.1f ms   virtual, by the costs of %s\n", (double)program_number(result, "driver_time_ns") / 1e6,
	        text(result, "costs"));
	line(to, "work");
	fprintf(to, "%8llu      kernels, %llu library calls, %llu graph launches\n",
	        (unsigned long long)program_number(result, "kernels"),
	        (unsigned long long)program_number(result, "library_calls"),
	        (unsigned long long)program_number(result, "graph_launches"));
	if (program_number(result, "blank_reads")) {
		const char *place = text(result, "first_blank_read");
		line(to, "short reads");
		fprintf(to, "%8llu      gave 0 (--scalars)%s%s\n", (unsigned long long)program_number(result, "blank_reads"),
		        *place ? ", the first at " : "", place);
	}
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

static void print_collectives(const json_t *kinds, FILE *to)
{
	const char *name;
	json_t *kind;
	json_object_foreach((json_t *)kinds, name, kind)
		fprintf(to, "  %s %llu (%.2f)", name, (unsigned long long)program_number(kind, "calls"), gib(kind, "bytes"));
}

static size_t ooms_of(const json_t *result, const json_t *process)
{
	size_t i, count = 0;
	json_t *oom;
	json_array_foreach(json_object_get(result, "ooms"), i, oom)
		count += program_number(oom, "pid") == program_number(process, "pid");
	return count;
}

/* The next rank's process after `last`, by number and then by age; NULL: there is none. */
static const json_t *next_rank(const json_t *processes, const json_t *last)
{
	size_t i;
	json_t *process;
	const json_t *best = NULL;
	bool passed = false;
	json_array_foreach(processes, i, process) {
		uint64_t rank = program_number(process, "rank");
		bool later = !last || rank > program_number(last, "rank") || (rank == program_number(last, "rank") && passed);
		passed = passed || process == last;
		if (json_object_get(process, "rank") && later && (!best || rank < program_number(best, "rank")))
			best = process;
	}
	return best;
}

/* The largest category at the moment when terrazzo.torch.track found the most memory in use. */
static void print_category(const json_t *process, FILE *to)
{
	const char *name, *largest = NULL;
	json_t *size;
	json_int_t most = 0;
	json_object_foreach(json_object_get(process, "categories"), name, size)
		if (strcmp(name, "cache") != 0 && json_integer_value(size) > most) {
			most = json_integer_value(size);
			largest = name;
		}
	if (largest)
		fprintf(to, "  most: %s (%.2f)", largest, (double)most / (double)GIB(1));
}

static void print_extremes(const json_t *ranks, FILE *to)
{
	const json_t *ran_out = json_object_get(ranks, "ran_out");
	fprintf(to, "fullest: rank %llu, %.2f GiB (reserved + outside); emptiest: rank %llu, %.2f GiB less\n",
	        (unsigned long long)program_number(ranks, "fullest"), gib(ranks, "most_bytes"),
	        (unsigned long long)program_number(ranks, "emptiest"),
	        gib(ranks, "most_bytes") - gib(ranks, "least_bytes"));
	if (program_number(ranks, "most_allocated") != program_number(ranks, "fullest"))
		fprintf(to, "most allocated: rank %llu, %.2f GiB\n",
		        (unsigned long long)program_number(ranks, "most_allocated"), gib(ranks, "most_allocated_bytes"));
	for (size_t i = 0; i < json_array_size(ran_out); i++)
		fprintf(to, "%s%" JSON_INTEGER_FORMAT "%s", i ? ", " : "ran out of memory: rank ",
		        json_integer_value(json_array_get(ran_out, i)), i + 1 == json_array_size(ran_out) ? "\n" : "");
}

void program_print_ranks(const json_t *result, FILE *to)
{
	const json_t *processes = json_object_get(result, "processes");
	bool nodes = program_number(result, "nodes") > 0;
	if (!json_object_get(result, "ranks"))
		return;
	fprintf(to, "\n%srank  allocated  reserved  outside  device used, peak  free, GiB   ooms  retries  collectives "
	        "(GiB)\n", nodes ? "node  " : "");
	for (const json_t *p = NULL; (p = next_rank(processes, p));) {
		if (nodes)
			fprintf(to, "%4llu  ", (unsigned long long)program_number(p, "node"));
		fprintf(to, "%4llu  %9.2f  %8.2f  %7.2f  %17.2f  %9.2f  %5zu  %7llu",
		        (unsigned long long)program_number(p, "rank"), gib(p, "peak_allocated_bytes"),
		        gib(p, "peak_reserved_bytes"), gib(p, "outside_bytes"),
		        gib(p, "device_peak_bytes"), gib(p, "free_at_peak_bytes"), ooms_of(result, p),
		        (unsigned long long)program_number(p, "retries"));
		print_collectives(json_object_get(p, "collectives"), to);
		print_category(p, to);
		fprintf(to, "%s\n", json_is_true(json_object_get(p, "ended")) ? "" : "  (ended by a signal or _exit)");
	}
	print_extremes(json_object_get(result, "ranks"), to);
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
		fprintf(to, "%s\n", json_is_true(json_object_get(process, "ended")) ? "" : "  (ended by a signal or _exit)");
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

/* How often something was wrong, and the first time. */
static void print_wrong(const json_t *result, const char *key, const char *first, FILE *to)
{
	if (!program_number(result, key))
		return;
	line(to, key);
	fprintf(to, "%8llu      %s\n", (unsigned long long)program_number(result, key), text(result, first));
}

static void print_traces(const json_t *result, FILE *to)
{
	size_t i;
	json_t *process;
	json_array_foreach(json_object_get(result, "processes"), i, process) {
		const json_t *trace = json_object_get(process, "trace");
		if (trace)
			fprintf(to, "\ntrace: %s: %llu events, %llu allocations on %llu streams\n", text(trace, "file"),
			        (unsigned long long)program_number(trace, "events"),
			        (unsigned long long)program_number(trace, "allocations"),
			        (unsigned long long)program_number(trace, "streams"));
	}
}

void program_print(const json_t *result, FILE *to)
{
	char ended[96] = "";
	int by_signal = (int)program_number(result, "signal");
	if (by_signal)
		snprintf(ended, sizeof ended, "ended by signal %d (%s)", by_signal, strsignal(by_signal));
	else
		snprintf(ended, sizeof ended, "exit status %d", program_exit_status(result));
	if (json_array_size(json_object_get(result, "processes")) == 0) {
		fprintf(to, "terrazzo: the command used no simulated device (%s)\n", ended);
		return;
	}
	fprintf(to, "\nterrazzo: %s, %.2f GiB, simulated", text(result, "device_name"), gib(result, "capacity_bytes"));
	if (program_exit_status(result))
		fprintf(to, "; %s", ended);
	fprintf(to, "\n");
	print_allocator(result, to);
	print_memory(result, to);
	print_calls(result, to);
	print_wrong(result, "violations", "first_violation", to);
	print_wrong(result, "misuses", "first_misuse", to);
	print_wrong(result, "suspicions", "first_suspicion", to);
	if (json_object_get(result, "ranks"))
		program_print_ranks(result, to);
	else
		print_processes(result, to);
	print_ooms(result, to);
	print_explanation(result, to);
	print_fit(result, to);
	print_traces(result, to);
}
