/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures a GPU for terrazzo: what the calls of the driver table cost, how fast stitched memory is, and what is seen
 * through a second address of a tile. bench/README.md tells how to run it.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gpu.h"

struct part {
	const char *name;
	void (*run)(void);
	unsigned seconds;            /* after which it begins no more; it is ended at half as much again */
	bool on_request;
	bool chosen;
	char end[64];                /* how its process ended */
	double took;
};

static struct part parts[] = {
	{.name = "first", .run = part_first, .seconds = 10},
	{.name = "memory", .run = part_memory, .seconds = 24},
	{.name = "live", .run = part_live, .seconds = 10},
	{.name = "busy", .run = part_busy, .seconds = 8},
	{.name = "small", .run = part_small, .seconds = 5},
	{.name = "full", .run = part_full, .seconds = 14},
	{.name = "bandwidth", .run = part_bandwidth, .seconds = 24},
	{.name = "aliasing", .run = part_aliasing, .seconds = 12},
	{.name = "move", .run = part_move, .seconds = 5},
	{.name = "fault", .run = part_fault, .seconds = 4, .on_request = true},
};
enum { PARTS = sizeof parts / sizeof parts[0], MOST_SECONDS = 100 };

/* ---- running -------------------------------------------------------------------------------------------- */

/* No part runs beyond `end_ns`. */
static void run_part(struct part *p, uint64_t end_ns)
{
	uint64_t from = now_ns(), limit = p->seconds * 1500000000ull;
	if (from + 1000000000u > end_ns) {
		snprintf(p->end, sizeof p->end, "left out, no time");
		return;
	}
	limit = limit < end_ns - from ? limit : end_ns - from;
	pid_t child = fork();
	if (child < 0) {
		snprintf(p->end, sizeof p->end, "fork failed");
		return;
	}
	if (child == 0) {
		part_ends_ns = from + limit / 3 * 2;
		p->run();
		fflush(NULL);
		_Exit(0);
	}
	int state = 0;
	while (waitpid(child, &state, WNOHANG) == 0) {
		uint64_t past = now_ns() - from;
		if (past > limit)
			kill(child, SIGKILL);
		if (past > limit + 5000000000ull) {
			snprintf(p->end, sizeof p->end, "stuck in the driver");
			return;
		}
		usleep(5000);
	}
	p->took = (double)(now_ns() - from) / 1e9;
	if (WIFEXITED(state) && WEXITSTATUS(state) == 0)
		snprintf(p->end, sizeof p->end, "ok");
	else if (WIFEXITED(state))
		snprintf(p->end, sizeof p->end, "exit %d", WEXITSTATUS(state));
	else
		snprintf(p->end, sizeof p->end, "signal %d%s", WTERMSIG(state),
		         p->took * 1e9 > (double)limit ? ", too slow" : "");
}

/* ---- writing -------------------------------------------------------------------------------------------- */

/* The kernel module's version, or "". */
static void read_module_version(char *text, size_t size)
{
	FILE *file = fopen("/proc/driver/nvidia/version", "r");
	char line[256] = "";
	text[0] = '\0';
	if (!file)
		return;
	char *rest = fgets(line, sizeof line, file);
	for (char *word; (word = strsep(&rest, " \t\n")) && !text[0];)
		if (word[0] >= '0' && word[0] <= '9' && strchr(word, '.'))
			snprintf(text, size, "%s", word);
	fclose(file);
}

/* "NVIDIA H100, driver 580.1, CUDA 13.0, 2026-11-26", of the head object's members. */
static void describe(char *text, size_t size)
{
	char module[64], date[16], device[96] = "no device", cuda[16] = "?";
	time_t now = time(NULL);
	read_module_version(module, sizeof module);
	strftime(date, sizeof date, "%Y-%m-%d", localtime(&now));
	sscanf(results->machine, "\"device\": \"%95[^\"]", device);
	const char *version = strstr(results->machine, "\"cuda_driver\": \"");
	if (version)
		sscanf(version, "\"cuda_driver\": \"%15[^\"]", cuda);
	snprintf(text, size, "%s, driver %s, CUDA %s, %s", device, module[0] ? module : "unknown", cuda, date);
}

static void write_figures(FILE *file)
{
	for (unsigned i = 0; i < results->figure_count; i++) {
		const struct figure *f = &results->figures[i];
		fprintf(file, "{\"part\": \"cost\", \"slot\": \"%s\", \"what\": \"%s\", \"mib\": %.6g, \"handles\": %u, "
		        "\"live\": %u, \"samples\": %zu, \"first_ns\": %.0f, \"least_ns\": %.1f, \"median_ns\": %.1f, "
		        "\"mean_ns\": %.1f, \"p90_ns\": %.1f, \"waits\": %d},\n", f->slot, f->what, f->mib, f->handles, f->live,
		        f->ns.samples, f->ns.first, f->ns.least, f->ns.median, f->ns.mean, f->ns.p90, f->waits);
	}
}

