/* SPDX-License-Identifier: Apache-2.0
 *
 * Micros: measures pairs of a free and an allocation. Sizes and order come from seed 1.
 */
#include "harness.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "driver_clock.h"
#include "latency.h"
#include "prng.h"
#include "ticks.h"

enum { PASSES = 5, PATTERN = 1 << 16, MOST_STREAMS = 32, MOST_THREADS = 2, BATCH = 64, CHUNK = 1024 };

#define MOST_NS 1e9  /* of a pass: an allocator that is slow makes fewer pairs */

enum shape {
	PAIRS,      /* one thread; an allocation keeps to its slot's stream */
	HANDED,     /* one stream writes memory, another reads it, and it is freed */
	THREADS,    /* two threads, each on a stream of its own */
	GIVEN_BACK  /* all are allocated, nine in ten are freed, the cache is emptied */
};

struct micro {
	const char *name;
	enum shape shape;
	uint64_t least, most;   /* sizes are uniform in between */
	size_t live;            /* allocations held at a time, by each thread */
	uint64_t pairs;         /* in a pass */
	unsigned streams;
	bool host;              /* allocators of host memory take part */
};

static const struct micro micros[] = {
	{"one_size_512B", PAIRS, 512, 512, 1, 1000000, 1, true},
	{"one_size_1MiB", PAIRS, MIB(1), MIB(1), 1, 500000, 1, true},
	{"random_small", PAIRS, 512, MIB(1), 2000, 300000, 1, true},
	{"random_large", PAIRS, MIB(2), MIB(200), 200, 100000, 1, false},
	{"many_streams", PAIRS, 512, MIB(4), 2000, 200000, MOST_STREAMS, false},
	{"handed_over", HANDED, 512, MIB(4), 500, 100000, 2, false},
	{"two_threads", THREADS, 512, KIB(32), 500, 500000, 2, true},
	{"live_1000", PAIRS, 512, 4096, 1000, 300000, 1, true},
	{"live_10000", PAIRS, 512, 4096, 10000, 300000, 1, true},
	{"live_100000", PAIRS, 512, 4096, 100000, 300000, 1, true},
	{"live_1000000", PAIRS, 512, 4096, 1000000, 300000, 1, true},
	{"live_blocks_1000", PAIRS, KIB(33), KIB(64), 1000, 300000, 1, true},
	{"live_blocks_10000", PAIRS, KIB(33), KIB(64), 10000, 300000, 1, true},
	{"live_blocks_100000", PAIRS, KIB(33), KIB(64), 100000, 300000, 1, true},
	{"live_blocks_1000000", PAIRS, KIB(33), KIB(64), 1000000, 300000, 1, true},
	{"give_back", GIVEN_BACK, 512, MIB(64), 1000, 1, 1, false},
};

struct run {
	const struct harness *h;
	const struct micro *m;
	struct held {
		void *pointer;
		uint64_t size;
	} *held;
	trz_stream streams[MOST_STREAMS];
	unsigned first_stream, stream_count;  /* of this run */
	uint64_t pairs, next;
	uint64_t done;                        /* pairs of the newest pass */
	uint64_t own_ticks;                   /* of the newest pass, without those in the driver */
	atomic_uint *awaited;
};

static struct ticks ticks;
static uint64_t sizes[PATTERN];
static uint32_t victims[PATTERN];

static void make_pattern(const struct micro *m)
{
	uint64_t state = 1;
	for (size_t i = 0; i < PATTERN; i++) {
		sizes[i] = m->least + prng_below(&state, m->most - m->least + 1);
		victims[i] = (uint32_t)prng_below(&state, UINT32_MAX);
	}
}

static inline trz_stream stream_of(const struct run *r, size_t slot)
{
	return r->streams[r->first_stream + slot % r->stream_count];
}

