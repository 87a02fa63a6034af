/* SPDX-License-Identifier: Apache-2.0
 *
 * Replay of small traces: its counts, running out of memory, which it counts and survives, events and waits of the
 * program, and the search for the smallest device.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bits.h"
#include "prng.h"
#include "replay.h"
#include "synth.h"

static void add_alloc(struct trace *trace, uint64_t size, uint16_t stream)
{
	struct trace_event event = { .kind = TRACE_ALLOC, .id = trace->allocs, .size = size, .stream = stream };
	assert_int_equal(trace_add(trace, &event), TRZ_OK);
}

static void add_free(struct trace *trace, uint32_t id, uint16_t stream)
{
	struct trace_event event = { .kind = TRACE_FREE, .id = id, .stream = stream };
	assert_int_equal(trace_add(trace, &event), TRZ_OK);
}

static void replay(const struct trace *trace, const struct replay_params *params,
                   struct replay_result *result)
{
	trz_status status = replay_run(trace, params, result);
	if (status != TRZ_OK)
		fail_msg("%s: %s", trz_status_name(status), trz_last_error());
	if (result->violations || result->leaks)
		fail_msg("%s", result->problem);
}

static void counts_peaks(void **state)
{
	(void)state;
	struct trace trace = { .streams = 1 };
	add_alloc(&trace, 1000, 0);
	add_alloc(&trace, MIB(3) + 1, 0);
	add_free(&trace, 0, 0);
	add_alloc(&trace, 0, 0);
	add_alloc(&trace, 1, 1);
	add_free(&trace, 2, 0);
	add_free(&trace, 1, 0);
	for (int policy = REPLAY_TERRAZZO; policy <= REPLAY_NAIVE; policy++) {
		struct replay_params params = { .policy = (enum replay_policy)policy, .capacity = GIB(1) };
		params.check = true;
		struct replay_result result;
		replay(&trace, &params, &result);
		assert_int_equal(result.events, 7);
		assert_int_equal(result.streams, 2);
		assert_int_equal(result.peak_requested_bytes, MIB(3) + 1 + 1000);
		assert_int_equal(result.peak_allocated_bytes, MIB(3) + 512 + 1024);
		assert_true(result.peak_reserved_bytes >= result.peak_allocated_bytes);
		assert_true(result.end_reserved_bytes > 0);
		assert_true(result.driver_time_ns >= result.max_driver_time_per_alloc_ns);
		assert_true(result.max_times_tiles > 0);
		assert_int_equal(result.ooms, 0);
		assert_int_equal(result.heap_valid, policy == REPLAY_TERRAZZO);
	}
	trace_free(&trace);
}

static void naive_calls_once_per_request(void **state)
{
	(void)state;
	struct trace trace = { .streams = 1 };
	for (uint32_t i = 0; i < 8; i++) {
		add_alloc(&trace, MIB(2), 0);
		add_free(&trace, i, 0);
	}
	struct replay_params params = { .policy = REPLAY_NAIVE, .capacity = GIB(1), .repeat = 3 };
	struct replay_result result;
	replay(&trace, &params, &result);
	assert_int_equal(result.driver_calls[SIM_SLOT_mem_alloc], 24);
	assert_int_equal(result.driver_calls[SIM_SLOT_mem_free], 24);
	assert_int_equal(result.driver_calls_last_quarter, 12);
	assert_int_equal(result.operations, 48);
	assert_int_equal(result.end_reserved_bytes, 0);
	trace_free(&trace);
}

static void survives_out_of_memory(void **state)
{
	(void)state;
	struct trace trace = { .streams = 1 };
	add_alloc(&trace, MIB(64), 0);
	add_alloc(&trace, MIB(256), 0);
	add_alloc(&trace, UINT64_C(1) << 50, 0);
	add_alloc(&trace, MIB(1), 0);
	add_free(&trace, 1, 0);
	add_free(&trace, 2, 0);
	add_free(&trace, 0, 0);
	add_free(&trace, 3, 0);
	for (int policy = REPLAY_TERRAZZO; policy <= REPLAY_NAIVE; policy++) {
		struct replay_params params = { .policy = (enum replay_policy)policy, .capacity = MIB(128) };
		struct replay_result result;
		replay(&trace, &params, &result);
		assert_int_equal(result.ooms, 2);
		assert_int_equal(result.peak_requested_bytes, MIB(65));
	}
	trace_free(&trace);
}

/* Passes over one heap; blocks live at a pass's end are freed before the next; several streams run late. */
static void repeats_with_lag(void **state)
{
	(void)state;
	struct trace trace = { .streams = 1 };
	uint32_t live[64], count = 0;
	uint16_t streams[4096];
	uint64_t rng = 7;
	for (int i = 0; i < 4000; i++) {
		if (count == 64 || (count > 0 && prng_below(&rng, 2))) {
			uint32_t which = (uint32_t)prng_below(&rng, count);
			add_free(&trace, live[which], streams[live[which]]);
			live[which] = live[--count];
		} else {
			streams[trace.allocs] = (uint16_t)prng_below(&rng, 3);
			live[count++] = trace.allocs;
			add_alloc(&trace, 1 + (prng_next(&rng) >> (40 + prng_below(&rng, 20))), streams[trace.allocs]);
		}
	}
	for (int schedule = 0; schedule < SIM_SCHEDULES; schedule++) {
		struct replay_params params = { .capacity = GIB(8), .lag = 50, .repeat = 2, .check = true, .seed = 3,
		                                .schedule = (sim_schedule)schedule };
		struct replay_result result;
		replay(&trace, &params, &result);
		assert_int_equal(result.events, 8000);
		assert_int_equal(result.ooms, 0);
		assert_true(result.operations >= 8000);
	}
	trace_free(&trace);
}

