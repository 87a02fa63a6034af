/* SPDX-License-Identifier: Apache-2.0
 *
 * Contract cases: calls about streams, events and memory while a stream is captured, and the ends of captures.
 */
#include "contract.h"

#include <pthread.h>

enum { BYTES = 4096 };

/* ---- what the cases share ------------------------------------------------------------------------------- */

static trz_event make_event(struct contract_env *env)
{
	trz_event event = NULL;
	expect_ok(SLOT(env, event_create, env->context, &event));
	return event;
}

static trz_capture_status status_of(struct contract_env *env, trz_stream stream, uint64_t *id)
{
	trz_capture_status status = TRZ_CAPTURE_NONE;
	expect_ok(SLOT(env, stream_capture, env->context, stream, &status, id));
	return status;
}

static void expect_capture(struct contract_env *env, trz_stream stream, trz_capture_status expected)
{
	uint64_t id = 0;
	assert_int_equal(status_of(env, stream, &id), expected);
}

static trz_capture_mode exchange(struct contract_env *env, trz_capture_mode mode)
{
	expect_ok(SLOT(env, capture_mode, &mode));
	return mode;
}

/* Makes `later` wait for the work that `first` has. */
static void follow(struct contract_env *env, trz_stream later, trz_stream first)
{
	trz_event event = make_event(env);
	expect_ok(SLOT(env, event_record, env->context, event, first));
	expect_ok(SLOT(env, stream_wait, env->context, later, event));
	expect_ok(SLOT(env, event_destroy, env->context, event));
}

static uint8_t byte_at(struct contract_env *env, trz_stream stream, trz_addr address)
{
	uint8_t seen = 0;
	OPS(env, read, env->context, stream, &seen, address, 1);
	OPS(env, stream_sync, env->context, stream);
	return seen;
}

/* Makes a call that captures forbid, in the calling thread. */
static trz_status allocate(struct contract_env *env)
{
	trz_addr address = 0;
	trz_status status = SLOT(env, mem_alloc, env->context, BYTES, &address);
	if (status == TRZ_OK)
		expect_ok(SLOT(env, mem_free, env->context, address));
	return status;
}

static void *allocate_in_thread(void *argument)
{
	struct contract_env *env = argument;
	return allocate(env) == TRZ_OK ? env : NULL;
}

static bool other_thread_allocates(struct contract_env *env)
{
	pthread_t thread;
	void *succeeded = NULL;
	assert_int_equal(pthread_create(&thread, NULL, allocate_in_thread, env), 0);
	assert_int_equal(pthread_join(thread, &succeeded), 0);
	return succeeded != NULL;
}

static void end_with_graph(struct contract_env *env, trz_stream stream)
{
	void *graph = OPS(env, capture_end, env->context, stream);
	assert_non_null(graph);
	OPS(env, graph_destroy, env->context, graph);
}

static void end_without_graph(struct contract_env *env, trz_stream stream)
{
	assert_null(OPS(env, capture_end, env->context, stream));
	expect_capture(env, stream, TRZ_CAPTURE_NONE);
}

/* ---- status and graphs ----------------------------------------------------------------------------------- */

static void captured_stream_says_so(struct contract_env *env)
{
	uint64_t first = 0, second = 0;
	trz_stream stream = OPS(env, stream_create, env->context);
	trz_stream other = OPS(env, stream_create, env->context);
	OPS(env, capture_begin, env->context, stream, TRZ_CAPTURE_RELAXED);
	assert_int_equal(status_of(env, stream, &first), TRZ_CAPTURE_ACTIVE);
	expect_capture(env, other, TRZ_CAPTURE_NONE);
	expect_capture(env, NULL, TRZ_CAPTURE_NONE);
	end_with_graph(env, stream);
	expect_capture(env, stream, TRZ_CAPTURE_NONE);
	OPS(env, capture_begin, env->context, stream, TRZ_CAPTURE_GLOBAL);
	assert_int_equal(status_of(env, stream, &second), TRZ_CAPTURE_ACTIVE);
	assert_true(first != 0 && second != 0 && first != second);
	end_with_graph(env, stream);
	OPS(env, stream_destroy, env->context, other);
	OPS(env, stream_destroy, env->context, stream);
}