static inline struct held take(const struct run *r, uint64_t size, trz_stream stream)
{
	struct held taken = {r->h->peer->alloc(size, stream), size};
	if (!taken.pointer)
		harness_fail(r->m->name, "a request got no memory");
	return taken;
}

static inline void give(const struct run *r, struct held held, trz_stream stream)
{
	r->h->peer->free(held.pointer, held.size, stream, stream);
}

/* The allocation that the pair replaces: sizes repeat after PATTERN pairs, victims never. */
static inline size_t slot_of(const struct micro *m, uint64_t i)
{
	return (victims[i % PATTERN] + i / PATTERN * 7919) % m->live;
}

static inline void pair(struct run *r)
{
	uint64_t i = r->next++;
	size_t slot = slot_of(r->m, i);
	trz_stream stream = stream_of(r, slot);
	give(r, r->held[slot], stream);
	r->held[slot] = take(r, sizes[i % PATTERN], stream);
}

/* Records the event on the first stream and makes the second wait for it. Returns the time of the program's own driver
 * calls, which does not count; telling the allocator does. */
static uint64_t order(const struct run *r, trz_event event)
{
	const struct peer *peer = r->h->peer;
	const trz_driver *d = sim_driver(r->h->sim);
	uint64_t token = peer->record_begin ? peer->record_begin(event, r->streams[0]) : 0;
	uint64_t begin = ticks_read_in_order(&ticks);
	bool done = d->event_record(d->self, r->h->context, event, r->streams[0]) == TRZ_OK;
	uint64_t spent = ticks_read_in_order(&ticks) - begin;
	if (peer->record_end)
		peer->record_end(event, r->streams[0], token, done);
	token = peer->wait_begin ? peer->wait_begin(r->streams[1], event) : 0;
	begin = ticks_read_in_order(&ticks);
	done = d->stream_wait(d->self, r->h->context, r->streams[1], event) == TRZ_OK;
	spent += ticks_read_in_order(&ticks) - begin;
	if (peer->wait_end)
		peer->wait_end(r->streams[1], event, token, done);
	return spent;
}

/* One pair: memory is written on the first stream, read on the second behind an event, freed in the first's order. */
static uint64_t hand_over(struct run *r, trz_event event)
{
	const struct peer *peer = r->h->peer;
	uint64_t i = r->next++, driver = driver_clock_ticks(), begin = ticks_read_in_order(&ticks);
	size_t slot = victims[i % PATTERN] % r->m->live;
	give(r, r->held[slot], r->streams[0]);
	r->held[slot] = take(r, sizes[i % PATTERN], r->streams[0]);
	uint64_t program = order(r, event);
	if (peer->record_stream)
		peer->record_stream(r->held[slot].pointer, r->streams[1]);
	return ticks_read_in_order(&ticks) - begin - program - (driver_clock_ticks() - driver);
}

static inline bool goes_on(const struct run *r, uint64_t begin)
{
	return r->done < r->pairs && (double)(ticks_read_in_order(&ticks) - begin) * ticks.ns < MOST_NS;
}

static void hand_over_all(struct run *r)
{
	const trz_driver *d = sim_driver(r->h->sim);
	trz_event event;
	if (d->event_create(d->self, r->h->context, &event) != TRZ_OK)
		harness_fail(r->m->name, "no event");
	uint64_t begin = ticks_read_in_order(&ticks);
	for (r->own_ticks = r->done = 0; goes_on(r, begin); r->done++) {
		if (r->done % BATCH == 0)
			sim_tick(r->h->sim, 0);
		r->own_ticks += hand_over(r, event);
	}
	d->event_destroy(d->self, r->h->context, event);
}

static void pass(struct run *r)
{
	if (r->m->shape == HANDED) {
		hand_over_all(r);
		return;
	}
	uint64_t driver = driver_clock_ticks(), begin = ticks_read_in_order(&ticks);
	for (r->done = 0; goes_on(r, begin);)
		for (uint64_t last = min_u64(r->done + CHUNK, r->pairs); r->done < last; r->done++)
			pair(r);
	r->own_ticks = ticks_read_in_order(&ticks) - begin - (driver_clock_ticks() - driver);
}