static void add(struct trace *trace, enum trace_kind kind, uint32_t id, uint16_t stream)
{
	struct trace_event event = { .kind = (uint8_t)kind, .id = id, .stream = stream };
	assert_int_equal(trace_add(trace, &event), TRZ_OK);
}

/* Events and waits are the program's: no figure has them. Captures and pools are counted. */
static void the_programs_own_calls_are_not_counted(void **state)
{
	(void)state;
	for (int policy = REPLAY_TERRAZZO; policy <= REPLAY_NAIVE; policy++) {
		struct replay_params params = { .policy = (enum replay_policy)policy, .capacity = GIB(1), .lag = 3 };
		struct trace trace = { .streams = 2 };
		struct replay_result without, with;
		add_alloc(&trace, MIB(4), 0);
		add_alloc(&trace, MIB(4), 1);
		replay(&trace, &params, &without);
		for (int i = 0; i < 10; i++) {
			add(&trace, TRACE_EVENT_RECORD, 7 + (uint32_t)i % 2, 0);
			add(&trace, TRACE_STREAM_WAIT, 7 + (uint32_t)i % 2, 1);
			add(&trace, TRACE_STREAM_WAIT, 1000, 1);  /* never recorded */
			add(&trace, TRACE_MARKER, (uint32_t)i, 0);
			add(&trace, TRACE_CAPTURE_BEGIN, 1, 0);
			add(&trace, TRACE_CAPTURE_END, 1, 0);
		}
		add(&trace, TRACE_POOL_RELEASE, 0, 0);
		replay(&trace, &params, &with);
		assert_int_equal(with.events, 63);
		assert_int_equal(with.skipped_events, 21);
		assert_int_equal(with.driver_time_ns, without.driver_time_ns);
		assert_memory_equal(with.driver_calls, without.driver_calls, sizeof with.driver_calls);
		trace_free(&trace);
	}
}

/* Stream 1 uses what stream 0 allocated, so the memory must not go to stream 0's next request before stream 1
 * is through with it; without an order between the streams the check itself would fail. */
static void record_stream_keeps_memory(void **state)
{
	(void)state;
	struct trace trace = { .streams = 1 };
	for (uint32_t i = 0; i < 200; i++) {
		add_alloc(&trace, i % 3 == 0 ? 1000 : MIB(3), 0);
		add(&trace, TRACE_EVENT_RECORD, 0, 0);
		add(&trace, TRACE_STREAM_WAIT, 0, 1);
		add(&trace, TRACE_RECORD_STREAM, i, 1);
		add(&trace, TRACE_RECORD_STREAM, i, 0);
		add_free(&trace, i, 0);
	}
	for (int schedule = 0; schedule < SIM_SCHEDULES; schedule++) {
		for (uint64_t lag = 0; lag <= 60; lag += 20) {
			struct replay_params params = { .capacity = GIB(4), .lag = lag, .repeat = 2, .check = true };
			params.schedule = (sim_schedule)schedule;
			struct replay_result result;
			replay(&trace, &params, &result);
			assert_int_equal(result.ooms, 0);
		}
	}
	trace_free(&trace);
}

