/* SPDX-License-Identifier: Apache-2.0
 *
 * One allocator (bench/peers/, bench/gpu/peers/) on a real GPU: replays a trace through it, or measures micros. Prints
 * one line of JSON for each.
 *
 *     gpu_replay PEER OPTIONS trace FILE [SECONDS [CUPTI]]
 *     gpu_replay PEER OPTIONS micros [SECONDS]
 *     gpu_replay cut EVENTS FILE TO                writes the first events of a trace, for the first form
 *
 * The time is the host's, of the allocator's calls with the driver's time in it. In the first pass over a trace every
 * allocation is stamped on its stream in up to ROWS places, and the stamps are read before it is freed and wherever
 * another stream uses it: an allocator that gives the same memory to two requests, or to another stream too early,
 * shows wrong stamps. Free device memory is sampled there, too. The later passes write one word of each allocation.
 * A pass ends after SECONDS; what it did until then counts. With CUPTI, driver calls are counted, and times mean
 * nothing.
 */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../peers/bench_peer.h"
#include "bits.h"
#include "gpu_count.h"
#include "gpu_driver.h"
#include "prng.h"
#include "ticks.h"
#include "trace.h"

enum { ROWS = 8, LATER_PASSES = 3, NON_BLOCKING = 1, NO_TIMING = 2, MOST_STREAMS = 32, PATTERN = 1 << 14, CHUNK = 64 };

static const struct peer *peer;
static struct gpu gpu;
static struct ticks ticks;

static _Noreturn void fail(const char *format, ...)
{
	va_list list;
	va_start(list, format);
	fputs("gpu_replay: ", stderr);
	vfprintf(stderr, format, list);
	fputc('\n', stderr);
	va_end(list);
	fflush(NULL);
	_Exit(2);
}

static int check(int result, const char *what)
{
	if (result != 0)
		fail("%s: CUDA error %d", what, result);
	return result;
}
#define CALL(member, ...) check(gpu.member(__VA_ARGS__), #member)

static void *driver;

static void find_driver(void)
{
	driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);  /* global: peers call it by name */
	if (!driver)
		fail("%s", dlerror());
#define GPU_FIND(member, symbol, parameters)                      \
	*(void **)&gpu.member = dlsym(driver, symbol);            \
	if (!gpu.member)                                          \
		fail("the driver has no %s", symbol);
	GPU_CALLS(GPU_FIND)
#undef GPU_FIND
}

static uint64_t free_bytes(void)
{
	size_t free, total;
	CALL(info, &free, &total);
	return free;
}

/* ---- stamps ---------------------------------------------------------------------------------------------- */

/* A check's answer arrives in pinned memory; it is compared when the device has finished. */
struct checked {
	uint32_t *read;      /* ROWS words for each check */
	uint32_t *expected;
	uint32_t *rows;
	size_t count, capacity;
};

/* Once the driver has refused to treat memory of several handles as one image: a call for each row. */
static bool row_by_row;

static size_t rows_of(uint64_t size)
{
	return min_u64(ROWS, size / 4);
}

static size_t pitch_of(uint64_t size)
{
	return size / rows_of(size) & ~(size_t)3;
}

static void stamp(void *pointer, uint64_t size, uint32_t tag, void *stream)
{
	const uint64_t address = (uintptr_t)pointer;
	const size_t rows = rows_of(size);
	if (rows > 1 && !row_by_row) {
		if (gpu.fill_2d(address, pitch_of(size), tag, 1, rows, stream) == 0)
			return;
		row_by_row = true;
	}
	for (size_t row = 0; row < rows; row++)
		CALL(fill, address + row * pitch_of(size), tag, 1, stream);
}

static void read_rows(uint32_t *to, void *pointer, uint64_t size, size_t rows, void *stream)
{
	const uint64_t address = (uintptr_t)pointer;
	const struct copy_2d copy = {
		.from_type = DEVICE_MEMORY, .from_device = address, .from_pitch = pitch_of(size),
		.to_type = HOST_MEMORY, .to_host = to, .to_pitch = 4, .width = 4, .height = rows};
	if (rows > 1 && !row_by_row) {
		if (gpu.copy_2d(&copy, stream) == 0)
			return;
		row_by_row = true;
	}
	for (size_t row = 0; row < rows; row++)
		CALL(copy, to + row, address + row * pitch_of(size), 4, stream);
}