/* In any mode; other streams can be asked meanwhile. */
static void id_of_a_captured_stream_ends_its_capture(struct contract_env *env)
{
	const trz_capture_mode modes[] = {TRZ_CAPTURE_GLOBAL, TRZ_CAPTURE_THREAD_LOCAL, TRZ_CAPTURE_RELAXED};
	trz_stream stream = OPS(env, stream_create, env->context);
	trz_stream other = OPS(env, stream_create, env->context);
	trz_context context = NULL;
	uint64_t id = 0;
	for (int i = 0; i < 3; i++) {
		OPS(env, capture_begin, env->context, stream, modes[i]);
		expect_ok(SLOT(env, stream_id, env->context, other, &id));
		expect_ok(SLOT(env, stream_id, env->context, NULL, &id));
		expect_ok(SLOT(env, stream_id, env->context, (trz_stream)2, &id));
		expect_ok(SLOT(env, stream_context, env->context, stream, &context));
		assert_true(context == env->context);
		expect_capture(env, stream, TRZ_CAPTURE_ACTIVE);
		expect_status(SLOT(env, stream_id, env->context, stream, &id), TRZ_ERROR_CAPTURE);
		expect_capture(env, stream, TRZ_CAPTURE_INVALIDATED);
		end_without_graph(env, stream);
	}
	expect_ok(SLOT(env, stream_id, env->context, stream, &id));
	OPS(env, stream_destroy, env->context, other);
	OPS(env, stream_destroy, env->context, stream);
}

static void events_may_be_made_and_recorded_elsewhere(struct contract_env *env)
{
	trz_stream stream = OPS(env, stream_create, env->context);
	trz_stream other = OPS(env, stream_create, env->context);
	uint64_t free = 0, total = 0;
	OPS(env, capture_begin, env->context, stream, TRZ_CAPTURE_GLOBAL);
	trz_event event = make_event(env);
	expect_ok(SLOT(env, event_record, env->context, event, other));
	expect_ok(SLOT(env, stream_wait, env->context, other, event));
	expect_ok(SLOT(env, mem_info, env->context, &free, &total));
	expect_capture(env, stream, TRZ_CAPTURE_ACTIVE);
	end_with_graph(env, stream);
	expect_ok(SLOT(env, event_sync, env->context, event));
	expect_ok(SLOT(env, event_destroy, env->context, event));
	OPS(env, stream_destroy, env->context, other);
	OPS(env, stream_destroy, env->context, stream);
}

/* An event that has passed, on a stream that is not captured. */
static void query_in_the_capturing_thread_ends_the_capture(struct contract_env *env)
{
	trz_stream stream = OPS(env, stream_create, env->context);
	trz_stream other = OPS(env, stream_create, env->context);
	trz_event event = make_event(env);
	expect_ok(SLOT(env, event_record, env->context, event, other));
	expect_ok(SLOT(env, event_sync, env->context, event));
	for (int i = 0; i < 2; i++) {
		OPS(env, capture_begin, env->context, stream, TRZ_CAPTURE_THREAD_LOCAL);
		exchange(env, TRZ_CAPTURE_RELAXED);
		expect_ok(SLOT(env, event_query, env->context, event));
		expect_ok(SLOT(env, event_sync, env->context, event));
		exchange(env, TRZ_CAPTURE_GLOBAL);
		expect_capture(env, stream, TRZ_CAPTURE_ACTIVE);
		expect_status(i ? SLOT(env, event_sync, env->context, event) : SLOT(env, event_query, env->context, event),
		              TRZ_ERROR_CAPTURE);
		expect_capture(env, stream, TRZ_CAPTURE_INVALIDATED);
		end_without_graph(env, stream);
	}
	expect_ok(SLOT(env, event_destroy, env->context, event));
	OPS(env, stream_destroy, env->context, other);
	OPS(env, stream_destroy, env->context, stream);
}

