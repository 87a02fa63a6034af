/* SPDX-License-Identifier: Apache-2.0
 *
 * Children made by fork() while other threads use the heap: they wait for no lock whose holder is not in the child.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rig.h"

static atomic_bool enough;

/* Keeps both locks busy. */
static void *churn(void *arg)
{
	struct rig *r = arg;
	bool ok = true;
	while (!atomic_load(&enough)) {
		void *small = NULL, *large = NULL;
		ok &= trz_alloc(r->heap, 700, 0, NULL, &small) == TRZ_OK;
		ok &= trz_alloc(r->heap, MIB(5), 0, NULL, &large) == TRZ_OK;
		ok &= trz_free(r->heap, small) == TRZ_OK && trz_free(r->heap, large) == TRZ_OK;
		ok &= trz_trim(r->heap, 0, NULL) == TRZ_OK;
	}
	return ok ? r : NULL;
}

struct inherited {
	void *slot, *block;
	trz_pool *pool;
	trz_pool_state *note;
};

/* In the child, which ends with the number of the first thing that is not as it should be. */
static int use_inherited(struct rig *r, const struct inherited *i)
{
	trz_heap *h = r->heap;
	void *p = r;
	size_t n = 0;
	uint64_t value = 0;
	const trz_status refused[] = {
		trz_alloc(h, 700, 0, NULL, &p),          trz_alloc(h, MIB(1), 0, NULL, &p),
		trz_pool_alloc(h, i->pool, 100, 0, NULL, &p), trz_grow(h, i->block, MIB(9)),
		trz_trim(h, 0, NULL),                    trz_poll(h),
		trz_check(h),                            trz_snapshot(h, "/dev/null"),
		trz_history_start(h, 100),               trz_history_stop(h),
		trz_reset_peaks(h),                      trz_largest_block(h, NULL, &n),
		trz_pool_create(h, (trz_pool **)&p),     trz_pool_begin(h, i->pool, NULL, NULL),
		trz_set_oom_callback(h, NULL, NULL),     trz_set_map_callback(h, NULL, NULL),
		trz_set_frame_callback(h, NULL, NULL, NULL), trz_stream_retire(h, (trz_stream)2),
		trz_export(h, i->block, TRZ_ALLOC_SHARE_FD, &n), trz_enable_peer(h, 1, true),
	};
	for (size_t k = 0; k < sizeof refused / sizeof *refused; k++)
		if (refused[k] != TRZ_ERROR_SHUTDOWN)
			return 1 + (int)k;
	const trz_status silent[] = {
		trz_free(h, i->slot),           trz_free(h, i->block),  trz_free_on(h, i->block, NULL),
		trz_record_stream(h, i->block, NULL), trz_export_end(h, i->block), trz_pool_end(h, i->pool),
		trz_pool_release(h, i->pool),   trz_stat(h, "num_ooms", &value), trz_close(h),
	};
	for (size_t k = 0; k < sizeof silent / sizeof *silent; k++)
		if (silent[k] != TRZ_OK)
			return 50 + (int)k;
	trz_pool_state_free(i->note);
	return 0;
}

static void test_children_are_refused_and_never_hang(void **state)
{
	(void)state;
	enum { CHILDREN = 40 };
	struct rig r = rig_open(GIB(1), NULL);
	struct inherited i = {.slot = rig_alloc(&r, 700, NULL), .block = rig_alloc(&r, MIB(3), NULL)};
	pthread_t thread;
	void *fine = NULL;
	assert_ok(trz_pool_create(r.heap, &i.pool));
	assert_ok(trz_pool_checkpoint(r.heap, i.pool, &i.note));
	assert_int_equal(pthread_create(&thread, NULL, churn, &r), 0);
	for (int n = 0; n < CHILDREN; n++) {
		int status = -1;
		pid_t child = fork();
		if (child == 0) {
			alarm(60);  /* in place of hanging for ever */
			_exit(use_inherited(&r, &i));
		}
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_int_equal(status, 0);
	}
	atomic_store(&enough, true);
	assert_int_equal(pthread_join(thread, &fine), 0);
	assert_non_null(fine);
	rig_free(&r, i.slot);
	rig_free(&r, i.block);
	trz_pool_state_free(i.note);
	assert_ok(trz_pool_release(r.heap, i.pool));
	rig_check(&r);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_children_are_refused_and_never_hang),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
