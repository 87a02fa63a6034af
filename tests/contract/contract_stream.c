/* SPDX-License-Identifier: Apache-2.0
 *
 * Contract cases: events, streams and their ids, capture modes.
 */
#include "contract.h"

#include <pthread.h>
#include <stdlib.h>

static trz_event make_event(struct contract_env *env)
{
	trz_event event = NULL;
	expect_ok(SLOT(env, event_create, env->context, &event));
	assert_non_null(event);
	return event;
}

/* Sets the flag that the held stream waits for; it may be reading it already. */
static void let_go(struct contract_env *env)
{
	__atomic_store_n(env->held, 1, __ATOMIC_RELEASE);
}

/* ---- events ------------------------------------------------------------------------------------- */

static void fresh_event_has_passed(struct contract_env *env)
{
	trz_event event = make_event(env);
	expect_ok(SLOT(env, event_query, env->context, event));
	expect_ok(SLOT(env, event_sync, env->context, event));
	expect_ok(SLOT(env, event_destroy, env->context, event));
}

static void event_passes_with_the_work_before_it(struct contract_env *env)
{
	trz_stream stream = OPS(env, stream_create, env->context);
	trz_event event = make_event(env);
	OPS(env, hold, env->context, stream, env->held);
	expect_ok(SLOT(env, event_record, env->context, event, stream));
	expect_status(SLOT(env, event_query, env->context, event), TRZ_NOT_READY);
	let_go(env);
	expect_ok(SLOT(env, event_sync, env->context, event));
	expect_ok(SLOT(env, event_query, env->context, event));
	expect_ok(SLOT(env, event_destroy, env->context, event));
	OPS(env, stream_destroy, env->context, stream);
}

static void event_covers_nothing_after_it(struct contract_env *env)
{
	trz_stream stream = OPS(env, stream_create, env->context);
	trz_event event = make_event(env);
	expect_ok(SLOT(env, event_record, env->context, event, stream));
	OPS(env, hold, env->context, stream, env->held);
	expect_ok(SLOT(env, event_sync, env->context, event));
	expect_ok(SLOT(env, event_query, env->context, event));
	let_go(env);
	OPS(env, stream_sync, env->context, stream);
	expect_ok(SLOT(env, event_destroy, env->context, event));
	OPS(env, stream_destroy, env->context, stream);
}

/* False: NOT_SUPPORTED, as drivers before CUDA 12.5 answer. */
static bool record_context(struct contract_env *env, trz_event event)
{
	trz_status status = SLOT(env, context_record, env->context, event);
	if (status != TRZ_ERROR_NOT_SUPPORTED)
		expect_ok(status);
	return status == TRZ_OK;
}

static void event_of_a_context_covers_all_its_streams(struct contract_env *env)
{
	trz_stream stream = OPS(env, stream_create, env->context);
	trz_stream other = OPS(env, stream_create, env->context);
	trz_event event = make_event(env);
	OPS(env, hold, env->context, stream, env->held);
	if (record_context(env, event)) {
		expect_status(SLOT(env, event_query, env->context, event), TRZ_NOT_READY);
		OPS(env, stream_sync, env->context, other);
		expect_status(SLOT(env, event_query, env->context, event), TRZ_NOT_READY);
	}
	let_go(env);
	expect_ok(SLOT(env, event_sync, env->context, event));
	expect_ok(SLOT(env, event_query, env->context, event));
	expect_ok(SLOT(env, event_destroy, env->context, event));
	OPS(env, stream_destroy, env->context, other);
	OPS(env, stream_destroy, env->context, stream);
}

static void event_of_a_context_covers_nothing_after_it(struct contract_env *env)
{
	trz_stream stream = OPS(env, stream_create, env->context);
	trz_event event = make_event(env);
	record_context(env, event);
	OPS(env, hold, env->context, stream, env->held);
	expect_ok(SLOT(env, event_sync, env->context, event));
	let_go(env);
	OPS(env, stream_sync, env->context, stream);
	expect_ok(SLOT(env, event_destroy, env->context, event));
	OPS(env, stream_destroy, env->context, stream);
}

