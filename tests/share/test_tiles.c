/* SPDX-License-Identifier: Apache-2.0
 *
 * Exports of packed memory, tile by tile: an exported tile stays in place whatever the heap needs, and serves the heap
 * there; other processes map several side by side. Two heaps of one process stand for two processes.
 */
#include <unistd.h>

#include "heap/heap.h"
#include "rig.h"

#define FINE "tile_size:2MiB,tile_size_max:2MiB,slack_per_mille:0,churn_per_mille:0"

enum { TILE = 2 << 20, BLOCK = 4 << 20, MANY = 256, HANDLES = 64 };

/* The tiles under an allocation, exported. */
struct exported {
	trz_exported_tile tiles[HANDLES];
	int fds[HANDLES];
	size_t count;
	char *base;
	size_t size, given;          /* `given`: how many descriptors an importer has taken */
};

/* By so many bytes at a time. */
static struct exported export_all(trz_heap *heap, void *p, size_t size)
{
	struct exported e = {0};
	char *at = p;
	while (at < (char *)p + size) {
		size_t i = e.count++;
		assert_true(i < HANDLES);
		assert_ok(trz_export_tile(heap, at, TRZ_ALLOC_SHARE_FD, &e.fds[i], &e.tiles[i]));
		assert_true((char *)e.tiles[i].base <= at && at < (char *)e.tiles[i].base + e.tiles[i].size);
		at = (char *)e.tiles[i].base + e.tiles[i].size;
	}
	e.base = e.tiles[0].base;
	e.size = (size_t)(at - e.base);
	return e;
}

static void close_all(struct exported *e)
{
	for (size_t i = 0; i < e->count; i++)
		close(e->fds[i]);
}

static void end_all(trz_heap *heap, const struct exported *e)
{
	for (size_t i = e->count; i-- > 0;)
		assert_ok(trz_export_end(heap, e->tiles[i].base));
}

static trz_status give_next(void *user, size_t offset, void *shareable, size_t *size)
{
	struct exported *e = user;
	size_t i = e->given++;
	assert_int_equal((char *)e->tiles[i].base - e->base, offset);
	*(int *)shareable = e->fds[i];
	*size = e->tiles[i].size;
	return TRZ_OK;
}

static void *import_all(trz_heap *heap, struct exported *e)
{
	void *q = NULL;
	e->given = 0;
	assert_ok(trz_import_tiles(heap, TRZ_ALLOC_SHARE_FD, e->size, give_next, e, NULL, &q));
	assert_int_equal(e->given, e->count);
	return q;
}

/* What a stamp holds depends on the addresses that it is written through, which are two here. */
static void fill(struct rig *r, const void *p, size_t size, uint8_t value)
{
	assert_ok(sim_fill(r->s, r->c, NULL, (trz_addr)p, size, value));
}

static void expect_filled(struct rig *r, const char *p, size_t size, uint8_t value)
{
	rig_sync(r);
	for (size_t at = 0; at < size; at += at + 1 < size && at + MIB(1) >= size ? size - 1 - at : MIB(1)) {
		uint8_t seen = 0;
		assert_true(sim_peek(r->s, (trz_addr)(p + at), &seen, 1));
		assert_int_equal(seen, value);
	}
	rig_check(r);
}

/* ---- what importers see ------------------------------------------------------------------------------------- */

static void test_memory_of_several_tiles_is_one_range(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), FINE);
	trz_heap *other = rig_second_heap(&r);
	void *before = rig_alloc(&r, MIB(1) + MIB(1) / 2, NULL);
	char *p = rig_alloc(&r, MIB(11), NULL);
	struct exported e = export_all(r.heap, p, MIB(11));
	assert_true(e.count >= 6 && e.base < p);  /* what is packed with it is opened with it */
	assert_int_equal(rig_stat(&r, "exported_bytes.current"), e.size);
	char *q = import_all(other, &e);
	close_all(&e);
	assert_int_equal(rig_stat_of(other, "imported_bytes.current"), e.size);
	assert_ok(trz_check(other));
	trz_pointer_info info;
	assert_ok(trz_query(other, q + MIB(5), &info));
	assert_true(info.base == q && info.size == e.size);
	fill(&r, p, MIB(11), 5);
	expect_filled(&r, q + (p - e.base), MIB(11), 5);
	fill(&r, q + (p - e.base), MIB(11), 6);
	expect_filled(&r, p, MIB(11), 6);
	assert_ok(trz_free(other, q));
	assert_ok(trz_trim(other, 0, NULL));
	rig_sync(&r);
	assert_ok(trz_trim(other, 0, NULL));
	assert_int_equal(rig_stat_of(other, "imported_bytes.current"), 0);
	assert_ok(trz_close(other));
	end_all(r.heap, &e);
	assert_int_equal(rig_stat(&r, "exported_bytes.current"), 0);
	rig_free(&r, p);
	rig_free(&r, before);
	rig_check(&r);
	rig_close(&r);
}

