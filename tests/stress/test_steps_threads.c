/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads that allocate while others end steps, ask what grows and set callbacks for warnings, which allocate.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "rig.h"

enum { THREADS = 3, ROUNDS = 400, HELD = 8 };

static struct rig r;
static atomic_bool done;
static atomic_uint warned;

static void warn(void *user, const trz_warning_info *info)
{
	void *p;
	(void)user;
	atomic_fetch_add(&warned, info->warning != 0);
	if (trz_alloc(r.heap, KIB(64), 0, NULL, &p) == TRZ_OK)
		trz_free(r.heap, p);
}

static void *allocate(void *arg)
{
	uint64_t size = MIB(1) + (uint64_t)(uintptr_t)arg;
	void *held[HELD] = {NULL};
	for (unsigned i = 0; i < ROUNDS * HELD; i++) {
		trz_free(r.heap, held[i % HELD]);
		held[i % HELD] = NULL;
		trz_alloc(r.heap, size * (1 + i % 30), 0, NULL, &held[i % HELD]);
	}
	for (int i = 0; i < HELD; i++)
		trz_free(r.heap, held[i]);
	return NULL;
}

static void *end_steps(void *arg)
{
	(void)arg;
	while (!atomic_load(&done))
		trz_step(r.heap);
	return NULL;
}

static void *ask(void *arg)
{
	trz_growth_info grown[8];
	trz_forecast_info when;
	size_t count;
	(void)arg;
	for (bool on = false; !atomic_load(&done); on = !on) {
		trz_growth(r.heap, grown, LENGTH(grown), &count);
		trz_forecast(r.heap, &when);
		trz_set_warning_callback(r.heap, on ? warn : NULL, NULL);
	}
	return NULL;
}

static void test_steps_beside_allocations(void **state)
{
	(void)state;
	pthread_t workers[THREADS], others[2];
	r = rig_open(MIB(512), "oom_report:off");
	assert_ok(trz_set_warning_callback(r.heap, warn, NULL));
	assert_int_equal(pthread_create(&others[0], NULL, end_steps, NULL), 0);
	assert_int_equal(pthread_create(&others[1], NULL, ask, NULL), 0);
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&workers[i], NULL, allocate, (void *)(i * 4096)), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(workers[i], NULL);
	atomic_store(&done, true);
	for (int i = 0; i < 2; i++)
		pthread_join(others[i], NULL);
	assert_ok(trz_set_warning_callback(r.heap, warn, NULL));
	void *most = rig_alloc(&r, MIB(480), NULL);
	assert_ok(trz_poll(r.heap));
	assert_true(atomic_load(&warned) > 0);
	rig_free(&r, most);
	rig_check(&r);
	rig_sync(&r);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_steps_beside_allocations)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