static void event_recorded_again_stands_for_the_new_work(struct contract_env *env)
{
	trz_stream stream = OPS(env, stream_create, env->context);
	trz_event event = make_event(env);
	expect_ok(SLOT(env, event_record, env->context, event, stream));
	expect_ok(SLOT(env, event_sync, env->context, event));
	OPS(env, hold, env->context, stream, env->held);
	expect_ok(SLOT(env, event_record, env->context, event, stream));
	expect_status(SLOT(env, event_query, env->context, event), TRZ_NOT_READY);
	let_go(env);
	expect_ok(SLOT(env, event_sync, env->context, event));
	expect_ok(SLOT(env, event_destroy, env->context, event));
	OPS(env, stream_destroy, env->context, stream);
}

static void pending_event_may_be_destroyed(struct contract_env *env)
{
	trz_stream stream = OPS(env, stream_create, env->context);
	trz_event event = make_event(env);
	OPS(env, hold, env->context, stream, env->held);
	expect_ok(SLOT(env, event_record, env->context, event, stream));
	expect_ok(SLOT(env, event_destroy, env->context, event));
	let_go(env);
	OPS(env, stream_sync, env->context, stream);
	OPS(env, stream_destroy, env->context, stream);
}

static void event_outlives_its_stream(struct contract_env *env)
{
	trz_stream stream = OPS(env, stream_create, env->context);
	trz_event event = make_event(env);
	expect_ok(SLOT(env, event_record, env->context, event, stream));
	OPS(env, stream_destroy, env->context, stream);
	expect_ok(SLOT(env, event_sync, env->context, event));
	expect_ok(SLOT(env, event_query, env->context, event));
	expect_ok(SLOT(env, event_destroy, env->context, event));
}

static void streams_wait_for_each_other(struct contract_env *env)
{
	uint8_t seen = 0;
	trz_addr address = 0;
	trz_stream writer = OPS(env, stream_create, env->context);
	trz_stream reader = OPS(env, stream_create, env->context);
	trz_event written = make_event(env), seen_it = make_event(env);
	expect_ok(SLOT(env, mem_alloc, env->context, 4096, &address));
	OPS(env, hold, env->context, writer, env->held);
	OPS(env, fill, env->context, writer, address, 4096, 0x99);
	expect_ok(SLOT(env, event_record, env->context, written, writer));
	expect_ok(SLOT(env, stream_wait, env->context, reader, written));
	expect_ok(SLOT(env, event_record, env->context, seen_it, reader));
	expect_status(SLOT(env, event_query, env->context, seen_it), TRZ_NOT_READY);
	let_go(env);
	OPS(env, read, env->context, reader, &seen, address + 4095, 1);
	OPS(env, stream_sync, env->context, reader);
	assert_int_equal(seen, 0x99);
	expect_ok(SLOT(env, event_query, env->context, seen_it));
	expect_ok(SLOT(env, event_query, env->context, written));
	expect_ok(SLOT(env, mem_free, env->context, address));
	expect_ok(SLOT(env, event_destroy, env->context, written));
	expect_ok(SLOT(env, event_destroy, env->context, seen_it));
	OPS(env, stream_destroy, env->context, reader);
	OPS(env, stream_destroy, env->context, writer);
}

/* ---- several contexts --------------------------------------------------------------------------- */

/* Makes another context of the device, and one of a second device if there is one. */
static unsigned other_contexts(struct contract_env *env, trz_context contexts[2])
{
	int devices = 0;
	expect_ok(SLOT(env, device_count, &devices));
	contexts[0] = OPS(env, context_create, env->device);
	if (devices > 1)
		contexts[1] = OPS(env, context_create, env->device + 1);
	return devices > 1 ? 2 : 1;
}

static trz_context context_of(struct contract_env *env, trz_stream stream)
{
	trz_context found = NULL;
	expect_ok(SLOT(env, stream_context, env->context, stream, &found));
	return found;
}