static void read_stamp(struct checked *c, void *pointer, uint64_t size, uint32_t tag, void *stream)
{
	size_t rows = rows_of(size);
	if (!rows || c->count == c->capacity)
		return;
	read_rows(c->read + c->count * ROWS, pointer, size, rows, stream);
	c->expected[c->count] = tag;
	c->rows[c->count++] = (uint32_t)rows;
}

static void open_checks(struct checked *c, size_t capacity)
{
	*c = (struct checked){.capacity = capacity};
	CALL(host_alloc, (void **)&c->read, capacity * ROWS * 4 + 4, 0);
	c->expected = calloc(capacity + 1, 4);
	c->rows = calloc(capacity + 1, 4);
	if (!c->expected || !c->rows)
		fail("no host memory");
}

static uint64_t wrong_stamps(const struct checked *c)
{
	uint64_t wrong = 0;
	for (size_t i = 0; i < c->count; i++)
		for (size_t row = 0; row < c->rows[i]; row++)
			if (c->read[i * ROWS + row] != c->expected[i]) {
				wrong++;
				break;
			}
	return wrong;
}

/* ---- a pass over a trace --------------------------------------------------------------------------------- */

struct block {
	void *pointer;
	uint64_t size;
	uint16_t stream;
};

struct pass {
	uint64_t operations, ticks, most, ooms;  /* most: the longest call */
	uint64_t most_used, live, most_live;     /* bytes */
	bool ended;                              /* before the trace's end */
};

struct replay {
	struct trace trace;
	bool ordered;            /* the trace has the program's own order between streams */
	void **streams, **events;
	void *hand_over;
	struct block *blocks;
	struct checked checks;
	bool first;
	uint64_t free_before, sample_every, until_sample;
	struct pass *pass;
};

static uint64_t begin_call(void)
{
	gpu_count_on = 1;
	return ticks_read_in_order(&ticks);
}

static void end_call(struct pass *p, uint64_t begin)
{
	uint64_t spent = ticks_read_in_order(&ticks) - begin;
	gpu_count_on = 0;
	p->ticks += spent;
	p->most = max_u64(p->most, spent);
}

static void sample(struct replay *r)
{
	uint64_t now = free_bytes();
	if (now < r->free_before)
		r->pass->most_used = max_u64(r->pass->most_used, r->free_before - now);
}

static void play_alloc(struct replay *r, const struct trace_event *e)
{
	struct block *b = &r->blocks[e->id];
	uint64_t begin = begin_call();
	void *pointer = peer->alloc(e->size, r->streams[e->stream]);
	end_call(r->pass, begin);
	r->pass->operations++;
	*b = (struct block){pointer, e->size, e->stream};
	if (!pointer) {
		r->pass->ooms++;
		return;
	}
	r->pass->live += align_up(e->size, 512);
	r->pass->most_live = max_u64(r->pass->most_live, r->pass->live);
	if (!r->first) {
		if (e->size >= 4)
			CALL(fill, (uintptr_t)pointer, e->id, 1, r->streams[e->stream]);
		return;
	}
	stamp(pointer, e->size, e->id, r->streams[e->stream]);
	if (e->size >= MIB(1) || r->until_sample-- == 0) {
		sample(r);
		r->until_sample = r->sample_every;
	}
}

/* Tells the allocator, as a program would, of an order between streams that the trace does not have but needs. */
static void order(struct replay *r, void *event, void *from, void *to)
{
	struct pass *p = r->pass;
	if (from) {
		uint64_t begin = begin_call(), token = peer->record_begin ? peer->record_begin(event, *(void **)from) : 0;
		end_call(p, begin);
		CALL(event_record, event, *(void **)from);
		begin = begin_call();
		if (peer->record_end)
			peer->record_end(event, *(void **)from, token, 1);
		end_call(p, begin);
	}
	if (to) {
		uint64_t begin = begin_call(), token = peer->wait_begin ? peer->wait_begin(*(void **)to, event) : 0;
		end_call(p, begin);
		CALL(stream_wait, *(void **)to, event, 0);
		begin = begin_call();
		if (peer->wait_end)
			peer->wait_end(*(void **)to, event, token, 1);
		end_call(p, begin);
	}
}