/* 64 MiB that another stream used, then 64 MiB again: what the host waits for decides whether they are the same. */
static uint64_t reserved_after(enum trace_kind kind, uint16_t stream)
{
	const struct replay_params params = { .capacity = GIB(1), .lag = 1000 };
	struct trace trace = { .streams = 4 };
	struct replay_result result;
	add_alloc(&trace, MIB(64), 1);
	add(&trace, TRACE_EVENT_RECORD, 0, 1);
	add(&trace, TRACE_STREAM_WAIT, 0, 2);
	add(&trace, TRACE_RECORD_STREAM, 0, 2);
	add_free(&trace, 0, 1);
	add(&trace, TRACE_EVENT_RECORD, 1, 2);
	if (kind != TRACE_MARKER)
		add(&trace, kind, 1, stream);
	add_alloc(&trace, MIB(64), 1);
	replay(&trace, &params, &result);
	trace_free(&trace);
	return result.peak_reserved_bytes;
}

static void what_the_host_waits_for_has_passed(void **state)
{
	(void)state;
	assert_true(reserved_after(TRACE_MARKER, 0) >= MIB(128));
	assert_true(reserved_after(TRACE_STREAM_SYNC, 3) >= MIB(128));
	assert_true(reserved_after(TRACE_STREAM_SYNC, 2) < MIB(128));
	assert_true(reserved_after(TRACE_EVENT_SYNC, 0) < MIB(128));
	assert_true(reserved_after(TRACE_DEVICE_SYNC, 0) < MIB(128));
}

/* Stream 2 frees what stream 1 allocated; only work on the default stream stands between them. */
static uint64_t violations_of(bool blocking, bool work)
{
	uint64_t violations = 0;
	for (uint64_t seed = 0; seed < 10; seed++) {
		const struct replay_params params = { .capacity = GIB(1), .lag = 100, .seed = seed };
		struct trace trace = { .streams = 1 };
		struct replay_result result;
		for (uint16_t stream = 1; stream <= 2; stream++)
			add(&trace, blocking ? TRACE_STREAM_BLOCKING : TRACE_MARKER, 0, stream);
		add(&trace, TRACE_DEVICE_SYNC, 0, 0);  /* the trace has all its order */
		add_alloc(&trace, MIB(4), 1);
		add(&trace, work ? TRACE_DEFAULT_WORK : TRACE_MARKER, 0, 0);
		add_free(&trace, 0, 2);
		assert_int_equal(replay_run(&trace, &params, &result), TRZ_OK);
		violations += result.violations;
		trace_free(&trace);
	}
	return violations;
}

static void the_default_stream_orders_blocking_ones(void **state)
{
	(void)state;
	assert_int_equal(violations_of(true, true), 0);
	assert_true(violations_of(true, false) > 0);
	assert_true(violations_of(false, true) > 0);
}

/* The program's work is not among the allocator's driver calls. */
static void work_of_the_program_is_not_counted(void **state)
{
	(void)state;
	struct trace trace = { .streams = 1 };
	struct replay_result idle, busy;
	const struct replay_params params = { .capacity = GIB(1) };
	add_alloc(&trace, MIB(4), 1);
	add_free(&trace, 0, 1);
	replay(&trace, &params, &idle);
	for (int i = 0; i < 100; i++)
		add(&trace, TRACE_DEFAULT_WORK, 0, 0);
	replay(&trace, &params, &busy);
	assert_memory_equal(busy.driver_calls, idle.driver_calls, sizeof busy.driver_calls);
	assert_int_equal(busy.driver_time_ns, idle.driver_time_ns);
	trace_free(&trace);
}

