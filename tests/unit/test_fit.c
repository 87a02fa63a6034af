/* SPDX-License-Identifier: Apache-2.0
 *
 * The best-fit index: what it finds, in which order, and that its check notices damage.
 */
#include "bits.h"
#include "memory/fit.h"
#include "testing.h"

static struct fit fit;
static struct block *trees[FIT_BUCKETS];
static struct level cached;

static struct block make(trz_addr address, uint64_t size)
{
	return (struct block){.address = address, .size = size, .state = BLOCK_FREE};
}

static void reset(void)
{
	cached = (struct level){0};
	memset(trees, 0, sizeof trees);
	fit_init(&fit, &cached, trees);
}

static void test_an_empty_index(void **state)
{
	(void)state;
	reset();
	assert_null(fit_find(&fit, 0));
	assert_null(fit_find(&fit, UNIT));
	assert_null(fit_find(&fit, UINT64_MAX));
	assert_int_equal(counter_get(&fit.largest), 0);
	assert_null(fit_check(&fit));
}

static void test_the_smallest_that_fits(void **state)
{
	(void)state;
	reset();
	struct block small = make(MIB(1), KIB(64)), middle = make(MIB(2), KIB(65)), large = make(MIB(4), GIB(3));
	fit_insert(&fit, &large);
	fit_insert(&fit, &small);
	fit_insert(&fit, &middle);
	assert_ptr_equal(fit_find(&fit, UNIT), &small);
	assert_ptr_equal(fit_find(&fit, KIB(64)), &small);
	assert_ptr_equal(fit_find(&fit, KIB(64) + UNIT), &middle);
	assert_ptr_equal(fit_find(&fit, KIB(65) + 1), &large);
	assert_ptr_equal(fit_find(&fit, GIB(3)), &large);
	assert_null(fit_find(&fit, GIB(3) + UNIT));
}

static void test_of_equals_the_lowest_address(void **state)
{
	(void)state;
	reset();
	struct block b[8];
	for (unsigned i = 0; i < 8; i++) {
		b[i] = make(MIB(1 + (i * 5) % 8), KIB(256));
		fit_insert(&fit, &b[i]);
	}
	for (unsigned i = 0; i < 8; i++) {
		struct block *found = fit_find(&fit, KIB(256));
		assert_int_equal(found->address, MIB(1 + i));
		fit_remove(&fit, found);
	}
	assert_null(fit_find(&fit, UNIT));
}

enum { MANY = 1000 };

/* Many equals are taken in the order of their addresses, and walked in it, whichever have gone before. */
static void test_many_equals(void **state)
{
	(void)state;
	static struct block b[MANY];
	reset();
	for (unsigned i = 0; i < MANY; i++) {
		b[i] = make(MIB(1000) + (trz_addr)(i * 7 % MANY) * MIB(1), KIB(64));
		fit_insert(&fit, &b[i]);
		assert_null(fit_check(&fit));
	}
	for (unsigned i = 0; i < MANY; i += 3) {
		fit_remove(&fit, &b[i]);
		assert_null(fit_check(&fit));
	}
	trz_addr last = 0;
	unsigned n = 0;
	for (struct block *next, *i = fit_find(&fit, KIB(33)); i; i = next, n++) {
		assert_true(i->address > last);
		assert_ptr_equal(fit_from(&fit, KIB(64), last + 1), i);
		last = i->address;
		next = fit_next(&fit, i);
		if (n % 2 == 0)
			fit_remove(&fit, i);
	}
	assert_int_equal(n, MANY - (MANY + 2) / 3);
	assert_null(fit_check(&fit));
	for (struct block *i; (i = fit_find(&fit, UNIT)); n--)
		fit_remove(&fit, i);
	assert_int_equal(n, (MANY - (MANY + 2) / 3 + 1) / 2);
	assert_null(fit_check(&fit));
}