static void captured_work_runs_when_launched(struct contract_env *env)
{
	trz_addr address = 0;
	trz_stream stream = OPS(env, stream_create, env->context);
	expect_ok(SLOT(env, mem_alloc, env->context, BYTES, &address));
	OPS(env, fill, env->context, stream, address, BYTES, 1);
	OPS(env, capture_begin, env->context, stream, TRZ_CAPTURE_GLOBAL);
	OPS(env, fill, env->context, stream, address, BYTES, 2);
	void *graph = OPS(env, capture_end, env->context, stream);
	assert_non_null(graph);
	assert_int_equal(byte_at(env, stream, address), 1);
	for (int i = 0; i < 2; i++) {
		OPS(env, graph_launch, env->context, graph, stream);
		assert_int_equal(byte_at(env, stream, address), 2);
		OPS(env, fill, env->context, stream, address, BYTES, 3);
		assert_int_equal(byte_at(env, stream, address), 3);
	}
	OPS(env, graph_destroy, env->context, graph);
	expect_ok(SLOT(env, mem_free, env->context, address));
	OPS(env, stream_destroy, env->context, stream);
}

static void waiting_stream_joins_the_capture(struct contract_env *env)
{
	uint64_t id = 0, joined = 0;
	trz_addr address = 0;
	trz_stream stream = OPS(env, stream_create, env->context);
	trz_stream other = OPS(env, stream_create, env->context);
	expect_ok(SLOT(env, mem_alloc, env->context, BYTES, &address));
	OPS(env, capture_begin, env->context, stream, TRZ_CAPTURE_GLOBAL);
	OPS(env, fill, env->context, stream, address, BYTES, 1);
	follow(env, other, stream);
	assert_int_equal(status_of(env, stream, &id), TRZ_CAPTURE_ACTIVE);
	assert_int_equal(status_of(env, other, &joined), TRZ_CAPTURE_ACTIVE);
	assert_true(id == joined);
	OPS(env, fill, env->context, other, address, BYTES, 2);
	follow(env, stream, other);
	void *graph = OPS(env, capture_end, env->context, stream);
	assert_non_null(graph);
	expect_capture(env, other, TRZ_CAPTURE_NONE);
	OPS(env, graph_launch, env->context, graph, stream);
	assert_int_equal(byte_at(env, stream, address), 2);
	OPS(env, graph_destroy, env->context, graph);
	expect_ok(SLOT(env, mem_free, env->context, address));
	OPS(env, stream_destroy, env->context, other);
	OPS(env, stream_destroy, env->context, stream);
}

/* ---- what is refused, and what it costs ------------------------------------------------------------------ */

static void captured_event_cannot_be_queried(struct contract_env *env)
{
	trz_stream stream = OPS(env, stream_create, env->context);
	trz_event event = make_event(env);
	OPS(env, capture_begin, env->context, stream, TRZ_CAPTURE_RELAXED);
	expect_ok(SLOT(env, event_record, env->context, event, stream));
	expect_status(SLOT(env, event_query, env->context, event), TRZ_ERROR_CAPTURE);
	void *graph = OPS(env, capture_end, env->context, stream);
	if (graph)
		OPS(env, graph_destroy, env->context, graph);
	expect_capture(env, stream, TRZ_CAPTURE_NONE);
	expect_ok(SLOT(env, event_record, env->context, event, stream));
	expect_ok(SLOT(env, event_sync, env->context, event));
	expect_ok(SLOT(env, event_destroy, env->context, event));
	OPS(env, stream_destroy, env->context, stream);
}

static void event_from_outside_is_refused(struct contract_env *env)
{
	trz_stream stream = OPS(env, stream_create, env->context);
	trz_stream outside = OPS(env, stream_create, env->context);
	trz_event event = make_event(env);
	expect_ok(SLOT(env, event_record, env->context, event, outside));
	OPS(env, capture_begin, env->context, stream, TRZ_CAPTURE_RELAXED);
	expect_status(SLOT(env, stream_wait, env->context, stream, event), TRZ_ERROR_CAPTURE);
	end_without_graph(env, stream);
	expect_ok(SLOT(env, event_query, env->context, event));
	expect_ok(SLOT(env, event_destroy, env->context, event));
	OPS(env, stream_destroy, env->context, outside);
	OPS(env, stream_destroy, env->context, stream);
}