/* A release in the middle of a capture into the pool comes from a program that failed. */
static void a_pool_is_not_released_under_its_capture(void **state)
{
	(void)state;
	const struct replay_params params = { .capacity = GIB(1) };
	struct trace trace = { .streams = 1 };
	struct replay_result result;
	assert_int_equal(trace_add(&trace, &(struct trace_event){ .kind = TRACE_CAPTURE_BEGIN, .stream = 1, .pool = 1 }),
	                 TRZ_OK);
	assert_int_equal(trace_add(&trace, &(struct trace_event){ .kind = TRACE_POOL_RELEASE, .pool = 1 }), TRZ_OK);
	add(&trace, TRACE_STREAM_SYNC, 0, 1);
	add(&trace, TRACE_CAPTURE_END, 0, 1);
	replay(&trace, &params, &result);
	assert_int_equal(result.skipped_events, 2);
	trace_free(&trace);
}

/* Memory that a program takes and gives back while a blocking stream is captured: its cudaMalloc is of the default
 * stream, on which nothing may be enqueued then. */
static void a_capture_of_a_blocking_stream_takes_allocations_of_the_default_one(void **state)
{
	(void)state;
	for (uint64_t lag = 0; lag <= 3; lag += 3) {
		const struct replay_params params = { .capacity = GIB(1), .lag = lag, .repeat = 2, .check = true };
		struct trace trace = { .streams = 1 };
		struct replay_result result;
		add(&trace, TRACE_STREAM_BLOCKING, 0, 1);
		add_alloc(&trace, MIB(4), 0);
		add(&trace, TRACE_DEVICE_SYNC, 0, 0);
		add(&trace, TRACE_CAPTURE_BEGIN, 0, 1);
		add_alloc(&trace, MIB(4), 0);
		add_alloc(&trace, MIB(4), 1);
		add_alloc(&trace, 1000, 0);
		add_free(&trace, 0, 0);
		add_free(&trace, 3, 0);
		add(&trace, TRACE_CAPTURE_END, 0, 1);
		add(&trace, TRACE_GRAPH_LAUNCH, 0, 1);
		add_free(&trace, 1, 0);
		replay(&trace, &params, &result);
		assert_int_equal(result.launches, 2);
		assert_int_equal(result.skipped_events, 0);
		trace_free(&trace);
	}
}

static void impossible_captures_are_named(void **state)
{
	(void)state;
	const struct replay_params params = { .capacity = GIB(1) };
	struct replay_result result;
	for (uint32_t id = (1 << 20) - 1; id <= (1 << 20) + 1; id++) {
		struct trace trace = { .streams = 1 };
		add(&trace, TRACE_CAPTURE_BEGIN, id, 1);
		add_alloc(&trace, 1000, 1);
		add(&trace, TRACE_CAPTURE_END, id, 1);
		assert_int_equal(replay_run(&trace, &params, &result), id < 1 << 20 ? TRZ_OK : TRZ_ERROR_BAD_INPUT);
		trace_free(&trace);
	}
	struct trace trace = { .streams = 1 };
	add(&trace, TRACE_EVENT_RECORD, 0, 2);
	add(&trace, TRACE_CAPTURE_BEGIN, 0, 1);
	add(&trace, TRACE_STREAM_WAIT, 0, 1);
	assert_int_equal(replay_run(&trace, &params, &result), TRZ_ERROR_CAPTURE);
	assert_non_null(strstr(trz_last_error(), "across the border of a capture"));
	trace_free(&trace);
}

/* A log without events: the stream that frees waits for the one that allocated, or the check would come too
 * soon. */
static void frees_on_another_stream(void **state)
{
	(void)state;
	struct trace trace = { .streams = 1 };
	for (uint32_t i = 0; i < 300; i++) {
		add_alloc(&trace, i % 2 ? 600 : MIB(5), (uint16_t)(i % 3));
		add_free(&trace, i, (uint16_t)((i + 1) % 3));
	}
	for (int policy = REPLAY_TERRAZZO; policy <= REPLAY_NAIVE; policy++) {
		for (int schedule = 0; schedule < SIM_SCHEDULES; schedule++) {
			struct replay_params params = { .policy = (enum replay_policy)policy, .capacity = GIB(4),
			                                .lag = 30, .schedule = (sim_schedule)schedule };
			struct replay_result result;
			replay(&trace, &params, &result);
			assert_int_equal(result.ooms, 0);
		}
	}
	trace_free(&trace);
}