/* The first size that does not have a bucket of its own, and two that share the last bucket. */
static void test_sizes_at_the_borders(void **state)
{
	(void)state;
	const uint64_t sizes[] = {KIB(32), KIB(64), KIB(65), MIB(1), GIB(4), GIB(1024), GIB(2048)};
	enum { SIZES = sizeof sizes / sizeof *sizes };
	static struct block b[SIZES];
	reset();
	for (unsigned i = SIZES; i-- > 0;) {
		b[i] = make(GIB(4096) * (i + 1), sizes[i]);
		fit_insert(&fit, &b[i]);
	}
	for (unsigned i = 0; i < SIZES; i++) {
		assert_ptr_equal(fit_find(&fit, sizes[i]), &b[i]);
		assert_ptr_equal(fit_find(&fit, sizes[i] - UNIT), &b[i]);
		assert_ptr_equal(fit_find(&fit, sizes[i] + UNIT), i + 1 < SIZES ? &b[i + 1] : NULL);
		assert_ptr_equal(fit_from(&fit, sizes[i] - UNIT, UINT64_MAX), &b[i]);
		assert_ptr_equal(fit_from(&fit, sizes[i], b[i].address), &b[i]);
		assert_ptr_equal(fit_from(&fit, sizes[i], b[i].address + 1), i + 1 < SIZES ? &b[i + 1] : NULL);
		assert_ptr_equal(fit_next(&fit, &b[i]), i + 1 < SIZES ? &b[i + 1] : NULL);
	}
	assert_null(fit_check(&fit));
}

static void test_walking_in_ascending_order(void **state)
{
	(void)state;
	reset();
	struct block b[20];
	for (unsigned i = 0; i < 20; i++) {
		b[i] = make(MIB(8) * i, UNIT << (i * 7) % 20);
		fit_insert(&fit, &b[i]);
	}
	uint64_t size = 0;
	unsigned n = 0;
	for (struct block *i = fit_find(&fit, 0); i; i = fit_next(&fit, i), n++) {
		assert_true(i->size > size);
		size = i->size;
	}
	assert_int_equal(n, 20);
}

static void test_sums(void **state)
{
	(void)state;
	reset();
	struct block a = make(MIB(1), KIB(4)), b = make(MIB(2), MIB(40));
	fit_insert(&fit, &a);
	fit_insert(&fit, &b);
	assert_int_equal(fit.bytes, KIB(4) + MIB(40));
	assert_int_equal(counter_get(&cached.current), KIB(4) + MIB(40));
	assert_int_equal(counter_get(&fit.largest), MIB(40));
	fit_remove(&fit, &b);
	assert_int_equal(counter_get(&fit.largest), KIB(4));
	fit_remove(&fit, &a);
	assert_int_equal(counter_get(&fit.largest), 0);
	assert_int_equal(fit.bytes, 0);
	assert_int_equal(counter_get(&cached.current), 0);
	assert_int_equal(counter_get(&cached.peak), KIB(4) + MIB(40));
}

static void test_the_check_notices_damage(void **state)
{
	(void)state;
	reset();
	struct block a = make(MIB(1), KIB(4)), b = make(MIB(2), MIB(40));
	fit_insert(&fit, &a);
	fit_insert(&fit, &b);
	assert_null(fit_check(&fit));
	fit.bytes += UNIT;
	assert_non_null(fit_check(&fit));
	fit.bytes -= UNIT;
	b.state = BLOCK_LIVE;
	assert_non_null(fit_check(&fit));
	b.state = BLOCK_FREE;
	counter_set(&fit.largest, KIB(4));
	assert_non_null(fit_check(&fit));
	counter_set(&fit.largest, MIB(40));
	assert_null(fit_check(&fit));
	fit.words = 0;
	assert_non_null(fit_check(&fit));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_an_empty_index),
		cmocka_unit_test(test_the_smallest_that_fits),
		cmocka_unit_test(test_of_equals_the_lowest_address),
		cmocka_unit_test(test_many_equals),
		cmocka_unit_test(test_sizes_at_the_borders),
		cmocka_unit_test(test_walking_in_ascending_order),
		cmocka_unit_test(test_sums),
		cmocka_unit_test(test_the_check_notices_damage),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