static void allocation_invalidates_silently(struct contract_env *env)
{
	const trz_capture_mode modes[] = {TRZ_CAPTURE_GLOBAL, TRZ_CAPTURE_THREAD_LOCAL};
	trz_stream stream = OPS(env, stream_create, env->context);
	for (int i = 0; i < 2; i++) {
		OPS(env, capture_begin, env->context, stream, modes[i]);
		expect_status(allocate(env), TRZ_ERROR_CAPTURE);
		expect_capture(env, stream, TRZ_CAPTURE_INVALIDATED);
		end_without_graph(env, stream);
		expect_ok(allocate(env));
	}
	OPS(env, stream_destroy, env->context, stream);
}

static void relaxed_modes_allow_allocation(struct contract_env *env)
{
	trz_stream stream = OPS(env, stream_create, env->context);
	OPS(env, capture_begin, env->context, stream, TRZ_CAPTURE_RELAXED);
	expect_ok(allocate(env));
	expect_capture(env, stream, TRZ_CAPTURE_ACTIVE);
	end_with_graph(env, stream);
	OPS(env, capture_begin, env->context, stream, TRZ_CAPTURE_GLOBAL);
	assert_int_equal(exchange(env, TRZ_CAPTURE_RELAXED), TRZ_CAPTURE_GLOBAL);
	expect_ok(allocate(env));
	assert_int_equal(exchange(env, TRZ_CAPTURE_GLOBAL), TRZ_CAPTURE_RELAXED);
	expect_capture(env, stream, TRZ_CAPTURE_ACTIVE);
	end_with_graph(env, stream);
	OPS(env, stream_destroy, env->context, stream);
}

static void global_captures_bind_other_threads(struct contract_env *env)
{
	trz_stream stream = OPS(env, stream_create, env->context);
	OPS(env, capture_begin, env->context, stream, TRZ_CAPTURE_THREAD_LOCAL);
	assert_true(other_thread_allocates(env));
	expect_capture(env, stream, TRZ_CAPTURE_ACTIVE);
	end_with_graph(env, stream);
	OPS(env, capture_begin, env->context, stream, TRZ_CAPTURE_GLOBAL);
	assert_false(other_thread_allocates(env));
	expect_capture(env, stream, TRZ_CAPTURE_INVALIDATED);
	end_without_graph(env, stream);
	OPS(env, stream_destroy, env->context, stream);
}

/* Makes physical memory and lays it, as a heap does when a captured stream asks for more. */
static void memory_is_laid_in_relaxed_mode(struct contract_env *env)
{
	if (!env->info.vmm)
		skip();
	const trz_tile_props props = {.device = env->device};
	const uint64_t size = env->info.granularity;
	trz_handle handle = 0;
	trz_addr address = 0;
	trz_stream stream = OPS(env, stream_create, env->context);
	OPS(env, capture_begin, env->context, stream, TRZ_CAPTURE_GLOBAL);
	exchange(env, TRZ_CAPTURE_RELAXED);
	expect_ok(SLOT(env, create, &props, size, &handle));
	expect_ok(SLOT(env, reserve, size, 0, 0, &address));
	expect_ok(SLOT(env, map, address, size, handle));
	expect_ok(SLOT(env, set_access, address, size, &env->device, 1));
	exchange(env, TRZ_CAPTURE_GLOBAL);
	expect_capture(env, stream, TRZ_CAPTURE_ACTIVE);
	OPS(env, fill, env->context, stream, address, size, 7);
	void *graph = OPS(env, capture_end, env->context, stream);
	assert_non_null(graph);
	OPS(env, graph_launch, env->context, graph, stream);
	assert_int_equal(byte_at(env, stream, address + size - 1), 7);
	OPS(env, graph_destroy, env->context, graph);
	expect_ok(SLOT(env, unmap, address, size));
	expect_ok(SLOT(env, unreserve, address, size));
	expect_ok(SLOT(env, release, handle));
	OPS(env, stream_destroy, env->context, stream);
}