static void test_slots_are_exported_with_their_tile(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_heap *other = rig_second_heap(&r);
	char *a = rig_alloc(&r, 1000, NULL), *b = rig_alloc(&r, 1000, NULL);
	struct exported e = export_all(r.heap, a + 500, 1), f = export_all(r.heap, b, 1000);
	assert_true(e.count == 1 && f.count == 1 && e.base == f.base);
	assert_int_equal(rig_stat(&r, "exported_bytes.current"), e.size);
	char *q = import_all(other, &e), *again = import_all(other, &f);
	close_all(&e);
	close_all(&f);
	fill(&r, a, 1000, 1);
	fill(&r, again + (b - f.base), 1000, 2);
	expect_filled(&r, q + (a - e.base), 1000, 1);
	expect_filled(&r, b, 1000, 2);
	assert_ok(trz_close(other));
	end_all(r.heap, &e);
	assert_int_equal(rig_stat(&r, "exported_bytes.current"), e.size);
	end_all(r.heap, &f);
	assert_status(trz_export_end(r.heap, e.base), TRZ_ERROR_NOT_FOUND);
	rig_close(&r);
}

static void test_importers_outlive_exporters(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), FINE);
	trz_heap *other = rig_second_heap(&r);
	char *p = rig_alloc(&r, BLOCK, NULL);
	struct exported e = export_all(r.heap, p, BLOCK);
	char *q = import_all(other, &e);
	fill(&r, p, BLOCK, 3);
	rig_sync(&r);
	close_all(&e);
	assert_ok(trz_close(r.heap));  /* which ends the exports */
	r.heap = other;
	expect_filled(&r, q + (p - e.base), BLOCK, 3);
	rig_close(&r);
}

/* The memory of trz_alloc_with can be exported so as well; freed, it is given to nobody until then. */
/* Memory that serves once stays while another process has it, wherever in its tile it begins. */
static void test_debugging_options_return_no_exported_tile(void **state)
{
	(void)state;
	static const char *const options[] = {"no_cache:on", "unmap_on_free:on", "guard:on"};
	for (size_t i = 0; i < LENGTH(options); i++) {
		struct rig r = rig_open(GIB(1), options[i]);
		trz_alloc_params params = {.struct_size = sizeof params, .size = MIB(3), .flags = TRZ_ALLOC_SHARE_FD};
		int fd;
		void *p = rig_alloc(&r, MIB(3), NULL), *shared = NULL;
		struct exported e = export_all(r.heap, (char *)p + 100, MIB(1));
		assert_ok(trz_alloc_with(r.heap, &params, &shared));
		assert_ok(trz_export(r.heap, shared, TRZ_ALLOC_SHARE_FD, &fd));
		assert_int_equal(rig_stat(&r, "exported_bytes.current"), MIB(8));
		rig_free(&r, p);
		rig_free(&r, shared);
		rig_sync(&r);
		rig_free(&r, rig_alloc(&r, MIB(3), NULL));
		assert_ok(trz_poll(r.heap));
		assert_true(rig_stat(&r, "reserved_bytes.all.current") >= MIB(8));
		rig_check(&r);
		end_all(r.heap, &e);
		assert_ok(trz_export_end(r.heap, shared));
		rig_sync(&r);
		assert_ok(trz_poll(r.heap));
		assert_int_equal(rig_stat(&r, "reserved_bytes.all.current"), 0);
		close(fd);
		rig_check(&r);
		rig_close(&r);
	}
}