static void synthetic_traces_replay(void **state)
{
	(void)state;
	for (int shape = SYNTH_RING; shape <= SYNTH_RANDOM; shape++) {
		for (int record_stream = 0; record_stream < 2; record_stream++) {
			struct synth_params synth = { .shape = (enum synth_shape)shape, .streams = 5, .events = 4000,
			                              .seed = 11, .record_stream = record_stream };
			struct trace trace;
			assert_int_equal(synth_trace(&synth, &trace), TRZ_OK);
			for (uint64_t lag = 0; lag <= 400; lag += 200) {
				struct replay_params params = { .capacity = GIB(80), .lag = lag, .seed = lag, .check = true };
				struct replay_result result;
				replay(&trace, &params, &result);
				assert_int_equal(result.events, 4000);
				assert_int_equal(result.ooms, 0);
				assert_int_equal(result.skipped_events, 0);
				assert_int_equal(result.pools > 0, shape == SYNTH_GRAPHS);
				assert_int_equal(result.launches > 100, shape == SYNTH_GRAPHS);
			}
			trace_free(&trace);
		}
	}
}

/* A program that makes a pool for its captures, and another one a while later: what one leaves serves the next, also
 * where both streams had a part of it, and however much that moves, the heap grows no more. */
static void pools_made_anew_leave_nothing_behind(void **state)
{
	(void)state;
	const struct synth_params synth = { .shape = SYNTH_GRAPHS, .streams = 4, .events = 60000 };
	static const char *const confs[] = { "churn_per_mille:2", "churn_per_mille:1000" };
	struct trace trace;
	assert_int_equal(synth_trace(&synth, &trace), TRZ_OK);
	for (size_t i = 0; i < sizeof confs / sizeof confs[0]; i++) {
		const struct replay_params params = { .capacity = GIB(80), .conf = confs[i] };
		struct replay_result result;
		replay(&trace, &params, &result);
		assert_in_range(result.pools, 40, 60);
		assert_in_range(result.peak_reserved_bytes, 0, 2 * result.peak_allocated_bytes);
	}
	trace_free(&trace);
}

/* Allocations that name a pool, as those of a snapshot do, are served from it and from nothing else. */
static void pools_of_allocations(void **state)
{
	(void)state;
	struct trace trace = { .streams = 1 };
	for (uint32_t i = 0; i < 8; i++) {
		struct trace_event event = { .kind = TRACE_ALLOC, .id = i, .size = MIB(100), .pool = i % 2 };
		assert_int_equal(trace_add(&trace, &event), TRZ_OK);
		add_free(&trace, i, 0);
	}
	struct replay_params params = { .capacity = GIB(1) };
	struct replay_result result;
	replay(&trace, &params, &result);
	assert_int_equal(result.pools, 1);
	assert_int_equal(result.skipped_events, 0);
	assert_true(result.pool_reserved_bytes >= MIB(100) && result.peak_reserved_bytes >= MIB(200));
	add(&trace, TRACE_POOL_RELEASE, 0, 0);
	trace.events[trace.count - 1].pool = 1;
	replay(&trace, &params, &result);
	assert_int_equal(result.pool_reserved_bytes, 0);
	trace.events[0].pool = 1u << 30;
	assert_int_equal(replay_run(&trace, &params, &result), TRZ_ERROR_BAD_INPUT);
	trace_free(&trace);
}

static void stops_at_out_of_memory(void **state)
{
	(void)state;
	struct trace trace = { .streams = 1 };
	for (int i = 0; i < 10; i++)
		add_alloc(&trace, MIB(32), 0);
	for (int policy = REPLAY_TERRAZZO; policy <= REPLAY_NAIVE; policy++) {
		struct replay_params params = { .policy = (enum replay_policy)policy, .capacity = MIB(100),
		                                .repeat = 3, .stop_at_oom = true };
		struct replay_result result;
		replay(&trace, &params, &result);
		assert_int_equal(result.ooms, 1);
		assert_int_equal(result.events, 4);
	}
	trace_free(&trace);
}

