/* SPDX-License-Identifier: Apache-2.0
 *
 * Slabs and bins: every slot is given out once, and a bin lists exactly the slabs that have a free one.
 */
#include "memory/slab.h"
#include "testing.h"

/* A slab of each class over a block made up for it. */
static void make(struct slab *s, struct block *b, unsigned c)
{
	*b = (struct block){.address = 64ull * CELL, .size = size_classes[c].slab_size};
	slab_init(s, b, c);
}

static void test_every_slot_once(void **state)
{
	(void)state;
	for (unsigned c = 0; c < CLASS_COUNT; c++) {
		struct block b;
		struct slab s;
		struct bin bin = {0};
		make(&s, &b, c);
		bin_push(&bin, &s);
		uint64_t seen = 0;
		for (unsigned i = 0; i < size_classes[c].slots; i++) {
			trz_addr a = bin_take_slot(&bin, bin.first, 1);
			unsigned slot = (unsigned)((a - b.address) / size_classes[c].slot_size);
			assert_int_equal((a - b.address) % size_classes[c].slot_size, 0);
			assert_true(a + size_classes[c].slot_size <= block_end(&b));
			assert_false(seen >> slot & 1);
			assert_int_equal(s.unused[slot], size_classes[c].slot_size - 1);
			seen |= 1ull << slot;
		}
		assert_int_equal(s.free, 0);
		assert_null(bin.first);
		assert_int_equal(bin.length, 0);
		assert_int_equal(seen, slab_all_slots(&s));
	}
}

static void test_a_full_slab_comes_back_with_its_first_slot(void **state)
{
	(void)state;
	struct block b;
	struct slab s;
	struct bin bin = {0};
	make(&s, &b, 0);
	bin_push(&bin, &s);
	for (unsigned i = 0; i < size_classes[0].slots; i++)
		bin_take_slot(&bin, bin.first, UNIT);
	assert_false(bin_give_slot(&bin, &s, 7));
	assert_ptr_equal(bin.first, &s);
	assert_int_equal(bin_take_slot(&bin, bin.first, UNIT), slab_slot_address(&s, 7));
	assert_null(bin.first);
}

static void test_only_a_spare_empty_slab_is_given_up(void **state)
{
	(void)state;
	struct block b[2];
	struct slab s[2];
	struct bin bin = {0};
	make(&s[0], &b[0], 3);
	make(&s[1], &b[1], 3);
	bin_push(&bin, &s[0]);
	bin_take_slot(&bin, bin.first, UNIT);
	assert_false(bin_give_slot(&bin, &s[0], 0));  /* the only one of its bin */
	bin_push(&bin, &s[1]);
	bin_take_slot(&bin, bin.first, UNIT);
	bin_take_slot(&bin, bin.first, UNIT);
	assert_false(bin_give_slot(&bin, &s[1], 0));  /* not yet empty */
	assert_true(bin_give_slot(&bin, &s[1], 1));
}

static void test_unlinking(void **state)
{
	(void)state;
	struct block b[3];
	struct slab s[3];
	struct bin bin = {0};
	for (int i = 0; i < 3; i++) {
		make(&s[i], &b[i], 1);
		bin_push(&bin, &s[i]);
	}
	assert_int_equal(bin.length, 3);
	bin_unlink(&bin, &s[1]);
	assert_ptr_equal(bin.first, &s[2]);
	assert_ptr_equal(s[2].next, &s[0]);
	assert_ptr_equal(s[0].prev, &s[2]);
	bin_unlink(&bin, &s[2]);
	bin_unlink(&bin, &s[0]);
	assert_null(bin.first);
	assert_int_equal(bin.length, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_slot_once),
		cmocka_unit_test(test_a_full_slab_comes_back_with_its_first_slot),
		cmocka_unit_test(test_only_a_spare_empty_slab_is_given_up),
		cmocka_unit_test(test_unlinking),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
