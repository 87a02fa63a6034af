/* SPDX-License-Identifier: Apache-2.0
 *
 * How long a snapshot of a heap with a full history takes, without call stacks and with stacks of 16 frames, and how
 * much more host memory it needs. Prints one JSON object a line; docs/bench.md tells how to read them.
 *
 *     build/bench/dumps [FOLDER [EVENTS]]
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bits.h"
#include "prng.h"
#include "sim.h"
#include "terrazzo.h"
#include "ticks.h"

enum { PASSES = 5, LIVE = 20000, STACKS = 2000, DEPTH = 16 };

static uint64_t random_state = 1;

static _Noreturn void fail(const char *what)
{
	fprintf(stderr, "dumps: %s: %s\n", what, trz_last_error());
	exit(1);
}

static uint64_t name_stack(void *user)
{
	return user ? 1 + prng_below(&random_state, STACKS) : 0;
}

static size_t tell_stack(void *user, uint64_t id, trz_frame *frames, size_t capacity)
{
	(void)user;
	size_t count = capacity < DEPTH ? capacity : DEPTH;
	for (size_t i = 0; i < count; i++)
		frames[i] = (trz_frame){"/usr/lib/python3/dist-packages/torch/nn/modules/linear.py", "forward",
		                        (unsigned)(id * DEPTH + i)};
	return count;
}

/* Frees and allocates in turn until the history is full. */
static void fill(trz_heap *heap, void **held, uint64_t events)
{
	trz_set_tag("training");
	for (uint64_t i = 0; i < events; i++) {
		void **slot = &held[prng_below(&random_state, LIVE)];
		uint64_t size = prng_below(&random_state, 4) ? 512 + prng_below(&random_state, KIB(32)) : MIB(1);
		if (*slot && trz_free(heap, *slot) != TRZ_OK)
			fail("free");
		if (trz_alloc(heap, size, 0, NULL, slot) != TRZ_OK)
			fail("allocation");
	}
	trz_set_tag(NULL);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* The most memory that the process has had, in bytes, since the last reset. */
static uint64_t peak_memory(bool reset)
{
	char line[256];
	uint64_t kib = 0;
	FILE *f = reset ? fopen("/proc/self/clear_refs", "w") : fopen("/proc/self/status", "r");
	if (!f)
		return 0;
	if (reset)
		fputs("5\n", f);
	while (!reset && fgets(line, sizeof line, f))
		if (sscanf(line, "VmHWM: %" SCNu64, &kib) == 1)
			break;
	fclose(f);
	return kib * 1024;
}

static void report(const char *name, trz_heap *heap, const char *path, uint64_t events)
{
	double ms[PASSES];
	struct stat file;
	struct ticks ticks;
	ticks_init(&ticks);
	ticks_calibrate(&ticks);
	peak_memory(true);
	uint64_t before = peak_memory(false);
	for (int i = 0; i < PASSES; i++) {
		uint64_t begin = ticks_read_in_order(&ticks);
		if (trz_snapshot(heap, path) != TRZ_OK)
			fail("snapshot");
		ms[i] = (double)(ticks_read_in_order(&ticks) - begin) * ticks.ns / 1e6;
	}
	uint64_t extra = peak_memory(false) - before;
	if (stat(path, &file))
		fail("stat");
	qsort(ms, PASSES, sizeof *ms, by_value);
	json_t *out = json_pack("{s:s, s:I, s:I, s:I, s:{s:f, s:f, s:f}, s:I}", "load", name, "events", (json_int_t)events,
	                        "live", (json_int_t)LIVE, "file_bytes", (json_int_t)file.st_size, "ms", "median",
	                        ms[PASSES / 2], "least", ms[0], "most", ms[PASSES - 1], "extra_bytes", (json_int_t)extra);
	json_dumpf(out, stdout, JSON_REAL_PRECISION(4));
	putchar('\n');
	fflush(stdout);
	json_decref(out);
	unlink(path);
}

static void measure(const char *name, const char *folder, uint64_t events, bool stacks)
{
	static void *held[LIVE];
	const sim_config config = {.capacity = GIB(64)};
	char path[4096];
	trz_heap *heap;
	sim *s;
	if (sim_open(&config, &s) != TRZ_OK)
		fail("simulated device");
	const trz_open_params params = {.driver = sim_driver(s)};
	if (trz_open(&params, &heap) != TRZ_OK)
		fail("heap");
	snprintf(path, sizeof path, "%s/dumps-%d.json", folder, (int)getpid());
	trz_set_frame_callback(heap, stacks ? name_stack : NULL, stacks ? tell_stack : NULL, held);
	if (trz_history_start(heap, events) != TRZ_OK)
		fail("history");
	fill(heap, held, events);
	report(name, heap, path, events);
	for (size_t i = 0; i < LIVE; i++) {
		if (held[i])
			trz_free(heap, held[i]);
		held[i] = NULL;
	}
	trz_close(heap);
	sim_close(s);
}

int main(int argc, char **argv)
{
	const char *folder = argc > 1 ? argv[1] : "/tmp";
	uint64_t events = argc > 2 ? strtoull(argv[2], NULL, 10) : 1000000;
	measure("no_stacks", folder, events, false);
	measure("stacks_of_16_frames", folder, events, true);
	return 0;
}