/* 10 blocks of 100 MiB live at once: 1000 MiB, rounded up to whole steps. */
static void finds_the_smallest_device(void **state)
{
	(void)state;
	struct trace trace = { .streams = 1 };
	for (uint32_t i = 0; i < 10; i++)
		add_alloc(&trace, MIB(100), 0);
	for (uint32_t i = 0; i < 10; i++)
		add_free(&trace, i, 0);
	for (int policy = REPLAY_TERRAZZO; policy <= REPLAY_NAIVE; policy++) {
		struct replay_params params = { .policy = (enum replay_policy)policy, .capacity = GIB(80) };
		struct replay_result whole, at_fit;
		struct replay_fit fit;
		replay(&trace, &params, &whole);
		assert_int_equal(replay_fit(&trace, &params, whole.peak_allocated_bytes, &fit), TRZ_OK);
		assert_int_equal(fit.bytes, MIB(1024));
		assert_true(fit.verified);
		assert_int_equal(fit.runs, 3);
		assert_int_equal(fit.violations + fit.leaks, 0);
		params.capacity = fit.bytes;
		replay(&trace, &params, &at_fit);
		assert_int_equal(fit.driver_time_ns, at_fit.driver_time_ns);
		params.capacity = MIB(1000);
		assert_int_equal(replay_fit(&trace, &params, whole.peak_allocated_bytes, &fit), TRZ_OK);
		assert_int_equal(fit.bytes, 0);
	}
	trace_free(&trace);
}

/* ---- an allocator of the caller's ---- */

/* Plain memory of the device, given back when all work is complete; `wrong`: everyone gets the same. */
struct plain_peer {
	struct replay_peer peer;
	bool wrong;
	void *shared;
	unsigned records, uses, foreign;
	uint64_t taken, given;  /* bytes */
};

static trz_status plain_stream(void *self, bool blocking, trz_stream *out)
{
	struct plain_peer *p = self;
	return sim_stream_create(p->peer.sim, p->peer.context, blocking, out);
}

static trz_status plain_alloc(void *self, uint64_t size, trz_stream stream, void **out)
{
	struct plain_peer *p = self;
	const trz_driver *d = sim_driver(p->peer.sim);
	trz_addr address = (uintptr_t)p->shared;
	(void)stream;
	trz_status status = address ? TRZ_OK : d->mem_alloc(d->self, p->peer.context, size, &address);
	*out = (void *)(uintptr_t)address;
	p->shared = p->wrong ? *out : NULL;
	p->taken += status == TRZ_OK ? size : 0;
	return status;
}

static trz_status plain_free(void *self, void *pointer, uint64_t size, trz_stream own, trz_stream last)
{
	struct plain_peer *p = self;
	p->given += size;
	const trz_driver *d = sim_driver(p->peer.sim);
	p->foreign += own != last;
	if (p->wrong)
		return TRZ_OK;
	trz_status status = sim_device_sync(p->peer.sim, 0);
	return status == TRZ_OK ? d->mem_free(d->self, p->peer.context, (uintptr_t)pointer) : status;
}

static trz_status plain_use(void *self, void *pointer, trz_stream stream)
{
	(void)pointer;
	(void)stream;
	((struct plain_peer *)self)->uses++;
	return TRZ_OK;
}

static uint64_t plain_ticks(void *self)
{
	return sim_host_ticks(((struct plain_peer *)self)->peer.sim);
}

static uint64_t plain_record(void *self, trz_event event, trz_stream stream)
{
	(void)event;
	(void)stream;
	return ++((struct plain_peer *)self)->records;
}

static void plain_recorded(void *self, trz_event event, trz_stream stream, uint64_t token, bool done)
{
	(void)event;
	(void)stream;
	assert_int_equal(token, ((struct plain_peer *)self)->records);
	assert_true(done);
}

static void open_plain(struct plain_peer *p, bool wrong)
{
	const sim_config config = { .capacity = MIB(64), .continue_on_violation = true, .timed = true };
	*p = (struct plain_peer){ .wrong = wrong,
		                      .peer = { .self = p, .make_stream = plain_stream, .alloc = plain_alloc,
		                                .free = plain_free, .record_stream = plain_use, .driver_ticks = plain_ticks,
		                                .record_begin = plain_record, .record_end = plain_recorded } };
	assert_int_equal(sim_open(&config, &p->peer.sim), TRZ_OK);
	assert_int_equal(sim_context_primary(p->peer.sim, 0, &p->peer.context), TRZ_OK);
}