static void test_dedicated_memory_is_its_own_tile(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_alloc_params params = {.struct_size = sizeof params, .size = BLOCK, .flags = TRZ_ALLOC_SHARE_FD};
	void *p = NULL, *plain = NULL;
	assert_ok(trz_alloc_with(r.heap, &params, &p));
	struct exported e = export_all(r.heap, (char *)p + 77, BLOCK - 77), f = export_all(r.heap, p, BLOCK);
	assert_true(e.count == 1 && e.base == p && e.size == BLOCK && f.count == 1);
	assert_int_equal(rig_stat(&r, "exported_bytes.current"), BLOCK);
	rig_free(&r, p);
	rig_sync(&r);
	assert_ok(trz_trim(r.heap, 0, NULL));
	struct exported g = export_all(r.heap, p, BLOCK);  /* it is exported still */
	end_all(r.heap, &e);
	end_all(r.heap, &f);
	assert_int_equal(rig_stat(&r, "pending_bytes.current"), BLOCK);
	end_all(r.heap, &g);
	assert_int_equal(rig_stat(&r, "pending_bytes.current"), 0);
	params.flags = TRZ_ALLOC_CONTIGUOUS;
	assert_ok(trz_alloc_with(r.heap, &params, &plain));
	assert_ok(trz_export_tile(r.heap, plain, TRZ_ALLOC_SHARE_FD, NULL, &e.tiles[0]));
	assert_ok(trz_export_end(r.heap, plain));
	assert_status(trz_export(r.heap, plain, TRZ_ALLOC_SHARE_FD, &e.fds[0]), TRZ_ERROR_INVALID_ARGUMENT);
	close_all(&e);
	close_all(&f);
	close_all(&g);
	rig_check(&r);
	rig_close(&r);
}

/* ---- pins ------------------------------------------------------------------------------------------------------ */

/* Blocks of two tiles each, of which some are freed; of those that are freed one is exported. */
struct field {
	struct rig rig;
	trz_heap *other;
	char *held[9];
	struct exported e;           /* of the third, */
	char *q;                     /* as the other has it */
};

static struct field field_open(uint64_t capacity, const char *conf)
{
	struct field f = {.rig = rig_open(capacity, conf)};
	for (int i = 0; i < 9; i++)
		f.held[i] = rig_alloc(&f.rig, BLOCK, NULL);
	f.other = rig_second_heap(&f.rig);
	f.e = export_all(f.rig.heap, f.held[3], BLOCK);
	close_all(&f.e);
	f.e = export_all(f.rig.heap, f.held[3], BLOCK);
	f.q = import_all(f.other, &f.e);
	close_all(&f.e);
	fill(&f.rig, f.q, BLOCK, 3);
	rig_sync(&f.rig);
	rig_free(&f.rig, f.held[3]);
	rig_free(&f.rig, f.held[5]);
	rig_free(&f.rig, f.held[7]);
	rig_sync(&f.rig);
	return f;
}

/* The other still finds what it wrote, and the heap is served the same bytes where they have always been. */
static void expect_in_place(struct field *f)
{
	assert_int_equal(rig_stat(&f->rig, "exported_bytes.current"), BLOCK);
	expect_filled(&f->rig, f->q, BLOCK, 3);
	char *p = rig_alloc(&f->rig, BLOCK, NULL);
	assert_ptr_equal(p, f->held[3]);
	expect_filled(&f->rig, p, BLOCK, 3);
	rig_free(&f->rig, p);
}

static void field_close(struct field *f)
{
	for (int i = 0; i < 9; i++)
		if (i != 3 && i != 5 && i != 7)
			rig_free(&f->rig, f->held[i]);
	assert_ok(trz_close(f->other));
	rig_sync(&f->rig);
	for (int i = 0; i < 2; i++)  /* it has been exported twice */
		end_all(f->rig.heap, &f->e);
	assert_int_equal(rig_stat(&f->rig, "exported_bytes.current"), 0);
	assert_ok(trz_trim(f->rig.heap, 0, NULL));
	assert_int_equal(rig_stat(&f->rig, "reserved_bytes.all.current"), 0);
	rig_close(&f->rig);
}

static void test_gathering_passes_it_by(void **state)
{
	(void)state;
	struct field f = field_open(GIB(1), FINE);
	char *p = rig_alloc(&f.rig, 2 * BLOCK, NULL);
	assert_int_equal(rig_stat(&f.rig, "tiles_gathered"), 4);
	expect_in_place(&f);
	rig_free(&f.rig, p);
	field_close(&f);
}