static void write_json(const char *path, const char *machine, const char *table)
{
	FILE *file = fopen(path, "w");
	if (!file) {
		perror(path);
		return;
	}
	fprintf(file, "{\"machine\": \"%s\", %s%s\"parts\": {", machine, results->machine, results->machine[0] ? ", " : "");
	for (int i = 0, n = 0; i < PARTS; i++)
		if (parts[i].chosen)
			fprintf(file, "%s\"%s\": \"%s, %.1f s\"", n++ ? ", " : "", parts[i].name, parts[i].end, parts[i].took);
	fprintf(file, "},\n\"rows\": [\n");
	write_figures(file);
	fputs(results->json, file);
	fprintf(file, "{\"part\": \"end\"}],\n\"lines\": [\n");
	for (unsigned i = 0; i < results->line_count; i++) {
		fputc('"', file);
		for (const char *c = results->lines[i]; *c; c++)
			fputc(*c == '"' || *c == '\\' ? '\'' : *c, file);
		fputs(i + 1 < results->line_count ? "\",\n" : "\"\n", file);
	}
	fprintf(file, "],\n\"cost_table\": [\n");
	while (*table) {
		size_t length = strcspn(table, "\n");
		fputc('"', file);
		for (size_t i = 0; i < length; i++)
			fputc(table[i] == '"' ? '\'' : table[i], file);
		table += length + (table[length] == '\n');
		fputs(*table ? "\",\n" : "\"\n", file);
	}
	fprintf(file, "]}\n");
	fclose(file);
}

/* ---- the costs, for people ------------------------------------------------------------------------------ */

static const struct figure *figure_of(const char *slot, const char *what, double mib, unsigned least, unsigned most,
                                      unsigned live)
{
	for (unsigned i = 0; i < results->figure_count; i++) {
		const struct figure *f = &results->figures[i];
		if (strcmp(f->slot, slot) == 0 && strcmp(f->what, what) == 0 && f->mib == mib && f->handles >= least &&
		    f->handles <= most && f->live == live)
			return f;
	}
	return NULL;
}

static void print_cell(const struct figure *f, bool range)
{
	if (f)
		printf(" %8.2f", (f->ns.samples > 1 ? f->ns.mean : f->ns.first) / (range ? f->handles : 1) / 1e3);
	else
		printf(" %8s", "-");
}

static void print_costs(void)
{
	static const struct {
		const char *slot, *what;
	} rows[] = {{"create", ""}, {"map", ""}, {"set_access", "each"}, {"set_access", "range"}, {"unmap", "each"},
	            {"unmap", "range"}, {"release", ""}, {"mem_alloc", ""}, {"mem_free", ""}};
	static const double sizes[] = {2, 20, 64, 256, 1024};
	if (!figure_of("create", "", 2, 11, 100, 0))
		return;
	printf("cost of a call, us; \"range\": one call for all handles, for each of them; rounds of up to 100 handles;\n"
	       "then at 2 MiB: rounds of 1, 10 and 1000, and rounds of 50 beside 1000 and 10000 live ones\n");
	printf("  %-17s %8s %8s %8s %8s %8s | %8s %8s %8s %8s %8s\n", "", "2 MiB", "20", "64", "256", "1024", "1", "10",
	       "1000", "live 1k", "live 10k");
	for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
		const char *slot = rows[r].slot, *what = rows[r].what;
		bool range = strcmp(what, "range") == 0;
		printf("  %-10s %-6s", slot, what);
		for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
			print_cell(figure_of(slot, what, sizes[i], 11, 100, 0), range);
		printf(" |");
		print_cell(figure_of(slot, what, 2, 1, 1, 0), range);
		print_cell(figure_of(slot, what, 2, 2, 10, 0), range);
		print_cell(figure_of(slot, what, 2, 1000, 1000, 0), range);
		print_cell(figure_of(slot, what, 2, 50, 50, 1000), range);
		print_cell(figure_of(slot, what, 2, 50, 50, 10000), range);
		printf("\n");
	}
}

/* All figures without a size. */
static void print_small_costs(void)
{
	enum { COLUMNS = 3 };
	int column = 0;
	printf("calls without a size, us\n");
	for (unsigned i = 0; i < results->figure_count; i++) {
		const struct figure *f = &results->figures[i];
		if (f->mib > 0 || f->live > 0 || f->waits >= 0)
			continue;
		char name[60];
		snprintf(name, sizeof name, "%s%s%s", f->slot, f->what[0] ? ", " : "", f->what);
		printf("  %-33s %8.3f%s", name, (f->ns.samples > 1 ? f->ns.mean : f->ns.first) / 1e3,
		       ++column % COLUMNS ? "" : "\n");
	}
	printf("%s", column % COLUMNS ? "\n" : "");
}

static bool is_busy_figure(const struct figure *f, int place)
{
	static const char *const places[] = {"busy: plain memory", "busy: a tile beside", "busy: legacy stream"};
	return f && f->waits >= 0 && strcmp(f->what, places[place]) == 0;
}