static void *work(void *argument)
{
	struct run *r = argument;
	harness_enter(r->h);
	atomic_fetch_sub(r->awaited, 1);
	while (atomic_load(r->awaited))
		;
	pass(r);
	return NULL;
}

/* Makes a pass of all threads; returns nanoseconds per pair of each thread. */
static double timed_pass(struct run *runs, unsigned count)
{
	pthread_t threads[MOST_THREADS];
	atomic_uint awaited = count;
	uint64_t spent = 0, done = 0;
	for (unsigned i = 0; i < count; i++) {
		runs[i].awaited = &awaited;
		if (count == 1)
			pass(&runs[i]);
		else if (pthread_create(&threads[i], NULL, work, &runs[i]))
			harness_fail(runs->m->name, "no thread");
	}
	for (unsigned i = 0; i < count; i++) {
		if (count > 1)
			pthread_join(threads[i], NULL);
		spent += runs[i].own_ticks;
		done += runs[i].done;
	}
	return (double)spent * ticks.ns / (double)done;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Adds the times of single pairs, from a pass of their own. */
static void add_quantiles(struct run *r)
{
	struct latency latency;
	if (latency_init(&latency, 1) != TRZ_OK)
		harness_fail(r->m->name, "no host memory");
	latency_begin_round(&latency);
	uint64_t first = ticks_read_in_order(&ticks);
	for (r->done = 0; goes_on(r, first); r->done++) {
		uint64_t driver = driver_clock_ticks(), begin = ticks_read_in_order(&ticks);
		pair(r);
		uint64_t spent = ticks_read_in_order(&ticks) - begin;
		driver = driver_clock_ticks() - driver;
		latency_add(&latency, spent > driver ? ticks_to_ns(&ticks, spent - driver) : 0);
	}
	json_object_set_new(r->h->row, "median_ns", json_integer((json_int_t)latency_quantile(&latency, 0.5)));
	json_object_set_new(r->h->row, "p999_ns", json_integer((json_int_t)latency_quantile(&latency, 0.999)));
	latency_free(&latency);
}

static void add_bytes(const struct run *r, const char *name, uint64_t bytes)
{
	json_object_set_new(r->h->row, name, json_integer((json_int_t)bytes));
}

static uint64_t live_bytes(const struct run *r)
{
	uint64_t bytes = 0;
	for (size_t i = 0; i < r->m->live; i++)
		bytes += align_up(sizes[i % PATTERN], 512);
	return bytes;
}

/* The most bytes that one thread held at a time: repeats the pairs without memory. */
static uint64_t peak_bytes(const struct run *r)
{
	uint64_t *held = calloc(r->m->live, sizeof *held), live = 0, peak = 0;
	if (!held)
		harness_fail(r->m->name, "no host memory");
	for (size_t i = 0; i < r->m->live; i++)
		live += held[i] = align_up(sizes[i % PATTERN], 512);
	peak = live;
	for (uint64_t i = 0; i < r->next; i++) {
		uint64_t *slot = &held[slot_of(r->m, i)], size = align_up(sizes[i % PATTERN], 512);
		live += size - *slot;
		*slot = size;
		peak = max_u64(peak, live);
	}
	free(held);
	return peak;
}

static uint64_t memory_calls(const sim *device)
{
	return sim_calls((sim *)(uintptr_t)device, SIM_SLOT_create) + sim_calls((sim *)(uintptr_t)device, SIM_SLOT_map) +
	       sim_calls((sim *)(uintptr_t)device, SIM_SLOT_set_access) +
	       sim_calls((sim *)(uintptr_t)device, SIM_SLOT_unmap) +
	       sim_calls((sim *)(uintptr_t)device, SIM_SLOT_mem_alloc) +
	       sim_calls((sim *)(uintptr_t)device, SIM_SLOT_mem_free);
}

static void measure(struct run *runs, unsigned count)
{
	double ns[PASSES];
	struct harness h = *runs->h;
	timed_pass(runs, count);  /* warms up */
	uint64_t calls = h.sim ? memory_calls(h.sim) : 0;
	for (int i = 0; i < PASSES; i++)
		ns[i] = timed_pass(runs, count);
	if (h.sim)
		add_bytes(runs, "driver_calls_while_measured", memory_calls(h.sim) - calls);
	qsort(ns, PASSES, sizeof *ns, by_value);
	json_object_set_new(h.row, "ns_per_pair", json_real(ns[PASSES / 2]));
	json_object_set_new(h.row, "ns_per_pair_least", json_real(ns[0]));
	json_object_set_new(h.row, "ns_per_pair_most", json_real(ns[PASSES - 1]));
	if (runs->m->shape == PAIRS) {
		add_quantiles(runs);
		add_bytes(runs, "peak_allocated_bytes", peak_bytes(runs));
	}
	if (h.sim)
		harness_add_driver(&h);
	if (h.peer->metadata)
		add_bytes(runs, "metadata_bytes", h.peer->metadata());
}

static void give_back(struct run *r)
{
	uint64_t left = live_bytes(r);
	for (size_t i = 0; i < r->m->live; i++) {
		if (victims[i] % 10 == 0)
			continue;
		give(r, r->held[i], stream_of(r, i));
		left -= align_up(sizes[i], 512);
	}
	if (r->h->peer->empty_cache)
		r->h->peer->empty_cache();
	struct harness h = *r->h;
	harness_add_driver(&h);
	add_bytes(r, "allocated_bytes_left", left);
	add_bytes(r, "reserved_bytes_left", sim_device_used(h.sim, 0));
}

static void open_run(struct run *r, const struct harness *h, const struct micro *m, unsigned thread, unsigned divisor)
{
	*r = (struct run){.h = h, .m = m, .pairs = max_u64(1, m->pairs / divisor), .next = thread * 101};
	r->held = calloc(m->live, sizeof *r->held);
	if (!r->held)
		harness_fail(m->name, "no host memory");
	r->first_stream = thread;
	r->stream_count = m->shape == PAIRS ? m->streams : 1;
	for (unsigned i = 0; h->sim && m->streams > 1 && i < m->streams; i++)
		if (harness_stream(false, &r->streams[i]) != TRZ_OK)
			harness_fail(m->name, "no stream");
	for (size_t i = 0; i < m->live; i++)
		r->held[i] = take(r, sizes[i % PATTERN], stream_of(r, i));
}

static const struct micro *find(const char *name)
{
	for (size_t i = 0; i < sizeof micros / sizeof *micros; i++)
		if (strcmp(micros[i].name, name) == 0)
			return &micros[i];
	return NULL;
}

static void list(void)
{
	for (size_t i = 0; i < sizeof micros / sizeof *micros; i++)
		printf("%s%s\n", micros[i].name, micros[i].host ? " host" : "");
}

bool harness_micro(struct harness *h, const char *name, unsigned divisor)
{
	struct run runs[MOST_THREADS];
	if (!name) {
		list();
		return true;
	}
	const struct micro *m = find(name);
	if (!m)
		return false;
	unsigned count = m->shape == THREADS ? MOST_THREADS : 1;
	ticks_init(&ticks);
	ticks_calibrate(&ticks);
	make_pattern(m);
	for (unsigned i = 0; i < count; i++)
		open_run(&runs[i], h, m, i, divisor);
	add_bytes(runs, "live_bytes", count * live_bytes(runs));
	if (m->shape == GIVEN_BACK)
		give_back(runs);
	else
		measure(runs, count);
	return true;
}