/* Once the export has ended its tiles go where they are needed. */
static void test_what_has_ended_is_gathered(void **state)
{
	(void)state;
	struct field f = field_open(GIB(1), FINE);
	for (int i = 0; i < 2; i++)
		end_all(f.rig.heap, &f.e);
	char *p = rig_alloc(&f.rig, 3 * BLOCK, NULL);
	assert_int_equal(rig_stat(&f.rig, "tiles_gathered"), 6);
	fill(&f.rig, p, 3 * BLOCK, 9);
	rig_free(&f.rig, p);
	struct exported again = export_all(f.rig.heap, f.held[1], BLOCK);
	close_all(&again);
	f.e = again;
	f.e.count = 0;
	end_all(f.rig.heap, &again);
	field_close(&f);
}

/* What has been moved and is exported where it is now is not flipped back. */
static void test_flips_pass_it_by(void **state)
{
	(void)state;
	struct field f = field_open(GIB(1), FINE ",refill:off");
	char *moved = rig_alloc(&f.rig, 2 * BLOCK, NULL);
	struct exported e = export_all(f.rig.heap, moved, 2 * BLOCK);
	rig_free(&f.rig, moved);
	rig_free(&f.rig, f.held[4]);
	rig_free(&f.rig, f.held[6]);
	rig_sync(&f.rig);
	char *p = rig_alloc(&f.rig, 3 * BLOCK, NULL);  /* but for the export it would lie over the holes between those */
	assert_int_equal(rig_stat(&f.rig, "path_flip"), 0);
	rig_check(&f.rig);
	end_all(f.rig.heap, &e);
	close_all(&e);
	rig_free(&f.rig, p);
	expect_in_place(&f);
	f.held[4] = rig_alloc(&f.rig, BLOCK, NULL);
	f.held[6] = rig_alloc(&f.rig, BLOCK, NULL);
	field_close(&f);
}

static void test_trims_pass_it_by(void **state)
{
	(void)state;
	struct field f = field_open(GIB(1), FINE);
	size_t released = 0;
	assert_ok(trz_trim(f.rig.heap, 0, &released));
	assert_int_equal(released, 2 * BLOCK);
	expect_in_place(&f);
	field_close(&f);
}

static void test_the_ladder_passes_it_by(void **state)
{
	(void)state;
	struct field f = field_open(9 * BLOCK, FINE);
	void *p = NULL;
	assert_status(trz_alloc(f.rig.heap, 3 * BLOCK, 0, NULL, &p), TRZ_ERROR_OUT_OF_MEMORY);
	size_t largest;
	assert_ok(trz_largest_block(f.rig.heap, NULL, &largest));
	assert_int_equal(largest, 2 * BLOCK);
	expect_in_place(&f);
	p = rig_alloc(&f.rig, 2 * BLOCK, NULL);
	expect_in_place(&f);
	rig_free(&f.rig, p);
	field_close(&f);
}

static void test_dedicated_memory_is_made_without_it(void **state)
{
	(void)state;
	struct field f = field_open(9 * BLOCK, FINE);
	trz_alloc_params params = {.struct_size = sizeof params, .size = 3 * BLOCK, .flags = TRZ_ALLOC_CONTIGUOUS};
	void *p = NULL;
	assert_status(trz_alloc_with(f.rig.heap, &params, &p), TRZ_ERROR_OUT_OF_MEMORY);
	expect_in_place(&f);
	params.size = BLOCK;
	assert_ok(trz_alloc_with(f.rig.heap, &params, &p));
	expect_in_place(&f);
	rig_free(&f.rig, p);
	field_close(&f);
}

static void test_what_is_returned_at_once_stays_while_it_is_exported(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), "unmap_on_free:on");
	char *p = rig_alloc(&r, BLOCK, NULL);
	struct exported e = export_all(r.heap, p, BLOCK);
	close_all(&e);
	rig_free(&r, p);
	rig_sync(&r);
	char *q = rig_alloc(&r, BLOCK, NULL);
	assert_ptr_not_equal(p, q);
	assert_int_equal(rig_stat(&r, "reserved_bytes.all.current"), 2 * BLOCK);
	end_all(r.heap, &e);
	rig_free(&r, q);
	rig_sync(&r);
	assert_ok(trz_trim(r.heap, 0, NULL));
	assert_int_equal(rig_stat(&r, "reserved_bytes.all.current"), 0);
	rig_close(&r);
}