static void hand_over(struct replay *r, uint16_t from, uint16_t to)
{
	if (!r->ordered && from != to)
		order(r, r->hand_over, &r->streams[from], &r->streams[to]);
}

static void play_free(struct replay *r, uint32_t id, uint16_t stream)
{
	struct block *b = &r->blocks[id];
	if (!b->pointer)
		return;
	hand_over(r, b->stream, stream);
	if (r->first)
		read_stamp(&r->checks, b->pointer, b->size, id, r->streams[stream]);
	uint64_t begin = begin_call();
	peer->free(b->pointer, b->size, r->streams[b->stream], r->streams[stream]);
	end_call(r->pass, begin);
	r->pass->operations++;
	r->pass->live -= align_up(b->size, 512);
	b->pointer = NULL;
}

static void play_use(struct replay *r, const struct trace_event *e)
{
	struct block *b = &r->blocks[e->id];
	if (!b->pointer)
		return;
	hand_over(r, b->stream, e->stream);
	uint64_t begin = begin_call();
	if (peer->record_stream)
		peer->record_stream(b->pointer, r->streams[e->stream]);
	end_call(r->pass, begin);
	if (r->first)
		read_stamp(&r->checks, b->pointer, b->size, e->id, r->streams[e->stream]);
}

static void play(struct replay *r, const struct trace_event *e)
{
	switch ((enum trace_kind)e->kind) {
	case TRACE_ALLOC:
		play_alloc(r, e);
		return;
	case TRACE_FREE:
		play_free(r, e->id, e->stream);
		return;
	case TRACE_RECORD_STREAM:
		play_use(r, e);
		return;
	case TRACE_EVENT_RECORD:
		if (!r->events[e->id])
			CALL(event_create, &r->events[e->id], NO_TIMING);
		order(r, r->events[e->id], &r->streams[e->stream], NULL);
		return;
	case TRACE_STREAM_WAIT:
		if (r->events[e->id])
			order(r, r->events[e->id], NULL, &r->streams[e->stream]);
		return;
	case TRACE_STREAM_SYNC:
		CALL(stream_synchronize, r->streams[e->stream]);
		return;
	case TRACE_EVENT_SYNC:
		if (r->events[e->id])
			CALL(event_synchronize, r->events[e->id]);
		return;
	case TRACE_DEVICE_SYNC:
		CALL(synchronize, );
		return;
	default:
		return;  /* captures and pools: the traces measured here have none */
	}
}

static void run_pass(struct replay *r, struct pass *p, bool first, double seconds)
{
	const uint64_t last = monotonic_ns() + (uint64_t)(seconds * 1e9);
	*p = (struct pass){0};
	r->pass = p;
	r->first = first;
	for (size_t i = 0; i < r->trace.count; i++) {
		play(r, &r->trace.events[i]);
		if (i % CHUNK == 0 && monotonic_ns() > last) {
			p->ended = i + 1 < r->trace.count;
			break;
		}
	}
	struct pass rest = *p;   /* the program's end is not part of the trace: it has no time */
	r->pass = &rest;
	for (uint32_t id = 0; id < r->trace.allocs; id++)
		play_free(r, id, r->blocks[id].stream);
	CALL(synchronize, );
}

static uint32_t event_ids(const struct trace *trace)
{
	uint32_t most = 0;
	for (size_t i = 0; i < trace->count; i++) {
		const struct trace_event *e = &trace->events[i];
		if (e->kind == TRACE_EVENT_RECORD || e->kind == TRACE_STREAM_WAIT || e->kind == TRACE_EVENT_SYNC)
			most = (uint32_t)max_u64(most, e->id + 1);
	}
	return most;
}

