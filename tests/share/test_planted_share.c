/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of the tests: bugs planted in exports and imports, and what notices them.
 */
#include <unistd.h>

#include "heap/heap.h"
#include "heap/pending.h"
#include "rig.h"

enum { SIZE = 4 << 20 };

struct pair {
	struct rig rig;
	trz_heap *importer;
	void *p, *q;         /* the memory here, and in the importer's heap */
};

static void *exportable(trz_heap *heap)
{
	const trz_alloc_params params = {.struct_size = sizeof params, .size = SIZE, .flags = TRZ_ALLOC_SHARE_FD};
	void *p = NULL;
	assert_ok(trz_alloc_with(heap, &params, &p));
	return p;
}

static struct pair open_pair(void)
{
	struct pair pair = {.rig = rig_open(GIB(1), NULL)};
	trz_open_params params = {.driver = pair.rig.d};
	int fd = -1;
	assert_ok(trz_open(&params, &pair.importer));
	pair.p = exportable(pair.rig.heap);
	assert_ok(trz_export(pair.rig.heap, pair.p, TRZ_ALLOC_SHARE_FD, &fd));
	assert_ok(trz_import(pair.importer, TRZ_ALLOC_SHARE_FD, &fd, SIZE, NULL, &pair.q));
	close(fd);
	assert_ok(sim_stamp(pair.rig.s, pair.rig.c, NULL, (trz_addr)pair.q, SIZE, 7));
	return pair;
}

static void close_pair(struct pair *pair)
{
	trz_close(pair->importer);
	trz_close(pair->rig.heap);
	sim_close(pair->rig.s);
}

static struct block *block_of(const trz_heap *h)
{
	return h->windows[LARGE]->blocks.first;
}

static void test_the_check_notices_an_export_that_is_forgotten(void **state)
{
	(void)state;
	struct pair pair = open_pair();
	assert_ok(trz_check(pair.rig.heap));
	block_of(pair.rig.heap)->exports = 0;
	assert_status(trz_check(pair.rig.heap), TRZ_ERROR_CORRUPT);
	assert_text(trz_last_error(), "exported bytes");
	close_pair(&pair);
}

static void test_the_check_notices_free_memory_with_exports(void **state)
{
	(void)state;
	struct pair pair = open_pair();
	trz_heap *h = pair.rig.heap;
	rig_free(&pair.rig, pair.p);
	assert_ok(trz_export_end(h, pair.p));
	rig_sync(&pair.rig);
	assert_ok(trz_trim(h, SIZE_MAX, NULL));
	assert_int_equal(block_of(h)->state, BLOCK_FREE);
	block_of(h)->exports = 1;
	assert_status(trz_check(h), TRZ_ERROR_CORRUPT);
	assert_text(trz_last_error(), "invariant I10");
	close_pair(&pair);
}

/* A tile that is exported is gathered all the same. */
static void test_the_check_notices_an_exported_tile_that_moves(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), "tile_size:2MiB,tile_size_max:2MiB,slack_per_mille:0,churn_per_mille:0");
	void *held[5];
	for (int i = 0; i < 5; i++)
		held[i] = rig_alloc(&r, SIZE, NULL);
	trz_exported_tile tile;
	assert_ok(trz_export_tile(r.heap, held[1], TRZ_ALLOC_SHARE_FD, NULL, &tile));
	rig_free(&r, held[1]);
	rig_free(&r, held[3]);
	rig_sync(&r);
	const struct window *w = r.heap->windows[LARGE];
	struct tile *exported = window_at(w, (trz_addr)tile.base)->tile;
	assert_int_equal(exported->exports, 1);
	assert_ok(trz_export_end(r.heap, tile.base));
	rig_alloc(&r, 2 * SIZE, NULL);
	exported->exports = 1;
	assert_status(trz_check(r.heap), TRZ_ERROR_CORRUPT);
	assert_text(trz_last_error(), "does not stay");
	trz_close(r.heap);
	sim_close(r.s);
}

/* The importer's bytes tell when the memory has been given to somebody else. */
static void test_stamps_notice_that_exported_memory_is_reused(void **state)
{
	(void)state;
	struct pair pair = open_pair();
	struct rig *r = &pair.rig;
	rig_free(r, pair.p);
	rig_sync(r);
	assert_ok(trz_trim(r->heap, SIZE_MAX, NULL));
	struct block *b = block_of(r->heap);
	assert_int_equal(b->state, BLOCK_ENDED);
	b->exports = 0;
	level_sub(&r->heap->counters.exported_bytes, b->size);
	heap_lock(r->heap);
	heap_end_block_locked(r->heap, b, 0);
	heap_unlock(r->heap);
	assert_ptr_equal(exportable(r->heap), pair.p);
	assert_ok(sim_stamp(r->s, r->c, NULL, (trz_addr)pair.p, SIZE, 8));
	assert_ok(sim_verify(r->s, r->c, NULL, (trz_addr)pair.q, SIZE, 7));
	sim_device_sync(r->s, 0);
	assert_true(sim_violations(r->s) > 0);
	assert_text(sim_first_violation(r->s), "found tag 8");
	close_pair(&pair);
}

static void test_the_device_notices_an_import_unmapped_too_early(void **state)
{
	(void)state;
	struct pair pair = open_pair();
	assert_ok(trz_free(pair.importer, pair.q));
	struct tickets *t = &pair.importer->streams.list[0]->tickets;
	assert_true(t->passed < t->newest);
	t->passed = t->recorded = t->newest;
	trz_trim(pair.importer, SIZE_MAX, NULL);
	assert_true(sim_violations(pair.rig.s) > 0);
	assert_text(sim_first_violation(pair.rig.s), "while an unfinished stamp");
	close_pair(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_check_notices_an_export_that_is_forgotten),
		cmocka_unit_test(test_the_check_notices_free_memory_with_exports),
		cmocka_unit_test(test_the_check_notices_an_exported_tile_that_moves),
		cmocka_unit_test(test_stamps_notice_that_exported_memory_is_reused),
		cmocka_unit_test(test_the_device_notices_an_import_unmapped_too_early),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
