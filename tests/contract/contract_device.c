/* SPDX-License-Identifier: Apache-2.0
 *
 * Contract cases: devices, contexts and the calling thread's current one, time.
 */
#include "contract.h"

#include <pthread.h>
#include <string.h>

#include "base/bits.h"

/* ---- devices ------------------------------------------------------------------------------------ */

static void device_facts_are_sane(struct contract_env *env)
{
	int count = 0;
	trz_device_info info = {0};
	expect_ok(SLOT(env, device_count, &count));
	assert_true(count > 0);
	for (int i = 0; i < count; i++) {
		expect_ok(SLOT(env, device_info, i, &info));
		assert_true(memchr(info.name, '\0', sizeof info.name) != NULL && info.name[0] != '\0');
		assert_true(info.total_bytes > 0);
		assert_true(is_power_of_two(info.granularity));
		assert_true(info.vmm || (!info.rdma_with_vmm && !info.export_fd && !info.export_fabric));
		assert_true(info.compute_major > 0);
	}
}

static void absent_devices_are_refused(struct contract_env *env)
{
	int count = 0;
	trz_device_info info = {.total_bytes = 1};
	trz_context context = env;
	bool can = true;
	expect_ok(SLOT(env, device_count, &count));
	expect_status(SLOT(env, device_info, count, &info), TRZ_ERROR_NO_DEVICE);
	expect_status(SLOT(env, device_info, -1, &info), TRZ_ERROR_NO_DEVICE);
	expect_status(SLOT(env, context_retain, count, NULL, &context), TRZ_ERROR_NO_DEVICE);
	expect_status(SLOT(env, peer_access, env->device, count, &can), TRZ_ERROR_NO_DEVICE);
	assert_int_equal(info.total_bytes, 1);
	assert_ptr_equal(context, env);
	assert_true(can);
}

static void device_reaches_itself(struct contract_env *env)
{
	bool can = false;
	expect_ok(SLOT(env, peer_access, env->device, env->device, &can));
	assert_true(can);
}

static void clock_does_not_go_back(struct contract_env *env)
{
	uint64_t before = 0, after = 0;
	for (int i = 0; i < 1000; i++) {
		expect_ok(SLOT(env, clock_ns, &after));
		assert_true(after >= before);
		before = after;
	}
}

/* ---- contexts ----------------------------------------------------------------------------------- */

/* Calls every slot that takes a context and needs no work on the device. */
static void touch_context(struct contract_env *env, trz_context context)
{
	uint64_t unused = 0, total = 0, id = 0;
	trz_capture_status capture;
	trz_event event = NULL;
	trz_addr address = 0;
	expect_ok(SLOT(env, mem_info, context, &unused, &total));
	expect_ok(SLOT(env, mem_alloc, context, 4096, &address));
	expect_ok(SLOT(env, mem_free, context, address));
	expect_ok(SLOT(env, event_create, context, &event));
	expect_ok(SLOT(env, event_record, context, event, NULL));
	expect_ok(SLOT(env, stream_wait, context, NULL, event));
	expect_ok(SLOT(env, event_sync, context, event));
	expect_ok(SLOT(env, event_query, context, event));
	expect_ok(SLOT(env, event_destroy, context, event));
	expect_ok(SLOT(env, stream_id, context, NULL, &id));
	expect_ok(SLOT(env, stream_capture, context, NULL, &capture, &id));
}

static void thread_without_context_stays_without(struct contract_env *env)
{
	touch_context(env, env->context);
	assert_null(env->ops->context_current(env->self));
}

static void current_context_is_kept(struct contract_env *env)
{
	trz_context own = OPS(env, context_create, env->device);
	OPS(env, context_set, own);
	touch_context(env, env->context);
	assert_ptr_equal(env->ops->context_current(env->self), own);
	touch_context(env, own);
	assert_ptr_equal(env->ops->context_current(env->self), own);
	OPS(env, context_set, NULL);
	OPS(env, context_destroy, own);
}

static void failed_call_keeps_current_context(struct contract_env *env)
{
	trz_addr address = 1;
	trz_context own = OPS(env, context_create, env->device);
	OPS(env, context_set, own);
	expect_status(SLOT(env, mem_alloc, env->context, 2 * env->info.total_bytes, &address),
	              TRZ_ERROR_OUT_OF_MEMORY);
	assert_int_equal(address, 1);
	assert_ptr_equal(env->ops->context_current(env->self), own);
	OPS(env, context_set, NULL);
	OPS(env, context_destroy, own);
}

static void *touch_in_thread(void *argument)
{
	struct contract_env *env = argument;
	touch_context(env, env->context);
	return env->ops->context_current(env->self);
}

static void any_thread_may_call(struct contract_env *env)
{
	pthread_t thread;
	void *left = env;
	OPS(env, context_set, env->context);
	assert_int_equal(pthread_create(&thread, NULL, touch_in_thread, env), 0);
	assert_int_equal(pthread_join(thread, &left), 0);
	assert_null(left);
	OPS(env, context_set, NULL);
}

static void retain_prefers_wanted_then_current_then_primary(struct contract_env *env)
{
	trz_context got = NULL;
	trz_context own = OPS(env, context_create, env->device);
	trz_context other = OPS(env, context_create, env->device);
	OPS(env, context_set, other);
	expect_ok(SLOT(env, context_retain, env->device, own, &got));
	assert_ptr_equal(got, own);
	expect_ok(SLOT(env, context_release, env->device, got));
	expect_ok(SLOT(env, context_retain, env->device, NULL, &got));
	assert_ptr_equal(got, other);
	expect_ok(SLOT(env, context_release, env->device, got));
	OPS(env, context_set, NULL);
	expect_ok(SLOT(env, context_retain, env->device, NULL, &got));
	assert_ptr_equal(got, env->context);
	expect_ok(SLOT(env, context_release, env->device, got));
	OPS(env, context_destroy, other);
	OPS(env, context_destroy, own);
}

/* Of two users of the primary context one found it current; the first to leave must take nothing from the other. */
static void primary_context_outlives_one_of_two_users(struct contract_env *env)
{
	trz_context second = NULL;
	OPS(env, context_set, env->context);
	expect_ok(SLOT(env, context_retain, env->device, NULL, &second));
	assert_ptr_equal(second, env->context);
	expect_ok(SLOT(env, context_release, env->device, second));
	OPS(env, context_set, NULL);
	touch_context(env, env->context);
}

const struct contract_case contract_device_cases[] = {
	{"device_facts_are_sane", device_facts_are_sane, ON_H200},
	{"absent_devices_are_refused", absent_devices_are_refused, ON_H200},
	{"device_reaches_itself", device_reaches_itself, ON_H200},
	{"clock_does_not_go_back", clock_does_not_go_back, ON_H200},
	{"thread_without_context_stays_without", thread_without_context_stays_without, ON_H200},
	{"current_context_is_kept", current_context_is_kept, ON_H200},
	{"failed_call_keeps_current_context", failed_call_keeps_current_context, ON_H200},
	{"any_thread_may_call", any_thread_may_call, ON_H200},
	{"retain_prefers_wanted_then_current_then_primary", retain_prefers_wanted_then_current_then_primary,
	 ON_H200},
	{"primary_context_outlives_one_of_two_users", primary_context_outlives_one_of_two_users,
	 ON_H200},
	{NULL, NULL, NULL},
};