static void test_the_end_of_a_pool_leaves_it_there(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), FINE);
	trz_pool *pool = NULL;
	void *p = NULL;
	assert_ok(trz_pool_create(r.heap, &pool));
	assert_ok(trz_pool_alloc(r.heap, pool, BLOCK, 0, NULL, &p));
	struct exported e = export_all(r.heap, p, BLOCK);
	close_all(&e);
	rig_free(&r, p);
	assert_ok(trz_pool_release(r.heap, pool));
	rig_sync(&r);
	assert_ok(trz_trim(r.heap, 0, NULL));
	assert_int_equal(rig_stat(&r, "reserved_bytes.all.current"), BLOCK);
	assert_ptr_equal(rig_alloc(&r, BLOCK, NULL), p);  /* it is everybody's now */
	rig_free(&r, p);
	rig_sync(&r);
	end_all(r.heap, &e);
	assert_ok(trz_trim(r.heap, 0, NULL));
	assert_int_equal(rig_stat(&r, "reserved_bytes.all.current"), 0);
	rig_close(&r);
}

/* What is sent, freed and sent again takes no more each time: what is pinned serves. */
static void test_what_is_pinned_is_used(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	struct exported first = {0};
	for (int i = 0; i < MANY; i++) {
		void *p = rig_alloc(&r, BLOCK, NULL);
		struct exported e = export_all(r.heap, p, BLOCK);
		close_all(&e);
		if (!i)
			first = e;  /* is never ended */
		else
			end_all(r.heap, &e);
		rig_free(&r, p);
	}
	assert_int_equal(rig_stat(&r, "exported_bytes.current"), first.size);
	assert_int_equal(rig_stat(&r, "reserved_bytes.all.peak"), first.size);
	rig_check(&r);
	rig_close(&r);
}

static void test_exports_end_in_any_order(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), FINE);
	char *p[3];
	struct exported e[3];
	for (int i = 0; i < 3; i++)
		p[i] = rig_alloc(&r, MIB(3), NULL);  /* neighbours share a tile */
	for (int i = 0; i < 3; i++) {
		e[i] = export_all(r.heap, p[i], MIB(3));
		close_all(&e[i]);
		rig_free(&r, p[i]);
	}
	rig_sync(&r);
	const int order[] = {1, 0, 2};
	uint64_t before = rig_stat(&r, "reserved_bytes.all.current");
	for (int i = 0; i < 3; i++) {
		assert_ok(trz_trim(r.heap, 0, NULL));
		rig_check(&r);
		uint64_t exported = rig_stat(&r, "exported_bytes.current");
		assert_int_equal(rig_stat(&r, "reserved_bytes.all.current"), exported);
		assert_true(exported <= before);
		end_all(r.heap, &e[order[i]]);
	}
	assert_int_equal(rig_stat(&r, "exported_bytes.current"), 0);
	assert_status(trz_export_end(r.heap, e[1].base), TRZ_ERROR_NOT_FOUND);
	rig_close(&r);
}

/* Its holder frees next, perhaps in a host function that a call of the driver waits for. */
static void test_an_end_waits_for_no_call_of_the_driver(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	struct exported e = export_all(r.heap, rig_alloc(&r, BLOCK, NULL), BLOCK);
	close_all(&e);
	heap_take_growth(r.heap);
	end_all(r.heap, &e);
	heap_give_growth(r.heap);
	assert_int_equal(rig_stat(&r, "exported_bytes.current"), 0);
	rig_check(&r);
	rig_close(&r);
}

/* ---- refusals ------------------------------------------------------------------------------------------------ */