/* The context of a stream; without a given context, a default stream is the current context's. */
static trz_context current_of(struct contract_env *env, trz_stream stream)
{
	trz_context found = env->context;
	expect_ok(SLOT(env, stream_context, NULL, stream, &found));
	return found;
}

static void streams_tell_their_context(struct contract_env *env)
{
	trz_context others[2];
	unsigned count = other_contexts(env, others);
	trz_stream own = OPS(env, stream_create, env->context);
	assert_true(context_of(env, own) == env->context);
	for (uintptr_t special = 0; special <= 2; special++) {
		assert_true(context_of(env, (trz_stream)special) == env->context);
		assert_true(current_of(env, (trz_stream)special) == NULL);
		OPS(env, context_set, others[0]);
		assert_true(current_of(env, (trz_stream)special) == others[0]);
		OPS(env, context_set, NULL);
	}
	for (unsigned i = 0; i < count; i++) {
		trz_stream stream = OPS(env, stream_create, others[i]);
		assert_true(context_of(env, stream) == others[i]);
		OPS(env, stream_destroy, others[i], stream);
		OPS(env, context_destroy, others[i]);
	}
	OPS(env, stream_destroy, env->context, own);
}

static void streams_of_other_contexts_can_be_asked(struct contract_env *env)
{
	trz_context others[2];
	unsigned count = other_contexts(env, others);
	trz_stream own = OPS(env, stream_create, env->context);
	uint64_t own_id, id, again, capture;
	expect_ok(SLOT(env, stream_id, env->context, own, &own_id));
	for (unsigned i = 0; i < count; i++) {
		trz_capture_status status = TRZ_CAPTURE_ACTIVE;
		trz_stream stream = OPS(env, stream_create, others[i]);
		expect_ok(SLOT(env, stream_id, env->context, stream, &id));
		expect_ok(SLOT(env, stream_id, others[i], stream, &again));
		assert_true(id == again && id != own_id);
		expect_ok(SLOT(env, stream_capture, env->context, stream, &status, &capture));
		assert_int_equal(status, TRZ_CAPTURE_NONE);
		OPS(env, stream_destroy, others[i], stream);
		OPS(env, context_destroy, others[i]);
	}
	OPS(env, stream_destroy, env->context, own);
}

static void events_are_recorded_in_their_own_context(struct contract_env *env)
{
	trz_context others[2];
	unsigned count = other_contexts(env, others);
	trz_event own = make_event(env);
	for (unsigned i = 0; i < count; i++) {
		trz_event event = NULL;
		trz_stream stream = OPS(env, stream_create, others[i]);
		expect_ok(SLOT(env, event_create, others[i], &event));
		expect_status(SLOT(env, event_record, others[i], own, stream), TRZ_ERROR_INVALID_ARGUMENT);
		expect_status(SLOT(env, event_record, env->context, own, stream), TRZ_ERROR_INVALID_ARGUMENT);
		expect_status(SLOT(env, event_record, env->context, event, NULL), TRZ_ERROR_INVALID_ARGUMENT);
		expect_ok(SLOT(env, event_record, others[i], event, stream));
		expect_ok(SLOT(env, event_sync, env->context, event));
		expect_ok(SLOT(env, event_query, env->context, event));
		expect_ok(SLOT(env, event_destroy, env->context, event));
		OPS(env, stream_destroy, others[i], stream);
		OPS(env, context_destroy, others[i]);
	}
	expect_ok(SLOT(env, event_destroy, env->context, own));
}

