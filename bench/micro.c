/* SPDX-License-Identifier: Apache-2.0
 *
 * Nanoseconds per pair of free and allocation on one thread, through the public, thread-safe entry points and in the
 * default configuration, over the simulated device; the same while a history is kept, and while it keeps native call
 * stacks; jemalloc's malloc beside it in the same run. Then two threads at once, on a stream each and on one stream,
 * relative to one thread; and jemalloc's. The figures exclude time spent inside the simulated driver. Prints one JSON
 * object a line; docs/bench.md tells how to read them.
 */
#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

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
	bool own;                    /* on a stream that the program has made; else on the legacy default stream */
	bool unlocked;               /* the driver's answers take no lock */
};

static const struct load loads[] = {
	{"pair_512B", 512, 512, 1, 5000000, false, false},
	{"pair_512B_own_stream", 512, 512, 1, 2000000, true, false},
	{"pair_1MiB", MIB(1), MIB(1), 1, 2000000, false, false},
	{"random_512B_1MiB_2000_live", 512, MIB(1), 2000, 1000000, false, false},
	{"random_2MiB_200MiB_200_live", MIB(2), MIB(200), 200, 300000, false, false},
};

/* What allocations come from: the heap under test; the peer if `heap` is NULL. */
struct target {
	sim *device;
	trz_heap *heap;
	trz_stream stream;
	void **held;
};

static struct ticks ticks;
static uint64_t sizes[PATTERN];
static uint32_t victims[PATTERN];

static _Noreturn void fail(const char *what)
{
	fprintf(stderr, "micro: %s: %s\n", what, trz_last_error());
	exit(1);
}