static bool has_order(const struct trace *trace)
{
	for (size_t i = 0; i < trace->count; i++) {
		uint8_t kind = trace->events[i].kind;
		if (kind == TRACE_STREAM_WAIT || kind == TRACE_STREAM_BLOCKING ||
		    (kind >= TRACE_STREAM_SYNC && kind <= TRACE_DEVICE_SYNC))
			return true;
	}
	return false;
}

static void load(struct trace *trace, const char *file)
{
	if (trace_load(file, TRACE_ANY_DEVICE, trace) != TRZ_OK)
		fail("%s: %s", file, trz_last_error());
}

static void cut(const char *events, const char *file, const char *to)
{
	struct trace trace;
	load(&trace, file);
	trace.count = min_u64(trace.count, strtoull(events, NULL, 10));
	if (trace_save(&trace, to) != TRZ_OK)
		fail("%s: %s", to, trz_last_error());
	trace_free(&trace);
}

static void open_replay(struct replay *r, const char *file)
{
	load(&r->trace, file);
	r->ordered = has_order(&r->trace);
	r->streams = calloc(r->trace.streams + 1, sizeof *r->streams);
	r->events = calloc(event_ids(&r->trace) + 1, sizeof *r->events);
	r->blocks = calloc(r->trace.allocs + 1, sizeof *r->blocks);
	if (!r->streams || !r->events || !r->blocks)
		fail("no host memory");
	for (uint32_t i = 1; i < r->trace.streams; i++)
		CALL(stream_create, &r->streams[i], NON_BLOCKING);
	CALL(event_create, &r->hand_over, NO_TIMING);
	open_checks(&r->checks, r->trace.count);
}

/* What the driver loads when it first fills and copies is not the allocator's; sampling takes at most a second. */
static void warm_up(struct replay *r)
{
	uint64_t address;
	CALL(mem_alloc, &address, MIB(2));
	stamp((void *)(uintptr_t)address, MIB(2), 1, NULL);
	read_stamp(&r->checks, (void *)(uintptr_t)address, MIB(2), 1, NULL);
	CALL(synchronize, );
	CALL(mem_free, address);
	r->checks.count = 0;
	uint64_t begin = monotonic_ns();
	for (int i = 0; i < 16; i++)
		free_bytes();
	uint64_t each = (monotonic_ns() - begin) / 16;
	r->sample_every = max_u64(8, r->trace.count * each / 1000000000);
	r->free_before = free_bytes();
}

static double ns_each(const struct pass *p)
{
	return p->operations ? (double)p->ticks * ticks.ns / (double)p->operations : 0;
}

static double median(double *v, size_t n)
{
	for (size_t i = 1; i < n; i++)
		for (size_t k = i; k > 0 && v[k] < v[k - 1]; k--) {
			double kept = v[k];
			v[k] = v[k - 1];
			v[k - 1] = kept;
		}
	return v[n / 2];
}

static void open_peer(const char *options)
{
	if (peer->open(options) != 0)
		fail("the allocator's open() failed");
}

static void print_pass(const char *name, const struct pass *p)
{
	printf(", \"%s_ns_per_op\": %.1f, \"%s_ms\": %.3f, \"%s_most_us\": %.1f, \"%s_ops\": %llu, \"%s_ooms\": %llu, "
	       "\"%s_ended_early\": %s",
	       name, ns_each(p), name, (double)p->ticks * ticks.ns / 1e6, name, (double)p->most * ticks.ns / 1e3, name,
	       (unsigned long long)p->operations, name, (unsigned long long)p->ooms, name, p->ended ? "true" : "false");
}

static void print_calls(const char *name)
{
	printf(", \"%s\": ", name);
	gpu_count_print(stdout);
}

