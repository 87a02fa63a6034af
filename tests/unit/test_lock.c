/* SPDX-License-Identifier: Apache-2.0
 *
 * The spinlock: who makes way for whom, that no thread waits for ever, and to whom it is biased.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

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

/* ---- biases ---- */

/* Guards keeping and letting go, as the heap lock does. */
static pthread_mutex_t keeper = PTHREAD_MUTEX_INITIALIZER;

static void keep_and_let_go(struct spinlock *l)
{
	pthread_mutex_lock(&keeper);
	spinlock_keep(l);
	spinlock_let_go(l);
	pthread_mutex_unlock(&keeper);
}

/* Takes the lock as slots are taken, once it is no longer kept. */
static void take(struct spinlock *l)
{
	while (!spinlock_try(l) && !spinlock_wait(l, 0))
		;
}

/* By which bias this thread can take the lock; BIASES: by none. */
static unsigned bias_of(struct spinlock *l)
{
	take(l);
	unsigned hold = l->hold;
	assert_int_equal(hold < BIASES && atomic_load(&l->inside[hold]), hold < BIASES);
	spinlock_give(l);
	assert_false(hold < BIASES && atomic_load(&l->inside[hold]));
	return hold;
}

static bool is_biased(const struct spinlock *l)
{
	return atomic_load(&l->state) >= BIAS_FIRST;
}

/* Keeps the lock and lets it go until this thread has a bias; the times that took, 0: none in very many. */
static unsigned work_for_bias(struct spinlock *l)
{
	for (unsigned times = 1; times < 1000000; times++) {
		keep_and_let_go(l);
		if (is_biased(l))
			return times;
	}
	return 0;
}

static void skip_without_biases(void)
{
	struct spinlock l = {0};
	spinlock_allow_biases();
	if (!work_for_bias(&l))
		skip();
}

static void *intrude(void *arg)
{
	assert_int_equal(bias_of(arg), BIASES);
	return NULL;
}

static void run_intruder(struct spinlock *l)
{
	pthread_t thread;
	assert_int_equal(pthread_create(&thread, NULL, intrude, l), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

static void test_a_thread_alone_gets_the_lock_biased_to_it(void **state)
{
	(void)state;
	skip_without_biases();
	struct spinlock l = {0};
	assert_int_equal(bias_of(&l), BIASES);
	assert_true(work_for_bias(&l));
	for (int i = 0; i < 3; i++) {
		assert_int_equal(bias_of(&l), 0);
		keep_and_let_go(&l);  /* its own pause does not end the bias */
		assert_true(is_biased(&l));
	}
}

static void test_each_bias_that_another_ends_takes_longer_to_come_back_and_the_last_does_not(void **state)
{
	(void)state;
	skip_without_biases();
	struct spinlock l = {0};
	unsigned last = 0;
	for (int i = 0; i < BIASES; i++) {
		unsigned times = work_for_bias(&l);
		assert_true(times > last);
		last = times;
		assert_int_equal(bias_of(&l), i);
		run_intruder(&l);
		assert_false(is_biased(&l));
		assert_int_equal(bias_of(&l), BIASES);
	}
	assert_int_equal(work_for_bias(&l), 0);
}

static void *keep_once(void *arg)
{
	keep_and_let_go(arg);
	return NULL;
}

static void test_who_keeps_a_lock_ends_the_bias_of_another(void **state)
{
	(void)state;
	skip_without_biases();
	struct spinlock l = {0};
	pthread_t thread;
	assert_true(work_for_bias(&l));
	assert_int_equal(pthread_create(&thread, NULL, keep_once, &l), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_false(is_biased(&l));
}

enum { LOCKS = 1000, OWNER_ROUNDS = 90, OWNER_TAKES = 300 };

static struct {
	struct spinlock lock;
	uint64_t sum, other;         /* guarded by it, or by its being kept */
	atomic_bool done;
} owned;

static void add(uint64_t *takes)
{
	take(&owned.lock);
	owned.sum++;
	owned.other = owned.sum;
	spinlock_give(&owned.lock);
	++*takes;
}

static void *own_mostly(void *arg)
{
	for (int round = 0; round < OWNER_ROUNDS; round++) {
		for (int i = 0; i < OWNER_TAKES; i++)
			add(arg);
		keep_and_let_go(&owned.lock);
	}
	return NULL;
}

/* Comes in between at odd times: sometimes takes, sometimes keeps. */
static void *disturb(void *arg)
{
	uint64_t *takes = arg;
	for (unsigned i = 1; !atomic_load(&owned.done); i++) {
		if (i % 3) {
			add(takes);
		} else {
			pthread_mutex_lock(&keeper);
			spinlock_keep(&owned.lock);
			assert_int_equal(owned.sum, owned.other);
			owned.sum++;
			owned.other = owned.sum;
			++*takes;
			spinlock_let_go(&owned.lock);
			pthread_mutex_unlock(&keeper);
		}
		thread_sleep(i % 7 ? 10000 : 200000);
	}
	return NULL;
}

/* A bias that did not keep others out, or an end of one that did not wait, would lose some of the sum. Begins anew with
 * a fresh lock many times, since a lock has few biases. */
static void test_a_biased_lock_keeps_others_out(void **state)
{
	(void)state;
	for (int i = 0; i < LOCKS; i++) {
		pthread_t owner, others[2];
		uint64_t takes[3] = {0};
		memset(&owned, 0, sizeof owned);
		assert_int_equal(pthread_create(&owner, NULL, own_mostly, &takes[0]), 0);
		for (int other = 0; other < 2; other++)
			assert_int_equal(pthread_create(&others[other], NULL, disturb, &takes[1 + other]), 0);
		assert_int_equal(pthread_join(owner, NULL), 0);
		atomic_store(&owned.done, true);
		for (int other = 0; other < 2; other++)
			assert_int_equal(pthread_join(others[other], NULL), 0);
		assert_int_equal(owned.sum, takes[0] + takes[1] + takes[2]);
	}
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
		cmocka_unit_test(test_a_thread_alone_gets_the_lock_biased_to_it),
		cmocka_unit_test(test_each_bias_that_another_ends_takes_longer_to_come_back_and_the_last_does_not),
		cmocka_unit_test(test_who_keeps_a_lock_ends_the_bias_of_another),
		cmocka_unit_test(test_a_biased_lock_keeps_others_out),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