static void replay_plain(const struct trace *trace, bool wrong, struct plain_peer *p, struct replay_result *result)
{
	open_plain(p, wrong);
	const struct replay_params params = { .policy = REPLAY_PEER, .peer = &p->peer, .capacity = MIB(64), .lag = 2 };
	assert_int_equal(replay_run(trace, &params, result), TRZ_OK);
	sim_close(p->peer.sim);
}

static void another_allocator_replays(void **state)
{
	(void)state;
	struct trace trace = { .streams = 1 };
	struct plain_peer p;
	struct replay_result result;
	add_alloc(&trace, MIB(8), 0);
	add_alloc(&trace, MIB(8), 1);
	add_alloc(&trace, MIB(60), 1);  /* more than there is */
	add(&trace, TRACE_EVENT_RECORD, 1, 0);
	add(&trace, TRACE_STREAM_WAIT, 1, 1);
	add(&trace, TRACE_RECORD_STREAM, 0, 1);
	add_free(&trace, 2, 1);
	add_free(&trace, 1, 1);
	add_free(&trace, 0, 1);
	replay_plain(&trace, false, &p, &result);
	assert_int_equal(result.violations, 0);
	assert_int_equal(result.ooms, 1);
	assert_int_equal(result.operations, 5);
	assert_int_equal(result.peak_reserved_bytes, MIB(16));
	assert_int_equal(result.driver_calls[SIM_SLOT_mem_alloc], 3);
	assert_int_equal(result.driver_calls[SIM_SLOT_event_record], 0);  /* the program's */
	assert_false(result.heap_valid);
	assert_int_equal(p.records, 1);
	assert_int_equal(p.uses, 1);
	assert_int_equal(p.foreign, 1);
	assert_int_equal(p.taken, MIB(16));
	assert_int_equal(p.given, MIB(16));
	trace_free(&trace);
}

static void a_wrong_allocator_is_noticed(void **state)
{
	(void)state;
	struct trace trace = { .streams = 1 };
	struct plain_peer p;
	struct replay_result result;
	add_alloc(&trace, MIB(8), 0);
	add_alloc(&trace, MIB(8), 0);
	add_free(&trace, 0, 0);
	add_free(&trace, 1, 0);
	replay_plain(&trace, true, &p, &result);
	assert_int_not_equal(result.violations, 0);
	assert_non_null(strstr(result.problem, "tag"));
	trace_free(&trace);
}

static void bad_settings_are_named(void **state)
{
	(void)state;
	struct trace trace = { .streams = 1 };
	add_alloc(&trace, 1, 0);
	struct replay_result result;
	struct replay_params conf = { .conf = "no_such_key:1" };
	assert_int_equal(replay_run(&trace, &conf, &result), TRZ_ERROR_CONFIG_KEY);
	assert_non_null(strstr(trz_last_error(), "no_such_key"));
	struct replay_params costs = { .costs = "/nonexistent/costs.ini" };
	assert_int_not_equal(replay_run(&trace, &costs, &result), TRZ_OK);
	assert_non_null(strstr(trz_last_error(), "costs.ini"));
	trace_free(&trace);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counts_peaks),
		cmocka_unit_test(naive_calls_once_per_request),
		cmocka_unit_test(survives_out_of_memory),
		cmocka_unit_test(repeats_with_lag),
		cmocka_unit_test(the_programs_own_calls_are_not_counted),
		cmocka_unit_test(record_stream_keeps_memory),
		cmocka_unit_test(what_the_host_waits_for_has_passed),
		cmocka_unit_test(the_default_stream_orders_blocking_ones),
		cmocka_unit_test(work_of_the_program_is_not_counted),
		cmocka_unit_test(a_pool_is_not_released_under_its_capture),
		cmocka_unit_test(a_capture_of_a_blocking_stream_takes_allocations_of_the_default_one),
		cmocka_unit_test(impossible_captures_are_named),
		cmocka_unit_test(frees_on_another_stream),
		cmocka_unit_test(synthetic_traces_replay),
		cmocka_unit_test(pools_made_anew_leave_nothing_behind),
		cmocka_unit_test(pools_of_allocations),
		cmocka_unit_test(stops_at_out_of_memory),
		cmocka_unit_test(finds_the_smallest_device),
		cmocka_unit_test(another_allocator_replays),
		cmocka_unit_test(a_wrong_allocator_is_noticed),
		cmocka_unit_test(bad_settings_are_named),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
