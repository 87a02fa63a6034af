/* SPDX-License-Identifier: Apache-2.0
 *
 * The spinlock: who makes way for whom, and that no thread waits for ever.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "bits.h"
#include "lock.h"
#include "testing.h"

static void take_often(struct spinlock *l, unsigned times)
{
	for (unsigned i = 0; i < times; i++) {
		spinlock_take(l);
		spinlock_give(l);
	}
}

/* How many waits it takes, with so many takes between them, until a thread makes way; 0: more than 100. */
static unsigned waits_until_way(struct spinlock *l, struct spinlock_waits *own, unsigned takes)
{
	for (unsigned waits = 1; waits <= 100; waits++) {
		if (spinlock_makes_way(l, atomic_load(&l->takes), own))
			return waits;
		take_often(l, takes);
	}
	return 0;
}

static void test_threads_that_meet_now_and_then_spin(void **state)
{
	(void)state;
	struct spinlock l = {0};
	struct spinlock_waits own = {0};
	assert_int_equal(waits_until_way(&l, &own, 100), 0);
}

/* With work of their own in between, threads meet at a fourth or so of their takes. */
static void test_threads_with_other_work_spin_at_an_occasional_lock(void **state)
{
	(void)state;
	struct spinlock l = {0}, occasional = {.occasional = true};
	struct spinlock_waits own = {0};
	assert_in_range(waits_until_way(&l, &own, 8), 2, 10);
	assert_int_equal(waits_until_way(&occasional, &own, 8), 0);
	assert_in_range(waits_until_way(&occasional, &own, 2), 5, 20);
}

static void test_threads_that_meet_always_make_way_in_turn(void **state)
{
	(void)state;
	struct spinlock l = {0};
	struct spinlock_waits a = {0}, b = {0};
	unsigned first = waits_until_way(&l, &a, 2);
	assert_in_range(first, 2, 10);
	unsigned again = waits_until_way(&l, &a, 2);
	assert_true(again > 2 * first);  /* so that the other one does, meanwhile */
	assert_int_equal(waits_until_way(&l, &b, 2), first);
	assert_true(waits_until_way(&l, &a, 2) < again);
}

static void test_a_wait_for_another_lock_begins_anew(void **state)
{
	(void)state;
	struct spinlock l = {0}, other = {0};
	struct spinlock_waits own = {0};
	for (int i = 0; i < 100; i++) {
		assert_false(spinlock_makes_way(&l, 0, &own));
		assert_false(spinlock_makes_way(&other, 0, &own));
	}
}

static void test_the_count_of_takes_wraps_around(void **state)
{
	(void)state;
	struct spinlock l = {0};
	struct spinlock_waits own = {0};
	atomic_store(&l.takes, UINT32_MAX - 3);
	assert_in_range(waits_until_way(&l, &own, 2), 2, 10);
}

static void test_nobody_waits_for_a_kept_lock(void **state)
{
	(void)state;
	struct spinlock l = {0};
	spinlock_keep(&l);
	assert_true(spinlock_is_kept(&l));
	assert_false(spinlock_try(&l));
	assert_false(spinlock_wait(&l, 0));
	assert_true(spinlock_is_kept(&l));
	spinlock_let_go(&l);
	assert_true(spinlock_try(&l));
	assert_false(spinlock_is_kept(&l));
	spinlock_give(&l);
}

/* ---- real threads ---- */

enum { QUOTA = 20000 };

static struct {
	struct spinlock lock;
	uint64_t sum;                /* guarded by it */
	atomic_uint behind;          /* threads that have not had their quota yet */
} shared;

static void *take_until_all_have(void *arg)
{
	uint64_t *takes = arg;
	while (atomic_load(&shared.behind)) {
		spinlock_take(&shared.lock);
		shared.sum++;
		spinlock_give(&shared.lock);
		if (++*takes == QUOTA)
			atomic_fetch_sub(&shared.behind, 1);
	}
	return NULL;
}

/* Would never end if a thread that always wants the lock could keep it from another. */
static void test_every_thread_gets_its_quota(void **state)
{
	(void)state;
	enum { THREADS = 3 };
	pthread_t threads[THREADS];
	uint64_t takes[THREADS] = {0}, sum = 0;
	atomic_store(&shared.behind, THREADS);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, take_until_all_have, &takes[i]), 0);
	for (int i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_join(threads[i], NULL), 0);
		sum += takes[i];
	}
	assert_int_equal(shared.sum, sum);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_threads_that_meet_now_and_then_spin),
		cmocka_unit_test(test_threads_with_other_work_spin_at_an_occasional_lock),
		cmocka_unit_test(test_nobody_waits_for_a_kept_lock),
		cmocka_unit_test(test_threads_that_meet_always_make_way_in_turn),
		cmocka_unit_test(test_a_wait_for_another_lock_begins_anew),
		cmocka_unit_test(test_the_count_of_takes_wraps_around),
		cmocka_unit_test(test_every_thread_gets_its_quota),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