static void id_of_the_legacy_stream_ends_captures(struct contract_env *env)
{
	uint64_t id = 0;
	trz_stream own = (trz_stream)2;
	OPS(env, capture_begin, env->context, own, TRZ_CAPTURE_RELAXED);
	expect_status(SLOT(env, stream_id, env->context, NULL, &id), TRZ_ERROR_CAPTURE);
	expect_capture(env, own, TRZ_CAPTURE_INVALIDATED);
	end_without_graph(env, own);
	expect_ok(SLOT(env, stream_id, env->context, NULL, &id));
}

/* The thread's default stream is a blocking one. */
static void legacy_stream_may_be_asked_but_not_used(struct contract_env *env)
{
	trz_capture_status status = TRZ_CAPTURE_NONE;
	uint64_t id = 0;
	trz_stream own = (trz_stream)2;
	trz_event event = make_event(env);
	OPS(env, capture_begin, env->context, own, TRZ_CAPTURE_RELAXED);
	expect_status(SLOT(env, stream_capture, env->context, NULL, &status, &id), TRZ_ERROR_CAPTURE);
	expect_capture(env, own, TRZ_CAPTURE_ACTIVE);
	expect_status(SLOT(env, event_record, env->context, event, NULL), TRZ_ERROR_CAPTURE);
	expect_capture(env, own, TRZ_CAPTURE_INVALIDATED);
	end_without_graph(env, own);
	expect_ok(SLOT(env, event_record, env->context, event, NULL));
	expect_ok(SLOT(env, event_sync, env->context, event));
	expect_ok(SLOT(env, event_destroy, env->context, event));
}

/* In any mode, and even if the captured stream is not blocking: the default stream cannot tell. */
static void event_of_a_context_ends_captures(struct contract_env *env)
{
	trz_stream stream = OPS(env, stream_create, env->context);
	trz_event event = make_event(env);
	OPS(env, capture_begin, env->context, stream, TRZ_CAPTURE_RELAXED);
	trz_status status = SLOT(env, context_record, env->context, event);
	if (status == TRZ_ERROR_NOT_SUPPORTED) {
		end_with_graph(env, stream);
	} else {
		expect_status(status, TRZ_ERROR_CAPTURE);
		expect_capture(env, stream, TRZ_CAPTURE_INVALIDATED);
		end_without_graph(env, stream);
		expect_ok(SLOT(env, context_record, env->context, event));
	}
	expect_ok(SLOT(env, event_sync, env->context, event));
	expect_ok(SLOT(env, event_destroy, env->context, event));
	OPS(env, stream_destroy, env->context, stream);
}

const struct contract_case contract_capture_cases[] = {
	{"captured_stream_says_so", captured_stream_says_so, ON_H200},
	{"id_of_a_captured_stream_ends_its_capture", id_of_a_captured_stream_ends_its_capture, ON_H200},
	{"events_may_be_made_and_recorded_elsewhere", events_may_be_made_and_recorded_elsewhere, ON_H200},
	{"query_in_the_capturing_thread_ends_the_capture", query_in_the_capturing_thread_ends_the_capture, ON_H200},
	{"captured_work_runs_when_launched", captured_work_runs_when_launched, ON_H200},
	{"waiting_stream_joins_the_capture", waiting_stream_joins_the_capture, ON_H200},
	{"captured_event_cannot_be_queried", captured_event_cannot_be_queried, ON_H200},
	{"event_from_outside_is_refused", event_from_outside_is_refused, ON_H200},
	{"allocation_invalidates_silently", allocation_invalidates_silently, ON_H200},
	{"relaxed_modes_allow_allocation", relaxed_modes_allow_allocation, ON_H200},
	{"global_captures_bind_other_threads", global_captures_bind_other_threads, ON_H200},
	{"memory_is_laid_in_relaxed_mode", memory_is_laid_in_relaxed_mode, ON_H200},
	{"legacy_stream_may_be_asked_but_not_used", legacy_stream_may_be_asked_but_not_used, ON_H200},
	{"id_of_the_legacy_stream_ends_captures", id_of_the_legacy_stream_ends_captures, ON_H200},
	{"event_of_a_context_ends_captures", event_of_a_context_ends_captures, ON_H200},
	{NULL, NULL, NULL},
};