static void streams_wait_for_events_of_other_contexts(struct contract_env *env)
{
	trz_context others[2];
	unsigned count = other_contexts(env, others);
	trz_stream own = OPS(env, stream_create, env->context);
	trz_event done = make_event(env);
	OPS(env, hold, env->context, own, env->held);
	expect_ok(SLOT(env, event_record, env->context, done, own));
	trz_stream streams[2];
	trz_event after[2];
	for (unsigned i = 0; i < count; i++) {
		streams[i] = OPS(env, stream_create, others[i]);
		expect_ok(SLOT(env, event_create, others[i], &after[i]));
		expect_ok(SLOT(env, stream_wait, others[i], streams[i], done));
		expect_ok(SLOT(env, event_record, others[i], after[i], streams[i]));
		expect_status(SLOT(env, event_query, others[i], after[i]), TRZ_NOT_READY);
	}
	let_go(env);
	for (unsigned i = 0; i < count; i++) {
		expect_ok(SLOT(env, event_sync, others[i], after[i]));
		expect_ok(SLOT(env, event_query, env->context, done));
		expect_ok(SLOT(env, event_destroy, others[i], after[i]));
		OPS(env, stream_destroy, others[i], streams[i]);
		OPS(env, context_destroy, others[i]);
	}
	expect_ok(SLOT(env, event_destroy, env->context, done));
	OPS(env, stream_destroy, env->context, own);
}

/* ---- ids ---------------------------------------------------------------------------------------- */

static uint64_t id_of(struct contract_env *env, trz_stream stream)
{
	uint64_t id = 0;
	expect_ok(SLOT(env, stream_id, env->context, stream, &id));
	return id;
}

static void ids_are_stable_and_never_used_again(struct contract_env *env)
{
	enum { STREAMS = 8 };
	uint64_t ids[STREAMS];
	for (int i = 0; i < STREAMS; i++) {
		trz_stream stream = OPS(env, stream_create, env->context);
		ids[i] = id_of(env, stream);
		assert_true(id_of(env, stream) == ids[i]);
		OPS(env, stream_destroy, env->context, stream);
		for (int j = 0; j < i; j++)
			assert_true(ids[i] != ids[j]);
		assert_true(ids[i] != id_of(env, NULL));
	}
}

static void *id_of_own_stream(void *argument)
{
	uint64_t *id = malloc(sizeof *id);
	assert_non_null(id);
	*id = id_of(argument, (trz_stream)2);
	return id;
}

static void special_streams_have_ids(struct contract_env *env)
{
	pthread_t thread;
	void *other = NULL;
	const uint64_t legacy = id_of(env, NULL), own = id_of(env, (trz_stream)2);
	assert_true(id_of(env, (trz_stream)1) == legacy);
	assert_true(own != legacy);
	assert_true(id_of(env, (trz_stream)2) == own);
	assert_int_equal(pthread_create(&thread, NULL, id_of_own_stream, env), 0);
	assert_int_equal(pthread_join(thread, &other), 0);
	assert_true(*(uint64_t *)other != own);
	assert_true(*(uint64_t *)other != legacy);
	free(other);
}

/* ---- capture ------------------------------------------------------------------------------------ */

static void idle_streams_are_not_captured(struct contract_env *env)
{
	trz_capture_status status = TRZ_CAPTURE_ACTIVE;
	uint64_t id = 0;
	trz_stream stream = OPS(env, stream_create, env->context);
	expect_ok(SLOT(env, stream_capture, env->context, stream, &status, &id));
	assert_int_equal(status, TRZ_CAPTURE_NONE);
	status = TRZ_CAPTURE_ACTIVE;
	expect_ok(SLOT(env, stream_capture, env->context, NULL, &status, &id));
	assert_int_equal(status, TRZ_CAPTURE_NONE);
	OPS(env, stream_destroy, env->context, stream);
}

static void *exchange_in_thread(void *argument)
{
	trz_capture_mode *mode = malloc(sizeof *mode);
	assert_non_null(mode);
	*mode = TRZ_CAPTURE_THREAD_LOCAL;
	expect_ok(SLOT((struct contract_env *)argument, capture_mode, mode));
	return mode;
}

