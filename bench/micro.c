/* SPDX-License-Identifier: Apache-2.0
 *
 * Nanoseconds per pair of free and allocation on one thread, through the public, thread-safe entry points and
 * in the default configuration, over the simulated device; the same while a history is kept, and while it keeps
 * native call stacks; jemalloc's malloc beside it in the same run. Time
 * spent inside the simulated driver is measured apart and not part of ns_per_pair. Prints one JSON object a
 * line; docs/bench.md tells how to read them.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "bits.h"
#include "prng.h"
#include "sim.h"
#include "terrazzo.h"
#include "ticks.h"

#if TRZ_META_JEMALLOC
#include <jemalloc/jemalloc.h>
#define PEER "jemalloc"
#define peer_malloc trz_je_malloc
#define peer_free trz_je_free
#else
#define PEER "libc"
#define peer_malloc malloc
#define peer_free free
#endif

enum { PASSES = 5, PATTERN = 1 << 16 };

struct load {
	const char *name;
	uint64_t least, most;        /* sizes are uniform in between */
	size_t live;                 /* allocations held at a time */
	uint64_t pairs;              /* per pass */
};

static const struct load loads[] = {
	{"pair_512B", 512, 512, 1, 5000000},
	{"pair_1MiB", MIB(1), MIB(1), 1, 2000000},
	{"random_512B_1MiB_2000_live", 512, MIB(1), 2000, 1000000},
	{"random_2MiB_200MiB_200_live", MIB(2), MIB(200), 200, 300000},
};

/* What is allocated from: the heap under test, or with heap NULL the peer. */
struct target {
	sim *device;
	trz_heap *heap;
	void **held;
};

static struct ticks ticks;
static uint64_t sizes[PATTERN];
static uint32_t victims[PATTERN];

static void fail(const char *what)
{
	fprintf(stderr, "micro: %s: %s\n", what, trz_last_error());
	exit(1);
}

static inline void *take(struct target *t, uint64_t size)
{
	void *p;
	if (!t->heap)
		return peer_malloc(size);
	if (trz_alloc(t->heap, size, 0, NULL, &p) != TRZ_OK)
		fail("allocation");
	return p;
}

static inline void give(struct target *t, void *p)
{
	if (!t->heap)
		peer_free(p);
	else if (trz_free(t->heap, p) != TRZ_OK)
		fail("free");
}

static void make_pattern(const struct load *l)
{
	uint64_t state = 1;
	for (size_t i = 0; i < PATTERN; i++) {
		sizes[i] = l->least + prng_below(&state, l->most - l->least + 1);
		victims[i] = (uint32_t)prng_below(&state, l->live);
	}
}