static void replay(const char *options, const char *file, double seconds, const char *cupti)
{
	struct replay r = {0};
	struct pass first, later[LATER_PASSES];
	double ns[LATER_PASSES];
	open_replay(&r, file);
	warm_up(&r);
	const char *why = cupti ? gpu_count_start(cupti) : NULL;
	if (why)
		fail("%s: %s", cupti, why);
	uint64_t begin = begin_call();
	open_peer(options);
	gpu_count_on = 0;
	double open_ms = (double)(ticks_read_in_order(&ticks) - begin) * ticks.ns / 1e6;
	run_pass(&r, &first, true, seconds);
	printf("{\"events\": %zu, \"streams\": %u, \"open_ms\": %.3f, \"checks\": %zu, \"wrong\": %llu", r.trace.count,
	       r.trace.streams, open_ms, r.checks.count, (unsigned long long)wrong_stamps(&r.checks));
	printf(", \"peak_allocated_bytes\": %llu, \"peak_device_bytes\": %llu", (unsigned long long)first.most_live,
	       (unsigned long long)first.most_used);
	printf(", \"row_by_row\": %s", row_by_row ? "true" : "false");
	print_pass("first", &first);
	if (cupti)
		print_calls("first_calls");
	int passes = cupti || first.ended ? 1 : LATER_PASSES;
	for (int i = 0; i < passes; i++) {
		run_pass(&r, &later[i], false, seconds);
		ns[i] = ns_each(&later[i]);
	}
	print_pass("later", &later[passes - 1]);
	printf(", \"later_passes_ns_per_op\": [");
	for (int i = 0; i < passes; i++)
		printf("%s%.1f", i ? ", " : "", ns[i]);
	printf("], \"later_median_ns_per_op\": %.1f", median(ns, (size_t)passes));
	if (cupti)
		print_calls("later_calls");
	if (peer->empty_cache)
		peer->empty_cache();
	peer->close();
	CALL(synchronize, );
	printf(", \"bytes_after_close\": %lld}\n", (long long)r.free_before - (long long)free_bytes());
}

/* ---- micros ---------------------------------------------------------------------------------------------- */

struct micro {
	const char *name;
	uint64_t least, most;  /* sizes are uniform in between */
	size_t live;
	uint64_t pairs;        /* in a pass, at most */
	unsigned streams;
	bool work;             /* one word of each allocation is written on its stream: that call's time counts */
};

static const struct micro micros[] = {
	{"one_size_512B", 512, 512, 1, 300000, 1, false},
	{"one_size_512B_work", 512, 512, 1, 100000, 1, true},
	{"one_size_1MiB", MIB(1), MIB(1), 1, 200000, 1, false},
	{"random_small", 512, MIB(1), 2000, 100000, 1, false},
	{"random_large", MIB(2), MIB(200), 150, 30000, 1, false},
	{"many_streams", 512, MIB(4), 2000, 100000, MOST_STREAMS, false},
	{"many_streams_work", 512, MIB(4), 2000, 50000, MOST_STREAMS, true},
	{"live_100000", 512, 4096, 100000, 100000, 1, false},
};

struct run {
	const struct micro *m;
	uint64_t sizes[PATTERN];
	uint32_t victims[PATTERN];
	struct held {
		void *pointer;
		uint64_t size;
	} *held;
	void **streams;
	uint64_t next;
};

static void take(struct run *r, size_t slot, uint64_t size)
{
	void *stream = r->streams[slot % r->m->streams];
	r->held[slot] = (struct held){peer->alloc(size, stream), size};
	if (!r->held[slot].pointer)
		fail("%s: a request got no memory", r->m->name);
	if (r->m->work)
		CALL(fill, (uintptr_t)r->held[slot].pointer, 1, 1, stream);
}

static void give(struct run *r, size_t slot)
{
	void *stream = r->streams[slot % r->m->streams];
	peer->free(r->held[slot].pointer, r->held[slot].size, stream, stream);
	r->held[slot].pointer = NULL;
}

/* Returns nanoseconds per pair. */
static double micro_pass(struct run *r, double seconds, uint64_t *pairs)
{
	uint64_t begin = ticks_read_in_order(&ticks), done = 0, last = monotonic_ns() + (uint64_t)(seconds * 1e9);
	while (done < r->m->pairs) {
		for (int i = 0; i < 8; i++, done++, r->next++) {
			size_t slot = (r->victims[r->next % PATTERN] + r->next / PATTERN * 7919) % r->m->live;
			give(r, slot);
			take(r, slot, r->sizes[r->next % PATTERN]);
		}
		if (done % CHUNK == 0 && monotonic_ns() > last)
			break;
	}
	*pairs = done;
	return (double)(ticks_read_in_order(&ticks) - begin) * ticks.ns / (double)done;
}

