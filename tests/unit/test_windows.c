/* SPDX-License-Identifier: Apache-2.0
 *
 * Address space: only refills lay other tiles at a place that was given up (law L10), new windows follow used-up
 * ones, old windows are returned in the end, and meanwhile the device's memory goes wherever it is needed.
 */
#include <stdio.h>

#include "overlay.h"
#include "prng.h"

enum { HELD = 12, ROUNDS = 3000, ASKED = 100 };

/* Also where the window's free end is too close to the window's own end to be part of it. */
static void serve_the_largest(struct rig *r)
{
	size_t size;
	assert_ok(trz_largest_block(r->heap, NULL, &size));
	if (size)
		rig_free(r, rig_alloc(r, size, NULL));
}

/* Requests of ever other sizes on a nearly full device: tiles have to move all the time. */
static void churn(struct rig *r, uint64_t *random, void **held, uint64_t *most)
{
	for (int i = 0; i < ROUNDS + ASKED; i++) {
		size_t at = prng_below(random, HELD);
		rig_free(r, held[at]);
		held[at] = NULL;
		void *p;
		trz_status status = trz_alloc(r->heap, MIB(1) + prng_below(random, MIB(9)), 0, NULL, &p);
		if (status != TRZ_ERROR_OUT_OF_MEMORY)
			assert_ok(status);
		held[at] = p;
		if (p)
			assert_ok(sim_stamp(r->s, r->c, NULL, (trz_addr)p, MIB(1), 1 + at));
		sim_run(r->s, 2);
		*most = max_u64(*most, rig_stat(r, "address_bytes.current"));
		if (i % 100 == 0)
			rig_check(r);
		if (i >= ROUNDS)
			serve_the_largest(r);
	}
}

static void test_windows_follow_one_another_and_go(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(64), "window_factor:1,tile_size:2MiB,tile_size_max:2MiB,slack_per_mille:0,refill:off");
	void *held[HELD] = {NULL};
	uint64_t random = 7, most = 0;
	churn(&r, &random, held, &most);
	assert_true(rig_stat(&r, "driver_calls.reserve") > 3);
	assert_true(rig_stat(&r, "driver_calls.unreserve") > 3);
	assert_true(most <= 40 * MIB(64));  /* the quarantine of eight, and what old mappings still keep */
	for (size_t i = 0; i < HELD; i++)
		rig_free(&r, held[i]);
	rig_sync(&r);
	assert_ok(trz_trim(r.heap, 0, NULL));
	assert_int_equal(rig_stat(&r, "reserved_bytes.all.current"), 0);
	rig_check(&r);
	rig_close(&r);
}

/* Law 10: the simulated device is asked which addresses were ever laid twice. */
static struct {
	trz_addr laid[4096];
	size_t count;
	const trz_driver *under;
	bool twice;
} watch;

static trz_status watched_map(void *self, trz_addr address, uint64_t size, trz_handle handle)
{
	for (size_t i = 0; i < watch.count; i++)
		watch.twice |= watch.laid[i] == address;
	if (watch.count < LENGTH(watch.laid))
		watch.laid[watch.count++] = address;
	return watch.under->map(self, address, size, handle);
}

static bool some_address_twice(const char *conf)
{
	struct rig r = rig_machine((sim_config){.capacity = MIB(64)});
	trz_driver table = *r.d;
	trz_open_params params = {.driver = &table, .config = conf};
	watch.under = r.d;
	watch.count = 0;
	watch.twice = false;
	table.map = watched_map;
	assert_ok(trz_open(&params, &r.heap));
	uint64_t random = 9;
	void *held[HELD] = {NULL};
	for (int i = 0; i < 300 && watch.count < LENGTH(watch.laid); i++) {
		size_t at = prng_below(&random, HELD);
		rig_free(&r, held[at]);
		if (trz_alloc(r.heap, MIB(1) + prng_below(&random, MIB(6)), 0, NULL, &held[at]) != TRZ_OK)
			held[at] = NULL;
		if (i % 50 == 0) {
			rig_sync(&r);
			assert_ok(trz_trim(r.heap, 0, NULL));
		}
	}
	assert_true(watch.count > 50);
	rig_close(&r);
	return watch.twice;
}

