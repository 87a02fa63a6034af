/* SPDX-License-Identifier: Apache-2.0
 *
 * What a stream lends to others, and what it learns from memory that does not come back in time.
 */
#include "heap/heap.h"
#include "rig.h"

enum { BLOCKS = 32, BLOCK = 16 };

/* The program makes `to` wait for `from`, and reports it. */
static void order(struct rig *r, trz_stream from, trz_stream to)
{
	trz_event event = NULL;
	assert_ok(r->d->event_create(r->d->self, r->c, &event));
	uint64_t token = trz_event_record_begin(r->heap, event, from);
	assert_ok(r->d->event_record(r->d->self, r->c, event, from));
	trz_event_record_end(r->heap, event, from, token, true);
	token = trz_stream_wait_begin(r->heap, to, event);
	assert_ok(r->d->stream_wait(r->d->self, r->c, to, event));
	trz_stream_wait_end(r->heap, to, event, token, true);
	trz_event_forget(r->heap, event);
	assert_ok(r->d->event_destroy(r->d->self, r->c, event));
}

/* Memory that the stream has worked on, and freed; the work is not complete. */
static void free_late(struct rig *r, void *p, trz_stream stream)
{
	assert_ok(sim_stamp(r->s, r->c, stream, (trz_addr)p, MIB(BLOCK), 7));
	rig_free(r, p);
}

static void get_blocks(struct rig *r, void **blocks, int count, trz_stream stream)
{
	for (int i = 0; i < count; i++)
		blocks[i] = rig_alloc(r, MIB(BLOCK), stream);
}

static void free_blocks(struct rig *r, void **blocks, int count)
{
	for (int i = 0; i < count; i++)
		rig_free(r, blocks[i]);
}

/* A stream that waits for another now and then lends it a block of many, and has to create one when it needs all
 * again: it lends that much less from then on, and not a large part of its peak less. */
static void test_a_small_regret(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(80), "tile_size:16MiB,slack_per_mille:0");
	trz_stream a = rig_stream(&r), b = rig_stream(&r);
	void *blocks[BLOCKS], *between[BLOCKS], *borrowed[BLOCKS];
	free_late(&r, rig_alloc(&r, MIB(BLOCK), b), b);
	void *own = rig_alloc(&r, MIB(BLOCK), b);
	for (int i = 0; i < BLOCKS; i++) {
		blocks[i] = rig_alloc(&r, MIB(BLOCK), a);
		between[i] = rig_alloc(&r, MIB(2), a);
	}
	assert_ok(trz_poll(r.heap));  /* finds b late */
	order(&r, b, a);
	rig_sync(&r);
	free_blocks(&r, blocks, BLOCKS);
	sim_reset_calls(r.s);
	get_blocks(&r, borrowed, 1, b);
	assert_int_equal(sim_calls(r.s, SIM_SLOT_create), 0);
	free_late(&r, borrowed[0], b);
	get_blocks(&r, blocks, BLOCKS, a);
	assert_int_equal(sim_calls(r.s, SIM_SLOT_create), 1);
	free_blocks(&r, blocks, BLOCKS);
	rig_sync(&r);
	get_blocks(&r, borrowed, BLOCKS - 2, b);
	assert_int_equal(sim_calls(r.s, SIM_SLOT_create), 1);
	get_blocks(&r, borrowed + BLOCKS - 2, 2, b);
	assert_int_equal(sim_calls(r.s, SIM_SLOT_create), 1);
	get_blocks(&r, blocks, 1, b);
	assert_int_equal(sim_calls(r.s, SIM_SLOT_create), 2);
	free_blocks(&r, between, BLOCKS);
	free_blocks(&r, borrowed, BLOCKS);
	free_blocks(&r, blocks, 1);
	rig_free(&r, own);
	rig_check(&r);
	rig_sync(&r);
	rig_close(&r);
}

/* Two streams that know nothing of each other, both late, need all of the program's memory by turns. Each keeps what it
 * has needed until together that is 1.3 times what the program has ever held; from then on they share. */
static void test_peaks_far_apart(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(80), "tile_size:16MiB,slack_per_mille:0");
	void *blocks[BLOCKS], *mark[2];
	trz_stream stream[2] = {rig_stream(&r), rig_stream(&r)};
	for (int i = 0; i < 2; i++)
		mark[i] = rig_alloc(&r, MIB(2), stream[i]);
	get_blocks(&r, blocks, BLOCKS, stream[0]);
	free_blocks(&r, blocks, BLOCKS);
	for (int turn = 1; turn < 5; turn++) {
		trz_stream s = stream[turn % 2];
		rig_sync(&r);
		sim_reset_calls(r.s);
		assert_ok(sim_stamp(r.s, r.c, s, (trz_addr)mark[turn % 2], MIB(2), 7));
		rig_free(&r, mark[turn % 2]);
		assert_ok(trz_poll(r.heap));  /* finds s late */
		get_blocks(&r, blocks, BLOCKS, s);
		assert_in_range(sim_calls(r.s, SIM_SLOT_create), 0, turn == 1 ? BLOCKS / 3 : 0);
		mark[turn % 2] = rig_alloc(&r, MIB(2), s);
		free_blocks(&r, blocks, BLOCKS);
		rig_check(&r);
	}
	assert_in_range(rig_stat(&r, "reserved_bytes.all.current"), 0, MIB(BLOCK) * (BLOCKS + BLOCKS / 3 + 1));
	rig_free(&r, mark[0]);
	rig_free(&r, mark[1]);
	rig_sync(&r);
	rig_close(&r);
}

enum { PIECES = 8 };  /* of one tile */

/* Free blocks of two streams side by side serve a third one's request. The device is not asked, though work of a stream
 * is late; and what else the two have free stays theirs. */
static void test_neighbours(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(80), "tile_size:2MiB");
	const uint64_t piece = MIB(2) / PIECES;
	trz_stream a = rig_stream(&r), b = rig_stream(&r), c = rig_stream(&r);
	void *p[PIECES];
	for (int i = 0; i < PIECES; i++)
		p[i] = rig_alloc(&r, piece, a);
	assert_int_equal(rig_stat(&r, "reserved_bytes.all.current"), MIB(2));
	rig_free(&r, p[2]);
	assert_ptr_equal(rig_alloc(&r, piece, b), p[2]);
	rig_free(&r, p[2]);
	rig_free(&r, p[3]);
	rig_free(&r, p[5]);
	rig_sync(&r);
	assert_ok(trz_poll(r.heap));
	assert_ok(sim_stamp(r.s, r.c, a, (trz_addr)p[7], piece, 7));
	rig_free(&r, p[7]);  /* is not known to have passed */
	sim_reset_calls(r.s);
	assert_ptr_equal(rig_alloc(&r, 2 * piece, c), p[2]);
	assert_int_equal(sim_calls(r.s, SIM_SLOT_create), 0);
	assert_int_equal(sim_calls(r.s, SIM_SLOT_event_record), 0);
	assert_int_equal(sim_calls(r.s, SIM_SLOT_event_query), 0);
	rig_check(&r);
	assert_ptr_equal(rig_alloc(&r, piece, a), p[5]);
	const int live[] = {0, 1, 2, 4, 5, 6};
	for (size_t i = 0; i < sizeof live / sizeof *live; i++)
		rig_free(&r, p[live[i]]);
	rig_check(&r);
	rig_sync(&r);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_small_regret),
		cmocka_unit_test(test_peaks_far_apart),
		cmocka_unit_test(test_neighbours),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
