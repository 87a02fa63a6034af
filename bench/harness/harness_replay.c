/* SPDX-License-Identifier: Apache-2.0
 *
 * Plays a trace through the allocator, stamping and checking memory as `terrazzo replay` does.
 */
#include "harness.h"

#include "bits.h"
#include "driver_clock.h"
#include "replay.h"
#include "ticks.h"

/* Host time of what the allocator is told around its allocations and frees, without the driver's: events, waits and
 * uses on other streams. It is the price of memory that others can have sooner, so it counts in the mean. */
static struct {
	struct ticks clock;
	uint64_t clock_cost;         /* of one pair of readings */
	uint64_t spent;
} telling;

struct stopwatch {
	uint64_t driver, begun;
};

static struct stopwatch begin_telling(void)
{
	uint64_t driver = driver_clock_ticks();
	return (struct stopwatch){driver, ticks_read_in_order(&telling.clock)};
}

static void end_telling(struct stopwatch w)
{
	uint64_t spent = ticks_read_in_order(&telling.clock) - w.begun;
	uint64_t other = driver_clock_ticks() - w.driver + telling.clock_cost;
	telling.spent += spent > other ? spent - other : 0;
}

static void prepare_telling(void)
{
	enum { READINGS = 1000 };
	ticks_init(&telling.clock);
	ticks_calibrate(&telling.clock);
	telling.clock_cost = UINT64_MAX;
	for (int i = 0; i < READINGS; i++) {
		uint64_t begun = ticks_read_in_order(&telling.clock);
		telling.clock_cost = min_u64(telling.clock_cost, ticks_read_in_order(&telling.clock) - begun);
	}
}

static trz_status make_stream(void *self, bool blocking, trz_stream *out)
{
	(void)self;
	return harness_stream(blocking, out);
}

static trz_status take(void *self, uint64_t size, trz_stream stream, void **out)
{
	const struct peer *peer = self;
	*out = peer->alloc(size, stream);
	return *out ? TRZ_OK : TRZ_ERROR_OUT_OF_MEMORY;
}

static trz_status give(void *self, void *pointer, uint64_t size, trz_stream own, trz_stream last)
{
	const struct peer *peer = self;
	peer->free(pointer, size, own, last);
	return TRZ_OK;
}

static trz_status record_stream(void *self, void *pointer, trz_stream stream)
{
	const struct peer *peer = self;
	struct stopwatch watch = begin_telling();
	if (peer->record_stream)
		peer->record_stream(pointer, stream);
	end_telling(watch);
	return TRZ_OK;
}

static uint64_t ticks_in_driver(void *self)
{
	(void)self;
	return driver_clock_ticks();
}

static uint64_t record_begin(void *self, trz_event event, trz_stream stream)
{
	const struct peer *peer = self;
	struct stopwatch watch = begin_telling();
	uint64_t token = peer->record_begin(event, stream);
	end_telling(watch);
	return token;
}

static void record_end(void *self, trz_event event, trz_stream stream, uint64_t token, bool done)
{
	const struct peer *peer = self;
	struct stopwatch watch = begin_telling();
	peer->record_end(event, stream, token, done);
	end_telling(watch);
}

static uint64_t wait_begin(void *self, trz_stream stream, trz_event event)
{
	const struct peer *peer = self;
	struct stopwatch watch = begin_telling();
	uint64_t token = peer->wait_begin(stream, event);
	end_telling(watch);
	return token;
}

static void wait_end(void *self, trz_stream stream, trz_event event, uint64_t token, bool done)
{
	const struct peer *peer = self;
	struct stopwatch watch = begin_telling();
	peer->wait_end(stream, event, token, done);
	end_telling(watch);
}

static void close_peer(void *self)
{
	const struct peer *peer = self;
	if (peer->empty_cache)
		peer->empty_cache();
	peer->close();
}

static struct replay_peer describe(const struct harness *h)
{
	bool told = h->peer->record_begin;
	return (struct replay_peer){
		.self = (void *)(uintptr_t)h->peer,
		.sim = h->sim,
		.context = h->context,
		.make_stream = make_stream,
		.alloc = take,
		.free = give,
		.record_stream = record_stream,
		.driver_ticks = ticks_in_driver,
		.close = close_peer,
		.record_begin = told ? record_begin : NULL,
		.record_end = told ? record_end : NULL,
		.wait_begin = told ? wait_begin : NULL,
		.wait_end = told ? wait_end : NULL,
	};
}

static void add(struct harness *h, const char *name, uint64_t value)
{
	json_object_set_new(h->row, name, json_integer((json_int_t)value));
}

static void report(struct harness *h, const struct replay_result *r)
{
	json_t *calls = json_object();
	for (int slot = 0; slot < SIM_SLOTS; slot++)
		if (r->driver_calls[slot])
			json_object_set_new(calls, sim_slot_name((sim_slot)slot), json_integer((json_int_t)r->driver_calls[slot]));
	json_object_set_new(h->row, "driver_calls", calls);
	double told_ns = (double)ticks_to_ns(&telling.clock, telling.spent);
	double told_per_op = r->operations ? told_ns / (double)r->operations : 0;
	json_object_set_new(h->row, "ns_per_op", json_real(r->host_ns_per_op + told_per_op));
	json_object_set_new(h->row, "told_ns_per_op", json_real(told_per_op));
	add(h, "median_ns", r->host_ns_median);
	add(h, "p999_ns", r->host_ns_p999);
	add(h, "operations", r->operations);
	add(h, "streams", r->streams);
	add(h, "peak_allocated_bytes", r->peak_allocated_bytes);
	add(h, "peak_reserved_bytes", r->peak_reserved_bytes);
	add(h, "driver_time_ns", r->driver_time_ns);
	json_t *by = json_array();
	for (int i = 0; i < SIM_MORE_COSTS; i++)
		json_array_append_new(by, json_integer((json_int_t)r->driver_time_by[i]));
	json_object_set_new(h->row, "driver_time_by", by);
	add(h, "driver_calls_last_quarter", r->driver_calls_last_quarter);
	add(h, "ooms", r->ooms);
	add(h, "violations", r->violations);
	json_object_set_new(h->row, "max_times_tiles", json_real(r->max_times_tiles));
	if (r->problem[0])
		json_object_set_new(h->row, "problem", json_string(r->problem));
}

void harness_replay(struct harness *h, const char *file, uint64_t lag)
{
	struct trace trace;
	struct replay_result result;
	const struct replay_peer peer = describe(h);
	if (!h->sim)
		harness_fail(file, "a host's allocator replays no trace");
	trz_status status = trace_load(file, TRACE_ANY_DEVICE, &trace);
	if (status != TRZ_OK)
		harness_fail("trace", trz_last_error());
	const struct replay_params params = {.policy = REPLAY_PEER, .peer = &peer, .capacity = h->capacity, .lag = lag,
	                                     .stop_at_oom = true};
	prepare_telling();
	status = replay_run(&trace, &params, &result);
	if (status != TRZ_OK)
		harness_fail(file, trz_last_error());
	report(h, &result);
	add(h, "bytes_after_close", sim_device_used(h->sim, 0));
	trace_free(&trace);
}