static void capture_mode_is_exchanged_by_thread(struct contract_env *env)
{
	pthread_t thread;
	void *other = NULL;
	trz_capture_mode mode = TRZ_CAPTURE_RELAXED;
	expect_ok(SLOT(env, capture_mode, &mode));
	assert_int_equal(mode, TRZ_CAPTURE_GLOBAL);
	assert_int_equal(pthread_create(&thread, NULL, exchange_in_thread, env), 0);
	assert_int_equal(pthread_join(thread, &other), 0);
	assert_int_equal(*(trz_capture_mode *)other, TRZ_CAPTURE_GLOBAL);
	free(other);
	expect_ok(SLOT(env, capture_mode, &mode));
	assert_int_equal(mode, TRZ_CAPTURE_RELAXED);
}

/* ---- host functions ------------------------------------------------------------------------------- */

enum { CALLED_BACK = 5 };

struct called_back {
	struct contract_env *env;
	trz_stream stream;
	trz_event event;
	trz_status seen[CALLED_BACK];
};

static void call_from_host_function(void *arg)
{
	struct called_back *c = arg;
	struct contract_env *env = c->env;
	trz_capture_mode mode = TRZ_CAPTURE_GLOBAL;
	trz_capture_status status;
	uint64_t id, bytes;
	c->seen[0] = SLOT(env, stream_id, env->context, c->stream, &id);
	c->seen[1] = SLOT(env, stream_capture, env->context, c->stream, &status, &id);
	c->seen[2] = SLOT(env, event_query, env->context, c->event);
	c->seen[3] = SLOT(env, mem_info, env->context, &bytes, &bytes);
	c->seen[4] = SLOT(env, capture_mode, &mode);
}

/* The contract leaves open which calls are refused, but not how, nor that a refusal breaks nothing. */
static void host_functions_may_be_refused(struct contract_env *env)
{
	struct called_back c = {.env = env, .stream = OPS(env, stream_create, env->context), .event = make_event(env)};
	OPS(env, call_back, env->context, c.stream, call_from_host_function, &c);
	OPS(env, stream_sync, env->context, c.stream);
	for (int i = 0; i < CALLED_BACK; i++)
		if (c.seen[i] != TRZ_OK)
			expect_status(c.seen[i], TRZ_ERROR_NOT_PERMITTED);
	expect_ok(SLOT(env, event_query, env->context, c.event));
	expect_ok(SLOT(env, event_destroy, env->context, c.event));
	OPS(env, stream_destroy, env->context, c.stream);
}

const struct contract_case contract_stream_cases[] = {
	{"fresh_event_has_passed", fresh_event_has_passed, ON_H200},
	{"event_passes_with_the_work_before_it", event_passes_with_the_work_before_it, ON_H200},
	{"event_covers_nothing_after_it", event_covers_nothing_after_it, ON_H200},
	{"event_recorded_again_stands_for_the_new_work", event_recorded_again_stands_for_the_new_work,
	 ON_H200},
	{"event_of_a_context_covers_all_its_streams", event_of_a_context_covers_all_its_streams, ON_H200},
	{"event_of_a_context_covers_nothing_after_it", event_of_a_context_covers_nothing_after_it, ON_H200},
	{"pending_event_may_be_destroyed", pending_event_may_be_destroyed, ON_H200},
	{"event_outlives_its_stream", event_outlives_its_stream, ON_H200},
	{"streams_wait_for_each_other", streams_wait_for_each_other, ON_H200},
	{"streams_tell_their_context", streams_tell_their_context, ON_H200},
	{"streams_of_other_contexts_can_be_asked", streams_of_other_contexts_can_be_asked, ON_H200},
	{"events_are_recorded_in_their_own_context", events_are_recorded_in_their_own_context, ON_H200},
	{"streams_wait_for_events_of_other_contexts", streams_wait_for_events_of_other_contexts, ON_H200},
	{"ids_are_stable_and_never_used_again", ids_are_stable_and_never_used_again, ON_H200},
	{"special_streams_have_ids", special_streams_have_ids, ON_H200},
	{"idle_streams_are_not_captured", idle_streams_are_not_captured, ON_H200},
	{"capture_mode_is_exchanged_by_thread", capture_mode_is_exchanged_by_thread, ON_H200},
	{"host_functions_may_be_refused", host_functions_may_be_refused, ON_H200},
	{NULL, NULL, NULL},
};