static const struct figure *busy_figure(const char *slot, int place)
{
	for (unsigned i = 0; i < results->figure_count; i++)
		if (is_busy_figure(&results->figures[i], place) && strcmp(results->figures[i].slot, slot) == 0)
			return &results->figures[i];
	return NULL;
}

static int busy_waits(const char *slot)
{
	int waits = 0;
	for (int p = 0; p < 3; p++)
		waits += busy_figure(slot, p) ? busy_figure(slot, p)->waits : 0;
	return waits;
}

/* Each call that has waited has a line; the others share one. */
static void print_busy(void)
{
	if (!results->computes || results->figure_count == 0)
		return;
	printf("waits for a kernel of 10 ms that runs on other memory: calls that did, median us; its memory is plain / a\n"
	       "tile of the same range / plain, and its stream the legacy one\n  none:");
	for (unsigned i = 0; i < results->figure_count; i++) {
		const struct figure *f = &results->figures[i];
		if (is_busy_figure(f, 0) && busy_waits(f->slot) == 0)
			printf(" %s %.1f;", f->slot, f->ns.median / 1e3);
	}
	printf("\n");
	for (unsigned i = 0; i < results->figure_count; i++) {
		const struct figure *f = &results->figures[i];
		if (!is_busy_figure(f, 0) || busy_waits(f->slot) == 0)
			continue;
		printf("  %-17s", f->slot);
		for (int p = 0; p < 3; p++) {
			const struct figure *x = busy_figure(f->slot, p);
			if (x)
				printf(" %5d of %zu, %8.1f", x->waits, x->ns.samples, x->ns.median / 1e3);
		}
		printf("\n");
	}
}

/* ---- options -------------------------------------------------------------------------------------------- */

static void choose(const char *list)
{
	char words[256], *rest = words;
	snprintf(words, sizeof words, "%s", list);
	for (int i = 0; i < PARTS; i++)
		parts[i].chosen = false;
	for (char *word; (word = strsep(&rest, ","));) {
		int i = 0;
		while (i < PARTS && strcmp(parts[i].name, word) != 0)
			i++;
		if (i == PARTS) {
			fprintf(stderr, "device_figures: no part %s\n", word);
			exit(2);
		}
		parts[i].chosen = true;
	}
}

static void usage(void)
{
	printf("device_figures [--parts A,B] [--quick] [--out FILE.json] [--table FILE.ini]\nparts:");
	for (int i = 0; i < PARTS; i++)
		printf(" %s%s", parts[i].name, parts[i].on_request ? " (only on request)" : "");
	printf("\n");
	exit(0);
}

/* Holds the device open, so that it is not started and stopped with each part where nothing else keeps it up. */
static void hold_device(void)
{
	int fd = open("/dev/nvidia0", O_RDWR | O_CLOEXEC);
	if (fd < 0 && errno != ENOENT)
		fprintf(stderr, "device_figures: /dev/nvidia0: %s\n", strerror(errno));
}

int main(int count, char **arguments)
{
	static const struct option options[] = {
		{"parts", required_argument, NULL, 'p'}, {"quick", no_argument, NULL, 'q'},
		{"out", required_argument, NULL, 'o'}, {"table", required_argument, NULL, 't'},
		{"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
	const char *out = NULL, *table_path = NULL;
	static char table[16384];
	char machine[256];
	int failed = 0;
	const uint64_t end_ns = now_ns() + MOST_SECONDS * 1000000000ull;
	for (int i = 0; i < PARTS; i++)
		parts[i].chosen = !parts[i].on_request;
	for (int o; (o = getopt_long(count, arguments, "", options, NULL)) != -1;)
		switch (o) {
		case 'p': choose(optarg); break;
		case 'q': quick = true; break;
		case 'o': out = optarg; break;
		case 't': table_path = optarg; break;
		case 'h': usage(); break;
		default: return 2;
		}
	results = mmap(NULL, sizeof *results, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (results == MAP_FAILED) {
		perror("mmap");
		return 1;
	}
	hold_device();
	for (int i = 0; i < PARTS; i++)
		if (parts[i].chosen) {
			run_part(&parts[i], end_ns);
			failed += strcmp(parts[i].end, "ok") != 0;
			describe(machine, sizeof machine);
			cost_table_write(table, sizeof table, machine);
			if (out)  /* after each part, in case that this process is ended, too */
				write_json(out, machine, table);
		}
	FILE *file = table_path ? fopen(table_path, "w") : NULL;
	if (file) {
		fputs(table, file);
		fclose(file);
	}
	printf("%s%s\n", machine, results->computes ? "" : "; kernels compute nothing there: the figures mean nothing");
	if (results->figure_count > 0) {
		print_costs();
		print_small_costs();
		print_busy();
	}
	for (unsigned i = 0; i < results->line_count; i++)
		printf("%s\n", results->lines[i]);
	printf("parts:");
	for (int i = 0; i < PARTS; i++)
		if (parts[i].chosen)
			printf(" %s %s, %.1f s;", parts[i].name, parts[i].end, parts[i].took);
	printf("\n");
	return failed != 0;
}