static void test_refused_exports(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_exported_tile tile;
	int fd = -1;
	char *p = rig_alloc(&r, BLOCK, NULL);
	assert_status(trz_export_tile(r.heap, p + MIB(512), TRZ_ALLOC_SHARE_FD, &fd, &tile), TRZ_ERROR_UNKNOWN_POINTER);
	assert_status(trz_export_tile(r.heap, &fd, TRZ_ALLOC_SHARE_FD, &fd, &tile), TRZ_ERROR_UNKNOWN_POINTER);
	assert_status(trz_export_tile(r.heap, p, 77, &fd, &tile), TRZ_ERROR_INVALID_ARGUMENT);
	assert_status(trz_export_tile(r.heap, p, TRZ_ALLOC_SHARE_FABRIC, &fd, &tile), TRZ_ERROR_NOT_SUPPORTED);
	assert_status(trz_export_tile(r.heap, NULL, TRZ_ALLOC_SHARE_FD, &fd, &tile), TRZ_ERROR_INVALID_ARGUMENT);
	assert_status(trz_export_tile(r.heap, p, TRZ_ALLOC_SHARE_FD, &fd, NULL), TRZ_ERROR_INVALID_ARGUMENT);
	sim_fault_nth(r.s, 1ull << SIM_SLOT_export_handle, 1, false, TRZ_ERROR_DRIVER);
	assert_status(trz_export_tile(r.heap, p, TRZ_ALLOC_SHARE_FD, &fd, &tile), TRZ_ERROR_DRIVER);
	assert_int_equal(fd, -1);
	assert_int_equal(rig_stat(&r, "exported_bytes.current"), 0);
	assert_ok(trz_export_tile(r.heap, p, TRZ_ALLOC_SHARE_FD, NULL, &tile));
	assert_status(trz_export_end(r.heap, (char *)tile.base + 512), TRZ_ERROR_NOT_FOUND);
	assert_ok(trz_export_end(r.heap, tile.base));
	rig_free(&r, p);
	assert_status(trz_export_tile(r.heap, p, TRZ_ALLOC_SHARE_FD, NULL, &tile), TRZ_ERROR_UNKNOWN_POINTER);
	rig_close(&r);
}

static void test_only_what_was_meant_to_be(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), "exportable:off");
	trz_exported_tile tile;
	void *p = rig_alloc(&r, BLOCK, NULL);
	assert_status(trz_export_tile(r.heap, p, TRZ_ALLOC_SHARE_FD, NULL, &tile), TRZ_ERROR_INVALID_ARGUMENT);
	assert_text(trz_last_error(), "exportable");
	rig_close(&r);
	r = rig_open(GIB(1), "vmm:off");
	p = rig_alloc(&r, BLOCK, NULL);
	assert_status(trz_export_tile(r.heap, p, TRZ_ALLOC_SHARE_FD, NULL, &tile), TRZ_ERROR_NOT_SUPPORTED);
	assert_text(trz_last_error(), "cuIpcGetMemHandle");
	rig_close(&r);
}

static void test_imports_are_not_exported(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_heap *other = rig_second_heap(&r);
	trz_exported_tile tile;
	void *p = rig_alloc(&r, BLOCK, NULL);
	struct exported e = export_all(r.heap, p, BLOCK);
	void *q = import_all(other, &e);
	assert_status(trz_export_tile(other, q, TRZ_ALLOC_SHARE_FD, NULL, &tile), TRZ_ERROR_INVALID_ARGUMENT);
	assert_text(trz_last_error(), "another process");
	close_all(&e);
	assert_ok(trz_close(other));
	rig_close(&r);
}

/* ---- imports ---------------------------------------------------------------------------------------------------- */

/* What the source does wrong, at its second tile. */
struct trouble {
	struct exported *e;
	size_t size;                 /* it gives instead */
	trz_status status;
};

static trz_status give_trouble(void *user, size_t offset, void *shareable, size_t *size)
{
	const struct trouble *t = user;
	trz_status status = give_next(t->e, t->e->given * TILE, shareable, size);
	if (offset && t->status != TRZ_OK)
		return t->status;
	if (offset)
		*size = t->size;
	return status;
}

static void expect_refusal(trz_heap *other, struct trouble t, trz_status expected)
{
	void *q = &t;
	t.e->given = 0;
	assert_status(trz_import_tiles(other, TRZ_ALLOC_SHARE_FD, t.e->size, give_trouble, &t, NULL, &q), expected);
	assert_null(q);
	assert_int_equal(rig_stat_of(other, "imported_bytes.current"), 0);
	assert_ok(trz_check(other));
}