static void micro(struct run *r, const struct micro *m, double seconds)
{
	uint64_t state = 1, before, fill, pairs;
	double ns[LATER_PASSES];
	r->m = m;
	r->next = 0;
	for (size_t i = 0; i < PATTERN; i++) {
		r->sizes[i] = m->least + prng_below(&state, m->most - m->least + 1);
		r->victims[i] = (uint32_t)prng_below(&state, UINT32_MAX);
	}
	r->held = calloc(m->live, sizeof *r->held);
	if (!r->held)
		fail("no host memory");
	before = free_bytes();
	uint64_t begin = ticks_read_in_order(&ticks);
	for (size_t i = 0; i < m->live; i++)
		take(r, i, r->sizes[i % PATTERN]);
	fill = ticks_read_in_order(&ticks) - begin;
	double first = micro_pass(r, seconds, &pairs);
	for (int i = 0; i < LATER_PASSES; i++)
		ns[i] = micro_pass(r, seconds, &pairs);
	int64_t used = (int64_t)before - (int64_t)free_bytes();
	double middle = median(ns, LATER_PASSES);
	for (size_t i = 0; i < m->live; i++)
		give(r, i);
	CALL(synchronize, );
	free(r->held);
	if (peer->empty_cache)
		peer->empty_cache();
	printf("{\"micro\": \"%s\", \"fill_ns_per_alloc\": %.1f, \"first_ns_per_pair\": %.1f, \"ns_per_pair\": %.1f, "
	       "\"least\": %.1f, \"most\": %.1f, \"pairs\": %llu, \"device_bytes\": %lld}\n",
	       m->name, (double)fill * ticks.ns / (double)m->live, first, middle, ns[0], ns[LATER_PASSES - 1],
	       (unsigned long long)pairs, (long long)used);
	fflush(stdout);
}

static void run_micros(const char *options, double seconds)
{
	static struct run r;
	void *streams[MOST_STREAMS] = {NULL}, *first[MOST_STREAMS] = {NULL};
	open_peer(options);
	for (int i = 0; i < MOST_STREAMS; i++)
		CALL(stream_create, &streams[i], NON_BLOCKING);
	for (size_t i = 0; i < sizeof micros / sizeof *micros; i++) {
		r.streams = micros[i].streams > 1 ? streams : first;
		micro(&r, &micros[i], seconds);
	}
}

/* ---- the program ----------------------------------------------------------------------------------------- */

static void open_device(void)
{
	void *context;
	find_driver();
	CALL(init, 0);
	CALL(retain, &context, 0);
	CALL(set_current, context);
	ticks_init(&ticks);
	ticks_calibrate(&ticks);
}

static void load_peer(const char *file)
{
	void *object = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	if (!object)
		fail("%s", dlerror());
	peer = dlsym(object, "bench_peer");
	if (!peer)
		fail("%s does not define the structure `bench_peer`", file);
}

static double number(int count, char **arguments, int i, double otherwise)
{
	return i < count ? strtod(arguments[i], NULL) : otherwise;
}

int main(int count, char **arguments)
{
	if (count == 5 && strcmp(arguments[1], "cut") == 0) {
		cut(arguments[2], arguments[3], arguments[4]);
		return 0;
	}
	bool trace = count > 4 && strcmp(arguments[3], "trace") == 0;
	if (!trace && (count < 4 || strcmp(arguments[3], "micros") != 0))
		fail("PEER OPTIONS trace FILE [SECONDS [CUPTI]] | PEER OPTIONS micros [SECONDS] | cut EVENTS FILE TO");
	open_device();
	load_peer(arguments[1]);
	if (trace)
		replay(arguments[2], arguments[4], number(count, arguments, 5, 3), count > 6 ? arguments[6] : NULL);
	else
		run_micros(arguments[2], number(count, arguments, 4, 0.2));
	fflush(stdout);
	_Exit(0);  /* skips what allocators do at exit */
}