static void test_a_place_is_laid_once(void **state)
{
	(void)state;
	assert_false(some_address_twice("slack_per_mille:0,tile_size:2MiB,tile_size_max:2MiB,refill:off"));
	assert_true(some_address_twice("slack_per_mille:0,tile_size:2MiB,tile_size_max:2MiB"));
}

/* Whether churn on a small device lays some address twice, with this much quarantine; how many windows were closed. */
static bool laid_twice(const char *quarantine, uint64_t *closed, uint64_t *held)
{
	char conf[160];
	struct rig r = rig_machine((sim_config){.capacity = MIB(16)});
	trz_driver table = *r.d;
	snprintf(conf, sizeof conf, "window_factor:1,slack_per_mille:0,tile_size:2MiB,tile_size_max:2MiB,quarantine:%s",
	         quarantine);
	trz_open_params params = {.driver = &table, .config = conf};
	watch.under = r.d;
	watch.count = 0;
	watch.twice = false;
	table.map = watched_map;
	assert_ok(trz_open(&params, &r.heap));
	for (int i = 0; i < 40; i++) {
		rig_free(&r, rig_alloc(&r, MIB(14), NULL));
		rig_sync(&r);
		assert_ok(trz_trim(r.heap, 0, NULL));
	}
	assert_true(watch.count < LENGTH(watch.laid));
	*closed = rig_stat(&r, "windows_closed");
	*held = rig_stat(&r, "quarantine_bytes.peak");
	rig_check(&r);
	rig_close(&r);
	return watch.twice;
}

static void test_quarantine(void **state)
{
	(void)state;
	uint64_t closed, held;
	assert_true(laid_twice("0", &closed, &held));  /* the simulated driver hands ranges out again at once */
	assert_true(closed > 10);
	assert_int_equal(held, 0);
	assert_false(laid_twice("1024", &closed, &held));
	assert_int_equal(closed, 0);
	assert_true(held > 20 * MIB(16));
	laid_twice("3", &closed, &held);
	assert_true(closed > 10);
	assert_int_equal(held, 3 * MIB(16));
}

/* The only free tile is larger than the whole window of small requests. */
static void test_a_small_request_when_only_a_huge_tile_is_free(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(64), "tile_size:64MiB,tile_size_max:64MiB");
	void *slots[128], *p;
	for (size_t i = 0; i < LENGTH(slots); i++)
		slots[i] = rig_alloc(&r, KIB(30), NULL);
	for (size_t i = 0; i < LENGTH(slots); i++)
		rig_free(&r, slots[i]);
	rig_sync(&r);
	rig_free(&r, rig_alloc(&r, MIB(64), NULL));  /* made of the slabs' tiles and of one huge one */
	rig_alloc(&r, MIB(3), NULL);
	rig_sync(&r);
	assert_ok(trz_alloc(r.heap, 1000, 0, NULL, &p));
	assert_ok(sim_stamp(r.s, r.c, NULL, (trz_addr)p, 1000, 1));
	rig_sync(&r);
	rig_check(&r);
	rig_close(&r);
}

/* The longest range that the driver has free; a window is at least as long as it must be. */
static struct overlay narrow;
static uint64_t longest;

static trz_status narrow_reserve(void *self, uint64_t size, uint64_t alignment, trz_addr hint, trz_addr *address)
{
	return size > longest ? TRZ_ERROR_ADDRESS_SPACE : narrow.rig.d->reserve(self, size, alignment, hint, address);
}

static void test_a_range_that_is_just_long_enough(void **state)
{
	(void)state;
	overlay_machine(&narrow, GIB(4));
	narrow.table.reserve = narrow_reserve;
	overlay_open_heap(&narrow, "window_factor:1");
	longest = GIB(3);
	void *p = rig_alloc(&narrow.rig, MIB(2600), NULL);
	assert_in_range(rig_stat(&narrow.rig, "address_bytes.current"), MIB(2600), GIB(3));
	rig_free(&narrow.rig, p);
	rig_check(&narrow.rig);
	rig_close(&narrow.rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_windows_follow_one_another_and_go),
		cmocka_unit_test(test_a_place_is_laid_once),
		cmocka_unit_test(test_quarantine),
		cmocka_unit_test(test_a_small_request_when_only_a_huge_tile_is_free),
		cmocka_unit_test(test_a_range_that_is_just_long_enough),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