static void test_refused_imports(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), FINE);
	trz_heap *other = rig_second_heap(&r);
	struct exported e = export_all(r.heap, rig_alloc(&r, MIB(8), NULL), MIB(8));
	void *q = &e;
	expect_refusal(other, (struct trouble){&e, .status = TRZ_ERROR_NOT_FOUND}, TRZ_ERROR_NOT_FOUND);
	assert_text(trz_last_error(), "the callback returned TRZ_ERROR_NOT_FOUND in place of the tile at byte");
	expect_refusal(other, (struct trouble){&e, .size = 0}, TRZ_ERROR_INVALID_ARGUMENT);
	expect_refusal(other, (struct trouble){&e, .size = TILE + 512}, TRZ_ERROR_INVALID_ARGUMENT);
	expect_refusal(other, (struct trouble){&e, .size = MIB(64)}, TRZ_ERROR_INVALID_ARGUMENT);
	assert_text(trz_last_error(), "are missing");
	expect_refusal(other, (struct trouble){&e, .size = 2 * TILE}, TRZ_ERROR_INVALID_ARGUMENT);  /* the driver sees it */
	assert_status(trz_import_tiles(other, TRZ_ALLOC_SHARE_FD, e.size + 1, give_next, &e, NULL, &q),
	              TRZ_ERROR_INVALID_ARGUMENT);
	assert_status(trz_import_tiles(other, TRZ_ALLOC_SHARE_FD, e.size, NULL, &e, NULL, &q), TRZ_ERROR_INVALID_ARGUMENT);
	close_all(&e);
	assert_ok(trz_close(other));
	rig_close(&r);
}

/* The source may use the heap: no lock is held. */
static trz_status give_and_allocate(void *user, size_t offset, void *shareable, size_t *size)
{
	trz_heap **heap = user;
	void *p = NULL;
	trz_exported_tile tile;
	assert_ok(trz_alloc(heap[1], MIB(40), 0, NULL, &p));
	assert_ok(trz_free(heap[1], p));
	assert_ok(trz_trim(heap[1], 0, NULL));
	assert_ok(trz_check(heap[1]));
	assert_ok(trz_export_tile(heap[0], (char *)heap[2] + offset, TRZ_ALLOC_SHARE_FD, shareable, &tile));
	*size = tile.size;
	return TRZ_OK;
}

static void test_the_source_may_use_the_heap(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), FINE);
	trz_heap *other = rig_second_heap(&r);
	void *p = rig_alloc(&r, MIB(8), NULL), *q = NULL;
	trz_heap *heaps[] = {r.heap, other, p};
	assert_ok(trz_import_tiles(other, TRZ_ALLOC_SHARE_FD, MIB(8), give_and_allocate, heaps, NULL, &q));
	assert_ok(trz_check(other));
	fill(&r, p, MIB(8), 4);
	expect_filled(&r, q, MIB(8), 4);
	assert_ok(trz_close(other));
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_memory_of_several_tiles_is_one_range),
		cmocka_unit_test(test_slots_are_exported_with_their_tile),
		cmocka_unit_test(test_importers_outlive_exporters),
		cmocka_unit_test(test_debugging_options_return_no_exported_tile),
		cmocka_unit_test(test_dedicated_memory_is_its_own_tile),
		cmocka_unit_test(test_gathering_passes_it_by),
		cmocka_unit_test(test_what_has_ended_is_gathered),
		cmocka_unit_test(test_flips_pass_it_by),
		cmocka_unit_test(test_trims_pass_it_by),
		cmocka_unit_test(test_the_ladder_passes_it_by),
		cmocka_unit_test(test_dedicated_memory_is_made_without_it),
		cmocka_unit_test(test_what_is_returned_at_once_stays_while_it_is_exported),
		cmocka_unit_test(test_the_end_of_a_pool_leaves_it_there),
		cmocka_unit_test(test_what_is_pinned_is_used),
		cmocka_unit_test(test_exports_end_in_any_order),
		cmocka_unit_test(test_an_end_waits_for_no_call_of_the_driver),
		cmocka_unit_test(test_refused_exports),
		cmocka_unit_test(test_only_what_was_meant_to_be),
		cmocka_unit_test(test_imports_are_not_exported),
		cmocka_unit_test(test_refused_imports),
		cmocka_unit_test(test_the_source_may_use_the_heap),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