/* One pass; nanoseconds per pair without the time inside the driver. */
static double pass(struct target *t, const struct load *l)
{
	uint64_t driver = t->device ? sim_host_ticks(t->device) : 0, begin = ticks_read_in_order(&ticks);
	for (uint64_t i = 0; i < l->pairs; i++) {
		void **slot = &t->held[victims[i % PATTERN]];
		give(t, *slot);
		*slot = take(t, sizes[i % PATTERN]);
	}
	uint64_t elapsed = ticks_read_in_order(&ticks) - begin;
	driver = t->device ? sim_host_ticks(t->device) - driver : 0;
	return (double)(elapsed - driver) * ticks.ns / (double)l->pairs;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(double *v)
{
	qsort(v, PASSES, sizeof *v, by_value);
	return v[PASSES / 2];
}

static void open_target(struct target *t, const struct load *l, bool peer)
{
	*t = (struct target){.held = calloc(l->live, sizeof(void *))};
	if (peer)
		return;
	const sim_config config = {.capacity = GIB(80), .timed = true};
	if (sim_open(&config, &t->device) != TRZ_OK)
		fail("simulated device");
	const trz_open_params params = {.driver = sim_driver(t->device)};
	if (trz_open(&params, &t->heap) != TRZ_OK)
		fail("heap");
}

static void close_target(struct target *t, const struct load *l)
{
	for (size_t i = 0; i < l->live; i++)
		give(t, t->held[i]);
	if (t->heap)
		trz_close(t->heap);
	if (t->device)
		sim_close(t->device);
	free(t->held);
}

static uint64_t memory_calls(struct target *t)
{
	return sim_calls(t->device, SIM_SLOT_create) + sim_calls(t->device, SIM_SLOT_map) +
	       sim_calls(t->device, SIM_SLOT_set_access) + sim_calls(t->device, SIM_SLOT_unmap);
}

static uint64_t stat_of(struct target *t, const char *name)
{
	uint64_t value = 0;
	if (trz_stat(t->heap, name, &value) != TRZ_OK)
		fail("statistic");
	return value;
}

/* A pass with a history, and with the stacks of `callback` (NULL: none). */
static double pass_with_history(struct target *t, const struct load *l, trz_frame_callback *callback)
{
	if (trz_set_frame_callback(t->heap, callback, NULL, NULL) != TRZ_OK ||
	    trz_history_start(t->heap, 1 << 20) != TRZ_OK)
		fail("history");
	double ns = pass(t, l);
	if (trz_history_stop(t->heap) != TRZ_OK || trz_set_frame_callback(t->heap, NULL, NULL, NULL) != TRZ_OK)
		fail("history");
	return ns;
}

/* The figures of one side; no peer was measured: null. */
static json_t *figures(double *ns)
{
	if (ns[0] == 0)
		return json_null();
	double middle = median(ns);
	return json_pack("{s:f, s:f, s:f}", "median", middle, "least", ns[0], "most", ns[PASSES - 1]);
}

static void report(const struct load *l, struct target *own, double *own_ns, double *history_ns, double *stacks_ns,
                   double *peer_ns, uint64_t calls)
{
	json_t *o = json_pack("{s:s, s:o, s:o, s:o, s:s, s:o, s:I, s:I, s:I}", "load", l->name, "ns_per_pair",
	                      figures(own_ns), "history_ns_per_pair", figures(history_ns),
	                      "native_stacks_ns_per_pair", figures(stacks_ns), "peer", PEER, "peer_ns_per_pair",
	                      figures(peer_ns), "driver_calls_while_measured",
	                      (json_int_t)calls, "peak_allocated_bytes",
	                      (json_int_t)stat_of(own, "allocated_bytes.all.peak"), "peak_reserved_bytes",
	                      (json_int_t)stat_of(own, "reserved_bytes.all.peak"));
	if (peer_ns[0] > 0)
		json_object_set_new(o, "ratio", json_real(own_ns[PASSES / 2] / peer_ns[PASSES / 2]));
	char *text = json_dumps(o, JSON_REAL_PRECISION(4));
	puts(text);
	fflush(stdout);
	free(text);
	json_decref(o);
}

/* Heaps of their own: what a history leaves in one would cost the passes without. */
enum { OWN, NOTED, STACKED, HOST, TARGETS };

static void measure(const struct load *l)
{
	struct target t[TARGETS];
	double own_ns[PASSES], history_ns[PASSES], stacks_ns[PASSES], peer_ns[PASSES];
	bool with_peer = l->most <= MIB(1);  /* beyond, the peer would take that much host memory */
	make_pattern(l);
	for (int k = 0; k < TARGETS; k++) {
		open_target(&t[k], l, k == HOST);
		for (size_t i = 0; i < l->live; i++)
			t[k].held[i] = k != HOST || with_peer ? take(&t[k], sizes[i]) : NULL;
		if (k != HOST)
			pass(&t[k], l);  /* warms up */
	}
	uint64_t calls = memory_calls(&t[OWN]);
	const struct load few = {l->name, l->least, l->most, l->live, l->pairs / 20};  /* stacks take long */
	for (int i = 0; i < PASSES; i++) {
		own_ns[i] = pass(&t[OWN], l);
		history_ns[i] = pass_with_history(&t[NOTED], l, NULL);
		stacks_ns[i] = pass_with_history(&t[STACKED], &few, trz_native_frames);
		peer_ns[i] = with_peer ? pass(&t[HOST], l) : 0;
	}
	report(l, &t[OWN], own_ns, history_ns, stacks_ns, peer_ns, memory_calls(&t[OWN]) - calls);
	for (int k = 0; k < TARGETS; k++)
		close_target(&t[k], l);
}

int main(void)
{
	ticks_init(&ticks);
	ticks_calibrate(&ticks);
	for (size_t i = 0; i < sizeof loads / sizeof *loads; i++)
		measure(&loads[i]);
	return 0;
}