static inline void *take(struct target *t, uint64_t size)
{
	void *p;
	if (!t->heap)
		return peer_malloc(size);
	if (trz_alloc(t->heap, size, 0, t->stream, &p) != TRZ_OK)
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

static inline void pair(struct target *t, uint64_t i)
{
	void **slot = &t->held[victims[i % PATTERN]];
	give(t, *slot);
	*slot = take(t, sizes[i % PATTERN]);
}

/* Makes one pass; returns nanoseconds per pair, without the time inside the driver. */
static double pass(struct target *t, const struct load *l)
{
	uint64_t driver = t->device ? sim_host_ticks(t->device) : 0, begin = ticks_read_in_order(&ticks);
	for (uint64_t i = 0; i < l->pairs; i++)
		pair(t, i);
	uint64_t elapsed = ticks_read_in_order(&ticks) - begin;
	driver = t->device ? sim_host_ticks(t->device) - driver : 0;
	return (double)(elapsed - driver) * ticks.ns / (double)l->pairs;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median_of(double *v, size_t n)
{
	qsort(v, n, sizeof *v, by_value);
	return v[n / 2];
}

static double median(double *v)
{
	return median_of(v, PASSES);
}

static trz_stream new_stream(const struct target *t)
{
	trz_context context;
	trz_stream stream;
	if (sim_context_primary(t->device, 0, &context) != TRZ_OK ||
	    sim_stream_create(t->device, context, false, &stream) != TRZ_OK)
		fail("stream");
	return stream;
}

/* A list of held allocations, in cache lines of its own. */
static void **new_held(size_t live)
{
	void **held = aligned_alloc(128, align_up(live * sizeof *held, 128));
	if (!held)
		fail("host memory");
	return held;
}

/* The simulated driver has one lock, on which threads would contend: with `unlocked` the benchmark itself answers what
 * allocations ask. No stream is captured, and none is destroyed. */
static trz_status own_stream_id(void *self, trz_context context, trz_stream stream, uint64_t *id)
{
	(void)self;
	(void)context;
	*id = (uint64_t)(uintptr_t)stream + 1;
	return TRZ_OK;
}

static trz_status own_stream_capture(void *self, trz_context context, trz_stream stream, trz_capture_status *status,
                                     uint64_t *id)
{
	(void)self;
	(void)context;
	(void)stream;
	*status = TRZ_CAPTURE_NONE;
	*id = 0;
	return TRZ_OK;
}

static const trz_driver *unlocked_driver(const struct target *t)
{
	static trz_driver driver;
	driver = *sim_driver(t->device);
	driver.stream_id = own_stream_id;
	driver.stream_capture = own_stream_capture;
	return &driver;
}

static void open_target(struct target *t, const struct load *l, bool peer)
{
	*t = (struct target){.held = new_held(l->live)};
	if (peer)
		return;
	const sim_config config = {.capacity = GIB(80), .timed = true};
	if (sim_open(&config, &t->device) != TRZ_OK)
		fail("simulated device");
	const trz_open_params params = {.driver = l->unlocked ? unlocked_driver(t) : sim_driver(t->device)};
	if (trz_open(&params, &t->heap) != TRZ_OK)
		fail("heap");
	if (l->own)
		t->stream = new_stream(t);
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

/* The figures of one side; null: no peer was measured. */
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

/* Separate heaps: what a history leaves behind in one would slow passes without a history. */
enum { OWN, NOTED, STACKED, HOST, TARGETS };

static void measure(const struct load *l)
{
	struct target t[TARGETS];
	double own_ns[PASSES], history_ns[PASSES], stacks_ns[PASSES], peer_ns[PASSES];
	bool with_peer = l->most <= MIB(1);  /* the peer would take as much host memory as larger loads hold */
	make_pattern(l);
	for (int k = 0; k < TARGETS; k++) {
		open_target(&t[k], l, k == HOST);
		for (size_t i = 0; i < l->live; i++)
			t[k].held[i] = k != HOST || with_peer ? take(&t[k], sizes[i]) : NULL;
		if (k != HOST)
			pass(&t[k], l);  /* warms up */
	}
	uint64_t calls = memory_calls(&t[OWN]);
	struct load few = *l;
	few.pairs /= 20;  /* stacks are slow */
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

/* ---- threads ---- */

enum { WORKERS = 2, ROUNDS = 15, ROUND_US = 4000, LOOKS = 32, TRIES = 40 };

struct threaded {
	const char *name;
	uint64_t least, most;
	size_t live;                 /* allocations that each thread holds */
	bool one_stream;             /* all threads on the legacy default stream; else each on a stream of its own */
};

static const struct threaded threaded[] = {
	{"threads_512B_two_streams", 512, 512, 1, false},
	{"threads_512B_one_stream", 512, 512, 1, true},
	{"threads_512B_32KiB_500_live_two_streams", 512, KIB(32), 500, false},
	{"threads_512B_32KiB_500_live_one_stream", 512, KIB(32), 500, true},
	{"threads_512B_1MiB_1000_live_two_streams", 512, MIB(1), 1000, false},
};

struct worker {
	struct target t;
	atomic_uint *awaited;        /* workers that do not run yet */
	double pairs, ns;            /* of the last round; `ns` without the time inside the driver */
	bool undisturbed;            /* no other process took its processor meanwhile */
};

static long preemptions(void)
{
	struct rusage usage;
	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nivcsw;
}

static void *work(void *argument)
{
	struct worker *w = argument;
	uint64_t pairs = 0, now;
	long disturbed = preemptions();
	atomic_fetch_sub(w->awaited, 1);
	while (atomic_load(w->awaited))
		;
	uint64_t driver = w->t.device ? sim_host_ticks(w->t.device) : 0, begin = ticks_read_in_order(&ticks);
	uint64_t end = begin + (uint64_t)(ROUND_US * 1000.0 / ticks.ns);
	do {
		for (int i = 0; i < LOOKS; i++)
			pair(&w->t, pairs++);
		now = ticks_read_in_order(&ticks);
	} while (now < end);
	driver = w->t.device ? sim_host_ticks(w->t.device) - driver : 0;
	w->pairs = (double)pairs;
	w->ns = (double)(now - begin - driver) * ticks.ns;
	w->undisturbed = preemptions() == disturbed;
	return NULL;
}

/* Lets the first `count` workers work at once. Returns pairs per nanosecond, of all together. */
static double try_round(struct worker *workers, unsigned count, bool *undisturbed)
{
	pthread_t threads[WORKERS];
	atomic_uint awaited = count;
	double rate = 0;
	*undisturbed = true;
	for (unsigned i = 0; i < count; i++) {
		workers[i].awaited = &awaited;
		if (pthread_create(&threads[i], NULL, work, &workers[i]))
			fail("thread");
	}
	for (unsigned i = 0; i < count; i++) {
		pthread_join(threads[i], NULL);
		rate += workers[i].pairs / workers[i].ns;
		*undisturbed &= workers[i].undisturbed;
	}
	return rate;
}

/* The figure of the first undisturbed round; on a busy machine, of the last of many. */
static double round_of(struct worker *workers, unsigned count)
{
	bool undisturbed = false;
	double rate = 0;
	for (int i = 0; i < TRIES && !undisturbed; i++)
		rate = try_round(workers, count, &undisturbed);
	return rate;
}

static void open_workers(struct worker *workers, const struct threaded *l, const struct load *like, bool peer)
{
	struct target first;
	open_target(&first, like, peer);
	for (unsigned i = 0; i < WORKERS; i++) {
		struct target *t = &workers[i].t;
		*t = first;
		t->held = i ? new_held(l->live) : first.held;
		if (!peer && !l->one_stream)
			t->stream = new_stream(t);
		for (size_t k = 0; k < l->live; k++)
			t->held[k] = take(t, sizes[k]);
	}
}

static void close_workers(struct worker *workers, const struct load *like)
{
	for (unsigned i = 1; i < WORKERS; i++) {
		for (size_t k = 0; k < like->live; k++)
			give(&workers[i].t, workers[i].t.held[k]);
		free(workers[i].t.held);
	}
	close_target(&workers[0].t, like);
}

static json_t *spread(double *v)
{
	double middle = median_of(v, ROUNDS);
	return json_pack("{s:f, s:f, s:f}", "median", middle, "least", v[0], "most", v[ROUNDS - 1]);
}

static void measure_threads(const struct threaded *l)
{
	struct worker own[WORKERS], peer[WORKERS];
	double ns[ROUNDS], scale[ROUNDS], share[ROUNDS], peer_ns[ROUNDS], peer_scale[ROUNDS], ratio[ROUNDS];
	const struct load like = {.name = l->name, .least = l->least, .most = l->most, .live = l->live, .unlocked = true};
	make_pattern(&like);
	open_workers(own, l, &like, false);
	open_workers(peer, l, &like, true);
	round_of(own, WORKERS);  /* warms up */
	round_of(peer, WORKERS);
	for (int i = 0; i < ROUNDS; i++) {
		double one = round_of(own, 1), two = round_of(own, WORKERS);
		ns[i] = 1 / one;
		scale[i] = two / one;
		share[i] = own[0].pairs / (own[0].pairs + own[1].pairs);
		share[i] = share[i] < 0.5 ? share[i] : 1 - share[i];
		one = round_of(peer, 1);
		peer_ns[i] = 1 / one;
		peer_scale[i] = round_of(peer, WORKERS) / one;
		ratio[i] = scale[i] / peer_scale[i];
	}
	json_t *o = json_pack("{s:s, s:i, s:o, s:o, s:o, s:s, s:o, s:o, s:o}", "load", l->name, "threads", WORKERS,
	                      "one_thread_ns_per_pair", spread(ns), "scale", spread(scale), "least_share", spread(share),
	                      "peer", PEER, "peer_one_thread_ns_per_pair", spread(peer_ns), "peer_scale",
	                      spread(peer_scale), "ratio", spread(ratio));
	char *text = json_dumps(o, JSON_REAL_PRECISION(4));
	puts(text);
	fflush(stdout);
	free(text);
	json_decref(o);
	close_workers(own, &like);
	close_workers(peer, &like);
}

/* Whether a load is to run: those that the command line names, or all. */
static bool wanted(const char *name, char **names)
{
	bool any = !*names;
	for (; *names && !any; names++)
		any = strcmp(*names, name) == 0;
	return any;
}

int main(int argc, char **argv)
{
	(void)argc;
	ticks_init(&ticks);
	ticks_calibrate(&ticks);
	for (size_t i = 0; i < sizeof loads / sizeof *loads; i++)
		if (wanted(loads[i].name, argv + 1))
			measure(&loads[i]);
	for (size_t i = 0; i < sizeof threaded / sizeof *threaded; i++)
		if (wanted(threaded[i].name, argv + 1))
			measure_threads(&threaded[i]);
	return 0;
}
