/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds with TRZ_ASSERTS stop where a lock is missing. Each break is made in a child, which aborts.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "heap/carve.h"
#include "heap/poll.h"
#include "rig.h"

static int status_of_child(void (*act)(trz_heap *h), trz_heap *h)
{
	int status = 0;
	pid_t child = fork();
	if (child == 0) {
		dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);  /* where the assertion says what is wrong */
		act(h);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	return status;
}

static void with_the_lock(trz_heap *h)
{
	heap_lock(h);
	heap_note_least_locked(h);
	heap_unlock(h);
}

static void without_the_lock(trz_heap *h)
{
	heap_note_least_locked(h);
}

static void after_the_lock(trz_heap *h)
{
	with_the_lock(h);
	heap_note_least_locked(h);
}

static void twice_the_lock(trz_heap *h)
{
	heap_lock(h);
	heap_lock(h);
}

static void an_end_without_the_lock(trz_heap *h)
{
	heap_unlock(h);
}

static void with_the_growth_lock(trz_heap *h)
{
	heap_lock_growth(h);
	heap_poll(h);
	heap_unlock_growth(h);
	if (heap_try_growth(h)) {
		heap_poll(h);
		heap_unlock_growth(h);
	}
}

static void without_the_growth_lock(trz_heap *h)
{
	heap_poll(h);
}

static void after_the_growth_lock(trz_heap *h)
{
	with_the_growth_lock(h);
	heap_poll(h);
}

static void the_locks_in_the_wrong_order(trz_heap *h)
{
	heap_lock(h);
	heap_take_growth(h);
}

static void *hold_both(void *arg)
{
	heap_take_growth(arg);
	heap_lock(arg);
	return NULL;
}

static void hold_elsewhere(trz_heap *h)
{
	pthread_t thread;
	pthread_create(&thread, NULL, hold_both, h);
	pthread_join(thread, NULL);
}

static void with_anothers_lock(trz_heap *h)
{
	hold_elsewhere(h);
	heap_note_least_locked(h);
}

static void with_anothers_growth_lock(trz_heap *h)
{
	hold_elsewhere(h);
	heap_poll(h);
}

static void test_missing_locks_are_noticed(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	rig_free(&r, rig_alloc(&r, MIB(4), NULL));
	void (*const right[])(trz_heap *h) = {with_the_lock, with_the_growth_lock};
	void (*const wrong[])(trz_heap *h) = {without_the_lock,        after_the_lock,        twice_the_lock,
	                                      an_end_without_the_lock, with_anothers_lock,    without_the_growth_lock,
	                                      after_the_growth_lock,   with_anothers_growth_lock,
	                                      the_locks_in_the_wrong_order};
	for (size_t i = 0; i < sizeof right / sizeof *right; i++)
		assert_int_equal(status_of_child(right[i], r.heap), 0);
#ifdef TRZ_ASSERTS
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		int status = status_of_child(wrong[i], r.heap);
		print_message("break %zu ends with status %#x\n", i, (unsigned)status);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	}
#else
	(void)wrong;
#endif
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_missing_locks_are_noticed)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
